//! A session: one lease, from its workspace to its last word to the master. One task each.
//!
//! Prepare the workspace, write down the intent, start the shim, watch it, judge what came out, push,
//! Complete, clean up. The shim, not the session, holds the harness: a session that dies leaves
//! nothing running beyond the lease's deadline. Which sessions there are is the agent's to know.

mod complete;
mod control;
mod judge;
mod log;
mod run;
mod start;
mod upload;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::time::timeout;

pub(crate) use complete::refuse;
pub(crate) use control::{Control, Stop};

use crate::{
    assignment::{Assignment, Job},
    error::chain,
    harness::profile::{Limits, Profile, Variable},
    master::{FailureClass, Masters, Outcome, Phase},
    process::clock,
    sidecar::SessionDir,
    state::StateDir,
    tree,
    workspace::{Checkout, Workspaces},
};
use control::Orders;
use judge::Judgement;
use run::{Ended, Run};
use start::Start;
use upload::Upload;

/// How long a session whose lease is short waits for the acknowledgement of a beat. The agent takes a
/// stream for dead earlier, and this holds a slot.
const RENEWAL_PATIENCE: Duration = Duration::from_secs(15);

/// How much later than the shim the agent may hear that both are asked to stop. Signals that are sent
/// together arrive within milliseconds.
const DRAIN_PATIENCE: Duration = Duration::from_secs(2);

/// What all sessions of an agent share.
pub(crate) struct Context {
    pub(crate) masters: Arc<Masters>,
    pub(crate) state: Arc<StateDir>,
    pub(crate) workspaces: Workspaces,
    pub(crate) profiles: Vec<Profile>,
    /// How a check's command is run.
    pub(crate) ci_limits: Limits,
    pub(crate) ci_variables: Vec<Variable>,
    /// PATH of harnesses.
    pub(crate) path: String,
    /// Bytes of a harness's output that are kept and uploaded.
    pub(crate) log_max_bytes: u64,
}

/// How a session's work ended.
#[derive(Debug)]
enum End {
    /// There is something to report.
    Outcome(Outcome),
    /// The lease is given back, for this reason.
    Returned(&'static str),
    /// The master wants nothing more of it.
    Unwanted,
}

impl End {
    fn failure(class: FailureClass, message: impl Into<String>) -> Self {
        Self::Outcome(Outcome::failure(class, message))
    }

    /// In a word, without the texts of others.
    fn kind(&self) -> &'static str {
        match self {
            Self::Outcome(Outcome::Verdict { .. }) => "verdict",
            Self::Outcome(Outcome::Check { .. }) => "check",
            Self::Outcome(Outcome::Failure { .. }) => "failure",
            Self::Returned(_) => "returned",
            Self::Unwanted => "unwanted",
        }
    }

    fn class(&self) -> Option<FailureClass> {
        match self {
            Self::Outcome(Outcome::Failure { class, .. }) => Some(*class),
            Self::Outcome(_) | Self::Returned(_) | Self::Unwanted => None,
        }
    }

    fn stopped(stop: Stop) -> Self {
        match stop {
            Stop::Draining => Self::Returned("worker drains"),
            Stop::Cancelled | Stop::LeaseLost => Self::Unwanted,
        }
    }
}

/// One lease at work.
pub(crate) struct Session {
    context: Arc<Context>,
    assignment: Assignment,
    directory: SessionDir,
    orders: Orders,
    /// How long the harness ran, once it has.
    harness_duration: Option<Duration>,
    /// The log, on its way to the master from the start of the shim on.
    upload: Option<Upload>,
    /// Set when processes could not be confirmed dead: nothing is removed then.
    unconfirmed: bool,
}

/// Prepares a session, and the agent's end of it. `changed` is called when a beat should go out.
pub(crate) fn session(
    context: Arc<Context>,
    assignment: Assignment,
    changed: impl Fn() + Send + Sync + 'static,
) -> (Session, Control) {
    let limits = limits(&context, &assignment.job);
    let budget = limits.unwrap_or(context.ci_limits).kill_budget();
    let (orders, control) = control::channel(&assignment, budget, changed);
    let session = Session {
        directory: context.state.session(&assignment.key),
        context,
        assignment,
        orders,
        harness_duration: None,
        upload: None,
        unconfirmed: false,
    };
    (session, control)
}

