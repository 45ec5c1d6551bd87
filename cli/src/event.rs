//! `pointsman events`: what happened.

use clap::{Args, value_parser};
use pointsman_proto::v1::ListEventsRequest;
use serde::Serialize;

use crate::{
    args::Target,
    client::Client,
    error::Error,
    output::{self, Format, Table},
    view::{Event, cell, cell_instant},
    workflow,
};

#[derive(Debug, Args)]
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
        let events = list(&mut client, workflow_id, self.after, self.limit).await?;
        match target.output {
            Format::Json => output::json(&Listed { events }),
            Format::Table => output::text(&table(&events).render()),
        }
    }
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

/// Events for people.
pub(crate) fn table(events: &[Event]) -> Table {
    let mut table = Table::new(["SEQUENCE", "AT", "EVENT", "FROM", "TO", "ACTOR", "REASON"]);
    for event in events {
        table.row([
            event.sequence.to_string(),
            cell_instant(event.occurred_at.as_deref()),
            event.kind.clone(),
            cell(event.from_state.as_ref()),
            cell(event.to_state.as_ref()),
            event.actor.clone(),
            cell(event.reason.as_ref()),
        ]);
    }
    table
}
