//! Where instants, ids and chance come from. Everything below gets them as arguments or through these
//! three traits; clippy forbids the ambient ones.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use uuid::Uuid;

use crate::domain::time::Timestamp;

/// Reads the wall clock.
pub trait Clock: Send + Sync {
    fn now(&self) -> Timestamp;
}

/// The host's wall clock.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        #[expect(
            clippy::disallowed_methods,
            reason = "the one place that reads the wall clock"
        )]
        let since_epoch = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or(Duration::ZERO);
        Timestamp(i64::try_from(since_epoch.as_micros()).unwrap_or(i64::MAX))
    }
}

/// Measures time inside this process; never goes back, whatever happens to the wall clock.
pub trait Stopwatch: Send + Sync {
    /// Time since some fixed instant of this process.
    fn elapsed(&self) -> Duration;
}

/// The host's monotonic clock.
#[derive(Debug, Clone, Copy)]
pub struct SystemStopwatch(Instant);

impl Default for SystemStopwatch {
    fn default() -> Self {
        Self(Instant::now())
    }
}

impl Stopwatch for SystemStopwatch {
    fn elapsed(&self) -> Duration {
        self.0.elapsed()
    }
}

/// Makes ids, nonces and jitter.
pub trait Chance: Send + Sync {
    /// A UUID of version 7: ordered by time.
    fn id(&self) -> Uuid;
    /// A UUID of version 4: all chance.
    fn nonce(&self) -> Uuid;
    /// A number in 0..1.
    fn jitter(&self) -> f64;
}

/// The operating system's random numbers.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemChance;

impl Chance for SystemChance {
    fn id(&self) -> Uuid {
        #[expect(clippy::disallowed_methods, reason = "the one generator of ids")]
        Uuid::now_v7()
    }

    fn nonce(&self) -> Uuid {
        #[expect(clippy::disallowed_methods, reason = "the one generator of nonces")]
        Uuid::new_v4()
    }

    fn jitter(&self) -> f64 {
        rand::random::<f64>()
    }
}

pub mod manual;
