//! The pickup guard: an attempt that was leased as often as it may be ends, and its workflow is STUCK.

use super::{PAGE, Report, Run, Sweep};
use crate::service::{Error, Service};

/// Ends attempts whose pickups are spent.
pub struct PickupGuard {
    service: Service,
}

impl PickupGuard {
    pub fn new(service: Service) -> Self {
        Self { service }
    }

    async fn sweep(&self) -> Result<Report, Error> {
        let mut report = Report::default();
        let mut after = None;
        loop {
            let page = self.service.spent_attempts(after, PAGE).await?;
            let Some(last) = page.last() else {
                return Ok(report);
            };
            after = Some(last.0);
            for (attempt, workflow) in page {
                let result = self.service.guard_pickups(attempt, workflow).await;
                report.count(self.name(), result);
            }
        }
    }
}

impl Sweep for PickupGuard {
    fn name(&self) -> &'static str {
        "pickup_guard"
    }

    fn run_once(&self) -> Run<'_> {
        Box::pin(self.sweep())
    }
}
