//! Clients of all services of one master.

use pointsman_proto::v1::{
    fleet_service_client::FleetServiceClient, repository_service_client::RepositoryServiceClient,
    worker_service_client::WorkerServiceClient, workflow_service_client::WorkflowServiceClient,
};
use tonic::transport::{Channel, Endpoint};
use tonic_health::pb::{
    HealthCheckRequest, health_check_response::ServingStatus, health_client::HealthClient,
};

/// Clients over one connection, which is made anew when it breaks.
#[derive(Debug, Clone)]
pub struct Api {
    pub channel: Channel,
    pub repositories: RepositoryServiceClient<Channel>,
    pub workflows: WorkflowServiceClient<Channel>,
    pub fleet: FleetServiceClient<Channel>,
    pub workers: WorkerServiceClient<Channel>,
}

impl Api {
    /// Connects at the first call.
    pub(super) fn new(url: &str) -> Self {
        let endpoint = Endpoint::from_shared(url.to_owned()).expect("a URL");
        let channel = endpoint.connect_lazy();
        Self {
            repositories: RepositoryServiceClient::new(channel.clone()),
            workflows: WorkflowServiceClient::new(channel.clone()),
            fleet: FleetServiceClient::new(channel.clone()),
            workers: WorkerServiceClient::new(channel.clone()),
            channel,
        }
    }

    /// What health says of a service; `None` where nobody answers, or the name is not known.
    pub async fn health(&self, service: &str) -> Option<ServingStatus> {
        let request = HealthCheckRequest {
            service: service.to_owned(),
        };
        let answer = HealthClient::new(self.channel.clone()).check(request).await;
        Some(answer.ok()?.get_ref().status())
    }
}
