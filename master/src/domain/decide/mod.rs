//! `decide`: what an input does to a workflow.
//!
//! Pure and total: it never panics, never leaves the table, and refuses what has no row. Counters pick
//! the row where a bound is spent. Who calls it, and in which transaction, is `service/apply.rs`.
//! A verdict or an effect's result that arrives under PAUSED is decided against the state that was
//! paused, so that paid work is kept; only a terminal outcome takes hold at once.

mod draft;
mod forge;
mod operator;
mod verdicts;

use draft::Draft;

use super::{
    decision::{Immediate, Input, Outcome, Refusal},
    policy::Policy,
    time::Timestamp,
    transitions::{Event, State},
    workflow::{Kind, Workflow},
};

/// Decides what `input` does to `workflow` at the instant `now`.
pub fn decide(
    workflow: &Workflow,
    input: Input,
    policy: &Policy,
    now: Timestamp,
) -> Result<Outcome, Refusal> {
    let context = Context {
        workflow,
        policy,
        now,
    };
    match input {
        Input::Admit => context.draft().take(Event::AnalysisScheduled),
        Input::Verdict { verdict, commit } => context.verdict(verdict, commit),
        Input::Effect(result) => context.effect(result),
        Input::Ci { head, reading } => context.ci(&head, reading),
        Input::ConflictFound { paths } => context.conflict_found(paths),
        Input::HeadSeen { head } => context.head_seen(head),
        Input::Label(label) => context.label(label),
        Input::Upstream(fact) => context.upstream(fact),
        Input::ItemLeft => context.item_left(),
        Input::Operator(action) => context.operator(action),
        Input::PickupsSpent {
            pickup_count,
            max_pickups,
        } => context.pickups_spent(pickup_count, max_pickups),
        Input::BudgetSpent { reason } => {
            context.draft().because(reason).take(Event::BudgetExhausted)
        }
        Input::Immediate(step) => context.immediate(step),
    }
}

/// The step that a workflow takes by itself in its present state, without an attempt.
pub fn immediate(workflow: &Workflow, policy: &Policy) -> Option<Immediate> {
    let progress = workflow.progress();
    match progress.state {
        State::Analyzing if workflow.kind == Kind::PullRequest && workflow.parent.is_some() => {
            Some(Immediate::SkipEstimator)
        }
        State::Escalating if progress.tier >= policy.max_tier => Some(Immediate::NoTierLeft),
        State::ConflictResolving if progress.counters.conflict_rounds >= policy.conflict_rounds => {
            Some(Immediate::NoConflictRoundLeft)
        }
        State::Discovered
        | State::Analyzing
        | State::Implementing
        | State::AwaitingCi
        | State::ConflictResolving
        | State::Escalating
        | State::Reviewing
        | State::Merging
        | State::Paused
        | State::Merged
        | State::CreatedPr
        | State::Abandoned
        | State::Stuck => None,
    }
}

/// The row by which a state ends where a counter is spent that the table has no row for.
pub fn spent_exit(state: State) -> Option<Event> {
    match state {
        State::Analyzing
        | State::Implementing
        | State::ConflictResolving
        | State::Escalating
        | State::Reviewing => Some(Event::PickupExhausted),
        State::AwaitingCi => Some(Event::CiPollingExhausted),
        State::Merging => Some(Event::MergeRefused),
        State::Discovered
        | State::Paused
        | State::Merged
        | State::CreatedPr
        | State::Abandoned
        | State::Stuck => None,
    }
}

/// What each decision looks at.
#[derive(Clone, Copy)]
struct Context<'a> {
    workflow: &'a Workflow,
    policy: &'a Policy,
    now: Timestamp,
}

impl<'a> Context<'a> {
    /// A decision that starts from where the workflow stands.
    fn draft(self) -> Draft<'a> {
        Draft::at(self, self.workflow.state())
    }

    /// A decision that starts from the state under a pause, where there is one.
    fn underlying_draft(self) -> Draft<'a> {
        Draft::at(self, self.workflow.underlying_state())
    }

    /// A step that is not due is old news.
    fn immediate(self, step: Immediate) -> Result<Outcome, Refusal> {
        if immediate(self.workflow, self.policy) != Some(step) {
            return Ok(Outcome::Unchanged);
        }
        match step {
            Immediate::SkipEstimator => self
                .draft()
                .because("its own issue's workflow analysed it".to_owned())
                .take(Event::AnalysisChangePresent),
            Immediate::NoTierLeft => self
                .draft()
                .because(format!(
                    "tier {} is the highest",
                    self.workflow.progress().tier
                ))
                .take(Event::EscalationTiersExhausted),
            Immediate::NoConflictRoundLeft => self
                .draft()
                .because(format!(
                    "conflict number {}",
                    self.workflow.progress().counters.conflict_rounds
                ))
                .take(Event::ConflictRoundsExhausted),
        }
    }

    fn pickups_spent(self, pickup_count: u32, max_pickups: u32) -> Result<Outcome, Refusal> {
        self.draft()
            .because(format!("{pickup_count} of {max_pickups} pickups are spent"))
            .fact("pickup_count", pickup_count)
            .fact("max_pickups", max_pickups)
            .take(Event::PickupExhausted)
    }
}
