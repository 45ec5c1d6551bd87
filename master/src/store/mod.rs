//! What is kept: the one place that knows sqlx.
//!
//! [`Store`] and [`Tx`] are a seam of domain operations, object-safe, with one implementation a
//! database (`sqlite/`), and one contract suite that each must pass (`contract.rs`). Reads on [`Store`]
//! see what was last committed; everything that is decided on is read and written in one [`Tx`]. Instants
//! are arguments, but those of leases: they are stamped and compared by the database's own clock.

#[cfg(test)]
mod contract;
pub mod model;
pub mod sqlite;

use async_trait::async_trait;

use crate::domain::{
    attempt::Attempt,
    hold::Hold,
    ids::{
        AttemptId, CheckId, CommitId, EffectId, HoldId, InstanceId, LeaseKey, RepositoryId,
        RequestId, WorkerId, WorkflowId,
    },
    time::Timestamp,
    workflow::Workflow,
};
use model::{
    AttemptFilter, AttemptPage, BeatWrite, ChangePoint, Changes, CheckRun, ClaimRequest, Claimed,
    Drain, EventRow, Figures, ForgeComment, ForgeItem, HeldLease, HistoryBatch, ItemFilter,
    LeaseRow, LockedWorkflow, NewEvent, OpenEffectRow, ProgressRow, Repository, SessionRow,
    StaleLease, WorkerRow, WorkerSummary, WorkflowFilter, WorkflowRow,
};

/// How much later than its time-to-live a lease may be reaped, in seconds. Covers the error of the
/// database's clock and the time that a beat was under way.
pub const REAP_MARGIN_SECONDS: u32 = 5;

/// Most attempts that one page of all workflows looks at: a filter that fits none costs a bounded read.
pub const MAX_SCANNED: u32 = 10_000;

/// Why the store did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The database does not answer, is busy beyond its deadline, full or read-only. Worth a retry.
    #[error("{operation}: {outage}")]
    Unavailable {
        operation: &'static str,
        outage: Outage,
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The database refuses a statement: a defect of this program, a schema that was changed by hand, or
    /// a damaged file. Not worth a retry.
    #[error("{operation}: the database refuses the statement")]
    Rejected {
        operation: &'static str,
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// A stored value that no version wrote.
    #[error("{table}.{column} of {id} holds an impossible value: {reason}")]
    Corrupt {
        table: &'static str,
        column: &'static str,
        id: String,
        reason: String,
    },
    /// A write would break the named constraint; the constraints are part of this contract.
    #[error("constraint {0} does not allow it")]
    Constraint(Constraint),
    /// The row is not as it was when it was read.
    #[error("{0} was changed by somebody else meanwhile")]
    LostRace(&'static str),
    /// Another process has the database open.
    #[error("the database {path} is in use by {holder}")]
    Locked { path: String, holder: String },
    /// A newer master has migrated the database.
    #[error("the database's schema is at migration {found}, this master knows {known}: upgrade it")]
    SchemaAhead { found: i64, known: i64 },
    /// Another copy of the database is being made or read.
    #[error("another backup is under way: one at a time")]
    SnapshotUnderWay,
    /// A migration failed.
    #[error("migrate the database")]
    Migrate(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// What keeps a database from doing what it was asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outage {
    /// No room is left.
    Full,
    ReadOnly,
    /// Reading, writing or opening a file failed.
    Io,
    /// Somebody else held a lock for longer than the deadline.
    Busy,
    /// A statement ran into its deadline.
    TooLong,
    /// None of these.
    Other,
}

impl Outage {
    /// Whether writes fail until somebody does something about it.
    pub fn lasts(self) -> bool {
        match self {
            Self::Full | Self::ReadOnly | Self::Io => true,
            Self::Busy | Self::TooLong | Self::Other => false,
        }
    }
}

impl std::fmt::Display for Outage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Full => "the database's disk is full",
            Self::ReadOnly => "the database is read-only",
            Self::Io => "the database's disk can't be read or written",
            Self::Busy => "the database is locked by somebody else",
            Self::TooLong => "the database took too long",
            Self::Other => "the database is not available",
        })
    }
}

