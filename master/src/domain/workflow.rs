//! One issue or pull request on its way.

use std::ops::Deref;

use serde::{Deserialize, Serialize};

use super::{
    ci::CheckFailure,
    decision::Decision,
    ids::{CommitId, RepositoryId, WorkflowId},
    policy::Policy,
    text::text_enum,
    time::Timestamp,
    transitions::State,
};

text_enum! {
    /// What kind of item a workflow drives.
    pub enum Kind: "workflow kind" {
        Issue = "issue",
        PullRequest = "pull_request",
    }
}

text_enum! {
    /// Who paused a workflow, and so who may resume it.
    pub enum PausedBy: "pause" {
        Label = "label",
        Operator = "operator",
    }
}

/// Why and where a paused workflow rests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pause {
    /// Where it goes on.
    pub was: State,
    pub by: PausedBy,
}

/// How often each bounded row was taken. Only `decide` changes them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Counters {
    /// At this tier.
    pub ci_red_rounds: u32,
    /// At this tier.
    pub review_rounds: u32,
    pub conflict_rounds: u32,
    pub ci_flake_retries_remaining: u32,
    pub merge_rounds: u32,
    pub head_moves: u32,
}

impl Counters {
    /// Nothing spent yet.
    pub const fn fresh(policy: &Policy) -> Self {
        Self {
            ci_red_rounds: 0,
            review_rounds: 0,
            conflict_rounds: 0,
            ci_flake_retries_remaining: policy.flake_retries(),
            merge_rounds: 0,
            head_moves: 0,
        }
    }
}

/// What earlier steps found out, for the harnesses of later ones. Bounded: newest facts replace older
/// ones, and lists keep their newest [`MAX_FACTS`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Facts {
    pub plan: Option<String>,
    pub ci_failures: Vec<CheckFailure>,
    /// What the newest review objected to; gone once one approves.
    pub review_notes: Option<String>,
    /// Where the head was last seen to conflict with its base; gone once that is resolved.
    pub conflict_paths: Vec<String>,
    pub superseded_commits: Vec<CommitId>,
    /// Why earlier steps did not lead on.
    pub earlier_failures: Vec<String>,
    /// On an issue: the commit that the next implementer starts from.
    pub kept_commit: Option<CommitId>,
    /// The accepted commit that the open effect brings to the forge; gone with the effect.
    pub offered_commit: Option<CommitId>,
}

/// How many bytes of one text the facts and the history keep. Twenty of them still fit into one message to
/// a worker, and a page of five hundred events into one to an operator.
pub const MAX_FACT_BYTES: usize = 4096;

/// The text, or its beginning with a mark where it was cut.
pub fn kept_text(mut text: String) -> String {
    const MARK: &str = "… (cut)";
    if text.len() > MAX_FACT_BYTES {
        text.truncate(text.floor_char_boundary(MAX_FACT_BYTES - MARK.len()));
        text.push_str(MARK);
    }
    text
}

/// The priorities that a workflow may have; higher ones are leased first, and 0 is the one of all that nobody
/// has set. A hundred steps each way tell "now", "soon" and "when idle" apart with room between.
pub const PRIORITIES: std::ops::RangeInclusive<i32> = -100..=100;

/// How many entries a list of [`Facts`] keeps.
pub const MAX_FACTS: usize = 20;

/// How the item ended upstream while the workflow was STUCK.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Upstream {
    Closed,
    Merged,
}

/// All of a workflow that moves. A decision carries the whole of it as it is to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Progress {
    pub state: State,
    /// Set in PAUSED, and there alone.
    pub pause: Option<Pause>,
    /// Never goes down.
    pub tier: u32,
    pub counters: Counters,
    /// The head that verdicts count for; `None` until one was seen.
    pub head: Option<CommitId>,
    /// Set on entry to AWAITING_CI and when the wait starts again.
    pub awaiting_ci_started_at: Option<Timestamp>,
    /// Set on entry to MERGING.
    pub merging_started_at: Option<Timestamp>,
    pub facts: Facts,
    pub merged_commit: Option<CommitId>,
    /// On an issue in CREATED_PR: the pull request's number.
    pub pull_request: Option<u64>,
    /// Written in STUCK alone, which it does not leave.
    pub upstream: Option<Upstream>,
    /// In ABANDONED and CREATED_PR: when we saw the item closed or without the label after the end. Another
    /// workflow may follow from then on.
    pub left_at: Option<Timestamp>,
}

