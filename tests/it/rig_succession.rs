//! Which workflow is it: an item that is seen again after its workflow has ended.

use pointsman_master::{
    domain::{
        attempt::Role,
        decision::{Gate, LabelState, Refusal, Running},
        ids::WorkflowId,
        succession::Standing,
        transitions::State,
        verdict::Verdict,
        workflow::Kind,
    },
    service::{Change, Error, Request},
    store::model::WorkflowRow,
    sweeps::Sweep,
};
use pointsman_tests::rig::{
    BASE, FakeWorker, LABEL, PERSON, REPOSITORY, Rig, ask,
    drive::failed,
    place::{Doing, PLACES, Scene},
    run::Errand,
};

/// An issue whose workflow was declined.
async fn declined() -> (Rig, FakeWorker, WorkflowId) {
    let rig = Rig::new().await;
    let worker = FakeWorker::registered(&rig, "w").await;
    let id = rig.issue_in(&worker, State::Analyzing).await;
    let grant = rig.leased(&worker, id, Role::Estimator).await;
    let reason = "not wanted".to_owned();
    worker.say(&rig, &grant, Verdict::Declined { reason }).await;
    assert_eq!(rig.state(id).await, State::Abandoned);
    (rig, worker, id)
}

/// An issue whose pull request was closed unmerged; with the pull request's workflow.
async fn opened_in_vain() -> (Rig, FakeWorker, WorkflowId, WorkflowId) {
    let rig = Rig::new().await;
    let worker = FakeWorker::registered(&rig, "w").await;
    let child = rig.pull_request_in(&worker, State::Reviewing).await;
    let issue = rig.row(child).await.workflow.parent.expect("its issue");
    rig.set_open(child, false).await;
    rig.reconcile().await;
    assert_eq!(rig.state(child).await, State::Abandoned);
    (rig, worker, issue, child)
}

/// The one workflow that follows `id`, linked from both ends.
async fn successor(rig: &Rig, id: WorkflowId) -> WorkflowRow {
    let before = rig.row(id).await;
    let next = before.successor.expect("it is followed");
    let row = rig.row(next).await;
    assert_eq!(row.workflow.predecessor, Some(id));
    assert_eq!(row.workflow.number, before.workflow.number);
    let discovered = rig.event(next, "workflow_discovered").await;
    assert_eq!(discovered.detail["predecessor"], id.to_string());
    row
}

/// Reconciles again and again, which changes nothing, and follows nothing.
async fn stays(rig: &Rig, id: WorkflowId) {
    for _ in 0..3 {
        rig.reconcile().await;
    }
    let report = rig.master.reconciler.run_once().await;
    assert_eq!(report.expect("it reconciles").changed, 0);
    assert_eq!(rig.row(id).await.successor, None);
}

async fn checked(rig: &Rig) {
    assert_eq!(rig.history().await.faults(), Vec::<String>::new());
}

/// How somebody takes an item back, and brings it again.
#[derive(Debug, Clone, Copy)]
enum Way {
    Label,
    Closed,
    /// By our own call, in whose transaction it is seen.
    LabelByUs,
}

impl Way {
    async fn leave(self, rig: &Rig, id: WorkflowId) {
        match self {
            Self::Label => rig.set_labelled(id, LabelState::Absent).await,
            Self::Closed => rig.set_open(id, false).await,
            Self::LabelByUs => rig.label(id, LabelState::Absent).await,
        }
    }

    async fn come_back(self, rig: &Rig, id: WorkflowId) {
        match self {
            Self::Label => rig.set_labelled(id, LabelState::Present).await,
            Self::Closed => rig.set_open(id, true).await,
            Self::LabelByUs => rig.label(id, LabelState::Present).await,
        }
    }
}

#[tokio::test]
async fn what_was_declined_stays_until_its_item_left_and_came_back() {
    for way in [Way::Label, Way::Closed, Way::LabelByUs] {
        let (rig, worker, id) = declined().await;
        stays(&rig, id).await;
        way.leave(&rig, id).await;
        rig.reconcile().await;
        assert_eq!(rig.count_events(id, "item_left").await, 1, "{way:?}");
        stays(&rig, id).await;
        way.come_back(&rig, id).await;
        rig.reconcile().await;
        let next = successor(&rig, id).await;
        assert_eq!(next.workflow.state(), State::Analyzing, "{way:?}");
        assert_ne!(next.workflow.head_ref, rig.row(id).await.workflow.head_ref);
        stays(&rig, next.workflow.id).await;
        rig.leased(&worker, next.workflow.id, Role::Estimator).await;
        checked(&rig).await;
    }
}

