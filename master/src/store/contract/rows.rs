//! Repositories, workflows, the history, workers and effects.

use std::time::Duration;

use super::world::{World, commit, progress};
use crate::{
    domain::{
        attempt::Role,
        ci::{CheckDefinition, CheckFailure, Conclusion},
        effect::Effect,
        ids::{InstanceId, RepositoryId, WorkflowId},
        time::Timestamp,
        transitions::State,
        workflow::{
            Counters, Facts, Identity, Kind, Pause, PausedBy, Progress, Upstream, Workflow,
        },
    },
    store::{
        Constraint, Error,
        model::{About, ProfileRow, WorkflowFilter},
    },
};

/// A workflow with the same identity, at another place.
pub(super) fn moved(workflow: &Workflow, progress: Progress) -> Workflow {
    Workflow::restore(workflow.identity().clone(), progress).unwrap()
}

/// A workflow at the same place, with another identity.
pub(super) fn being(workflow: &Workflow, change: impl FnOnce(&mut Identity)) -> Workflow {
    let mut identity = workflow.identity().clone();
    change(&mut identity);
    Workflow::restore(identity, workflow.progress().clone()).unwrap()
}

async fn move_to(world: &World, workflow: &Workflow, progress: Progress) {
    let mut tx = world.tx().await;
    let mut locked = tx.lock_workflow(workflow.id).await.unwrap().unwrap();
    locked.workflow = moved(&locked.workflow, progress);
    tx.update_workflow(&mut locked, world.now()).await.unwrap();
    tx.commit().await.unwrap();
}

pub(crate) async fn a_repository_is_read_as_it_was_written(world: &World) {
    let mut repository = world.new_repository("lamp");
    repository.checks = ["test", "lint"]
        .map(|name| CheckDefinition {
            name: name.to_owned(),
            command: format!("make {name}"),
        })
        .to_vec();
    repository.policy.flaky_checks = vec!["lint-*".to_owned()];
    world.insert_repository(&repository).await;
    let store = world.store();
    let by_id = store.repository(repository.id).await.unwrap();
    assert_eq!(by_id.as_ref(), Some(&repository));
    assert_eq!(store.repository_by_name("lamp").await.unwrap(), by_id);
    assert_eq!(store.repository_by_name("Lamp").await.unwrap(), None);
    let nobody = RepositoryId(world.id());
    assert_eq!(store.repository(nobody).await.unwrap(), None);
}

pub(crate) async fn repositories_are_listed_by_name_by_page(world: &World) {
    for name in ["c", "a", "b"] {
        world.repository(name).await;
    }
    let store = world.store();
    let names = |page: Vec<crate::store::model::Repository>| -> Vec<String> {
        page.into_iter().map(|repository| repository.name).collect()
    };
    assert_eq!(names(store.repositories("", 2).await.unwrap()), ["a", "b"]);
    assert_eq!(names(store.repositories("b", 2).await.unwrap()), ["c"]);
}

pub(crate) async fn a_policy_is_replaced(world: &World) {
    let mut repository = world.repository("lamp").await;
    let other = world.repository("other").await;
    repository.policy.max_tier = 2;
    let mut tx = world.tx().await;
    tx.update_repository(&repository).await.unwrap();
    let read = tx.repository(repository.id).await.unwrap();
    assert_eq!(read.as_ref(), Some(&repository));
    tx.commit().await.unwrap();
    let store = world.store();
    assert_eq!(store.repository(repository.id).await.unwrap(), read);
    assert_eq!(store.repository(other.id).await.unwrap(), Some(other));
    let nobody = world.new_repository("nobody");
    let mut tx = world.tx().await;
    let error = tx.update_repository(&nobody).await.unwrap_err();
    assert!(matches!(error, Error::LostRace("repository")), "{error:?}");
}

pub(crate) async fn a_repository_name_is_unique(world: &World) {
    world.repository("lamp").await;
    let mut tx = world.tx().await;
    let error = tx
        .insert_repository(&world.new_repository("lamp"))
        .await
        .unwrap_err();
    assert!(matches!(
        error,
        Error::Constraint(Constraint::RepositoryName)
    ));
}

