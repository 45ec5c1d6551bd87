//! Copies of the whole database as it is at one instant, while it is read and written.
//!
//! SQLite writes the copy from a read transaction: writers go on, and the log of what they write grows
//! until the copy is done. The copy has a name only while it is being written; what a killed process left
//! under that name is removed at the next start. One at a time: each takes as much room as the database.

use std::{
    convert::Infallible,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use sqlx::{ConnectOptions, Connection, sqlite::SqliteConnectOptions};
use tokio::{
    fs,
    sync::{OwnedSemaphorePermit, Semaphore, TryAcquireError, oneshot},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{
    deadline::Deadline,
    error::{During, from_io, no_room, unavailable},
    sql,
};
use crate::store::{Error, model::Snapshot};

const OPERATION: &str = "copy the database";

/// Longest that a copy may take: a hundred gigabytes on a slow disk.
const LONGEST: Duration = Duration::from_secs(3600);
/// What must be left on the disk beside the copy, in bytes, so that writers find room meanwhile.
const RESERVE: u64 = 64 * 1024 * 1024;
/// Only the master's user may read what it keeps.
const MODE: u32 = 0o600;

/// Makes copies.
pub(super) struct Snapshots {
    one: Arc<Semaphore>,
    stop: CancellationToken,
    tasks: TaskTracker,
}

impl Default for Snapshots {
    fn default() -> Self {
        Self {
            one: Arc::new(Semaphore::new(1)),
            stop: CancellationToken::new(),
            tasks: TaskTracker::new(),
        }
    }
}

impl Snapshots {
    /// See [`Store::snapshot`](crate::store::Store::snapshot).
    pub(super) async fn take(
        &self,
        database: &Path,
        options: SqliteConnectOptions,
    ) -> Result<Snapshot, Error> {
        let permit = Arc::clone(&self.one)
            .try_acquire_owned()
            .map_err(|error| match error {
                TryAcquireError::NoPermits => Error::SnapshotUnderWay,
                TryAcquireError::Closed => unavailable(OPERATION, "the database was closed"),
            })?;
        let cancel = self.stop.child_token();
        let (answer, answered) = oneshot::channel();
        let copying = copy(database.to_owned(), options, permit, cancel.clone());
        // In a task: it ends, and tidies up, though the caller goes away.
        self.tasks.spawn(async move {
            drop(answer.send(copying.await));
        });
        let _cancelled_with_the_caller = cancel.drop_guard();
        answered
            .await
            .unwrap_or_else(|_| Err(unavailable(OPERATION, "the database was closed")))
    }

    /// Ends the copy that is being written.
    pub(super) async fn close(&self) {
        self.one.close();
        self.stop.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }
}

/// Removes what a killed process left. By the holder of the database's lock.
pub(super) fn sweep(database: &Path) -> Result<(), Error> {
    match std::fs::remove_file(path_of(database)) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(from_io("remove an unfinished copy of the database", error))
        }
        _ => Ok(()),
    }
}

fn path_of(database: &Path) -> PathBuf {
    let mut path = database.as_os_str().to_owned();
    path.push(".snapshot");
    path.into()
}

async fn copy(
    database: PathBuf,
    options: SqliteConnectOptions,
    permit: OwnedSemaphorePermit,
    cancel: CancellationToken,
) -> Result<Snapshot, Error> {
    let path = path_of(&database);
    let failed = |error| from_io(OPERATION, error);
    find_room(&database).await?;
    sweep(&database)?;
    // Empty, it is taken as it is, with its mode.
    fs::OpenOptions::new()
        .create_new(true)
        .write(true)
        .mode(MODE)
        .open(&path)
        .await
        .map_err(failed)?;
    let copied = vacuum(&path, options, cancel).await;
    let opened = fs::File::open(&path).await;
    let removed = fs::remove_file(&path).await;
    copied?;
    removed.map_err(failed)?;
    let file = opened.map_err(failed)?;
    let size = file.metadata().await.map_err(failed)?.len();
    Ok(Snapshot {
        file: file.into_std().await,
        size,
        permit,
    })
}

async fn vacuum(
    path: &Path,
    options: SqliteConnectOptions,
    cancel: CancellationToken,
) -> Result<(), Error> {
    let Some(name) = path.to_str() else {
        return Err(unavailable(OPERATION, "the path is not UTF-8"));
    };
    let mut connection = options.connect().await.during(OPERATION)?;
    let deadline = Deadline::install(&mut connection).await.during(OPERATION)?;
    deadline.start(LONGEST);
    let ends_it = async {
        cancel.cancelled().await;
        deadline.end();
        std::future::pending::<Infallible>().await
    };
    let copied = tokio::select! {
        copied = sqlx::query(sql::SNAPSHOT).bind(name).execute(&mut connection) => copied,
        never = ends_it => match never {},
    };
    let closed = connection.close().await;
    copied.during(OPERATION)?;
    closed.during(OPERATION)
}

/// A copy that fills the disk would take the room from the database itself.
async fn find_room(database: &Path) -> Result<(), Error> {
    let mut needed = RESERVE;
    for suffix in ["", "-wal"] {
        let mut path = database.as_os_str().to_owned();
        path.push(suffix);
        if let Ok(metadata) = fs::metadata(&path).await {
            needed = needed.saturating_add(metadata.len());
        }
    }
    let found = rustix::fs::statvfs(database).map_err(|error| from_io(OPERATION, error.into()))?;
    let free = found.f_bavail.saturating_mul(found.f_frsize);
    if free < needed {
        return Err(no_room(
            OPERATION,
            format!("it takes {needed} bytes, and {free} are left"),
        ));
    }
    Ok(())
}
