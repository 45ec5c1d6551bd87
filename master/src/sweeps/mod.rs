//! What feeds the state machine.
//!
//! Each sweep is level-triggered and idempotent, takes nothing but the instant, has one code path whether
//! it is woken by time, by a bell or by `pointsman sweep`, and never retries inside: an error ends this
//! run, and the next is the retry. Two masters may run the same sweep at once.

mod ci_poller;
pub mod driver;
mod effector;
mod pickup_guard;
mod reaper;
mod reconciler;
mod scheduler;

use std::{future::Future, pin::Pin};

pub use ci_poller::CiPoller;
pub use effector::Effector;
pub use pickup_guard::PickupGuard;
pub use reaper::Reaper;
pub use reconciler::Reconciler;
pub use scheduler::Scheduler;

use tokio::task::{JoinError, JoinSet};

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

/// How many rows that ask a forge are worked on at once: a remote that hangs holds up its own rows, and
/// not those of others. Each holds one git process at most.
const AT_ONCE: usize = 8;

/// Works on all rows, a few at once, and counts them. Ends when the last has had its turn.
async fn all_at_once<T, F>(
    sweep: &'static str,
    rows: Vec<T>,
    work: impl Fn(T) -> F,
) -> Result<Report, Error>
where
    F: Future<Output = Result<bool, Error>> + Send + 'static,
{
    let mut report = Report::default();
    let mut turns = JoinSet::new();
    for row in rows {
        if turns.len() >= AT_ONCE
            && let Some(ended) = turns.join_next().await
        {
            report.count(sweep, unpanicked(ended));
        }
        turns.spawn(work(row));
    }
    while let Some(ended) = turns.join_next().await {
        report.count(sweep, unpanicked(ended));
    }
    Ok(report)
}

/// A row whose turn panicked takes the sweep with it, and so the process: that is a defect.
fn unpanicked<T>(ended: Result<T, JoinError>) -> T {
    ended.unwrap_or_else(|error| match error.try_into_panic() {
        Ok(panic) => std::panic::resume_unwind(panic),
        Err(error) => unreachable!("nobody cancels a turn: {error}"),
    })
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
