//! Databases of earlier versions, with rows, are migrated to the newest and read through the store.

use std::{path::Path, sync::Arc};

use sqlx::{
    AssertSqlSafe, ConnectOptions, Connection, SqliteConnection,
    migrate::{Migration, Migrator},
    sqlite::SqliteConnectOptions,
};
use uuid::Uuid;

use super::{SqliteStore, migrate::MIGRATOR};
use crate::{
    clock::manual::ManualClock,
    domain::{
        attempt::{AttemptStatus, Role, Subject},
        ci::Conclusion,
        effect::Effect,
        ids::{
            AttemptId, CheckId, CommitId, EffectId, InstanceId, Nonce, RepositoryId, RequestId,
            WorkerId, WorkflowId,
        },
        time::Timestamp,
        transitions::State,
        workflow::{Kind, Pause, PausedBy, Upstream},
    },
    store::{Store, model::WorkflowFilter},
};

/// Rows of each version, as its program wrote them: of tables that it made or changed.
const SAMPLES: &[(i64, &str)] = &[(
    1,
    include_str!("../../../../migrations/sqlite/samples/0001.sql"),
)];

fn migrations(up_to: i64) -> Vec<Migration> {
    let up_to = MIGRATOR.iter().filter(|m| m.version <= up_to);
    up_to.cloned().collect()
}

async fn connect(path: &Path) -> SqliteConnection {
    let options = SqliteConnectOptions::new()
        .filename(path)
        .create_if_missing(true)
        .foreign_keys(true);
    options.connect().await.unwrap()
}

async fn texts(connection: &mut SqliteConnection, statement: &str) -> Vec<String> {
    sqlx::query_scalar(AssertSqlSafe(statement))
        .fetch_all(connection)
        .await
        .unwrap()
}

/// A file as the version with migration `version` left it, with the samples up to it.
async fn file_of(version: i64, path: &Path) {
    let mut connection = connect(path).await;
    let newest = MIGRATOR.iter().map(|m| m.version).max().unwrap();
    for step in 1..=version.min(newest) {
        Migrator::with_migrations(migrations(step))
            .run(&mut connection)
            .await
            .unwrap();
        for (_, rows) in SAMPLES.iter().filter(|(of, _)| *of == step) {
            sqlx::raw_sql(AssertSqlSafe(*rows))
                .execute(&mut connection)
                .await
                .unwrap();
        }
    }
    connection.close().await.unwrap();
}

async fn open(path: &Path) -> SqliteStore {
    SqliteStore::open(path, Arc::new(ManualClock::default()))
        .await
        .unwrap()
}

#[test]
fn each_released_migration_has_a_sample() {
    let versions: Vec<i64> = MIGRATOR.iter().map(|m| m.version).collect();
    let expected: Vec<i64> = (1..=i64::try_from(versions.len()).unwrap()).collect();
    assert_eq!(versions, expected);
    // The newest gets its own when the next one is written: nothing is migrated from it before.
    let sampled: Vec<i64> = SAMPLES.iter().map(|(version, _)| *version).collect();
    assert_eq!(sampled, versions[..versions.len() - 1]);
    for migration in MIGRATOR.iter() {
        assert!(
            !migration.no_tx,
            "{} is not one transaction",
            migration.version
        );
    }
}

#[tokio::test]
async fn each_sample_has_a_row_in_each_table() {
    for (version, _) in SAMPLES {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("pointsman.db");
        file_of(*version, &path).await;
        let mut connection = connect(&path).await;
        let tables =
            "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'";
        for table in texts(&mut connection, tables).await {
            // Only between a failed write and the next.
            if table == "write_probes" {
                continue;
            }
            let row = format!("SELECT 'a row' FROM {table} LIMIT 1");
            let rows = texts(&mut connection, &row).await;
            assert_eq!(rows.len(), 1, "{version}: {table} has no sample");
        }
    }
}

