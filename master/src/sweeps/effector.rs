//! The effector: makes forges match what rows want.

use super::{PAGE, Report, Run, Sweep};
use crate::service::{Error, Service};

/// Carries out effects that are due.
pub struct Effector {
    service: Service,
}

impl Effector {
    pub fn new(service: Service) -> Self {
        Self { service }
    }

    async fn sweep(&self) -> Result<Report, Error> {
        let mut report = Report::default();
        for effect in self.service.due_effects(PAGE).await? {
            report.count(self.name(), self.service.carry_out(&effect).await);
        }
        Ok(report)
    }
}

impl Sweep for Effector {
    fn name(&self) -> &'static str {
        "effector"
    }

    fn run_once(&self) -> Run<'_> {
        Box::pin(self.sweep())
    }
}
