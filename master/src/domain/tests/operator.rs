//! What operators may do beside pausing.

use super::*;
use crate::domain::{
    decision::{Attempts, Gate, OperatorAction},
    policy::MAX_FLAKE_RETRIES,
    workflow::Upstream,
};

const ABANDON: Input = Input::Operator(OperatorAction::Abandon);

fn unstick(gate: Gate) -> Input {
    Input::Operator(OperatorAction::Unstick { gate })
}

fn set_flake_retries(remaining: u32) -> Input {
    Input::Operator(OperatorAction::SetCiFlakeRetries { remaining })
}

#[test]
fn unsticking_leads_from_stuck_and_paused_to_discovered() {
    let expected = "operator_unstick -> DISCOVERED";
    check(&issue(State::Stuck), unstick(Gate::Open), expected);
    for &by in PausedBy::ALL {
        let workflow = paused(Kind::PullRequest, State::Reviewing, by);
        check(&workflow, unstick(Gate::Open), expected);
    }
}

#[test]
fn unsticking_cancels_what_runs_and_closes_the_effect() {
    let workflow = paused(Kind::PullRequest, State::Merging, PausedBy::Operator);
    let decision = decision(&workflow, unstick(Gate::Open));
    assert_eq!(decision.attempts, Attempts::Cancelled);
    assert_eq!(decision.effect, OpenEffect::Closed);
}

#[test]
fn unsticking_refills_the_counters_and_keeps_the_tier() {
    let workflow = pull_request_where(State::Stuck, |p| {
        p.tier = 3;
        p.counters = Counters {
            ci_red_rounds: 2,
            review_rounds: 3,
            conflict_rounds: 3,
            ci_flake_retries_remaining: 0,
            merge_rounds: 5,
            head_moves: 10,
        };
        p.upstream = Some(Upstream::Closed);
    });
    let unstuck = after(&workflow, unstick(Gate::Open));
    let fresh = Counters {
        ci_red_rounds: 0,
        review_rounds: 0,
        conflict_rounds: 0,
        ci_flake_retries_remaining: 1,
        merge_rounds: 0,
        head_moves: 0,
    };
    assert_eq!(unstuck.progress().counters, fresh);
    assert_eq!(unstuck.progress().tier, 3);
    assert_eq!(unstuck.progress().upstream, None);
}

#[test]
fn unsticking_is_refused_with_the_reason_where_the_gate_is_shut() {
    let reasons = [
        (Gate::LabelAbsent, "opt-in label"),
        (Gate::ItemOver, "closed: reopen it before unsticking"),
    ];
    for (gate, reason) in reasons {
        check_refused(&issue(State::Stuck), unstick(gate), reason);
        let workflow = paused(Kind::Issue, State::Analyzing, PausedBy::Label);
        check_refused(&workflow, unstick(gate), reason);
    }
}

#[test]
fn the_gate_is_open_for_what_is_open_and_labelled_alone() {
    assert_eq!(Gate::of(true, true), Gate::Open);
    assert_eq!(Gate::of(true, false), Gate::LabelAbsent);
    assert_eq!(Gate::of(false, true), Gate::ItemOver);
    assert_eq!(Gate::of(false, false), Gate::ItemOver);
}

#[test]
fn unsticking_twice_is_once() {
    let input = unstick(Gate::Open);
    check(&issue(State::Discovered), input, "unchanged");
}

#[test]
fn nothing_else_is_unstuck() {
    for &state in State::ALL {
        if matches!(state, State::Stuck | State::Paused | State::Discovered) {
            continue;
        }
        let expected = format!("operator_unstick is not legal for pull_request in {state}");
        check_refused(&pull_request(state), unstick(Gate::Open), &expected);
    }
}

#[test]
fn abandoning_ends_every_live_workflow_and_no_other() {
    for &state in State::ALL {
        let workflow = match state {
            State::Paused => paused(Kind::PullRequest, State::Merging, PausedBy::Label),
            state => pull_request(state),
        };
        match state {
            State::Abandoned => check(&workflow, ABANDON, "unchanged"),
            State::Merged | State::CreatedPr | State::Stuck => {
                check_refused(&workflow, ABANDON, "abandoning is not possible");
            }
            _ => {
                check(&workflow, ABANDON, "operator_abandoned -> ABANDONED");
                let decision = decision(&workflow, ABANDON);
                assert_eq!(decision.attempts, Attempts::Cancelled);
                assert_eq!(decision.effect, OpenEffect::Closed);
            }
        }
    }
}

#[test]
fn flake_retries_are_set_on_one_workflow_up_to_a_bound() {
    let workflow = pull_request(State::AwaitingCi);
    check(&workflow, set_flake_retries(1), "unchanged");
    let most = set_flake_retries(MAX_FLAKE_RETRIES);
    check(
        &workflow,
        most.clone(),
        "ci_flake_retries_set -> AWAITING_CI",
    );
    let remaining = after(&workflow, most)
        .progress()
        .counters
        .ci_flake_retries_remaining;
    assert_eq!(remaining, MAX_FLAKE_RETRIES);
    let past = set_flake_retries(MAX_FLAKE_RETRIES + 1);
    check(
        &workflow,
        past,
        "refused: 11 flake retries; 0 to 10 is expected",
    );
    check_refused(&pull_request(State::Merged), set_flake_retries(5), "MERGED");
}
