//! `pointsman workflows` and `workflow`: what there is, and why it waits.

use clap::Args;
use pointsman_proto::v1::{
    GetWorkflowRequest, GetWorkflowResponse, ListWorkflowsRequest, WorkflowKind, WorkflowState,
};
use serde::Serialize;
use serde_json::Value;

use crate::{
    args::Target,
    client::Client,
    error::Error,
    event, name,
    output::{self, Format, Table},
    view::{Attempt, Event, Waiting, Workflow, cell, cell_commit, cell_instant},
};

/// Most entries that the master gives at once.
const PAGE_SIZE: u32 = 500;

#[derive(Debug, Args)]
pub(crate) struct List {
    /// Of one repository
    #[arg(
        long,
        default_value = "",
        hide_default_value = true,
        value_name = "NAME"
    )]
    repo: String,
    /// In these states, as `stuck,paused`
    #[arg(long, value_delimiter = ',', value_parser = name::parse_state)]
    state: Vec<WorkflowState>,
    /// Of one kind: issue or pull-request
    #[arg(long, value_parser = name::parse_kind)]
    kind: Option<WorkflowKind>,
}

#[derive(Debug, Serialize)]
struct Listed {
    workflows: Vec<Workflow>,
}

impl List {
    /// Prints the workflows.
    pub(crate) async fn run(self, target: &Target) -> Result<(), Error> {
        let mut client = target.connect().await?;
        let request = ListWorkflowsRequest {
            repository: self.repo,
            states: self.state.into_iter().map(i32::from).collect(),
            kind: self.kind.unwrap_or_default().into(),
            ..ListWorkflowsRequest::default()
        };
        let workflows = all(&mut client, request).await?;
        match target.output {
            Format::Json => output::json(&Listed { workflows }),
            Format::Table => output::text(&table(&workflows).render()),
        }
    }
}

/// Every workflow that the request asks for, page by page.
pub(crate) async fn all(
    client: &mut Client,
    mut request: ListWorkflowsRequest,
) -> Result<Vec<Workflow>, Error> {
    let mut workflows = Vec::new();
    request.page_size = PAGE_SIZE;
    loop {
        let page = client
            .workflows
            .list_workflows(request.clone())
            .await?
            .into_inner();
        workflows.extend(page.workflows.into_iter().map(Workflow::from));
        request.page_token = page.next_page_token;
        if request.page_token.is_empty() {
            return Ok(workflows);
        }
    }
}

fn table(workflows: &[Workflow]) -> Table {
    let mut table = Table::new(["ITEM", "KIND", "STATE", "TIER", "UPDATED AT", "TITLE", "ID"]);
    for workflow in workflows {
        table.row([
            format!("{}#{}", workflow.repository, workflow.number),
            cell(workflow.kind.as_ref()),
            cell(workflow.state.as_ref()),
            workflow.tier.to_string(),
            cell_instant(workflow.updated_at.as_deref()),
            workflow.title.clone(),
            workflow.id.clone(),
        ]);
    }
    table
}

/// The id of the workflow that was typed as an id or as REPOSITORY#NUMBER: the newest one of that item.
pub(crate) async fn resolve(client: &mut Client, typed: &str) -> Result<String, Error> {
    let Some((repository, number)) = typed.rsplit_once('#') else {
        return Ok(typed.to_owned());
    };
    let number: u64 = number.parse().map_err(|_| {
        Error::Usage(format!(
            "{typed:?} is neither a workflow's id nor REPOSITORY#NUMBER"
        ))
    })?;
    let request = ListWorkflowsRequest {
        repository: repository.to_owned(),
        ..ListWorkflowsRequest::default()
    };
    let workflows = all(client, request).await?;
    let mut of_item = workflows.into_iter().filter(|w| w.number == number);
    let found = of_item.next_back();
    found.map(|workflow| workflow.id).ok_or_else(|| {
        Error::NotFound(format!(
            "{typed} has no workflow; `pointsman workflows --repo {repository}` lists those there are"
        ))
    })
}

