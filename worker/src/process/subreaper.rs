//! The parent of everything that a harness starts.
//!
//! A child subreaper inherits every orphan below it, so that `waitpid` saying "no child" proves that
//! nothing of the session is left, whatever sessions, groups or daemons it made. Children that this
//! process has not reaped are its own, and so are their numbers: signals go by number here, and only
//! here. Used by the shim alone; a process that runs other children must never wait for all of them.

#![expect(unsafe_code, reason = "waitpid beyond what nix can decode, and signal")]

use std::{
    fs::{self, File},
    io,
    os::fd::{AsFd, OwnedFd},
    time::Duration,
};

use nix::{
    errno::Errno,
    fcntl::{FcntlArg, fcntl},
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::{
        prctl,
        resource::{Resource, setrlimit},
        signal::{SigHandler, SigSet, Signal, kill, killpg, signal},
        signalfd::{SfdFlags, SignalFd},
    },
    unistd::{self, Pid},
};
use serde::{Deserialize, Serialize};

use super::{child::complain, stat::Stat};

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Exit {
    /// By itself, with this status.
    Exited(i32),
    /// By the signal of this number.
    Signaled(i32),
}

/// What one look for ended children found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reaped {
    Child(Pid, Exit),
    /// There are children, and all of them live.
    NoneEnded,
    /// No child is left. This is a proof.
    NoneLeft,
}

/// Makes this process the subreaper of a session of its own, without core dumps.
pub(crate) fn become_subreaper() -> nix::Result<()> {
    unistd::setsid()?;
    prctl::set_child_subreaper(true)?;
    setrlimit(Resource::RLIMIT_CORE, 0, 0)?;
    // The name of the file that was run says nothing: it is a link.
    prctl::set_name(c"pointsman-shim")?;
    // SAFETY: the default action runs no code of ours. An inherited "ignore" would make the kernel
    // reap children by itself, and their status would be lost.
    unsafe { signal(Signal::SIGCHLD, SigHandler::SigDfl) }?;
    Ok(())
}

/// Moves the descriptor that was inherited as standard input out of the harness's reach, and puts
/// /dev/null there.
pub(crate) fn take_stdin() -> io::Result<OwnedFd> {
    let taken = unistd::dup(io::stdin().as_fd())?;
    fcntl(&taken, FcntlArg::F_SETFD(nix::fcntl::FdFlag::FD_CLOEXEC))?;
    unistd::dup2_stdin(File::open("/dev/null")?)?;
    Ok(taken)
}

/// Closes the pipe that was inherited as standard output: /dev/null takes its place.
pub(crate) fn close_stdout() -> io::Result<()> {
    let null = File::options().write(true).open("/dev/null")?;
    Ok(unistd::dup2_stdout(null)?)
}

/// Signals that arrive as something to wait for, and never in the middle of something else.
pub(crate) struct Signals(SignalFd);

impl Signals {
    /// Takes SIGTERM, SIGINT and SIGHUP, which ask to stop, and SIGCHLD.
    pub(crate) fn take() -> nix::Result<Self> {
        let mut set = SigSet::empty();
        for signal in [
            Signal::SIGTERM,
            Signal::SIGINT,
            Signal::SIGHUP,
            Signal::SIGCHLD,
        ] {
            set.add(signal);
        }
        set.thread_block()?;
        let flags = SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK;
        Ok(Self(SignalFd::with_flags(&set, flags)?))
    }

    /// Waits for a signal up to `patience`, and returns whether one asks to stop.
    pub(crate) fn wait(&self, patience: Duration) -> nix::Result<bool> {
        let patience = PollTimeout::try_from(patience).unwrap_or(PollTimeout::MAX);
        let mut fds = [PollFd::new(self.0.as_fd(), PollFlags::POLLIN)];
        match poll(&mut fds, patience) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(error) => return Err(error),
        }
        let mut is_stop = false;
        while let Some(info) = self.0.read_signal()? {
            is_stop |= i32::try_from(info.ssi_signo) != Ok(Signal::SIGCHLD as i32);
        }
        Ok(is_stop)
    }
}

/// Reaps one ended child, if there is one.
pub(crate) fn reap() -> nix::Result<Reaped> {
    let mut status = 0;
    // SAFETY: `status` outlives the call. nix's wrapper fails on real-time signals, after reaping.
    let pid = unsafe { libc::waitpid(-1, &raw mut status, libc::WNOHANG) };
    match Errno::result(pid) {
        Ok(0) => Ok(Reaped::NoneEnded),
        Ok(pid) if libc::WIFSIGNALED(status) => Ok(Reaped::Child(
            Pid::from_raw(pid),
            Exit::Signaled(libc::WTERMSIG(status)),
        )),
        Ok(pid) => Ok(Reaped::Child(
            Pid::from_raw(pid),
            Exit::Exited(libc::WEXITSTATUS(status)),
        )),
        Err(Errno::ECHILD) => Ok(Reaped::NoneLeft),
        Err(error) => Err(error),
    }
}

/// Signals the group that `leader`, a child that was not reaped, leads. One that may not be signalled
/// is passed over, and the log says so.
pub(crate) fn signal_group(leader: Pid, signal: Signal) -> nix::Result<()> {
    let result = killpg(leader, signal);
    if let Err(error @ Errno::EPERM) = result {
        complain(&format!("send {signal} to the harness"), &error.into());
    }
    pass_over(result)
}

/// Signals each child of this process but `except`. One that may not be signalled is passed over.
pub(crate) fn signal_children(signal: Signal, except: Option<Pid>) -> io::Result<()> {
    for child in children()?
        .into_iter()
        .filter(|child| Some(*child) != except)
    {
        pass_over(kill(child, signal))?;
    }
    Ok(())
}

/// Gone is what was wanted. What runs as another user by now, as programs with the setuid bit do, must
/// not keep the shim from watching on.
fn pass_over(result: nix::Result<()>) -> nix::Result<()> {
    match result {
        Err(Errno::ESRCH | Errno::EPERM) => Ok(()),
        other => other,
    }
}

/// All children of this process, adopted ones too. By a look at every process, because
/// /proc/PID/task/TID/children is not in every kernel.
fn children() -> io::Result<Vec<Pid>> {
    let me = std::process::id();
    let mut children = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let name = entry?.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        // One that ended meanwhile has no stat.
        if let Ok(stat) = Stat::of(pid)
            && stat.parent == me
            && let Ok(pid) = i32::try_from(pid)
        {
            children.push(Pid::from_raw(pid));
        }
    }
    Ok(children)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_gone_or_another_users_is_passed_over_and_other_errors_are_not() {
        for fine in [Ok(()), Err(Errno::ESRCH), Err(Errno::EPERM)] {
            assert_eq!(pass_over(fine), Ok(()));
        }
        assert_eq!(pass_over(Err(Errno::EINVAL)), Err(Errno::EINVAL));
    }
}
