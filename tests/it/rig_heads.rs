//! Somebody else pushes: nothing of theirs is lost, nothing of ours is taken for what it is not, and it ends.

use pointsman_master::{
    domain::{
        attempt::{AttemptStatus, Role},
        policy::Policy,
        transitions::State,
    },
    service::{Completion, Error, Stop},
};
use pointsman_tests::rig::{BASE, FakeWorker, Rig, run::Errand, worker::approve};

async fn scene(state: State) -> (Rig, FakeWorker, pointsman_master::domain::ids::WorkflowId) {
    let rig = Rig::new().await;
    let worker = FakeWorker::registered(&rig, "w").await;
    let id = rig.pull_request_in(&worker, state).await;
    (rig, worker, id)
}

#[tokio::test]
async fn a_late_approval_of_a_head_that_moved_changes_nothing() {
    let (rig, worker, id) = scene(State::Reviewing).await;
    let review = rig.leased(&worker, id, Role::Reviewer).await;
    let branch = rig.row(id).await.workflow.head_ref.clone();
    let pushed = rig.remote.add_to(&branch, "by a person").await;
    rig.reconcile().await;
    assert_eq!(rig.state(id).await, State::AwaitingCi);
    assert_eq!(rig.left(id, "head_moved").await, State::Reviewing);

    let before = rig.history().await;
    let key = review.lease.key;
    let late = worker
        .complete(&rig, key, Completion::Verdict(approve()))
        .await;
    assert!(matches!(late, Err(Error::LeaseLost { .. })), "{late:?}");
    let stops = worker.beat(&rig, &[key]).await.expect("the beat is taken");
    assert!(matches!(stops[..], [Stop::Cancelled { .. }]), "{stops:?}");
    let after = rig.history().await;
    assert_eq!(after.events, before.events);
    assert_eq!(after.workflows, before.workflows);

    rig.check(&worker, id, 0).await;
    let again = rig.leased(&worker, id, Role::Reviewer).await;
    assert_eq!(again.checkout_commit, pushed, "the new head is reviewed");
    worker.say(&rig, &again, approve()).await;
    rig.carry_out().await;
    assert_eq!(rig.state(id).await, State::Merged);
    assert!(rig.remote.contains(BASE, &pushed).await);
}

#[tokio::test]
async fn an_approval_before_the_push_was_seen_merges_nothing() {
    let (rig, worker, id) = scene(State::Reviewing).await;
    let review = rig.leased(&worker, id, Role::Reviewer).await;
    let branch = rig.row(id).await.workflow.head_ref.clone();
    let pushed = rig.remote.add_to(&branch, "by a person").await;
    worker.say(&rig, &review, approve()).await;
    assert_eq!(rig.state(id).await, State::Merging);
    rig.carry_out().await;
    assert_eq!(rig.state(id).await, State::AwaitingCi);
    assert_eq!(rig.left(id, "merge_blocked").await, State::Merging);
    assert_eq!(rig.remote.merges(BASE).await, []);
    assert_eq!(rig.remote.tip(&branch).await, Some(pushed));
    assert_eq!(rig.history().await.faults(), Vec::<String>::new());
}

