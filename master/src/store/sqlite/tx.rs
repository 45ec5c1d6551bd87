//! [`Tx`] on SQLite.

use std::sync::Arc;

use async_trait::async_trait;
use sqlx::{Sqlite, Transaction};

use super::{
    attempts, checks, claim, effects, error::During, events, forge, leases, repositories, workers,
    workflows,
};
use crate::clock::Clock;
use crate::{
    domain::{
        attempt::Attempt,
        ids::{
            AttemptId, CheckId, CommitId, EffectId, LeaseKey, RepositoryId, RequestId, WorkerId,
            WorkflowId,
        },
        time::Timestamp,
        workflow::Workflow,
    },
    store::{
        Error, Tx,
        model::{
            CheckRun, ClaimRequest, Claimed, Drain, ForgeItem, LeaseRow, LockedWorkflow, NewEvent,
            OpenEffectRow, Repository, WorkerRow, WorkflowRow,
        },
    },
};

/// One transaction of the writer. Dropped, it is rolled back before the next one begins.
pub(super) struct SqliteTx {
    tx: Transaction<'static, Sqlite>,
    /// The database's clock.
    clock: Arc<dyn Clock>,
}

impl SqliteTx {
    pub(super) fn new(tx: Transaction<'static, Sqlite>, clock: Arc<dyn Clock>) -> Self {
        Self { tx, clock }
    }
}

#[async_trait]
impl Tx for SqliteTx {
    async fn commit(self: Box<Self>) -> Result<(), Error> {
        self.tx.commit().await.during("commit a transaction")
    }

    async fn insert_repository(&mut self, repository: &Repository) -> Result<(), Error> {
        repositories::insert(&mut self.tx, repository).await
    }

    async fn lock_workflow(&mut self, id: WorkflowId) -> Result<Option<LockedWorkflow>, Error> {
        workflows::lock(&mut self.tx, id).await
    }

    async fn insert_workflow(&mut self, workflow: &Workflow, now: Timestamp) -> Result<(), Error> {
        workflows::insert(&mut self.tx, workflow, now).await
    }

    async fn update_workflow(
        &mut self,
        locked: &mut LockedWorkflow,
        now: Timestamp,
    ) -> Result<(), Error> {
        workflows::update(&mut self.tx, locked, now).await
    }

    async fn set_priority(
        &mut self,
        locked: &mut LockedWorkflow,
        priority: i32,
        now: Timestamp,
    ) -> Result<(), Error> {
        workflows::set_priority(&mut self.tx, locked, priority, now).await
    }

    async fn count_live_workflows(&mut self, repository: RepositoryId) -> Result<u32, Error> {
        workflows::count_live(&mut self.tx, repository).await
    }

    async fn newest_workflow_of_item(
        &mut self,
        repository: RepositoryId,
        number: u64,
    ) -> Result<Option<WorkflowRow>, Error> {
        workflows::newest_of_item(&mut self.tx, repository, number).await
    }

    async fn set_ci_poll(
        &mut self,
        workflow: WorkflowId,
        polls: u32,
        next_poll_at: Timestamp,
    ) -> Result<(), Error> {
        workflows::set_ci_poll(&mut self.tx, workflow, polls, next_poll_at).await
    }

    async fn append_event(&mut self, event: &NewEvent) -> Result<(), Error> {
        events::append(&mut self.tx, event).await
    }

    async fn insert_attempt(&mut self, attempt: &Attempt, priority: i32) -> Result<(), Error> {
        attempts::insert(&mut self.tx, attempt, priority).await
    }

    async fn attempt(&mut self, id: AttemptId) -> Result<Option<Attempt>, Error> {
        Ok(attempts::by_id(&mut self.tx, id)
            .await?
            .map(|row| row.attempt))
    }

    async fn live_attempts(&mut self, workflow: WorkflowId) -> Result<Vec<Attempt>, Error> {
        attempts::live_of(&mut self.tx, workflow).await
    }

    async fn update_attempt(&mut self, attempt: &Attempt) -> Result<(), Error> {
        attempts::update(&mut self.tx, attempt).await
    }

    async fn claim(&mut self, request: &ClaimRequest) -> Result<Vec<Claimed>, Error> {
        let now = self.clock.now();
        claim::claim(&mut self.tx, request, now).await
    }

