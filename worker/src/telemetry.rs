//! What the worker says about itself: lines on standard error.

use std::io::IsTerminal as _;

use tracing_subscriber::EnvFilter;

/// How lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Format {
    /// For people.
    Pretty,
    /// One JSON object a line.
    Json,
}

/// What is said, and how.
#[derive(Debug, Clone)]
pub(crate) struct Config {
    /// Directives of `tracing_subscriber::EnvFilter`, checked.
    pub(crate) filter: String,
    pub(crate) format: Format,
}

/// Starts logging. Does nothing where the program has started it already.
pub(crate) fn start(config: &Config) {
    let builder = tracing_subscriber::fmt()
        .with_env_filter(EnvFilter::new(&config.filter))
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(std::io::stderr);
    let started = match config.format {
        Format::Pretty => builder.try_init(),
        Format::Json => builder.json().try_init(),
    };
    if started.is_err() {
        tracing::debug!("logging was started before");
    }
}
