//! The use cases: one public method is one transaction, or a bounded number of them, each whole.
//!
//! Every transition has one shape: lock the workflow, `decide`, write row, event and next attempt,
//! commit, and only then wake anyone (`apply.rs`, the only caller of `decide`). The clock is read once
//! at the top of a method. Nobody else writes to the store, the built-in forge's own rows apart.

mod absences;
mod apply;
mod attempts;
mod beats;
mod ci;
mod complete;
mod conversation;
mod effects;
mod fleet;
mod holds;
mod items;
mod leasing;
mod logs;
mod observe;
mod reading;
mod reaping;
mod repositories;
mod retention;
mod scheduling;
mod stats;
mod succession;
mod takers;
mod waiting;
pub mod wake;
mod work;
mod workers;
mod workflows;

use std::sync::Arc;

pub use absences::Absences;
pub use beats::{Heard, Stop};
pub use complete::{Completed, Completion};
pub use conversation::{ItemView, NewComment};
pub use fleet::{Declaration, OnDrain, WorkerView};
pub use items::{LabelChange, NewIssue, SubmittedIssue};
pub use leasing::{Claim, Grant};
pub use logs::{Follower, From as TailFrom, LogEnd, LogPart, Tail, Upload, Uploaded};
pub use observe::Observed;
pub use reading::WorkflowView;
pub use reaping::Observations;
pub use repositories::NewRepository;
pub use retention::{HISTORY_BATCH, Retention};
pub use stats::{Queue, Stats};
pub use waiting::Waiting;
use wake::Wake;
pub use workers::Registration;
pub use workflows::Request;

use crate::{
    clock::{Chance, Clock, Stopwatch},
    domain::{
        decision::Refusal,
        ids::{AttemptId, CheckId, EffectId, HoldId, RepositoryId, WorkflowId},
        policy::Policy,
        time::Timestamp,
    },
    forge::{self, Forge},
    logs::archive::{self, Archive},
    logs::{self as log_store, Logs},
    store::{
        self, Mark, Store,
        model::{Repository, Snapshot},
    },
};

/// Whether a change did something, and the thing as it is after it.
#[derive(Debug, Clone, PartialEq)]
pub enum Change<T> {
    Changed(T),
    /// It was so already.
    Unchanged(T),
}

impl<T> Change<T> {
    /// The thing as it is now.
    pub fn into_inner(self) -> T {
        match self {
            Self::Changed(value) | Self::Unchanged(value) => value,
        }
    }

    pub fn is_changed(&self) -> bool {
        matches!(self, Self::Changed(_))
    }
}

