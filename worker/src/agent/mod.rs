//! The agent: one loop that owns the set of sessions.
//!
//! It asks for leases while it has free slots, starts a session for each, passes on what masters say,
//! and sees all of them to their end when the worker is asked to stop. The loop never waits for
//! anything but its events; whatever takes time is a task that it owns and waits for.

mod link;
mod roster;
mod signals;

use std::{collections::HashMap, sync::Arc, time::Duration};

use anyhow::Context as _;
use pointsman_git::Access;
use tokio::{
    task::{Id, JoinError, JoinSet},
    time::{Instant, sleep, sleep_until, timeout},
};
use uuid::Uuid;

use crate::{
    assignment::{Assignment, LeaseKey},
    config::Config,
    ids, janitor,
    lease::BootTime,
    master::{self, Caller, Drain, Endpoints, Introduction, Limits, Masters, NotUnderstood, Phase},
    process::{clock, host},
    retry::Retry,
    session::{self, Control, Session, Stop},
    state::StateDir,
    workspace::Workspaces,
};
use link::{Line, News};
use roster::Roster;
use signals::Signals;

/// How long one question for leases is repeated. Its leases would count from the first asking.
const REASK: Duration = Duration::from_secs(60);

/// Most leases that one question asks for, whatever the capacity: a master refuses more than 100, and
/// each holds the texts of its item, which must fit one message together. The next question is at once.
const LEASES_PER_ASK: u32 = 16;

/// How long a worker that goes waits for leases that are on their way. It answers at once or is away.
const LAST_ASK: Duration = Duration::from_secs(5);

type Leases = Vec<Result<Assignment, NotUnderstood>>;

/// One question for leases. The same question is never answered with other leases.
#[derive(Debug, Clone, Copy)]
struct Question {
    request_id: Uuid,
    asked_at: BootTime,
    max: u32,
}

/// Runs a worker until it is told to stop, and its sessions have ended.
pub(crate) async fn run(config: Config) -> anyhow::Result<()> {
    // Before anything else: a signal that comes early must not kill what has been started.
    let signals = Signals::listen().context("listen for signals")?;
    let state = Arc::new(StateDir::open(&config.state_dir)?);
    let access = Access::read(config.git_config.clone())
        .await
        .context("git_config can't be used")?;
    let found = janitor::sweep(&state)
        .await
        .context("look through the sessions on disk")?;
    let caller = Caller {
        worker_id: state.worker_id(),
        instance_id: ids::random(),
    };
    let introduction = introduction(&config, &state, found.unconfirmed)?;
    let endpoints = Arc::new(Endpoints::new(config.masters));
    let masters = Arc::new(Masters::new(caller, Arc::clone(&endpoints)));
    let context = session::Context {
        masters: Arc::clone(&masters),
        workspaces: Workspaces::new(state.mirrors(), state.workspaces(), access),
        state,
        profiles: config.profiles,
        ci_limits: config.ci_limits,
        ci_variables: config.ci_variables,
        path: config.path,
        log_max_bytes: config.log_max_bytes,
    };
    tracing::info!(
        worker.id = %caller.worker_id,
        worker.instance = %caller.instance_id,
        worker.name = introduction.name,
        capacity = config.capacity,
        "worker starts"
    );
    let agent = Agent::new(context, config.capacity, config.drain_grace);
    let roster = Arc::clone(&agent.roster);
    let line = Line::start(caller, endpoints, introduction, roster)?;
    agent.run(line, signals).await
}

fn introduction(
    config: &Config,
    state: &StateDir,
    unconfirmed: Vec<LeaseKey>,
) -> anyhow::Result<Introduction> {
    Ok(Introduction {
        name: config.name.clone(),
        host: host::hostname(),
        boot_id: host::boot_id().context("read the boot's id")?,
        state_directory: state.identity().context("identify the state directory")?,
        capacity: config.capacity,
        roles: config.roles.clone(),
        labels: config.labels.clone(),
        profiles: config.profiles.clone(),
        ci_limits: config.ci_limits,
        unconfirmed,
    })
}

struct Agent {
    context: Arc<session::Context>,
    capacity: u32,
    drain_grace: Duration,
    /// What the master allows; set by the first registration.
    limits: Option<Limits>,
    roster: Arc<Roster>,
    /// Sessions, and other last words about leases, by task.
    sessions: JoinSet<()>,
    keys: HashMap<Id, LeaseKey>,
    /// At most one question for leases.
    asking: JoinSet<Result<Leases, master::Error>>,
    /// What was asked last, while its answer has not come.
    question: Option<Question>,
    /// The worker goes.
    draining: Option<Draining>,
    /// Operators drain the worker, which stays.
    drained: Option<Drained>,
    /// Set when a part of the agent broke: it ends with this error.
    broken: Option<anyhow::Error>,
}

