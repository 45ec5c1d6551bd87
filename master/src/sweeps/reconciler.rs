//! The reconciler: finds labelled items that have no workflow, and compares each workflow that is not
//! terminal, the paused ones too, with its forge. Bells and webhooks only hasten it.

use super::{PAGE, Report, Run, Sweep};
use crate::service::{Error, Service};

/// Compares workflows with their forges.
pub struct Reconciler {
    service: Service,
}

impl Reconciler {
    pub fn new(service: Service) -> Self {
        Self { service }
    }

    async fn sweep(&self) -> Result<Report, Error> {
        let mut report = Report::default();
        let mut after = String::new();
        loop {
            let page = self.service.repositories(&after, PAGE).await?;
            let Some(last) = page.last() else {
                return Ok(report);
            };
            after = last.name.clone();
            for repository in page {
                match self.service.reconcile(&repository).await {
                    Ok(done) => {
                        report.examined += done.examined;
                        report.changed += done.changed;
                        report.failed += done.failed;
                    }
                    Err(error) => report.count(self.name(), Err(error)),
                }
            }
        }
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
