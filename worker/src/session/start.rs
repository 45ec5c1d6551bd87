//! Starts a session's shim: everything is on disk before it runs.

use std::{
    fs::{self, File},
    io,
    os::fd::OwnedFd,
    path::Path,
    process::Stdio,
};

use tokio::process::{Child, Command};

use super::{Context, control::Orders};
use crate::{
    assignment::{Assignment, Job},
    durable,
    harness::{
        environment::environment,
        profile::{Profile, PromptBy},
        prompt::prompt,
    },
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

/// Starts the shim of `assignment`, which will run in `checkout`.
pub(super) fn start(
    context: &Context,
    assignment: &Assignment,
    directory: &SessionDir,
    checkout: &Path,
    orders: &mut Orders,
) -> Result<Shim, Error> {
    let lock = write(context, assignment, directory, checkout, orders)?;
    let log = File::options()
        .append(true)
        .create(true)
        .open(directory.log())
        .map_err(Error::Write)?;
    let profile = profile(context, &assignment.job);
    let variables = profile.map_or(&[][..], |profile| &profile.variables);
    let mut child = Command::new(PROGRAM)
        .arg0("pointsman-worker")
        .arg("shim")
        .arg(directory.path())
        // The harness gets the shim's environment: no file on disk has to hold its secrets.
        .env_clear()
        .envs(environment(
            &assignment.key,
            &assignment.job,
            directory,
            &context.state.temporary(&assignment.key),
            &context.path,
            variables,
        ))
        .stdin(Stdio::from(OwnedFd::from(lock)))
        .stdout(Stdio::piped())
        .stderr(Stdio::from(log))
        // It outlives the agent.
        .kill_on_drop(false)
        .spawn()
        .map_err(Error::Spawn)?;
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

/// Makes the session's directory and returns its lock, locked. The intent comes last: with it the
/// session exists.
fn write(
    context: &Context,
    assignment: &Assignment,
    directory: &SessionDir,
    checkout: &Path,
    orders: &mut Orders,
) -> Result<File, Error> {
    let temporary = context.state.temporary(&assignment.key);
    for path in [directory.path(), &directory.home(), &temporary] {
        fs::create_dir(path).map_err(Error::Write)?;
    }
    let lock = File::create(directory.lock()).map_err(Error::Lock)?;
    lock.try_lock().map_err(|error| Error::Lock(error.into()))?;
    let launch = launch(context, assignment, directory, checkout);
    write_files(context, assignment, directory, &launch, orders).map_err(Error::Write)?;
    Ok(lock)
}

fn write_files(
    context: &Context,
    assignment: &Assignment,
    directory: &SessionDir,
    launch: &Launch,
    orders: &mut Orders,
) -> io::Result<()> {
    fs::write(directory.prompt(), prompt(assignment))?;
    durable::write(&directory.launch(), &serde_json::to_vec_pretty(launch)?)?;
    directory.write_deadline(orders.tenure().stop_at())?;
    let mut intent = Sidecar::intent(&assignment.key);
    intent.worker = Some(context.state.worker_id().to_string());
    intent.host = Some(host::hostname());
    intent.workspace = Some(launch.directory.clone());
    intent.grace_ms = Some(launch.grace_ms);
    intent.store(directory)?;
    durable::sync_parent(directory.path())
}

fn launch(
    context: &Context,
    assignment: &Assignment,
    directory: &SessionDir,
    checkout: &Path,
) -> Launch {
    let profile = profile(context, &assignment.job);
    let limits = profile.map_or(context.ci_limits, |profile| profile.limits);
    let prompt_by = profile.map_or(PromptBy::File, |profile| profile.prompt);
    let mut command = match &assignment.job {
        Job::Check { command, .. } => {
            vec!["/bin/sh".to_owned(), "-c".to_owned(), command.clone()]
        }
        Job::Harness { .. } => profile.map_or_else(Vec::new, |profile| profile.command.clone()),
    };
    if prompt_by == PromptBy::Argument {
        // An argument can't hold zero bytes, and no text for a model needs one.
        command.push(prompt(assignment).replace('\0', " "));
    }
    Launch {
        command,
        directory: checkout.to_owned(),
        stdin: (prompt_by == PromptBy::Stdin).then(|| directory.prompt()),
        grace_ms: u64::try_from(limits.grace.as_millis()).unwrap_or(u64::MAX),
    }
}

fn profile<'a>(context: &'a Context, job: &Job) -> Option<&'a Profile> {
    match job {
        Job::Check { .. } => None,
        Job::Harness { profile, .. } => context.profile(profile),
    }
}
