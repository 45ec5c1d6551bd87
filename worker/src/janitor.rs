//! Ends what an earlier agent left behind, before this one registers.
//!
//! Each session on disk is looked at by itself, all of them at once. What is certainly over is
//! removed; what certainly still runs is killed, through its shim where that lives; what can't be told
//! is not signalled, kept, and reported. Sessions that are not reported end at the master as known
//! deaths. Nothing is adopted.

use std::{
    fs::{self, TryLockError},
    io,
    path::{Path, PathBuf},
    time::Duration,
};

use tokio::{
    task::JoinSet,
    time::{Instant, sleep},
};

use crate::{
    assignment::LeaseKey,
    control_file,
    error::chain,
    harness::environment::cookie,
    process::kill::{Killed, Processes, kill_with_grace},
    sidecar::{self, SessionDir, Sidecar, State},
    state::StateDir,
    tree,
};

/// The grace of sessions that don't say theirs.
const DEFAULT_GRACE: Duration = Duration::from_secs(5);

/// How long a shim whose agent died before it recorded its child may take to do so. It takes
/// milliseconds.
const START_PATIENCE: Duration = Duration::from_secs(5);
const START_INTERVAL: Duration = Duration::from_millis(20);

/// What was found, and what became of it.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Report {
    /// Nothing of these ran any more.
    pub(crate) n_ended: u32,
    /// Sessions that were killed: verified, alive before, seen to exit.
    pub(crate) n_killed: u32,
    /// Files that are no sidecar, or another's; moved aside.
    pub(crate) n_quarantined: u32,
    /// Sessions that may still run; kept.
    pub(crate) unconfirmed: Vec<LeaseKey>,
}

/// What became of one session.
#[derive(Debug)]
enum Fate {
    Ended,
    Killed,
    Unconfirmed(String),
    /// Not to be understood; the key is its directory's.
    Foreign(Option<LeaseKey>, sidecar::Error),
}

/// Looks through all sessions on disk.
pub(crate) async fn sweep(state: &StateDir) -> io::Result<Report> {
    let mut looks = JoinSet::new();
    for entry in fs::read_dir(state.sessions())? {
        let path = entry?.path();
        looks.spawn(async move {
            let key = key(&path);
            let fate = fate(&path, key.as_ref()).await;
            (path, key, fate)
        });
    }
    let mut report = Report::default();
    while let Some(look) = looks.join_next().await {
        let (path, key, fate) = look.map_err(io::Error::other)?;
        settle(state, &path, key, fate, &mut report).await;
    }
    remove_strays(state, &report.unconfirmed).await?;
    if report != Report::default() {
        tracing::info!(?report, "looked through the sessions on disk");
    }
    Ok(report)
}

fn key(path: &Path) -> Option<LeaseKey> {
    path.file_name()?.to_str()?.parse().ok()
}

async fn fate(path: &Path, key: Option<&LeaseKey>) -> Fate {
    let Some(key) = key else {
        return Fate::Foreign(None, sidecar::Error::Foreign);
    };
    let directory = SessionDir::new(path);
    let deadline = Instant::now() + START_PATIENCE;
    loop {
        let is_locked = match is_locked(&directory) {
            Ok(is_locked) => is_locked,
            Err(error) => return Fate::Unconfirmed(format!("lock of the session: {error}")),
        };
        let sidecar = match load(&directory, key) {
            Ok(sidecar) => sidecar,
            Err(sidecar::Error::Read(error)) => {
                return Fate::Unconfirmed(format!("sidecar of the session: {error}"));
            }
            Err(error) => return Fate::Foreign(Some(key.clone()), error),
        };
        match sidecar {
            Some(sidecar) if sidecar.state == Some(State::Running) => {
                return stop(&directory, &sidecar, key).await;
            }
            // Lock free, no child recorded: nothing ran, and nothing can start any more.
            Some(_) | None if !is_locked => return Fate::Ended,
            Some(_) | None if Instant::now() >= deadline => {
                return Fate::Unconfirmed("a shim holds the lock and records no child".to_owned());
            }
            Some(_) | None => sleep(START_INTERVAL).await,
        }
    }
}

