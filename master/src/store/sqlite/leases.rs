//! Live leases.

use sqlx::{SqliteConnection, sqlite::SqliteRow};

use super::{
    error::{During, one_row},
    rows::{Columns, Values, after_id},
};
use crate::{
    domain::{
        ids::{AttemptId, Fence, InstanceId, LeaseKey, RequestId, WorkerId, WorkflowId},
        time::Timestamp,
    },
    store::{
        Error, REAP_MARGIN_SECONDS,
        model::{HeldLease, LeaseRow, ProgressRow, SessionRow, StaleLease},
    },
};

const BY_ATTEMPT: &str = "
SELECT l.attempt_id, l.lock_fence, l.lock_nonce, l.lock_owner, l.worker_id, l.profile,
    l.is_unconfirmed, l.leased_at, l.lock_heartbeat_at, l.lock_ttl_seconds, a.workflow_id
FROM attempt_leases l
JOIN attempts a ON a.id = l.attempt_id
WHERE l.attempt_id = $1";

const OF_WORKER: &str = "
SELECT l.attempt_id, l.lock_fence, l.lock_nonce, l.lock_owner, l.worker_id, l.profile,
    l.is_unconfirmed, l.leased_at, l.lock_heartbeat_at, l.lock_ttl_seconds, a.workflow_id
FROM attempt_leases l
JOIN attempts a ON a.id = l.attempt_id
WHERE l.worker_id = $1
ORDER BY l.attempt_id";

// The progress of an earlier lease says nothing about this one.
macro_rules! select_session {
    ($rest:literal) => {
        concat!(
            "
SELECT l.attempt_id, l.lock_fence, l.lock_nonce, l.lock_owner, l.worker_id, l.profile,
    l.is_unconfirmed, l.leased_at, l.lock_heartbeat_at, l.lock_ttl_seconds, a.workflow_id,
    a.role, a.tier, COALESCE(w.name, '') AS worker_name, COALESCE(w.host, '') AS host,
    p.phase, p.subprocess_pid, p.subprocess_starttime, p.last_output_at, p.log_bytes
FROM attempt_leases l
JOIN attempts a ON a.id = l.attempt_id
LEFT JOIN workers w ON w.id = l.worker_id
LEFT JOIN attempt_progress p ON p.attempt_id = l.attempt_id AND p.lock_fence = l.lock_fence",
            $rest
        )
    };
}

const SESSIONS: &str = select_session!(
    "
WHERE l.attempt_id > $2
  AND ($1 IS NULL OR l.worker_id = $1)
ORDER BY l.attempt_id
LIMIT $3"
);

const SESSIONS_OF: &str = select_session!(
    "
WHERE a.workflow_id = $1
ORDER BY l.attempt_id"
);

const HEARTBEATS: &str = "
SELECT attempt_id, lock_fence, lock_nonce, lock_heartbeat_at
FROM attempt_leases";

const HELD: &str = "
SELECT l.attempt_id, l.lock_fence, l.lock_nonce, l.leased_at,
    p.attempt_id IS NOT NULL AS is_named
FROM attempt_leases l
LEFT JOIN attempt_progress p ON p.attempt_id = l.attempt_id AND p.lock_fence = l.lock_fence
WHERE l.lock_owner = $1
ORDER BY l.attempt_id";

const STALE: &str = "
SELECT l.attempt_id, l.lock_fence, l.lock_nonce, l.lock_owner, l.lock_heartbeat_at,
    l.lock_ttl_seconds, a.workflow_id
FROM attempt_leases l
JOIN attempts a ON a.id = l.attempt_id
WHERE l.attempt_id > $1
  AND l.lock_heartbeat_at + (l.lock_ttl_seconds + $3) * 1000000 < $2
ORDER BY l.attempt_id
LIMIT $4";

const INSERT: &str = "
INSERT INTO attempt_leases (attempt_id, lock_fence, lock_nonce, lock_owner, worker_id, request_id,
    profile, leased_at, lock_heartbeat_at, lock_ttl_seconds)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $8, $9)";

const DELETE: &str = "
DELETE FROM attempt_leases
WHERE attempt_id = $1
  AND lock_fence = $2
  AND lock_nonce = $3";

const DELETE_STALE: &str = "
DELETE FROM attempt_leases
WHERE attempt_id = $1
  AND lock_fence = $2
  AND lock_nonce = $3
  AND lock_heartbeat_at + (lock_ttl_seconds + $5) * 1000000 < $4";

