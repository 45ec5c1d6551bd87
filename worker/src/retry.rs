//! How long to wait before trying again.

use std::time::Duration;

use backoff::{ExponentialBackoff, ExponentialBackoffBuilder, backoff::Backoff as _};

/// The bound of the first wait.
const FIRST: Duration = Duration::from_millis(500);

/// The bound of every wait: a master that is back is found within this.
const CAP: Duration = Duration::from_secs(15);

/// Exponential backoff with full jitter, applied after the cap, so that the workers of a restarted
/// master don't come all at once. Tries for ever.
#[derive(Debug)]
pub(crate) struct Retry(ExponentialBackoff);

impl Retry {
    /// No failure yet.
    pub(crate) fn new() -> Self {
        // A factor of 1 around half of the bound is uniform between nothing and the bound.
        Self(
            ExponentialBackoffBuilder::new()
                .with_initial_interval(FIRST / 2)
                .with_max_interval(CAP / 2)
                .with_multiplier(2.0)
                .with_randomization_factor(1.0)
                .with_max_elapsed_time(None)
                .build(),
        )
    }

    /// The wait after one more failure.
    pub(crate) fn after_failure(&mut self) -> Duration {
        self.0.next_backoff().unwrap_or(CAP)
    }

    /// It worked: the next wait is a first one.
    pub(crate) fn succeeded(&mut self) {
        self.0.reset();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One more than the cap in nanoseconds is what the crate's rounding may add.
    fn bound(duration: Duration) -> Duration {
        duration + Duration::from_nanos(2)
    }

    #[test]
    fn waits_grow_to_the_cap_and_start_again_after_success() {
        let mut retry = Retry::new();
        let mut expected = FIRST;
        for _ in 0..50 {
            assert!(retry.after_failure() <= bound(expected));
            expected = (expected * 2).min(CAP);
        }
        retry.succeeded();
        assert!(retry.after_failure() <= bound(FIRST));
    }

    #[test]
    fn the_jitter_is_full() {
        let mut retry = Retry::new();
        let waits: Vec<_> = (0..200).map(|_| retry.after_failure()).skip(10).collect();
        assert!(waits.iter().any(|wait| *wait < CAP / 4), "{waits:?}");
        assert!(waits.iter().any(|wait| *wait > CAP * 3 / 4), "{waits:?}");
    }
}
