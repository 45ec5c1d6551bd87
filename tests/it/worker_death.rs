//! What becomes of the work of a worker that dies or is stopped.

use nix::sys::signal::Signal;
use pointsman_proto::v1::{Role, WorkflowState};
use pointsman_tests::world::{Setup, Step, WorkerSetup, eventually, is_alive};

use crate::process_support::world;

/// zxkane/autonomous-dev-team#109: what a dead worker had started lived on.
#[tokio::test]
async fn a_killed_worker_that_starts_again_ends_its_harness_and_the_work_is_leased_again() {
    let mut world = world(Setup::default()).await;
    world.follow(&world.script().gated("implementer"));
    let issue = world.submit().await;
    let first = world.run_of("implementer", 1).await;
    world.until_state(issue, WorkflowState::Implementing).await;

    world.kill_worker("worker-1").await;
    world.start_worker("worker-1").await;
    let second = world.run_of("implementer", 2).await;
    assert_eq!(second.attempt, first.attempt);
    assert!(second.fence > first.fence, "{first:?}, {second:?}");
    assert!(!is_alive(first.pid, first.starttime), "{first:?}");

    world.open("implementer");
    let tale = world.until_merged(issue).await;
    assert_eq!(tale.issue.attempts_of(Role::Implementer).len(), 1);
    assert_eq!(tale.issue.count("attempt_lost"), 1);
    world.finish().await;
}

#[tokio::test]
async fn a_worker_that_drains_lets_its_sessions_end_and_exits_with_success() {
    let mut patient = WorkerSetup::named("worker-1");
    patient.drain_grace = "60s".to_owned();
    let mut world = world(Setup::default().with_workers([patient])).await;
    world.follow(&world.script().gated("implementer"));
    let issue = world.submit().await;
    let run = world.run_of("implementer", 1).await;

    world.worker("worker-1").signal(Signal::SIGTERM);
    eventually("the worker drains", async || {
        world
            .log("worker-1")
            .contains("worker drains")
            .then_some(())
    })
    .await;
    assert!(is_alive(run.pid, run.starttime));
    world.open("implementer");
    let status = world.worker("worker-1").end().await;
    assert!(status.success(), "{status}");
    let story = world.until_state(issue, WorkflowState::CreatedPr).await;
    let attempts = story.attempts_of(Role::Implementer);
    assert_eq!(attempts[0].status, "succeeded");
    assert_eq!(attempts[0].lock_fence, 1);
    world.forget_worker("worker-1");

    world.start_worker("worker-1").await;
    world.until_merged(issue).await;
    world.finish().await;
}

#[tokio::test]
async fn a_worker_that_stops_gives_running_work_back_and_no_pickup_is_charged() {
    let mut world = world(Setup::default()).await;
    let hanging = world
        .script()
        .with("implementer", [vec![Step::Hang], Step::change("work.txt")]);
    world.follow(&hanging);
    let issue = world.submit().await;
    let first = world.run_of("implementer", 1).await;

    world.stop_worker("worker-1").await;
    assert!(!is_alive(first.pid, first.starttime), "{first:?}");
    let story = world.story(issue).await.unwrap();
    let attempt = story.attempts_of(Role::Implementer)[0];
    assert_eq!(
        (attempt.status.as_str(), attempt.pickup_count),
        ("pending", 0)
    );
    assert!(story.has("attempt_released"), "{:?}", story.kinds());

    world.start_worker("worker-1").await;
    world.until_merged(issue).await;
    world.finish().await;
}
