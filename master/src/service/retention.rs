//! What leaves: old history to the archive, old logs, and refs that nobody needs.

use std::{collections::BTreeMap, time::Duration};

use super::{Error, Service};
use crate::{
    domain::{
        ids::{AttemptId, RepositoryId, WorkflowId},
        retention::{OwnName, is_over, may_delete_lease_ref, may_delete_logs},
        time::Timestamp,
        transitions::State,
    },
    forge::OwnRef,
    store::model::{Repository, WorkflowRow},
};

/// Rows that one file and one transaction take: some hundred kilobytes, some milliseconds.
pub const HISTORY_BATCH: u32 = 500;

/// How long things are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retention {
    /// Events, attempts, checks and effects of a workflow after its end; events of repositories and workers.
    pub history: Duration,
    /// Logs of an attempt after its end.
    pub logs: Duration,
}

impl Service {
    /// Ended workflows that have rows to archive, by the instant of their end; `after` pages.
    pub async fn archivable_workflows(
        &self,
        after: Option<(Timestamp, WorkflowId)>,
        limit: u32,
    ) -> Result<Vec<(Timestamp, WorkflowId)>, Error> {
        let before = self.history_ends();
        Ok(self
            .store()
            .archivable_workflows(before, after, limit)
            .await?)
    }

    fn history_ends(&self) -> Timestamp {
        self.now().before(self.settings.retention.history)
    }

    /// Moves the oldest rows of an ended workflow to the archive. False: there is nothing more to move, or
    /// the workflow is not, or no longer, old enough.
    pub async fn archive_batch(&self, workflow: WorkflowId) -> Result<bool, Error> {
        let before = self.history_ends();
        let row = self.workflow_row(workflow).await?;
        if !is_old(&row, before) {
            return Ok(false);
        }
        let batch = self.store().oldest_history(workflow, HISTORY_BATCH).await?;
        // Durable before anything is deleted.
        if let Some(batch) = &batch {
            self.ports.archive.put(batch).await?;
        }
        let now = self.now();
        let mut tx = self.store().begin().await?;
        let Some(locked) = tx.lock_workflow(workflow).await? else {
            return Ok(false);
        };
        // Somebody unstuck it, say: what was written stays, and is written over next time.
        if locked.version != row.version {
            return Ok(false);
        }
        match batch {
            Some(batch) => {
                if !tx.delete_history(&batch).await? {
                    return Ok(false);
                }
                tx.set_archived(workflow, now).await?;
                tx.commit().await?;
                Ok(true)
            }
            None => {
                tx.set_history_moved(workflow).await?;
                tx.commit().await?;
                Ok(false)
            }
        }
    }

    /// Moves the oldest old events of repositories and workers to the archive. False: there are none.
    pub async fn archive_other_events(&self) -> Result<bool, Error> {
        let before = self.history_ends();
        let batch = self
            .store()
            .oldest_other_events(before, HISTORY_BATCH)
            .await?;
        let Some(batch) = batch else {
            return Ok(false);
        };
        self.ports.archive.put(&batch).await?;
        let mut tx = self.store().begin().await?;
        let is_deleted = tx.delete_history(&batch).await?;
        if is_deleted {
            tx.commit().await?;
        }
        Ok(is_deleted)
    }

    /// Attempts that have logs, oldest first; `after` pages.
    pub async fn logged_attempts(
        &self,
        after: Option<AttemptId>,
        limit: usize,
    ) -> Result<Vec<AttemptId>, Error> {
        Ok(self.ports.logs.store().attempts(after, limit).await?)
    }