fn load(directory: &SessionDir, key: &LeaseKey) -> Result<Option<Sidecar>, sidecar::Error> {
    let sidecar = Sidecar::load(directory)?;
    if let Some(sidecar) = &sidecar {
        sidecar.must_be_of(key)?;
    }
    Ok(sidecar)
}

async fn stop(directory: &SessionDir, sidecar: &Sidecar, key: &LeaseKey) -> Fate {
    let grace = sidecar
        .grace_ms
        .map_or(DEFAULT_GRACE, Duration::from_millis);
    let processes = Processes {
        cookie: Some(cookie(key)),
        ..sidecar.processes()
    };
    match kill_with_grace(&processes, grace).await {
        Killed::Unconfirmed(reason) => Fate::Unconfirmed(reason),
        // Who holds the lock then is not the shim that was recorded.
        Killed::Confirmed | Killed::AlreadyGone if !matches!(is_locked(directory), Ok(false)) => {
            Fate::Unconfirmed("somebody holds the session's lock".to_owned())
        }
        Killed::Confirmed => Fate::Killed,
        Killed::AlreadyGone => Fate::Ended,
    }
}

/// Whether a shim of the session lives.
fn is_locked(directory: &SessionDir) -> io::Result<bool> {
    let file = match control_file::open(&directory.lock()) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(error),
    };
    match file.try_lock() {
        Ok(()) => Ok(false),
        Err(TryLockError::WouldBlock) => Ok(true),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

async fn settle(
    state: &StateDir,
    path: &Path,
    key: Option<LeaseKey>,
    fate: Fate,
    report: &mut Report,
) {
    match fate {
        Fate::Ended => {
            report.n_ended += 1;
            remove(state, path).await;
        }
        Fate::Killed => {
            report.n_killed += 1;
            remove(state, path).await;
        }
        Fate::Unconfirmed(reason) => {
            tracing::error!(
                session = %path.display(),
                reason,
                "session may still run: nothing that could not be verified was signalled; end its \
                 processes by hand if there are any, then remove the directory"
            );
            report.unconfirmed.extend(key);
        }
        Fate::Foreign(key, error) => {
            report.unconfirmed.extend(key);
            match quarantine(state, path) {
                Ok(aside) => {
                    tracing::error!(
                        session = %path.display(),
                        quarantine = %aside.display(),
                        error = chain(&error),
                        "no session to be understood: moved aside, nothing was signalled"
                    );
                    report.n_quarantined += 1;
                }
                Err(failure) => tracing::error!(
                    session = %path.display(),
                    %failure,
                    error = chain(&error),
                    "no session to be understood, and it can't be moved aside: left as it is"
                ),
            }
        }
    }
}

/// Removes workspace and directory, in this order: the directory is what a later agent finds.
async fn remove(state: &StateDir, session: &Path) {
    let workspace = session
        .file_name()
        .map(|name| state.workspaces().join(name));
    for path in workspace.as_deref().into_iter().chain([session]) {
        remove_or_leave(path).await;
    }
}

async fn remove_or_leave(path: &Path) {
    if let Err(error) = tree::remove(path).await {
        tracing::warn!(path = %path.display(), %error, "leave what can't be removed");
    }
}

/// Moves `path` to a name that is free there.
fn quarantine(state: &StateDir, path: &Path) -> io::Result<PathBuf> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let mut aside = state.quarantine().join(&*name);
    let mut n = 1;
    while aside.symlink_metadata().is_ok() {
        aside = state.quarantine().join(format!("{name}.{n}"));
        n += 1;
    }
    fs::rename(path, &aside)?;
    Ok(aside)
}

/// Removes workspaces and temporary files that belong to no session that is kept.
async fn remove_strays(state: &StateDir, kept: &[LeaseKey]) -> io::Result<()> {
    let workspaces = state.workspaces();
    let is_kept = |path: &PathBuf| {
        kept.iter()
            .any(|key| *path == workspaces.join(key.to_string()) || *path == state.temporary(key))
    };
    for directory in [&workspaces, &state.temporaries()] {
        for entry in fs::read_dir(directory)? {
            let path = entry?.path();
            if !is_kept(&path) {
                remove_or_leave(&path).await;
            }
        }
    }
    Ok(())
}
