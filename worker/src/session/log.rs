//! The session's log, which the harness writes and the worker only looks at.

use std::{
    io::{self, Read as _, Seek as _, SeekFrom},
    path::Path,
    time::SystemTime,
};

use crate::control_file;

/// How long a file is, and when it was last written to.
pub(super) type Progress = (u64, SystemTime);

/// How far the log, or another file that a harness writes, has come.
pub(super) fn progress(path: &Path) -> io::Result<Progress> {
    let metadata = control_file::open(path)?.metadata()?;
    Ok((metadata.len(), metadata.modified()?))
}

/// The last bytes of the log, at most `max`, as text. Empty where it can't be read: the tail helps
/// people, and nothing depends on it.
pub(super) fn tail(path: &Path, max: u64) -> String {
    match bytes(path, max) {
        Ok(bytes) => String::from_utf8_lossy(&bytes).trim_end().to_owned(),
        Err(error) => {
            tracing::debug!(%error, "read the log's tail");
            String::new()
        }
    }
}

fn bytes(path: &Path, max: u64) -> io::Result<Vec<u8>> {
    let mut file = control_file::open(path)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(max)))?;
    let mut bytes = Vec::new();
    file.take(max).read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tail_is_the_end_and_bounded() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        std::fs::write(&path, "abcdef\n").unwrap();
        assert_eq!(tail(&path, 7), "abcdef");
        assert_eq!(tail(&path, 4), "def");
        assert_eq!(tail(&directory.path().join("none"), 4), "");
    }
}
