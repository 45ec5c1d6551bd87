use serde_json::json;

use super::*;

const HARNESS_ROLES: [Role; 5] = [
    Role::Estimator,
    Role::Implementer,
    Role::Reviewer,
    Role::ConflictResolver,
    Role::Escalator,
];

/// Each verdict with the one role that may give it.
fn verdicts() -> Vec<(Role, serde_json::Value)> {
    let reason = "because";
    vec![
        (
            Role::Estimator,
            json!({"verdict": "ready", "tier": 1, "plan": "do it"}),
        ),
        (Role::Estimator, json!({"verdict": "change_present"})),
        (
            Role::Estimator,
            json!({"verdict": "declined", "reason": reason}),
        ),
        (
            Role::Estimator,
            json!({"verdict": "unsure", "reason": reason}),
        ),
        (
            Role::Implementer,
            json!({"verdict": "changed", "summary": "did it"}),
        ),
        (
            Role::Implementer,
            json!({"verdict": "no_change", "reason": reason}),
        ),
        (
            Role::Implementer,
            json!({"verdict": "failed", "reason": reason}),
        ),
        (
            Role::Implementer,
            json!({"verdict": "conflict", "paths": ["a/b"]}),
        ),
        (Role::ConflictResolver, json!({"verdict": "resolved"})),
        (
            Role::ConflictResolver,
            json!({"verdict": "unresolved", "reason": reason}),
        ),
        (
            Role::Escalator,
            json!({"verdict": "retry", "plan": "do it"}),
        ),
        (
            Role::Escalator,
            json!({"verdict": "give_up", "reason": reason}),
        ),
        (Role::Reviewer, json!({"verdict": "approve", "notes": ""})),
        (Role::Reviewer, json!({"verdict": "approve"})),
        (
            Role::Reviewer,
            json!({"verdict": "request_changes", "notes": "n"}),
        ),
        (
            Role::Reviewer,
            json!({"verdict": "reject", "reason": reason}),
        ),
    ]
}

fn parse_json(document: &serde_json::Value, role: Role, kind: Kind) -> Result<Said, Error> {
    parse(document.to_string().as_bytes(), role, kind)
}

#[test]
fn each_role_gives_its_own_verdicts_and_no_others() {
    for (owner, document) in verdicts() {
        for role in HARNESS_ROLES {
            let result = parse_json(&document, role, Kind::PullRequest);
            if role == owner {
                assert!(result.is_ok(), "{role}: {document}: {result:?}");
            } else {
                let error = result.unwrap_err().to_string();
                let name = document["verdict"].as_str().unwrap();
                assert!(
                    error.contains(role.name()) && error.contains(name),
                    "{error}"
                );
            }
        }
        assert!(parse_json(&document, Role::Ci, Kind::PullRequest).is_err());
    }
}

#[test]
fn an_issue_holds_no_change_yet() {
    let document = json!({"verdict": "change_present"});
    assert!(parse_json(&document, Role::Estimator, Kind::PullRequest).is_ok());
    assert!(parse_json(&document, Role::Estimator, Kind::Issue).is_err());
    for (_, document) in verdicts()
        .iter()
        .filter(|(role, _)| *role == Role::Implementer)
    {
        assert!(parse_json(document, Role::Implementer, Kind::Issue).is_ok());
    }
}

#[test]
fn a_verdict_with_missing_strange_or_wrong_fields_is_refused() {
    let bad = [
        json!({"verdict": "changed"}),
        json!({"verdict": "changed", "summary": ""}),
        json!({"verdict": "changed", "summary": 1}),
        json!({"verdict": "changed", "summary": "s", "commit": "abc"}),
        json!({"verdict": "changed", "summary": "a\0b"}),
        json!({"verdict": "changed", "summary": "x".repeat(16_001)}),
        json!({"verdict": "conflict", "paths": []}),
        json!({"summary": "s"}),
        json!(["changed"]),
        json!("changed"),
        json!(null),
    ];
    for document in bad {
        let error = parse_json(&document, Role::Implementer, Kind::Issue).unwrap_err();
        assert!(matches!(error, Error::NoFit { .. }), "{document}: {error}");
    }
    let edge = json!({"verdict": "changed", "summary": format!("a\nb{}", "é".repeat(15_997))});
    assert!(parse_json(&edge, Role::Implementer, Kind::Issue).is_ok());
    let tier = json!({"verdict": "ready", "tier": -1, "plan": "p"});
    assert!(parse_json(&tier, Role::Estimator, Kind::Issue).is_err());
}

