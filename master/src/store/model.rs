//! What the store takes and gives, where the domain has no type of its own for it.

use std::{fs::File, time::Duration};

use serde::{Deserialize, Serialize};
use tokio::sync::OwnedSemaphorePermit;

use crate::domain::{
    attempt::{Attempt, AttemptStatus, Role, fits_kill_budget},
    ci::{CheckDefinition, Conclusion},
    decision::EventKind,
    effect::Effect,
    hold::Runner,
    ids::{
        AttemptId, CheckId, CommitId, EffectId, InstanceId, LeaseKey, Nonce, RepositoryId,
        RequestId, WorkerId, WorkflowId,
    },
    policy::Policy,
    time::Timestamp,
    transitions::State,
    workflow::{Kind, Workflow},
};

/// A repository that Pointsman may write to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Repository {
    pub id: RepositoryId,
    pub name: String,
    pub git_url: String,
    pub base_ref: String,
    /// The opt-in label.
    pub label: String,
    /// The built-in forge's checks, each run on every head; names are unique.
    pub checks: Vec<CheckDefinition>,
    pub policy: Policy,
    pub created_at: Timestamp,
}

/// A workflow as it was last committed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkflowRow {
    pub workflow: Workflow,
    /// The workflow of the same item that names this one as the one before it.
    pub successor: Option<WorkflowId>,
    pub repository_name: String,
    pub priority: i32,
    pub version: u64,
    /// When the present state was entered.
    pub state_since: Timestamp,
    pub ci_polls: u32,
    pub ci_next_poll_at: Option<Timestamp>,
    pub updated_at: Timestamp,
    /// When rows of its history left for the archive last.
    pub archived_at: Option<Timestamp>,
}

/// A workflow that nobody else can write until the transaction ends. Whoever is to change one asks for
/// this value; only the store makes it.
#[derive(Debug, Clone)]
pub struct LockedWorkflow {
    pub workflow: Workflow,
    pub repository: Repository,
    pub priority: i32,
    pub version: u64,
    pub state_since: Timestamp,
    pub ci_polls: u32,
    pub ci_next_poll_at: Option<Timestamp>,
}

/// Which workflows to list; an empty filter lists all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WorkflowFilter {
    pub repository: Option<RepositoryId>,
    pub states: Vec<State>,
    pub kind: Option<Kind>,
}

/// What kind of row leaves for the archive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum HistoryKind {
    Event,
    Effect,
    Attempt,
    Check,
}

impl std::fmt::Display for HistoryKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Event => "event",
            Self::Effect => "effect",
            Self::Attempt => "attempt",
            Self::Check => "check",
        })
    }
}

/// A row that leaves for the archive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HistoryRow {
    /// An id, or the sequence of an event.
    pub key: String,
    /// All of it but secrets, as one JSON object on one line.
    pub line: String,
}

/// The oldest rows of one kind; never empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HistoryBatch {
    /// `None`: of repositories and workers.
    pub workflow: Option<WorkflowId>,
    pub kind: HistoryKind,
    pub rows: Vec<HistoryRow>,
}

/// A place in the order in which workflows are written. Grows; 0 is before the first.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct ChangePoint(pub u64);

/// Workflows that were written after a point.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Changes {
    /// In the order of their newest writes; each once, as it is now.
    pub rows: Vec<WorkflowRow>,
    /// Where to go on. What is not in `rows` and was written before this read is not after it.
    pub point: ChangePoint,
    /// Whether that was all there is.
    pub is_all: bool,
}

/// Which attempts to list; an empty filter lists all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AttemptFilter {
    pub workflow: Option<WorkflowId>,
    pub statuses: Vec<AttemptStatus>,
    pub roles: Vec<Role>,
    /// The worker of the newest lease.
    pub worker: Option<WorkerId>,
}

/// A page of attempts, newest first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AttemptPage {
    pub rows: Vec<AttemptRow>,
    /// Go on with those before it; `None`: there are no more.
    pub next: Option<AttemptId>,
}

/// An attempt with the facts about it that the domain does not decide on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AttemptRow {
    pub attempt: Attempt,
    /// The worker of the newest lease.
    pub worker: Option<WorkerId>,
    pub check_name: Option<String>,
}

/// What a row of the history is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum About {
    /// A workflow, which was in `from` before and is in `to` after; the same where nothing moved.
    Workflow {
        id: WorkflowId,
        from: State,
        to: State,
    },
    Repository(RepositoryId),
    Worker(WorkerId),
}

impl About {
    pub fn workflow(self) -> Option<WorkflowId> {
        match self {
            Self::Workflow { id, .. } => Some(id),
            Self::Repository(_) | Self::Worker(_) => None,
        }
    }

    /// The states before and after, where it is about a workflow.
    pub fn states(self) -> Option<(State, State)> {
        match self {
            Self::Workflow { from, to, .. } => Some((from, to)),
            Self::Repository(_) | Self::Worker(_) => None,
        }
    }

    /// Whether it moved a workflow.
    pub fn is_move(self) -> bool {
        self.states().is_some_and(|(from, to)| from != to)
    }
}

