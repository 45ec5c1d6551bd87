//! When somebody else moves the head.

use super::*;
use crate::domain::decision::Attempts;

fn seen(n: u128) -> Input {
    Input::HeadSeen { head: commit(n) }
}

fn moved(state: State, head_moves: u32) -> Workflow {
    pull_request_where(state, |p| p.counters.head_moves = head_moves)
}

#[test]
fn the_recorded_head_is_no_news_anywhere() {
    for &state in State::ALL {
        check(&pull_request(state), seen(1), "unchanged");
    }
}

#[test]
fn a_wait_for_ci_starts_again_on_the_new_head() {
    let workflow = moved(State::AwaitingCi, 3);
    check(&workflow, seen(2), "ci_wait_restarted -> AWAITING_CI");
    let decision = decision(&workflow, seen(2));
    assert_eq!(decision.progress.head, Some(commit(2)));
    assert_eq!(decision.progress.counters.head_moves, 4);
    assert_eq!(decision.progress.awaiting_ci_started_at, Some(NOW));
    assert!(decision.starts_checks);
    // The old head's check runs end, and its rerun is no longer wanted.
    assert_eq!(decision.attempts, Attempts::Cancelled);
    assert_eq!(decision.effect, OpenEffect::Closed);
    check(
        &moved(State::AwaitingCi, 10),
        seen(2),
        "ci_polling_exhausted -> STUCK",
    );
}

#[test]
fn a_review_gives_way_to_ci_until_the_moves_are_spent() {
    let workflow = moved(State::Reviewing, 9);
    check(&workflow, seen(2), "head_moved -> AWAITING_CI");
    let waiting = after(&workflow, seen(2));
    assert_eq!(waiting.progress().head, Some(commit(2)));
    assert_eq!(waiting.progress().counters.head_moves, 10);
    let spent = moved(State::Reviewing, 10);
    check(&spent, seen(2), "head_moves_exhausted -> STUCK");
    assert!(decision(&spent, seen(2)).reason.contains("10 times"));
}

#[test]
fn a_merge_gives_way_to_ci_until_the_rounds_are_spent() {
    let merging = |rounds| pull_request_where(State::Merging, |p| p.counters.merge_rounds = rounds);
    check(&merging(4), seen(2), "merge_blocked -> AWAITING_CI");
    let waiting = after(&merging(4), seen(2));
    assert_eq!(waiting.progress().head, Some(commit(2)));
    assert_eq!(waiting.progress().counters.merge_rounds, 5);
    assert_eq!(waiting.progress().counters.head_moves, 0);
    check(&merging(5), seen(2), "merge_refused -> STUCK");
}

#[test]
fn elsewhere_the_head_is_recorded_and_the_work_goes_on() {
    for state in [
        State::Discovered,
        State::Analyzing,
        State::Implementing,
        State::ConflictResolving,
        State::Escalating,
    ] {
        let expected = format!("head_recorded -> {state}");
        check(&pull_request(state), seen(2), &expected);
        let decision = decision(&pull_request(state), seen(2));
        assert_eq!(decision.progress.head, Some(commit(2)));
        assert_eq!(decision.progress.counters.head_moves, 0);
        assert_eq!(decision.attempts, Attempts::Kept);
        assert_eq!(decision.effect, OpenEffect::Kept);
    }
}

#[test]
fn what_has_ended_has_no_head() {
    for state in State::ALL.iter().filter(|state| state.is_terminal()) {
        check(&pull_request(*state), seen(2), "unchanged");
    }
}

#[test]
fn the_first_head_that_is_seen_is_no_move() {
    let waiting = pull_request_where(State::AwaitingCi, |p| {
        p.head = None;
        p.counters.head_moves = 10;
    });
    check(&waiting, seen(2), "ci_wait_restarted -> AWAITING_CI");
    let waiting = after(&waiting, seen(2));
    assert_eq!(waiting.progress().head, Some(commit(2)));
    assert_eq!(waiting.progress().counters.head_moves, 10);
}

#[test]
fn a_conflict_is_found_where_the_table_has_a_row_for_it() {
    let found = || Input::ConflictFound {
        paths: vec!["a".to_owned(), "b".to_owned()],
    };
    for &state in State::ALL {
        let workflow = pull_request(state);
        match state {
            State::Implementing | State::AwaitingCi | State::Reviewing | State::Merging => {
                check(
                    &workflow,
                    found(),
                    "conflict_detected -> CONFLICT_RESOLVING",
                );
                let resolving = after(&workflow, found());
                assert_eq!(resolving.progress().counters.conflict_rounds, 1);
                assert_eq!(resolving.progress().facts.conflict_paths, ["a", "b"]);
                check(&resolving, found(), "unchanged");
            }
            State::Discovered | State::Analyzing | State::Escalating => {
                check_refused(&workflow, found(), "conflict_detected is not legal");
            }
            _ => check(&workflow, found(), "unchanged"),
        }
    }
}
