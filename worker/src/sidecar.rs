//! The session on disk: its directory, and the sidecar that says who runs in it.
//!
//! The sidecar is what a later agent knows about a session. Every key is optional to the reader,
//! unknown keys are kept when it is written again, and a file that can't be understood is an error
//! for the janitor to quarantine: never a reason to kill.

use std::{
    io,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use crate::{
    assignment::LeaseKey,
    control_file, durable,
    lease::BootTime,
    process::{host::Place, identity::Recorded, kill::Processes},
};

/// The version of the format that this worker reads and writes.
const SCHEMA: u64 = 1;

/// Paths of one session's directory.
#[derive(Debug, Clone)]
pub(crate) struct SessionDir(PathBuf);

impl SessionDir {
    /// The directory at `path`.
    pub(crate) fn new(path: impl Into<PathBuf>) -> Self {
        Self(path.into())
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
    /// Locked (`flock`) from before the shim starts until it has ended.
    pub(crate) fn lock(&self) -> PathBuf {
        self.0.join("lock")
    }
    pub(crate) fn sidecar(&self) -> PathBuf {
        self.0.join("sidecar.json")
    }
    /// What the shim is to run.
    pub(crate) fn launch(&self) -> PathBuf {
        self.0.join("launch.json")
    }
    /// When the shim must begin to stop the harness.
    pub(crate) fn deadline(&self) -> PathBuf {
        self.0.join("deadline")
    }
    /// How the harness ended.
    pub(crate) fn exit_record(&self) -> PathBuf {
        self.0.join("exit.json")
    }
    /// Output of the harness.
    pub(crate) fn log(&self) -> PathBuf {
        self.0.join("log")
    }
    pub(crate) fn prompt(&self) -> PathBuf {
        self.0.join("prompt.md")
    }
    pub(crate) fn result(&self) -> PathBuf {
        self.0.join("result.json")
    }
    pub(crate) fn home(&self) -> PathBuf {
        self.0.join("home")
    }

    /// Writes the deadline for the shim, which reads it each second.
    pub(crate) fn write_deadline(&self, stop_at: BootTime) -> io::Result<()> {
        durable::replace(&self.deadline(), stop_at.to_string().as_bytes())
    }

    /// Reads the deadline. A torn file can't be: it is replaced whole.
    pub(crate) fn read_deadline(&self) -> io::Result<BootTime> {
        let bytes = control_file::read(&self.deadline(), control_file::MAX)?;
        BootTime::parse(&String::from_utf8_lossy(&bytes))
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "deadline is no number"))
    }
}

/// How far a session has come, as far as a later agent must know.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum State {
    /// Nothing has been started.
    Starting,
    /// A child is recorded; it may be behind its gate still, or over.
    Running,
}

/// The sidecar's content.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Sidecar {
    pub(crate) schema: Option<u64>,
    pub(crate) attempt_id: Option<String>,
    pub(crate) lock_fence: Option<u64>,
    pub(crate) nonce: Option<String>,
    pub(crate) state: Option<State>,
    /// Id of the worker.
    pub(crate) worker: Option<String>,
    pub(crate) host: Option<String>,
    /// Where the pids below mean something.
    #[serde(flatten)]
    pub(crate) place: Place,
    pub(crate) shim_pid: Option<u32>,
    pub(crate) shim_starttime: Option<u64>,
    pub(crate) subprocess_pid: Option<u32>,
    /// Field 22 of /proc/PID/stat.
    pub(crate) subprocess_starttime: Option<u64>,
    /// Inode of the subprocess in pidfs, where the kernel has that.
    pub(crate) pidfd_inode: Option<u64>,
    pub(crate) workspace: Option<PathBuf>,
    /// How long the harness may take between TERM and KILL, in milliseconds.
    pub(crate) grace_ms: Option<u64>,
    /// What other versions wrote.
    #[serde(flatten)]
    pub(crate) unknown: serde_json::Map<String, serde_json::Value>,
}

