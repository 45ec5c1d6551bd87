//! Watches a shim until it has ended, and sees to it that it does.
//!
//! Who the shim is, is known from its start. The sidecar can be rewritten by the harness as soon as that
//! runs, so that it is read once, and its word about the harness is held against the shim's.

use std::{io, pin::pin, time::Duration};

use tokio::{
    io::AsyncReadExt as _,
    process::ChildStdout,
    time::{Instant, MissedTickBehavior, interval, sleep, sleep_until, timeout},
};

use super::{
    control::{Orders, Stop},
    log,
    start::Shim,
};
use crate::{
    assignment::LeaseKey,
    harness::{environment::cookie, profile::Limits},
    lease::BootTime,
    master::Phase,
    process::{
        Signal, clock,
        host::Place,
        identity::Recorded,
        kill::{DEADLINE_MARGIN, Killed, Processes, kill_with_grace},
        stat::Stat,
        subreaper::Exit,
    },
    shim::record::{Cause, ExitRecord},
    sidecar::{SessionDir, Sidecar},
};

/// How often the log is looked at.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// How long a shim may take to kill what an ended harness left behind, beyond the grace that this has
/// within a stop. What takes longer is stuck in the kernel.
const SWEEP_PATIENCE: Duration = Duration::from_secs(10);

/// How long the end of a killed shim may take to be reaped.
const REAP_PATIENCE: Duration = Duration::from_secs(1);

/// Why watching ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Why {
    /// The shim ended by itself.
    Ended,
    /// The harness ended, but the shim can't get rid of what it left.
    Stuck,
    /// The lease's deadline came, and the shim did not stop the harness in time.
    Deadline,
    TimedOut(Duration),
    Silent(Duration),
    /// The result was written, and nobody ended.
    Lingering(Duration),
    Stopped(Stop),
}

/// How it all ended.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) why: Why,
    /// What the shim wrote down; `None` where it could not.
    pub(super) record: Option<ExitRecord>,
    /// Whether a harness was ever recorded, and so may have run.
    pub(super) has_started: bool,
    /// Set where something may still run.
    pub(super) unconfirmed: bool,
}

impl Ended {
    /// Whether somebody but this agent had it stopped, as far as that can be told. Who stops a whole
    /// group of processes, as systemd can, stops harness and shim in any order.
    pub(super) fn is_stopped_from_outside(&self) -> bool {
        let is_stopped = |record: ExitRecord| {
            record.cause == Cause::Stopped || record.exit == Exit::Signaled(Signal::SIGTERM as i32)
        };
        self.why == Why::Ended && self.record.is_some_and(is_stopped)
    }
}

/// A running session.
pub(super) struct Run<'a> {
    shim: Shim,
    key: &'a LeaseKey,
    directory: &'a SessionDir,
    limits: Limits,
    orders: &'a Orders,
    started_at: Instant,
    /// Length of the log at the last look, and when it last grew.
    log_bytes: u64,
    output_at: Instant,
    /// The result file at the last look, and when it last changed.
    result: Option<(log::Progress, Instant)>,
    /// When the exit record was first seen.
    exit_at: Option<Instant>,
    has_started: bool,
    /// The harness, once it is recorded and while the shim was seen to be its parent.
    harness: Option<Recorded>,
}

impl<'a> Run<'a> {
    pub(super) fn new(
        shim: Shim,
        key: &'a LeaseKey,
        directory: &'a SessionDir,
        limits: Limits,
        orders: &'a Orders,
    ) -> Self {
        let now = Instant::now();
        Self {
            shim,
            key,
            directory,
            limits,
            orders,
            started_at: now,
            log_bytes: 0,
            output_at: now,
            result: None,
            exit_at: None,
            has_started: false,
            harness: None,
        }
    }

    /// Returns when the session's processes have ended, as far as that can be had.
    pub(super) async fn until_ended(mut self) -> Ended {
        // It may have moved since the shim was started.
        self.orders.hold_deadline(self.directory);
        let why = self.watch().await;
        self.orders.let_deadline_go();
        if !self.has_started {
            self.note_start();
        }
        let is_confirmed = match why {
            Why::Ended if self.has_shim_succeeded() && self.record().is_some() => true,
            Why::Stuck => false,
            // A shim that left no record may have left its harness too, and one that was killed after it
            // left one may have left what the harness started.
            Why::Ended
            | Why::Deadline
            | Why::TimedOut(_)
            | Why::Silent(_)
            | Why::Lingering(_)
            | Why::Stopped(_) => self.kill().await,
        };
        self.look();
        Ended {
            why,
            record: self.record(),
            has_started: self.has_started,
            unconfirmed: !is_confirmed,
        }
    }

    /// Whether the shim has ended, and nothing of the session was left when it did.
    fn has_shim_succeeded(&mut self) -> bool {
        matches!(self.shim.child.try_wait(), Ok(Some(status)) if status.success())
    }

    async fn watch(&mut self) -> Why {
        let mut started = pin!(end_of_file(self.shim.child.stdout.take()));
        let mut is_waiting_for_start = true;
        let mut looks = interval(LOOK_INTERVAL);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let timeout_at = self.started_at + self.limits.timeout;
        let (mut stops, mut renewals) = (self.orders.clone(), self.orders.clone());
        let mut stop_at = renewals.tenure().stop_at();
        loop {
            // Anew each time: the deadline's clock goes on while the host sleeps, and a timer's doesn't.
            let overdue_in = stop_at.plus(DEADLINE_MARGIN).since(clock::now());
            tokio::select! {
                biased;
                status = self.shim.child.wait() => {
                    tracing::debug!(?status, "shim ended");
                    return Why::Ended;
                }
                () = &mut started, if is_waiting_for_start => {
                    is_waiting_for_start = false;
                    self.note_start();
                }
                stop = stops.stopped() => return Why::Stopped(stop),
                () = sleep(overdue_in) => return Why::Deadline,
                () = sleep_until(timeout_at) => return Why::TimedOut(self.limits.timeout),
                _ = looks.tick() => {
                    self.look();
                    if let Some(why) = self.overdue() {
                        return why;
                    }
                }
                tenure = renewals.renewed() => stop_at = tenure.stop_at(),
            }
        }
    }

