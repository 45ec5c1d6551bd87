//! Whether a recorded process is still there, with three answers.
//!
//! The order matters: the descriptor first, the comparison second, so that what was compared is what
//! gets signalled. *Unverifiable* is never a licence to signal, and never proof of death.

use std::io;

use nix::errno::Errno;
use serde::{Deserialize, Serialize};

use super::{host::Place, pidfd::Pidfd, stat::Stat};

/// A process as it was when it was written down.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Recorded {
    pub(crate) pid: u32,
    /// Field 22 of its stat; unset in records that don't have it.
    pub(crate) starttime: Option<u64>,
    /// Its inode in pidfs, where the kernel has that.
    pub(crate) pidfd_inode: Option<u64>,
}

impl Recorded {
    /// Writes down a child of ours that has not been reaped, so that its number is its own.
    pub(crate) fn child(pid: u32) -> io::Result<Self> {
        let starttime = Stat::of(pid)?.starttime;
        Ok(Self {
            pid,
            starttime: Some(starttime),
            pidfd_inode: Pidfd::open(pid).ok().and_then(|pidfd| pidfd.inode()),
        })
    }
}

/// What became of a recorded process.
#[derive(Debug)]
pub(crate) enum Identity {
    /// The very one, and it was alive when it was compared. The only one that may be signalled.
    Same(Pidfd),
    /// Gone: exited, its number reused, another boot, another namespace.
    Other,
    /// It can't be told, for the reason given.
    Unverifiable(String),
}

/// Compares what was recorded, at a place that was recorded with it, with what is there now.
pub(crate) fn identify(recorded: &Recorded, then: &Place, now: &Place) -> Identity {
    let starttime = match comparable(recorded, then, now) {
        Comparable::Yes(starttime) => starttime,
        Comparable::Elsewhere => return Identity::Other,
        Comparable::No(reason) => return Identity::Unverifiable(reason.to_owned()),
    };
    let pidfd = match Pidfd::open(recorded.pid) {
        Ok(pidfd) => pidfd,
        // ENOENT and EINVAL: the number is a thread of another process by now, this process's own,
        // or never was a pid.
        Err(Errno::ESRCH | Errno::ENOENT | Errno::EINVAL) => return Identity::Other,
        Err(error) => return Identity::Unverifiable(format!("pidfd_open: {error}")),
    };
    let stat = Stat::of(recorded.pid);
    // Read after the stat: if the process still lives, then the stat was its own.
    let has_exited = pidfd.has_exited();
    match has_start_time(starttime, stat, has_exited) {
        Ok(true) if inodes_differ(recorded.pidfd_inode, pidfd.inode()) => Identity::Other,
        Ok(true) => Identity::Same(pidfd),
        Ok(false) => Identity::Other,
        Err(reason) => Identity::Unverifiable(reason),
    }
}

/// Whether a process lives and was started then, or why that can't be told.
fn has_start_time(
    starttime: u64,
    stat: io::Result<Stat>,
    has_exited: Result<bool, Errno>,
) -> Result<bool, String> {
    match (has_exited, stat) {
        (Ok(true), _) => Ok(false),
        (Ok(false), Ok(stat)) => Ok(stat.starttime == starttime),
        (Ok(false), Err(error)) => Err(format!("stat of a living process: {error}")),
        (Err(error), _) => Err(format!("poll of the pidfd: {error}")),
    }
}

