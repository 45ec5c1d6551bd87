//! Beats of all streams, gathered and written at a fixed pace, and acknowledged only then.
//!
//! A beat that was not written prolonged nobody's right to run: a database that stalls ends in workers
//! that stop their harnesses, never in two that run the same attempt.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::{
    clock::Stopwatch,
    domain::ids::{InstanceId, WorkerId},
    service::{Error, Service, Stop},
    store::model::ProgressRow,
};

/// What a stream hears about its beats.
#[derive(Debug)]
pub enum Answer {
    /// The beat with this sequence, and all before it, are written.
    Acknowledged { sequence: u64, stops: Vec<Stop> },
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
    flush_interval: Duration,
}

impl Beats {
    pub fn new(service: Service, stopwatch: Arc<dyn Stopwatch>, flush_interval: Duration) -> Self {
        Self {
            service,
            stopwatch,
            pending: Mutex::default(),
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
            Ok(stops) => Answer::Acknowledged {
                sequence: beat.sequence,
                stops,
            },
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
}
