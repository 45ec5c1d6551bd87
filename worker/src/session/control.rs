//! What agent and session tell each other.
//!
//! Both directions are levels, not queues: the last word counts, and a session that is busy misses
//! nothing.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::sync::watch;

use crate::{
    assignment::Assignment,
    lease::{BootTime, Tenure},
    master::{Phase, SessionStatus},
    sidecar::SessionDir,
};

/// Why a session is to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stop {
    /// The worker goes; somebody else will do the work.
    Draining,
    /// The outcome is not wanted.
    Cancelled,
    /// The lease is over.
    LeaseLost,
}

/// The session whose shim reads how long its harness may run, while there is one. Whoever holds the lock
/// is the one to change the lease and its deadline, so that both say the same.
type Deadline = Arc<Mutex<Option<SessionDir>>>;

/// The agent's end.
pub(crate) struct Control {
    stop: watch::Sender<Option<Stop>>,
    drains: watch::Sender<bool>,
    tenure: watch::Sender<Tenure>,
    deadline: Deadline,
    status: watch::Receiver<SessionStatus>,
}

impl Control {
    /// Prolongs the lease by an acknowledged beat, sent at that instant, for the shim too: the session may
    /// be busy. Waits for the state disk, and for whoever holds the deadline to have written it.
    pub(crate) fn renew(&self, sent_at: BootTime) {
        let directory = lock(&self.deadline);
        self.tenure.send_modify(|tenure| tenure.renew(sent_at));
        if let Some(directory) = &*directory {
            write(directory, self.tenure.borrow().stop_at());
        }
    }

    /// Says that the worker drains. The session may run on.
    pub(crate) fn drain(&self) {
        self.drains.send_replace(true);
    }

    /// Stops the session, and returns whether that is news to it.
    ///
    /// A lease that is over can't be given back, so that draining never replaces another reason.
    pub(crate) fn stop(&self, stop: Stop) -> bool {
        self.stop.send_if_modified(|current| {
            let is_news = match current {
                None => true,
                Some(Stop::Draining) => stop != Stop::Draining,
                Some(Stop::Cancelled | Stop::LeaseLost) => false,
            };
            if is_news {
                *current = Some(stop);
            }
            is_news
        })
    }

    /// What beats say of the session.
    pub(crate) fn status(&self) -> SessionStatus {
        *self.status.borrow()
    }
}

/// The session's end.
#[derive(Clone)]
pub(super) struct Orders {
    stop: watch::Receiver<Option<Stop>>,
    drains: watch::Receiver<bool>,
    tenure: watch::Receiver<Tenure>,
    deadline: Deadline,
    status: watch::Sender<SessionStatus>,
    changed: Arc<dyn Fn() + Send + Sync>,
}

