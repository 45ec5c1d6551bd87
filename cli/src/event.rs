//! `pointsman events`: what happened.

use std::time::Duration;

use clap::{Args, value_parser};
use pointsman_proto::v1::ListEventsRequest;
use serde::Serialize;

use crate::{
    args::Target,
    client::{Client, Patience},
    error::Error,
    output::{self, Format, Table},
    view::{Event, cell, cell_instant},
    workflow,
};

/// The most events that a master gives at once.
const MOST: u32 = 1000;

/// Between two looks at the history.
const LOOK: Duration = Duration::from_secs(1);

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  pointsman events
  pointsman events demo#2 --limit 1000
  pointsman events -f --after 500")]
pub(crate) struct List {
    /// Of one workflow: its id, or REPOSITORY#NUMBER
    workflow: Option<String>,
    /// Only events after this sequence
    #[arg(long, default_value_t = 0, value_name = "SEQUENCE")]
    after: u64,
    /// At most so many
    #[arg(
        long,
        default_value_t = 200,
        value_name = "N",
        value_parser = value_parser!(u32).range(1..=1000)
    )]
    limit: u32,
    /// Goes on with what happens next, one line an event, until it is stopped
    #[arg(short, long)]
    follow: bool,
}

#[derive(Debug, Serialize)]
struct Listed {
    events: Vec<Event>,
}

impl List {
    /// Prints the events, oldest first.
    pub(crate) async fn run(self, target: &Target) -> Result<(), Error> {
        let mut client = target.connect().await?;
        let workflow_id = match &self.workflow {
            Some(named) => workflow::resolve(&mut client, named).await?,
            None => String::new(),
        };
        if self.follow {
            return follow(&mut client, &workflow_id, self.after, target.output).await;
        }
        let events = list(&mut client, workflow_id, self.after, self.limit).await?;
        match target.output {
            Format::Json => output::json(&Listed { events }),
            Format::Table if self.workflow.is_some() => output::text(&table(&events).render()),
            Format::Table => output::text(&table_of_many(&events, about).render()),
        }
    }
}

/// Prints events as they come, oldest first.
async fn follow(
    client: &mut Client,
    workflow_id: &str,
    mut after: u64,
    format: Format,
) -> Result<(), Error> {
    let mut patience = Patience::default();
    loop {
        let events = match list(client, workflow_id.to_owned(), after, MOST).await {
            Ok(events) => events,
            Err(Error::Status(status)) => {
                patience.wait_after(*status).await?;
                continue;
            }
            Err(error) => return Err(error),
        };
        patience.succeeded();
        for event in &events {
            match format {
                Format::Json => output::json_line(event)?,
                Format::Table => output::line(&sentence(event))?,
            }
            after = event.sequence;
        }
        if events.len() < MOST as usize {
            tokio::time::sleep(LOOK).await;
        }
    }
}

fn sentence(event: &Event) -> String {
    let [sequence, at, kind, movement, actor, reason] = cells(event);
    let workflow = cell(event.workflow_id.as_ref());
    output::printable(&format!(
        "{sequence}  {at}  {workflow}  {kind}  {movement}  {actor}  {reason}"
    ))
}

/// The first `limit` events after the sequence `after`, oldest first.
pub(crate) async fn list(
    client: &mut Client,
    workflow_id: String,
    after: u64,
    limit: u32,
) -> Result<Vec<Event>, Error> {
    let request = ListEventsRequest {
        workflow_id,
        after_sequence: after,
        page_size: limit,
    };
    let answer = client.workflows.list_events(request).await?.into_inner();
    Ok(answer.events.into_iter().map(Event::from).collect())
}

const HEADINGS: [&str; 6] = ["SEQ", "AT", "EVENT", "STATE", "ACTOR", "REASON"];

/// Events of one workflow, for people.
pub(crate) fn table(events: &[Event]) -> Table {
    let mut table = Table::new(HEADINGS);
    for event in events {
        table.row(cells(event));
    }
    table
}

/// Events of several things, each with the name of its own.
pub(crate) fn table_of_many(events: &[Event], name: impl Fn(&Event) -> String) -> Table {
    let mut table = Table::new(HEADINGS.into_iter().chain(["ABOUT"]));
    for event in events {
        table.row(cells(event).into_iter().chain([name(event)]));
    }
    table
}

fn cells(event: &Event) -> [String; 6] {
    [
        event.sequence.to_string(),
        cell_instant(event.occurred_at.as_deref()),
        event.kind.clone(),
        movement(event),
        actor(&event.actor),
        cell(event.reason.as_ref()),
    ]
}

/// Which workflow, repository or worker, by its id.
fn about(event: &Event) -> String {
    match (&event.workflow_id, &event.repository_id, &event.worker_id) {
        (Some(id), _, _) => id.clone(),
        (_, Some(id), _) => format!("repository {id}"),
        (_, _, id) => format!("worker {}", cell(id.as_ref())),
    }
}

/// Both states where the event moved the workflow, and else the one.
pub(crate) fn movement(event: &Event) -> String {
    let to = cell(event.to_state.as_ref());
    if event.from_state == event.to_state {
        return to;
    }
    format!("{} -> {to}", cell(event.from_state.as_ref()))
}

/// A worker's id by its start, which is enough to tell a fleet's workers apart.
fn actor(actor: &str) -> String {
    const DIGITS: usize = 8;
    match actor.split_once(':') {
        Some(("worker", id)) => format!("worker:{}", id.get(..DIGITS).unwrap_or(id)),
        Some(_) | None => actor.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use pointsman_proto::v1::{self, WorkflowState};

    use super::*;

    #[test]
    fn both_states_are_shown_where_it_moved() {
        let event = |from: WorkflowState, to: WorkflowState| {
            Event::from(v1::Event {
                from_state: from.into(),
                to_state: to.into(),
                ..v1::Event::default()
            })
        };
        let moved = event(WorkflowState::Merging, WorkflowState::Merged);
        assert_eq!(movement(&moved), "MERGING -> MERGED");
        let stayed = event(WorkflowState::Merging, WorkflowState::Merging);
        assert_eq!(movement(&stayed), "MERGING");
    }

    #[test]
    fn actors_are_short() {
        assert_eq!(
            actor("worker:14101904-2647-487c-b4e3-6c535c83f7d5"),
            "worker:14101904"
        );
        for whole in ["worker:x", "sweep:effector", "operator:anna", "forge"] {
            assert_eq!(actor(whole), whole);
        }
    }
}
