//! The scheduler: discovered workflows are admitted where their repository has room, and a state that
//! lacks its attempt or its checks gets them. Transitions do both themselves; this heals what a crash or an
//! older version left behind, and fills room that other workflows left.

use super::{PAGE, Report, Run, Sweep};
use crate::service::{Error, Service};

/// Gives workflows the work that their state lacks.
pub struct Scheduler {
    service: Service,
}

impl Scheduler {
    pub fn new(service: Service) -> Self {
        Self { service }
    }

    async fn sweep(&self) -> Result<Report, Error> {
        let mut report = Report::default();
        let mut after = None;
        loop {
            let page = self.service.workflows_without_work(after, PAGE).await?;
            let Some(last) = page.last() else {
                return Ok(report);
            };
            after = Some(*last);
            for workflow in page {
                report.count(self.name(), self.service.heal(workflow).await);
            }
        }
    }
}

impl Sweep for Scheduler {
    fn name(&self) -> &'static str {
        "scheduler"
    }

    fn run_once(&self) -> Run<'_> {
        Box::pin(self.sweep())
    }
}
