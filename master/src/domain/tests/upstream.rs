//! Facts that end an item on its forge, budgets, pickups, and the steps that the machine takes itself.

use super::*;
use crate::domain::{
    decide::immediate,
    decision::{Attempts, Immediate, UpstreamFact},
    workflow::Upstream,
};

const CLOSED: Input = Input::Upstream(UpstreamFact::Closed);

fn merged() -> Input {
    Input::Upstream(UpstreamFact::Merged {
        commit: Some(commit(5)),
    })
}

fn in_state(kind: Kind, state: State) -> Workflow {
    match state {
        State::Paused => paused(kind, State::AwaitingCi, PausedBy::Operator),
        state => workflow_with(kind, progress(state)),
    }
}

#[test]
fn terminal_facts_win_in_every_live_state() {
    for &state in State::ALL.iter().filter(|state| !state.is_terminal()) {
        let workflow = in_state(Kind::PullRequest, state);
        check(&workflow, CLOSED, "upstream_closed -> ABANDONED");
        check(&workflow, merged(), "upstream_merged -> MERGED");
        let decision = decision(&workflow, merged());
        assert_eq!(decision.progress.merged_commit, Some(commit(5)));
        assert_eq!(decision.attempts, Attempts::Cancelled);
        assert_eq!(decision.effect, OpenEffect::Closed);

        let workflow = in_state(Kind::Issue, state);
        check(&workflow, CLOSED, "upstream_closed -> ABANDONED");
        check(&workflow, merged(), "upstream_closed -> ABANDONED");
    }
}

#[test]
fn stuck_stays_and_carries_the_fact() {
    for (kind, fact, kept) in [
        (Kind::PullRequest, CLOSED, Upstream::Closed),
        (Kind::PullRequest, merged(), Upstream::Merged),
        (Kind::Issue, CLOSED, Upstream::Closed),
        (Kind::Issue, merged(), Upstream::Closed),
    ] {
        let workflow = in_state(kind, State::Stuck);
        check(&workflow, fact.clone(), "upstream_ended -> STUCK");
        let workflow = after(&workflow, fact.clone());
        assert_eq!(workflow.progress().upstream, Some(kept));
        check(&workflow, fact, "unchanged");
    }
}

#[test]
fn what_was_merged_is_not_merely_closed() {
    let closed = after(&pull_request(State::Stuck), CLOSED);
    check(&closed, merged(), "upstream_ended -> STUCK");
    check(&after(&closed, merged()), CLOSED, "unchanged");
}

#[test]
fn what_has_ended_learns_nothing() {
    for state in [State::Merged, State::CreatedPr, State::Abandoned] {
        check(&pull_request(state), CLOSED, "unchanged");
        check(&pull_request(state), merged(), "unchanged");
    }
}

#[test]
fn spent_pickups_and_budgets_end_each_attempt_state() {
    let pickups = Input::PickupsSpent {
        pickup_count: 3,
        max_pickups: 3,
    };
    let budget = Input::BudgetSpent {
        reason: "all the money".to_owned(),
    };
    for &state in State::ALL {
        let workflow = in_state(Kind::PullRequest, state);
        if state.role().is_some() {
            check(&workflow, pickups.clone(), "pickup_exhausted -> STUCK");
            check(&workflow, budget.clone(), "budget_exhausted -> STUCK");
            let event = decision(&workflow, pickups.clone());
            assert_eq!(event.detail["pickup_count"], 3);
            assert_eq!(event.detail["max_pickups"], 3);
            assert_eq!(decision(&workflow, budget.clone()).reason, "all the money");
        } else {
            check_refused(&workflow, pickups.clone(), "pickup_exhausted is not legal");
            check_refused(&workflow, budget.clone(), "budget_exhausted is not legal");
        }
    }
}

#[test]
fn only_discovered_is_admitted() {
    for &state in State::ALL {
        let workflow = in_state(Kind::Issue, state);
        if state == State::Discovered {
            check(&workflow, Input::Admit, "analysis_scheduled -> ANALYZING");
        } else {
            check_refused(&workflow, Input::Admit, "analysis_scheduled is not legal");
        }
    }
}

/// `step` is due in `workflow`, does `expected`, and is no news in the same state before it is due.
#[track_caller]
fn check_immediate(due: &Workflow, step: Immediate, expected: &str, not_due: &Workflow) {
    let policy = Policy::default();
    assert_eq!(immediate(due, &policy), Some(step));
    check(due, Input::Immediate(step), expected);
    assert_eq!(due.state(), not_due.state());
    assert_eq!(immediate(not_due, &policy), None);
    check(not_due, Input::Immediate(step), "unchanged");
}

#[test]
fn the_machine_takes_the_rows_that_spend_no_attempt() {
    let own = |kind| {
        let identity = Identity {
            parent: Some(WorkflowId(Uuid::from_u128(9))),
            ..identity(kind)
        };
        Workflow::restore(identity, progress(State::Analyzing)).unwrap()
    };
    let skips = Immediate::SkipEstimator;
    let expected = "analysis_change_present -> AWAITING_CI";
    check_immediate(
        &own(Kind::PullRequest),
        skips,
        expected,
        &pull_request(State::Analyzing),
    );
    check_immediate(&own(Kind::PullRequest), skips, expected, &own(Kind::Issue));

    let at_tier = |tier| pull_request_where(State::Escalating, |p| p.tier = tier);
    let expected = "escalation_tiers_exhausted -> STUCK";
    check_immediate(&at_tier(3), Immediate::NoTierLeft, expected, &at_tier(2));

    let at_round = |rounds| {
        pull_request_where(State::ConflictResolving, |p| {
            p.counters.conflict_rounds = rounds;
        })
    };
    let expected = "conflict_rounds_exhausted -> STUCK";
    let step = Immediate::NoConflictRoundLeft;
    check_immediate(&at_round(3), step, expected, &at_round(2));
}

#[test]
fn the_tier_carries_over_to_a_workflow_that_begins_at_it() {
    let child = Workflow::new(identity(Kind::PullRequest), &Policy::default(), 2, None);
    assert_eq!(child.progress().tier, 2);
    assert_eq!(child.state(), State::Discovered);
    assert_eq!(child.progress().counters.ci_flake_retries_remaining, 1);
}
