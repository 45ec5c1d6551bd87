//! What transactions keep from each other.

use std::collections::HashSet;

use tokio::task::JoinSet;

use super::world::{World, offer};
use crate::{
    domain::{attempt::Role, time::Timestamp, transitions::State},
    store::Error,
};

/// More than any pool has connections.
const N_TASKS: u32 = 16;

pub(crate) async fn a_dropped_transaction_leaves_nothing(world: &World) {
    let repository = world.new_repository("lamp");
    let mut tx = world.tx().await;
    tx.insert_repository(&repository).await.unwrap();
    drop(tx);
    let store = world.store();
    assert_eq!(store.repository(repository.id).await.unwrap(), None);
    // And holds up nobody.
    world.insert_repository(&repository).await;
    world.work(&repository, Role::Reviewer).await;
    let request = world.request(vec![offer(Role::Reviewer)], 1);
    let mut tx = world.tx().await;
    let claimed = tx.claim(&request).await.unwrap().pop().unwrap();
    drop(tx);
    let row = store.attempt(claimed.attempt.id).await.unwrap().unwrap();
    assert_eq!(row.attempt.fence.0, 0);
    assert_eq!(store.sessions(None, None, 100).await.unwrap(), []);
}

pub(crate) async fn reads_see_what_was_committed_alone(world: &World) {
    let repository = world.new_repository("lamp");
    let mut tx = world.tx().await;
    tx.insert_repository(&repository).await.unwrap();
    let store = world.store();
    assert_eq!(store.repository(repository.id).await.unwrap(), None);
    tx.commit().await.unwrap();
    let read = store.repository(repository.id).await.unwrap();
    assert_eq!(read, Some(repository));
}

pub(crate) async fn concurrent_writers_lose_no_update(world: &World) {
    const N_ROUNDS: u32 = 5;
    let repository = world.repository("lamp").await;
    let workflow = world.workflow(&repository, State::AwaitingCi).await;
    let mut tasks = JoinSet::new();
    for _ in 0..N_TASKS {
        let store = world.store();
        let id = workflow.id;
        tasks.spawn(async move {
            for _ in 0..N_ROUNDS {
                let mut tx = store.begin().await?;
                let mut locked = tx.lock_workflow(id).await?.expect("it was inserted");
                let polls = locked.ci_polls + 1;
                // Others get their chance between the read and the write.
                tokio::task::yield_now().await;
                tx.set_ci_poll(id, polls, Timestamp(0)).await?;
                tx.update_workflow(&mut locked, Timestamp(0)).await?;
                tx.commit().await?;
            }
            Ok::<(), Error>(())
        });
    }
    while let Some(result) = tasks.join_next().await {
        result.unwrap().unwrap();
    }
    let row = world.store().workflow(workflow.id).await.unwrap().unwrap();
    assert_eq!(row.ci_polls, N_TASKS * N_ROUNDS);
    assert_eq!(row.version, u64::from(N_TASKS * N_ROUNDS) + 1);
}

pub(crate) async fn concurrent_claims_lease_each_attempt_once(world: &World) {
    let repository = world.repository("lamp").await;
    for _ in 0..N_TASKS * 2 {
        world.work(&repository, Role::Reviewer).await;
    }
    let mut tasks = JoinSet::new();
    for _ in 0..N_TASKS {
        let store = world.store();
        let request = world.request(vec![offer(Role::Reviewer)], 3);
        tasks.spawn(async move {
            let mut tx = store.begin().await?;
            let claimed = tx.claim(&request).await?;
            tx.commit().await?;
            Ok::<_, Error>(claimed)
        });
    }
    let mut keys = HashSet::new();
    while let Some(result) = tasks.join_next().await {
        for claimed in result.unwrap().unwrap() {
            assert!(keys.insert(claimed.lease.key.attempt));
        }
    }
    assert_eq!(keys.len(), usize::try_from(N_TASKS * 2).unwrap());
}

pub(crate) async fn a_closed_store_is_unavailable(world: &World) {
    let store = world.store();
    store.close().await;
    let error = store.ping().await.unwrap_err();
    assert!(matches!(error, Error::Unavailable { .. }), "{error}");
    let error = store.begin().await.err().unwrap();
    assert!(matches!(error, Error::Unavailable { .. }), "{error}");
}
