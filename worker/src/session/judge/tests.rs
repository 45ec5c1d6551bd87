use std::{fs, time::Duration};

use super::*;
use crate::{assignment::Role, session::Stop, testing};

const LIMIT: Duration = Duration::from_secs(7);

fn harness(role: Role) -> Job {
    Job::Harness {
        role,
        tier: 1,
        profile: "stub".to_owned(),
    }
}

fn check() -> Job {
    Job::Check {
        name: "test".to_owned(),
        command: "true".to_owned(),
    }
}

fn ended(why: Why, record: Option<(Cause, Exit)>) -> Ended {
    Ended {
        why,
        record: record.map(|(cause, exit)| ExitRecord { cause, exit }),
        has_started: true,
        unconfirmed: false,
    }
}

/// Judges an end with that result file and a log that ends with "the last line".
fn judge_with(job: Job, ended: &Ended, result: Option<&str>) -> Judgement {
    let directory = tempfile::tempdir().unwrap();
    let session = SessionDir::new(directory.path());
    fs::write(session.log(), "first\nthe last line\n").unwrap();
    if let Some(result) = result {
        fs::write(session.result(), result).unwrap();
    }
    judge(ended, &testing::assignment(job), &session)
}

#[track_caller]
fn failure(judgement: Judgement) -> (FailureClass, String) {
    match judgement {
        Judgement::Final(End::Outcome(Outcome::Failure { class, message, .. })) => (class, message),
        other => panic!("no failure: {other:?}"),
    }
}

fn exited(status: i32) -> Ended {
    ended(Why::Ended, Some((Cause::Harness, Exit::Exited(status))))
}

