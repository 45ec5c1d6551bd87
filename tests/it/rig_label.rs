//! The label gate: what happens to running work while the label is off, and after it is back.

use std::time::Duration;

use pointsman_master::{
    domain::{
        attempt::{AttemptStatus, InfrastructureClass, Role},
        decision::LabelState,
        ids::WorkflowId,
        transitions::State,
        verdict::Verdict,
        workflow::{Kind, PausedBy},
    },
    service::Grant,
    sweeps::Sweep,
};
use pointsman_tests::rig::{
    BASE, FakeWorker, Rig,
    drive::{failed, request_changes},
    run::Errand,
    worker::{approve, ready},
};

const TTL: Duration = Duration::from_secs(2 * 3600);

/// Something whose attempt is leased.
struct Scene {
    rig: Rig,
    worker: FakeWorker,
    id: WorkflowId,
    grant: Grant,
}

impl Scene {
    async fn new(kind: Kind, state: State) -> Self {
        let rig = Rig::new().await;
        let worker = FakeWorker::registered(&rig, "w").await;
        let id = match kind {
            Kind::Issue => rig.issue_in(&worker, state).await,
            Kind::PullRequest => rig.pull_request_in(&worker, state).await,
        };
        let role = state.role().expect("an attempt runs there");
        let grant = rig.leased(&worker, id, role).await;
        Self {
            rig,
            worker,
            id,
            grant,
        }
    }

    async fn paused(kind: Kind, state: State) -> Self {
        let scene = Self::new(kind, state).await;
        scene.rig.label(scene.id, LabelState::Absent).await;
        scene.check_rests(state).await;
        scene
    }

    /// PAUSED, to go on in `was`; nothing can be leased, and however often the cranks are turned nothing
    /// on the remote changes.
    async fn check_rests(&self, was: State) {
        let before = self.rig.remote.refs().await;
        for _ in 0..3 {
            self.rig.turn().await;
            self.rig.advance(Duration::from_secs(5));
            assert!(self.worker.lease(&self.rig, 10).await.is_empty());
        }
        let row = self.rig.row(self.id).await;
        assert_eq!(row.workflow.state(), State::Paused);
        let pause = row.workflow.progress().pause.expect("it is paused");
        assert_eq!((pause.was, pause.by), (was, PausedBy::Label));
        assert_eq!(self.rig.remote.refs().await, before);
    }

    async fn restore(&self) {
        self.rig.label(self.id, LabelState::Present).await;
    }

    async fn attempt_status(&self) -> AttemptStatus {
        let row = self.rig.store.attempt(self.grant.attempt.id).await;
        row.expect("the store answers")
            .expect("it is there")
            .attempt
            .status
    }

    async fn check_history(&self) {
        assert_eq!(self.rig.history().await.faults(), Vec::<String>::new());
    }
}

/// A verdict that arrives under PAUSED is kept, decided against where the workflow was, and nothing else
/// happens until the label is back.
async fn check_outcome_is_kept(kind: Kind, state: State, verdict: Verdict, next: State) {
    let scene = Scene::paused(kind, state).await;
    assert_eq!(scene.attempt_status().await, AttemptStatus::InProgress);
    let stops = scene
        .worker
        .beat(&scene.rig, &[scene.grant.lease.key])
        .await;
    assert_eq!(stops.expect("the beat is taken"), [], "it runs on");
    scene.worker.say(&scene.rig, &scene.grant, verdict).await;
    assert_eq!(scene.attempt_status().await, AttemptStatus::Succeeded);
    scene.check_rests(next).await;
    scene.restore().await;
    assert_eq!(scene.rig.state(scene.id).await, next);
    if let Some(role) = next.role() {
        scene.rig.leased(&scene.worker, scene.id, role).await;
    }
    scene.check_history().await;
}

#[tokio::test]
async fn an_outcome_under_a_pause_is_decided_against_the_state_before_it() {
    let next = State::Implementing;
    let unresolved = Verdict::Unresolved {
        reason: "no".to_owned(),
    };
    let retry = Verdict::Retry {
        plan: "again".to_owned(),
    };
    check_outcome_is_kept(Kind::Issue, State::Analyzing, ready(), next).await;
    check_outcome_is_kept(
        Kind::Issue,
        State::Implementing,
        failed(),
        State::Escalating,
    )
    .await;
    check_outcome_is_kept(Kind::Issue, State::Escalating, retry, next).await;
    check_outcome_is_kept(
        Kind::PullRequest,
        State::ConflictResolving,
        unresolved,
        next,
    )
    .await;
    check_outcome_is_kept(Kind::PullRequest, State::Reviewing, request_changes(), next).await;
}

