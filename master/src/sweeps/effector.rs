//! The effector: makes forges match what rows want.

use super::{PAGE, Report, Run, Sweep, turns::Turns};
use crate::service::{Error, Service};

/// Carries out effects that are due.
pub struct Effector {
    service: Service,
    turns: Turns,
}

impl Effector {
    pub fn new(service: Service) -> Self {
        Self {
            service,
            turns: Turns::default(),
        }
    }

    async fn sweep(&self) -> Result<Report, Error> {
        let due = self.service.due_effects(PAGE).await?;
        let service = self.service.clone();
        let work = move |effect| {
            let service = service.clone();
            async move { service.carry_out(&effect).await }
        };
        Ok(self.turns.run(self.name(), due, work).await)
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