/// An instant in the life of a store, to which [`Store::settle`] looks back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Mark(pub(crate) u64);

/// The constraints that callers branch on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Constraint {
    RepositoryName,
    OneLiveWorkflow,
    OneSuccessor,
    OneLiveAttempt,
    OneOpenEffect,
    OneOpenPullRequest,
    ItemRequest,
    CommentRequest,
}

impl std::fmt::Display for Constraint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::RepositoryName => "uq_repository_name",
            Self::OneLiveWorkflow => "uq_one_live_workflow",
            Self::OneSuccessor => "uq_one_successor",
            Self::OneLiveAttempt => "uq_one_live_attempt",
            Self::OneOpenEffect => "uq_one_open_effect",
            Self::OneOpenPullRequest => "uq_open_pull_request",
            Self::ItemRequest => "uq_item_request",
            Self::CommentRequest => "uq_comment_request",
        })
    }
}

/// A database.
#[async_trait]
pub trait Store: Send + Sync {
    /// Starts a transaction that can write. On SQLite it waits for the one before it.
    ///
    /// What it reads may be of transactions that have not become durable yet. It is once
    /// [`commit`](Tx::commit) has returned; reads of the store wait for it by themselves; who drops a
    /// transaction and tells somebody outside this process what it has read asks [`settle`](Self::settle)
    /// first.
    async fn begin(&self) -> Result<Box<dyn Tx>, Error>;

    /// Now.
    fn mark(&self) -> Mark;
    /// Waits until everything that dropped transactions have read since `since` is durable; at once where
    /// nothing is under way.
    ///
    /// # Errors
    /// [`Error::Unavailable`] where it never will be: what was read is not there.
    async fn settle(&self, since: Mark) -> Result<(), Error>;

    /// Whether an attempt is pending and due by the database's clock; what it needs is not asked. A cheap
    /// read that spares claims which can find nothing. "Perhaps" is always a right answer.
    async fn may_have_work(&self) -> Result<bool, Error> {
        Ok(true)
    }

    /// Answers if the database reads and would write. After a write that failed for lack of room, or
    /// for another reason that lasts, it writes, so that it answers again only once writes work.
    async fn ping(&self) -> Result<(), Error>;

    /// Copies the whole database as it is at one instant. Writers go on.
    ///
    /// # Errors
    /// [`Error::SnapshotUnderWay`] while another one lives, [`Error::Unavailable`] where the disk has no
    /// room for it.
    async fn snapshot(&self) -> Result<model::Snapshot, Error>;

    /// Ends all connections; further calls fail.
    async fn close(&self);

    async fn repository(&self, id: RepositoryId) -> Result<Option<Repository>, Error>;
    async fn repository_by_name(&self, name: &str) -> Result<Option<Repository>, Error>;
    /// By name, those after `after`.
    async fn repositories(&self, after: &str, limit: u32) -> Result<Vec<Repository>, Error>;