#[tokio::test]
async fn an_attempt_that_outlasts_the_pause_is_the_one_that_goes_on() {
    let scene = Scene::paused(Kind::PullRequest, State::Reviewing).await;
    scene.restore().await;
    assert_eq!(scene.rig.state(scene.id).await, State::Reviewing);
    assert!(
        scene.worker.lease(&scene.rig, 10).await.is_empty(),
        "no second attempt"
    );
    scene.worker.say(&scene.rig, &scene.grant, approve()).await;
    assert_eq!(scene.rig.state(scene.id).await, State::Merging);
    scene.check_history().await;
}

#[tokio::test]
async fn a_pending_attempt_is_cancelled_by_the_pause_and_made_anew_after_it() {
    let rig = Rig::new().await;
    let worker = FakeWorker::registered(&rig, "w").await;
    let id = rig.issue_in(&worker, State::Implementing).await;
    rig.label(id, LabelState::Absent).await;
    let status: Vec<AttemptStatus> = rig
        .history()
        .await
        .attempts_of(id)
        .map(|row| row.attempt.status)
        .collect();
    assert_eq!(status, [AttemptStatus::Succeeded, AttemptStatus::Cancelled]);
    rig.label(id, LabelState::Present).await;
    rig.leased(&worker, id, Role::Implementer).await;
}

#[tokio::test]
async fn a_commit_under_a_pause_waits_for_the_label_before_the_branch_moves() {
    let scene = Scene::paused(Kind::PullRequest, State::Implementing).await;
    let commit = scene.worker.change(&scene.rig, &scene.grant).await;
    scene.check_rests(State::Implementing).await;
    scene.restore().await;
    scene.rig.carry_out().await;
    assert_eq!(scene.rig.state(scene.id).await, State::AwaitingCi);
    let row = scene.rig.row(scene.id).await;
    assert_eq!(row.workflow.progress().head, Some(commit.clone()));
    assert_eq!(
        scene.rig.remote.tip(&row.workflow.head_ref).await,
        Some(commit)
    );
    scene.check_history().await;
}

#[tokio::test]
async fn a_pull_request_under_a_pause_is_opened_after_it() {
    let scene = Scene::paused(Kind::Issue, State::Implementing).await;
    scene.worker.change(&scene.rig, &scene.grant).await;
    scene.check_rests(State::Implementing).await;
    assert_eq!(scene.rig.workflows().await.len(), 1);
    scene.restore().await;
    scene.rig.carry_out().await;
    assert_eq!(scene.rig.state(scene.id).await, State::CreatedPr);
    assert_eq!(scene.rig.workflows().await.len(), 2);
    scene.check_history().await;
}

#[tokio::test]
async fn an_approval_under_a_pause_merges_after_it() {
    let scene = Scene::paused(Kind::PullRequest, State::Reviewing).await;
    scene.worker.say(&scene.rig, &scene.grant, approve()).await;
    scene.check_rests(State::Merging).await;
    scene.restore().await;
    scene.rig.carry_out().await;
    assert_eq!(scene.rig.state(scene.id).await, State::Merged);
    assert_eq!(scene.rig.remote.merges(BASE).await.len(), 1);
    scene.check_history().await;
}

#[tokio::test]
async fn a_terminal_outcome_under_a_pause_takes_hold_at_once() {
    let declined = Verdict::Declined {
        reason: "not wanted".to_owned(),
    };
    let give_up = Verdict::GiveUp {
        reason: "too hard".to_owned(),
    };
    let cases = [
        (State::Analyzing, declined, State::Abandoned),
        (State::Escalating, give_up, State::Stuck),
    ];
    for (state, verdict, end) in cases {
        let scene = Scene::paused(Kind::Issue, state).await;
        scene.worker.say(&scene.rig, &scene.grant, verdict).await;
        assert_eq!(scene.rig.state(scene.id).await, end);
        assert_eq!(
            scene.rig.row(scene.id).await.workflow.progress().pause,
            None
        );
        scene.check_history().await;
    }
}

/// How an attempt is lost.
#[derive(Debug, Clone, Copy)]
enum End {
    Reaped,
    Crashed,
    Released,
    WorkerDied,
}

