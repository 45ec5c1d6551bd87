//! Attempts.

use sqlx::{SqliteConnection, sqlite::SqliteRow};

use super::{
    error::{During, one_row},
    rows::{Columns, Values, after_id},
};
use crate::{
    domain::{
        attempt::{Attempt, AttemptStatus, Outcome, Role, Subject},
        ids::{AttemptId, CommitId, Fence, Nonce, WorkflowId},
    },
    store::{
        Error, MAX_SCANNED,
        model::{AttemptFilter, AttemptPage, AttemptRow},
    },
};

macro_rules! select_attempt {
    ($rest:literal) => {
        concat!(
            "
SELECT a.id, a.repository_id, a.workflow_id, a.check_id, a.role, a.tier, a.status, a.commit_sha,
    a.lock_fence, a.pickup_count, a.uncharged_errors, a.lock_ttl_seconds, a.not_before,
    a.accepted_fence, a.accepted_nonce, a.outcome, a.outcome_detail, a.worker_id, a.created_at,
    a.started_at, a.ended_at, c.name AS check_name
FROM attempts a
LEFT JOIN forge_checks c ON c.id = a.check_id",
            $rest
        )
    };
}
pub(super) use select_attempt;

const BY_ID: &str = select_attempt!(
    "
WHERE a.id = $1"
);

const NEWEST_OF_WORKFLOW: &str = select_attempt!(
    "
WHERE a.workflow_id = $1
ORDER BY a.id DESC
LIMIT $2"
);

// The statuses are written out so that they match a partial index; a contract compares them with
// `AttemptStatus::is_live`.
const LIVE_OF_WORKFLOW: &str = select_attempt!(
    "
WHERE a.workflow_id = $1
  AND a.status IN ('pending', 'in_progress')
ORDER BY a.id"
);

/// After every id.
const PAST_IDS: &str = "g";

// NULL is no condition.
const PAGE_OF_WORKFLOW: &str = select_attempt!(
    "
WHERE a.workflow_id = $1
  AND a.id < $2
  AND ($3 IS NULL OR a.status IN (SELECT value FROM json_each($3)))
  AND ($4 IS NULL OR a.role IN (SELECT value FROM json_each($4)))
  AND ($5 IS NULL OR a.worker_id = $5)
ORDER BY a.id DESC
LIMIT $6"
);

// No further than the id that SCAN_END gave.
const PAGE: &str = select_attempt!(
    "
WHERE a.id >= $1
  AND a.id < $2
  AND ($3 IS NULL OR a.status IN (SELECT value FROM json_each($3)))
  AND ($4 IS NULL OR a.role IN (SELECT value FROM json_each($4)))
  AND ($5 IS NULL OR a.worker_id = $5)
ORDER BY a.id DESC
LIMIT $6"
);

const SCAN_END: &str = "
SELECT id
FROM attempts
WHERE id < $1
ORDER BY id DESC
LIMIT 1 OFFSET $2";

const SET_PRIORITY: &str = "
UPDATE attempts
SET priority = $2
WHERE workflow_id = $1
  AND status IN ('pending', 'in_progress')";

const INSERT: &str = "
INSERT INTO attempts (id, repository_id, workflow_id, check_id, subject_id, role, tier,
    lock_ttl_seconds, created_at, priority, status, commit_sha, lock_fence, pickup_count,
    uncharged_errors, not_before, accepted_fence, accepted_nonce, outcome, outcome_detail, started_at,
    ended_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21,
    $22)";

// The fence only grows: an attempt that was read before its newest lease is not written.
const UPDATE: &str = "
UPDATE attempts
SET status = $2,
    commit_sha = $3,
    lock_fence = $4,
    pickup_count = $5,
    uncharged_errors = $6,
    not_before = $7,
    accepted_fence = $8,
    accepted_nonce = $9,
    outcome = $10,
    outcome_detail = $11,
    started_at = $12,
    ended_at = $13
WHERE id = $1
  AND lock_fence <= $4";

const SET_COMMIT: &str = "
UPDATE attempts
SET commit_sha = $2
WHERE id = $1";

pub(super) const STATEMENTS: &[&str] = &[
    BY_ID,
    NEWEST_OF_WORKFLOW,
    LIVE_OF_WORKFLOW,
    PAGE_OF_WORKFLOW,
    PAGE,
    SCAN_END,
    SET_PRIORITY,
    INSERT,
    UPDATE,
    SET_COMMIT,
];

/// Reads what [`select_attempt`] selects.
pub(super) fn from_row(row: &SqliteRow) -> Result<AttemptRow, Error> {
    let columns = Columns::new(row, "attempts", "id");
    Ok(AttemptRow {
        attempt: attempt(&columns)?,
        worker: columns.parsed_option("worker_id")?,
        check_name: columns.text_option("check_name")?,
    })
}

