//! A bare copy of a repository, never writable by a harness.

use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
};

use pointsman_git::Git;

use super::{Error, make_directory};
use crate::assignment::Commit;

/// The mirror of one repository.
#[derive(Debug, Clone)]
pub(crate) struct Mirror {
    git: Git,
    lock: PathBuf,
    url: String,
}

impl Mirror {
    /// The mirror of the repository `id`, which is at `url`. Not made yet.
    pub(super) fn new(mirrors: &Path, id: &str, url: &str) -> Self {
        Self {
            git: Git::new(mirrors.join(format!("{id}.git"))),
            lock: mirrors.join(format!("{id}.lock")),
            url: url.to_owned(),
        }
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

    /// Brings all branches and `commit` here. One fetch at a time: others wait.
    pub(super) async fn fetch(&self, commit: &Commit) -> Result<(), Error> {
        let _lock = self.lock().await?;
        self.make().await?;
        remove_stale_locks(self.git.directory()).map_err(Error::Lock)?;
        self.git
            .run([
                "fetch",
                "--quiet",
                "--no-tags",
                "--prune",
                "--no-write-fetch-head",
                "--",
                &self.url,
                "+refs/heads/*:refs/heads/*",
            ])
            .await
            .map_err(Error::FetchBranches)?;
        if self.has(commit).await? {
            return Ok(());
        }
        // On no branch: asked for by name, or else looked for among the refs of all leases.
        for wanted in [commit.as_str(), "+refs/pointsman/*:refs/pointsman/*"] {
            let fetched = self.fetch_quietly(wanted).await;
            if self.has(commit).await? {
                return Ok(());
            }
            if let Err(error) = fetched {
                tracing::debug!(%error, wanted, "fetch beyond the branches");
            }
        }
        Err(Error::NoCommit(commit.clone()))
    }

    async fn fetch_quietly(&self, wanted: &str) -> Result<(), pointsman_git::Error> {
        self.git
            .run([
                "fetch",
                "--quiet",
                "--no-tags",
                "--no-write-fetch-head",
                "--",
                &self.url,
                wanted,
            ])
            .await
            .map(drop)
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

    async fn has(&self, commit: &Commit) -> Result<bool, Error> {
        let object = format!("{commit}^{{commit}}");
        self.git
            .run_expecting(["cat-file", "-e", &object], &[0, 1, 128])
            .await
            .map(|output| output.status == 0)
            .map_err(|source| Error::Look {
                commit: commit.clone(),
                source,
            })
    }

    async fn make(&self) -> Result<(), Error> {
        let directory = self.git.directory();
        if directory.join("HEAD").exists() {
            return Ok(());
        }
        make_directory(directory)?;
        self.git
            .run(["init", "--quiet", "--bare", "--template="])
            .await
            .map(drop)
            .map_err(Error::MakeMirror)
    }

    /// Waits for the lock on a thread that may block. Whoever holds it is within a git command, and
    /// those have a deadline.
    async fn lock(&self) -> Result<File, Error> {
        let path = self.lock.clone();
        tokio::task::spawn_blocking(move || {
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
        .map_err(Error::Lock)
    }
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
