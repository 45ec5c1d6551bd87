//! Group commit, deadlines, and what is left after each failure.

use std::{pin::Pin, sync::Arc, time::Duration};

use sqlx::Executor;

use super::{
    SqliteStore,
    error::During,
    tests::{database_within, execute, world},
    writer::{GROUP_MEMBERS, Limits, Turn},
};
use crate::{
    domain::transitions::State,
    store::{
        Error, Outage, Store, Tx,
        contract::{World, progress},
        model::Repository,
    },
};

/// Takes in whoever asks in time, so that who is in which group is the test's to say.
const PATIENT: Limits = Limits {
    group: Duration::from_secs(3600),
    ..Limits::DEFAULT
};

async fn world_within(limits: Limits) -> (World, Arc<SqliteStore>) {
    let database = database_within(limits).await;
    let store = Arc::clone(&database.store);
    (World::new(database), store)
}

type Waiting<'a, T> = Pin<Box<dyn Future<Output = Result<T, Error>> + Send + 'a>>;

/// Starts to wait, and must not be done yet.
async fn waiting<'a, T>(
    future: impl Future<Output = Result<T, Error>> + Send + 'a,
) -> Waiting<'a, T> {
    let mut future: Waiting<'a, T> = Box::pin(future);
    tokio::select! {
        biased;
        _ = &mut future => panic!("it did not wait"),
        () = std::future::ready(()) => future,
    }
}

fn is_unavailable<T>(result: &Result<T, Error>) -> bool {
    matches!(result, Err(Error::Unavailable { .. }))
}

async fn inserts(tx: &mut dyn Tx, repository: &Repository) {
    tx.insert_repository(repository).await.unwrap();
}

/// Whether it is there, for everybody and after a restart.
async fn is_there(store: &SqliteStore, repository: &Repository) -> bool {
    store.repository(repository.id).await.unwrap().is_some()
}

/// Ends the group's transaction as SQLite itself does when the disk is full.
async fn break_group(turn: &mut Turn) {
    let mut connection = turn.connection().await.unwrap();
    connection.execute("ROLLBACK").await.unwrap();
}

#[tokio::test]
async fn members_become_durable_together() {
    let (world, store) = world_within(PATIENT).await;
    let (one, two) = (world.new_repository("one"), world.new_repository("two"));
    let mut first = store.begin().await.unwrap();
    inserts(first.as_mut(), &one).await;
    let second = waiting(store.begin()).await;
    let first = waiting(first.commit()).await;
    let mut second = second.await.unwrap();
    // The second one is in the first one's transaction, of which nobody else sees anything yet.
    let number = second.next_item_number(one.id).await.unwrap();
    assert_eq!(number, 1);
    let error = second
        .insert_repository(&Repository {
            id: two.id,
            ..one.clone()
        })
        .await;
    assert!(matches!(error, Err(Error::Constraint(_))), "{error:?}");
    assert!(!is_there(&store, &one).await);
    inserts(second.as_mut(), &two).await;
    let (first, second) = tokio::join!(first, second.commit());
    first.unwrap();
    second.unwrap();
    assert!(is_there(&store, &one).await && is_there(&store, &two).await);
}

#[tokio::test]
async fn a_member_that_is_dropped_takes_nobody_along() {
    let (world, store) = world_within(PATIENT).await;
    let (one, two, three) = (
        world.new_repository("one"),
        world.new_repository("two"),
        world.new_repository("three"),
    );
    let mut first = store.begin().await.unwrap();
    inserts(first.as_mut(), &one).await;
    let second = waiting(store.begin()).await;
    let third = waiting(store.begin()).await;
    let first = waiting(first.commit()).await;
    let mut second = second.await.unwrap();
    inserts(second.as_mut(), &two).await;
    drop(second);
    let mut third = third.await.unwrap();
    inserts(third.as_mut(), &three).await;
    let (first, third) = tokio::join!(first, third.commit());
    first.unwrap();
    third.unwrap();
    assert!(is_there(&store, &one).await && is_there(&store, &three).await);
    assert!(!is_there(&store, &two).await);
}

