//! Follows the issue to its pull request, and the pull request to its merge.

use anyhow::anyhow;
use pointsman_proto::v1::ListWorkflowsRequest;
use tokio::time::sleep;

use super::progress::Progress;
use crate::{
    client::Client,
    error::Error,
    event,
    processes::{LOOK_INTERVAL, Processes},
    view::{Event, Workflow, cell},
    workflow,
};

/// The most events that a master gives at once; a demo has some twenty.
const EVENTS: u32 = 1000;

/// How it went.
#[derive(Debug)]
pub(super) struct Story {
    pub(super) workflows: Vec<Workflow>,
    pub(super) events: Vec<Event>,
    /// Id of the pull request's workflow.
    pub(super) pull_request: String,
    pub(super) merged_commit: String,
}

impl Story {
    /// The item that an event is about, for people.
    pub(super) fn name_of(&self, event: &Event) -> String {
        let id = event.workflow_id.as_ref();
        cell(self.workflows.iter().find(|w| Some(&w.id) == id).map(name))
    }

    /// Kinds of the pull request's events, in order.
    pub(super) fn pull_request_events(&self) -> impl Iterator<Item = &str> {
        let id = Some(&self.pull_request);
        let events = self
            .events
            .iter()
            .filter(move |e| e.workflow_id.as_ref() == id);
        events.map(|event| event.kind.as_str())
    }
}

/// Where the whole stands.
enum Standing {
    /// This workflow has to move next.
    Under {
        id: String,
        name: String,
    },
    Merged {
        pull_request: String,
        commit: String,
    },
    Failed(String),
}

/// Says each change of state, until the pull request is merged or can't be any more.
pub(super) async fn to_the_merge(
    client: &mut Client,
    processes: &mut Processes,
    progress: &Progress,
) -> Result<Story, Error> {
    let mut events: Vec<Event> = Vec::new();
    loop {
        processes.must_be_alive()?;
        // In this order: what the workflows show has its event in the list that is read after them.
        let workflows = workflow::all(client, ListWorkflowsRequest::default()).await?;
        tell_news(client, progress, &workflows, &mut events).await?;
        match standing(&workflows) {
            Standing::Under { id, name } => {
                let waits = workflow::waiting(client, id).await?;
                progress.wait_for(format!("{name} ({})", cell(waits)));
            }
            Standing::Merged {
                pull_request,
                commit,
            } => {
                return Ok(Story {
                    workflows,
                    events,
                    pull_request,
                    merged_commit: commit,
                });
            }
            Standing::Failed(why) => return Err(anyhow!(why).into()),
        }
        sleep(LOOK_INTERVAL).await;
    }
}

async fn tell_news(
    client: &mut Client,
    progress: &Progress,
    workflows: &[Workflow],
    events: &mut Vec<Event>,
) -> Result<(), Error> {
    let after = events.last().map_or(0, |event| event.sequence);
    for event in event::list(client, String::new(), after, EVENTS).await? {
        let workflow = workflows
            .iter()
            .find(|w| event.workflow_id.as_ref() == Some(&w.id));
        match (workflow, &event.workflow_id) {
            (Some(workflow), _) => tell(progress, workflow, &event),
            (None, None) => {}
            // A workflow younger than the list: told in the next round, with its name.
            (None, Some(_)) => break,
        }
        events.push(event);
    }
    Ok(())
}

fn tell(progress: &Progress, workflow: &Workflow, event: &Event) {
    if event.from_state == event.to_state {
        return;
    }
    progress.say(&format!(
        "{:<16} {:>12} -> {:<12} {}",
        name(workflow),
        cell(event.from_state.as_ref()),
        cell(event.to_state.as_ref()),
        event.kind,
    ));
}

fn name(workflow: &Workflow) -> String {
    let kind = match workflow.kind.as_deref() {
        Some("PULL_REQUEST") => "pull request",
        _ => "issue",
    };
    format!("{kind} #{}", workflow.number)
}

fn standing(workflows: &[Workflow]) -> Standing {
    let pull_request = workflows.iter().find(|w| w.parent_id.is_some());
    let Some(workflow) = pull_request.or_else(|| workflows.first()) else {
        return Standing::Failed("the master has lost the issue's workflow".to_owned());
    };
    let name = name(workflow);
    match (workflow.state.as_deref(), &workflow.merged_commit) {
        (Some("MERGED"), Some(commit)) => Standing::Merged {
            pull_request: workflow.id.clone(),
            commit: commit.clone(),
        },
        (Some(state @ ("STUCK" | "ABANDONED" | "PAUSED" | "MERGED")), _) => {
            Standing::Failed(format!("{name} ended in {state}"))
        }
        (state, _) => Standing::Under {
            id: workflow.id.clone(),
            name: format!("{name}, in {}", cell(state)),
        },
    }
}
