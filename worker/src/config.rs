//! The worker's configuration: file, then environment, then flags; read and checked once, at start.
//!
//! The only place that reads the process's environment, but for the search path by which git is found.
//! Unknown keys are errors, and each refusal
//! names the key and what it takes. What a component gets afterwards can't be wrong any more.

mod check;
mod raw;

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use crate::{
    Args,
    assignment::Role,
    harness::profile::{Limits, Profile, Variable},
    master::Address,
    telemetry,
};

/// Variables that start so are ours, and never passed on.
const OWN_PREFIX: &str = "POINTSMAN_";

/// Everything that an agent needs to know before it starts.
#[derive(Debug, Clone)]
pub(crate) struct Config {
    /// Masters, in order of preference; at least one.
    pub(crate) masters: Vec<Address>,
    pub(crate) state_dir: PathBuf,
    /// Settings of git where a remote is talked to.
    pub(crate) git_config: Option<PathBuf>,
    /// A label for people.
    pub(crate) name: String,
    /// Sessions that may run at once.
    pub(crate) capacity: u32,
    pub(crate) roles: Vec<Role>,
    pub(crate) labels: Vec<String>,
    /// How long sessions may run on once the worker is asked to stop.
    pub(crate) drain_grace: Duration,
    pub(crate) profiles: Vec<Profile>,
    /// How a check's command is run.
    pub(crate) ci_limits: Limits,
    /// What checks get of the agent's environment.
    pub(crate) ci_variables: Vec<Variable>,
    /// Bytes of a harness's output that are kept and uploaded.
    pub(crate) log_max_bytes: u64,
    /// Where programs are looked for: the agent's own PATH.
    pub(crate) path: String,
    pub(crate) telemetry: telemetry::Config,
}

/// Why a configuration can't be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("read the configuration")]
    Read(#[source] config::ConfigError),
    /// A key with a value that it doesn't take.
    #[error("{key}: {problem}")]
    Invalid { key: String, problem: String },
}

impl Config {
    /// Reads the configuration that `args` and the process's environment give.
    pub(crate) fn load(args: &Args) -> Result<Self, Error> {
        let environment = Environment::of_this_process();
        let raw = raw::read(args, &environment)?;
        check::check(raw, &environment)
    }

    /// Checks the file alone, in this process's environment without the variables that are ours.
    pub(crate) fn check_file(path: &Path) -> Result<(), Error> {
        let args = Args {
            config: Some(path.to_owned()),
            ..Args::default()
        };
        let environment = Environment::of_this_process().without_ours();
        check::check(raw::read(&args, &environment)?, &environment).map(drop)
    }
}

/// The variables of a process, so that tests can have their own.
#[derive(Clone, Default)]
pub(crate) struct Environment(config::Map<String, String>);

impl Environment {
    /// Variables that are no Unicode are passed over: no key of ours has such a value.
    fn of_this_process() -> Self {
        std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
            .collect()
    }

    fn without_ours(mut self) -> Self {
        self.0.retain(|name, _| !name.starts_with(OWN_PREFIX));
        self
    }

    fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }
}

impl FromIterator<(String, String)> for Environment {
    fn from_iter<T: IntoIterator<Item = (String, String)>>(variables: T) -> Self {
        Self(variables.into_iter().collect())
    }
}

#[cfg(test)]
mod tests;