pub(crate) async fn a_workflow_is_read_as_it_was_written(world: &World) {
    let repository = world.repository("lamp").await;
    let workflow = world.workflow(&repository, State::Discovered).await;
    let row = world.store().workflow(workflow.id).await.unwrap().unwrap();
    assert_eq!(row.workflow, workflow);
    assert_eq!(row.repository_name, "lamp");
    assert_eq!((row.version, row.priority, row.ci_polls), (1, 0, 0));
    assert_eq!(row.state_since, world.now());
    assert_eq!(row.ci_next_poll_at, None);
    let locked = world.tx().await.lock_workflow(workflow.id).await.unwrap();
    let locked = locked.unwrap();
    assert_eq!(locked.workflow, workflow);
    assert_eq!(locked.repository, repository);
    assert_eq!(locked.version, row.version);
    let nobody = WorkflowId(world.id());
    assert!(world.store().workflow(nobody).await.unwrap().is_none());
    assert!(
        world
            .tx()
            .await
            .lock_workflow(nobody)
            .await
            .unwrap()
            .is_none()
    );
}

pub(crate) async fn a_moved_workflow_is_read_as_it_was_written(world: &World) {
    let repository = world.repository("lamp").await;
    let workflow = world.workflow(&repository, State::Discovered).await;
    let everything = Progress {
        state: State::Paused,
        pause: Some(Pause {
            was: State::Merging,
            by: PausedBy::Label,
        }),
        tier: 2,
        counters: Counters {
            ci_red_rounds: 1,
            review_rounds: 2,
            conflict_rounds: 3,
            ci_flake_retries_remaining: 4,
            merge_rounds: 5,
            head_moves: 6,
        },
        head: Some(commit(7)),
        awaiting_ci_started_at: Some(Timestamp(8)),
        merging_started_at: Some(Timestamp(9)),
        facts: Facts {
            plan: Some("Wire it.".to_owned()),
            ci_failures: vec![CheckFailure {
                name: "lint".to_owned(),
                conclusion: Conclusion::TimedOut,
                log_tail: "…".to_owned(),
            }],
            kept_commit: Some(commit(10)),
            ..Facts::default()
        },
        merged_commit: Some(commit(11)),
        pull_request: Some(12),
        upstream: None,
        left_at: None,
    };
    let left = Progress {
        left_at: Some(Timestamp(13)),
        ..progress(State::Abandoned)
    };
    for state in [
        left,
        everything.clone(),
        stuck(Upstream::Closed),
        stuck(Upstream::Merged),
    ] {
        move_to(world, &workflow, state.clone()).await;
        let row = world.store().workflow(workflow.id).await.unwrap().unwrap();
        assert_eq!(row.workflow.progress(), &state);
    }
}

fn stuck(upstream: Upstream) -> Progress {
    Progress {
        head: None,
        upstream: Some(upstream),
        ..progress(State::Stuck)
    }
}

pub(crate) async fn an_update_of_an_old_version_loses_the_race(world: &World) {
    let repository = world.repository("lamp").await;
    let workflow = world.workflow(&repository, State::Discovered).await;
    let mut tx = world.tx().await;
    let mut first = tx.lock_workflow(workflow.id).await.unwrap().unwrap();
    let mut second = first.clone();
    first.workflow = moved(&workflow, progress(State::Analyzing));
    tx.update_workflow(&mut first, world.now()).await.unwrap();
    assert_eq!(first.version, 2);
    second.workflow = moved(&workflow, progress(State::Abandoned));
    let error = tx
        .update_workflow(&mut second, world.now())
        .await
        .unwrap_err();
    assert!(matches!(error, Error::LostRace("workflow")));
    // Twice by the same holder is no race.
    tx.update_workflow(&mut first, world.now()).await.unwrap();
    tx.commit().await.unwrap();
    let row = world.store().workflow(workflow.id).await.unwrap().unwrap();
    assert_eq!((row.version, row.workflow.state()), (3, State::Analyzing));
}

pub(crate) async fn state_since_moves_with_the_state_alone(world: &World) {
    let repository = world.repository("lamp").await;
    let workflow = world.workflow(&repository, State::Discovered).await;
    let discovered_at = world.now();
    world.advance(Duration::from_secs(1));
    let mut tx = world.tx().await;
    let mut locked = tx.lock_workflow(workflow.id).await.unwrap().unwrap();
    tx.update_workflow(&mut locked, world.now()).await.unwrap();
    assert_eq!(locked.state_since, discovered_at);
    locked.workflow = moved(&workflow, progress(State::Analyzing));
    tx.update_workflow(&mut locked, world.now()).await.unwrap();
    assert_eq!(locked.state_since, world.now());
    tx.commit().await.unwrap();
    let row = world.store().workflow(workflow.id).await.unwrap().unwrap();
    assert_eq!(row.state_since, world.now());
    assert_eq!(row.updated_at, world.now());
}

