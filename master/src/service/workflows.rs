//! What operators do to one workflow.

use super::{Change, Error, Service, apply::Cause};
use crate::{
    domain::{
        decision::{Input, LabelState, OperatorAction},
        ids::WorkflowId,
    },
    store::model::WorkflowRow,
};

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
        let item = self
            .ports
            .forge
            .item(&repository, row.workflow.number)
            .await?;
        let is_labelled = item.is_some_and(|item| item.labels.contains(&repository.label));
        let label = if is_labelled {
            LabelState::Present
        } else {
            LabelState::Absent
        };
        let action = OperatorAction::Unstick { label };
        self.operate(id, action, expected_version, reason, actor)
            .await
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
        let action = OperatorAction::SetCiFlakeRetries { remaining };
        self.operate(id, action, expected_version, reason, actor)
            .await
    }

    async fn operate(
        &self,
        id: WorkflowId,
        action: OperatorAction,
        expected_version: Option<u64>,
        reason: &str,
        actor: &str,
    ) -> Result<Change<WorkflowRow>, Error> {
        let now = self.now();
        let mut tx = self.store().begin().await?;
        let mut locked = tx
            .lock_workflow(id)
            .await?
            .ok_or_else(|| Error::no_workflow(id))?;
        if let Some(expected) = expected_version
            && expected != locked.version
        {
            return Err(Error::VersionMismatch {
                expected,
                found: locked.version,
            });
        }
        let is_unstick = matches!(action, OperatorAction::Unstick { .. });
        let cause = Cause::new(actor, now).because(reason);
        let is_changed = self
            .apply(tx.as_mut(), &mut locked, Input::Operator(action), &cause)
            .await?;
        if is_unstick {
            self.admit(tx.as_mut(), &mut locked, now).await?;
        }
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
