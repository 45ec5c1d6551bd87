//! Turns the cranks: each sweep at its own pace, sooner when a bell rings, and by hand.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::{sync::Notify, task::JoinSet, time::Instant};
use tokio_util::sync::CancellationToken;

use super::{Report, Sweep};
use crate::{
    clock::{Chance, Clock},
    domain::time::Timestamp,
    service::{Error, wake::Wake},
};

/// Longest that one run may take. Rows that ask a forge have budgets and turns of their own; a sweep that
/// hangs past this takes the process with it, since nothing else would notice.
const BUDGET: Duration = Duration::from_secs(1800);

/// What rings for a sweep.
type Bell = fn(&Wake) -> &Notify;

/// A sweep with its pace.
pub struct Duty {
    pub sweep: Box<dyn Sweep>,
    /// Between runs; spread by a tenth, so that masters don't march in step.
    pub interval: Duration,
    pub bell: Option<Bell>,
}

/// What a run by hand led to.
#[derive(Debug)]
pub struct HandRun {
    pub name: &'static str,
    pub report: Report,
    /// Why it ended early.
    pub error: Option<Error>,
}

/// The last run of a sweep, however it was turned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LastRun {
    pub name: &'static str,
    pub started_at: Timestamp,
    pub took: Duration,
    pub report: Report,
    /// The log says why.
    pub is_early: bool,
}

/// All sweeps of a master, in their order.
pub struct Driver {
    duties: Vec<Duty>,
    /// One a duty; `None` until it has run.
    last: Mutex<Vec<Option<LastRun>>>,
    wake: Arc<Wake>,
    chance: Arc<dyn Chance>,
    clock: Arc<dyn Clock>,
}

impl Driver {
    pub fn new(
        duties: Vec<Duty>,
        wake: Arc<Wake>,
        chance: Arc<dyn Chance>,
        clock: Arc<dyn Clock>,
    ) -> Self {
        Self {
            last: Mutex::new(vec![None; duties.len()]),
            duties,
            wake,
            chance,
            clock,
        }
    }

    /// The last run of each sweep that has run in this process, in their order.
    pub fn last_runs(&self) -> Vec<LastRun> {
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        last.iter().copied().flatten().collect()
    }

    /// Runs a sweep once, and notes how that went.
    async fn turn(&self, index: usize) -> Result<Report, Error> {
        let sweep = &self.duties[index].sweep;
        let (started_at, start) = (self.clock.now(), Instant::now());
        let result = sweep.run_once().await;
        let run = LastRun {
            name: sweep.name(),
            started_at,
            took: start.elapsed(),
            report: result.as_ref().copied().unwrap_or_default(),
            is_early: result.is_err(),
        };
        self.last.lock().unwrap_or_else(PoisonError::into_inner)[index] = Some(run);
        result
    }

    /// The names, in order.
    pub fn names(&self) -> Vec<&'static str> {
        self.duties.iter().map(|duty| duty.sweep.name()).collect()
    }

    /// Runs one sweep, or all, now. `None`: there is none with that name.
    pub async fn run_now(&self, name: Option<&str>) -> Option<Vec<HandRun>> {
        let chosen: Vec<usize> = (0..self.duties.len())
            .filter(|&index| name.is_none_or(|name| name == self.duties[index].sweep.name()))
            .collect();
        if chosen.is_empty() {
            return None;
        }
        let mut runs = Vec::with_capacity(chosen.len());
        for index in chosen {
            let result = self.turn(index).await;
            runs.push(HandRun {
                name: self.duties[index].sweep.name(),
                report: result.as_ref().copied().unwrap_or_default(),
                error: result.err(),
            });
        }
        Some(runs)
    }

    /// Runs all sweeps until told to stop; each ends between two runs, never inside one. Returns early
    /// where a sweep panicked or hung.
    pub async fn run(self: Arc<Self>, stop: CancellationToken) -> Result<(), Died> {
        let mut tasks = JoinSet::new();
        for index in 0..self.duties.len() {
            let driver = Arc::clone(&self);
            let stop = stop.clone();
            tasks.spawn(async move { driver.drive(index, &stop).await });
        }
        while let Some(ended) = tasks.join_next().await {
            match ended {
                Ok(Ok(())) => {}
                Ok(Err(died)) => return Err(died),
                Err(panic) => return Err(Died::Panicked(panic.to_string())),
            }
        }
        Ok(())
    }

    async fn drive(&self, index: usize, stop: &CancellationToken) -> Result<(), Died> {
        let duty = &self.duties[index];
        let name = duty.sweep.name();
        while !stop.is_cancelled() {
            match tokio::time::timeout(BUDGET, self.turn(index)).await {
                Ok(Ok(report)) if report != Report::default() => {
                    tracing::debug!(sweep = name, ?report, "sweep");
                }
                Ok(Ok(_)) => {}
                Ok(Err(error)) => tracing::warn!(
                    sweep = name,
                    error = &error as &dyn std::error::Error,
                    "sweep ended early"
                ),
                Err(_) => return Err(Died::Hung { sweep: name }),
            }
            let spread = 0.9 + 0.2 * self.chance.jitter();
            tokio::select! {
                () = stop.cancelled() => {}
                () = tokio::time::sleep(duty.interval.mul_f64(spread)) => {}
                () = rung(duty.bell, &self.wake) => {}
            }
        }
        Ok(())
    }
}

async fn rung(bell: Option<Bell>, wake: &Wake) {
    match bell {
        Some(bell) => bell(wake).notified().await,
        None => std::future::pending().await,
    }
}

/// A sweep that will not run again.
#[derive(Debug, thiserror::Error)]
pub enum Died {
    #[error("sweep {sweep} did not end within {} s", BUDGET.as_secs())]
    Hung { sweep: &'static str },
    #[error("a sweep panicked: {0}")]
    Panicked(String),
}
