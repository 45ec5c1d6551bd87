//! The processes of one world, told by its directory: it is in the command line, in the environment or
//! in the working directory of each, and its name is nobody else's.

use std::{
    fs,
    os::unix::ffi::OsStrExt as _,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use super::condition::pause;

/// How long killed processes may take to vanish.
const VANISHING: Duration = Duration::from_secs(10);

/// A process of a world.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    pub pid: u32,
    pub starttime: u64,
    pub command: String,
}

/// All processes of the world in `directory`, but for this one.
pub fn processes_in(directory: &Path) -> Vec<Found> {
    let me = std::process::id();
    let pids = fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
    pids.filter(|pid| *pid != me)
        .filter_map(|pid| look(pid, directory))
        .collect()
}

fn look(pid: u32, directory: &Path) -> Option<Found> {
    let place = PathBuf::from(format!("/proc/{pid}"));
    let starttime = starttime(pid)?;
    let command = fs::read(place.join("cmdline")).unwrap_or_default();
    let environment = fs::read(place.join("environ")).unwrap_or_default();
    let is_there = fs::read_link(place.join("cwd")).is_ok_and(|cwd| cwd.starts_with(directory));
    let needle = directory.as_os_str().as_bytes();
    if !is_there && !holds(&command, needle) && !holds(&environment, needle) {
        return None;
    }
    let command = String::from_utf8_lossy(&command).replace('\0', " ");
    Some(Found {
        pid,
        starttime,
        command,
    })
}

fn holds(text: &[u8], needle: &[u8]) -> bool {
    text.windows(needle.len()).any(|window| window == needle)
}

/// Kills all of them until none is left, and returns those that would not go.
pub(super) fn kill_all(directory: &Path) -> Vec<Found> {
    let deadline = Instant::now() + VANISHING;
    loop {
        let left = processes_in(directory);
        if left.is_empty() || Instant::now() > deadline {
            return left;
        }
        for found in &left {
            // Looked at again right before the signal, so that no successor to its number is hit.
            let is_same = look(found.pid, directory).is_some_and(|now| now == *found);
            if is_same && let Ok(pid) = i32::try_from(found.pid) {
                let _delivered = kill(Pid::from_raw(pid), Signal::SIGKILL);
            }
        }
        pause();
    }
}

/// State and start time in `/proc/PID/stat`: fields 3 and 22.
fn stat(pid: u32) -> Option<(char, u64)> {
    let text = fs::read(format!("/proc/{pid}/stat")).ok()?;
    let text = String::from_utf8_lossy(&text);
    let mut fields = text.rsplit_once(')')?.1.split_whitespace();
    let state = fields.next()?.chars().next()?;
    Some((state, fields.nth(18)?.parse().ok()?))
}

/// Field 22 of `/proc/PID/stat`; `None` where there is no such process, or nothing but its zombie.
pub fn starttime(pid: u32) -> Option<u64> {
    let (state, starttime) = stat(pid)?;
    (state != 'Z' && state != 'X').then_some(starttime)
}

/// Whether this very process still runs.
pub fn is_alive(pid: u32, at: u64) -> bool {
    starttime(pid) == Some(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_alive_and_its_number_at_another_time_is_not() {
        let pid = std::process::id();
        let at = starttime(pid).unwrap();
        assert!(is_alive(pid, at));
        assert!(!is_alive(pid, at + 1));
    }

    #[tokio::test]
    async fn a_process_in_the_directory_is_found_and_killed() {
        let directory = tempfile::tempdir().unwrap();
        let mut child = tokio::process::Command::new("sleep")
            .arg("600")
            .current_dir(directory.path())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let found = processes_in(directory.path());
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(Some(found[0].pid), child.id());
        assert_eq!(kill_all(directory.path()), []);
        assert!(!child.wait().await.unwrap().success());
    }
}
