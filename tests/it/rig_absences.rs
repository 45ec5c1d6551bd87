//! Leases that a living worker does not list in its beats.

use std::{collections::HashSet, time::Duration};

use pointsman_master::{
    domain::{
        attempt::{AttemptStatus, Role},
        ids::{LeaseKey, WorkflowId},
    },
    service::{Absences, Grant},
};
use pointsman_tests::rig::{FakeWorker, Rig};

struct Held {
    rig: Rig,
    worker: FakeWorker,
    id: WorkflowId,
    grant: Grant,
    absences: Absences,
}

impl Held {
    async fn new() -> Self {
        let rig = Rig::new().await;
        let worker = FakeWorker::registered(&rig, "worker").await;
        let id = rig.submit("An issue").await;
        let grant = rig.leased(&worker, id, Role::Estimator).await;
        Self {
            rig,
            worker,
            id,
            grant,
            absences: Absences::default(),
        }
    }

    fn key(&self) -> LeaseKey {
        self.grant.lease.key
    }

    /// One received beat that lists these sessions.
    async fn beat(&mut self, listed: &[LeaseKey]) {
        self.worker.beat(&self.rig, listed).await.unwrap();
        let row = &self.worker.row;
        let listed: HashSet<LeaseKey> = listed.iter().copied().collect();
        let service = self.rig.service();
        service
            .notice_absences(row.id, row.instance, &listed, &mut self.absences)
            .await
            .unwrap();
    }

    async fn check(&self, status: AttemptStatus, pickups: u32) {
        let view = self.rig.service().view_workflow(self.id).await.unwrap();
        let attempt = &view.attempts.last().unwrap().attempt;
        assert_eq!((attempt.status, attempt.pickup_count), (status, pickups));
    }
}

#[tokio::test]
async fn a_lease_that_never_arrived_goes_back_without_a_pickup_after_two_beats_and_15_s() {
    let mut held = Held::new().await;
    for _ in 0..3 {
        held.beat(&[]).await;
    }
    held.check(AttemptStatus::InProgress, 1).await;
    held.rig.advance(Duration::from_secs(15));
    held.beat(&[]).await;
    held.check(AttemptStatus::Pending, 0).await;
}

/// stablyai/orca#18368: a healthy worker was declared stalled.
#[tokio::test]
async fn one_beat_without_it_proves_nothing() {
    let mut held = Held::new().await;
    held.rig.advance(Duration::from_secs(60));
    held.beat(&[]).await;
    held.check(AttemptStatus::InProgress, 1).await;
    let key = held.key();
    held.beat(&[key]).await;
    held.beat(&[]).await;
    held.check(AttemptStatus::InProgress, 1).await;
}

#[tokio::test]
async fn a_session_that_was_named_and_is_gone_for_two_beats_is_a_known_death() {
    let mut held = Held::new().await;
    let key = held.key();
    held.beat(&[key]).await;
    held.beat(&[]).await;
    held.check(AttemptStatus::InProgress, 1).await;
    held.beat(&[]).await;
    held.check(AttemptStatus::Pending, 1).await;
    assert_eq!(held.rig.count_events(held.id, "attempt_lost").await, 1);
}

#[tokio::test]
async fn leases_of_an_earlier_process_are_not_missed_by_the_next_ones_beats() {
    let held = Held::new().await;
    let key = held.key();
    held.worker.beat(&held.rig, &[key]).await.unwrap();
    let next = held.worker.restarted(&held.rig);
    next.register(&held.rig, &[key]).await.unwrap();
    let mut later = Held {
        worker: next,
        ..held
    };
    for _ in 0..3 {
        later.beat(&[]).await;
    }
    later.check(AttemptStatus::InProgress, 1).await;
}
