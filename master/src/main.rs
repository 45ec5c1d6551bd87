//! `pointsman-master`: the master alone, for small images.

use std::process::ExitCode;

use clap::Parser;

#[derive(Debug, Parser)]
#[command(
    name = "pointsman-master",
    version,
    about = "Leases the work of labelled issues to workers"
)]
struct Cli {
    #[command(flatten)]
    args: pointsman_master::Args,
}

#[tokio::main]
async fn main() -> ExitCode {
    match pointsman_master::run(Cli::parse().args).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            #[expect(clippy::print_stderr, reason = "the last word of a program")]
            {
                eprintln!("error: {error:#}");
            }
            ExitCode::FAILURE
        }
    }
}
