//! The reaper and the pickup guard: what nobody prolongs goes back, and what nobody can finish ends.

use std::time::Duration;

use pointsman_master::{
    domain::{
        attempt::{AttemptStatus, InfrastructureClass, Role},
        decision::{LabelState, Refusal},
        ids::{AttemptId, WorkflowId},
        policy::{LeaseTtl, Policy},
        transitions::State,
        verdict::Verdict,
    },
    service::{Change, Error, Grant, Request},
    store::REAP_MARGIN_SECONDS,
    sweeps::{Report, Sweep},
};
use pointsman_tests::rig::{FakeWorker, PERSON, Rig, ask, worker::ready};

/// Time-to-live of an estimator's lease.
const TTL: u64 = 180;
/// How long after the last beat it is reaped.
const EDGE: Duration = Duration::from_secs(TTL + REAP_MARGIN_SECONDS as u64);
const DAY: Duration = Duration::from_secs(24 * 3600);
const MICRO: Duration = Duration::from_micros(1);

async fn reap(rig: &Rig) -> Report {
    rig.master.reaper.run_once().await.expect("it reaps")
}

async fn guard(rig: &Rig) -> Report {
    rig.master.guard.run_once().await.expect("it guards")
}

async fn status(rig: &Rig, attempt: AttemptId) -> AttemptStatus {
    let row = rig.store.attempt(attempt).await.expect("the store answers");
    row.expect("it is there").attempt.status
}

/// A workflow in ANALYZING whose attempt is leased, and seen so by the reaper.
async fn leased() -> (Rig, FakeWorker, WorkflowId, Grant) {
    let rig = Rig::new().await;
    let worker = FakeWorker::registered(&rig, "w").await;
    let id = rig.issue_in(&worker, State::Analyzing).await;
    let grant = rig.leased(&worker, id, Role::Estimator).await;
    assert_eq!(reap(&rig).await, Report::default());
    (rig, worker, id, grant)
}

fn one() -> Report {
    Report {
        examined: 1,
        changed: 1,
        failed: 0,
    }
}

#[tokio::test]
async fn a_lease_is_reaped_once_its_time_and_the_margin_have_passed_and_not_sooner() {
    let (rig, worker, id, grant) = leased().await;
    rig.advance(EDGE);
    assert_eq!(
        reap(&rig).await,
        Report::default(),
        "its time has just come"
    );
    assert_eq!(
        status(&rig, grant.attempt.id).await,
        AttemptStatus::InProgress
    );
    rig.advance(MICRO);
    assert_eq!(reap(&rig).await, one());
    assert_eq!(status(&rig, grant.attempt.id).await, AttemptStatus::Pending);
    assert_eq!(reap(&rig).await, Report::default(), "once");

    let event = rig.event(id, "lock-ttl-expired").await;
    assert_eq!(event.attempt, Some(grant.attempt.id));
    assert_eq!(event.actor, "sweep:reaper");
    let text = event.detail.to_string();
    assert!(text.contains("\"pickup_count\":1"), "{text}");
    assert!(text.contains("lock_fence"), "{text}");

    let again = rig.leased(&worker, id, Role::Estimator).await;
    assert_eq!(again.attempt.id, grant.attempt.id);
    assert_eq!(again.lease.key.fence.0, grant.lease.key.fence.0 + 1);
    assert_eq!(again.attempt.pickup_count, 2);
    let late = worker
        .complete(
            &rig,
            grant.lease.key,
            pointsman_master::service::Completion::Verdict(ready()),
        )
        .await;
    assert!(matches!(late, Err(Error::LeaseLost { .. })), "{late:?}");
    assert_eq!(rig.state(id).await, State::Analyzing);
    assert_eq!(rig.history().await.faults(), Vec::<String>::new());
}

