//! Tries again what the network spoilt.
//!
//! For reads of remotes, which may be repeated without a thought. A write is never repeated here: who
//! writes reads first, and so decides anew. The waits come from [`Backoff`] (full jitter after the cap),
//! the loop from the `backoff` crate, chance from the caller. How long a *workflow* waits between its
//! tries is another matter, decided where its effects are carried out.

use std::{fmt::Display, sync::Arc, time::Duration};

use crate::{
    clock::{Chance, Stopwatch, SystemStopwatch},
    domain::backoff::Backoff,
};

/// Between tries of one read: a lost packet costs little, a server that restarts is given seconds.
pub(crate) const READS: Backoff = Backoff {
    base: Duration::from_millis(200),
    cap: Duration::from_secs(3),
};

/// No try starts later than this after the first one did, and one wait more. Long enough for a server's
/// restart; short beside the intervals at which sweeps come back by themselves.
pub(crate) const READS_TOTAL: Duration = Duration::from_secs(15);

/// Whether trying again at once may help.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    Again,
    GiveUp,
}

/// Runs `operation` until it succeeds, `judge` gives its error up, or [`READS_TOTAL`] is over; returns
/// what the last try returned.
pub(crate) async fn read<T, E, F>(
    chance: Arc<dyn Chance>,
    judge: impl Fn(&E) -> Verdict,
    mut operation: impl FnMut() -> F,
) -> Result<T, E>
where
    E: Display,
    F: Future<Output = Result<T, E>>,
{
    let waits = Waits::new(SystemStopwatch::default(), chance);
    let attempt = || {
        let result = operation();
        let judge = &judge;
        async move {
            result.await.map_err(|error| match judge(&error) {
                Verdict::Again => backoff::Error::transient(error),
                Verdict::GiveUp => backoff::Error::permanent(error),
            })
        }
    };
    backoff::future::retry_notify(waits, attempt, |error: E, wait: Duration| {
        tracing::debug!(%error, wait_ms = wait.as_millis(), "read again");
    })
    .await
}

/// The waits of one read.
struct Waits<S> {
    stopwatch: S,
    started: Duration,
    failures: u32,
    chance: Arc<dyn Chance>,
}

impl<S: Stopwatch> Waits<S> {
    fn new(stopwatch: S, chance: Arc<dyn Chance>) -> Self {
        Self {
            started: stopwatch.elapsed(),
            stopwatch,
            failures: 0,
            chance,
        }
    }
}

impl<S: Stopwatch> backoff::backoff::Backoff for Waits<S> {
    fn reset(&mut self) {
        self.started = self.stopwatch.elapsed();
        self.failures = 0;
    }

    fn next_backoff(&mut self) -> Option<Duration> {
        if self.stopwatch.elapsed().saturating_sub(self.started) >= READS_TOTAL {
            return None;
        }
        self.failures = self.failures.saturating_add(1);
        Some(READS.full_jitter(self.failures, self.chance.jitter()))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use backoff::backoff::Backoff as _;
    use uuid::Uuid;

    use super::*;

    /// Always the same chance.
    struct Fixed(f64);

    impl Chance for Fixed {
        fn id(&self) -> Uuid {
            Uuid::nil()
        }

        fn nonce(&self) -> Uuid {
            Uuid::nil()
        }

        fn jitter(&self) -> f64 {
            self.0
        }
    }

    #[derive(Clone, Default)]
    struct Turned(Arc<Mutex<Duration>>);

    impl Turned {
        fn turn_to(&self, elapsed: Duration) {
            *self.0.lock().unwrap() = elapsed;
        }
    }

    impl Stopwatch for Turned {
        fn elapsed(&self) -> Duration {
            *self.0.lock().unwrap()
        }
    }

    #[test]
    fn jitter_is_applied_after_the_cap() {
        let mut longest = Waits::new(Turned::default(), Arc::new(Fixed(1.0)));
        let mut shortest = Waits::new(Turned::default(), Arc::new(Fixed(0.0)));
        for _ in 0..40 {
            assert!(longest.next_backoff().unwrap() <= READS.cap);
            assert_eq!(shortest.next_backoff(), Some(Duration::ZERO));
        }
        assert_eq!(longest.next_backoff(), Some(READS.cap));
    }

    #[test]
    fn nothing_is_tried_past_the_total() {
        let stopwatch = Turned::default();
        stopwatch.turn_to(Duration::from_secs(7));
        let mut waits = Waits::new(stopwatch.clone(), Arc::new(Fixed(1.0)));
        stopwatch.turn_to(Duration::from_secs(7) + READS_TOTAL - Duration::from_millis(1));
        assert!(waits.next_backoff().is_some());
        stopwatch.turn_to(Duration::from_secs(7) + READS_TOTAL);
        assert_eq!(waits.next_backoff(), None);
    }

    async fn tries(
        judge: impl Fn(&String) -> Verdict,
        failures: u32,
    ) -> (Result<u32, String>, u32) {
        let mut n = 0;
        let result = read(Arc::new(Fixed(0.0)), judge, || {
            n += 1;
            let outcome = if n > failures {
                Ok(n)
            } else {
                Err(format!("failure {n}"))
            };
            async move { outcome }
        })
        .await;
        (result, n)
    }

    #[tokio::test]
    async fn a_passing_failure_is_tried_again() {
        assert_eq!(tries(|_| Verdict::Again, 3).await, (Ok(4), 4));
    }

    #[tokio::test]
    async fn what_no_try_can_mend_is_given_up_at_once() {
        let (result, n) = tries(|_| Verdict::GiveUp, 3).await;
        assert_eq!((result, n), (Err("failure 1".to_owned()), 1));
    }
}