/// Why a sidecar could not be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("read the sidecar")]
    Read(#[source] io::Error),
    #[error("sidecar is torn or no sidecar")]
    Parse(#[source] serde_json::Error),
    #[error("sidecar belongs to another session or version")]
    Foreign,
}

impl Sidecar {
    /// The intent to run `key`: nothing has been started.
    pub(crate) fn intent(key: &LeaseKey) -> Self {
        Self {
            schema: Some(SCHEMA),
            attempt_id: Some(key.attempt_id.to_string()),
            lock_fence: Some(key.fence),
            nonce: Some(key.nonce().to_owned()),
            state: Some(State::Starting),
            ..Self::default()
        }
    }

    /// Reads the sidecar of a session. `None` where there is none.
    pub(crate) fn load(directory: &SessionDir) -> Result<Option<Self>, Error> {
        match control_file::read(&directory.sidecar(), control_file::MAX) {
            Ok(bytes) => Self::parse(&bytes).map(Some),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(Error::Read(error)),
        }
    }

    fn parse(bytes: &[u8]) -> Result<Self, Error> {
        let sidecar: Self = serde_json::from_slice(bytes).map_err(Error::Parse)?;
        if sidecar.schema == Some(SCHEMA) {
            Ok(sidecar)
        } else {
            Err(Error::Foreign)
        }
    }

    /// Checks that the sidecar speaks of `key`.
    pub(crate) fn must_be_of(&self, key: &LeaseKey) -> Result<(), Error> {
        let intent = Self::intent(key);
        let is_same = self.attempt_id == intent.attempt_id
            && self.lock_fence == intent.lock_fence
            && self.nonce == intent.nonce;
        if is_same { Ok(()) } else { Err(Error::Foreign) }
    }

    /// Writes the sidecar; on return it survives a crash of the host.
    pub(crate) fn store(&self, directory: &SessionDir) -> io::Result<()> {
        durable::write(&directory.sidecar(), &serde_json::to_vec_pretty(self)?)
    }

    /// Records who runs, just before the gate opens.
    pub(crate) fn record(&mut self, place: Place, shim: &Recorded, harness: &Recorded) {
        self.state = Some(State::Running);
        self.place = place;
        self.shim_pid = Some(shim.pid);
        self.shim_starttime = shim.starttime;
        self.subprocess_pid = Some(harness.pid);
        self.subprocess_starttime = harness.starttime;
        self.pidfd_inode = harness.pidfd_inode;
    }

    /// The processes that it names.
    pub(crate) fn processes(&self) -> Processes {
        Processes {
            place: self.place.clone(),
            shim: self.shim_pid.map(|pid| Recorded {
                pid,
                starttime: self.shim_starttime,
                pidfd_inode: None,
            }),
            harness: self.subprocess_pid.map(|pid| Recorded {
                pid,
                starttime: self.subprocess_starttime,
                pidfd_inode: self.pidfd_inode,
            }),
            cookie: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use uuid::Uuid;

    use super::*;

    fn key() -> LeaseKey {
        LeaseKey::new(Uuid::from_u128(1), 2, &"ab".repeat(16)).unwrap()
    }

    #[test]
    fn unknown_keys_are_kept_on_rewrite() {
        let directory = tempfile::tempdir().unwrap();
        let session = SessionDir::new(directory.path());
        let mut text: serde_json::Value = serde_json::to_value(Sidecar::intent(&key())).unwrap();
        text["cgroup"] = "/a/b".into();
        fs::write(session.sidecar(), text.to_string()).unwrap();

        let sidecar = Sidecar::load(&session).unwrap().unwrap();
        sidecar.store(&session).unwrap();

        let again: serde_json::Value =
            serde_json::from_slice(&fs::read(session.sidecar()).unwrap()).unwrap();
        assert_eq!(again["cgroup"], "/a/b");
        assert_eq!(again["lock_fence"], 2);
    }

    #[test]
    fn every_key_but_the_schema_is_optional() {
        let sidecar = Sidecar::parse(br#"{"schema": 1}"#).unwrap();
        assert!(sidecar.processes().harness.is_none());
        assert!(sidecar.processes().shim.is_none());
    }

    #[test]
    fn a_torn_sidecar_is_an_error_at_each_length() {
        let whole = serde_json::to_vec(&Sidecar::intent(&key())).unwrap();
        for length in 0..whole.len() {
            assert!(
                matches!(Sidecar::parse(&whole[..length]), Err(Error::Parse(_))),
                "{length}"
            );
        }
    }

    #[test]
    fn a_foreign_sidecar_is_refused() {
        for foreign in ["{}", r#"{"schema": 2}"#] {
            assert!(
                matches!(Sidecar::parse(foreign.as_bytes()), Err(Error::Foreign)),
                "{foreign}"
            );
        }
        let other = LeaseKey::new(Uuid::from_u128(1), 3, &"ab".repeat(16)).unwrap();
        assert!(Sidecar::intent(&other).must_be_of(&key()).is_err());
        assert!(Sidecar::intent(&key()).must_be_of(&key()).is_ok());
    }
}
