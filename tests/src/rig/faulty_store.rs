//! A store that loses commits, and answers of commits; and what says which.

use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicU64, Ordering},
};

use async_trait::async_trait;
use pointsman_master::{
    domain::{
        attempt::Attempt,
        hold::Hold,
        ids::{
            AttemptId, CheckId, CommitId, EffectId, HoldId, InstanceId, LeaseKey, RepositoryId,
            RequestId, WorkerId, WorkflowId,
        },
        time::Timestamp,
        workflow::Workflow,
    },
    store::{
        AttemptRow, Error, Mark, Outage, Store, Tx,
        model::{
            AttemptFilter, AttemptPage, BeatWrite, ChangePoint, Changes, CheckRun, ClaimRequest,
            Claimed, Drain, EventRow, Figures, ForgeComment, ForgeItem, HeldLease, HistoryBatch,
            ItemFilter, LeaseRow, LockedWorkflow, NewEvent, OpenEffectRow, ProgressRow, Repository,
            SessionRow, StaleLease, WorkerRow, WorkerSummary, WorkflowFilter, WorkflowRow,
        },
    },
};

use super::turn::{Held, Turns};

/// When a write fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Loss {
    /// Nothing is durable.
    Before,
    /// All is durable; only the answer is lost.
    After,
}

/// Which write is to fail, and how many there were.
#[derive(Debug, Default)]
pub struct Faults {
    begins: AtomicU64,
    writes: AtomicU64,
    next: Mutex<Option<(u64, Loss)>>,
}

impl Faults {
    /// Transactions that were asked for so far; the newest may still wait for its turn.
    pub fn begins(&self) -> u64 {
        self.begins.load(Ordering::SeqCst)
    }

    /// Writes that were tried so far.
    pub fn writes(&self) -> u64 {
        self.writes.load(Ordering::SeqCst)
    }

    /// Makes the `n`th write from the start fail, once.
    pub fn fail(&self, n: u64, loss: Loss) {
        *self.next() = Some((n, loss));
    }

    /// Makes the next write fail, once.
    pub fn fail_next(&self, loss: Loss) {
        self.fail(self.writes() + 1, loss);
    }

    /// Whether the failure that was asked for has not come yet.
    pub fn is_due(&self) -> bool {
        self.next().is_some()
    }

    fn next(&self) -> std::sync::MutexGuard<'_, Option<(u64, Loss)>> {
        self.next.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self) -> Option<Loss> {
        let n = self.writes.fetch_add(1, Ordering::SeqCst) + 1;
        self.next()
            .take_if(|(due, _)| *due == n)
            .map(|(_, loss)| loss)
    }

    /// Does a write, or loses it, or only its answer.
    pub(super) async fn around<T, E>(
        &self,
        write: impl Future<Output = Result<T, E>> + Send,
        lost: fn(&'static str) -> E,
    ) -> Result<T, E> {
        match self.take() {
            None => write.await,
            Some(Loss::Before) => Err(lost("the write was lost on purpose")),
            Some(Loss::After) => {
                write.await?;
                Err(lost("the answer was lost on purpose"))
            }
        }
    }
}

fn lost(what: &'static str) -> Error {
    Error::Unavailable {
        operation: "commit",
        outage: Outage::Other,
        source: what.into(),
    }
}

/// A store whose commits fail where [`Faults`] say so.
pub struct FaultyStore {
    inner: Arc<dyn Store>,
    faults: Arc<Faults>,
    turns: Turns,
}

impl FaultyStore {
    pub fn new(inner: Arc<dyn Store>, faults: Arc<Faults>) -> Self {
        Self {
            inner,
            faults,
            turns: Turns::default(),
        }
    }

    /// The store, for a question of somebody who has no transaction.
    fn asked(&self) -> &dyn Store {
        self.turns.check();
        self.inner.as_ref()
    }
}

struct FaultyTx {
    inner: Box<dyn Tx>,
    faults: Arc<Faults>,
    held: Held,
}

#[async_trait]
impl Store for FaultyStore {
    async fn begin(&self) -> Result<Box<dyn Tx>, Error> {
        self.faults.begins.fetch_add(1, Ordering::SeqCst);
        Ok(Box::new(FaultyTx {
            inner: self.asked().begin().await?,
            faults: Arc::clone(&self.faults),
            held: self.turns.hold(),
        }))
    }

    fn mark(&self) -> Mark {
        self.inner.mark()
    }

