//! What each workflow waits for, told from real rows.

use std::time::Duration;

use pointsman_master::{
    clock::Clock,
    domain::{
        attempt::{InfrastructureClass, Role},
        decision::{LabelState, Running},
        ids::WorkflowId,
        policy::Policy,
        transitions::State,
    },
    service::{OnDrain, Waiting},
};
use pointsman_tests::rig::{FakeWorker, PERSON, Rig, ask, faulty_store::Loss, worker::progress};

async fn told(rig: &Rig, id: WorkflowId) -> Waiting {
    rig.view(id).await.waiting.expect("it waits")
}

#[track_caller]
fn check(told: &Waiting, part: &str) {
    assert!(told.text.contains(part), "{told:?}");
}

async fn n_unschedulable(rig: &Rig) -> usize {
    let stats = rig.service().stats().await.expect("it is counted");
    stats.unschedulable.len()
}

/// What the one workflow and the figures say where there is one worker, changed so.
async fn with_worker(change: impl FnOnce(&mut FakeWorker)) -> (Rig, FakeWorker, Waiting) {
    let rig = Rig::new().await;
    let mut worker = FakeWorker::new(&rig, "w");
    change(&mut worker);
    worker.register(&rig, &[]).await.expect("it is registered");
    let id = rig.submit("Make it work").await;
    let told = told(&rig, id).await;
    assert_eq!(told.since, rig.clock.now());
    (rig, worker, told)
}

#[tokio::test]
async fn an_attempt_that_nobody_takes_tells_what_is_in_the_way_and_is_counted() {
    let rig = Rig::new().await;
    let id = rig.submit("Make it work").await;
    check(&told(&rig, id).await, "no worker is alive");
    assert_eq!(n_unschedulable(&rig).await, 1);

    let (rig, worker, told) = with_worker(|worker| worker.row.roles = vec![Role::Reviewer]).await;
    check(&told, "does not take the role estimator");
    assert_eq!(n_unschedulable(&rig).await, 1);
    assert_eq!(worker.lease(&rig, 1).await.len(), 0);

    let (rig, worker, told) = with_worker(|worker| worker.row.profiles[0].tiers = vec![2]).await;
    check(&told, "at tier 1: profile fake of worker w is for tier 2");
    assert_eq!(n_unschedulable(&rig).await, 1);
    assert_eq!(worker.lease(&rig, 1).await.len(), 0);
}

#[tokio::test]
async fn a_kill_budget_over_a_third_is_told_with_both_figures_and_one_of_a_third_is_fine() {
    let budget = |seconds| {
        move |worker: &mut FakeWorker| {
            worker.row.profiles[0].kill_budget = Duration::from_secs(seconds);
        }
    };
    let (rig, worker, told) = with_worker(budget(61)).await;
    check(&told, "profile fake of worker w is 61 s, more than a third");
    check(&told, "time-to-live of 180 s");
    assert_eq!(n_unschedulable(&rig).await, 1);
    assert_eq!(worker.lease(&rig, 1).await.len(), 0);

    let (rig, worker, told) = with_worker(budget(60)).await;
    check(&told, "1 live worker takes it");
    assert_eq!(n_unschedulable(&rig).await, 0);
    worker.lease_one(&rig).await;
}

#[tokio::test]
async fn a_drained_worker_is_named_with_the_reason() {
    let (rig, worker, _) = with_worker(|_| {}).await;
    let id = rig.workflows().await[0].workflow.id;
    let drained = rig
        .service()
        .drain_worker(worker.row.id, OnDrain::RunOn, "a new disk", PERSON)
        .await;
    assert!(drained.expect("it is drained").is_changed());
    let waits = told(&rig, id).await;
    check(
        &waits,
        "worker w would take it, but is drained (a new disk)",
    );
    assert_eq!(n_unschedulable(&rig).await, 1);
    FakeWorker::registered(&rig, "other").await;
    check(&told(&rig, id).await, "1 live worker takes it");
    assert_eq!(n_unschedulable(&rig).await, 0);
}

