//! The bounds of bounds, defaults, and arithmetic that can't overflow.

use super::*;
use crate::domain::{
    attempt::Role,
    policy::{
        LeaseTtl, MAX_DEADLINE_SECONDS, MAX_LIST, MAX_LIVE_WORKFLOWS, MAX_ROUNDS, MAX_TIER,
        MAX_TTL_SECONDS,
    },
    transitions::Bound,
};

const LEAST_TTL: u32 = 60;

/// What `check` says of the defaults with one change: nothing, or the field that is wrong.
fn faulty(change: impl FnOnce(&mut Policy)) -> Option<&'static str> {
    let mut policy = Policy::default();
    change(&mut policy);
    policy.check(LEAST_TTL).err().map(|error| error.field)
}

/// `set` is fine at both edges, and wrong one past each.
#[track_caller]
fn check_edges<T: Copy>(
    field: &'static str,
    set: impl Fn(&mut Policy, T),
    below: Option<T>,
    edges: [T; 2],
    above: T,
) {
    for edge in edges {
        assert_eq!(faulty(|p| set(p, edge)), None, "{field} at its edge");
    }
    for past in below.into_iter().chain([above]) {
        assert_eq!(faulty(|p| set(p, past)), Some(field), "past {field}");
    }
}

#[test]
fn the_defaults_are_those_of_the_design() {
    let policy = Policy::default();
    policy.check(180).unwrap();
    let limits: Vec<_> = Bound::ALL
        .iter()
        .map(|&bound| policy.limit(bound))
        .collect();
    // In the order of `Bound`: red rounds, flakes, conflicts, tier, reviews, moves, merges.
    assert_eq!(limits, [2, 1, 3, 3, 3, 10, 5]);
    assert_eq!((policy.effect_tries, policy.max_pickups), (20, 3));
    assert!(!policy.ci_flake_hard_ceiling && !policy.ci_optional);
    assert!(policy.delete_merged_branches);
    let hours = [
        policy.ci_poll_deadline(),
        policy.ci_idle_deadline(),
        policy.merge_deadline(),
        policy.effect_deadline(),
    ]
    .map(|deadline| deadline.as_secs() / 3600);
    assert_eq!(hours, [6, 2, 24, 24]);
    assert_eq!(policy.ci_appear_deadline().as_secs(), 600);
}

#[test]
fn each_number_is_checked_at_its_edges() {
    let rounds = [0, MAX_ROUNDS];
    let past = MAX_ROUNDS + 1;
    check_edges(
        "max_tier",
        |p, v| p.max_tier = v,
        Some(0),
        [1, MAX_TIER],
        MAX_TIER + 1,
    );
    check_edges(
        "ci_red_rounds",
        |p, v| p.ci_red_rounds = v,
        None,
        rounds,
        past,
    );
    check_edges(
        "review_rounds",
        |p, v| p.review_rounds = v,
        None,
        rounds,
        past,
    );
    check_edges(
        "conflict_rounds",
        |p, v| p.conflict_rounds = v,
        Some(0),
        [1, 3],
        4,
    );
    check_edges(
        "ci_flake_retries",
        |p, v| p.ci_flake_retries = Some(v),
        None,
        [0, 10],
        11,
    );
    check_edges(
        "merge_rounds",
        |p, v| p.merge_rounds = v,
        None,
        rounds,
        past,
    );
    check_edges("head_moves", |p, v| p.head_moves = v, None, rounds, past);
    let rounds = [1, MAX_ROUNDS];
    check_edges(
        "effect_tries",
        |p, v| p.effect_tries = v,
        Some(0),
        rounds,
        past,
    );
    check_edges(
        "max_pickups",
        |p, v| p.max_pickups = v,
        Some(0),
        rounds,
        past,
    );
    check_edges(
        "max_live_workflows",
        |p, v| p.max_live_workflows = v,
        Some(0),
        [1, MAX_LIVE_WORKFLOWS],
        MAX_LIVE_WORKFLOWS + 1,
    );
}

