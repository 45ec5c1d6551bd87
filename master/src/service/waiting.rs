//! "Why is it not moving?": an answer for every workflow that is not terminal, from facts that were read
//! before. Its text changes only where something has changed; how long ago is for whoever shows it.

use std::time::Duration;

use super::takers::{Fleet, Need, Takers};
use crate::{
    domain::{
        attempt::{Attempt, AttemptStatus, MAX_UNCHARGED_ERRORS, Role, Subject},
        ci::{CheckDefinition, Wait, deadlines},
        ids::CommitId,
        time::Timestamp,
        transitions::State,
        workflow::{Pause, PausedBy},
    },
    store::model::{AttemptRow, CheckRun, OpenEffectRow, Repository, SessionRow, WorkflowRow},
};

/// How long a session may print nothing before that is told: harnesses think for a while between lines.
const QUIET_AFTER: Duration = Duration::from_secs(60);

/// How many checks are told of one by one; one line has to hold them.
const TOLD_CHECKS: usize = 5;

/// What a workflow waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Waiting {
    pub text: String,
    pub since: Timestamp,
    pub deadline: Option<Timestamp>,
    pub next_look_at: Option<Timestamp>,
}

/// What is known of a workflow and of those who could move it.
#[derive(Debug)]
pub(super) struct Facts<'a> {
    pub(super) row: &'a WorkflowRow,
    pub(super) repository: &'a Repository,
    /// At least those that are live.
    pub(super) attempts: &'a [AttemptRow],
    pub(super) effect: Option<&'a OpenEffectRow>,
    /// Of its head.
    pub(super) checks: &'a [CheckRun],
    /// Of its attempts.
    pub(super) sessions: &'a [SessionRow],
    /// Workflows of its repository past DISCOVERED and not terminal.
    pub(super) n_live: u32,
    pub(super) fleet: &'a Fleet,
}

/// Says what the workflow waits for; `None` where it is terminal.
pub(super) fn waiting(facts: &Facts<'_>) -> Option<Waiting> {
    let state = facts.row.workflow.state();
    if state.is_terminal() {
        return None;
    }
    let waiting = match (facts.row.workflow.progress().pause, facts.effect) {
        (Some(pause), _) => facts.paused(pause),
        (None, Some(effect)) => facts.effect(effect),
        (None, None) => facts.step(state),
    };
    Some(Waiting {
        // What forges and harnesses say has many lines.
        text: waiting
            .text
            .split_whitespace()
            .collect::<Vec<_>>()
            .join(" "),
        ..waiting
    })
}