    async fn settle(&self, since: Mark) -> Result<(), Error> {
        self.inner.settle(since).await
    }

    async fn snapshot(&self) -> Result<pointsman_master::store::model::Snapshot, Error> {
        self.inner.snapshot().await
    }

    async fn ping(&self) -> Result<(), Error> {
        self.inner.ping().await
    }

    async fn close(&self) {
        self.inner.close().await
    }

    async fn repository(&self, id: RepositoryId) -> Result<Option<Repository>, Error> {
        self.asked().repository(id).await
    }

    async fn repository_by_name(&self, name: &str) -> Result<Option<Repository>, Error> {
        self.asked().repository_by_name(name).await
    }

    async fn repositories(&self, after: &str, limit: u32) -> Result<Vec<Repository>, Error> {
        self.asked().repositories(after, limit).await
    }

    async fn workflow(&self, id: WorkflowId) -> Result<Option<WorkflowRow>, Error> {
        self.asked().workflow(id).await
    }

    async fn workflows(
        &self,
        filter: &WorkflowFilter,
        after: Option<WorkflowId>,
        limit: u32,
    ) -> Result<Vec<WorkflowRow>, Error> {
        self.asked().workflows(filter, after, limit).await
    }

    async fn changed_workflows(
        &self,
        filter: &WorkflowFilter,
        after: ChangePoint,
        limit: u32,
    ) -> Result<Changes, Error> {
        self.asked().changed_workflows(filter, after, limit).await
    }

    async fn count_live_workflows(&self, repository: RepositoryId) -> Result<u32, Error> {
        self.inner.count_live_workflows(repository).await
    }

    async fn workflow_of_item(
        &self,
        repository: RepositoryId,
        number: u64,
    ) -> Result<Option<WorkflowRow>, Error> {
        self.asked().workflow_of_item(repository, number).await
    }

    async fn workflows_that_may_leave(
        &self,
        repository: RepositoryId,
        after: Option<WorkflowId>,
        limit: u32,
    ) -> Result<Vec<WorkflowRow>, Error> {
        self.asked()
            .workflows_that_may_leave(repository, after, limit)
            .await
    }

    async fn attempts_of(
        &self,
        workflow: WorkflowId,
        limit: u32,
    ) -> Result<Vec<AttemptRow>, Error> {
        self.asked().attempts_of(workflow, limit).await
    }

    async fn archivable_workflows(
        &self,
        before: Timestamp,
        after: Option<(Timestamp, WorkflowId)>,
        limit: u32,
    ) -> Result<Vec<(Timestamp, WorkflowId)>, Error> {
        self.inner.archivable_workflows(before, after, limit).await
    }

    async fn oldest_history(
        &self,
        workflow: WorkflowId,
        limit: u32,
    ) -> Result<Option<HistoryBatch>, Error> {
        self.inner.oldest_history(workflow, limit).await
    }

    async fn oldest_other_events(
        &self,
        before: Timestamp,
        limit: u32,
    ) -> Result<Option<HistoryBatch>, Error> {
        self.inner.oldest_other_events(before, limit).await
    }

    async fn attempts(
        &self,
        filter: &AttemptFilter,
        before: Option<AttemptId>,
        limit: u32,
    ) -> Result<AttemptPage, Error> {
        self.asked().attempts(filter, before, limit).await
    }

    async fn events(
        &self,
        workflow: Option<WorkflowId>,
        after: u64,
        limit: u32,
    ) -> Result<Vec<EventRow>, Error> {
        self.asked().events(workflow, after, limit).await
    }

    async fn newest_events(
        &self,
        workflow: WorkflowId,
        limit: u32,
    ) -> Result<Vec<EventRow>, Error> {
        self.asked().newest_events(workflow, limit).await
    }

    async fn sessions(
        &self,
        worker: Option<WorkerId>,
        after: Option<AttemptId>,
        limit: u32,
    ) -> Result<Vec<SessionRow>, Error> {
        self.asked().sessions(worker, after, limit).await
    }

    async fn sessions_of(&self, workflow: WorkflowId) -> Result<Vec<SessionRow>, Error> {
        self.inner.sessions_of(workflow).await
    }

    async fn heartbeats(&self) -> Result<Vec<(LeaseKey, Timestamp)>, Error> {
        self.asked().heartbeats().await
    }

