//! What is shown to people and programs; nothing here writes.

use super::{
    Error, Service, Waiting,
    takers::Fleet,
    waiting::{Facts, waiting},
};
use crate::{
    domain::{ids::WorkflowId, policy::Policy, transitions::State, worker::ALIVE_FOR},
    store::model::{AttemptRow, ChangePoint, Changes, EventRow, WorkflowFilter, WorkflowRow},
};

/// How many attempts and events of a workflow are shown at once: the newest.
pub(super) const SHOWN: u32 = 200;

/// How many live workers are looked at to say what an attempt waits for. More than one master is measured
/// for; those beyond it could only tell of more that fits.
const SEEN_WORKERS: u32 = 10_000;
/// How many holds are looked at: an account each, or a profile of a worker.
const SEEN_HOLDS: u32 = 10_000;

/// All about one workflow.
#[derive(Debug, Clone, PartialEq)]
pub struct WorkflowView {
    pub row: WorkflowRow,
    pub attempts: Vec<AttemptRow>,
    pub events: Vec<EventRow>,
    pub waiting: Option<Waiting>,
}

impl Service {
    pub async fn view_workflow(&self, id: WorkflowId) -> Result<WorkflowView, Error> {
        let row = self.workflow_row(id).await?;
        let repository = self.repository_of(row.workflow.repository).await?;
        let attempts = self.store().attempts_of(id, SHOWN).await?;
        let events = self.store().newest_events(id, SHOWN).await?;
        let effect = self.store().open_effect_of(id).await?;
        let checks = match &row.workflow.progress().head {
            Some(head) => self.store().check_runs(id, head).await?,
            None => Vec::new(),
        };
        let n_live = match row.workflow.state() {
            State::Discovered => self.store().count_live_workflows(repository.id).await?,
            // Nothing else asks for it.
            _ => 0,
        };
        let waiting = waiting(&Facts {
            row: &row,
            repository: &repository,
            attempts: &attempts,
            effect: effect.as_ref(),
            checks: &checks,
            sessions: &self.store().sessions_of(id).await?,
            n_live,
            fleet: &self.fleet().await?,
        });
        Ok(WorkflowView {
            row,
            attempts,
            events,
            waiting,
        })
    }

    pub(super) async fn fleet(&self) -> Result<Fleet, Error> {
        let now = self.now();
        let since = now.before(ALIVE_FOR);
        Ok(Fleet {
            workers: self.store().live_workers(since, SEEN_WORKERS).await?,
            holds: self.store().holds(None, SEEN_HOLDS).await?,
            now,
        })
    }

    /// By id, those after `after`.
    pub async fn list_workflows(
        &self,
        filter: &WorkflowFilter,
        after: Option<WorkflowId>,
        limit: u32,
    ) -> Result<Vec<WorkflowRow>, Error> {
        Ok(self.store().workflows(filter, after, limit).await?)
    }

    /// Workflows that were written after `after`, as they are now; see
    /// [`Store::changed_workflows`](crate::store::Store::changed_workflows).
    pub async fn changed_workflows(
        &self,
        filter: &WorkflowFilter,
        after: ChangePoint,
        limit: u32,
    ) -> Result<Changes, Error> {
        Ok(self.store().changed_workflows(filter, after, limit).await?)
    }

    /// Oldest first, those after `after`; of one workflow or of all.
    pub async fn list_events(
        &self,
        workflow: Option<WorkflowId>,
        after: u64,
        limit: u32,
    ) -> Result<Vec<EventRow>, Error> {
        if let Some(id) = workflow {
            self.workflow_row(id).await?;
        }
        Ok(self.store().events(workflow, after, limit).await?)
    }

    /// The policy of a repository, or the default one, as it holds for new workflows.
    pub async fn policy_of(&self, repository: Option<&str>) -> Result<Policy, Error> {
        let policy = match repository {
            Some(name) => self.repository_named(name).await?.policy,
            None => Policy::default(),
        };
        Ok(self.with_settings(policy))
    }
}