/// Who only read fails too: it has seen what is not there.
#[tokio::test]
async fn where_the_commit_fails_every_member_fails() {
    let (world, store) = world_within(PATIENT).await;
    let one = world.new_repository("one");
    let orphan = world.new_workflow(world.new_repository("never").id, progress(State::Stuck));
    let mut first = store.begin().await.unwrap();
    inserts(first.as_mut(), &one).await;
    let second = waiting(store.begin()).await;
    let third = waiting(store.turn()).await;
    let first = waiting(first.commit()).await;
    let mut second = second.await.unwrap();
    assert_eq!(second.next_item_number(one.id).await.unwrap(), 1);
    let second = waiting(second.commit()).await;
    // Its reference leads nowhere, and is looked at by the COMMIT alone.
    let mut third = third.await.unwrap();
    let mut connection = third.connection().await.unwrap();
    connection
        .execute("PRAGMA defer_foreign_keys = ON")
        .await
        .unwrap();
    super::workflows::insert(&mut connection, &orphan, world.now())
        .await
        .unwrap();
    drop(connection);
    let (first, second, third) = tokio::join!(first, second, third.commit("commit"));
    assert!(is_unavailable(&first) && is_unavailable(&second) && is_unavailable(&third));
    assert!(!is_there(&store, &one).await);
    assert_eq!(store.workflow(orphan.id).await.unwrap(), None);
    // And the next one works.
    world.insert_repository(&one).await;
    assert!(is_there(&store, &one).await);
}

#[tokio::test]
async fn where_sqlite_rolls_back_every_member_fails() {
    for n_before in 0..3 {
        let (world, store) = world_within(PATIENT).await;
        let mut members = Vec::new();
        let mut names = Vec::new();
        let mut next = store.begin().await.unwrap();
        for n in 0..n_before {
            let repository = world.new_repository(&format!("r{n}"));
            inserts(next.as_mut(), &repository).await;
            names.push(repository);
            let after = waiting(store.begin()).await;
            members.push(waiting(next.commit()).await);
            next = after.await.unwrap();
        }
        let breaks = waiting(store.turn()).await;
        let last = world.new_repository("last");
        inserts(next.as_mut(), &last).await;
        names.push(last);
        members.push(waiting(next.commit()).await);
        let mut breaks = breaks.await.unwrap();
        break_group(&mut breaks).await;
        drop(breaks);
        for member in members {
            assert!(is_unavailable(&member.await));
        }
        for repository in &names {
            assert!(!is_there(&store, repository).await);
            world.insert_repository(repository).await;
        }
    }
}

/// A transaction that was dropped can't fail any more; who tells what it has read waits.
#[tokio::test]
async fn what_a_dropped_transaction_has_read_is_settled() {
    for fails in [false, true] {
        let (world, store) = world_within(PATIENT).await;
        let one = world.new_repository("one");
        let mut first = store.begin().await.unwrap();
        inserts(first.as_mut(), &one).await;
        let second = waiting(store.begin()).await;
        let third = waiting(store.turn()).await;
        let first = waiting(first.commit()).await;
        let mark = store.mark();
        drop(second.await.unwrap());
        let mut third = third.await.unwrap();
        let settled = waiting(store.settle(mark)).await;
        let read = waiting(store.repository(one.id)).await;
        if fails {
            break_group(&mut third).await;
        }
        drop(third);
        assert_eq!(is_unavailable(&settled.await), fails);
        assert_eq!(is_unavailable(&first.await), fails);
        assert_eq!(read.await.unwrap().is_none(), fails);
        // What failed before somebody began is nothing to him; and nothing is under way.
        store.settle(store.mark()).await.unwrap();
    }
}

#[tokio::test]
async fn a_group_is_bounded_by_its_members() {
    let (world, store) = world_within(PATIENT).await;
    let mut members = Vec::new();
    let mut next = store.begin().await.unwrap();
    for n in 0..GROUP_MEMBERS {
        inserts(next.as_mut(), &world.new_repository(&format!("r{n}"))).await;
        let after = waiting(store.begin()).await;
        members.push(waiting(next.commit()).await);
        next = after.await.unwrap();
    }
    // One more has its turn, and nobody waits for its end.
    for member in members {
        member.await.unwrap();
    }
    drop(next);
}

#[tokio::test]
async fn a_group_is_bounded_by_its_age() {
    let (_world, store) = world_within(Limits {
        group: Duration::ZERO,
        ..PATIENT
    })
    .await;
    let first = store.begin().await.unwrap();
    let second = waiting(store.begin()).await;
    first.commit().await.unwrap();
    drop(second.await.unwrap());
}

#[tokio::test]
async fn a_transaction_that_hangs_is_rolled_back_and_told() {
    let (world, store) = world_within(Limits {
        turn: Duration::from_millis(200),
        ..PATIENT
    })
    .await;
    let (one, two) = (world.new_repository("one"), world.new_repository("two"));
    let mut first = store.begin().await.unwrap();
    inserts(first.as_mut(), &one).await;
    let hangs = waiting(store.begin()).await;
    let first = waiting(first.commit()).await;
    let mut hangs = hangs.await.unwrap();
    inserts(hangs.as_mut(), &two).await;
    // It does not come back, and the others do without it.
    first.await.unwrap();
    let error = hangs.insert_repository(&two).await.unwrap_err();
    assert!(matches!(error, Error::Unavailable { .. }), "{error}");
    assert!(is_unavailable(&hangs.commit().await));
    assert!(is_there(&store, &one).await);
    assert!(!is_there(&store, &two).await);
    // Alone, it is no different.
    let mut hangs = store.begin().await.unwrap();
    inserts(hangs.as_mut(), &two).await;
    world.insert_repository(&two).await;
    assert!(is_unavailable(&hangs.commit().await));
}

