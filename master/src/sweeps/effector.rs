//! The effector: makes forges match what rows want.

use super::{PAGE, Report, Run, Sweep, all_at_once};
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
        let due = self.service.due_effects(PAGE).await?;
        all_at_once(self.name(), due, |effect| {
            let service = self.service.clone();
            async move { service.carry_out(&effect).await }
        })
        .await
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
