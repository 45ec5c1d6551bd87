//! One broken copy of the table for each invariant: a check that can't fail is a defect.

use super::invariants::{INVARIANTS, broken_by};
use crate::domain::{
    transitions::{Bound, Event, State, TABLE, Transition},
    workflow::Kind,
};

/// Exactly `invariant` notices what `sabotage` does to a copy of the table.
#[track_caller]
fn check(invariant: &'static str, sabotage: impl FnOnce(&mut Vec<Transition>)) {
    assert!(INVARIANTS.iter().any(|(name, _)| *name == invariant));
    let mut table = TABLE.to_vec();
    sabotage(&mut table);
    assert_ne!(table, TABLE, "nothing was broken");
    assert_eq!(broken_by(&table), [invariant]);
}

fn row(table: &mut [Transition], from: State, event: Event) -> &mut Transition {
    table
        .iter_mut()
        .find(|row| row.from == from && row.event == event)
        .unwrap()
}

#[test]
fn a_push_that_goes_straight_to_review_is_noticed() {
    check("no_path_implementing_to_reviewing_skips_ci", |table| {
        row(table, State::Implementing, Event::ChangePushed).to = State::Reviewing;
    });
}

#[test]
fn an_exit_of_a_terminal_state_is_noticed() {
    check("terminal_states_have_no_exits", |table| {
        table.push(Transition {
            from: State::Merged,
            event: Event::MergeRefused,
            to: State::Stuck,
            bound: None,
            only: None,
        });
    });
}

#[test]
fn a_second_exit_of_stuck_is_noticed() {
    check("terminal_states_have_no_exits", |table| {
        table.push(Transition {
            from: State::Stuck,
            event: Event::UpstreamClosed,
            to: State::Abandoned,
            bound: None,
            only: None,
        });
    });
}

#[test]
fn a_second_row_that_moves_the_tier_is_noticed() {
    check("tier_monotonic_non_decreasing", |table| {
        row(table, State::Merging, Event::MergeBlocked).bound = Some(Bound::Tier);
    });
}

#[test]
fn a_merge_without_review_is_noticed() {
    check("every_pr_workflow_includes_reviewing", |table| {
        row(table, State::AwaitingCi, Event::CiGreen).to = State::Merging;
    });
}

#[test]
fn a_second_conflict_that_does_not_escalate_is_noticed() {
    check("conflict_resolving_bounded", |table| {
        row(table, State::ConflictResolving, Event::ConflictRoundSecond).to = State::Implementing;
    });
}

#[test]
fn another_exit_of_conflict_resolving_is_noticed() {
    check("conflict_resolving_bounded", |table| {
        table.push(Transition {
            from: State::ConflictResolving,
            event: Event::ImplementationFailed,
            to: State::Escalating,
            bound: Some(Bound::ConflictRounds),
            only: None,
        });
    });
}

#[test]
fn another_end_of_escalation_is_noticed() {
    check("escalation_deterministic", |table| {
        row(table, State::Escalating, Event::EscalationTiersExhausted).to = State::Abandoned;
    });
}

#[test]
fn an_attempt_state_without_a_way_out_for_poison_is_noticed() {
    for event in [Event::PickupExhausted, Event::BudgetExhausted] {
        check("every_attempt_state_has_a_poison_exit", |table| {
            table.retain(|row| row.from != State::Reviewing || row.event != event);
        });
    }
}

#[test]
fn each_cycle_that_loses_its_bound_is_noticed() {
    let cycles = [
        (State::AwaitingCi, Event::CiRedFixable),
        (State::AwaitingCi, Event::CiFlakeRetry),
        (State::ConflictResolving, Event::ConflictRoundFirst),
        (State::Reviewing, Event::ReviewChangesRequested),
        (State::Reviewing, Event::HeadMoved),
        (State::Merging, Event::MergeBlocked),
    ];
    for (from, event) in cycles {
        check("every_cycle_is_bounded", |table| {
            row(table, from, event).bound = None;
        });
    }
}

#[test]
fn a_state_that_never_ends_is_noticed() {
    check("every_non_terminal_reaches_a_terminal", |table| {
        table.retain(|row| row.from != State::Paused);
    });
}

#[test]
fn an_end_of_the_wrong_kind_is_noticed() {
    check("each_kind_has_its_own_end", |table| {
        row(table, State::Implementing, Event::PrCreated).only = None;
    });
    check("each_kind_has_its_own_end", |table| {
        row(table, State::Implementing, Event::PrCreated).only = Some(Kind::PullRequest);
    });
}
