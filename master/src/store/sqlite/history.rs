//! Rows that leave for the archive: as JSON, and then not at all.

use sqlx::{SqliteConnection, sqlite::SqliteRow};

use super::{error::During, rows::Columns};
use crate::{
    domain::{ids::WorkflowId, time::Timestamp},
    store::{
        Error,
        model::{HistoryBatch, HistoryKind, HistoryRow},
    },
};

// The states are written out so that they match a partial index; a contract compares them with
// `retention::is_over`.
const ARCHIVABLE: &str = "
SELECT id, state_since
FROM workflows
WHERE is_history_moved = 0
  AND state IN ('MERGED', 'CREATED_PR', 'ABANDONED', 'STUCK')
  AND (state <> 'STUCK' OR upstream IS NOT NULL)
  AND state_since < $1
  AND (state_since, id) > ($2, $3)
ORDER BY state_since, id
LIMIT $4";

macro_rules! select_events {
    ($rest:literal) => {
        concat!(
            "
SELECT CAST(sequence AS TEXT) AS key, json_object('kind', 'event', 'sequence', sequence,
    'workflow_id', workflow_id, 'repository_id', repository_id, 'worker_id', worker_id,
    'attempt_id', attempt_id, 'occurred_at', occurred_at, 'event', kind, 'from_state', from_state,
    'to_state', to_state, 'actor', actor, 'reason', reason, 'detail', json(detail)) AS line
FROM controller_events",
            $rest
        )
    };
}

const EVENTS: &str = select_events!(
    "
WHERE workflow_id = $1
ORDER BY sequence
LIMIT $2"
);

const OTHER_EVENTS: &str = select_events!(
    "
WHERE workflow_id IS NULL
  AND occurred_at < $1
ORDER BY sequence
LIMIT $2"
);

const EFFECTS: &str = "
SELECT id AS key, json_object('kind', 'effect', 'id', id, 'workflow_id', workflow_id,
    'attempt_id', attempt_id, 'effect', json(effect), 'tries', tries, 'waits', waits,
    'first_failure_at', first_failure_at, 'waiting_for', waiting_for, 'opened_at', opened_at,
    'closed_at', closed_at) AS line
FROM effects
WHERE workflow_id = $1
  AND closed_at IS NOT NULL
ORDER BY id
LIMIT $2";

const ATTEMPTS: &str = "
SELECT id AS key, json_object('kind', 'attempt', 'id', id, 'repository_id', repository_id,
    'workflow_id', workflow_id, 'check_id', check_id, 'role', role, 'tier', tier, 'priority', priority,
    'status', status, 'commit_sha', commit_sha, 'lock_fence', lock_fence, 'pickup_count', pickup_count,
    'uncharged_errors', uncharged_errors, 'lock_ttl_seconds', lock_ttl_seconds,
    'not_before', not_before, 'accepted_fence', accepted_fence, 'outcome', outcome,
    'outcome_detail', json(outcome_detail), 'worker_id', worker_id, 'created_at', created_at,
    'started_at', started_at, 'ended_at', ended_at) AS line
FROM attempts
WHERE workflow_id = $1
  AND status NOT IN ('pending', 'in_progress')
ORDER BY id
LIMIT $2";

const CHECKS: &str = "
SELECT id AS key, json_object('kind', 'check', 'id', id, 'repository_id', repository_id,
    'workflow_id', workflow_id, 'name', name, 'command', command, 'commit_sha', commit_sha, 'run', run,
    'conclusion', conclusion, 'exit_status', exit_status, 'log_tail', log_tail,
    'created_at', created_at, 'changed_at', changed_at) AS line
FROM forge_checks
WHERE workflow_id = $1
ORDER BY id
LIMIT $2";

const DELETE_EVENTS: &str = "
DELETE FROM controller_events
WHERE sequence IN (SELECT CAST(value AS INTEGER) FROM json_each($1))";

const DELETE_EFFECTS: &str = "
DELETE FROM effects
WHERE id IN (SELECT value FROM json_each($1))";

const DELETE_PROGRESS: &str = "
DELETE FROM attempt_progress
WHERE attempt_id IN (SELECT value FROM json_each($1))";

const DELETE_ATTEMPTS: &str = "
DELETE FROM attempts
WHERE id IN (SELECT value FROM json_each($1))";

const DELETE_CHECKS: &str = "
DELETE FROM forge_checks
WHERE id IN (SELECT value FROM json_each($1))";

const SET_ARCHIVED: &str = "
UPDATE workflows
SET archived_at = $2,
    change_sequence = (SELECT MAX(change_sequence) + 1 FROM workflows)
WHERE id = $1";

const SET_HISTORY_MOVED: &str = "
UPDATE workflows
SET is_history_moved = 1
WHERE id = $1";

