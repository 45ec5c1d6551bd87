//! What workers say and hear, as wire types.

use std::time::Duration;

use pointsman_proto::v1;

use super::{
    convert::{domain_role, instant, kind, lease_key, role},
    fields::{
        FieldError, MAX_LABEL, MAX_LINE, MAX_LIST, MAX_TEXT, id, line, list, optional, present,
        stored, within,
    },
};
use crate::{
    domain::{
        attempt::{InfrastructureClass, Role},
        ids::{CommitId, Fence, LeaseKey},
        time::Timestamp,
        verdict::Verdict,
        workflow::Facts,
    },
    service::{Completion, Grant, Heard, Registration, Stop},
    store::model::{ProfileRow, ProgressRow, StateDirectory, WorkerRow},
};

/// Most sessions of one worker.
pub(super) const MAX_CAPACITY: u32 = 1000;
/// Longest name, host or version of a worker, in bytes.
const MAX_WORKER_TEXT: usize = 200;
/// Longest message of an infrastructure error, in bytes.
const MAX_ERROR_MESSAGE: usize = 4096;
/// Longest end of a check's log, in bytes.
const MAX_LOG_TAIL: usize = 16_384;

pub(super) fn domain_key(field: &str, wire: Option<v1::LeaseKey>) -> Result<LeaseKey, FieldError> {
    let wire = present(field, wire)?;
    Ok(LeaseKey {
        attempt: id(&format!("{field}.attempt_id"), &wire.attempt_id)?,
        fence: Fence(stored(&format!("{field}.lock_fence"), wire.lock_fence)?),
        nonce: id(&format!("{field}.lock_nonce"), &wire.lock_nonce)?,
    })
}

fn roles(field: &str, wire: &[i32]) -> Result<Vec<Role>, FieldError> {
    list(field, wire, Role::ALL.len())?
        .iter()
        .map(|role| domain_role(field, *role))
        .collect()
}

pub(super) fn registration(wire: v1::RegisterRequest) -> Result<Registration, FieldError> {
    let directory = present("state_directory", wire.state_directory)?;
    list("profiles", &wire.profiles, MAX_LIST)?;
    list("labels", &wire.labels, MAX_LIST)?;
    list("sessions", &wire.sessions, MAX_LIST)?;
    for label in &wire.labels {
        line("labels", label, MAX_LABEL)?;
    }
    let roles = roles("roles", &wire.roles)?;
    let mut profiles = wire
        .profiles
        .iter()
        .map(profile)
        .collect::<Result<Vec<_>, _>>()?;
    if roles.contains(&Role::Ci) {
        profiles.push(ProfileRow {
            name: String::new(),
            roles: vec![Role::Ci],
            tiers: Vec::new(),
            account: String::new(),
            kill_budget: kill_budget("check_kill_budget", wire.check_kill_budget)?,
        });
    }
    let unconfirmed = wire
        .sessions
        .into_iter()
        .map(|session| domain_key("sessions.lease", session.lease))
        .collect::<Result<_, _>>()?;
    Ok(Registration {
        worker: WorkerRow {
            id: id("worker_id", &wire.worker_id)?,
            instance: id("instance_id", &wire.instance_id)?,
            name: line("name", &wire.name, MAX_WORKER_TEXT)?.to_owned(),
            host: line("host", &wire.host, MAX_WORKER_TEXT)?.to_owned(),
            boot_id: line("boot_id", &wire.boot_id, MAX_WORKER_TEXT)?.to_owned(),
            version: line("version", &wire.version, MAX_WORKER_TEXT)?.to_owned(),
            state_directory: StateDirectory {
                device: directory.device,
                inode: directory.inode,
                created_at_nanos: directory.created_at_nanos,
            },
            capacity: within("capacity", wire.capacity, 1, MAX_CAPACITY)?,
            roles,
            labels: wire.labels,
            profiles,
            // Both are set by the service, by the master's clock.
            registered_at: Timestamp(0),
            last_beat_at: Timestamp(0),
            drain: None,
            declared_dead_at: None,
        },
        unconfirmed,
    })
}

fn profile(wire: &v1::HarnessProfile) -> Result<ProfileRow, FieldError> {
    Ok(ProfileRow {
        name: line("profiles.name", &wire.name, MAX_WORKER_TEXT)?.to_owned(),
        roles: roles("profiles.roles", &wire.roles)?,
        tiers: list("profiles.tiers", &wire.tiers, MAX_LIST)?.to_vec(),
        kill_budget: kill_budget("profiles.kill_budget", wire.kill_budget)?,
        account: match wire.account.as_str() {
            "" => String::new(),
            account => line("profiles.account", account, MAX_WORKER_TEXT)?.to_owned(),
        },
    })
}