/// One row for the history.
#[derive(Debug, Clone, PartialEq)]
pub struct NewEvent {
    pub about: About,
    pub attempt: Option<AttemptId>,
    pub occurred_at: Timestamp,
    pub kind: EventKind,
    pub actor: String,
    pub reason: String,
    /// One JSON object.
    pub detail: serde_json::Value,
}

/// One row of the history. The kind stays text: a newer master may have written one that this one does
/// not know.
#[derive(Debug, Clone, PartialEq)]
pub struct EventRow {
    pub sequence: u64,
    pub about: About,
    pub attempt: Option<AttemptId>,
    pub occurred_at: Timestamp,
    pub kind: String,
    pub actor: String,
    pub reason: String,
    pub detail: serde_json::Value,
}

/// One way in which a worker runs harnesses.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProfileRow {
    pub name: String,
    pub roles: Vec<Role>,
    pub tiers: Vec<u32>,
    pub kill_budget: Duration,
    /// The provider's account that it uses; empty: named as the profile.
    #[serde(default)]
    pub account: String,
}

impl ProfileRow {
    /// What a hold on the provider names.
    pub fn account(&self) -> &str {
        if self.account.is_empty() {
            &self.name
        } else {
            &self.account
        }
    }
}

/// A worker as it registered last.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkerRow {
    pub id: WorkerId,
    pub instance: InstanceId,
    pub name: String,
    pub host: String,
    pub boot_id: String,
    pub version: String,
    pub state_directory: StateDirectory,
    pub capacity: u32,
    pub roles: Vec<Role>,
    pub labels: Vec<String>,
    pub profiles: Vec<ProfileRow>,
    pub registered_at: Timestamp,
    pub last_beat_at: Timestamp,
    /// Set while it is drained, by operators alone.
    pub drain: Option<Drain>,
    /// Set from the declaration until it registers again.
    pub declared_dead_at: Option<Timestamp>,
}

/// Why a worker is given no new leases.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Drain {
    pub requested_at: Timestamp,
    pub reason: String,
    /// Its sessions are to be stopped and given back.
    pub stops_sessions: bool,
}

/// A worker with the number of leases that it holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkerSummary {
    pub worker: WorkerRow,
    pub n_leases: u32,
}

/// Identity of a worker's locked state directory: equal ones prove that the earlier process is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct StateDirectory {
    pub device: u64,
    pub inode: u64,
    /// 0 where the file system records none.
    pub created_at_nanos: i64,
}

/// What a worker can take now.
#[derive(Debug, Clone)]
pub struct ClaimRequest {
    pub worker: WorkerId,
    pub instance: InstanceId,
    pub request: RequestId,
    /// An attempt fits where one of these does; the first that does is used.
    pub offers: Vec<Offer>,
    /// One for each lease that may be made, and so the most that are.
    pub nonces: Vec<Nonce>,
}

/// A role that a worker takes, at these tiers, by this profile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Offer {
    pub role: Role,
    /// Empty: every tier.
    pub tiers: Vec<u32>,
    /// Empty for checks, which run without a profile.
    pub profile: String,
    /// The provider's account that the profile uses.
    pub account: String,
    pub kill_budget: Duration,
}

/// Why an attempt can't be leased by an offer. A later one is nearer to a fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Misfit {
    Role,
    Tier,
    /// It is more than a third of the time-to-live.
    KillBudget,
}

impl Offer {
    /// Whether an attempt of this role, tier and time-to-live can be leased by it.
    pub fn fits(&self, role: Role, tier: u32, ttl_seconds: u32) -> bool {
        self.misfit(role, tier, ttl_seconds).is_none()
    }

    /// What keeps an attempt of this role, tier and time-to-live from being leased by it.
    pub fn misfit(&self, role: Role, tier: u32, ttl_seconds: u32) -> Option<Misfit> {
        if self.role != role {
            Some(Misfit::Role)
        } else if !self.tiers.is_empty() && !self.tiers.contains(&tier) {
            Some(Misfit::Tier)
        } else if !fits_kill_budget(ttl_seconds, self.kill_budget) {
            Some(Misfit::KillBudget)
        } else {
            None
        }
    }

    /// Who runs an attempt by it, for holds.
    pub fn runner(&self, worker: WorkerId) -> Runner<'_> {
        Runner {
            worker,
            profile: &self.profile,
            account: &self.account,
        }
    }
}

/// A lease that a claim made, or found made by the same request before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claimed {
    pub attempt: Attempt,
    pub lease: LeaseRow,
    /// Made by an earlier call with the same request id.
    pub is_repeated: bool,
}

/// A live lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseRow {
    pub key: LeaseKey,
    pub workflow: WorkflowId,
    pub owner: InstanceId,
    pub worker: WorkerId,
    pub profile: String,
    pub is_unconfirmed: bool,
    /// By the database's clock.
    pub leased_at: Timestamp,
    /// By the database's clock.
    pub heartbeat_at: Timestamp,
    pub ttl_seconds: u32,
}

/// A lease that may be reaped, if the reaper has seen it unchanged for long enough.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StaleLease {
    pub key: LeaseKey,
    pub workflow: WorkflowId,
    pub owner: InstanceId,
    pub heartbeat_at: Timestamp,
    pub ttl_seconds: u32,
}