pub(super) const STATEMENTS: &[&str] = &[
    ARCHIVABLE,
    EVENTS,
    OTHER_EVENTS,
    EFFECTS,
    ATTEMPTS,
    CHECKS,
    DELETE_EVENTS,
    DELETE_EFFECTS,
    DELETE_PROGRESS,
    DELETE_ATTEMPTS,
    DELETE_CHECKS,
    SET_ARCHIVED,
    SET_HISTORY_MOVED,
];

/// In the order in which rows can be deleted: what refers to others goes first.
const KINDS: [(HistoryKind, &str); 4] = [
    (HistoryKind::Event, EVENTS),
    (HistoryKind::Effect, EFFECTS),
    (HistoryKind::Attempt, ATTEMPTS),
    (HistoryKind::Check, CHECKS),
];

pub(super) async fn archivable(
    connection: &mut SqliteConnection,
    before: Timestamp,
    after: Option<(Timestamp, WorkflowId)>,
    limit: u32,
) -> Result<Vec<(Timestamp, WorkflowId)>, Error> {
    let (since, id) = after.map_or((i64::MIN, String::new()), |(since, id)| {
        (since.0, id.to_string())
    });
    sqlx::query(ARCHIVABLE)
        .bind(before.0)
        .bind(since)
        .bind(id)
        .bind(limit)
        .fetch_all(connection)
        .await
        .during("list workflows to archive")?
        .iter()
        .map(|row| {
            let columns = Columns::new(row, "workflows", "id");
            Ok((columns.instant("state_since")?, columns.parsed("id")?))
        })
        .collect()
}

fn history_row(row: &SqliteRow) -> Result<HistoryRow, Error> {
    let columns = Columns::new(row, "history", "key");
    Ok(HistoryRow {
        key: columns.text("key")?,
        line: columns.text("line")?,
    })
}

pub(super) async fn oldest(
    connection: &mut SqliteConnection,
    workflow: WorkflowId,
    limit: u32,
) -> Result<Option<HistoryBatch>, Error> {
    for (kind, statement) in KINDS {
        let rows: Vec<HistoryRow> = sqlx::query(statement)
            .bind(workflow.to_string())
            .bind(limit)
            .fetch_all(&mut *connection)
            .await
            .during("read a workflow's history")?
            .iter()
            .map(history_row)
            .collect::<Result<_, _>>()?;
        if !rows.is_empty() {
            return Ok(Some(HistoryBatch {
                workflow: Some(workflow),
                kind,
                rows,
            }));
        }
    }
    Ok(None)
}

pub(super) async fn oldest_other_events(
    connection: &mut SqliteConnection,
    before: Timestamp,
    limit: u32,
) -> Result<Option<HistoryBatch>, Error> {
    let rows: Vec<HistoryRow> = sqlx::query(OTHER_EVENTS)
        .bind(before.0)
        .bind(limit)
        .fetch_all(connection)
        .await
        .during("read the history of repositories and workers")?
        .iter()
        .map(history_row)
        .collect::<Result<_, _>>()?;
    Ok((!rows.is_empty()).then_some(HistoryBatch {
        workflow: None,
        kind: HistoryKind::Event,
        rows,
    }))
}

pub(super) async fn delete(
    connection: &mut SqliteConnection,
    batch: &HistoryBatch,
) -> Result<bool, Error> {
    const OPERATION: &str = "delete archived history";
    let keys: Vec<&str> = batch.rows.iter().map(|row| row.key.as_str()).collect();
    let keys = serde_json::Value::from(keys).to_string();
    let statement = match batch.kind {
        HistoryKind::Event => DELETE_EVENTS,
        HistoryKind::Effect => DELETE_EFFECTS,
        HistoryKind::Attempt => DELETE_ATTEMPTS,
        HistoryKind::Check => DELETE_CHECKS,
    };
    if batch.kind == HistoryKind::Attempt {
        sqlx::query(DELETE_PROGRESS)
            .bind(keys.clone())
            .execute(&mut *connection)
            .await
            .during(OPERATION)?;
    }
    let deleted = sqlx::query(statement)
        .bind(keys)
        .execute(connection)
        .await
        .during(OPERATION)?;
    Ok(usize::try_from(deleted.rows_affected()) == Ok(batch.rows.len()))
}

pub(super) async fn set_archived(
    connection: &mut SqliteConnection,
    workflow: WorkflowId,
    now: Timestamp,
) -> Result<(), Error> {
    sqlx::query(SET_ARCHIVED)
        .bind(workflow.to_string())
        .bind(now.0)
        .execute(connection)
        .await
        .during("mark a workflow as archived")?;
    Ok(())
}

pub(super) async fn set_history_moved(
    connection: &mut SqliteConnection,
    workflow: WorkflowId,
) -> Result<(), Error> {
    sqlx::query(SET_HISTORY_MOVED)
        .bind(workflow.to_string())
        .execute(connection)
        .await
        .during("mark a workflow's history as moved")?;
    Ok(())
}