    async fn set_attempt_commit(
        &mut self,
        attempt: AttemptId,
        commit: &CommitId,
    ) -> Result<(), Error> {
        attempts::set_commit(&mut self.tx, attempt, commit).await
    }

    async fn lease(&mut self, attempt: AttemptId) -> Result<Option<LeaseRow>, Error> {
        leases::by_attempt(&mut self.tx, attempt).await
    }

    async fn leases_of_worker(&mut self, worker: WorkerId) -> Result<Vec<LeaseRow>, Error> {
        leases::of_worker(&mut self.tx, worker).await
    }

    async fn delete_lease(&mut self, key: LeaseKey) -> Result<bool, Error> {
        leases::delete(&mut self.tx, key).await
    }

    async fn delete_stale_lease(&mut self, key: LeaseKey) -> Result<bool, Error> {
        let now = self.clock.now();
        leases::delete_stale(&mut self.tx, key, now).await
    }

    async fn set_lease_unconfirmed(&mut self, key: LeaseKey) -> Result<(), Error> {
        leases::set_unconfirmed(&mut self.tx, key).await
    }

    async fn open_effect(&mut self, effect: &OpenEffectRow) -> Result<(), Error> {
        effects::insert(&mut self.tx, effect).await
    }

    async fn open_effect_of(
        &mut self,
        workflow: WorkflowId,
    ) -> Result<Option<OpenEffectRow>, Error> {
        effects::open_of(&mut self.tx, workflow).await
    }

    async fn update_effect(&mut self, effect: &OpenEffectRow) -> Result<(), Error> {
        effects::update(&mut self.tx, effect).await
    }

    async fn close_effect(&mut self, effect: EffectId, now: Timestamp) -> Result<bool, Error> {
        effects::close(&mut self.tx, effect, now).await
    }

    async fn worker(&mut self, id: WorkerId) -> Result<Option<WorkerRow>, Error> {
        workers::by_id(&mut self.tx, id).await
    }

    async fn put_worker(&mut self, worker: &WorkerRow) -> Result<(), Error> {
        workers::put(&mut self.tx, worker).await
    }

    async fn set_worker_drain(&mut self, id: WorkerId, drain: Option<&Drain>) -> Result<(), Error> {
        workers::set_drain(&mut self.tx, id, drain).await
    }

    async fn set_worker_declared_dead(&mut self, id: WorkerId, at: Timestamp) -> Result<(), Error> {
        workers::set_declared_dead(&mut self.tx, id, at).await
    }

    async fn forge_item(
        &mut self,
        repository: RepositoryId,
        number: u64,
    ) -> Result<Option<ForgeItem>, Error> {
        forge::by_number(&mut self.tx, repository, number).await
    }

    async fn forge_item_by_request(
        &mut self,
        request: RequestId,
    ) -> Result<Option<ForgeItem>, Error> {
        forge::by_request(&mut self.tx, request).await
    }

    async fn open_forge_pull_request(
        &mut self,
        repository: RepositoryId,
        head_ref: &str,
    ) -> Result<Option<ForgeItem>, Error> {
        forge::open_by_head_ref(&mut self.tx, repository, head_ref).await
    }

    async fn next_item_number(&mut self, repository: RepositoryId) -> Result<u64, Error> {
        forge::next_number(&mut self.tx, repository).await
    }

    async fn insert_forge_item(&mut self, item: &ForgeItem) -> Result<(), Error> {
        forge::insert(&mut self.tx, item).await
    }

    async fn update_forge_item(&mut self, item: &ForgeItem) -> Result<(), Error> {
        forge::update(&mut self.tx, item).await
    }

    async fn insert_check_run(&mut self, run: &CheckRun) -> Result<(), Error> {
        checks::insert(&mut self.tx, run).await
    }

    async fn check_run(&mut self, id: CheckId) -> Result<Option<CheckRun>, Error> {
        checks::by_id(&mut self.tx, id).await
    }

    async fn check_runs(
        &mut self,
        workflow: WorkflowId,
        commit: &CommitId,
    ) -> Result<Vec<CheckRun>, Error> {
        checks::newest_of(&mut self.tx, workflow, commit).await
    }

    async fn update_check_run(&mut self, run: &CheckRun) -> Result<(), Error> {
        checks::update(&mut self.tx, run).await
    }
}
