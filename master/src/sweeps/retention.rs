//! Moves old history to the archive, and deletes old logs and refs that nobody needs.

use super::{PAGE, Report, Run, Sweep, turns::Turns};
use crate::service::Service;

/// Most batches of rows that one run moves: half a million rows. The rest has its turn in the next run.
const MOST_BATCHES: u32 = 1000;

/// Attempts whose logs one listing names: it costs a look at all of them.
const LOGS_PAGE: usize = 1000;

/// Most attempts whose logs one run deletes. The rest has its turn in the next run.
const MOST_LOGS: u32 = 10_000;

/// See [`crate::service::Service::archive_batch`] [`delete_old_logs`](crate::service::Service::delete_old_logs)
/// and [`sweep_refs`](crate::service::Service::sweep_refs).
pub struct Retention {
    service: Service,
    turns: Turns,
}

impl Retention {
    pub fn new(service: Service) -> Self {
        Self {
            service,
            turns: Turns::default(),
        }
    }

    async fn delete_logs(&self, report: &mut Report) -> Result<(), crate::service::Error> {
        let mut budget = MOST_LOGS;
        let mut after = None;
        loop {
            let page = self.service.logged_attempts(after, LOGS_PAGE).await?;
            for attempt in &page {
                let result = self.service.delete_old_logs(*attempt).await;
                budget -= u32::from(matches!(result, Ok(true)));
                report.count(self.name(), result);
                if budget == 0 {
                    return Ok(());
                }
            }
            after = page.last().copied();
            if after.is_none() {
                return Ok(());
            }
        }
    }

    async fn archive(&self, report: &mut Report) -> Result<(), crate::service::Error> {
        let mut budget = MOST_BATCHES;
        let mut after = None;
        loop {
            let page = self.service.archivable_workflows(after, PAGE).await?;
            for (_, workflow) in &page {
                let result = self.empty(*workflow, &mut budget).await;
                report.count(self.name(), result);
                if budget == 0 {
                    return Ok(());
                }
            }
            after = page.last().copied();
            if after.is_none() {
                break;
            }
        }
        while budget > 0 && self.service.archive_other_events().await? {
            budget -= 1;
            report.count(self.name(), Ok(true));
        }
        Ok(())
    }

    /// Moves a workflow's rows, as far as the budget goes.
    async fn empty(
        &self,
        workflow: crate::domain::ids::WorkflowId,
        budget: &mut u32,
    ) -> Result<bool, crate::service::Error> {
        let mut is_changed = false;
        while *budget > 0 && self.service.archive_batch(workflow).await? {
            *budget -= 1;
            is_changed = true;
        }
        Ok(is_changed)
    }
}

impl Sweep for Retention {
    fn name(&self) -> &'static str {
        "retention"
    }

    fn run_once(&self) -> Run<'_> {
        Box::pin(async move {
            // Refs first: what an archived attempt left behind can't be accounted for any more.
            let repositories = self.service.swept_repositories().await?;
            let rows = repositories.into_iter().map(|id| (id, id)).collect();
            let service = self.service.clone();
            let work = move |id| {
                let service = service.clone();
                async move { service.sweep_refs(id).await }
            };
            let mut report = self.turns.run(self.name(), rows, work).await;
            // Before the archive, while their attempts are known; neither holds up the other.
            let logs = self.delete_logs(&mut report).await;
            let archive = self.archive(&mut report).await;
            logs.and(archive)?;
            Ok(report)
        })
    }
}
