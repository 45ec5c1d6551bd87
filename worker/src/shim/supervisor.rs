//! Watches one harness to its end, and then ends what it left behind.

use std::{io, time::Duration};

use nix::{sys::signal::Signal, unistd::Pid};

use super::{
    Error,
    record::{Cause, ExitRecord},
};
use crate::{
    lease::BootTime,
    process::{
        clock,
        subreaper::{self, Reaped, Signals},
    },
    sidecar::SessionDir,
};

/// How often the deadline file is read.
const DEADLINE_INTERVAL: Duration = Duration::from_secs(1);

/// First pause between two rounds of killing. Short, because a process that forks all the time is only
/// caught by rounds that follow each other closely; SIGCHLD ends it early.
const SWEEP_INTERVAL: Duration = Duration::from_millis(10);

/// Longest such pause. What is left after many rounds in which nothing ended is stuck, and each round
/// looks at every process of the host.
const SWEEP_INTERVAL_MAX: Duration = Duration::from_secs(1);

pub(super) struct Supervisor<'a> {
    directory: &'a SessionDir,
    signals: Signals,
    harness: Pid,
    grace: Duration,
    /// Moves when the agent writes another; stays where the file can't be read.
    deadline: BootTime,
    /// Set when stopping begins, never unset.
    stop: Option<Stop>,
    /// Grows with each round of killing, until something ends.
    sweep_interval: Duration,
    /// Set when the harness was reaped: whether its end could be written down.
    recorded: Option<io::Result<()>>,
}

#[derive(Clone, Copy)]
struct Stop {
    cause: Cause,
    kill_at: BootTime,
}

impl<'a> Supervisor<'a> {
    pub(super) fn new(
        directory: &'a SessionDir,
        signals: Signals,
        harness: Pid,
        grace: Duration,
        deadline: BootTime,
    ) -> Self {
        Self {
            directory,
            signals,
            harness,
            grace,
            deadline,
            stop: None,
            sweep_interval: SWEEP_INTERVAL,
            recorded: None,
        }
    }

    /// Returns when no child is left. Where watching fails, harness and children are killed rather
    /// than left alone; what those started is then the agent's to find.
    pub(super) fn run(mut self) -> Result<(), Error> {
        let watched = self.watch();
        if watched.is_err() {
            self.kill().map_err(Error::Supervise)?;
        }
        watched.map_err(Error::Supervise)?;
        match self.recorded {
            Some(Err(error)) => Err(Error::ExitRecord(error)),
            Some(Ok(())) | None => Ok(()),
        }
    }

    fn kill(&self) -> io::Result<()> {
        if self.recorded.is_none() {
            subreaper::signal_group(self.harness, Signal::SIGKILL)?;
        }
        subreaper::signal_children(Signal::SIGKILL, None)
    }

    fn watch(&mut self) -> io::Result<()> {
        while self.reap()? {
            self.step()?;
        }
        Ok(())
    }

    /// Reaps all that have ended, and returns whether children are left.
    fn reap(&mut self) -> io::Result<bool> {
        loop {
            match subreaper::reap()? {
                Reaped::Child(pid, exit) => {
                    self.sweep_interval = SWEEP_INTERVAL;
                    if pid == self.harness {
                        let cause = self.stop.map_or(Cause::Harness, |stop| stop.cause);
                        // Before the sweep: the end is known now, and the sweep can take its time.
                        self.recorded = Some(ExitRecord { cause, exit }.store(self.directory));
                    }
                }
                Reaped::NoneEnded => return Ok(true),
                Reaped::NoneLeft => return Ok(false),
            }
        }
    }

    fn step(&mut self) -> io::Result<()> {
        let now = clock::now();
        if self.is_killing(now) {
            subreaper::signal_children(Signal::SIGKILL, None)?;
            self.sweep_interval = (self.sweep_interval * 2).min(SWEEP_INTERVAL_MAX);
        } else if self.stop.is_none() && now >= self.deadline {
            self.begin_stop(Cause::Deadline, now)?;
        }
        let is_asked = self.signals.wait(self.patience(now))?;
        if is_asked && self.stop.is_none() && self.recorded.is_none() {
            self.begin_stop(Cause::Stopped, clock::now())?;
        }
        if let Ok(deadline) = self.directory.read_deadline() {
            self.deadline = deadline;
        }
        Ok(())
    }

    /// What a harness leaves behind is killed at once, also after success; within a stop it has the
    /// same grace as the harness.
    fn is_killing(&self, now: BootTime) -> bool {
        match self.stop {
            Some(stop) => now >= stop.kill_at,
            None => self.recorded.is_some(),
        }
    }

    fn begin_stop(&mut self, cause: Cause, now: BootTime) -> io::Result<()> {
        self.stop = Some(Stop {
            cause,
            kill_at: now.plus(self.grace),
        });
        // A stopped process would keep SIGTERM pending for the whole grace, hence SIGCONT.
        for signal in [Signal::SIGTERM, Signal::SIGCONT] {
            // The harness was not reaped: that comes with `recorded`, and stops begin before it. It
            // gets each signal once: to some programs the second SIGTERM means "now".
            subreaper::signal_group(self.harness, signal)?;
            subreaper::signal_children(signal, Some(self.harness))?;
        }
        Ok(())
    }

    fn patience(&self, now: BootTime) -> Duration {
        let until = match self.stop {
            _ if self.is_killing(now) => self.sweep_interval,
            Some(stop) => stop.kill_at.since(now),
            None => self.deadline.since(now),
        };
        // Poll counts in milliseconds, rounded down: none would make a busy loop of the last one.
        until.clamp(Duration::from_millis(1), DEADLINE_INTERVAL)
    }
}
