//! Attempts: one piece of work for one harness run, and the rules by which one is tried again.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{
    backoff,
    ids::{AttemptId, CheckId, CommitId, Fence, Nonce, RepositoryId, WorkflowId},
    text::text_enum,
    time::Timestamp,
};

text_enum! {
    /// What an attempt's harness is asked to do.
    pub enum Role: "role" {
        Estimator = "estimator",
        Implementer = "implementer",
        Reviewer = "reviewer",
        ConflictResolver = "conflict_resolver",
        Escalator = "escalator",
        Ci = "ci",
    }
}

text_enum! {
    /// `pending -> in_progress -> succeeded | failed | cancelled | superseded | reaped`, and back to
    /// pending by the reaper, by a release, or by an infrastructure error.
    pub enum AttemptStatus: "attempt status" {
        Pending = "pending",
        InProgress = "in_progress",
        Succeeded = "succeeded",
        Failed = "failed",
        Cancelled = "cancelled",
        Superseded = "superseded",
        Reaped = "reaped",
    }
}

impl AttemptStatus {
    /// A live attempt holds its subject: no second one is added.
    pub const fn is_live(self) -> bool {
        match self {
            Self::Pending | Self::InProgress => true,
            Self::Succeeded | Self::Failed | Self::Cancelled | Self::Superseded | Self::Reaped => {
                false
            }
        }
    }
}

/// What an attempt works on. One live attempt a subject.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Subject {
    /// The workflow itself.
    Workflow,
    /// One check run of the workflow's recorded head (built-in forge).
    Check(CheckId),
}

/// One piece of work for one harness run, in one role, at one tier. The store writes it at claim and at
/// the end; heartbeats touch the lease's own row alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attempt {
    pub id: AttemptId,
    pub repository: RepositoryId,
    pub workflow: WorkflowId,
    pub subject: Subject,
    pub role: Role,
    pub tier: u32,
    pub status: AttemptStatus,
    /// The commit that it was leased against; set by the claim, again at each lease.
    pub commit: Option<CommitId>,
    /// Fence of the newest lease. Only grows.
    pub fence: Fence,
    /// Leases that count towards `max_pickups`.
    pub pickup_count: u32,
    /// Infrastructure errors that were not charged, towards [`MAX_UNCHARGED_ERRORS`].
    pub uncharged_errors: u32,
    /// Time-to-live of its leases in seconds; fixed when the attempt is made.
    pub lock_ttl_seconds: u32,
    /// Not leased before this instant.
    pub not_before: Option<Timestamp>,
    /// Fence and nonce of the lease whose outcome was accepted, so that a repeated Complete is known.
    pub accepted: Option<(Fence, Nonce)>,
    /// Verdict or class of the last infrastructure error.
    pub outcome: Option<Outcome>,
    pub created_at: Timestamp,
    pub started_at: Option<Timestamp>,
    pub ended_at: Option<Timestamp>,
}

/// What the last lease of an attempt ended with: a name, and its facts for people.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcome {
    pub name: String,
    pub detail: serde_json::Value,
}

text_enum! {
    /// Why a lease ended without a verdict. Told from structured facts alone, never from a model's text.
    pub enum InfrastructureClass: "infrastructure error class" {
        Crashed = "crashed",
        NoValidResult = "no_valid_result",
        TimedOut = "timed_out",
        Silent = "silent",
        OverBudget = "over_budget",
        WorkspaceFailed = "workspace_failed",
        LeaseLost = "lease_lost",
        ProviderQuota = "provider_quota",
        ProviderOutage = "provider_outage",
        BadCredentials = "bad_credentials",
        PermissionDenied = "permission_denied",
    }
}

impl InfrastructureClass {
    /// A charged error counts as a pickup. The others are nobody's fault at this attempt, and have a
    /// bound of their own.
    pub const fn is_charged(self) -> bool {
        match self {
            Self::Crashed
            | Self::NoValidResult
            | Self::TimedOut
            | Self::Silent
            | Self::OverBudget
            | Self::WorkspaceFailed
            | Self::LeaseLost => true,
            Self::ProviderQuota
            | Self::ProviderOutage
            | Self::BadCredentials
            | Self::PermissionDenied => false,
        }
    }
}

