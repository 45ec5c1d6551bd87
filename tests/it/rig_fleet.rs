//! What operators do to workers.

use std::time::Duration;

use pointsman_master::{
    domain::{
        attempt::{AttemptStatus, Role},
        ids::{WorkerId, WorkflowId},
        transitions::State,
        worker::Liveness,
    },
    service::{Change, Completion, Declaration, Error, Grant, OnDrain, Stop, WorkerView},
    store::model::{About, EventRow},
};
use pointsman_tests::rig::{FakeWorker, PERSON, Rig, faulty_store::Loss, worker::ready};

/// A workflow in ANALYZING whose attempt waits, and a worker.
async fn waiting() -> (Rig, FakeWorker, WorkflowId) {
    let rig = Rig::new().await;
    let worker = FakeWorker::registered(&rig, "w").await;
    let id = rig.issue_in(&worker, State::Analyzing).await;
    (rig, worker, id)
}

async fn held() -> (Rig, FakeWorker, WorkflowId, Grant) {
    let (rig, worker, id) = waiting().await;
    let grant = rig.leased(&worker, id, Role::Estimator).await;
    (rig, worker, id, grant)
}

async fn drain(rig: &Rig, worker: &FakeWorker, sessions: OnDrain) -> Change<WorkerView> {
    let drained = rig
        .service()
        .drain_worker(worker.row.id, sessions, "a new disk", PERSON)
        .await;
    drained.expect("it is drained")
}

async fn undrain(rig: &Rig, worker: &FakeWorker) -> Change<WorkerView> {
    let undrained = rig
        .service()
        .undrain_worker(worker.row.id, "the disk is in", PERSON)
        .await;
    undrained.expect("it is undrained")
}

async fn declare(
    rig: &Rig,
    worker: &FakeWorker,
    declaration: Declaration,
) -> Result<Change<WorkerView>, Error> {
    let id = worker.row.id;
    rig.service()
        .declare_worker_dead(id, declaration, "the host burnt down", PERSON)
        .await
}

/// The history of a worker.
async fn told(rig: &Rig, worker: WorkerId) -> Vec<EventRow> {
    let mut events = rig
        .store
        .events(None, 0, 10_000)
        .await
        .expect("they are read");
    events.retain(|event| event.about == About::Worker(worker));
    events
}

async fn liveness(rig: &Rig, worker: &FakeWorker) -> Liveness {
    let workers = rig.service().list_workers(None, 100).await;
    let workers = workers.expect("they are listed");
    let view = workers.iter().find(|view| view.worker.id == worker.row.id);
    view.expect("it is listed").liveness
}

#[tokio::test]
async fn a_drained_worker_gets_nothing_and_others_do_until_it_is_undrained() {
    let (rig, worker, _) = waiting().await;
    assert!(drain(&rig, &worker, OnDrain::RunOn).await.is_changed());
    assert_eq!(worker.lease(&rig, 1).await.len(), 0);
    let other = FakeWorker::registered(&rig, "other").await;
    let grant = other.lease_one(&rig).await;
    other.say(&rig, &grant, ready()).await;
    assert_eq!(worker.lease(&rig, 1).await.len(), 0);
    assert!(undrain(&rig, &worker).await.is_changed());
    worker.lease_one(&rig).await;
}

#[tokio::test]
async fn a_drain_outlives_restarts_of_the_worker_and_of_the_master() {
    let (mut rig, worker, _) = waiting().await;
    drain(&rig, &worker, OnDrain::RunOn).await;
    rig.restart().await;
    let next = worker.restarted(&rig);
    next.register(&rig, &[]).await.expect("it is registered");
    assert_eq!(next.lease(&rig, 1).await.len(), 0);
    let heard = next.hear(&rig, &[]).await.expect("the beat is written");
    assert_eq!(heard.drain.expect("it is told").reason, "a new disk");
    undrain(&rig, &next).await;
    let heard = next.hear(&rig, &[]).await.expect("the beat is written");
    assert_eq!(heard.drain, None);
    next.lease_one(&rig).await;
}

