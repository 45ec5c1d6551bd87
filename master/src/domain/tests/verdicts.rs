//! The table "verdicts and the events they become", word by word, and what each leaves behind.

use super::*;
use crate::domain::{
    ci::CiReading,
    decision::{Attempts, EffectResult},
    effect::Effect,
    verdict::Verdict,
    workflow::MAX_FACTS,
};

fn why() -> String {
    "why".to_owned()
}

/// From an attempt that was leased against the recorded head.
fn said(verdict: Verdict) -> Input {
    Input::Verdict {
        verdict,
        commit: Some(commit(1)),
    }
}

fn ready(tier: Option<u32>) -> Input {
    said(Verdict::Ready { tier, plan: why() })
}

fn changed() -> Input {
    said(Verdict::Changed {
        commit: commit(2),
        summary: why(),
    })
}

fn resolved(to: Option<CommitId>) -> Input {
    said(Verdict::Resolved { commit: to })
}

fn retry() -> Input {
    said(Verdict::Retry { plan: why() })
}

fn approve() -> Input {
    said(Verdict::Approve { notes: why() })
}

fn request_changes() -> Input {
    said(Verdict::RequestChanges { notes: why() })
}

fn conflicting(rounds: u32) -> Workflow {
    pull_request_where(State::ConflictResolving, |p| {
        p.counters.conflict_rounds = rounds
    })
}

#[test]
fn each_verdict_of_the_estimator_becomes_its_event() {
    for workflow in [issue(State::Analyzing), pull_request(State::Analyzing)] {
        check(&workflow, ready(None), "analysis_ready -> IMPLEMENTING");
        let declined = said(Verdict::Declined { reason: why() });
        check(&workflow, declined, "analysis_declined -> ABANDONED");
        let unsure = said(Verdict::Unsure { reason: why() });
        check(&workflow, unsure, "analysis_failed -> ESCALATING");
    }
    check(
        &pull_request(State::Analyzing),
        said(Verdict::ChangePresent),
        "analysis_change_present -> AWAITING_CI",
    );
}

#[test]
fn each_verdict_of_the_implementer_becomes_its_event_or_effect() {
    let failed = || said(Verdict::Failed { reason: why() });
    let conflict = || {
        said(Verdict::Conflict {
            paths: vec!["a".to_owned()],
        })
    };
    let no_change = || said(Verdict::NoChange { reason: why() });

    let workflow = pull_request(State::Implementing);
    check(
        &workflow,
        changed(),
        "effect_opened -> IMPLEMENTING + move_head",
    );
    check(&workflow, no_change(), "change_pushed -> AWAITING_CI");
    check(&workflow, failed(), "implementation_failed -> ESCALATING");
    check(
        &workflow,
        conflict(),
        "conflict_detected -> CONFLICT_RESOLVING",
    );

    let workflow = issue(State::Implementing);
    check(
        &workflow,
        changed(),
        "effect_opened -> IMPLEMENTING + open_pull_request",
    );
    check(
        &workflow,
        no_change(),
        "implementation_failed -> ESCALATING",
    );
    check(&workflow, failed(), "implementation_failed -> ESCALATING");
    check(
        &workflow,
        conflict(),
        "conflict_detected -> CONFLICT_RESOLVING",
    );
}

#[test]
fn a_change_is_moved_from_what_it_was_leased_against() {
    let decision = decision(&pull_request(State::Implementing), changed());
    let wish = Effect::MoveHead {
        from: commit(1),
        to: commit(2),
    };
    assert_eq!(decision.effect, OpenEffect::Replaced(wish));
    assert_eq!(decision.attempts, Attempts::Kept);
    assert_eq!(decision.progress.head, Some(commit(1)));
}

#[test]
fn a_change_from_no_commit_is_refused_and_loses_nothing_silently() {
    for verdict in [
        Verdict::Changed {
            commit: commit(2),
            summary: why(),
        },
        Verdict::Resolved {
            commit: Some(commit(2)),
        },
    ] {
        let state = match verdict {
            Verdict::Changed { .. } => State::Implementing,
            _ => State::ConflictResolving,
        };
        let input = Input::Verdict {
            verdict,
            commit: None,
        };
        check_refused(&pull_request(state), input, "from no commit");
    }
}

#[test]
fn each_verdict_of_the_resolver_follows_the_round() {
    let unresolved = || said(Verdict::Unresolved { reason: why() });
    for (rounds, expected) in [
        (1, "conflict_round_first -> IMPLEMENTING"),
        (2, "conflict_round_second -> ESCALATING"),
        (3, "conflict_rounds_exhausted -> STUCK"),
    ] {
        check(&conflicting(rounds), unresolved(), expected);
        check(&conflicting(rounds), resolved(None), expected);
    }
    check(
        &conflicting(1),
        resolved(Some(commit(2))),
        "effect_opened -> CONFLICT_RESOLVING + move_head",
    );
}

