//! The CI poller: reads the checks of each head that waits for a verdict, when its turn has come.

use super::{PAGE, Report, Run, Sweep, all_at_once};
use crate::service::{Error, Service};

/// Reads the checks of heads that wait for them.
pub struct CiPoller {
    service: Service,
}

impl CiPoller {
    pub fn new(service: Service) -> Self {
        Self { service }
    }

    async fn sweep(&self) -> Result<Report, Error> {
        let due = self.service.due_ci_polls(PAGE).await?;
        all_at_once(self.name(), due, |workflow| {
            let service = self.service.clone();
            async move { service.poll_ci(workflow).await }
        })
        .await
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