/// In which states an item's workflow keeps others out is the domain's `is_terminal`.
pub(crate) async fn an_item_has_one_live_workflow(world: &World) {
    let repository = world.repository("lamp").await;
    for &state in State::ALL {
        let first = world.workflow(&repository, state).await;
        let second = world.new_workflow(repository.id, progress(State::Discovered));
        let second = being(&second, |identity| identity.number = first.number);
        let mut tx = world.tx().await;
        let result = tx.insert_workflow(&second, world.now()).await;
        if state.is_terminal() {
            result.unwrap();
            // And the first one can't come back beside it.
            let mut locked = tx.lock_workflow(first.id).await.unwrap().unwrap();
            locked.workflow = moved(&first, progress(State::Reviewing));
            let error = tx.update_workflow(&mut locked, world.now()).await;
            let error = error.unwrap_err();
            assert!(matches!(
                error,
                Error::Constraint(Constraint::OneLiveWorkflow)
            ));
        } else {
            assert!(
                matches!(result, Err(Error::Constraint(Constraint::OneLiveWorkflow))),
                "{state}"
            );
        }
    }
}

pub(crate) async fn live_workflows_are_counted_past_discovered(world: &World) {
    let repository = world.repository("lamp").await;
    let other = world.repository("other").await;
    world.workflow(&other, State::Reviewing).await;
    for &state in State::ALL {
        world.workflow(&repository, state).await;
    }
    let expected = State::ALL
        .iter()
        .filter(|state| !state.is_terminal() && **state != State::Discovered)
        .count();
    let n = world.tx().await.count_live_workflows(repository.id).await;
    assert_eq!(usize::try_from(n.unwrap()).unwrap(), expected);
    let n = world.store().count_live_workflows(repository.id).await;
    assert_eq!(usize::try_from(n.unwrap()).unwrap(), expected);
}

pub(crate) async fn workflows_are_filtered_and_paged(world: &World) {
    let (one, two) = (world.repository("one").await, world.repository("two").await);
    let a = world.workflow(&one, State::Reviewing).await.id;
    let b = world.workflow(&two, State::Merging).await.id;
    let c = world.workflow(&one, State::Merging).await.id;
    let issue = world.new_workflow(one.id, progress(State::Analyzing));
    let issue = being(&issue, |identity| identity.kind = Kind::Issue);
    world.insert_workflow(&issue).await;
    let d = issue.id;
    let store = world.store();
    let list = async |filter: WorkflowFilter, after: Option<WorkflowId>, limit: u32| {
        let page = store.workflows(&filter, after, limit).await.unwrap();
        page.into_iter()
            .map(|row| row.workflow.id)
            .collect::<Vec<_>>()
    };
    let all = WorkflowFilter::default();
    assert_eq!(list(all.clone(), None, 9).await, [a, b, c, d]);
    assert_eq!(list(all.clone(), None, 2).await, [a, b]);
    assert_eq!(list(all.clone(), Some(b), 2).await, [c, d]);
    let of_one = WorkflowFilter {
        repository: Some(one.id),
        ..all.clone()
    };
    assert_eq!(list(of_one.clone(), None, 9).await, [a, c, d]);
    let merging = WorkflowFilter {
        states: vec![State::Merging, State::Stuck],
        ..all.clone()
    };
    assert_eq!(list(merging, None, 9).await, [b, c]);
    let both = WorkflowFilter {
        kind: Some(Kind::Issue),
        ..of_one
    };
    assert_eq!(list(both, None, 9).await, [d]);
}

pub(crate) async fn the_newest_workflow_of_an_item_is_found(world: &World) {
    let repository = world.repository("lamp").await;
    let first = world.workflow(&repository, State::Abandoned).await;
    let second = world.new_workflow(repository.id, progress(State::Discovered));
    let second = being(&second, |identity| identity.number = first.number);
    world.insert_workflow(&second).await;
    let number = first.number;
    let read = world.store().workflow_of_item(repository.id, number).await;
    assert_eq!(read.unwrap().unwrap().workflow, second);
    let mut tx = world.tx().await;
    let read = tx.newest_workflow_of_item(repository.id, number).await;
    assert_eq!(read.unwrap().unwrap().workflow, second);
    let nothing = tx.newest_workflow_of_item(repository.id, u64::MAX).await;
    assert_eq!(nothing.unwrap(), None);
}

