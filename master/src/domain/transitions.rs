//! THE TABLE: every transition there is, as const data, and what can be read off it.
//!
//! [`decide`](super::decide::decide) never moves a workflow but along a row of [`TABLE`]. Because the
//! table is data, its invariants are checked by walking it (`domain/tests/invariants.rs`).

use super::{attempt::Role, text::text_enum, workflow::Kind};

text_enum! {
    /// Where a workflow is.
    pub enum State: "workflow state" {
        Discovered = "DISCOVERED",
        Analyzing = "ANALYZING",
        Implementing = "IMPLEMENTING",
        AwaitingCi = "AWAITING_CI",
        ConflictResolving = "CONFLICT_RESOLVING",
        Escalating = "ESCALATING",
        Reviewing = "REVIEWING",
        Merging = "MERGING",
        Paused = "PAUSED",
        Merged = "MERGED",
        CreatedPr = "CREATED_PR",
        Abandoned = "ABANDONED",
        Stuck = "STUCK",
    }
}

impl State {
    /// Nothing leaves a terminal state, but STUCK's `operator_unstick`.
    pub const fn is_terminal(self) -> bool {
        match self {
            Self::Merged | Self::CreatedPr | Self::Abandoned | Self::Stuck => true,
            Self::Discovered
            | Self::Analyzing
            | Self::Implementing
            | Self::AwaitingCi
            | Self::ConflictResolving
            | Self::Escalating
            | Self::Reviewing
            | Self::Merging
            | Self::Paused => false,
        }
    }

    /// A live workflow can be paused, once.
    pub fn can_be_paused(self) -> bool {
        !self.is_terminal() && self != Self::Paused
    }

    /// The role of the attempt that runs in this state, where one does.
    pub const fn role(self) -> Option<Role> {
        match self {
            Self::Analyzing => Some(Role::Estimator),
            Self::Implementing => Some(Role::Implementer),
            Self::ConflictResolving => Some(Role::ConflictResolver),
            Self::Escalating => Some(Role::Escalator),
            Self::Reviewing => Some(Role::Reviewer),
            Self::Discovered
            | Self::AwaitingCi
            | Self::Merging
            | Self::Paused
            | Self::Merged
            | Self::CreatedPr
            | Self::Abandoned
            | Self::Stuck => None,
        }
    }
}

text_enum! {
    /// What moves a workflow along a row of the table.
    pub enum Event: "event" {
        AnalysisScheduled = "analysis_scheduled",
        AnalysisReady = "analysis_ready",
        AnalysisChangePresent = "analysis_change_present",
        AnalysisDeclined = "analysis_declined",
        AnalysisFailed = "analysis_failed",
        ChangePushed = "change_pushed",
        PrCreated = "pr_created",
        ImplementationFailed = "implementation_failed",
        ConflictDetected = "conflict_detected",
        CiGreen = "ci_green",
        CiRedFixable = "ci_red_fixable",
        CiRedRepeated = "ci_red_repeated",
        CiFlakeRetry = "ci_flake_retry",
        CiFlakeRetriesExhausted = "ci_flake_retries_exhausted",
        CiPollingExhausted = "ci_polling_exhausted",
        ConflictRoundFirst = "conflict_round_first",
        ConflictRoundSecond = "conflict_round_second",
        ConflictRoundsExhausted = "conflict_rounds_exhausted",
        EscalationTierRaised = "escalation_tier_raised",
        EscalationTiersExhausted = "escalation_tiers_exhausted",
        ReviewApproved = "review_approved",
        ReviewChangesRequested = "review_changes_requested",
        ReviewRejected = "review_rejected",
        HeadMoved = "head_moved",
        HeadMovesExhausted = "head_moves_exhausted",
        MergeSucceeded = "merge_succeeded",
        MergeBlocked = "merge_blocked",
        MergeRefused = "merge_refused",
        PickupExhausted = "pickup_exhausted",
        BudgetExhausted = "budget_exhausted",
        UpstreamClosed = "upstream_closed",
        OperatorUnstick = "operator_unstick",
    }
}

