//! SQLite under the contract suite, and what is SQLite's alone.

use std::{path::Path, sync::Arc, time::Duration};

use sqlx::{AssertSqlSafe, ConnectOptions, Executor, SqlSafeStr, sqlite::SqliteConnectOptions};
use tempfile::TempDir;

use super::{SqliteStore, sql, writer::Limits};
use crate::{
    clock::{Clock, manual::ManualClock},
    domain::{
        attempt::Role,
        time::Timestamp,
        transitions::State,
        workflow::{Pause, PausedBy},
    },
    store::{
        Error, Store,
        contract::{Database, World, progress, run_contract},
        model::WorkflowFilter,
    },
};

pub(super) struct SqliteDatabase {
    pub(super) store: Arc<SqliteStore>,
    clock: Arc<ManualClock>,
    _directory: TempDir,
}

impl Database for SqliteDatabase {
    fn store(&self) -> Arc<dyn Store> {
        Arc::clone(&self.store) as Arc<dyn Store>
    }

    fn now(&self) -> Timestamp {
        self.clock.now()
    }

    fn advance(&self, by: Duration) {
        self.clock.advance(by);
    }
}

async fn open(path: &Path) -> Result<SqliteStore, Error> {
    SqliteStore::open(path, Arc::new(ManualClock::default())).await
}

async fn database() -> SqliteDatabase {
    database_within(Limits::DEFAULT).await
}

pub(super) async fn database_within(limits: Limits) -> SqliteDatabase {
    let directory = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::default());
    let path = directory.path().join("new/directory/pointsman.db");
    let store = SqliteStore::open_within(&path, Arc::clone(&clock) as Arc<dyn Clock>, limits);
    SqliteDatabase {
        store: Arc::new(store.await.unwrap()),
        clock,
        _directory: directory,
    }
}

run_contract!(database());

/// A world, and the database in it for statements of the test's own.
pub(super) async fn world() -> (World, Arc<SqliteStore>) {
    let database = database().await;
    let store = Arc::clone(&database.store);
    (World::new(database), store)
}

/// On the connection that writes, outside of a transaction.
pub(super) async fn execute(store: &SqliteStore, statement: &str) {
    let mut turn = store.turn().await.unwrap();
    let statement = format!("ROLLBACK; {statement}; BEGIN IMMEDIATE");
    let mut connection = turn.connection().await.unwrap();
    connection
        .execute(AssertSqlSafe(statement).into_sql_str())
        .await
        .unwrap();
}

#[tokio::test]
async fn every_statement_is_prepared() {
    let (_world, store) = world().await;
    let mut turn = store.turn().await.unwrap();
    let mut connection = turn.connection().await.unwrap();
    let mut n_prepared = 0;
    for statement in sql::statements() {
        if let Err(error) = connection.prepare(statement.into_sql_str()).await {
            panic!("{error}: {statement}");
        }
        n_prepared += 1;
    }
    assert!(n_prepared > 60, "{n_prepared}");
}

#[tokio::test]
async fn every_constant_statement_is_listed() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/store/sqlite");
    let mut n_constants = 0;
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.to_str().unwrap().ends_with("tests.rs") {
            continue;
        }
        let text = std::fs::read_to_string(path).unwrap();
        let keywords = [
            "SELECT",
            "INSERT",
            "UPDATE",
            "DELETE",
            "WITH",
            "BEGIN",
            "COMMIT",
            "ROLLBACK",
            "SAVEPOINT",
            "VACUUM",
            "RELEASE",
        ];
        n_constants += text
            .split("\nconst ")
            .flat_map(|part| part.split("\npub(super) const "))
            .skip(1)
            .filter(|part| {
                let value = part.split_once("&str =").map_or("", |(_, value)| value);
                let value = value.trim_start();
                value.starts_with("select_")
                    || keywords
                        .iter()
                        .any(|word| value.trim_start_matches(['"', '\n']).starts_with(word))
            })
            .count();
    }
    assert_eq!(n_constants, sql::statements().count());
}