#[test]
fn each_deadline_is_checked_at_its_edges() {
    type Set = fn(&mut Policy, u64);
    let set: [(&str, Set); 5] = [
        ("ci_poll_deadline_seconds", |p, v| {
            p.ci_poll_deadline_seconds = v
        }),
        ("ci_idle_deadline_seconds", |p, v| {
            p.ci_idle_deadline_seconds = v
        }),
        ("ci_appear_deadline_seconds", |p, v| {
            p.ci_appear_deadline_seconds = v
        }),
        ("merge_deadline_seconds", |p, v| {
            p.merge_deadline_seconds = v
        }),
        ("effect_deadline_seconds", |p, v| {
            p.effect_deadline_seconds = v
        }),
    ];
    let most = MAX_DEADLINE_SECONDS;
    for (field, set) in set {
        check_edges(field, set, Some(0), [1, most], most + 1);
    }
}

#[test]
fn each_list_is_checked_at_its_edges() {
    let ttl = LeaseTtl {
        role: Role::Ci,
        tier: None,
        seconds: 100,
    };
    check_edges(
        "flaky_checks: number of names",
        |p, n| p.flaky_checks = vec!["a".to_owned(); n],
        None,
        [0, MAX_LIST],
        MAX_LIST + 1,
    );
    check_edges(
        "lease_ttls: number of entries",
        |p, n| p.lease_ttls = vec![ttl; n],
        None,
        [0, MAX_LIST],
        MAX_LIST + 1,
    );
    check_edges(
        "lease_ttls: seconds",
        |p, seconds| p.lease_ttls = vec![LeaseTtl { seconds, ..ttl }],
        Some(LEAST_TTL - 1),
        [LEAST_TTL, MAX_TTL_SECONDS],
        MAX_TTL_SECONDS + 1,
    );
    let at = |tier| LeaseTtl {
        tier: Some(tier),
        ..ttl
    };
    check_edges(
        "lease_ttls: tier",
        |p, tier| p.lease_ttls = vec![at(tier)],
        Some(0),
        [1, MAX_TIER],
        MAX_TIER + 1,
    );
}

#[test]
fn a_fault_is_told_with_its_value_and_the_range() {
    let policy = Policy {
        max_tier: 10,
        ..Policy::default()
    };
    let error = policy.check(LEAST_TTL).unwrap_err().to_string();
    assert_eq!(error, "max_tier is 10; 1 to 9 is expected");
}

#[test]
fn unknown_keys_are_errors_and_missing_ones_defaults() {
    let read = |text: &str| serde_json::from_str::<Policy>(text);
    assert_eq!(read("{}").unwrap(), Policy::default());
    assert_eq!(read(r#"{"max_tier": 2}"#).unwrap().max_tier, 2);
    assert!(read(r#"{"max_tiers": 2}"#).is_err());
    let ttl = |more| format!(r#"{{"lease_ttls": [{{"role": "ci", "seconds": 90{more}}}]}}"#);
    assert_eq!(read(&ttl("")).unwrap().lease_ttls[0].tier, None);
    assert!(read(&ttl(r#", "tiers": 2"#)).is_err());
}

#[test]
fn exceptions_from_the_times_to_live_are_read_in_order() {
    let ttl = |tier, seconds| LeaseTtl {
        role: Role::Implementer,
        tier,
        seconds,
    };
    let policy = Policy {
        lease_ttls: vec![ttl(Some(2), 200), ttl(None, 100), ttl(Some(3), 300)],
        ..Policy::default()
    };
    let of = |role, tier| policy.ttl_seconds(role, tier);
    assert_eq!(of(Role::Implementer, 1), 100);
    assert_eq!(of(Role::Implementer, 2), 200);
    assert_eq!(of(Role::Implementer, 3), 100);
    assert_eq!(of(Role::Reviewer, 2), 720);
}

#[test]
fn the_most_attempts_of_an_unchecked_policy_saturate() {
    let endless = Policy {
        max_tier: u32::MAX,
        ci_red_rounds: u32::MAX,
        review_rounds: u32::MAX,
        merge_rounds: u32::MAX,
        head_moves: u32::MAX,
        ..Policy::default()
    };
    assert_eq!(endless.max_attempts(), u32::MAX);
    let none = Policy {
        max_tier: 0,
        ..Policy::default()
    };
    assert_eq!(none.max_attempts(), 20);
}
