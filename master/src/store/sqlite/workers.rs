//! Workers.

use sqlx::{SqliteConnection, sqlite::SqliteRow};

use super::{
    error::During,
    rows::{Columns, Values},
};
use crate::{
    domain::ids::WorkerId,
    store::{Error, model::WorkerRow},
};

const BY_ID: &str = "
SELECT id, instance_id, name, host, boot_id, version, state_directory, capacity, roles, labels,
    profiles, registered_at, last_beat_at
FROM workers
WHERE id = $1";

const PUT: &str = "
INSERT INTO workers (id, instance_id, name, host, boot_id, version, state_directory, capacity, roles,
    labels, profiles, registered_at, last_beat_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)
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
    last_beat_at = excluded.last_beat_at";

pub(super) const STATEMENTS: &[&str] = &[BY_ID, PUT];

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
    })
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
        .execute(connection)
        .await
        .during("put a worker")?;
    Ok(())
}
