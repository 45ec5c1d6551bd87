//! What every process of a session carries, wherever it went: one variable of its environment.
//!
//! A process that leaves its session, its group and its parents keeps its environment, unless it takes
//! care not to. The shim finds its descendants without this; where the shim is dead, nothing else leads to
//! them.

use std::{fs, io};

use super::pidfd::Pidfd;

/// The variable, as `/proc/PID/environ` has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Cookie(String);

impl Cookie {
    pub(crate) fn new(name: &str, value: &str) -> Self {
        Self(format!("{name}={value}"))
    }

    /// The living processes that carry it, but for init and this process. Those of other users, whose
    /// environment can't be read, are none.
    pub(super) fn carriers(&self) -> io::Result<Vec<Pidfd>> {
        let mut carriers = Vec::new();
        for entry in fs::read_dir("/proc")? {
            let Some(pid) = entry?
                .file_name()
                .to_str()
                .and_then(|name| name.parse().ok())
            else {
                continue;
            };
            if !self.is_carried_by(pid) {
                continue;
            }
            let Ok(pidfd) = Pidfd::open(pid) else {
                continue;
            };
            // Read again with the descriptor open, and then seen alive: so it is the same process.
            if self.is_carried_by(pid) && pidfd.has_exited() == Ok(false) {
                carriers.push(pidfd);
            }
        }
        Ok(carriers)
    }

    fn is_carried_by(&self, pid: u32) -> bool {
        fs::read(format!("/proc/{pid}/environ")).is_ok_and(|environment| self.is_in(&environment))
    }

    fn is_in(&self, environment: &[u8]) -> bool {
        environment
            .split(|byte| *byte == 0)
            .any(|variable| variable == self.0.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_and_value_must_be_the_same() {
        let cookie = Cookie::new("NAME", "1");
        assert!(cookie.is_in(b"A=b\0NAME=1\0C=d\0"));
        assert!(cookie.is_in(b"NAME=1"));
        for other in [
            &b""[..],
            b"NAME=2\0",
            b"NAME=12\0",
            b"XNAME=1\0",
            b"A=NAME=1\0",
        ] {
            assert!(!cookie.is_in(other), "{other:?}");
        }
    }
}
