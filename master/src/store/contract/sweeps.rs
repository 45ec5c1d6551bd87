//! What sweeps look for.

use std::time::Duration;

use super::world::{World, commit, progress, state_of};
use crate::{
    domain::{
        attempt::{AttemptStatus, MAX_UNCHARGED_ERRORS, Role, Subject},
        ci::{CheckDefinition, Conclusion},
        ids::{AttemptId, EffectId, WorkflowId},
        transitions::State,
        workflow::Workflow,
    },
    store::model::CheckRun,
};

const MICROSECOND: Duration = Duration::from_micros(1);

pub(crate) async fn due_effects_leave_paused_workflows_out(world: &World) {
    let repository = world.repository("lamp").await;
    let merging = world.workflow(&repository, State::Merging).await;
    let paused = world.workflow(&repository, State::Paused).await;
    let other = world.workflow(&repository, State::Merging).await;
    let now = world.now();
    let mut late = world.new_effect(&merging);
    late.next_try_at = now.after(MICROSECOND);
    let mut tx = world.tx().await;
    tx.open_effect(&late).await.unwrap();
    tx.open_effect(&world.new_effect(&paused)).await.unwrap();
    let due = world.new_effect(&other);
    tx.open_effect(&due).await.unwrap();
    tx.commit().await.unwrap();
    let store = world.store();
    let ids = async |now, limit| -> Vec<EffectId> {
        let effects = store.due_effects(now, limit).await.unwrap();
        effects.iter().map(|effect| effect.id).collect()
    };
    assert_eq!(ids(now, 9).await, [due.id]);
    let then = now.after(MICROSECOND);
    assert_eq!(ids(then, 9).await, [due.id, late.id]);
    assert_eq!(ids(then, 1).await, [due.id]);
    let mut tx = world.tx().await;
    tx.close_effect(due.id, now).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(ids(then, 9).await, [late.id]);
}

pub(crate) async fn polls_of_ci_are_due_without_an_open_effect(world: &World) {
    let repository = world.repository("lamp").await;
    let set = world.workflow(&repository, State::AwaitingCi).await;
    let never_set = world.workflow(&repository, State::AwaitingCi).await;
    let with_effect = world.workflow(&repository, State::AwaitingCi).await;
    let elsewhere = world.workflow(&repository, State::Reviewing).await;
    let effect = world.open_effect(&with_effect).await;
    let now = world.now();
    let due = now.after(MICROSECOND);
    let mut tx = world.tx().await;
    tx.set_ci_poll(set.id, 1, due).await.unwrap();
    tx.set_ci_poll(with_effect.id, 1, now).await.unwrap();
    tx.set_ci_poll(elsewhere.id, 1, now).await.unwrap();
    tx.commit().await.unwrap();
    let store = world.store();
    assert_eq!(store.due_ci_polls(now, 9).await.unwrap(), [never_set.id]);
    let both = [never_set.id, set.id];
    assert_eq!(store.due_ci_polls(due, 9).await.unwrap(), both);
    assert_eq!(store.due_ci_polls(due, 1).await.unwrap(), both[..1]);
    let mut tx = world.tx().await;
    tx.close_effect(effect.id, now).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(store.due_ci_polls(due, 9).await.unwrap().len(), 3);
}

async fn without_work(world: &World) -> Vec<WorkflowId> {
    let store = world.store();
    store.workflows_without_work(None, 999).await.unwrap()
}

pub(crate) async fn discovered_workflows_are_without_work(world: &World) {
    let repository = world.repository("lamp").await;
    let workflow = world.workflow(&repository, State::Discovered).await;
    assert_eq!(without_work(world).await, [workflow.id]);
}

pub(crate) async fn a_state_with_a_role_needs_an_attempt_or_an_effect(world: &World) {
    let repository = world.repository("lamp").await;
    for &role in Role::ALL.iter().filter(|&&role| role != Role::Ci) {
        let bare = world.workflow(&repository, state_of(role)).await;
        assert_eq!(without_work(world).await, [bare.id]);
        let effect = world.open_effect(&bare).await;
        assert_eq!(without_work(world).await, []);
        let mut tx = world.tx().await;
        tx.close_effect(effect.id, world.now()).await.unwrap();
        tx.commit().await.unwrap();
        for &status in AttemptStatus::ALL {
            let mut attempt = world.new_attempt(&bare, role);
            attempt.status = status;
            world.insert_attempt(&attempt, 0).await;
            let expected: &[WorkflowId] = if status.is_live() { &[] } else { &[bare.id] };
            assert_eq!(without_work(world).await, expected, "{status}");
            attempt.status = AttemptStatus::Failed;
            let mut tx = world.tx().await;
            tx.update_attempt(&attempt).await.unwrap();
            tx.commit().await.unwrap();
        }
        // Another subject's attempt is not its work.
        let check = world.new_check(&bare, "make", 1);
        world.insert_check(&check).await;
        add_attempt(world, &bare, &check).await;
        assert_eq!(without_work(world).await, [bare.id]);
        world
            .insert_attempt(&world.new_attempt(&bare, role), 0)
            .await;
        assert_eq!(without_work(world).await, []);
    }
}

async fn add_attempt(world: &World, workflow: &Workflow, check: &CheckRun) -> AttemptId {
    let mut attempt = world.new_attempt(workflow, Role::Ci);
    attempt.subject = Subject::Check(check.id);
    world.insert_attempt(&attempt, 0).await;
    attempt.id
}

