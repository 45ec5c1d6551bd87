//! `pointsman watch`: workflows as they change.

use std::{collections::HashMap, time::Duration};

use clap::{Args, ValueEnum};
use pointsman_proto::v1::{WatchWorkflowsRequest, WatchWorkflowsResponse, WorkflowState};
use tonic::{Status, Streaming};

use crate::{
    args::Target,
    client::{Client, Patience},
    error::Error,
    name,
    output::{self, Format, board::Board},
    view::{Workflow, cell, cell_instant},
    workflow,
};

/// Longest silence: three of the signs of life that a master gives every 10 s.
const SILENCE: Duration = Duration::from_secs(30);

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  pointsman watch
  pointsman watch demo --state stuck,paused
  pointsman watch demo#1 --until terminal
  pointsman watch demo -o json")]
pub(crate) struct Watch {
    /// A repository; or one item, as REPOSITORY#NUMBER or by its workflow's id, with the pull request that it
    /// opens; all workflows where it is left out
    #[arg(value_name = "REPOSITORY[#NUMBER]")]
    subject: Option<String>,
    /// Only those in these states, as `stuck,paused`, and when they leave them
    #[arg(long, value_delimiter = ',', value_parser = name::parse_state)]
    state: Vec<WorkflowState>,
    /// Ends when the item does: with 0 where its change was merged, with 6 where it was not. An issue ends
    /// with the pull request that it opens
    #[arg(long, value_enum, requires = "subject")]
    until: Option<Until>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Until {
    Terminal,
}

impl Watch {
    /// Prints each change until the item ends, or for ever.
    pub(crate) async fn run(self, target: &Target) -> Result<(), Error> {
        let mut client = target.connect().await?;
        let subject = Subject::find(&mut client, self.subject.as_deref()).await?;
        if self.until.is_some() && subject.item.is_none() {
            return Err(Error::Usage(
                "--until takes one item, as REPOSITORY#NUMBER".to_owned(),
            ));
        }
        let mut view = View::new(subject.item.clone(), self.states(), target.output);
        let mut patience = Patience::default();
        let mut token = String::new();
        loop {
            let request = WatchWorkflowsRequest {
                repository: subject.repository.clone(),
                states: self.state.iter().map(|state| i32::from(*state)).collect(),
                resume_token: token.clone(),
                ..WatchWorkflowsRequest::default()
            };
            let ended = match client.workflows.watch_workflows(request).await {
                Ok(stream) => {
                    let stream = stream.into_inner();
                    let until = self.until.is_some();
                    match follow(stream, &mut view, &mut token, &mut patience, until).await? {
                        Followed::ToTheEnd => return Ok(()),
                        Followed::Broken(status) => status,
                    }
                }
                Err(status) => status,
            };
            patience.wait_after(ended).await?;
        }
    }

    fn states(&self) -> Vec<String> {
        let states = self.state.iter().map(|state| i32::from(*state));
        states.filter_map(name::state).collect()
    }
}

/// What is watched.
#[derive(Debug)]
struct Subject {
    /// Empty: all.
    repository: String,
    /// The workflow of one item.
    item: Option<String>,
}

impl Subject {
    async fn find(client: &mut Client, typed: Option<&str>) -> Result<Self, Error> {
        let Some(typed) = typed else {
            return Ok(Self {
                repository: String::new(),
                item: None,
            });
        };
        let is_item = typed.contains('#') || workflow::is_id(typed);
        if !is_item {
            return Ok(Self {
                repository: typed.to_owned(),
                item: None,
            });
        }
        let id = workflow::resolve(client, typed).await?;
        let found = workflow::one(client, id.clone()).await?;
        Ok(Self {
            repository: found.repository,
            item: Some(id),
        })
    }
}

enum Followed {
    /// The item has ended well.
    ToTheEnd,
    /// Watch again.
    Broken(Status),
}

async fn follow(
    mut stream: Streaming<WatchWorkflowsResponse>,
    view: &mut View,
    token: &mut String,
    patience: &mut Patience,
    until: bool,
) -> Result<Followed, Error> {
    loop {
        let told = match tokio::time::timeout(SILENCE, stream.message()).await {
            Ok(Ok(Some(told))) => told,
            Ok(Ok(None)) => return Ok(Followed::Broken(Status::unavailable("the stream ended"))),
            Ok(Err(status)) => return Ok(Followed::Broken(status)),
            Err(_) => {
                return Ok(Followed::Broken(Status::unavailable(
                    "the master is silent",
                )));
            }
        };
        patience.succeeded();
        *token = told.resume_token;
        for workflow in told.workflows {
            view.take(workflow.into())?;
        }
        view.draw();
        if until && let Some(end) = view.end() {
            return end.map(|()| Followed::ToTheEnd);
        }
    }
}

/// What is known, and how it is shown.
struct View {
    item: Option<String>,
    /// Short names; empty: all.
    states: Vec<String>,
    format: Format,
    board: Board,
    known: HashMap<String, Workflow>,
    /// Ids of those that are not over, the one that changed last at the end.
    live: Vec<String>,
}

impl View {
    fn new(item: Option<String>, states: Vec<String>, format: Format) -> Self {
        Self {
            item,
            states,
            format,
            board: Board::new(),
            known: HashMap::new(),
            live: Vec::new(),
        }
    }

