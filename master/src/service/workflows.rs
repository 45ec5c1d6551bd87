//! What operators do to one workflow.

use serde_json::json;

use super::{Change, Error, Service, apply::Cause};
use crate::{
    domain::{
        decision::{Input, LabelState, Note, OperatorAction, Refusal},
        ids::{CommitId, WorkflowId},
        workflow::PRIORITIES,
    },
    store::{
        Tx,
        model::{LockedWorkflow, WorkflowRow},
    },
};

/// What an operator does.
struct Operation {
    action: OperatorAction,
    /// The version that the workflow must be at.
    version: Option<u64>,
    /// Where its branch is now, if it was looked at.
    head: Option<CommitId>,
}

impl Service {
    /// Brings a STUCK or PAUSED workflow back to DISCOVERED.
    pub async fn unstick(
        &self,
        id: WorkflowId,
        expected_version: Option<u64>,
        reason: &str,
        actor: &str,
    ) -> Result<Change<WorkflowRow>, Error> {
        let row = self.workflow_row(id).await?;
        let repository = self.repository_of(row.workflow.repository).await?;
        let seen = self.look(&repository, row.workflow.number).await?;
        let is_labelled = seen
            .as_ref()
            .is_some_and(|seen| seen.item.labels.contains(&repository.label));
        let label = if is_labelled {
            LabelState::Present
        } else {
            LabelState::Absent
        };
        let operation = Operation {
            action: OperatorAction::Unstick { label },
            // The look counts for the workflow that it was made for.
            version: Some(expected_version.unwrap_or(row.version)),
            // Work starts from where the branch is now, not where it was when the workflow got stuck.
            head: seen.and_then(|seen| seen.start),
        };
        self.operate(id, operation, reason, actor).await
    }

    /// Sets how often this workflow may still have flaky checks run again.
    pub async fn set_ci_flake_retries(
        &self,
        id: WorkflowId,
        remaining: u32,
        expected_version: Option<u64>,
        reason: &str,
        actor: &str,
    ) -> Result<Change<WorkflowRow>, Error> {
        let operation = Operation {
            action: OperatorAction::SetCiFlakeRetries { remaining },
            version: expected_version,
            head: None,
        };
        self.operate(id, operation, reason, actor).await
    }

    /// Sets which of the workflows that wait is leased first; of attempts that wait already too.
    pub async fn set_priority(
        &self,
        id: WorkflowId,
        priority: i32,
        expected_version: Option<u64>,
        reason: &str,
        actor: &str,
    ) -> Result<Change<WorkflowRow>, Error> {
        if !PRIORITIES.contains(&priority) {
            let (least, most) = (PRIORITIES.start(), PRIORITIES.end());
            let expected = format!("is {priority}; {least} to {most} is expected");
            return Err(Error::invalid("priority", expected));
        }
        let now = self.now();
        let mut tx = self.store().begin().await?;
        let mut locked = self
            .lock_expected(tx.as_mut(), id, expected_version)
            .await?;
        let was = locked.priority;
        if was == priority {
            return Ok(Change::Unchanged(self.workflow_row(id).await?));
        }
        let state = locked.workflow.state();
        if state.is_terminal() {
            let action = "setting the priority";
            return Err(Refusal::NotPossible { action, state }.into());
        }
        tx.set_priority(&mut locked, priority, now).await?;
        let cause = Cause::new(actor, now).because(reason);
        let detail = json!({ "priority": priority, "was": was });
        self.note(tx.as_mut(), &locked, Note::PrioritySet, detail, &cause)
            .await?;
        tx.commit().await?;
        self.wake().all();
        Ok(Change::Changed(self.workflow_row(id).await?))
    }

    /// Locks a workflow that must be at the version, where one is named.
    async fn lock_expected(
        &self,
        tx: &mut dyn Tx,
        id: WorkflowId,
        expected: Option<u64>,
    ) -> Result<LockedWorkflow, Error> {
        let locked = tx
            .lock_workflow(id)
            .await?
            .ok_or_else(|| Error::no_workflow(id))?;
        match expected {
            Some(expected) if expected != locked.version => Err(Error::VersionMismatch {
                expected,
                found: locked.version,
            }),
            Some(_) | None => Ok(locked),
        }
    }

    async fn operate(
        &self,
        id: WorkflowId,
        operation: Operation,
        reason: &str,
        actor: &str,
    ) -> Result<Change<WorkflowRow>, Error> {
        let now = self.now();
        let mut tx = self.store().begin().await?;
        let mut locked = self
            .lock_expected(tx.as_mut(), id, operation.version)
            .await?;
        let cause = Cause::new(actor, now).because(reason);
        let input = Input::Operator(operation.action);
        let is_changed = self.apply(tx.as_mut(), &mut locked, input, &cause).await?;
        if let Some(head) = operation.head {
            let by_look = Cause::new("forge", now);
            self.apply(tx.as_mut(), &mut locked, Input::HeadSeen { head }, &by_look)
                .await?;
        }
        self.admit(tx.as_mut(), &mut locked, now).await?;
        tx.commit().await?;
        self.wake().all();
        let row = self.workflow_row(id).await?;
        Ok(if is_changed {
            Change::Changed(row)
        } else {
            Change::Unchanged(row)
        })
    }

    pub(super) async fn workflow_row(&self, id: WorkflowId) -> Result<WorkflowRow, Error> {
        self.store()
            .workflow(id)
            .await?
            .ok_or_else(|| Error::no_workflow(id))
    }
}
