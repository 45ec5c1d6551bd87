//! A master and a worker that go on until all is over, each as it would: a sweep's next turn is its retry,
//! and the worker repeats what was not answered.

use std::time::Duration;

use pointsman_master::{
    domain::{
        attempt::Role,
        ids::{CommitId, LeaseKey},
    },
    service::{Claim, Completion, Error, Grant},
};

use super::{FakeWorker, Rig, worker::check_result};

/// Longer than every backoff that has no jitter, shorter than every time-to-live.
const STEP: Duration = Duration::from_secs(30);

/// A worker on its way through everything that there is to do.
pub struct Errand {
    worker: FakeWorker,
    is_registered: bool,
    /// It says how a lease ended one step after it got it.
    is_slow: bool,
    steps: u32,
    /// The claim whose answer is still awaited.
    claim: Option<Claim>,
    /// Outcomes that the master has not acknowledged.
    unanswered: Vec<(LeaseKey, Completion)>,
    /// The first commit that was checked: it is red, all others are green.
    red: Option<CommitId>,
}

impl Errand {
    pub fn new(rig: &Rig) -> Self {
        Self {
            worker: FakeWorker::new(rig, "errand"),
            is_registered: false,
            is_slow: false,
            steps: 0,
            claim: None,
            unanswered: Vec::new(),
            red: None,
        }
    }

    /// A worker that holds each lease from one step to the next.
    pub fn slow(rig: &Rig) -> Self {
        Self {
            is_slow: true,
            ..Self::new(rig)
        }
    }

    /// One turn of everything.
    pub async fn step(&mut self, rig: &Rig) {
        // The slow sweeps have their turn where something may need healing, as they would by their pace.
        if self.steps.is_multiple_of(10) {
            rig.turn().await;
        } else {
            rig.turn_often().await;
        }
        self.steps += 1;
        self.repeat(rig).await;
        self.take_work(rig).await;
        rig.advance(STEP);
    }

    /// Goes on until every workflow is over.
    ///
    /// # Panics
    /// Where that takes more than `limit` steps.
    pub async fn finish(&mut self, rig: &Rig, limit: u32) {
        for _ in 0..limit {
            self.step(rig).await;
            if self.is_over(rig).await {
                return;
            }
        }
        let history = rig.history().await;
        panic!("not over after {limit} steps: {:#?}", history.loose_ends());
    }

    async fn is_over(&self, rig: &Rig) -> bool {
        let rows = rig.workflows().await;
        self.unanswered.is_empty()
            && rows.len() > 1
            && rows.iter().all(|row| row.workflow.state().is_terminal())
    }

    async fn repeat(&mut self, rig: &Rig) {
        let mut kept = Vec::new();
        for (key, completion) in std::mem::take(&mut self.unanswered) {
            match self.worker.complete(rig, key, completion.clone()).await {
                Ok(_) | Err(Error::LeaseLost { .. }) => {}
                Err(Error::Store(_)) => kept.push((key, completion)),
                Err(other) => panic!("a Complete is answered with {other}"),
            }
        }
        self.unanswered = kept;
    }

    async fn take_work(&mut self, rig: &Rig) {
        if !self.is_registered {
            self.is_registered = self.worker.register(rig, &[]).await.is_ok();
        }
        let claim = *self.claim.get_or_insert_with(|| self.worker.claim(rig, 10));
        match rig.service().claim(claim).await {
            Ok(grants) => {
                self.claim = None;
                for grant in grants {
                    self.take(rig, &grant).await;
                }
            }
            Err(Error::UnknownInstance { .. }) => self.is_registered = false,
            Err(Error::Store(_)) => {}
            Err(other) => panic!("a claim is answered with {other}"),
        }
    }

    async fn take(&mut self, rig: &Rig, grant: &Grant) {
        let key = grant.lease.key;
        // A beat that is not written prolongs nothing; the worker has time enough.
        let _unwritten = self.worker.beat(rig, &[key]).await;
        let completion = self.outcome(rig, grant).await;
        self.unanswered.push((key, completion));
        if !self.is_slow {
            self.repeat(rig).await;
        }
    }

    async fn outcome(&mut self, rig: &Rig, grant: &Grant) -> Completion {
        if grant.attempt.role == Role::Ci {
            let red = self
                .red
                .get_or_insert_with(|| grant.checkout_commit.clone());
            return check_result(u32::from(*red == grant.checkout_commit));
        }
        self.worker.good(rig, grant).await
    }
}
