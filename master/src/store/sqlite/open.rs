//! Opening and closing.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use sqlx::{
    Connection, Sqlite, SqlitePool, Transaction,
    migrate::{MigrateError, Migrator},
    pool::PoolConnection,
    sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous},
};

use super::{
    error::{During, unavailable},
    lock::DatabaseLock,
    sql,
};
use crate::{clock::Clock, domain::time::Timestamp, store::Error};

static MIGRATOR: Migrator = sqlx::migrate!("../migrations/sqlite");

/// Longest wait for a free connection. Longer than any transaction of ours takes, shorter than any
/// time-to-live.
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(10);
/// Longest wait for a lock inside SQLite. The file lock leaves only checkpoints and people's shells to
/// wait for.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);
/// Reads are short, and more readers than cores only wait for each other.
const MAX_READERS: u32 = 4;

/// A database in one file.
pub struct SqliteStore {
    path: PathBuf,
    writer: SqlitePool,
    readers: SqlitePool,
    clock: Arc<dyn Clock>,
    lock: DatabaseLock,
}

impl SqliteStore {
    /// Opens the database, makes it where there is none, and migrates it. `clock` is the database's
    /// clock.
    ///
    /// # Errors
    /// [`Error::Locked`] where another process has it open, [`Error::SchemaAhead`] where a newer master
    /// has migrated it.
    pub async fn open(path: &Path, clock: Arc<dyn Clock>) -> Result<Self, Error> {
        const OPERATION: &str = "open the database";
        if let Some(directory) = path.parent() {
            std::fs::create_dir_all(directory).map_err(|error| unavailable(OPERATION, error))?;
        }
        let lock = DatabaseLock::take(path, clock.now())?;
        let options = SqliteConnectOptions::new()
            .filename(path)
            .busy_timeout(BUSY_TIMEOUT)
            .foreign_keys(true)
            .statement_cache_capacity(sql::statements().count());
        let writer = SqlitePoolOptions::new()
            .max_connections(1)
            .acquire_timeout(ACQUIRE_TIMEOUT)
            .idle_timeout(None)
            .max_lifetime(None)
            // Where SQLite itself has rolled back (the disk is full, an I/O error), the ROLLBACK of sqlx
            // fails, and the connection would count as inside a transaction for ever.
            .before_acquire(|connection, _| {
                Box::pin(async move { Ok(!connection.is_in_transaction()) })
            })
            .connect_with(
                options
                    .clone()
                    .create_if_missing(true)
                    .journal_mode(SqliteJournalMode::Wal)
                    .synchronous(SqliteSynchronous::Full),
            )
            .await
            .during(OPERATION)?;
        migrate(&writer).await?;
        let readers = SqlitePoolOptions::new()
            .max_connections(MAX_READERS)
            .acquire_timeout(ACQUIRE_TIMEOUT)
            .connect_with(options.pragma("query_only", "ON"))
            .await
            .during(OPERATION)?;
        Ok(Self {
            path: path.to_owned(),
            writer,
            readers,
            clock,
            lock,
        })
    }

    pub(super) async fn begin_immediate(&self) -> Result<Transaction<'static, Sqlite>, Error> {
        self.writer
            .begin_with(sql::BEGIN)
            .await
            .during("begin a transaction")
    }

    pub(super) async fn reader(&self) -> Result<PoolConnection<Sqlite>, Error> {
        self.readers.acquire().await.during("get a reader")
    }

    pub(super) async fn end(&self) {
        self.readers.close().await;
        self.writer.close().await;
        // Last, so that nobody gets in while a write may be under way.
        self.lock.release();
    }

    pub(super) fn clock(&self) -> Arc<dyn Clock> {
        Arc::clone(&self.clock)
    }

    pub(super) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// The database's file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    #[cfg(test)]
    pub(super) fn writer(&self) -> &SqlitePool {
        &self.writer
    }
}

async fn migrate(writer: &SqlitePool) -> Result<(), Error> {
    let known = MIGRATOR.iter().map(|m| m.version).max().unwrap_or(0);
    match MIGRATOR.run(writer).await {
        Ok(()) => Ok(()),
        // Migrations that were applied are compared before any is run.
        Err(MigrateError::VersionMissing(version)) if version > known => {
            let found: i64 = sqlx::query_scalar(sql::NEWEST_MIGRATION)
                .fetch_one(writer)
                .await
                .during("read the schema's version")?;
            Err(Error::SchemaAhead { found, known })
        }
        Err(error) => Err(Error::Migrate(error.into())),
    }
}
