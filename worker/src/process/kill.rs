//! Ends the processes of a session, verified and confirmed.
//!
//! The shim is asked first: it is the parent of all that the harness started, and ends once nothing is
//! left. That it ended proves nothing, since it may have been killed at that: so what is left of the
//! harness's process group is signalled through its leader's pidfd, and then whoever carries the
//! session's cookie.
//! A kill counts only when the process was verified, was alive before, and was seen to exit.

use std::time::Duration;

use nix::{errno::Errno, sys::signal::Signal};
use tokio::time::timeout;

use super::{
    cookie::Cookie,
    host::Place,
    identity::{Identity, Recorded, identify},
    pidfd::Pidfd,
};

/// How long after the deadline the agent leaves stopping to the shim, which reads it each second.
pub(crate) const DEADLINE_MARGIN: Duration = Duration::from_secs(1);

/// How long the shim may take beyond the grace: it kills in a loop until no child is left. One that needs
/// longer is helped.
const SHIM_MARGIN: Duration = Duration::from_secs(1);

/// How long a process that got SIGKILL may take to vanish, and how long all that carries the cookie may take
/// to be found and vanish.
const KILL_CONFIRMATION: Duration = Duration::from_secs(1);

/// What a stop may take beyond the grace of its harness: the shim hears of it late and overruns its margin,
/// and then the harness's group, what carries the cookie, and the shim take all the time that they have to vanish.
/// Part of the kill budget that Register sends.
pub(crate) const STOP_MARGIN: Duration = DEADLINE_MARGIN
    .saturating_add(SHIM_MARGIN)
    .saturating_add(KILL_CONFIRMATION.saturating_mul(3));

/// How often it is looked for what carries the cookie, where there is time. What starts others faster than
/// that is stronger than we are.
const SWEEPS: u32 = 20;

/// Looks without a find after which nothing is left: one alone may just have missed a fork.
const QUIET_SWEEPS: u32 = 2;

/// The processes of one session, as recorded.
#[derive(Debug, Clone, Default)]
pub(crate) struct Processes {
    pub(crate) place: Place,
    pub(crate) shim: Option<Recorded>,
    pub(crate) harness: Option<Recorded>,
    /// What all of them carry, those too that nobody recorded.
    pub(crate) cookie: Option<Cookie>,
}

/// How a kill ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Killed {
    /// At least one verified, living process was signalled, and all of them were seen to exit.
    Confirmed,
    /// Nothing was there any more; nothing was signalled.
    AlreadyGone,
    /// Something may still run, for the reason given. Nobody who isn't verified was signalled.
    Unconfirmed(String),
}

/// Stops a session: TERM, `grace`, KILL.
pub(crate) async fn kill_with_grace(processes: &Processes, grace: Duration) -> Killed {
    let here = Place::here();
    let verify = |recorded: &Option<Recorded>| match recorded {
        Some(recorded) => identify(recorded, &processes.place, &here),
        None => Identity::Other,
    };
    let shim = match verify(&processes.shim) {
        Identity::Same(shim) => Some(shim),
        Identity::Other => None,
        Identity::Unverifiable(reason) => return unconfirmed("shim", &reason),
    };
    if let Some(shim) = &shim
        && let Err(error) = ask(shim, grace + SHIM_MARGIN).await
    {
        tracing::warn!(shim.pid = shim.pid(), %error, "shim did not end in time");
    }
    let harness = match verify(&processes.harness) {
        Identity::Same(harness) => Some(harness),
        Identity::Other => None,
        Identity::Unverifiable(reason) => return unconfirmed("harness", &reason),
    };
    if let Some(harness) = &harness {
        // A living shim has used the grace up already.
        let grace = if shim.is_some() {
            Duration::ZERO
        } else {
            grace
        };
        if let Err(error) = kill_group(harness, grace).await {
            return unconfirmed("harness", &error.to_string());
        }
    }
    let n_others = match &processes.cookie {
        Some(cookie) => match sweep(cookie, shim.as_ref()).await {
            Ok(n) => n,
            Err(error) => return unconfirmed("what the harness started", &error.to_string()),
        },
        None => 0,
    };
    match (&shim, &harness) {
        (None, None) if n_others == 0 => Killed::AlreadyGone,
        (None, None | Some(_)) => Killed::Confirmed,
        (Some(shim), _) => match exit_within(shim, KILL_CONFIRMATION).await {
            Ok(()) => Killed::Confirmed,
            Err(error) => unconfirmed("shim", &error.to_string()),
        },
    }
}