#[tokio::test]
async fn an_attempt_that_is_lost_under_a_pause_is_cancelled_and_not_put_back() {
    for end in [End::Reaped, End::Crashed, End::Released, End::WorkerDied] {
        let scene = Scene::paused(Kind::Issue, State::Implementing).await;
        let Scene {
            rig, worker, grant, ..
        } = &scene;
        match end {
            End::Reaped => {
                rig.turn().await;
                rig.advance(TTL);
                rig.turn().await;
            }
            End::Crashed => worker.fail(rig, grant, InfrastructureClass::Crashed).await,
            End::Released => {
                let released = rig
                    .service()
                    .release(worker.row.id, grant.lease.key, "drain");
                released.await.expect("it is released");
            }
            End::WorkerDied => {
                let next = worker.restarted(rig);
                next.register(rig, &[]).await.expect("it is registered");
            }
        }
        assert_eq!(
            scene.attempt_status().await,
            AttemptStatus::Cancelled,
            "{end:?}"
        );
        let next = FakeWorker::registered(rig, "next").await;
        assert!(next.lease(rig, 10).await.is_empty(), "{end:?}");
        scene.restore().await;
        let again = rig.leased(&next, scene.id, Role::Implementer).await;
        assert_ne!(again.attempt.id, grant.attempt.id, "{end:?}");
        scene.check_history().await;
    }
}

/// A person pushes while the label is off: CI comes first, whatever was next.
async fn check_moved_head(state: State, event: &str) {
    let rig = Rig::new().await;
    let worker = FakeWorker::registered(&rig, "w").await;
    let id = rig.pull_request_in(&worker, state).await;
    rig.label(id, LabelState::Absent).await;
    let branch = rig.row(id).await.workflow.head_ref.clone();
    let pushed = rig.remote.add_to(&branch, "by a person").await;
    rig.turn().await;
    assert_eq!(rig.state(id).await, State::Paused);
    rig.label(id, LabelState::Present).await;
    assert_eq!(rig.state(id).await, State::AwaitingCi, "{state}");
    assert_eq!(rig.count_events(id, event).await, 1, "{state}");
    assert_eq!(
        rig.row(id).await.workflow.progress().head,
        Some(pushed.clone())
    );
    rig.turn().await;
    assert_eq!(
        rig.state(id).await,
        State::AwaitingCi,
        "its checks come first"
    );
    let check = rig.leased(&worker, id, Role::Ci).await;
    assert_eq!(check.checkout_commit, pushed);
    assert_eq!(rig.remote.merges(BASE).await, [], "nothing was merged");
    assert_eq!(rig.history().await.faults(), Vec::<String>::new());
}

#[tokio::test]
async fn a_head_that_moved_under_a_pause_goes_to_ci_first() {
    check_moved_head(State::Reviewing, "head_moved").await;
    check_moved_head(State::Merging, "merge_blocked").await;
}

#[tokio::test]
async fn time_under_a_pause_counts_towards_no_deadline_of_ci() {
    let rig = Rig::new().await;
    let worker = FakeWorker::registered(&rig, "w").await;
    let id = rig.pull_request_in(&worker, State::AwaitingCi).await;
    rig.label(id, LabelState::Absent).await;
    rig.advance(Duration::from_secs(30 * 24 * 3600));
    rig.turn().await;
    assert_eq!(rig.state(id).await, State::Paused);
    rig.label(id, LabelState::Present).await;
    rig.turn().await;
    assert_eq!(rig.state(id).await, State::AwaitingCi);
    rig.check(&worker, id, 0).await;
    assert_eq!(rig.state(id).await, State::Reviewing);
}

#[tokio::test]
async fn the_same_label_twice_changes_nothing() {
    let rig = Rig::new().await;
    let worker = FakeWorker::registered(&rig, "w").await;
    let id = rig.issue_in(&worker, State::Analyzing).await;
    for state in [LabelState::Present, LabelState::Absent, LabelState::Absent] {
        rig.label(id, state).await;
    }
    let report = rig.master.reconciler.run_once().await;
    assert_eq!(report.expect("it reconciles").changed, 0);
    assert_eq!(rig.count_events(id, "opt_in_label_removed").await, 1);
    assert_eq!(rig.count_events(id, "opt_in_label_restored").await, 0);
}

#[tokio::test]
async fn a_stored_pause_that_does_not_say_where_it_goes_on_starts_over() {
    let mut rig = Rig::new().await;
    let worker = FakeWorker::registered(&rig, "w").await;
    let id = rig.pull_request_in(&worker, State::Reviewing).await;
    rig.label(id, LabelState::Absent).await;
    rig.corrupt(
        "UPDATE workflows SET pre_pause_state = NULL, paused_by = NULL WHERE id = ?",
        &id.to_string(),
    )
    .await;
    rig.restart().await;
    assert_eq!(rig.state(id).await, State::Paused);
    rig.label(id, LabelState::Present).await;
    let restored = rig.event(id, "opt_in_label_restored").await;
    assert_eq!(
        restored.about.states().unwrap(),
        (State::Paused, State::Discovered)
    );
    Errand::new(&rig).finish(&rig, 60).await;
    assert_eq!(rig.state(id).await, State::Merged);
    let history = rig.history().await;
    assert_eq!(history.faults(), Vec::<String>::new());
    assert_eq!(history.loose_ends(), Vec::<String>::new());
}
