//! Which workflow is it: when an item that had a workflow gets another one.
//!
//! A workflow that merged stays, and one that is STUCK waits for a person. One that ended without its work
//! being done may be followed by another of the same item: by itself once *we* have seen the item closed or
//! without the label since, and at once where an operator asks. No clock of a forge is compared with ours.

use super::{
    decision::Gate,
    transitions::State,
    workflow::{Upstream, Workflow},
};

/// Why a workflow is not followed by another one of its item.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Standing {
    #[error("it is in {0}, and not over")]
    Live(State),
    #[error("it is STUCK: unstick it")]
    Stuck,
    #[error("it was merged")]
    Merged,
    #[error("its pull request #{number} is in {state}, and not over")]
    PullRequestLive { number: u64, state: State },
    #[error("its pull request #{number} is STUCK: unstick it, or close the pull request")]
    PullRequestStuck { number: u64 },
    #[error("its pull request #{number} was merged")]
    PullRequestMerged { number: u64 },
}

/// Passes where `workflow` is over and its work is not done. `pull_request` is the newest workflow of the
/// pull request that it opened.
pub fn check_over(workflow: &Workflow, pull_request: Option<&Workflow>) -> Result<(), Standing> {
    let state = workflow.state();
    match (state, pull_request) {
        (State::Abandoned, _) => Ok(()),
        (State::CreatedPr, Some(pull_request)) => check_unmerged(pull_request),
        (State::Merged, _) => Err(Standing::Merged),
        (State::Stuck, _) => Err(Standing::Stuck),
        (
            State::CreatedPr
            | State::Discovered
            | State::Analyzing
            | State::Implementing
            | State::AwaitingCi
            | State::ConflictResolving
            | State::Escalating
            | State::Reviewing
            | State::Merging
            | State::Paused,
            _,
        ) => Err(Standing::Live(state)),
    }
}

fn check_unmerged(pull_request: &Workflow) -> Result<(), Standing> {
    let number = pull_request.number;
    let state = pull_request.state();
    match (state, &pull_request.progress().upstream) {
        (State::Abandoned, _) | (State::Stuck, Some(Upstream::Closed)) => Ok(()),
        (State::Merged, _) | (State::Stuck, Some(Upstream::Merged)) => {
            Err(Standing::PullRequestMerged { number })
        }
        (State::Stuck, None) => Err(Standing::PullRequestStuck { number }),
        (
            State::CreatedPr
            | State::Discovered
            | State::Analyzing
            | State::Implementing
            | State::AwaitingCi
            | State::ConflictResolving
            | State::Escalating
            | State::Reviewing
            | State::Merging
            | State::Paused,
            _,
        ) => Err(Standing::PullRequestLive { number, state }),
    }
}

/// What the sight of an item asks for whose newest workflow is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    Nothing,
    /// That the item left is to be noted.
    NoteLeft,
    /// Another workflow is to follow.
    Follow,
}

/// Decides from whether the item was seen to leave since its newest workflow ended, and from what it shows
/// now.
pub const fn step(has_left: bool, gate: Gate) -> Step {
    match (gate, has_left) {
        (Gate::Open, true) => Step::Follow,
        (Gate::LabelAbsent | Gate::ItemOver, false) => Step::NoteLeft,
        (Gate::Open, false) | (Gate::LabelAbsent | Gate::ItemOver, true) => Step::Nothing,
    }
}