fn attempt(columns: &Columns<'_>) -> Result<Attempt, Error> {
    Ok(Attempt {
        id: columns.parsed("id")?,
        repository: columns.parsed("repository_id")?,
        workflow: columns.parsed("workflow_id")?,
        subject: columns
            .parsed_option("check_id")?
            .map_or(Subject::Workflow, Subject::Check),
        role: columns.parsed("role")?,
        tier: columns.number("tier")?,
        status: columns.parsed("status")?,
        commit: columns.parsed_option("commit_sha")?,
        fence: Fence(columns.number("lock_fence")?),
        pickup_count: columns.number("pickup_count")?,
        uncharged_errors: columns.number("uncharged_errors")?,
        lock_ttl_seconds: columns.number("lock_ttl_seconds")?,
        not_before: columns.instant_option("not_before")?,
        accepted: accepted(columns)?,
        outcome: outcome(columns)?,
        created_at: columns.instant("created_at")?,
        started_at: columns.instant_option("started_at")?,
        ended_at: columns.instant_option("ended_at")?,
    })
}

fn accepted(columns: &Columns<'_>) -> Result<Option<(Fence, Nonce)>, Error> {
    let fence = columns.number_option("accepted_fence")?.map(Fence);
    match (fence, columns.parsed_option("accepted_nonce")?) {
        (None, None) => Ok(None),
        (Some(fence), Some(nonce)) => Ok(Some((fence, nonce))),
        (None, Some(_)) => Err(columns.corrupt("accepted_fence", "there is a nonce but no fence")),
        (Some(_), None) => Err(columns.corrupt("accepted_nonce", "there is a fence but no nonce")),
    }
}

fn outcome(columns: &Columns<'_>) -> Result<Option<Outcome>, Error> {
    columns
        .text_option("outcome")?
        .map(|name| {
            Ok(Outcome {
                name,
                detail: columns.json("outcome_detail")?,
            })
        })
        .transpose()
}

pub(super) async fn by_id(
    connection: &mut SqliteConnection,
    id: AttemptId,
) -> Result<Option<AttemptRow>, Error> {
    sqlx::query(BY_ID)
        .bind(id.to_string())
        .fetch_optional(connection)
        .await
        .during("read an attempt")?
        .as_ref()
        .map(from_row)
        .transpose()
}

pub(super) async fn newest_of(
    connection: &mut SqliteConnection,
    workflow: WorkflowId,
    limit: u32,
) -> Result<Vec<AttemptRow>, Error> {
    sqlx::query(NEWEST_OF_WORKFLOW)
        .bind(workflow.to_string())
        .bind(limit)
        .fetch_all(connection)
        .await
        .during("list a workflow's attempts")?
        .iter()
        .rev()
        .map(from_row)
        .collect()
}

fn names<T: Copy>(wanted: &[T], name: impl Fn(T) -> &'static str) -> Option<String> {
    let names: Vec<&str> = wanted.iter().map(|&value| name(value)).collect();
    (!names.is_empty()).then(|| serde_json::Value::from(names).to_string())
}

pub(super) async fn page(
    connection: &mut SqliteConnection,
    filter: &AttemptFilter,
    before: Option<AttemptId>,
    limit: u32,
) -> Result<AttemptPage, Error> {
    const OPERATION: &str = "list attempts";
    let before = before.map_or_else(|| PAST_IDS.to_owned(), |id| id.to_string());
    let mut scan_end: Option<AttemptId> = None;
    let query = if let Some(workflow) = filter.workflow {
        sqlx::query(PAGE_OF_WORKFLOW).bind(workflow.to_string())
    } else {
        scan_end = sqlx::query(SCAN_END)
            .bind(before.clone())
            .bind(MAX_SCANNED - 1)
            .fetch_optional(&mut *connection)
            .await
            .during(OPERATION)?
            .map(|row| Columns::new(&row, "attempts", "id").parsed("id"))
            .transpose()?;
        sqlx::query(PAGE).bind(after_id(scan_end))
    };
    let rows: Vec<AttemptRow> = query
        .bind(before)
        .bind(names(&filter.statuses, AttemptStatus::as_str))
        .bind(names(&filter.roles, Role::as_str))
        .bind(filter.worker.map(|id| id.to_string()))
        .bind(limit)
        .fetch_all(connection)
        .await
        .during(OPERATION)?
        .iter()
        .map(from_row)
        .collect::<Result<_, _>>()?;
    let is_full = u64::try_from(rows.len()).is_ok_and(|n| n >= u64::from(limit));
    let last = rows.last().map(|row| row.attempt.id).filter(|_| is_full);
    Ok(AttemptPage {
        next: last.or(scan_end),
        rows,
    })
}

