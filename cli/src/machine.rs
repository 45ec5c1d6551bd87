//! `pointsman machine`: the state machine as the master runs it.

use clap::Args;
use pointsman_proto::v1::DescribeStateMachineRequest;

use crate::{
    args::Target,
    error::Error,
    output::{self, Format, Table},
    view::{self, cell},
};

#[derive(Debug, Args)]
pub(crate) struct Machine {
    /// With the limits of this repository's policy instead of the default
    #[arg(
        long,
        default_value = "",
        hide_default_value = true,
        value_name = "NAME"
    )]
    repo: String,
}

impl Machine {
    /// Prints states, transitions and bounds.
    pub(crate) async fn run(self, target: &Target) -> Result<(), Error> {
        let mut client = target.connect().await?;
        let request = DescribeStateMachineRequest {
            repository: self.repo,
        };
        let answer = client.workflows.describe_state_machine(request).await?;
        let machine = view::Machine::from(answer.into_inner());
        match target.output {
            Format::Json => output::json(&machine),
            Format::Table => output::text(&text(&machine)),
        }
    }
}

fn text(machine: &view::Machine) -> String {
    format!(
        "{}\n{}\nbeside the table: {}\nmost attempts of one workflow, check runs apart: {}\n",
        states(machine).render(),
        transitions(machine).render(),
        machine.out_of_band_events.join(", "),
        machine.max_attempts,
    )
}

fn states(machine: &view::Machine) -> Table {
    let mut table = Table::new(["STATE", "TERMINAL", "ROLE"]);
    for state in &machine.states {
        table.row([
            cell(state.state.as_ref()),
            if state.terminal { "yes" } else { "-" }.to_owned(),
            cell(state.role.as_ref()),
        ]);
    }
    table
}

fn transitions(machine: &view::Machine) -> Table {
    let mut table = Table::new(["FROM", "EVENT", "TO", "BOUND", "LIMIT", "ONLY"]);
    for row in &machine.transitions {
        table.row([
            cell(row.from_state.as_ref()),
            row.event.clone(),
            cell(row.to_state.as_ref()),
            cell(row.bound.as_ref()),
            cell(row.limit),
            cell(row.only_kind.as_ref()),
        ]);
    }
    table
}