enum Comparable {
    Yes(u64),
    Elsewhere,
    No(&'static str),
}

fn comparable(recorded: &Recorded, then: &Place, now: &Place) -> Comparable {
    let (Some(boot_then), Some(boot_now)) = (&then.boot_id, &now.boot_id) else {
        return Comparable::No("no boot id");
    };
    if boot_then != boot_now
        || inodes_differ(then.pid_ns, now.pid_ns)
        || inodes_differ(then.ns_init_starttime, now.ns_init_starttime)
    {
        return Comparable::Elsewhere;
    }
    if inodes_differ(then.time_ns, now.time_ns) {
        return Comparable::No("recorded in another time namespace");
    }
    match recorded.starttime {
        Some(starttime) => Comparable::Yes(starttime),
        None => Comparable::No("no start time recorded"),
    }
}

/// Whether both are known and differ.
fn inodes_differ(then: Option<u64>, now: Option<u64>) -> bool {
    matches!((then, now), (Some(then), Some(now)) if then != now)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::testing::Sleeper;

    #[test]
    fn the_same_process_is_recognised() {
        let sleeper = Sleeper::start();
        let here = Place::here();
        let identity = identify(&sleeper.recorded(), &here, &here);
        assert!(matches!(identity, Identity::Same(_)), "{identity:?}");
    }

    #[test]
    fn a_process_with_another_start_time_is_an_impostor() {
        let sleeper = Sleeper::start();
        let here = Place::here();
        let mut recorded = sleeper.recorded();
        recorded.starttime = recorded.starttime.map(|ticks| ticks - 1);
        let identity = identify(&recorded, &here, &here);
        assert!(matches!(identity, Identity::Other), "{identity:?}");
    }

    #[test]
    fn a_process_of_the_same_tick_is_told_apart_by_its_inode() {
        let sleeper = Sleeper::start();
        let here = Place::here();
        let mut recorded = sleeper.recorded();
        let Some(inode) = recorded.pidfd_inode else {
            return; // This kernel has no pidfs.
        };
        recorded.pidfd_inode = Some(inode + 1);
        let identity = identify(&recorded, &here, &here);
        assert!(matches!(identity, Identity::Other), "{identity:?}");
    }

    #[test]
    fn a_zombie_is_gone() {
        let mut sleeper = Sleeper::start();
        let recorded = sleeper.recorded();
        let here = Place::here();
        sleeper.kill_without_reaping();
        let identity = identify(&recorded, &here, &here);
        assert!(matches!(identity, Identity::Other), "{identity:?}");
    }

    #[test]
    fn what_was_not_recorded_makes_it_unverifiable() {
        let sleeper = Sleeper::start();
        let here = Place::here();
        let mut recorded = sleeper.recorded();
        let no_boot = Place {
            boot_id: None,
            ..here.clone()
        };
        let identity = identify(&recorded, &no_boot, &here);
        assert!(
            matches!(identity, Identity::Unverifiable(_)),
            "{identity:?}"
        );
        recorded.starttime = None;
        let identity = identify(&recorded, &here, &here);
        assert!(
            matches!(identity, Identity::Unverifiable(_)),
            "{identity:?}"
        );
    }

    /// coalesce-labs/catalyst#2756: what could not be looked at was taken for dead.
    #[test]
    fn what_can_not_be_read_is_neither_the_same_nor_dead() {
        let stat = Stat {
            parent: 1,
            starttime: 7,
        };
        assert_eq!(has_start_time(7, Ok(stat), Ok(false)), Ok(true));
        assert_eq!(has_start_time(8, Ok(stat), Ok(false)), Ok(false));
        assert_eq!(has_start_time(7, Ok(stat), Ok(true)), Ok(false));
        for kind in [io::ErrorKind::PermissionDenied, io::ErrorKind::NotFound] {
            assert!(has_start_time(7, Err(kind.into()), Ok(false)).is_err());
        }
        assert!(has_start_time(7, Ok(stat), Err(Errno::EPERM)).is_err());
    }

    #[test]
    fn another_boot_or_namespace_is_another_process() {
        let sleeper = Sleeper::start();
        let recorded = sleeper.recorded();
        let here = Place::here();
        let elsewhere = [
            Place {
                boot_id: Some("another".to_owned()),
                ..here.clone()
            },
            Place {
                pid_ns: here.pid_ns.map(|inode| inode + 1),
                ..here.clone()
            },
            Place {
                ns_init_starttime: here.ns_init_starttime.map(|ticks| ticks + 1),
                ..here.clone()
            },
        ];
        for then in elsewhere {
            let identity = identify(&recorded, &then, &here);
            assert!(matches!(identity, Identity::Other), "{then:?}");
        }
    }

    #[test]
    fn another_time_namespace_shifts_start_times() {
        let sleeper = Sleeper::start();
        let here = Place::here();
        let then = Place {
            time_ns: here.time_ns.map(|inode| inode + 1),
            ..here.clone()
        };
        let identity = identify(&sleeper.recorded(), &then, &here);
        assert!(
            matches!(identity, Identity::Unverifiable(_)),
            "{identity:?}"
        );
    }

    #[test]
    fn init_and_this_process_are_never_opened() {
        let me = std::process::id();
        assert_eq!(Pidfd::open(me).unwrap_err(), Errno::EINVAL);
        let here = Place::here();
        let identity = identify(&Recorded::child(me).unwrap(), &here, &here);
        assert!(matches!(identity, Identity::Other), "{identity:?}");
        assert_eq!(Pidfd::open(1).unwrap_err(), Errno::EINVAL);
        assert_eq!(Pidfd::open(0).unwrap_err(), Errno::EINVAL);
    }
}
