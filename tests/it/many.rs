//! Many workflows at once on one machine.

use std::{cell::Cell, fs, time::Duration};

use pointsman_proto::v1::{Policy, WorkflowKind, WorkflowState};
use pointsman_tests::world::{Setup, Step, WorkerSetup, World, eventually_within};

use crate::process_support::world;

/// Issues that are open at once; each becomes a pull request.
const ISSUES: usize = 500;
/// Longest that all of them may take: ten times what two idle cores need.
const PATIENCE: Duration = Duration::from_secs(1200);
/// What the master's memory may grow by while the second half is merged, in KiB. A row that is kept in
/// memory for each workflow would not be seen; a prompt or a log would.
const GROWTH_KIB: u64 = 32 * 1024;

#[tokio::test]
async fn hundreds_of_workflows_at_once_all_end_and_the_masters_memory_stays_flat() {
    let policy = Policy {
        max_live_workflows: Some(u32::try_from(2 * ISSUES).unwrap()),
        ..Policy::default()
    };
    let workers = ["worker-1", "worker-2"].map(|name| {
        let mut worker = WorkerSetup::named(name);
        worker.capacity = 4;
        worker
    });
    let setup = Setup::default().with_policy(policy).with_workers(workers);
    let mut world = world(setup).await;
    let own = [vec![Step::CommitOwn, Step::changed()]];
    world.follow(&world.script().with("implementer", own));
    for _ in 0..ISSUES {
        world.submit().await;
    }
    let count = Count::default();
    until_merged(&world, &count, ISSUES / 2).await;
    let half = resident_kib(world.master().pid());
    until_merged(&world, &count, ISSUES).await;
    let whole = resident_kib(world.master().pid());

    assert!(whole <= half + GROWTH_KIB, "{half} KiB, then {whole} KiB");
    let all = world.workflows().await.unwrap();
    assert_eq!(all.len(), 2 * ISSUES);
    for workflow in &all {
        let end = match workflow.kind() {
            WorkflowKind::Issue => WorkflowState::CreatedPr,
            WorkflowKind::PullRequest | WorkflowKind::Unspecified => WorkflowState::Merged,
        };
        assert_eq!(workflow.state(), end, "{workflow:#?}");
    }
    let mut merges = world.remote.merges().await;
    assert_eq!(merges.len(), ISSUES);
    merges.sort();
    merges.dedup();
    assert_eq!(merges.len(), ISSUES);
    assert_eq!(world.sessions().await, []);
    world.finish().await;
}

/// Pull requests that were merged, by the history as far as it was read.
#[derive(Default)]
struct Count {
    sequence: Cell<u64>,
    merged: Cell<usize>,
}

/// Waits until so many pull requests are merged. Reads each event once: the master has enough to do.
async fn until_merged(world: &World, count: &Count, wanted: usize) {
    let what = format!("{wanted} merged pull requests");
    eventually_within(PATIENCE, &what, async || {
        for event in world.events_after(count.sequence.get()).await? {
            count.sequence.set(event.sequence);
            if event.kind == "merge_succeeded" {
                count.merged.set(count.merged.get() + 1);
            }
        }
        (count.merged.get() >= wanted).then_some(())
    })
    .await;
}

/// Memory that a process holds, in KiB.
fn resident_kib(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:"));
    let number = line.and_then(|line| line.split_whitespace().nth(1));
    number.unwrap().parse().unwrap()
}