fn kill_budget(field: &str, wire: Option<prost_types::Duration>) -> Result<Duration, FieldError> {
    Duration::try_from(present(field, wire)?).map_err(|_| FieldError::new(field, "is negative"))
}

pub(super) fn lease(grant: Grant) -> v1::Lease {
    let key = grant.lease.key;
    v1::Lease {
        key: Some(lease_key(key)),
        ttl: Some(prost_types::Duration {
            seconds: grant.lease.ttl_seconds.into(),
            nanos: 0,
        }),
        role: role(grant.attempt.role).into(),
        tier: grant.attempt.tier,
        profile: grant.lease.profile,
        repository: Some(v1::Repository {
            id: grant.repository.id.to_string(),
            name: grant.repository.name,
            git_url: grant.repository.git_url,
        }),
        workflow_id: grant.workflow.id.to_string(),
        kind: kind(grant.workflow.kind).into(),
        number: grant.workflow.number,
        title: grant.workflow.title.clone(),
        body: grant.workflow.body.clone(),
        base_ref: grant.workflow.base_ref.clone(),
        checkout_commit: grant.checkout_commit.to_string(),
        push_ref: key.push_ref(),
        facts: Some(facts(
            &grant.workflow.progress().facts,
            grant.attempt.earlier_failure(),
        )),
        check: grant.check.map(|run| v1::Check {
            name: run.name,
            command: run.command,
        }),
    }
}

fn facts(facts: &Facts, of_this_attempt: Option<String>) -> v1::Facts {
    v1::Facts {
        plan: facts.plan.clone().unwrap_or_default(),
        ci_failures: facts
            .ci_failures
            .iter()
            .map(|failure| v1::CheckFailure {
                name: failure.name.clone(),
                conclusion: failure.conclusion.to_string(),
                log_tail: failure.log_tail.clone(),
            })
            .collect(),
        review_notes: facts.review_notes.clone().unwrap_or_default(),
        conflict_paths: facts.conflict_paths.clone(),
        superseded_commits: facts
            .superseded_commits
            .iter()
            .map(ToString::to_string)
            .collect(),
        earlier_failures: facts
            .earlier_failures
            .iter()
            .cloned()
            .chain(of_this_attempt)
            .collect(),
    }
}

pub(super) fn beats(wire: Vec<v1::SessionBeat>) -> Result<Vec<ProgressRow>, FieldError> {
    list("sessions", &wire, MAX_LIST)?;
    wire.into_iter().map(beat).collect()
}

fn beat(wire: v1::SessionBeat) -> Result<ProgressRow, FieldError> {
    let phase = match wire.phase() {
        v1::SessionPhase::Preparing => "preparing",
        v1::SessionPhase::Running => "running",
        v1::SessionPhase::Finishing => "finishing",
        v1::SessionPhase::Unspecified => {
            return Err(FieldError::new("sessions.phase", "is not set"));
        }
    };
    Ok(ProgressRow {
        key: domain_key("sessions.lease", wire.lease)?,
        phase: phase.to_owned(),
        subprocess_pid: wire.subprocess_pid,
        subprocess_starttime: stored("sessions.subprocess_starttime", wire.subprocess_starttime)?,
        last_output_at: wire
            .last_output_at
            .map(|at| instant("sessions.last_output_at", at))
            .transpose()?,
        log_bytes: stored("sessions.log_bytes", wire.log_bytes)?,
    })
}

pub(super) fn directives(heard: Heard) -> Vec<v1::Directive> {
    let drain = heard.drain.map(|drain| v1::Directive {
        action: v1::directive::Action::Drain.into(),
        reason: drain.reason,
        stop_sessions: drain.stops_sessions,
        ..v1::Directive::default()
    });
    heard
        .stops
        .into_iter()
        .map(directive)
        .chain(drain)
        .collect()
}

fn directive(stop: Stop) -> v1::Directive {
    use v1::directive::Action;
    let (action, key, reason) = match stop {
        Stop::Cancelled { key, reason } => (Action::Cancel, key, reason),
        Stop::LeaseLost { key } => (Action::LeaseLost, key, "the lease is over".to_owned()),
    };
    v1::Directive {
        action: action.into(),
        lease: Some(lease_key(key)),
        reason,
        stop_sessions: false,
    }
}