#[tokio::test]
async fn the_writer_is_durable_and_readers_can_not_write() {
    let (_world, store) = world().await;
    let pragma = async |statement: &'static str| -> String {
        let mut turn = store.turn().await.unwrap();
        let mut connection = turn.connection().await.unwrap();
        sqlx::query_scalar::<_, String>(statement)
            .fetch_one(&mut *connection)
            .await
            .unwrap()
    };
    assert_eq!(pragma("PRAGMA journal_mode").await, "wal");
    let synchronous = "SELECT CAST(synchronous AS TEXT) FROM pragma_synchronous";
    assert_eq!(pragma(synchronous).await, "2");
    let foreign_keys = "SELECT CAST(foreign_keys AS TEXT) FROM pragma_foreign_keys";
    assert_eq!(pragma(foreign_keys).await, "1");
    let mut reader = store.reader().await.unwrap();
    let error = reader.execute("DELETE FROM workflows").await.unwrap_err();
    assert!(error.to_string().contains("readonly"), "{error}");
}

#[tokio::test]
async fn a_reopened_database_has_kept_everything() {
    let (world, store) = world().await;
    let repository = world.repository("lamp").await;
    let claimed = world.leased(&repository).await;
    let path = store.path().to_owned();
    store.close().await;
    let reopened = open(&path).await.unwrap();
    let read = reopened.repository(repository.id).await.unwrap();
    assert_eq!(read, Some(repository));
    let sessions = reopened.sessions(None, None, 100).await.unwrap();
    assert_eq!(sessions[0].lease, claimed.lease);
    let row = reopened.attempt(claimed.attempt.id).await.unwrap();
    assert_eq!(row.unwrap().attempt, claimed.attempt);
}

#[tokio::test]
async fn a_second_opening_is_refused_and_names_the_holder() {
    let (_world, store) = world().await;
    let path = store.path().to_owned();
    let Err(Error::Locked { path: told, holder }) = open(&path).await else {
        panic!("it was opened twice");
    };
    assert_eq!(told, path.display().to_string());
    assert_eq!(
        holder,
        format!(
            "process {}, since second 1767225600 of 1970",
            std::process::id()
        )
    );
    // Closing lets others in, though the value lives on.
    store.close().await;
    open(&path).await.unwrap();
}

#[tokio::test]
async fn a_store_that_is_dropped_lets_others_in() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("pointsman.db");
    drop(open(&path).await.unwrap());
    open(&path).await.unwrap();
}

#[tokio::test]
async fn a_schema_that_is_ahead_is_refused() {
    let (_world, store) = world().await;
    for version in [9998, 9999] {
        execute(
            &store,
            &format!(
                "INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time)
                 VALUES ({version}, 'later', TRUE, x'00', 0)"
            ),
        )
        .await;
    }
    let path = store.path().to_owned();
    store.close().await;
    let error = open(&path).await.err().unwrap();
    let Error::SchemaAhead { found: 9999, known } = error else {
        panic!("{error}");
    };
    assert!(known < 9998);
    // It can be tried again once the master is upgraded: nothing holds the lock.
    assert!(matches!(
        open(&path).await.err().unwrap(),
        Error::SchemaAhead { .. }
    ));
}

#[tokio::test]
async fn a_file_that_is_no_database_is_no_panic() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("pointsman.db");
    std::fs::write(&path, "Dear diary, today it rained. ".repeat(100)).unwrap();
    assert!(matches!(
        open(&path).await.err().unwrap(),
        Error::Rejected { .. }
    ));
    let error = open(&path.join("below/a/file")).await.err().unwrap();
    assert!(matches!(error, Error::Unavailable { .. }), "{error}");
}

#[tokio::test]
async fn a_broken_reference_is_rejected() {
    let (world, _store) = world().await;
    let repository = world.new_repository("never inserted");
    let workflow = world.new_workflow(repository.id, progress(State::Stuck));
    let mut tx = world.tx().await;
    let error = tx.insert_workflow(&workflow, world.now()).await;
    assert!(matches!(error, Err(Error::Rejected { .. })));
}

/// `error` tells of the value by table, column and id.
fn check_corrupt(
    (table, column, value): (&'static str, &'static str, &str),
    expected_id: &str,
    error: Option<Error>,
) {
    let Some(Error::Corrupt {
        table: told_table,
        column: told_column,
        id,
        reason,
    }) = error
    else {
        panic!("{table}.{column} = {value}: {error:?}");
    };
    assert_eq!((told_table, told_column), (table, column));
    assert_eq!(id, expected_id);
    assert!(!reason.is_empty());
}

