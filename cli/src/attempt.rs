//! `pointsman attempts` and `cancel`.

use clap::{Args, value_parser};
use pointsman_proto::v1::{CancelAttemptRequest, ListAttemptsRequest, Role};
use serde::Serialize;

use crate::{
    args::Target,
    client::Client,
    error::Error,
    name,
    output::{self, Format, Table},
    view::{Attempt, cell, cell_instant},
    workflow,
};

/// Most entries that the master gives at once.
const PAGE_SIZE: u32 = 500;

/// Of attempts that can be cancelled.
const LIVE: [&str; 2] = ["pending", "in_progress"];

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  pointsman attempts demo#2
  pointsman attempts --status pending,in_progress
  pointsman attempts --role implementer --status failed,reaped --limit 20")]
pub(crate) struct List {
    /// Of one workflow: its id, or REPOSITORY#NUMBER
    workflow: Option<String>,
    /// With these: pending, in_progress, succeeded, failed, cancelled, superseded, reaped
    #[arg(long, value_delimiter = ',')]
    status: Vec<String>,
    /// In these roles, as `implementer,reviewer`
    #[arg(long, value_delimiter = ',', value_parser = name::parse_role)]
    role: Vec<Role>,
    /// Leased last to this worker, by its id
    #[arg(long, default_value = "", hide_default_value = true, value_name = "ID")]
    worker: String,
    /// At most so many, the newest
    #[arg(
        long,
        default_value_t = 100,
        value_name = "N",
        value_parser = value_parser!(u32).range(1..=10_000)
    )]
    limit: u32,
}

#[derive(Debug, Serialize)]
struct Listed {
    attempts: Vec<Attempt>,
}

impl List {
    /// Prints the attempts, newest first.
    pub(crate) async fn run(self, target: &Target) -> Result<(), Error> {
        let mut client = target.connect().await?;
        let workflow_id = match &self.workflow {
            Some(named) => workflow::resolve(&mut client, named).await?,
            None => String::new(),
        };
        let request = ListAttemptsRequest {
            workflow_id,
            statuses: self.status,
            roles: self.role.into_iter().map(i32::from).collect(),
            worker_id: self.worker,
            ..ListAttemptsRequest::default()
        };
        let attempts = list(&mut client, request, self.limit as usize).await?;
        match target.output {
            Format::Json => output::json(&Listed { attempts }),
            Format::Table => output::text(&table(&attempts).render()),
        }
    }
}

/// The newest `limit` that the request asks for, page by page.
async fn list(
    client: &mut Client,
    mut request: ListAttemptsRequest,
    limit: usize,
) -> Result<Vec<Attempt>, Error> {
    let mut attempts = Vec::new();
    request.page_size = PAGE_SIZE;
    loop {
        let answer = client.workflows.list_attempts(request.clone()).await?;
        let page = answer.into_inner();
        attempts.extend(page.attempts.into_iter().map(Attempt::from));
        attempts.truncate(limit);
        request.page_token = page.next_page_token;
        if request.page_token.is_empty() || attempts.len() == limit {
            return Ok(attempts);
        }
    }
}

fn table(attempts: &[Attempt]) -> Table {
    let mut table = Table::new([
        "ROLE",
        "CHECK",
        "TIER",
        "STATUS",
        "OUTCOME",
        "PICKUPS",
        "CREATED AT",
        "ENDED AT",
        "WORKER",
        "ID",
    ]);
    for attempt in attempts {
        table.row([
            cell(attempt.role.as_ref()),
            cell(attempt.check_name.as_ref()),
            attempt.tier.to_string(),
            attempt.status.clone(),
            cell(attempt.outcome.as_ref()),
            attempt.pickup_count.to_string(),
            cell_instant(attempt.created_at.as_deref()),
            cell_instant(attempt.ended_at.as_deref()),
            cell(attempt.worker_id.as_ref()),
            attempt.id.clone(),
        ]);
    }
    table
}

#[derive(Debug, Args)]
#[command(
    after_help = "The work itself is not given up: a new attempt takes its place and carries on its \
counts, so that the workflow is STUCK after as many as its policy allows pickups. `pause` and `abandon` stop \
the work.

Examples:
  pointsman cancel demo#2 --reason stale
  pointsman cancel 01890000-0000-7000-8000-000000000000 --reason stale"
)]
pub(crate) struct Cancel {
    /// The attempt's id, or REPOSITORY#NUMBER where one attempt is live
    attempt: String,
    /// Why, for the history and the worker
    #[arg(long)]
    reason: String,
}

#[derive(Debug, Serialize)]
struct Cancelled {
    changed: bool,
    attempt: Attempt,
}

impl Cancel {
    /// Ends the attempt.
    pub(crate) async fn run(self, target: &Target) -> Result<(), Error> {
        let mut client = target.connect().await?;
        let request = CancelAttemptRequest {
            attempt_id: resolve(&mut client, &self.attempt).await?,
            reason: self.reason,
        };
        let answer = client.workflows.cancel_attempt(request).await?.into_inner();
        let cancelled = Cancelled {
            changed: answer.changed,
            attempt: answer.attempt.unwrap_or_default().into(),
        };
        match target.output {
            Format::Json => output::json(&cancelled),
            Format::Table => {
                let before = if cancelled.changed {
                    "now"
                } else {
                    "unchanged"
                };
                let attempt = &cancelled.attempt;
                let role = cell(attempt.role.as_ref());
                output::line(&format!(
                    "{role} attempt {} {before}: {}",
                    attempt.id, attempt.status
                ))
            }
        }
    }
}

/// The id of the attempt that was typed as an id, or of the one live attempt of REPOSITORY#NUMBER.
async fn resolve(client: &mut Client, typed: &str) -> Result<String, Error> {
    if !typed.contains('#') {
        return Ok(typed.to_owned());
    }
    let request = ListAttemptsRequest {
        workflow_id: workflow::resolve(client, typed).await?,
        statuses: LIVE.map(str::to_owned).to_vec(),
        ..ListAttemptsRequest::default()
    };
    let live = list(client, request, PAGE_SIZE as usize).await?;
    match live.as_slice() {
        [one] => Ok(one.id.clone()),
        [] => Err(Error::NotFound(format!(
            "{typed} has no attempt that is pending or in progress; `pointsman attempts {typed}` lists those there were"
        ))),
        many => {
            let ids: Vec<&str> = many.iter().map(|attempt| attempt.id.as_str()).collect();
            Err(Error::Usage(format!(
                "{typed} has {} live attempts; name one by its id: {}",
                ids.len(),
                ids.join(", ")
            )))
        }
    }
}