#[tokio::test]
async fn an_item_that_left_and_came_back_unseen_has_not_left() {
    let (rig, _worker, id) = declined().await;
    rig.set_open(id, false).await;
    rig.set_open(id, true).await;
    stays(&rig, id).await;
    assert_eq!(rig.count_events(id, "item_left").await, 0);
}

#[tokio::test]
async fn a_label_that_our_own_call_gives_back_was_seen_to_be_missing() {
    let (rig, _worker, id) = declined().await;
    // Nobody has looked while it was off, but the call that gives it back finds it so.
    rig.set_labelled(id, LabelState::Absent).await;
    rig.label(id, LabelState::Present).await;
    assert_eq!(rig.count_events(id, "item_left").await, 1);
    successor(&rig, id).await;
    checked(&rig).await;
}

#[tokio::test]
async fn what_was_closed_under_way_begins_anew_where_it_is_reopened() {
    for place in PLACES.iter().filter(|place| place.kind == Kind::Issue) {
        let scene = Scene::at(*place).await;
        let Scene { rig, id, .. } = &scene;
        rig.set_open(*id, false).await;
        rig.reconcile().await;
        stays(rig, *id).await;
        rig.set_open(*id, true).await;
        rig.reconcile().await;
        let next = successor(rig, *id).await;
        let base = rig.remote.tip(BASE).await;
        assert_eq!(next.workflow.progress().head, base, "{place:?}");
        checked(rig).await;
    }
}

#[tokio::test]
async fn an_issue_begins_anew_once_its_pull_request_has_ended_unmerged() {
    let (rig, _worker, issue, child) = opened_in_vain().await;
    let earlier = rig.row(child).await.workflow.head_ref.clone();
    let tip = rig.remote.tip(&earlier).await;
    stays(&rig, issue).await;
    rig.label(issue, LabelState::Absent).await;
    rig.label(issue, LabelState::Present).await;
    let next = successor(&rig, issue).await.workflow.id;
    assert_eq!(
        rig.row(next).await.workflow.progress().head,
        rig.remote.tip(BASE).await,
        "it starts from the base branch"
    );
    Errand::new(&rig).finish(&rig, 60).await;
    let rows = rig.workflows().await;
    let states: Vec<_> = rows.iter().map(|row| row.workflow.state()).collect();
    let expected = [
        State::CreatedPr,
        State::Abandoned,
        State::CreatedPr,
        State::Merged,
    ];
    assert_eq!(states, expected);
    let second = &rows[3].workflow;
    assert_eq!(second.parent, Some(next));
    assert_ne!(second.number, rig.row(child).await.workflow.number);
    assert_eq!(
        rig.remote.tip(&earlier).await,
        tip,
        "the earlier one stays as it ended"
    );
    checked(&rig).await;
}

#[tokio::test]
async fn an_issue_whose_label_was_off_while_its_pull_request_was_under_way_has_not_left() {
    let rig = Rig::new().await;
    let worker = FakeWorker::registered(&rig, "w").await;
    let child = rig.pull_request_in(&worker, State::Reviewing).await;
    let issue = rig.row(child).await.workflow.parent.expect("its issue");
    rig.label(issue, LabelState::Absent).await;
    rig.reconcile().await;
    rig.label(issue, LabelState::Present).await;
    rig.set_open(child, false).await;
    rig.reconcile().await;
    assert_eq!(rig.state(child).await, State::Abandoned);
    stays(&rig, issue).await;
}

#[tokio::test]
async fn a_pull_request_that_is_reopened_begins_anew_on_its_own_branch() {
    let (rig, worker, issue, child) = opened_in_vain().await;
    let ended = rig.row(child).await.workflow;
    rig.set_open(child, true).await;
    rig.reconcile().await;
    let next = successor(&rig, child).await.workflow;
    assert_eq!(next.head_ref, ended.head_ref);
    assert_eq!(next.parent, Some(issue));
    assert_eq!(next.progress().head, ended.progress().head);
    assert_eq!(next.state(), State::AwaitingCi, "its issue analysed it");
    rig.check(&worker, next.id, 0).await;
    assert_eq!(rig.state(next.id).await, State::Reviewing);
    // The issue is not over while this one is under way.
    rig.label(issue, LabelState::Absent).await;
    rig.label(issue, LabelState::Present).await;
    stays(&rig, issue).await;
    checked(&rig).await;
}

