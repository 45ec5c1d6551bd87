//! A descriptor that stands for one process and never for its successor.

#![expect(unsafe_code, reason = "pidfd calls have no safe wrapper in nix")]

use std::{
    io,
    os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd},
};

use nix::{
    errno::Errno,
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::signal::Signal,
};
use tokio::io::{Interest, unix::AsyncFd};

/// Send to the whole process group of the process (Linux 6.9 and later).
const PIDFD_SIGNAL_PROCESS_GROUP: libc::c_uint = 4;

/// What `fstatfs` calls the file system of pidfds (Linux 6.9 and later). Only there are inodes unique.
const PIDFS_MAGIC: i64 = 0x5049_4446;

/// One process, alive or not.
#[derive(Debug)]
pub(crate) struct Pidfd {
    fd: OwnedFd,
    pid: libc::pid_t,
}

impl Pidfd {
    /// Opens the process that has this number *now*. Who that is must be compared afterwards. Never
    /// init and never this process, whatever a record says: no harness is either.
    pub(crate) fn open(pid: u32) -> Result<Self, Errno> {
        let pid = libc::pid_t::try_from(pid).map_err(|_| Errno::EINVAL)?;
        if pid <= 1 || pid == nix::unistd::getpid().as_raw() {
            return Err(Errno::EINVAL);
        }
        // SAFETY: pidfd_open takes two integers and touches no memory of ours.
        let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
        let fd = Errno::result(fd)?;
        let fd = i32::try_from(fd).map_err(|_| Errno::EBADF)?;
        // SAFETY: the call succeeded, so this is a new descriptor that nobody else owns.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(Self { fd, pid })
    }

    /// The number, for messages.
    pub(crate) fn pid(&self) -> libc::pid_t {
        self.pid
    }

    /// Inode of the process in pidfs; `None` on kernels where it says nothing.
    pub(crate) fn inode(&self) -> Option<u64> {
        let kind = nix::sys::statfs::fstatfs(self.fd.as_fd()).ok()?;
        if kind.filesystem_type().0 != PIDFS_MAGIC {
            return None;
        }
        nix::sys::stat::fstat(self.fd.as_fd())
            .ok()
            .map(|stat| stat.st_ino)
    }

    /// Whether the process has exited, reaped or not. State `Z` of its leader thread would not say so.
    pub(crate) fn has_exited(&self) -> Result<bool, Errno> {
        let mut fds = [PollFd::new(self.fd.as_fd(), PollFlags::POLLIN)];
        loop {
            match poll(&mut fds, PollTimeout::ZERO) {
                Ok(ready) => return Ok(ready > 0),
                Err(Errno::EINTR) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Completes when the process has exited.
    pub(crate) async fn exited(&self) -> io::Result<()> {
        // SAFETY: the descriptor is borrowed from `self`, which outlives this future.
        let fd = unsafe { AsyncFd::register_with_interest(self.fd.as_fd(), Interest::READABLE) }?;
        fd.readable().await?.retain_ready();
        Ok(())
    }

    /// Signals the process.
    pub(crate) fn signal(&self, signal: Signal) -> Result<(), Errno> {
        self.send(signal, 0)
    }

    /// Signals the process group that the process leads, its members only, whether the leader lives
    /// or not. Where the kernel can't, the leader must be alive, since its life keeps the number.
    pub(crate) fn signal_group(&self, signal: Signal) -> Result<(), Errno> {
        match self.send(signal, PIDFD_SIGNAL_PROCESS_GROUP) {
            Err(Errno::EINVAL) if !self.has_exited()? => {
                nix::sys::signal::killpg(nix::unistd::Pid::from_raw(self.pid), signal)
            }
            result => result,
        }
    }

    fn send(&self, signal: Signal, flags: libc::c_uint) -> Result<(), Errno> {
        // SAFETY: the descriptor is open for as long as `self`, and a null siginfo is allowed.
        let result = unsafe {
            libc::syscall(
                libc::SYS_pidfd_send_signal,
                self.fd.as_raw_fd(),
                signal as libc::c_int,
                std::ptr::null::<libc::siginfo_t>(),
                flags,
            )
        };
        Errno::result(result).map(drop)
    }
}
