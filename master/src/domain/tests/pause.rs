//! The label gate, word by word, and what a pause keeps.

use super::*;
use crate::domain::{
    ci::CiReading,
    decide::immediate,
    decision::{Attempts, EffectResult, Gate, LabelState, OperatorAction, Running},
    verdict::Verdict,
};

const ABSENT: Input = Input::Label(LabelState::Absent);
const PRESENT: Input = Input::Label(LabelState::Present);
const PAUSE: Input = Input::Operator(OperatorAction::Pause {
    running: Running::Left,
});
const PAUSE_AND_CANCEL: Input = Input::Operator(OperatorAction::Pause {
    running: Running::Cancelled,
});
const RESUME: Input = resume(Gate::Open);

const fn resume(gate: Gate) -> Input {
    Input::Operator(OperatorAction::Resume { gate })
}

fn live_states() -> impl Iterator<Item = State> {
    State::ALL
        .iter()
        .copied()
        .filter(|state| state.can_be_paused())
}

fn by_label(was: State) -> Workflow {
    paused(Kind::PullRequest, was, PausedBy::Label)
}

fn by_operator(was: State) -> Workflow {
    paused(Kind::PullRequest, was, PausedBy::Operator)
}

fn said(verdict: Verdict) -> Input {
    Input::Verdict {
        verdict,
        commit: Some(commit(1)),
    }
}

#[test]
fn a_missing_label_pauses_each_live_state_and_remembers_it() {
    for state in live_states() {
        let expected = format!("opt_in_label_removed -> PAUSED by label, was {state}");
        check(&pull_request(state), ABSENT, &expected);
        let decision = decision(&pull_request(state), ABSENT);
        assert_eq!(decision.attempts, Attempts::PendingCancelled);
        assert_eq!(decision.effect, OpenEffect::Kept);
        assert_eq!(decision.detail["pre_pause_state"], state.as_str());
    }
}

#[test]
fn the_label_resumes_what_the_label_paused() {
    for state in live_states() {
        let expected = format!("opt_in_label_restored -> {state}");
        check(&by_label(state), PRESENT, &expected);
        let decision = decision(&by_label(state), PRESENT);
        assert_eq!(decision.attempts, Attempts::Kept);
        assert_eq!(decision.effect, OpenEffect::Kept);
    }
}

#[test]
fn the_label_does_nothing_to_what_an_operator_paused() {
    check(&by_operator(State::Reviewing), PRESENT, "unchanged");
    check(&by_operator(State::Reviewing), ABSENT, "unchanged");
}

#[test]
fn what_the_label_paused_stays_while_the_label_is_absent() {
    check(&by_label(State::Reviewing), ABSENT, "unchanged");
}

#[test]
fn the_label_is_nothing_new_to_a_live_or_ended_workflow() {
    for &state in State::ALL {
        if state == State::Paused {
            continue;
        }
        check(&pull_request(state), PRESENT, "unchanged");
        if state.is_terminal() {
            check(&pull_request(state), ABSENT, "unchanged");
        }
    }
}

#[test]
fn an_operator_pauses_and_resumes() {
    for state in live_states() {
        let expected = format!("operator_paused -> PAUSED by operator, was {state}");
        check(&pull_request(state), PAUSE, &expected);
        let expected = format!("operator_resumed -> {state}");
        check(&by_operator(state), RESUME, &expected);
    }
    check(&by_operator(State::Reviewing), PAUSE, "unchanged");
    check(&pull_request(State::Reviewing), RESUME, "unchanged");
}

#[test]
fn an_operators_pause_outranks_the_labels() {
    let expected = "operator_paused -> PAUSED by operator, was MERGING";
    check(&by_label(State::Merging), PAUSE, expected);
    check_refused(&by_label(State::Merging), RESUME, "missing label");
}

#[test]
fn an_operators_pause_may_cancel_what_runs_and_keeps_the_effect() {
    let scenes = live_states().flat_map(|state| {
        [
            (state, pull_request(state)),
            (state, by_label(state)),
            (state, by_operator(state)),
        ]
    });
    for (state, workflow) in scenes {
        let expected = format!("operator_paused -> PAUSED by operator, was {state}");
        check(&workflow, PAUSE_AND_CANCEL, &expected);
        let decision = decision(&workflow, PAUSE_AND_CANCEL);
        assert_eq!(decision.attempts, Attempts::Cancelled);
        assert_eq!(decision.effect, OpenEffect::Kept);
        assert_eq!(decision.detail["cancels_running"], true);
    }
}

#[test]
fn resuming_is_refused_with_the_reason_where_the_gate_is_shut() {
    let workflow = by_operator(State::Reviewing);
    check_refused(&workflow, resume(Gate::LabelAbsent), "label");
    check_refused(&workflow, resume(Gate::ItemOver), "closed: reopen it");
    // What goes on already is not asked again.
    check(
        &pull_request(State::Reviewing),
        resume(Gate::LabelAbsent),
        "unchanged",
    );
}