pub(crate) async fn a_check_needs_a_conclusion_or_an_attempt(world: &World) {
    let repository = world.repository("lamp").await;
    let workflow = world.workflow(&repository, State::AwaitingCi).await;
    let missing = [workflow.id];
    // No check of its head.
    assert_eq!(without_work(world).await, missing);
    let mut old_head = world.new_check(&workflow, "make", 1);
    old_head.commit = commit(2);
    world.insert_check(&old_head).await;
    assert_eq!(without_work(world).await, missing);
    // A run that nobody works on.
    let mut first = world.new_check(&workflow, "make", 1);
    world.insert_check(&first).await;
    assert_eq!(without_work(world).await, missing);
    add_attempt(world, &workflow, &first).await;
    assert_eq!(without_work(world).await, []);
    first.conclusion = Some(Conclusion::Failure);
    let mut tx = world.tx().await;
    tx.update_check_run(&first).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(without_work(world).await, []);
    // A second check beside it, which is not one of the repository's.
    let lint = world.new_check(&workflow, "lint", 1);
    world.insert_check(&lint).await;
    assert_eq!(without_work(world).await, missing);
    // A newer run of it counts, and the older one no more.
    let second = world.new_check(&workflow, "lint", 2);
    world.insert_check(&second).await;
    assert_eq!(without_work(world).await, missing);
    add_attempt(world, &workflow, &second).await;
    assert_eq!(without_work(world).await, []);
}

pub(crate) async fn each_check_of_the_repository_has_a_run_on_the_head(world: &World) {
    let mut repository = world.new_repository("lamp");
    let lint = CheckDefinition {
        name: "lint".to_owned(),
        command: "make lint".to_owned(),
    };
    repository.checks.push(lint);
    world.insert_repository(&repository).await;
    let workflow = world.workflow(&repository, State::AwaitingCi).await;
    for name in ["make", "lint"] {
        assert_eq!(without_work(world).await, [workflow.id], "without {name}");
        let run = world.new_check(&workflow, name, 1);
        world.insert_check(&run).await;
        add_attempt(world, &workflow, &run).await;
    }
    assert_eq!(without_work(world).await, []);
}

pub(crate) async fn without_checks_none_is_missing(world: &World) {
    let mut repository = world.new_repository("lamp");
    repository.checks.clear();
    world.insert_repository(&repository).await;
    world.workflow(&repository, State::AwaitingCi).await;
    assert_eq!(without_work(world).await, []);
}

pub(crate) async fn discovered_workflows_wait_for_room(world: &World) {
    let mut repository = world.new_repository("lamp");
    repository.policy.max_live_workflows = 1;
    world.insert_repository(&repository).await;
    let waiting = world.workflow(&repository, State::Discovered).await;
    assert_eq!(without_work(world).await, [waiting.id]);
    let mut tx = world.tx().await;
    assert_eq!(tx.count_live_workflows(repository.id).await.unwrap(), 0);
    drop(tx);
    world.workflow(&repository, State::Merging).await;
    assert_eq!(without_work(world).await, []);
}

pub(crate) async fn resting_workflows_need_no_work(world: &World) {
    let repository = world.repository("lamp").await;
    for &state in State::ALL {
        let is_resting = state.is_terminal() || matches!(state, State::Paused | State::Merging);
        if is_resting {
            world.workflow(&repository, state).await;
        }
    }
    assert_eq!(without_work(world).await, []);
}

pub(crate) async fn workflows_without_work_are_paged(world: &World) {
    let repository = world.repository("lamp").await;
    let mut ids = Vec::new();
    for state in [State::Discovered, State::AwaitingCi, State::Analyzing] {
        ids.push(world.workflow(&repository, state).await.id);
    }
    let store = world.store();
    let page = store.workflows_without_work(None, 2).await.unwrap();
    assert_eq!(page, ids[..2]);
    let page = store.workflows_without_work(Some(ids[1]), 2).await;
    assert_eq!(page.unwrap(), ids[2..]);
}

pub(crate) async fn spent_attempts_are_told_by_policy(world: &World) {
    let mut strict = world.new_repository("strict");
    strict.policy.max_pickups = 2;
    world.insert_repository(&strict).await;
    let usual = world.repository("usual").await;
    assert_eq!(usual.policy.max_pickups, 3);
    let role = Role::Reviewer;
    let mut spent = Vec::new();
    for (repository, pickups, errors, is_spent) in [
        (&strict, 1, 0, false),
        (&strict, 2, 0, true),
        (&usual, 2, 0, false),
        (&usual, 3, 0, true),
        (&usual, 9, 0, true),
        (&usual, 0, MAX_UNCHARGED_ERRORS - 1, false),
        (&usual, 0, MAX_UNCHARGED_ERRORS, true),
    ] {
        let attempt = world
            .work_with(repository, role, 0, |attempt| {
                attempt.pickup_count = pickups;
                attempt.uncharged_errors = errors;
            })
            .await;
        if is_spent {
            spent.push((attempt.id, attempt.workflow));
        }
    }
    // Work in progress is not over, and a terminal workflow needs no verdict.
    for (state, status, expected) in [
        (State::Reviewing, AttemptStatus::InProgress, false),
        (State::Reviewing, AttemptStatus::Failed, false),
        (State::Stuck, AttemptStatus::Pending, false),
        (State::Paused, AttemptStatus::Pending, true),
    ] {
        let workflow = world.new_workflow(usual.id, progress(state));
        world.insert_workflow(&workflow).await;
        let mut attempt = world.new_attempt(&workflow, role);
        attempt.pickup_count = 3;
        attempt.status = status;
        world.insert_attempt(&attempt, 0).await;
        if expected {
            spent.push((attempt.id, attempt.workflow));
        }
    }
    let store = world.store();
    assert_eq!(store.spent_attempts(None, 99).await.unwrap(), spent);
    let page = store.spent_attempts(Some(spent[1].0), 2).await.unwrap();
    assert_eq!(page, spent[2..4]);
}