    async fn held_leases(&self, owner: InstanceId) -> Result<Vec<HeldLease>, Error> {
        self.asked().held_leases(owner).await
    }

    async fn open_effect_of(&self, workflow: WorkflowId) -> Result<Option<OpenEffectRow>, Error> {
        self.asked().open_effect_of(workflow).await
    }

    async fn due_effects(&self, now: Timestamp, limit: u32) -> Result<Vec<OpenEffectRow>, Error> {
        self.asked().due_effects(now, limit).await
    }

    async fn due_ci_polls(&self, now: Timestamp, limit: u32) -> Result<Vec<WorkflowId>, Error> {
        self.asked().due_ci_polls(now, limit).await
    }

    async fn workflows_without_work(
        &self,
        after: Option<WorkflowId>,
        limit: u32,
    ) -> Result<Vec<WorkflowId>, Error> {
        self.asked().workflows_without_work(after, limit).await
    }

    async fn spent_attempts(
        &self,
        after: Option<AttemptId>,
        limit: u32,
    ) -> Result<Vec<(AttemptId, WorkflowId)>, Error> {
        self.asked().spent_attempts(after, limit).await
    }

    async fn stale_leases(
        &self,
        after: Option<AttemptId>,
        limit: u32,
    ) -> Result<Vec<StaleLease>, Error> {
        self.asked().stale_leases(after, limit).await
    }

    async fn flush_beats(
        &self,
        owner: InstanceId,
        beats: &[BeatWrite],
    ) -> Result<Vec<LeaseKey>, Error> {
        self.faults
            .around(self.asked().flush_beats(owner, beats), lost)
            .await
    }

    async fn record_progress(
        &self,
        worker: WorkerId,
        progress: &[ProgressRow],
        now: Timestamp,
    ) -> Result<(), Error> {
        self.faults
            .around(self.asked().record_progress(worker, progress, now), lost)
            .await
    }

    async fn attempt(&self, id: AttemptId) -> Result<Option<AttemptRow>, Error> {
        self.asked().attempt(id).await
    }

    async fn lease(&self, attempt: AttemptId) -> Result<Option<LeaseRow>, Error> {
        self.asked().lease(attempt).await
    }

    async fn worker(&self, id: WorkerId) -> Result<Option<WorkerRow>, Error> {
        self.asked().worker(id).await
    }

    async fn workers(
        &self,
        after: Option<WorkerId>,
        limit: u32,
    ) -> Result<Vec<WorkerSummary>, Error> {
        self.asked().workers(after, limit).await
    }

    async fn live_workers(&self, since: Timestamp, limit: u32) -> Result<Vec<WorkerRow>, Error> {
        self.asked().live_workers(since, limit).await
    }

    async fn holds(&self, after: Option<HoldId>, limit: u32) -> Result<Vec<Hold>, Error> {
        self.asked().holds(after, limit).await
    }

    async fn figures(
        &self,
        alive_since: Timestamp,
        seen_since: Timestamp,
    ) -> Result<Figures, Error> {
        self.asked().figures(alive_since, seen_since).await
    }

    async fn forge_item(
        &self,
        repository: RepositoryId,
        number: u64,
    ) -> Result<Option<ForgeItem>, Error> {
        self.asked().forge_item(repository, number).await
    }

    async fn forge_items_with_label(
        &self,
        repository: RepositoryId,
        label: &str,
        after: u64,
        limit: u32,
    ) -> Result<Vec<ForgeItem>, Error> {
        self.asked()
            .forge_items_with_label(repository, label, after, limit)
            .await
    }

    async fn forge_items(
        &self,
        repository: RepositoryId,
        filter: &ItemFilter,
        after: u64,
        limit: u32,
    ) -> Result<Vec<ForgeItem>, Error> {
        self.asked()
            .forge_items(repository, filter, after, limit)
            .await
    }

    async fn forge_comments(
        &self,
        repository: RepositoryId,
        number: u64,
        after: u64,
        limit: u32,
    ) -> Result<Vec<ForgeComment>, Error> {
        self.asked()
            .forge_comments(repository, number, after, limit)
            .await
    }

    async fn forge_pull_request(
        &self,
        repository: RepositoryId,
        head_ref: &str,
    ) -> Result<Option<ForgeItem>, Error> {
        self.asked().forge_pull_request(repository, head_ref).await
    }

    async fn check_runs(
        &self,
        workflow: WorkflowId,
        commit: &CommitId,
    ) -> Result<Vec<CheckRun>, Error> {
        self.asked().check_runs(workflow, commit).await
    }
}

