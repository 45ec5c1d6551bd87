//! The worker: leases attempts from a master and runs a harness for each.
//!
//! In reading order: what is leased and what of it is pure arithmetic; how the worker is told what to
//! do and finds its place; processes; one session with its shim; and the agent, which owns them all.
//! The design is in `docs/`, and the wire in the crate `pointsman-proto`.

mod assignment;
mod lease;

mod config;
mod control_file;
mod durable;
mod error;
mod ids;
mod retry;
mod state;
mod telemetry;
mod text;
mod tree;

mod harness;
mod process;
mod sidecar;
mod workspace;

mod session;
mod shim;

mod agent;
mod janitor;
mod master;

pub mod schema;

#[cfg(test)]
mod testing;

use std::{
    io::{self, Write as _},
    path::{Path, PathBuf},
    process::ExitCode,
};

pub use assignment::{Kind, Role};

/// What the command line says. Flags win over the environment (`POINTSMAN_WORKER__…`), and that over
/// the file.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct Args {
    /// Configuration file (TOML)
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Where a master listens; repeat it for more than one
    #[arg(long = "master", value_name = "URL")]
    pub masters: Vec<String>,
    /// Directory for sessions, mirrors and workspaces; no other agent may use it
    #[arg(long, value_name = "DIR")]
    pub state_dir: Option<PathBuf>,
    /// Name for people [default: the host's]
    #[arg(long)]
    pub name: Option<String>,
    /// Sessions that run at once, 1 to 1000 [default: 2]
    #[arg(long, value_name = "N")]
    pub capacity: Option<u32>,
}

/// Runs a worker until it is told to stop and its sessions have ended.
pub async fn run(args: Args) -> anyhow::Result<()> {
    let config = config::Config::load(&args)?;
    telemetry::start(&config.telemetry);
    agent::run(config).await
}

/// Checks the configuration file at `path` as [`run`] would, in this process's environment without the
/// variables that are ours.
pub fn check(path: &Path) -> anyhow::Result<()> {
    Ok(config::Config::check_file(path)?)
}

/// What the command line of the shim says. The worker starts it, as `PROGRAM shim DIR`; people don't.
#[derive(Debug, Clone, clap::Args)]
pub struct ShimArgs {
    /// Directory of the session
    pub session_dir: PathBuf,
}

/// Runs one session's shim to its end.
///
/// Call it before any thread is started: the shim forks.
pub fn shim_main(args: &ShimArgs) -> ExitCode {
    match shim::run(&args.session_dir) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let line = format!("pointsman: shim failed to {}\n", error::chain(&error));
            // Standard error is the session's log. Where even that fails, the status remains.
            drop(io::stderr().write_all(line.as_bytes()));
            ExitCode::FAILURE
        }
    }
}