/// A drain by operators.
#[derive(Clone, Copy, Default)]
struct Drained {
    /// Unset where sessions run on to their end.
    sessions: Option<Draining>,
}

#[derive(Clone, Copy)]
enum Draining {
    /// Sessions may run on until then.
    Until(Instant),
    /// Sessions are being stopped.
    Now,
}

impl Agent {
    fn new(context: session::Context, capacity: u32, drain_grace: Duration) -> Self {
        Self {
            context: Arc::new(context),
            capacity,
            drain_grace,
            limits: None,
            roster: Arc::new(Roster::default()),
            sessions: JoinSet::new(),
            keys: HashMap::new(),
            asking: JoinSet::new(),
            question: None,
            draining: None,
            drained: None,
            broken: None,
        }
    }

    async fn run(mut self, mut line: Line, mut signals: Signals) -> anyhow::Result<()> {
        let mut beats_go_on = true;
        while !self.is_done() {
            self.ask();
            tokio::select! {
                news = line.news(), if beats_go_on => match news {
                    News::Told(told) => {
                        self.limits = told.limits;
                        self.on_drain(told.drain);
                    }
                    News::Ended(error) => {
                        beats_go_on = false;
                        self.break_down(error.into());
                    }
                },
                Some(leases) = self.asking.join_next() => self.on_leases(leases),
                Some(ended) = self.sessions.join_next_with_id() => self.on_end(ended),
                () = signals.next() => self.on_signal(),
                () = grace_over(self.draining) => self.stop_now(),
                () = grace_over(self.drained.and_then(|d| d.sessions)) => self.stop_drained(),
            }
        }
        // Beats went on until here, so that no lease was lost while its session drained.
        if beats_go_on {
            line.stop().await;
        }
        tracing::info!("worker ends");
        self.broken.map_or(Ok(()), Err)
    }

    fn is_done(&self) -> bool {
        self.draining.is_some() && self.sessions.is_empty() && self.asking.is_empty()
    }

    /// Asks for leases, where slots are free and nobody asks yet.
    fn ask(&mut self) {
        let free = self.capacity.saturating_sub(self.n_sessions());
        let (Some(limits), None, None) = (self.limits, self.draining, self.drained) else {
            return;
        };
        if free > 0 && self.asking.is_empty() {
            let question = Question {
                request_id: ids::random(),
                asked_at: clock::now(),
                max: free.min(LEASES_PER_ASK),
            };
            self.question = Some(question);
            let masters = Arc::clone(&self.context.masters);
            self.asking
                .spawn(ask(masters, question, limits.max_lease_wait));
        }
    }

    fn n_sessions(&self) -> u32 {
        u32::try_from(self.sessions.len()).unwrap_or(u32::MAX)
    }

    fn on_leases(&mut self, answer: Result<Result<Leases, master::Error>, JoinError>) {
        match answer {
            Ok(Ok(leases)) => {
                self.question = None;
                leases.into_iter().for_each(|lease| self.take(lease));
            }
            Ok(Err(error)) => {
                self.question = None;
                self.break_down(anyhow::Error::new(error).context("ask for leases"));
            }
            // By `stop_asking`, which asks for the last time itself.
            Err(error) if error.is_cancelled() => {}
            Err(error) => self.break_down(error.into()),
        }
    }

    /// Asks for no more leases. An answer may be lost that way, with leases in it that nobody would
    /// give back: the question is asked once more, without waiting for any.
    fn stop_asking(&mut self) {
        self.asking.abort_all();
        if let Some(question) = self.question.take() {
            let masters = Arc::clone(&self.context.masters);
            self.asking.spawn(ask_at_last(masters, question));
        }
    }

    fn take(&mut self, lease: Result<Assignment, NotUnderstood>) {
        let assignment = match lease {
            Ok(assignment) => assignment,
            Err(lease) => {
                let masters = Arc::clone(&self.context.masters);
                self.sessions.spawn(session::refuse(masters, lease));
                return;
            }
        };
        let key = assignment.key.clone();
        if self.roster.has(&key) {
            return;
        }
        let roster = Arc::clone(&self.roster);
        let (session, control) =
            session::session(Arc::clone(&self.context), assignment, move || {
                roster.touch()
            });
        let stops = self
            .drained
            .is_some_and(|drained| drained.sessions.is_some());
        if self.draining.is_some() || stops {
            // The answer was on its way when draining began: the session gives it back.
            control.stop(Stop::Draining);
        }
        // In the roster first: from the first beat on the master knows that the lease has arrived.
        self.roster.add(key.clone(), control);
        let task = self.sessions.spawn(Session::run(session));
        self.keys.insert(task.id(), key);
    }

