//! FleetService: convert, one call, convert.

use std::sync::Arc;

use pointsman_proto::v1::{
    ListSessionsRequest, ListSessionsResponse, SweepReport, SweepRequest, SweepResponse,
    fleet_service_server::FleetService,
};
use tokio_util::task::TaskTracker;
use tonic::{Request, Response, Status};

use super::{
    convert::session,
    fields::{FieldError, optional_id},
    status::status,
};
use crate::{service::Service, sweeps::driver::Driver};

/// Serves operators' calls about workers and the master's duties.
pub(super) struct FleetApi {
    pub(super) service: Service,
    pub(super) driver: Arc<Driver>,
    /// Owns what must go on when a client hangs up.
    pub(super) tasks: TaskTracker,
}

#[tonic::async_trait]
impl FleetService for FleetApi {
    async fn list_sessions(
        &self,
        request: Request<ListSessionsRequest>,
    ) -> Result<Response<ListSessionsResponse>, Status> {
        let worker = optional_id("worker_id", &request.into_inner().worker_id)?;
        let sessions = self
            .service
            .list_sessions(worker)
            .await
            .map_err(|error| status(&error))?;
        Ok(Response::new(ListSessionsResponse {
            sessions: sessions.iter().map(session).collect(),
        }))
    }

    async fn sweep(
        &self,
        request: Request<SweepRequest>,
    ) -> Result<Response<SweepResponse>, Status> {
        let name = request.into_inner().name;
        let chosen = (!name.is_empty()).then_some(name.as_str());
        // Runs to its end even where the client hangs up: git that is cut off leaves locks behind.
        let driver = Arc::clone(&self.driver);
        let name_of_run = chosen.map(str::to_owned);
        let run = self
            .tasks
            .spawn(async move { driver.run_now(name_of_run.as_deref()).await });
        let runs = run.await.map_err(|_| Status::internal("a sweep died"))?;
        let runs = runs.ok_or_else(|| {
            let names = self.driver.names().join(", ");
            FieldError::new("name", format!("is {name:?}; one of {names} is expected"))
        })?;
        let reports = runs
            .into_iter()
            .map(|run| SweepReport {
                name: run.name.to_owned(),
                examined: run.report.examined,
                changed: run.report.changed,
                failed: run.report.failed,
                error: run
                    .error
                    .map(|error| status(&error).message().to_owned())
                    .unwrap_or_default(),
            })
            .collect();
        Ok(Response::new(SweepResponse { reports }))
    }
}