/// Why a use case did not do what it was asked. Nothing was changed, unless a variant says otherwise.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A field of the request can't be so.
    #[error("{field}: {reason}")]
    Invalid { field: String, reason: String },
    #[error("there is no {what} {id}")]
    NotFound { what: &'static str, id: String },
    #[error("{what} {id} exists already with other settings")]
    AlreadyExists { what: &'static str, id: String },
    #[error("{id} was merged: it can't be opened again")]
    ItemMerged { id: String },
    /// The worker id is in use by another state directory that has beaten lately.
    #[error(
        "worker {id} is in use by another state directory that has beaten within the last {seconds} s"
    )]
    WorkerInUse { id: String, seconds: u64 },
    /// This master does not know that process of the worker; it is to register.
    #[error("worker {id} is not registered by this process: register again")]
    UnknownInstance { id: String },
    /// A worker that has beaten lately is not dead.
    #[error(
        "worker {id} has beaten within the last {seconds} s: drain it, or force the declaration"
    )]
    WorkerAlive { id: String, seconds: u64 },
    /// The lease is over, or was never that worker's.
    #[error("the lease of attempt {attempt} is over")]
    LeaseLost { attempt: AttemptId },
    #[error("the workflow is at version {found}, not at {expected}: read it again")]
    VersionMismatch { expected: u64, found: u64 },
    #[error(transparent)]
    Refused(#[from] Refusal),
    #[error(transparent)]
    Store(#[from] store::Error),
    #[error(transparent)]
    Forge(#[from] forge::Error),
    #[error(transparent)]
    Logs(#[from] log_store::Error),
    /// There are as many already as are allowed.
    #[error("there are {most} {what} already, which is the bound: try again later")]
    TooMany { what: &'static str, most: usize },
    #[error(transparent)]
    Archive(#[from] archive::Error),
}

impl Error {
    fn no_workflow(id: WorkflowId) -> Self {
        Self::NotFound {
            what: "workflow",
            id: id.to_string(),
        }
    }

    fn no_repository(name: &str) -> Self {
        Self::NotFound {
            what: "repository",
            id: name.to_owned(),
        }
    }

    fn invalid(field: &str, reason: impl Into<String>) -> Self {
        Self::Invalid {
            field: field.to_owned(),
            reason: reason.into(),
        }
    }
}

/// What the use cases stand on.
pub struct Ports {
    pub store: Arc<dyn Store>,
    pub forge: Arc<dyn Forge>,
    pub logs: Arc<Logs>,
    pub clock: Arc<dyn Clock>,
    pub stopwatch: Arc<dyn Stopwatch>,
    pub chance: Arc<dyn Chance>,
    pub wake: Arc<Wake>,
    pub archive: Archive,
}

/// Settings that hold for all repositories.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// `ci_flake_retries` of workflows whose repository's policy does not say.
    pub ci_flake_retries: u32,
    /// Least time-to-live that a policy may set, in seconds: three beats and flushes and a reconnect.
    pub least_ttl_seconds: u32,
    pub retention: Retention,
}

/// The use cases. Cheap to clone.
#[derive(Clone)]
pub struct Service {
    ports: Arc<Ports>,
    settings: Arc<Settings>,
    started_at: Timestamp,
}

impl Service {
    pub fn new(ports: Ports, settings: Settings) -> Self {
        Self {
            started_at: ports.clock.now(),
            ports: Arc::new(ports),
            settings: Arc::new(settings),
        }
    }

    fn store(&self) -> &dyn Store {
        self.ports.store.as_ref()
    }

    fn now(&self) -> Timestamp {
        self.ports.clock.now()
    }

    /// Now, for [`settle_reads`](Self::settle_reads).
    pub fn mark(&self) -> Mark {
        self.store().mark()
    }

    /// Waits until everything that was read since `since`, by whomever, is durable. Before an answer
    /// leaves this process.
    ///
    /// # Errors
    /// Where it never will be.
    pub async fn settle_reads(&self, since: Mark) -> Result<(), Error> {
        Ok(self.store().settle(since).await?)
    }

    /// A copy of the whole database as it is at one instant.
    ///
    /// # Errors
    /// Where another one is under way, or there is no room for it.
    pub async fn snapshot(&self) -> Result<Snapshot, Error> {
        Ok(self.store().snapshot().await?)
    }

    /// What wakes the claim loop and the sweeps.
    pub fn wake(&self) -> &Wake {
        &self.ports.wake
    }

    fn new_attempt_id(&self) -> AttemptId {
        AttemptId(self.ports.chance.id())
    }

    fn new_workflow_id(&self) -> WorkflowId {
        WorkflowId(self.ports.chance.id())
    }

    fn new_repository_id(&self) -> RepositoryId {
        RepositoryId(self.ports.chance.id())
    }

    fn new_effect_id(&self) -> EffectId {
        EffectId(self.ports.chance.id())
    }

    fn new_hold_id(&self) -> HoldId {
        HoldId(self.ports.chance.id())
    }

    fn new_check_id(&self) -> CheckId {
        CheckId(self.ports.chance.id())
    }

    /// The repository's policy as it holds for new workflows: with the master's own settings where it
    /// leaves them open.
    pub fn policy(&self, repository: &Repository) -> Policy {
        self.with_settings(repository.policy.clone())
    }

    fn with_settings(&self, mut policy: Policy) -> Policy {
        policy
            .ci_flake_retries
            .get_or_insert(self.settings.ci_flake_retries);
        policy
    }
}
