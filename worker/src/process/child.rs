//! A child that waits behind a gate before it becomes the harness.
//!
//! Between fork and exec the parent writes down who the child is. The gate is a pipe: a byte opens it,
//! and its end, which comes when the parent dies, ends the child. So no harness ever runs unrecorded.
//! Used by the shim alone, which has one thread: that is what makes the fork safe.

#![expect(unsafe_code, reason = "fork, and _exit in the child")]

use std::{
    ffi::CString,
    fs::{self, File},
    io::{self, Write as _},
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::PathBuf,
};

use nix::{
    fcntl::{FcntlArg, FdFlag, OFlag, fcntl},
    sys::signal::{SigHandler, SigSet, Signal, signal},
    unistd::{self, ForkResult, Pid},
};

/// Exit status of a child whose gate never opened.
pub(crate) const GATE_CLOSED: i32 = 125;
/// Exit status of a child whose directory or descriptors could not be set up.
const NOT_SET_UP: i32 = 126;
/// Exit status of a child whose program could not be run, as shells have it.
const NOT_RUN: i32 = 127;

/// What the child becomes. It keeps the environment of its parent.
pub(crate) struct Program {
    /// Looked up in PATH where it has no slash.
    pub(crate) name: CString,
    /// Arguments, the first of which is the program's own name.
    pub(crate) arguments: Vec<CString>,
    pub(crate) directory: PathBuf,
    pub(crate) stdin: File,
}

/// A child behind its gate. Dropping it keeps the gate shut for good.
pub(crate) struct Gated {
    pid: Pid,
    gate: OwnedFd,
}

impl Gated {
    /// Its number; stable until it is reaped.
    pub(crate) fn pid(&self) -> Pid {
        self.pid
    }

    /// Lets the child go on to its program.
    pub(crate) fn release(self) -> nix::Result<()> {
        unistd::write(&self.gate, b"g").map(drop)
    }
}

/// Forks a child that will run `program`, in a session and process group of its own, with standard
/// output and error of this process's standard error. Returns when it is at its gate.
///
/// Must be called by a process with one thread.
pub(crate) fn fork_gated(program: &Program) -> io::Result<Gated> {
    let (waiting, gate) = unistd::pipe2(OFlag::O_CLOEXEC)?;
    let (arrival, arrived) = unistd::pipe2(OFlag::O_CLOEXEC)?;
    // SAFETY: the process has one thread, so that no lock can be held in the child for ever.
    match unsafe { unistd::fork() }? {
        ForkResult::Parent { child } => {
            drop(arrived);
            // From here on it leads its group: a signal to the group can't miss it.
            if read_byte(&arrival)? {
                Ok(Gated { pid: child, gate })
            } else {
                Err(io::Error::other("the child could not be set up"))
            }
        }
        ForkResult::Child => {
            // While the child had this end too, the gate could never close.
            drop(gate);
            let status = become_program(program, arrived, &waiting);
            // SAFETY: ends the child at once, without running what belongs to the parent.
            unsafe { libc::_exit(status) }
        }
    }
}

/// Returns only where the program could not be run: with the exit status that says so.
fn become_program(program: &Program, arrived: OwnedFd, gate: &OwnedFd) -> i32 {
    if let Err(error) = set_up(program, arrived) {
        complain("set up the harness", &error);
        return NOT_SET_UP;
    }
    if !matches!(read_byte(gate), Ok(true)) {
        return GATE_CLOSED;
    }
    let Err(error) = unistd::execvp(&program.name, &program.arguments);
    complain(
        &format!("run {}", program.name.to_string_lossy()),
        &error.into(),
    );
    NOT_RUN
}

fn set_up(program: &Program, arrived: OwnedFd) -> io::Result<()> {
    unistd::setsid()?;
    unistd::dup2_stdin(program.stdin.as_fd())?;
    unistd::dup2_stdout(io::stderr().as_fd())?;
    close_others_on_exec()?;
    std::env::set_current_dir(&program.directory)?;
    for number in Signal::iterator() {
        if !matches!(number, Signal::SIGKILL | Signal::SIGSTOP) {
            // SAFETY: the default action runs no code of ours.
            unsafe { signal(number, SigHandler::SigDfl) }?;
        }
    }
    SigSet::empty().thread_set_mask()?;
    unistd::write(&arrived, b"a")?;
    Ok(())
}

/// Whoever started the agent may have left it descriptors; the harness gets none of them.
fn close_others_on_exec() -> io::Result<()> {
    for entry in fs::read_dir("/proc/self/fd")? {
        let name = entry?.file_name();
        let fd = name.to_str().and_then(|name| name.parse::<i32>().ok());
        if let Some(fd) = fd.filter(|fd| *fd > libc::STDERR_FILENO) {
            // SAFETY: only a flag is set, and the descriptor was open a moment ago.
            let fd = unsafe { BorrowedFd::borrow_raw(fd) };
            fcntl(fd, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC))?;
        }
    }
    Ok(())
}

/// Whether a byte comes, rather than the pipe's end.
fn read_byte(pipe: &OwnedFd) -> nix::Result<bool> {
    loop {
        match unistd::read(pipe, &mut [0]) {
            Ok(n) => return Ok(n == 1),
            Err(nix::errno::Errno::EINTR) => {}
            Err(error) => return Err(error),
        }
    }
}

/// Tells the session's log, since nobody else is left to tell.
pub(super) fn complain(what: &str, error: &io::Error) {
    let line = format!("pointsman: failed to {what}: {error}\n");
    // One write, since others write there too. Where even this fails, the exit status remains.
    drop(io::stderr().write_all(line.as_bytes()));
}
