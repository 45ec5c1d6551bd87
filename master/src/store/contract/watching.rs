//! What is watched and listed, and priorities.

use super::world::{World, offer, progress};
use crate::{
    domain::{
        attempt::{AttemptStatus, Role},
        ids::{AttemptId, WorkerId, WorkflowId},
        transitions::State,
    },
    store::{
        Error, MAX_SCANNED,
        model::{AttemptFilter, ChangePoint, WorkflowFilter},
    },
};

const ALL: u32 = 1000;

async fn changed(world: &World, after: ChangePoint, limit: u32) -> (Vec<WorkflowId>, ChangePoint) {
    let filter = WorkflowFilter::default();
    let store = world.store();
    let changes = store.changed_workflows(&filter, after, limit);
    let changes = changes.await.unwrap();
    assert_eq!(changes.is_all, changes.rows.len() < limit as usize);
    let ids = changes.rows.iter().map(|row| row.workflow.id).collect();
    (ids, changes.point)
}

/// Writes the workflow as it is, which counts as a change.
async fn touch(world: &World, id: WorkflowId) {
    let mut tx = world.tx().await;
    let mut locked = tx.lock_workflow(id).await.unwrap().unwrap();
    tx.update_workflow(&mut locked, world.now()).await.unwrap();
    tx.commit().await.unwrap();
}

pub(crate) async fn changes_come_in_the_order_of_their_writes(world: &World) {
    let repository = world.repository("lamp").await;
    let a = world.workflow(&repository, State::Reviewing).await.id;
    let b = world.workflow(&repository, State::Reviewing).await.id;
    let start = ChangePoint::default();
    let (ids, point) = changed(world, start, ALL).await;
    assert_eq!(ids, [a, b]);
    assert_eq!(changed(world, point, ALL).await, (vec![], point));
    touch(world, a).await;
    let (ids, later) = changed(world, point, ALL).await;
    assert_eq!(ids, [a], "each once, and only what was written");
    assert!(later > point);
    assert_eq!(changed(world, start, ALL).await.0, [b, a]);
}

/// What moves behind a reader who pages is met again, and nothing is passed over.
pub(crate) async fn pages_of_changes_miss_nothing_that_is_written_meanwhile(world: &World) {
    let repository = world.repository("lamp").await;
    let mut ids = Vec::new();
    for _ in 0..5 {
        ids.push(world.workflow(&repository, State::Reviewing).await.id);
    }
    let (first, point) = changed(world, ChangePoint::default(), 2).await;
    assert_eq!(first, ids[..2]);
    touch(world, ids[0]).await;
    touch(world, ids[3]).await;
    let (second, point) = changed(world, point, 2).await;
    assert_eq!(second, [ids[2], ids[4]]);
    let (third, point) = changed(world, point, 2).await;
    assert_eq!(third, [ids[0], ids[3]]);
    assert_eq!(changed(world, point, 2).await.0, []);
}

pub(crate) async fn what_does_not_fit_the_filter_moves_the_point_all_the_same(world: &World) {
    let lamp = world.repository("lamp").await;
    let other = world.repository("other").await;
    let wanted = world.workflow(&lamp, State::Reviewing).await.id;
    world.workflow(&other, State::Reviewing).await;
    world.workflow(&lamp, State::Stuck).await;
    let filter = WorkflowFilter {
        repository: Some(lamp.id),
        states: vec![State::Reviewing],
        kind: None,
    };
    let store = world.store();
    let read = |after| store.changed_workflows(&filter, after, ALL);
    let changes = read(ChangePoint::default()).await.unwrap();
    let ids: Vec<WorkflowId> = changes.rows.iter().map(|row| row.workflow.id).collect();
    assert_eq!(ids, [wanted]);
    let (rest, _) = changed(world, changes.point, ALL).await;
    assert_eq!(rest, [], "all three are behind the point");
}

/// A point from before a copy was put back must not hide what is there now.
pub(crate) async fn a_point_that_was_never_given_begins_anew(world: &World) {
    let repository = world.repository("lamp").await;
    let id = world.workflow(&repository, State::Reviewing).await.id;
    let (ids, point) = changed(world, ChangePoint(1_000_000), ALL).await;
    assert_eq!(ids, [id]);
    assert_eq!(changed(world, point, ALL).await.0, []);
    let (ids, _) = changed(world, ChangePoint(u64::MAX), ALL).await;
    assert_eq!(ids, [id]);
}