#[tokio::test]
async fn impossible_values_name_table_column_and_id() {
    let workflow_values = [
        ("state", "'RESTING'"),
        ("kind", "'wish'"),
        ("number", "-1"),
        ("tier", "4294967296"),
        ("parent_id", "'mother'"),
        ("head_sha", "'HEAD'"),
        ("facts", "'{'"),
        ("upstream", "'gone'"),
        ("version", "-1"),
        ("ci_polls", "-1"),
        ("priority", "2147483648"),
        ("pre_pause_state", "'MERGING'"),
        ("title", "CAST(x'ff' AS TEXT)"),
    ];
    for (column, value) in workflow_values {
        let (world, store) = world().await;
        let repository = world.repository("lamp").await;
        let workflow = world.workflow(&repository, State::Merging).await;
        execute(&store, "PRAGMA foreign_keys = OFF").await;
        execute(&store, &format!("UPDATE workflows SET {column} = {value}")).await;
        let value = ("workflows", column, value);
        let id = workflow.id.to_string();
        // A pause without its author, on a row that is not paused: the author is what lacks.
        let value = match column {
            "pre_pause_state" => ("workflows", "paused_by", value.2),
            _ => value,
        };
        let error = store.workflow(workflow.id).await.err();
        check_corrupt(value, &id, error);
        let filter = WorkflowFilter::default();
        let error = store.workflows(&filter, None, 9).await.err();
        check_corrupt(value, &id, error);
        let error = world.tx().await.lock_workflow(workflow.id).await.err();
        check_corrupt(value, &id, error);
    }
}

#[tokio::test]
async fn a_pause_outside_of_paused_is_corrupt() {
    let (world, store) = world().await;
    let repository = world.repository("lamp").await;
    let workflow = world.workflow(&repository, State::Merging).await;
    execute(
        &store,
        "UPDATE workflows SET pre_pause_state = 'REVIEWING', paused_by = 'label'",
    )
    .await;
    let error = store.workflow(workflow.id).await.err();
    let value = ("workflows", "pre_pause_state", "");
    check_corrupt(value, &workflow.id.to_string(), error);
}

#[tokio::test]
async fn impossible_values_of_leased_attempts_are_told() {
    let attempt_values = [
        ("status", "'asleep'"),
        ("role", "'poet'"),
        ("lock_fence", "-1"),
        ("accepted_fence", "1"),
        ("accepted_nonce", "'4b9d2c2e6a0f4f4f9a3a0a6a5c1e2d3f'"),
        ("outcome_detail", "'{'"),
        ("commit_sha", "'abc'"),
    ];
    for (column, value) in attempt_values {
        let (world, store) = world().await;
        let repository = world.repository("lamp").await;
        let id = world.leased(&repository).await.attempt.id;
        execute(
            &store,
            "UPDATE attempts SET outcome = 'crashed', outcome_detail = '{}'",
        )
        .await;
        execute(&store, &format!("UPDATE attempts SET {column} = {value}")).await;
        let told = match column {
            "accepted_fence" => "accepted_nonce",
            "accepted_nonce" => "accepted_fence",
            other => other,
        };
        let error = store.attempt(id).await.err();
        check_corrupt(("attempts", told, value), &id.to_string(), error);
    }
    for (column, value) in [
        ("lock_nonce", "'?'"),
        ("is_unconfirmed", "2"),
        ("lock_ttl_seconds", "-1"),
    ] {
        let (world, store) = world().await;
        let repository = world.repository("lamp").await;
        let id = world.leased(&repository).await.attempt.id;
        execute(
            &store,
            &format!("UPDATE attempt_leases SET {column} = {value}"),
        )
        .await;
        let value = ("attempt_leases", column, value);
        let error = store.sessions(None, None, 100).await.err();
        check_corrupt(value, &id.to_string(), error);
        let error = world.tx().await.lease(id).await.err();
        check_corrupt(value, &id.to_string(), error);
    }
}

