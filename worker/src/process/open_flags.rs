//! Flags of `open` that the standard library has no names for, where what is opened may not be what the
//! path says.

use nix::fcntl::OFlag;

/// Neither follows a link at the end of the path, nor waits for the writer of a pipe.
pub(crate) const WITHOUT_SURPRISE: i32 = OFlag::O_NOFOLLOW.union(OFlag::O_NONBLOCK).bits();

/// A directory, and nothing else.
pub(crate) const DIRECTORY: i32 = OFlag::O_DIRECTORY.bits();