#[test]
fn an_ended_workflow_is_neither_paused_nor_resumed() {
    for &state in State::ALL {
        if state.is_terminal() {
            check_refused(&pull_request(state), PAUSE, "pausing is not possible");
            check_refused(
                &pull_request(state),
                PAUSE_AND_CANCEL,
                "pausing is not possible",
            );
            check_refused(&pull_request(state), RESUME, "resuming is not possible");
        }
    }
}

#[test]
fn paused_time_counts_towards_no_timer() {
    let resumed = after(&by_label(State::AwaitingCi), PRESENT);
    assert_eq!(resumed.progress().awaiting_ci_started_at, Some(NOW));
    assert_eq!(resumed.progress().merging_started_at, Some(EARLIER));
    let resumed = after(&by_operator(State::Merging), RESUME);
    assert_eq!(resumed.progress().merging_started_at, Some(NOW));
    assert_eq!(resumed.progress().awaiting_ci_started_at, Some(EARLIER));
}

#[test]
fn a_verdict_is_decided_against_the_state_that_was_paused() {
    let failed = said(Verdict::Failed {
        reason: String::new(),
    });
    check(
        &by_label(State::Implementing),
        failed,
        "implementation_failed -> PAUSED by label, was ESCALATING",
    );
    let approve = said(Verdict::Approve {
        notes: String::new(),
    });
    check(
        &by_operator(State::Reviewing),
        approve,
        "review_approved -> PAUSED by operator, was MERGING + merge",
    );
}

#[test]
fn a_verdict_that_asks_for_an_effect_is_kept_with_it() {
    let changed = said(Verdict::Changed {
        commit: commit(2),
        summary: String::new(),
    });
    check(
        &by_label(State::Implementing),
        changed,
        "effect_opened -> PAUSED by label, was IMPLEMENTING + move_head",
    );
}

#[test]
fn a_terminal_decision_ends_the_pause_at_once() {
    let declined = said(Verdict::Declined {
        reason: String::new(),
    });
    check(
        &by_label(State::Analyzing),
        declined,
        "analysis_declined -> ABANDONED",
    );
    let give_up = said(Verdict::GiveUp {
        reason: String::new(),
    });
    check(
        &by_operator(State::Escalating),
        give_up,
        "escalation_tiers_exhausted -> STUCK",
    );
}

#[test]
fn the_result_of_an_effect_that_was_under_way_is_kept() {
    let pushed = Input::Effect(EffectResult::HeadMoved { head: commit(2) });
    let expected = "change_pushed -> PAUSED by label, was AWAITING_CI";
    check(&by_label(State::Implementing), pushed.clone(), expected);
    let pushed = after(&by_label(State::Implementing), pushed);
    assert_eq!(pushed.progress().head, Some(commit(2)));
    let merged = Input::Effect(EffectResult::Merged { commit: commit(3) });
    check(
        &by_label(State::Merging),
        merged,
        "merge_succeeded -> MERGED",
    );
}

#[test]
fn nothing_else_moves_a_paused_workflow() {
    let workflow = by_label(State::AwaitingCi);
    let green = Input::Ci {
        head: commit(1),
        reading: CiReading::Green,
    };
    check(&workflow, green, "unchanged");
    check(&workflow, Input::HeadSeen { head: commit(2) }, "unchanged");
    check(
        &workflow,
        Input::ConflictFound { paths: Vec::new() },
        "unchanged",
    );
    check_refused(
        &workflow,
        Input::Admit,
        "not legal for pull_request in PAUSED",
    );
    let budget = Input::BudgetSpent {
        reason: String::new(),
    };
    check_refused(&workflow, budget, "not legal for pull_request in PAUSED");
    assert_eq!(
        immediate(&by_label(State::Analyzing), &Policy::default()),
        None
    );
}

#[test]
fn a_head_that_moved_during_the_pause_goes_to_ci_first() {
    for (was, expected) in [
        (State::Reviewing, "head_moved -> AWAITING_CI"),
        (State::Merging, "merge_blocked -> AWAITING_CI"),
    ] {
        let resumed = after(&by_label(was), PRESENT);
        check(&resumed, Input::HeadSeen { head: commit(2) }, expected);
    }
}

#[test]
fn a_stored_pause_without_its_state_resumes_to_discovered() {
    let old = workflow_with(Kind::Issue, progress(State::Paused));
    check(&old, PRESENT, "opt_in_label_restored -> DISCOVERED");
}

#[test]
fn a_stored_pause_that_can_not_be_is_an_error() {
    let pause = |was| {
        Some(Pause {
            was,
            by: PausedBy::Label,
        })
    };
    let restore = |state, pause| {
        let progress = Progress {
            pause,
            ..progress(state)
        };
        Workflow::restore(identity(Kind::Issue), progress).map_err(|error| error.to_string())
    };
    let error = restore(State::Reviewing, pause(State::Reviewing)).unwrap_err();
    assert!(error.ends_with("does not fit REVIEWING"), "{error}");
    for was in [State::Paused, State::Stuck, State::Merged] {
        let error = restore(State::Paused, pause(was)).unwrap_err();
        assert!(error.ends_with(&format!("does not fit {was}")), "{error}");
    }
    assert!(restore(State::Paused, pause(State::Merging)).is_ok());
}