    /// The shim has closed its pipe: either the harness is recorded, or it never will be.
    fn note_start(&mut self) {
        match Sidecar::load(self.directory) {
            Ok(Some(sidecar)) => {
                let harness = sidecar.processes().harness;
                self.has_started = harness.is_some();
                self.harness = harness.filter(|harness| self.is_of_shim(harness));
                let recorded = self.harness.as_ref();
                let subprocess = recorded.and_then(|h| Some((h.pid, h.starttime?)));
                self.orders.report(|status| {
                    status.phase = Phase::Running;
                    status.subprocess = subprocess;
                });
            }
            Ok(None) => tracing::warn!("sidecar is gone"),
            Err(error) => tracing::warn!(%error, "failed to read the sidecar"),
        }
    }

    /// Whether the shim is the parent of what was recorded: nothing else is killed as the harness.
    fn is_of_shim(&self, harness: &Recorded) -> bool {
        Stat::of(harness.pid).is_ok_and(|stat| stat.parent == self.shim.recorded.pid)
    }

    fn look(&mut self) {
        let Ok((bytes, written_at)) = log::progress(&self.directory.log()) else {
            return;
        };
        if bytes != self.log_bytes {
            self.log_bytes = bytes;
            self.output_at = Instant::now();
        }
        self.orders.note(|status| {
            status.log_bytes = bytes;
            status.last_output_at = (bytes > 0).then_some(written_at);
        });
    }

    fn overdue(&mut self) -> Option<Why> {
        if self.exit_at.is_none() && self.directory.exit_record().exists() {
            self.exit_at = Some(Instant::now());
        }
        if let Some(exit_at) = self.exit_at {
            return (exit_at.elapsed() > sweep_patience(self.record(), self.limits.grace))
                .then_some(Why::Stuck);
        }
        if let Some(grace) = self.limits.exit_grace
            && self.has_lingered(grace)
        {
            return Some(Why::Lingering(grace));
        }
        let limit = self.limits.idle_timeout?;
        (self.output_at.elapsed() > limit).then_some(Why::Silent(limit))
    }

    /// Whether the result is there and was last changed so long ago. It is the last that a harness has to
    /// say, and some never end after it. An empty file says nothing yet: some make it when they start.
    fn has_lingered(&mut self, grace: Duration) -> bool {
        let Ok(now @ (1.., _)) = log::progress(&self.directory.result()) else {
            self.result = None;
            return false;
        };
        match self.result {
            Some((before, at)) if before == now => at.elapsed() > grace,
            Some(_) | None => {
                self.result = Some((now, Instant::now()));
                false
            }
        }
    }

    /// Kills what runs, and returns whether that is certain.
    async fn kill(&mut self) -> bool {
        let processes = self.processes();
        let killed = kill_with_grace(&processes, self.limits.grace).await;
        tracing::info!(?killed, "stopped the session's processes");
        let reaped = timeout(REAP_PATIENCE, self.shim.child.wait()).await;
        match killed {
            Killed::Confirmed | Killed::AlreadyGone => reaped.is_ok(),
            Killed::Unconfirmed(_) => {
                // A shim that can't be signalled still reads its deadline.
                if let Err(error) = self.directory.write_deadline(BootTime::new(Duration::ZERO)) {
                    tracing::warn!(%error, "failed to write the deadline");
                }
                false
            }
        }
    }

    fn processes(&self) -> Processes {
        Processes {
            place: Place::here(),
            shim: Some(self.shim.recorded.clone()),
            harness: self.harness.clone(),
            cookie: Some(cookie(self.key)),
        }
    }

    fn record(&self) -> Option<ExitRecord> {
        ExitRecord::load(self.directory).unwrap_or_else(|error| {
            tracing::warn!(%error, "failed to read the exit record");
            None
        })
    }
}

/// Within a stop, what the harness left has the rest of the grace. After its own end there is none.
fn sweep_patience(record: Option<ExitRecord>, grace: Duration) -> Duration {
    match record {
        Some(record) if record.cause == Cause::Harness => SWEEP_PATIENCE,
        Some(_) | None => SWEEP_PATIENCE + grace,
    }
}

/// Completes at the end of what the shim has to say, which is nothing.
async fn end_of_file(stdout: Option<ChildStdout>) {
    if let Some(mut stdout) = stdout {
        let result: io::Result<usize> = stdout.read(&mut [0]).await;
        if let Err(error) = result {
            tracing::debug!(%error, "read the shim's pipe");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_within_a_stop_what_is_left_has_a_grace() {
        let grace = Duration::from_secs(60);
        let record = |cause| {
            let exit = Exit::Exited(0);
            Some(ExitRecord { cause, exit })
        };
        assert_eq!(
            sweep_patience(record(Cause::Harness), grace),
            SWEEP_PATIENCE
        );
        for cause in [Cause::Deadline, Cause::Stopped] {
            assert_eq!(sweep_patience(record(cause), grace), SWEEP_PATIENCE + grace);
        }
    }
}