impl Session {
    /// Works the lease to its end.
    #[tracing::instrument(name = "session", skip_all, fields(
        attempt.id = %self.assignment.key.attempt_id,
        lease.fence = self.assignment.key.fence,
        role = %self.assignment.job.role(),
    ))]
    pub(crate) async fn run(mut self) {
        tracing::info!(
            workflow.id = %self.assignment.item.workflow_id,
            job = self.assignment.job.label(),
            "session starts"
        );
        let end = self.work().await;
        tracing::info!(end = end.kind(), class = ?end.class(), "session ends");
        tracing::debug!(?end, "session ends so");
        // Before the outcome: with that the lease is over.
        if let Some(upload) = self.upload.take() {
            upload.finish(&mut self.orders).await;
        }
        complete::report(
            &self.context.masters,
            &self.assignment.key,
            end,
            self.harness_duration,
            &mut self.orders,
        )
        .await;
        self.clean_up().await;
    }

    async fn work(&mut self) -> End {
        let Some(limits) = limits(&self.context, &self.assignment.job) else {
            let job = &self.assignment.job;
            return End::failure(
                FailureClass::WorkspaceFailed,
                format!("this worker has no harness profile for {job:?}"),
            );
        };
        let prepared = tokio::select! {
            biased;
            stop = self.orders.stopped() => return End::stopped(stop),
            prepared = self.context.workspaces.prepare(&self.assignment) => prepared,
        };
        let checkout = match prepared {
            Ok(checkout) => checkout,
            Err(error) => return failed("prepare the workspace", &error),
        };
        let ended = match self.run_harness(&checkout, limits).await {
            Ok(ended) => ended,
            Err(end) => return end,
        };
        self.unconfirmed = ended.unconfirmed;
        self.orders.report(|status| status.phase = Phase::Finishing);
        if ended.is_stopped_from_outside() && self.worker_drains().await {
            return End::stopped(Stop::Draining);
        }
        let judgement = judge::judge(&ended, &self.assignment, &self.directory);
        let mut orders = self.orders.clone();
        tokio::select! {
            biased;
            stop = orders.stopped(), if !judgement.is_final() => End::stopped(stop),
            end = self.finish(judgement, &checkout) => end,
        }
    }

    /// Returns when there is time to run a harness. A lease that came late in the answer to a
    /// question has none until the first beat that lists it is acknowledged.
    async fn await_tenure(&mut self) -> Result<(), End> {
        if !self.orders.tenure().is_short(clock::now()) {
            return Ok(());
        }
        // Has a beat sent at once.
        self.orders.report(|_| {});
        let renewed = async { while self.orders.renewed().await.is_short(clock::now()) {} };
        // What is left decides, where no acknowledgement came.
        let is_late = timeout(RENEWAL_PATIENCE, renewed).await.is_err();
        if is_late && !self.orders.tenure().is_mine(clock::now()) {
            return Err(End::failure(
                FailureClass::LeaseLost,
                "no beat was acknowledged in time to start the harness",
            ));
        }
        Ok(())
    }

    async fn run_harness(&mut self, checkout: &Checkout, limits: Limits) -> Result<Ended, End> {
        let mut orders = self.orders.clone();
        tokio::select! {
            biased;
            stop = orders.stopped() => return Err(End::stopped(stop)),
            tenure = self.await_tenure() => tenure?,
        }
        let started_at = Instant::now();
        let shim = start::start(Start {
            context: Arc::clone(&self.context),
            assignment: self.assignment.clone(),
            directory: self.directory.clone(),
            checkout: checkout.path().to_owned(),
            base: checkout.base().cloned(),
            stop_at: self.orders.tenure().stop_at(),
        })
        .await
        .map_err(|error| {
            self.unconfirmed = matches!(error, start::Error::Identify(_));
            failed("start the shim", &error)
        })?;
        self.upload = Some(Upload::start(
            Arc::clone(&self.context.masters),
            self.assignment.key.clone(),
            self.directory.log(),
            self.context.log_max_bytes,
        ));
        let key = &self.assignment.key;
        let ended = Run::new(shim, key, &self.directory, limits, &self.orders)
            .until_ended()
            .await;
        self.harness_duration = Some(started_at.elapsed());
        Ok(ended)
    }

    /// Whether the worker was asked to stop along with the session.
    async fn worker_drains(&mut self) -> bool {
        timeout(DRAIN_PATIENCE, self.orders.drained()).await.is_ok()
    }

    /// Does what a judgement asks for, which may be to push a commit.
    async fn finish(&self, judgement: Judgement, checkout: &Checkout) -> End {
        match judgement {
            Judgement::Final(end) => end,
            Judgement::WithCommit(verdict) => {
                let push_ref = &self.assignment.push_ref;
                End::Outcome(complete::push(verdict, checkout, push_ref).await)
            }
        }
    }

    /// Removes all that the session had, the directory last: that is what a later agent finds.
    async fn clean_up(&self) {
        if self.unconfirmed {
            tracing::error!(
                directory = %self.directory.path().display(),
                "processes of the session may still run: workspace and directory are kept"
            );
            return;
        }
        let workspace = self.context.workspaces.path(&self.assignment);
        let temporary = self.context.state.temporary(&self.assignment.key);
        for path in [&workspace, &temporary, self.directory.path()] {
            if let Err(error) = tree::remove(path).await {
                tracing::warn!(path = %path.display(), %error, "leave what can't be removed");
            }
        }
    }
}

/// The limits of what is to be run. `None` where its profile is not configured.
fn limits(context: &Context, job: &Job) -> Option<Limits> {
    match job {
        Job::Check { .. } => Some(context.ci_limits),
        Job::Harness { profile, .. } => context.profile(profile).map(|profile| profile.limits),
    }
}

impl Context {
    fn profile(&self, name: &str) -> Option<&Profile> {
        self.profiles.iter().find(|profile| profile.name == name)
    }
}

fn failed(what: &str, error: &dyn std::error::Error) -> End {
    End::failure(
        FailureClass::WorkspaceFailed,
        format!("failed to {what}: {}", chain(error)),
    )
}
