//! Which workflow is it, as a table.

use super::*;
use crate::domain::{
    decision::{Attempts, Gate, Note, UpstreamFact},
    decision::{EventKind, OpenEffect},
    succession::{Standing, Step, check_over, step},
    workflow::Upstream,
};

fn child(state: State, upstream: Option<Upstream>) -> Workflow {
    let mut progress = match state {
        State::Paused => paused(Kind::PullRequest, State::Merging, PausedBy::Label)
            .progress()
            .clone(),
        state => progress(state),
    };
    progress.upstream = upstream;
    workflow_with(Kind::PullRequest, progress)
}

#[test]
fn only_what_ended_without_its_work_done_is_over() {
    for &state in State::ALL {
        let workflow = match state {
            State::Paused => paused(Kind::Issue, State::Analyzing, PausedBy::Operator),
            state => issue(state),
        };
        let expected = match state {
            State::Abandoned => Ok(()),
            State::Merged => Err(Standing::Merged),
            State::Stuck => Err(Standing::Stuck),
            state => Err(Standing::Live(state)),
        };
        assert_eq!(check_over(&workflow, None), expected, "{state}");
    }
}

#[test]
fn an_issue_is_over_once_its_pull_request_ended_unmerged() {
    let number = identity(Kind::PullRequest).number;
    for &state in State::ALL {
        let expected = match state {
            State::Abandoned => Ok(()),
            State::Merged => Err(Standing::PullRequestMerged { number }),
            State::Stuck => Err(Standing::PullRequestStuck { number }),
            state => Err(Standing::PullRequestLive { number, state }),
        };
        let over = check_over(&issue(State::CreatedPr), Some(&child(state, None)));
        assert_eq!(over, expected, "{state}");
    }
    let stuck = |upstream| {
        let child = child(State::Stuck, Some(upstream));
        check_over(&issue(State::CreatedPr), Some(&child))
    };
    assert_eq!(stuck(Upstream::Closed), Ok(()));
    let merged = Err(Standing::PullRequestMerged { number });
    assert_eq!(stuck(Upstream::Merged), merged);
}

#[test]
fn a_workflow_follows_only_where_the_item_left_and_came_back() {
    assert_eq!(step(true, Gate::Open), Step::Follow);
    assert_eq!(step(false, Gate::Open), Step::Nothing);
    for gate in [Gate::LabelAbsent, Gate::ItemOver] {
        assert_eq!(step(false, gate), Step::NoteLeft);
        assert_eq!(step(true, gate), Step::Nothing);
    }
}

#[test]
fn that_the_item_left_is_noted_once_and_moves_nothing() {
    for state in [State::Abandoned, State::CreatedPr] {
        check(
            &issue(state),
            Input::ItemLeft,
            &format!("item_left -> {state}"),
        );
        let decision = decision(&issue(state), Input::ItemLeft);
        assert_eq!(decision.event, EventKind::Note(Note::ItemLeft));
        assert_eq!(decision.attempts, Attempts::Kept);
        assert_eq!(decision.effect, OpenEffect::Kept);
        let left = after(&issue(state), Input::ItemLeft);
        assert_eq!(left.progress().left_at, Some(NOW));
        check(&left, Input::ItemLeft, "unchanged");
    }
    for &state in State::ALL {
        if !matches!(state, State::Abandoned | State::CreatedPr | State::Paused) {
            check_refused(&issue(state), Input::ItemLeft, "is not possible in");
        }
    }
}

#[test]
fn what_ends_because_its_item_was_closed_has_seen_it_leave() {
    let closed = Input::Upstream(UpstreamFact::Closed);
    let ended = after(&issue(State::Implementing), closed);
    assert_eq!(ended.progress().left_at, Some(NOW));
    check(&ended, Input::ItemLeft, "unchanged");
}