#[tokio::test]
async fn what_is_merged_or_stuck_stays() {
    let rig = Rig::new().await;
    rig.submit("Make it work").await;
    Errand::new(&rig).finish(&rig, 60).await;
    let rows = rig.workflows().await;
    let (issue, merged) = (rows[0].workflow.id, rows[1].workflow.id);
    assert_eq!(rig.state(merged).await, State::Merged);

    let worker = FakeWorker::registered(&rig, "w").await;
    let stuck = rig.issue_in(&worker, State::Escalating).await;
    let grant = rig.leased(&worker, stuck, Role::Escalator).await;
    let reason = "too hard".to_owned();
    worker.say(&rig, &grant, Verdict::GiveUp { reason }).await;
    assert_eq!(rig.state(stuck).await, State::Stuck);

    for id in [issue, merged, stuck] {
        for way in [Way::Label, Way::Closed, Way::LabelByUs] {
            way.leave(&rig, id).await;
            rig.reconcile().await;
            way.come_back(&rig, id).await;
            stays(&rig, id).await;
        }
    }
    assert_eq!(rig.workflows().await.len(), 3);
    checked(&rig).await;
}

/// Refused for the reason, and nothing follows.
async fn refused(rig: &Rig, id: WorkflowId, fits: impl Fn(&Refusal) -> bool) {
    let n = rig.workflows().await.len();
    match rig.service().resubmit(ask(id, "again")).await {
        Err(Error::Refused(refusal)) => assert!(fits(&refusal), "{refusal:?}"),
        other => panic!("{other:?}"),
    }
    assert_eq!(rig.workflows().await.len(), n);
}

#[tokio::test]
async fn an_operator_resubmits_what_is_over_once() {
    let (rig, worker, id) = declined().await;
    let version = rig.row(id).await.version;
    let stale = Request {
        expected_version: Some(version + 1),
        ..ask(id, "again")
    };
    let wrong = rig.service().resubmit(stale).await;
    assert!(
        matches!(wrong, Err(Error::VersionMismatch { .. })),
        "{wrong:?}"
    );

    let Ok(Change::Changed(next)) = rig.service().resubmit(ask(id, "again")).await else {
        panic!("it is resubmitted");
    };
    assert_eq!(successor(&rig, id).await, next);
    assert_eq!(next.workflow.state(), State::Analyzing, "and admitted");
    let event = rig.event(next.workflow.id, "workflow_discovered").await;
    assert_eq!(
        (event.actor.as_str(), event.reason.as_str()),
        (PERSON, "again")
    );

    // The answer was lost: it is asked again, with the version that it knew, however far the new one is.
    let grant = rig.leased(&worker, next.workflow.id, Role::Estimator).await;
    worker.finish(&rig, &grant).await.expect("it is taken");
    let again = Request {
        expected_version: Some(version),
        ..ask(id, "again")
    };
    let Ok(Change::Unchanged(same)) = rig.service().resubmit(again).await else {
        panic!("it is the same");
    };
    assert_eq!(same.workflow.id, next.workflow.id);
    assert_eq!(rig.workflows().await.len(), 2);
    checked(&rig).await;
}

#[tokio::test]
async fn a_resubmit_is_refused_with_what_to_do_instead() {
    let not_over = |expected: Standing| move |refusal: &Refusal| matches!(refusal, Refusal::NotOver { standing, .. } if *standing == expected);
    for place in PLACES.iter().filter(|place| place.doing == Doing::Waiting) {
        let scene = Scene::at(*place).await;
        let live = not_over(Standing::Live(place.state));
        refused(&scene.rig, scene.id, live).await;
        scene.pause(Running::Left).await;
        refused(
            &scene.rig,
            scene.id,
            not_over(Standing::Live(State::Paused)),
        )
        .await;
    }

    let (rig, _worker, id) = declined().await;
    rig.set_labelled(id, LabelState::Absent).await;
    refused(&rig, id, |r| matches!(r, Refusal::LabelAbsent { .. })).await;
    rig.set_labelled(id, LabelState::Present).await;
    rig.set_open(id, false).await;
    refused(&rig, id, |r| matches!(r, Refusal::ItemOver { .. })).await;
    assert_eq!(Gate::of(false, true), Gate::ItemOver);

    let rig = Rig::new().await;
    let worker = FakeWorker::registered(&rig, "w").await;
    let child = rig.pull_request_in(&worker, State::Implementing).await;
    let issue = rig.row(child).await.workflow.parent.expect("its issue");
    let number = rig.row(child).await.workflow.number;
    let state = State::Implementing;
    let live = not_over(Standing::PullRequestLive { number, state });
    refused(&rig, issue, live).await;
    // Three tiers that fail.
    for _ in 0..3 {
        let grant = rig.leased(&worker, child, Role::Implementer).await;
        worker.say(&rig, &grant, failed()).await;
        if rig.state(child).await == State::Escalating {
            let grant = rig.leased(&worker, child, Role::Escalator).await;
            worker.finish(&rig, &grant).await.expect("it is taken");
        }
    }
    assert_eq!(rig.state(child).await, State::Stuck);
    refused(&rig, child, not_over(Standing::Stuck)).await;
    refused(&rig, issue, not_over(Standing::PullRequestStuck { number })).await;

    let rig = Rig::new().await;
    rig.submit("Make it work").await;
    Errand::new(&rig).finish(&rig, 60).await;
    let rows = rig.workflows().await;
    let number = rows[1].workflow.number;
    refused(&rig, rows[1].workflow.id, not_over(Standing::Merged)).await;
    let merged = not_over(Standing::PullRequestMerged { number });
    refused(&rig, rows[0].workflow.id, merged).await;
}

