//! What the checks of one commit mean.

use serde::{Deserialize, Serialize};

use super::{policy::Policy, text::text_enum, time::Timestamp};

text_enum! {
    /// How a check ended.
    pub enum Conclusion: "check conclusion" {
        Success = "success",
        Failure = "failure",
        Neutral = "neutral",
        Skipped = "skipped",
        Cancelled = "cancelled",
        TimedOut = "timed_out",
        StartupFailure = "startup_failure",
        Stale = "stale",
        ActionRequired = "action_required",
        /// The forge said something that this version does not know. It is not success.
        Unknown = "unknown",
    }
}

impl Conclusion {
    /// Whether the check stands in nobody's way.
    pub const fn is_passing(self) -> bool {
        match self {
            Self::Success | Self::Neutral | Self::Skipped => true,
            Self::Failure
            | Self::Cancelled
            | Self::TimedOut
            | Self::StartupFailure
            | Self::Stale
            | Self::ActionRequired
            | Self::Unknown => false,
        }
    }

    /// Whether it says something about the machinery rather than about the commit.
    pub const fn is_infrastructure(self) -> bool {
        match self {
            Self::Cancelled | Self::TimedOut | Self::StartupFailure | Self::Stale => true,
            Self::Success
            | Self::Failure
            | Self::Neutral
            | Self::Skipped
            | Self::ActionRequired
            | Self::Unknown => false,
        }
    }
}

/// A check that each head of a repository is to pass: a command, known by its name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CheckDefinition {
    /// Unique in its repository; `flaky_checks` matches it.
    pub name: String,
    /// Run by `/bin/sh -c` in a fresh checkout.
    pub command: String,
}

/// One check of one commit, as the forge tells it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckState {
    pub name: String,
    /// `None` while it runs or waits to run.
    pub conclusion: Option<Conclusion>,
    /// The end of its log, bounded by the forge.
    pub log_tail: String,
    /// When it last changed, as far as we saw.
    pub changed_at: Timestamp,
}

/// A check that stands in the way, for the implementer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckFailure {
    pub name: String,
    pub conclusion: Conclusion,
    pub log_tail: String,
}

/// Since when a head waits for its checks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wait {
    pub started_at: Timestamp,
}

/// What the checks of one commit say together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CiReading {
    /// Not all have ended.
    Pending,
    Green,
    /// All have ended, some badly. `is_flaky`: each of those may succeed if it is run again.
    Red {
        is_flaky: bool,
        failures: Vec<CheckFailure>,
    },
    /// The wait is over without a verdict.
    Exhausted {
        reason: String,
    },
}

/// Reads the checks of the recorded head together. No check yet is pending, never green, unless the
/// policy says that checks are optional and the time for them to appear has passed.
pub fn classify(checks: &[CheckState], wait: Wait, policy: &Policy, now: Timestamp) -> CiReading {
    let waited = now.since(wait.started_at);
    if checks.is_empty() && policy.ci_optional && waited >= policy.ci_appear_deadline() {
        return CiReading::Green;
    }
    if !checks.is_empty() && checks.iter().all(|check| check.conclusion.is_some()) {
        return verdict(checks, policy);
    }
    let changes = checks.iter().map(|check| check.changed_at);
    let deadlines = deadlines(changes, wait, policy);
    if let Some((_, limit)) = deadlines.into_iter().find(|(at, _)| now >= *at) {
        return CiReading::Exhausted {
            reason: match limit {
                Limit::Poll => format!(
                    "no verdict of CI within {} s",
                    policy.ci_poll_deadline_seconds
                ),
                Limit::Idle => format!(
                    "no check changed within {} s",
                    policy.ci_idle_deadline_seconds
                ),
            },
        };
    }
    CiReading::Pending
}

/// What ends a wait for checks without a verdict.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    /// The whole wait.
    Poll,
    /// The time with no check changing.
    Idle,
}

/// When a wait ends without a verdict: at the earlier of these. `changes` are the instants at which the
/// checks changed last.
pub fn deadlines(
    changes: impl Iterator<Item = Timestamp>,
    wait: Wait,
    policy: &Policy,
) -> [(Timestamp, Limit); 2] {
    let last_change = changes.fold(wait.started_at, Ord::max);
    [
        (
            wait.started_at.after(policy.ci_poll_deadline()),
            Limit::Poll,
        ),
        (last_change.after(policy.ci_idle_deadline()), Limit::Idle),
    ]
}

fn verdict(checks: &[CheckState], policy: &Policy) -> CiReading {
    let failures: Vec<CheckFailure> = checks
        .iter()
        .filter_map(|check| {
            let conclusion = check.conclusion.filter(|c| !c.is_passing())?;
            Some(CheckFailure {
                name: check.name.clone(),
                conclusion,
                log_tail: check.log_tail.clone(),
            })
        })
        .collect();
    if failures.is_empty() {
        return CiReading::Green;
    }
    let is_flaky = failures.iter().all(|failure| {
        failure.conclusion.is_infrastructure() || is_known_flaky(&failure.name, policy)
    });
    CiReading::Red { is_flaky, failures }
}

fn is_known_flaky(name: &str, policy: &Policy) -> bool {
    policy
        .flaky_checks
        .iter()
        .any(|pattern| wildmatch::WildMatch::new(pattern).matches(name))
}
