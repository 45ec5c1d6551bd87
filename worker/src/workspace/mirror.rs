//! A bare copy of a repository, never writable by a harness.

use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
};

use pointsman_git::{Access, Git};

use super::{Error, make_directory};
use crate::{assignment::Commit, tree};

/// The mirror of one repository.
#[derive(Debug, Clone)]
pub(crate) struct Mirror {
    git: Git,
    access: Access,
    lock: PathBuf,
    url: String,
}

impl Mirror {
    /// The mirror of the repository `id`, which is at `url`. Not made yet.
    pub(super) fn new(mirrors: &Path, id: &str, url: &str, access: &Access) -> Self {
        let git = Git::new(mirrors.join(format!("{id}.git")))
            // One pack a fetch: it comes whole or not at all, where a killed fetch would leave some of
            // its objects by themselves.
            .with_env("GIT_CONFIG_COUNT", "1")
            .with_env("GIT_CONFIG_KEY_0", "fetch.unpackLimit")
            .with_env("GIT_CONFIG_VALUE_0", "1");
        Self {
            git,
            access: access.clone(),
            lock: mirrors.join(format!("{id}.lock")),
            url: url.to_owned(),
        }
    }

    /// Commands in the mirror that talk to the repository.
    pub(super) fn remote(&self) -> Git {
        self.git.clone().reaching(&self.access)
    }

    /// Commands in the mirror.
    pub(super) fn git(&self) -> &Git {
        &self.git
    }

    /// Where the repository is.
    pub(super) fn url(&self) -> &str {
        &self.url
    }

    /// What checkouts borrow.
    pub(super) fn objects(&self) -> PathBuf {
        self.git.directory().join("objects")
    }

    /// Brings all branches and `commit` here, and those of `others` that are still to be had. One at a time:
    /// who else wants the mirror waits.
    pub(super) async fn fetch(&self, commit: &Commit, others: &[Commit]) -> Result<(), Error> {
        let git = self.lock().await?;
        make(&git).await?;
        remove_stale_locks(git.directory()).map_err(Error::Lock)?;
        let git = git.reaching(&self.access);
        let mut arguments = vec!["fetch", "--quiet", "--no-tags", "--prune"];
        arguments.push("--no-write-fetch-head");
        arguments.extend(pointsman_git::upload_pack(&self.url));
        arguments.extend(["--", &self.url, "+refs/heads/*:refs/heads/*"]);
        git.run(arguments).await.map_err(Error::FetchBranches)?;
        // What is on no branch: asked for by name, or else looked for among the refs of all leases.
        let ways = [commit.as_str(), "+refs/pointsman/*:refs/pointsman/*"];
        if !self.fetch_commit(&git, commit, &ways).await? {
            return Err(Error::NoCommit(commit.clone()));
        }
        self.fetch_others(&git, others).await
    }

    /// All in one fetch, which fails where one of them is gone: then each by itself.
    async fn fetch_others(&self, git: &Git, others: &[Commit]) -> Result<(), Error> {
        let mut missing = Vec::new();
        for other in others {
            if !has(git, other).await? {
                missing.push(other.as_str());
            }
        }
        if missing.is_empty() {
            return Ok(());
        }
        let Err(error) = self.fetch_wanted(git, &missing).await else {
            return Ok(());
        };
        tracing::debug!(%error, "not all superseded commits are to be had");
        // A server that says nothing, or a git that can't be started, is no matter of one commit.
        let is_refused = matches!(error, pointsman_git::Error::Failed { .. });
        if !is_refused || missing.len() == 1 {
            return Ok(());
        }
        for other in missing {
            if let Err(error) = self.fetch_wanted(git, &[other]).await {
                tracing::debug!(%error, commit = other, "not to be had any more");
            }
        }
        Ok(())
    }

    /// Looks for a commit here, and then in the repository in these ways. False: it was not found.
    async fn fetch_commit(&self, git: &Git, commit: &Commit, ways: &[&str]) -> Result<bool, Error> {
        if has(git, commit).await? {
            return Ok(true);
        }
        for wanted in ways {
            let fetched = self.fetch_wanted(git, &[wanted]).await;
            if has(git, commit).await? {
                return Ok(true);
            }
            if let Err(error) = fetched {
                tracing::debug!(%error, wanted, "fetch beyond the branches");
            }
        }
        Ok(false)
    }

    async fn fetch_wanted(&self, git: &Git, wanted: &[&str]) -> Result<(), pointsman_git::Error> {
        let mut arguments = vec!["fetch", "--quiet", "--no-tags", "--no-write-fetch-head"];
        arguments.extend(pointsman_git::upload_pack(&self.url));
        arguments.extend(["--", &self.url]);
        arguments.extend(wanted);
        git.run(arguments).await.map(drop)
    }

