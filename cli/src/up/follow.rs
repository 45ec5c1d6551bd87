//! Follows all workflows of the master: tells what happens, and knows when nothing is left to happen.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use pointsman_proto::v1::{ListWorkflowsRequest, WorkflowState};
use tokio::time::Instant;

use super::show::{Line, Show, item};
use crate::{
    client::Client,
    error::Error,
    event, output,
    view::{Waiting, Workflow, cell},
    workflow,
};

/// The most events that a master gives at once.
const EVENTS: u32 = 1000;

/// For how long a workflow must have waited for one thing before that is told: most waits are over before.
const TOLD_AFTER: Duration = Duration::from_secs(3);

/// Between two looks at what workflows wait for.
const WAITS_INTERVAL: Duration = Duration::from_secs(2);

/// Workflows whose waits are looked at, the oldest: as many as a repository drives at once by default.
const WAITS: usize = 20;

/// States that a workflow leaves by itself, or after a person did something.
const NOT_TERMINAL: [WorkflowState; 9] = [
    WorkflowState::Discovered,
    WorkflowState::Analyzing,
    WorkflowState::Implementing,
    WorkflowState::AwaitingCi,
    WorkflowState::Reviewing,
    WorkflowState::ConflictResolving,
    WorkflowState::Escalating,
    WorkflowState::Merging,
    WorkflowState::Paused,
];

/// Follows a master from where its history is now.
pub(super) struct Follower {
    client: Client,
    show: Show,
    /// Of the last event that was told.
    sequence: u64,
    /// Workflows that are not terminal, were not in this run, or wait for a person.
    known: BTreeMap<String, Workflow>,
    waits: BTreeMap<String, Wait>,
    next_waits_at: Instant,
}

/// What a workflow waits for.
struct Wait {
    text: String,
    seen_at: Instant,
    is_told: bool,
}

/// How all of it stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Standing {
    /// Something moves, or may.
    Open,
    /// Nothing is left, and all that there was is merged.
    Merged,
    /// Nothing moves any more, and something waits for a person or was given up.
    Unfinished,
}

impl Follower {
    /// What happened before is not told.
    pub(super) async fn start(mut client: Client, show: Show) -> Result<Self, Error> {
        let mut sequence = 0;
        loop {
            let events = event::list(&mut client, String::new(), sequence, EVENTS).await?;
            match events.last() {
                Some(last) => sequence = last.sequence,
                None => break,
            }
        }
        let states = NOT_TERMINAL.into_iter().chain([WorkflowState::Stuck]);
        let request = ListWorkflowsRequest {
            states: states.map(i32::from).collect(),
            ..ListWorkflowsRequest::default()
        };
        let known = workflow::all(&mut client, request).await?;
        Ok(Self {
            client,
            show,
            sequence,
            known: known.into_iter().map(|w| (w.id.clone(), w)).collect(),
            waits: BTreeMap::new(),
            next_waits_at: Instant::now(),
        })
    }

    /// Looks once, and tells what is new. May be dropped in the middle: what was told is not told again.
    pub(super) async fn round(&mut self) -> Result<(), Error> {
        let request = ListWorkflowsRequest {
            states: NOT_TERMINAL.map(i32::from).to_vec(),
            ..ListWorkflowsRequest::default()
        };
        let open = workflow::all(&mut self.client, request).await?;
        let open_ids: BTreeSet<String> = open.iter().map(|w| w.id.clone()).collect();
        // What was open and is not any more has come to its end since the last round.
        let is_at_its_end = |w: &&Workflow| !is_terminal(w) && !open_ids.contains(&w.id);
        let ended = self.known.values().filter(is_at_its_end);
        let ended: Vec<String> = ended.map(|w| w.id.clone()).collect();
        self.known
            .extend(open.into_iter().map(|w| (w.id.clone(), w)));
        for id in ended {
            self.look_at(id).await?;
        }
        self.tell_events().await?;
        self.tell_waits(&open_ids).await
    }

    async fn look_at(&mut self, id: String) -> Result<(), Error> {
        let (workflow, _) = workflow::with_waiting(&mut self.client, id.clone()).await?;
        self.known.insert(id, workflow);
        Ok(())
    }

    async fn tell_events(&mut self) -> Result<(), Error> {
        loop {
            let events =
                event::list(&mut self.client, String::new(), self.sequence, EVENTS).await?;
            if events.is_empty() {
                return Ok(());
            }
            for event in events {
                if let Some(id) = &event.workflow_id {
                    // One that came and went between two rounds.
                    if !self.known.contains_key(id) {
                        self.look_at(id.clone()).await?;
                    }
                    if let Some(workflow) = self.known.get(id) {
                        self.show.event(workflow, &event)?;
                    }
                }
                self.sequence = event.sequence;
            }
        }
    }

