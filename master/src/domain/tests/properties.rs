//! Properties of `decide` for any workflow and any input.

use proptest::prelude::*;

use super::{
    strategies::{any_case, any_input, any_repeatable, any_verdict},
    *,
};
use crate::domain::{
    attempt::Role,
    decide::spent_exit,
    decision::{Attempts, EventKind, Note, Refusal},
    effect::Effect,
    policy::MAX_FLAKE_RETRIES,
    transitions::{Event, OutOfBand, apply_event},
};

/// The rules that `decision` breaks for `before`; what each says is its name.
pub(super) fn broken_by(
    before: &Workflow,
    policy: &Policy,
    decision: &Decision,
) -> Vec<&'static str> {
    let rules = [
        (
            "tier_never_decreases",
            decision.progress.tier >= before.progress().tier,
        ),
        (
            "counters_stay_within_their_bounds",
            counters_within(policy, &decision.progress),
        ),
        (
            "paused_means_a_pause_is_recorded",
            pause_fits(&decision.progress),
        ),
        (
            "moves_along_the_table",
            moves_along_the_table(before, decision),
        ),
        (
            "a_pause_is_kept_but_for_an_end",
            keeps_pause(before, decision),
        ),
        ("a_pause_loses_no_work", loses_no_work(decision)),
        (
            "effects_open_only_where_they_are_awaited",
            effect_fits(decision),
        ),
        (
            "merges_the_recorded_head",
            merges_recorded_head(before, decision),
        ),
    ];
    rules
        .into_iter()
        .filter(|(_, holds)| !holds)
        .map(|(name, _)| name)
        .collect()
}

fn counters_within(policy: &Policy, progress: &Progress) -> bool {
    let Counters {
        ci_red_rounds,
        review_rounds,
        conflict_rounds,
        ci_flake_retries_remaining,
        merge_rounds,
        head_moves,
    } = progress.counters;
    progress.tier <= policy.max_tier
        && ci_red_rounds <= policy.ci_red_rounds
        && review_rounds <= policy.review_rounds
        && conflict_rounds <= policy.conflict_rounds
        && ci_flake_retries_remaining <= MAX_FLAKE_RETRIES
        && merge_rounds <= policy.merge_rounds
        && head_moves <= policy.head_moves
}

fn pause_fits(progress: &Progress) -> bool {
    match progress.pause {
        Some(pause) => progress.state == State::Paused && pause.was.can_be_paused(),
        None => progress.state != State::Paused,
    }
}

/// Where a workflow with this progress goes on.
fn underlying(progress: &Progress) -> State {
    progress.pause.map_or(progress.state, |pause| pause.was)
}

fn moves_along_the_table(before: &Workflow, decision: &Decision) -> bool {
    let (from, to) = (before.progress(), &decision.progress);
    match decision.event {
        EventKind::Transition(event) => {
            let of_pause = matches!(event, Event::UpstreamClosed | Event::OperatorUnstick);
            let state = if of_pause {
                from.state
            } else {
                underlying(from)
            };
            apply_event(before.kind, state, event) == Ok(underlying(to))
        }
        EventKind::OutOfBand(event) => {
            let is_live = !from.state.is_terminal();
            is_live
                && match event {
                    OutOfBand::OptInLabelRemoved | OutOfBand::OperatorPaused => {
                        to.state == State::Paused && underlying(to) == underlying(from)
                    }
                    OutOfBand::OptInLabelRestored | OutOfBand::OperatorResumed => {
                        from.state == State::Paused && to.state == underlying(from)
                    }
                    OutOfBand::UpstreamMerged => {
                        to.state == State::Merged && before.kind == Kind::PullRequest
                    }
                    OutOfBand::OperatorAbandoned => to.state == State::Abandoned,
                }
        }
        EventKind::Note(note) => {
            let is_last =
                note == Note::ItemLeft && matches!(from.state, State::Abandoned | State::CreatedPr);
            let may_note = !from.state.is_terminal() || from.state == State::Stuck || is_last;
            may_note && to.state == from.state && to.pause == from.pause
        }
    }
}

fn keeps_pause(before: &Workflow, decision: &Decision) -> bool {
    let from = before.progress();
    let unsticks = decision.event == EventKind::Transition(Event::OperatorUnstick);
    match (from.pause, decision.event) {
        (Some(pause), EventKind::Transition(_)) if !unsticks => {
            decision.progress.state.is_terminal()
                || decision.progress.pause.is_some_and(|p| p.by == pause.by)
        }
        _ => true,
    }
}