#[tokio::test]
async fn a_push_before_ours_is_kept_and_our_commit_is_named_to_the_next() {
    for state in [State::Implementing, State::ConflictResolving] {
        let (rig, worker, id) = scene(state).await;
        let role = state.role().expect("an attempt runs there");
        let grant = rig.leased(&worker, id, role).await;
        let branch = rig.row(id).await.workflow.head_ref.clone();
        let theirs = rig.remote.add_to(&branch, "by a person").await;
        let ours = worker.work(&rig, &grant).await;
        let verdict = match role {
            Role::ConflictResolver => pointsman_master::domain::verdict::Verdict::Resolved {
                commit: Some(ours.clone()),
            },
            _ => pointsman_tests::rig::worker::changed(&ours),
        };
        worker.say(&rig, &grant, verdict).await;
        assert_eq!(rig.state(id).await, state, "it waits for the branch");
        rig.carry_out().await;

        assert_eq!(
            rig.remote.tip(&branch).await,
            Some(theirs.clone()),
            "{state}"
        );
        assert_eq!(rig.state(id).await, state);
        let row = rig.store.attempt(grant.attempt.id).await;
        let attempt = row
            .expect("the store answers")
            .expect("it is there")
            .attempt;
        assert_eq!(attempt.status, AttemptStatus::Superseded);
        assert_eq!(attempt.pickup_count, 0, "nobody's fault");
        assert_eq!(rig.row(id).await.workflow.progress().counters.head_moves, 1);

        let next = rig.leased(&worker, id, role).await;
        assert_eq!(next.checkout_commit, theirs);
        assert_eq!(next.workflow.progress().facts.superseded_commits, [ours]);
        assert_eq!(rig.history().await.faults(), Vec::<String>::new());
    }
}

#[tokio::test]
async fn a_branch_of_ours_that_somebody_else_made_is_not_overwritten() {
    let rig = Rig::new().await;
    let worker = FakeWorker::registered(&rig, "w").await;
    let id = rig.issue_in(&worker, State::Implementing).await;
    let grant = rig.leased(&worker, id, Role::Implementer).await;
    let branch = rig.row(id).await.workflow.head_ref.clone();
    let base = rig.remote.tip(BASE).await.expect("it is there");
    let theirs = rig.remote.commit(&base, "by a person").await;
    rig.remote.put(&branch, &theirs).await;
    let ours = worker.change(&rig, &grant).await;
    rig.carry_out().await;
    assert_eq!(rig.remote.tip(&branch).await, Some(theirs.clone()));
    assert_eq!(rig.state(id).await, State::Implementing);
    let next = rig.leased(&worker, id, Role::Implementer).await;
    assert_eq!(next.checkout_commit, theirs);
    assert_eq!(next.workflow.progress().facts.superseded_commits, [ours]);
    worker.change(&rig, &next).await;
    rig.carry_out().await;
    assert_eq!(rig.state(id).await, State::CreatedPr);
    assert_eq!(rig.history().await.faults(), Vec::<String>::new());
}

/// A bot that pushes to the branch between any two of our steps, where `is_its_turn`.
async fn check_bot(name: &str, is_its_turn: impl Fn(State) -> bool) {
    let rig = Rig::new().await;
    rig.submit("Make it work").await;
    let mut errand = Errand::slow(&rig);
    let mut n_pushed = 0;
    for _ in 0..500 {
        errand.step(&rig).await;
        let rows = rig.workflows().await;
        let Some(row) = rows.get(1) else { continue };
        if row.workflow.state().is_terminal() {
            break;
        }
        if is_its_turn(row.workflow.state()) {
            n_pushed += 1;
            let message = format!("by a bot, {n_pushed}");
            rig.remote.add_to(&row.workflow.head_ref, &message).await;
        }
    }
    let history = rig.history().await;
    let row = &history.workflows[1];
    assert_eq!(row.workflow.state(), State::Stuck, "{name}");
    assert_eq!(history.faults(), Vec::<String>::new(), "{name}");
    assert_eq!(history.loose_ends(), Vec::<String>::new(), "{name}");
    let n_attempts = history.attempts_of(row.workflow.id).count();
    let bound = Policy::default().max_attempts();
    assert!(
        n_attempts <= bound as usize,
        "{name}: {n_attempts} attempts, {bound} are the bound"
    );
    assert!(n_pushed > 4, "{name}: it pushed {n_pushed} times");
    assert_eq!(rig.remote.merges(BASE).await, [], "{name}");
}

#[tokio::test]
async fn a_bot_that_pushes_at_every_step_comes_to_an_end() {
    check_bot("always", |_| true).await;
    check_bot("in review", |state| state == State::Reviewing).await;
}

#[tokio::test]
async fn a_bot_that_pushes_before_every_merge_comes_to_an_end() {
    check_bot("before the merge", |state| state == State::Merging).await;
}
