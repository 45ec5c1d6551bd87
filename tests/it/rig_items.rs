//! Items of the built-in forge, and policies: changed by people, each change once and in the history.

use pointsman_master::{
    domain::{
        attempt::Role,
        decision::LabelState,
        ids::RequestId,
        policy::{Policy, PolicyField},
        transitions::State,
    },
    service::{Change, Error, NewComment},
    store::model::{About, EventRow},
};
use pointsman_tests::rig::{
    BASE, FakeWorker, PERSON, REPOSITORY, Rig, faulty_store::Loss, run::Errand,
};

/// Rows of the history about repositories.
async fn told(rig: &Rig) -> Vec<EventRow> {
    let events = rig.store.events(None, 0, 10_000).await;
    let mut events = events.expect("the store answers");
    events.retain(|event| matches!(event.about, About::Repository(_)));
    events
}

async fn kinds(rig: &Rig) -> Vec<String> {
    told(rig).await.into_iter().map(|e| e.kind).collect()
}

#[tokio::test]
async fn closing_an_issue_ends_its_workflow_at_once_and_again_changes_nothing() {
    let rig = Rig::new().await;
    let worker = FakeWorker::registered(&rig, "w").await;
    let id = rig.issue_in(&worker, State::Implementing).await;
    let grant = rig.leased(&worker, id, Role::Implementer).await;
    let number = rig.row(id).await.workflow.number;
    let close = || {
        rig.service()
            .close_item(REPOSITORY, number, "not needed", PERSON)
    };
    let Ok(Change::Changed(view)) = close().await else {
        panic!("it is closed");
    };
    assert!(!view.item.is_open);
    assert_eq!(rig.state(id).await, State::Abandoned);
    let event = rig.event(id, "upstream_closed").await;
    assert_eq!(
        (event.actor.as_str(), event.reason.as_str()),
        (PERSON, "not needed")
    );
    let stops = worker.beat(&rig, &[grant.lease.key]).await;
    assert_eq!(
        stops.expect("the beat is taken").len(),
        1,
        "its session ends"
    );
    assert!(matches!(close().await, Ok(Change::Unchanged(_))));
    assert_eq!(
        kinds(&rig).await,
        ["repository_added", "item_submitted", "item_closed"]
    );
    assert!(worker.lease(&rig, 10).await.is_empty());
    assert_eq!(rig.history().await.faults(), Vec::<String>::new());
    assert_eq!(rig.history().await.loose_ends(), Vec::<String>::new());
}

#[tokio::test]
async fn an_issue_that_is_opened_again_gets_another_workflow() {
    let rig = Rig::new().await;
    let first = rig.submit("Make it work").await;
    let service = rig.service();
    let closed = service.close_item(REPOSITORY, 1, "no", PERSON).await;
    closed.expect("it is closed");
    let reopened = service.reopen_item(REPOSITORY, 1, "yes", PERSON).await;
    let view = reopened.expect("it is opened again").into_inner();
    assert!(view.item.is_open);
    let next = view.workflow.expect("it has a workflow").workflow.id;
    assert_ne!(next, first);
    assert_eq!(rig.state(first).await, State::Abandoned);
    assert_eq!(rig.state(next).await, State::Analyzing);
    let again = service.reopen_item(REPOSITORY, 1, "yes", PERSON).await;
    assert!(matches!(again, Ok(Change::Unchanged(_))), "{again:?}");
    assert_eq!(rig.history().await.faults(), Vec::<String>::new());
}

#[tokio::test]
async fn what_was_merged_is_not_opened_again() {
    let rig = Rig::new().await;
    let worker = FakeWorker::registered(&rig, "w").await;
    let id = rig.pull_request_in(&worker, State::Merging).await;
    rig.carry_out().await;
    assert_eq!(rig.state(id).await, State::Merged);
    let number = rig.row(id).await.workflow.number;
    let before = rig.remote.tip(BASE).await;
    let refused = rig
        .service()
        .reopen_item(REPOSITORY, number, "again", PERSON)
        .await;
    assert!(
        matches!(refused, Err(Error::ItemMerged { .. })),
        "{refused:?}"
    );
    rig.turn().await;
    assert_eq!(rig.remote.tip(BASE).await, before);
}

