//! Attempts that an operator ends, and priorities.

use pointsman_master::{
    domain::{
        attempt::{AttemptStatus, InfrastructureClass, Role},
        ids::{AttemptId, WorkflowId},
        policy::Policy,
        transitions::State,
    },
    service::{Completion, Error, Request, Stop},
    store::model::{AttemptFilter, AttemptRow},
};
use pointsman_tests::rig::{
    FakeWorker, PERSON, Rig, ask,
    faulty_store::Loss,
    worker::{approve, check_result, ready},
};

async fn live(rig: &Rig, workflow: WorkflowId) -> Vec<AttemptRow> {
    let filter = AttemptFilter {
        workflow: Some(workflow),
        statuses: vec![AttemptStatus::Pending, AttemptStatus::InProgress],
        ..AttemptFilter::default()
    };
    let page = rig.service().list_attempts(&filter, None, 100).await;
    page.unwrap().rows
}

async fn no_faults(rig: &Rig) {
    assert_eq!(rig.history().await.faults(), Vec::<String>::new());
}

async fn cancel(rig: &Rig, attempt: AttemptId) -> bool {
    let change = rig.service().cancel(attempt, "stale", PERSON).await;
    let change = change.unwrap();
    let is_changed = change.is_changed();
    assert_eq!(change.into_inner().attempt.status, AttemptStatus::Cancelled);
    is_changed
}

#[tokio::test]
async fn a_cancelled_lease_is_over_and_its_work_begins_anew() {
    let rig = Rig::new().await;
    let worker = FakeWorker::registered(&rig, "w").await;
    let id = rig.issue_in(&worker, State::Analyzing).await;
    let grant = rig.leased(&worker, id, Role::Estimator).await;
    let key = grant.lease.key;
    worker.beat(&rig, &[key]).await.unwrap();

    assert!(cancel(&rig, grant.attempt.id).await);
    assert!(!cancel(&rig, grant.attempt.id).await, "it is so already");

    // Whatever it brings is refused, and its worker is told why it has to stop.
    let stops = worker.beat(&rig, &[key]).await.unwrap();
    let reason = "stale".to_owned();
    assert_eq!(stops, [Stop::Cancelled { key, reason }]);
    let late = worker
        .complete(&rig, key, Completion::Verdict(ready()))
        .await;
    assert!(matches!(late, Err(Error::LeaseLost { .. })), "{late:?}");

    // The state still wants its work: at once, without a backoff, and counted.
    assert_eq!(rig.state(id).await, State::Analyzing);
    let next = live(&rig, id).await;
    assert_eq!(next.len(), 1);
    assert_ne!(next[0].attempt.id, grant.attempt.id);
    assert_eq!(next[0].attempt.pickup_count, 1);
    assert_eq!(next[0].attempt.not_before, None);
    let event = rig.event(id, "attempt_cancelled").await;
    assert_eq!(
        (event.actor.as_str(), event.reason.as_str()),
        (PERSON, "stale")
    );
    assert_eq!(event.attempt, Some(grant.attempt.id));
    assert_eq!(rig.count_events(id, "attempt_cancelled").await, 1);

    let grant = rig.leased(&worker, id, Role::Estimator).await;
    worker.say(&rig, &grant, ready()).await;
    assert_eq!(rig.state(id).await, State::Implementing);
    no_faults(&rig).await;
}

#[tokio::test]
async fn cancelling_again_and_again_ends_as_failing_does() {
    let rig = Rig::with(Policy {
        max_pickups: 2,
        ..Policy::default()
    })
    .await;
    let worker = FakeWorker::registered(&rig, "w").await;
    let id = rig.issue_in(&worker, State::Analyzing).await;
    for _ in 0..2 {
        assert_eq!(rig.state(id).await, State::Analyzing);
        let grant = rig.leased(&worker, id, Role::Estimator).await;
        assert!(cancel(&rig, grant.attempt.id).await);
    }
    assert_eq!(rig.state(id).await, State::Stuck);
    assert_eq!(live(&rig, id).await, []);
    assert_eq!(rig.count_events(id, "attempt-pickup-exhausted").await, 1);
    no_faults(&rig).await;
}

#[tokio::test]
async fn a_pending_attempt_is_replaced_by_one_that_need_not_wait() {
    let rig = Rig::new().await;
    let worker = FakeWorker::registered(&rig, "w").await;
    let id = rig.issue_in(&worker, State::Analyzing).await;
    let grant = rig.leased(&worker, id, Role::Estimator).await;
    worker
        .fail(&rig, &grant, InfrastructureClass::Crashed)
        .await;
    assert!(cancel(&rig, grant.attempt.id).await);
    let next = rig.leased(&worker, id, Role::Estimator).await;
    assert_eq!(next.attempt.pickup_count, 2, "the crash and this lease");
}

#[tokio::test]
async fn a_check_that_is_cancelled_has_no_conclusion_and_is_run_again() {
    let rig = Rig::new().await;
    let worker = FakeWorker::registered(&rig, "w").await;
    let id = rig.pull_request_in(&worker, State::AwaitingCi).await;
    let grant = rig.leased(&worker, id, Role::Ci).await;
    assert!(cancel(&rig, grant.attempt.id).await);
    let head = rig.row(id).await.workflow.progress().head.clone().unwrap();
    let runs = rig.store.check_runs(id, &head).await.unwrap();
    assert_eq!(runs.len(), 1);
    assert_eq!(runs[0].conclusion, None);
    let grant = rig.leased(&worker, id, Role::Ci).await;
    assert_eq!(grant.check.as_ref().map(|check| check.id), Some(runs[0].id));
    let said = worker
        .complete(&rig, grant.lease.key, check_result(0))
        .await;
    said.unwrap();
    rig.poll().await;
    assert_eq!(rig.state(id).await, State::Reviewing);
}