#[tokio::test]
async fn a_lease_that_is_prolonged_is_left_alone() {
    let (rig, worker, _, grant) = leased().await;
    for _ in 0..10 {
        rig.advance(Duration::from_secs(TTL / 2));
        let stops = worker.beat(&rig, &[grant.lease.key]).await;
        assert_eq!(stops.expect("the beat is written"), []);
        assert_eq!(reap(&rig).await, Report::default());
    }
    assert_eq!(
        status(&rig, grant.attempt.id).await,
        AttemptStatus::InProgress
    );
}

#[tokio::test]
async fn a_beat_between_the_look_and_the_act_wins() {
    let (rig, worker, _, grant) = leased().await;
    rig.advance(EDGE + MICRO);
    let stale = rig
        .store
        .stale_leases(None, 10)
        .await
        .expect("the store answers");
    assert_eq!(stale.len(), 1);
    worker
        .beat(&rig, &[grant.lease.key])
        .await
        .expect("the beat is written");
    let reaped = rig.service().reap(stale[0]).await;
    assert!(!reaped.expect("it looks again"), "it was prolonged");
    assert_eq!(
        status(&rig, grant.attempt.id).await,
        AttemptStatus::InProgress
    );
}

#[tokio::test]
async fn each_lease_has_the_time_to_live_of_its_own_row() {
    let rig = Rig::with(Policy {
        lease_ttls: vec![LeaseTtl {
            role: Role::Implementer,
            tier: None,
            seconds: 3600,
        }],
        ..Policy::default()
    })
    .await;
    let worker = FakeWorker::registered(&rig, "w").await;
    let long = rig.issue_in(&worker, State::Implementing).await;
    let long = rig.leased(&worker, long, Role::Implementer).await;
    let short = rig.issue_in(&worker, State::Analyzing).await;
    let short = rig.leased(&worker, short, Role::Estimator).await;
    reap(&rig).await;
    rig.advance(EDGE + MICRO);
    assert_eq!(reap(&rig).await, one());
    assert_eq!(status(&rig, short.attempt.id).await, AttemptStatus::Pending);
    assert_eq!(
        status(&rig, long.attempt.id).await,
        AttemptStatus::InProgress
    );
    rig.advance(Duration::from_secs(3600));
    assert_eq!(reap(&rig).await, one());
    assert_eq!(status(&rig, long.attempt.id).await, AttemptStatus::Pending);
}

#[tokio::test]
async fn several_are_reaped_at_once() {
    let rig = Rig::new().await;
    let worker = FakeWorker::registered(&rig, "w").await;
    for _ in 0..5 {
        rig.submit("Make it work").await;
    }
    assert_eq!(worker.lease(&rig, 10).await.len(), 5);
    reap(&rig).await;
    rig.advance(EDGE + MICRO);
    assert_eq!(reap(&rig).await.changed, 5);
    assert_eq!(reap(&rig).await.changed, 0);
    assert_eq!(worker.lease(&rig, 10).await.len(), 5);
}

/// stablyai/orca#18368: a healthy worker was declared stalled.
#[tokio::test]
async fn a_step_of_the_wall_clock_reaps_nothing() {
    let (rig, worker, _, grant) = leased().await;
    rig.clock.advance(DAY);
    assert_eq!(reap(&rig).await, Report::default());
    worker
        .beat(&rig, &[grant.lease.key])
        .await
        .expect("the beat is written");
    assert_eq!(reap(&rig).await, Report::default());
    assert_eq!(
        status(&rig, grant.attempt.id).await,
        AttemptStatus::InProgress
    );
}

#[tokio::test]
async fn a_new_master_waits_for_a_whole_time_to_live_of_its_own() {
    let (mut rig, _, _, grant) = leased().await;
    rig.advance(DAY);
    rig.crash();
    assert_eq!(reap(&rig).await, Report::default());
    rig.advance(EDGE - MICRO);
    assert_eq!(reap(&rig).await, Report::default());
    assert_eq!(
        status(&rig, grant.attempt.id).await,
        AttemptStatus::InProgress
    );
    rig.advance(MICRO);
    assert_eq!(reap(&rig).await, one());
}

