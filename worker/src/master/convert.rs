//! Between the wire and what the worker works with. Nothing is guessed: what is missing or unknown is
//! an error that names the field.

use std::time::{Duration, SystemTime};

use pointsman_proto::v1::{
    self, complete_request, infrastructure_error::Class, verdict::Verdict as WireVerdict,
};
use uuid::Uuid;

use super::{Answer, Caller, NotUnderstood};
use crate::{
    assignment::{Assignment, CiFailure, Commit, Item, Job, Kind, LeaseKey, Repository, Role},
    harness::{
        profile::{Limits, Profile},
        result::Verdict,
    },
    lease::BootTime,
    state::Identity,
    text::{head, tail},
};

/// Most bytes of an error's message on the wire.
const MESSAGE_MAX: usize = 4096;

/// Most bytes of a check's log on the wire.
const LOG_TAIL_MAX: usize = 16_384;

/// What a worker says of itself in Register.
#[derive(Debug, Clone)]
pub(crate) struct Introduction {
    pub(crate) name: String,
    pub(crate) host: String,
    pub(crate) boot_id: String,
    pub(crate) state_directory: Identity,
    pub(crate) capacity: u32,
    pub(crate) roles: Vec<Role>,
    pub(crate) labels: Vec<String>,
    pub(crate) profiles: Vec<Profile>,
    pub(crate) ci_limits: Limits,
    /// Sessions on disk that could not be confirmed dead.
    pub(crate) unconfirmed: Vec<LeaseKey>,
}

impl Introduction {
    pub(super) fn to_wire(&self, caller: Caller) -> v1::RegisterRequest {
        v1::RegisterRequest {
            worker_id: caller.worker_id.to_string(),
            instance_id: caller.instance_id.to_string(),
            name: self.name.clone(),
            host: self.host.clone(),
            boot_id: self.boot_id.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            state_directory: Some(v1::StateDirectoryIdentity {
                device: self.state_directory.device,
                inode: self.state_directory.inode,
                created_at_nanos: self.state_directory.created_at_nanos,
            }),
            capacity: self.capacity,
            roles: to_roles(&self.roles),
            labels: self.labels.clone(),
            profiles: self.profiles.iter().map(to_profile).collect(),
            sessions: self
                .unconfirmed
                .iter()
                .map(|key| v1::UnconfirmedSession {
                    lease: Some(to_key(key)),
                })
                .collect(),
            check_kill_budget: to_duration(self.ci_limits.kill_budget()),
        }
    }
}

fn to_profile(profile: &Profile) -> v1::HarnessProfile {
    v1::HarnessProfile {
        name: profile.name.clone(),
        roles: to_roles(&profile.roles),
        tiers: profile.tiers.clone(),
        kill_budget: to_duration(profile.limits.kill_budget()),
        account: profile.account.clone(),
    }
}

fn to_roles(roles: &[Role]) -> Vec<i32> {
    roles.iter().map(|role| to_role(*role).into()).collect()
}

const fn to_role(role: Role) -> v1::Role {
    match role {
        Role::Estimator => v1::Role::Estimator,
        Role::Implementer => v1::Role::Implementer,
        Role::Reviewer => v1::Role::Reviewer,
        Role::ConflictResolver => v1::Role::ConflictResolver,
        Role::Escalator => v1::Role::Escalator,
        Role::Ci => v1::Role::Ci,
    }
}

fn role(role: i32) -> Option<Role> {
    match v1::Role::try_from(role).ok()? {
        v1::Role::Unspecified => None,
        v1::Role::Estimator => Some(Role::Estimator),
        v1::Role::Implementer => Some(Role::Implementer),
        v1::Role::Reviewer => Some(Role::Reviewer),
        v1::Role::ConflictResolver => Some(Role::ConflictResolver),
        v1::Role::Escalator => Some(Role::Escalator),
        v1::Role::Ci => Some(Role::Ci),
    }
}