/// Why an end could not be confirmed.
#[derive(Debug, thiserror::Error)]
enum Error {
    #[error("signal {signal}")]
    Signal {
        signal: Signal,
        #[source]
        source: Errno,
    },
    #[error("wait for the exit")]
    Wait(#[source] std::io::Error),
    #[error("still alive after {} ms", .0.as_millis())]
    Alive(Duration),
    #[error("look through the processes")]
    Look(#[source] std::io::Error),
    #[error("there are new ones each time that one looks, or looking takes too long")]
    Endless,
}

async fn ask(shim: &Pidfd, patience: Duration) -> Result<(), Error> {
    send(Signal::SIGTERM, |signal| shim.signal(signal))?;
    // One that somebody stopped would not hear it.
    send(Signal::SIGCONT, |signal| shim.signal(signal))?;
    exit_within(shim, patience).await
}

async fn kill_group(leader: &Pidfd, grace: Duration) -> Result<(), Error> {
    if !grace.is_zero() {
        send(Signal::SIGTERM, |signal| leader.signal_group(signal))?;
        // A stopped process would keep SIGTERM pending for the whole grace.
        send(Signal::SIGCONT, |signal| leader.signal_group(signal))?;
        if let Err(Error::Wait(source)) = exit_within(leader, grace).await {
            return Err(Error::Wait(source));
        }
    }
    // Also after the leader has exited in time: its group may have members that did not.
    match send(Signal::SIGKILL, |signal| leader.signal_group(signal)) {
        Err(Error::Signal {
            source: Errno::EINVAL,
            ..
        }) if leader.has_exited() == Ok(true) => {
            // No group flag on this kernel, and the number is no longer the leader's.
        }
        other => other?,
    }
    exit_within(leader, KILL_CONFIRMATION).await
}

/// Looks through all processes, on a thread that may block.
async fn carriers(cookie: Cookie) -> Result<Vec<Pidfd>, Error> {
    tokio::task::spawn_blocking(move || cookie.carriers())
        .await
        .unwrap_or_else(|error| Err(std::io::Error::other(error)))
        .map_err(Error::Look)
}

/// As [`kill_carriers`], within its part of the kill budget.
async fn sweep(cookie: &Cookie, shim: Option<&Pidfd>) -> Result<usize, Error> {
    timeout(KILL_CONFIRMATION, kill_carriers(cookie, shim))
        .await
        .unwrap_or(Err(Error::Endless))
}

/// Kills all that carries the cookie but the shim, which ends by itself once nothing else is left. Returns how
/// many there were.
async fn kill_carriers(cookie: &Cookie, shim: Option<&Pidfd>) -> Result<usize, Error> {
    let (mut n_killed, mut n_quiet) = (0, 0);
    for _ in 0..SWEEPS {
        let mut carriers = carriers(cookie.clone()).await?;
        carriers.retain(|process| shim.is_none_or(|shim| shim.pid() != process.pid()));
        if carriers.is_empty() {
            n_quiet += 1;
            if n_quiet == QUIET_SWEEPS {
                return Ok(n_killed);
            }
            continue;
        }
        n_quiet = 0;
        for process in &carriers {
            send(Signal::SIGKILL, |signal| process.signal(signal))?;
        }
        for process in &carriers {
            exit_within(process, KILL_CONFIRMATION).await?;
        }
        n_killed += carriers.len();
    }
    Err(Error::Endless)
}

/// Sends a signal; that nobody is there to receive it is no error.
fn send(signal: Signal, through: impl Fn(Signal) -> Result<(), Errno>) -> Result<(), Error> {
    match through(signal) {
        Ok(()) | Err(Errno::ESRCH) => Ok(()),
        Err(source) => Err(Error::Signal { signal, source }),
    }
}

async fn exit_within(process: &Pidfd, patience: Duration) -> Result<(), Error> {
    match timeout(patience, process.exited()).await {
        Ok(result) => result.map_err(Error::Wait),
        Err(_) => Err(Error::Alive(patience)),
    }
}

fn unconfirmed(who: &str, reason: &str) -> Killed {
    Killed::Unconfirmed(format!("{who}: {reason}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::testing::Sleeper;

    const GRACE: Duration = Duration::from_millis(200);

    fn harness(recorded: Recorded) -> Processes {
        Processes {
            place: Place::here(),
            shim: None,
            harness: Some(recorded),
            cookie: None,
        }
    }

    #[tokio::test]
    async fn a_verified_harness_is_killed() {
        let mut sleeper = Sleeper::start();
        let killed = kill_with_grace(&harness(sleeper.recorded()), GRACE).await;
        assert_eq!(killed, Killed::Confirmed);
        assert!(sleeper.is_dead());
    }

    #[tokio::test]
    async fn one_that_ignores_term_is_killed_after_the_grace() {
        let mut sleeper = Sleeper::start_ignoring_term();
        let killed = kill_with_grace(&harness(sleeper.recorded()), GRACE).await;
        assert_eq!(killed, Killed::Confirmed);
        assert!(sleeper.is_dead());
    }

    /// nyldn/claude-octopus#909: a kill by number hit a process that had got the number since.
    #[tokio::test]
    async fn an_impostor_is_never_signalled() {
        let mut sleeper = Sleeper::start();
        let mut recorded = sleeper.recorded();
        recorded.starttime = recorded.starttime.map(|ticks| ticks - 1);
        let killed = kill_with_grace(&harness(recorded), GRACE).await;
        assert_eq!(killed, Killed::AlreadyGone);
        assert!(!sleeper.is_dead());
    }

    /// coalesce-labs/catalyst#2756: what could not be looked at was taken for dead.
    #[tokio::test]
    async fn an_unverifiable_process_is_never_signalled() {
        let mut sleeper = Sleeper::start();
        let mut recorded = sleeper.recorded();
        recorded.starttime = None;
        let killed = kill_with_grace(&harness(recorded), GRACE).await;
        assert!(matches!(killed, Killed::Unconfirmed(_)), "{killed:?}");
        assert!(!sleeper.is_dead());
    }

    /// What stands for the shim here ends by the signal, and has killed nobody.
    #[tokio::test]
    async fn what_a_shim_left_that_ended_otherwise_than_it_should_is_killed() {
        let name = "POINTSMAN_TEST_SHIM_ENDED";
        let value = std::process::id().to_string();
        let mut shim = Sleeper::start();
        let mut left = Sleeper::start_with(name, &value);
        let processes = Processes {
            place: Place::here(),
            shim: Some(shim.recorded()),
            harness: None,
            cookie: Some(Cookie::new(name, &value)),
        };
        let killed = kill_with_grace(&processes, GRACE).await;
        assert_eq!(killed, Killed::Confirmed);
        assert!(shim.is_dead());
        assert!(left.is_dead());
    }

    #[tokio::test]
    async fn a_zombie_does_not_count_as_killed() {
        let mut sleeper = Sleeper::start();
        let recorded = sleeper.recorded();
        sleeper.kill_without_reaping();
        let killed = kill_with_grace(&harness(recorded), GRACE).await;
        assert_eq!(killed, Killed::AlreadyGone);
    }
}
