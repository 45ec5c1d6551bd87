//! `pointsman backup`: a copy of the master's database in a file of one's own.

use std::{
    fs::File,
    io::Write as _,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, anyhow};
use clap::Args;
use pointsman_proto::v1::{
    BackupDatabaseRequest, BackupDatabaseResponse, BackupEnd, backup_database_response::Part,
};
use serde::Serialize;
use sha2::{Digest, Sha256};
use tempfile::NamedTempFile;
use tokio::signal::unix::{SignalKind, signal};
use tonic::Streaming;

use crate::{
    args::Target,
    error::Error,
    output::{self, Format, progress::Progress},
};

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  pointsman backup pointsman-2026-01-31.db
  pointsman backup --force /var/backups/pointsman.db")]
pub(crate) struct Backup {
    /// The file to write; nobody else may read it
    file: PathBuf,
    /// Replace the file where there is one
    #[arg(long)]
    force: bool,
}

#[derive(Debug, Serialize)]
struct Written {
    file: String,
    size_bytes: u64,
    sha256: String,
}

impl Backup {
    /// Writes the copy. The file is there once all of it is on the disk, and not before.
    pub(crate) async fn run(self, target: &Target) -> Result<(), Error> {
        if !self.force && self.file.symlink_metadata().is_ok() {
            return Err(self.is_there());
        }
        let interruption = interruption()?;
        let mut unfinished = unfinished(&self.file)?;
        // Ended by a signal, the unfinished file goes too.
        let written = tokio::select! {
            written = fetch(target, unfinished.as_file_mut()) => written?,
            why = interruption => return Err(Error::Failed(why)),
        };
        self.keep(unfinished)?;
        let written = Written {
            file: self.file.display().to_string(),
            size_bytes: written.size_bytes,
            sha256: hexadecimal(&written.sha256),
        };
        match target.output {
            Format::Json => output::json(&written),
            Format::Table => output::line(&format!(
                "{}: {} bytes, SHA-256 {}",
                output::printable(&written.file),
                written.size_bytes,
                written.sha256
            )),
        }
    }

    fn is_there(&self) -> Error {
        Error::Usage(format!(
            "{} is there already: --force replaces it",
            self.file.display()
        ))
    }

    /// Gives the file its name, durably.
    fn keep(&self, unfinished: NamedTempFile) -> Result<(), Error> {
        let name = self.file.display();
        let synced = unfinished.as_file().sync_all();
        synced.with_context(|| format!("write {name}"))?;
        if self.force {
            let renamed = unfinished.persist(&self.file);
            renamed.with_context(|| format!("name {name}"))?;
        } else if let Err(error) = unfinished.persist_noclobber(&self.file) {
            return Err(match error.error.kind() {
                std::io::ErrorKind::AlreadyExists => self.is_there(),
                _ => anyhow::Error::new(error.error)
                    .context(format!("name {name}"))
                    .into(),
            });
        }
        let named = File::open(directory(&self.file)).and_then(|directory| directory.sync_all());
        Ok(named.with_context(|| format!("make the name {name} durable"))?)
    }
}

/// Beside the file, so that it can take its name in one step; with mode 0600.
fn unfinished(file: &Path) -> Result<NamedTempFile, Error> {
    let name = file
        .file_name()
        .ok_or_else(|| Error::Usage(format!("{} names no file to write to", file.display())))?;
    let made = tempfile::Builder::new()
        .prefix(&format!(".{}.", name.to_string_lossy()))
        .suffix(".unfinished")
        .tempfile_in(directory(file));
    Ok(made.with_context(|| format!("write beside {}", file.display()))?)
}

fn directory(file: &Path) -> &Path {
    match file.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    }
}

async fn fetch(target: &Target, file: &mut File) -> Result<BackupEnd, Error> {
    let mut client = target.connect().await?;
    let request = BackupDatabaseRequest {};
    let parts = client.fleet.backup_database(request).await?.into_inner();
    receive(parts, file).await
}

