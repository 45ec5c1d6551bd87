//! Check runs of the built-in forge.

use sqlx::{SqliteConnection, sqlite::SqliteRow};

use super::{
    error::{During, one_row},
    rows::Columns,
};
use crate::{
    domain::ids::{CheckId, CommitId, WorkflowId},
    store::{Error, model::CheckRun},
};

macro_rules! select_check {
    ($rest:literal) => {
        concat!(
            "
SELECT c.id, c.repository_id, c.workflow_id, c.name, c.command, c.commit_sha, c.run, c.conclusion,
    c.exit_status, c.log_tail, c.created_at, c.changed_at
FROM forge_checks c",
            $rest
        )
    };
}

const BY_ID: &str = select_check!(
    "
WHERE c.id = $1"
);

const NEWEST_OF_COMMIT: &str = select_check!(
    "
WHERE c.workflow_id = $1
  AND c.commit_sha = $2
  AND NOT EXISTS (
    SELECT 1
    FROM forge_checks newer
    WHERE newer.workflow_id = c.workflow_id
      AND newer.commit_sha = c.commit_sha
      AND newer.name = c.name
      AND newer.run > c.run
  )
ORDER BY c.name"
);

const INSERT: &str = "
INSERT INTO forge_checks (id, repository_id, workflow_id, name, command, commit_sha, run, conclusion,
    exit_status, log_tail, created_at, changed_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)";

const UPDATE: &str = "
UPDATE forge_checks
SET conclusion = $2,
    exit_status = $3,
    log_tail = $4,
    changed_at = $5
WHERE id = $1";

pub(super) const STATEMENTS: &[&str] = &[BY_ID, NEWEST_OF_COMMIT, INSERT, UPDATE];

fn from_row(row: &SqliteRow) -> Result<CheckRun, Error> {
    let columns = Columns::new(row, "forge_checks", "id");
    Ok(CheckRun {
        id: columns.parsed("id")?,
        repository: columns.parsed("repository_id")?,
        workflow: columns.parsed("workflow_id")?,
        name: columns.text("name")?,
        command: columns.text("command")?,
        commit: columns.parsed("commit_sha")?,
        run: columns.number("run")?,
        conclusion: columns.parsed_option("conclusion")?,
        exit_status: columns.number_option("exit_status")?,
        log_tail: columns.text("log_tail")?,
        created_at: columns.instant("created_at")?,
        changed_at: columns.instant("changed_at")?,
    })
}

pub(super) async fn by_id(
    connection: &mut SqliteConnection,
    id: CheckId,
) -> Result<Option<CheckRun>, Error> {
    sqlx::query(BY_ID)
        .bind(id.to_string())
        .fetch_optional(connection)
        .await
        .during("read a check run")?
        .as_ref()
        .map(from_row)
        .transpose()
}

pub(super) async fn newest_of(
    connection: &mut SqliteConnection,
    workflow: WorkflowId,
    commit: &CommitId,
) -> Result<Vec<CheckRun>, Error> {
    sqlx::query(NEWEST_OF_COMMIT)
        .bind(workflow.to_string())
        .bind(commit.to_string())
        .fetch_all(connection)
        .await
        .during("list check runs")?
        .iter()
        .map(from_row)
        .collect()
}

pub(super) async fn insert(connection: &mut SqliteConnection, run: &CheckRun) -> Result<(), Error> {
    sqlx::query(INSERT)
        .bind(run.id.to_string())
        .bind(run.repository.to_string())
        .bind(run.workflow.to_string())
        .bind(run.name.clone())
        .bind(run.command.clone())
        .bind(run.commit.to_string())
        .bind(run.run)
        .bind(run.conclusion.map(|conclusion| conclusion.as_str()))
        .bind(run.exit_status)
        .bind(run.log_tail.clone())
        .bind(run.created_at.0)
        .bind(run.changed_at.0)
        .execute(connection)
        .await
        .during("insert a check run")?;
    Ok(())
}

pub(super) async fn update(connection: &mut SqliteConnection, run: &CheckRun) -> Result<(), Error> {
    let result = sqlx::query(UPDATE)
        .bind(run.id.to_string())
        .bind(run.conclusion.map(|conclusion| conclusion.as_str()))
        .bind(run.exit_status)
        .bind(run.log_tail.clone())
        .bind(run.changed_at.0)
        .execute(connection)
        .await
        .during("update a check run")?;
    one_row(&result, "check run")
}
