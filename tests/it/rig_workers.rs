//! Workers' lives and deaths: known ones, suspected ones, and what their leases do meanwhile.

use std::time::Duration;

use pointsman_master::{
    clock::Clock,
    domain::{
        attempt::{AttemptStatus, Role},
        decision::LabelState,
        ids::{Fence, InstanceId, LeaseKey, Nonce, WorkflowId},
        time::Timestamp,
        transitions::State,
    },
    service::{Completed, Completion, Error, Grant, Stop},
    store::model::AttemptRow,
    sweeps::Sweep,
};
use pointsman_tests::rig::{
    FakeWorker, Rig, ask,
    wire::Wire,
    worker::{check_result, ready},
};

/// A workflow in ANALYZING whose attempt `worker` holds.
struct Held {
    rig: Rig,
    worker: FakeWorker,
    id: WorkflowId,
    grant: Grant,
}

impl Held {
    async fn new() -> Self {
        let rig = Rig::new().await;
        let worker = FakeWorker::registered(&rig, "w").await;
        let id = rig.issue_in(&worker, State::Analyzing).await;
        let grant = rig.leased(&worker, id, Role::Estimator).await;
        Self {
            rig,
            worker,
            id,
            grant,
        }
    }

    async fn attempt(&self) -> AttemptRow {
        let row = self.rig.store.attempt(self.grant.attempt.id).await;
        row.expect("the store answers").expect("it is there")
    }

    async fn check(&self, status: AttemptStatus, pickup_count: u32) {
        let attempt = self.attempt().await.attempt;
        assert_eq!(
            (attempt.status, attempt.pickup_count),
            (status, pickup_count)
        );
        assert_eq!(self.rig.history().await.faults(), Vec::<String>::new());
    }

    /// Time passes until the lease is reaped.
    async fn check_is_reaped(&self) {
        self.rig.master.reaper.run_once().await.expect("it reaps");
        self.rig.advance(Duration::from_secs(186));
        let report = self.rig.master.reaper.run_once().await;
        assert_eq!(report.expect("it reaps").changed, 1);
        self.check(AttemptStatus::Pending, 1).await;
    }
}

fn is_lost<T: std::fmt::Debug>(result: Result<T, Error>) {
    assert!(matches!(result, Err(Error::LeaseLost { .. })), "{result:?}");
}

#[tokio::test]
async fn a_new_process_in_the_same_directory_ends_the_old_ones_leases_at_once() {
    let held = Held::new().await;
    let next = held.worker.restarted(&held.rig);
    next.register(&held.rig, &[])
        .await
        .expect("it is registered");
    held.check(AttemptStatus::Pending, 1).await;
    assert_eq!(held.rig.count_events(held.id, "attempt_lost").await, 1);
    let again = held.rig.leased(&next, held.id, Role::Estimator).await;
    assert_eq!(again.lease.key.fence, Fence(2));
    is_lost(
        held.worker
            .complete(
                &held.rig,
                held.grant.lease.key,
                Completion::Verdict(ready()),
            )
            .await,
    );
}

#[tokio::test]
async fn another_boot_of_the_same_directory_is_refused_while_the_first_beats_and_proves_its_death_later()
 {
    let held = Held::new().await;
    let next = held.worker.rebooted(&held.rig);
    held.rig.advance(Duration::from_secs(29));
    let refused = next.register(&held.rig, &[]).await;
    assert!(
        matches!(refused, Err(Error::WorkerInUse { .. })),
        "two images of one host would end each other's leases for ever: {refused:?}"
    );
    held.check(AttemptStatus::InProgress, 1).await;
    held.rig.advance(Duration::from_secs(1));
    next.register(&held.rig, &[])
        .await
        .expect("it is silent for 30 s");
    held.check(AttemptStatus::Pending, 1).await;
}

#[tokio::test]
async fn a_wall_clock_that_was_set_back_locks_nobody_out() {
    let held = Held::new().await;
    let clone = held.worker.cloned(&held.rig);
    let an_hour_ago = Timestamp(held.rig.clock.now().0 - 3_600_000_000);
    held.rig.clock.set(an_hour_ago);
    clone
        .register(&held.rig, &[])
        .await
        .expect("a beat from the future is no beat");
    held.check(AttemptStatus::InProgress, 1).await;
}

#[tokio::test]
async fn registering_again_as_the_same_process_changes_nothing() {
    let held = Held::new().await;
    held.worker
        .register(&held.rig, &[])
        .await
        .expect("it is registered");
    held.check(AttemptStatus::InProgress, 1).await;
    let stops = held.worker.beat(&held.rig, &[held.grant.lease.key]).await;
    assert_eq!(stops.expect("the beat is written"), []);
}

