//! What a master answers while its database is being opened and migrated.

use pointsman_master::grpc::server;
use pointsman_proto::v1::{ListRepositoriesRequest, repository_service_client};
use tokio::{net::TcpListener, task::JoinSet};
use tokio_util::sync::CancellationToken;
use tonic::{Code, transport::Endpoint};
use tonic_health::pb::{
    HealthCheckRequest, health_check_response::ServingStatus, health_client::HealthClient,
};

#[tokio::test]
async fn it_lives_is_not_ready_and_says_not_yet() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (_health, routes) = server::health().await;
    let stop = CancellationToken::new();
    let mut tasks = JoinSet::new();
    tasks.spawn(server::serve(
        listener,
        server::not_yet(routes),
        stop.clone(),
    ));
    let channel = Endpoint::from_shared(format!("http://{address}"))
        .unwrap()
        .connect()
        .await
        .unwrap();

    let mut health = HealthClient::new(channel.clone());
    for (service, expected) in [
        ("", ServingStatus::Serving),
        (server::READY, ServingStatus::NotServing),
        ("pointsman.v1.WorkerService", ServingStatus::NotServing),
    ] {
        let request = HealthCheckRequest {
            service: service.to_owned(),
        };
        let status = health.check(request).await.unwrap().into_inner().status();
        assert_eq!(status, expected, "{service:?}");
    }
    let refused = repository_service_client::RepositoryServiceClient::new(channel)
        .list_repositories(ListRepositoriesRequest::default())
        .await
        .unwrap_err();
    assert_eq!(refused.code(), Code::Unavailable, "{refused}");

    stop.cancel();
    tasks.join_next().await.unwrap().unwrap().unwrap();
}
