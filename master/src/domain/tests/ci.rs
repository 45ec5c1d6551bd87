//! What checks mean together, and the rows that readings take.

use super::*;
use crate::domain::{
    ci::{CheckFailure, CheckState, CiReading, Conclusion, Wait, classify},
    decision::Attempts,
    effect::Effect,
};

const SECOND: i64 = 1_000_000;

fn named(name: &str, conclusion: Option<Conclusion>, changed_at: Timestamp) -> CheckState {
    CheckState {
        name: name.to_owned(),
        conclusion,
        log_tail: "log".to_owned(),
        changed_at,
    }
}

/// Checks that changed when the wait began, read `waited` seconds later.
fn reading_under(policy: &Policy, checks: &[(&str, Option<Conclusion>)], waited: i64) -> String {
    let checks: Vec<_> = checks
        .iter()
        .map(|(name, conclusion)| named(name, *conclusion, EARLIER))
        .collect();
    let now = Timestamp(EARLIER.0 + waited * SECOND);
    let wait = Wait {
        started_at: EARLIER,
    };
    match classify(&checks, wait, policy, now) {
        CiReading::Pending => "pending".to_owned(),
        CiReading::Green => "green".to_owned(),
        CiReading::Red { is_flaky, failures } => {
            let names: Vec<_> = failures.iter().map(|f| f.name.as_str()).collect();
            let how = if is_flaky { "flaky" } else { "red" };
            format!("{how}: {}", names.join(", "))
        }
        CiReading::Exhausted { reason } => format!("exhausted: {reason}"),
    }
}

#[track_caller]
fn check_reading(checks: &[(&str, Option<Conclusion>)], waited: i64, expected: &str) {
    assert_eq!(reading_under(&Policy::default(), checks, waited), expected);
}

#[test]
fn checks_are_green_once_all_have_ended_well() {
    use Conclusion::{Neutral, Skipped, Success};
    let all = [
        ("a", Some(Success)),
        ("b", Some(Neutral)),
        ("c", Some(Skipped)),
    ];
    check_reading(&all, 1, "green");
    check_reading(&[("a", Some(Success)), ("b", None)], 1, "pending");
}

#[test]
fn red_waits_for_the_checks_that_still_run() {
    let failed = Some(Conclusion::Failure);
    check_reading(&[("a", failed), ("b", None)], 1, "pending");
    let ended = [("a", failed), ("b", Some(Conclusion::Success))];
    check_reading(&ended, 1, "red: a");
}

#[test]
fn what_a_forge_says_that_nobody_knows_is_red() {
    check_reading(&[("a", Some(Conclusion::Unknown))], 1, "red: a");
    check_reading(&[("a", Some(Conclusion::ActionRequired))], 1, "red: a");
}

#[test]
fn red_by_the_machinery_is_flaky() {
    use Conclusion::{Cancelled, Failure, Stale, StartupFailure, TimedOut};
    for conclusion in [Cancelled, TimedOut, StartupFailure, Stale] {
        check_reading(&[("a", Some(conclusion))], 1, "flaky: a");
    }
    let mixed = [("a", Some(Stale)), ("b", Some(Failure))];
    check_reading(&mixed, 1, "red: a, b");
}

#[test]
fn red_by_a_check_that_the_policy_names_is_flaky() {
    let policy = Policy {
        flaky_checks: vec!["browser *".to_owned(), "smoke".to_owned()],
        ..Policy::default()
    };
    let failed = Some(Conclusion::Failure);
    for (checks, expected) in [
        (vec![("browser firefox", failed)], "flaky: browser firefox"),
        (vec![("smoke", failed)], "flaky: smoke"),
        (vec![("smoke test", failed)], "red: smoke test"),
        (
            vec![("smoke", failed), ("build", failed)],
            "red: smoke, build",
        ),
        (
            vec![("smoke", failed), ("build", Some(Conclusion::TimedOut))],
            "flaky: smoke, build",
        ),
    ] {
        assert_eq!(reading_under(&policy, &checks, 1), expected);
    }
}

#[test]
fn no_check_at_all_is_never_green_where_checks_are_expected() {
    check_reading(&[], 0, "pending");
    check_reading(&[], 7199, "pending");
}

#[test]
fn no_check_at_all_is_green_past_the_appear_deadline_where_checks_are_optional() {
    let policy = Policy {
        ci_optional: true,
        ..Policy::default()
    };
    assert_eq!(reading_under(&policy, &[], 599), "pending");
    assert_eq!(reading_under(&policy, &[], 600), "green");
    assert_eq!(reading_under(&policy, &[("a", None)], 600), "pending");
}

#[test]
fn a_wait_in_which_nothing_changes_is_over_at_the_idle_deadline() {
    let expected = "exhausted: no check changed within 7200 s";
    check_reading(&[("a", None)], 7199, "pending");
    check_reading(&[("a", None)], 7200, expected);
    check_reading(&[], 7200, expected);
}

#[test]
fn a_change_puts_off_the_idle_deadline_but_not_the_whole_one() {
    let policy = Policy::default();
    let wait = Wait {
        started_at: EARLIER,
    };
    let last_change = 20_000;
    let at = |seconds: i64| Timestamp(EARLIER.0 + seconds * SECOND);
    let checks = [
        named("a", Some(Conclusion::Success), EARLIER),
        named("b", None, at(last_change)),
    ];
    let read = |now| classify(&checks, wait, &policy, now);
    assert_eq!(read(at(21_599)), CiReading::Pending);
    let CiReading::Exhausted { reason } = read(at(21_600)) else {
        panic!("the whole wait is over");
    };
    assert_eq!(reason, "no verdict of CI within 21600 s");
}

