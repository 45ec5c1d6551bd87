//! How long to wait before trying again.

use std::time::Duration;

/// Exponential growth with a cap; full jitter is applied after the cap, so that many waiters that
/// failed together don't come back together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backoff {
    pub base: Duration,
    pub cap: Duration,
}

/// Between pickups of an attempt that ended in an infrastructure error: a workspace or a process that
/// failed by chance is tried again soon, one that fails for a reason doesn't use up a night's pickups.
pub const PICKUPS: Backoff = Backoff {
    base: Duration::from_secs(2),
    cap: Duration::from_secs(600),
};

/// Between tries of an effect whose write failed or was not answered.
pub const EFFECTS: Backoff = Backoff {
    base: Duration::from_secs(1),
    cap: Duration::from_secs(300),
};

/// Between looks at something that can't be done yet (a person, a dirty checkout).
pub const LOOKS: Backoff = Backoff {
    base: Duration::from_secs(2),
    cap: Duration::from_secs(60),
};

/// Between looks at the checks of a commit. The longest wait is bounded so that a verdict is never
/// missed for long.
pub const CI_POLLS: Backoff = Backoff {
    base: Duration::from_secs(10),
    cap: Duration::from_secs(120),
};

impl Backoff {
    /// The longest wait before try number `failures + 1`.
    pub fn ceiling(&self, failures: u32) -> Duration {
        let factor = 1_u32
            .checked_shl(failures.saturating_sub(1))
            .unwrap_or(u32::MAX);
        self.base.saturating_mul(factor).min(self.cap)
    }

    /// A wait between nothing and the ceiling. `jitter` is a random number in 0..=1.
    pub fn full_jitter(&self, failures: u32, jitter: f64) -> Duration {
        part(self.ceiling(failures), within_unit(jitter))
    }

    /// A wait of at least half the ceiling, where coming back at once makes no sense.
    pub fn equal_jitter(&self, failures: u32, jitter: f64) -> Duration {
        part(self.ceiling(failures), 0.5 + within_unit(jitter) / 2.0)
    }
}

/// The nearest number in 0..=1; what is no number counts as 1, the longest wait.
fn within_unit(jitter: f64) -> f64 {
    if jitter.is_nan() {
        return 1.0;
    }
    jitter.clamp(0.0, 1.0)
}

/// `share` of `whole`, never more: multiplying as floating point can round up past what a duration
/// holds.
fn part(whole: Duration, share: f64) -> Duration {
    Duration::try_from_secs_f64(whole.as_secs_f64() * share).map_or(whole, |wait| wait.min(whole))
}