impl Facts<'_> {
    /// What nothing but the state tells.
    fn step(&self, state: State) -> Waiting {
        match state {
            State::AwaitingCi => self.ci(),
            State::Discovered => self.room(),
            State::Analyzing
            | State::Implementing
            | State::ConflictResolving
            | State::Escalating
            | State::Reviewing => self.attempt(),
            State::Merging
            | State::Paused
            | State::Merged
            | State::CreatedPr
            | State::Abandoned
            | State::Stuck => self.only("for its next step to be scheduled"),
        }
    }

    /// A wait that nothing bounds and nobody looks at by a plan.
    fn only(&self, text: impl Into<String>) -> Waiting {
        Waiting {
            text: text.into(),
            since: self.row.state_since,
            deadline: None,
            next_look_at: None,
        }
    }

    /// The live attempt of the workflow itself.
    fn live(&self) -> Option<&Attempt> {
        let attempts = self.attempts.iter().map(|row| &row.attempt);
        attempts
            .filter(|attempt| attempt.subject == Subject::Workflow)
            .find(|attempt| attempt.status.is_live())
    }

    fn paused(&self, pause: Pause) -> Waiting {
        let Self {
            row, repository, ..
        } = self;
        let was = pause.was;
        let mut text = match pause.by {
            PausedBy::Label => format!(
                "for the label {} on #{}; with it, it goes on in {was}",
                repository.label, row.workflow.number
            ),
            PausedBy::Operator => format!("for an operator to resume it; then it goes on in {was}"),
        };
        let running = self
            .live()
            .filter(|a| a.status == AttemptStatus::InProgress);
        if let Some(attempt) = running {
            text = format!("{text}; meanwhile {} runs on", self.session(attempt));
        } else if let Some(effect) = self.effect {
            text = format!("{text} with {}", effect.effect.name());
        }
        self.only(text)
    }

    fn room(&self) -> Waiting {
        let name = &self.repository.name;
        let (n_live, limit) = (self.n_live, self.repository.policy.max_live_workflows);
        self.only(if n_live < limit {
            format!("for the scheduler to admit it; of {name} {n_live} are live, and {limit} may be")
        } else {
            format!("for room: of {name} {n_live} are live, and max_live_workflows of its policy is {limit}")
        })
    }

    fn effect(&self, effect: &OpenEffectRow) -> Waiting {
        let policy = &self.repository.policy;
        let state_since = self.row.state_since;
        let failing_since = effect.failing_since(state_since);
        let mut text = format!("for {} on the forge", effect.effect.name());
        if failing_since.is_some() {
            let (tries, limit) = (effect.tries, policy.effect_tries);
            text = format!("{text}, of which {tries} of {limit} tries failed");
        }
        if !effect.waiting_for.is_empty() {
            text = format!("{text}: {}", effect.waiting_for);
        }
        let deadline = if self.row.workflow.state() == State::Merging {
            let started_at = self.row.workflow.progress().merging_started_at;
            let started_at = started_at.unwrap_or(state_since);
            Some(started_at.after(policy.merge_deadline()))
        } else {
            failing_since.map(|since| since.after(policy.effect_deadline()))
        };
        Waiting {
            text,
            since: effect.opened_at,
            deadline,
            next_look_at: Some(effect.next_try_at),
        }
    }

    fn ci(&self) -> Waiting {
        let policy = &self.repository.policy;
        let progress = self.row.workflow.progress();
        let since = progress
            .awaiting_ci_started_at
            .unwrap_or(self.row.state_since);
        let head = progress.head.as_ref().map_or("no head yet", short);
        let open: Vec<&CheckRun> = self
            .checks
            .iter()
            .filter(|check| check.conclusion.is_none())
            .collect();
        let text = if self.checks.is_empty() {
            let names = self.repository.checks.iter();
            let names: Vec<&str> = names.map(|CheckDefinition { name, .. }| &**name).collect();
            match names.as_slice() {
                [] if policy.ci_optional => format!(
                    "for a first check on {head}; it goes on without one {} s after the wait began",
                    policy.ci_appear_deadline_seconds
                ),
                [] => format!(
                    "for a first check on {head}: {} has none",
                    self.repository.name
                ),
                names => format!("for checks to start on {head}: {}", names.join(", ")),
            }
        } else if open.is_empty() {
            format!("for the verdict of CI on {head} to be read: every check has ended")
        } else {
            let (n_open, n) = (open.len(), self.checks.len());
            let mut told: Vec<String> = open
                .iter()
                .take(TOLD_CHECKS)
                .map(|check| self.check(check))
                .collect();
            if n_open > TOLD_CHECKS {
                told.push(format!("{} more", n_open - TOLD_CHECKS));
            }
            let told = told.join("; ");
            match n {
                1 => format!("for the check on {head}: {told}"),
                n => format!("for {n_open} of {n} checks on {head}: {told}"),
            }
        };
        let changes = self.checks.iter().map(|check| check.changed_at);
        let deadlines = deadlines(changes, Wait { started_at: since }, policy);
        Waiting {
            text,
            since,
            deadline: deadlines.into_iter().map(|(at, _)| at).min(),
            next_look_at: self.row.ci_next_poll_at,
        }
    }

    fn check(&self, check: &CheckRun) -> String {
        let name = &check.name;
        let attempts = self.attempts.iter().map(|row| &row.attempt);
        let live = attempts
            .filter(|attempt| attempt.subject == Subject::Check(check.id))
            .find(|attempt| attempt.status.is_live());
        match live {
            None => format!("{name} is to be scheduled"),
            Some(attempt) if attempt.status == AttemptStatus::InProgress => {
                format!("{name} runs{}", self.place(attempt))
            }
            Some(attempt) => format!("{name} waits for {}", self.pending(attempt).text),
        }
    }

    fn attempt(&self) -> Waiting {
        let Some(attempt) = self.live() else {
            return self.only("for its next attempt to be scheduled");
        };
        if attempt.status == AttemptStatus::InProgress {
            return Waiting {
                text: format!("for {} to end", self.session(attempt)),
                since: attempt.started_at.unwrap_or(attempt.created_at),
                deadline: None,
                next_look_at: None,
            };
        }
        let Pending { text, until } = self.pending(attempt);
        let mut text = format!("for {text}");
        if self.row.workflow.progress().head.is_none() {
            let base = &self.row.workflow.base_ref;
            text = format!("{text}; first the forge has to tell the commit of {base}");
        }
        Waiting {
            text,
            since: attempt
                .not_before
                .filter(|not_before| *not_before <= self.fleet.now)
                .unwrap_or(attempt.created_at),
            deadline: None,
            next_look_at: until,
        }
    }

    /// What a pending attempt waits for.
    fn pending(&self, attempt: &Attempt) -> Pending {
        let now = self.fleet.now;
        let need = Need::from(attempt);
        let backoff = attempt.not_before.filter(|not_before| *not_before > now);
        let whom = match attempt.subject {
            Subject::Workflow => format!("{} attempt", with_article(attempt.role)),
            Subject::Check(_) => "it".to_owned(),
        };
        let mut text = format!("a worker to take {whom}");
        if let Some(not_before) = backoff {
            text = format!("{text}, not before {}", instant(not_before));
        }
        if let Some(after) = self.earlier(attempt) {
            text = format!("{text}, {after}");
        }
        match self.fleet.takers(need) {
            Takers::Workers(n) => {
                let workers = if n == 1 {
                    "worker takes"
                } else {
                    "workers take"
                };
                Pending {
                    text: format!("{text}; {n} live {workers} it, given a free slot"),
                    until: backoff,
                }
            }
            Takers::Nobody(obstacle) => Pending {
                text: format!("{text}; {}", obstacle.text(need)),
                until: backoff.max(obstacle.until(now)),
            },
        }
    }

    /// After which error it is pending again.
    fn earlier(&self, attempt: &Attempt) -> Option<String> {
        let outcome = attempt.outcome.as_ref()?;
        let mut text = format!("after {}", outcome.name);
        if let Some(message) = outcome.detail["message"].as_str() {
            let line = message.lines().next().unwrap_or_default();
            text = format!("{text}: {line}");
        }
        let Attempt {
            pickup_count,
            uncharged_errors,
            ..
        } = attempt;
        let max_pickups = self.repository.policy.max_pickups;
        text = format!("{text} (pickup {pickup_count} of {max_pickups}");
        if *uncharged_errors > 0 {
            text = format!("{text}, uncharged error {uncharged_errors} of {MAX_UNCHARGED_ERRORS}");
        }
        Some(format!("{text})"))
    }

    /// An attempt that runs, and where it does.
    fn session(&self, attempt: &Attempt) -> String {
        let Attempt {
            id, role, fence, ..
        } = attempt;
        let role = with_article(*role);
        format!(
            "{role} attempt{} ({id}, lease {fence})",
            self.place(attempt)
        )
    }

    /// On which worker an attempt runs, and how that stands.
    fn place(&self, attempt: &Attempt) -> String {
        let session = self
            .sessions
            .iter()
            .find(|session| session.lease.key.attempt == attempt.id);
        let Some(session) = session else {
            return String::new();
        };
        let name = match session.worker_name.as_str() {
            "" => session.lease.worker.to_string(),
            name => name.to_owned(),
        };
        let Some(progress) = &session.progress else {
            return format!(" on worker {name}, which has not told of it yet");
        };
        let quiet = progress
            .last_output_at
            .filter(|at| self.fleet.now.since(*at) >= QUIET_AFTER);
        let quiet = quiet.map(|at| format!(", silent since {}", instant(at)));
        format!(
            " on worker {name}, {}{}",
            progress.phase,
            quiet.unwrap_or_default()
        )
    }
}

/// What a pending attempt waits for.
struct Pending {
    text: String,
    /// Before then nothing changes by itself.
    until: Option<Timestamp>,
}

fn short(commit: &CommitId) -> &str {
    commit.as_str().get(..12).unwrap_or(commit.as_str())
}

fn with_article(role: Role) -> String {
    let name = role.as_str();
    let article = if name.starts_with(['a', 'e', 'i', 'o', 'u']) {
        "an"
    } else {
        "a"
    };
    format!("{article} {name}")
}

/// To the second, in UTC.
fn instant(at: Timestamp) -> String {
    let seconds = at.0.div_euclid(1_000_000);
    jiff::Timestamp::from_second(seconds).map_or_else(|_| at.0.to_string(), |at| at.to_string())
}

#[cfg(test)]
mod tests;