impl InfrastructureClass {
    /// Whether it tells the next harness how not to do it. The others are between us, the host and the
    /// provider.
    const fn is_of_harness(self) -> bool {
        match self {
            Self::Crashed
            | Self::NoValidResult
            | Self::TimedOut
            | Self::Silent
            | Self::OverBudget
            | Self::PermissionDenied => true,
            Self::WorkspaceFailed
            | Self::LeaseLost
            | Self::ProviderQuota
            | Self::ProviderOutage
            | Self::BadCredentials => false,
        }
    }
}

/// How often an attempt may end in an infrastructure error that is not charged. A provider that refuses
/// the tenth time over hours of growing waits will refuse the eleventh; a person is needed.
pub const MAX_UNCHARGED_ERRORS: u32 = 10;

/// Default time-to-live of a lease in seconds.
///
/// A third of it must cover the kill budget of a harness, and all of it is how long a vanished host
/// holds up its work: short for roles that answer in minutes, long where hours of work would be lost.
pub const fn default_ttl_seconds(role: Role, tier: u32) -> u32 {
    match role {
        Role::Estimator => 180,
        Role::Reviewer | Role::Ci => 720,
        Role::Implementer => match tier {
            0 | 1 => 1080,
            2 => 2160,
            3.. => 4320,
        },
        Role::ConflictResolver => 1080,
        Role::Escalator => 360,
    }
}

/// The shortest default time-to-live: intervals of beats must fit it.
pub const SHORTEST_TTL_SECONDS: u32 = default_ttl_seconds(Role::Estimator, 1);

/// Where an infrastructure error that is not charged counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Charge {
    Attempt,
    /// On the hold whose canary the attempt was.
    Hold,
}

/// What becomes of an attempt whose lease ended without a verdict.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Retry {
    /// Pending again, not before the instant, with these counts.
    Pending {
        not_before: Timestamp,
        pickup_count: u32,
        uncharged_errors: u32,
    },
    /// Its bound is spent.
    Spent {
        pickup_count: u32,
        uncharged_errors: u32,
    },
}

impl Attempt {
    /// Why the last lease of this attempt ended without a verdict, for its next harness.
    pub fn earlier_failure(&self) -> Option<String> {
        let outcome = self.outcome.as_ref()?;
        let class: InfrastructureClass = outcome.name.parse().ok()?;
        let message = outcome.detail["message"].as_str()?;
        class.is_of_harness().then(|| format!("{class}: {message}"))
    }

    /// Decides about the next try after an infrastructure error. The pickup was counted at the claim;
    /// an error that is not charged gives it back. `jitter` is a random number in 0..=1.
    pub fn after_error(
        &self,
        class: InfrastructureClass,
        max_pickups: u32,
        now: Timestamp,
        jitter: f64,
    ) -> Retry {
        let (pickup_count, uncharged_errors) = if class.is_charged() {
            (self.pickup_count, self.uncharged_errors)
        } else {
            (
                self.pickup_count.saturating_sub(1),
                self.uncharged_errors.saturating_add(1),
            )
        };
        if pickup_count >= max_pickups || uncharged_errors >= MAX_UNCHARGED_ERRORS {
            return Retry::Spent {
                pickup_count,
                uncharged_errors,
            };
        }
        let failures = pickup_count.saturating_add(uncharged_errors);
        Retry::Pending {
            not_before: now.after(backoff::PICKUPS.full_jitter(failures, jitter)),
            pickup_count,
            uncharged_errors,
        }
    }

    /// Decides about the next try of a canary whose failure counts on its hold: the pickup is given back, and
    /// the hold alone says when the next one may go.
    pub fn after_held_error(&self, now: Timestamp) -> Retry {
        Retry::Pending {
            not_before: now,
            pickup_count: self.pickup_count.saturating_sub(1),
            uncharged_errors: self.uncharged_errors,
        }
    }
}

/// Whether a lease with this time-to-live leaves enough room to stop a harness: the kill budget may
/// take a third of it at most.
pub fn fits_kill_budget(ttl_seconds: u32, kill_budget: Duration) -> bool {
    kill_budget.saturating_mul(3) <= Duration::from_secs(ttl_seconds.into())
}
