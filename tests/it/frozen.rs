//! A worker that stands still for longer than its leases live.

use nix::sys::signal::Signal;
use pointsman_proto::v1::{
    CompleteRequest, Policy, Role, Verdict,
    complete_request::Outcome,
    verdict::{Changed, Verdict as Kind},
};
use pointsman_tests::world::{Invocation, Setup, Step, WorkerSetup, World, eventually, lease_ttl};
use tonic::Code;
use tonic_types::StatusExt as _;

use crate::process_support::world;

/// The shortest time-to-live that a third of is the kill budget of a harness without any grace.
const TTL_SECONDS: u32 = 15;

/// Says that a run has changed something, as its worker would.
async fn complete(world: &World, run: &Invocation) -> tonic::Status {
    let worker_id = std::fs::read_to_string(world.path("worker-1").join("worker-id")).unwrap();
    let request = CompleteRequest {
        worker_id: worker_id.trim().to_owned(),
        // Any process of the worker: the key alone counts.
        instance_id: run.attempt.clone(),
        lease: Some(run.key()),
        outcome: Some(Outcome::Verdict(Verdict {
            verdict: Some(Kind::Changed(Changed {
                commit: run.head.clone(),
                summary: "too late".to_owned(),
            })),
        })),
        harness_duration: None,
    };
    let answer = world.api.workers.clone().complete(request).await;
    answer.expect_err("the lease is over")
}

/// hojinzs/github-symphony#517: a late worker and its replacement overlapped.
#[tokio::test]
async fn a_worker_frozen_past_its_ttl_loses_the_lease_and_moves_no_branch() {
    let policy = Policy {
        lease_ttls: vec![lease_ttl(Role::Implementer, TTL_SECONDS)],
        ..Policy::default()
    };
    let setup = Setup::default()
        .with_policy(policy)
        .with_workers([WorkerSetup::named("worker-1")]);
    let mut world = world(setup).await;
    world.add_worker(WorkerSetup::named("worker-2"));
    let gated = |gate: &str| {
        let mut plan = Step::change("work.txt");
        plan.insert(0, Step::WaitFor(gate.to_owned()));
        plan
    };
    let plans = [gated("first"), gated("second")];
    world.follow(&world.script().with("implementer", plans));
    let issue = world.submit().await;
    let first = world.run_of("implementer", 1).await;
    let is_shown = async || {
        world
            .sessions()
            .await
            .iter()
            .any(|s| s.subprocess_pid == first.pid)
    };
    eventually("a beat of the harness", async || {
        is_shown().await.then_some(())
    })
    .await;

    // It comes to its verdict while its worker stands still.
    world.worker("worker-1").signal(Signal::SIGSTOP);
    world.open("first");
    world.start_worker("worker-2").await;
    let second = world.run_of("implementer", 2).await;
    assert_eq!(second.attempt, first.attempt);
    assert!(second.fence > first.fence, "{first:?}, {second:?}");
    let story = world.story(issue).await.unwrap();
    assert_eq!(story.count("lock-ttl-expired"), 1);
    let refs = world.remote.refs().await;

    world.worker("worker-1").signal(Signal::SIGCONT);
    eventually(
        "the first worker hears that its lease is lost",
        async || {
            let log = world.log("worker-1");
            let is_told = log.contains("outcome comes too late") || log.contains("stop=LeaseLost");
            is_told.then_some(())
        },
    )
    .await;
    let refusal = complete(&world, &first).await;
    assert_eq!(refusal.code(), Code::FailedPrecondition, "{refusal:?}");
    let reason = refusal.get_details_error_info().map(|info| info.reason);
    assert_eq!(reason.as_deref(), Some("LEASE_LOST"));
    assert_eq!(world.remote.refs().await, refs);
    let attempt = world.story(issue).await.unwrap();
    assert_eq!(
        attempt.attempts_of(Role::Implementer)[0].status,
        "in_progress"
    );

    world.open("second");
    let tale = world.until_merged(issue).await;
    let merged = &tale.pull_request.workflow().merged_commit;
    let expected = format!("{}-{}", second.attempt, second.fence);
    assert_eq!(world.remote.file(merged, "work.txt").await, expected);
    world.finish().await;
}