#[test]
fn a_status_or_a_signal_is_a_crash_with_the_end_of_the_log() {
    let cases = [
        (Exit::Exited(3), "exited with status 3"),
        (Exit::Signaled(9), "ended by signal 9"),
    ];
    for (exit, expected) in cases {
        let ended = ended(Why::Ended, Some((Cause::Harness, exit)));
        let result = Some(r#"{"verdict": "resolved"}"#);
        let (class, message) = failure(judge_with(harness(Role::ConflictResolver), &ended, result));
        assert_eq!(class, FailureClass::Crashed);
        assert!(message.contains(expected), "{message}");
        assert!(message.ends_with("the last line"), "{message}");
    }
}

#[test]
fn success_without_a_valid_result_says_what_is_wrong() {
    let cases = [
        (None, "no result file"),
        (Some("done"), "no JSON"),
        (Some(r#"{"verdict": "approve", "notes": ""}"#), "approve"),
    ];
    for (result, expected) in cases {
        let (class, message) = failure(judge_with(harness(Role::Implementer), &exited(0), result));
        assert_eq!(class, FailureClass::NoValidResult);
        assert!(message.contains(expected), "{message}");
    }
}

#[test]
fn verdicts_with_a_commit_wait_for_it_and_others_do_not() {
    let changed = Some(r#"{"verdict": "changed", "summary": "s"}"#);
    let judgement = judge_with(harness(Role::Implementer), &exited(0), changed);
    assert!(matches!(
        judgement,
        Judgement::WithCommit(Verdict::Changed { .. })
    ));
    let approve = Some(r#"{"verdict": "approve", "notes": "n"}"#);
    let judgement = judge_with(harness(Role::Reviewer), &exited(0), approve);
    assert!(matches!(
        judgement,
        Judgement::Final(End::Outcome(Outcome::Verdict { commit: None, .. }))
    ));
}

/// anthropics/claude-code#25629: the last event came, and the process never ended.
#[test]
fn a_harness_that_lingers_after_its_result_is_judged_by_it() {
    let stopped = Some((Cause::Stopped, Exit::Signaled(15)));
    let mut lingering = ended(Why::Lingering(LIMIT), stopped);
    let approve = Some(r#"{"verdict": "approve"}"#);
    let judgement = judge_with(harness(Role::Reviewer), &lingering, approve);
    assert!(
        matches!(
            judgement,
            Judgement::Final(End::Outcome(Outcome::Verdict { .. }))
        ),
        "{judgement:?}"
    );
    let torn = Some(r#"{"verdict": "appr"#);
    let (class, _) = failure(judge_with(harness(Role::Reviewer), &lingering, torn));
    assert_eq!(class, FailureClass::NoValidResult);
    lingering.unconfirmed = true;
    let (class, message) = failure(judge_with(harness(Role::Reviewer), &lingering, approve));
    assert_eq!(class, FailureClass::TimedOut);
    assert!(message.contains("within 7 s of its result"), "{message}");
}

#[test]
fn limits_and_the_deadline_have_classes_of_their_own() {
    let stopped = Some((Cause::Stopped, Exit::Signaled(15)));
    let cases = [
        (
            ended(Why::TimedOut(LIMIT), stopped),
            FailureClass::TimedOut,
            "within 7 s",
        ),
        (
            ended(Why::Silent(LIMIT), stopped),
            FailureClass::Silent,
            "for 7 s",
        ),
        (
            ended(Why::Ended, Some((Cause::Deadline, Exit::Exited(0)))),
            FailureClass::LeaseLost,
            "deadline",
        ),
        (
            // The shim did its part, and the grace goes on.
            ended(Why::Deadline, Some((Cause::Deadline, Exit::Exited(0)))),
            FailureClass::LeaseLost,
            "deadline came",
        ),
        (
            ended(Why::Deadline, stopped),
            FailureClass::LeaseLost,
            "shim did not stop",
        ),
        (ended(Why::Ended, stopped), FailureClass::Crashed, "outside"),
        (
            ended(Why::Ended, None),
            FailureClass::Crashed,
            "unknown status",
        ),
    ];
    for (ended, expected, text) in cases {
        for job in [harness(Role::Implementer), check()] {
            let (class, message) = failure(judge_with(job, &ended, None));
            assert_eq!(class, expected, "{ended:?}");
            assert!(message.contains(text), "{message}");
        }
    }
}

#[test]
fn a_harness_that_never_started_is_no_crash_of_it() {
    let mut ended = ended(Why::Ended, None);
    ended.has_started = false;
    let (class, _) = failure(judge_with(harness(Role::Implementer), &ended, None));
    assert_eq!(class, FailureClass::WorkspaceFailed);
}

#[test]
fn an_end_just_before_the_limit_counts() {
    let by_itself = Some((Cause::Harness, Exit::Exited(0)));
    let result = Some(r#"{"verdict": "give_up", "reason": "r"}"#);
    for why in [
        Why::TimedOut(LIMIT),
        Why::Silent(LIMIT),
        Why::Stopped(Stop::Draining),
    ] {
        let judgement = judge_with(harness(Role::Escalator), &ended(why, by_itself), result);
        let is_verdict = matches!(
            judgement,
            Judgement::Final(End::Outcome(Outcome::Verdict { .. }))
        );
        assert!(is_verdict, "{why:?}: {judgement:?}");
    }
}

#[test]
fn a_stop_gives_the_lease_back_or_says_nothing() {
    let stopped = Some((Cause::Stopped, Exit::Exited(0)));
    let judged = |stop| judge_with(check(), &ended(Why::Stopped(stop), stopped), None);
    assert!(matches!(
        judged(Stop::Draining),
        Judgement::Final(End::Returned(_))
    ));
    for stop in [Stop::Cancelled, Stop::LeaseLost] {
        assert!(matches!(judged(stop), Judgement::Final(End::Unwanted)));
    }
}

#[test]
fn a_check_reports_its_status_as_a_shell_would() {
    for (exit, expected) in [
        (Exit::Exited(0), 0),
        (Exit::Exited(7), 7),
        (Exit::Signaled(9), 137),
    ] {
        let judgement = judge_with(
            check(),
            &ended(Why::Ended, Some((Cause::Harness, exit))),
            None,
        );
        let Judgement::Final(End::Outcome(Outcome::Check {
            exit_status,
            log_tail,
        })) = judgement
        else {
            panic!("{judgement:?}");
        };
        assert_eq!(exit_status, expected);
        assert!(log_tail.ends_with("the last line"));
    }
}

#[test]
fn a_harness_may_say_that_its_provider_refuses_with_any_status_but_not_by_what_it_prints() {
    let refused = r#"{"infrastructure_error": {"class": "provider_outage", "message": "529"}}"#;
    for status in [0, 75] {
        let judged = judge_with(harness(Role::Implementer), &exited(status), Some(refused));
        let (class, message) = failure(judged);
        assert_eq!(
            (class, message.as_str()),
            (FailureClass::ProviderOutage, "529")
        );
    }
    let killed = ended(Why::Ended, Some((Cause::Harness, Exit::Signaled(9))));
    let (class, _) = failure(judge_with(
        harness(Role::Implementer),
        &killed,
        Some(refused),
    ));
    assert_eq!(class, FailureClass::Crashed);
    let quoted = r#"{"verdict": "failed", "reason": "provider_quota: usage limit reached, 429"}"#;
    let judged = judge_with(harness(Role::Implementer), &exited(0), Some(quoted));
    assert!(matches!(
        judged,
        Judgement::Final(End::Outcome(Outcome::Verdict { .. }))
    ));
}
