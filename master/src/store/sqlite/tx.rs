//! [`Tx`] on SQLite.

use std::sync::Arc;

use super::{
    attempts, checks, claim, comments, effects, events, forge, history, holds, leases,
    repositories, workers, workflows, writer::Turn,
};
use crate::clock::Clock;
use crate::{
    domain::{
        attempt::Attempt,
        hold::Hold,
        ids::{
            AttemptId, CheckId, CommitId, EffectId, HoldId, LeaseKey, RepositoryId, RequestId,
            WorkerId, WorkflowId,
        },
        time::Timestamp,
        workflow::Workflow,
    },
    store::{
        Error, Tx,
        model::{
            CheckRun, ClaimRequest, Claimed, Drain, ForgeComment, ForgeItem, HistoryBatch,
            LeaseRow, LockedWorkflow, NewEvent, OpenEffectRow, Repository, WorkerRow, WorkflowRow,
        },
    },
};
use async_trait::async_trait;

/// One transaction: a turn at the writer. Dropped, what it did is undone before the next one begins.
pub(super) struct SqliteTx {
    turn: Turn,
    /// The database's clock.
    clock: Arc<dyn Clock>,
}

impl SqliteTx {
    pub(super) fn new(turn: Turn, clock: Arc<dyn Clock>) -> Self {
        Self { turn, clock }
    }
}

/// Runs an operation in the turn of `$self`, within its deadline: `in_turn!(self, workflows::lock(id))` is
/// `workflows::lock(connection, id).await`.
macro_rules! in_turn {
    ($self:ident, $module:ident::$operation:ident($($argument:expr),* $(,)?)) => {{
        let result = {
            let mut connection = $self.turn.connection().await?;
            $module::$operation(&mut connection, $($argument),*).await
        };
        $self.turn.noted(result)
    }};
}

#[async_trait]
impl Tx for SqliteTx {
    async fn commit(self: Box<Self>) -> Result<(), Error> {
        self.turn.commit("commit a transaction").await
    }

    async fn insert_repository(&mut self, repository: &Repository) -> Result<(), Error> {
        in_turn!(self, repositories::insert(repository))
    }

    async fn repository(&mut self, id: RepositoryId) -> Result<Option<Repository>, Error> {
        in_turn!(self, repositories::by_id(id))
    }

    async fn update_repository(&mut self, repository: &Repository) -> Result<(), Error> {
        in_turn!(self, repositories::update(repository))
    }

    async fn lock_workflow(&mut self, id: WorkflowId) -> Result<Option<LockedWorkflow>, Error> {
        in_turn!(self, workflows::lock(id))
    }

    async fn insert_workflow(&mut self, workflow: &Workflow, now: Timestamp) -> Result<(), Error> {
        in_turn!(self, workflows::insert(workflow, now))
    }

    async fn update_workflow(
        &mut self,
        locked: &mut LockedWorkflow,
        now: Timestamp,
    ) -> Result<(), Error> {
        in_turn!(self, workflows::update(locked, now))
    }

    async fn set_priority(
        &mut self,
        locked: &mut LockedWorkflow,
        priority: i32,
        now: Timestamp,
    ) -> Result<(), Error> {
        in_turn!(self, workflows::set_priority(locked, priority, now))
    }

    async fn delete_history(&mut self, batch: &HistoryBatch) -> Result<bool, Error> {
        in_turn!(self, history::delete(batch))
    }

    async fn set_archived(&mut self, workflow: WorkflowId, now: Timestamp) -> Result<(), Error> {
        in_turn!(self, history::set_archived(workflow, now))
    }

    async fn set_history_moved(&mut self, workflow: WorkflowId) -> Result<(), Error> {
        in_turn!(self, history::set_history_moved(workflow))
    }

    async fn count_live_workflows(&mut self, repository: RepositoryId) -> Result<u32, Error> {
        in_turn!(self, workflows::count_live(repository))
    }

    async fn newest_workflow_of_item(
        &mut self,
        repository: RepositoryId,
        number: u64,
    ) -> Result<Option<WorkflowRow>, Error> {
        in_turn!(self, workflows::newest_of_item(repository, number))
    }

    async fn set_ci_poll(
        &mut self,
        workflow: WorkflowId,
        polls: u32,
        next_poll_at: Timestamp,
    ) -> Result<(), Error> {
        in_turn!(self, workflows::set_ci_poll(workflow, polls, next_poll_at))
    }

    async fn append_event(&mut self, event: &NewEvent) -> Result<(), Error> {
        in_turn!(self, events::append(event))
    }

    async fn insert_attempt(&mut self, attempt: &Attempt, priority: i32) -> Result<(), Error> {
        in_turn!(self, attempts::insert(attempt, priority))
    }

    async fn attempt(&mut self, id: AttemptId) -> Result<Option<Attempt>, Error> {
        Ok(in_turn!(self, attempts::by_id(id))?.map(|row| row.attempt))
    }

    async fn live_attempts(&mut self, workflow: WorkflowId) -> Result<Vec<Attempt>, Error> {
        in_turn!(self, attempts::live_of(workflow))
    }

    async fn update_attempt(&mut self, attempt: &Attempt) -> Result<(), Error> {
        in_turn!(self, attempts::update(attempt))
    }

    async fn claim(&mut self, request: &ClaimRequest) -> Result<Vec<Claimed>, Error> {
        let now = self.clock.now();
        in_turn!(self, claim::claim(request, now))
    }

