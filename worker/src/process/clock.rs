//! The clock that leases are counted on.

use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

use crate::lease::BootTime;

/// Now, on CLOCK_BOOTTIME: it goes on while the host is suspended.
///
/// # Panics
/// If the kernel has no such clock; each Linux since 2.6.39 does.
pub(crate) fn now() -> BootTime {
    let time = clock_gettime(ClockId::CLOCK_BOOTTIME).expect("Linux has CLOCK_BOOTTIME");
    BootTime::new(Duration::from(time))
}
