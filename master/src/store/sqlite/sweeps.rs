//! What sweeps look for, over all workflows.

use sqlx::{SqliteConnection, sqlite::SqliteRow};

use super::{error::During, rows::Columns, rows::after_id, workflows::states};
use crate::{
    domain::{
        attempt::MAX_UNCHARGED_ERRORS,
        ids::{AttemptId, WorkflowId},
        policy::Policy,
        time::Timestamp,
        transitions::State,
    },
    store::Error,
};

// A poll that was never set is due: nothing else would ever set it.
const DUE_CI_POLLS: &str = "
SELECT w.id
FROM workflows w
WHERE w.state = $1
  AND (w.ci_next_poll_at IS NULL OR w.ci_next_poll_at <= $2)
  AND NOT EXISTS (
    SELECT 1
    FROM effects e
    WHERE e.workflow_id = w.id
      AND e.closed_at IS NULL
  )
ORDER BY w.ci_next_poll_at, w.id
LIMIT $3";

const WITHOUT_WORK: &str = "
SELECT w.id
FROM workflows w
WHERE w.id > $1
  -- All that the conditions below can hold for, for the index's sake.
  AND w.state IN (SELECT value FROM json_each($2))
  AND (
    (
      w.state = $3
      -- Only where its repository has room.
      AND (
        SELECT COUNT(*)
        FROM workflows live
        WHERE live.repository_id = w.repository_id
          AND live.state IN (SELECT value FROM json_each($7))
          AND NOT (live.state = $8 AND COALESCE(live.pre_pause_state, $3) = $3)
      ) < (
        SELECT COALESCE(r.policy ->> 'max_live_workflows', $9)
        FROM repositories r
        WHERE r.id = w.repository_id
      )
    )
    OR (
      w.state IN (SELECT value FROM json_each($4))
      AND NOT EXISTS (
        SELECT 1
        FROM attempts a
        WHERE a.subject_id = w.id
          AND a.status IN ('pending', 'in_progress')
      )
      AND NOT EXISTS (
        SELECT 1
        FROM effects e
        WHERE e.workflow_id = w.id
          AND e.closed_at IS NULL
      )
    )
    OR (
      w.state = $5
      AND NOT EXISTS (
        SELECT 1
        FROM effects e
        WHERE e.workflow_id = w.id
          AND e.closed_at IS NULL
      )
      AND (
        (
          w.head_sha IS NOT NULL
          AND EXISTS (
            SELECT 1
            FROM repositories r, json_each(r.checks) wanted
            WHERE r.id = w.repository_id
              AND NOT EXISTS (
                SELECT 1
                FROM forge_checks c
                WHERE c.workflow_id = w.id
                  AND c.commit_sha = w.head_sha
                  AND c.name = wanted.value ->> 'name'
              )
          )
        )
        OR EXISTS (
          SELECT 1
          FROM forge_checks c
          WHERE c.workflow_id = w.id
            AND c.commit_sha = w.head_sha
            AND c.conclusion IS NULL
            AND NOT EXISTS (
              SELECT 1
              FROM forge_checks newer
              WHERE newer.workflow_id = c.workflow_id
                AND newer.commit_sha = c.commit_sha
                AND newer.name = c.name
                AND newer.run > c.run
            )
            AND NOT EXISTS (
              SELECT 1
              FROM attempts a
              WHERE a.subject_id = c.id
                AND a.status IN ('pending', 'in_progress')
            )
        )
      )
    )
  )
ORDER BY w.id
LIMIT $6";

const SPENT_ATTEMPTS: &str = "
SELECT a.id, a.workflow_id
FROM attempts a
JOIN workflows w ON w.id = a.workflow_id
JOIN repositories r ON r.id = a.repository_id
WHERE a.status = 'pending'
  AND a.id > $1
  AND (
    a.pickup_count >= COALESCE(r.policy ->> 'max_pickups', $2)
    OR a.uncharged_errors >= $3
  )
  AND w.state NOT IN (SELECT value FROM json_each($4))
ORDER BY a.id
LIMIT $5";

pub(super) const STATEMENTS: &[&str] = &[DUE_CI_POLLS, WITHOUT_WORK, SPENT_ATTEMPTS];

fn workflow_id(row: &SqliteRow) -> Result<WorkflowId, Error> {
    Columns::new(row, "workflows", "id").parsed("id")
}

pub(super) async fn due_ci_polls(
    connection: &mut SqliteConnection,
    now: Timestamp,
    limit: u32,
) -> Result<Vec<WorkflowId>, Error> {
    sqlx::query(DUE_CI_POLLS)
        .bind(State::AwaitingCi.as_str())
        .bind(now.0)
        .bind(limit)
        .fetch_all(connection)
        .await
        .during("list due polls of CI")?
        .iter()
        .map(workflow_id)
        .collect()
}

pub(super) async fn workflows_without_work(
    connection: &mut SqliteConnection,
    after: Option<WorkflowId>,
    limit: u32,
) -> Result<Vec<WorkflowId>, Error> {
    sqlx::query(WITHOUT_WORK)
        .bind(after_id(after))
        .bind(states(|state| !state.is_terminal()))
        .bind(State::Discovered.as_str())
        .bind(states(|state| state.role().is_some()))
        .bind(State::AwaitingCi.as_str())
        .bind(limit)
        .bind(states(|state| {
            state != State::Discovered && !state.is_terminal()
        }))
        .bind(State::Paused.as_str())
        .bind(Policy::default().max_live_workflows)
        .fetch_all(connection)
        .await
        .during("list workflows without work")?
        .iter()
        .map(workflow_id)
        .collect()
}

pub(super) async fn spent_attempts(
    connection: &mut SqliteConnection,
    after: Option<AttemptId>,
    limit: u32,
) -> Result<Vec<(AttemptId, WorkflowId)>, Error> {
    sqlx::query(SPENT_ATTEMPTS)
        .bind(after_id(after))
        .bind(Policy::default().max_pickups)
        .bind(MAX_UNCHARGED_ERRORS)
        .bind(states(State::is_terminal))
        .bind(limit)
        .fetch_all(connection)
        .await
        .during("list spent attempts")?
        .iter()
        .map(|row| {
            let columns = Columns::new(row, "attempts", "id");
            Ok((columns.parsed("id")?, columns.parsed("workflow_id")?))
        })
        .collect()
}