#[tokio::test]
async fn every_earlier_version_is_migrated_without_loss() {
    for (version, _) in SAMPLES {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("pointsman.db");
        file_of(*version, &path).await;
        let mut connection = connect(&path).await;
        let counted = async |connection: &mut SqliteConnection, table: &str| {
            let count = format!("SELECT CAST(COUNT(*) AS TEXT) FROM {table}");
            texts(connection, &count).await.remove(0)
        };
        let tables = "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT IN ('sqlite_sequence', '_sqlx_migrations')";
        let mut before = Vec::new();
        for table in texts(&mut connection, tables).await {
            before.push((table.clone(), counted(&mut connection, &table).await));
        }
        connection.close().await.unwrap();
        open(&path).await.close().await;
        let mut connection = connect(&path).await;
        for (table, count) in before {
            assert_eq!(counted(&mut connection, &table).await, count, "{table}");
        }
        let checked = texts(&mut connection, "PRAGMA integrity_check").await;
        assert_eq!(checked, ["ok"]);
        let broken = "SELECT \"table\" FROM pragma_foreign_key_check";
        assert_eq!(texts(&mut connection, broken).await, [""; 0]);
    }
}

fn id(n: u32) -> Uuid {
    format!("019b0000-0000-7000-8000-0000000000{n:02}")
        .parse()
        .unwrap()
}

fn commit(digit: char) -> CommitId {
    digit.to_string().repeat(40).parse().unwrap()
}

fn at(micros: i64) -> Timestamp {
    Timestamp(1_767_225_600_000_000 + micros)
}

/// What rows of the first version mean now.
#[tokio::test]
async fn rows_of_the_first_version_are_read() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("pointsman.db");
    file_of(1, &path).await;
    let store = open(&path).await;
    repositories_and_items(&store).await;
    workflows(&store).await;
    attempts_and_leases(&store).await;
    events_effects_and_workers(&store).await;
}

async fn repositories_and_items(store: &SqliteStore) {
    let repositories = store.repositories("", 9).await.unwrap();
    let [lamp, shade] = repositories.as_slice() else {
        panic!("{repositories:?}");
    };
    assert_eq!(lamp.id, RepositoryId(id(1)));
    assert_eq!((lamp.name.as_str(), shade.name.as_str()), ("lamp", "shade"));
    assert_eq!(lamp.git_url, "https://git.example/lamp");
    assert_eq!(
        (lamp.base_ref.as_str(), shade.base_ref.as_str()),
        ("main", "trunk")
    );
    assert_eq!(
        (lamp.label.as_str(), shade.label.as_str()),
        ("pointsman", "bot")
    );
    assert_eq!(lamp.policy.max_tier, 2);
    assert_eq!(lamp.created_at, at(1));
    // The one command is the check "ci", which its runs are called too.
    let checks: Vec<_> = lamp
        .checks
        .iter()
        .map(|c| (c.name.as_str(), c.command.as_str()))
        .collect();
    assert_eq!(checks, [("ci", "make check")]);
    assert_eq!(shade.checks, []);

    let item = store.forge_item(lamp.id, 1).await.unwrap().unwrap();
    assert_eq!((item.kind, item.is_open), (Kind::Issue, true));
    assert_eq!(item.labels, ["pointsman"]);
    assert_eq!(item.request, Some(RequestId(id(61))));
    let merged = store
        .forge_pull_request(lamp.id, "hook")
        .await
        .unwrap()
        .unwrap();
    assert_eq!((merged.number, merged.is_open), (5, false));
    assert_eq!(merged.merged_commit, Some(commit('6')));
}

