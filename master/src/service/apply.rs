//! The one transaction shape: the only caller of `decide`, and the only writer of what it decides.

use serde_json::{Value, json};

use super::{Error, Service};
use crate::{
    domain::{
        attempt::{Attempt, AttemptStatus, Outcome as AttemptOutcome, Subject},
        decide::{decide, immediate},
        decision::{Attempts, Decision, EventKind, Input, Note, OpenEffect, Outcome},
        effect::Effect,
        ids::{AttemptId, WorkflowId},
        time::Timestamp,
    },
    store::{
        Tx,
        model::{About, LockedWorkflow, NewEvent, OpenEffectRow},
    },
};

/// Who or what caused a change, and when.
#[derive(Debug, Clone)]
pub(super) struct Cause {
    /// `worker:<id>`, `operator`, `sweep:<name>`, `forge` or `machine`.
    pub(super) actor: String,
    /// In the actor's words; the decision's own reason where it is empty.
    pub(super) reason: String,
    /// The attempt whose outcome this is.
    pub(super) attempt: Option<AttemptId>,
    pub(super) now: Timestamp,
}

impl Cause {
    pub(super) fn new(actor: impl Into<String>, now: Timestamp) -> Self {
        Self {
            actor: actor.into(),
            reason: String::new(),
            attempt: None,
            now,
        }
    }

    pub(super) fn because(mut self, reason: &str) -> Self {
        self.reason = reason.to_owned();
        self
    }

    pub(super) fn of(mut self, attempt: AttemptId) -> Self {
        self.attempt = Some(attempt);
        self
    }
}

impl Service {
    /// Decides about `input`, writes what was decided and what follows from it by itself, and makes sure
    /// that the state that was reached has its work. False: it was so already.
    pub(super) async fn apply(
        &self,
        tx: &mut dyn Tx,
        locked: &mut LockedWorkflow,
        input: Input,
        cause: &Cause,
    ) -> Result<bool, Error> {
        let policy = self.policy(&locked.repository);
        let Outcome::Changed(decision) = decide(&locked.workflow, input, &policy, cause.now)?
        else {
            return Ok(false);
        };
        self.record(tx, locked, &decision, cause).await?;
        // Bounded: no immediate step leads to a state that has one, but ANALYZING to nothing.
        while let Some(step) = immediate(&locked.workflow, &policy) {
            let by_itself = Cause::new("machine", cause.now);
            let outcome = decide(&locked.workflow, Input::Immediate(step), &policy, cause.now)?;
            let Outcome::Changed(decision) = outcome else {
                break;
            };
            self.record(tx, locked, &decision, &by_itself).await?;
        }
        self.ensure_work(tx, locked, cause.now).await?;
        Ok(true)
    }

    async fn record(
        &self,
        tx: &mut dyn Tx,
        locked: &mut LockedWorkflow,
        decision: &Decision,
        cause: &Cause,
    ) -> Result<(), Error> {
        let from = locked.workflow.state();
        locked.workflow.apply(decision);
        tx.update_workflow(locked, cause.now).await?;
        let reason = if cause.reason.is_empty() {
            decision.reason.clone()
        } else {
            cause.reason.clone()
        };
        tx.append_event(&NewEvent {
            about: About::Workflow {
                id: locked.workflow.id,
                from,
                to: locked.workflow.state(),
            },
            attempt: cause.attempt,
            occurred_at: cause.now,
            kind: decision.event,
            actor: cause.actor.clone(),
            reason,
            detail: decision.detail.clone(),
        })
        .await?;
        self.end_attempts(tx, locked.workflow.id, decision, cause)
            .await?;
        self.replace_effect(tx, locked.workflow.id, decision, cause)
            .await?;
        if decision.starts_checks {
            self.start_checks(tx, locked, cause.now).await?;
        }
        tracing::info!(
            workflow.id = %locked.workflow.id,
            event = decision.event.as_str(),
            from = %from,
            to = %locked.workflow.state(),
            actor = %cause.actor,
            "transition"
        );
        Ok(())
    }

