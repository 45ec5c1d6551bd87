//! Clients that know nothing of Pointsman but its address.

use std::{
    path::PathBuf,
    process::{Output, Stdio},
};

use pointsman_proto::v1::DescribeStateMachineRequest;
use pointsman_tests::world::{Setup, World, eventually};
use tokio::process::Command;
use tokio_stream::StreamExt as _;
use tonic_health::pb::{
    HealthCheckRequest, health_check_response::ServingStatus, health_client::HealthClient,
};
use tonic_reflection::pb::v1::{
    ServerReflectionRequest, server_reflection_client::ServerReflectionClient,
    server_reflection_request::MessageRequest, server_reflection_response::MessageResponse,
};

use crate::process_support::world;

const SERVICES: [&str; 4] = [
    "pointsman.v1.FleetService",
    "pointsman.v1.RepositoryService",
    "pointsman.v1.WorkerService",
    "pointsman.v1.WorkflowService",
];

/// Names the program where it is not on PATH.
const GRPCURL: &str = "POINTSMAN_TEST_GRPCURL";

/// A gRPC client of somebody else.
fn grpcurl() -> PathBuf {
    let named = std::env::vars_os().find(|(name, _)| name == GRPCURL);
    let named = named.map(|(_, path)| PathBuf::from(path));
    let on_path = || {
        let path = std::env::vars_os().find(|(name, _)| name == "PATH")?.1;
        let places: Vec<PathBuf> = std::env::split_paths(&path).collect();
        let mut programs = places.into_iter().map(|place| place.join("grpcurl"));
        programs.find(|program| program.is_file())
    };
    named.or_else(on_path).unwrap_or_else(|| {
        panic!("grpcurl is not there: run scripts/test, which installs it, or name it in {GRPCURL}")
    })
}

/// What it prints, run as anybody would run it.
async fn ask(world: &World, before: &[&str], after: &[&str]) -> String {
    let output = run(world, before, after).await;
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{before:?} {after:?}: {said}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// What it says of a call that is refused.
async fn refused(world: &World, before: &[&str], after: &[&str]) -> String {
    let output = run(world, before, after).await;
    assert!(!output.status.success(), "{before:?} {after:?}: {output:?}");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

async fn run(world: &World, before: &[&str], after: &[&str]) -> Output {
    let address = world.url().strip_prefix("http://").unwrap();
    Command::new(grpcurl())
        .arg("-plaintext")
        .args(before)
        .arg(address)
        .args(after)
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output()
        .await
        .unwrap()
}

#[tokio::test]
async fn a_foreign_client_lists_describes_and_calls_the_services_through_reflection() {
    let world = world(Setup::default()).await;
    let issue = world.submit().await;
    world.until_merged(issue).await;

    let listed = ask(&world, &[], &["list"]).await;
    let listed: Vec<&str> = listed
        .lines()
        .filter(|l| l.starts_with("pointsman."))
        .collect();
    assert_eq!(listed, SERVICES);
    for service in SERVICES {
        let methods = ask(&world, &[], &["list", service]).await;
        assert!(methods.contains(&format!("{service}.")), "{methods}");
    }
    let described = ask(&world, &[], &["describe", "pointsman.v1.Workflow"]).await;
    assert!(described.contains("string merged_commit"), "{described}");

    let workflows = ask(&world, &[], &["pointsman.v1.WorkflowService/ListWorkflows"]).await;
    let workflows: serde_json::Value = serde_json::from_str(&workflows).unwrap();
    assert_eq!(
        workflows["workflows"].as_array().unwrap().len(),
        2,
        "{workflows}"
    );
    let by_repository = ["-d", r#"{"repository":"demo"}"#];
    let described = "pointsman.v1.WorkflowService/DescribeStateMachine";
    let machine = ask(&world, &by_repository, &[described]).await;
    let machine: serde_json::Value = serde_json::from_str(&machine).unwrap();
    assert_eq!(machine["maxAttempts"], 52);
    let merged = workflows["workflows"][1]["id"].as_str().unwrap();
    let pause = format!(r#"{{"workflow_id":"{merged}","reason":"by another client"}}"#);
    let method = "pointsman.v1.WorkflowService/PauseWorkflow";
    let said = refused(&world, &["-d", &pause], &[method]).await;
    assert!(said.contains("pausing is not possible in MERGED"), "{said}");
    assert!(said.contains("Code: FailedPrecondition"), "{said}");

    for method in [
        "pointsman.v1.RepositoryService/ListRepositories",
        "pointsman.v1.WorkflowService/ListEvents",
        "pointsman.v1.FleetService/ListSessions",
        "pointsman.v1.FleetService/ListWorkers",
        "pointsman.v1.FleetService/ListHolds",
        "pointsman.v1.FleetService/GetStats",
        "pointsman.v1.FleetService/Sweep",
    ] {
        let answer = ask(&world, &[], &[method]).await;
        assert!(answer.trim_start().starts_with('{'), "{method}: {answer}");
    }
    world.finish().await;
}

#[tokio::test]
async fn a_foreign_client_gets_the_health_of_all_that_is_served() {
    let world = world(Setup::default()).await;
    for service in ["", "pointsman.ready"].into_iter().chain(SERVICES) {
        let request = format!(r#"{{"service":"{service}"}}"#);
        let health = "grpc.health.v1.Health/Check";
        let answer = ask(&world, &["-d", &request], &[health]).await;
        assert!(answer.contains("\"SERVING\""), "{service:?}: {answer}");
    }
    world.finish().await;
}

#[tokio::test]
async fn the_newer_reflection_lists_the_services_too() {
    let world = world(Setup::default()).await;
    let request = ServerReflectionRequest {
        host: String::new(),
        message_request: Some(MessageRequest::ListServices(String::new())),
    };
    let mut client = ServerReflectionClient::new(world.api.channel.clone());
    let answers = client
        .server_reflection_info(tokio_stream::once(request))
        .await
        .unwrap();
    let answer = answers.into_inner().next().await.unwrap().unwrap();
    let Some(MessageResponse::ListServicesResponse(listed)) = answer.message_response else {
        panic!("{answer:?}");
    };
    let listed: Vec<String> = listed.service.into_iter().map(|s| s.name).collect();
    for service in SERVICES.into_iter().chain(["grpc.health.v1.Health"]) {
        assert!(listed.iter().any(|name| name == service), "{listed:?}");
    }
    world.finish().await;
}

#[tokio::test]
async fn who_watches_the_health_hears_that_the_master_stops() {
    let mut world = world(Setup::default()).await;
    let request = HealthCheckRequest {
        service: "pointsman.ready".to_owned(),
    };
    let mut client = HealthClient::new(world.api.channel.clone());
    let mut seen = client.watch(request).await.unwrap().into_inner();
    let first = seen.next().await.unwrap().unwrap();
    assert_eq!(first.status(), ServingStatus::Serving);

    let watching = async {
        while let Some(Ok(answer)) = seen.next().await {
            if answer.status() == ServingStatus::NotServing {
                return true;
            }
        }
        false
    };
    let (has_heard, ()) = tokio::join!(watching, world.stop_master());
    assert!(has_heard, "the stream ended without a word");

    world.start_master().await;
    eventually("a master that answers", async || {
        let mut workflows = world.api.workflows.clone();
        let request = DescribeStateMachineRequest::default();
        workflows.describe_state_machine(request).await.ok()
    })
    .await;
    world.finish().await;
}
