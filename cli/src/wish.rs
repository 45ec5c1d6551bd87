//! The wish to stop: Ctrl-C, a polite kill, or a terminal that is closed.

use anyhow::Context as _;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// The signals that ask to stop.
pub(crate) struct Wishes {
    interrupt: Signal,
    terminate: Signal,
    hang_up: Signal,
}

impl Wishes {
    /// From here on these signals don't end the process.
    pub(crate) fn listen() -> anyhow::Result<Self> {
        let listen = |kind| signal(kind).context("listen for signals");
        Ok(Self {
            interrupt: listen(SignalKind::interrupt())?,
            terminate: listen(SignalKind::terminate())?,
            hang_up: listen(SignalKind::hangup())?,
        })
    }

    /// Completes at the next one, and says which it was.
    pub(crate) async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.interrupt.recv() => "interrupted",
            _ = self.terminate.recv() => "terminated",
            _ = self.hang_up.recv() => "hung up",
        }
    }
}
