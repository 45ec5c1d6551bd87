//! `pointsman`: one binary that can be everything.
//!
//! In reading order: `args` is the command line; `error` and `exit` say how a command ends; `client`
//! reaches a master; `output`, `name` and `view` show what it answered. Then one file a noun with the
//! operators' commands, which are a thin client of the RPCs: nothing that they do can't be done with
//! any other gRPC client. `programs` runs master, worker and shim, which are libraries of their own, and
//! `processes` starts them: for `up` on a person's repository, and for `demo` on a small one that it makes,
//! with `scripted_harness` in an agent's place.

mod args;
mod change;
mod client;
mod error;
mod exit;
mod name;
mod output;
mod view;

mod attempt;
mod backup;
mod event;
mod fleet;
mod help;
mod hold;
mod item;
mod items;
mod logs;
mod machine;
mod policy;
mod repo;
mod schema;
mod stats;
mod watch;
mod worker;
mod workflow;

mod processes;
mod programs;
mod wish;

mod demo;
mod scripted_harness;
mod up;

use std::process::ExitCode;

use clap::Parser as _;

use args::Cli;
use error::Error;
use exit::Exit;

/// Runs the command that the process's arguments name, to its end.
pub fn main() -> ExitCode {
    let ended = match Cli::try_parse() {
        Ok(cli) => cli.run(),
        Err(refusal) => refuse(&refusal),
    };
    match ended {
        Ok(code) => code,
        Err(error) => error.report().into(),
    }
}

/// Help and version are what was asked for; the rest is one line.
fn refuse(refusal: &clap::Error) -> Result<ExitCode, Error> {
    use clap::error::ErrorKind;

    match refusal.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            output::text(&refusal.to_string())?;
            Ok(Exit::Done.into())
        }
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => Err(Error::Usage(
            "a command is missing; `pointsman --help` lists them".to_owned(),
        )),
        _ => Err(Error::Usage(error::first_paragraph(&refusal.to_string()))),
    }
}
