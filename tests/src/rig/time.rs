//! Time and chance that a test moves.

use std::{
    sync::atomic::{AtomicI64, AtomicU64, Ordering},
    time::Duration,
};

use pointsman_master::{
    clock::{Chance, Clock, Stopwatch},
    domain::time::Timestamp,
};
use uuid::Uuid;

/// A fixed instant in 2023.
const START: i64 = 1_700_000_000_000_000;

/// A wall clock that only a test moves.
#[derive(Debug)]
pub struct ManualClock(AtomicI64);

impl Default for ManualClock {
    fn default() -> Self {
        Self(AtomicI64::new(START))
    }
}

impl ManualClock {
    pub fn step(&self, by: Duration) {
        let micros = i64::try_from(by.as_micros()).expect("a step of less than 300,000 years");
        self.0.fetch_add(micros, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp(self.0.load(Ordering::SeqCst))
    }
}

/// A monotonic clock that only a test moves. Each process has its own.
#[derive(Debug, Default)]
pub struct ManualStopwatch(AtomicU64);

impl ManualStopwatch {
    pub fn step(&self, by: Duration) {
        let micros = u64::try_from(by.as_micros()).expect("a step of less than 300,000 years");
        self.0.fetch_add(micros, Ordering::SeqCst);
    }
}

impl Stopwatch for ManualStopwatch {
    fn elapsed(&self) -> Duration {
        Duration::from_micros(self.0.load(Ordering::SeqCst))
    }
}

/// Ids that are counted, so that a run can be repeated, and jitter that is none.
#[derive(Debug, Default)]
pub struct CountingChance(AtomicU64);

impl CountingChance {
    /// The next id; each is greater than the one before.
    pub fn next(&self) -> Uuid {
        let n = self.0.fetch_add(1, Ordering::SeqCst) + 1;
        uuid::Builder::from_unix_timestamp_millis(n, &[0; 10]).into_uuid()
    }
}

impl Chance for CountingChance {
    fn id(&self) -> Uuid {
        self.next()
    }

    fn nonce(&self) -> Uuid {
        self.next()
    }

    fn jitter(&self) -> f64 {
        0.0
    }
}