    /// Commit at the tip of `branch`, where there is such a branch.
    pub(super) async fn tip(&self, branch: &str) -> Result<Option<Commit>, pointsman_git::Error> {
        let name = format!("refs/heads/{branch}^{{commit}}");
        let output = self
            .git
            .run_expecting(
                [
                    "rev-parse",
                    "--verify",
                    "--quiet",
                    "--end-of-options",
                    &name,
                ],
                &[0, 1],
            )
            .await?;
        Ok(Commit::new(&output.text()))
    }

    /// Removes a mirror that no fetch can repair. Returns whether it did; one that is borrowed from
    /// is left, since what it still has may be all that the borrowers' commits rest on.
    pub(super) async fn remove_if_damaged(
        &self,
        is_borrowed: impl FnOnce(&Path) -> io::Result<bool>,
    ) -> Result<bool, Error> {
        let git = self.lock().await?;
        let path = git.directory();
        if !path.exists() || is_whole(&git).await? {
            return Ok(false);
        }
        let damaged = |source| Error::Damaged {
            path: path.to_owned(),
            source,
        };
        if is_borrowed(&self.objects()).map_err(damaged)? {
            return Err(Error::Borrowed {
                path: path.to_owned(),
            });
        }
        tree::remove(path).await.map_err(damaged)?;
        Ok(true)
    }

    /// Waits for the lock on a thread that may block, and returns commands that hold it. Whoever
    /// holds it is within a git command, and those have a deadline.
    async fn lock(&self) -> Result<Git, Error> {
        let path = self.lock.clone();
        let lock = tokio::task::spawn_blocking(move || {
            let file = File::options()
                .create(true)
                .truncate(false)
                .write(true)
                .open(path)?;
            file.lock()?;
            Ok(file)
        })
        .await
        .unwrap_or_else(|error| Err(io::Error::other(error)))
        .map_err(Error::Lock)?;
        // So that no git of a killed agent is at work where the lock is free.
        Ok(self.git.clone().holding(lock))
    }
}

/// Makes the repository, or what is missing of one: doing so again changes nothing else.
async fn make(git: &Git) -> Result<(), Error> {
    let directory = git.directory();
    let has = |name: &&str| directory.join(name).exists();
    if ["HEAD", "config", "objects", "refs"].iter().all(has) {
        return Ok(());
    }
    make_directory(directory)?;
    git.run(["init", "--quiet", "--bare", "--template="])
        .await
        .map(drop)
        .map_err(Error::MakeMirror)
}

/// Whether the commit is here with all that it needs. A part of it may be, from a fetch that was
/// killed; what branches reach was fetched whole.
async fn has(git: &Git, commit: &Commit) -> Result<bool, Error> {
    let arguments = [commit.as_str(), "--not", "--all"];
    is_connected(git, &arguments)
        .await
        .map_err(|source| Error::Look {
            commit: commit.clone(),
            source,
        })
}

/// Whether all that the refs reach is here. Walks the whole history, which can take a minute.
async fn is_whole(git: &Git) -> Result<bool, Error> {
    is_connected(git, &["--all"])
        .await
        .map_err(Error::LookForDamage)
}

async fn is_connected(git: &Git, what: &[&str]) -> Result<bool, pointsman_git::Error> {
    let arguments = ["rev-list", "--objects", "--quiet"].iter().chain(what);
    let output = git.run_expecting(arguments, &[0, 1, 128]).await?;
    Ok(output.status == 0)
}

/// Removes git's own lock files, which a killed fetch leaves behind and which would fail every later
/// one. Whoever holds the mirror's lock is the only one to change its refs.
fn remove_stale_locks(mirror: &Path) -> io::Result<()> {
    let mut directories = vec![mirror.join("refs")];
    remove_locks_in(mirror)?;
    while let Some(directory) = directories.pop() {
        directories.extend(remove_locks_in(&directory)?);
    }
    Ok(())
}

/// Removes the lock files of one directory and returns the directories in it.
fn remove_locks_in(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let mut directories = Vec::new();
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let path = entry.path();
        if entry.file_type()?.is_dir() {
            directories.push(path);
        } else if path
            .extension()
            .is_some_and(|extension| extension == "lock")
        {
            tracing::warn!(path = %path.display(), "remove a lock that a killed git left");
            fs::remove_file(path)?;
        }
    }
    Ok(directories)
}