#[tokio::test]
async fn a_drain_leaves_sessions_alone_and_tells_the_worker_whether_to_stop_them() {
    let (rig, worker, id, grant) = held().await;
    drain(&rig, &worker, OnDrain::RunOn).await;
    let key = grant.lease.key;
    let heard = worker.hear(&rig, &[key]).await.expect("it is written");
    assert_eq!(heard.stops, []);
    assert!(!heard.drain.expect("it is told").stops_sessions);
    assert!(drain(&rig, &worker, OnDrain::Stop).await.is_changed());
    let heard = worker.hear(&rig, &[key]).await.expect("it is written");
    assert!(heard.drain.expect("it is told").stops_sessions);
    worker.say(&rig, &grant, ready()).await;
    assert_eq!(rig.state(id).await, State::Implementing);
}

#[tokio::test]
async fn drains_are_idempotent_and_each_change_is_one_row_of_the_history() {
    let (rig, worker, _) = waiting().await;
    for (sessions, is_changed) in [
        (OnDrain::RunOn, true),
        (OnDrain::RunOn, false),
        (OnDrain::Stop, true),
        (OnDrain::Stop, false),
        // Not weakened by asking for less.
        (OnDrain::RunOn, false),
    ] {
        let change = drain(&rig, &worker, sessions).await;
        assert_eq!(change.is_changed(), is_changed, "{sessions:?}");
    }
    assert!(undrain(&rig, &worker).await.is_changed());
    assert!(!undrain(&rig, &worker).await.is_changed());
    let events = told(&rig, worker.row.id).await;
    let kinds: Vec<&str> = events.iter().map(|event| event.kind.as_str()).collect();
    assert_eq!(
        kinds,
        ["worker_drained", "worker_drained", "worker_undrained"]
    );
    assert!(events.iter().all(|event| event.actor == PERSON));
    assert_eq!(events[0].reason, "a new disk");
    assert_eq!(events[1].detail["stop_sessions"], true);
}

#[tokio::test]
async fn a_worker_that_beats_is_not_declared_dead_unless_by_force() {
    let (rig, worker, _, _) = held().await;
    rig.advance(Duration::from_secs(29));
    let refused = declare(&rig, &worker, Declaration::OfTheSilent).await;
    assert!(
        matches!(refused, Err(Error::WorkerAlive { .. })),
        "{refused:?}"
    );
    assert_eq!(told(&rig, worker.row.id).await, []);
    assert_eq!(liveness(&rig, &worker).await, Liveness::Alive);
    let forced = declare(&rig, &worker, Declaration::Forced).await;
    assert!(forced.expect("it is declared").is_changed());
    assert_eq!(liveness(&rig, &worker).await, Liveness::DeclaredDead);
}

#[tokio::test]
async fn the_death_of_a_silent_worker_ends_its_leases_at_once_and_charged() {
    let (rig, worker, id, grant) = held().await;
    let key = grant.lease.key;
    rig.advance(Duration::from_secs(30));
    assert_eq!(liveness(&rig, &worker).await, Liveness::Silent);
    let declared = declare(&rig, &worker, Declaration::OfTheSilent).await;
    let Ok(Change::Changed(view)) = declared else {
        panic!("{declared:?}");
    };
    assert_eq!((view.n_leases, view.liveness), (0, Liveness::DeclaredDead));
    let row = rig
        .store
        .attempt(grant.attempt.id)
        .await
        .expect("it is read");
    let attempt = row.expect("it is there").attempt;
    assert_eq!(
        (attempt.status, attempt.pickup_count),
        (AttemptStatus::Pending, 1)
    );
    let lost = rig.event(id, "attempt_lost").await;
    assert_eq!(
        (lost.actor.as_str(), lost.reason.as_str()),
        (PERSON, "the host burnt down")
    );
    let events = told(&rig, worker.row.id).await;
    assert_eq!(events.len(), 1);
    assert_eq!(events[0].kind, "worker_declared_dead");
    assert_eq!(events[0].detail["n_leases"], 1);

    let again = declare(&rig, &worker, Declaration::Forced).await;
    assert!(!again.expect("it is so already").is_changed());
    assert_eq!(told(&rig, worker.row.id).await.len(), 1);
    let late = worker
        .complete(&rig, key, Completion::Verdict(ready()))
        .await;
    assert!(matches!(late, Err(Error::LeaseLost { .. })), "{late:?}");
    assert_eq!(rig.history().await.faults(), Vec::<String>::new());
}

