//! Healing: what should have work in hand and has none.

use super::{Error, Service};
use crate::domain::{ids::WorkflowId, transitions::State};

impl Service {
    /// Workflows that may lack work; `after` pages.
    pub async fn workflows_without_work(
        &self,
        after: Option<WorkflowId>,
        limit: u32,
    ) -> Result<Vec<WorkflowId>, Error> {
        Ok(self.store().workflows_without_work(after, limit).await?)
    }

    /// Gives a workflow the work that its state lacks. False: it lacks none, or may not have it yet.
    pub async fn heal(&self, workflow: WorkflowId) -> Result<bool, Error> {
        let now = self.now();
        let mut tx = self.store().begin().await?;
        let Some(mut locked) = tx.lock_workflow(workflow).await? else {
            return Ok(false);
        };
        let is_changed = if locked.workflow.state() == State::Discovered {
            self.admit(tx.as_mut(), &mut locked, now).await?
        } else {
            self.ensure_work(tx.as_mut(), &locked, now).await?
        };
        if is_changed {
            tx.commit().await?;
            self.wake().all();
        }
        Ok(is_changed)
    }
}
