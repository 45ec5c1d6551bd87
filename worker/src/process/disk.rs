//! Disk that a file holds.

use std::{fs::File, io, ops::Range};

use nix::fcntl::{FallocateFlags, fallocate};

/// Frees a part of a file; it reads as zeros from then on, and the file stays as long as it is. An error
/// where the file system can't.
pub(crate) fn punch_hole(file: &File, range: Range<u64>) -> io::Result<()> {
    let (Ok(start), Ok(length)) = (
        i64::try_from(range.start),
        i64::try_from(range.end.saturating_sub(range.start)),
    ) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    let flags = FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE;
    Ok(fallocate(file, flags, start, length)?)
}