pub(super) async fn set_priority(
    connection: &mut SqliteConnection,
    workflow: WorkflowId,
    priority: i32,
) -> Result<(), Error> {
    sqlx::query(SET_PRIORITY)
        .bind(workflow.to_string())
        .bind(priority)
        .execute(connection)
        .await
        .during("set the priority of live attempts")?;
    Ok(())
}

pub(super) async fn live_of(
    connection: &mut SqliteConnection,
    workflow: WorkflowId,
) -> Result<Vec<Attempt>, Error> {
    sqlx::query(LIVE_OF_WORKFLOW)
        .bind(workflow.to_string())
        .fetch_all(connection)
        .await
        .during("list a workflow's live attempts")?
        .iter()
        .map(|row| Ok(from_row(row)?.attempt))
        .collect()
}

/// The columns of an attempt that change, as they are stored.
struct Changing {
    fence: i64,
    accepted_fence: Option<i64>,
    accepted_nonce: Option<String>,
    outcome: Option<String>,
    outcome_detail: Option<String>,
}

impl Changing {
    fn of(attempt: &Attempt) -> Result<Self, Error> {
        let values = Values {
            table: "attempts",
            id: &attempt.id,
        };
        let outcome = attempt.outcome.as_ref();
        Ok(Self {
            fence: values.number("lock_fence", attempt.fence.0)?,
            accepted_fence: attempt
                .accepted
                .map(|(fence, _)| values.number("accepted_fence", fence.0))
                .transpose()?,
            accepted_nonce: attempt.accepted.map(|(_, nonce)| nonce.to_string()),
            outcome: outcome.map(|outcome| outcome.name.clone()),
            outcome_detail: outcome
                .map(|outcome| values.json("outcome_detail", &outcome.detail))
                .transpose()?,
        })
    }
}

pub(super) async fn insert(
    connection: &mut SqliteConnection,
    attempt: &Attempt,
    priority: i32,
) -> Result<(), Error> {
    let changing = Changing::of(attempt)?;
    let check = match attempt.subject {
        Subject::Workflow => None,
        Subject::Check(check) => Some(check.to_string()),
    };
    let subject = check
        .clone()
        .unwrap_or_else(|| attempt.workflow.to_string());
    sqlx::query(INSERT)
        .bind(attempt.id.to_string())
        .bind(attempt.repository.to_string())
        .bind(attempt.workflow.to_string())
        .bind(check)
        .bind(subject)
        .bind(attempt.role.as_str())
        .bind(attempt.tier)
        .bind(attempt.lock_ttl_seconds)
        .bind(attempt.created_at.0)
        .bind(priority)
        .bind(attempt.status.as_str())
        .bind(attempt.commit.as_ref().map(ToString::to_string))
        .bind(changing.fence)
        .bind(attempt.pickup_count)
        .bind(attempt.uncharged_errors)
        .bind(attempt.not_before.map(|instant| instant.0))
        .bind(changing.accepted_fence)
        .bind(changing.accepted_nonce)
        .bind(changing.outcome)
        .bind(changing.outcome_detail)
        .bind(attempt.started_at.map(|instant| instant.0))
        .bind(attempt.ended_at.map(|instant| instant.0))
        .execute(connection)
        .await
        .during("insert an attempt")?;
    Ok(())
}

pub(super) async fn update(
    connection: &mut SqliteConnection,
    attempt: &Attempt,
) -> Result<(), Error> {
    let changing = Changing::of(attempt)?;
    let result = sqlx::query(UPDATE)
        .bind(attempt.id.to_string())
        .bind(attempt.status.as_str())
        .bind(attempt.commit.as_ref().map(ToString::to_string))
        .bind(changing.fence)
        .bind(attempt.pickup_count)
        .bind(attempt.uncharged_errors)
        .bind(attempt.not_before.map(|instant| instant.0))
        .bind(changing.accepted_fence)
        .bind(changing.accepted_nonce)
        .bind(changing.outcome)
        .bind(changing.outcome_detail)
        .bind(attempt.started_at.map(|instant| instant.0))
        .bind(attempt.ended_at.map(|instant| instant.0))
        .execute(connection)
        .await
        .during("update an attempt")?;
    one_row(&result, "attempt")
}

pub(super) async fn set_commit(
    connection: &mut SqliteConnection,
    attempt: AttemptId,
    commit: &CommitId,
) -> Result<(), Error> {
    let result = sqlx::query(SET_COMMIT)
        .bind(attempt.to_string())
        .bind(commit.to_string())
        .execute(connection)
        .await
        .during("set an attempt's commit")?;
    one_row(&result, "attempt")
}
