//! What the master says about itself: lines on standard error.

use std::io::IsTerminal;

use serde::Deserialize;
use tracing_subscriber::EnvFilter;

/// How lines look.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// For people.
    #[default]
    Pretty,
    /// One JSON object a line.
    Json,
}

/// Starts logging. Does nothing where the program has started it already.
pub(crate) fn start(filter: EnvFilter, format: Format) {
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(std::io::stderr);
    let started = match format {
        Format::Pretty => builder.try_init(),
        Format::Json => builder.json().try_init(),
    };
    if started.is_err() {
        tracing::debug!("logging was started before");
    }
}
