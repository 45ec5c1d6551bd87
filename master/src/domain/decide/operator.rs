//! What operators may do.

use super::Context;
use crate::domain::{
    decision::{Attempts, LabelState, Note, OperatorAction, Outcome, Refusal},
    policy::MAX_FLAKE_RETRIES,
    transitions::{Event, OutOfBand, State},
    workflow::PausedBy,
};

impl Context<'_> {
    pub(super) fn operator(self, action: OperatorAction) -> Result<Outcome, Refusal> {
        match action {
            OperatorAction::Pause => self.operator_pause(),
            OperatorAction::Resume => self.operator_resume(),
            OperatorAction::Unstick { label } => self.unstick(label),
            OperatorAction::Abandon => self.abandon(),
            OperatorAction::SetCiFlakeRetries { remaining } => self.set_ci_flake_retries(remaining),
        }
    }

    /// A workflow that the label paused stays where it is, but from now on only an operator resumes it.
    fn operator_pause(self) -> Result<Outcome, Refusal> {
        let progress = self.workflow.progress();
        match progress.pause {
            Some(pause) if pause.by == PausedBy::Operator => Ok(Outcome::Unchanged),
            Some(pause) => {
                Ok(self.pausing(pause.was, PausedBy::Operator, OutOfBand::OperatorPaused))
            }
            None if progress.state.is_terminal() => Err(Refusal::NotPossible {
                action: "pausing",
                state: progress.state,
            }),
            None => Ok(self.pausing(
                progress.state,
                PausedBy::Operator,
                OutOfBand::OperatorPaused,
            )),
        }
    }

    fn operator_resume(self) -> Result<Outcome, Refusal> {
        let progress = self.workflow.progress();
        match progress.pause {
            Some(pause) if pause.by == PausedBy::Operator => {
                Ok(self.resuming(pause, OutOfBand::OperatorResumed))
            }
            Some(_) => Err(Refusal::NotPossible {
                action: "resuming what the missing label paused",
                state: progress.state,
            }),
            None if progress.state.is_terminal() => Err(Refusal::NotPossible {
                action: "resuming",
                state: progress.state,
            }),
            None => Ok(Outcome::Unchanged),
        }
    }

    fn unstick(self, label: LabelState) -> Result<Outcome, Refusal> {
        match (self.workflow.state(), label) {
            (State::Stuck | State::Paused, LabelState::Absent) => Err(Refusal::LabelAbsent),
            (State::Stuck | State::Paused, LabelState::Present) => {
                self.draft().take(Event::OperatorUnstick)
            }
            // Repeated: it is back already.
            (State::Discovered, _) => Ok(Outcome::Unchanged),
            (
                State::Analyzing
                | State::Implementing
                | State::AwaitingCi
                | State::ConflictResolving
                | State::Escalating
                | State::Reviewing
                | State::Merging
                | State::Merged
                | State::CreatedPr
                | State::Abandoned,
                _,
            ) => self.draft().take(Event::OperatorUnstick),
        }
    }

    fn abandon(self) -> Result<Outcome, Refusal> {
        let state = self.workflow.state();
        if state == State::Abandoned {
            return Ok(Outcome::Unchanged);
        }
        if state.is_terminal() {
            return Err(Refusal::NotPossible {
                action: "abandoning",
                state,
            });
        }
        Ok(self.draft().with(|p| p.pause = None).move_out_of_band(
            State::Abandoned,
            OutOfBand::OperatorAbandoned,
            Attempts::Cancelled,
        ))
    }

    fn set_ci_flake_retries(self, remaining: u32) -> Result<Outcome, Refusal> {
        let progress = self.workflow.progress();
        if remaining > MAX_FLAKE_RETRIES {
            return Err(Refusal::FlakeRetriesOutOfRange {
                remaining,
                max: MAX_FLAKE_RETRIES,
            });
        }
        if progress.counters.ci_flake_retries_remaining == remaining {
            return Ok(Outcome::Unchanged);
        }
        if progress.state.is_terminal() {
            return Err(Refusal::NotPossible {
                action: "setting flake retries",
                state: progress.state,
            });
        }
        Ok(self
            .draft()
            .fact("remaining", remaining)
            .fact("was", progress.counters.ci_flake_retries_remaining)
            .with(|p| p.counters.ci_flake_retries_remaining = remaining)
            .note(Note::CiFlakeRetriesSet))
    }
}
