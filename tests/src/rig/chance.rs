//! Chance that is none, for runs that can be repeated.

use std::sync::atomic::{AtomicU64, Ordering};

use pointsman_master::clock::Chance;
use uuid::Uuid;

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