    async fn workflow(&self, id: WorkflowId) -> Result<Option<WorkflowRow>, Error>;
    /// By id, those after `after`.
    async fn workflows(
        &self,
        filter: &WorkflowFilter,
        after: Option<WorkflowId>,
        limit: u32,
    ) -> Result<Vec<WorkflowRow>, Error>;
    /// Workflows of `filter` that were written after `after`, at most `limit`, in the order of their newest
    /// writes. Whatever commits after this read is told by a read from the point that it gives: a workflow
    /// may be told twice, and none is missed. (Where writers run side by side, numbers may be handed out in
    /// another order than commits: the point must then stay behind the oldest write that is under way.)
    async fn changed_workflows(
        &self,
        filter: &WorkflowFilter,
        after: ChangePoint,
        limit: u32,
    ) -> Result<Changes, Error>;
    /// Live workflows of a repository, as [`Tx::count_live_workflows`] counts them.
    async fn count_live_workflows(&self, repository: RepositoryId) -> Result<u32, Error>;
    /// The newest workflow of an item.
    async fn workflow_of_item(
        &self,
        repository: RepositoryId,
        number: u64,
    ) -> Result<Option<WorkflowRow>, Error>;
    /// Newest workflows of their items, in ABANDONED or CREATED_PR, whose item was not seen to leave yet
    /// (`left_at`); of the latter those whose pull request's newest workflow is ABANDONED or STUCK. Not more
    /// than `limit`, by id, after `after`.
    async fn workflows_that_may_leave(
        &self,
        repository: RepositoryId,
        after: Option<WorkflowId>,
        limit: u32,
    ) -> Result<Vec<WorkflowRow>, Error>;
    /// The newest `limit`, oldest first.
    async fn attempts_of(&self, workflow: WorkflowId, limit: u32)
    -> Result<Vec<AttemptRow>, Error>;
    /// Workflows that ended before `before`, as [`is_over`](crate::domain::retention::is_over) says, and may
    /// have rows of history, with the instant of their end; by that and by id, after `after`.
    async fn archivable_workflows(
        &self,
        before: Timestamp,
        after: Option<(Timestamp, WorkflowId)>,
        limit: u32,
    ) -> Result<Vec<(Timestamp, WorkflowId)>, Error>;
    /// The oldest rows of a workflow's history, at most `limit` and of one kind: what others refer to comes
    /// after those. Live attempts and open effects are none. `None`: there are no more.
    async fn oldest_history(
        &self,
        workflow: WorkflowId,
        limit: u32,
    ) -> Result<Option<HistoryBatch>, Error>;
    /// The oldest events about repositories and workers from before `before`, at most `limit`.
    async fn oldest_other_events(
        &self,
        before: Timestamp,
        limit: u32,
    ) -> Result<Option<HistoryBatch>, Error>;
    /// Newest first, those before `before`. Of all workflows, one read looks at a bounded number of attempts,
    /// so that a page may hold fewer than there are, and still name the next.
    async fn attempts(
        &self,
        filter: &AttemptFilter,
        before: Option<AttemptId>,
        limit: u32,
    ) -> Result<AttemptPage, Error>;
    /// Oldest first, those after `after`; of one workflow or of all.
    async fn events(
        &self,
        workflow: Option<WorkflowId>,
        after: u64,
        limit: u32,
    ) -> Result<Vec<EventRow>, Error>;
    /// The newest `limit` of one workflow, oldest first.
    async fn newest_events(&self, workflow: WorkflowId, limit: u32)
    -> Result<Vec<EventRow>, Error>;
    /// Live leases with what their last beats said, of one worker or of all; by attempt id, after `after`.
    async fn sessions(
        &self,
        worker: Option<WorkerId>,
        after: Option<AttemptId>,
        limit: u32,
    ) -> Result<Vec<SessionRow>, Error>;
    /// The live leases of one workflow, those of its checks too; by attempt id.
    async fn sessions_of(&self, workflow: WorkflowId) -> Result<Vec<SessionRow>, Error>;
    /// All live leases, each with its heartbeat.
    async fn heartbeats(&self) -> Result<Vec<(LeaseKey, Timestamp)>, Error>;
    /// Live leases of one process of a worker.
    async fn held_leases(&self, owner: InstanceId) -> Result<Vec<HeldLease>, Error>;
    async fn open_effect_of(&self, workflow: WorkflowId) -> Result<Option<OpenEffectRow>, Error>;
    /// Open effects whose next try is due at `now` and whose workflow is not paused; those that
    /// are due for longest first.
    async fn due_effects(&self, now: Timestamp, limit: u32) -> Result<Vec<OpenEffectRow>, Error>;
    /// Workflows in AWAITING_CI without an open effect whose next poll is due at `now`.
    async fn due_ci_polls(&self, now: Timestamp, limit: u32) -> Result<Vec<WorkflowId>, Error>;
    /// Workflows that should have live work but may lack it: DISCOVERED ones whose repository has room,
    /// those in a state with an attempt but without a live one, and those in AWAITING_CI whose newest
    /// check runs have neither a conclusion nor a live attempt, or whose head has no check although the
    /// repository has a command; of the latter three those without an open effect. Not more than
    /// `limit`, by id, after `after`.
    async fn workflows_without_work(
        &self,
        after: Option<WorkflowId>,
        limit: u32,
    ) -> Result<Vec<WorkflowId>, Error>;
    /// Pending attempts that were picked up `max_pickups` times (their repository's policy) or had
    /// [`MAX_UNCHARGED_ERRORS`](crate::domain::attempt::MAX_UNCHARGED_ERRORS), of workflows that are not
    /// terminal; by id, after `after`.
    async fn spent_attempts(
        &self,
        after: Option<AttemptId>,
        limit: u32,
    ) -> Result<Vec<(AttemptId, WorkflowId)>, Error>;
    /// Leases whose time-to-live and margin have passed by the database's clock; by attempt id, after
    /// `after`.
    async fn stale_leases(
        &self,
        after: Option<AttemptId>,
        limit: u32,
    ) -> Result<Vec<StaleLease>, Error>;

