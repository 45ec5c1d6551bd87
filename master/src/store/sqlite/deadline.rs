//! Deadlines of statements: SQLite asks every few thousand steps whether it may go on.
//!
//! Holds for what SQLite computes. A disk that answers no call is not ended by it: those who wait for a
//! turn or a commit have deadlines of their own.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use sqlx::SqliteConnection;

/// Steps of SQLite's machine between two questions: well below a millisecond.
const STEPS: i32 = 10_000;

/// The deadline of whatever a connection runs.
#[derive(Debug, Clone)]
pub(super) struct Deadline {
    base: Instant,
    /// Microseconds after `base`.
    at: Arc<AtomicU64>,
}

impl Deadline {
    /// Watches over a connection. There is no deadline yet.
    pub(super) async fn install(connection: &mut SqliteConnection) -> Result<Self, sqlx::Error> {
        let deadline = Self {
            base: Instant::now(),
            at: Arc::new(AtomicU64::new(u64::MAX)),
        };
        let watched = deadline.clone();
        connection
            .lock_handle()
            .await?
            .set_progress_handler(STEPS, move || !watched.has_passed());
        Ok(deadline)
    }

    /// What is run from now on ends within `limit`.
    pub(super) fn start(&self, limit: Duration) {
        self.set(self.base.elapsed().saturating_add(limit));
    }

    /// What runs now ends at once.
    pub(super) fn end(&self) {
        self.set(Duration::ZERO);
    }

    fn set(&self, at: Duration) {
        let micros = u64::try_from(at.as_micros()).unwrap_or(u64::MAX);
        self.at.store(micros, Ordering::Relaxed);
    }

    fn has_passed(&self) -> bool {
        self.base.elapsed().as_micros() >= u128::from(self.at.load(Ordering::Relaxed))
    }
}
