//! A decision in the making: the rules that hold for every row, written once.

use serde_json::{Map, Value};

use super::Context;
use crate::domain::{
    decision::{Attempts, Decision, EventKind, Note, OpenEffect, Outcome, Refusal},
    effect::Effect,
    transitions::{Event, OutOfBand, State, apply_event},
    workflow::{Counters, Progress, kept_text},
};

/// Starts as "nothing changes", collects facts, and ends in exactly one event.
pub(super) struct Draft<'a> {
    context: Context<'a>,
    /// The state that rows are looked up from.
    from: State,
    pub(super) progress: Progress,
    detail: Map<String, Value>,
    reason: String,
    effect: Option<Effect>,
    supersedes_attempt: bool,
}

impl<'a> Draft<'a> {
    pub(super) fn at(context: Context<'a>, from: State) -> Self {
        Self {
            context,
            from,
            progress: context.workflow.progress().clone(),
            detail: Map::new(),
            reason: String::new(),
            effect: None,
            supersedes_attempt: false,
        }
    }

    pub(super) fn because(mut self, reason: String) -> Self {
        self.reason = kept_text(reason);
        self
    }

    pub(super) fn fact(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.detail.insert(name.to_owned(), value.into());
        self
    }

    pub(super) fn with(mut self, change: impl FnOnce(&mut Progress)) -> Self {
        change(&mut self.progress);
        self
    }

    /// Opens `effect` instead of whatever effect is open.
    pub(super) fn opening(mut self, effect: Effect) -> Self {
        self.effect = Some(effect);
        self
    }

    pub(super) fn superseding(mut self) -> Self {
        self.supersedes_attempt = true;
        self
    }

    /// Moves along the row of `event`.
    pub(super) fn take(mut self, event: Event) -> Result<Outcome, Refusal> {
        let to = apply_event(self.context.workflow.kind, self.from, event)?;
        self.enter(to, event);
        let starts_checks = to == State::AwaitingCi && event != Event::CiFlakeRetry;
        Ok(self.finish(
            EventKind::Transition(event),
            Attempts::Cancelled,
            OpenEffect::Closed,
            starts_checks,
        ))
    }

    /// Rests in PAUSED, or goes on from there, beside the table. The open effect waits.
    pub(super) fn rest_or_resume(
        mut self,
        to: State,
        event: OutOfBand,
        attempts: Attempts,
    ) -> Outcome {
        self.progress.state = to;
        let kind = EventKind::OutOfBand(event);
        self.finish(kind, attempts, OpenEffect::Kept, false)
    }

    /// Ends in `to` beside the table, and with it all work and the open effect.
    pub(super) fn end_out_of_band(mut self, to: State, event: OutOfBand) -> Outcome {
        self.progress.pause = None;
        self.progress.state = to;
        let kind = EventKind::OutOfBand(event);
        self.finish(kind, Attempts::Cancelled, OpenEffect::Closed, false)
    }

    /// Writes `note` and stays.
    pub(super) fn note(self, note: Note) -> Outcome {
        self.finish(
            EventKind::Note(note),
            Attempts::Kept,
            OpenEffect::Kept,
            false,
        )
    }

    /// Writes `note`, closes the open effect and stays.
    pub(super) fn note_closing_effect(self, note: Note) -> Outcome {
        self.finish(
            EventKind::Note(note),
            Attempts::Kept,
            OpenEffect::Closed,
            false,
        )
    }

    /// Writes `note`, stays, and begins the wait for checks anew.
    pub(super) fn note_restarting_checks(self, note: Note) -> Outcome {
        self.finish(
            EventKind::Note(note),
            Attempts::Cancelled,
            OpenEffect::Closed,
            true,
        )
    }

    fn finish(
        mut self,
        event: EventKind,
        attempts: Attempts,
        closing: OpenEffect,
        starts_checks: bool,
    ) -> Outcome {
        let effect = self.effect.map_or(closing, OpenEffect::Replaced);
        if effect == OpenEffect::Closed {
            self.progress.facts.offered_commit = None;
        }
        Outcome::Changed(Box::new(Decision {
            progress: self.progress,
            event,
            detail: Value::Object(self.detail),
            reason: self.reason,
            attempts,
            effect,
            starts_checks,
            supersedes_attempt: self.supersedes_attempt,
        }))
    }

    /// What entering `to` by `event` does, whatever led there.
    fn enter(&mut self, to: State, event: Event) {
        let is_unstick = event == Event::OperatorUnstick;
        match self.progress.pause.as_mut() {
            Some(pause) if !to.is_terminal() && !is_unstick => {
                self.detail
                    .insert("pre_pause_state".to_owned(), to.as_str().into());
                pause.was = to;
            }
            Some(_) | None => {
                self.progress.pause = None;
                self.progress.state = to;
            }
        }
        match to {
            State::AwaitingCi => {
                if event != Event::CiFlakeRetry {
                    self.progress.awaiting_ci_started_at = Some(self.context.now);
                }
            }
            State::Merging => {
                self.progress.merging_started_at = Some(self.context.now);
                if let Some(head) = self.progress.head.clone() {
                    self.effect = Some(Effect::Merge { head });
                }
            }
            State::ConflictResolving => {
                let rounds = &mut self.progress.counters.conflict_rounds;
                *rounds = rounds.saturating_add(1);
            }
            State::Discovered => {
                self.progress.counters = Counters::fresh(self.context.policy);
                self.progress.upstream = None;
            }
            State::Analyzing
            | State::Implementing
            | State::Escalating
            | State::Reviewing
            | State::Paused
            | State::Merged
            | State::CreatedPr
            | State::Abandoned
            | State::Stuck => {}
        }
    }
}