    /// Prolongs leases, each to `age` before the database's now, never back, and says which are still
    /// there: key and owner must match. Committed when it returns.
    async fn flush_beats(
        &self,
        owner: InstanceId,
        beats: &[BeatWrite],
    ) -> Result<Vec<LeaseKey>, Error>;
    /// Keeps the last values of beats, of leases that still have the fence. Notes that the worker beat.
    async fn record_progress(
        &self,
        worker: WorkerId,
        progress: &[ProgressRow],
        now: Timestamp,
    ) -> Result<(), Error>;

    async fn attempt(&self, id: AttemptId) -> Result<Option<AttemptRow>, Error>;
    /// The live lease of an attempt.
    async fn lease(&self, attempt: AttemptId) -> Result<Option<LeaseRow>, Error>;
    async fn worker(&self, id: WorkerId) -> Result<Option<WorkerRow>, Error>;
    /// By id, those after `after`.
    async fn workers(
        &self,
        after: Option<WorkerId>,
        limit: u32,
    ) -> Result<Vec<WorkerSummary>, Error>;
    /// Workers that were not declared dead and have beaten after `since`, drained ones too; those with the
    /// newest beats.
    async fn live_workers(&self, since: Timestamp, limit: u32) -> Result<Vec<WorkerRow>, Error>;
    /// By id, those after `after`.
    async fn holds(&self, after: Option<HoldId>, limit: u32) -> Result<Vec<Hold>, Error>;
    /// Figures of what is live. Workers count that have beaten after `seen_since`, as alive those that have
    /// after `alive_since`.
    async fn figures(
        &self,
        alive_since: Timestamp,
        seen_since: Timestamp,
    ) -> Result<Figures, Error>;

    async fn forge_item(
        &self,
        repository: RepositoryId,
        number: u64,
    ) -> Result<Option<ForgeItem>, Error>;
    /// Open items with `label`, by number, after `after`.
    async fn forge_items_with_label(
        &self,
        repository: RepositoryId,
        label: &str,
        after: u64,
        limit: u32,
    ) -> Result<Vec<ForgeItem>, Error>;
    /// By number, those after `after`.
    async fn forge_items(
        &self,
        repository: RepositoryId,
        filter: &ItemFilter,
        after: u64,
        limit: u32,
    ) -> Result<Vec<ForgeItem>, Error>;
    /// Of one item, oldest first, those after `after`.
    async fn forge_comments(
        &self,
        repository: RepositoryId,
        number: u64,
        after: u64,
        limit: u32,
    ) -> Result<Vec<ForgeComment>, Error>;
    /// The newest pull request with this head ref, open ones first.
    async fn forge_pull_request(
        &self,
        repository: RepositoryId,
        head_ref: &str,
    ) -> Result<Option<ForgeItem>, Error>;
    /// The newest run of each check of a commit, by name.
    async fn check_runs(
        &self,
        workflow: WorkflowId,
        commit: &CommitId,
    ) -> Result<Vec<CheckRun>, Error>;
}

pub use model::AttemptRow;

/// One transaction. Dropped without [`commit`](Tx::commit) it leaves nothing behind.
#[async_trait]
pub trait Tx: Send {
    /// Makes all of it durable. After an error nobody knows whether it is: read before repeating.
    async fn commit(self: Box<Self>) -> Result<(), Error>;

    async fn insert_repository(&mut self, repository: &Repository) -> Result<(), Error>;
    /// Read inside this transaction.
    async fn repository(&mut self, id: RepositoryId) -> Result<Option<Repository>, Error>;
    /// Writes the policy.
    async fn update_repository(&mut self, repository: &Repository) -> Result<(), Error>;

