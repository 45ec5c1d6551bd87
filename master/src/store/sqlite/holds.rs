//! Holds. A canary is one for as long as its lease lives, whoever ends that: its row is the witness.

use sqlx::{SqliteConnection, sqlite::SqliteRow};

use super::{
    error::During,
    leases::stored_fence,
    rows::{Columns, after_id},
};
use crate::{
    domain::{
        hold::{Hold, HoldSubject},
        ids::{AttemptId, Fence, HoldId, LeaseKey, Nonce, WorkerId},
    },
    store::Error,
};

const BY_ID: &str = "
SELECT h.id, h.account, h.held_worker_id, h.profile, h.class, h.message, h.worker_id, h.placed_at,
    h.until, h.failures, l.attempt_id AS canary, l.lock_fence AS canary_fence
FROM holds h
LEFT JOIN attempt_leases l ON l.attempt_id = h.canary_attempt_id AND l.lock_fence = h.canary_fence
WHERE h.id = $1";

const PAGE: &str = "
SELECT h.id, h.account, h.held_worker_id, h.profile, h.class, h.message, h.worker_id, h.placed_at,
    h.until, h.failures, l.attempt_id AS canary, l.lock_fence AS canary_fence
FROM holds h
LEFT JOIN attempt_leases l ON l.attempt_id = h.canary_attempt_id AND l.lock_fence = h.canary_fence
WHERE h.id > $1
ORDER BY h.id
LIMIT $2";

const COVERING: &str = "
SELECT h.id, h.account, h.held_worker_id, h.profile, h.class, h.message, h.worker_id, h.placed_at,
    h.until, h.failures, l.attempt_id AS canary, l.lock_fence AS canary_fence
FROM holds h
LEFT JOIN attempt_leases l ON l.attempt_id = h.canary_attempt_id AND l.lock_fence = h.canary_fence
WHERE h.held_worker_id = $1
   OR h.account IN (SELECT value FROM json_each($2))
ORDER BY h.id";

const PUT: &str = "
INSERT INTO holds (id, account, held_worker_id, profile, class, message, worker_id, placed_at, until,
    failures, canary_attempt_id, canary_fence)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)
ON CONFLICT (id) DO UPDATE
SET class = excluded.class,
    message = excluded.message,
    worker_id = excluded.worker_id,
    until = excluded.until,
    failures = excluded.failures,
    canary_attempt_id = excluded.canary_attempt_id,
    canary_fence = excluded.canary_fence";

const DELETE: &str = "
DELETE FROM holds
WHERE id = $1";

pub(super) const STATEMENTS: &[&str] = &[BY_ID, PAGE, COVERING, PUT, DELETE];

fn from_row(row: &SqliteRow) -> Result<Hold, Error> {
    let columns = Columns::new(row, "holds", "id");
    let subject = match columns.text_option("account")? {
        Some(account) => HoldSubject::Account(account),
        None => HoldSubject::Profile {
            worker: columns.parsed("held_worker_id")?,
            profile: columns.text("profile")?,
        },
    };
    let canary: Option<AttemptId> = columns.parsed_option("canary")?;
    let fence = columns.number_option("canary_fence")?.map(Fence);
    Ok(Hold {
        id: columns.parsed("id")?,
        subject,
        class: columns.parsed("class")?,
        message: columns.text("message")?,
        worker: columns.parsed("worker_id")?,
        placed_at: columns.instant("placed_at")?,
        until: columns.instant("until")?,
        failures: columns.number("failures")?,
        canary: canary.zip(fence),
    })
}

pub(super) async fn by_id(
    connection: &mut SqliteConnection,
    id: HoldId,
) -> Result<Option<Hold>, Error> {
    sqlx::query(BY_ID)
        .bind(id.to_string())
        .fetch_optional(connection)
        .await
        .during("read a hold")?
        .as_ref()
        .map(from_row)
        .transpose()
}

pub(super) async fn page(
    connection: &mut SqliteConnection,
    after: Option<HoldId>,
    limit: u32,
) -> Result<Vec<Hold>, Error> {
    sqlx::query(PAGE)
        .bind(after_id(after))
        .bind(limit)
        .fetch_all(connection)
        .await
        .during("list holds")?
        .iter()
        .map(from_row)
        .collect()
}

/// Those of these accounts, and those of this worker's profiles.
pub(super) async fn covering(
    connection: &mut SqliteConnection,
    worker: WorkerId,
    accounts: &[String],
) -> Result<Vec<Hold>, Error> {
    sqlx::query(COVERING)
        .bind(worker.to_string())
        .bind(serde_json::Value::from(accounts).to_string())
        .fetch_all(connection)
        .await
        .during("list the holds of a worker")?
        .iter()
        .map(from_row)
        .collect()
}

pub(super) async fn put(connection: &mut SqliteConnection, hold: &Hold) -> Result<(), Error> {
    let (account, worker, profile) = match &hold.subject {
        HoldSubject::Account(account) => (Some(account.clone()), None, None),
        HoldSubject::Profile { worker, profile } => {
            (None, Some(worker.to_string()), Some(profile.clone()))
        }
    };
    let canary_fence = match hold.canary {
        Some((attempt, fence)) => Some(stored_fence(LeaseKey {
            attempt,
            fence,
            nonce: Nonce(uuid::Uuid::nil()),
        })?),
        None => None,
    };
    sqlx::query(PUT)
        .bind(hold.id.to_string())
        .bind(account)
        .bind(worker)
        .bind(profile)
        .bind(hold.class.as_str())
        .bind(hold.message.clone())
        .bind(hold.worker.to_string())
        .bind(hold.placed_at.0)
        .bind(hold.until.0)
        .bind(hold.failures)
        .bind(hold.canary.map(|(attempt, _)| attempt.to_string()))
        .bind(canary_fence)
        .execute(connection)
        .await
        .during("put a hold")?;
    Ok(())
}

pub(super) async fn delete(connection: &mut SqliteConnection, id: HoldId) -> Result<bool, Error> {
    let result = sqlx::query(DELETE)
        .bind(id.to_string())
        .execute(connection)
        .await
        .during("delete a hold")?;
    Ok(result.rows_affected() > 0)
}
