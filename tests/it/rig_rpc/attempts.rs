//! What operators may ask of attempts, and of who goes first.

use super::*;

#[tokio::test]
async fn calls_about_attempts_name_each_bad_field() {
    let scene = Scene::new().await;
    let mut client = scene.workflows();
    let table: Vec<Bad<v1::ListAttemptsRequest>> = vec![
        ("workflow_id", |r| r.workflow_id = "w".to_owned()),
        ("worker_id", |r| r.worker_id = "w".to_owned()),
        ("statuses", |r| r.statuses = vec!["lost".to_owned()]),
        ("statuses", |r| r.statuses = vec!["failed".to_owned(); 1001]),
        ("roles", |r| r.roles = vec![0]),
        ("page_size", |r| r.page_size = 501),
        ("page_token", |r| r.page_token = "next".to_owned()),
    ];
    let good = v1::ListAttemptsRequest::default();
    check_table!(scene, client, list_attempts, good, table);
    let edge = with(&good, |r| {
        r.statuses = vec!["pending".to_owned(); 1000];
        r.page_size = 500;
    });
    let listed = client.list_attempts(edge).await;
    let listed = listed.expect("at the edge it is taken").into_inner();
    assert_eq!(listed.attempts.len(), 1);
    let live = listed.attempts[0].id.clone();

    let good = v1::CancelAttemptRequest {
        attempt_id: live,
        reason: "stale".to_owned(),
    };
    let table: Vec<Bad<v1::CancelAttemptRequest>> = vec![
        ("attempt_id", |r| r.attempt_id.clear()),
        ("reason", |r| r.reason.clear()),
        ("reason", |r| r.reason = text(1001)),
    ];
    check_table!(scene, client, cancel_attempt, good, table);
    let nobody = with(&good, |r| r.attempt_id = NOBODY.to_owned());
    let answer = client.cancel_attempt(nobody).await;
    scene.refusal(answer, Code::NotFound, "no such attempt");
    let edge = with(&good, |r| r.reason = text(1000));
    let cancelled = client.cancel_attempt(edge).await.expect("it is taken");
    assert!(cancelled.into_inner().changed);
    let again = client.cancel_attempt(good).await.expect("it is so already");
    assert!(!again.into_inner().changed);

    let ended = v1::ListAttemptsRequest {
        workflow_id: scene.id.to_string(),
        ..v1::ListAttemptsRequest::default()
    };
    let listed = client.list_attempts(ended).await.expect("they are listed");
    let next = listed.into_inner().attempts.remove(0);
    assert_eq!(next.status, "pending", "newest first");
    let grant = scene.worker.lease_one(&scene.rig).await;
    scene
        .worker
        .say(&scene.rig, &grant, pointsman_tests::rig::worker::ready())
        .await;
    let late = v1::CancelAttemptRequest {
        attempt_id: next.id,
        reason: "late".to_owned(),
    };
    let answer = client.cancel_attempt(late).await;
    let metadata = scene.check_reason(answer, Code::FailedPrecondition, "ATTEMPT_ENDED");
    assert_eq!(metadata["status"], "succeeded");
}

#[tokio::test]
async fn set_priority_names_each_bad_field() {
    let scene = Scene::new().await;
    let mut client = scene.workflows();
    let good = v1::SetPriorityRequest {
        workflow_id: scene.id.to_string(),
        priority: 100,
        reason: "now".to_owned(),
        expected_version: 0,
    };
    let table: Vec<Bad<v1::SetPriorityRequest>> = vec![
        ("workflow_id", |r| r.workflow_id.clear()),
        ("priority", |r| r.priority = 101),
        ("priority", |r| r.priority = -101),
        ("reason", |r| r.reason = "  ".to_owned()),
    ];
    check_table!(scene, client, set_priority, good, table);
    let stale = with(&good, |r| r.expected_version = 77);
    let answer = client.set_priority(stale).await;
    scene.refusal(answer, Code::Aborted, "another version");
    let set = client.set_priority(good).await.expect("it is taken");
    let set = set.into_inner();
    assert!(set.changed);
    assert_eq!(set.workflow.expect("it is shown").priority, 100);
}

#[tokio::test]
async fn watch_workflows_names_each_bad_field() {
    let scene = Scene::new().await;
    let mut client = scene.workflows();
    let table: Vec<Bad<v1::WatchWorkflowsRequest>> = vec![
        ("repository", |r| r.repository = "No Such".to_owned()),
        ("kind", |r| r.kind = 99),
        ("states", |r| r.states = vec![0]),
        ("resume_token", |r| r.resume_token = "-1".to_owned()),
    ];
    let good = v1::WatchWorkflowsRequest::default();
    check_table!(scene, client, watch_workflows, good, table);
    let nowhere = with(&good, |r| r.repository = "nowhere".to_owned());
    let answer = client.watch_workflows(nowhere).await;
    scene.refusal(answer, Code::NotFound, "no such repository");
}