text_enum! {
    /// What moves a workflow beside the table: listed here, and not per state, because rows for them in
    /// every state would break the per-state event sets that the invariants name.
    pub enum OutOfBand: "out-of-band event" {
        OptInLabelRemoved = "opt_in_label_removed",
        OptInLabelRestored = "opt_in_label_restored",
        OperatorPaused = "operator_paused",
        OperatorResumed = "operator_resumed",
        UpstreamMerged = "upstream_merged",
        OperatorAbandoned = "operator_abandoned",
    }
}

text_enum! {
    /// The counter that limits how often a row may be taken.
    pub enum Bound: "bound" {
        CiRedRounds = "ci_red_rounds",
        CiFlakeRetries = "ci_flake_retries_remaining",
        ConflictRounds = "conflict_rounds",
        Tier = "tier",
        ReviewRounds = "review_rounds",
        HeadMoves = "head_moves",
        MergeRounds = "merge_rounds",
    }
}

/// One row for one state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Transition {
    pub from: State,
    pub event: Event,
    pub to: State,
    /// Set where the row lies on a cycle or ends one.
    pub bound: Option<Bound>,
    /// Set where only workflows of one kind may take the row.
    pub only: Option<Kind>,
}

const fn row(from: State, event: Event, to: State) -> Transition {
    Transition {
        from,
        event,
        to,
        bound: None,
        only: None,
    }
}

const fn bounded(from: State, event: Event, to: State, bound: Bound) -> Transition {
    Transition {
        from,
        event,
        to,
        bound: Some(bound),
        only: None,
    }
}

const fn only(kind: Kind, from: State, event: Event, to: State) -> Transition {
    Transition {
        from,
        event,
        to,
        bound: None,
        only: Some(kind),
    }
}

/// Every transition there is: 52 entries.
pub const TABLE: &[Transition] = {
    use {Event as E, State as S};
    &[
        row(S::Discovered, E::AnalysisScheduled, S::Analyzing),
        row(S::Analyzing, E::AnalysisReady, S::Implementing),
        only(
            Kind::PullRequest,
            S::Analyzing,
            E::AnalysisChangePresent,
            S::AwaitingCi,
        ),
        row(S::Analyzing, E::AnalysisDeclined, S::Abandoned),
        row(S::Analyzing, E::AnalysisFailed, S::Escalating),
        only(
            Kind::PullRequest,
            S::Implementing,
            E::ChangePushed,
            S::AwaitingCi,
        ),
        only(Kind::Issue, S::Implementing, E::PrCreated, S::CreatedPr),
        row(S::Implementing, E::ImplementationFailed, S::Escalating),
        row(S::Implementing, E::ConflictDetected, S::ConflictResolving),
        row(S::AwaitingCi, E::CiGreen, S::Reviewing),
        bounded(
            S::AwaitingCi,
            E::CiRedFixable,
            S::Implementing,
            Bound::CiRedRounds,
        ),
        row(S::AwaitingCi, E::CiRedRepeated, S::Escalating),
        bounded(
            S::AwaitingCi,
            E::CiFlakeRetry,
            S::AwaitingCi,
            Bound::CiFlakeRetries,
        ),
        row(S::AwaitingCi, E::CiFlakeRetriesExhausted, S::Escalating),
        row(S::AwaitingCi, E::CiPollingExhausted, S::Stuck),
        row(S::AwaitingCi, E::ConflictDetected, S::ConflictResolving),
        bounded(
            S::ConflictResolving,
            E::ConflictRoundFirst,
            S::Implementing,
            Bound::ConflictRounds,
        ),
        bounded(
            S::ConflictResolving,
            E::ConflictRoundSecond,
            S::Escalating,
            Bound::ConflictRounds,
        ),
        bounded(
            S::ConflictResolving,
            E::ConflictRoundsExhausted,
            S::Stuck,
            Bound::ConflictRounds,
        ),
        bounded(
            S::Escalating,
            E::EscalationTierRaised,
            S::Implementing,
            Bound::Tier,
        ),
        row(S::Escalating, E::EscalationTiersExhausted, S::Stuck),
        row(S::Reviewing, E::ReviewApproved, S::Merging),
        bounded(
            S::Reviewing,
            E::ReviewChangesRequested,
            S::Implementing,
            Bound::ReviewRounds,
        ),
        row(S::Reviewing, E::ReviewRejected, S::Escalating),
        bounded(S::Reviewing, E::HeadMoved, S::AwaitingCi, Bound::HeadMoves),
        row(S::Reviewing, E::HeadMovesExhausted, S::Stuck),
        row(S::Reviewing, E::ConflictDetected, S::ConflictResolving),
        row(S::Merging, E::MergeSucceeded, S::Merged),
        bounded(
            S::Merging,
            E::MergeBlocked,
            S::AwaitingCi,
            Bound::MergeRounds,
        ),
        row(S::Merging, E::ConflictDetected, S::ConflictResolving),
        row(S::Merging, E::MergeRefused, S::Stuck),
        row(S::Analyzing, E::PickupExhausted, S::Stuck),
        row(S::Implementing, E::PickupExhausted, S::Stuck),
        row(S::ConflictResolving, E::PickupExhausted, S::Stuck),
        row(S::Escalating, E::PickupExhausted, S::Stuck),
        row(S::Reviewing, E::PickupExhausted, S::Stuck),
        row(S::Analyzing, E::BudgetExhausted, S::Stuck),
        row(S::Implementing, E::BudgetExhausted, S::Stuck),
        row(S::ConflictResolving, E::BudgetExhausted, S::Stuck),
        row(S::Escalating, E::BudgetExhausted, S::Stuck),
        row(S::Reviewing, E::BudgetExhausted, S::Stuck),
        row(S::Discovered, E::UpstreamClosed, S::Abandoned),
        row(S::Analyzing, E::UpstreamClosed, S::Abandoned),
        row(S::Implementing, E::UpstreamClosed, S::Abandoned),
        row(S::AwaitingCi, E::UpstreamClosed, S::Abandoned),
        row(S::ConflictResolving, E::UpstreamClosed, S::Abandoned),
        row(S::Escalating, E::UpstreamClosed, S::Abandoned),
        row(S::Reviewing, E::UpstreamClosed, S::Abandoned),
        row(S::Merging, E::UpstreamClosed, S::Abandoned),
        row(S::Paused, E::UpstreamClosed, S::Abandoned),
        row(S::Stuck, E::OperatorUnstick, S::Discovered),
        row(S::Paused, E::OperatorUnstick, S::Discovered),
    ]
};