impl Orders {
    /// Completes when the session is to stop; never where the agent is gone.
    pub(super) async fn stopped(&mut self) -> Stop {
        loop {
            if let Some(stop) = *self.stop.borrow_and_update() {
                return stop;
            }
            if self.stop.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// Completes when the master wants nothing more of the session; never where the agent is gone.
    pub(super) async fn unwanted(&mut self) {
        let is_unwanted =
            |stop: &Option<Stop>| matches!(stop, Some(Stop::Cancelled | Stop::LeaseLost));
        if self.stop.wait_for(is_unwanted).await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Completes when the worker drains; never where the agent is gone.
    pub(super) async fn drained(&mut self) {
        if self.drains.wait_for(|drains| *drains).await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// The lease as it is now.
    pub(super) fn tenure(&mut self) -> Tenure {
        *self.tenure.borrow_and_update()
    }

    /// From here on each prolongation is told to the shim of this session, beginning with the last. Waits
    /// for the state disk.
    pub(super) fn hold_deadline(&self, directory: &SessionDir) {
        let mut held = lock(&self.deadline);
        write(directory, self.tenure.borrow().stop_at());
        *held = Some(directory.clone());
    }

    /// The shim is told of no more prolongations.
    pub(super) fn let_deadline_go(&self) {
        *lock(&self.deadline) = None;
    }

    /// Completes when the lease was prolonged since the last look.
    pub(super) async fn renewed(&mut self) -> Tenure {
        if self.tenure.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
        self.tenure()
    }

    /// Changes what the next beat says, and has it sent at once.
    pub(super) fn report(&self, change: impl FnOnce(&mut SessionStatus)) {
        self.note(change);
        (self.changed)();
    }

    /// Changes what the next beat says.
    pub(super) fn note(&self, change: impl FnOnce(&mut SessionStatus)) {
        self.status.send_modify(change);
    }
}

/// Both ends for one lease.
pub(super) fn channel(
    assignment: &Assignment,
    kill_budget: Duration,
    changed: impl Fn() + Send + Sync + 'static,
) -> (Orders, Control) {
    let (stop, stop_orders) = watch::channel(None);
    let (drains, drain_orders) = watch::channel(false);
    let tenure = Tenure::new(assignment.ttl, kill_budget, assignment.asked_at);
    let (tenure, tenure_orders) = watch::channel(tenure);
    let deadline = Deadline::default();
    let (status_reports, status) = watch::channel(SessionStatus {
        phase: Phase::Preparing,
        subprocess: None,
        last_output_at: None,
        log_bytes: 0,
    });
    let orders = Orders {
        stop: stop_orders,
        drains: drain_orders,
        tenure: tenure_orders,
        deadline: Arc::clone(&deadline),
        status: status_reports,
        changed: Arc::new(changed),
    };
    let control = Control {
        stop,
        drains,
        tenure,
        deadline,
        status,
    };
    (orders, control)
}

fn lock(deadline: &Deadline) -> MutexGuard<'_, Option<SessionDir>> {
    deadline.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Where that fails the last deadline holds.
fn write(directory: &SessionDir, stop_at: BootTime) {
    if let Err(error) = directory.write_deadline(stop_at) {
        tracing::warn!(%error, "failed to write the deadline");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{assignment::Job, testing};

    fn ends() -> (Orders, Control) {
        let job = Job::Check {
            name: "c".to_owned(),
            command: "true".to_owned(),
        };
        channel(&testing::assignment(job), Duration::from_secs(10), || {})
    }

    #[tokio::test]
    async fn a_lease_that_is_over_is_not_given_back() {
        for reason in [Stop::Cancelled, Stop::LeaseLost] {
            let (mut orders, control) = ends();
            assert!(control.stop(Stop::Draining));
            assert!(control.stop(reason));
            assert!(!control.stop(Stop::Draining), "no news");
            assert_eq!(orders.stopped().await, reason);
        }
    }

    #[test]
    fn a_shim_is_told_of_renewals_while_its_session_holds_the_deadline() {
        let directory = tempfile::tempdir().unwrap();
        let directory = SessionDir::new(directory.path());
        let seconds = |seconds| BootTime::new(Duration::from_secs(seconds));
        let (orders, control) = ends();
        control.renew(seconds(100));
        assert!(directory.read_deadline().is_err(), "nobody holds it yet");
        orders.hold_deadline(&directory);
        assert_eq!(directory.read_deadline().unwrap(), seconds(150));
        control.renew(seconds(110));
        assert_eq!(directory.read_deadline().unwrap(), seconds(160));
        control.renew(seconds(90));
        assert_eq!(directory.read_deadline().unwrap(), seconds(160));
        orders.let_deadline_go();
        control.renew(seconds(120));
        assert_eq!(directory.read_deadline().unwrap(), seconds(160));
    }

    #[tokio::test]
    async fn renewals_reach_a_session_that_looks_late() {
        let (mut orders, control) = ends();
        let before = orders.tenure();
        control.renew(BootTime::new(Duration::from_secs(100)));
        control.renew(BootTime::new(Duration::from_secs(90)));
        let renewed = orders.renewed().await;
        assert!(renewed.stop_at() > before.stop_at());
        assert_eq!(renewed.stop_at(), BootTime::new(Duration::from_secs(150)));
    }
}
