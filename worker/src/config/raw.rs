//! The configuration as it is written down, merged but not checked: words are still text, so that
//! their refusal can say which there are.

use std::{collections::BTreeMap, path::PathBuf};

use serde::Deserialize;

use super::{Environment, Error};
use crate::Args;

/// What variables of the environment start with; `__` stands between the parts of a key.
const PREFIX: &str = "POINTSMAN_WORKER";

/// Keys that are lists, separated by commas where they come from the environment.
const LISTS: [&str; 4] = ["masters", "roles", "labels", "ci_env"];

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Raw {
    #[serde(default)]
    pub(super) masters: Vec<String>,
    pub(super) state_dir: Option<PathBuf>,
    pub(super) git_config: Option<PathBuf>,
    pub(super) name: Option<String>,
    #[serde(default = "capacity")]
    pub(super) capacity: u32,
    pub(super) roles: Option<Vec<String>>,
    #[serde(default)]
    pub(super) labels: Vec<String>,
    #[serde(default = "drain_grace")]
    pub(super) drain_grace: String,
    #[serde(default = "term_grace")]
    pub(super) term_grace: String,
    #[serde(default = "ci_timeout")]
    pub(super) ci_timeout: String,
    #[serde(default)]
    pub(super) ci_env: Vec<String>,
    #[serde(default = "log_max_bytes")]
    pub(super) log_max_bytes: u64,
    #[serde(default = "log")]
    pub(super) log: String,
    #[serde(default = "log_format")]
    pub(super) log_format: String,
    #[serde(default)]
    pub(super) harness: BTreeMap<String, RawProfile>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawProfile {
    pub(super) command: Vec<String>,
    #[serde(default = "prompt")]
    pub(super) prompt: String,
    #[serde(default)]
    pub(super) roles: Vec<String>,
    #[serde(default)]
    pub(super) tiers: Vec<u32>,
    #[serde(default)]
    pub(super) env: Vec<String>,
    #[serde(default = "timeout")]
    pub(super) timeout: String,
    #[serde(default = "idle_timeout")]
    pub(super) idle_timeout: String,
    #[serde(default = "exit_grace")]
    pub(super) exit_grace: String,
    pub(super) grace: Option<String>,
    pub(super) account: Option<String>,
}

/// Two: one that thinks while the other builds.
const fn capacity() -> u32 {
    2
}

/// Most sessions end by themselves in ten minutes; the rest is given back and does not count.
fn drain_grace() -> String {
    "10m".to_owned()
}

/// Enough for a program to write its state down, and short against any lease.
fn term_grace() -> String {
    "5s".to_owned()
}

/// An hour of continuous integration is long, but there is such.
fn ci_timeout() -> String {
    "60m".to_owned()
}

/// The longest that an implementer of the hardest tier takes, with some room.
fn timeout() -> String {
    "90m".to_owned()
}

/// A harness that says nothing for so long hangs; long builds say something.
fn idle_timeout() -> String {
    "15m".to_owned()
}

/// Whoever has written its result only has to say goodbye. Some check their work once more.
fn exit_grace() -> String {
    "10m".to_owned()
}

/// As much as a master keeps.
const fn log_max_bytes() -> u64 {
    64 * 1024 * 1024
}

fn log() -> String {
    "info".to_owned()
}

fn log_format() -> String {
    "pretty".to_owned()
}

/// Every program can read a file.
fn prompt() -> String {
    "file".to_owned()
}

/// Merges file, environment and flags, the later over the earlier.
pub(super) fn read(args: &Args, environment: &Environment) -> Result<Raw, Error> {
    let mut builder = config::Config::builder();
    if let Some(path) = &args.config {
        builder = builder.add_source(config::File::from(path.as_path()).required(true));
    }
    let state_dir = args
        .state_dir
        .as_ref()
        .map(|path| path.to_string_lossy().into_owned());
    builder
        .add_source(source(environment))
        .set_override_option("masters", non_empty(&args.masters))
        .and_then(|b| b.set_override_option("state_dir", state_dir))
        .and_then(|b| b.set_override_option("name", args.name.clone()))
        .and_then(|b| b.set_override_option("capacity", args.capacity))
        .and_then(|b| b.build())
        .and_then(|merged| merged.try_deserialize())
        .map_err(Error::Read)
}

fn source(environment: &Environment) -> config::Environment {
    let source = config::Environment::with_prefix(PREFIX)
        .prefix_separator("__")
        .separator("__")
        .try_parsing(true)
        .list_separator(",")
        .source(Some(environment.0.clone()));
    LISTS
        .iter()
        .fold(source, |source, key| source.with_list_parse_key(key))
}

fn non_empty(masters: &[String]) -> Option<Vec<String>> {
    (!masters.is_empty()).then(|| masters.to_vec())
}