#[tokio::test]
async fn a_comment_whose_answer_was_lost_is_made_once() {
    let rig = Rig::new().await;
    rig.submit("Make it work").await;
    let request = Some(RequestId(rig.chance.next()));
    let say = |body| {
        let new = NewComment {
            repository: REPOSITORY,
            number: 1,
            body,
            request,
        };
        rig.service().comment(new, "because", PERSON)
    };
    rig.faults.fail_next(Loss::After);
    assert!(say("hello").await.is_err());
    let Ok(Change::Unchanged(comment)) = say("hello").await else {
        panic!("it was made");
    };
    assert_eq!((comment.comment, comment.author.as_str()), (1, PERSON));
    let other = say("another text").await;
    assert!(
        matches!(other, Err(Error::AlreadyExists { .. })),
        "{other:?}"
    );
    let comments = rig.service().comments(REPOSITORY, 1, 0, 10).await;
    assert_eq!(comments.expect("they are listed"), [comment]);
    assert_eq!(
        kinds(&rig).await,
        ["repository_added", "item_submitted", "item_commented"]
    );
    let nothing = rig.service().comments(REPOSITORY, 2, 0, 10).await;
    assert!(
        matches!(nothing, Err(Error::NotFound { .. })),
        "{nothing:?}"
    );
}

#[tokio::test]
async fn a_policy_is_changed_field_by_field_and_the_history_has_both() {
    let rig = Rig::new().await;
    let policy = Policy {
        max_tier: 2,
        review_rounds: 9,
        ..Policy::default()
    };
    let fields = [PolicyField::MaxTier];
    let update = |policy: Policy| {
        let service = rig.service();
        async move {
            service
                .update_policy(REPOSITORY, &policy, &fields, "cheaper", PERSON)
                .await
        }
    };
    let rounds = Policy::default().review_rounds;
    let changed = update(policy.clone()).await;
    let Ok(Change::Changed(repository)) = changed else {
        panic!("it is changed: {changed:?}");
    };
    assert_eq!(repository.policy.max_tier, 2);
    assert_eq!(repository.policy.review_rounds, rounds, "not asked for");
    let again = update(policy.clone()).await;
    assert!(matches!(again, Ok(Change::Unchanged(_))), "{again:?}");
    let bad = Policy {
        max_tier: 99,
        ..policy
    };
    let refused = update(bad).await;
    assert!(
        matches!(&refused, Err(Error::Invalid { field, .. }) if field == "policy.max_tier"),
        "{refused:?}"
    );
    let events = told(&rig).await;
    let newest = events.last().expect("it is told");
    assert_eq!(
        (events.len(), newest.kind.as_str(), newest.reason.as_str()),
        (2, "policy_updated", "cheaper")
    );
    let expected = serde_json::json!({ "before": { "max_tier": 3 }, "after": { "max_tier": 2 } });
    assert_eq!(newest.detail, expected);
    // What is under way goes by it.
    let stored = rig.store.repository(repository.id).await;
    let stored = stored.expect("the store answers").expect("it is there");
    assert_eq!(stored, repository);
}

/// fabrik#1083, ADR-1089: a bot and the agent answered each other's comments about 995 times.
#[tokio::test]
async fn comments_start_nothing() {
    let rig = Rig::new().await;
    let worker = FakeWorker::registered(&rig, "w").await;
    rig.submit("Make it work").await;
    Errand::new(&rig).finish(&rig, 60).await;
    let before = rig.workflows().await;
    for n in 0..20 {
        let new = NewComment {
            repository: REPOSITORY,
            number: 1 + n % 2,
            body: "Please go on.",
            request: None,
        };
        let said = rig.service().comment(new, "because", PERSON).await;
        assert!(matches!(said, Ok(Change::Changed(_))), "{said:?}");
        rig.reconcile().await;
        rig.carry_out().await;
    }
    assert_eq!(rig.workflows().await, before);
    assert!(worker.lease(&rig, 5).await.is_empty());
}

#[tokio::test]
async fn what_is_submitted_and_labelled_is_in_the_history_once_with_who_and_why() {
    let rig = Rig::new().await;
    rig.submit("Make it work").await;
    for state in [LabelState::Present, LabelState::Present, LabelState::Absent] {
        let set = rig
            .service()
            .set_label(REPOSITORY, 1, "later", state, "because", PERSON);
        set.await.expect("the label is set");
    }
    let told = told(&rig).await;
    let kinds: Vec<&str> = told.iter().map(|event| event.kind.as_str()).collect();
    assert_eq!(
        kinds,
        [
            "repository_added",
            "item_submitted",
            "item_labelled",
            "item_unlabelled"
        ]
    );
    for event in &told[2..] {
        assert_eq!(
            (event.actor.as_str(), event.reason.as_str()),
            (PERSON, "because")
        );
        assert_eq!(event.detail["label"], "later");
    }
}