#[derive(Debug, Args)]
pub(crate) struct Show {
    /// The workflow's id, or REPOSITORY#NUMBER
    workflow: String,
}

#[derive(Debug, Serialize)]
struct Shown {
    workflow: Workflow,
    waiting: Option<Waiting>,
    attempts: Vec<Attempt>,
    events: Vec<Event>,
}

impl Show {
    /// Prints all there is to know.
    pub(crate) async fn run(self, target: &Target) -> Result<(), Error> {
        let mut client = target.connect().await?;
        let workflow_id = resolve(&mut client, &self.workflow).await?;
        let shown = Shown::from(get(&mut client, workflow_id).await?);
        match target.output {
            Format::Json => output::json(&shown),
            Format::Table => output::text(&shown.text()),
        }
    }
}

async fn get(client: &mut Client, workflow_id: String) -> Result<GetWorkflowResponse, Error> {
    let request = GetWorkflowRequest { workflow_id };
    Ok(client.workflows.get_workflow(request).await?.into_inner())
}

/// A workflow by its id.
pub(crate) async fn one(client: &mut Client, workflow_id: String) -> Result<Workflow, Error> {
    let answer = get(client, workflow_id).await?;
    Ok(answer.workflow.unwrap_or_default().into())
}

/// Whether something typed has the form of an id.
pub(crate) fn is_id(typed: &str) -> bool {
    const LENGTH: usize = 36;
    let is_digit = |c: char| c.is_ascii_hexdigit() || c == '-';
    typed.len() == LENGTH && typed.chars().all(is_digit)
}

/// The workflow, and what it waits for; `None` where it is over.
pub(crate) async fn with_waiting(
    client: &mut Client,
    workflow_id: String,
) -> Result<(Workflow, Option<Waiting>), Error> {
    let shown = Shown::from(get(client, workflow_id).await?);
    Ok((shown.workflow, shown.waiting))
}

/// The workflow's events, oldest first.
pub(crate) async fn events(client: &mut Client, workflow_id: String) -> Result<Vec<Event>, Error> {
    Ok(Shown::from(get(client, workflow_id).await?).events)
}

/// What the workflow waits for, in one line; `None` where it is over.
pub(crate) async fn waiting(
    client: &mut Client,
    workflow_id: String,
) -> Result<Option<String>, Error> {
    let answer = get(client, workflow_id).await?;
    Ok(answer.waiting.map(|waiting| waiting.text))
}

impl From<GetWorkflowResponse> for Shown {
    fn from(answer: GetWorkflowResponse) -> Self {
        Self {
            workflow: answer.workflow.unwrap_or_default().into(),
            waiting: answer.waiting.map(Waiting::from),
            attempts: answer.attempts.into_iter().map(Attempt::from).collect(),
            events: answer.events.into_iter().map(Event::from).collect(),
        }
    }
}

impl Shown {
    fn text(&self) -> String {
        format!(
            "{}\n{}\n{}",
            self.summary(),
            attempt_table(&self.attempts).render(),
            event::table(&self.events).render(),
        )
    }

    fn summary(&self) -> String {
        let workflow = &self.workflow;
        let mut lines = vec![
            (
                "item",
                format!("{}#{}", workflow.repository, workflow.number),
            ),
            ("kind", cell(workflow.kind.as_ref())),
            ("title", workflow.title.clone()),
            ("id", workflow.id.clone()),
            ("state", cell(workflow.state.as_ref())),
        ];
        lines.extend(self.pause());
        lines.extend(self.waits());
        lines.extend([
            ("tier", workflow.tier.to_string()),
            ("priority", workflow.priority.to_string()),
            ("branch", cell(workflow.head_ref.as_ref())),
            ("head", cell(workflow.head_sha.as_ref())),
        ]);
        let optional = [
            (
                "pull request",
                workflow.pull_request_number.map(|n| n.to_string()),
            ),
            ("merged as", workflow.merged_commit.clone()),
            ("issue", workflow.parent_id.clone()),
            ("follows", workflow.predecessor_id.clone()),
            ("followed by", workflow.successor_id.clone()),
            ("counters", self.counters()),
            ("archived", self.archived()),
        ];
        lines.extend(
            optional
                .into_iter()
                .filter_map(|(name, value)| Some((name, value?))),
        );
        let lines = lines
            .iter()
            .map(|(name, value)| format!("{name:<13}{}\n", output::printable(value)));
        lines.collect()
    }

