//! Waits: exponential, capped, with jitter inside the cap.

use std::time::Duration;

use proptest::prelude::*;

use crate::domain::backoff::{Backoff, CI_POLLS, EFFECTS, LOOKS, PICKUPS};

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

#[track_caller]
fn check_ceiling(backoff: Backoff, failures: u32, expected: u64) {
    assert_eq!(backoff.ceiling(failures), seconds(expected), "{failures}");
}

#[test]
fn the_ceiling_doubles_up_to_the_cap() {
    for (failures, expected) in [(0, 2), (1, 2), (2, 4), (3, 8), (9, 512), (10, 600)] {
        check_ceiling(PICKUPS, failures, expected);
    }
    check_ceiling(CI_POLLS, 1, 10);
    check_ceiling(CI_POLLS, 4, 80);
    check_ceiling(CI_POLLS, 5, 120);
    check_ceiling(EFFECTS, 30, 300);
    check_ceiling(LOOKS, 30, 60);
}

#[test]
fn the_ceiling_neither_wraps_nor_overflows() {
    for failures in [32, 33, 34, u32::MAX] {
        check_ceiling(PICKUPS, failures, 600);
    }
    let endless = Backoff {
        base: Duration::MAX,
        cap: Duration::MAX,
    };
    assert_eq!(endless.ceiling(u32::MAX), Duration::MAX);
    assert_eq!(endless.full_jitter(u32::MAX, 1.0), Duration::MAX);
    assert_eq!(endless.equal_jitter(u32::MAX, 1.0), Duration::MAX);
}

#[test]
fn jitter_spreads_over_the_whole_or_the_upper_half() {
    for (jitter, full, equal) in [(0.0, 0, 4), (0.5, 4, 6), (1.0, 8, 8)] {
        assert_eq!(PICKUPS.full_jitter(3, jitter), seconds(full));
        assert_eq!(PICKUPS.equal_jitter(3, jitter), seconds(equal));
    }
}

#[test]
fn chance_outside_of_its_range_is_brought_back() {
    assert_eq!(PICKUPS.full_jitter(3, -1.0), Duration::ZERO);
    assert_eq!(PICKUPS.full_jitter(3, f64::INFINITY), seconds(8));
    assert_eq!(PICKUPS.full_jitter(3, f64::NAN), seconds(8));
    assert_eq!(PICKUPS.equal_jitter(3, f64::NAN), seconds(8));
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_wait_stays_between_its_bounds(
        base in any::<Duration>(),
        cap in any::<Duration>(),
        failures in any::<u32>(),
        jitter in any::<f64>(),
    ) {
        let backoff = Backoff { base, cap };
        let ceiling = backoff.ceiling(failures);
        prop_assert!(ceiling <= cap);
        prop_assert!(ceiling <= backoff.ceiling(failures.saturating_add(1)));
        prop_assert!(backoff.full_jitter(failures, jitter) <= ceiling);
        let equal = backoff.equal_jitter(failures, jitter);
        prop_assert!(equal <= ceiling && equal.as_secs_f64() >= ceiling.as_secs_f64() * 0.499);
    }
}
