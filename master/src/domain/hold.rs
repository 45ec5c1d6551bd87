//! Holds: an account of a provider, or one profile on one worker, that gets no work for a while.
//!
//! A provider that is out of quota or down, and credentials that are refused, are not the attempt's fault,
//! and the next attempt would meet the same. So they hold whom they are about, until a reset time or a
//! growing backoff. Then one attempt goes first, the *canary*: its verdict lifts the hold, the same kind of
//! failure renews it, and its end without either lets another one try.

use std::{fmt, time::Duration};

use super::{
    attempt::InfrastructureClass,
    backoff::Backoff,
    ids::{AttemptId, Fence, HoldId, LeaseKey, WorkerId},
    time::Timestamp,
};

/// Between canaries of one hold, where the provider names no time. The first try is soon, since most
/// outages are short; the longest wait costs an hour at most once the provider is back.
pub const HOLDS: Backoff = Backoff {
    base: Duration::from_secs(60),
    cap: Duration::from_secs(3600),
};

/// The longest that a reset time counts. Quotas are by the week at most; what is later is a mistake, and
/// costs one canary a week.
pub const LONGEST_HOLD: Duration = Duration::from_secs(8 * 24 * 3600);

/// Who is held.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum HoldSubject {
    /// An account of a provider, on every worker.
    Account(String),
    /// One profile on one worker.
    Profile { worker: WorkerId, profile: String },
}

/// Who would run an attempt, or ran it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Runner<'a> {
    pub worker: WorkerId,
    /// Empty for checks, which no hold covers.
    pub profile: &'a str,
    pub account: &'a str,
}

/// Whom an infrastructure error of this class holds; `None` where it holds nobody.
pub fn held_by(class: InfrastructureClass, runner: Runner<'_>) -> Option<HoldSubject> {
    if runner.profile.is_empty() {
        return None;
    }
    match class {
        InfrastructureClass::ProviderQuota | InfrastructureClass::ProviderOutage => {
            Some(HoldSubject::Account(runner.account.to_owned()))
        }
        InfrastructureClass::BadCredentials => Some(HoldSubject::Profile {
            worker: runner.worker,
            profile: runner.profile.to_owned(),
        }),
        InfrastructureClass::Crashed
        | InfrastructureClass::NoValidResult
        | InfrastructureClass::TimedOut
        | InfrastructureClass::Silent
        | InfrastructureClass::OverBudget
        | InfrastructureClass::WorkspaceFailed
        | InfrastructureClass::LeaseLost
        | InfrastructureClass::PermissionDenied => None,
    }
}

impl fmt::Display for HoldSubject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Account(account) => write!(f, "account {account}"),
            Self::Profile { worker, profile } => write!(f, "profile {profile} of worker {worker}"),
        }
    }
}

impl HoldSubject {
    /// Whether it keeps this runner from work.
    pub fn covers(&self, runner: Runner<'_>) -> bool {
        match self {
            _ if runner.profile.is_empty() => false,
            Self::Account(account) => account == runner.account,
            Self::Profile { worker, profile } => {
                *worker == runner.worker && profile == runner.profile
            }
        }
    }
}

/// What a session said that held whom it ran for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HoldReport {
    pub class: InfrastructureClass,
    pub message: String,
    /// When the provider says that it works again.
    pub reset_at: Option<Timestamp>,
    pub worker: WorkerId,
}

/// One hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hold {
    pub id: HoldId,
    pub subject: HoldSubject,
    /// Of the newest report, as the two below.
    pub class: InfrastructureClass,
    pub message: String,
    pub worker: WorkerId,
    pub placed_at: Timestamp,
    /// A canary may go from here on.
    pub until: Timestamp,
    /// The one that placed it, and those of canaries.
    pub failures: u32,
    /// The lease of the canary, while it lives.
    pub canary: Option<(AttemptId, Fence)>,
}

/// Whether an attempt may be leased to whom a hold covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Gate {
    Open,
    /// One may go, and is the canary.
    Canary,
    Held,
}

/// What the end of a lease does to a hold that covers whom it ran for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HoldChange {
    None,
    Lifted,
    /// It goes on so. `is_counted` says that the failure counts here, and not on the attempt.
    Renewed {
        hold: Hold,
        is_counted: bool,
    },
}

impl Hold {
    /// The hold that a first report places.
    pub fn placed(id: HoldId, subject: HoldSubject, report: HoldReport, now: Timestamp) -> Self {
        Self {
            id,
            subject,
            until: end(1, report.reset_at, now),
            class: report.class,
            message: report.message,
            worker: report.worker,
            placed_at: now,
            failures: 1,
            canary: None,
        }
    }

    /// Whether an attempt may be leased past this hold.
    pub fn gate(&self, now: Timestamp) -> Gate {
        if now < self.until || self.canary.is_some() {
            Gate::Held
        } else {
            Gate::Canary
        }
    }

    pub fn is_canary(&self, key: LeaseKey) -> bool {
        self.canary == Some((key.attempt, key.fence))
    }

    /// A verdict was said under this lease. Only the canary's tells that the provider works: others were
    /// leased before the hold, or beside it.
    pub fn after_verdict(&self, key: LeaseKey) -> HoldChange {
        if self.is_canary(key) {
            HoldChange::Lifted
        } else {
            HoldChange::None
        }
    }

    /// The same kind of failure came from this lease. The canary's renews the hold and counts on it; one
    /// that was under way when the hold was placed can only tell of a later reset time.
    pub fn after_failure(&self, key: LeaseKey, report: HoldReport, now: Timestamp) -> HoldChange {
        let is_counted = self.is_canary(key);
        let failures = self.failures.saturating_add(u32::from(is_counted));
        let until = if is_counted {
            end(failures, report.reset_at, now)
        } else {
            let reset_at = report.reset_at.map(|at| at.min(now.after(LONGEST_HOLD)));
            self.until.max(reset_at.unwrap_or(self.until))
        };
        if !is_counted && until == self.until {
            return HoldChange::None;
        }
        let hold = Self {
            until,
            class: report.class,
            message: report.message,
            worker: report.worker,
            failures,
            canary: if is_counted { None } else { self.canary },
            ..self.clone()
        };
        HoldChange::Renewed { hold, is_counted }
    }
}

/// What all holds that cover a runner say together.
pub fn gate(holds: &[Hold], runner: Runner<'_>, now: Timestamp) -> Gate {
    let covering = holds.iter().filter(|hold| hold.subject.covers(runner));
    covering
        .map(|hold| hold.gate(now))
        .max()
        .unwrap_or(Gate::Open)
}

/// When a canary may go after so many failures: at the reset time where there is one, and never before the
/// backoff has passed, since reset times may lie in the past.
fn end(failures: u32, reset_at: Option<Timestamp>, now: Timestamp) -> Timestamp {
    let backoff = now.after(HOLDS.ceiling(failures));
    let reset_at = reset_at.map(|at| at.min(now.after(LONGEST_HOLD)));
    backoff.max(reset_at.unwrap_or(backoff))
}