    /// The workflow and its repository, locked until the transaction ends.
    async fn lock_workflow(&mut self, id: WorkflowId) -> Result<Option<LockedWorkflow>, Error>;
    /// The child of a workflow starts with its parent's priority, others with 0.
    async fn insert_workflow(&mut self, workflow: &Workflow, now: Timestamp) -> Result<(), Error>;
    /// Writes the progress. [`Error::LostRace`] where the version is not the locked one's; the locked
    /// one's grows by one. `state_since` becomes `now` where the state changed.
    async fn update_workflow(
        &mut self,
        locked: &mut LockedWorkflow,
        now: Timestamp,
    ) -> Result<(), Error>;
    /// Writes the priority, of the workflow and of its live attempts. [`Error::LostRace`] as
    /// [`update_workflow`](Tx::update_workflow); the version grows by one.
    async fn set_priority(
        &mut self,
        locked: &mut LockedWorkflow,
        priority: i32,
        now: Timestamp,
    ) -> Result<(), Error>;
    /// Deletes exactly these rows. False: some are gone already; the transaction is then not to be committed.
    async fn delete_history(&mut self, batch: &HistoryBatch) -> Result<bool, Error>;
    /// Says that rows of the workflow's history have left. Not part of what `version` guards.
    async fn set_archived(&mut self, workflow: WorkflowId, now: Timestamp) -> Result<(), Error>;
    /// Says that no row of the workflow's history is here; the next [`update_workflow`](Tx::update_workflow)
    /// takes it back.
    async fn set_history_moved(&mut self, workflow: WorkflowId) -> Result<(), Error>;
    /// Workflows of the repository past DISCOVERED and not terminal. PAUSED ones count, but those that were
    /// paused before they were admitted.
    async fn count_live_workflows(&mut self, repository: RepositoryId) -> Result<u32, Error>;
    /// The newest workflow of an item, read inside this transaction.
    async fn newest_workflow_of_item(
        &mut self,
        repository: RepositoryId,
        number: u64,
    ) -> Result<Option<WorkflowRow>, Error>;
    async fn set_ci_poll(
        &mut self,
        workflow: WorkflowId,
        polls: u32,
        next_poll_at: Timestamp,
    ) -> Result<(), Error>;

    async fn append_event(&mut self, event: &NewEvent) -> Result<(), Error>;

    async fn insert_attempt(&mut self, attempt: &Attempt, priority: i32) -> Result<(), Error>;
    async fn attempt(&mut self, id: AttemptId) -> Result<Option<Attempt>, Error>;
    /// Pending and in-progress ones, checks' too; by id.
    async fn live_attempts(&mut self, workflow: WorkflowId) -> Result<Vec<Attempt>, Error>;
    /// Writes all that changes of an attempt.
    async fn update_attempt(&mut self, attempt: &Attempt) -> Result<(), Error>;

    /// Leases up to `request.nonces.len()` pending attempts that fit, in the order: priority, then the
    /// repository with fewest attempts in progress, then age. An attempt fits where its `not_before` has
    /// passed, its workflow is in the state of its role (AWAITING_CI for checks, of the workflow's head
    /// alone) and has a head, and an offer names its role and tier with a kill budget of at most a third
    /// of its time-to-live; the database's clock counts. A worker that is drained gets none. Attempts that the same owner already holds under
    /// the same request id come first, as they are, and count towards the number. Each new lease: status
    /// in_progress, fence and pickups grow by one, `started_at` and the worker set, and the lease row
    /// inserted. A worker that is drained or declared dead gets none. Whom a hold covers that has not ended
    /// gets none; of one that has, a single attempt goes first, as its canary.
    async fn claim(&mut self, request: &ClaimRequest) -> Result<Vec<Claimed>, Error>;
    async fn set_attempt_commit(
        &mut self,
        attempt: AttemptId,
        commit: &CommitId,
    ) -> Result<(), Error>;
    async fn lease(&mut self, attempt: AttemptId) -> Result<Option<LeaseRow>, Error>;
    async fn leases_of_worker(&mut self, worker: WorkerId) -> Result<Vec<LeaseRow>, Error>;
    /// Ends a lease. False where there is none with that key.
    async fn delete_lease(&mut self, key: LeaseKey) -> Result<bool, Error>;
    /// Ends a lease if its time-to-live and margin have passed by the database's clock. False where it
    /// was prolonged, or is gone.
    async fn delete_stale_lease(&mut self, key: LeaseKey) -> Result<bool, Error>;
    async fn set_lease_unconfirmed(&mut self, key: LeaseKey) -> Result<(), Error>;