pub(crate) async fn a_poll_is_set_beside_the_version(world: &World) {
    let repository = world.repository("lamp").await;
    let workflow = world.workflow(&repository, State::AwaitingCi).await;
    let mut tx = world.tx().await;
    let due = Timestamp(77);
    tx.set_ci_poll(workflow.id, 3, due).await.unwrap();
    let nobody = WorkflowId(world.id());
    let error = tx.set_ci_poll(nobody, 3, due).await.unwrap_err();
    assert!(matches!(error, Error::LostRace("workflow")));
    tx.commit().await.unwrap();
    let row = world.store().workflow(workflow.id).await.unwrap().unwrap();
    assert_eq!((row.ci_polls, row.ci_next_poll_at), (3, Some(due)));
    assert_eq!(row.version, 1);
}

pub(crate) async fn events_are_ordered_and_paged(world: &World) {
    let repository = world.repository("lamp").await;
    let one = world.workflow(&repository, State::Analyzing).await;
    let two = world.workflow(&repository, State::Analyzing).await;
    let mut tx = world.tx().await;
    for (workflow, reason) in [(&one, "a"), (&two, "b"), (&one, "c"), (&one, "d")] {
        tx.append_event(&world.new_event(workflow, reason))
            .await
            .unwrap();
    }
    tx.commit().await.unwrap();
    let store = world.store();
    let all = store.events(None, 0, 9).await.unwrap();
    assert!(all.is_sorted_by(|a, b| a.sequence < b.sequence));
    let reasons: Vec<&str> = all.iter().map(|event| event.reason.as_str()).collect();
    assert_eq!(reasons, ["a", "b", "c", "d"]);
    let written = world.new_event(&one, "a");
    let read = &all[0];
    assert_eq!(
        (read.about, read.attempt, read.kind.as_str()),
        (written.about, written.attempt, written.kind.as_str())
    );
    assert_eq!(
        (&read.actor, &read.detail),
        (&written.actor, &written.detail)
    );
    assert_eq!(read.occurred_at, written.occurred_at);
    let after = all[1].sequence;
    assert_eq!(store.events(None, after, 1).await.unwrap(), all[2..3]);
    assert_eq!(
        store.events(Some(one.id), after, 9).await.unwrap(),
        all[2..]
    );
    assert_eq!(store.newest_events(one.id, 2).await.unwrap(), all[2..]);
    assert_eq!(store.events(None, u64::MAX, 9).await.unwrap(), []);
}

pub(crate) async fn events_are_about_workflows_repositories_or_workers(world: &World) {
    let repository = world.repository("lamp").await;
    let workflow = world.workflow(&repository, State::Analyzing).await;
    let worker = world.new_worker("w1");
    let abouts = [
        world.new_event(&workflow, "a").about,
        About::Repository(repository.id),
        About::Worker(worker.id),
    ];
    let mut tx = world.tx().await;
    for about in abouts {
        let mut event = world.new_event(&workflow, "a");
        event.about = about;
        tx.append_event(&event).await.unwrap();
    }
    tx.commit().await.unwrap();
    let all = world.store().events(None, 0, 9).await.unwrap();
    let read: Vec<About> = all.iter().map(|event| event.about).collect();
    assert_eq!(read, abouts);
    let of_workflow = world.store().events(Some(workflow.id), 0, 9).await.unwrap();
    assert_eq!(of_workflow, all[..1]);
}

pub(crate) async fn a_worker_is_put_and_replaced(world: &World) {
    let mut worker = world.new_worker("w1");
    world.put_worker(&worker).await;
    assert_eq!(
        world.store().worker(worker.id).await.unwrap().as_ref(),
        Some(&worker)
    );
    worker.instance = InstanceId(world.id());
    worker.host = "host-2".to_owned();
    worker.profiles = vec![ProfileRow {
        name: "fast".to_owned(),
        roles: vec![Role::Implementer],
        tiers: vec![1, 2],
        kill_budget: Duration::from_millis(2500),
        account: "main".to_owned(),
    }];
    worker.last_beat_at = Timestamp(5);
    world.put_worker(&worker).await;
    let read = world.tx().await.worker(worker.id).await.unwrap();
    assert_eq!(read, Some(worker));
}