#[tokio::test]
async fn a_worker_that_lives_after_all_registers_again_and_hears_that_its_leases_are_lost() {
    let (rig, worker, id, grant) = held().await;
    let key = grant.lease.key;
    let declared = declare(&rig, &worker, Declaration::Forced).await;
    declared.expect("it is declared");
    // What it says is not heard, and it is leased nothing.
    let unheard = worker.hear(&rig, &[key]).await;
    assert!(
        matches!(unheard, Err(Error::UnknownInstance { .. })),
        "{unheard:?}"
    );
    rig.advance(Duration::from_secs(60));
    let claimed = rig.service().claim(worker.claim(&rig, 1)).await;
    assert!(
        matches!(claimed, Err(Error::UnknownInstance { .. })),
        "{claimed:?}"
    );

    worker.register(&rig, &[]).await.expect("it is registered");
    assert_eq!(liveness(&rig, &worker).await, Liveness::Alive);
    let heard = worker.hear(&rig, &[key]).await.expect("it is written");
    assert_eq!(heard.stops, [Stop::LeaseLost { key }]);
    let next = rig.leased(&worker, id, Role::Estimator).await;
    assert!(next.lease.key.fence > key.fence);
    worker.say(&rig, &next, ready()).await;
    assert_eq!(rig.history().await.faults(), Vec::<String>::new());
}

#[tokio::test]
async fn another_directory_takes_the_id_of_a_worker_that_was_declared_dead_at_once() {
    let (rig, worker, _, _) = held().await;
    let clone = worker.cloned(&rig);
    let refused = clone.register(&rig, &[]).await;
    assert!(
        matches!(refused, Err(Error::WorkerInUse { .. })),
        "{refused:?}"
    );
    declare(&rig, &worker, Declaration::Forced)
        .await
        .expect("it is declared");
    clone.register(&rig, &[]).await.expect("it is registered");
    clone.lease(&rig, 1).await;
}

#[tokio::test]
async fn a_declaration_is_whole_or_not_at_all() {
    let (rig, worker, id, _) = held().await;
    rig.faults.fail_next(Loss::Before);
    let lost = declare(&rig, &worker, Declaration::Forced).await;
    assert!(matches!(lost, Err(Error::Store(_))), "{lost:?}");
    assert_eq!(rig.count_events(id, "attempt_lost").await, 0);
    assert_eq!(liveness(&rig, &worker).await, Liveness::Alive);
    rig.faults.fail_next(Loss::After);
    let unanswered = declare(&rig, &worker, Declaration::Forced).await;
    assert!(matches!(unanswered, Err(Error::Store(_))), "{unanswered:?}");
    let again = declare(&rig, &worker, Declaration::Forced).await;
    assert!(!again.expect("it is so already").is_changed());
    assert_eq!(rig.count_events(id, "attempt_lost").await, 1);
}

#[tokio::test]
async fn a_worker_that_never_was_is_not_found() {
    let rig = Rig::new().await;
    let nobody = FakeWorker::new(&rig, "nobody");
    let declared = declare(&rig, &nobody, Declaration::Forced).await;
    assert!(
        matches!(declared, Err(Error::NotFound { .. })),
        "{declared:?}"
    );
    let drained = rig
        .service()
        .drain_worker(nobody.row.id, OnDrain::RunOn, "r", PERSON)
        .await;
    assert!(
        matches!(drained, Err(Error::NotFound { .. })),
        "{drained:?}"
    );
}
