//! Reads files that a harness can reach, and so may have replaced by anything.
//!
//! Opened as a path says, a pipe would block whoever reads it, a link would lead elsewhere, and a file
//! could be as long as the disk is large.

use std::{
    fs::{File, OpenOptions},
    io::{self, Read as _},
    os::unix::fs::OpenOptionsExt as _,
    path::Path,
};

use crate::process::open_flags;

/// Most bytes of a file in which worker and shim tell each other something. They write far less.
pub(crate) const MAX: u64 = 64 * 1024;

/// Opens a regular file for reading, and nothing else.
pub(crate) fn open(path: &Path) -> io::Result<File> {
    regular(File::options().read(true), path)
}

/// As [`open`], to change what is in it.
pub(crate) fn open_for_writing(path: &Path) -> io::Result<File> {
    regular(File::options().write(true), path)
}

fn regular(options: &mut OpenOptions, path: &Path) -> io::Result<File> {
    let file = options
        .custom_flags(open_flags::WITHOUT_SURPRISE)
        .open(path)?;
    if file.metadata()?.is_file() {
        Ok(file)
    } else {
        Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "not a regular file",
        ))
    }
}

/// Reads a regular file of at most `max` bytes. A longer one is [`io::ErrorKind::FileTooLarge`].
pub(crate) fn read(path: &Path, max: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open(path)?.take(max + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > max {
        Err(io::ErrorKind::FileTooLarge.into())
    } else {
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn only_a_regular_file_is_read() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        fs::write(path("file"), "content").unwrap();
        std::os::unix::fs::symlink(path("file"), path("link")).unwrap();
        crate::process::testing::make_pipe(&path("fifo"));
        fs::create_dir(path("directory")).unwrap();

        assert_eq!(read(&path("file"), MAX).unwrap(), b"content");
        for other in ["link", "fifo", "directory"] {
            assert!(read(&path(other), MAX).is_err(), "{other}");
        }
        let missing = read(&path("none"), MAX).unwrap_err();
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn a_file_at_the_bound_is_whole_and_one_over_it_is_an_error() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        fs::write(&path, "abc").unwrap();
        assert_eq!(read(&path, 3).unwrap(), b"abc");
        let error = read(&path, 2).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::FileTooLarge);
    }
}