const DELETE_PROGRESS: &str = "
DELETE FROM attempt_progress
WHERE attempt_id = $1";

const SET_UNCONFIRMED: &str = "
UPDATE attempt_leases
SET is_unconfirmed = 1
WHERE attempt_id = $1
  AND lock_fence = $2
  AND lock_nonce = $3";

pub(super) const STATEMENTS: &[&str] = &[
    BY_ATTEMPT,
    OF_WORKER,
    SESSIONS,
    SESSIONS_OF,
    HEARTBEATS,
    HELD,
    STALE,
    INSERT,
    DELETE,
    DELETE_STALE,
    DELETE_PROGRESS,
    SET_UNCONFIRMED,
];

pub(super) fn key(columns: &Columns<'_>) -> Result<LeaseKey, Error> {
    Ok(LeaseKey {
        attempt: columns.parsed("attempt_id")?,
        fence: Fence(columns.number("lock_fence")?),
        nonce: columns.parsed("lock_nonce")?,
    })
}

pub(super) fn lease(columns: &Columns<'_>) -> Result<LeaseRow, Error> {
    Ok(LeaseRow {
        key: key(columns)?,
        workflow: columns.parsed("workflow_id")?,
        owner: columns.parsed("lock_owner")?,
        worker: columns.parsed("worker_id")?,
        profile: columns.text("profile")?,
        is_unconfirmed: columns.flag("is_unconfirmed")?,
        leased_at: columns.instant("leased_at")?,
        heartbeat_at: columns.instant("lock_heartbeat_at")?,
        ttl_seconds: columns.number("lock_ttl_seconds")?,
    })
}

pub(super) fn columns(row: &SqliteRow) -> Columns<'_> {
    Columns::new(row, "attempt_leases", "attempt_id")
}

fn session(row: &SqliteRow) -> Result<SessionRow, Error> {
    let lease = lease(&columns(row))?;
    let attempt = Columns::new(row, "attempts", "attempt_id");
    let beat = Columns::new(row, "attempt_progress", "attempt_id");
    let progress = match beat.text_option("phase")? {
        None => None,
        Some(phase) => Some(ProgressRow {
            key: lease.key,
            phase,
            subprocess_pid: beat.number("subprocess_pid")?,
            subprocess_starttime: beat.number("subprocess_starttime")?,
            last_output_at: beat.instant_option("last_output_at")?,
            log_bytes: beat.number("log_bytes")?,
        }),
    };
    Ok(SessionRow {
        lease,
        role: attempt.parsed("role")?,
        tier: attempt.number("tier")?,
        worker_name: attempt.text("worker_name")?,
        host: attempt.text("host")?,
        progress,
    })
}

fn stale_lease(row: &SqliteRow) -> Result<StaleLease, Error> {
    let columns = columns(row);
    Ok(StaleLease {
        key: key(&columns)?,
        workflow: columns.parsed("workflow_id")?,
        owner: columns.parsed("lock_owner")?,
        heartbeat_at: columns.instant("lock_heartbeat_at")?,
        ttl_seconds: columns.number("lock_ttl_seconds")?,
    })
}

pub(super) fn stored_fence(key: LeaseKey) -> Result<i64, Error> {
    let values = Values {
        table: "attempt_leases",
        id: &key.attempt,
    };
    values.number("lock_fence", key.fence.0)
}

pub(super) async fn by_attempt(
    connection: &mut SqliteConnection,
    attempt: AttemptId,
) -> Result<Option<LeaseRow>, Error> {
    sqlx::query(BY_ATTEMPT)
        .bind(attempt.to_string())
        .fetch_optional(connection)
        .await
        .during("read a lease")?
        .map(|row| lease(&columns(&row)))
        .transpose()
}

pub(super) async fn of_worker(
    connection: &mut SqliteConnection,
    worker: WorkerId,
) -> Result<Vec<LeaseRow>, Error> {
    sqlx::query(OF_WORKER)
        .bind(worker.to_string())
        .fetch_all(connection)
        .await
        .during("list a worker's leases")?
        .iter()
        .map(|row| lease(&columns(row)))
        .collect()
}

pub(super) async fn sessions(
    connection: &mut SqliteConnection,
    worker: Option<WorkerId>,
    after: Option<AttemptId>,
    limit: u32,
) -> Result<Vec<SessionRow>, Error> {
    sqlx::query(SESSIONS)
        .bind(worker.map(|worker| worker.to_string()))
        .bind(after_id(after))
        .bind(limit)
        .fetch_all(connection)
        .await
        .during("list sessions")?
        .iter()
        .map(session)
        .collect()
}

