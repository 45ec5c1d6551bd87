//! The state directory: who owns it, and what lies where.
//!
//! Its lock is held for the agent's whole life, so that a second agent can't sweep the sessions of the
//! first. The lock file's identity is what a master compares to know that an earlier process is gone.

use std::{
    fs::{self, DirBuilder, File, TryLockError},
    io::{self, Read as _, Seek as _, Write as _},
    os::unix::fs::{DirBuilderExt as _, MetadataExt as _},
    path::{Path, PathBuf},
    time::UNIX_EPOCH,
};

use uuid::Uuid;

use crate::{assignment::LeaseKey, durable, ids, process::host, sidecar::SessionDir};

/// Where sessions have their temporary files. Short, since programs make sockets there, whose paths may
/// have 107 bytes.
const TEMPORARIES: &str = "t";

/// How many digits of a nonce name such a directory: enough among the sessions of one host.
const TEMPORARY_DIGITS: usize = 12;

/// Most bytes that are shown of what the lock's holder wrote.
const HOLDER_MAX: u64 = 200;

/// A locked state directory.
#[derive(Debug)]
pub(crate) struct StateDir {
    root: PathBuf,
    lock: File,
    worker_id: Uuid,
}

/// What tells one state directory from another, copied or moved ones too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) device: u64,
    pub(crate) inode: u64,
    /// Nanoseconds since the epoch; 0 where the file system has no creation times.
    pub(crate) created_at_nanos: i64,
}

/// Why a state directory can't be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("make {}", path.display())]
    Make {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error(
        "state directory {} is in use by another agent ({holder}); \
         give each agent of a host a state directory of its own",
        path.display()
    )]
    InUse { path: PathBuf, holder: String },
    #[error("lock {}", path.display())]
    Lock {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("read or make the worker's id")]
    WorkerId(#[source] io::Error),
    #[error("{} holds no id", path.display())]
    BadWorkerId { path: PathBuf },
}

impl Drop for StateDir {
    /// Gives the lock back by name. Closing the file is not enough: a child that another thread has just
    /// forked holds a copy of it until it runs its own program.
    fn drop(&mut self) {
        if let Err(error) = self.lock.unlock() {
            tracing::debug!(%error, "the state directory's lock goes with the process");
        }
    }
}

impl StateDir {
    /// Opens and locks the directory at `root`, making it where there is none.
    pub(crate) fn open(root: &Path) -> Result<Self, Error> {
        for directory in [
            "",
            "sessions",
            "workspaces",
            "mirrors",
            "quarantine",
            TEMPORARIES,
        ] {
            make(&root.join(directory))?;
        }
        let lock = lock(&root.join("worker.lock"))?;
        Ok(Self {
            root: root.to_owned(),
            lock,
            worker_id: worker_id(&root.join("worker-id"))?,
        })
    }

    /// Kept from start to start.
    pub(crate) fn worker_id(&self) -> Uuid {
        self.worker_id
    }

    /// Identity of the lock file.
    pub(crate) fn identity(&self) -> io::Result<Identity> {
        let metadata = self.lock.metadata()?;
        let created_at_nanos = metadata
            .created()
            .ok()
            .and_then(|created| created.duration_since(UNIX_EPOCH).ok())
            .and_then(|since| i64::try_from(since.as_nanos()).ok());
        Ok(Identity {
            device: metadata.dev(),
            inode: metadata.ino(),
            created_at_nanos: created_at_nanos.unwrap_or(0),
        })
    }

    pub(crate) fn sessions(&self) -> PathBuf {
        self.root.join("sessions")
    }

    pub(crate) fn session(&self, key: &LeaseKey) -> SessionDir {
        SessionDir::new(self.sessions().join(key.to_string()))
    }

    pub(crate) fn temporaries(&self) -> PathBuf {
        self.root.join(TEMPORARIES)
    }

