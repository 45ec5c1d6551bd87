//! A workflow as a test tells it: its state, and what happened in order.

use pointsman_proto::v1::{Attempt, Event, GetWorkflowResponse, Role, Workflow, WorkflowState};
use serde_json::Value;

/// A workflow with its attempts and events.
#[derive(Debug, Clone, PartialEq)]
pub struct Story(GetWorkflowResponse);

/// An issue that came to its merge.
#[derive(Debug)]
pub struct Tale {
    pub issue: Story,
    pub pull_request: Story,
}

impl Story {
    pub(super) fn new(answer: GetWorkflowResponse) -> Self {
        Self(answer)
    }

    pub(super) fn answer(&self) -> &GetWorkflowResponse {
        &self.0
    }

    pub fn workflow(&self) -> &Workflow {
        self.0.workflow.as_ref().expect("an answer has a workflow")
    }

    pub fn id(&self) -> String {
        self.workflow().id.clone()
    }

    pub fn state(&self) -> WorkflowState {
        self.workflow().state()
    }

    pub fn waiting(&self) -> &str {
        self.0.waiting.as_ref().map_or("", |waiting| &waiting.text)
    }

    pub fn attempts(&self) -> &[Attempt] {
        &self.0.attempts
    }

    /// Attempts of a role, oldest first.
    pub fn attempts_of(&self, role: Role) -> Vec<&Attempt> {
        let attempts = self.0.attempts.iter();
        attempts.filter(|a| a.role() == role).collect()
    }

    pub fn events(&self) -> &[Event] {
        &self.0.events
    }

    /// Kinds of the events, oldest first.
    pub fn kinds(&self) -> Vec<&str> {
        self.0.events.iter().map(|e| e.kind.as_str()).collect()
    }

    pub fn has(&self, kind: &str) -> bool {
        self.count(kind) > 0
    }

    pub fn count(&self, kind: &str) -> usize {
        self.kinds().iter().filter(|k| **k == kind).count()
    }

    /// The newest event of a kind.
    ///
    /// # Panics
    /// Where there is none.
    pub fn event(&self, kind: &str) -> &Event {
        let mut newest_first = self.0.events.iter().rev();
        newest_first
            .find(|event| event.kind == kind)
            .unwrap_or_else(|| panic!("no {kind} in {:?}", self.kinds()))
    }

    /// Facts of the newest event of a kind.
    pub fn facts(&self, kind: &str) -> Value {
        serde_json::from_str(&self.event(kind).detail_json).expect("facts are JSON")
    }

    /// The states that it went through, from the first.
    pub fn states(&self) -> Vec<WorkflowState> {
        let mut states: Vec<WorkflowState> = Vec::new();
        for event in self.events() {
            if states.last() != Some(&event.to_state()) {
                states.push(event.to_state());
            }
        }
        states
    }
}