#[tokio::test]
async fn another_directory_is_refused_while_the_first_one_beats_and_proves_nothing_later() {
    let held = Held::new().await;
    let clone = held.worker.cloned(&held.rig);
    held.rig.advance(Duration::from_secs(29));
    let refused = clone.register(&held.rig, &[]).await;
    assert!(
        matches!(refused, Err(Error::WorkerInUse { .. })),
        "{refused:?}"
    );
    held.worker
        .beat(&held.rig, &[held.grant.lease.key])
        .await
        .expect("the beat is written");
    held.rig.advance(Duration::from_secs(29));
    let refused = clone.register(&held.rig, &[]).await;
    assert!(
        matches!(refused, Err(Error::WorkerInUse { .. })),
        "{refused:?}"
    );
    held.rig.advance(Duration::from_secs(1));
    clone
        .register(&held.rig, &[])
        .await
        .expect("it is silent for 30 s");
    held.check(AttemptStatus::InProgress, 1).await;
    assert!(clone.lease(&held.rig, 10).await.is_empty());
    held.check_is_reaped().await;
}

#[tokio::test]
async fn a_restart_in_another_directory_proves_nothing_about_the_first_one() {
    let held = Held::new().await;
    let clone = held.worker.cloned(&held.rig);
    held.rig.advance(Duration::from_secs(30));
    clone
        .register(&held.rig, &[])
        .await
        .expect("it is silent for 30 s");
    let again = clone.restarted(&held.rig);
    again
        .register(&held.rig, &[])
        .await
        .expect("it is registered");
    held.check(AttemptStatus::InProgress, 1).await;
    held.check_is_reaped().await;
}

#[tokio::test]
async fn an_unconfirmed_session_keeps_its_lease_until_its_time_is_over() {
    let held = Held::new().await;
    let next = held.worker.restarted(&held.rig);
    next.register(&held.rig, &[held.grant.lease.key])
        .await
        .expect("it is registered");
    held.check(AttemptStatus::InProgress, 1).await;
    assert!(next.lease(&held.rig, 10).await.is_empty());
    held.check_is_reaped().await;
}

#[tokio::test]
async fn what_was_unconfirmed_stays_so_for_later_processes() {
    let held = Held::new().await;
    let second = held.worker.restarted(&held.rig);
    second
        .register(&held.rig, &[held.grant.lease.key])
        .await
        .expect("it is registered");
    let third = second.restarted(&held.rig);
    third
        .register(&held.rig, &[])
        .await
        .expect("it is registered");
    held.check(AttemptStatus::InProgress, 1).await;
    held.check_is_reaped().await;
}

#[tokio::test]
async fn the_same_request_gets_the_same_leases() {
    let rig = Rig::new().await;
    let worker = FakeWorker::registered(&rig, "w").await;
    for _ in 0..3 {
        rig.submit("Make it work").await;
    }
    let claim = worker.claim(&rig, 2);
    let keys = async || -> Vec<LeaseKey> {
        let granted = rig
            .service()
            .claim(claim)
            .await
            .expect("the claim is answered");
        granted.iter().map(|grant| grant.lease.key).collect()
    };
    let first = keys().await;
    assert_eq!(first.len(), 2);
    assert_eq!(keys().await, first);
    assert_eq!(
        worker.lease(&rig, 10).await.len(),
        1,
        "another request gets the rest"
    );
    assert_eq!(rig.history().await.faults(), Vec::<String>::new());
}

#[tokio::test]
async fn leases_that_nobody_waits_for_any_more_go_back_without_a_pickup() {
    let rig = Rig::new().await;
    let worker = FakeWorker::registered(&rig, "w").await;
    let id = rig.submit("Make it work").await;
    let wire = Wire::serve(&rig).await;
    // Somebody else writes, so that the claim waits; meanwhile the caller hangs up.
    let writer = rig.store.begin().await.expect("the store answers");
    let begun = rig.faults.begins();
    {
        let lease = wire
            .claims
            .lease(worker.claim(&rig, 10), Duration::from_secs(30));
        let claiming = async {
            while rig.faults.begins() == begun {
                tokio::task::yield_now().await;
            }
        };
        tokio::select! {
            answer = lease => panic!("nothing can be leased now: {answer:?}"),
            () = claiming => {}
        }
    }
    drop(writer);
    while rig.count_events(id, "attempt_released").await == 0 {
        tokio::task::yield_now().await;
    }
    let attempt = rig.view(id).await.attempts.remove(0).attempt;
    assert_eq!(
        (attempt.status, attempt.pickup_count),
        (AttemptStatus::Pending, 0)
    );
    assert_eq!(attempt.fence, Fence(1));
    let grant = rig.leased(&worker, id, Role::Estimator).await;
    assert_eq!(
        (grant.lease.key.fence, grant.attempt.pickup_count),
        (Fence(2), 1)
    );
}

#[tokio::test]
async fn a_release_refunds_the_pickup() {
    let held = Held::new().await;
    let key = held.grant.lease.key;
    let release = || held.rig.service().release(held.worker.row.id, key, "drain");
    release().await.expect("it is released");
    held.check(AttemptStatus::Pending, 0).await;
    is_lost(release().await);
    held.check(AttemptStatus::Pending, 0).await;
    let again = held
        .rig
        .leased(&held.worker, held.id, Role::Estimator)
        .await;
    assert_eq!(
        (again.lease.key.fence, again.attempt.pickup_count),
        (Fence(2), 1)
    );
}

