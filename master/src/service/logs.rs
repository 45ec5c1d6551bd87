//! Logs of harnesses: a worker writes one while its lease lives, anybody reads it at any time.
//!
//! The store of logs knows no leases, so the lease is looked at before each write, and the write goes to
//! the log of that very lease: who loses the lease between the two has written to a log of its own.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use tokio::{sync::watch, time::timeout};

use super::{Error, Service};
use crate::{
    domain::{
        attempt::Attempt,
        ids::{AttemptId, Fence, LeaseKey, WorkerId},
    },
    logs::{
        Cursor, End, Extent, FollowerPermit, Logs, MAX_FOLLOWERS, MAX_UPLOADS_A_WORKER, Turns,
        UploadPermit,
    },
};

/// How often a follower looks without a signal: a lease can end, or another master write.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// One batch of a log, on its way in.
pub struct Upload {
    service: Service,
    worker: WorkerId,
    key: LeaseKey,
    turns: Arc<Turns>,
    uploaded: Uploaded,
    _permit: UploadPermit,
}

/// What the worker is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Uploaded {
    /// Kept up to here, or dropped from a log that is full.
    pub offset: u64,
    pub is_full: bool,
}

/// Which log to read, and from where.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tail {
    pub attempt: AttemptId,
    /// `None`: of the newest lease that has a log.
    pub fence: Option<Fence>,
    pub from: From,
    /// Goes on until the log is complete.
    pub follow: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum From {
    Offset(u64),
    /// So many bytes before what is the end now.
    Last(u64),
}

/// What a reader gets: the start, chunks, and the end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LogPart {
    Start { attempt: AttemptId, fence: Fence },
    Chunk { offset: u64, data: Bytes },
    End(LogEnd),
}

/// How a log ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogEnd {
    pub offset: u64,
    /// The worker has said that this is all.
    pub is_complete: bool,
    pub is_cut: bool,
    /// Bytes that were printed in all, where that is known.
    pub total_bytes: Option<u64>,
}

impl Service {
    fn logs(&self) -> &Logs {
        &self.ports.logs
    }

    /// Begins a batch: says up to where the log of this lease is kept.
    pub async fn upload_log(&self, worker: WorkerId, key: LeaseKey) -> Result<Upload, Error> {
        let permit = self.logs().admit_upload(worker).ok_or(Error::TooMany {
            what: "streams of logs of this worker",
            most: MAX_UPLOADS_A_WORKER,
        })?;
        self.must_hold(worker, key).await?;
        let turns = self.logs().turns(key.attempt);
        let mut turn = turns.writing.lock().await;
        let extent = self.logs().store().open(key).await?;
        let uploaded = Uploaded::of(&extent, 0);
        *turn = Some((key, extent));
        drop(turn);
        Ok(Upload {
            service: self.clone(),
            worker,
            key,
            turns,
            uploaded,
            _permit: permit,
        })
    }

    async fn must_hold(&self, worker: WorkerId, key: LeaseKey) -> Result<(), Error> {
        let lease = self.store().lease(key.attempt).await?;
        let is_held = lease.is_some_and(|lease| lease.key == key && lease.worker == worker);
        if is_held {
            Ok(())
        } else {
            Err(Error::LeaseLost {
                attempt: key.attempt,
            })
        }
    }

    /// Reads a log.
    pub fn tail_log(&self, tail: Tail) -> Result<Follower, Error> {
        let permit = self.logs().admit_follower().ok_or(Error::TooMany {
            what: "readers of logs",
            most: MAX_FOLLOWERS,
        })?;
        let turns = self.logs().turns(tail.attempt);
        Ok(Follower {
            service: self.clone(),
            tail,
            signals: turns.signals(),
            turns,
            state: State::Looking,
            _permit: permit,
        })
    }
}

impl Uploaded {
    /// `sent`: how far a worker has come.
    fn of(extent: &Extent, sent: u64) -> Self {
        let is_full = extent.is_cut();
        let dropped = if is_full { sent } else { 0 };
        Self {
            offset: extent.kept().max(dropped),
            is_full,
        }
    }
}

impl Upload {
    /// Keeps a chunk, if it is new and the lease still lives.
    pub async fn chunk(&mut self, offset: u64, data: Bytes) -> Result<(), Error> {
        let sent = offset.saturating_add(data.len() as u64);
        let store = self.service.logs().store().clone();
        let mut turn = self.turns.writing.lock().await;
        let mut extent = self.extent(turn.take()).await?;
        store.append(self.key, &mut extent, offset, data).await?;
        self.uploaded = Uploaded::of(&extent, sent.max(self.uploaded.offset));
        *turn = Some((self.key, extent));
        drop(turn);
        self.turns.wake();
        Ok(())
    }

    /// Notes that nothing more comes.
    pub async fn end(&mut self, end: End) -> Result<(), Error> {
        let store = self.service.logs().store().clone();
        let mut turn = self.turns.writing.lock().await;
        let mut extent = self.extent(turn.take()).await?;
        store.end(self.key, &mut extent, end).await?;
        self.uploaded = Uploaded::of(&extent, end.total_bytes);
        *turn = Some((self.key, extent));
        drop(turn);
        self.turns.wake();
        Ok(())
    }

    /// What is kept by now.
    pub fn uploaded(&self) -> Uploaded {
        self.uploaded
    }