#[tokio::test]
async fn an_issue_that_was_unstuck_goes_on_from_its_own_branch() {
    let rig = Rig::new().await;
    let worker = FakeWorker::registered(&rig, "w").await;
    let id = rig.issue_in(&worker, State::Escalating).await;
    let own = rig.row(id).await.workflow.head_ref.clone();
    let base = rig.remote.tip(BASE).await.expect("it is there");
    let begun = rig.remote.commit(&base, "begun").await;
    rig.remote.put(&own, &begun).await;
    let grant = rig.leased(&worker, id, Role::Escalator).await;
    let reason = "too hard".to_owned();
    worker.say(&rig, &grant, Verdict::GiveUp { reason }).await;
    rig.service()
        .unstick(ask(id, "try again"))
        .await
        .expect("it is unstuck");
    let grant = rig.leased(&worker, id, Role::Estimator).await;
    assert_eq!(grant.checkout_commit, begun);
    assert_eq!(rig.workflows().await.len(), 1, "it is the same workflow");
}

#[tokio::test]
async fn a_closed_item_is_not_unstuck() {
    let rig = Rig::new().await;
    let worker = FakeWorker::registered(&rig, "w").await;
    let id = rig.issue_in(&worker, State::Escalating).await;
    let grant = rig.leased(&worker, id, Role::Escalator).await;
    let reason = "too hard".to_owned();
    worker.say(&rig, &grant, Verdict::GiveUp { reason }).await;
    rig.set_open(id, false).await;
    let refused = rig.service().unstick(ask(id, "again")).await;
    let is_over = matches!(refused, Err(Error::Refused(Refusal::ItemOver { .. })));
    assert!(is_over, "{refused:?}");
    assert_eq!(rig.state(id).await, State::Stuck);
}

/// A commit that is lost, or whose answer is, at each step of an item that leaves and comes back.
#[tokio::test]
async fn whichever_commit_is_lost_an_item_that_came_back_has_one_successor() {
    use pointsman_tests::rig::faulty_store::Loss;
    for n in 0..6 {
        for loss in [Loss::Before, Loss::After] {
            let (rig, _worker, id) = declined().await;
            rig.faults.fail(rig.faults.writes() + 1 + n, loss);
            for is_open in [false, true] {
                rig.set_open(id, is_open).await;
                for _ in 0..2 {
                    let _the_next_turn_is_the_retry = rig.master.reconciler.run_once().await;
                }
            }
            let asked = rig.service().resubmit(ask(id, "again")).await;
            if let Ok(change) = asked {
                assert_eq!(
                    change.into_inner().workflow.id,
                    successor(&rig, id).await.workflow.id
                );
            }
            rig.reconcile().await;
            successor(&rig, id).await;
            assert_eq!(rig.workflows().await.len(), 2, "write {n} {loss:?}");
            checked(&rig).await;
        }
    }
}

#[tokio::test]
async fn a_label_on_a_closed_item_starts_nothing() {
    let rig = Rig::new().await;
    let worker = FakeWorker::registered(&rig, "w").await;
    let id = rig.issue_in(&worker, State::Implementing).await;
    rig.label(id, LabelState::Absent).await;
    rig.set_open(id, false).await;
    let number = rig.row(id).await.workflow.number;
    rig.service()
        .set_label(REPOSITORY, number, LABEL, LabelState::Present, "on", PERSON)
        .await
        .expect("the label is set");
    assert_eq!(rig.state(id).await, State::Abandoned);
    stays(&rig, id).await;
    checked(&rig).await;
}
