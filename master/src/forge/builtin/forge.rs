//! The forge itself: what it needs, and its calls.

use std::{path::PathBuf, sync::Arc};

use async_trait::async_trait;
use pointsman_git::Access;

use super::{
    branch::{Advanced, Start, advance},
    mirror::{Merged, Mirrors},
    refs,
};
use crate::{
    clock::{Chance, Clock},
    domain::{
        ci::CheckState,
        ids::{CommitId, WorkflowId},
    },
    forge::{
        Error, Forge, Item, MergeOutcome, MoveOutcome, OpenOutcome, OwnRef, WantedMerge,
        WantedPullRequest,
    },
    store::{Store, model::Repository},
};

/// Any git remote, with rows of our own. Calls on one repository take turns.
pub struct BuiltinForge {
    pub(super) store: Arc<dyn Store>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) chance: Arc<dyn Chance>,
    pub(super) mirrors: Mirrors,
}

impl BuiltinForge {
    /// Bare copies of the repositories are made under `directory`; they may be removed at any time that
    /// no process uses them. Remotes are reached by `access`.
    pub fn new(
        store: Arc<dyn Store>,
        clock: Arc<dyn Clock>,
        chance: Arc<dyn Chance>,
        directory: PathBuf,
        access: Access,
    ) -> Self {
        let mirrors = Mirrors::new(directory, access, Arc::clone(&chance));
        Self {
            store,
            clock,
            chance,
            mirrors,
        }
    }
}

#[async_trait]
impl Forge for BuiltinForge {
    async fn labelled_items(&self, repository: &Repository) -> Result<Vec<Item>, Error> {
        self.read_labelled_items(repository).await
    }

    async fn item(&self, repository: &Repository, number: u64) -> Result<Option<Item>, Error> {
        self.read_item(repository, number).await
    }

    async fn glance(&self, repository: &Repository, number: u64) -> Result<Option<Item>, Error> {
        self.read_row(repository, number).await
    }

    async fn branch(&self, repository: &Repository, name: &str) -> Result<Option<CommitId>, Error> {
        let mirror = self.mirrors.take(repository, "read a branch").await?;
        mirror.check_branch_name(name).await?;
        mirror.ask_branch(name).await
    }

    async fn conflicts(
        &self,
        repository: &Repository,
        head: &CommitId,
        base_ref: &str,
    ) -> Result<Vec<String>, Error> {
        let mirror = self.mirrors.take(repository, "look for conflicts").await?;
        mirror.check_branch_name(base_ref).await?;
        mirror.look().await?;
        let Some(base) = mirror.branch(base_ref).await? else {
            return Err(mirror.refused(format!("there is no branch {base_ref}")));
        };
        if !mirror.has(head).await? {
            return Err(mirror.refused(format!("the repository does not have {head}")));
        }
        match mirror.merge(&base, head).await? {
            Merged::Tree(_) => Ok(Vec::new()),
            Merged::Conflict(paths) => Ok(paths),
            Merged::Unrelated => {
                Err(mirror.refused(format!("{head} and {base_ref} have no commit in common")))
            }
        }
    }

    async fn checks(
        &self,
        _repository: &Repository,
        workflow: WorkflowId,
        commit: &CommitId,
    ) -> Result<Vec<CheckState>, Error> {
        self.read_checks(workflow, commit)
            .await
            .map_err(|source| Error::Store {
                operation: "read checks",
                source,
            })
    }

    async fn rerun_failed_checks(
        &self,
        _repository: &Repository,
        workflow: WorkflowId,
        commit: &CommitId,
    ) -> Result<(), Error> {
        self.add_runs(workflow, commit)
            .await
            .map_err(|source| Error::Store {
                operation: "run failed checks again",
                source,
            })
    }

    async fn move_branch(
        &self,
        repository: &Repository,
        name: &str,
        from: &CommitId,
        to: &CommitId,
    ) -> Result<MoveOutcome, Error> {
        let mirror = self.mirrors.take(repository, "move a branch").await?;
        let end = advance(&mirror, name, Start::From(from), to).await?;
        Ok(match end {
            Advanced::Done { head } => MoveOutcome::Done { head },
            Advanced::Superseded { head } => MoveOutcome::Superseded { head },
            Advanced::Waiting { reason } => MoveOutcome::Waiting { reason },
        })
    }

    async fn open_pull_request(
        &self,
        repository: &Repository,
        wanted: &WantedPullRequest,
    ) -> Result<OpenOutcome, Error> {
        self.ensure_pull_request(repository, wanted).await
    }

    async fn merge(
        &self,
        repository: &Repository,
        wanted: &WantedMerge,
    ) -> Result<MergeOutcome, Error> {
        self.ensure_merged(repository, wanted).await
    }

    async fn own_refs(&self, repository: &Repository) -> Result<Vec<OwnRef>, Error> {
        let mirror = self.mirrors.take(repository, "list our refs").await?;
        mirror.look().await?;
        mirror.own_refs().await
    }

    async fn delete_refs(&self, repository: &Repository, refs: &[OwnRef]) -> Result<u64, Error> {
        let mirror = self.mirrors.take(repository, "delete refs").await?;
        let n_deleted = refs::delete(&mirror, refs).await?;
        mirror.pack().await?;
        Ok(n_deleted)
    }
}
