//! The history.

use sqlx::{SqliteConnection, sqlite::SqliteRow};

use super::{
    error::During,
    rows::{Columns, Values, after as after_number},
};
use crate::{
    domain::ids::WorkflowId,
    store::{
        Error,
        model::{About, EventRow, NewEvent},
    },
};

macro_rules! select_event {
    ($rest:literal) => {
        concat!(
            "
SELECT sequence, workflow_id, from_state, to_state, repository_id, worker_id, attempt_id, occurred_at, kind,
    actor, reason, detail
FROM controller_events",
            $rest
        )
    };
}

const PAGE: &str = select_event!(
    "
WHERE sequence > $1
ORDER BY sequence
LIMIT $2"
);

const PAGE_OF_WORKFLOW: &str = select_event!(
    "
WHERE workflow_id = $1
  AND sequence > $2
ORDER BY sequence
LIMIT $3"
);

const NEWEST_OF_WORKFLOW: &str = select_event!(
    "
WHERE workflow_id = $1
ORDER BY sequence DESC
LIMIT $2"
);

const APPEND: &str = "
INSERT INTO controller_events
    (workflow_id, from_state, to_state, repository_id, worker_id, attempt_id, occurred_at, kind, actor,
    reason, detail)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)";

pub(super) const STATEMENTS: &[&str] = &[PAGE, PAGE_OF_WORKFLOW, NEWEST_OF_WORKFLOW, APPEND];

fn from_row(row: &SqliteRow) -> Result<EventRow, Error> {
    let columns = Columns::new(row, "controller_events", "sequence");
    Ok(EventRow {
        sequence: columns.number("sequence")?,
        about: about(&columns)?,
        attempt: columns.parsed_option("attempt_id")?,
        occurred_at: columns.instant("occurred_at")?,
        kind: columns.text("kind")?,
        actor: columns.text("actor")?,
        reason: columns.text("reason")?,
        detail: columns.json("detail")?,
    })
}

fn about(columns: &Columns<'_>) -> Result<About, Error> {
    if let Some(id) = columns.parsed_option("workflow_id")? {
        return Ok(About::Workflow {
            id,
            from: columns.parsed("from_state")?,
            to: columns.parsed("to_state")?,
        });
    }
    if let Some(id) = columns.parsed_option("repository_id")? {
        return Ok(About::Repository(id));
    }
    columns.parsed("worker_id").map(About::Worker)
}

pub(super) async fn page(
    connection: &mut SqliteConnection,
    workflow: Option<WorkflowId>,
    after: u64,
    limit: u32,
) -> Result<Vec<EventRow>, Error> {
    let query = match workflow {
        Some(workflow) => sqlx::query(PAGE_OF_WORKFLOW).bind(workflow.to_string()),
        None => sqlx::query(PAGE),
    };
    query
        .bind(after_number(after))
        .bind(limit)
        .fetch_all(connection)
        .await
        .during("list events")?
        .iter()
        .map(from_row)
        .collect()
}

pub(super) async fn newest(
    connection: &mut SqliteConnection,
    workflow: WorkflowId,
    limit: u32,
) -> Result<Vec<EventRow>, Error> {
    sqlx::query(NEWEST_OF_WORKFLOW)
        .bind(workflow.to_string())
        .bind(limit)
        .fetch_all(connection)
        .await
        .during("list the newest events")?
        .iter()
        .rev()
        .map(from_row)
        .collect()
}

pub(super) async fn append(
    connection: &mut SqliteConnection,
    event: &NewEvent,
) -> Result<(), Error> {
    let values = Values {
        table: "controller_events",
        id: &event.kind.as_str(),
    };
    let (repository, worker) = match event.about {
        About::Workflow { .. } => (None, None),
        About::Repository(id) => (Some(id), None),
        About::Worker(id) => (None, Some(id)),
    };
    let states = event.about.states();
    sqlx::query(APPEND)
        .bind(event.about.workflow().map(|id| id.to_string()))
        .bind(states.map(|(from, _)| from.as_str()))
        .bind(states.map(|(_, to)| to.as_str()))
        .bind(repository.map(|id| id.to_string()))
        .bind(worker.map(|id| id.to_string()))
        .bind(event.attempt.map(|attempt| attempt.to_string()))
        .bind(event.occurred_at.0)
        .bind(event.kind.as_str())
        .bind(event.actor.clone())
        .bind(event.reason.clone())
        .bind(values.json("detail", &event.detail)?)
        .execute(connection)
        .await
        .during("append an event")?;
    Ok(())
}
