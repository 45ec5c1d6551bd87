//! Where a process lives: host, boot and namespaces.

use std::{fs, io, os::unix::fs::MetadataExt as _};

use serde::{Deserialize, Serialize};

use super::stat::Stat;

/// What must be equal for a pid of then to mean anything now. Each part is unset where it could not
/// be read.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Place {
    /// Text of /proc/sys/kernel/random/boot_id. The same inside and outside of a container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) boot_id: Option<String>,
    /// Inode of the pid namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) pid_ns: Option<u64>,
    /// Start time of the namespace's init: a restarted container can get the old inode again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) ns_init_starttime: Option<u64>,
    /// Inode of the time namespace, which shifts start times.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) time_ns: Option<u64>,
}

impl Place {
    /// Where this process lives.
    pub(crate) fn here() -> Self {
        Self {
            boot_id: boot_id().ok(),
            pid_ns: inode("/proc/self/ns/pid"),
            ns_init_starttime: Stat::of(1).ok().map(|init| init.starttime),
            time_ns: inode("/proc/self/ns/time"),
        }
    }
}

/// The boot's id.
pub(crate) fn boot_id() -> io::Result<String> {
    let text = fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
    Ok(text.trim().to_owned())
}

/// The host's name, as it calls itself.
pub(crate) fn hostname() -> String {
    match nix::unistd::gethostname() {
        Ok(name) => name.to_string_lossy().into_owned(),
        Err(_) => "unknown".to_owned(),
    }
}

fn inode(path: &str) -> Option<u64> {
    fs::metadata(path).ok().map(|metadata| metadata.ino())
}
