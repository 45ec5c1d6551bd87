//! What operators do to workers, with real ones.

use nix::sys::signal::Signal;
use pointsman_proto::v1::{Role, WorkflowState};
use pointsman_tests::world::{Setup, Step, WorkerSetup, World, eventually, is_alive};
use serde_json::Value;

use crate::process_support::world;

/// One worker as the command line shows it.
async fn shown(world: &World, name: &str) -> Value {
    let listed: Value = world.run(["workers", "-o", "json"]).await.json();
    let workers = listed["workers"]
        .as_array()
        .expect("they are listed")
        .clone();
    let found = workers.into_iter().find(|worker| worker["name"] == name);
    found.expect("it is listed")
}

async fn until_logged(world: &World, name: &str, text: &str) {
    eventually(&format!("{name} logs {text:?}"), async || {
        world.log(name).contains(text).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_drained_worker_ends_what_it_runs_and_takes_work_again_once_undrained() {
    let world = world(Setup::default()).await;
    world.follow(&world.script().gated("implementer"));
    let issue = world.submit().await;
    let run = world.run_of("implementer", 1).await;

    let drain = ["drain", "worker-1", "--reason", "a new disk"];
    let told = world.run(drain).await;
    assert!(
        told.text().contains("worker-1 now: ALIVE, drained"),
        "{told:?}"
    );
    until_logged(&world, "worker-1", "worker is drained").await;
    assert!(is_alive(run.pid, run.starttime));
    world.open("implementer");
    let story = world.until_state(issue, WorkflowState::CreatedPr).await;
    assert_eq!(story.attempts_of(Role::Implementer)[0].lock_fence, 1);

    let worker = shown(&world, "worker-1").await;
    assert_eq!(worker["drain"]["reason"], "a new disk");
    assert_eq!(
        (&worker["live_sessions"], &worker["liveness"]),
        (&0.into(), &"ALIVE".into())
    );
    let pull_request = world.pull_request().await;
    let story = world
        .until_state(pull_request, WorkflowState::AwaitingCi)
        .await;
    let attempt = story.attempts_of(Role::Ci)[0];
    assert_eq!(
        (attempt.status.as_str(), attempt.lock_fence),
        ("pending", 0)
    );

    world
        .run(["undrain", "worker-1", "--reason", "it is in"])
        .await
        .text();
    until_logged(&world, "worker-1", "worker is undrained").await;
    world.until_merged(issue).await;
    world.finish().await;
}

#[tokio::test]
async fn a_frozen_worker_that_is_declared_dead_loses_its_work_at_once_and_nothing_happens_twice() {
    let setup = Setup::default().with_workers([WorkerSetup::named("worker-1")]);
    let mut world = world(setup).await;
    world.add_worker(WorkerSetup::named("worker-2"));
    let gated = |gate: &str| {
        let mut plan = Step::change("work.txt");
        plan.insert(0, Step::WaitFor(gate.to_owned()));
        plan
    };
    // Nobody opens the first gate: only the end of its lease ends the first harness.
    let plans = [gated("never"), gated("second")];
    world.follow(&world.script().with("implementer", plans));
    let issue = world.submit().await;
    let first = world.run_of("implementer", 1).await;
    world.worker("worker-1").signal(Signal::SIGSTOP);

    let dead = ["declare-dead", "worker-1", "--reason", "it stands still"];
    let refused = world.run(dead).await;
    assert_eq!(refused.status, Some(4), "{refused:?}");
    assert!(
        refused.stderr.contains("has beaten within the last 30 s"),
        "{refused:?}"
    );
    let told = world.run(dead.into_iter().chain(["--force"])).await;
    assert!(
        told.text().contains("worker-1 now: DECLARED_DEAD"),
        "{told:?}"
    );

    world.start_worker("worker-2").await;
    let second = world.run_of("implementer", 2).await;
    assert_eq!(second.attempt, first.attempt);
    assert!(second.fence > first.fence, "{first:?}, {second:?}");
    assert!(
        is_alive(first.pid, first.starttime),
        "its worker stands still"
    );

    world.worker("worker-1").signal(Signal::SIGCONT);
    eventually("the end of the first harness", async || {
        (!is_alive(first.pid, first.starttime)).then_some(())
    })
    .await;
    until_logged(&world, "worker-1", "stop=LeaseLost").await;
    assert_eq!(
        shown(&world, "worker-1").await["declared_dead_at"],
        Value::Null
    );

    world.open("second");
    let tale = world.until_merged(issue).await;
    assert_eq!(tale.issue.count("attempt_lost"), 1);
    let merged = &tale.pull_request.workflow().merged_commit;
    let expected = format!("{}-{}", second.attempt, second.fence);
    assert_eq!(world.remote.file(merged, "work.txt").await, expected);
    world.finish().await;
}

#[tokio::test]
async fn a_harness_that_is_out_of_quota_says_so_in_its_result_file_and_nowhere_else() {
    let world = world(Setup::default()).await;
    let limit =
        "You have hit your usage limit; it resets at 5pm. 429 rate_limit_error quota exceeded";
    let refused = serde_json::json!({"infrastructure_error": {
        "class": "provider_quota",
        "reset_at": "2999-01-01T00:00:00Z",
        "message": "weekly limit reached",
    }});
    // fabrik#1084: a text that speaks about limits, printed or quoted, is no limit.
    let speaks = vec![
        Step::Print(limit.to_owned()),
        Step::Verdict(serde_json::json!({"verdict": "failed", "reason": limit})),
    ];
    let says = vec![Step::Write(refused.to_string()), Step::Exit(75)];
    let plans = [speaks, says, Step::change("work.txt")];
    world.follow(&world.script().with("implementer", plans));
    let issue = world.submit().await;
    let held = eventually("a hold", async || {
        let listed: Value = world.run(["holds", "-o", "json"]).await.json();
        listed["holds"].get(0).cloned()
    })
    .await;
    assert_eq!(
        (&held["class"], &held["failures"]),
        (&"PROVIDER_QUOTA".into(), &1.into())
    );
    assert_eq!(held["message"], "weekly limit reached");
    let story = world.story(issue).await.unwrap();
    assert_eq!(
        story.count("implementation_failed"),
        1,
        "{:?}",
        story.kinds()
    );
    assert_eq!(story.count("attempt_infrastructure_error"), 1);
    assert!(
        story.waiting().contains("is held (provider_quota)"),
        "{}",
        story.waiting()
    );
    let attempts = story.attempts_of(Role::Implementer);
    assert_eq!(attempts.last().unwrap().pickup_count, 0);

    let stats: Value = world.run(["stats", "-o", "json"]).await.json();
    assert_eq!(
        (&stats["holds"], &stats["workers_alive"]),
        (&1.into(), &1.into())
    );
    assert!(
        stats["sweeps"]
            .as_array()
            .is_some_and(|sweeps| sweeps.len() == 7),
        "{stats}"
    );
    let id = held["id"].as_str().unwrap();
    let told = world
        .run(["release-hold", id, "--reason", "a new contract"])
        .await;
    assert!(told.text().contains("account stub is released"), "{told:?}");
    world.until_merged(issue).await;
    world.finish().await;
}
