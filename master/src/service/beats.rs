//! Beats: the word of a worker that its sessions live.

use std::time::Duration;

use super::{Error, Service};
use crate::{
    domain::{
        attempt::AttemptStatus,
        ids::{InstanceId, LeaseKey, WorkerId},
    },
    store::model::{BeatWrite, Drain, ProgressRow},
};

/// Why a session is to be stopped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stop {
    /// Its attempt was cancelled, for this reason.
    Cancelled { key: LeaseKey, reason: String },
    /// Its lease is over.
    LeaseLost { key: LeaseKey },
}

/// What a worker is to hear about its beat.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Heard {
    /// Sessions to be stopped.
    pub stops: Vec<Stop>,
    /// Set while the worker is drained.
    pub drain: Option<Drain>,
}

impl Service {
    /// Prolongs the leases of a beat that was received `age` ago, keeps what it said, and tells which of
    /// its sessions are to be stopped, and whether the worker is drained. What it says is written when it
    /// returns.
    pub async fn beat(
        &self,
        worker: WorkerId,
        instance: InstanceId,
        sessions: &[ProgressRow],
        age: Duration,
    ) -> Result<Heard, Error> {
        let drain = self.known_worker(worker, instance).await?.drain;
        let writes: Vec<BeatWrite> = sessions
            .iter()
            .map(|session| BeatWrite {
                key: session.key,
                age,
            })
            .collect();
        let alive = self.store().flush_beats(instance, &writes).await?;
        self.store()
            .record_progress(worker, sessions, self.now())
            .await?;
        let mut stops = Vec::new();
        for session in sessions.iter().filter(|s| !alive.contains(&s.key)) {
            stops.push(self.stop_reason(session.key).await?);
        }
        Ok(Heard { stops, drain })
    }

    async fn stop_reason(&self, key: LeaseKey) -> Result<Stop, Error> {
        let row = self.store().attempt(key.attempt).await?;
        let cancelled = row
            .map(|row| row.attempt)
            .filter(|a| a.status == AttemptStatus::Cancelled && a.fence == key.fence);
        Ok(match cancelled {
            Some(attempt) => Stop::Cancelled {
                key,
                reason: attempt
                    .outcome
                    .and_then(|outcome| outcome.detail["reason"].as_str().map(str::to_owned))
                    .unwrap_or_default(),
            },
            None => Stop::LeaseLost { key },
        })
    }
}
