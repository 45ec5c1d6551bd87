//! What operators may do.

use super::Context;
use crate::domain::{
    decision::{Attempts, Gate, Note, OperatorAction, Outcome, Refusal, Running},
    policy::MAX_FLAKE_RETRIES,
    transitions::{Event, OutOfBand, State},
    workflow::{Pause, PausedBy},
};

impl Context<'_> {
    pub(super) fn operator(self, action: OperatorAction) -> Result<Outcome, Refusal> {
        match action {
            OperatorAction::Pause { running } => self.operator_pause(running),
            OperatorAction::Resume { gate } => self.operator_resume(gate),
            OperatorAction::Unstick { gate } => self.unstick(gate),
            OperatorAction::Abandon => self.abandon(),
            OperatorAction::SetCiFlakeRetries { remaining } => self.set_ci_flake_retries(remaining),
        }
    }

    /// A workflow that the label paused stays where it is, but from now on only an operator resumes it.
    fn operator_pause(self, running: Running) -> Result<Outcome, Refusal> {
        let progress = self.workflow.progress();
        let is_operators = progress
            .pause
            .is_some_and(|pause| pause.by == PausedBy::Operator);
        if is_operators && running == Running::Left {
            return Ok(Outcome::Unchanged);
        }
        if progress.state.is_terminal() {
            return Err(Refusal::NotPossible {
                action: "pausing",
                state: progress.state,
            });
        }
        let pause = Pause {
            was: self.workflow.underlying_state(),
            by: PausedBy::Operator,
        };
        let attempts = match running {
            Running::Left => Attempts::PendingCancelled,
            Running::Cancelled => Attempts::Cancelled,
        };
        Ok(self.pausing(pause, OutOfBand::OperatorPaused, attempts))
    }

    fn operator_resume(self, gate: Gate) -> Result<Outcome, Refusal> {
        let progress = self.workflow.progress();
        match progress.pause {
            Some(pause) if pause.by == PausedBy::Operator => {
                gate.pass("resuming")?;
                Ok(self.resuming(pause, OutOfBand::OperatorResumed))
            }
            Some(_) => Err(Refusal::PausedByLabel),
            None if progress.state.is_terminal() => Err(Refusal::NotPossible {
                action: "resuming",
                state: progress.state,
            }),
            None => Ok(Outcome::Unchanged),
        }
    }

    fn unstick(self, gate: Gate) -> Result<Outcome, Refusal> {
        match self.workflow.state() {
            // Repeated: it is back already.
            State::Discovered => return Ok(Outcome::Unchanged),
            State::Stuck | State::Paused => gate.pass("unsticking")?,
            State::Analyzing
            | State::Implementing
            | State::AwaitingCi
            | State::ConflictResolving
            | State::Escalating
            | State::Reviewing
            | State::Merging
            | State::Merged
            | State::CreatedPr
            | State::Abandoned => {}
        }
        self.draft().take(Event::OperatorUnstick)
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
        Ok(self
            .draft()
            .end_out_of_band(State::Abandoned, OutOfBand::OperatorAbandoned))
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