fn kind(kind: i32) -> Option<Kind> {
    match v1::WorkflowKind::try_from(kind).ok()? {
        v1::WorkflowKind::Unspecified => None,
        v1::WorkflowKind::Issue => Some(Kind::Issue),
        v1::WorkflowKind::PullRequest => Some(Kind::PullRequest),
    }
}

pub(super) fn to_key(key: &LeaseKey) -> v1::LeaseKey {
    v1::LeaseKey {
        attempt_id: key.attempt_id.to_string(),
        lock_fence: key.fence,
        lock_nonce: key.nonce().to_owned(),
    }
}

fn key(key: &v1::LeaseKey) -> Option<LeaseKey> {
    let attempt_id: Uuid = key.attempt_id.parse().ok()?;
    LeaseKey::new(attempt_id, key.lock_fence, &key.lock_nonce)
}

/// Unset for durations that the wire can't hold.
pub(super) fn to_duration(duration: Duration) -> Option<prost_types::Duration> {
    prost_types::Duration::try_from(duration).ok()
}

/// Unset for negative durations too.
pub(super) fn duration(duration: Option<prost_types::Duration>) -> Option<Duration> {
    Duration::try_from(duration?).ok()
}

/// Understands a lease that was asked for at `asked_at`.
pub(super) fn assignment(
    lease: v1::Lease,
    asked_at: BootTime,
) -> Result<Assignment, NotUnderstood> {
    let key = lease.key.as_ref().and_then(key).ok_or(NotUnderstood {
        key: None,
        field: "key",
    })?;
    fields(lease, key.clone(), asked_at).map_err(|field| NotUnderstood {
        key: Some(key),
        field,
    })
}

fn fields(lease: v1::Lease, key: LeaseKey, asked_at: BootTime) -> Result<Assignment, &'static str> {
    let role = role(lease.role).ok_or("role")?;
    let job = match (role, lease.check) {
        (Role::Ci, Some(check)) => Job::Check {
            name: check.name,
            command: check.command,
        },
        (Role::Ci, None) => return Err("check"),
        (role, _) => Job::Harness {
            role,
            tier: lease.tier,
            profile: lease.profile,
        },
    };
    let repository = lease.repository.ok_or("repository")?;
    let facts = lease.facts.unwrap_or_default();
    let base_branch = lease.base_ref.strip_prefix("refs/heads/");
    Ok(Assignment {
        key,
        asked_at,
        ttl: duration(lease.ttl).ok_or("ttl")?,
        job,
        repository: Repository {
            id: repository.id,
            name: repository.name,
            git_url: non_empty(repository.git_url).ok_or("repository.git_url")?,
        },
        checkout_commit: Commit::new(&lease.checkout_commit).ok_or("checkout_commit")?,
        base_branch: base_branch.unwrap_or(&lease.base_ref).to_owned(),
        push_ref: Some(lease.push_ref)
            .filter(|name| !pushes(role) || name.starts_with("refs/pointsman/"))
            .ok_or("push_ref")?,
        item: Item {
            workflow_id: lease.workflow_id,
            kind: kind(lease.kind).ok_or("kind")?,
            number: lease.number,
            title: lease.title,
            body: lease.body,
            plan: facts.plan,
            ci_failures: facts.ci_failures.into_iter().map(ci_failure).collect(),
            review_notes: facts.review_notes,
            conflict_paths: facts.conflict_paths,
            superseded_commits: facts.superseded_commits,
            earlier_failures: facts.earlier_failures,
        },
    })
}

/// Whether a session of this role may have a commit to push.
const fn pushes(role: Role) -> bool {
    matches!(role, Role::Implementer | Role::ConflictResolver)
}

fn ci_failure(failure: v1::CheckFailure) -> CiFailure {
    CiFailure {
        name: failure.name,
        conclusion: failure.conclusion,
        log_tail: failure.log_tail,
    }
}

fn non_empty(text: String) -> Option<String> {
    (!text.is_empty()).then_some(text)
}