#[tokio::test]
async fn the_wait_for_a_turn_is_bounded() {
    let (_world, store) = world_within(Limits {
        wait: Duration::from_millis(100),
        ..PATIENT
    })
    .await;
    let tx = store.begin().await.unwrap();
    assert!(is_unavailable(&store.begin().await));
    drop(tx);
    store.begin().await.unwrap();
}

const FOR_EVER: &str =
    "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT COUNT(*) FROM n";

#[tokio::test]
async fn a_statement_ends_by_its_deadline() {
    let (world, store) = world_within(Limits {
        statement: Duration::from_millis(100),
        ..PATIENT
    })
    .await;
    let expect = |error: Error| {
        let Error::Unavailable {
            operation, outage, ..
        } = error
        else {
            panic!("{error}");
        };
        assert_eq!((operation, outage), ("count for ever", Outage::TooLong));
    };
    let mut reader = store.reader().await.unwrap();
    let read = reader.execute(FOR_EVER).await;
    expect(read.during("count for ever").unwrap_err());
    drop(reader);
    let mut turn = store.turn().await.unwrap();
    let mut connection = turn.connection().await.unwrap();
    let read = connection.execute(FOR_EVER).await;
    expect(read.during("count for ever").unwrap_err());
    drop(connection);
    drop(turn);
    // Others have time of their own, and it is no outage.
    world.repository("lamp").await;
    store.ping().await.unwrap();
}

/// Where there is no more room, whichever write it hits: what was acknowledged is there, what failed is not,
/// the store says that it is not ready, and goes on once there is room.
#[tokio::test]
async fn a_full_disk_loses_nothing_and_passes() {
    const N_WRITERS: usize = 8;
    let mut n_failed = 0;
    for pages in 0..12 {
        let (world, store) = world().await;
        let (count,): (i64,) = sqlx::query_as("SELECT page_count FROM pragma_page_count")
            .fetch_one(&mut *store.reader().await.unwrap())
            .await
            .unwrap();
        let limit = format!("PRAGMA max_page_count = {}", count + 3 * pages);
        execute(&store, &limit).await;
        let repositories: Vec<Repository> = (0..N_WRITERS)
            .map(|n| world.new_repository(&format!("{}{n}", "r".repeat(9_000))))
            .collect();
        let mut writers = tokio::task::JoinSet::new();
        for repository in repositories.clone() {
            let store = Arc::clone(&store);
            writers.spawn(async move {
                let written = async {
                    let mut tx = store.begin().await?;
                    tx.insert_repository(&repository).await?;
                    tx.commit().await
                }
                .await;
                (repository, written)
            });
        }
        let mut written = Vec::new();
        while let Some(result) = writers.join_next().await {
            let (repository, result) = result.unwrap();
            if let Err(error) = &result {
                assert!(matches!(error, Error::Unavailable { .. }), "{error}");
                n_failed += 1;
            }
            assert_eq!(is_there(&store, &repository).await, result.is_ok());
            written.push(result.is_ok());
        }
        // A whole group that failed may have left as much as a try needs.
        if written.contains(&false) && 3 * pages < 16 {
            let error = store.ping().await.unwrap_err();
            assert_eq!(
                error.to_string(),
                "try a write: the database's disk is full"
            );
        }
        execute(&store, "PRAGMA max_page_count = 100000").await;
        store.ping().await.unwrap();
        for repository in &repositories {
            if !is_there(&store, repository).await {
                world.insert_repository(repository).await;
            }
        }
    }
    assert!(n_failed > 12, "the limit was not reached: {n_failed}");
}

#[tokio::test]
async fn a_database_that_turns_read_only_is_told_and_passes() {
    let (world, store) = world().await;
    store.ping().await.unwrap();
    let repository = world.new_repository("lamp");
    let mut tx = store.turn().await.unwrap();
    let mut connection = tx.connection().await.unwrap();
    connection.execute("PRAGMA query_only = ON").await.unwrap();
    let error = super::repositories::insert(&mut connection, &repository)
        .await
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "insert a repository: the database is read-only"
    );
    drop(connection);
    drop(tx);
    let error = store.ping().await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "begin a transaction: the database is read-only"
    );
    // A file that was opened for reading alone stays so: it is opened again.
    store.ping().await.unwrap();
    world.insert_repository(&repository).await;
}
