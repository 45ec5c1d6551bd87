//! `pointsman-worker`: the worker as a program of its own.

use std::process::ExitCode;

use clap::Parser;

/// Leases coding work from a Pointsman master and runs a harness for each lease.
#[derive(Debug, Parser)]
#[command(version, args_conflicts_with_subcommands = true)]
struct Cli {
    #[command(flatten)]
    worker: pointsman_worker::Args,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Hold one session; started by the worker itself
    #[command(hide = true)]
    Shim(pointsman_worker::ShimArgs),
}

fn main() -> anyhow::Result<ExitCode> {
    let cli = Cli::parse();
    // Before any runtime: the shim forks, and must have one thread.
    if let Some(Command::Shim(shim)) = &cli.command {
        return Ok(pointsman_worker::shim_main(shim));
    }
    tokio::runtime::Runtime::new()?.block_on(pointsman_worker::run(cli.worker))?;
    Ok(ExitCode::SUCCESS)
}