pub(crate) async fn a_priority_moves_live_attempts_alone(world: &World) {
    let repository = world.repository("lamp").await;
    let other = world.work(&repository, Role::Reviewer).await;
    let first = world.work(&repository, Role::Reviewer).await;
    let mut tx = world.tx().await;
    let mut locked = tx.lock_workflow(first.workflow).await.unwrap().unwrap();
    let mut stale = locked.clone();
    tx.set_priority(&mut locked, 7, world.now()).await.unwrap();
    assert_eq!((locked.priority, locked.version), (7, stale.version + 1));
    let error = tx.set_priority(&mut stale, 8, world.now()).await;
    assert!(matches!(error, Err(Error::LostRace("workflow"))));
    tx.commit().await.unwrap();
    let row = world
        .store()
        .workflow(first.workflow)
        .await
        .unwrap()
        .unwrap();
    assert_eq!((row.priority, row.version), (7, locked.version));
    let claimed = world.claim_ids(Role::Reviewer, 2).await;
    assert_eq!(claimed, [first.id, other.id], "the younger one goes first");
}

pub(crate) async fn a_child_starts_with_its_parents_priority(world: &World) {
    let repository = world.repository("lamp").await;
    let parent = world.workflow(&repository, State::Implementing).await;
    let mut tx = world.tx().await;
    let mut locked = tx.lock_workflow(parent.id).await.unwrap().unwrap();
    tx.set_priority(&mut locked, -3, world.now()).await.unwrap();
    tx.commit().await.unwrap();
    let child = world.new_workflow(repository.id, progress(State::AwaitingCi));
    let mut identity = child.identity().clone();
    identity.parent = Some(parent.id);
    let child = crate::domain::workflow::Workflow::restore(identity, child.progress().clone());
    let child = child.unwrap();
    world.insert_workflow(&child).await;
    let row = world.store().workflow(child.id).await.unwrap().unwrap();
    assert_eq!(row.priority, -3);
}

async fn listed(
    world: &World,
    filter: &AttemptFilter,
    before: Option<AttemptId>,
    limit: u32,
) -> (Vec<AttemptId>, Option<AttemptId>) {
    let page = world.store().attempts(filter, before, limit).await.unwrap();
    let ids = page.rows.iter().map(|row| row.attempt.id).collect();
    (ids, page.next)
}

pub(crate) async fn attempts_are_filtered_and_paged_newest_first(world: &World) {
    let repository = world.repository("lamp").await;
    let review = world.work(&repository, Role::Reviewer).await;
    let failed = |attempt: &mut crate::domain::attempt::Attempt| {
        attempt.status = AttemptStatus::Failed;
    };
    let build = world
        .work_with(&repository, Role::Implementer, 0, failed)
        .await;
    let estimate = world.work(&repository, Role::Estimator).await;
    let claim = world.request(vec![offer(Role::Reviewer)], 1);
    let worker = claim.worker;
    world.claim(&claim).await;
    let all = AttemptFilter::default();
    let (ids, next) = listed(world, &all, None, ALL).await;
    assert_eq!((ids, next), (vec![estimate.id, build.id, review.id], None));
    let (ids, next) = listed(world, &all, None, 2).await;
    assert_eq!(ids, [estimate.id, build.id]);
    assert_eq!(listed(world, &all, next, 2).await, (vec![review.id], None));
    let cases = [
        (
            AttemptFilter {
                workflow: Some(build.workflow),
                ..all.clone()
            },
            vec![build.id],
        ),
        (
            AttemptFilter {
                statuses: vec![AttemptStatus::Pending, AttemptStatus::InProgress],
                ..all.clone()
            },
            vec![estimate.id, review.id],
        ),
        (
            AttemptFilter {
                roles: vec![Role::Estimator],
                ..all.clone()
            },
            vec![estimate.id],
        ),
        (
            AttemptFilter {
                worker: Some(worker),
                ..all.clone()
            },
            vec![review.id],
        ),
        (
            AttemptFilter {
                worker: Some(WorkerId(world.id())),
                ..all.clone()
            },
            vec![],
        ),
        (
            AttemptFilter {
                workflow: Some(build.workflow),
                roles: vec![Role::Estimator],
                ..all.clone()
            },
            vec![],
        ),
    ];
    for (filter, expected) in cases {
        assert_eq!(
            listed(world, &filter, None, ALL).await,
            (expected, None),
            "{filter:?}"
        );
    }
}

/// One more attempt than a page looks at: the oldest is on the second page.
pub(crate) async fn a_page_of_attempts_looks_at_a_bounded_number(world: &World) {
    let repository = world.repository("lamp").await;
    let oldest = world.work(&repository, Role::Estimator).await;
    let workflow = world.workflow(&repository, State::Reviewing).await;
    let mut tx = world.tx().await;
    for _ in 0..MAX_SCANNED {
        let mut attempt = world.new_attempt(&workflow, Role::Reviewer);
        attempt.status = AttemptStatus::Failed;
        tx.insert_attempt(&attempt, 0).await.unwrap();
    }
    tx.commit().await.unwrap();
    let filter = AttemptFilter {
        roles: vec![Role::Estimator],
        ..AttemptFilter::default()
    };
    let (ids, next) = listed(world, &filter, None, ALL).await;
    assert_eq!(ids, []);
    assert!(next.is_some(), "a short page that names the next");
    assert_eq!(
        listed(world, &filter, next, ALL).await,
        (vec![oldest.id], None)
    );
}
