//! The exit record: how a harness ended, and who wanted it.

use std::io;

use serde::{Deserialize, Serialize};

use crate::{control_file, durable, process::subreaper::Exit, sidecar::SessionDir};

/// Who brought the end about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Cause {
    /// The harness itself, or somebody outside.
    Harness,
    /// The shim, because the lease's deadline had come.
    Deadline,
    /// The shim, because it was asked to.
    Stopped,
}

/// Written once, as soon as the harness has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ExitRecord {
    pub(crate) cause: Cause,
    /// How the harness's own process ended.
    pub(crate) exit: Exit,
}

impl ExitRecord {
    /// Writes the record; on return it survives a crash of the host.
    pub(crate) fn store(&self, directory: &SessionDir) -> io::Result<()> {
        durable::write(&directory.exit_record(), &serde_json::to_vec(self)?)
    }

    /// Reads the record. `None` where the shim left none.
    pub(crate) fn load(directory: &SessionDir) -> io::Result<Option<Self>> {
        match control_file::read(&directory.exit_record(), control_file::MAX) {
            Ok(bytes) => Ok(Some(serde_json::from_slice(&bytes)?)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }
}
