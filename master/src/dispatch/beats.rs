//! Beats of all streams, gathered and written at a fixed pace, and acknowledged only then.
//!
//! A beat that was not written prolonged nobody's right to run: a database that stalls ends in workers
//! that stop their harnesses, never in two that run the same attempt.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::{
    clock::Stopwatch,
    domain::ids::{InstanceId, LeaseKey, WorkerId},
    service::{Absences, Error, Heard, Service},
    store::model::ProgressRow,
};

/// What a stream hears about its beats.
#[derive(Debug)]
pub enum Answer {
    /// The beat with this sequence, and all before it, are written.
    Acknowledged { sequence: u64, heard: Heard },
    /// This process of the worker is not known: it is to register.
    Unknown,
}

/// One beat of one instance. A newer one replaces it: each lists all sessions.
pub struct Beat {
    pub worker: WorkerId,
    pub instance: InstanceId,
    pub sequence: u64,
    pub sessions: Vec<ProgressRow>,
    pub answers: mpsc::Sender<Answer>,
}

struct Received {
    beat: Beat,
    at: Duration,
}

/// Beats that wait to be written.
pub struct Beats {
    service: Service,
    stopwatch: Arc<dyn Stopwatch>,
    pending: Mutex<HashMap<InstanceId, Received>>,
    /// Of instances whose last beat lacked a lease.
    absences: Mutex<HashMap<InstanceId, Absences>>,
    flush_interval: Duration,
}

impl Beats {
    pub fn new(service: Service, stopwatch: Arc<dyn Stopwatch>, flush_interval: Duration) -> Self {
        Self {
            service,
            stopwatch,
            pending: Mutex::default(),
            absences: Mutex::default(),
            flush_interval,
        }
    }

    /// Takes in a beat; the stream that brought it hears when it is written.
    pub fn offer(&self, beat: Beat) {
        let received = Received {
            at: self.stopwatch.elapsed(),
            beat,
        };
        let mut pending = self.pending.lock().unwrap_or_else(PoisonError::into_inner);
        pending.insert(received.beat.instance, received);
    }

    /// Writes at the pace of the flush interval, and once more when told to stop.
    pub async fn run(&self, stop: CancellationToken) {
        let mut pace = tokio::time::interval(self.flush_interval);
        pace.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = stop.cancelled() => break,
                _ = pace.tick() => self.flush().await,
            }
        }
        self.flush().await;
    }

    async fn flush(&self) {
        let received: Vec<Received> = {
            let mut pending = self.pending.lock().unwrap_or_else(PoisonError::into_inner);
            pending.drain().map(|(_, received)| received).collect()
        };
        for Received { beat, at } in received {
            self.write(beat, at).await;
        }
    }

    async fn write(&self, beat: Beat, received_at: Duration) {
        let age = self.stopwatch.elapsed().saturating_sub(received_at);
        let written = self
            .service
            .beat(beat.worker, beat.instance, &beat.sessions, age)
            .await;
        let answer = match written {
            Ok(heard) => {
                self.notice_absences(&beat).await;
                Answer::Acknowledged {
                    sequence: beat.sequence,
                    heard,
                }
            }
            Err(Error::UnknownInstance { .. }) => Answer::Unknown,
            Err(error) => {
                // No answer: the worker counts on, and beats again.
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    worker.id = %beat.worker,
                    "beat could not be written"
                );
                return;
            }
        };
        // A stream that does not read, or is gone, hears nothing: the next beat gets the next answer.
        if beat.answers.try_send(answer).is_err() {
            tracing::debug!(worker.id = %beat.worker, "a stream did not take its acknowledgement");
        }
    }

    /// What one beat lacks is forgotten where it can't be looked at: the next beats lack it too.
    async fn notice_absences(&self, beat: &Beat) {
        let listed: HashSet<LeaseKey> = beat.sessions.iter().map(|s| s.key).collect();
        let mut absences = self.absences().remove(&beat.instance).unwrap_or_default();
        let noticed = self
            .service
            .notice_absences(beat.worker, beat.instance, &listed, &mut absences)
            .await;
        if let Err(error) = noticed {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                worker.id = %beat.worker,
                "missing leases could not be ended"
            );
        }
        if !absences.is_empty() {
            self.absences().insert(beat.instance, absences);
        }
    }

    fn absences(&self) -> MutexGuard<'_, HashMap<InstanceId, Absences>> {
        self.absences.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
