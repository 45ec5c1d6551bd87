//! What operators do to one workflow.

use super::{Change, Error, Service, apply::Cause};
use crate::{
    domain::{
        decision::{Input, LabelState, OperatorAction},
        ids::{CommitId, WorkflowId},
    },
    store::model::WorkflowRow,
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

    async fn operate(
        &self,
        id: WorkflowId,
        operation: Operation,
        reason: &str,
        actor: &str,
    ) -> Result<Change<WorkflowRow>, Error> {
        let now = self.now();
        let mut tx = self.store().begin().await?;
        let mut locked = tx
            .lock_workflow(id)
            .await?
            .ok_or_else(|| Error::no_workflow(id))?;
        if let Some(expected) = operation.version
            && expected != locked.version
        {
            return Err(Error::VersionMismatch {
                expected,
                found: locked.version,
            });
        }
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
