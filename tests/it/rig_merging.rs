//! MERGING: what it waits for, and that a base that never rests ends it.

use std::time::Duration;

use pointsman_master::domain::{
    ids::WorkflowId,
    policy::{MergeMethod, Policy},
    transitions::State,
};
use pointsman_tests::rig::{BASE, FakeWorker, Rig, worker::approve};

/// A pull request of ours in MERGING.
async fn merging(policy: Policy) -> (Rig, FakeWorker, WorkflowId) {
    let rig = Rig::empty().await;
    rig.add_repository(policy, Some("true".to_owned()))
        .await
        .expect("the repository is added");
    let worker = FakeWorker::registered(&rig, "w").await;
    let id = rig.pull_request_in(&worker, State::Merging).await;
    (rig, worker, id)
}

#[tokio::test]
async fn a_working_copy_with_changes_is_waited_for_and_the_merge_goes_on_once_it_is_clean() {
    let (rig, _worker, id) = merging(Policy::default()).await;
    let desk = rig.remote.check_out(BASE).await;
    let readme = desk.join("README");
    let clean = std::fs::read_to_string(&readme).expect("it is checked out");
    std::fs::write(&readme, "not committed").expect("it is written");
    rig.carry_out().await;
    assert_eq!(rig.state(id).await, State::Merging);
    let waiting = rig.view(id).await.waiting.expect("it waits");
    assert!(
        waiting
            .text
            .contains("main is checked out has uncommitted changes (README)"),
        "{}",
        waiting.text
    );
    assert!(waiting.next_look_at.is_some() && waiting.deadline.is_some());
    let kept = std::fs::read_to_string(&readme).expect("it is there");
    assert_eq!(kept, "not committed");
    std::fs::write(&readme, clean).expect("it is written");
    rig.advance(Duration::from_secs(3600));
    rig.carry_out().await;
    assert_eq!(rig.state(id).await, State::Merged);
    assert_eq!(rig.history().await.faults(), Vec::<String>::new());
}

/// fabrik ADR-1364, renovate#6690: a base that moves faster than CI had the work rebased for ever.
#[tokio::test]
async fn a_base_that_never_rests_ends_in_bounded_pushes() {
    let policy = Policy {
        merge_method: MergeMethod::FastForward,
        merge_rounds: 2,
        ..Policy::default()
    };
    let (rig, worker, id) = merging(policy).await;
    let branch = rig.row(id).await.workflow.head_ref.clone();
    let mut heads = vec![rig.remote.tip(&branch).await];
    for round in 0..=2 {
        rig.remote
            .add_to(BASE, &format!("somebody else's {round}"))
            .await;
        rig.carry_out().await;
        let head = rig.remote.tip(&branch).await;
        assert_ne!(heads.last(), Some(&head), "the head took the base in");
        heads.push(head);
        if round < 2 {
            assert_eq!(rig.state(id).await, State::AwaitingCi, "round {round}");
            rig.check(&worker, id, 0).await;
            let grant = worker.lease_one(&rig).await;
            worker.say(&rig, &grant, approve()).await;
            assert_eq!(rig.state(id).await, State::Merging);
        }
    }
    assert_eq!(rig.state(id).await, State::Stuck);
    assert_eq!(rig.count_events(id, "merge_blocked").await, 2);
    rig.turn().await;
    assert_eq!(Some(&rig.remote.tip(&branch).await), heads.last());
    assert_eq!(rig.history().await.faults(), Vec::<String>::new());
}

#[tokio::test]
async fn a_fast_forward_on_a_base_that_rests_is_the_head_itself() {
    let policy = Policy {
        merge_method: MergeMethod::FastForward,
        ..Policy::default()
    };
    let (rig, _worker, id) = merging(policy).await;
    let head = rig.row(id).await.workflow.progress().head.clone();
    rig.carry_out().await;
    assert_eq!(rig.state(id).await, State::Merged);
    assert_eq!(rig.remote.tip(BASE).await, head);
}
