//! Migrations: from whatever schema the file has to the one that this program knows.
//!
//! Each runs in a transaction of its own, on a connection that enforces no foreign keys, so that a table
//! may be rebuilt (`migrations/README.md`); afterwards every reference is checked.

use sqlx::{
    ConnectOptions, Connection, SqliteConnection,
    migrate::{Migrate, MigrateError, Migrator},
    sqlite::SqliteConnectOptions,
};

use super::{
    error::{During, from_sqlx, unavailable},
    sql,
};
use crate::store::Error;

pub(super) static MIGRATOR: Migrator = sqlx::migrate!("../migrations/sqlite");

/// Migrates the file and closes it.
pub(super) async fn run(options: &SqliteConnectOptions) -> Result<(), Error> {
    const OPERATION: &str = "open the database";
    let options = options.clone().foreign_keys(false);
    let mut connection = options.connect().await.during(OPERATION)?;
    may_write(&mut connection).await?;
    migrate(&mut connection, &MIGRATOR).await?;
    connection.close().await.during(OPERATION)
}

/// SQLite opens a file that can't be written for reading alone, and says so only at the first write.
async fn may_write(connection: &mut SqliteConnection) -> Result<(), Error> {
    for statement in [sql::BEGIN, sql::ROLLBACK] {
        sqlx::query(statement)
            .execute(&mut *connection)
            .await
            .during("write to the database")?;
    }
    Ok(())
}

async fn migrate(connection: &mut SqliteConnection, migrator: &Migrator) -> Result<(), Error> {
    let known = migrator.iter().map(|m| m.version).max().unwrap_or(0);
    let n_before = n_applied(connection).await?;
    match migrator.run(&mut *connection).await {
        Ok(()) => {}
        // Migrations that were applied are compared before any is run.
        Err(MigrateError::VersionMissing(version)) if version > known => {
            let found: i64 = sqlx::query_scalar(sql::NEWEST_MIGRATION)
                .fetch_one(connection)
                .await
                .during("read the schema's version")?;
            return Err(Error::SchemaAhead { found, known });
        }
        Err(error) => return Err(from_migrate(error)),
    }
    // It reads every row, so only where there is a reason.
    if n_applied(connection).await? == n_before {
        return Ok(());
    }
    let n_broken: i64 = sqlx::query_scalar(sql::FOREIGN_KEY_CHECK)
        .fetch_one(connection)
        .await
        .during("check references")?;
    if n_broken > 0 {
        let broken = unavailable("check references", format!("{n_broken} lead nowhere"));
        return Err(Error::Migrate(broken.into()));
    }
    Ok(())
}

async fn n_applied(connection: &mut SqliteConnection) -> Result<usize, Error> {
    let table = MIGRATOR.table_name.as_ref();
    let listed = async {
        connection.ensure_migrations_table(table).await?;
        connection.list_applied_migrations(table).await
    };
    match listed.await {
        Ok(applied) => Ok(applied.len()),
        Err(error) => Err(from_migrate(error)),
    }
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
