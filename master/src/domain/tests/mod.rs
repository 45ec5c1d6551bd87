//! Tests of the whole domain: the table's invariants, walks, and properties of `decide`.
//!
//! Each check that guards a rule has a saboteur beside it: a test that breaks the rule on purpose and
//! sees that check, and no other, fail. What a decision does is told in one line by [`tell`], so that
//! the tables of cases read like the tables of the design.

mod attempt;
mod backoff;
mod ci;
mod effects;
mod heads;
mod hold;
mod invariants;
mod luck;
mod names;
mod operator;
mod pause;
mod policy;
mod properties;
mod property_saboteurs;
mod saboteurs;
mod strategies;
mod succession;
mod table;
mod upstream;
mod verdicts;
mod walks;

use std::fmt::Write;

use uuid::Uuid;

use super::{
    decide::decide,
    decision::{Decision, Input, OpenEffect, Outcome},
    ids::{CommitId, RepositoryId, WorkflowId},
    policy::Policy,
    time::Timestamp,
    transitions::State,
    workflow::{Counters, Facts, Identity, Kind, Pause, PausedBy, Progress, Workflow},
};

const NOW: Timestamp = Timestamp(1_000_000_000);
const EARLIER: Timestamp = Timestamp(1_000_000);

/// Commit number `n`. Number 1 is the recorded head wherever a test doesn't say otherwise.
fn commit(n: u128) -> CommitId {
    CommitId::try_from(format!("{n:040x}")).unwrap()
}

fn identity(kind: Kind) -> Identity {
    Identity {
        id: WorkflowId(Uuid::from_u128(1)),
        repository: RepositoryId(Uuid::from_u128(2)),
        kind,
        number: 7,
        title: String::new(),
        body: String::new(),
        head_ref: "pointsman/7".to_owned(),
        base_ref: "main".to_owned(),
        parent: None,
        predecessor: None,
        created_at: EARLIER,
    }
}

/// A workflow in `state`, at tier 1, with nothing spent and head 1.
fn progress(state: State) -> Progress {
    Progress {
        state,
        pause: None,
        tier: 1,
        counters: Counters::fresh(&Policy::default()),
        head: Some(commit(1)),
        awaiting_ci_started_at: Some(EARLIER),
        merging_started_at: Some(EARLIER),
        facts: Facts::default(),
        merged_commit: None,
        pull_request: None,
        upstream: None,
        left_at: None,
    }
}

fn workflow_with(kind: Kind, progress: Progress) -> Workflow {
    Workflow::restore(identity(kind), progress).unwrap()
}

fn issue(state: State) -> Workflow {
    workflow_with(Kind::Issue, progress(state))
}

fn pull_request(state: State) -> Workflow {
    workflow_with(Kind::PullRequest, progress(state))
}

/// A pull request's workflow with a change to where it stands.
fn pull_request_where(state: State, change: impl FnOnce(&mut Progress)) -> Workflow {
    let mut progress = progress(state);
    change(&mut progress);
    workflow_with(Kind::PullRequest, progress)
}

fn paused(kind: Kind, was: State, by: PausedBy) -> Workflow {
    let mut progress = progress(State::Paused);
    progress.pause = Some(Pause { was, by });
    workflow_with(kind, progress)
}

/// The decision, where there must be one.
fn decision_under(policy: &Policy, workflow: &Workflow, input: Input) -> Decision {
    match decide(workflow, input, policy, NOW) {
        Ok(Outcome::Changed(decision)) => *decision,
        other => panic!("a decision was expected, not {other:?}"),
    }
}

fn decision(workflow: &Workflow, input: Input) -> Decision {
    decision_under(&Policy::default(), workflow, input)
}

/// The workflow after `input`.
fn after(workflow: &Workflow, input: Input) -> Workflow {
    let mut workflow = workflow.clone();
    let decision = decision(&workflow, input);
    workflow.apply(&decision);
    workflow
}

/// One line: the event, where it leads, the state under a pause, and the effect opened.
fn tell_under(policy: &Policy, workflow: &Workflow, input: Input) -> String {
    let decision = match decide(workflow, input, policy, NOW) {
        Ok(Outcome::Changed(decision)) => decision,
        Ok(Outcome::Unchanged) => return "unchanged".to_owned(),
        Err(refusal) => return format!("refused: {refusal}"),
    };
    let progress = &decision.progress;
    let mut line = format!("{} -> {}", decision.event.as_str(), progress.state);
    if let Some(pause) = progress.pause {
        write!(line, " by {}, was {}", pause.by, pause.was).unwrap();
    }
    if let OpenEffect::Replaced(effect) = &decision.effect {
        write!(line, " + {}", effect.name()).unwrap();
    }
    line
}

fn tell(workflow: &Workflow, input: Input) -> String {
    tell_under(&Policy::default(), workflow, input)
}

/// `input` does to `workflow` what `expected` tells.
#[track_caller]
fn check(workflow: &Workflow, input: Input, expected: &str) {
    let told = tell(workflow, input.clone());
    assert_eq!(
        told,
        expected,
        "{} in {} got {input:?}",
        workflow.kind,
        workflow.state()
    );
}

/// `input` is refused with a text that contains `expected`.
#[track_caller]
fn check_refused(workflow: &Workflow, input: Input, expected: &str) {
    let told = tell(workflow, input);
    assert!(
        told.starts_with("refused: ") && told.contains(expected),
        "{told:?} is no refusal with {expected:?}"
    );
}
