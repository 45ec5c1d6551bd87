//! The programs that this binary can be, each from a library of its own: master, worker and shim.

use std::{future::Future, process::ExitCode};

use anyhow::Context as _;
use clap::Subcommand;

use crate::{error::Error, exit::Exit};

#[derive(Debug, Subcommand)]
pub(crate) enum Program {
    /// Run a master, until it is told to stop
    Master(pointsman_master::Args),
    /// Run a worker, until it is told to stop
    Worker(pointsman_worker::Args),
    /// Hold one session; started by the worker itself
    #[command(hide = true)]
    Shim(pointsman_worker::ShimArgs),
}

impl Program {
    /// Runs the program to its end.
    pub(crate) fn run(self) -> Result<ExitCode, Error> {
        match self {
            Self::Master(args) => serve(pointsman_master::run(args)),
            Self::Worker(args) => serve(pointsman_worker::run(args)),
            // Without a runtime: the shim forks, and must have one thread.
            Self::Shim(args) => Ok(pointsman_worker::shim_main(&args)),
        }
    }
}

fn serve(program: impl Future<Output = anyhow::Result<()>>) -> Result<ExitCode, Error> {
    let runtime = tokio::runtime::Runtime::new().context("start the runtime")?;
    runtime.block_on(program)?;
    Ok(Exit::Done.into())
}
