//! Files that are whole or not there, also after a power cut.
//!
//! A harness may have put something where a temporary file belongs: that is removed, never opened.

use std::{
    ffi::OsString,
    fs::{self, File},
    io::{self, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
};

use crate::process::open_flags;

/// Replaces `path` by `bytes` and returns once that will survive a crash of the host.
pub(crate) fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let temporary = temporary(path)?;
    let mut file = create(&temporary)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    drop(file);
    fs::rename(&temporary, path)?;
    sync_parent(path)
}

/// Replaces `path` by `bytes` for its readers at once, with no promise about a crash of the host.
pub(crate) fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let temporary = temporary(path)?;
    create(&temporary)?.write_all(bytes)?;
    fs::rename(&temporary, path)
}

/// Makes the entry of `path` in its directory survive a crash of the host.
pub(crate) fn sync_parent(path: &Path) -> io::Result<()> {
    match path.parent() {
        Some(parent) => File::options()
            .read(true)
            .custom_flags(open_flags::DIRECTORY)
            .open(parent)?
            .sync_all(),
        None => Ok(()),
    }
}

/// Makes a new file, in the place of whatever is there.
fn create(path: &Path) -> io::Result<File> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    File::create_new(path)
}

/// One name a file: each file here has a single writer.
fn temporary(path: &Path) -> io::Result<PathBuf> {
    let name = path
        .file_name()
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "path names no file"))?;
    let mut hidden = OsString::from(".");
    hidden.push(name);
    hidden.push(".tmp");
    Ok(path.with_file_name(hidden))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_and_no_temporary_is_left() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        write(&path, b"one").unwrap();
        write(&path, b"two").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"two");
        replace(&path, b"three").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"three");
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    }

    #[test]
    fn what_lies_where_the_temporary_belongs_is_not_opened() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        let outside = directory.path().join("outside");
        fs::write(&outside, b"kept").unwrap();
        let temporary = temporary(&path).unwrap();
        // Opening a pipe for writing would wait for a reader.
        crate::process::testing::make_pipe(&temporary);
        write(&path, b"one").unwrap();
        std::os::unix::fs::symlink(&outside, &temporary).unwrap();
        replace(&path, b"two").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"two");
        assert_eq!(fs::read(&outside).unwrap(), b"kept");
    }
}
