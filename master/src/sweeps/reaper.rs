//! The reaper: leases that nobody prolonged within their time-to-live go back to pending.

use tokio::sync::Mutex;

use super::{PAGE, Report, Run, Sweep};
use crate::service::{Error, Observations, Service};

/// Ends leases whose time has passed by the database's clock and by this process's own.
pub struct Reaper {
    service: Service,
    observations: Mutex<Observations>,
}

impl Reaper {
    pub fn new(service: Service) -> Self {
        Self {
            service,
            observations: Mutex::default(),
        }
    }

    async fn sweep(&self) -> Result<Report, Error> {
        let mut report = Report::default();
        let mut observations = self.observations.lock().await;
        self.service.observe_leases(&mut observations).await?;
        let mut after = None;
        loop {
            let (leases, next) = self.service.reapable(&observations, after, PAGE).await?;
            for lease in leases {
                report.count(self.name(), self.service.reap(lease).await);
            }
            match next {
                Some(last) => after = Some(last),
                None => return Ok(report),
            }
        }
    }
}

impl Sweep for Reaper {
    fn name(&self) -> &'static str {
        "reaper"
    }

    fn run_once(&self) -> Run<'_> {
        Box::pin(self.sweep())
    }
}
