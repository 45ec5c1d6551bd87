//! Figures.

use std::time::Duration;

use super::world::World;
use crate::{
    domain::{attempt::Role, time::Timestamp, transitions::State},
    store::model::{PendingGroup, WorkerFigures},
};

const MINUTE: Duration = Duration::from_secs(60);

pub(crate) async fn figures_count_what_is_live(world: &World) {
    let repository = world.repository("lamp").await;
    for state in [
        State::Merged,
        State::Abandoned,
        State::CreatedPr,
        State::Stuck,
    ] {
        world.workflow(&repository, state).await;
    }
    let first_at = world.now();
    world.work(&repository, Role::Reviewer).await;
    world.advance(MINUTE);
    world.work(&repository, Role::Reviewer).await;
    let implementer = world
        .work_with(&repository, Role::Implementer, 0, |a| a.tier = 2)
        .await;
    world.leased(&repository).await;
    let waiting = world.workflow(&repository, State::Merging).await;
    world.open_effect(&waiting).await;
    let failing = world.workflow(&repository, State::Merging).await;
    let mut effect = world.open_effect(&failing).await;
    let closed = world.workflow(&repository, State::Merging).await;
    let done = world.open_effect(&closed).await;
    effect.first_failure_at = Some(world.now());
    let mut tx = world.tx().await;
    tx.update_effect(&effect).await.unwrap();
    tx.close_effect(done.id, world.now()).await.unwrap();
    tx.commit().await.unwrap();

    let figures = world
        .store()
        .figures(Timestamp(0), Timestamp(0))
        .await
        .unwrap();
    let count = |state| {
        let found = figures.workflows.iter().find(|(of, _)| *of == state);
        found.map(|(_, n)| *n)
    };
    assert_eq!(count(State::Merging), Some(3));
    assert_eq!(count(State::Reviewing), Some(3));
    assert_eq!(count(State::Stuck), Some(1));
    for over in [State::Merged, State::Abandoned, State::CreatedPr] {
        assert_eq!(count(over), None, "{over}");
    }
    let group = |role, tier, n, oldest_at| PendingGroup {
        role,
        tier,
        ttl_seconds: 180,
        n,
        oldest_at,
    };
    // The oldest reviewer's attempt is the one that was leased.
    let expected = [
        group(Role::Implementer, 2, 1, implementer.created_at),
        group(Role::Reviewer, 1, 2, first_at.after(MINUTE)),
    ];
    assert_eq!(figures.pending, expected);
    assert_eq!((figures.n_in_progress, figures.n_leases), (1, 1));
    assert_eq!(
        (figures.n_effects_waiting, figures.n_effects_failing),
        (1, 1)
    );
    assert_eq!(figures.n_holds, 0);
    assert!(figures.database_bytes > 4096, "{}", figures.database_bytes);
}

pub(crate) async fn live_workers_are_not_declared_dead_and_have_beaten_lately(world: &World) {
    let mut ids = Vec::new();
    for (name, last_beat_at) in [("old", 10), ("silent", 20), ("alive", 30), ("newest", 40)] {
        let mut worker = world.new_worker(name);
        worker.last_beat_at = Timestamp(last_beat_at);
        world.put_worker(&worker).await;
        ids.push(worker.id);
    }
    let live = async |limit| {
        let workers = world
            .store()
            .live_workers(Timestamp(20), limit)
            .await
            .unwrap();
        workers
            .into_iter()
            .map(|worker| worker.id)
            .collect::<Vec<_>>()
    };
    assert_eq!(live(9).await, [ids[3], ids[2]]);
    assert_eq!(live(1).await, [ids[3]]);
    let figures = async || {
        let figures = world.store().figures(Timestamp(20), Timestamp(10)).await;
        let WorkerFigures {
            n_alive,
            n_silent,
            n_drained,
        } = figures.unwrap().workers;
        (n_alive, n_silent, n_drained)
    };
    assert_eq!(figures().await, (2, 1, 0));
    let mut tx = world.tx().await;
    tx.set_worker_drain(ids[3], Some(&world.drain()))
        .await
        .unwrap();
    tx.set_worker_declared_dead(ids[2], Timestamp(50))
        .await
        .unwrap();
    tx.commit().await.unwrap();
    assert_eq!(live(9).await, [ids[3]], "drained, but alive");
    assert_eq!(figures().await, (1, 1, 1));
}
