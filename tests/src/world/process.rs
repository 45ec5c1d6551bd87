//! A master or a worker as a child process of the test.

use std::{
    ffi::OsString,
    fs,
    fs::File,
    path::{Path, PathBuf},
    process::{ExitStatus, Stdio},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use tokio::process::{Child, Command};

use super::condition::PATIENCE;

/// How a process ended.
pub type Ended = ExitStatus;

/// Variables of ours that would configure the children too.
const OWN_PREFIX: &[u8] = b"POINTSMAN_";

/// A child of the test. Signals go to unreaped children alone, whose numbers nobody else can have.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    pid: u32,
}

impl Process {
    /// Runs `program`; what it prints goes to the end of the file `log`.
    pub(super) fn start(
        name: &str,
        program: &Path,
        arguments: &[OsString],
        variables: &[(String, String)],
        log: &Path,
    ) -> Self {
        let log = File::options()
            .create(true)
            .append(true)
            .open(log)
            .expect("open a log file");
        let mut command = command(program, variables);
        let child = command
            .args(arguments)
            .stdout(log.try_clone().expect("share a log file"))
            .stderr(log)
            .spawn()
            .unwrap_or_else(|error| panic!("start {name}: {error}"));
        let pid = child.id().expect("a child that was not waited for");
        Self {
            name: name.to_owned(),
            child,
            pid,
        }
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Sends a signal. A process that has ended is a failure: nobody waited for it.
    pub fn signal(&mut self, signal: Signal) {
        if let Some(status) = self.ended() {
            panic!("{} ended by itself ({status})", self.name);
        }
        self.deliver(signal);
    }

    fn deliver(&self, signal: Signal) {
        if let Some(pid) = self.child.id().and_then(|pid| i32::try_from(pid).ok()) {
            let _delivered = kill(Pid::from_raw(pid), signal);
        }
    }

    /// How it ended; `None` while it runs.
    pub fn ended(&mut self) -> Option<Ended> {
        self.child.try_wait().expect("look after a child")
    }

    /// Waits for its end.
    pub async fn end(&mut self) -> Ended {
        tokio::time::timeout(PATIENCE, self.child.wait())
            .await
            .unwrap_or_else(|_| panic!("{} does not end", self.name))
            .expect("wait for a child")
    }

    /// Kills it, without any chance to clean up, and waits for its end.
    pub async fn kill9(&mut self) {
        self.signal(Signal::SIGKILL);
        self.end().await;
    }

    /// Kills it and does not wait, for the end of a test.
    pub(super) fn kill_at_last(&mut self) {
        if self.child.try_wait().is_ok_and(|ended| ended.is_none()) {
            self.deliver(Signal::SIGKILL);
        }
    }
}

/// A command whose environment has nothing of ours but `variables`.
pub(super) fn command(program: &Path, variables: &[(String, String)]) -> Command {
    let mut command = Command::new(program);
    for (name, _) in std::env::vars_os() {
        if name.as_encoded_bytes().starts_with(OWN_PREFIX) {
            command.env_remove(name);
        }
    }
    command
        .envs(variables.iter().map(|(name, value)| (name, value)))
        // Logs are read by tests.
        .env("NO_COLOR", "1")
        .stdin(Stdio::null())
        .process_group(0)
        .kill_on_drop(true);
    command
}

/// What a process has said so far.
pub(super) fn read_log(path: &Path) -> String {
    String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).into_owned()
}

/// The logs of a directory, in the order of their names.
pub(super) fn logs(directory: &Path) -> Vec<PathBuf> {
    let mut logs: Vec<PathBuf> = fs::read_dir(directory)
        .into_iter()
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|extension| extension == "log"))
        .collect();
    logs.sort();
    logs
}
