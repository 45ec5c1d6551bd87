use super::*;

fn lease() -> v1::Lease {
    v1::Lease {
        key: Some(v1::LeaseKey {
            attempt_id: Uuid::from_u128(1).to_string(),
            lock_fence: 2,
            lock_nonce: "ab".repeat(16),
        }),
        ttl: to_duration(Duration::from_secs(60)),
        role: v1::Role::Implementer.into(),
        tier: 1,
        profile: "stub".to_owned(),
        repository: Some(v1::Repository {
            id: "r".to_owned(),
            name: "r".to_owned(),
            git_url: "/r".to_owned(),
        }),
        kind: v1::WorkflowKind::Issue.into(),
        base_ref: "refs/heads/main".to_owned(),
        checkout_commit: "0".repeat(40),
        push_ref: "refs/pointsman/x/2-y".to_owned(),
        ..v1::Lease::default()
    }
}

fn read(lease: v1::Lease) -> Result<Assignment, NotUnderstood> {
    assignment(lease, BootTime::new(Duration::ZERO))
}

#[test]
fn a_whole_lease_is_understood() {
    let assignment = read(lease()).unwrap();
    assert_eq!(assignment.base_branch, "main");
    assert_eq!(assignment.ttl, Duration::from_secs(60));
    assert_eq!(assignment.job.role(), Role::Implementer);
}

#[test]
fn what_is_missing_or_unknown_is_named() {
    type Breaks = fn(&mut v1::Lease);
    let broken: [(&str, Breaks); 10] = [
        ("key", |lease| lease.key = None),
        ("ttl", |lease| lease.ttl = None),
        ("role", |lease| lease.role = 0),
        ("role", |lease| lease.role = 99),
        ("check", |lease| lease.role = v1::Role::Ci.into()),
        ("repository", |lease| lease.repository = None),
        ("repository.git_url", |lease| {
            lease.repository = Some(v1::Repository::default());
        }),
        ("kind", |lease| lease.kind = 0),
        ("checkout_commit", |lease| {
            lease.checkout_commit = "main".to_owned()
        }),
        ("push_ref", |lease| {
            lease.push_ref = "refs/heads/main".to_owned()
        }),
    ];
    for (field, breaks) in broken {
        let mut lease = lease();
        breaks(&mut lease);
        let error = read(lease).unwrap_err();
        assert_eq!(error.field, field);
        assert_eq!(error.key.is_some(), field != "key");
    }
}

#[test]
fn texts_on_the_wire_are_bounded() {
    let failure = Outcome::failure(FailureClass::Crashed, "x".repeat(MESSAGE_MAX + 1));
    let complete_request::Outcome::InfrastructureError(error) = failure.to_wire() else {
        panic!("{failure:?}");
    };
    assert_eq!(error.message.len(), MESSAGE_MAX);
    let check = Outcome::Check {
        exit_status: 1,
        log_tail: format!("{}\0end", "x".repeat(LOG_TAIL_MAX)),
    };
    let complete_request::Outcome::CheckResult(result) = check.to_wire() else {
        panic!("{check:?}");
    };
    assert_eq!(result.log_tail.len(), LOG_TAIL_MAX);
    assert!(result.log_tail.ends_with("x end"));
}

#[test]
fn a_directive_without_its_lease_is_passed_over() {
    let response = v1::HeartbeatsResponse {
        acked_sequence: 5,
        directives: vec![
            v1::Directive {
                action: v1::directive::Action::Cancel.into(),
                ..v1::Directive::default()
            },
            v1::Directive {
                action: v1::directive::Action::Draining.into(),
                ..v1::Directive::default()
            },
        ],
    };
    let answer = answer(response);
    assert_eq!(answer.acknowledged, 5);
    assert_eq!(answer.directives, [Directive::Draining]);
}
