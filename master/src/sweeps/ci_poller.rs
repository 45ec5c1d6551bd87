//! The CI poller: reads the checks of each head that waits for a verdict, when its turn has come.

use super::{PAGE, Report, Run, Sweep, turns::Turns};
use crate::service::{Error, Service};

/// Reads the checks of heads that wait for them.
pub struct CiPoller {
    service: Service,
    turns: Turns,
}

impl CiPoller {
    pub fn new(service: Service) -> Self {
        Self {
            service,
            turns: Turns::default(),
        }
    }

    async fn sweep(&self) -> Result<Report, Error> {
        let due = self.service.due_ci_polls(PAGE).await?;
        let service = self.service.clone();
        let work = move |workflow| {
            let service = service.clone();
            async move { service.poll_ci(workflow).await }
        };
        Ok(self.turns.run(self.name(), due, work).await)
    }
}

impl Sweep for CiPoller {
    fn name(&self) -> &'static str {
        "ci_poller"
    }

    fn run_once(&self) -> Run<'_> {
        Box::pin(self.sweep())
    }
}