#[test]
fn the_policy_says_which_conflict_is_the_last() {
    for (limit, rounds, expected) in [
        (1, 1, "conflict_rounds_exhausted -> STUCK"),
        (2, 1, "conflict_round_first -> IMPLEMENTING"),
        (2, 2, "conflict_rounds_exhausted -> STUCK"),
        (3, 2, "conflict_round_second -> ESCALATING"),
    ] {
        let policy = Policy {
            conflict_rounds: limit,
            ..Policy::default()
        };
        let told = tell_under(&policy, &conflicting(rounds), resolved(None));
        assert_eq!(told, expected, "conflict {rounds} of {limit}");
    }
}

#[test]
fn a_resolved_commit_of_an_issue_is_kept_for_the_next_implementer() {
    let mut progress = progress(State::ConflictResolving);
    progress.counters.conflict_rounds = 1;
    let workflow = workflow_with(Kind::Issue, progress);
    let input = resolved(Some(commit(2)));
    check(
        &workflow,
        input.clone(),
        "conflict_round_first -> IMPLEMENTING",
    );
    let kept = after(&workflow, input).progress().facts.kept_commit.clone();
    assert_eq!(kept, Some(commit(2)));
}

#[test]
fn a_retry_raises_the_tier_until_there_is_none() {
    let workflow = pull_request_where(State::Escalating, |p| {
        p.counters.ci_red_rounds = 2;
        p.counters.review_rounds = 3;
        p.counters.merge_rounds = 4;
        p.counters.head_moves = 5;
        p.counters.conflict_rounds = 2;
        p.counters.ci_flake_retries_remaining = 0;
    });
    check(&workflow, retry(), "escalation_tier_raised -> IMPLEMENTING");
    let raised = after(&workflow, retry());
    assert_eq!(raised.progress().tier, 2);
    let expected = Counters {
        ci_red_rounds: 0,
        review_rounds: 0,
        ..workflow.progress().counters
    };
    assert_eq!(raised.progress().counters, expected);

    let highest = pull_request_where(State::Escalating, |p| p.tier = 3);
    check(&highest, retry(), "escalation_tiers_exhausted -> STUCK");
    let give_up = said(Verdict::GiveUp { reason: why() });
    check(&workflow, give_up, "escalation_tiers_exhausted -> STUCK");
}

#[test]
fn each_verdict_of_the_reviewer_becomes_its_event() {
    let workflow = pull_request(State::Reviewing);
    check(&workflow, approve(), "review_approved -> MERGING + merge");
    check(
        &workflow,
        request_changes(),
        "review_changes_requested -> IMPLEMENTING",
    );
    let reject = said(Verdict::Reject { reason: why() });
    check(&workflow, reject, "review_rejected -> ESCALATING");
}

#[test]
fn requests_for_changes_are_a_rejection_once_the_rounds_are_spent() {
    let with = |rounds| pull_request_where(State::Reviewing, |p| p.counters.review_rounds = rounds);
    check(
        &with(2),
        request_changes(),
        "review_changes_requested -> IMPLEMENTING",
    );
    assert_eq!(
        after(&with(2), request_changes())
            .progress()
            .counters
            .review_rounds,
        3
    );
    check(&with(3), request_changes(), "review_rejected -> ESCALATING");
    assert_eq!(
        after(&with(3), request_changes())
            .progress()
            .counters
            .review_rounds,
        3
    );
}

#[test]
fn a_review_of_another_head_counts_for_nothing() {
    let verdicts = [
        Verdict::Approve { notes: why() },
        Verdict::RequestChanges { notes: why() },
        Verdict::Reject { reason: why() },
    ];
    for verdict in verdicts {
        for reviewed in [None, Some(commit(9))] {
            let input = Input::Verdict {
                verdict: verdict.clone(),
                commit: reviewed,
            };
            let workflow = pull_request(State::Reviewing);
            check(&workflow, input.clone(), "attempt_superseded -> REVIEWING");
            let decision = decision(&workflow, input.clone());
            assert!(decision.supersedes_attempt);
            assert_eq!(decision.progress.counters.head_moves, 1);
            assert_eq!(decision.progress.head, Some(commit(1)));
            assert!(decision.progress.facts.superseded_commits.is_empty());

            let spent = pull_request_where(State::Reviewing, |p| p.counters.head_moves = 10);
            check(&spent, input, "head_moves_exhausted -> STUCK");
        }
    }
}

#[test]
fn an_estimate_never_lowers_the_tier_nor_passes_the_highest() {
    for (present, wanted, expected) in [
        (1, None, 1),
        (1, Some(2), 2),
        (2, Some(1), 2),
        (1, Some(0), 1),
        (1, Some(9), 3),
        (3, None, 3),
    ] {
        let workflow = pull_request_where(State::Analyzing, |p| p.tier = present);
        let tier = after(&workflow, ready(wanted)).progress().tier;
        assert_eq!(tier, expected, "{wanted:?} at {present}");
    }
}