#[tokio::test]
async fn a_session_is_told_with_its_worker_and_its_end_with_the_error() {
    let (rig, worker, _) = with_worker(|_| {}).await;
    let id = rig.workflows().await[0].workflow.id;
    let leased_at = rig.clock.now();
    let grant = worker.lease_one(&rig).await;
    check(&told(&rig, id).await, "on worker w, which has not told");
    let said = pointsman_master::store::model::ProgressRow {
        last_output_at: Some(leased_at),
        ..progress(grant.lease.key)
    };
    for seconds in [59, 1] {
        rig.advance(Duration::from_secs(seconds));
        let heard = rig
            .service()
            .beat(
                worker.row.id,
                worker.row.instance,
                std::slice::from_ref(&said),
                Duration::ZERO,
            )
            .await;
        heard.expect("it is heard");
        let waits = told(&rig, id).await;
        check(&waits, "for an estimator attempt on worker w, running");
        assert_eq!(waits.text.contains("silent since"), seconds == 1);
        assert_eq!(waits.since, leased_at);
    }
    worker
        .fail(&rig, &grant, InfrastructureClass::Crashed)
        .await;
    let waits = told(&rig, id).await;
    check(&waits, "after crashed: on purpose (pickup 1 of 3)");
    // The backoff is over at once where chance says so.
    check(&waits, "; 1 live worker takes it");
    assert_eq!(waits.next_look_at, None);
}

#[tokio::test]
async fn checks_effects_and_pauses_tell_what_to_do() {
    let rig = Rig::new().await;
    let worker = FakeWorker::registered(&rig, "w").await;
    let id = rig.pull_request_in(&worker, State::AwaitingCi).await;
    let waits = told(&rig, id).await;
    check(&waits, "for the check on ");
    check(&waits, ": ci waits for a worker to take it; 1 live worker");
    let policy = Policy::default();
    let idle = policy.ci_idle_deadline();
    assert_eq!(waits.deadline, Some(waits.since.after(idle)));
    assert_eq!(waits.next_look_at, rig.row(id).await.ci_next_poll_at);
    rig.advance(Duration::from_secs(5));
    let grant = rig.leased(&worker, id, Role::Ci).await;
    let waits = told(&rig, id).await;
    check(&waits, ": ci runs on worker w");
    // Its start is a change.
    assert_eq!(waits.deadline, Some(rig.clock.now().after(idle)));
    worker.conclude(&rig, &grant, 1).await;
    rig.poll().await;

    let grant = rig.leased(&worker, id, Role::Implementer).await;
    worker.change(&rig, &grant).await;
    rig.forge_faults.fail_next(Loss::Before);
    rig.turn_often().await;
    let waits = told(&rig, id).await;
    check(
        &waits,
        "move_head on the forge, of which 1 of 20 tries failed",
    );
    let day = policy.effect_deadline();
    assert_eq!(waits.deadline, Some(rig.clock.now().after(day)));

    rig.label(id, LabelState::Absent).await;
    let waits = told(&rig, id).await;
    check(&waits, "for the label agent on #");
    check(&waits, "goes on in IMPLEMENTING with move_head");
    rig.label(id, LabelState::Present).await;
    let paused = rig.service().pause(ask(id, "a look"), Running::Left).await;
    paused.expect("it is paused");
    check(
        &told(&rig, id).await,
        "for an operator to resume it; then it goes on in IMPLEMENTING",
    );
}

#[tokio::test]
async fn who_waits_for_room_is_told_the_limit() {
    let rig = Rig::with(Policy {
        max_live_workflows: 1,
        ..Policy::default()
    })
    .await;
    rig.submit("one").await;
    let id = rig.submit("two").await;
    assert_eq!(rig.state(id).await, State::Discovered);
    let room = "for room: of demo 1 are live, and max_live_workflows of its policy is 1";
    check(&told(&rig, id).await, room);
}
