//! What all of these tests need: conditions with a deadline, and looks at processes.

use std::{
    fs,
    path::Path,
    time::{Duration, Instant},
};

/// Longest that any condition may take; far more than it should, since test machines are busy.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// Returns what `look` finds, once it finds something.
#[track_caller]
pub(crate) fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "never came: {what}");
        pause();
    }
}

/// As `eventually`, in a runtime whose other tasks go on.
#[track_caller]
pub(crate) fn eventually_async<T>(
    what: &str,
    mut look: impl FnMut() -> Option<T>,
) -> impl Future<Output = T> {
    let what = what.to_owned();
    async move {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(found) = look() {
                return found;
            }
            assert!(Instant::now() < deadline, "never came: {what}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "between two looks at a condition"
)]
fn pause() {
    std::thread::sleep(Duration::from_millis(5));
}

/// State, parent and start time in `/proc/PID/stat`. The names of the programs here are plain.
pub(crate) fn stat(pid: u32) -> Option<(char, u32, u64)> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let fields: Vec<_> = text.rsplit_once(')')?.1.split_whitespace().collect();
    let state = fields[0].chars().next()?;
    Some((state, fields[1].parse().ok()?, fields[19].parse().ok()?))
}

/// Whether no such process runs any more; a zombie doesn't run.
pub(crate) fn is_dead(pid: u32) -> bool {
    stat(pid).is_none_or(|(state, ..)| state == 'Z')
}

/// The number in a file, once somebody wrote it there, with a line end behind it.
pub(crate) fn number_in(path: &Path) -> Option<u32> {
    let text = fs::read_to_string(path).ok()?;
    text.strip_suffix('\n')?.parse().ok()
}

/// Whether somebody holds the lock on a file.
pub(crate) fn is_locked(path: &Path) -> bool {
    let file = fs::File::open(path).unwrap();
    matches!(file.try_lock(), Err(fs::TryLockError::WouldBlock))
}

pub(crate) fn signal(pid: u32, signal: nix::sys::signal::Signal) {
    let pid = nix::unistd::Pid::from_raw(pid.try_into().unwrap());
    nix::sys::signal::kill(pid, signal).unwrap();
}

pub(crate) fn json(path: &Path) -> Option<serde_json::Value> {
    Some(serde_json::from_slice(&fs::read(path).ok()?).unwrap())
}
