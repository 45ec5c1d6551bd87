//! Where issues, pull requests, labels, checks and merges live.
//!
//! [`Forge`] has only the calls that the master makes. Each read tells what is true now; each write has
//! an expected state, reads before it acts, and may be repeated after an answer was lost. Identity is
//! repository, number, head ref and commit as we stored them, never a text on the forge. One
//! implementation a kind of forge, and one contract suite that each must pass.

pub mod builtin;
#[cfg(test)]
mod contract;

use async_trait::async_trait;

use crate::{
    domain::{
        ci::CheckState,
        ids::{CommitId, WorkflowId},
        policy::MergeMethod,
        retention::OwnName,
        workflow::Kind,
    },
    store::model::{ForgeItem, Repository},
};

/// Why a forge did not do, or could not tell, what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It does not answer, or git failed in a way that may pass. What was written is unknown: read
    /// before repeating.
    #[error("{operation}: the forge is not available{said}")]
    Unavailable {
        operation: &'static str,
        /// What it answered, after a colon and without paths and addresses; empty where it said nothing.
        said: String,
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// It does not let us, and will not without a person.
    #[error("{operation}: the forge refuses: {reason}")]
    Refused {
        operation: &'static str,
        reason: String,
    },
    /// Our own store failed while the forge was asked.
    #[error("{operation}: the forge's rows could not be read or written")]
    Store {
        operation: &'static str,
        #[source]
        source: crate::store::Error,
    },
}

/// An issue or a pull request as it is now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Item {
    pub number: u64,
    pub kind: Kind,
    pub title: String,
    pub body: String,
    pub labels: Vec<String>,
    pub is_open: bool,
    /// Set once it was merged, by whomever.
    pub merged_commit: Option<CommitId>,
    pub base_ref: String,
    /// Set on pull requests alone.
    pub head_ref: Option<String>,
    /// Tip of the head branch; `None` on issues, and where the branch is gone.
    pub head: Option<CommitId>,
}

/// An item as its row of the built-in forge has it; its branch was not looked at.
impl From<ForgeItem> for Item {
    fn from(row: ForgeItem) -> Self {
        Self {
            number: row.number,
            kind: row.kind,
            title: row.title,
            body: row.body,
            labels: row.labels,
            is_open: row.is_open,
            merged_commit: row.merged_commit,
            base_ref: row.base_ref,
            head_ref: row.head_ref,
            head: None,
        }
    }
}

/// How a wish to move a branch ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MoveOutcome {
    /// The branch is at `head`, which is or contains the wanted commit.
    Done { head: CommitId },
    /// The branch is at `head`: neither the expected commit nor one that contains the wanted one.
    Superseded { head: CommitId },
    /// It can't be done now; a look later may find otherwise.
    Waiting { reason: String },
}

/// How a wish for a pull request ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OpenOutcome {
    /// It is there, open, labelled, and its head is or contains the wanted commit.
    Done {
        item: Item,
    },
    /// Its branch is at `head`, which is unrelated to the wanted commit.
    Superseded {
        head: CommitId,
    },
    Waiting {
        reason: String,
    },
}

/// How a wish to merge ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MergeOutcome {
    /// `commit` was seen on the base branch.
    Done {
        commit: CommitId,
    },
    /// The head is not the expected one; by our own push, where it had to take the base branch in first.
    HeadMoved {
        head: CommitId,
    },
    Conflict {
        paths: Vec<String>,
    },
    /// It can't be done now: a person, a queue, a working copy with changes.
    Waiting {
        reason: String,
    },
    Refused {
        reason: String,
    },
}

/// A pull request that is to exist.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WantedPullRequest {
    pub head_ref: String,
    pub base_ref: String,
    /// Pushed by the worker to its lease's ref.
    pub commit: CommitId,
    pub title: String,
    pub body: String,
    pub label: String,
}

/// A pull request that is to be merged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WantedMerge {
    pub number: u64,
    pub head_ref: String,
    pub base_ref: String,
    /// Merged with this head, and with no other.
    pub head: CommitId,
    pub title: String,
    pub method: MergeMethod,
}

/// A ref of ours on the remote.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnRef {
    pub name: OwnName,
    pub commit: CommitId,
}

/// Where issues, pull requests, labels, checks and merges live.
#[async_trait]
pub trait Forge: Send + Sync {
    /// Open items that carry the repository's opt-in label.
    async fn labelled_items(&self, repository: &Repository) -> Result<Vec<Item>, Error>;

    async fn item(&self, repository: &Repository, number: u64) -> Result<Option<Item>, Error>;

    /// The item without a look at its branch: `head` may be left out. Asked before each lease, so it must
    /// cost little and answer soon; what only a look at the branch tells (a merge by hand) may be missing.
    async fn glance(&self, repository: &Repository, number: u64) -> Result<Option<Item>, Error>;

    /// Tip of a branch; `None` where there is none.
    async fn branch(&self, repository: &Repository, name: &str) -> Result<Option<CommitId>, Error>;

    /// Paths in which `head` conflicts with the tip of `base_ref`; empty where it can be merged.
    async fn conflicts(
        &self,
        repository: &Repository,
        head: &CommitId,
        base_ref: &str,
    ) -> Result<Vec<String>, Error>;

    /// The newest run of each check of one commit.
    async fn checks(
        &self,
        repository: &Repository,
        workflow: WorkflowId,
        commit: &CommitId,
    ) -> Result<Vec<CheckState>, Error>;

    /// Makes the failed checks of a commit run again. Checks that run already are left alone.
    async fn rerun_failed_checks(
        &self,
        repository: &Repository,
        workflow: WorkflowId,
        commit: &CommitId,
    ) -> Result<(), Error>;

    /// Moves a branch forward from `from` to `to`, which a worker pushed to its lease's ref. Nothing is
    /// ever forced over somebody else's push.
    async fn move_branch(
        &self,
        repository: &Repository,
        name: &str,
        from: &CommitId,
        to: &CommitId,
    ) -> Result<MoveOutcome, Error>;

    /// Makes a pull request exist.
    async fn open_pull_request(
        &self,
        repository: &Repository,
        wanted: &WantedPullRequest,
    ) -> Result<OpenOutcome, Error>;

    /// Merges a pull request.
    async fn merge(
        &self,
        repository: &Repository,
        wanted: &WantedMerge,
    ) -> Result<MergeOutcome, Error>;

    /// Every ref of ours on the remote, whoever made it: of leases, and branches of issues' workflows.
    async fn own_refs(&self, repository: &Repository) -> Result<Vec<OwnRef>, Error>;

    /// Deletes those of the refs that are still at their commit, and packs what was copied of the repository.
    /// How many of them are gone; the remote may keep some.
    async fn delete_refs(&self, repository: &Repository, refs: &[OwnRef]) -> Result<u64, Error>;
}
