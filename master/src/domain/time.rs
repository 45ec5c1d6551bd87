//! Instants.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// An instant in microseconds since 1970-01-01 UTC. Whose clock it was is said where it is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Timestamp(pub i64);

impl Timestamp {
    /// The instant `duration` later; the last representable one where there is none.
    #[must_use]
    pub fn after(self, duration: Duration) -> Self {
        let micros = i64::try_from(duration.as_micros()).unwrap_or(i64::MAX);
        Self(self.0.saturating_add(micros))
    }

    /// The instant `duration` earlier; the first representable one where there is none.
    #[must_use]
    pub fn before(self, duration: Duration) -> Self {
        let micros = i64::try_from(duration.as_micros()).unwrap_or(i64::MAX);
        Self(self.0.saturating_sub(micros))
    }

    /// The time that has passed since `earlier`; zero where `earlier` is later.
    pub fn since(self, earlier: Self) -> Duration {
        u64::try_from(self.0.saturating_sub(earlier.0))
            .map_or(Duration::ZERO, Duration::from_micros)
    }
}
