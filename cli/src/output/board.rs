//! Things that change while somebody looks: lines that are redrawn in place on a terminal, and one plain
//! line a change elsewhere. On standard output, since they are what was asked for.

use std::io::{self, IsTerminal as _};

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::{line, printable};
use crate::error::Error;

/// Most lines that are redrawn: they must fit on a small terminal. What changed last is shown.
pub(crate) const LINES: usize = 20;

/// Redrawn lines under lasting ones.
#[derive(Debug)]
pub(crate) struct Board {
    /// `None` where standard output is no terminal.
    screen: Option<Screen>,
}

#[derive(Debug)]
struct Screen {
    all: MultiProgress,
    lines: Vec<ProgressBar>,
}

impl Board {
    /// An empty board.
    pub(crate) fn new() -> Self {
        let screen = io::stdout().is_terminal().then(|| Screen {
            all: MultiProgress::with_draw_target(ProgressDrawTarget::stdout()),
            lines: Vec::new(),
        });
        Self { screen }
    }

    /// Whether lines are redrawn in place.
    pub(crate) fn is_redrawn(&self) -> bool {
        self.screen.is_some()
    }

    /// Prints a line that stays.
    pub(crate) fn say(&self, text: &str) -> Result<(), Error> {
        let text = printable(text);
        match &self.screen {
            Some(screen) => screen.all.suspend(|| line(&text)),
            None => line(&text),
        }
    }

    /// Draws these lines in place of those before; nothing where there is no terminal. Longer ones are cut
    /// to the width, and those after [`LINES`] left out.
    pub(crate) fn draw(&mut self, texts: &[String]) {
        let Some(screen) = &mut self.screen else {
            return;
        };
        let wanted = texts.len().min(LINES);
        while screen.lines.len() > wanted {
            if let Some(gone) = screen.lines.pop() {
                gone.finish_and_clear();
                screen.all.remove(&gone);
            }
        }
        while screen.lines.len() < wanted {
            let line = screen.all.add(ProgressBar::new_spinner());
            if let Ok(style) = ProgressStyle::with_template("{wide_msg}") {
                line.set_style(style);
            }
            screen.lines.push(line);
        }
        for (line, text) in screen.lines.iter().zip(texts) {
            line.set_message(printable(text));
            line.tick();
        }
    }
}

impl Drop for Board {
    /// The last lines stay as they were drawn.
    fn drop(&mut self) {
        for line in self.screen.iter().flat_map(|screen| &screen.lines) {
            line.abandon();
        }
    }
}
