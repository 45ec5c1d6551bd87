//! Rows that leave for the archive.

use std::time::Duration;

use super::world::{World, progress};
use crate::{
    domain::{
        attempt::{AttemptStatus, Role, Subject},
        ids::WorkflowId,
        retention::is_over,
        time::Timestamp,
        transitions::State,
        workflow::{Upstream, Workflow},
    },
    store::model::{About, HistoryBatch, HistoryKind, NewEvent},
};

const ALL: u32 = 1000;

async fn archivable(world: &World, before: Timestamp) -> Vec<WorkflowId> {
    let store = world.store();
    let mut found = Vec::new();
    let mut after = None;
    loop {
        let page = store.archivable_workflows(before, after, 2).await.unwrap();
        after = page.last().copied();
        if after.is_none() {
            return found;
        }
        found.extend(page.into_iter().map(|(_, id)| id));
    }
}

/// The statement says the same as the domain, of each state and end upstream.
pub(crate) async fn those_that_are_over_and_old_are_archivable(world: &World) {
    let repository = world.repository("lamp").await;
    let mut over = Vec::new();
    for &state in State::ALL {
        for upstream in [None, Some(Upstream::Closed), Some(Upstream::Merged)] {
            let progress = crate::domain::workflow::Progress {
                upstream,
                ..progress(state)
            };
            let workflow = world.new_workflow(repository.id, progress);
            world.insert_workflow(&workflow).await;
            if is_over(&workflow) {
                over.push(workflow.id);
            }
        }
    }
    assert!(over.len() > 4);
    assert_eq!(
        archivable(world, world.now()).await,
        [],
        "none is old enough"
    );
    world.advance(Duration::from_secs(1));
    assert_eq!(archivable(world, world.now()).await, over);
    let mut tx = world.tx().await;
    tx.set_history_moved(over[0]).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(archivable(world, world.now()).await, over[1..]);
    let mut tx = world.tx().await;
    let mut locked = tx.lock_workflow(over[0]).await.unwrap().unwrap();
    tx.update_workflow(&mut locked, world.now()).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(
        archivable(world, world.now()).await,
        over,
        "whatever moves it"
    );
}

async fn one_of_each(world: &World) -> Workflow {
    let repository = world.repository("lamp").await;
    let workflow = world.workflow(&repository, State::Merged).await;
    let check = world.new_check(&workflow, "make", 1);
    world.insert_check(&check).await;
    let mut attempt = world.new_attempt(&workflow, Role::Ci);
    attempt.subject = Subject::Check(check.id);
    attempt.status = AttemptStatus::Succeeded;
    world.insert_attempt(&attempt, 0).await;
    let mut effect = world.new_effect(&workflow);
    effect.attempt = Some(attempt.id);
    let mut tx = world.tx().await;
    tx.open_effect(&effect).await.unwrap();
    tx.close_effect(effect.id, world.now()).await.unwrap();
    for reason in ["one", "two", "three"] {
        tx.append_event(&world.new_event(&workflow, reason))
            .await
            .unwrap();
    }
    tx.commit().await.unwrap();
    workflow
}

async fn delete(world: &World, batch: &HistoryBatch) -> bool {
    let mut tx = world.tx().await;
    let is_deleted = tx.delete_history(batch).await.unwrap();
    if is_deleted {
        tx.commit().await.unwrap();
    }
    is_deleted
}

pub(crate) async fn history_leaves_so_that_nothing_refers_to_what_is_gone(world: &World) {
    let workflow = one_of_each(world).await;
    let store = world.store();
    let mut kinds = Vec::new();
    while let Some(batch) = store.oldest_history(workflow.id, 2).await.unwrap() {
        assert_eq!(batch.workflow, Some(workflow.id));
        for row in &batch.rows {
            let json: serde_json::Value = serde_json::from_str(&row.line).unwrap();
            assert_eq!(json["kind"], batch.kind.to_string());
            assert!(!row.line.contains('\n') && !row.line.contains("nonce"));
        }
        kinds.push((batch.kind, batch.rows.len()));
        assert!(delete(world, &batch).await);
        assert!(!delete(world, &batch).await, "they are gone already");
    }
    let expected = [
        (HistoryKind::Event, 2),
        (HistoryKind::Event, 1),
        (HistoryKind::Effect, 1),
        (HistoryKind::Attempt, 1),
        (HistoryKind::Check, 1),
    ];
    assert_eq!(kinds, expected);
    assert!(store.workflow(workflow.id).await.unwrap().is_some());
}

pub(crate) async fn live_attempts_and_open_effects_do_not_leave(world: &World) {
    let repository = world.repository("lamp").await;
    let workflow = world.workflow(&repository, State::Reviewing).await;
    let attempt = world.new_attempt(&workflow, Role::Reviewer);
    world.insert_attempt(&attempt, 0).await;
    world.open_effect(&workflow).await;
    let oldest = world.store().oldest_history(workflow.id, ALL).await;
    assert_eq!(oldest.unwrap(), None);
}

pub(crate) async fn old_events_of_others_leave_alone(world: &World) {
    let workflow = one_of_each(world).await;
    let event = |about| NewEvent {
        about,
        ..world.new_event(&workflow, "of others")
    };
    let mut tx = world.tx().await;
    let about = About::Repository(workflow.repository);
    tx.append_event(&event(about)).await.unwrap();
    tx.commit().await.unwrap();
    let store = world.store();
    let early = store.oldest_other_events(world.now(), ALL).await.unwrap();
    assert_eq!(early, None, "it is not old enough");
    world.advance(Duration::from_secs(1));
    let batch = store.oldest_other_events(world.now(), ALL).await.unwrap();
    let batch = batch.unwrap();
    assert_eq!((batch.workflow, batch.rows.len()), (None, 1));
    assert!(delete(world, &batch).await);
    let left = store.events(Some(workflow.id), 0, ALL).await.unwrap();
    assert_eq!(left.len(), 3);
}

pub(crate) async fn an_archived_workflow_says_so_and_is_a_change(world: &World) {
    let workflow = one_of_each(world).await;
    let store = world.store();
    let filter = crate::store::model::WorkflowFilter::default();
    let start = crate::store::model::ChangePoint::default();
    let before = store.changed_workflows(&filter, start, ALL).await.unwrap();
    let row = before.rows.first().unwrap();
    assert_eq!(row.archived_at, None);
    let mut tx = world.tx().await;
    tx.set_archived(workflow.id, Timestamp(5)).await.unwrap();
    tx.commit().await.unwrap();
    let after = store.changed_workflows(&filter, before.point, ALL).await;
    let after = after.unwrap().rows.pop().unwrap();
    assert_eq!(after.archived_at, Some(Timestamp(5)));
    assert_eq!(after.version, row.version, "not what `version` guards");
}
