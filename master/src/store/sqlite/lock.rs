//! The file lock beside the database.

use std::{
    fs::{File, OpenOptions, TryLockError},
    io::{Read, Seek, Write},
    path::{Path, PathBuf},
};

use super::error::from_io;
use crate::{domain::time::Timestamp, store::Error};

const OPERATION: &str = "lock the database";

/// Held for as long as a process may write to the database; the operating system ends it with the
/// process, however that ends.
#[derive(Debug)]
pub(super) struct DatabaseLock(File);

impl DatabaseLock {
    /// Takes the lock, or says who holds it. Never waits.
    pub(super) fn take(database: &Path, now: Timestamp) -> Result<Self, Error> {
        let mut file = OpenOptions::new()
            .create(true)
            .read(true)
            .write(true)
            .truncate(false)
            .open(path_of(database))
            .map_err(|error| from_io(OPERATION, error))?;
        match file.try_lock() {
            Ok(()) => {
                write_holder(&mut file, now).map_err(|error| from_io(OPERATION, error))?;
                Ok(Self(file))
            }
            Err(TryLockError::WouldBlock) => Err(Error::Locked {
                path: database.display().to_string(),
                holder: read_holder(&mut file),
            }),
            Err(TryLockError::Error(error)) => Err(from_io(OPERATION, error)),
        }
    }

    /// Lets others in. An error leaves the lock to the end of the process.
    pub(super) fn release(&self) {
        drop(self.0.unlock());
    }
}

impl Drop for DatabaseLock {
    /// Closing the file is not enough: a child that another thread has just forked holds a copy of it until
    /// it runs its own program.
    fn drop(&mut self) {
        self.release();
    }
}

fn path_of(database: &Path) -> PathBuf {
    let mut path = database.as_os_str().to_owned();
    path.push(".lock");
    path.into()
}

fn write_holder(file: &mut File, now: Timestamp) -> std::io::Result<()> {
    let seconds = now.0.div_euclid(1_000_000);
    file.set_len(0)?;
    file.rewind()?;
    write!(
        file,
        "process {}, since second {seconds} of 1970",
        std::process::id()
    )?;
    file.flush()
}

/// The holder takes the lock before it writes who it is, so what is read may be from the one before, or
/// nothing.
fn read_holder(file: &mut File) -> String {
    let mut holder = String::new();
    match file.take(200).read_to_string(&mut holder) {
        Ok(length) if length > 0 => holder,
        Ok(_) | Err(_) => "a process that did not say which".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_of_the_lock_in_a_child_that_was_just_forked_keeps_nobody_out() {
        let directory = tempfile::tempdir().unwrap();
        let database = directory.path().join("pointsman.db");
        let first = DatabaseLock::take(&database, Timestamp(0)).unwrap();
        let copy = first.0.try_clone().unwrap();
        assert!(matches!(
            DatabaseLock::take(&database, Timestamp(0)),
            Err(Error::Locked { .. })
        ));
        drop(first);
        DatabaseLock::take(&database, Timestamp(0)).unwrap();
        drop(copy);
    }
}