/// Writes what comes, and checks that it is what was sent.
async fn receive(
    mut parts: Streaming<BackupDatabaseResponse>,
    file: &mut File,
) -> Result<BackupEnd, Error> {
    let progress = Progress::start();
    progress.now("the master copies its database");
    let mut received = Received::default();
    while let Some(response) = parts.message().await? {
        match response.part {
            Some(Part::Start(start)) => received.announced = start.size_bytes,
            Some(Part::Chunk(chunk)) => {
                received.take(&chunk);
                file.write_all(&chunk).context("write the backup")?;
                if progress.is_redrawn() {
                    progress.now(&received.share());
                }
            }
            Some(Part::End(end)) => return Ok(received.checked(end)?),
            None => {
                return Err(
                    anyhow!("the master sent a part of no kind that this version knows").into(),
                );
            }
        }
    }
    Err(anyhow!("the master ended the backup early; nothing was kept").into())
}

#[derive(Default)]
struct Received {
    announced: u64,
    n_bytes: u64,
    sum: Sha256,
}

impl Received {
    fn take(&mut self, chunk: &[u8]) {
        self.n_bytes += chunk.len() as u64;
        self.sum.update(chunk);
    }

    fn share(&self) -> String {
        const MEBIBYTE: u64 = 1024 * 1024;
        format!(
            "{} of {} MiB",
            self.n_bytes / MEBIBYTE,
            self.announced.div_ceil(MEBIBYTE)
        )
    }

    fn checked(self, end: BackupEnd) -> Result<BackupEnd, anyhow::Error> {
        let is_whole = self.n_bytes == end.size_bytes && self.sum.finalize()[..] == end.sha256[..];
        if is_whole {
            Ok(end)
        } else {
            Err(anyhow!(
                "what came is not what the master sent ({} of {} bytes); nothing was kept",
                self.n_bytes,
                end.size_bytes
            ))
        }
    }
}

/// Listens from now on; ends with the first signal that asks for an end.
fn interruption() -> Result<impl Future<Output = anyhow::Error>, Error> {
    let listen = |kind| signal(kind).context("listen for signals");
    let mut interrupt = listen(SignalKind::interrupt())?;
    let mut terminate = listen(SignalKind::terminate())?;
    Ok(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
        anyhow!("interrupted; nothing was kept")
    })
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn received(chunks: &[&[u8]]) -> Received {
        let mut received = Received::default();
        for chunk in chunks {
            received.take(chunk);
        }
        received
    }

    #[test]
    fn what_came_is_compared_with_what_was_sent() {
        let end = BackupEnd {
            size_bytes: 3,
            sha256: Sha256::digest("abc").to_vec(),
        };
        assert!(received(&[b"a", b"bc"]).checked(end.clone()).is_ok());
        for wrong in [&[b"ab".as_slice()][..], &[b"abd"], &[b"abc", b"d"], &[]] {
            assert!(received(wrong).checked(end.clone()).is_err());
        }
        assert_eq!(hexadecimal(&end.sha256[..2]), "ba78");
    }

    #[test]
    fn a_file_that_is_there_stays_without_force() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("backup.db");
        let keep = |force| {
            let mut made = unfinished(&file).unwrap();
            made.write_all(if force { b"new" } else { b"old" }).unwrap();
            let backup = Backup {
                file: file.clone(),
                force,
            };
            backup.keep(made)
        };
        keep(false).unwrap();
        let mode = file.metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        // Written by somebody else since the first look.
        assert!(matches!(keep(false), Err(Error::Usage(_))));
        assert_eq!(std::fs::read(&file).unwrap(), b"old");
        keep(true).unwrap();
        assert_eq!(std::fs::read(&file).unwrap(), b"new");
        // Nothing unfinished is left.
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_name_without_a_file_is_refused() {
        assert!(matches!(unfinished(Path::new("/")), Err(Error::Usage(_))));
        assert!(matches!(
            unfinished(Path::new("/nonexistent/backup.db")),
            Err(Error::Failed(_))
        ));
        assert_eq!(directory(Path::new("backup.db")), Path::new("."));
    }
}
