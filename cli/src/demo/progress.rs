//! What the demo says while it runs, and what it waits for.

use std::cell::RefCell;

use tokio::time::Instant;

use crate::output;

/// Lines with the seconds since the start.
#[derive(Debug)]
pub(super) struct Progress {
    started: Instant,
    awaited: RefCell<String>,
}

impl Progress {
    /// The clock runs from here.
    pub(super) fn start() -> Self {
        Self {
            started: Instant::now(),
            awaited: RefCell::default(),
        }
    }

    /// Says something. A demo whose reader is gone still goes on to its end.
    pub(super) fn say(&self, text: &str) {
        let elapsed = self.started.elapsed().as_secs_f32();
        let line = format!("{elapsed:6.1} s  {}", output::printable(text));
        drop(output::line(&line));
    }

    /// Prints a text that needs no instant.
    pub(super) fn show(&self, text: &str) {
        drop(output::text(text));
    }

    /// Keeps in mind what has to happen next, for the case that it does not.
    pub(super) fn wait_for(&self, what: impl Into<String>) {
        *self.awaited.borrow_mut() = what.into();
    }

    /// What has to happen next.
    pub(super) fn awaited(&self) -> String {
        self.awaited.borrow().clone()
    }
}
