//! The reconciler: finds labelled items that have no workflow, and compares each workflow that is not
//! terminal, the paused ones too, with its forge. Bells and webhooks only hasten it.

use super::{PAGE, Report, Run, Sweep, turns::Turns};
use crate::{
    domain::ids::{RepositoryId, WorkflowId},
    service::{Error, Service},
    store::model::Repository,
};

/// One thing to look at.
enum Row {
    /// Labelled items that have no workflow.
    Discover(Box<Repository>),
    Compare(WorkflowId),
}

/// Compares workflows with their forges.
pub struct Reconciler {
    service: Service,
    turns: Turns,
}

impl Reconciler {
    pub fn new(service: Service) -> Self {
        Self {
            service,
            turns: Turns::default(),
        }
    }

    async fn sweep(&self) -> Result<Report, Error> {
        let mut rows = Vec::new();
        let mut after = String::new();
        loop {
            let page = self.service.repositories(&after, PAGE).await?;
            let Some(last) = page.last() else {
                break;
            };
            after = last.name.clone();
            for repository in page {
                rows.extend(self.rows(repository).await?);
            }
        }
        let service = self.service.clone();
        let work = move |row| {
            let service = service.clone();
            async move {
                match row {
                    Row::Discover(repository) => service.discover_items(&repository).await,
                    Row::Compare(workflow) => service.refresh(workflow).await,
                }
            }
        };
        Ok(self.turns.run(self.name(), rows, work).await)
    }

    async fn rows(&self, repository: Repository) -> Result<Vec<(RepositoryId, Row)>, Error> {
        let id = repository.id;
        let workflows = self.service.comparable_workflows(id).await?;
        let compare = workflows.into_iter().map(Row::Compare);
        Ok(std::iter::once(Row::Discover(Box::new(repository)))
            .chain(compare)
            .map(|row| (id, row))
            .collect())
    }
}

impl Sweep for Reconciler {
    fn name(&self) -> &'static str {
        "reconciler"
    }

    fn run_once(&self) -> Run<'_> {
        Box::pin(self.sweep())
    }
}
