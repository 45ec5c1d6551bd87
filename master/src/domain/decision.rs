//! What `decide` is told, and what it answers.

use serde_json::Value;

use super::{
    ci::{CheckFailure, CiReading},
    effect::Effect,
    ids::CommitId,
    text::text_enum,
    transitions::{Event, IllegalTransition, OutOfBand},
    verdict::Verdict,
    workflow::Progress,
};

/// What may happen to a workflow.
#[derive(Debug, Clone, PartialEq)]
pub enum Input {
    /// The scheduler has room for it.
    Admit,
    /// A harness decided. `commit` is what its attempt was leased against.
    Verdict {
        verdict: Verdict,
        commit: Option<CommitId>,
    },
    /// The effector carried out, or failed to carry out, the open effect.
    Effect(EffectResult),
    /// The checks of `head` have a verdict.
    Ci {
        head: CommitId,
        reading: CiReading,
    },
    /// The head can't be merged into its base.
    ConflictFound {
        paths: Vec<String>,
    },
    /// The branch is at `head`.
    HeadSeen {
        head: CommitId,
    },
    /// The item carries the opt-in label, or does not.
    Label(LabelState),
    /// The item is over on its forge.
    Upstream(UpstreamFact),
    /// The workflow is over, and its item was seen closed or without the label.
    ItemLeft,
    Operator(OperatorAction),
    /// An attempt was leased as often as it may be.
    PickupsSpent {
        pickup_count: u32,
        max_pickups: u32,
    },
    /// The money, tokens or time of the workflow are spent.
    BudgetSpent {
        reason: String,
    },
    /// Something that the machine does by itself, on entry to a state.
    Immediate(Immediate),
}

/// Steps that spend no attempt: taken in the transaction that made them possible.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Immediate {
    /// A pull request that one of our own workflows opened needs no analysis.
    SkipEstimator,
    /// There is no tier above this one.
    NoTierLeft,
    /// One conflict too many.
    NoConflictRoundLeft,
}

/// How the open effect ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EffectResult {
    /// The branch is at `head`, which is or contains the accepted commit.
    HeadMoved {
        head: CommitId,
    },
    /// The pull request is there.
    PullRequestOpened {
        number: u64,
        head: CommitId,
    },
    ChecksRerun,
    /// The merge commit was seen on the base branch.
    Merged {
        commit: CommitId,
    },
    /// The branch is at `head`, which is not what the effect expected.
    Superseded {
        head: CommitId,
    },
    /// Not now, but CI may change that.
    MergeBlocked {
        reason: String,
    },
    MergeConflict {
        paths: Vec<String>,
    },
    /// Never.
    MergeRefused {
        reason: String,
    },
    /// Its tries or its deadline are spent.
    Spent {
        reason: String,
    },
}

impl EffectResult {
    /// The name under which it is written to the history.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::HeadMoved { .. } => "head_moved",
            Self::PullRequestOpened { .. } => "pull_request_opened",
            Self::ChecksRerun => "checks_rerun",
            Self::Merged { .. } => "merged",
            Self::Superseded { .. } => "superseded",
            Self::MergeBlocked { .. } => "merge_blocked",
            Self::MergeConflict { .. } => "merge_conflict",
            Self::MergeRefused { .. } => "merge_refused",
            Self::Spent { .. } => "spent",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LabelState {
    Present,
    Absent,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UpstreamFact {
    Closed,
    /// A person merged it.
    Merged {
        commit: Option<CommitId>,
    },
}

/// Whether an item may be worked on, as a fresh look showed it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gate {
    /// It is open and carries the opt-in label.
    Open,
    LabelAbsent,
    /// Closed or merged, or its forge has none with that number.
    ItemOver,
}

/// What becomes of the attempts that run when an operator pauses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Running {
    /// They go on, and their verdicts are kept.
    Left,
    /// They are cancelled. Said only where something runs: said twice it is an event twice.
    Cancelled,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OperatorAction {
    Pause {
        running: Running,
    },
    /// Refused unless the gate is open.
    Resume {
        gate: Gate,
    },
    /// Refused unless the gate is open.
    Unstick {
        gate: Gate,
    },
    Abandon,
    SetCiFlakeRetries {
        remaining: u32,
    },
}

text_enum! {
    /// What is written to the history without moving the workflow.
    pub enum Note: "note" {
        Discovered = "workflow_discovered",
        EffectOpened = "effect_opened",
        EffectClosed = "effect_closed",
        AttemptSuperseded = "attempt_superseded",
        CiWaitRestarted = "ci_wait_restarted",
        HeadRecorded = "head_recorded",
        ChecksRerun = "checks_rerun",
        CiFlakeRetriesSet = "ci_flake_retries_set",
        PrioritySet = "priority_set",
        UpstreamEnded = "upstream_ended",
        ItemLeft = "item_left",
        AttemptLeased = "attempt_leased",
        AttemptReleased = "attempt_released",
        AttemptFailed = "attempt_infrastructure_error",
        AttemptLost = "attempt_lost",
        AttemptCancelled = "attempt_cancelled",
        LockTtlExpired = "lock-ttl-expired",
        AttemptPickupExhausted = "attempt-pickup-exhausted",
        WorkerDrained = "worker_drained",
        WorkerUndrained = "worker_undrained",
        WorkerDeclaredDead = "worker_declared_dead",
        HoldPlaced = "hold_placed",
        HoldRenewed = "hold_renewed",
        HoldLifted = "hold_lifted",
        HoldReleased = "hold_released",
        RepositoryAdded = "repository_added",
        PolicyUpdated = "policy_updated",
        ItemSubmitted = "item_submitted",
        ItemLabelled = "item_labelled",
        ItemUnlabelled = "item_unlabelled",
        ItemClosed = "item_closed",
        ItemReopened = "item_reopened",
        ItemCommented = "item_commented",
    }
}

/// The name of a row of the history.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventKind {
    Transition(Event),
    OutOfBand(OutOfBand),
    Note(Note),
}

