//! The agent's line to a master: register, then beat, for as long as the agent lives.
//!
//! A broken line is tried again with another endpoint, for ever; it says nothing about any lease. What
//! was acknowledged is passed on, and nothing else prolongs a lease.

use std::{sync::Arc, time::Duration};

use tokio::{sync::mpsc, time::sleep};

use super::roster::Roster;
use crate::{
    assignment::LeaseKey,
    error::chain,
    lease::{Beats, Sent},
    master::{self, Answer, Beat, BeatStream, Directive, Drain, Introduction, Limits, Masters},
    process::clock,
    retry::Retry,
};

/// What the loop is told.
pub(super) enum Event {
    Registered(Limits),
    /// This beat was written down by the master, which drains the worker or does not.
    Acknowledged {
        sent: Sent<LeaseKey>,
        drain: Option<Drain>,
    },
    Directive(Directive),
}

/// Why there is no use in going on.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    #[error("register")]
    Register(#[source] master::Error),
    #[error("agent is gone")]
    AgentGone,
}

/// Why a stream of beats ended.
#[derive(Debug, thiserror::Error)]
enum Break {
    #[error("lost the master")]
    Lost(#[from] master::Error),
    #[error("master acknowledges no beats")]
    Silent,
    #[error("master shuts down")]
    Draining,
    #[error("master does not know this instance")]
    Unknown,
    #[error("agent is gone")]
    AgentGone,
}

pub(super) struct Link {
    masters: Arc<Masters>,
    introduction: Introduction,
    roster: Arc<Roster>,
    events: mpsc::Sender<Event>,
    beats: Beats<LeaseKey>,
    retry: Retry,
}

impl Link {
    pub(super) fn new(
        masters: Arc<Masters>,
        introduction: Introduction,
        roster: Arc<Roster>,
        events: mpsc::Sender<Event>,
    ) -> Self {
        Self {
            masters,
            introduction,
            roster,
            events,
            // Register says how often.
            beats: Beats::new(Duration::ZERO),
            retry: Retry::new(),
        }
    }

    /// Ends only where going on is of no use.
    pub(super) async fn run(mut self) -> Error {
        loop {
            if let Err(error) = self.register().await {
                return error;
            }
            loop {
                match self.beat().await {
                    Break::Unknown => {
                        // A master that says so each time must not be asked in a loop.
                        sleep(self.retry.after_failure()).await;
                        break;
                    }
                    Break::AgentGone => return Error::AgentGone,
                    reason @ (Break::Lost(_) | Break::Silent | Break::Draining) => {
                        tracing::warn!(reason = chain(&reason), "connect again");
                    }
                }
                sleep(self.retry.after_failure()).await;
            }
        }
    }

    async fn register(&mut self) -> Result<(), Error> {
        loop {
            match self.masters.register(&self.introduction).await {
                Ok(limits) => {
                    tracing::info!(?limits, "registered");
                    self.beats.set_interval(limits.beat_interval);
                    return self.tell(Event::Registered(limits)).await;
                }
                Err(error @ master::Error::Refused(_)) => return Err(Error::Register(error)),
                Err(error @ master::Error::AlreadyAlive(_)) => tracing::warn!(
                    %error,
                    "waiting until it has gone; each worker needs a state directory of its own"
                ),
                Err(error) => tracing::warn!(%error, "not registered yet"),
            }
            sleep(self.retry.after_failure()).await;
        }
    }

    /// Beats on one stream until it breaks.
    async fn beat(&mut self) -> Break {
        self.beats.reconnect();
        let first = self.next_beat();
        let mut stream = match self.masters.beats(first).await {
            Ok(stream) => stream,
            Err(error) => return error.into(),
        };
        let Err(reason) = self.converse(&mut stream).await;
        match reason {
            Break::Unknown | Break::AgentGone => {}
            Break::Lost(_) | Break::Silent | Break::Draining => self.masters.leave(&stream),
        }
        reason
    }

    async fn converse(
        &mut self,
        stream: &mut BeatStream,
    ) -> Result<std::convert::Infallible, Break> {
        loop {
            tokio::select! {
                answer = stream.answer() => self.take(answer?).await?,
                () = self.roster.changed() => {
                    let beat = self.next_beat();
                    self.masters.beat(stream, beat)?;
                }
                () = sleep(self.beats.next_in(clock::now())) => {
                    if self.beats.is_silent(clock::now()) {
                        return Err(Break::Silent);
                    }
                    let beat = self.next_beat();
                    self.masters.beat(stream, beat)?;
                }
            }
        }
    }

    fn next_beat(&mut self) -> Beat {
        let sessions = self.roster.beat();
        let keys = sessions.iter().map(|(key, _)| key.clone()).collect();
        // Read before the beat leaves: leases are counted from here.
        let sequence = self.beats.send(clock::now(), keys);
        Beat { sequence, sessions }
    }

    async fn take(&mut self, answer: Answer) -> Result<(), Break> {
        let is_unknown = answer.directives.contains(&Directive::Register);
        let drain = answer
            .directives
            .iter()
            .find_map(|directive| match directive {
                Directive::Drain(drain) => Some(drain.clone()),
                _ => None,
            });
        if let Some(sent) = self.beats.acknowledge(answer.acknowledged) {
            if !is_unknown {
                self.retry.succeeded();
            }
            self.tell(Event::Acknowledged { sent, drain }).await?;
        }
        let mut end = Ok(());
        for directive in answer.directives {
            match directive {
                Directive::Draining => end = Err(Break::Draining),
                Directive::Register => return Err(Break::Unknown),
                // Goes with the acknowledgement.
                Directive::Drain(_) => {}
                directive @ (Directive::Cancel { .. } | Directive::LeaseLost { .. }) => {
                    self.tell(Event::Directive(directive)).await?;
                }
            }
        }
        end
    }

    async fn tell(&self, event: Event) -> Result<(), Error> {
        self.events.send(event).await.map_err(|_| Error::AgentGone)
    }
}

impl From<Error> for Break {
    fn from(error: Error) -> Self {
        match error {
            Error::AgentGone | Error::Register(_) => Self::AgentGone,
        }
    }
}