pub(crate) async fn an_effect_is_open_once_a_workflow(world: &World) {
    let repository = world.repository("lamp").await;
    let workflow = world.workflow(&repository, State::Merging).await;
    let effect = world.open_effect(&workflow).await;
    let mut tx = world.tx().await;
    let second = world.new_effect(&workflow);
    let error = tx.open_effect(&second).await.unwrap_err();
    assert!(matches!(
        error,
        Error::Constraint(Constraint::OneOpenEffect)
    ));
    assert!(tx.close_effect(effect.id, world.now()).await.unwrap());
    assert!(!tx.close_effect(effect.id, world.now()).await.unwrap());
    assert_eq!(tx.open_effect_of(workflow.id).await.unwrap(), None);
    tx.open_effect(&second).await.unwrap();
    assert_eq!(
        tx.open_effect_of(workflow.id).await.unwrap().as_ref(),
        Some(&second)
    );
    tx.commit().await.unwrap();
    assert_eq!(
        world.store().open_effect_of(workflow.id).await.unwrap(),
        Some(second)
    );
}

pub(crate) async fn an_effect_is_updated_while_it_is_open(world: &World) {
    let repository = world.repository("lamp").await;
    let workflow = world.workflow(&repository, State::Merging).await;
    let mut effect = world.new_effect(&workflow);
    effect.effect = Effect::MoveHead {
        from: commit(1),
        to: commit(2),
    };
    let mut tx = world.tx().await;
    tx.open_effect(&effect).await.unwrap();
    effect.tries = 2;
    effect.waits = 3;
    effect.next_try_at = Timestamp(4);
    effect.first_failure_at = Some(Timestamp(5));
    effect.waiting_for = "a green base".to_owned();
    tx.update_effect(&effect).await.unwrap();
    assert_eq!(
        tx.open_effect_of(workflow.id).await.unwrap().as_ref(),
        Some(&effect)
    );
    tx.close_effect(effect.id, world.now()).await.unwrap();
    let error = tx.update_effect(&effect).await.unwrap_err();
    assert!(matches!(error, Error::LostRace("effect")));
}

pub(crate) async fn a_drain_outlives_registrations_and_a_declared_death_does_not(world: &World) {
    let mut worker = world.new_worker("w1");
    world.put_worker(&worker).await;
    let drain = world.drain();
    let mut tx = world.tx().await;
    tx.set_worker_drain(worker.id, Some(&drain)).await.unwrap();
    tx.set_worker_declared_dead(worker.id, Timestamp(7))
        .await
        .unwrap();
    tx.commit().await.unwrap();
    let read = world.store().worker(worker.id).await.unwrap().unwrap();
    assert_eq!(read.drain.as_ref(), Some(&drain));
    assert_eq!(read.declared_dead_at, Some(Timestamp(7)));
    world.put_worker(&worker).await;
    worker.drain = Some(drain);
    let read = world.store().worker(worker.id).await.unwrap();
    assert_eq!(read, Some(worker));
    let nobody = crate::domain::ids::WorkerId(world.id());
    let mut tx = world.tx().await;
    let error = tx.set_worker_drain(nobody, None).await.unwrap_err();
    assert!(matches!(error, Error::LostRace("worker")));
    let error = tx.set_worker_declared_dead(nobody, Timestamp(7)).await;
    assert!(matches!(error, Err(Error::LostRace("worker"))));
}

pub(crate) async fn workers_are_listed_by_page_with_their_leases(world: &World) {
    let repository = world.repository("lamp").await;
    let mut workers = Vec::new();
    for name in ["w1", "w2", "w3"] {
        let worker = world.new_worker(name);
        world.put_worker(&worker).await;
        workers.push(worker);
    }
    workers.sort_by_key(|worker| worker.id);
    world.work(&repository, Role::Reviewer).await;
    let mut request = world.request(vec![super::world::offer(Role::Reviewer)], 1);
    request.worker = workers[1].id;
    world.claim(&request).await;
    let first = world.store().workers(None, 2).await.unwrap();
    let second = world.store().workers(Some(workers[1].id), 2).await.unwrap();
    let listed: Vec<_> = first
        .into_iter()
        .chain(second)
        .map(|s| (s.worker, s.n_leases))
        .collect();
    let expected: Vec<_> = workers.into_iter().zip([0, 1, 0]).collect();
    assert_eq!(listed, expected);
}