fn loses_no_work(decision: &Decision) -> bool {
    match decision.event {
        EventKind::OutOfBand(
            event @ (OutOfBand::OptInLabelRemoved | OutOfBand::OperatorPaused),
        ) => {
            // Only an operator may say that what runs is not to go on.
            let is_cancelled = decision.attempts == Attempts::Cancelled;
            let may_cancel = event == OutOfBand::OperatorPaused;
            (decision.attempts == Attempts::PendingCancelled || is_cancelled && may_cancel)
                && decision.effect == OpenEffect::Kept
        }
        EventKind::OutOfBand(OutOfBand::OptInLabelRestored | OutOfBand::OperatorResumed) => {
            decision.attempts == Attempts::Kept && decision.effect == OpenEffect::Kept
        }
        _ => true,
    }
}

fn effect_fits(decision: &Decision) -> bool {
    let state = underlying(&decision.progress);
    match &decision.effect {
        OpenEffect::Kept | OpenEffect::Closed => true,
        OpenEffect::Replaced(effect) => match effect {
            Effect::MoveHead { .. } => {
                matches!(state, State::Implementing | State::ConflictResolving)
            }
            Effect::OpenPullRequest { .. } => state == State::Implementing,
            Effect::RerunChecks { .. } => state == State::AwaitingCi,
            Effect::Merge { .. } => state == State::Merging,
        },
    }
}

fn merges_recorded_head(before: &Workflow, decision: &Decision) -> bool {
    let enters = underlying(&decision.progress) == State::Merging
        && before.underlying_state() != State::Merging;
    let wish = before
        .progress()
        .head
        .clone()
        .map(|head| Effect::Merge { head });
    !enters || wish.is_some_and(|wish| decision.effect == OpenEffect::Replaced(wish))
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(4000) })]

    #[test]
    fn a_decision_breaks_no_rule((policy, workflow) in any_case(), input in any_input()) {
        if let Ok(Outcome::Changed(decision)) = decide(&workflow, input, &policy, NOW) {
            let broken = broken_by(&workflow, &policy, &decision);
            prop_assert!(broken.is_empty(), "{broken:?} by {decision:?}");
        }
    }

    #[test]
    fn what_is_said_twice_changes_nothing_the_second_time(
        (policy, mut workflow) in any_case(),
        input in any_repeatable(),
    ) {
        if let Ok(Outcome::Changed(decision)) = decide(&workflow, input.clone(), &policy, NOW) {
            workflow.apply(&decision);
            prop_assert_eq!(decide(&workflow, input, &policy, NOW), Ok(Outcome::Unchanged));
        }
    }

    #[test]
    fn a_terminal_state_has_no_way_out_but_unsticking(
        (policy, workflow) in any_case(),
        input in any_input(),
    ) {
        if !workflow.state().is_terminal() {
            return Ok(());
        }
        if let Ok(Outcome::Changed(decision)) = decide(&workflow, input, &policy, NOW) {
            let unsticks = decision.event == EventKind::Transition(Event::OperatorUnstick);
            prop_assert!(!unsticks || workflow.state() == State::Stuck);
            prop_assert!(unsticks || decision.progress.state == workflow.state());
        }
    }

    #[test]
    fn a_verdict_of_another_role_than_the_states_is_refused(
        (policy, workflow) in any_case(),
        verdict in any_verdict(),
    ) {
        let expected: Option<Role> = workflow.underlying_state().role();
        if expected == Some(verdict.role()) {
            return Ok(());
        }
        let input = Input::Verdict { verdict, commit: Some(commit(1)) };
        let refusal = decide(&workflow, input, &policy, NOW).unwrap_err();
        match expected {
            Some(_) => prop_assert!(
                matches!(refusal, Refusal::VerdictNotAllowed { .. }), "{refusal:?}"
            ),
            None => prop_assert!(
                matches!(refusal, Refusal::IllegalTransition(_)), "{refusal:?}"
            ),
        }
    }
}

#[test]
fn a_spent_counter_ends_each_live_state_with_work_in_stuck() {
    for &state in State::ALL {
        let ends: Vec<_> = Kind::ALL
            .iter()
            .filter_map(|&kind| spent_exit(state).map(|event| apply_event(kind, state, event)))
            .collect();
        let has_work =
            state.role().is_some() || matches!(state, State::AwaitingCi | State::Merging);
        let expected = if has_work {
            vec![Ok(State::Stuck); 2]
        } else {
            Vec::new()
        };
        assert_eq!(ends, expected, "{state}");
    }
}
