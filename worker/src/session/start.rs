//! Starts a session's shim: everything is on disk before it runs.

use std::{
    ffi::OsString,
    fs::{self, File},
    io,
    os::fd::OwnedFd,
    path::PathBuf,
    process::Stdio,
    sync::Arc,
};

use tokio::process::{Child, Command};

use super::Context;
use crate::{
    assignment::{Assignment, Commit, Job},
    durable,
    harness::{
        environment::environment,
        profile::{Profile, PromptBy},
        prompt::prompt,
    },
    lease::BootTime,
    process::{host, identity::Recorded},
    shim::Launch,
    sidecar::{SessionDir, Sidecar},
};

/// The program that runs, which has the `shim` subcommand. Its file may have been replaced or removed
/// since: a path would name another version or nothing.
const PROGRAM: &str = "/proc/self/exe";

/// Why a shim could not be started.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    #[error("write the session's directory")]
    Write(#[source] io::Error),
    #[error("lock the session")]
    Lock(#[source] io::Error),
    #[error("run the shim")]
    Spawn(#[source] io::Error),
    /// The shim has started; what it has started by now may still run.
    #[error("read the shim's identity")]
    Identify(#[source] io::Error),
}

/// A shim that was started.
pub(super) struct Shim {
    pub(super) child: Child,
    /// Who it is.
    pub(super) recorded: Recorded,
}

/// What is started, and where.
pub(super) struct Start {
    pub(super) context: Arc<Context>,
    pub(super) assignment: Assignment,
    pub(super) directory: SessionDir,
    pub(super) checkout: PathBuf,
    /// Tip of the base branch.
    pub(super) base: Option<Commit>,
    /// The deadline that the shim begins with.
    pub(super) stop_at: BootTime,
}

/// Starts a shim. Writing what it needs waits for the disk, on a thread that may block.
pub(super) async fn start(start: Start) -> Result<Shim, Error> {
    let (start, lock) = tokio::task::spawn_blocking(move || {
        let lock = start.write()?;
        Ok((start, lock))
    })
    .await
    .unwrap_or_else(|error| Err(Error::Write(io::Error::other(error))))?;
    start.spawn(lock)
}

impl Start {
    /// Makes the session's directory and returns its lock, locked. The intent comes last: with it the
    /// session exists.
    fn write(&self) -> Result<File, Error> {
        let temporary = self.context.state.temporary(&self.assignment.key);
        for path in [self.directory.path(), &self.directory.home(), &temporary] {
            fs::create_dir(path).map_err(Error::Write)?;
        }
        let lock = File::create(self.directory.lock()).map_err(Error::Lock)?;
        lock.try_lock().map_err(|error| Error::Lock(error.into()))?;
        self.write_files().map_err(Error::Write)?;
        Ok(lock)
    }

    fn write_files(&self) -> io::Result<()> {
        let directory = &self.directory;
        let launch = self.launch();
        fs::write(directory.prompt(), self.prompt())?;
        durable::write(&directory.launch(), &serde_json::to_vec_pretty(&launch)?)?;
        directory.write_deadline(self.stop_at)?;
        let mut intent = Sidecar::intent(&self.assignment.key);
        intent.worker = Some(self.context.state.worker_id().to_string());
        intent.host = Some(host::hostname());
        intent.grace_ms = Some(launch.grace_ms);
        intent.workspace = Some(launch.directory);
        intent.store(directory)?;
        durable::sync_parent(directory.path())
    }

    fn prompt(&self) -> String {
        prompt(&self.assignment, self.base.as_ref())
    }

    fn launch(&self) -> Launch {
        let profile = self.profile();
        let limits = profile.map_or(self.context.ci_limits, |profile| profile.limits);
        let prompt_by = profile.map_or(PromptBy::File, |profile| profile.prompt);
        let mut command = match &self.assignment.job {
            Job::Check { command, .. } => {
                vec!["/bin/sh".to_owned(), "-c".to_owned(), command.clone()]
            }
            Job::Harness { .. } => profile.map_or_else(Vec::new, |profile| profile.command.clone()),
        };
        if prompt_by == PromptBy::Argument {
            // An argument can't hold zero bytes, and no text for a model needs one.
            command.push(self.prompt().replace('\0', " "));
        }
        Launch {
            command,
            directory: self.checkout.clone(),
            stdin: (prompt_by == PromptBy::Stdin).then(|| self.directory.prompt()),
            grace_ms: u64::try_from(limits.grace.as_millis()).unwrap_or(u64::MAX),
        }
    }

    fn profile(&self) -> Option<&Profile> {
        match &self.assignment.job {
            Job::Check { .. } => None,
            Job::Harness { profile, .. } => self.context.profile(profile),
        }
    }

    fn environment(&self) -> Vec<(String, OsString)> {
        let key = &self.assignment.key;
        let variables = match self.profile() {
            Some(profile) => &profile.variables,
            None => &self.context.ci_variables,
        };
        environment(
            key,
            &self.assignment.job,
            self.base.as_ref(),
            &self.directory,
            &self.context.state.temporary(key),
            &self.context.path,
            variables,
        )
    }

    fn spawn(&self, lock: File) -> Result<Shim, Error> {
        let log = File::options()
            .append(true)
            .create(true)
            .open(self.directory.log())
            .map_err(Error::Write)?;
        let child = Command::new(PROGRAM)
            .arg0("pointsman-worker")
            .arg("shim")
            .arg(self.directory.path())
            // The harness gets the shim's environment: no file on disk has to hold its secrets.
            .env_clear()
            .envs(self.environment())
            .stdin(Stdio::from(OwnedFd::from(lock)))
            .stdout(Stdio::piped())
            .stderr(Stdio::from(log))
            // It outlives the agent.
            .kill_on_drop(false)
            .spawn()
            .map_err(Error::Spawn)?;
        identified(child)
    }
}

/// A shim that can't be told from others later is of no use.
fn identified(mut child: Child) -> Result<Shim, Error> {
    match identify(&child) {
        Ok(recorded) => Ok(Shim { child, recorded }),
        Err(error) => {
            if let Err(error) = child.start_kill() {
                tracing::error!(%error, "failed to kill a shim that could not be identified");
            }
            Err(Error::Identify(error))
        }
    }
}

/// Not reaped yet, so that the number is its own.
fn identify(child: &Child) -> io::Result<Recorded> {
    let pid = child.id().ok_or(io::ErrorKind::NotFound)?;
    Recorded::child(pid)
}