    fn on_end(&mut self, ended: Result<(Id, ()), JoinError>) {
        let id = match &ended {
            Ok((id, ())) => *id,
            Err(error) => error.id(),
        };
        if let Some(key) = self.keys.remove(&id) {
            self.roster.remove(&key);
        }
        if let Err(error) = ended {
            self.break_down(error.into());
        }
    }

    /// Takes in what an acknowledgement says of a drain by operators. Unlike a signal's, it ends.
    fn on_drain(&mut self, drain: Option<Drain>) {
        let Some(drain) = drain else {
            if self.drained.take().is_some() {
                tracing::info!("worker is undrained, and asks for leases again");
            }
            return;
        };
        let drained = self.drained.get_or_insert_with(|| {
            tracing::info!(
                reason = drain.reason,
                "worker is drained, and asks for no leases"
            );
            Drained::default()
        });
        if !drain.stops_sessions {
            drained.sessions = None;
        } else if drained.sessions.is_none() {
            tracing::info!(
                sessions = self.roster.len(),
                grace_seconds = self.drain_grace.as_secs(),
                "drain stops the sessions after the grace"
            );
            drained.sessions = Some(Draining::Until(Instant::now() + self.drain_grace));
            self.stop_preparing();
        }
    }

    /// The grace of a drain by operators is over. The worker stays.
    fn stop_drained(&mut self) {
        self.drained = Some(Drained {
            sessions: Some(Draining::Now),
        });
        self.roster.for_each(|control| {
            control.stop(Stop::Draining);
        });
    }

    fn on_signal(&mut self) {
        match self.draining {
            None => self.drain(),
            Some(_) => self.stop_now(),
        }
    }

    /// No more leases. What has not started goes back; what runs may run on for a while.
    fn drain(&mut self) {
        tracing::info!(
            sessions = self.sessions.len(),
            grace_seconds = self.drain_grace.as_secs(),
            "worker drains; a second signal stops the sessions now"
        );
        self.draining = Some(Draining::Until(Instant::now() + self.drain_grace));
        self.stop_asking();
        self.roster.for_each(Control::drain);
        self.stop_preparing();
    }

    /// What has not started goes back at once: only what runs has a use for the grace.
    fn stop_preparing(&self) {
        self.roster.for_each(|control| {
            if control.status().phase == Phase::Preparing {
                control.stop(Stop::Draining);
            }
        });
    }

    fn stop_now(&mut self) {
        tracing::info!(sessions = self.sessions.len(), "worker stops its sessions");
        let is_asking = self.draining.is_none();
        self.draining = Some(Draining::Now);
        if is_asking {
            self.stop_asking();
        }
        self.roster.for_each(|control| {
            control.stop(Stop::Draining);
        });
    }

    /// A broken part takes the agent with it, in order; the next start cleans up behind it.
    fn break_down(&mut self, error: anyhow::Error) {
        tracing::error!(error = format!("{error:#}"), "worker breaks down");
        self.broken.get_or_insert(error);
        self.stop_now();
    }
}

/// Asks until there is an answer; an empty one where the question got too old. A refusal is an error:
/// the same worker would be refused again.
async fn ask(
    masters: Arc<Masters>,
    question: Question,
    wait: Duration,
) -> Result<Leases, master::Error> {
    let mut retry = Retry::new();
    loop {
        match lease(&masters, question, wait).await {
            Ok(leases) => return Ok(leases),
            Err(error @ master::Error::Refused(_)) => return Err(error),
            Err(error) => tracing::warn!(%error, "no leases"),
        }
        sleep(retry.after_failure()).await;
        if clock::now().since(question.asked_at) > REASK {
            return Ok(Leases::new());
        }
    }
}

/// Asks once more for what was granted already. Leases that are lost here end by their time-to-live.
async fn ask_at_last(masters: Arc<Masters>, question: Question) -> Result<Leases, master::Error> {
    match timeout(LAST_ASK, lease(&masters, question, Duration::ZERO)).await {
        Ok(Ok(leases)) => return Ok(leases),
        Ok(Err(error)) => tracing::warn!(%error, "last question for leases failed"),
        Err(_) => tracing::warn!("last question for leases had no answer"),
    }
    Ok(Leases::new())
}

async fn lease(
    masters: &Masters,
    question: Question,
    wait: Duration,
) -> Result<Leases, master::Error> {
    let Question {
        request_id,
        asked_at,
        max,
    } = question;
    masters.lease(request_id, asked_at, max, wait).await
}

async fn grace_over(draining: Option<Draining>) {
    match draining {
        Some(Draining::Until(end)) => sleep_until(end).await,
        Some(Draining::Now) | None => std::future::pending().await,
    }
}
