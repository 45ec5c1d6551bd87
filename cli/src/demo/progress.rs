//! What the demo says while it runs, and what it waits for.

use std::cell::RefCell;

use tokio::time::Instant;

use crate::output::{self, progress};

/// Lines with the seconds since the start; on a terminal, what is waited for below them.
#[derive(Debug)]
pub(super) struct Progress {
    started: Instant,
    awaited: RefCell<String>,
    line: progress::Progress,
}

impl Progress {
    /// The clock runs from here.
    pub(super) fn start() -> Self {
        Self {
            started: Instant::now(),
            awaited: RefCell::default(),
            line: progress::Progress::start(),
        }
    }

    /// Says something. A demo whose reader is gone still goes on to its end.
    pub(super) fn say(&self, text: &str) {
        let elapsed = self.started.elapsed().as_secs_f32();
        let line = format!("{elapsed:6.1} s  {}", output::printable(text));
        self.line.around(|| drop(output::line(&line)));
    }

    /// Prints a text that needs no instant.
    pub(super) fn show(&self, text: &str) {
        self.line.around(|| drop(output::text(text)));
    }

    /// Keeps in mind what has to happen next, for the case that it does not.
    pub(super) fn wait_for(&self, what: impl Into<String>) {
        let what = what.into();
        if self.line.is_redrawn() {
            self.line.now(&what);
        }
        *self.awaited.borrow_mut() = what;
    }

    /// What has to happen next.
    pub(super) fn awaited(&self) -> String {
        self.awaited.borrow().clone()
    }
}
