//! `/proc/PID/stat`, by the crate `procfs`.
//!
//! The second field is the command's name in parentheses: up to 15 bytes of the process's own choice,
//! which may hold spaces, parentheses, line ends and broken UTF-8. The tests hold the crate to splitting
//! at the last `)`.

use std::{fs, io};

use procfs::FromRead as _;

/// The fields that are used here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stat {
    /// Field 4.
    pub(crate) parent: u32,
    /// Field 22: when the process was started, in clock ticks since boot. Steps of 10 ms.
    pub(crate) starttime: u64,
}

impl Stat {
    /// Reads the process with that number.
    pub(crate) fn of(pid: u32) -> io::Result<Self> {
        let bytes = fs::read(format!("/proc/{pid}/stat"))?;
        Self::parse(&bytes).ok_or_else(|| {
            io::Error::new(io::ErrorKind::InvalidData, "stat of a process is malformed")
        })
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        let stat = procfs::process::Stat::from_read(bytes).ok()?;
        Some(Self {
            parent: u32::try_from(stat.ppid).ok()?,
            starttime: stat.starttime,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(name: &[u8]) -> Vec<u8> {
        let mut line = b"4242 (".to_vec();
        line.extend(name);
        line.extend(b") S 17 4242 4242 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 987654 1000 20 184 1 1 0 0 0 0 0 0 0 0 0 0 17 0 0 0");
        line
    }

    #[test]
    fn a_name_can_not_shift_the_fields() {
        let names: [&[u8]; 6] = [
            b"sh",
            b"a) R 1 1 1 (b",
            b") R 1",
            b"with space",
            b"\n)",
            b"\xff\xfe",
        ];
        for name in names {
            let stat = Stat::parse(&line(name)).unwrap();
            let expected = Stat {
                parent: 17,
                starttime: 987_654,
            };
            assert_eq!(stat, expected, "{}", name.escape_ascii());
        }
    }

    #[test]
    fn a_torn_line_is_an_error() {
        let whole = line(b"sh");
        for cut in [0, 5, 8, 20, 60] {
            assert_eq!(Stat::parse(&whole[..cut]), None, "{cut}");
        }
    }

    #[test]
    fn this_process_is_read() {
        let stat = Stat::of(std::process::id()).unwrap();
        assert!(stat.starttime > 0);
        assert_eq!(stat.parent, std::os::unix::process::parent_id());
    }
}
