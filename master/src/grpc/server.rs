//! Puts the services on a port, with health and reflection.

use std::{sync::Arc, time::Duration};

use pointsman_proto::{
    FILE_DESCRIPTOR_SET,
    v1::{
        fleet_service_server::FleetServiceServer,
        repository_service_server::RepositoryServiceServer,
        worker_service_server::WorkerServiceServer, workflow_service_server::WorkflowServiceServer,
    },
};
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tonic::{
    Status,
    service::{LayerExt as _, Routes, RoutesBuilder},
    transport::Server,
};
use tonic_health::{ServingStatus, server::HealthReporter};

use super::{
    MAX_MESSAGE_BYTES, fleet::FleetApi, repository::RepositoryApi, settled::SettledLayer,
    worker::WorkerApi, workflow::WorkflowApi,
};

use crate::{
    dispatch::{
        beats::Beats,
        claims::Claims,
        watches::{Pace, Watches},
    },
    service::Service,
    sweeps::driver::Driver,
};

/// The health service's name for "the database answers and its migrations are in place".
pub const READY: &str = "pointsman.ready";

/// Finds a connection that is half open within twice this time.
const KEEPALIVE: Duration = Duration::from_secs(10);

/// The services of `pointsman.v1`, named as health names them.
pub const SERVICES: [&str; 4] = [
    "pointsman.v1.WorkerService",
    "pointsman.v1.RepositoryService",
    "pointsman.v1.WorkflowService",
    "pointsman.v1.FleetService",
];

/// What is served.
pub struct Apis {
    worker: WorkerApi,
    repository: RepositoryApi,
    workflow: WorkflowApi,
    fleet: FleetApi,
}

impl Apis {
    /// The four services over the use cases. `tasks` owns what outlives a call; `stop` ends streams.
    pub fn new(
        service: Service,
        claims: Arc<Claims>,
        beats: Arc<Beats>,
        driver: Arc<Driver>,
        beat_interval: Duration,
        tasks: TaskTracker,
        stop: CancellationToken,
    ) -> Self {
        Self {
            worker: WorkerApi {
                service: service.clone(),
                claims,
                beats,
                beat_interval,
                tasks: tasks.clone(),
                stop: stop.clone(),
            },
            repository: RepositoryApi {
                service: service.clone(),
            },
            workflow: WorkflowApi {
                service: service.clone(),
                watches: Watches::new(
                    service.clone(),
                    Pace::default(),
                    tasks.clone(),
                    stop.clone(),
                ),
                stop: stop.clone(),
            },
            fleet: FleetApi {
                service,
                driver,
                tasks,
                stop,
            },
        }
    }
}

/// What is said of this master's health.
#[derive(Clone)]
pub struct Health(HealthReporter);

impl Health {
    /// Ready: it answers calls that need the database.
    pub async fn ready(&self) {
        self.set(ServingStatus::Serving).await;
    }

    /// Alive, but calls that need the database fail, or no new work is taken.
    pub async fn not_ready(&self) {
        self.set(ServingStatus::NotServing).await;
    }

    async fn set(&self, status: ServingStatus) {
        self.0.set_service_status(READY, status).await;
        for service in SERVICES {
            self.0.set_service_status(service, status).await;
        }
    }
}

/// Why the server ended.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("describe the services for reflection")]
    Reflection(#[from] tonic_reflection::server::Error),
    #[error("serve gRPC")]
    Serve(#[from] tonic::transport::Error),
}

/// A health service that says "alive" from the first moment, and "ready" when told; and routes that hold
/// it alone, to be served while the database is being opened and migrated.
pub async fn health() -> (Health, RoutesBuilder) {
    let (reporter, service) = tonic_health::server::health_reporter();
    let health = Health(reporter);
    health.not_ready().await;
    let mut routes = RoutesBuilder::default();
    routes.add_service(service);
    (health, routes)
}

/// The same routes, with every other call answered by "not yet": it will be there once the database is.
pub fn not_yet(routes: RoutesBuilder) -> Routes {
    let mut routes = routes.routes();
    let router = std::mem::take(routes.axum_router_mut());
    *routes.axum_router_mut() = router.fallback(async || {
        Status::unavailable("the master is opening its database: ask again")
            .into_http::<tonic::body::Body>()
    });
    routes
}

/// Adds the services and reflection, in both versions.
pub fn add(routes: &mut RoutesBuilder, apis: Apis) -> Result<(), Error> {
    let settled = SettledLayer(apis.fleet.service.clone());
    routes
        .add_service(settled.named_layer(
            WorkerServiceServer::new(apis.worker).max_decoding_message_size(MAX_MESSAGE_BYTES),
        ))
        .add_service(
            settled.named_layer(
                RepositoryServiceServer::new(apis.repository)
                    .max_decoding_message_size(MAX_MESSAGE_BYTES),
            ),
        )
        .add_service(settled.named_layer(
            WorkflowServiceServer::new(apis.workflow).max_decoding_message_size(MAX_MESSAGE_BYTES),
        ))
        .add_service(settled.named_layer(
            FleetServiceServer::new(apis.fleet).max_decoding_message_size(MAX_MESSAGE_BYTES),
        ))
        .add_service(reflection().build_v1()?)
        .add_service(reflection().build_v1alpha()?);
    Ok(())
}

fn reflection() -> tonic_reflection::server::Builder<'static> {
    tonic_reflection::server::Builder::configure()
        .register_encoded_file_descriptor_set(FILE_DESCRIPTOR_SET)
        .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
}

/// Serves until told to stop; then lets calls in flight finish.
pub async fn serve(
    listener: TcpListener,
    routes: impl Into<RoutesBuilder>,
    stop: CancellationToken,
) -> Result<(), Error> {
    Server::builder()
        .http2_keepalive_interval(Some(KEEPALIVE))
        .http2_keepalive_timeout(Some(KEEPALIVE))
        .add_routes(routes.into().routes())
        .serve_with_incoming_shutdown(TcpListenerStream::new(listener), stop.cancelled_owned())
        .await?;
    Ok(())
}