impl EventKind {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Transition(event) => event.as_str(),
            Self::OutOfBand(event) => event.as_str(),
            Self::Note(note) => note.as_str(),
        }
    }
}

/// What becomes of the workflow's live attempts, the one apart whose own outcome this is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Attempts {
    /// Nothing.
    Kept,
    /// Those that nobody works on are cancelled, checks apart; those that run go on.
    PendingCancelled,
    /// All are cancelled.
    Cancelled,
}

/// What becomes of the open effect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OpenEffect {
    /// Nothing.
    Kept,
    /// It is closed, as done or as no longer wanted.
    Closed,
    /// It is closed where there is one, and this one opened.
    Replaced(Effect),
}

/// What is to be written, all in one transaction, and so what happens next.
#[derive(Debug, Clone, PartialEq)]
pub struct Decision {
    /// Where the workflow stands afterwards.
    pub progress: Progress,
    pub event: EventKind,
    /// Facts of the event: one JSON object.
    pub detail: Value,
    /// Why, in words; empty where the event speaks for itself.
    pub reason: String,
    pub attempts: Attempts,
    pub effect: OpenEffect,
    /// The head's checks start anew (built-in forge).
    pub starts_checks: bool,
    /// The attempt whose outcome this is ends as superseded, not as succeeded.
    pub supersedes_attempt: bool,
}

impl Gate {
    /// What an item's look means.
    pub const fn of(is_open: bool, is_labelled: bool) -> Self {
        match (is_open, is_labelled) {
            (false, _) => Self::ItemOver,
            (true, false) => Self::LabelAbsent,
            (true, true) => Self::Open,
        }
    }

    /// Refuses `action` where the gate is shut.
    pub const fn pass(self, action: &'static str) -> Result<(), Refusal> {
        match self {
            Self::Open => Ok(()),
            Self::LabelAbsent => Err(Refusal::LabelAbsent { action }),
            Self::ItemOver => Err(Refusal::ItemOver { action }),
        }
    }
}

/// The answer of `decide`.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    Changed(Box<Decision>),
    /// It is already so.
    Unchanged,
}

/// Why an input is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error(transparent)]
    IllegalTransition(#[from] IllegalTransition),
    #[error("a {verdict} verdict is not allowed for {role} on {kind}")]
    VerdictNotAllowed {
        verdict: &'static str,
        role: super::attempt::Role,
        kind: super::workflow::Kind,
    },
    #[error("{action} is not possible in {state}")]
    NotPossible {
        action: &'static str,
        state: super::transitions::State,
    },
    #[error("the attempt has ended as {status}")]
    AttemptEnded {
        status: super::attempt::AttemptStatus,
    },
    #[error("the item does not carry the opt-in label: give it back before {action} the workflow")]
    LabelAbsent { action: &'static str },
    #[error("the item is closed: reopen it before {action} the workflow")]
    ItemOver { action: &'static str },
    #[error("the missing label paused it: give the label back, and it goes on by itself")]
    PausedByLabel,
    #[error("another workflow can't follow this one: {standing}")]
    NotOver {
        state: super::transitions::State,
        standing: super::succession::Standing,
    },
    #[error("{remaining} flake retries; 0 to {max} is expected")]
    FlakeRetriesOutOfRange { remaining: u32, max: u32 },
}

/// Failures of checks, cut to what facts keep.
pub fn kept_failures(mut failures: Vec<CheckFailure>) -> Vec<CheckFailure> {
    failures.truncate(super::workflow::MAX_FACTS);
    failures
}