async fn workflows(store: &SqliteStore) {
    let rows = store
        .workflows(&WorkflowFilter::default(), None, 99)
        .await
        .unwrap();
    let states: Vec<State> = rows.iter().map(|row| row.workflow.state()).collect();
    assert_eq!(
        states,
        [
            State::CreatedPr,
            State::Reviewing,
            State::AwaitingCi,
            State::Paused,
            State::Merged,
            State::Merging,
            State::Discovered
        ]
    );
    let [issue, reviewed, awaits, paused, merged, merging, _] = rows.as_slice() else {
        panic!("{rows:?}");
    };
    assert_eq!(issue.workflow.progress().pull_request, Some(2));
    assert_eq!(
        issue.workflow.progress().facts.plan.as_deref(),
        Some("Hang it.")
    );
    assert_eq!(reviewed.workflow.parent, Some(WorkflowId(id(11))));
    assert_eq!((reviewed.version, reviewed.ci_polls), (7, 3));
    assert_eq!(reviewed.ci_next_poll_at, Some(at(300)));
    let counters = reviewed.workflow.progress().counters;
    assert_eq!((counters.ci_red_rounds, counters.merge_rounds), (1, 1));
    assert_eq!(
        awaits.workflow.progress().awaiting_ci_started_at,
        Some(at(400))
    );
    let expected = Pause {
        was: State::Reviewing,
        by: PausedBy::Label,
    };
    assert_eq!(paused.workflow.progress().pause, Some(expected));
    assert_eq!(merged.workflow.progress().merged_commit, Some(commit('6')));
    assert_eq!(merged.workflow.progress().upstream, Some(Upstream::Merged));
    assert_eq!(
        merging.workflow.progress().merging_started_at,
        Some(at(800))
    );
    assert_eq!(merging.repository_name, "shade");

    let runs = store
        .check_runs(WorkflowId(id(13)), &commit('3'))
        .await
        .unwrap();
    let [run] = runs.as_slice() else {
        panic!("{runs:?}");
    };
    assert_eq!(
        (run.id, run.run, run.conclusion),
        (CheckId(id(22)), 2, None)
    );
    assert_ne!(run.conclusion, Some(Conclusion::Failure));
}

async fn attempts_and_leases(store: &SqliteStore) {
    let done = store.attempt(AttemptId(id(31))).await.unwrap().unwrap();
    assert_eq!(done.attempt.status, AttemptStatus::Succeeded);
    assert_eq!(done.worker, Some(WorkerId(id(41))));
    let accepted = done.attempt.accepted.unwrap();
    assert_eq!(accepted.0.0, 2);
    assert_eq!(done.attempt.outcome.unwrap().name, "verdict");
    let check = store.attempt(AttemptId(id(33))).await.unwrap().unwrap();
    assert_eq!(check.attempt.subject, Subject::Check(CheckId(id(22))));
    assert_eq!(
        (check.attempt.role, check.attempt.uncharged_errors),
        (Role::Ci, 1)
    );
    assert_eq!(check.attempt.not_before, Some(at(440)));
    assert_eq!(check.check_name.as_deref(), Some("ci"));

    let sessions = store.sessions(None, None, 9).await.unwrap();
    let [session] = sessions.as_slice() else {
        panic!("{sessions:?}");
    };
    let lease = &session.lease;
    assert_eq!(
        (lease.key.attempt, lease.key.fence.0),
        (AttemptId(id(32)), 1)
    );
    let nonce = "5b9d2c2e-6a0f-4f4f-9a3a-0a6a5c1e2d3f".parse().unwrap();
    assert_eq!(lease.key.nonce, Nonce(nonce));
    assert_eq!(lease.owner, InstanceId(id(42)));
    assert_eq!((lease.heartbeat_at, lease.ttl_seconds), (at(230), 180));
    let progress = session.progress.as_ref().unwrap();
    assert_eq!((progress.subprocess_pid, progress.log_bytes), (4242, 1024));
}