pub(super) fn completion(
    outcome: Option<v1::complete_request::Outcome>,
) -> Result<Completion, FieldError> {
    use v1::complete_request::Outcome;
    match present("outcome", outcome)? {
        Outcome::Verdict(wire) => verdict(wire).map(Completion::Verdict),
        Outcome::InfrastructureError(wire) => Ok(Completion::InfrastructureError {
            class: class(wire.class())?,
            message: optional(
                "infrastructure_error.message",
                &wire.message,
                MAX_ERROR_MESSAGE,
            )?
            .to_owned(),
            reset_at: wire
                .reset_at
                .map(|at| instant("infrastructure_error.reset_at", at))
                .transpose()?,
        }),
        Outcome::CheckResult(wire) => Ok(Completion::CheckResult {
            exit_status: within("check_result.exit_status", wire.exit_status, 0, 255)?,
            log_tail: optional("check_result.log_tail", &wire.log_tail, MAX_LOG_TAIL)?.to_owned(),
        }),
    }
}

fn class(wire: v1::infrastructure_error::Class) -> Result<InfrastructureClass, FieldError> {
    use v1::infrastructure_error::Class;
    Ok(match wire {
        Class::Crashed => InfrastructureClass::Crashed,
        Class::NoValidResult => InfrastructureClass::NoValidResult,
        Class::TimedOut => InfrastructureClass::TimedOut,
        Class::Silent => InfrastructureClass::Silent,
        Class::WorkspaceFailed => InfrastructureClass::WorkspaceFailed,
        Class::LeaseLost => InfrastructureClass::LeaseLost,
        Class::ProviderQuota => InfrastructureClass::ProviderQuota,
        Class::ProviderOutage => InfrastructureClass::ProviderOutage,
        Class::BadCredentials => InfrastructureClass::BadCredentials,
        Class::PermissionDenied => InfrastructureClass::PermissionDenied,
        Class::Unspecified => {
            return Err(FieldError::new("infrastructure_error.class", "is not set"));
        }
    })
}

fn verdict(wire: v1::Verdict) -> Result<Verdict, FieldError> {
    use v1::verdict::Verdict as Wire;
    let text = |field: &str, text: String| -> Result<String, FieldError> {
        optional(&format!("verdict.{field}"), &text, MAX_TEXT)?;
        Ok(text)
    };
    Ok(match present("verdict", wire.verdict)? {
        Wire::Ready(v) => Verdict::Ready {
            tier: (v.tier != 0).then_some(v.tier),
            plan: text("plan", v.plan)?,
        },
        Wire::ChangePresent(_) => Verdict::ChangePresent,
        Wire::Declined(v) => Verdict::Declined {
            reason: text("reason", v.reason)?,
        },
        Wire::Unsure(v) => Verdict::Unsure {
            reason: text("reason", v.reason)?,
        },
        Wire::Changed(v) => Verdict::Changed {
            commit: commit("verdict.commit", v.commit)?,
            summary: text("summary", v.summary)?,
        },
        Wire::NoChange(v) => Verdict::NoChange {
            reason: text("reason", v.reason)?,
        },
        Wire::Failed(v) => Verdict::Failed {
            reason: text("reason", v.reason)?,
        },
        Wire::Conflict(v) => Verdict::Conflict {
            paths: paths(v.paths)?,
        },
        Wire::Resolved(v) => Verdict::Resolved {
            commit: match v.commit.is_empty() {
                true => None,
                false => Some(commit("verdict.commit", v.commit)?),
            },
        },
        Wire::Unresolved(v) => Verdict::Unresolved {
            reason: text("reason", v.reason)?,
        },
        Wire::Retry(v) => Verdict::Retry {
            plan: text("plan", v.plan)?,
        },
        Wire::GiveUp(v) => Verdict::GiveUp {
            reason: text("reason", v.reason)?,
        },
        Wire::Approve(v) => Verdict::Approve {
            notes: text("notes", v.notes)?,
        },
        Wire::RequestChanges(v) => Verdict::RequestChanges {
            notes: text("notes", v.notes)?,
        },
        Wire::Reject(v) => Verdict::Reject {
            reason: text("reason", v.reason)?,
        },
    })
}

fn paths(paths: Vec<String>) -> Result<Vec<String>, FieldError> {
    list("verdict.paths", &paths, MAX_LIST)?;
    for path in &paths {
        optional("verdict.paths", path, MAX_LINE)?;
    }
    Ok(paths)
}

fn commit(field: &str, text: String) -> Result<CommitId, FieldError> {
    CommitId::try_from(text).map_err(|error| FieldError::new(field, error.to_string()))
}
