//! What workflows want of their forges.

use sqlx::{SqliteConnection, sqlite::SqliteRow};

use super::{
    error::{During, one_row},
    rows::{Columns, Values},
};
use crate::{
    domain::{
        ids::{EffectId, WorkflowId},
        time::Timestamp,
        transitions::State,
    },
    store::{Error, model::OpenEffectRow},
};

macro_rules! select_open_effect {
    ($rest:literal) => {
        concat!(
            "
SELECT e.id, e.workflow_id, e.attempt_id, e.effect, e.tries, e.waits, e.next_try_at,
    e.first_failure_at, e.waiting_for, e.opened_at
FROM effects e",
            $rest
        )
    };
}

const OPEN_OF_WORKFLOW: &str = select_open_effect!(
    "
WHERE e.workflow_id = $1
  AND e.closed_at IS NULL"
);

const DUE: &str = select_open_effect!(
    "
JOIN workflows w ON w.id = e.workflow_id
WHERE e.closed_at IS NULL
  AND e.next_try_at <= $1
  AND w.state <> $2
ORDER BY e.next_try_at, e.id
LIMIT $3"
);

const INSERT: &str = "
INSERT INTO effects (id, workflow_id, attempt_id, effect, tries, waits, next_try_at,
    first_failure_at, waiting_for, opened_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)";

const UPDATE: &str = "
UPDATE effects
SET tries = $2,
    waits = $3,
    next_try_at = $4,
    first_failure_at = $5,
    waiting_for = $6
WHERE id = $1
  AND closed_at IS NULL";

const CLOSE: &str = "
UPDATE effects
SET closed_at = $2
WHERE id = $1
  AND closed_at IS NULL";

pub(super) const STATEMENTS: &[&str] = &[OPEN_OF_WORKFLOW, DUE, INSERT, UPDATE, CLOSE];

fn from_row(row: &SqliteRow) -> Result<OpenEffectRow, Error> {
    let columns = Columns::new(row, "effects", "id");
    Ok(OpenEffectRow {
        id: columns.parsed("id")?,
        workflow: columns.parsed("workflow_id")?,
        attempt: columns.parsed_option("attempt_id")?,
        effect: columns.json("effect")?,
        tries: columns.number("tries")?,
        waits: columns.number("waits")?,
        next_try_at: columns.instant("next_try_at")?,
        first_failure_at: columns.instant_option("first_failure_at")?,
        waiting_for: columns.text("waiting_for")?,
        opened_at: columns.instant("opened_at")?,
    })
}

pub(super) async fn open_of(
    connection: &mut SqliteConnection,
    workflow: WorkflowId,
) -> Result<Option<OpenEffectRow>, Error> {
    sqlx::query(OPEN_OF_WORKFLOW)
        .bind(workflow.to_string())
        .fetch_optional(connection)
        .await
        .during("read an open effect")?
        .as_ref()
        .map(from_row)
        .transpose()
}

pub(super) async fn due(
    connection: &mut SqliteConnection,
    now: Timestamp,
    limit: u32,
) -> Result<Vec<OpenEffectRow>, Error> {
    sqlx::query(DUE)
        .bind(now.0)
        .bind(State::Paused.as_str())
        .bind(limit)
        .fetch_all(connection)
        .await
        .during("list due effects")?
        .iter()
        .map(from_row)
        .collect()
}

pub(super) async fn insert(
    connection: &mut SqliteConnection,
    effect: &OpenEffectRow,
) -> Result<(), Error> {
    let values = Values {
        table: "effects",
        id: &effect.id,
    };
    sqlx::query(INSERT)
        .bind(effect.id.to_string())
        .bind(effect.workflow.to_string())
        .bind(effect.attempt.map(|attempt| attempt.to_string()))
        .bind(values.json("effect", &effect.effect)?)
        .bind(effect.tries)
        .bind(effect.waits)
        .bind(effect.next_try_at.0)
        .bind(effect.first_failure_at.map(|instant| instant.0))
        .bind(effect.waiting_for.clone())
        .bind(effect.opened_at.0)
        .execute(connection)
        .await
        .during("open an effect")?;
    Ok(())
}

pub(super) async fn update(
    connection: &mut SqliteConnection,
    effect: &OpenEffectRow,
) -> Result<(), Error> {
    let result = sqlx::query(UPDATE)
        .bind(effect.id.to_string())
        .bind(effect.tries)
        .bind(effect.waits)
        .bind(effect.next_try_at.0)
        .bind(effect.first_failure_at.map(|instant| instant.0))
        .bind(effect.waiting_for.clone())
        .execute(connection)
        .await
        .during("update an effect")?;
    one_row(&result, "effect")
}

pub(super) async fn close(
    connection: &mut SqliteConnection,
    effect: EffectId,
    now: Timestamp,
) -> Result<bool, Error> {
    let result = sqlx::query(CLOSE)
        .bind(effect.to_string())
        .bind(now.0)
        .execute(connection)
        .await
        .during("close an effect")?;
    Ok(result.rows_affected() == 1)
}
