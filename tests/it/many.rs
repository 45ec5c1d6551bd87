//! Many workflows at once on one machine.
//!
//! `POINTSMAN_MANY_ISSUES` sets how many; `scripts/test --soak` takes twice as many as the ordinary run.

use std::{cell::Cell, fs, time::Duration};

use pointsman_proto::v1::{Policy, WorkflowKind, WorkflowState};
use pointsman_tests::world::{Setup, Step, WorkerSetup, World, eventually_within};

use crate::process_support::{number, world};

/// Issues that are open at once. Each becomes a pull request: 500 workflows.
const ISSUES: usize = 250;
/// Longest that half of them may take: many times what two idle cores need.
const PATIENCE: Duration = Duration::from_secs(1800);
/// What the master's memory may grow by while the second half is merged, in KiB. A row that is kept in
/// memory for each workflow would not be seen; a prompt or a log would.
const GROWTH_KIB: u64 = 32 * 1024;

#[tokio::test]
async fn hundreds_of_workflows_at_once_all_end_and_the_masters_memory_stays_flat() {
    let issues = number("POINTSMAN_MANY_ISSUES").map_or(ISSUES, |n| n.try_into().unwrap());
    let policy = Policy {
        max_live_workflows: Some(u32::try_from(2 * issues).unwrap()),
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
    for _ in 0..issues {
        world.submit().await;
    }
    let count = Count::default();
    until_merged(&world, &count, issues / 2).await;
    let half = resident_kib(world.master().pid());
    until_merged(&world, &count, issues).await;
    let whole = resident_kib(world.master().pid());

    assert!(whole <= half + GROWTH_KIB, "{half} KiB, then {whole} KiB");
    let all = world.workflows().await.unwrap();
    assert_eq!(all.len(), 2 * issues);
    for workflow in &all {
        let end = match workflow.kind() {
            WorkflowKind::Issue => WorkflowState::CreatedPr,
            WorkflowKind::PullRequest | WorkflowKind::Unspecified => WorkflowState::Merged,
        };
        assert_eq!(workflow.state(), end, "{workflow:#?}");
    }
    let mut merges = world.remote.merges().await;
    assert_eq!(merges.len(), issues);
    merges.sort();
    merges.dedup();
    assert_eq!(merges.len(), issues);
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
