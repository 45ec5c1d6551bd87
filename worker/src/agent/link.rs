//! The agent's line to a master: register, then beat, for as long as the agent lives.
//!
//! A broken line is tried again with another endpoint, for ever; it says nothing about any lease. What
//! was acknowledged prolongs the leases, and nothing else does.
//!
//! It has a thread, a runtime and a connection of its own: whatever keeps the agent's other threads busy,
//! its beats go out in time. What it shares with them is the choice of the endpoint, so that whoever finds a
//! master gone moves all of them on, and the state disk: each prolongation is written there for the
//! session's shim. While such a write hangs, beats go out for no session; the agent's loop goes on.

use std::{io, sync::Arc, thread, time::Duration};

use tokio::{
    runtime,
    sync::{oneshot, watch},
    task::yield_now,
    time::sleep,
};

use super::roster::Roster;
use crate::{
    assignment::LeaseKey,
    error::chain,
    lease::{Beats, Sent},
    master::{
        self, Answer, Beat, BeatStream, Caller, Directive, Drain, Endpoints, Introduction, Limits,
        Masters,
    },
    process::clock,
    retry::Retry,
    session::Stop,
};

/// Why there is no use in going on.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    #[error("start the thread of the beats")]
    Start(#[source] io::Error),
    #[error("register")]
    Register(#[source] master::Error),
    #[error("thread of the beats died")]
    Died,
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
}

/// What the master has last said of the whole worker.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Told {
    /// What it allows; set by the first registration.
    pub(super) limits: Option<Limits>,
    /// By the last acknowledgement.
    pub(super) drain: Option<Drain>,
}

/// What the agent hears.
pub(super) enum News {
    Told(Told),
    Ended(Error),
}

/// The thread, as the agent has it. Dropped, it is told to stop.
pub(super) struct Line {
    stop: oneshot::Sender<()>,
    ended: oneshot::Receiver<Error>,
    told: watch::Receiver<Told>,
}

impl Line {
    /// Starts the thread.
    pub(super) fn start(
        caller: Caller,
        endpoints: Arc<Endpoints>,
        introduction: Introduction,
        roster: Arc<Roster>,
    ) -> Result<Self, Error> {
        let (stop, stopped) = oneshot::channel::<()>();
        let (end, ended) = oneshot::channel();
        let (teller, told) = watch::channel(Told::default());
        let run = async move {
            // Made here: a connection belongs to the runtime in which it is made.
            let masters = Masters::new(caller, endpoints);
            let link = Link::new(masters, introduction, roster, teller);
            tokio::select! {
                error = link.run() => Some(error),
                // Asked to, or left alone.
                _ = stopped => None,
            }
        };
        // The runtime is made in the thread: one that is dropped here, because no thread can be started,
        // would panic within the agent's.
        let beats = move || {
            let runtime = runtime::Builder::new_current_thread().enable_all().build();
            let error = match runtime {
                Ok(runtime) => runtime.block_on(run),
                Err(error) => Some(Error::Start(error)),
            };
            if let Some(error) = error {
                drop(end.send(error));
            }
        };
        thread::Builder::new()
            .name("beats".to_owned())
            .spawn(beats)
            .map_err(Error::Start)?;
        Ok(Self { stop, ended, told })
    }

    /// Completes when there is news of the line. After its end there is none.
    pub(super) async fn news(&mut self) -> News {
        tokio::select! {
            Ok(()) = self.told.changed() => News::Told(self.told.borrow_and_update().clone()),
            error = &mut self.ended => News::Ended(error.unwrap_or(Error::Died)),
        }
    }

    /// Ends the beats, and returns when there are no more.
    pub(super) async fn stop(self) {
        drop(self.stop);
        drop(self.ended.await);
    }
}

struct Link {
    masters: Masters,
    introduction: Introduction,
    roster: Arc<Roster>,
    told: watch::Sender<Told>,
    beats: Beats<LeaseKey>,
    retry: Retry,
}

impl Link {
    fn new(
        masters: Masters,
        introduction: Introduction,
        roster: Arc<Roster>,
        told: watch::Sender<Told>,
    ) -> Self {
        Self {
            masters,
            introduction,
            roster,
            told,
            // Register says how often.
            beats: Beats::new(Duration::ZERO),
            retry: Retry::new(),
        }
    }

    /// Ends only where going on is of no use.
    async fn run(mut self) -> Error {
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
                    self.tell(|told| told.limits = Some(limits));
                    return Ok(());
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
            Break::Unknown => {}
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
                answer = stream.answer() => self.take(answer?)?,
                () = self.roster.changed() => {
                    // Other threads can touch as fast as this one sends: without it they could fill
                    // the stream before the connection, a task of this thread, had its turn.
                    yield_now().await;
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

    fn take(&mut self, answer: Answer) -> Result<(), Break> {
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
            self.prolong(&sent);
            self.tell(|told| told.drain = drain);
        }
        let mut end = Ok(());
        for directive in answer.directives {
            match directive {
                Directive::Draining => end = Err(Break::Draining),
                Directive::Register => return Err(Break::Unknown),
                // Goes with the acknowledgement.
                Directive::Drain(_) => {}
                Directive::Cancel { key, reason } => self.stop(&key, Stop::Cancelled, &reason),
                Directive::LeaseLost { key, reason } => self.stop(&key, Stop::LeaseLost, &reason),
            }
        }
        end
    }

    /// Tells the agent, where that is news.
    fn tell(&self, change: impl FnOnce(&mut Told)) {
        self.told.send_if_modified(|told| {
            let before = told.clone();
            change(told);
            *told != before
        });
    }

    /// The master has written this beat down.
    fn prolong(&self, sent: &Sent<LeaseKey>) {
        for key in &sent.sessions {
            self.roster.with(key, |control| control.renew(sent.sent_at));
        }
    }

    fn stop(&self, key: &LeaseKey, stop: Stop, reason: &str) {
        self.roster.with(key, |control| {
            // Masters repeat themselves for as long as beats list the session.
            if control.stop(stop) {
                tracing::info!(attempt.id = %key.attempt_id, ?stop, reason, "master stops a session");
            }
        });
    }
}
