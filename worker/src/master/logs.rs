//! Batches of logs, on a connection of their own. That a batch fails moves nobody to another endpoint: the
//! beats find out whether a master is there, and batches follow them to the next.

use pointsman_proto::v1::{
    UploadLogRequest,
    upload_log_request::{Chunk, End, Part, Start},
};
use tokio::{sync::SemaphorePermit, time::timeout};

use super::{CALL_DEADLINE, Error, Masters, convert};
use crate::assignment::LeaseKey;

/// Most bytes of a chunk that a master takes.
pub(crate) const CHUNK_MAX: usize = 256 * 1024;

/// Batches of all sessions that are on their way at once: half of what a master takes of one worker, and
/// a bound of the memory that a flood in every session costs.
pub(super) const AT_ONCE: usize = 32;

/// What the master has of a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Uploaded {
    pub(crate) offset: u64,
    /// It takes no more; the end is still wanted.
    pub(crate) is_full: bool,
}

impl Masters {
    /// Waits for the turn to read and send a batch, which ends when what is returned is dropped.
    pub(crate) async fn log_turn(&self) -> Option<SemaphorePermit<'_>> {
        // Never closed.
        self.log_turns.acquire().await.ok()
    }

    /// Sends `data`, which begins at `offset` of the log, and the log's length once nothing more comes.
    /// Without either it asks up to where the log is kept.
    pub(crate) async fn upload_log(
        &self,
        key: &LeaseKey,
        offset: u64,
        data: &[u8],
        end: Option<u64>,
    ) -> Result<Uploaded, Error> {
        let start = Part::Start(Start {
            worker_id: self.caller.worker_id.to_string(),
            instance_id: self.caller.instance_id.to_string(),
            lease: Some(convert::to_key(key)),
        });
        let chunks = data.chunks(CHUNK_MAX).scan(offset, |next, data| {
            let offset = *next;
            *next += data.len() as u64;
            let data = data.to_vec();
            Some(Part::Chunk(Chunk { offset, data }))
        });
        let end = end.map(|total_bytes| Part::End(End { total_bytes }));
        let parts: Vec<UploadLogRequest> = std::iter::once(start)
            .chain(chunks)
            .chain(end)
            .map(|part| UploadLogRequest { part: Some(part) })
            .collect();
        let mut client = self.lock().logs.clone();
        let answer = timeout(CALL_DEADLINE, client.upload_log(tokio_stream::iter(parts)))
            .await
            .map_err(|_| Error::Deadline(CALL_DEADLINE))??
            .into_inner();
        Ok(Uploaded {
            offset: answer.acknowledged_offset,
            is_full: answer.is_full,
        })
    }
}