#[tokio::test]
async fn impossible_values_of_other_tables_are_told() {
    let (world, store) = world().await;
    let repository = world.repository("lamp").await;
    let workflow = world.workflow(&repository, State::Merging).await;
    let effect = world.open_effect(&workflow).await;
    world.insert_item(&world.new_item(&repository, 7)).await;
    let worker = world.new_worker("w1");
    world.put_worker(&worker).await;
    let mut tx = world.tx().await;
    let event = world.new_event(&workflow, "");
    tx.append_event(&event).await.unwrap();
    tx.commit().await.unwrap();
    let check = world.new_check(&workflow, "make", 1);
    world.insert_check(&check).await;

    execute(
        &store,
        "UPDATE effects SET effect = '{\"kind\": \"dance\"}'",
    )
    .await;
    let error = store.open_effect_of(workflow.id).await.err();
    let value = ("effects", "effect", "");
    check_corrupt(value, &effect.id.to_string(), error);

    execute(&store, "UPDATE forge_items SET is_open = 3").await;
    let error = store.forge_item(repository.id, 7).await.err();
    let value = ("forge_items", "is_open", "3");
    check_corrupt(value, &format!("{} #7", repository.id), error);

    execute(&store, "UPDATE workers SET roles = '[\"poet\"]'").await;
    let error = store.worker(worker.id).await.err();
    let value = ("workers", "roles", "");
    check_corrupt(value, &worker.id.to_string(), error);

    execute(&store, "UPDATE controller_events SET to_state = 'X'").await;
    let error = store.events(None, 0, 9).await.err();
    check_corrupt(("controller_events", "to_state", ""), "1", error);

    execute(&store, "UPDATE forge_checks SET run = -1").await;
    let error = store.check_runs(workflow.id, &check.commit).await.err();
    let value = ("forge_checks", "run", "-1");
    check_corrupt(value, &check.id.to_string(), error);

    execute(
        &store,
        "UPDATE repositories SET policy = '{\"max_tier\": -1}'",
    )
    .await;
    let error = store.repository(repository.id).await.err();
    let value = ("repositories", "policy", "");
    check_corrupt(value, &repository.id.to_string(), error);
}

#[tokio::test]
async fn an_unknown_kind_of_event_is_told_as_it_is() {
    let (world, store) = world().await;
    let repository = world.repository("lamp").await;
    let workflow = world.workflow(&repository, State::Merging).await;
    let mut tx = world.tx().await;
    tx.append_event(&world.new_event(&workflow, ""))
        .await
        .unwrap();
    tx.commit().await.unwrap();
    execute(
        &store,
        "UPDATE controller_events SET kind = 'from_the_future'",
    )
    .await;
    let events = store.events(None, 0, 9).await.unwrap();
    assert_eq!(events[0].kind, "from_the_future");
}

#[tokio::test]
async fn a_paused_row_without_its_earlier_state_resumes_to_discovered() {
    let (world, store) = world().await;
    let repository = world.repository("lamp").await;
    let workflow = world.workflow(&repository, State::Paused).await;
    execute(
        &store,
        "UPDATE workflows SET pre_pause_state = NULL, paused_by = NULL",
    )
    .await;
    let row = store.workflow(workflow.id).await.unwrap().unwrap();
    let expected = Pause {
        was: State::Discovered,
        by: PausedBy::Label,
    };
    assert_eq!(row.workflow.progress().pause, Some(expected));
    assert_eq!(row.workflow.underlying_state(), State::Discovered);
}

#[tokio::test]
async fn a_policy_from_before_max_pickups_has_the_default() {
    let (world, store) = world().await;
    let repository = world.repository("lamp").await;
    let attempt = world
        .work_with(&repository, Role::Reviewer, 0, |a| a.pickup_count = 3)
        .await;
    execute(&store, "UPDATE repositories SET policy = '{}'").await;
    let spent = store.spent_attempts(None, 9).await.unwrap();
    assert_eq!(spent, [(attempt.id, attempt.workflow)]);
}

