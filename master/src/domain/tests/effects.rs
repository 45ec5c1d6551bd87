//! What became of the one open effect.

use super::*;
use crate::domain::{
    decision::{Attempts, EffectResult},
    verdict::Verdict,
};

fn done(result: EffectResult) -> Input {
    Input::Effect(result)
}

fn superseded() -> Input {
    done(EffectResult::Superseded { head: commit(9) })
}

fn spent() -> Input {
    let reason = "20 tries".to_owned();
    done(EffectResult::Spent { reason })
}

fn blocked() -> Input {
    let reason = "not green".to_owned();
    done(EffectResult::MergeBlocked { reason })
}

fn head_moved() -> Input {
    done(EffectResult::HeadMoved { head: commit(2) })
}

/// An implementer offered commit 2, which waits to be pushed.
fn offering(kind: Kind, head_moves: u32) -> Workflow {
    let mut progress = progress(State::Implementing);
    progress.counters.head_moves = head_moves;
    let changed = Verdict::Changed {
        commit: commit(2),
        summary: String::new(),
    };
    let input = Input::Verdict {
        verdict: changed,
        commit: Some(commit(1)),
    };
    after(&workflow_with(kind, progress), input)
}

#[test]
fn a_moved_head_is_a_pushed_change_and_the_head_that_ci_is_for() {
    let workflow = offering(Kind::PullRequest, 0);
    check(&workflow, head_moved(), "change_pushed -> AWAITING_CI");
    let pushed = after(&workflow, head_moved());
    assert_eq!(pushed.progress().head, Some(commit(2)));
    assert_eq!(pushed.progress().facts.offered_commit, None);
    let refusal = "change_pushed is not legal for issue";
    check_refused(&offering(Kind::Issue, 0), head_moved(), refusal);
}

#[test]
fn a_moved_head_ends_the_conflict_round_that_it_resolved() {
    for (rounds, expected) in [
        (1, "conflict_round_first -> IMPLEMENTING"),
        (2, "conflict_round_second -> ESCALATING"),
    ] {
        let workflow = pull_request_where(State::ConflictResolving, |p| {
            p.counters.conflict_rounds = rounds;
        });
        check(&workflow, head_moved(), expected);
        let head = after(&workflow, head_moved()).progress().head.clone();
        assert_eq!(head, Some(commit(2)));
    }
    let of_issue = issue(State::ConflictResolving);
    check_refused(&of_issue, head_moved(), "change_pushed is not legal");
}

#[test]
fn an_opened_pull_request_ends_the_issue() {
    let opened = || {
        done(EffectResult::PullRequestOpened {
            number: 8,
            head: commit(2),
        })
    };
    let workflow = offering(Kind::Issue, 0);
    check(&workflow, opened(), "pr_created -> CREATED_PR");
    assert_eq!(after(&workflow, opened()).progress().pull_request, Some(8));
    let of_pull_request = offering(Kind::PullRequest, 0);
    check_refused(&of_pull_request, opened(), "pr_created is not legal");
}

#[test]
fn superseded_work_is_named_to_a_new_attempt_from_the_new_head() {
    for &kind in Kind::ALL {
        let workflow = offering(kind, 0);
        check(
            &workflow,
            superseded(),
            "attempt_superseded -> IMPLEMENTING",
        );
        let decision = decision(&workflow, superseded());
        assert!(decision.supersedes_attempt);
        assert_eq!(decision.effect, OpenEffect::Closed);
        assert_eq!(decision.attempts, Attempts::Kept);
        assert_eq!(decision.progress.head, Some(commit(9)));
        assert_eq!(decision.progress.counters.head_moves, 1);
        let facts = &decision.progress.facts;
        assert_eq!(facts.superseded_commits, [commit(2)]);
        assert_eq!(facts.offered_commit, None);
    }
}

#[test]
fn superseded_attempts_end_in_stuck_once_the_moves_are_spent() {
    let allowed = offering(Kind::PullRequest, 9);
    check(&allowed, superseded(), "attempt_superseded -> IMPLEMENTING");
    let spent = offering(Kind::PullRequest, 10);
    check(&spent, superseded(), "pickup_exhausted -> STUCK");
    let decision = decision(&spent, superseded());
    assert!(decision.supersedes_attempt);
    assert!(decision.reason.contains("10 times"), "{}", decision.reason);
    assert_eq!(decision.progress.counters.head_moves, 10);

    let resolving = |head_moves| {
        pull_request_where(State::ConflictResolving, |p| {
            p.counters.conflict_rounds = 1;
            p.counters.head_moves = head_moves;
        })
    };
    let expected = "attempt_superseded -> CONFLICT_RESOLVING";
    check(&resolving(9), superseded(), expected);
    check(&resolving(10), superseded(), "pickup_exhausted -> STUCK");
}