/// One beat: all sessions of the instance.
#[derive(Debug)]
pub(crate) struct Beat {
    pub(crate) sequence: u64,
    pub(crate) sessions: Vec<(LeaseKey, Status)>,
}

/// How far a session is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    Preparing,
    Running,
    Finishing,
}

/// What a beat says of one session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Status {
    pub(crate) phase: Phase,
    /// Pid and start time of the harness, once it has been started.
    pub(crate) subprocess: Option<(u32, u64)>,
    pub(crate) last_output_at: Option<SystemTime>,
    pub(crate) log_bytes: u64,
}

impl Beat {
    pub(super) fn into_wire(self, caller: Caller) -> v1::HeartbeatsRequest {
        v1::HeartbeatsRequest {
            worker_id: caller.worker_id.to_string(),
            instance_id: caller.instance_id.to_string(),
            sequence: self.sequence,
            sessions: self
                .sessions
                .iter()
                .map(|(key, status)| to_beat(key, status))
                .collect(),
        }
    }
}

fn to_beat(key: &LeaseKey, status: &Status) -> v1::SessionBeat {
    let (pid, starttime) = status.subprocess.unwrap_or_default();
    let phase = match status.phase {
        Phase::Preparing => v1::SessionPhase::Preparing,
        Phase::Running => v1::SessionPhase::Running,
        Phase::Finishing => v1::SessionPhase::Finishing,
    };
    v1::SessionBeat {
        lease: Some(to_key(key)),
        phase: phase.into(),
        subprocess_pid: pid,
        subprocess_starttime: starttime,
        last_output_at: status.last_output_at.map(prost_types::Timestamp::from),
        log_bytes: status.log_bytes,
    }
}

/// What a master wants of a worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Directive {
    /// Stop this session; its outcome is not wanted.
    Cancel { key: LeaseKey, reason: String },
    /// Stop this session; its lease is over.
    LeaseLost { key: LeaseKey, reason: String },
    /// Connect to another master.
    Draining,
    /// Register again.
    Register,
    /// Ask for no leases, for as long as acknowledgements say so.
    Drain(Drain),
}

/// What a drain is to a worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Drain {
    pub(crate) reason: String,
    /// Sessions are to be stopped after the worker's grace, and given back.
    pub(crate) stops_sessions: bool,
}

pub(super) fn answer(response: v1::HeartbeatsResponse) -> Answer {
    Answer {
        acknowledged: response.acked_sequence,
        directives: response
            .directives
            .into_iter()
            .filter_map(|wire| {
                let understood = directive(&wire);
                if understood.is_none() {
                    tracing::warn!(directive = ?wire, "directive is not understood");
                }
                understood
            })
            .collect(),
    }
}

fn directive(wire: &v1::Directive) -> Option<Directive> {
    use v1::directive::Action;
    let key = || wire.lease.as_ref().and_then(key);
    let reason = wire.reason.clone();
    match Action::try_from(wire.action).ok()? {
        Action::Unspecified => None,
        Action::Cancel => Some(Directive::Cancel {
            key: key()?,
            reason,
        }),
        Action::LeaseLost => Some(Directive::LeaseLost {
            key: key()?,
            reason,
        }),
        Action::Draining => Some(Directive::Draining),
        Action::Register => Some(Directive::Register),
        Action::Drain => Some(Directive::Drain(Drain {
            reason,
            stops_sessions: wire.stop_sessions,
        })),
    }
}

/// How a lease ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Outcome {
    Verdict {
        verdict: Verdict,
        /// What was pushed to the lease's ref.
        commit: Option<Commit>,
    },
    Check {
        exit_status: u32,
        log_tail: String,
    },
    /// It is about the machinery, never about the work.
    Failure {
        class: FailureClass,
        message: String,
        /// When the provider says that it works again.
        reset_at: Option<SystemTime>,
    },
}

