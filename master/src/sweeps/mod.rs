//! What feeds the state machine.
//!
//! Each sweep is level-triggered and idempotent, takes no input, has one code path whether
//! it is woken by time, by a bell or by `pointsman sweep`, and never retries inside: an error ends this
//! run, and the next is the retry. Two masters may run the same sweep at once.

mod ci_poller;
pub mod driver;
mod effector;
mod pickup_guard;
mod reaper;
mod reconciler;
mod retention;
mod scheduler;
mod turns;

use std::{future::Future, pin::Pin};

pub use ci_poller::CiPoller;
pub use effector::Effector;
pub use pickup_guard::PickupGuard;
pub use reaper::Reaper;
pub use reconciler::Reconciler;
pub use retention::Retention;
pub use scheduler::Scheduler;

use crate::service::Error;

/// How many rows one read takes.
const PAGE: u32 = 100;

/// What one run did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Report {
    pub examined: u64,
    pub changed: u64,
    /// Rows whose turn failed; the others had theirs all the same.
    pub failed: u64,
}

impl Report {
    fn add(&mut self, other: Self) {
        self.examined += other.examined;
        self.changed += other.changed;
        self.failed += other.failed;
    }

    /// Counts one row. An error is logged and never stops the pass over the others.
    fn count(&mut self, sweep: &'static str, result: Result<bool, Error>) {
        self.examined += 1;
        match result {
            Ok(is_changed) => self.changed += u64::from(is_changed),
            Err(error) => {
                self.failed += 1;
                tracing::warn!(
                    sweep,
                    error = &error as &dyn std::error::Error,
                    "a row of the sweep failed"
                );
            }
        }
    }
}

/// A sweep's run.
pub type Run<'a> = Pin<Box<dyn Future<Output = Result<Report, Error>> + Send + 'a>>;

/// One background duty.
pub trait Sweep: Send + Sync {
    /// The name in logs, events and `pointsman sweep`.
    fn name(&self) -> &'static str;

    /// Does what is to be done now.
    fn run_once(&self) -> Run<'_>;
}
