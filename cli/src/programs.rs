//! The programs that this binary can be, each from a library of its own: master, worker and shim.

use std::{future::Future, io, os::fd::AsFd as _, pin::pin, process::ExitCode, time::Duration};

use anyhow::{Context as _, bail};
use clap::{Args, Subcommand};
use tokio::{io::AsyncReadExt as _, net::unix::pipe, time::sleep};

use crate::{error::Error, exit::Exit, processes};

/// The flag of a process that ends with the one that started it.
pub(crate) const WITH_PARENT: &str = "--with-parent";

/// How long a master goes on after its parent's end: its workers stop their sessions, which may take a
/// harness's grace, and give them back.
const MASTER_GOES_ON: Duration = Duration::from_secs(8);

/// What a process may take to end in order, once it was asked twice. It is then ended in any case.
const LAST_GRACE: Duration = Duration::from_secs(30);

#[derive(Debug, Subcommand)]
pub(crate) enum Program {
    /// Run a master, until it is told to stop
    Master(Served<pointsman_master::Args>),
    /// Run a worker, until it is told to stop
    Worker(Served<pointsman_worker::Args>),
    /// Hold one session; started by the worker itself
    #[command(hide = true)]
    Shim(pointsman_worker::ShimArgs),
}

#[derive(Debug, Args)]
pub(crate) struct Served<T: Args> {
    #[command(flatten)]
    args: T,
    /// End when standard input does, which is a pipe that the parent holds
    #[arg(long, hide = true)]
    with_parent: bool,
}

impl Program {
    /// Runs the program to its end.
    pub(crate) fn run(self) -> Result<ExitCode, Error> {
        match self {
            Self::Master(Served { args, with_parent }) => {
                let parent = with_parent.then_some(MASTER_GOES_ON);
                serve(pointsman_master::run(args), parent)
            }
            Self::Worker(Served { args, with_parent }) => {
                let parent = with_parent.then_some(Duration::ZERO);
                serve(pointsman_worker::run(args), parent)
            }
            // Without a runtime: the shim forks, and must have one thread.
            Self::Shim(args) => Ok(pointsman_worker::shim_main(&args)),
        }
    }
}

/// Runs a program to its end. Where it has a parent it is asked to stop, as by a signal, so long after the
/// parent's end.
fn serve(
    program: impl Future<Output = anyhow::Result<()>>,
    parent: Option<Duration>,
) -> Result<ExitCode, Error> {
    let runtime = tokio::runtime::Runtime::new().context("start the runtime")?;
    let ended = match parent {
        None => runtime.block_on(program),
        Some(goes_on) => runtime.block_on(with_parent(program, goes_on)),
    };
    // What still blocks a thread does not keep the process.
    runtime.shutdown_background();
    ended?;
    Ok(Exit::Done.into())
}

async fn with_parent(
    program: impl Future<Output = anyhow::Result<()>>,
    goes_on: Duration,
) -> anyhow::Result<()> {
    let mut program = pin!(program);
    tokio::select! {
        ended = &mut program => return ended,
        gone = end_of_stdin() => gone.context("watch the parent")?,
    }
    for wait in [goes_on, processes::ASKED_AGAIN] {
        tokio::select! {
            ended = &mut program => return ended,
            () = sleep(wait) => processes::ask_this_process_to_stop()?,
        }
    }
    tokio::select! {
        ended = &mut program => ended,
        () = sleep(LAST_GRACE) => bail!("not at its end in time, after the parent's end"),
    }
}

/// Completes when nobody holds the other end of the pipe any more.
async fn end_of_stdin() -> io::Result<()> {
    let mut parent = pipe::Receiver::from_owned_fd(io::stdin().as_fd().try_clone_to_owned()?)?;
    let mut nothing = [0; 64];
    while parent.read(&mut nothing).await? > 0 {}
    Ok(())
}
