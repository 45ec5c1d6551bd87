//! Figures of what is live. Each statement reads an index of what is live alone, so that none of them costs
//! more as the history grows.

use sqlx::SqliteConnection;

use super::{error::During, rows::Columns};
use crate::{
    domain::{time::Timestamp, transitions::State},
    store::{
        Error,
        model::{Figures, PendingGroup, WorkerFigures},
    },
};

const WORKFLOWS: &str = "
SELECT state, COUNT(*) AS n
FROM workflows
WHERE state IN (SELECT value FROM json_each($1))
GROUP BY state
ORDER BY state";

const PENDING: &str = "
SELECT role, tier, lock_ttl_seconds, COUNT(*) AS n, MIN(created_at) AS oldest_at
FROM attempts
WHERE status = 'pending'
GROUP BY role, tier, lock_ttl_seconds
ORDER BY role, tier, lock_ttl_seconds";

const IN_PROGRESS: &str = "
SELECT COUNT(*) AS n
FROM attempts
WHERE status = 'in_progress'";

const LEASES: &str = "
SELECT COUNT(*) AS n
FROM attempt_leases";

const WORKERS: &str = "
SELECT COALESCE(SUM(last_beat_at > $2 AND declared_dead_at IS NULL), 0) AS n_alive,
    COALESCE(SUM(last_beat_at <= $2 AND declared_dead_at IS NULL), 0) AS n_silent,
    COALESCE(SUM(drain_requested_at IS NOT NULL AND declared_dead_at IS NULL), 0) AS n_drained
FROM workers
WHERE last_beat_at > $1";

const EFFECTS: &str = "
SELECT COUNT(*) AS n, COALESCE(SUM(first_failure_at IS NOT NULL), 0) AS n_failing
FROM effects
WHERE closed_at IS NULL";

const HOLDS: &str = "
SELECT COUNT(*) AS n
FROM holds";

const DATABASE_BYTES: &str = "
SELECT page_count * page_size AS n
FROM pragma_page_count(), pragma_page_size()";

pub(super) const STATEMENTS: &[&str] = &[
    WORKFLOWS,
    PENDING,
    IN_PROGRESS,
    LEASES,
    WORKERS,
    EFFECTS,
    HOLDS,
    DATABASE_BYTES,
];

pub(super) async fn figures(
    connection: &mut SqliteConnection,
    alive_since: Timestamp,
    seen_since: Timestamp,
) -> Result<Figures, Error> {
    let (n_open, n_failing) = effects(connection).await?;
    Ok(Figures {
        workflows: workflows(connection).await?,
        pending: pending(connection).await?,
        n_in_progress: count(connection, IN_PROGRESS).await?,
        n_leases: count(connection, LEASES).await?,
        workers: workers(connection, alive_since, seen_since).await?,
        n_effects_waiting: n_open.saturating_sub(n_failing),
        n_effects_failing: n_failing,
        n_holds: count(connection, HOLDS).await?,
        database_bytes: count(connection, DATABASE_BYTES).await?,
    })
}

async fn count(connection: &mut SqliteConnection, statement: &'static str) -> Result<u64, Error> {
    let row = sqlx::query(statement)
        .fetch_one(connection)
        .await
        .during("count for the figures")?;
    Columns::new(&row, "figures", "n").number("n")
}

async fn workflows(connection: &mut SqliteConnection) -> Result<Vec<(State, u64)>, Error> {
    // Those that are over for good are the history.
    let states: Vec<&str> = State::ALL
        .iter()
        .filter(|state| !state.is_terminal() || **state == State::Stuck)
        .map(|state| state.as_str())
        .collect();
    sqlx::query(WORKFLOWS)
        .bind(serde_json::Value::from(states).to_string())
        .fetch_all(connection)
        .await
        .during("count workflows")?
        .iter()
        .map(|row| {
            let columns = Columns::new(row, "workflows", "state");
            Ok((columns.parsed("state")?, columns.number("n")?))
        })
        .collect()
}

async fn pending(connection: &mut SqliteConnection) -> Result<Vec<PendingGroup>, Error> {
    sqlx::query(PENDING)
        .fetch_all(connection)
        .await
        .during("count pending attempts")?
        .iter()
        .map(|row| {
            let columns = Columns::new(row, "attempts", "role");
            Ok(PendingGroup {
                role: columns.parsed("role")?,
                tier: columns.number("tier")?,
                ttl_seconds: columns.number("lock_ttl_seconds")?,
                n: columns.number("n")?,
                oldest_at: columns.instant("oldest_at")?,
            })
        })
        .collect()
}

async fn workers(
    connection: &mut SqliteConnection,
    alive_since: Timestamp,
    seen_since: Timestamp,
) -> Result<WorkerFigures, Error> {
    let row = sqlx::query(WORKERS)
        .bind(seen_since.0)
        .bind(alive_since.0)
        .fetch_one(connection)
        .await
        .during("count workers")?;
    let columns = Columns::new(&row, "workers", "n_alive");
    Ok(WorkerFigures {
        n_alive: columns.number("n_alive")?,
        n_silent: columns.number("n_silent")?,
        n_drained: columns.number("n_drained")?,
    })
}

async fn effects(connection: &mut SqliteConnection) -> Result<(u64, u64), Error> {
    let row = sqlx::query(EFFECTS)
        .fetch_one(connection)
        .await
        .during("count open effects")?;
    let columns = Columns::new(&row, "effects", "n");
    Ok((columns.number("n")?, columns.number("n_failing")?))
}
