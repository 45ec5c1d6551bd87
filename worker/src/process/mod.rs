//! Processes: who they are, how they are started behind a gate, and how they are ended.
//!
//! The only place that talks to the kernel about processes, and the only one with `unsafe`. A pid is a
//! number that the kernel hands out again, so it never identifies anybody: identity is pid, start time,
//! boot and namespaces together, it is three-valued, and a signal goes through a descriptor of the
//! very process that was compared. Our own children that nobody has reaped yet are the exception:
//! their numbers can't be reused.
//!
//! What a session is, and when to end it, is not known here.

pub(crate) mod child;
pub(crate) mod clock;
pub(crate) mod cookie;
pub(crate) mod disk;
pub(crate) mod host;
pub(crate) mod identity;
pub(crate) mod kill;
pub(crate) mod open_flags;
pub(crate) mod pidfd;
pub(crate) mod stat;
pub(crate) mod subreaper;

#[cfg(test)]
pub(crate) mod testing;

pub(crate) use nix::sys::signal::Signal;