#[async_trait]
impl Tx for FaultyTx {
    async fn commit(self: Box<Self>) -> Result<(), Error> {
        let Self {
            inner,
            faults,
            held,
        } = *self;
        let committed = faults.around(inner.commit(), lost).await;
        drop(held);
        committed
    }

    async fn insert_repository(&mut self, repository: &Repository) -> Result<(), Error> {
        self.inner.insert_repository(repository).await
    }

    async fn repository(&mut self, id: RepositoryId) -> Result<Option<Repository>, Error> {
        self.inner.repository(id).await
    }

    async fn update_repository(&mut self, repository: &Repository) -> Result<(), Error> {
        self.inner.update_repository(repository).await
    }

    async fn lock_workflow(&mut self, id: WorkflowId) -> Result<Option<LockedWorkflow>, Error> {
        self.inner.lock_workflow(id).await
    }

    async fn insert_workflow(&mut self, workflow: &Workflow, now: Timestamp) -> Result<(), Error> {
        self.inner.insert_workflow(workflow, now).await
    }

    async fn update_workflow(
        &mut self,
        locked: &mut LockedWorkflow,
        now: Timestamp,
    ) -> Result<(), Error> {
        self.inner.update_workflow(locked, now).await
    }

    async fn set_priority(
        &mut self,
        locked: &mut LockedWorkflow,
        priority: i32,
        now: Timestamp,
    ) -> Result<(), Error> {
        self.inner.set_priority(locked, priority, now).await
    }

    async fn delete_history(&mut self, batch: &HistoryBatch) -> Result<bool, Error> {
        self.inner.delete_history(batch).await
    }

    async fn set_archived(&mut self, workflow: WorkflowId, now: Timestamp) -> Result<(), Error> {
        self.inner.set_archived(workflow, now).await
    }

    async fn set_history_moved(&mut self, workflow: WorkflowId) -> Result<(), Error> {
        self.inner.set_history_moved(workflow).await
    }

    async fn count_live_workflows(&mut self, repository: RepositoryId) -> Result<u32, Error> {
        self.inner.count_live_workflows(repository).await
    }

    async fn newest_workflow_of_item(
        &mut self,
        repository: RepositoryId,
        number: u64,
    ) -> Result<Option<WorkflowRow>, Error> {
        self.inner.newest_workflow_of_item(repository, number).await
    }

    async fn set_ci_poll(
        &mut self,
        workflow: WorkflowId,
        polls: u32,
        next_poll_at: Timestamp,
    ) -> Result<(), Error> {
        self.inner.set_ci_poll(workflow, polls, next_poll_at).await
    }

    async fn append_event(&mut self, event: &NewEvent) -> Result<(), Error> {
        self.inner.append_event(event).await
    }

    async fn insert_attempt(&mut self, attempt: &Attempt, priority: i32) -> Result<(), Error> {
        self.inner.insert_attempt(attempt, priority).await
    }

    async fn attempt(&mut self, id: AttemptId) -> Result<Option<Attempt>, Error> {
        self.inner.attempt(id).await
    }

    async fn live_attempts(&mut self, workflow: WorkflowId) -> Result<Vec<Attempt>, Error> {
        self.inner.live_attempts(workflow).await
    }

    async fn update_attempt(&mut self, attempt: &Attempt) -> Result<(), Error> {
        self.inner.update_attempt(attempt).await
    }

    async fn claim(&mut self, request: &ClaimRequest) -> Result<Vec<Claimed>, Error> {
        self.inner.claim(request).await
    }

    async fn set_attempt_commit(
        &mut self,
        attempt: AttemptId,
        commit: &CommitId,
    ) -> Result<(), Error> {
        self.inner.set_attempt_commit(attempt, commit).await
    }

    async fn lease(&mut self, attempt: AttemptId) -> Result<Option<LeaseRow>, Error> {
        self.inner.lease(attempt).await
    }

    async fn leases_of_worker(&mut self, worker: WorkerId) -> Result<Vec<LeaseRow>, Error> {
        self.inner.leases_of_worker(worker).await
    }

    async fn delete_lease(&mut self, key: LeaseKey) -> Result<bool, Error> {
        self.inner.delete_lease(key).await
    }

    async fn delete_stale_lease(&mut self, key: LeaseKey) -> Result<bool, Error> {
        self.inner.delete_stale_lease(key).await
    }