    /// Takes in what was told, and prints it where it is new and asked for.
    fn take(&mut self, workflow: Workflow) -> Result<(), Error> {
        if let Some(item) = &self.item
            && workflow.id != *item
            && workflow.parent_id.as_ref() != Some(item)
        {
            return Ok(());
        }
        let before = self.known.get(&workflow.id);
        // What is told again, or late, is nothing new.
        if before.is_some_and(|before| before.version >= workflow.version) {
            return Ok(());
        }
        let is_wanted = |workflow: &Workflow| {
            self.states.is_empty()
                || workflow
                    .state
                    .as_ref()
                    .is_some_and(|s| self.states.contains(s))
        };
        let was_wanted = before.is_some_and(is_wanted);
        let is_told = was_wanted || is_wanted(&workflow);
        let was = before.and_then(|before| before.state.clone());
        self.live.retain(|id| *id != workflow.id);
        let is_live = !is_over(&workflow) && is_wanted(&workflow);
        if is_told {
            match self.format {
                Format::Json => output::json_line(&workflow)?,
                Format::Table if self.board.is_redrawn() && is_live => {}
                Format::Table => self.board.say(&sentence(was.as_deref(), &workflow))?,
            }
        }
        if is_live {
            self.live.push(workflow.id.clone());
        }
        self.known.insert(workflow.id.clone(), workflow);
        Ok(())
    }

    fn draw(&mut self) {
        if self.format == Format::Json {
            return;
        }
        let live = self.live.iter().rev().filter_map(|id| self.known.get(id));
        let lines: Vec<String> = live.map(|workflow| sentence(None, workflow)).collect();
        self.board.draw(&lines);
    }

    /// How the item ended; `None` while it goes on.
    fn end(&self) -> Option<Result<(), Error>> {
        let item = self.known.get(self.item.as_ref()?)?;
        let decisive = match item.state.as_deref() {
            Some("CREATED_PR") => {
                let children = self.known.values().filter(|w| w.parent_id == self.item);
                children.max_by_key(|child| &child.id)?
            }
            _ => item,
        };
        match decisive.state.as_deref() {
            Some("MERGED") => Some(Ok(())),
            Some(state @ ("STUCK" | "ABANDONED")) => {
                let name = format!("{}#{}", decisive.repository, decisive.number);
                Some(Err(Error::Ended(format!(
                    "{name} ended in {state}; `pointsman workflow {name}` says why"
                ))))
            }
            _ => None,
        }
    }
}

/// Whether the workflow has come to its end.
pub(crate) fn is_over(workflow: &Workflow) -> bool {
    let state = workflow.state.as_deref();
    matches!(state, Some("MERGED" | "CREATED_PR" | "ABANDONED" | "STUCK"))
}

/// One line for people.
fn sentence(was: Option<&str>, workflow: &Workflow) -> String {
    let state = cell(workflow.state.as_ref());
    let movement = match was {
        Some(was) if was != state => format!("{was} -> {state}"),
        Some(_) | None => state,
    };
    let kind = match workflow.kind.as_deref() {
        Some("PULL_REQUEST") => "pull request",
        _ => "issue",
    };
    format!(
        "{}  {}#{} {kind}  {movement}  tier {}  {}",
        cell_instant(workflow.updated_at.as_deref()),
        workflow.repository,
        workflow.number,
        workflow.tier,
        workflow.title,
    )
}

#[cfg(test)]
mod tests {
    use pointsman_proto::v1;

    use super::*;

    fn told(id: &str, parent: &str, state: WorkflowState, version: u64) -> Workflow {
        Workflow::from(v1::Workflow {
            id: id.to_owned(),
            parent_id: parent.to_owned(),
            repository: "demo".to_owned(),
            number: 1,
            state: state.into(),
            version,
            ..v1::Workflow::default()
        })
    }

    /// In a state that there is not, so that nothing is printed.
    fn view(item: Option<&str>) -> View {
        let states = vec!["NOWHERE".to_owned()];
        View::new(item.map(str::to_owned), states, Format::Table)
    }

    #[test]
    fn an_issue_ends_with_its_newest_pull_request() {
        let mut view = view(Some("a"));
        view.take(told("a", "", WorkflowState::CreatedPr, 3))
            .unwrap();
        assert!(view.end().is_none(), "its pull request is not known yet");
        view.take(told("b", "a", WorkflowState::Stuck, 1)).unwrap();
        let Some(Err(error)) = view.end() else {
            panic!("it ended without a merge")
        };
        assert!(error.message().contains("STUCK"), "{}", error.message());
        view.take(told("c", "a", WorkflowState::Merged, 1)).unwrap();
        assert!(matches!(view.end(), Some(Ok(()))));
    }

    #[test]
    fn what_is_told_twice_or_late_counts_once() {
        let mut view = view(Some("a"));
        view.take(told("a", "", WorkflowState::Merged, 3)).unwrap();
        view.take(told("a", "", WorkflowState::Stuck, 2)).unwrap();
        assert!(matches!(view.end(), Some(Ok(()))));
    }

    #[test]
    fn of_other_items_nothing_is_kept() {
        let mut view = view(Some("a"));
        view.take(told("x", "", WorkflowState::Stuck, 1)).unwrap();
        assert!(view.known.is_empty() && view.end().is_none());
    }

    #[test]
    fn both_states_are_said_where_it_moved() {
        let workflow = told("a", "", WorkflowState::Merged, 1);
        assert!(sentence(Some("MERGING"), &workflow).contains("MERGING -> MERGED"));
        assert!(sentence(None, &workflow).contains("issue  MERGED  tier"));
    }
}
