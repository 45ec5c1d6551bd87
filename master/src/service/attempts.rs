//! What operators see of attempts, and how they end one.

use serde_json::json;

use super::{
    Change, Error, Service,
    apply::{Cause, outcome},
};
use crate::{
    domain::{
        attempt::{Attempt, AttemptStatus, Subject},
        decision::{Note, Refusal},
        ids::AttemptId,
    },
    store::{
        Tx,
        model::{AttemptFilter, AttemptPage, AttemptRow, LockedWorkflow},
    },
};

impl Service {
    /// Newest first, those before `before`. A page may hold fewer than there are, and still name the next.
    pub async fn list_attempts(
        &self,
        filter: &AttemptFilter,
        before: Option<AttemptId>,
        limit: u32,
    ) -> Result<AttemptPage, Error> {
        if let Some(id) = filter.workflow {
            self.workflow_row(id).await?;
        }
        Ok(self.store().attempts(filter, before, limit).await?)
    }

    /// Ends an attempt that is pending or in progress. Its lease is over; the worker learns it from the
    /// answer to its next beat. The work is not given up: a new attempt takes its place at once where the
    /// state still wants one, and carries on its counts, so that one that is cancelled again and again ends
    /// as one that fails again and again.
    ///
    /// # Errors
    /// [`Refusal::AttemptEnded`] where it ended otherwise before.
    pub async fn cancel(
        &self,
        id: AttemptId,
        reason: &str,
        actor: &str,
    ) -> Result<Change<AttemptRow>, Error> {
        let now = self.now();
        let row = self.attempt_row(id).await?;
        let mut tx = self.store().begin().await?;
        let mut locked = tx
            .lock_workflow(row.attempt.workflow)
            .await?
            .ok_or_else(|| Error::no_workflow(row.attempt.workflow))?;
        let mut attempt = tx.attempt(id).await?.ok_or_else(|| no_attempt(id))?;
        if attempt.status == AttemptStatus::Cancelled {
            drop(tx);
            return Ok(Change::Unchanged(self.attempt_row(id).await?));
        }
        if !attempt.status.is_live() {
            let status = attempt.status;
            return Err(Refusal::AttemptEnded { status }.into());
        }
        let cause = Cause::new(actor, now).because(reason).of(id);
        let detail = json!({
            "role": attempt.role.as_str(),
            "lock_fence": attempt.fence.0,
            "pickup_count": attempt.pickup_count,
        });
        self.cancel_attempt(tx.as_mut(), &mut attempt, reason, now)
            .await?;
        self.note(tx.as_mut(), &locked, Note::AttemptCancelled, detail, &cause)
            .await?;
        self.replace_cancelled(tx.as_mut(), &mut locked, &attempt, &cause)
            .await?;
        tx.commit().await?;
        tracing::info!(attempt.id = %id, workflow.id = %attempt.workflow, actor, "attempt cancelled");
        self.wake().all();
        Ok(Change::Changed(self.attempt_row(id).await?))
    }

    async fn replace_cancelled(
        &self,
        tx: &mut dyn Tx,
        locked: &mut LockedWorkflow,
        cancelled: &Attempt,
        cause: &Cause,
    ) -> Result<(), Error> {
        if !self.ensure_work(tx, locked, cause.now).await? {
            return Ok(());
        }
        let live = tx.live_attempts(locked.workflow.id).await?;
        let next = live.into_iter().find(|next| is_successor(next, cancelled));
        let Some(mut next) = next else {
            return Ok(());
        };
        next.pickup_count = cancelled.pickup_count;
        next.uncharged_errors = cancelled.uncharged_errors;
        tx.update_attempt(&next).await?;
        if next.pickup_count >= locked.repository.policy.max_pickups {
            next.outcome = Some(outcome("cancelled", json!({ "reason": cause.reason })));
            self.end_spent_attempt(tx, locked, &mut next, cause).await?;
        }
        Ok(())
    }

    async fn attempt_row(&self, id: AttemptId) -> Result<AttemptRow, Error> {
        self.store()
            .attempt(id)
            .await?
            .ok_or_else(|| no_attempt(id))
    }
}

/// The same work: the workflow's in the same role, or the same run of a check.
fn is_successor(next: &Attempt, cancelled: &Attempt) -> bool {
    match (next.subject, cancelled.subject) {
        (Subject::Workflow, Subject::Workflow) => next.role == cancelled.role,
        (next, cancelled) => next == cancelled,
    }
}

fn no_attempt(id: AttemptId) -> Error {
    Error::NotFound {
        what: "attempt",
        id: id.to_string(),
    }
}