#[tokio::test]
async fn an_attempt_of_a_workflow_that_is_over_is_not_there_to_be_reaped() {
    let (rig, worker, id, grant) = leased().await;
    let declined = Verdict::Declined {
        reason: "no".to_owned(),
    };
    worker.say(&rig, &grant, declined).await;
    assert_eq!(rig.state(id).await, State::Abandoned);
    rig.advance(DAY);
    assert_eq!(reap(&rig).await, Report::default());
    assert_eq!(guard(&rig).await, Report::default());
    assert_eq!(
        status(&rig, grant.attempt.id).await,
        AttemptStatus::Succeeded
    );
}

/// Lets the workflow's attempt be picked up and die until its pickups are spent. Returns the last lease.
async fn die_of_pickups(rig: &Rig, worker: &FakeWorker, id: WorkflowId, role: Role) -> Grant {
    let max = Policy::default().max_pickups;
    for n in 1..=max {
        let grant = rig.leased(worker, id, role).await;
        assert_eq!(grant.attempt.pickup_count, n);
        reap(rig).await;
        rig.advance(DAY);
        assert_eq!(reap(rig).await, one());
        if n == max {
            return grant;
        }
    }
    unreachable!("max_pickups is at least 1");
}

#[tokio::test]
async fn three_pickups_that_die_make_it_stuck() {
    let rig = Rig::new().await;
    let worker = FakeWorker::registered(&rig, "w").await;
    let id = rig.issue_in(&worker, State::Analyzing).await;
    let last = die_of_pickups(&rig, &worker, id, Role::Estimator).await;
    assert_eq!(
        guard(&rig).await.changed,
        0,
        "the reaper itself has ended it"
    );
    assert_eq!(rig.state(id).await, State::Stuck);
    assert_eq!(status(&rig, last.attempt.id).await, AttemptStatus::Reaped);
    let event = rig.event(id, "attempt-pickup-exhausted").await;
    assert_eq!(event.detail["pickup_count"], 3);
    assert_eq!(event.detail["max_pickups"], 3);
    assert_eq!(rig.count_events(id, "attempt-pickup-exhausted").await, 1);
    assert_eq!(rig.count_events(id, "pickup_exhausted").await, 1);
    assert_eq!(rig.count_events(id, "lock-ttl-expired").await, 3);
    assert!(worker.lease(&rig, 10).await.is_empty());
    let history = rig.history().await;
    assert_eq!(history.faults(), Vec::<String>::new());
    assert_eq!(history.loose_ends(), Vec::<String>::new());
}

/// A pending attempt with its pickups spent, as a lower `max_pickups` than before leaves it.
async fn spend(rig: &Rig, attempt: AttemptId) {
    rig.corrupt(
        "UPDATE attempts SET pickup_count = 3 WHERE id = ?",
        &attempt.to_string(),
    )
    .await;
}

#[tokio::test]
async fn the_guard_ends_what_is_pending_with_its_pickups_spent() {
    let rig = Rig::new().await;
    let worker = FakeWorker::registered(&rig, "w").await;
    let mut ids = Vec::new();
    for _ in 0..3 {
        let id = rig.submit("Make it work").await;
        let view = rig.view(id).await;
        ids.push((id, view.attempts[0].attempt.id));
    }
    assert_eq!(
        guard(&rig).await,
        Report::default(),
        "fresh ones are left alone"
    );
    for (_, attempt) in &ids[..2] {
        spend(&rig, *attempt).await;
    }
    let both = Report {
        examined: 2,
        changed: 2,
        failed: 0,
    };
    assert_eq!(guard(&rig).await, both);
    assert_eq!(guard(&rig).await, Report::default(), "once");
    for (id, attempt) in &ids[..2] {
        assert_eq!(rig.state(*id).await, State::Stuck);
        assert_eq!(status(&rig, *attempt).await, AttemptStatus::Reaped);
        let event = rig.event(*id, "attempt-pickup-exhausted").await;
        assert_eq!(
            (&event.detail["pickup_count"], &event.detail["max_pickups"]),
            (&3.into(), &3.into())
        );
    }
    assert_eq!(rig.state(ids[2].0).await, State::Analyzing);
    rig.leased(&worker, ids[2].0, Role::Estimator).await;
    assert_eq!(rig.history().await.faults(), Vec::<String>::new());
}