#[test]
fn a_verdict_that_the_kind_does_not_allow_is_refused() {
    check(
        &issue(State::Analyzing),
        said(Verdict::ChangePresent),
        "refused: a change_present verdict is not allowed for estimator on issue",
    );
}

#[test]
fn a_verdict_where_another_role_works_is_refused() {
    check(
        &pull_request(State::Reviewing),
        changed(),
        "refused: a changed verdict is not allowed for reviewer on pull_request",
    );
}

#[test]
fn a_verdict_where_nobody_works_lists_what_is_legal() {
    for &state in State::ALL {
        if state.role().is_some() || state == State::Paused {
            continue;
        }
        let refusal = "review_approved is not legal for pull_request in";
        check_refused(&pull_request(state), approve(), refusal);
    }
}

#[test]
fn the_first_head_comes_with_the_analysed_commit() {
    let analysed = pull_request_where(State::Analyzing, |p| p.head = None);
    let analysed = after(&analysed, said(Verdict::ChangePresent));
    assert_eq!(analysed.progress().head, Some(commit(1)));
    let no_change = said(Verdict::NoChange { reason: why() });
    let implemented = pull_request_where(State::Implementing, |p| p.head = None);
    assert_eq!(
        after(&implemented, no_change).progress().head,
        Some(commit(1))
    );
}

#[test]
fn failures_are_remembered_for_the_next_harness_the_newest_twenty() {
    let mut workflow = pull_request(State::Implementing);
    for n in 0..25 {
        let mut progress = workflow.progress().clone();
        progress.state = State::Implementing;
        let reason = format!("reason {n}");
        workflow = after(
            &workflow_with(Kind::PullRequest, progress),
            said(Verdict::Failed { reason }),
        );
    }
    let remembered = &workflow.progress().facts.earlier_failures;
    assert_eq!(remembered.len(), MAX_FACTS);
    assert_eq!(remembered.first().unwrap(), "reason 5");
    assert_eq!(remembered.last().unwrap(), "reason 24");
}

#[test]
fn the_newest_objection_is_told_until_a_review_approves() {
    let notes = |workflow: &Workflow| workflow.progress().facts.review_notes.clone();
    let reject = said(Verdict::Reject { reason: why() });
    let spent = pull_request_where(State::Reviewing, |p| {
        p.counters.review_rounds = 3;
        p.facts.review_notes = Some("older".to_owned());
    });
    for objection in [request_changes(), reject] {
        assert_eq!(notes(&after(&spent, objection)), Some(why()));
    }
    assert_eq!(notes(&after(&spent, approve())), None);
}

#[test]
fn conflicting_paths_are_told_until_they_are_resolved() {
    let conflict = |kind| {
        let mut progress = progress(State::ConflictResolving);
        progress.counters.conflict_rounds = 1;
        progress.facts.conflict_paths = vec!["a".to_owned()];
        workflow_with(kind, progress)
    };
    let paths = |workflow: &Workflow| workflow.progress().facts.conflict_paths.clone();
    let unresolved = after(
        &conflict(Kind::PullRequest),
        said(Verdict::Unresolved { reason: why() }),
    );
    assert_eq!(paths(&unresolved), ["a"]);
    assert_eq!(unresolved.progress().facts.earlier_failures, [why()]);
    // A word without a commit resolves nothing.
    let said = after(&conflict(Kind::PullRequest), resolved(None));
    assert_eq!(paths(&said), ["a"]);

    let kept = after(&conflict(Kind::Issue), resolved(Some(commit(2))));
    assert_eq!(paths(&kept), [""; 0]);
    let moved = Input::Effect(EffectResult::HeadMoved { head: commit(2) });
    let moved = after(&conflict(Kind::PullRequest), moved);
    assert_eq!(paths(&moved), [""; 0]);
    for reading in [
        CiReading::Green,
        CiReading::Red {
            is_flaky: false,
            failures: Vec::new(),
        },
    ] {
        let waiting = pull_request_where(State::AwaitingCi, |p| {
            p.facts.conflict_paths = vec!["a".to_owned()];
        });
        let head = commit(1);
        assert_eq!(
            paths(&after(&waiting, Input::Ci { head, reading })),
            [""; 0]
        );
    }
}

#[test]
fn entering_awaiting_ci_starts_the_wait_and_its_checks() {
    let no_change = said(Verdict::NoChange { reason: why() });
    let decision = decision(&pull_request(State::Implementing), no_change);
    assert!(decision.starts_checks);
    assert_eq!(decision.progress.awaiting_ci_started_at, Some(NOW));
    assert_eq!(decision.attempts, Attempts::Cancelled);
}

#[test]
fn entering_merging_starts_its_deadline() {
    let merging = after(&pull_request(State::Reviewing), approve());
    assert_eq!(merging.progress().merging_started_at, Some(NOW));
}