    /// What is kept of the log, as the last writer left it: another stream of the same lease may have
    /// written meanwhile. Anew where a write of the last one failed.
    async fn extent(&self, last: Option<(LeaseKey, Extent)>) -> Result<Extent, Error> {
        self.service.must_hold(self.worker, self.key).await?;
        match last {
            Some((key, extent)) if key == self.key => Ok(extent),
            Some(_) | None => Ok(self.service.logs().store().open(self.key).await?),
        }
    }
}

/// One reader. Nothing happens but when it is asked for the next part.
pub struct Follower {
    service: Service,
    tail: Tail,
    turns: Arc<Turns>,
    signals: watch::Receiver<()>,
    state: State,
    _permit: FollowerPermit,
}

#[derive(Debug)]
enum State {
    /// For the log.
    Looking,
    Reading {
        cursor: Cursor,
        /// The lease was seen to be over: what is there now is all.
        is_last_look: bool,
    },
    Ended,
}

impl Follower {
    /// The next part; `None` after the end. It may be dropped while it waits, and asked again.
    pub async fn next(&mut self) -> Result<Option<LogPart>, Error> {
        loop {
            self.signals.borrow_and_update();
            let part = match self.state {
                State::Looking => self.look().await?,
                State::Reading { .. } => self.read().await?,
                State::Ended => return Ok(None),
            };
            if part.is_some() {
                return Ok(part);
            }
            // A signal, or the time for a look.
            drop(timeout(LOOK_INTERVAL, self.signals.changed()).await);
        }
    }

    /// Looks for the log. `None`: it may come yet.
    async fn look(&mut self) -> Result<Option<LogPart>, Error> {
        let mut key = self.newest().await?;
        if key.is_none() && !self.may_come().await? {
            // A write that was under way when the lease ended has returned.
            drop(self.turns.writing.lock().await);
            key = self.newest().await?;
            if key.is_none() {
                let id = match self.tail.fence {
                    Some(fence) => format!("lease {fence} of attempt {}", self.tail.attempt),
                    None => format!("attempt {}", self.tail.attempt),
                };
                return Err(Error::NotFound { what: "log of", id });
            }
        }
        let Some(key) = key else { return Ok(None) };
        let offset = match self.tail.from {
            From::Offset(offset) => offset,
            From::Last(bytes) => {
                let extent = self.service.logs().store().extent(key).await?;
                extent.readable().saturating_sub(bytes)
            }
        };
        self.state = State::Reading {
            cursor: Cursor::new(key, offset),
            is_last_look: false,
        };
        let (attempt, fence) = (key.attempt, key.fence);
        Ok(Some(LogPart::Start { attempt, fence }))
    }

    async fn newest(&self) -> Result<Option<LeaseKey>, Error> {
        let leases = self
            .service
            .logs()
            .store()
            .leases(self.tail.attempt)
            .await?;
        let is_asked = |key: &LeaseKey| self.tail.fence.is_none_or(|fence| key.fence == fence);
        Ok(leases.into_iter().rfind(is_asked))
    }

    /// Whether a log may begin yet.
    async fn may_come(&self) -> Result<bool, Error> {
        let id = self.tail.attempt;
        let row = self.service.store().attempt(id).await?;
        let attempt: Attempt = row
            .ok_or_else(|| Error::NotFound {
                what: "attempt",
                id: id.to_string(),
            })?
            .attempt;
        if !self.tail.follow || !attempt.status.is_live() {
            return Ok(false);
        }
        match self.tail.fence {
            Some(fence) if fence <= attempt.fence => self.is_live(fence).await,
            Some(_) | None => Ok(true),
        }
    }

    async fn is_live(&self, fence: Fence) -> Result<bool, Error> {
        let lease = self.service.store().lease(self.tail.attempt).await?;
        Ok(lease.is_some_and(|lease| lease.key.fence == fence))
    }

    /// Reads on. `None`: there is no more yet.
    async fn read(&mut self) -> Result<Option<LogPart>, Error> {
        loop {
            let State::Reading {
                cursor,
                is_last_look,
            } = &mut self.state
            else {
                return Ok(None);
            };
            let store = self.service.logs().store();
            let offset = cursor.offset();
            let data = store.read(cursor).await?;
            if !data.is_empty() {
                return Ok(Some(LogPart::Chunk { offset, data }));
            }
            let key = cursor.key();
            let extent = store.extent(key).await?;
            if offset < extent.readable() {
                continue;
            }
            let is_over = extent.end().is_some() || !self.tail.follow || *is_last_look;
            if is_over {
                self.state = State::Ended;
                return Ok(Some(LogPart::End(LogEnd::of(&extent))));
            }
            let lease = self.service.store().lease(key.attempt).await?;
            if lease.is_some_and(|lease| lease.key == key) {
                return Ok(None);
            }
            // Writes look at the lease first: one that is under way is the last.
            drop(self.turns.writing.lock().await);
            *is_last_look = true;
        }
    }
}

impl LogEnd {
    fn of(extent: &Extent) -> Self {
        let total_bytes = extent.end().map(|end| end.total_bytes);
        Self {
            offset: extent.readable(),
            is_complete: extent.end().is_some(),
            is_cut: extent.is_cut() || total_bytes.is_some_and(|total| total > extent.kept()),
            total_bytes,
        }
    }
}