/// fabrik ADR-1410: green checks were reported as a timeout.
#[test]
fn a_verdict_counts_however_late() {
    check_reading(&[("a", Some(Conclusion::Success))], 1_000_000, "green");
    check_reading(&[("a", Some(Conclusion::Failure))], 1_000_000, "red: a");
}

#[test]
fn a_change_that_another_clock_dates_later_is_only_new() {
    let checks = [named("a", None, Timestamp(i64::MAX))];
    let wait = Wait {
        started_at: Timestamp(i64::MAX),
    };
    let reading = classify(&checks, wait, &Policy::default(), EARLIER);
    assert_eq!(reading, CiReading::Pending);
}

fn read(reading: CiReading) -> Input {
    Input::Ci {
        head: commit(1),
        reading,
    }
}

fn red(is_flaky: bool) -> Input {
    read(CiReading::Red {
        is_flaky,
        failures: vec![CheckFailure {
            name: "build".to_owned(),
            conclusion: Conclusion::Failure,
            log_tail: "log".to_owned(),
        }],
    })
}

/// A workflow that waits for CI, with so many flake retries left and red rounds behind it.
fn waiting(retries: u32, red_rounds: u32) -> Workflow {
    pull_request_where(State::AwaitingCi, |p| {
        p.counters.ci_flake_retries_remaining = retries;
        p.counters.ci_red_rounds = red_rounds;
    })
}

#[test]
fn each_reading_takes_its_row() {
    let workflow = pull_request(State::AwaitingCi);
    check(&workflow, read(CiReading::Pending), "unchanged");
    check(&workflow, read(CiReading::Green), "ci_green -> REVIEWING");
    let reason = "too late".to_owned();
    let exhausted = read(CiReading::Exhausted { reason });
    check(
        &workflow,
        exhausted.clone(),
        "ci_polling_exhausted -> STUCK",
    );
    assert_eq!(decision(&workflow, exhausted).reason, "too late");
}

#[test]
fn leaving_the_wait_cancels_its_checks() {
    let decision = decision(&pull_request(State::AwaitingCi), read(CiReading::Green));
    assert_eq!(decision.attempts, Attempts::Cancelled);
}

/// kubernetes-sigs/prow#337: a verdict counted for a head that it was not about.
#[test]
fn a_reading_of_another_head_or_in_another_state_is_old_news() {
    let green = |head| Input::Ci {
        head,
        reading: CiReading::Green,
    };
    check(
        &pull_request(State::AwaitingCi),
        green(commit(2)),
        "unchanged",
    );
    for &state in State::ALL {
        if state != State::AwaitingCi {
            check(&pull_request(state), green(commit(1)), "unchanged");
        }
    }
}

#[test]
fn red_goes_back_until_the_rounds_of_the_tier_are_spent() {
    check(&waiting(1, 0), red(false), "ci_red_fixable -> IMPLEMENTING");
    check(&waiting(1, 1), red(false), "ci_red_fixable -> IMPLEMENTING");
    check(&waiting(1, 2), red(false), "ci_red_repeated -> ESCALATING");
    let counters = |rounds| after(&waiting(1, rounds), red(false)).progress().counters;
    assert_eq!(counters(1).ci_red_rounds, 2);
    assert_eq!(counters(2).ci_red_rounds, 2);
    assert_eq!(counters(2).ci_flake_retries_remaining, 1);
}

#[test]
fn red_that_may_be_flaky_runs_again_while_retries_remain() {
    let workflow = waiting(1, 2);
    check(
        &workflow,
        red(true),
        "ci_flake_retry -> AWAITING_CI + rerun_checks",
    );
    let decision = decision(&workflow, red(true));
    let wish = Effect::RerunChecks { commit: commit(1) };
    assert_eq!(decision.effect, OpenEffect::Replaced(wish));
    assert_eq!(decision.progress.counters.ci_flake_retries_remaining, 0);
    assert_eq!(decision.progress.counters.ci_red_rounds, 2);
    // The whole wait goes on, and the rerun is the forge's, not a new start.
    assert_eq!(decision.progress.awaiting_ci_started_at, Some(EARLIER));
    assert!(!decision.starts_checks);
}

#[test]
fn with_no_retry_left_flaky_red_is_ordinary_red() {
    check(&waiting(0, 1), red(true), "ci_red_fixable -> IMPLEMENTING");
    check(&waiting(0, 2), red(true), "ci_red_repeated -> ESCALATING");
}

#[test]
fn with_no_retry_left_under_the_hard_ceiling_flaky_red_escalates() {
    let policy = Policy {
        ci_flake_hard_ceiling: true,
        ..Policy::default()
    };
    for (retries, is_flaky, expected) in [
        (1, true, "ci_flake_retry -> AWAITING_CI + rerun_checks"),
        (0, true, "ci_flake_retries_exhausted -> ESCALATING"),
        (0, false, "ci_red_fixable -> IMPLEMENTING"),
    ] {
        let told = tell_under(&policy, &waiting(retries, 0), red(is_flaky));
        assert_eq!(told, expected);
    }
}

#[test]
fn the_implementer_learns_what_failed_until_it_is_green() {
    let fixing = after(&waiting(0, 0), red(false));
    assert_eq!(fixing.progress().facts.ci_failures[0].name, "build");
    let mut progress = fixing.progress().clone();
    progress.state = State::AwaitingCi;
    let waiting = workflow_with(Kind::PullRequest, progress);
    let green = after(&waiting, read(CiReading::Green));
    assert!(green.progress().facts.ci_failures.is_empty());
}
