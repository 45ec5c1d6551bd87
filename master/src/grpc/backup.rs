//! The stream of a backup: its size, its bytes, their sum.

use pointsman_proto::v1::{
    BackupDatabaseResponse, BackupEnd, BackupStart, backup_database_response::Part,
};
use sha2::{Digest, Sha256};
use tokio::{
    io::AsyncReadExt,
    sync::mpsc::{self, Sender},
};
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tonic::Status;

use super::status::status;
use crate::service::Service;

/// Bytes of one message: large enough that messages cost little, and far below any client's limit.
const CHUNK: usize = 256 * 1024;
/// Messages that wait for the client.
const AHEAD: usize = 4;

pub(super) type Parts = ReceiverStream<Result<BackupDatabaseResponse, Status>>;

/// Makes a copy and streams it. It ends with the client, or with this master.
pub(super) fn stream(service: Service, tasks: &TaskTracker, stop: CancellationToken) -> Parts {
    let (parts, receiver) = mpsc::channel(AHEAD);
    tasks.spawn(async move {
        let error = tokio::select! {
            sent = send(&service, &parts) => sent.err(),
            () = parts.closed() => None,
            () = stop.cancelled() => Some(Status::unavailable("this master is shutting down")),
        };
        if let Some(error) = error {
            // A client that went away does not hear it.
            drop(parts.try_send(Err(error)));
        }
    });
    ReceiverStream::new(receiver)
}

async fn send(
    service: &Service,
    parts: &Sender<Result<BackupDatabaseResponse, Status>>,
) -> Result<(), Status> {
    let snapshot = service.snapshot().await.map_err(|error| status(&error))?;
    let part = async |part| {
        let response = BackupDatabaseResponse { part: Some(part) };
        parts
            .send(Ok(response))
            .await
            .map_err(|_| Status::cancelled("the client went away"))
    };
    part(Part::Start(BackupStart {
        size_bytes: snapshot.size,
    }))
    .await?;
    let _until_it_is_sent = snapshot.permit;
    let mut file = tokio::fs::File::from_std(snapshot.file);
    let mut sum = Sha256::new();
    let mut size_bytes = 0;
    loop {
        let mut chunk = Vec::with_capacity(CHUNK);
        let mut bounded = (&mut file).take(CHUNK as u64);
        let read = bounded.read_to_end(&mut chunk).await.map_err(|error| {
            tracing::error!(%error, "a copy of the database can't be read");
            Status::unavailable("the copy of the database can't be read")
        })?;
        if read == 0 {
            break;
        }
        sum.update(&chunk);
        size_bytes += read as u64;
        part(Part::Chunk(chunk)).await?;
    }
    part(Part::End(BackupEnd {
        size_bytes,
        sha256: sum.finalize().to_vec(),
    }))
    .await?;
    Ok(())
}
