//! `pointsman stats`: how the whole fleet stands.

use clap::Args;
use pointsman_proto::v1::GetStatsRequest;

use crate::{
    args::Target,
    error::Error,
    output::{self, Format, Table},
    view::{Stats, cell, cell_instant},
};

#[derive(Debug, Args)]
pub(crate) struct Show {}

impl Show {
    /// Prints the figures.
    pub(crate) async fn run(self, target: &Target) -> Result<(), Error> {
        let mut client = target.connect().await?;
        let answer = client.fleet.get_stats(GetStatsRequest {}).await?;
        let stats = Stats::from(answer.into_inner());
        match target.output {
            Format::Json => output::json(&stats),
            Format::Table => output::text(&text(&stats)),
        }
    }
}

fn text(stats: &Stats) -> String {
    let tables = [
        figures(stats),
        workflows(stats),
        queues(stats),
        sweeps(stats),
    ];
    tables.map(Table::render).join("\n")
}

fn figures(stats: &Stats) -> Table {
    let mut table = Table::new(["FIGURE", "VALUE"]);
    let mut row = |name: &str, value: String| table.row([name.to_owned(), value]);
    row("master", stats.version.clone());
    row("started", cell_instant(stats.started_at.as_deref()));
    row("database bytes", stats.database_bytes.to_string());
    row("workers alive", stats.workers_alive.to_string());
    row("workers silent", stats.workers_silent.to_string());
    row("workers drained", stats.workers_drained.to_string());
    row(
        "attempts in progress",
        stats.attempts_in_progress.to_string(),
    );
    row("live leases", stats.live_leases.to_string());
    row("effects waiting", stats.effects_waiting.to_string());
    row("effects failing", stats.effects_failing.to_string());
    row("holds", stats.holds.to_string());
    table
}

fn workflows(stats: &Stats) -> Table {
    let mut table = Table::new(["STATE", "WORKFLOWS"]);
    for counted in &stats.workflows {
        table.row([cell(counted.state.as_ref()), counted.count.to_string()]);
    }
    table
}

fn queues(stats: &Stats) -> Table {
    let mut table = Table::new(["ROLE", "TIER", "PENDING", "UNSCHEDULABLE", "OLDEST SINCE"]);
    for queue in &stats.pending {
        let is_same =
            |other: &&crate::view::Queue| (&other.role, other.tier) == (&queue.role, queue.tier);
        let unschedulable = stats.unschedulable.iter().find(is_same);
        table.row([
            cell(queue.role.as_ref()),
            queue.tier.to_string(),
            queue.count.to_string(),
            unschedulable.map_or(0, |queue| queue.count).to_string(),
            cell_instant(queue.oldest_at.as_deref()),
        ]);
    }
    table
}

fn sweeps(stats: &Stats) -> Table {
    let headings = [
        "SWEEP", "LAST RUN", "MS", "EXAMINED", "CHANGED", "FAILED", "ENDED",
    ];
    let mut table = Table::new(headings);
    for run in &stats.sweeps {
        table.row([
            run.name.clone(),
            cell_instant(run.started_at.as_deref()),
            cell(run.duration_ms),
            run.examined.to_string(),
            run.changed.to_string(),
            run.failed.to_string(),
            if run.ended_early { "early" } else { "well" }.to_owned(),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use pointsman_proto::v1;

    use super::*;

    #[test]
    fn what_nobody_takes_stands_beside_what_waits() {
        let queue = |count| v1::QueueStats {
            role: v1::Role::Implementer.into(),
            tier: 2,
            count,
            oldest_at: None,
        };
        let stats = Stats::from(v1::GetStatsResponse {
            pending: vec![queue(5)],
            unschedulable: vec![queue(3)],
            ..v1::GetStatsResponse::default()
        });
        let text = text(&stats);
        let row = text.lines().find(|line| line.starts_with("IMPLEMENTER"));
        let cells: Vec<&str> = row.unwrap().split_whitespace().collect();
        assert_eq!(cells, ["IMPLEMENTER", "2", "5", "3", "-"]);
    }
}