    async fn end_attempts(
        &self,
        tx: &mut dyn Tx,
        workflow: WorkflowId,
        decision: &Decision,
        cause: &Cause,
    ) -> Result<(), Error> {
        let ends = |attempt: &Attempt| match decision.attempts {
            Attempts::Kept => false,
            Attempts::PendingCancelled => {
                attempt.status == AttemptStatus::Pending && attempt.subject == Subject::Workflow
            }
            Attempts::Cancelled => true,
        };
        for mut attempt in tx.live_attempts(workflow).await? {
            if ends(&attempt) {
                let why = decision.event.as_str();
                self.cancel_attempt(tx, &mut attempt, why, cause.now)
                    .await?;
            }
        }
        Ok(())
    }

    /// Ends an attempt whose work is not wanted any more. Its lease is over; the worker learns it from
    /// the answer to its next beat.
    pub(super) async fn cancel_attempt(
        &self,
        tx: &mut dyn Tx,
        attempt: &mut Attempt,
        why: &str,
        now: Timestamp,
    ) -> Result<(), Error> {
        if let Some(lease) = tx.lease(attempt.id).await? {
            tx.delete_lease(lease.key).await?;
        }
        attempt.status = AttemptStatus::Cancelled;
        attempt.ended_at = Some(now);
        attempt.outcome = Some(outcome("cancelled", json!({ "reason": why })));
        tx.update_attempt(attempt).await?;
        Ok(())
    }

    async fn replace_effect(
        &self,
        tx: &mut dyn Tx,
        workflow: WorkflowId,
        decision: &Decision,
        cause: &Cause,
    ) -> Result<(), Error> {
        let open = tx.open_effect_of(workflow).await?;
        if decision.supersedes_attempt {
            let attempt = open
                .as_ref()
                .and_then(|open| open.attempt)
                .or(cause.attempt);
            self.supersede_attempt(tx, attempt, cause.now).await?;
        }
        match &decision.effect {
            OpenEffect::Kept => {}
            OpenEffect::Closed => {
                self.close_effect(tx, open, cause.now).await?;
            }
            OpenEffect::Replaced(effect) => {
                self.close_effect(tx, open, cause.now).await?;
                tx.open_effect(&self.new_effect(workflow, effect.clone(), cause))
                    .await?;
            }
        }
        Ok(())
    }

    async fn close_effect(
        &self,
        tx: &mut dyn Tx,
        open: Option<OpenEffectRow>,
        now: Timestamp,
    ) -> Result<(), Error> {
        if let Some(open) = open {
            tx.close_effect(open.id, now).await?;
        }
        Ok(())
    }

    fn new_effect(&self, workflow: WorkflowId, effect: Effect, cause: &Cause) -> OpenEffectRow {
        OpenEffectRow {
            id: self.new_effect_id(),
            workflow,
            attempt: cause.attempt,
            effect,
            tries: 0,
            waits: 0,
            next_try_at: cause.now,
            first_failure_at: None,
            waiting_for: String::new(),
            opened_at: cause.now,
        }
    }

    /// Turns an attempt whose work can't be used from succeeded to superseded; its pickup is given back.
    async fn supersede_attempt(
        &self,
        tx: &mut dyn Tx,
        attempt: Option<AttemptId>,
        now: Timestamp,
    ) -> Result<(), Error> {
        let Some(id) = attempt else {
            return Ok(());
        };
        if let Some(mut attempt) = tx.attempt(id).await? {
            attempt.status = AttemptStatus::Superseded;
            attempt.pickup_count = attempt.pickup_count.saturating_sub(1);
            attempt.ended_at.get_or_insert(now);
            tx.update_attempt(&attempt).await?;
        }
        Ok(())
    }

    /// Writes what happened to an attempt without moving its workflow.
    pub(super) async fn note(
        &self,
        tx: &mut dyn Tx,
        locked: &LockedWorkflow,
        note: Note,
        detail: Value,
        cause: &Cause,
    ) -> Result<(), Error> {
        let state = locked.workflow.state();
        tx.append_event(&NewEvent {
            about: About::Workflow {
                id: locked.workflow.id,
                from: state,
                to: state,
            },
            attempt: cause.attempt,
            occurred_at: cause.now,
            kind: EventKind::Note(note),
            actor: cause.actor.clone(),
            reason: cause.reason.clone(),
            detail,
        })
        .await?;
        Ok(())
    }
}

/// What an attempt ended with.
pub(super) fn outcome(name: &str, detail: Value) -> AttemptOutcome {
    AttemptOutcome {
        name: name.to_owned(),
        detail,
    }
}