#[test]
fn what_is_no_json_is_quoted() {
    let error = parse(b"I am done!", Role::Implementer, Kind::Issue).unwrap_err();
    assert!(matches!(error, Error::NoJson { .. }));
    assert!(error.to_string().contains("I am done!"), "{error}");
    let error = parse(b"", Role::Implementer, Kind::Issue).unwrap_err();
    assert!(matches!(error, Error::NoJson { .. }));
}

#[test]
fn a_long_wrong_result_is_quoted_in_part() {
    let long = format!("\"{}\"", "x".repeat(100_000));
    let error = parse(long.as_bytes(), Role::Implementer, Kind::Issue).unwrap_err();
    assert!(
        error.to_string().len() < 4096,
        "{}",
        error.to_string().len()
    );
}

#[test]
fn only_a_regular_file_of_bounded_size_is_read() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("result.json");
    let read = || read(&path, Role::ConflictResolver, Kind::Issue);
    assert!(matches!(read(), Err(Error::Missing)));

    let mut document = json!({"verdict": "resolved"}).to_string().into_bytes();
    document.resize(RESULT_MAX as usize, b' ');
    std::fs::write(&path, &document).unwrap();
    assert_eq!(read().unwrap(), Said::Verdict(Verdict::Resolved {}));

    document.push(b' ');
    std::fs::write(&path, &document).unwrap();
    assert!(matches!(read(), Err(Error::TooLong)));

    std::fs::remove_file(&path).unwrap();
    std::os::unix::fs::symlink("/dev/zero", &path).unwrap();
    assert!(matches!(read(), Err(Error::Unreadable(_))));
}

#[test]
fn a_path_is_bounded_in_bytes() {
    let conflict = |path: String| {
        let document = json!({"verdict": "conflict", "paths": [path]}).to_string();
        parse(document.as_bytes(), Role::Implementer, Kind::Issue)
    };
    assert!(conflict("é".repeat(PATH_MAX / 2)).is_ok());
    let error = conflict("é".repeat(PATH_MAX / 2 + 1)).unwrap_err();
    assert!(error.to_string().contains("4096 bytes"), "{error}");
}

fn error_of(document: serde_json::Value) -> Result<InfrastructureError, Error> {
    match parse_json(&document, Role::Reviewer, Kind::Issue)? {
        Said::InfrastructureError(error) => Ok(error),
        Said::Verdict(verdict) => panic!("{verdict:?}"),
    }
}

#[test]
fn any_role_may_say_why_it_has_no_verdict() {
    let document = json!({"infrastructure_error": {
        "class": "provider_quota",
        "reset_at": "2026-05-01T12:00:00+02:00",
        "message": "5 h limit reached",
    }});
    for role in HARNESS_ROLES {
        let said = parse_json(&document, role, Kind::Issue).unwrap();
        let expected = InfrastructureError {
            class: ProviderClass::ProviderQuota,
            reset_at: Some("2026-05-01T10:00:00Z".parse().unwrap()),
            message: "5 h limit reached".to_owned(),
        };
        assert_eq!(said, Said::InfrastructureError(expected), "{role}");
    }
    for (name, class) in [
        ("provider_outage", ProviderClass::ProviderOutage),
        ("bad_credentials", ProviderClass::BadCredentials),
        ("permission_denied", ProviderClass::PermissionDenied),
    ] {
        let document = json!({"infrastructure_error": {"class": name, "message": "m"}});
        assert_eq!(error_of(document).unwrap().class, class);
    }
}

#[test]
fn an_infrastructure_error_is_as_strict_as_a_verdict() {
    let good = json!({"class": "provider_quota", "message": "m"});
    let with = |key: &str, value: serde_json::Value| {
        let mut error = good.clone();
        error[key] = value;
        json!({ "infrastructure_error": error })
    };
    assert!(error_of(with("message", json!("x".repeat(2000)))).is_ok());
    let bad = [
        with("class", json!("crashed")),
        with("class", json!("quota")),
        with("message", json!("")),
        with("message", json!("x".repeat(2001))),
        with("message", json!("a\0b")),
        with("reset_at", json!("tomorrow")),
        with("reset_at", json!(17)),
        with("retry", json!(true)),
        json!({"infrastructure_error": {"class": "provider_quota"}}),
        json!({"infrastructure_error": good.clone(), "verdict": "reject", "reason": "r"}),
        json!({"infrastructure_error": "provider_quota"}),
    ];
    for document in bad {
        let error = error_of(document.clone()).unwrap_err();
        assert!(matches!(error, Error::NoFit { .. }), "{document}: {error}");
    }
}
