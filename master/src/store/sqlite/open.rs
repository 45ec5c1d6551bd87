//! Opening and closing.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use sqlx::{
    Sqlite, SqliteConnection, SqlitePool,
    pool::PoolConnection,
    sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous},
};

use super::{
    deadline::Deadline,
    error::{During, advise, from_io},
    lock::DatabaseLock,
    migrate,
    snapshot::{self, Snapshots},
    sql,
    writer::{Limits, Turn, Writer},
};
use crate::{
    clock::Clock,
    domain::time::Timestamp,
    store::{Error, model::Snapshot},
};

/// Longest wait for a lock inside SQLite. The file lock leaves only checkpoints and people's shells to
/// wait for.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);
/// Reads are short, and more readers than cores only wait for each other.
const MAX_READERS: u32 = 4;

/// A database in one file.
pub struct SqliteStore {
    path: PathBuf,
    writer: Writer,
    readers: SqlitePool,
    snapshots: Snapshots,
    /// Of connections that only read, and of one that copies.
    options: SqliteConnectOptions,
    clock: Arc<dyn Clock>,
    lock: DatabaseLock,
}

impl SqliteStore {
    /// Opens the database, makes it where there is none, and migrates it. `clock` is the database's
    /// clock.
    ///
    /// # Errors
    /// [`Error::Locked`] where another process has it open, [`Error::SchemaAhead`] where a newer master
    /// has migrated it; [`Error::Unavailable`] where its disk is full or it can't be written, with what to
    /// do about it.
    pub async fn open(path: &Path, clock: Arc<dyn Clock>) -> Result<Self, Error> {
        Self::open_within(path, clock, Limits::DEFAULT).await
    }

    pub(super) async fn open_within(
        path: &Path,
        clock: Arc<dyn Clock>,
        limits: Limits,
    ) -> Result<Self, Error> {
        let opened = Self::try_open(path, clock, limits).await;
        opened.map_err(|error| advise(path, error))
    }

    async fn try_open(path: &Path, clock: Arc<dyn Clock>, limits: Limits) -> Result<Self, Error> {
        const OPERATION: &str = "open the database";
        if let Some(directory) = path.parent() {
            std::fs::create_dir_all(directory).map_err(|error| from_io(OPERATION, error))?;
        }
        let lock = DatabaseLock::take(path, clock.now())?;
        snapshot::sweep(path)?;
        let options = SqliteConnectOptions::new()
            .filename(path)
            .busy_timeout(BUSY_TIMEOUT)
            .statement_cache_capacity(sql::statements().count());
        migrate::run(
            &options
                .clone()
                .create_if_missing(true)
                .journal_mode(SqliteJournalMode::Wal)
                .synchronous(SqliteSynchronous::Full),
        )
        .await?;
        let options = options.foreign_keys(true);
        let writer = Writer::start(options.clone().synchronous(SqliteSynchronous::Full), limits);
        let readers = SqlitePoolOptions::new()
            .max_connections(MAX_READERS)
            .acquire_timeout(limits.wait)
            // Setting the deadline finds out whether the connection answers.
            .test_before_acquire(false)
            .after_connect(move |reader, _| Box::pin(limit(reader, limits)))
            .before_acquire(move |reader, _| {
                Box::pin(async move { limit(reader, limits).await.map(|()| true) })
            })
            .connect_with(options.clone().pragma("query_only", "ON"))
            .await
            .during(OPERATION)?;
        Ok(Self {
            path: path.to_owned(),
            writer,
            readers,
            snapshots: Snapshots::default(),
            options,
            clock,
            lock,
        })
    }

    pub(super) async fn turn(&self) -> Result<Turn, Error> {
        self.writer.begin().await
    }

    /// A connection for one read, within its deadline. Sees what was read in transactions that were
    /// dropped since.
    pub(super) async fn reader(&self) -> Result<PoolConnection<Sqlite>, Error> {
        self.writer.settle_reads().await;
        self.readers.acquire().await.during("get a reader")
    }

    pub(super) fn writer(&self) -> &Writer {
        &self.writer
    }

    pub(super) async fn copy(&self) -> Result<Snapshot, Error> {
        self.snapshots.take(&self.path, self.options.clone()).await
    }

    pub(super) async fn end(&self) {
        self.snapshots.close().await;
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
}

/// Whoever gets the reader now is done with it within the limit.
async fn limit(reader: &mut SqliteConnection, limits: Limits) -> Result<(), sqlx::Error> {
    Deadline::install(reader).await?.start(limits.statement);
    Ok(())
}
