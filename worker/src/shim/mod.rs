//! The process between agent and harness: it outlives the agent, and nothing outlives it.
//!
//! One a session, without an async runtime and with a single thread. It starts the harness behind a
//! gate that opens only when the sidecar is durable, stops it at the lease's deadline or when asked to
//! by SIGTERM, writes down how it ended, and then kills whatever is left, until the kernel says that no
//! child exists. It holds the session's lock for as long as it lives, so that *lock free* means that
//! nothing of the session can still start.
//!
//! It knows nothing of masters, leases or git: a deadline in a file is all it is told.

mod supervisor;

pub(crate) mod record;

use std::{
    ffi::CString,
    fs::File,
    io,
    path::{Path, PathBuf},
    time::Duration,
};

use serde::{Deserialize, Serialize};

use crate::{
    control_file,
    process::{
        child::{Program, fork_gated},
        host::Place,
        identity::Recorded,
        subreaper::{self, Signals},
    },
    sidecar::{self, SessionDir, Sidecar},
};
use supervisor::Supervisor;

/// What the shim is to run, as the agent writes it into the session's directory. The environment is
/// the shim's own, so that no secret is written to disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Launch {
    /// Program and arguments.
    pub(crate) command: Vec<String>,
    /// Where it runs.
    pub(crate) directory: PathBuf,
    /// What it reads; /dev/null where unset.
    pub(crate) stdin: Option<PathBuf>,
    /// Time between TERM and KILL, in milliseconds.
    pub(crate) grace_ms: u64,
}

/// Most bytes of what is to be run: a prompt can be an argument.
const LAUNCH_MAX: u64 = 16 * 1024 * 1024;

/// Why a shim could not do its work.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("set up the process")]
    SetUp(#[source] io::Error),
    #[error("read {}", path.display())]
    Read {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("read what to run")]
    Launch(#[source] serde_json::Error),
    #[error("command is empty or holds a zero byte")]
    Command,
    #[error("no sidecar in the session's directory")]
    NoSidecar,
    #[error("read the sidecar")]
    Sidecar(#[from] sidecar::Error),
    #[error("start the harness")]
    Start(#[source] io::Error),
    #[error("record the harness")]
    Record(#[source] io::Error),
    #[error("supervise the harness")]
    Supervise(#[source] io::Error),
    #[error("write the exit record")]
    ExitRecord(#[source] io::Error),
}

/// Runs the session in `directory` to its end.
///
/// Expects the locked lock file as standard input, a pipe that the agent reads as standard output,
/// which is closed when the harness is recorded, and the session's log as standard error.
pub(crate) fn run(directory: &Path) -> Result<(), Error> {
    let directory = SessionDir::new(directory);
    subreaper::become_subreaper().map_err(|error| Error::SetUp(error.into()))?;
    // Held, not used: it is unlocked by this process's end alone.
    let _lock = subreaper::take_stdin().map_err(Error::SetUp)?;
    let signals = Signals::take().map_err(|error| Error::SetUp(error.into()))?;

    let launch: Launch =
        serde_json::from_slice(&read(&directory.launch())?).map_err(Error::Launch)?;
    let deadline = directory.read_deadline().map_err(|source| Error::Read {
        path: directory.deadline(),
        source,
    })?;
    let mut sidecar = Sidecar::load(&directory)?.ok_or(Error::NoSidecar)?;

    let child = fork_gated(&program(&launch)?).map_err(Error::Start)?;
    let harness = child.pid();
    // If anything fails from here to the release, the gate closes and the child ends by itself.
    record(&directory, &mut sidecar, harness.as_raw()).map_err(Error::Record)?;
    // Tells the agent that the record is there.
    subreaper::close_stdout().map_err(Error::SetUp)?;
    child
        .release()
        .map_err(|error| Error::Start(error.into()))?;

    let grace = Duration::from_millis(launch.grace_ms);
    Supervisor::new(&directory, signals, harness, grace, deadline).run()
}

/// Writes down who is who. The child can't be reaped meanwhile, so its number is its own.
fn record(directory: &SessionDir, sidecar: &mut Sidecar, harness: i32) -> io::Result<()> {
    let harness = u32::try_from(harness).map_err(io::Error::other)?;
    let shim = Recorded::child(std::process::id())?;
    sidecar.record(Place::here(), &shim, &Recorded::child(harness)?);
    sidecar.store(directory)
}

fn program(launch: &Launch) -> Result<Program, Error> {
    let arguments = launch
        .command
        .iter()
        .map(|argument| CString::new(argument.as_bytes()).map_err(|_| Error::Command))
        .collect::<Result<Vec<_>, _>>()?;
    let name = arguments.first().cloned().ok_or(Error::Command)?;
    let stdin = launch
        .stdin
        .as_deref()
        .unwrap_or_else(|| Path::new("/dev/null"));
    Ok(Program {
        name,
        arguments,
        directory: launch.directory.clone(),
        stdin: File::open(stdin).map_err(|source| Error::Read {
            path: stdin.to_owned(),
            source,
        })?,
    })
}

fn read(path: &Path) -> Result<Vec<u8>, Error> {
    control_file::read(path, LAUNCH_MAX).map_err(|source| Error::Read {
        path: path.to_owned(),
        source,
    })
}
