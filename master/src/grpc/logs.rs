//! Logs on the wire: batches from workers, and streams to readers.

use std::{pin::Pin, time::Duration};

use bytes::Bytes;
use futures_util::{Stream, stream};
use pointsman_proto::v1::{
    TailLogRequest, TailLogResponse, UploadLogRequest, UploadLogResponse,
    tail_log_request::From as WireFrom,
    tail_log_response::{self, Part as TailPart},
    upload_log_request::{Part, Start},
};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tonic::{Status, Streaming};

use super::{
    fields::{FieldError, id, present, stored},
    status::{shutting_down, status},
    worker_convert::domain_key,
};
use crate::{
    domain::ids::Fence,
    logs::{End, MAX_CHUNK},
    service::{Follower, LogPart, Service, Tail, TailFrom, Upload},
};

/// How long a worker may take for the next part of a batch that it has begun.
const PART_DEADLINE: Duration = Duration::from_secs(15);

/// What a reader gets.
pub(super) type Parts = Pin<Box<dyn Stream<Item = Result<TailLogResponse, Status>> + Send>>;

/// Takes one batch. Must be run to its end.
pub(super) async fn receive(
    service: Service,
    mut parts: Streaming<UploadLogRequest>,
    stop: CancellationToken,
) -> Result<UploadLogResponse, Status> {
    let Some(Part::Start(start)) = next(&mut parts, &stop).await? else {
        return Err(FieldError::new("start", "is not the first message, and must be").into());
    };
    let mut upload = open(&service, start).await?;
    let mut is_ended = false;
    while let Some(part) = next(&mut parts, &stop).await? {
        if is_ended {
            return Err(FieldError::new("end", "is not the last message, and must be").into());
        }
        match part {
            Part::Start(_) => {
                return Err(FieldError::new("start", "is sent twice").into());
            }
            Part::Chunk(chunk) => {
                let offset = stored("chunk.offset", chunk.offset)?;
                let data = within_bounds(chunk.data)?;
                upload
                    .chunk(offset, data)
                    .await
                    .map_err(|error| status(&error))?;
            }
            Part::End(end) => {
                let total_bytes = stored("end.total_bytes", end.total_bytes)?;
                is_ended = true;
                upload
                    .end(End { total_bytes })
                    .await
                    .map_err(|error| status(&error))?;
            }
        }
    }
    let uploaded = upload.uploaded();
    Ok(UploadLogResponse {
        acknowledged_offset: uploaded.offset,
        is_full: uploaded.is_full,
    })
}

async fn open(service: &Service, start: Start) -> Result<Upload, Status> {
    let worker = id("start.worker_id", &start.worker_id)?;
    let key = domain_key("start.lease", start.lease)?;
    service
        .upload_log(worker, key)
        .await
        .map_err(|error| status(&error))
}

fn within_bounds(data: Vec<u8>) -> Result<Bytes, FieldError> {
    if (1..=MAX_CHUNK).contains(&data.len()) {
        Ok(data.into())
    } else {
        let n = data.len();
        Err(FieldError::new(
            "chunk.data",
            format!("is {n} bytes long; 1 to {MAX_CHUNK} are taken"),
        ))
    }
}

/// The next part of a batch; `None` where the worker has closed its side.
async fn next(
    parts: &mut Streaming<UploadLogRequest>,
    stop: &CancellationToken,
) -> Result<Option<Part>, Status> {
    let message = tokio::select! {
        () = stop.cancelled() => return Err(shutting_down()),
        message = timeout(PART_DEADLINE, parts.message()) => message,
    };
    match message {
        Ok(Ok(Some(message))) => Ok(Some(present("part", message.part)?)),
        Ok(Ok(None)) => Ok(None),
        Ok(Err(broken)) => Err(broken),
        Err(_) => Err(Status::deadline_exceeded(format!(
            "no part of the log for {} s",
            PART_DEADLINE.as_secs()
        ))),
    }
}

pub(super) fn tail(request: &TailLogRequest) -> Result<Tail, FieldError> {
    let fence = stored("lock_fence", request.lock_fence)?;
    let from = match request.from {
        None => TailFrom::Offset(0),
        Some(WireFrom::Offset(offset)) => TailFrom::Offset(stored("offset", offset)?),
        Some(WireFrom::LastBytes(bytes)) => TailFrom::Last(stored("last_bytes", bytes)?),
    };
    Ok(Tail {
        attempt: id("attempt_id", &request.attempt_id)?,
        fence: (fence != 0).then_some(Fence(fence)),
        from,
        follow: request.follow,
    })
}

/// The parts as a stream. It reads as fast as the client does, and holds nothing beyond one part.
pub(super) fn parts(follower: Follower, stop: CancellationToken) -> Parts {
    let parts = stream::unfold(Some((follower, stop)), |state| async move {
        let (mut follower, stop) = state?;
        let part = tokio::select! {
            () = stop.cancelled() => return Some((Err(shutting_down()), None)),
            part = follower.next() => part,
        };
        match part {
            Ok(part) => Some((Ok(wire(part?)), Some((follower, stop)))),
            Err(error) => Some((Err(status(&error)), None)),
        }
    });
    Box::pin(parts)
}

fn wire(part: LogPart) -> TailLogResponse {
    let part = match part {
        LogPart::Start { attempt, fence } => TailPart::Start(tail_log_response::Start {
            attempt_id: attempt.to_string(),
            lock_fence: fence.0,
        }),
        LogPart::Chunk { offset, data } => TailPart::Chunk(tail_log_response::Chunk {
            offset,
            data: data.into(),
        }),
        LogPart::End(end) => TailPart::End(tail_log_response::End {
            offset: end.offset,
            is_complete: end.is_complete,
            is_cut: end.is_cut,
            total_bytes: end.total_bytes.unwrap_or(0),
        }),
    };
    TailLogResponse { part: Some(part) }
}