    async fn tell_waits(&mut self, open: &BTreeSet<String>) -> Result<(), Error> {
        if Instant::now() < self.next_waits_at {
            return Ok(());
        }
        self.next_waits_at = Instant::now() + WAITS_INTERVAL;
        self.waits.retain(|id, _| open.contains(id));
        for id in open.iter().take(WAITS) {
            let (workflow, waiting) = workflow::with_waiting(&mut self.client, id.clone()).await?;
            // It is not known by this: where it has ended meanwhile, what came of it may not be known yet, and
            // nothing would seem to be left. The next round's list has both.
            if let Some(waiting) = waiting {
                self.tell_wait(&workflow, &waiting)?;
            }
        }
        Ok(())
    }

    fn tell_wait(&mut self, workflow: &Workflow, waiting: &Waiting) -> Result<(), Error> {
        let now = Instant::now();
        let new = || Wait {
            text: waiting.text.clone(),
            seen_at: now,
            is_told: false,
        };
        let wait = self.waits.entry(workflow.id.clone()).or_insert_with(new);
        if wait.text != waiting.text {
            *wait = new();
        }
        if wait.is_told || now.duration_since(wait.seen_at) < TOLD_AFTER {
            return Ok(());
        }
        wait.is_told = true;
        self.show.waiting(workflow, waiting)
    }

    /// How all of it stood in the last round.
    pub(super) fn standing(&self) -> Standing {
        standing(self.known.values())
    }

    /// Tells of each workflow that was not terminal, or waits for a person, how it stands now.
    pub(super) async fn tell_outcome(&mut self) -> Result<(), Error> {
        // An issue whose pull request was opened is told by its pull request.
        let is_told = |w: &&Workflow| w.state.as_deref() != Some("CREATED_PR");
        let workflows: Vec<Workflow> = self.known.values().filter(is_told).cloned().collect();
        for workflow in workflows {
            let reason = self.reason(&workflow).await?;
            let name = item(&workflow);
            let mut text = format!("{name}: {}", cell(workflow.state.as_ref()));
            if let Some(commit) = &workflow.merged_commit {
                text = format!("{text} as {commit}");
            }
            if let Some(reason) = &reason {
                text = format!("{text}: {reason}");
            }
            if workflow.state.as_deref() == Some("STUCK") {
                text = format!("{text} (`pointsman workflow {name}` shows all of it)");
            }
            let line = Line::Ended {
                item: &name,
                state: workflow.state.as_deref(),
                merged_commit: workflow.merged_commit.as_deref(),
                reason: reason.as_deref(),
            };
            self.show.say(&output::printable(&text), &line)?;
        }
        Ok(())
    }

    /// Why it is where it is, of a workflow that is not merged.
    async fn reason(&mut self, workflow: &Workflow) -> Result<Option<String>, Error> {
        if workflow.state.as_deref() == Some("MERGED") {
            return Ok(None);
        }
        let events = workflow::events(&mut self.client, workflow.id.clone()).await?;
        let last = events
            .into_iter()
            .rev()
            .find(|e| e.to_state == workflow.state);
        Ok(last.and_then(|event| event.reason))
    }
}

fn is_terminal(workflow: &Workflow) -> bool {
    let state = workflow.state.as_deref();
    matches!(state, Some("MERGED" | "CREATED_PR" | "ABANDONED" | "STUCK"))
}

/// A paused workflow moves only when a person does something.
fn standing<'a>(workflows: impl Iterator<Item = &'a Workflow>) -> Standing {
    let mut all = Standing::Merged;
    for workflow in workflows {
        match workflow.state.as_deref() {
            Some("MERGED" | "CREATED_PR") => {}
            Some("STUCK" | "ABANDONED" | "PAUSED") => all = Standing::Unfinished,
            Some(_) | None => return Standing::Open,
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use pointsman_proto::v1;

    use super::*;

    fn check(states: &[WorkflowState], expected: Standing) {
        let workflows = states.iter().map(|&state| {
            Workflow::from(v1::Workflow {
                state: state.into(),
                ..v1::Workflow::default()
            })
        });
        let workflows: Vec<Workflow> = workflows.collect();
        assert_eq!(standing(workflows.iter()), expected, "{states:?}");
    }

    #[test]
    fn it_is_over_when_nothing_moves_by_itself() {
        use WorkflowState::{Abandoned, CreatedPr, Merged, Merging, Paused, Stuck};
        check(&[], Standing::Merged);
        check(&[CreatedPr, Merged], Standing::Merged);
        for given_up in [Stuck, Abandoned, Paused] {
            check(&[given_up, Merged], Standing::Unfinished);
            check(&[given_up, Merging], Standing::Open);
        }
    }

    #[test]
    fn each_state_is_terminal_or_followed() {
        let terminal = [
            WorkflowState::Merged,
            WorkflowState::CreatedPr,
            WorkflowState::Abandoned,
            WorkflowState::Stuck,
        ];
        let n = (1..)
            .map_while(|value| WorkflowState::try_from(value).ok())
            .inspect(|state| assert!(terminal.contains(state) ^ NOT_TERMINAL.contains(state)))
            .count();
        assert_eq!(n, terminal.len() + NOT_TERMINAL.len());
    }
}
