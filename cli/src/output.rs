//! Standard output and standard error: the only place that writes to them.
//!
//! Tables are for people: framed and fitted to the width on a terminal, plain elsewhere. Texts of
//! others (titles, reasons) come without control characters, so that none can steer the terminal. A
//! reader who goes away (`| head`) is an ordinary end, which is why nothing here panics.

pub(crate) mod board;
pub(crate) mod progress;

use std::io::{self, IsTerminal as _, Write as _};

use clap::ValueEnum;
use comfy_table::{ColumnConstraint, ContentArrangement, Width, presets};
use serde::Serialize;

use crate::error::Error;

/// Most characters of one cell. A plan or a review may be long; JSON has the whole of it.
const CELL_MAX: usize = 120;

/// For whom a command prints.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// Tables for people
    Table,
    /// One JSON document for programs
    Json,
}

/// Rows under headings.
#[derive(Debug)]
pub(crate) struct Table {
    table: comfy_table::Table,
    /// Width of the longest word of each column: lines are broken between words alone.
    longest_words: Vec<usize>,
}

impl Table {
    /// A table without rows.
    pub(crate) fn new<'a>(headings: impl IntoIterator<Item = &'a str>) -> Self {
        let mut table = comfy_table::Table::new();
        if io::stdout().is_terminal() {
            table.load_style(presets::UTF8_FULL_CONDENSED);
            table.set_content_arrangement(ContentArrangement::Dynamic);
        } else {
            table.load_style(presets::NOTHING);
        }
        let headings: Vec<&str> = headings.into_iter().collect();
        let longest_words = headings
            .iter()
            .map(|heading| longest_word(heading))
            .collect();
        table.set_header(headings);
        Self {
            table,
            longest_words,
        }
    }

    /// Adds a row of as many cells as there are headings.
    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        let cells = cells.into_iter().map(|cell| shortened(&printable(&cell)));
        let cells: Vec<String> = cells.collect();
        for (longest, cell) in self.longest_words.iter_mut().zip(&cells) {
            *longest = longest_word(cell).max(*longest);
        }
        self.table.add_row(cells);
    }

    /// The table as text, with a line end.
    pub(crate) fn render(mut self) -> String {
        for (column, longest) in self.table.column_iter_mut().zip(self.longest_words) {
            let width = u16::try_from(longest).unwrap_or(u16::MAX);
            let width = width.saturating_add(column.padding_width());
            column.set_constraint(ColumnConstraint::LowerBoundary(Width::Fixed(width)));
        }
        let lines: Vec<String> = self
            .table
            .lines()
            .map(|line| {
                line.strip_prefix(' ')
                    .unwrap_or(&line)
                    .trim_end()
                    .to_owned()
            })
            .collect();
        format!("{}\n", lines.join("\n"))
    }
}

fn longest_word(text: &str) -> usize {
    let words = text.split(' ').map(|word| word.chars().count());
    words.max().unwrap_or_default()
}

/// The start of a text that is too long for a cell.
fn shortened(text: &str) -> String {
    match text.char_indices().nth(CELL_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// Prints a value as one indented JSON document.
pub(crate) fn json<T: Serialize>(value: &T) -> Result<(), Error> {
    let text = serde_json::to_string_pretty(value)
        .map_err(|error| Error::Failed(anyhow::Error::new(error).context("write JSON")))?;
    line(&text)
}

/// Prints a value as one JSON document on one line: one of many.
pub(crate) fn json_line<T: Serialize>(value: &T) -> Result<(), Error> {
    let text = serde_json::to_string(value)
        .map_err(|error| Error::Failed(anyhow::Error::new(error).context("write JSON")))?;
    line(&text)
}

/// Prints one line.
pub(crate) fn line(text: &str) -> Result<(), Error> {
    self::text(&format!("{text}\n"))
}

/// Prints a text as it is.
pub(crate) fn text(text: &str) -> Result<(), Error> {
    bytes(text.as_bytes())
}

/// Prints bytes as they are.
pub(crate) fn bytes(bytes: &[u8]) -> Result<(), Error> {
    let mut stdout = io::stdout().lock();
    stdout
        .write_all(bytes)
        .and_then(|()| stdout.flush())
        .map_err(Error::Output)
}

/// Whether somebody looks at standard output, who must not be steered by what is printed.
pub(crate) fn is_terminal() -> bool {
    io::stdout().is_terminal()
}

/// Says something beside the output, on standard error.
pub(crate) fn note(message: &str) {
    error_text(&format!("-- {}\n", printable(message)));
}

/// Says on standard error why a command ends.
pub(crate) fn error_line(message: &str) {
    error_text(&format!("error: {message}\n"));
}

/// Writes to standard error. Where that can't be written either, nobody is left to be told.
pub(crate) fn error_text(text: &str) {
    drop(io::stderr().lock().write_all(text.as_bytes()));
}

/// A text of others on one line: control characters become spaces.
pub(crate) fn printable(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_plain_where_nobody_looks() {
        let mut table = Table::new(["NAME", "BASE"]);
        table.row(["demo".to_owned(), "main".to_owned()]);
        let text = table.render();
        let lines: Vec<Vec<&str>> = text
            .lines()
            .map(|l| l.split_whitespace().collect())
            .collect();
        assert_eq!(lines, [["NAME", "BASE"], ["demo", "main"]]);
    }

    #[test]
    fn a_narrow_table_is_broken_between_words_alone() {
        let mut table = Table::new(["EVENT", "REASON"]);
        table
            .table
            .set_content_arrangement(ContentArrangement::Dynamic);
        table.table.set_width(30);
        let reason = "the label was taken away by somebody";
        table.row(["analysis_change_present".to_owned(), reason.to_owned()]);
        let text = table.render();
        for word in reason.split(' ').chain(["analysis_change_present"]) {
            assert!(
                text.split_whitespace().any(|w| w == word),
                "{word} in {text}"
            );
        }
    }

    #[test]
    fn a_cell_is_cut_at_its_edge() {
        let whole = "é".repeat(CELL_MAX);
        assert_eq!(shortened(&whole), whole);
        assert_eq!(shortened(&format!("{whole}é")), format!("{whole}…"));
    }

    #[test]
    fn a_title_can_not_steer_the_terminal() {
        assert_eq!(printable("a\u{1b}[2Jb\nc"), "a [2Jb c");
    }
}