/// An event that is no row of the state it met.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{event} is not legal for {kind} in {state}; legal there: {}",
    names(legal)
)]
pub struct IllegalTransition {
    pub kind: Kind,
    pub state: State,
    pub event: Event,
    /// The events that are.
    pub legal: Vec<Event>,
}

fn names(events: &[Event]) -> String {
    if events.is_empty() {
        return "none".to_owned();
    }
    let names: Vec<_> = events.iter().map(|e| e.as_str()).collect();
    names.join(", ")
}

/// The rows that workflows of `kind` may take.
pub fn rows_of(table: &[Transition], kind: Kind) -> impl Iterator<Item = &Transition> {
    table
        .iter()
        .filter(move |row| row.only.is_none_or(|only| only == kind))
}

/// The events that are legal for `kind` in `state`, in the table's order.
pub fn events_from(kind: Kind, state: State) -> Vec<Event> {
    rows_of(TABLE, kind)
        .filter(|row| row.from == state)
        .map(|row| row.event)
        .collect()
}

/// Every state that a walk of at least one row from `state` can reach. Where `state` lies on a cycle it
/// reaches itself.
pub fn reachable_from(table: &[Transition], kind: Kind, state: State) -> Vec<State> {
    let mut reached = Vec::new();
    let mut frontier = vec![state];
    while let Some(current) = frontier.pop() {
        for row in rows_of(table, kind).filter(|row| row.from == current) {
            if !reached.contains(&row.to) {
                reached.push(row.to);
                frontier.push(row.to);
            }
        }
    }
    reached
}

/// Where `event` takes a workflow of `kind` that is in `state`.
pub fn apply_event(kind: Kind, state: State, event: Event) -> Result<State, IllegalTransition> {
    rows_of(TABLE, kind)
        .find(|row| row.from == state && row.event == event)
        .map(|row| row.to)
        .ok_or_else(|| IllegalTransition {
            kind,
            state,
            event,
            legal: events_from(kind, state),
        })
}