#[tokio::test]
async fn the_guard_leaves_alone_what_is_in_progress() {
    let (rig, worker, id, grant) = leased().await;
    spend(&rig, grant.attempt.id).await;
    assert_eq!(guard(&rig).await, Report::default());
    let asked = rig.service().guard_pickups(grant.attempt.id, id).await;
    assert!(!asked.expect("it looks"), "in progress");
    worker.say(&rig, &grant, ready()).await;
    assert_eq!(rig.state(id).await, State::Implementing);
    let asked = rig.service().guard_pickups(grant.attempt.id, id).await;
    assert!(!asked.expect("it looks"), "over");
}

#[tokio::test]
async fn errors_that_are_not_charged_are_bounded_by_themselves() {
    let rig = Rig::new().await;
    let worker = FakeWorker::registered(&rig, "w").await;
    let id = rig.issue_in(&worker, State::Analyzing).await;
    for n in 1..=10 {
        let grant = rig.leased(&worker, id, Role::Estimator).await;
        assert_eq!(grant.attempt.pickup_count, 1, "given back each time");
        assert_eq!(rig.state(id).await, State::Analyzing, "{n}");
        worker
            .fail(&rig, &grant, InfrastructureClass::PermissionDenied)
            .await;
        rig.advance(DAY);
    }
    assert_eq!(rig.state(id).await, State::Stuck);
    let event = rig.event(id, "attempt-pickup-exhausted").await;
    assert_eq!(event.detail["uncharged_errors"], 10);
}

#[tokio::test]
async fn unstick_brings_back_what_is_stuck_with_its_history() {
    let rig = Rig::new().await;
    let worker = FakeWorker::registered(&rig, "w").await;
    let id = rig.issue_in(&worker, State::Implementing).await;
    die_of_pickups(&rig, &worker, id, Role::Implementer).await;
    let before = rig.history().await;
    let row = rig.row(id).await;

    rig.label(id, LabelState::Absent).await;
    let refused = rig.service().unstick(ask(id, "again")).await;
    assert!(
        matches!(refused, Err(Error::Refused(Refusal::LabelAbsent { .. }))),
        "{refused:?}"
    );
    assert_eq!(rig.state(id).await, State::Stuck);
    rig.label(id, LabelState::Present).await;
    assert_eq!(
        rig.state(id).await,
        State::Stuck,
        "a label unsticks nothing"
    );

    let stale = Request {
        expected_version: Some(row.version + 7),
        ..ask(id, "again")
    };
    let wrong = rig.service().unstick(stale).await;
    assert!(
        matches!(wrong, Err(Error::VersionMismatch { .. })),
        "{wrong:?}"
    );
    let back = rig.service().unstick(ask(id, "again")).await;
    let Ok(Change::Changed(back)) = back else {
        panic!("{back:?}");
    };
    assert_eq!(
        back.workflow.state(),
        State::Analyzing,
        "back, and admitted"
    );
    let event = rig.event(id, "operator_unstick").await;
    assert_eq!(
        event.about.states(),
        Some((State::Stuck, State::Discovered))
    );
    assert_eq!(
        (event.actor.as_str(), event.reason.as_str()),
        (PERSON, "again")
    );

    let after = rig.history().await;
    assert_eq!(
        after.events[..before.events.len()],
        before.events[..],
        "its history is whole"
    );
    let grant = rig.leased(&worker, id, Role::Estimator).await;
    assert!(grant.lease.key.fence.0 >= 1);
    worker.say(&rig, &grant, ready()).await;
    assert_eq!(rig.state(id).await, State::Implementing);
    assert_eq!(rig.history().await.faults(), Vec::<String>::new());
}
