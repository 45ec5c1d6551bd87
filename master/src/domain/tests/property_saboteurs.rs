//! One broken decision for each property's rule.

use super::{properties::broken_by, *};
use crate::domain::{
    decision::{Attempts, EventKind, LabelState, Note},
    effect::Effect,
    transitions::Event,
    verdict::Verdict,
};

/// Exactly `rule` notices what `sabotage` does to a sound decision.
#[track_caller]
fn check(
    rule: &'static str,
    workflow: &Workflow,
    input: Input,
    sabotage: impl FnOnce(&mut Decision),
) {
    let policy = Policy::default();
    let mut decision = decision(workflow, input);
    assert_eq!(broken_by(workflow, &policy, &decision), Vec::<&str>::new());
    sabotage(&mut decision);
    assert_eq!(broken_by(workflow, &policy, &decision), [rule]);
}

fn approve() -> Input {
    Input::Verdict {
        verdict: Verdict::Approve {
            notes: String::new(),
        },
        commit: Some(commit(1)),
    }
}

fn fail() -> Input {
    Input::Verdict {
        verdict: Verdict::Failed {
            reason: String::new(),
        },
        commit: Some(commit(1)),
    }
}

#[test]
fn a_lower_tier_is_noticed() {
    let workflow = pull_request_where(State::Reviewing, |p| p.tier = 2);
    check("tier_never_decreases", &workflow, approve(), |d| {
        d.progress.tier = 1;
    });
}

#[test]
fn each_counter_past_its_bound_is_noticed() {
    let past: [fn(&mut Progress); 7] = [
        |p| p.tier = 4,
        |p| p.counters.ci_red_rounds = 3,
        |p| p.counters.review_rounds = 4,
        |p| p.counters.conflict_rounds = 4,
        |p| p.counters.ci_flake_retries_remaining = 11,
        |p| p.counters.merge_rounds = 6,
        |p| p.counters.head_moves = 11,
    ];
    for change in past {
        let rule = "counters_stay_within_their_bounds";
        check(rule, &pull_request(State::Reviewing), approve(), |d| {
            change(&mut d.progress);
        });
    }
}

#[test]
fn a_pause_outside_of_paused_is_noticed() {
    let rule = "paused_means_a_pause_is_recorded";
    check(rule, &pull_request(State::Reviewing), approve(), |d| {
        let was = d.progress.state;
        d.progress.pause = Some(Pause {
            was,
            by: PausedBy::Label,
        });
    });
}

#[test]
fn a_step_beside_the_table_is_noticed() {
    let rule = "moves_along_the_table";
    check(rule, &pull_request(State::Implementing), fail(), |d| {
        d.progress.state = State::Reviewing;
    });
    check(rule, &pull_request(State::Implementing), fail(), |d| {
        d.event = EventKind::Transition(Event::CiGreen);
    });
    check(rule, &pull_request(State::Implementing), fail(), |d| {
        d.event = EventKind::Note(Note::EffectOpened);
    });
}

#[test]
fn a_resume_that_nobody_asked_for_is_noticed() {
    let workflow = paused(Kind::PullRequest, State::Implementing, PausedBy::Operator);
    check("a_pause_is_kept_but_for_an_end", &workflow, fail(), |d| {
        d.progress.pause = None;
        d.progress.state = State::Escalating;
    });
    check("a_pause_is_kept_but_for_an_end", &workflow, fail(), |d| {
        d.progress.pause = Some(Pause {
            was: State::Escalating,
            by: PausedBy::Label,
        });
    });
}

#[test]
fn a_pause_that_cancels_or_closes_is_noticed() {
    let rule = "a_pause_loses_no_work";
    let workflow = pull_request(State::Implementing);
    check(rule, &workflow, Input::Label(LabelState::Absent), |d| {
        d.attempts = Attempts::Cancelled;
    });
    check(rule, &workflow, Input::Label(LabelState::Absent), |d| {
        d.effect = OpenEffect::Closed;
    });
}

#[test]
fn an_effect_that_nothing_waits_for_is_noticed() {
    let rule = "effects_open_only_where_they_are_awaited";
    check(rule, &pull_request(State::Implementing), fail(), |d| {
        d.effect = OpenEffect::Replaced(Effect::RerunChecks { commit: commit(1) });
    });
}

#[test]
fn a_merge_of_another_head_or_of_none_is_noticed() {
    let rule = "merges_the_recorded_head";
    check(rule, &pull_request(State::Reviewing), approve(), |d| {
        d.effect = OpenEffect::Replaced(Effect::Merge { head: commit(2) });
    });
    check(rule, &pull_request(State::Reviewing), approve(), |d| {
        d.effect = OpenEffect::Closed;
    });
}
