//! Clocks and chance that tests hold in their hands: nothing moves but when a test says so, and the same
//! seed gives the same ids.

use std::{
    sync::atomic::{AtomicI64, AtomicU64, Ordering},
    time::Duration,
};

use uuid::Uuid;

use super::{Chance, Clock, Stopwatch};
use crate::domain::time::Timestamp;

/// A wall clock that stands still.
#[derive(Debug)]
pub struct ManualClock(AtomicI64);

impl ManualClock {
    pub const fn new(now: Timestamp) -> Self {
        Self(AtomicI64::new(now.0))
    }

    /// Moves it; also back, as wall clocks do.
    pub fn set(&self, now: Timestamp) {
        self.0.store(now.0, Ordering::SeqCst);
    }

    /// Moves it forward.
    pub fn advance(&self, by: Duration) {
        self.set(self.now().after(by));
    }
}

impl Default for ManualClock {
    /// 2026-01-01: any instant that is not near zero.
    fn default() -> Self {
        Self::new(Timestamp(1_767_225_600_000_000))
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp(self.0.load(Ordering::SeqCst))
    }
}

/// A monotonic clock that stands still.
#[derive(Debug, Default)]
pub struct ManualStopwatch(AtomicU64);

impl ManualStopwatch {
    /// Moves it forward.
    pub fn advance(&self, by: Duration) {
        let micros = u64::try_from(by.as_micros()).unwrap_or(u64::MAX);
        self.0.fetch_add(micros, Ordering::SeqCst);
    }
}

impl Stopwatch for ManualStopwatch {
    fn elapsed(&self) -> Duration {
        Duration::from_micros(self.0.load(Ordering::SeqCst))
    }
}

/// Chance that is none: each value follows from the seed and from how many came before. Ids grow.
#[derive(Debug, Default)]
pub struct SeededChance {
    seed: u64,
    n_drawn: AtomicU64,
}

impl SeededChance {
    pub const fn new(seed: u64) -> Self {
        Self {
            seed,
            n_drawn: AtomicU64::new(0),
        }
    }

    fn draw(&self) -> (u64, u64) {
        let n = self.n_drawn.fetch_add(1, Ordering::SeqCst);
        (n, mixed(self.seed ^ mixed(n)))
    }
}

/// The finalizer of SplitMix64: neighbours come out far apart.
const fn mixed(value: u64) -> u64 {
    let mut z = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Milliseconds that the first id carries: 2026-01-01.
const FIRST_MILLISECOND: u64 = 1_767_225_600_000;

impl Chance for SeededChance {
    fn id(&self) -> Uuid {
        let (n, random) = self.draw();
        let mut bytes = [0; 10];
        bytes[..8].copy_from_slice(&random.to_be_bytes());
        uuid::Builder::from_unix_timestamp_millis(FIRST_MILLISECOND + n, &bytes).into_uuid()
    }

    fn nonce(&self) -> Uuid {
        let (_, random) = self.draw();
        let bits = u128::from(random) << 64 | u128::from(mixed(random));
        uuid::Builder::from_random_bytes(bits.to_be_bytes()).into_uuid()
    }

    fn jitter(&self) -> f64 {
        let (_, random) = self.draw();
        // The 32 highest bits: a double holds each of them, and what is less than one stays so.
        f64::from((random >> 32) as u32) / (f64::from(u32::MAX) + 1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_grow_and_follow_from_the_seed() {
        let (one, same, other) = (
            SeededChance::new(1),
            SeededChance::new(1),
            SeededChance::new(2),
        );
        let ids: Vec<Uuid> = (0..100).map(|_| one.id()).collect();
        assert!(ids.is_sorted());
        assert_eq!(ids, (0..100).map(|_| same.id()).collect::<Vec<_>>());
        assert_ne!(ids[0], other.id());
        assert!(ids.iter().all(|id| id.get_version_num() == 7));
    }

    #[test]
    fn nonces_differ_and_jitter_stays_below_one() {
        let chance = SeededChance::new(3);
        assert_ne!(chance.nonce(), chance.nonce());
        assert!((0..1000).all(|_| (0.0..1.0).contains(&chance.jitter())));
    }

    #[test]
    fn clocks_stand_still_until_they_are_moved() {
        let clock = ManualClock::default();
        let before = clock.now();
        clock.advance(Duration::from_secs(1));
        assert_eq!(clock.now().since(before), Duration::from_secs(1));
        clock.set(before);
        assert_eq!(clock.now(), before);
        let stopwatch = ManualStopwatch::default();
        stopwatch.advance(Duration::from_secs(2));
        assert_eq!(stopwatch.elapsed(), Duration::from_secs(2));
    }
}
