//! Workflows of one item, one after the other.

use super::{
    rows::{being, moved},
    world::{World, progress},
};
use crate::{
    domain::{
        ids::WorkflowId,
        time::Timestamp,
        transitions::State,
        workflow::{Kind, Progress, Workflow},
    },
    store::{
        Constraint, Error,
        model::{Repository, WorkflowRow},
    },
};

/// A new workflow of the same item that names the one before it.
fn follower(world: &World, before: &Workflow) -> Workflow {
    let next = world.new_workflow(before.repository, progress(State::Discovered));
    being(&next, |identity| {
        identity.number = before.number;
        identity.predecessor = Some(before.id);
    })
}

async fn row(world: &World, id: WorkflowId) -> WorkflowRow {
    world.store().workflow(id).await.unwrap().unwrap()
}

pub(crate) async fn a_predecessor_is_read_from_both_ends(world: &World) {
    let repository = world.repository("lamp").await;
    let first = world.workflow(&repository, State::Abandoned).await;
    let second = follower(world, &first);
    world.insert_workflow(&second).await;
    let (before, after) = (row(world, first.id).await, row(world, second.id).await);
    assert_eq!(
        (before.workflow.predecessor, before.successor),
        (None, Some(second.id))
    );
    assert_eq!(
        (after.workflow.predecessor, after.successor),
        (Some(first.id), None)
    );
    let store = world.store();
    let newest = store.workflow_of_item(repository.id, first.number).await;
    assert_eq!(newest.unwrap(), Some(after));
}

pub(crate) async fn a_workflow_is_followed_once(world: &World) {
    let repository = world.repository("lamp").await;
    let first = world.workflow(&repository, State::Abandoned).await;
    let second = follower(world, &first);
    let over = Workflow::restore(second.identity().clone(), progress(State::Abandoned)).unwrap();
    world.insert_workflow(&over).await;
    let mut tx = world.tx().await;
    let error = tx
        .insert_workflow(&follower(world, &first), world.now())
        .await
        .unwrap_err();
    assert!(matches!(error, Error::Constraint(Constraint::OneSuccessor)));
}

async fn may_leave(world: &World, repository: &Repository) -> Vec<WorkflowId> {
    let mut found = Vec::new();
    loop {
        let page = world
            .store()
            .workflows_that_may_leave(repository.id, found.last().copied(), 1)
            .await
            .unwrap();
        let Some(row) = page.first() else {
            return found;
        };
        found.push(row.workflow.id);
    }
}

pub(crate) async fn what_is_over_may_leave_until_it_was_seen_to(world: &World) {
    let repository = world.repository("lamp").await;
    let other = world.repository("other").await;
    world.workflow(&other, State::Abandoned).await;
    let mut expected = Vec::new();
    for &state in State::ALL {
        let workflow = world.workflow(&repository, state).await;
        if state == State::Abandoned {
            expected.push(workflow.id);
        }
    }
    // By page, each page one row.
    expected.push(world.workflow(&repository, State::Abandoned).await.id);
    // One that another one follows is not looked at any more.
    let first = world.workflow(&repository, State::Abandoned).await;
    world.insert_workflow(&follower(world, &first)).await;
    assert_eq!(may_leave(world, &repository).await, expected);

    let mut tx = world.tx().await;
    let mut locked = tx.lock_workflow(expected[0]).await.unwrap().unwrap();
    let left = Progress {
        left_at: Some(Timestamp(1)),
        ..progress(State::Abandoned)
    };
    locked.workflow = moved(&locked.workflow, left);
    tx.update_workflow(&mut locked, world.now()).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(may_leave(world, &repository).await, expected[1..]);
}

pub(crate) async fn an_issue_may_leave_once_its_pull_request_is_over(world: &World) {
    let repository = world.repository("lamp").await;
    for &state in State::ALL {
        let pull_request = world.workflow(&repository, state).await;
        let opened = Progress {
            pull_request: Some(pull_request.number),
            ..progress(State::CreatedPr)
        };
        let issue = world.new_workflow(repository.id, opened);
        let issue = being(&issue, |identity| identity.kind = Kind::Issue);
        world.insert_workflow(&issue).await;
        let found = may_leave(world, &repository).await.contains(&issue.id);
        let is_over = matches!(state, State::Abandoned | State::Stuck);
        assert_eq!(found, is_over, "{state}");
        if state == State::Abandoned {
            // Its newest workflow counts.
            world.insert_workflow(&follower(world, &pull_request)).await;
            let found = may_leave(world, &repository).await;
            assert!(!found.contains(&issue.id));
        }
    }
}
