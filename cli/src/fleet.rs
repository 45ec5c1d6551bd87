//! `pointsman sessions` and `sweep`: who runs what, and the master's own duties.

use clap::Args;
use pointsman_proto::v1::{ListSessionsRequest, SweepRequest};
use serde::Serialize;

use crate::{
    args::Target,
    error::Error,
    output::{self, Format, Table},
    view::{Session, SweepReport, cell, cell_instant},
};

/// Most entries that the master gives at once.
const PAGE_SIZE: u32 = 500;

#[derive(Debug, Args)]
pub(crate) struct Sessions {
    /// Of one worker, by its id
    #[arg(long, default_value = "", hide_default_value = true, value_name = "ID")]
    worker: String,
}

#[derive(Debug, Serialize)]
struct Listed {
    sessions: Vec<Session>,
}

impl Sessions {
    /// Prints who runs what.
    pub(crate) async fn run(self, target: &Target) -> Result<(), Error> {
        let sessions = self.all(target).await?;
        match target.output {
            Format::Json => output::json(&Listed { sessions }),
            Format::Table => output::text(&session_table(&sessions).render()),
        }
    }
}

impl Sessions {
    async fn all(self, target: &Target) -> Result<Vec<Session>, Error> {
        let mut client = target.connect().await?;
        let mut sessions = Vec::new();
        let mut page_token = String::new();
        loop {
            let request = ListSessionsRequest {
                worker_id: self.worker.clone(),
                page_size: PAGE_SIZE,
                page_token,
            };
            let page = client.fleet.list_sessions(request).await?.into_inner();
            sessions.extend(page.sessions.into_iter().map(Session::from));
            page_token = page.next_page_token;
            if page_token.is_empty() {
                return Ok(sessions);
            }
        }
    }
}

fn session_table(sessions: &[Session]) -> Table {
    let headings = [
        "WORKER",
        "HOST",
        "ROLE",
        "PHASE",
        "PID",
        "STARTTIME",
        "BEAT AT",
        "WORKFLOW",
    ];
    let mut table = Table::new(headings);
    for session in sessions {
        table.row([
            session.worker_name.clone(),
            session.host.clone(),
            cell(session.role.as_ref()),
            cell(session.phase.as_ref()),
            cell(session.subprocess_pid),
            cell(session.subprocess_starttime),
            cell_instant(session.lock_heartbeat_at.as_deref()),
            session.workflow_id.clone(),
        ]);
    }
    table
}

#[derive(Debug, Args)]
pub(crate) struct Sweep {
    /// Which one, as `scheduler` or `reaper`; all of them, in their order, where it is left out
    #[arg(default_value = "", hide_default_value = true)]
    name: String,
}

#[derive(Debug, Serialize)]
struct Swept {
    reports: Vec<SweepReport>,
}

impl Sweep {
    /// Turns the crank and prints what it did. A sweep that ended early makes the command fail.
    pub(crate) async fn run(self, target: &Target) -> Result<(), Error> {
        let mut client = target.connect().await?;
        let request = SweepRequest { name: self.name };
        let answer = client.fleet.sweep(request).await?.into_inner();
        let reports: Vec<_> = answer.reports.into_iter().map(SweepReport::from).collect();
        let failed = failed(&reports);
        match target.output {
            Format::Json => output::json(&Swept { reports })?,
            Format::Table => output::text(&report_table(&reports).render())?,
        }
        failed
    }
}

fn failed(reports: &[SweepReport]) -> Result<(), Error> {
    let early: Vec<_> = reports
        .iter()
        .filter_map(|report| Some(format!("{}: {}", report.name, report.error.as_ref()?)))
        .collect();
    if early.is_empty() {
        return Ok(());
    }
    Err(Error::Failed(anyhow::anyhow!(
        "sweep ended early: {}",
        early.join("; ")
    )))
}

fn report_table(reports: &[SweepReport]) -> Table {
    let mut table = Table::new(["SWEEP", "EXAMINED", "CHANGED", "FAILED", "ERROR"]);
    for report in reports {
        table.row([
            report.name.clone(),
            report.examined.to_string(),
            report.changed.to_string(),
            report.failed.to_string(),
            cell(report.error.as_ref()),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sweep_that_ended_early_is_a_failure() {
        let report = |name: &str, error: Option<&str>| SweepReport {
            name: name.to_owned(),
            examined: 1,
            changed: 0,
            failed: 0,
            error: error.map(str::to_owned),
        };
        assert!(failed(&[report("reaper", None)]).is_ok());
        let error = failed(&[report("reaper", None), report("effector", Some("e"))]).unwrap_err();
        let Error::Failed(error) = error else {
            panic!("{error:?}")
        };
        assert_eq!(error.to_string(), "sweep ended early: effector: e");
    }
}
