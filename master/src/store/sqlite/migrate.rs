//! Migrations: from whatever schema the file has to the one that this program knows.
//!
//! All in one transaction, on a connection that enforces no foreign keys, so that a table may be rebuilt
//! (`migrations/README.md`); every reference is checked before it is committed.

use sqlx::{
    ConnectOptions, Connection, SqliteConnection,
    migrate::{Migrate, MigrateError, Migrator},
    sqlite::SqliteConnectOptions,
};

use super::{
    error::{During, from_sqlx},
    sql,
};
use crate::store::Error;

pub(super) static MIGRATOR: Migrator = sqlx::migrate!("../migrations/sqlite");

/// Migrates the file and closes it.
pub(super) async fn run(options: &SqliteConnectOptions) -> Result<(), Error> {
    const OPERATION: &str = "open the database";
    let options = options.clone().foreign_keys(false);
    let mut connection = options.connect().await.during(OPERATION)?;
    migrate(&mut connection, &MIGRATOR).await?;
    connection.close().await.during(OPERATION)
}

pub(super) async fn migrate(
    connection: &mut SqliteConnection,
    migrator: &Migrator,
) -> Result<(), Error> {
    const OPERATION: &str = "migrate the database";
    // At once for writing: SQLite opens a file that can't be written for reading alone, and says so only
    // here.
    let mut tx = connection
        .begin_with(sql::BEGIN)
        .await
        .during("write to the database")?;
    let n_before = n_applied(&mut tx).await?;
    let known = migrator.iter().map(|m| m.version).max().unwrap_or(0);
    match migrator.run(&mut *tx).await {
        Ok(()) => {}
        // Migrations that were applied are compared before any is run.
        Err(MigrateError::VersionMissing(version)) if version > known => {
            let found: i64 = sqlx::query_scalar(sql::NEWEST_MIGRATION)
                .fetch_one(&mut *tx)
                .await
                .during("read the schema's version")?;
            return Err(Error::SchemaAhead { found, known });
        }
        Err(error) => return Err(from_migrate(error)),
    }
    // It reads every row, so only where there is a reason.
    if n_applied(&mut tx).await? > n_before {
        let n_broken: i64 = sqlx::query_scalar(sql::FOREIGN_KEY_CHECK)
            .fetch_one(&mut *tx)
            .await
            .during("check references")?;
        if n_broken > 0 {
            let why = format!("{n_broken} references would lead nowhere");
            return Err(Error::Migrate(why.into()));
        }
    }
    tx.commit().await.during(OPERATION)
}

async fn n_applied(connection: &mut SqliteConnection) -> Result<usize, Error> {
    let table = MIGRATOR.table_name.as_ref();
    let listed = async {
        connection.ensure_migrations_table(table).await?;
        connection.list_applied_migrations(table).await
    };
    listed
        .await
        .map(|applied| applied.len())
        .map_err(from_migrate)
}

fn from_migrate(error: MigrateError) -> Error {
    let error = match error {
        MigrateError::Execute(error) | MigrateError::ExecuteMigration(error, _) => {
            from_sqlx("migrate the database", error)
        }
        other => return Error::Migrate(other.into()),
    };
    match error {
        Error::Unavailable { .. } => error,
        refused => Error::Migrate(refused.into()),
    }
}
