//! The invariants of the table, each a function over rows, so that a broken copy can be shown to it.
//! `saboteurs.rs` does that.

use std::collections::BTreeSet;

use crate::domain::{
    transitions::{Bound, Event, State, TABLE, Transition, reachable_from, rows_of},
    workflow::Kind,
};

/// A rule that rows must keep, on the subgraph of one kind.
pub(super) type Invariant = fn(&[Transition], Kind) -> bool;

pub(super) const INVARIANTS: &[(&str, Invariant)] = &[
    (
        "no_path_implementing_to_reviewing_skips_ci",
        no_path_implementing_to_reviewing_skips_ci,
    ),
    (
        "terminal_states_have_no_exits",
        terminal_states_have_no_exits,
    ),
    (
        "tier_monotonic_non_decreasing",
        tier_monotonic_non_decreasing,
    ),
    (
        "every_pr_workflow_includes_reviewing",
        every_pr_workflow_includes_reviewing,
    ),
    ("conflict_resolving_bounded", conflict_resolving_bounded),
    ("escalation_deterministic", escalation_deterministic),
    (
        "every_attempt_state_has_a_poison_exit",
        every_attempt_state_has_a_poison_exit,
    ),
    ("every_cycle_is_bounded", every_cycle_is_bounded),
    (
        "every_non_terminal_reaches_a_terminal",
        every_non_terminal_reaches_a_terminal,
    ),
    ("each_kind_has_its_own_end", each_kind_has_its_own_end),
];

/// The names of the invariants that `table` breaks, for any kind.
pub(super) fn broken_by(table: &[Transition]) -> Vec<&'static str> {
    INVARIANTS
        .iter()
        .filter(|(_, holds)| !Kind::ALL.iter().all(|&kind| holds(table, kind)))
        .map(|(name, _)| *name)
        .collect()
}

fn without(table: &[Transition], taken_out: impl Fn(&Transition) -> bool) -> Vec<Transition> {
    table
        .iter()
        .filter(|row| !taken_out(row))
        .copied()
        .collect()
}

fn touches(state: State) -> impl Fn(&Transition) -> bool {
    move |row| row.from == state || row.to == state
}

/// The only way from IMPLEMENTING to REVIEWING leads through AWAITING_CI.
fn no_path_implementing_to_reviewing_skips_ci(table: &[Transition], kind: Kind) -> bool {
    let no_ci = without(table, touches(State::AwaitingCi));
    !reachable_from(&no_ci, kind, State::Implementing).contains(&State::Reviewing)
}

/// But STUCK's `operator_unstick`.
fn terminal_states_have_no_exits(table: &[Transition], kind: Kind) -> bool {
    rows_of(table, kind)
        .filter(|row| row.from.is_terminal())
        .all(|row| row.from == State::Stuck && row.event == Event::OperatorUnstick)
}

/// One row alone moves the tier, and its event says that it goes up. That `decide` keeps to it is a
/// property of its own.
fn tier_monotonic_non_decreasing(table: &[Transition], kind: Kind) -> bool {
    let events: Vec<_> = rows_of(table, kind)
        .filter(|row| row.bound == Some(Bound::Tier))
        .map(|row| row.event)
        .collect();
    events == [Event::EscalationTierRaised]
}

/// Without REVIEWING, MERGED can't be reached.
fn every_pr_workflow_includes_reviewing(table: &[Transition], kind: Kind) -> bool {
    let no_review = without(table, touches(State::Reviewing));
    !reachable_from(&no_review, kind, State::Discovered).contains(&State::Merged)
}

fn exits(table: &[Transition], kind: Kind, state: State) -> BTreeSet<(Event, State)> {
    rows_of(table, kind)
        .filter(|row| row.from == state)
        .map(|row| (row.event, row.to))
        .collect()
}

/// The first conflict leads to IMPLEMENTING, the second to ESCALATING, the third to STUCK.
fn conflict_resolving_bounded(table: &[Transition], kind: Kind) -> bool {
    exits(table, kind, State::ConflictResolving)
        == BTreeSet::from([
            (Event::ConflictRoundFirst, State::Implementing),
            (Event::ConflictRoundSecond, State::Escalating),
            (Event::ConflictRoundsExhausted, State::Stuck),
            (Event::PickupExhausted, State::Stuck),
            (Event::BudgetExhausted, State::Stuck),
            (Event::UpstreamClosed, State::Abandoned),
        ])
}

/// One target for each event of ESCALATING.
fn escalation_deterministic(table: &[Transition], kind: Kind) -> bool {
    exits(table, kind, State::Escalating)
        == BTreeSet::from([
            (Event::EscalationTierRaised, State::Implementing),
            (Event::EscalationTiersExhausted, State::Stuck),
            (Event::PickupExhausted, State::Stuck),
            (Event::BudgetExhausted, State::Stuck),
            (Event::UpstreamClosed, State::Abandoned),
        ])
}

fn every_attempt_state_has_a_poison_exit(table: &[Transition], kind: Kind) -> bool {
    State::ALL
        .iter()
        .filter(|state| state.role().is_some())
        .all(|&state| {
            let exits = exits(table, kind, state);
            exits.contains(&(Event::PickupExhausted, State::Stuck))
                && exits.contains(&(Event::BudgetExhausted, State::Stuck))
        })
}

/// With the bounded rows and `operator_unstick` taken out, the graph has no cycle.
fn every_cycle_is_bounded(table: &[Transition], kind: Kind) -> bool {
    let unbounded = without(table, |row| {
        row.bound.is_some() || row.event == Event::OperatorUnstick
    });
    State::ALL
        .iter()
        .all(|&state| !reachable_from(&unbounded, kind, state).contains(&state))
}

fn every_non_terminal_reaches_a_terminal(table: &[Transition], kind: Kind) -> bool {
    State::ALL
        .iter()
        .filter(|state| !state.is_terminal())
        .all(|&state| {
            reachable_from(table, kind, state)
                .into_iter()
                .any(State::is_terminal)
        })
}

/// Only an issue ends in CREATED_PR, only a pull request in MERGED.
fn each_kind_has_its_own_end(table: &[Transition], kind: Kind) -> bool {
    let reached = reachable_from(table, kind, State::Discovered);
    let (own, other) = match kind {
        Kind::Issue => (State::CreatedPr, State::Merged),
        Kind::PullRequest => (State::Merged, State::CreatedPr),
    };
    reached.contains(&own) && !reached.contains(&other)
}

#[test]
fn the_table_keeps_every_invariant() {
    assert_eq!(broken_by(TABLE), Vec::<&str>::new());
}