#[tokio::test]
async fn a_process_that_is_not_known_is_told_so() {
    let held = Held::new().await;
    let mut stranger = held.worker.clone();
    stranger.row.instance = InstanceId(held.rig.chance.next());
    let beat = stranger.beat(&held.rig, &[held.grant.lease.key]).await;
    assert!(
        matches!(beat, Err(Error::UnknownInstance { .. })),
        "{beat:?}"
    );
    let claim = held.rig.service().claim(stranger.claim(&held.rig, 1)).await;
    assert!(
        matches!(claim, Err(Error::UnknownInstance { .. })),
        "{claim:?}"
    );
}

#[tokio::test]
async fn another_fence_or_nonce_or_worker_has_no_lease() {
    let held = Held::new().await;
    let Held {
        rig, worker, grant, ..
    } = &held;
    let other = FakeWorker::registered(rig, "other").await;
    let key = grant.lease.key;
    let stale = LeaseKey {
        fence: Fence(key.fence.0 + 1),
        ..key
    };
    let forged = LeaseKey {
        nonce: Nonce(rig.chance.next()),
        ..key
    };
    for (who, key) in [(worker, stale), (worker, forged), (&other, key)] {
        is_lost(who.complete(rig, key, Completion::Verdict(ready())).await);
        is_lost(rig.service().release(who.row.id, key, "drain").await);
        let stops = who.beat(rig, &[key]).await;
        assert_eq!(stops.expect("the beat is taken"), [Stop::LeaseLost { key }]);
    }
    held.check(AttemptStatus::InProgress, 1).await;
    worker.say(rig, grant, ready()).await;
}

/// hojinzs/github-symphony#517: a late worker and its replacement overlapped.
#[tokio::test]
async fn a_beat_with_a_stale_key_prolongs_nothing() {
    let held = Held::new().await;
    let Held {
        rig, worker, grant, ..
    } = &held;
    rig.master.reaper.run_once().await.expect("it reaps");
    rig.advance(Duration::from_secs(100));
    let stale = LeaseKey {
        fence: Fence(grant.lease.key.fence.0 - 1),
        ..grant.lease.key
    };
    worker.beat(rig, &[stale]).await.expect("the beat is taken");
    rig.advance(Duration::from_secs(86));
    let report = rig.master.reaper.run_once().await;
    assert_eq!(report.expect("it reaps").changed, 1);
}

#[tokio::test]
async fn a_repeated_complete_is_acknowledged_again_and_does_nothing() {
    let held = Held::new().await;
    let Held {
        rig,
        worker,
        grant,
        id,
    } = &held;
    worker.say(rig, grant, ready()).await;
    let before = rig.history().await.events;
    let again = worker
        .complete(rig, grant.lease.key, Completion::Verdict(ready()))
        .await;
    assert_eq!(again.expect("it is known"), Completed::Before);
    // Whatever it says: the lease had its outcome.
    let other = worker.complete(rig, grant.lease.key, check_result(1)).await;
    assert_eq!(other.expect("it is known"), Completed::Before);
    assert_eq!(rig.history().await.events, before);
    assert_eq!(rig.state(*id).await, State::Implementing);
}

#[tokio::test]
async fn a_session_whose_attempt_was_cancelled_learns_why() {
    let held = Held::new().await;
    let Held {
        rig,
        worker,
        grant,
        id,
    } = &held;
    rig.label(*id, LabelState::Absent).await;
    // The item carries the label again, and an operator is faster than the look that would resume it.
    rig.corrupt(
        "UPDATE forge_items SET labels = '[\"agent\"]' WHERE number = ?",
        "1",
    )
    .await;
    let back = rig.service().unstick(ask(*id, "start over")).await;
    back.expect("it is back");
    let stops = worker.beat(rig, &[grant.lease.key]).await;
    let expected = Stop::Cancelled {
        key: grant.lease.key,
        reason: "operator_unstick".to_owned(),
    };
    assert_eq!(stops.expect("the beat is taken"), [expected]);
    held.check(AttemptStatus::Cancelled, 1).await;
}

#[tokio::test]
async fn a_profile_that_needs_more_than_a_third_of_the_time_to_live_to_stop_gets_nothing() {
    let rig = Rig::new().await;
    rig.submit("Make it work").await;
    let mut worker = FakeWorker::new(&rig, "w");
    worker.row.profiles[0].kill_budget = Duration::from_millis(60_001);
    worker.register(&rig, &[]).await.expect("it is registered");
    assert!(worker.lease(&rig, 10).await.is_empty());
    worker.row.profiles[0].kill_budget = Duration::from_secs(60);
    worker.register(&rig, &[]).await.expect("it is registered");
    assert_eq!(worker.lease(&rig, 10).await.len(), 1);
}