async fn events_effects_and_workers(store: &SqliteStore) {
    let events = store.events(None, 0, 9).await.unwrap();
    let told: Vec<_> = events
        .iter()
        .map(|event| (event.sequence, event.about.workflow(), event.about.states()))
        .collect();
    let issue = Some(WorkflowId(id(11)));
    assert_eq!(
        told,
        [
            (1, issue, Some((State::Discovered, State::Discovered))),
            (5, issue, Some((State::Implementing, State::CreatedPr))),
        ]
    );
    assert_eq!(events[1].detail["number"], 2);
    // Numbers go on where they were: none is given twice.
    let mut turn = store.turn().await.unwrap();
    let next: i64 = sqlx::query_scalar(
        "INSERT INTO controller_events (workflow_id, occurred_at, kind, from_state, to_state, actor, reason,
             detail)
         VALUES ('w', 0, 'k', 'STUCK', 'STUCK', 'a', '', '{}')
         RETURNING sequence",
    )
    .fetch_one(&mut *turn.connection().await.unwrap())
    .await
    .unwrap();
    assert_eq!(next, 6);
    drop(turn);

    let effect = store
        .open_effect_of(WorkflowId(id(16)))
        .await
        .unwrap()
        .unwrap();
    assert_eq!(effect.id, EffectId(id(51)));
    assert_eq!(effect.effect, Effect::Merge { head: commit('7') });
    assert_eq!((effect.tries, effect.waits), (1, 2));
    assert_eq!(effect.first_failure_at, Some(at(805)));
    assert_eq!(
        store.open_effect_of(WorkflowId(id(11))).await.unwrap(),
        None
    );

    let worker = store.worker(WorkerId(id(41))).await.unwrap().unwrap();
    assert_eq!(worker.instance, InstanceId(id(42)));
    assert_eq!(worker.roles, [Role::Reviewer, Role::Ci]);
    assert_eq!(worker.state_directory.created_at_nanos, 3);
}

/// What `migrations/README.md` says about rebuilding a table that others refer to.
#[tokio::test]
async fn a_table_that_others_refer_to_can_be_rebuilt() {
    use sqlx::{SqlSafeStr as _, migrate::MigrationType};

    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("pointsman.db");
    file_of(1, &path).await;
    let rebuild = |last: &'static str| {
        let sql = format!(
            "CREATE TABLE forge_checks_0002 (id TEXT PRIMARY KEY, workflow_id TEXT NOT NULL REFERENCES workflows (id),
                 is_new INTEGER NOT NULL) STRICT;
             INSERT INTO forge_checks_0002 SELECT id, workflow_id, 1 FROM forge_checks;
             DROP TABLE forge_checks;
             ALTER TABLE forge_checks_0002 RENAME TO forge_checks;
             {last}"
        );
        let mut migrations = migrations(1);
        let sql = AssertSqlSafe(sql).into_sql_str();
        migrations.push(Migration::new(
            2,
            "x".into(),
            MigrationType::Simple,
            sql,
            false,
        ));
        Migrator::with_migrations(migrations)
    };
    let without_keys = SqliteConnectOptions::new()
        .filename(&path)
        .foreign_keys(false);
    let mut connection = without_keys.connect().await.unwrap();
    // One that loses rows that others need is refused, though each of its statements is fine.
    let loses = rebuild("DELETE FROM forge_checks;");
    let copied = directory.path().join("copy.db");
    std::fs::copy(&path, &copied).unwrap();
    let options = SqliteConnectOptions::new()
        .filename(&copied)
        .foreign_keys(false);
    let mut copy = options.connect().await.unwrap();
    let error = super::migrate::migrate(&mut copy, &loses)
        .await
        .unwrap_err();
    assert!(matches!(error, crate::store::Error::Migrate(_)), "{error}");

    super::migrate::migrate(&mut connection, &rebuild(""))
        .await
        .unwrap();
    let references =
        "SELECT \"table\" FROM pragma_foreign_key_list('attempts') WHERE \"from\" = 'check_id'";
    assert_eq!(texts(&mut connection, references).await, ["forge_checks"]);
    let runs = "SELECT c.id FROM attempts a JOIN forge_checks c ON c.id = a.check_id";
    assert_eq!(texts(&mut connection, runs).await.len(), 1);
}