    fn archived(&self) -> Option<String> {
        let at = self.workflow.archived_at.as_deref()?;
        let at = cell_instant(Some(at));
        let id = &self.workflow.id;
        Some(format!(
            "at {at}: older attempts and events are in the archive, under workflows/{id}"
        ))
    }

    fn pause(&self) -> Option<(&'static str, String)> {
        let by = self.workflow.paused_by.as_ref()?;
        let state = cell(self.workflow.pre_pause_state.as_ref());
        Some(("paused", format!("by {by}; it goes on in {state}")))
    }

    fn waits(&self) -> Option<(&'static str, String)> {
        let waiting = self.waiting.as_ref()?;
        let mut text = waiting.text.clone();
        let instants = [
            ("since", &waiting.since),
            ("until", &waiting.deadline),
            ("next look", &waiting.next_look_at),
        ];
        for (name, instant) in instants {
            if instant.is_some() {
                text = format!("{text}; {name} {}", cell_instant(instant.as_deref()));
            }
        }
        Some(("waits", text))
    }

    fn counters(&self) -> Option<String> {
        let counters = self.workflow.counters.as_ref()?;
        Some(format!(
            "ci_red_rounds {}, review_rounds {}, conflict_rounds {}, merge_rounds {}, \
             head_moves {}, ci_flake_retries_remaining {}",
            counters.ci_red_rounds,
            counters.review_rounds,
            counters.conflict_rounds,
            counters.merge_rounds,
            counters.head_moves,
            counters.ci_flake_retries_remaining,
        ))
    }
}

fn attempt_table(attempts: &[Attempt]) -> Table {
    let mut table = Table::new([
        "ROLE", "TIER", "STATUS", "OUTCOME", "PICKUPS", "FENCE", "COMMIT", "ENDED AT", "DETAIL",
    ]);
    for attempt in attempts {
        table.row([
            cell(attempt.role.as_ref()),
            attempt.tier.to_string(),
            attempt.status.clone(),
            cell(attempt.outcome.as_ref()),
            attempt.pickup_count.to_string(),
            attempt.lock_fence.to_string(),
            cell_commit(attempt.commit.as_deref()),
            cell_instant(attempt.ended_at.as_deref()),
            cell(attempt.outcome_detail.as_ref().and_then(words)),
        ]);
    }
    table
}

/// What an outcome says in words, of a verdict as of an infrastructure error.
fn words(detail: &Value) -> Option<&str> {
    const KEYS: [&str; 5] = ["message", "reason", "notes", "summary", "plan"];
    KEYS.iter().find_map(|key| detail.get(key)?.as_str())
}

#[cfg(test)]
mod tests {
    use pointsman_proto::v1;

    use super::*;

    #[test]
    fn why_it_does_not_move_is_told_first() {
        let shown = Shown::from(GetWorkflowResponse {
            workflow: Some(v1::Workflow {
                repository: "demo".to_owned(),
                number: 2,
                title: "a\u{1b}title".to_owned(),
                state: WorkflowState::Paused.into(),
                pre_pause_state: WorkflowState::Reviewing.into(),
                paused_by: "label".to_owned(),
                ..v1::Workflow::default()
            }),
            waiting: Some(v1::Waiting {
                text: "for the label `agent`".to_owned(),
                since: Some(prost_types::Timestamp {
                    seconds: 0,
                    nanos: 0,
                }),
                ..v1::Waiting::default()
            }),
            ..GetWorkflowResponse::default()
        });
        let text = shown.summary();
        assert!(text.contains("title        a title\n"), "{text}");
        assert!(text.contains("by label; it goes on in REVIEWING"), "{text}");
        assert!(
            text.contains("waits        for the label `agent`; since 1970-01-01T00:00:00Z\n"),
            "{text}"
        );
    }
}
