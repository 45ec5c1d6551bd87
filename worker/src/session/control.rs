//! What agent and session tell each other.
//!
//! Both directions are levels, not queues: the last word counts, and a session that is busy misses
//! nothing.

use std::{sync::Arc, time::Duration};

use tokio::sync::watch;

use crate::{
    assignment::Assignment,
    lease::{BootTime, Tenure},
    master::{Phase, SessionStatus},
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

/// The agent's end.
pub(crate) struct Control {
    stop: watch::Sender<Option<Stop>>,
    drains: watch::Sender<bool>,
    tenure: watch::Sender<Tenure>,
    status: watch::Receiver<SessionStatus>,
}

impl Control {
    /// Prolongs the lease by an acknowledged beat, sent at that instant.
    pub(crate) fn renew(&self, sent_at: BootTime) {
        self.tenure.send_modify(|tenure| tenure.renew(sent_at));
    }

    /// Says that the worker drains. The session may run on.
    pub(crate) fn drain(&self) {
        self.drains.send_replace(true);
    }

    /// Stops the session, and returns whether that is news to it. A lease that is over can't be given back, so that draining never replaces
    /// another reason.
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
        status: status_reports,
        changed: Arc::new(changed),
    };
    let control = Control {
        stop,
        drains,
        tenure,
        status,
    };
    (orders, control)
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