/// A beat of one lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BeatWrite {
    pub key: LeaseKey,
    /// How long ago it was received, measured monotonically.
    pub age: Duration,
}

/// What the last beat of a lease said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProgressRow {
    pub key: LeaseKey,
    /// `preparing`, `running` or `finishing`.
    pub phase: String,
    /// 0 while there is no harness.
    pub subprocess_pid: u32,
    pub subprocess_starttime: u64,
    pub last_output_at: Option<Timestamp>,
    pub log_bytes: u64,
}

/// A live lease of one instance, for the rule of absences.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeldLease {
    pub key: LeaseKey,
    /// By the database's clock.
    pub leased_at: Timestamp,
    /// A beat has named it.
    pub is_named: bool,
}

/// A live lease with what its last beat said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionRow {
    pub lease: LeaseRow,
    pub role: Role,
    pub tier: u32,
    pub worker_name: String,
    pub host: String,
    /// `None` until a beat named it.
    pub progress: Option<ProgressRow>,
}

/// An effect that is open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenEffectRow {
    pub id: EffectId,
    pub workflow: WorkflowId,
    pub attempt: Option<AttemptId>,
    pub effect: Effect,
    /// Failed or unanswered writes.
    pub tries: u32,
    /// Looks that found that it must wait.
    pub waits: u32,
    pub next_try_at: Timestamp,
    pub first_failure_at: Option<Timestamp>,
    /// What the last look or try met, for people; empty while nothing is in the way.
    pub waiting_for: String,
    pub opened_at: Timestamp,
}

impl OpenEffectRow {
    /// Since when its writes fail, where the workflow is in its state since `state_since`. What failed
    /// before a pause counts no more: paused time runs no deadline.
    pub fn failing_since(&self, state_since: Timestamp) -> Option<Timestamp> {
        self.first_failure_at.filter(|first| *first >= state_since)
    }
}

/// An issue or pull request of the built-in forge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForgeItem {
    pub repository: RepositoryId,
    pub number: u64,
    pub kind: Kind,
    pub title: String,
    pub body: String,
    /// Sorted, without repeats.
    pub labels: Vec<String>,
    pub is_open: bool,
    /// Set on pull requests alone.
    pub head_ref: Option<String>,
    pub base_ref: String,
    pub merged_commit: Option<CommitId>,
    pub request: Option<RequestId>,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}

/// Which items are listed. Each part that is left out lets all pass.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ItemFilter {
    pub is_open: Option<bool>,
    pub label: Option<String>,
}

/// What was said about an item of the built-in forge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForgeComment {
    pub repository: RepositoryId,
    pub number: u64,
    /// 1 for the first of its item.
    pub comment: u64,
    /// Who said it, as actors are named in the history.
    pub author: String,
    pub body: String,
    pub request: Option<RequestId>,
    pub created_at: Timestamp,
}

/// One run of one check of the built-in forge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckRun {
    pub id: CheckId,
    pub repository: RepositoryId,
    pub workflow: WorkflowId,
    pub name: String,
    pub command: String,
    pub commit: CommitId,
    /// 1 for the first; the newest counts.
    pub run: u32,
    /// `None` while it waits or runs.
    pub conclusion: Option<Conclusion>,
    pub exit_status: Option<u32>,
    pub log_tail: String,
    pub created_at: Timestamp,
    pub changed_at: Timestamp,
}

/// Figures of what is live.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Figures {
    /// States with workflows that are not over, and STUCK; by name.
    pub workflows: Vec<(State, u64)>,
    /// By role, tier and time-to-live.
    pub pending: Vec<PendingGroup>,
    pub n_in_progress: u64,
    pub n_leases: u64,
    pub workers: WorkerFigures,
    /// Open, and no write has failed.
    pub n_effects_waiting: u64,
    pub n_effects_failing: u64,
    pub n_holds: u64,
    pub database_bytes: u64,
}

/// Pending attempts that the same offers fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PendingGroup {
    pub role: Role,
    pub tier: u32,
    pub ttl_seconds: u32,
    pub n: u64,
    pub oldest_at: Timestamp,
}

/// Workers that were not declared dead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WorkerFigures {
    pub n_alive: u64,
    pub n_silent: u64,
    /// Alive or silent.
    pub n_drained: u64,
}

/// A copy of the whole database, to be read from its beginning. It has no name, so nothing of it is left
/// once it is dropped.
#[derive(Debug)]
pub struct Snapshot {
    pub file: File,
    /// In bytes.
    pub size: u64,
    /// Another one can be made once this is dropped.
    pub permit: OwnedSemaphorePermit,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_profile_that_was_stored_before_accounts_has_one_of_its_own_name() {
        let stored = r#"{"name": "agent", "roles": ["reviewer"], "tiers": [],
            "kill_budget": {"secs": 10, "nanos": 0}}"#;
        let mut profile: ProfileRow = serde_json::from_str(stored).unwrap();
        assert_eq!(profile.account(), "agent");
        profile.account = "main".to_owned();
        assert_eq!(profile.account(), "main");
    }
}
