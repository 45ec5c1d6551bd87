//! `pointsman completions` and `man`: help that is made from the command line itself, and so is as it is.

use std::{io, path::PathBuf};

use anyhow::Context as _;
use clap::{Args, Command};
use clap_complete::Shell;

use crate::{error::Error, output};

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  pointsman completions bash
  pointsman completions zsh")]
pub(crate) struct Completions {
    /// For which shell
    #[arg(value_enum)]
    shell: Shell,
}

impl Completions {
    /// Prints the script that the shell is to read.
    pub(crate) fn run(self, mut command: Command) -> Result<(), Error> {
        let mut script = Vec::new();
        let name = command.get_name().to_owned();
        clap_complete::generate(self.shell, &mut command, name, &mut script);
        output::text(&String::from_utf8_lossy(&script))
    }
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  pointsman man /usr/local/share/man/man1")]
pub(crate) struct Man {
    /// Where the pages are written: one a command; it is made where it is missing
    directory: PathBuf,
}

impl Man {
    /// Writes the pages, over those that are there.
    pub(crate) fn run(self, command: Command) -> Result<(), Error> {
        let written: io::Result<()> = std::fs::create_dir_all(&self.directory)
            .and_then(|()| clap_mangen::generate_to(command, &self.directory));
        written.with_context(|| format!("write manual pages to {}", self.directory.display()))?;
        Ok(())
    }
}