    /// TMPDIR of this session.
    pub(crate) fn temporary(&self, key: &LeaseKey) -> PathBuf {
        let digits = key.nonce().chars().take(TEMPORARY_DIGITS);
        self.temporaries().join(digits.collect::<String>())
    }

    pub(crate) fn workspaces(&self) -> PathBuf {
        self.root.join("workspaces")
    }

    pub(crate) fn mirrors(&self) -> PathBuf {
        self.root.join("mirrors")
    }

    pub(crate) fn quarantine(&self) -> PathBuf {
        self.root.join("quarantine")
    }
}

/// For the owner's eyes alone: logs and prompts of others' code lie below.
fn make(path: &Path) -> Result<(), Error> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
        .map_err(|source| Error::Make {
            path: path.to_owned(),
            source,
        })
}

fn lock(path: &Path) -> Result<File, Error> {
    let failed = |source| Error::Lock {
        path: path.to_owned(),
        source,
    };
    let mut file = File::options()
        .create(true)
        .truncate(false)
        .read(true)
        .write(true)
        .open(path)
        .map_err(failed)?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            return Err(Error::InUse {
                path: path.parent().unwrap_or(path).to_owned(),
                holder: holder(&file),
            });
        }
        Err(TryLockError::Error(source)) => return Err(failed(source)),
    }
    let me = format!("process {} on {}\n", std::process::id(), host::hostname());
    file.set_len(0)
        .and_then(|()| file.rewind())
        .and_then(|()| file.write_all(me.as_bytes()))
        .map_err(failed)?;
    Ok(file)
}

/// What the holder wrote of itself. For people, so anything is better than an error.
fn holder(file: &File) -> String {
    let mut text = String::new();
    match file.take(HOLDER_MAX).read_to_string(&mut text) {
        Ok(n) if n > 0 => text.trim_end().to_owned(),
        Ok(_) | Err(_) => "unknown".to_owned(),
    }
}

fn worker_id(path: &Path) -> Result<Uuid, Error> {
    match fs::read_to_string(path) {
        Ok(text) => text.trim().parse().map_err(|_| Error::BadWorkerId {
            path: path.to_owned(),
        }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let id = ids::random();
            durable::write(path, format!("{id}\n").as_bytes()).map_err(Error::WorkerId)?;
            Ok(id)
        }
        Err(error) => Err(Error::WorkerId(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_agent_is_refused_and_told_who_holds_it() {
        let directory = tempfile::tempdir().unwrap();
        let first = StateDir::open(directory.path()).unwrap();
        let error = StateDir::open(directory.path()).unwrap_err();
        let text = error.to_string();
        let me = format!("process {}", std::process::id());
        assert!(text.contains(&me), "{text}");
        assert!(
            text.contains(&directory.path().display().to_string()),
            "{text}"
        );

        let (id, identity) = (first.worker_id(), first.identity().unwrap());
        drop(first);
        let again = StateDir::open(directory.path()).unwrap();
        assert_eq!(again.worker_id(), id);
        assert_eq!(again.identity().unwrap(), identity);
    }

    #[test]
    fn a_copy_of_the_lock_in_a_child_that_was_just_forked_keeps_nobody_out() {
        let directory = tempfile::tempdir().unwrap();
        let first = StateDir::open(directory.path()).unwrap();
        let copy = first.lock.try_clone().unwrap();
        drop(first);
        StateDir::open(directory.path()).unwrap();
        drop(copy);
    }

    #[test]
    fn another_directory_is_another_worker() {
        let (a, b) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (a, b) = (
            StateDir::open(a.path()).unwrap(),
            StateDir::open(b.path()).unwrap(),
        );
        assert_ne!(a.worker_id(), b.worker_id());
        assert_ne!(a.identity().unwrap(), b.identity().unwrap());
    }

    #[test]
    fn a_broken_id_is_an_error_and_not_a_new_worker() {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("worker-id"), "x").unwrap();
        let error = StateDir::open(directory.path()).unwrap_err();
        assert!(matches!(error, Error::BadWorkerId { .. }), "{error}");
    }
}
