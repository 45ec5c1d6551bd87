//! Attempts.

use serde_json::json;

use super::world::{World, commit};
use crate::{
    domain::{
        attempt::{AttemptStatus, Outcome, Role, Subject},
        ids::{AttemptId, Fence},
        time::Timestamp,
        transitions::State,
    },
    store::{Constraint, Error},
};

pub(crate) async fn an_attempt_is_read_as_it_was_written(world: &World) {
    let repository = world.repository("lamp").await;
    let workflow = world.workflow(&repository, State::AwaitingCi).await;
    let check = world.new_check(&workflow, "make", 1);
    world.insert_check(&check).await;
    let mut attempt = world.new_attempt(&workflow, Role::Ci);
    attempt.subject = Subject::Check(check.id);
    world.insert_attempt(&attempt, 3).await;
    let row = world.store().attempt(attempt.id).await.unwrap().unwrap();
    assert_eq!(row.attempt, attempt);
    assert_eq!(row.check_name.as_deref(), Some("make"));
    assert_eq!(row.worker, None);
    attempt.status = AttemptStatus::Failed;
    attempt.commit = Some(commit(1));
    attempt.fence = Fence(4);
    attempt.pickup_count = 2;
    attempt.uncharged_errors = 1;
    attempt.not_before = Some(Timestamp(5));
    attempt.accepted = Some((Fence(4), world.nonce()));
    attempt.outcome = Some(Outcome {
        name: "crashed".to_owned(),
        detail: json!({"signal": 9}),
    });
    attempt.started_at = Some(Timestamp(6));
    attempt.ended_at = Some(Timestamp(7));
    let mut tx = world.tx().await;
    tx.update_attempt(&attempt).await.unwrap();
    tx.set_attempt_commit(attempt.id, &commit(8)).await.unwrap();
    attempt.commit = Some(commit(8));
    assert_eq!(
        tx.attempt(attempt.id).await.unwrap().as_ref(),
        Some(&attempt)
    );
    let nobody = AttemptId(world.id());
    assert_eq!(tx.attempt(nobody).await.unwrap(), None);
    let error = tx.set_attempt_commit(nobody, &commit(8)).await.unwrap_err();
    assert!(matches!(error, Error::LostRace("attempt")));
    tx.commit().await.unwrap();
    let row = world.store().attempt(attempt.id).await.unwrap().unwrap();
    assert_eq!(row.attempt, attempt);
}

/// Which statuses keep others out is the domain's `is_live`.
pub(crate) async fn a_subject_has_one_live_attempt(world: &World) {
    let repository = world.repository("lamp").await;
    for &status in AttemptStatus::ALL {
        let workflow = world.workflow(&repository, State::Reviewing).await;
        let mut first = world.new_attempt(&workflow, Role::Reviewer);
        first.status = status;
        world.insert_attempt(&first, 0).await;
        let second = world.new_attempt(&workflow, Role::Reviewer);
        let mut tx = world.tx().await;
        let result = tx.insert_attempt(&second, 0).await;
        if status.is_live() {
            assert!(
                matches!(result, Err(Error::Constraint(Constraint::OneLiveAttempt))),
                "{status}"
            );
        } else {
            result.unwrap();
            // And the first one can't come back beside it.
            first.status = AttemptStatus::Pending;
            let error = tx.update_attempt(&first).await.unwrap_err();
            assert!(matches!(
                error,
                Error::Constraint(Constraint::OneLiveAttempt)
            ));
        }
    }
    // Each check is a subject of its own.
    let workflow = world.workflow(&repository, State::AwaitingCi).await;
    for name in ["a", "b"] {
        let check = world.new_check(&workflow, name, 1);
        world.insert_check(&check).await;
        let mut attempt = world.new_attempt(&workflow, Role::Ci);
        attempt.subject = Subject::Check(check.id);
        world.insert_attempt(&attempt, 0).await;
    }
}

pub(crate) async fn live_attempts_are_those_that_the_domain_calls_live(world: &World) {
    let repository = world.repository("lamp").await;
    let workflow = world.workflow(&repository, State::AwaitingCi).await;
    let mut live = Vec::new();
    for (run, &status) in (1..).zip(AttemptStatus::ALL) {
        let check = world.new_check(&workflow, "make", run);
        world.insert_check(&check).await;
        let mut attempt = world.new_attempt(&workflow, Role::Ci);
        attempt.subject = Subject::Check(check.id);
        attempt.status = status;
        world.insert_attempt(&attempt, 0).await;
        if status.is_live() {
            live.push(attempt);
        }
    }
    let read = world.tx().await.live_attempts(workflow.id).await.unwrap();
    assert_eq!(read, live);
}

pub(crate) async fn the_newest_attempts_come_oldest_first(world: &World) {
    let repository = world.repository("lamp").await;
    let workflow = world.workflow(&repository, State::Reviewing).await;
    let mut ids = Vec::new();
    for _ in 0..3 {
        let mut attempt = world.new_attempt(&workflow, Role::Reviewer);
        attempt.status = AttemptStatus::Failed;
        world.insert_attempt(&attempt, 0).await;
        ids.push(attempt.id);
    }
    let newest = world.store().attempts_of(workflow.id, 2).await.unwrap();
    let newest: Vec<AttemptId> = newest.iter().map(|row| row.attempt.id).collect();
    assert_eq!(newest, ids[1..]);
}

pub(crate) async fn an_old_fence_is_not_written(world: &World) {
    let repository = world.repository("lamp").await;
    let before = world.work(&repository, Role::Reviewer).await;
    world.claim_ids(Role::Reviewer, 1).await;
    let mut tx = world.tx().await;
    let error = tx.update_attempt(&before).await.unwrap_err();
    assert!(matches!(error, Error::LostRace("attempt")));
    let now = tx.attempt(before.id).await.unwrap().unwrap();
    tx.update_attempt(&now).await.unwrap();
}
