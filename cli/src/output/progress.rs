//! Long work, told while it goes on: one line that is redrawn on a terminal, plain lines elsewhere.
//!
//! On standard error, so that standard output stays the answer of the command. A terminal's line has a
//! spinner and the time, and goes when the work ends. Where nobody looks (a file, a pipe, a unit's log)
//! each thing that is said is one plain line, said once.

use std::{
    cell::RefCell,
    io::{self, IsTerminal as _},
    time::Duration,
};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::{error_text, printable};

/// Between two drawings of the spinner.
const TICK: Duration = Duration::from_millis(120);

/// What long work says of itself. Dropped, its line goes from the terminal.
#[derive(Debug)]
pub(crate) struct Progress {
    /// The redrawn line; `None` where standard error is no terminal.
    line: Option<ProgressBar>,
    /// What was said last on plain lines.
    last: RefCell<String>,
}

impl Progress {
    /// Starts the clock; nothing is said yet.
    pub(crate) fn start() -> Self {
        let line = io::stderr().is_terminal().then(|| {
            let line = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
            if let Ok(style) = ProgressStyle::with_template("{spinner} {elapsed:>4}  {wide_msg}") {
                line.set_style(style);
            }
            line.enable_steady_tick(TICK);
            line
        });
        Self {
            line,
            last: RefCell::default(),
        }
    }

    /// Says what goes on now. The next one takes its place on a terminal.
    pub(crate) fn now(&self, text: &str) {
        let text = printable(text);
        match &self.line {
            Some(line) => line.set_message(text),
            None => self.once(text),
        }
    }

    /// Whether there is a line that is redrawn.
    pub(crate) fn is_redrawn(&self) -> bool {
        self.line.is_some()
    }

    /// Runs what prints, with the redrawn line out of its way.
    pub(crate) fn around<T>(&self, print: impl FnOnce() -> T) -> T {
        match &self.line {
            Some(line) => line.suspend(print),
            None => print(),
        }
    }

    fn once(&self, text: String) {
        if self.last.replace(text.clone()) != text {
            error_text(&format!("{text}\n"));
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(line) = &self.line {
            line.finish_and_clear();
        }
    }
}
