//! Where a harness works: a mirror a repository, and a checkout a lease that borrows its objects.
//!
//! A checkout is a repository of its own and no `git worktree`, whose configuration, hooks, refs and
//! stash would be shared with other leases. The harness commits there and never pushes: the commit is
//! fetched into the mirror, checked, and pushed from there to the ref that belongs to the lease. No
//! git command runs inside of a checkout once a harness has had it.
//!
//! Nothing is ever collected as garbage from a mirror, since checkouts may borrow it.

mod checkout;
mod mirror;

use std::{
    io,
    path::{Path, PathBuf},
};

pub(crate) use checkout::Checkout;
pub(crate) use mirror::Mirror;

use crate::assignment::{Assignment, Commit};

/// Most characters of a repository's id, which names its mirror.
const ID_MAX: usize = 100;

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
}

impl Workspaces {
    /// Mirrors and checkouts in these two directories, which exist.
    pub(crate) fn new(mirrors: impl Into<PathBuf>, checkouts: impl Into<PathBuf>) -> Self {
        Self {
            mirrors: mirrors.into(),
            checkouts: checkouts.into(),
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
        let mirror = Mirror::new(&self.mirrors, &repository.id, &repository.git_url);
        mirror.fetch(&assignment.checkout_commit).await?;
        Checkout::make(mirror, &self.path(assignment), assignment).await
    }
}

fn names_a_directory(id: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    (1..=ID_MAX).contains(&id.len()) && id.bytes().all(is_plain)
}

fn make_directory(path: &Path) -> Result<(), Error> {
    std::fs::create_dir_all(path).map_err(|source| Error::Make {
        path: path.to_owned(),
        source,
    })
}

#[cfg(test)]
mod tests;
