//! What harnesses print: kept beside the database, read by anybody at any pace.
//!
//! The one place that knows `object_store`, with the archive beside it. A log belongs to one lease and is named by the lease's key, so
//! that whoever had an earlier lease of the same attempt can't touch it. It grows at its end only:
//! [`LogStore`] keeps it, and [`Logs`] says whose turn it is to write, wakes who reads, and bounds both.
//! Whether a lease may write is decided in `service/logs.rs`.

pub mod archive;
mod objects;
mod turns;

#[cfg(test)]
mod tests;

use bytes::Bytes;

pub use objects::{Cursor, LogStore};
pub use turns::{FollowerPermit, Logs, MAX_FOLLOWERS, MAX_UPLOADS_A_WORKER, Turns, UploadPermit};

/// Most bytes that one write takes.
pub const MAX_CHUNK: usize = 256 * 1024;

/// Most bytes that one read gives, so that a follower costs little memory.
pub const MAX_READ: usize = 64 * 1024;

/// Why a log was not written or read. The causes may hold paths: they are for the master's own log.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The storage does not answer, or refuses. Worth a retry.
    #[error("{operation}: the log storage is not available")]
    Unavailable {
        operation: &'static str,
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// What was sent begins beyond the end of what is kept.
    #[error("the chunk begins at {offset}, but the log goes on at {kept}")]
    Gap { offset: u64, kept: u64 },
    /// More was sent of a log that was ended.
    #[error("the log was ended at {kept}")]
    Ended { kept: u64 },
    /// The directory can't be used.
    #[error("open the directory of the logs")]
    Open(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// What is kept of a log.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Extent {
    /// Bytes of the harness that are kept without a gap.
    kept: u64,
    /// The last object of them.
    last: Option<Segment>,
    /// The line that says that more was printed than is kept.
    mark: Option<Segment>,
    end: Option<End>,
}

/// The worker's last word on a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct End {
    /// Bytes that were printed in all.
    pub total_bytes: u64,
}

/// One object of a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Segment {
    start: u64,
    length: u64,
    /// Holds the line about the cut.
    is_mark: bool,
}

impl Segment {
    fn end(self) -> u64 {
        self.start + self.length
    }
}

impl Extent {
    /// Bytes of the harness that are kept.
    pub fn kept(&self) -> u64 {
        self.kept
    }

    /// Bytes that a reader gets: those of the harness, and the mark.
    pub fn readable(&self) -> u64 {
        self.mark.map_or(self.kept, Segment::end)
    }

    /// More was printed than is kept.
    pub fn is_cut(&self) -> bool {
        self.mark.is_some()
    }

    pub fn end(&self) -> Option<End> {
        self.end
    }

    /// What of a chunk is new. Empty where all of it is kept or, of a cut log, dropped.
    fn news(&self, offset: u64, mut data: Bytes) -> Result<Bytes, Error> {
        if offset > self.kept && !self.is_cut() {
            let kept = self.kept;
            return Err(Error::Gap { offset, kept });
        }
        let known = usize::try_from(self.kept.saturating_sub(offset)).unwrap_or(usize::MAX);
        let news = data.split_off(known.min(data.len()));
        if news.is_empty() || self.is_cut() {
            return Ok(Bytes::new());
        }
        match self.end {
            Some(_) => Err(Error::Ended { kept: self.kept }),
            None => Ok(news),
        }
    }
}