/// One issue or pull request on its way. What it *is* never changes, and is read as its own fields; where
/// it stands changes by [`Workflow::apply`] alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Workflow {
    identity: Identity,
    progress: Progress,
}

impl Deref for Workflow {
    type Target = Identity;

    fn deref(&self) -> &Identity {
        &self.identity
    }
}

/// A stored workflow that can't be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("workflow {workflow} has a pause recorded that does not fit {state}")]
pub struct UnexpectedPause {
    pub workflow: WorkflowId,
    /// Where it stands, or where the pause says that it goes on.
    pub state: State,
}

/// What a workflow *is*.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    pub id: WorkflowId,
    pub repository: RepositoryId,
    pub kind: Kind,
    /// The item's number on its forge.
    pub number: u64,
    pub title: String,
    pub body: String,
    /// Branch of the pull request; of the one to be opened, for an issue.
    pub head_ref: String,
    /// Branch that the work is meant for.
    pub base_ref: String,
    /// The issue's workflow that opened this pull request.
    pub parent: Option<WorkflowId>,
    /// The workflow of the same item that ended before this one began.
    pub predecessor: Option<WorkflowId>,
    pub created_at: Timestamp,
}

impl Workflow {
    /// A workflow that was just discovered, at `tier` (1, or its parent's).
    pub fn new(identity: Identity, policy: &Policy, tier: u32, head: Option<CommitId>) -> Self {
        let progress = Progress {
            state: State::Discovered,
            pause: None,
            tier,
            counters: Counters::fresh(policy),
            head,
            awaiting_ci_started_at: None,
            merging_started_at: None,
            facts: Facts::default(),
            merged_commit: None,
            pull_request: None,
            upstream: None,
            left_at: None,
        };
        Self { identity, progress }
    }

    /// The same workflow with a plan that was made before it: its issue's.
    #[must_use]
    pub fn with_plan(mut self, plan: Option<String>) -> Self {
        self.progress.facts.plan = plan;
        self
    }

    /// A workflow as it was stored. A PAUSED row from an older version, without the state that it was
    /// paused in, resumes to DISCOVERED.
    pub fn restore(identity: Identity, mut progress: Progress) -> Result<Self, UnexpectedPause> {
        match (progress.state, progress.pause) {
            (State::Paused, None) => {
                progress.pause = Some(Pause {
                    was: State::Discovered,
                    by: PausedBy::Label,
                });
            }
            (State::Paused, Some(pause)) if pause.was.can_be_paused() => {}
            (_, None) => {}
            (State::Paused, Some(Pause { was: state, .. })) | (state, Some(_)) => {
                return Err(UnexpectedPause {
                    workflow: identity.id,
                    state,
                });
            }
        }
        Ok(Self { identity, progress })
    }

    /// What it is.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Where it stands.
    pub fn progress(&self) -> &Progress {
        &self.progress
    }

    pub fn state(&self) -> State {
        self.progress.state
    }

    /// The state that verdicts are decided against: where it stands, or where it will go on.
    pub fn underlying_state(&self) -> State {
        self.progress
            .pause
            .map_or(self.progress.state, |pause| pause.was)
    }

    /// The branch that pull requests of this workflow come from.
    pub fn own_head_ref(id: WorkflowId) -> String {
        format!("pointsman/{id}")
    }

    /// Moves to where the decision says. The only writer of a workflow's progress.
    pub fn apply(&mut self, decision: &Decision) {
        self.progress = decision.progress.clone();
    }
}
