//! FleetService: convert, one call, convert.

use std::sync::Arc;

use pointsman_proto::v1::{
    BackupDatabaseRequest, DeclareWorkerDeadRequest, DeclareWorkerDeadResponse, DrainWorkerRequest,
    DrainWorkerResponse, GetStatsRequest, GetStatsResponse, ListHoldsRequest, ListHoldsResponse,
    ListSessionsRequest, ListSessionsResponse, ListWorkersRequest, ListWorkersResponse,
    ReleaseHoldRequest, ReleaseHoldResponse, SweepReport, SweepRequest, SweepResponse,
    UndrainWorkerRequest, UndrainWorkerResponse, fleet_service_server::FleetService,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tonic::{Request, Response, Status};

use super::{
    OPERATOR, backup,
    convert::session,
    fields::{
        DEFAULT_PAGE, FieldError, MAX_PAGE, MAX_REASON, id, optional_id, page_size, required,
    },
    fleet_convert::{hold, stats, worker},
    status::status,
};
use crate::{
    service::{Declaration, OnDrain, Service},
    sweeps::driver::Driver,
};

/// Serves operators' calls about workers and the master's duties.
pub(super) struct FleetApi {
    pub(super) service: Service,
    pub(super) driver: Arc<Driver>,
    /// Owns what must go on when a client hangs up.
    pub(super) tasks: TaskTracker,
    pub(super) stop: CancellationToken,
}

#[tonic::async_trait]
impl FleetService for FleetApi {
    type BackupDatabaseStream = backup::Parts;

    async fn backup_database(
        &self,
        _request: Request<BackupDatabaseRequest>,
    ) -> Result<Response<backup::Parts>, Status> {
        let parts = backup::stream(self.service.clone(), &self.tasks, self.stop.clone());
        Ok(Response::new(parts))
    }

    async fn list_workers(
        &self,
        request: Request<ListWorkersRequest>,
    ) -> Result<Response<ListWorkersResponse>, Status> {
        let request = request.into_inner();
        let limit = page_size(request.page_size, DEFAULT_PAGE, MAX_PAGE)?;
        let after = optional_id("page_token", &request.page_token)?;
        let workers = self
            .service
            .list_workers(after, limit)
            .await
            .map_err(|error| status(&error))?;
        let is_full = workers.len() == limit as usize;
        let next_page_token = workers
            .last()
            .filter(|_| is_full)
            .map(|view| view.worker.id.to_string())
            .unwrap_or_default();
        Ok(Response::new(ListWorkersResponse {
            workers: workers.iter().map(worker).collect(),
            next_page_token,
        }))
    }

    async fn drain_worker(
        &self,
        request: Request<DrainWorkerRequest>,
    ) -> Result<Response<DrainWorkerResponse>, Status> {
        let request = request.into_inner();
        let sessions = match request.stop_sessions {
            true => OnDrain::Stop,
            false => OnDrain::RunOn,
        };
        let change = self
            .service
            .drain_worker(
                id("worker_id", &request.worker_id)?,
                sessions,
                required("reason", &request.reason, MAX_REASON)?,
                OPERATOR,
            )
            .await
            .map_err(|error| status(&error))?;
        Ok(Response::new(DrainWorkerResponse {
            changed: change.is_changed(),
            worker: Some(worker(&change.into_inner())),
        }))
    }

    async fn undrain_worker(
        &self,
        request: Request<UndrainWorkerRequest>,
    ) -> Result<Response<UndrainWorkerResponse>, Status> {
        let request = request.into_inner();
        let change = self
            .service
            .undrain_worker(
                id("worker_id", &request.worker_id)?,
                required("reason", &request.reason, MAX_REASON)?,
                OPERATOR,
            )
            .await
            .map_err(|error| status(&error))?;
        Ok(Response::new(UndrainWorkerResponse {
            changed: change.is_changed(),
            worker: Some(worker(&change.into_inner())),
        }))
    }

    async fn declare_worker_dead(
        &self,
        request: Request<DeclareWorkerDeadRequest>,
    ) -> Result<Response<DeclareWorkerDeadResponse>, Status> {
        let request = request.into_inner();
        let declaration = match request.force {
            true => Declaration::Forced,
            false => Declaration::OfTheSilent,
        };
        let change = self
            .service
            .declare_worker_dead(
                id("worker_id", &request.worker_id)?,
                declaration,
                required("reason", &request.reason, MAX_REASON)?,
                OPERATOR,
            )
            .await
            .map_err(|error| status(&error))?;
        Ok(Response::new(DeclareWorkerDeadResponse {
            changed: change.is_changed(),
            worker: Some(worker(&change.into_inner())),
        }))
    }

    async fn list_holds(
        &self,
        request: Request<ListHoldsRequest>,
    ) -> Result<Response<ListHoldsResponse>, Status> {
        let request = request.into_inner();
        let limit = page_size(request.page_size, DEFAULT_PAGE, MAX_PAGE)?;
        let after = optional_id("page_token", &request.page_token)?;
        let holds = self
            .service
            .list_holds(after, limit)
            .await
            .map_err(|error| status(&error))?;
        let is_full = holds.len() == limit as usize;
        let next_page_token = holds
            .last()
            .filter(|_| is_full)
            .map(|hold| hold.id.to_string())
            .unwrap_or_default();
        Ok(Response::new(ListHoldsResponse {
            holds: holds.iter().map(hold).collect(),
            next_page_token,
        }))
    }

    async fn release_hold(
        &self,
        request: Request<ReleaseHoldRequest>,
    ) -> Result<Response<ReleaseHoldResponse>, Status> {
        let request = request.into_inner();
        let change = self
            .service
            .release_hold(
                id("hold_id", &request.hold_id)?,
                required("reason", &request.reason, MAX_REASON)?,
                OPERATOR,
            )
            .await
            .map_err(|error| status(&error))?;
        Ok(Response::new(ReleaseHoldResponse {
            changed: change.is_changed(),
            hold: change.into_inner().as_ref().map(hold),
        }))
    }

    async fn list_sessions(
        &self,
        request: Request<ListSessionsRequest>,
    ) -> Result<Response<ListSessionsResponse>, Status> {
        let request = request.into_inner();
        let worker = optional_id("worker_id", &request.worker_id)?;
        let limit = page_size(request.page_size, DEFAULT_PAGE, MAX_PAGE)?;
        let after = optional_id("page_token", &request.page_token)?;
        let sessions = self
            .service
            .list_sessions(worker, after, limit)
            .await
            .map_err(|error| status(&error))?;
        let is_full = sessions.len() == limit as usize;
        let next_page_token = sessions
            .last()
            .filter(|_| is_full)
            .map(|row| row.lease.key.attempt.to_string())
            .unwrap_or_default();
        Ok(Response::new(ListSessionsResponse {
            sessions: sessions.iter().map(session).collect(),
            next_page_token,
        }))
    }

    async fn get_stats(
        &self,
        _request: Request<GetStatsRequest>,
    ) -> Result<Response<GetStatsResponse>, Status> {
        let figures = self.service.stats().await;
        let figures = figures.map_err(|error| status(&error))?;
        Ok(Response::new(stats(figures, self.driver.last_runs())))
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