#[tokio::test]
async fn what_has_ended_otherwise_is_not_cancelled() {
    let rig = Rig::new().await;
    let worker = FakeWorker::registered(&rig, "w").await;
    let id = rig.issue_in(&worker, State::Analyzing).await;
    let grant = rig.leased(&worker, id, Role::Estimator).await;
    worker.say(&rig, &grant, ready()).await;
    let refused = rig.service().cancel(grant.attempt.id, "late", PERSON).await;
    let message = refused.unwrap_err().to_string();
    assert!(message.contains("succeeded"), "{message}");
    let nobody = AttemptId(rig.chance.next());
    let refused = rig.service().cancel(nobody, "who", PERSON).await;
    assert!(matches!(
        refused,
        Err(Error::NotFound {
            what: "attempt",
            ..
        })
    ));
}

/// The answer of a cancel is lost before or after its commit: asked again, it is cancelled once.
#[tokio::test]
async fn a_cancel_whose_answer_is_lost_can_be_repeated() {
    for loss in [Loss::Before, Loss::After] {
        let rig = Rig::new().await;
        let worker = FakeWorker::registered(&rig, "w").await;
        let id = rig.issue_in(&worker, State::Analyzing).await;
        let grant = rig.leased(&worker, id, Role::Estimator).await;
        rig.faults.fail_next(loss);
        let lost = rig
            .service()
            .cancel(grant.attempt.id, "stale", PERSON)
            .await;
        assert!(matches!(lost, Err(Error::Store(_))), "{lost:?}");
        assert_eq!(cancel(&rig, grant.attempt.id).await, loss == Loss::Before);
        assert_eq!(rig.count_events(id, "attempt_cancelled").await, 1);
        assert_eq!(live(&rig, id).await.len(), 1);
        no_faults(&rig).await;
    }
}

#[tokio::test]
async fn a_higher_priority_is_leased_first_and_is_said_once() {
    let rig = Rig::new().await;
    let worker = FakeWorker::registered(&rig, "w").await;
    let first = rig.submit("first").await;
    let second = rig.submit("second").await;
    let version = rig.row(second).await.version;
    let set = |priority, version| {
        rig.service().set_priority(
            Request {
                expected_version: version,
                ..ask(second, "urgent")
            },
            priority,
        )
    };
    assert!(set(5, Some(version)).await.unwrap().is_changed());
    let stale = set(6, Some(version)).await;
    assert!(matches!(stale, Err(Error::VersionMismatch { .. })));
    assert!(!set(5, None).await.unwrap().is_changed());
    assert_eq!(rig.count_events(second, "priority_set").await, 1);
    let event = rig.event(second, "priority_set").await;
    assert_eq!(event.detail, serde_json::json!({"priority": 5, "was": 0}));
    let order: Vec<WorkflowId> = worker
        .lease(&rig, 2)
        .await
        .iter()
        .map(|grant| grant.workflow.id)
        .collect();
    assert_eq!(order, [second, first]);
}

#[tokio::test]
async fn priorities_are_bounded_at_their_edges() {
    let rig = Rig::new().await;
    let id = rig.submit("one").await;
    for edge in [-100, 100] {
        let set = rig.service().set_priority(ask(id, "edge"), edge);
        assert!(set.await.unwrap().is_changed());
    }
    for beyond in [-101, 101, i32::MIN, i32::MAX] {
        let set = rig.service().set_priority(ask(id, "edge"), beyond);
        let refused = set.await;
        assert!(
            matches!(&refused, Err(Error::Invalid { field, .. }) if field == "priority"),
            "{refused:?}"
        );
    }
}

#[tokio::test]
async fn a_pull_request_carries_on_the_priority_and_one_that_ended_has_none_to_set() {
    let rig = Rig::new().await;
    let worker = FakeWorker::registered(&rig, "w").await;
    let issue = rig.issue_in(&worker, State::Implementing).await;
    let set = rig.service().set_priority(ask(issue, "soon"), 9);
    assert!(set.await.unwrap().is_changed());
    let grant = rig.leased(&worker, issue, Role::Implementer).await;
    worker.change(&rig, &grant).await;
    rig.carry_out().await;
    let rows = rig.workflows().await;
    let child = rows.iter().find(|row| row.workflow.parent == Some(issue));
    assert_eq!(child.expect("it has a child").priority, 9);
    let refused = rig.service().set_priority(ask(issue, "late"), 1).await;
    assert!(matches!(refused, Err(Error::Refused(_))), "{refused:?}");
    // And its own attempts wait with it.
    let child = child.unwrap().workflow.id;
    rig.check(&worker, child, 0).await;
    let grant = rig.leased(&worker, child, Role::Reviewer).await;
    worker.say(&rig, &grant, approve()).await;
    assert_eq!(rig.state(child).await, State::Merging);
}
