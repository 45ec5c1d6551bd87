//! Workers.

use sqlx::{SqliteConnection, sqlite::SqliteRow};

use super::{
    error::{During, one_row},
    rows::{Columns, Values, after_id},
};
use crate::{
    domain::{ids::WorkerId, time::Timestamp},
    store::{
        Error,
        model::{Drain, WorkerRow, WorkerSummary},
    },
};

const BY_ID: &str = "
SELECT id, instance_id, name, host, boot_id, version, state_directory, capacity, roles, labels,
    profiles, registered_at, last_beat_at, drain_requested_at, drain_reason, drain_stops_sessions,
    declared_dead_at
FROM workers
WHERE id = $1";

const PAGE: &str = "
SELECT id, instance_id, name, host, boot_id, version, state_directory, capacity, roles, labels,
    profiles, registered_at, last_beat_at, drain_requested_at, drain_reason, drain_stops_sessions,
    declared_dead_at,
    (SELECT COUNT(*) FROM attempt_leases l WHERE l.worker_id = workers.id) AS n_leases
FROM workers
WHERE id > $1
ORDER BY id
LIMIT $2";

// Newest beats first: the index is walked from its end, and no further than they reach.
const LIVE: &str = "
SELECT id, instance_id, name, host, boot_id, version, state_directory, capacity, roles, labels,
    profiles, registered_at, last_beat_at, drain_requested_at, drain_reason, drain_stops_sessions,
    declared_dead_at
FROM workers
WHERE last_beat_at > $1
  AND declared_dead_at IS NULL
ORDER BY last_beat_at DESC
LIMIT $2";

const PUT: &str = "
INSERT INTO workers (id, instance_id, name, host, boot_id, version, state_directory, capacity, roles,
    labels, profiles, registered_at, last_beat_at, declared_dead_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)
ON CONFLICT (id) DO UPDATE
SET instance_id = excluded.instance_id,
    name = excluded.name,
    host = excluded.host,
    boot_id = excluded.boot_id,
    version = excluded.version,
    state_directory = excluded.state_directory,
    capacity = excluded.capacity,
    roles = excluded.roles,
    labels = excluded.labels,
    profiles = excluded.profiles,
    registered_at = excluded.registered_at,
    last_beat_at = excluded.last_beat_at,
    declared_dead_at = excluded.declared_dead_at";

const SET_DRAIN: &str = "
UPDATE workers
SET drain_requested_at = $2,
    drain_reason = $3,
    drain_stops_sessions = $4
WHERE id = $1";

const SET_DECLARED_DEAD: &str = "
UPDATE workers
SET declared_dead_at = $2
WHERE id = $1";

pub(super) const STATEMENTS: &[&str] = &[BY_ID, PAGE, LIVE, PUT, SET_DRAIN, SET_DECLARED_DEAD];

fn from_row(row: &SqliteRow) -> Result<WorkerRow, Error> {
    let columns = Columns::new(row, "workers", "id");
    Ok(WorkerRow {
        id: columns.parsed("id")?,
        instance: columns.parsed("instance_id")?,
        name: columns.text("name")?,
        host: columns.text("host")?,
        boot_id: columns.text("boot_id")?,
        version: columns.text("version")?,
        state_directory: columns.json("state_directory")?,
        capacity: columns.number("capacity")?,
        roles: columns.json("roles")?,
        labels: columns.json("labels")?,
        profiles: columns.json("profiles")?,
        registered_at: columns.instant("registered_at")?,
        last_beat_at: columns.instant("last_beat_at")?,
        drain: drain(&columns)?,
        declared_dead_at: columns.instant_option("declared_dead_at")?,
    })
}

fn drain(columns: &Columns<'_>) -> Result<Option<Drain>, Error> {
    let Some(requested_at) = columns.instant_option("drain_requested_at")? else {
        return Ok(None);
    };
    Ok(Some(Drain {
        requested_at,
        reason: columns.text("drain_reason")?,
        stops_sessions: columns.flag("drain_stops_sessions")?,
    }))
}

pub(super) async fn page(
    connection: &mut SqliteConnection,
    after: Option<WorkerId>,
    limit: u32,
) -> Result<Vec<WorkerSummary>, Error> {
    sqlx::query(PAGE)
        .bind(after_id(after))
        .bind(limit)
        .fetch_all(connection)
        .await
        .during("list workers")?
        .iter()
        .map(|row| {
            Ok(WorkerSummary {
                worker: from_row(row)?,
                n_leases: Columns::new(row, "workers", "id").number("n_leases")?,
            })
        })
        .collect()
}

pub(super) async fn live(
    connection: &mut SqliteConnection,
    since: Timestamp,
    limit: u32,
) -> Result<Vec<WorkerRow>, Error> {
    sqlx::query(LIVE)
        .bind(since.0)
        .bind(limit)
        .fetch_all(connection)
        .await
        .during("list live workers")?
        .iter()
        .map(from_row)
        .collect()
}

pub(super) async fn set_drain(
    connection: &mut SqliteConnection,
    id: WorkerId,
    drain: Option<&Drain>,
) -> Result<(), Error> {
    let result = sqlx::query(SET_DRAIN)
        .bind(id.to_string())
        .bind(drain.map(|drain| drain.requested_at.0))
        .bind(drain.map(|drain| drain.reason.clone()))
        .bind(drain.is_some_and(|drain| drain.stops_sessions))
        .execute(connection)
        .await
        .during("set a worker's drain")?;
    one_row(&result, "worker")
}

pub(super) async fn set_declared_dead(
    connection: &mut SqliteConnection,
    id: WorkerId,
    at: Timestamp,
) -> Result<(), Error> {
    let result = sqlx::query(SET_DECLARED_DEAD)
        .bind(id.to_string())
        .bind(at.0)
        .execute(connection)
        .await
        .during("declare a worker dead")?;
    one_row(&result, "worker")
}

pub(super) async fn by_id(
    connection: &mut SqliteConnection,
    id: WorkerId,
) -> Result<Option<WorkerRow>, Error> {
    sqlx::query(BY_ID)
        .bind(id.to_string())
        .fetch_optional(connection)
        .await
        .during("read a worker")?
        .as_ref()
        .map(from_row)
        .transpose()
}

pub(super) async fn put(
    connection: &mut SqliteConnection,
    worker: &WorkerRow,
) -> Result<(), Error> {
    let values = Values {
        table: "workers",
        id: &worker.id,
    };
    sqlx::query(PUT)
        .bind(worker.id.to_string())
        .bind(worker.instance.to_string())
        .bind(worker.name.clone())
        .bind(worker.host.clone())
        .bind(worker.boot_id.clone())
        .bind(worker.version.clone())
        .bind(values.json("state_directory", &worker.state_directory)?)
        .bind(worker.capacity)
        .bind(values.json("roles", &worker.roles)?)
        .bind(values.json("labels", &worker.labels)?)
        .bind(values.json("profiles", &worker.profiles)?)
        .bind(worker.registered_at.0)
        .bind(worker.last_beat_at.0)
        .bind(worker.declared_dead_at.map(|at| at.0))
        .execute(connection)
        .await
        .during("put a worker")?;
    Ok(())
}
