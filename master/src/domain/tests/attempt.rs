//! Attempts: what is tried again, and how long a lease lives.

use std::time::Duration;

use super::*;
use crate::domain::{
    attempt::{
        Attempt, AttemptStatus, InfrastructureClass, MAX_UNCHARGED_ERRORS, Retry, Role, Subject,
        default_ttl_seconds, fits_kill_budget,
    },
    ids::{AttemptId, Fence},
    verdict::Verdict,
};

fn attempt(pickup_count: u32, uncharged_errors: u32) -> Attempt {
    Attempt {
        id: AttemptId(Uuid::from_u128(3)),
        repository: RepositoryId(Uuid::from_u128(2)),
        workflow: WorkflowId(Uuid::from_u128(1)),
        subject: Subject::Workflow,
        role: Role::Implementer,
        tier: 1,
        status: AttemptStatus::InProgress,
        commit: Some(commit(1)),
        fence: Fence(1),
        pickup_count,
        uncharged_errors,
        lock_ttl_seconds: 1080,
        not_before: None,
        accepted: None,
        outcome: None,
        created_at: EARLIER,
        started_at: None,
        ended_at: None,
    }
}

const CHARGED: InfrastructureClass = InfrastructureClass::Crashed;
const UNCHARGED: InfrastructureClass = InfrastructureClass::ProviderQuota;

/// After an error of `class` with these counts, of three pickups, and the longest wait.
#[track_caller]
fn check_retry(class: InfrastructureClass, counts: (u32, u32), expected: Retry) {
    let retry = attempt(counts.0, counts.1).after_error(class, 3, NOW, 1.0);
    assert_eq!(retry, expected, "{class} at {counts:?}");
}

fn again(seconds: u64, pickup_count: u32, uncharged_errors: u32) -> Retry {
    Retry::Pending {
        not_before: NOW.after(Duration::from_secs(seconds)),
        pickup_count,
        uncharged_errors,
    }
}

fn no_more(pickup_count: u32, uncharged_errors: u32) -> Retry {
    Retry::Spent {
        pickup_count,
        uncharged_errors,
    }
}

#[test]
fn a_charged_error_keeps_the_pickup_until_they_are_spent() {
    check_retry(CHARGED, (1, 0), again(2, 1, 0));
    check_retry(CHARGED, (2, 0), again(4, 2, 0));
    check_retry(CHARGED, (3, 0), no_more(3, 0));
    check_retry(CHARGED, (4, 0), no_more(4, 0));
}

#[test]
fn an_error_that_is_not_charged_gives_the_pickup_back() {
    check_retry(UNCHARGED, (1, 0), again(2, 0, 1));
    check_retry(UNCHARGED, (3, 0), again(8, 2, 1));
    check_retry(UNCHARGED, (0, 0), again(2, 0, 1));
}

#[test]
fn errors_that_are_not_charged_have_a_bound_of_their_own() {
    let last = MAX_UNCHARGED_ERRORS - 1;
    assert_eq!(MAX_UNCHARGED_ERRORS, 10);
    check_retry(UNCHARGED, (1, last - 1), again(512, 0, last));
    check_retry(UNCHARGED, (1, last), no_more(0, MAX_UNCHARGED_ERRORS));
    check_retry(UNCHARGED, (1, u32::MAX), no_more(0, u32::MAX));
}

#[test]
fn errors_are_charged_as_the_design_says() {
    let charged: Vec<_> = InfrastructureClass::ALL
        .iter()
        .filter(|class| class.is_charged())
        .map(|class| class.as_str())
        .collect();
    assert_eq!(
        charged,
        [
            "crashed",
            "no_valid_result",
            "timed_out",
            "silent",
            "over_budget",
            "workspace_failed",
            "lease_lost",
        ]
    );
    assert_eq!(InfrastructureClass::ALL.len(), 11);
}

#[test]
fn only_pending_and_running_attempts_are_live() {
    let live: Vec<_> = AttemptStatus::ALL
        .iter()
        .filter(|status| status.is_live())
        .collect();
    assert_eq!(live, [&AttemptStatus::Pending, &AttemptStatus::InProgress]);
}

#[test]
fn leases_live_as_long_as_the_design_says() {
    for (role, seconds) in [
        (Role::Estimator, [180, 180, 180]),
        (Role::Reviewer, [720, 720, 720]),
        (Role::Implementer, [1080, 2160, 4320]),
        (Role::ConflictResolver, [1080, 1080, 1080]),
        (Role::Escalator, [360, 360, 360]),
        (Role::Ci, [720, 720, 720]),
    ] {
        let told = [1, 2, 3].map(|tier| default_ttl_seconds(role, tier));
        assert_eq!(told, seconds, "{role}");
    }
    assert_eq!(default_ttl_seconds(Role::Implementer, 9), 4320);
    assert_eq!(default_ttl_seconds(Role::Implementer, 0), 1080);
}

#[test]
fn the_kill_budget_takes_a_third_of_a_lease_at_most() {
    assert!(fits_kill_budget(180, Duration::from_secs(60)));
    assert!(!fits_kill_budget(180, Duration::from_millis(60_001)));
    assert!(fits_kill_budget(0, Duration::ZERO));
    assert!(!fits_kill_budget(u32::MAX, Duration::MAX));
}

#[test]
fn each_role_with_an_attempt_state_has_verdicts_of_its_own() {
    let reason = String::new;
    let verdicts = [
        (Verdict::Unsure { reason: reason() }, Role::Estimator),
        (Verdict::Failed { reason: reason() }, Role::Implementer),
        (Verdict::Resolved { commit: None }, Role::ConflictResolver),
        (Verdict::GiveUp { reason: reason() }, Role::Escalator),
        (Verdict::Reject { reason: reason() }, Role::Reviewer),
    ];
    for (verdict, own) in verdicts {
        for &role in Role::ALL {
            for &kind in Kind::ALL {
                assert_eq!(verdict.is_allowed(role, kind), role == own, "{role} {kind}");
            }
        }
    }
}

#[test]
fn a_verdict_is_stored_under_its_name() {
    let verdict = Verdict::RequestChanges {
        notes: "n".to_owned(),
    };
    let stored = serde_json::to_value(&verdict).unwrap();
    assert_eq!(stored["verdict"], verdict.name());
    assert_eq!(serde_json::from_value::<Verdict>(stored).unwrap(), verdict);
    let unknown = serde_json::json!({ "verdict": "maybe" });
    assert!(serde_json::from_value::<Verdict>(unknown).is_err());
}