    async fn set_attempt_commit(
        &mut self,
        attempt: AttemptId,
        commit: &CommitId,
    ) -> Result<(), Error> {
        in_turn!(self, attempts::set_commit(attempt, commit))
    }

    async fn lease(&mut self, attempt: AttemptId) -> Result<Option<LeaseRow>, Error> {
        in_turn!(self, leases::by_attempt(attempt))
    }

    async fn leases_of_worker(&mut self, worker: WorkerId) -> Result<Vec<LeaseRow>, Error> {
        in_turn!(self, leases::of_worker(worker))
    }

    async fn delete_lease(&mut self, key: LeaseKey) -> Result<bool, Error> {
        in_turn!(self, leases::delete(key))
    }

    async fn delete_stale_lease(&mut self, key: LeaseKey) -> Result<bool, Error> {
        let now = self.clock.now();
        in_turn!(self, leases::delete_stale(key, now))
    }

    async fn set_lease_unconfirmed(&mut self, key: LeaseKey) -> Result<(), Error> {
        in_turn!(self, leases::set_unconfirmed(key))
    }

    async fn open_effect(&mut self, effect: &OpenEffectRow) -> Result<(), Error> {
        in_turn!(self, effects::insert(effect))
    }

    async fn open_effect_of(
        &mut self,
        workflow: WorkflowId,
    ) -> Result<Option<OpenEffectRow>, Error> {
        in_turn!(self, effects::open_of(workflow))
    }

    async fn update_effect(&mut self, effect: &OpenEffectRow) -> Result<(), Error> {
        in_turn!(self, effects::update(effect))
    }

    async fn close_effect(&mut self, effect: EffectId, now: Timestamp) -> Result<bool, Error> {
        in_turn!(self, effects::close(effect, now))
    }

    async fn worker(&mut self, id: WorkerId) -> Result<Option<WorkerRow>, Error> {
        in_turn!(self, workers::by_id(id))
    }

    async fn put_worker(&mut self, worker: &WorkerRow) -> Result<(), Error> {
        in_turn!(self, workers::put(worker))
    }

    async fn set_worker_drain(&mut self, id: WorkerId, drain: Option<&Drain>) -> Result<(), Error> {
        in_turn!(self, workers::set_drain(id, drain))
    }

    async fn set_worker_declared_dead(&mut self, id: WorkerId, at: Timestamp) -> Result<(), Error> {
        in_turn!(self, workers::set_declared_dead(id, at))
    }

    async fn covering_holds(
        &mut self,
        worker: WorkerId,
        accounts: &[String],
    ) -> Result<Vec<Hold>, Error> {
        in_turn!(self, holds::covering(worker, accounts))
    }

    async fn hold(&mut self, id: HoldId) -> Result<Option<Hold>, Error> {
        in_turn!(self, holds::by_id(id))
    }

    async fn put_hold(&mut self, hold: &Hold) -> Result<(), Error> {
        in_turn!(self, holds::put(hold))
    }

    async fn delete_hold(&mut self, id: HoldId) -> Result<bool, Error> {
        in_turn!(self, holds::delete(id))
    }

    async fn forge_item(
        &mut self,
        repository: RepositoryId,
        number: u64,
    ) -> Result<Option<ForgeItem>, Error> {
        in_turn!(self, forge::by_number(repository, number))
    }

    async fn forge_item_by_request(
        &mut self,
        request: RequestId,
    ) -> Result<Option<ForgeItem>, Error> {
        in_turn!(self, forge::by_request(request))
    }

    async fn open_forge_pull_request(
        &mut self,
        repository: RepositoryId,
        head_ref: &str,
    ) -> Result<Option<ForgeItem>, Error> {
        in_turn!(self, forge::open_by_head_ref(repository, head_ref))
    }

    async fn next_item_number(&mut self, repository: RepositoryId) -> Result<u64, Error> {
        in_turn!(self, forge::next_number(repository))
    }

    async fn insert_forge_item(&mut self, item: &ForgeItem) -> Result<(), Error> {
        in_turn!(self, forge::insert(item))
    }

    async fn update_forge_item(&mut self, item: &ForgeItem) -> Result<(), Error> {
        in_turn!(self, forge::update(item))
    }

    async fn forge_comment_by_request(
        &mut self,
        request: RequestId,
    ) -> Result<Option<ForgeComment>, Error> {
        in_turn!(self, comments::by_request(request))
    }

    async fn next_comment(&mut self, repository: RepositoryId, number: u64) -> Result<u64, Error> {
        in_turn!(self, comments::next(repository, number))
    }

    async fn insert_forge_comment(&mut self, comment: &ForgeComment) -> Result<(), Error> {
        in_turn!(self, comments::insert(comment))
    }

    async fn insert_check_run(&mut self, run: &CheckRun) -> Result<(), Error> {
        in_turn!(self, checks::insert(run))
    }

    async fn check_run(&mut self, id: CheckId) -> Result<Option<CheckRun>, Error> {
        in_turn!(self, checks::by_id(id))
    }

    async fn check_runs(
        &mut self,
        workflow: WorkflowId,
        commit: &CommitId,
    ) -> Result<Vec<CheckRun>, Error> {
        in_turn!(self, checks::newest_of(workflow, commit))
    }

    async fn update_check_run(&mut self, run: &CheckRun) -> Result<(), Error> {
        in_turn!(self, checks::update(run))
    }
}