/// Against a person's shell too, which no pool holds back.
#[tokio::test]
async fn a_transaction_has_the_write_lock_from_its_first_read() {
    let (_world, store) = world().await;
    let tx = store.begin().await.unwrap();
    let shell = SqliteConnectOptions::new()
        .filename(store.path())
        .busy_timeout(Duration::ZERO);
    let mut shell = shell.connect().await.unwrap();
    let error = shell.execute("DELETE FROM workflows").await.unwrap_err();
    assert!(error.to_string().contains("locked"), "{error}");
    drop(tx);
}

/// A row that an earlier version left is not this lease's.
#[tokio::test]
async fn progress_of_another_fence_is_not_shown() {
    let (world, store) = world().await;
    let repository = world.repository("lamp").await;
    world.leased(&repository).await;
    execute(
        &store,
        "INSERT INTO attempt_progress
         SELECT attempt_id, lock_fence - 1, 'running', 1, 2, NULL, 3, 4 FROM attempt_leases",
    )
    .await;
    let sessions = store.sessions(None, None, 100).await.unwrap();
    assert_eq!(sessions[0].progress, None);
}

/// As it does when the disk is full.
#[tokio::test]
async fn a_transaction_that_sqlite_ended_itself_stops_nobody() {
    let (world, store) = world().await;
    for commits in [false, true] {
        let mut turn = store.turn().await.unwrap();
        let mut connection = turn.connection().await.unwrap();
        connection.execute("ROLLBACK").await.unwrap();
        drop(connection);
        // Otherwise the next statement would be a transaction of its own.
        let error = turn.connection().await.err().unwrap();
        assert!(matches!(error, Error::Unavailable { .. }), "{error}");
        if commits {
            assert!(turn.commit("commit").await.is_err());
        }
        world
            .repository(if commits { "one" } else { "other" })
            .await;
    }
}

#[tokio::test]
async fn a_full_database_is_unavailable() {
    let (world, store) = world().await;
    // As many pages as there are.
    execute(&store, "PRAGMA max_page_count = 1").await;
    let repository = world.new_repository(&"lamp".repeat(100_000));
    let mut tx = world.tx().await;
    let error = tx.insert_repository(&repository).await.unwrap_err();
    assert!(matches!(error, Error::Unavailable { .. }), "{error}");
    drop(tx);
    // Small writes go on.
    world.repository("lamp").await;
}

/// How SQLite would carry out a statement, a step a line.
async fn plan(store: &SqliteStore, statement: &str) -> String {
    let explained = format!("EXPLAIN QUERY PLAN {statement}");
    let rows = sqlx::query_as::<_, (i64, i64, i64, String)>(AssertSqlSafe(explained))
        .fetch_all(&mut *store.turn().await.unwrap().connection().await.unwrap())
        .await
        .unwrap();
    let lines: Vec<String> = rows.into_iter().map(|row| row.3).collect();
    lines.join("\n")
}

#[tokio::test]
async fn queues_are_read_by_their_index() {
    let (world, store) = world().await;
    let repository = world.repository("lamp").await;
    for _ in 0..3 {
        world.work(&repository, Role::Reviewer).await;
    }
    for statement in super::claim::STATEMENTS {
        let plan = plan(&store, statement).await;
        let is_whole_table = |line: &str| {
            let of_table = ["SCAN attempts", "SCAN a", "SCAN w", "SCAN c"];
            of_table.iter().any(|scan| line.starts_with(scan)) && !line.contains(" INDEX ")
        };
        assert!(!plan.lines().any(is_whole_table), "{statement}\n{plan}");
    }
    let plan = plan(&store, super::claim::CANDIDATES).await;
    assert!(plan.contains("ix_attempts_pending"), "{plan}");
    // Read in the order of the index: a page costs a page, whatever waits behind it.
    assert!(!plan.contains("TEMP B-TREE"), "{plan}");
}

#[tokio::test]
async fn figures_are_read_from_what_is_live_alone() {
    let (_world, store) = world().await;
    let growing = [
        "SCAN workflows",
        "SCAN attempts",
        "SCAN workers",
        "SCAN effects",
    ];
    for statement in super::stats::STATEMENTS {
        let plan = plan(&store, statement).await;
        let is_whole_table = plan.lines().any(|line| growing.contains(&line));
        assert!(!is_whole_table, "{statement}\n{plan}");
    }
}