#[test]
fn a_superseded_resolution_leaves_an_issue_nothing_to_start_from() {
    let mut progress = offering(Kind::Issue, 0).progress().clone();
    progress.facts.kept_commit = Some(commit(3));
    let workflow = workflow_with(Kind::Issue, progress);
    let kept = after(&workflow, superseded())
        .progress()
        .facts
        .kept_commit
        .clone();
    assert_eq!(kept, None);
}

#[test]
fn a_rerun_of_a_head_that_moved_starts_the_wait_again() {
    let waiting = |moves| pull_request_where(State::AwaitingCi, |p| p.counters.head_moves = moves);
    check(
        &waiting(0),
        superseded(),
        "ci_wait_restarted -> AWAITING_CI",
    );
    let decision = decision(&waiting(0), superseded());
    assert!(decision.starts_checks && !decision.supersedes_attempt);
    assert_eq!(decision.progress.head, Some(commit(9)));
    assert_eq!(decision.progress.awaiting_ci_started_at, Some(NOW));
    assert_eq!(decision.progress.counters.head_moves, 1);
    check(&waiting(10), superseded(), "ci_polling_exhausted -> STUCK");
}

#[test]
fn rerun_checks_close_the_effect_and_the_wait_goes_on() {
    let workflow = pull_request(State::AwaitingCi);
    check(
        &workflow,
        done(EffectResult::ChecksRerun),
        "checks_rerun -> AWAITING_CI",
    );
    let decision = decision(&workflow, done(EffectResult::ChecksRerun));
    assert_eq!(decision.effect, OpenEffect::Closed);
    assert_eq!(decision.progress.awaiting_ci_started_at, Some(EARLIER));
}

#[test]
fn each_end_of_a_merge_takes_its_row() {
    let workflow = pull_request(State::Merging);
    let merged = done(EffectResult::Merged { commit: commit(4) });
    check(&workflow, merged.clone(), "merge_succeeded -> MERGED");
    assert_eq!(
        decision(&workflow, merged).progress.merged_commit,
        Some(commit(4))
    );
    let paths = Vec::new();
    let conflict = done(EffectResult::MergeConflict { paths });
    check(
        &workflow,
        conflict,
        "conflict_detected -> CONFLICT_RESOLVING",
    );
    let reason = "protected".to_owned();
    let refused = done(EffectResult::MergeRefused { reason });
    check(&workflow, refused.clone(), "merge_refused -> STUCK");
    assert_eq!(decision(&workflow, refused).reason, "protected");
    check(&workflow, superseded(), "merge_blocked -> AWAITING_CI");
    assert_eq!(
        after(&workflow, superseded()).progress().head,
        Some(commit(9))
    );
}

#[test]
fn a_blocked_merge_goes_back_to_ci_until_the_rounds_are_spent() {
    let merging = |rounds| pull_request_where(State::Merging, |p| p.counters.merge_rounds = rounds);
    check(&merging(4), blocked(), "merge_blocked -> AWAITING_CI");
    assert_eq!(
        after(&merging(4), blocked()).progress().head,
        Some(commit(1))
    );
    check(&merging(5), blocked(), "merge_refused -> STUCK");
    assert_eq!(decision(&merging(5), blocked()).reason, "not green");
}

#[test]
fn spent_tries_end_each_state_that_waits_for_an_effect() {
    for (state, expected) in [
        (State::Implementing, "pickup_exhausted -> STUCK"),
        (State::ConflictResolving, "pickup_exhausted -> STUCK"),
        (State::AwaitingCi, "ci_polling_exhausted -> STUCK"),
        (State::Merging, "merge_refused -> STUCK"),
    ] {
        check(&pull_request(state), spent(), expected);
        assert_eq!(decision(&pull_request(state), spent()).reason, "20 tries");
    }
}

#[test]
fn where_no_effect_can_be_open_its_result_is_refused() {
    let results = || {
        let paths = Vec::new();
        [
            head_moved(),
            superseded(),
            blocked(),
            spent(),
            done(EffectResult::ChecksRerun),
            done(EffectResult::MergeConflict { paths }),
        ]
    };
    for state in [
        State::Discovered,
        State::Analyzing,
        State::Escalating,
        State::Reviewing,
        State::Merged,
        State::Abandoned,
        State::Stuck,
    ] {
        for result in results() {
            check_refused(&pull_request(state), result, state.as_str());
        }
    }
    check_refused(
        &pull_request(State::Merging),
        done(EffectResult::ChecksRerun),
        "closing such an effect is not possible in MERGING",
    );
    let paths = Vec::new();
    check_refused(
        &pull_request(State::AwaitingCi),
        done(EffectResult::MergeConflict { paths }),
        "closing such an effect is not possible in AWAITING_CI",
    );
}
