//! A profile: how to run one kind of harness, as the configuration says.

use std::{fmt, time::Duration};

use crate::{assignment::Role, process::kill::STOP_MARGIN};

/// How a harness gets its prompt. The file is there in each case.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum PromptBy {
    /// POINTSMAN_PROMPT_FILE names it.
    File,
    /// It is the standard input.
    Stdin,
    /// It is one more argument, the last.
    Argument,
}

/// A variable of the agent's environment that a profile passes on. `Debug` hides the value.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Variable {
    pub(crate) name: String,
    pub(crate) value: String,
}

impl fmt::Debug for Variable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}=…", self.name)
    }
}

/// How to run a harness.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Profile {
    pub(crate) name: String,
    pub(crate) command: Vec<String>,
    pub(crate) prompt: PromptBy,
    pub(crate) roles: Vec<Role>,
    /// Empty: every tier.
    pub(crate) tiers: Vec<u32>,
    pub(crate) variables: Vec<Variable>,
    /// The provider's account that it uses, which a hold names.
    pub(crate) account: String,
    pub(crate) limits: Limits,
}

/// How long a harness may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Limits {
    /// From its start to its end.
    pub(crate) timeout: Duration,
    /// Without output; `None` for no bound.
    pub(crate) idle_timeout: Option<Duration>,
    /// From the last change of its result to its end; `None` where no result is written.
    pub(crate) exit_grace: Option<Duration>,
    /// Between TERM and KILL.
    pub(crate) grace: Duration,
}

impl Limits {
    /// Longest time between the decision to stop and the certain end.
    pub(crate) fn kill_budget(&self) -> Duration {
        self.grace + STOP_MARGIN
    }
}
