//! Checks: rows that workers fill in.

use super::forge::BuiltinForge;
use crate::{
    domain::{
        ci::CheckState,
        ids::{CheckId, CommitId, WorkflowId},
    },
    store::{self, model::CheckRun},
};

impl BuiltinForge {
    pub(super) async fn read_checks(
        &self,
        workflow: WorkflowId,
        commit: &CommitId,
    ) -> Result<Vec<CheckState>, store::Error> {
        let runs = self.store.check_runs(workflow, commit).await?;
        Ok(runs.into_iter().map(state).collect())
    }

    /// Adds a run to each check whose newest one failed. Only the rows: whoever heals workflows without
    /// work gives an attempt to each newest run that has neither a conclusion nor a live attempt.
    pub(super) async fn add_runs(
        &self,
        workflow: WorkflowId,
        commit: &CommitId,
    ) -> Result<(), store::Error> {
        let now = self.clock.now();
        let mut tx = self.store.begin().await?;
        for run in tx.check_runs(workflow, commit).await? {
            let has_failed = run.conclusion.is_some_and(|c| !c.is_passing());
            if !has_failed {
                continue;
            }
            let next = CheckRun {
                id: CheckId(self.chance.id()),
                run: run.run.saturating_add(1),
                conclusion: None,
                exit_status: None,
                log_tail: String::new(),
                created_at: now,
                changed_at: now,
                ..run
            };
            tx.insert_check_run(&next).await?;
        }
        tx.commit().await
    }
}

fn state(run: CheckRun) -> CheckState {
    CheckState {
        name: run.name,
        conclusion: run.conclusion,
        log_tail: run.log_tail,
        changed_at: run.changed_at,
    }
}
