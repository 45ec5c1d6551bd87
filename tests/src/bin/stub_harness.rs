//! The harness of the tests. Its one argument is the script that it follows.

use std::{path::Path, process::ExitCode};

use anyhow::Context as _;
use pointsman_tests::world::follow;

fn main() -> anyhow::Result<ExitCode> {
    let script = std::env::args_os().nth(1).context("a script is missing")?;
    follow(Path::new(&script))
}
