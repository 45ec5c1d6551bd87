//! Where a harness works: a mirror a repository, and a checkout a lease that borrows its objects.
//!
//! A checkout is a repository of its own and no `git worktree`, whose configuration, hooks, refs and
//! stash would be shared with other leases. The harness commits there and never pushes: the commit is
//! fetched into the mirror, checked, and pushed from there to the ref that belongs to the lease. Once a
//! harness has had a checkout, git looks at it as at a remote repository only: `upload-pack` reads its
//! configuration, of which it takes nothing that runs a program.
//!
//! Nothing is ever collected as garbage from a mirror, since checkouts may borrow it. A mirror that is
//! damaged beyond what a fetch repairs is removed and made again, unless a checkout borrows it.

mod checkout;
mod mirror;

use std::{
    fs, io,
    path::{Path, PathBuf},
};

pub(crate) use checkout::Checkout;
pub(crate) use mirror::Mirror;
use pointsman_git::Access;

use crate::{
    assignment::{Assignment, Commit, Item},
    control_file,
    error::chain,
    harness::prompt::LIST_MAX,
    tree,
};

/// Most characters of a repository's id, which names its mirror.
const ID_MAX: usize = 100;

/// Most superseded commits that are fetched.
const SUPERSEDED_MAX: usize = LIST_MAX;

/// Where a checkout says whose objects it borrows.
const ALTERNATES: &str = ".git/objects/info/alternates";

/// Why a workspace could not be made or used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("repository id {0:?} can not name a directory")]
    RepositoryId(String),
    #[error("lock the mirror")]
    Lock(#[source] io::Error),
    #[error("make {}", path.display())]
    Make {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("make the mirror")]
    MakeMirror(#[source] pointsman_git::Error),
    #[error("look for damage of the mirror")]
    LookForDamage(#[source] pointsman_git::Error),
    #[error("replace the damaged mirror {}", path.display())]
    Damaged {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error(
        "mirror {} is damaged, and other checkouts borrow from it: it is made again once they are gone",
        path.display()
    )]
    Borrowed { path: PathBuf },
    #[error("fetch the branches")]
    FetchBranches(#[source] pointsman_git::Error),
    #[error("commit {0} is not to be had from the repository")]
    NoCommit(Commit),
    #[error("check out {commit}")]
    CheckOut {
        commit: Commit,
        #[source]
        source: pointsman_git::Error,
    },
    #[error("look for commit {commit} in the mirror")]
    Look {
        commit: Commit,
        #[source]
        source: pointsman_git::Error,
    },
    #[error("push to {push_ref}")]
    Push {
        push_ref: String,
        #[source]
        source: pointsman_git::Error,
    },
}

/// Why the commit in a checkout is no result. The harness's doing, unlike an [`Error`].
#[derive(Debug, thiserror::Error)]
pub(crate) enum CollectError {
    #[error("HEAD of the checkout can not be fetched")]
    Head(#[source] pointsman_git::Error),
    #[error("HEAD of the checkout names no commit")]
    NoCommit,
    #[error("HEAD ({head}) does not descend from {checkout}, which was checked out")]
    NoDescendant { head: Commit, checkout: Commit },
    #[error("compare HEAD with what was checked out")]
    Compare(#[source] pointsman_git::Error),
}

/// The directories of all workspaces of one worker.
#[derive(Debug, Clone)]
pub(crate) struct Workspaces {
    mirrors: PathBuf,
    checkouts: PathBuf,
    access: Access,
}

impl Workspaces {
    /// Mirrors and checkouts in these two directories, which exist.
    /// Remotes are reached by `access`.
    pub(crate) fn new(
        mirrors: impl Into<PathBuf>,
        checkouts: impl Into<PathBuf>,
        access: Access,
    ) -> Self {
        Self {
            mirrors: mirrors.into(),
            checkouts: checkouts.into(),
            access,
        }
    }

    /// Where the checkout of this lease is or will be.
    pub(crate) fn path(&self, assignment: &Assignment) -> PathBuf {
        self.checkouts.join(assignment.key.to_string())
    }

    /// Fetches what the lease needs and checks it out.
    pub(crate) async fn prepare(&self, assignment: &Assignment) -> Result<Checkout, Error> {
        let repository = &assignment.repository;
        if !names_a_directory(&repository.id) {
            return Err(Error::RepositoryId(repository.id.clone()));
        }
        let mirror = Mirror::new(
            &self.mirrors,
            &repository.id,
            &repository.git_url,
            &self.access,
        );
        let path = self.path(assignment);
        let error = match try_prepare(&mirror, &path, assignment).await {
            Err(error) => error,
            checkout => return checkout,
        };
        tracing::warn!(error = chain(&error), "look for damage of the mirror");
        let is_borrowed = |objects: &Path| self.is_borrowed(objects, &path);
        if !mirror.remove_if_damaged(is_borrowed).await? {
            return Err(error);
        }
        tracing::warn!(repository.id, "mirror was damaged: it is made again");
        tree::remove(&path).await.map_err(|source| Error::Make {
            path: path.clone(),
            source,
        })?;
        try_prepare(&mirror, &path, assignment).await
    }

    /// Whether a checkout but `except` may borrow these objects. One that doesn't say what it borrows
    /// may be about to, or belong to a harness that hides it.
    fn is_borrowed(&self, objects: &Path, except: &Path) -> io::Result<bool> {
        for entry in fs::read_dir(&self.checkouts)? {
            let checkout = entry?.path();
            if checkout == except {
                continue;
            }
            let borrows = match control_file::read(&checkout.join(ALTERNATES), control_file::MAX) {
                Ok(bytes) => String::from_utf8_lossy(&bytes)
                    .lines()
                    .any(|line| Path::new(line) == objects),
                Err(_) => true,
            };
            if borrows {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

async fn try_prepare(
    mirror: &Mirror,
    path: &Path,
    assignment: &Assignment,
) -> Result<Checkout, Error> {
    let others = superseded(&assignment.item);
    mirror.fetch(&assignment.checkout_commit, &others).await?;
    Checkout::make(mirror.clone(), path, assignment).await
}

/// The superseded commits that the prompt names: the newest, at the end of the list.
fn superseded(item: &Item) -> Vec<Commit> {
    let commits = &item.superseded_commits;
    let named = &commits[commits.len().saturating_sub(SUPERSEDED_MAX)..];
    named
        .iter()
        .filter_map(|commit| Commit::new(commit))
        .collect()
}

fn names_a_directory(id: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    (1..=ID_MAX).contains(&id.len()) && id.bytes().all(is_plain)
}

fn make_directory(path: &Path) -> Result<(), Error> {
    fs::create_dir_all(path).map_err(|source| Error::Make {
        path: path.to_owned(),
        source,
    })
}

#[cfg(test)]
mod tests;
