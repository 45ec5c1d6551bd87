//! The verdict, as the worker's schemas have it.

use std::{io::Write as _, path::Path};

use anyhow::Context as _;
use serde::Serialize;

/// What the harness decided: those of all roles that a script can come to.
#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "verdict", rename_all = "snake_case")]
pub(super) enum Verdict {
    Ready { tier: u32, plan: String },
    Unsure { reason: String },
    Changed { summary: String },
    NoChange { reason: String },
    Resolved {},
    Unresolved { reason: String },
    Retry { plan: String },
    GiveUp { reason: String },
    Approve { notes: String },
    RequestChanges { notes: String },
}

impl Verdict {
    /// Writes it as a whole or not at all.
    pub(super) fn write(&self, path: &Path) -> anyhow::Result<()> {
        let write = || -> anyhow::Result<()> {
            let directory = path.parent().context("it has no directory")?;
            let mut file = tempfile::NamedTempFile::new_in(directory)?;
            serde_json::to_writer(&mut file, self)?;
            file.flush()?;
            file.persist(path)?;
            Ok(())
        };
        write().with_context(|| format!("write {}", path.display()))
    }
}