    async fn open_effect(&mut self, effect: &OpenEffectRow) -> Result<(), Error>;
    async fn open_effect_of(
        &mut self,
        workflow: WorkflowId,
    ) -> Result<Option<OpenEffectRow>, Error>;
    /// Writes tries, waits, next try, first failure and what it waits for, of an open effect.
    async fn update_effect(&mut self, effect: &OpenEffectRow) -> Result<(), Error>;
    /// False where it was closed already.
    async fn close_effect(&mut self, effect: EffectId, now: Timestamp) -> Result<bool, Error>;

    async fn worker(&mut self, id: WorkerId) -> Result<Option<WorkerRow>, Error>;
    /// Inserts, or replaces all but the id and the drain. A new row is not drained.
    async fn put_worker(&mut self, worker: &WorkerRow) -> Result<(), Error>;
    /// [`Error::LostRace`] where there is no such worker.
    async fn set_worker_drain(&mut self, id: WorkerId, drain: Option<&Drain>) -> Result<(), Error>;
    /// [`Error::LostRace`] where there is no such worker.
    async fn set_worker_declared_dead(&mut self, id: WorkerId, at: Timestamp) -> Result<(), Error>;

    /// Holds of these accounts, and of profiles of this worker; by id. A canary is told while its lease
    /// lives.
    async fn covering_holds(
        &mut self,
        worker: WorkerId,
        accounts: &[String],
    ) -> Result<Vec<Hold>, Error>;
    async fn hold(&mut self, id: HoldId) -> Result<Option<Hold>, Error>;
    /// Inserts, or replaces all but id, subject and when it was placed.
    async fn put_hold(&mut self, hold: &Hold) -> Result<(), Error>;
    /// False where there is none with that id.
    async fn delete_hold(&mut self, id: HoldId) -> Result<bool, Error>;

    async fn forge_item(
        &mut self,
        repository: RepositoryId,
        number: u64,
    ) -> Result<Option<ForgeItem>, Error>;
    async fn forge_item_by_request(
        &mut self,
        request: RequestId,
    ) -> Result<Option<ForgeItem>, Error>;
    /// The newest open pull request with this head ref.
    async fn open_forge_pull_request(
        &mut self,
        repository: RepositoryId,
        head_ref: &str,
    ) -> Result<Option<ForgeItem>, Error>;
    /// One more than the highest number so far; 1 for the first.
    async fn next_item_number(&mut self, repository: RepositoryId) -> Result<u64, Error>;
    async fn insert_forge_item(&mut self, item: &ForgeItem) -> Result<(), Error>;
    /// Writes labels, whether it is open, and the merged commit.
    async fn update_forge_item(&mut self, item: &ForgeItem) -> Result<(), Error>;

    async fn forge_comment_by_request(
        &mut self,
        request: RequestId,
    ) -> Result<Option<ForgeComment>, Error>;
    /// One more than those that the item has so far.
    async fn next_comment(&mut self, repository: RepositoryId, number: u64) -> Result<u64, Error>;
    async fn insert_forge_comment(&mut self, comment: &ForgeComment) -> Result<(), Error>;

    async fn insert_check_run(&mut self, run: &CheckRun) -> Result<(), Error>;
    async fn check_run(&mut self, id: CheckId) -> Result<Option<CheckRun>, Error>;
    /// The newest run of each check of a commit, by name.
    async fn check_runs(
        &mut self,
        workflow: WorkflowId,
        commit: &CommitId,
    ) -> Result<Vec<CheckRun>, Error>;
    /// Writes conclusion, exit status, log tail and `changed_at`.
    async fn update_check_run(&mut self, run: &CheckRun) -> Result<(), Error>;
}