pub(super) async fn sessions_of(
    connection: &mut SqliteConnection,
    workflow: WorkflowId,
) -> Result<Vec<SessionRow>, Error> {
    sqlx::query(SESSIONS_OF)
        .bind(workflow.to_string())
        .fetch_all(connection)
        .await
        .during("list a workflow's sessions")?
        .iter()
        .map(session)
        .collect()
}

pub(super) async fn heartbeats(
    connection: &mut SqliteConnection,
) -> Result<Vec<(LeaseKey, Timestamp)>, Error> {
    sqlx::query(HEARTBEATS)
        .fetch_all(connection)
        .await
        .during("list heartbeats")?
        .iter()
        .map(|row| {
            let columns = columns(row);
            Ok((key(&columns)?, columns.instant("lock_heartbeat_at")?))
        })
        .collect()
}

pub(super) async fn held(
    connection: &mut SqliteConnection,
    owner: InstanceId,
) -> Result<Vec<HeldLease>, Error> {
    sqlx::query(HELD)
        .bind(owner.to_string())
        .fetch_all(connection)
        .await
        .during("list an instance's leases")?
        .iter()
        .map(|row| {
            let columns = columns(row);
            Ok(HeldLease {
                key: key(&columns)?,
                leased_at: columns.instant("leased_at")?,
                is_named: columns.flag("is_named")?,
            })
        })
        .collect()
}

pub(super) async fn stale(
    connection: &mut SqliteConnection,
    now: Timestamp,
    after: Option<AttemptId>,
    limit: u32,
) -> Result<Vec<StaleLease>, Error> {
    sqlx::query(STALE)
        .bind(after_id(after))
        .bind(now.0)
        .bind(REAP_MARGIN_SECONDS)
        .bind(limit)
        .fetch_all(connection)
        .await
        .during("list stale leases")?
        .iter()
        .map(stale_lease)
        .collect()
}

pub(super) async fn insert(
    connection: &mut SqliteConnection,
    lease: &LeaseRow,
    request: RequestId,
) -> Result<(), Error> {
    sqlx::query(INSERT)
        .bind(lease.key.attempt.to_string())
        .bind(stored_fence(lease.key)?)
        .bind(lease.key.nonce.to_string())
        .bind(lease.owner.to_string())
        .bind(lease.worker.to_string())
        .bind(request.to_string())
        .bind(lease.profile.clone())
        .bind(lease.leased_at.0)
        .bind(lease.ttl_seconds)
        .execute(connection)
        .await
        .during("insert a lease")?;
    Ok(())
}

pub(super) async fn delete(
    connection: &mut SqliteConnection,
    key: LeaseKey,
) -> Result<bool, Error> {
    let result = sqlx::query(DELETE)
        .bind(key.attempt.to_string())
        .bind(stored_fence(key)?)
        .bind(key.nonce.to_string())
        .execute(&mut *connection)
        .await
        .during("delete a lease")?;
    delete_progress(connection, key, result.rows_affected()).await
}

pub(super) async fn delete_stale(
    connection: &mut SqliteConnection,
    key: LeaseKey,
    now: Timestamp,
) -> Result<bool, Error> {
    let result = sqlx::query(DELETE_STALE)
        .bind(key.attempt.to_string())
        .bind(stored_fence(key)?)
        .bind(key.nonce.to_string())
        .bind(now.0)
        .bind(REAP_MARGIN_SECONDS)
        .execute(&mut *connection)
        .await
        .during("delete a stale lease")?;
    delete_progress(connection, key, result.rows_affected()).await
}

/// What beats said goes with the lease.
async fn delete_progress(
    connection: &mut SqliteConnection,
    key: LeaseKey,
    n_leases: u64,
) -> Result<bool, Error> {
    if n_leases == 0 {
        return Ok(false);
    }
    sqlx::query(DELETE_PROGRESS)
        .bind(key.attempt.to_string())
        .execute(connection)
        .await
        .during("delete a lease's progress")?;
    Ok(true)
}

pub(super) async fn set_unconfirmed(
    connection: &mut SqliteConnection,
    key: LeaseKey,
) -> Result<(), Error> {
    let result = sqlx::query(SET_UNCONFIRMED)
        .bind(key.attempt.to_string())
        .bind(stored_fence(key)?)
        .bind(key.nonce.to_string())
        .execute(connection)
        .await
        .during("mark a lease as unconfirmed")?;
    one_row(&result, "lease")
}
