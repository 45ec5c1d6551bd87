//! Copies of the database: whole, one at a time, and without leftovers.

use std::{io::Read as _, path::PathBuf, sync::Arc};

use super::{SqliteStore, tests::world};
use crate::{
    clock::manual::ManualClock,
    domain::attempt::Role,
    store::{Error, Store, contract::offer, model::Snapshot},
};

/// Writes a copy to a file beside the database.
fn restored(store: &SqliteStore, mut snapshot: Snapshot) -> PathBuf {
    let mut bytes = Vec::new();
    snapshot.file.read_to_end(&mut bytes).unwrap();
    assert_eq!(bytes.len() as u64, snapshot.size);
    let path = store.path().with_file_name("restored.db");
    std::fs::write(&path, bytes).unwrap();
    path
}

fn left_behind(store: &SqliteStore) -> usize {
    let entries = std::fs::read_dir(store.path().parent().unwrap()).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.contains("snapshot")).count()
}

/// A lease that was given after the copy is not its fence again: the nonce tells them apart.
#[tokio::test]
async fn a_copy_is_of_one_instant_and_refuses_later_leases() {
    let (world, store) = world().await;
    let repository = world.repository("lamp").await;
    let before = world.leased(&repository).await;
    let attempt = world.work(&repository, Role::Reviewer).await;
    // Somebody writes while it is made: of that, nothing is in it.
    let mut tx = store.begin().await.unwrap();
    let later = world.new_repository("later");
    tx.insert_repository(&later).await.unwrap();
    let snapshot = store.snapshot().await.unwrap();
    tx.commit().await.unwrap();
    let request = world.request(vec![offer(Role::Reviewer)], 1);
    let after = world.claim(&request).await.remove(0);
    assert_eq!(after.attempt.id, attempt.id);

    let path = restored(&store, snapshot);
    let clock = Arc::new(ManualClock::default());
    let copy = SqliteStore::open(&path, clock).await.unwrap();
    let found = copy.repository(repository.id).await.unwrap();
    assert_eq!(found, Some(repository));
    assert_eq!(copy.repository(later.id).await.unwrap(), None);
    let mut tx = copy.begin().await.unwrap();
    assert!(tx.lease(before.attempt.id).await.unwrap().is_some());
    assert!(!tx.delete_lease(after.lease.key).await.unwrap());
    let request = world.request(vec![offer(Role::Reviewer)], 1);
    let again = tx.claim(&request).await.unwrap().remove(0);
    assert_eq!(again.lease.key.fence, after.lease.key.fence);
    assert!(!tx.delete_lease(after.lease.key).await.unwrap());
    tx.commit().await.unwrap();
}

#[tokio::test]
async fn copies_are_made_one_at_a_time_and_leave_nothing() {
    let (_world, store) = world().await;
    let first = store.snapshot().await.unwrap();
    assert_eq!(left_behind(&store), 0);
    let error = store.snapshot().await.unwrap_err();
    assert!(matches!(error, Error::SnapshotUnderWay), "{error}");
    drop(first);
    drop(store.snapshot().await.unwrap());
}

/// The caller may go away at any point of it.
#[tokio::test]
async fn a_copy_that_nobody_waits_for_is_removed() {
    let (_world, store) = world().await;
    for _ in 0..5 {
        let taken = store.snapshot();
        tokio::select! {
            biased;
            taken = taken => drop(taken.unwrap()),
            () = tokio::task::yield_now() => {}
        }
        let next = loop {
            match store.snapshot().await {
                Ok(next) => break next,
                Err(Error::SnapshotUnderWay) => tokio::task::yield_now().await,
                Err(error) => panic!("{error}"),
            }
        };
        drop(next);
        assert_eq!(left_behind(&store), 0);
    }
    store.close().await;
    assert!(matches!(
        store.snapshot().await,
        Err(Error::Unavailable { .. })
    ));
}

#[tokio::test]
async fn what_a_killed_process_left_is_removed_at_start() {
    let (_world, store) = world().await;
    store.close().await;
    let left = store.path().with_file_name("pointsman.db.snapshot");
    std::fs::write(&left, "half of it").unwrap();
    let clock = Arc::new(ManualClock::default());
    let reopened = SqliteStore::open(store.path(), clock).await.unwrap();
    assert!(!left.exists());
    drop(reopened.snapshot().await.unwrap());
}
