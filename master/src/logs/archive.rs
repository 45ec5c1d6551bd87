//! The archive: what has left the database, as lines of JSON in files that nobody changes.
//!
//! It lies here because `object_store` is known to the logs alone. A file is written whole and forced to the disk
//! before its rows are deleted, under a name that follows from its first row: a master that dies between the
//! two writes the same file again, so that nothing is lost and nothing is there twice. When rows may go is
//! decided in `service/retention.rs`.

use std::{fs::DirBuilder, os::unix::fs::DirBuilderExt as _, path::Path as FsPath, sync::Arc};

use object_store::{ObjectStore, ObjectStoreExt as _, local::LocalFileSystem, path::Path};
use tokio_stream::StreamExt as _;

use crate::{
    domain::ids::WorkflowId,
    store::model::{HistoryBatch, HistoryKind},
};

/// Digits of a sequence in a name: the names sort as the numbers.
const DIGITS: usize = 20;

/// Why a file was not written or read. The cause may hold paths: it is for the master's own log.
#[derive(Debug, thiserror::Error)]
#[error("{operation}: the archive is not available")]
pub struct Error {
    operation: &'static str,
    #[source]
    source: Box<dyn std::error::Error + Send + Sync>,
}

fn failed(
    operation: &'static str,
    source: impl std::error::Error + Send + Sync + 'static,
) -> Error {
    Error {
        operation,
        source: Box::new(source),
    }
}

/// Files of rows that were deleted, or are about to be.
#[derive(Debug, Clone)]
pub struct Archive {
    objects: Arc<dyn ObjectStore>,
}

impl Archive {
    /// An archive in a directory, which is made where it is missing, for the owner's eyes alone.
    pub fn in_directory(path: &FsPath) -> Result<Self, Error> {
        const OPERATION: &str = "open the archive";
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(path)
            .map_err(|error| failed(OPERATION, error))?;
        let objects = LocalFileSystem::new_with_prefix(path)
            .map_err(|error| failed(OPERATION, error))?
            .with_fsync(true);
        Ok(Self {
            objects: Arc::new(objects),
        })
    }

    /// Where the history of a workflow is, within the archive.
    pub fn place(workflow: WorkflowId) -> String {
        format!("workflows/{workflow}")
    }

    /// Writes rows, durably; over the same file where it is there.
    pub async fn put(&self, batch: &HistoryBatch) -> Result<(), Error> {
        let mut text = String::new();
        for row in &batch.rows {
            text.push_str(&row.line);
            text.push('\n');
        }
        self.objects
            .put(&path(batch), text.into())
            .await
            .map(drop)
            .map_err(|error| failed("write to the archive", error))
    }

    /// All lines of a workflow's history, by kind and then in their order.
    pub async fn lines(&self, workflow: WorkflowId) -> Result<Vec<String>, Error> {
        self.lines_under(&Path::from(Self::place(workflow))).await
    }

    /// All lines about repositories and workers, oldest first.
    pub async fn other_lines(&self) -> Result<Vec<String>, Error> {
        self.lines_under(&Path::from(OTHERS)).await
    }

    async fn lines_under(&self, place: &Path) -> Result<Vec<String>, Error> {
        const OPERATION: &str = "read the archive";
        let listed: Result<Vec<_>, _> = self.objects.list(Some(place)).collect().await;
        let mut files: Vec<Path> = listed
            .map_err(|error| failed(OPERATION, error))?
            .into_iter()
            .map(|object| object.location)
            .collect();
        files.sort_unstable();
        let mut lines = Vec::new();
        for file in files {
            let bytes = async { self.objects.get(&file).await?.bytes().await }
                .await
                .map_err(|error| failed(OPERATION, error))?;
            let text = String::from_utf8_lossy(&bytes);
            lines.extend(text.lines().map(str::to_owned));
        }
        Ok(lines)
    }
}

/// Where the history of repositories and workers is.
const OTHERS: &str = "others";

fn path(batch: &HistoryBatch) -> Path {
    let place = batch
        .workflow
        .map_or_else(|| OTHERS.to_owned(), Archive::place);
    let first = batch.rows.first().map_or("", |row| row.key.as_str());
    let first = match batch.kind {
        HistoryKind::Event => format!("{first:0>DIGITS$}"),
        HistoryKind::Effect | HistoryKind::Attempt | HistoryKind::Check => first.to_owned(),
    };
    Path::from(format!("{place}/{}-{first}.jsonl", batch.kind))
}
