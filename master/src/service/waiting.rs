//! "Why is it not moving?": an answer for every workflow that is not terminal.

use super::leasing::offers;
use crate::{
    domain::{
        attempt::{Attempt, AttemptStatus, Subject},
        hold::{Gate, Hold, gate},
        ids::CommitId,
        time::Timestamp,
        transitions::State,
        workflow::PausedBy,
    },
    store::model::{AttemptRow, CheckRun, OpenEffectRow, Repository, WorkerRow, WorkflowRow},
};

/// What a workflow waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Waiting {
    pub text: String,
    pub since: Timestamp,
    pub deadline: Option<Timestamp>,
    pub next_look_at: Option<Timestamp>,
}

/// Who could take work now.
#[derive(Debug)]
pub(super) struct Fleet {
    /// Those that are alive and neither drained nor declared dead.
    pub(super) workers: Vec<WorkerRow>,
    pub(super) holds: Vec<Hold>,
    pub(super) now: Timestamp,
}

/// Says what the workflow waits for; `None` where it is terminal.
pub(super) fn waiting(
    row: &WorkflowRow,
    repository: &Repository,
    attempts: &[AttemptRow],
    effect: Option<&OpenEffectRow>,
    checks: &[CheckRun],
    fleet: &Fleet,
) -> Option<Waiting> {
    let state = row.workflow.state();
    if state.is_terminal() {
        return None;
    }
    if let Some(pause) = row.workflow.progress().pause {
        return Some(Waiting {
            text: match pause.by {
                PausedBy::Label => format!(
                    "for the label {}; goes on in {}",
                    repository.label, pause.was
                ),
                PausedBy::Operator => format!("for an operator to resume it in {}", pause.was),
            },
            since: row.state_since,
            deadline: None,
            next_look_at: None,
        });
    }
    if let Some(effect) = effect {
        return Some(effect_waiting(row, repository, effect));
    }
    match state {
        State::AwaitingCi => Some(ci_waiting(row, repository, checks)),
        State::Discovered => Some(Waiting {
            text: format!(
                "for room: {} takes {} workflows at once",
                repository.name, repository.policy.max_live_workflows
            ),
            since: row.state_since,
            deadline: None,
            next_look_at: None,
        }),
        State::Analyzing
        | State::Implementing
        | State::ConflictResolving
        | State::Escalating
        | State::Reviewing
        | State::Merging
        | State::Paused
        | State::Merged
        | State::CreatedPr
        | State::Abandoned
        | State::Stuck => Some(attempt_waiting(row, attempts, fleet)),
    }
}

fn effect_waiting(row: &WorkflowRow, repository: &Repository, effect: &OpenEffectRow) -> Waiting {
    let mut text = format!("for {} on the forge", effect.effect.name());
    if !effect.waiting_for.is_empty() {
        text = format!("{text}: {}", effect.waiting_for);
    }
    let policy = &repository.policy;
    let deadline = if row.workflow.state() == State::Merging {
        let started_at = row.workflow.progress().merging_started_at;
        started_at.map(|started_at| started_at.after(policy.merge_deadline()))
    } else {
        let failing_since = effect.first_failure_at;
        failing_since.map(|since| since.after(policy.effect_deadline()))
    };
    Waiting {
        text,
        since: effect.opened_at,
        deadline,
        next_look_at: Some(effect.next_try_at),
    }
}

fn ci_waiting(row: &WorkflowRow, repository: &Repository, checks: &[CheckRun]) -> Waiting {
    let progress = row.workflow.progress();
    let since = progress.awaiting_ci_started_at.unwrap_or(row.state_since);
    let head = progress.head.as_ref().map_or("no head", short);
    let names: Vec<&str> = checks
        .iter()
        .filter(|check| check.conclusion.is_none())
        .map(|check| check.name.as_str())
        .collect();
    let text = if checks.is_empty() {
        format!("for a first check on {head}")
    } else if names.is_empty() {
        format!("for the verdict of CI on {head} to be read")
    } else {
        format!("for check {} on {head}", names.join(", "))
    };
    Waiting {
        text,
        since,
        deadline: Some(since.after(repository.policy.ci_poll_deadline())),
        next_look_at: row.ci_next_poll_at,
    }
}

fn short(commit: &CommitId) -> &str {
    commit.as_str().get(..12).unwrap_or(commit.as_str())
}

fn attempt_waiting(row: &WorkflowRow, attempts: &[AttemptRow], fleet: &Fleet) -> Waiting {
    let live = attempts
        .iter()
        .map(|row| &row.attempt)
        .find(|attempt| attempt.status.is_live() && attempt.subject == Subject::Workflow);
    let Some(attempt) = live else {
        return Waiting {
            text: "for its next attempt to be scheduled".to_owned(),
            since: row.state_since,
            deadline: None,
            next_look_at: None,
        };
    };
    if attempt.status == AttemptStatus::InProgress {
        return Waiting {
            text: format!(
                "for {} attempt {} (lease {})",
                attempt.role, attempt.id, attempt.fence
            ),
            since: attempt.started_at.unwrap_or(attempt.created_at),
            deadline: None,
            next_look_at: None,
        };
    }
    let mut text = format!("for a worker to take a {} attempt", attempt.role);
    if let Some(outcome) = &attempt.outcome {
        let n_pickups = attempt.pickup_count;
        text = format!("{text}; pickup {n_pickups} ended in {}", outcome.name);
    }
    let mut next_look_at = attempt.not_before;
    if let Some(obstacle) = fleet.obstacle(attempt) {
        text = format!("{text}; {}", obstacle.text);
        next_look_at = next_look_at.max(obstacle.until);
    }
    Waiting {
        text,
        since: attempt.not_before.unwrap_or(attempt.created_at),
        deadline: None,
        next_look_at,
    }
}

/// Why none of the workers takes an attempt.
#[derive(Debug, PartialEq, Eq)]
struct Obstacle {
    text: String,
    /// When that may end.
    until: Option<Timestamp>,
}

impl Fleet {
    /// `None` where somebody could take the attempt, as soon as a slot is free.
    fn obstacle(&self, attempt: &Attempt) -> Option<Obstacle> {
        let mut soonest: Option<&Hold> = None;
        for worker in &self.workers {
            for offer in offers(worker) {
                if !offer.fits(attempt.role, attempt.tier, attempt.lock_ttl_seconds) {
                    continue;
                }
                let runner = offer.runner(worker.id);
                if gate(&self.holds, runner, self.now) != Gate::Held {
                    return None;
                }
                let covering = self.holds.iter().filter(|h| h.subject.covers(runner));
                let last = covering.max_by_key(|hold| hold.until);
                soonest = soonest
                    .into_iter()
                    .chain(last)
                    .min_by_key(|hold| hold.until);
            }
        }
        Some(match soonest {
            None => Obstacle {
                text: format!("no live worker takes it at tier {}", attempt.tier),
                until: None,
            },
            Some(hold) => Obstacle {
                text: match hold.canary {
                    None => format!("{} is held ({})", hold.subject, hold.class),
                    Some((canary, _)) => format!(
                        "{} is held ({}) until canary {canary} has a verdict",
                        hold.subject, hold.class
                    ),
                },
                until: Some(hold.until).filter(|until| *until > self.now),
            },
        })
    }
}
