//! What `up` says while it runs: one line an event, for people or as JSON.

use serde::Serialize;

use crate::{
    error::Error,
    event,
    output::{self, Format},
    view::{Event, Waiting, Workflow, cell, cell_instant},
};

/// Width of an item's name and kind, so that most lines are in line with each other.
const NAME_WIDTH: usize = 24;

/// Says things to whoever asked.
#[derive(Debug, Clone, Copy)]
pub(super) struct Show {
    format: Format,
}

/// One line of JSON. Keys and kinds are added, never renamed.
#[derive(Debug, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum Line<'a> {
    /// The master can be asked, and a worker is there.
    Started {
        address: &'a str,
        repository: &'a str,
        path: &'a str,
        base: &'a str,
        state_dir: &'a str,
        pid: u32,
    },
    Submitted {
        item: String,
        title: &'a str,
        changed: bool,
    },
    Event {
        item: &'a str,
        event: &'a Event,
    },
    /// Why a workflow that could move on does not.
    Waiting {
        item: &'a str,
        state: Option<&'a str>,
        waiting: &'a Waiting,
    },
    Stopping {
        now: bool,
    },
    /// How an item stands at the end.
    Ended {
        item: &'a str,
        state: Option<&'a str>,
        merged_commit: Option<&'a str>,
        reason: Option<&'a str>,
    },
}

impl Show {
    /// For whom to print.
    pub(super) const fn new(format: Format) -> Self {
        Self { format }
    }

    /// Says a line: `text` to people, `line` to programs.
    pub(super) fn say(self, text: &str, line: &Line<'_>) -> Result<(), Error> {
        match self.format {
            Format::Table => output::line(&output::printable(text)),
            Format::Json => output::json_line(line),
        }
    }

    /// Says a line to programs alone.
    pub(super) fn line(self, line: &Line<'_>) -> Result<(), Error> {
        match self.format {
            Format::Table => Ok(()),
            Format::Json => output::json_line(line),
        }
    }

    /// Prints a text of several lines to people alone.
    pub(super) fn text(self, text: &str) -> Result<(), Error> {
        match self.format {
            Format::Table => output::text(text),
            Format::Json => Ok(()),
        }
    }

    /// Tells an event of a workflow.
    pub(super) fn event(self, workflow: &Workflow, event: &Event) -> Result<(), Error> {
        let item = item(workflow);
        let mut text = format!(
            "{}  {:<NAME_WIDTH$} {}  {}",
            cell_instant(event.occurred_at.as_deref()),
            named(workflow),
            event::movement(event),
            event.kind,
        );
        if let Some(reason) = &event.reason {
            text = format!("{text}: {reason}");
        }
        let item = &item;
        self.say(&text, &Line::Event { item, event })
    }

    /// Tells what a workflow waits for.
    pub(super) fn waiting(self, workflow: &Workflow, waiting: &Waiting) -> Result<(), Error> {
        let state = cell(workflow.state.as_ref());
        let text = format!(
            "{}  {:<NAME_WIDTH$} {state}  waits {}",
            cell_instant(waiting.since.as_deref()),
            named(workflow),
            waiting.text,
        );
        let line = Line::Waiting {
            item: &item(workflow),
            state: workflow.state.as_deref(),
            waiting,
        };
        self.say(&text, &line)
    }
}

/// REPOSITORY#NUMBER.
pub(super) fn item(workflow: &Workflow) -> String {
    format!("{}#{}", workflow.repository, workflow.number)
}

fn named(workflow: &Workflow) -> String {
    let kind = match workflow.kind.as_deref() {
        Some("PULL_REQUEST") => "pull request",
        _ => "issue",
    };
    format!("{} ({kind})", item(workflow))
}