    async fn set_lease_unconfirmed(&mut self, key: LeaseKey) -> Result<(), Error> {
        self.inner.set_lease_unconfirmed(key).await
    }

    async fn open_effect(&mut self, effect: &OpenEffectRow) -> Result<(), Error> {
        self.inner.open_effect(effect).await
    }

    async fn open_effect_of(
        &mut self,
        workflow: WorkflowId,
    ) -> Result<Option<OpenEffectRow>, Error> {
        self.inner.open_effect_of(workflow).await
    }

    async fn update_effect(&mut self, effect: &OpenEffectRow) -> Result<(), Error> {
        self.inner.update_effect(effect).await
    }

    async fn close_effect(&mut self, effect: EffectId, now: Timestamp) -> Result<bool, Error> {
        self.inner.close_effect(effect, now).await
    }

    async fn worker(&mut self, id: WorkerId) -> Result<Option<WorkerRow>, Error> {
        self.inner.worker(id).await
    }

    async fn put_worker(&mut self, worker: &WorkerRow) -> Result<(), Error> {
        self.inner.put_worker(worker).await
    }

    async fn set_worker_drain(&mut self, id: WorkerId, drain: Option<&Drain>) -> Result<(), Error> {
        self.inner.set_worker_drain(id, drain).await
    }

    async fn set_worker_declared_dead(&mut self, id: WorkerId, at: Timestamp) -> Result<(), Error> {
        self.inner.set_worker_declared_dead(id, at).await
    }

    async fn covering_holds(
        &mut self,
        worker: WorkerId,
        accounts: &[String],
    ) -> Result<Vec<Hold>, Error> {
        self.inner.covering_holds(worker, accounts).await
    }

    async fn hold(&mut self, id: HoldId) -> Result<Option<Hold>, Error> {
        self.inner.hold(id).await
    }

    async fn put_hold(&mut self, hold: &Hold) -> Result<(), Error> {
        self.inner.put_hold(hold).await
    }

    async fn delete_hold(&mut self, id: HoldId) -> Result<bool, Error> {
        self.inner.delete_hold(id).await
    }

    async fn forge_item(
        &mut self,
        repository: RepositoryId,
        number: u64,
    ) -> Result<Option<ForgeItem>, Error> {
        self.inner.forge_item(repository, number).await
    }

    async fn forge_item_by_request(
        &mut self,
        request: RequestId,
    ) -> Result<Option<ForgeItem>, Error> {
        self.inner.forge_item_by_request(request).await
    }

    async fn open_forge_pull_request(
        &mut self,
        repository: RepositoryId,
        head_ref: &str,
    ) -> Result<Option<ForgeItem>, Error> {
        self.inner
            .open_forge_pull_request(repository, head_ref)
            .await
    }

    async fn next_item_number(&mut self, repository: RepositoryId) -> Result<u64, Error> {
        self.inner.next_item_number(repository).await
    }

    async fn insert_forge_item(&mut self, item: &ForgeItem) -> Result<(), Error> {
        self.inner.insert_forge_item(item).await
    }

    async fn update_forge_item(&mut self, item: &ForgeItem) -> Result<(), Error> {
        self.inner.update_forge_item(item).await
    }

    async fn forge_comment_by_request(
        &mut self,
        request: RequestId,
    ) -> Result<Option<ForgeComment>, Error> {
        self.inner.forge_comment_by_request(request).await
    }

    async fn next_comment(&mut self, repository: RepositoryId, number: u64) -> Result<u64, Error> {
        self.inner.next_comment(repository, number).await
    }

    async fn insert_forge_comment(&mut self, comment: &ForgeComment) -> Result<(), Error> {
        self.inner.insert_forge_comment(comment).await
    }

    async fn insert_check_run(&mut self, run: &CheckRun) -> Result<(), Error> {
        self.inner.insert_check_run(run).await
    }

    async fn check_run(&mut self, id: CheckId) -> Result<Option<CheckRun>, Error> {
        self.inner.check_run(id).await
    }

    async fn check_runs(
        &mut self,
        workflow: WorkflowId,
        commit: &CommitId,
    ) -> Result<Vec<CheckRun>, Error> {
        self.inner.check_runs(workflow, commit).await
    }

    async fn update_check_run(&mut self, run: &CheckRun) -> Result<(), Error> {
        self.inner.update_check_run(run).await
    }
}