/// What kind of failure of the machinery it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FailureClass {
    Crashed,
    NoValidResult,
    TimedOut,
    Silent,
    WorkspaceFailed,
    LeaseLost,
    ProviderQuota,
    ProviderOutage,
    BadCredentials,
    PermissionDenied,
}

impl Outcome {
    /// A failure of the machinery.
    pub(crate) fn failure(class: FailureClass, message: impl Into<String>) -> Self {
        Self::Failure {
            class,
            message: message.into(),
            reset_at: None,
        }
    }

    pub(super) fn to_wire(&self) -> complete_request::Outcome {
        match self {
            Self::Verdict { verdict, commit } => complete_request::Outcome::Verdict(v1::Verdict {
                verdict: Some(to_verdict(verdict.clone(), commit.as_ref())),
            }),
            Self::Check {
                exit_status,
                log_tail,
            } => complete_request::Outcome::CheckResult(v1::CheckResult {
                exit_status: *exit_status,
                log_tail: tail(&without_zeros(log_tail), LOG_TAIL_MAX, ""),
            }),
            Self::Failure {
                class,
                message,
                reset_at,
            } => complete_request::Outcome::InfrastructureError(v1::InfrastructureError {
                class: to_class(*class).into(),
                message: head(&without_zeros(message), MESSAGE_MAX, ""),
                reset_at: reset_at.map(prost_types::Timestamp::from),
            }),
        }
    }
}

/// Logs can hold zero bytes, and no text on the wire may.
fn without_zeros(text: &str) -> String {
    text.replace('\0', " ")
}

const fn to_class(class: FailureClass) -> Class {
    match class {
        FailureClass::Crashed => Class::Crashed,
        FailureClass::NoValidResult => Class::NoValidResult,
        FailureClass::TimedOut => Class::TimedOut,
        FailureClass::Silent => Class::Silent,
        FailureClass::WorkspaceFailed => Class::WorkspaceFailed,
        FailureClass::LeaseLost => Class::LeaseLost,
        FailureClass::ProviderQuota => Class::ProviderQuota,
        FailureClass::ProviderOutage => Class::ProviderOutage,
        FailureClass::BadCredentials => Class::BadCredentials,
        FailureClass::PermissionDenied => Class::PermissionDenied,
    }
}

fn to_verdict(verdict: Verdict, commit: Option<&Commit>) -> WireVerdict {
    use v1::verdict as wire;
    let commit = commit.map(Commit::to_string).unwrap_or_default();
    match verdict {
        Verdict::Ready { tier, plan } => WireVerdict::Ready(wire::Ready { tier, plan }),
        Verdict::ChangePresent {} => WireVerdict::ChangePresent(wire::ChangePresent {}),
        Verdict::Declined { reason } => WireVerdict::Declined(wire::Declined { reason }),
        Verdict::Unsure { reason } => WireVerdict::Unsure(wire::Unsure { reason }),
        Verdict::Changed { summary } => WireVerdict::Changed(wire::Changed { commit, summary }),
        Verdict::NoChange { reason } => WireVerdict::NoChange(wire::NoChange { reason }),
        Verdict::Failed { reason } => WireVerdict::Failed(wire::Failed { reason }),
        Verdict::Conflict { paths } => WireVerdict::Conflict(wire::Conflict { paths }),
        Verdict::Resolved {} => WireVerdict::Resolved(wire::Resolved { commit }),
        Verdict::Unresolved { reason } => WireVerdict::Unresolved(wire::Unresolved { reason }),
        Verdict::Retry { plan } => WireVerdict::Retry(wire::Retry { plan }),
        Verdict::GiveUp { reason } => WireVerdict::GiveUp(wire::GiveUp { reason }),
        Verdict::Approve { notes } => WireVerdict::Approve(wire::Approve { notes }),
        Verdict::RequestChanges { notes } => {
            WireVerdict::RequestChanges(wire::RequestChanges { notes })
        }
        Verdict::Reject { reason } => WireVerdict::Reject(wire::Reject { reason }),
    }
}

#[cfg(test)]
mod tests;
