//! A forge that loses writes, and answers of writes.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use async_trait::async_trait;
use pointsman_master::{
    domain::{
        ci::CheckState,
        ids::{CommitId, WorkflowId},
    },
    forge::{
        Error, Forge, Item, MergeOutcome, MoveOutcome, OpenOutcome, OwnRef, WantedMerge,
        WantedPullRequest,
    },
    store::model::Repository,
};
use tokio::sync::Notify;

use super::faulty_store::Faults;

/// Holds one reading of checks between the read and its answer, where a test says so.
#[derive(Debug, Default)]
pub struct Hold {
    is_armed: AtomicBool,
    has_read: Notify,
    may_answer: Notify,
}

impl Hold {
    /// Does `meanwhile` after the next reading of checks has read, and before it answers. The reading
    /// itself is to be started beside this.
    pub async fn between(&self, meanwhile: impl Future<Output = ()>) {
        self.is_armed.store(true, Ordering::SeqCst);
        self.has_read.notified().await;
        meanwhile.await;
        self.may_answer.notify_one();
    }

    async fn pass(&self) {
        if self.is_armed.swap(false, Ordering::SeqCst) {
            self.has_read.notify_one();
            self.may_answer.notified().await;
        }
    }
}

/// A forge whose writes fail where [`Faults`] say so.
pub struct FaultyForge {
    inner: Arc<dyn Forge>,
    faults: Arc<Faults>,
    checks: Arc<Hold>,
}

impl FaultyForge {
    pub fn new(inner: Arc<dyn Forge>, faults: Arc<Faults>, checks: Arc<Hold>) -> Self {
        Self {
            inner,
            faults,
            checks,
        }
    }
}

fn lost(what: &'static str) -> Error {
    Error::Unavailable {
        said: String::new(),
        operation: "write",
        source: what.into(),
    }
}

#[async_trait]
impl Forge for FaultyForge {
    async fn labelled_items(&self, repository: &Repository) -> Result<Vec<Item>, Error> {
        self.inner.labelled_items(repository).await
    }

    async fn item(&self, repository: &Repository, number: u64) -> Result<Option<Item>, Error> {
        self.inner.item(repository, number).await
    }

    async fn glance(&self, repository: &Repository, number: u64) -> Result<Option<Item>, Error> {
        self.inner.glance(repository, number).await
    }

    async fn branch(&self, repository: &Repository, name: &str) -> Result<Option<CommitId>, Error> {
        self.inner.branch(repository, name).await
    }

    async fn conflicts(
        &self,
        repository: &Repository,
        head: &CommitId,
        base_ref: &str,
    ) -> Result<Vec<String>, Error> {
        self.inner.conflicts(repository, head, base_ref).await
    }

    async fn checks(
        &self,
        repository: &Repository,
        workflow: WorkflowId,
        commit: &CommitId,
    ) -> Result<Vec<CheckState>, Error> {
        let read = self.inner.checks(repository, workflow, commit).await;
        self.checks.pass().await;
        read
    }

    async fn rerun_failed_checks(
        &self,
        repository: &Repository,
        workflow: WorkflowId,
        commit: &CommitId,
    ) -> Result<(), Error> {
        let write = self.inner.rerun_failed_checks(repository, workflow, commit);
        self.faults.around(write, lost).await
    }

    async fn move_branch(
        &self,
        repository: &Repository,
        name: &str,
        from: &CommitId,
        to: &CommitId,
    ) -> Result<MoveOutcome, Error> {
        let write = self.inner.move_branch(repository, name, from, to);
        self.faults.around(write, lost).await
    }

    async fn open_pull_request(
        &self,
        repository: &Repository,
        wanted: &WantedPullRequest,
    ) -> Result<OpenOutcome, Error> {
        let write = self.inner.open_pull_request(repository, wanted);
        self.faults.around(write, lost).await
    }

    async fn merge(
        &self,
        repository: &Repository,
        wanted: &WantedMerge,
    ) -> Result<MergeOutcome, Error> {
        let write = self.inner.merge(repository, wanted);
        self.faults.around(write, lost).await
    }

    async fn own_refs(&self, repository: &Repository) -> Result<Vec<OwnRef>, Error> {
        self.inner.own_refs(repository).await
    }

    async fn delete_refs(&self, repository: &Repository, refs: &[OwnRef]) -> Result<u64, Error> {
        let write = self.inner.delete_refs(repository, refs);
        self.faults.around(write, lost).await
    }
}
