//! Waiting Lease calls, and the one loop that claims for them.

use std::{
    collections::VecDeque,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tokio::sync::{Notify, oneshot};
use tokio_util::sync::CancellationToken;

use crate::service::{Claim, Error, Grant, Service};

/// The most Lease calls that wait at once. Each holds a few hundred bytes; ten thousand hosts is ten
/// times what one master is measured for.
pub const MAX_WAITERS: usize = 10_000;

/// How often the loop looks by itself while somebody waits: an attempt may have become due.
const POLL: Duration = Duration::from_secs(1);

/// Shortest wait of a call: the loop's turn comes within it, so that a call that does not want to wait is
/// still claimed for once.
const LEAST_WAIT: Duration = Duration::from_secs(1);

/// Why a call can't wait here.
#[derive(Debug, thiserror::Error)]
pub enum WaitError {
    #[error("{MAX_WAITERS} calls wait already")]
    TooManyWaiters,
    /// No new leases: this master shuts down.
    #[error("this master is shutting down")]
    Draining,
    #[error(transparent)]
    Service(#[from] Error),
}

struct Waiter {
    claim: Claim,
    /// Not claimed for yet. What an earlier call with its request id got is found even where nothing is
    /// pending, so the first claim is always made.
    is_new: bool,
    answer: oneshot::Sender<Result<Vec<Grant>, Error>>,
}

/// Waiting Lease calls. Shared by the calls and the loop.
pub struct Claims {
    service: Service,
    waiters: Mutex<VecDeque<Waiter>>,
    arrived: Notify,
    stop: CancellationToken,
}

impl Claims {
    /// `stop` ends the loop and all waiting.
    pub fn new(service: Service, stop: CancellationToken) -> Self {
        Self {
            service,
            waiters: Mutex::default(),
            arrived: Notify::new(),
            stop,
        }
    }

    /// Waits up to `wait`, and a second at least, for leases; empty where there are none by then.
    pub async fn lease(&self, claim: Claim, wait: Duration) -> Result<Vec<Grant>, WaitError> {
        self.service
            .known_worker(claim.worker, claim.instance)
            .await?;
        let (answer, mut receiver) = oneshot::channel();
        self.enqueue(Waiter {
            claim,
            is_new: true,
            answer,
        })?;
        tokio::select! {
            result = &mut receiver => settled(result.ok()),
            () = self.stop.cancelled() => Err(WaitError::Draining),
            () = tokio::time::sleep(wait.max(LEAST_WAIT)) => {
                // An answer that was on its way when the time was up is taken.
                receiver.close();
                settled(receiver.try_recv().ok())
            }
        }
    }

    fn enqueue(&self, waiter: Waiter) -> Result<(), WaitError> {
        let mut waiters = self.waiters.lock().unwrap_or_else(PoisonError::into_inner);
        waiters.retain(|waiter| !waiter.answer.is_closed());
        if waiters.len() >= MAX_WAITERS {
            return Err(WaitError::TooManyWaiters);
        }
        waiters.push_back(waiter);
        drop(waiters);
        self.arrived.notify_one();
        Ok(())
    }

    /// Claims for whoever waits, until told to stop.
    pub async fn run(&self) {
        let wake = self.service.wake();
        loop {
            tokio::select! {
                () = self.stop.cancelled() => return,
                () = self.arrived.notified() => {}
                () = wake.claims.notified() => {}
                () = tokio::time::sleep(POLL) => {}
            }
            if !self.is_idle() {
                self.claim_once().await;
            }
        }
    }

    fn is_idle(&self) -> bool {
        let waiters = self.waiters.lock().unwrap_or_else(PoisonError::into_inner);
        waiters.is_empty()
    }

    /// One pass over all who wait now, first come first served. Who gets nothing waits on. Where nothing is
    /// pending, only newcomers are claimed for: waiting costs one read, however many wait.
    async fn claim_once(&self) {
        let may_have_work = match self.service.may_have_work().await {
            Ok(may_have_work) => may_have_work,
            Err(error) => {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "pending attempts could not be looked for"
                );
                return;
            }
        };
        let waiting: Vec<Waiter> = {
            let mut waiters = self.waiters.lock().unwrap_or_else(PoisonError::into_inner);
            waiters.drain(..).collect()
        };
        for mut waiter in waiting {
            if waiter.answer.is_closed() {
                continue;
            }
            if !may_have_work && !waiter.is_new {
                self.wait_on(waiter);
                continue;
            }
            waiter.is_new = false;
            match self.service.claim(waiter.claim).await {
                Ok(grants) if grants.is_empty() => self.wait_on(waiter),
                Ok(grants) => self.deliver(waiter, grants).await,
                Err(error) => {
                    if waiter.answer.send(Err(error)).is_err() {
                        tracing::debug!("a Lease call went away before its error");
                    }
                }
            }
        }
    }

    fn wait_on(&self, waiter: Waiter) {
        let mut waiters = self.waiters.lock().unwrap_or_else(PoisonError::into_inner);
        waiters.push_back(waiter);
    }

    /// Leases that nobody is there to take go back at once, without a pickup.
    async fn deliver(&self, waiter: Waiter, grants: Vec<Grant>) {
        let worker = waiter.claim.worker;
        let Err(Ok(undelivered)) = waiter.answer.send(Ok(grants)) else {
            return;
        };
        for grant in undelivered {
            let key = grant.lease.key;
            let released = self
                .service
                .release(worker, key, "the Lease call went away")
                .await;
            if let Err(error) = released {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    attempt.id = %key.attempt,
                    "an undelivered lease could not be given back"
                );
            }
        }
    }
}

fn settled(answer: Option<Result<Vec<Grant>, Error>>) -> Result<Vec<Grant>, WaitError> {
    Ok(answer.transpose()?.unwrap_or_default())
}