    /// Deletes the logs of an attempt where their time is over. False: it is not, or there were none.
    pub async fn delete_old_logs(&self, attempt: AttemptId) -> Result<bool, Error> {
        let before = self.now().before(self.settings.retention.logs);
        let logs = self.ports.logs.store();
        let row = self.store().attempt(attempt).await?;
        let last_written = match row {
            Some(_) => None,
            None => logs.last_written(attempt).await?,
        };
        let attempt_row = row.as_ref().map(|row| &row.attempt);
        if !may_delete_logs(attempt_row, last_written, before) {
            return Ok(false);
        }
        // An attempt that has ended has no lease again, so no write begins; one that hangs is waited for.
        let turns = self.ports.logs.turns(attempt);
        let mut turn = turns.writing.lock().await;
        let is_deleted = logs.delete(attempt).await?;
        *turn = None;
        Ok(is_deleted)
    }

    /// Deletes refs of ours on a repository's remote that nobody needs, and packs our copy of it. Refs that
    /// this database can't account for belong to another Pointsman on the same remote, and stay.
    pub async fn sweep_refs(&self, repository: RepositoryId) -> Result<bool, Error> {
        let repository = self.repository_of(repository).await?;
        let now = self.now();
        let mut unwanted = Vec::new();
        for own in self.ports.forge.own_refs(&repository).await? {
            let is_unwanted = match own.name {
                OwnName::Lease(_) => self.is_lease_ref_unwanted(&own, now).await?,
                OwnName::Branch(issue) => self.is_branch_unwanted(&repository, &own, issue).await?,
            };
            if is_unwanted {
                unwanted.push(own);
            }
        }
        let n_deleted = self.ports.forge.delete_refs(&repository, &unwanted).await?;
        if n_deleted > 0 {
            tracing::info!(repository.id = %repository.id, n_deleted, "refs that nobody needs are deleted");
        }
        Ok(n_deleted > 0)
    }

    async fn is_lease_ref_unwanted(&self, own: &OwnRef, now: Timestamp) -> Result<bool, Error> {
        let OwnName::Lease(key) = own.name else {
            return Ok(false);
        };
        let Some(row) = self.store().attempt(key.attempt).await? else {
            return Ok(false);
        };
        let attempt = row.attempt;
        let workflow = self.workflow_row(attempt.workflow).await?.workflow;
        let effect = self.store().open_effect_of(attempt.workflow).await?;
        let has_open_effect = effect.is_some();
        Ok(may_delete_lease_ref(
            &attempt,
            &workflow,
            has_open_effect,
            &own.commit,
            now,
        ))
    }

    /// The branch of one of our pull requests that is merged, at the commit that was merged.
    async fn is_branch_unwanted(
        &self,
        repository: &Repository,
        own: &OwnRef,
        issue: WorkflowId,
    ) -> Result<bool, Error> {
        if !repository.policy.delete_merged_branches {
            return Ok(false);
        }
        let Some(issue) = self.store().workflow(issue).await? else {
            return Ok(false);
        };
        let Some(number) = issue.workflow.progress().pull_request else {
            return Ok(false);
        };
        if issue.workflow.repository != repository.id {
            return Ok(false);
        }
        let pull_request = self.store().workflow_of_item(repository.id, number).await?;
        Ok(pull_request.is_some_and(|row| {
            let progress = row.workflow.progress();
            progress.state == State::Merged && progress.head.as_ref() == Some(&own.commit)
        }))
    }

    /// Repositories whose refs are looked at.
    pub async fn swept_repositories(&self) -> Result<Vec<RepositoryId>, Error> {
        let mut by_name: BTreeMap<String, RepositoryId> = BTreeMap::new();
        loop {
            let after = by_name.last_key_value().map(|(name, _)| name.clone());
            let page = self
                .store()
                .repositories(after.as_deref().unwrap_or(""), 100)
                .await?;
            if page.is_empty() {
                return Ok(by_name.into_values().collect());
            }
            by_name.extend(page.into_iter().map(|r| (r.name, r.id)));
        }
    }
}

fn is_old(row: &WorkflowRow, before: Timestamp) -> bool {
    is_over(&row.workflow) && row.state_since < before
}
