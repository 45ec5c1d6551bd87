//! What operators may ask.

use super::*;

fn repository(scene: &Scene) -> v1::AddRepositoryRequest {
    v1::AddRepositoryRequest {
        name: "other".to_owned(),
        git_url: scene.rig.remote.url(),
        ..v1::AddRepositoryRequest::default()
    }
}

fn policy(r: &mut v1::AddRepositoryRequest) -> &mut v1::Policy {
    r.policy.get_or_insert_default()
}

fn ttl(role: i32, tier: u32, seconds: u32) -> Vec<v1::LeaseTtl> {
    vec![v1::LeaseTtl {
        role,
        tier,
        seconds,
    }]
}

fn check(name: &str, command: &str) -> v1::CheckDefinition {
    v1::CheckDefinition {
        name: name.to_owned(),
        command: command.to_owned(),
    }
}

fn checks(n: usize) -> Vec<v1::CheckDefinition> {
    (0..n).map(|i| check(&format!("c{i}"), "true")).collect()
}

#[tokio::test]
async fn add_repository_names_each_bad_field() {
    let scene = Scene::new().await;
    let mut client = scene.repositories();
    let good = repository(&scene);
    let table: Vec<Bad<v1::AddRepositoryRequest>> = vec![
        ("name", |r| r.name.clear()),
        ("name", |r| r.name = text(101)),
        ("name", |r| r.name = "../up".to_owned()),
        ("git_url", |r| r.git_url.clear()),
        ("git_url", |r| r.git_url = "--upload-pack=x".to_owned()),
        ("git_url", |r| r.git_url = "ext::sh -c x".to_owned()),
        ("git_url", |r| r.git_url = text(4097)),
        ("base_ref", |r| r.base_ref = "a..b".to_owned()),
        ("base_ref", |r| r.base_ref = "missing".to_owned()),
        ("ci_command", |r| r.ci_command = text(4097)),
        ("checks", |r| r.checks = checks(33)),
        ("checks", |r| {
            r.ci_command = "true".to_owned();
            r.checks = checks(32);
        }),
        ("checks.name", |r| r.checks = vec![check("net-*", "true")]),
        ("checks.name", |r| {
            r.checks = vec![check(&text(101), "true")]
        }),
        ("checks.name", |r| {
            r.ci_command = "true".to_owned();
            r.checks = vec![check("ci", "false")];
        }),
        ("checks.command", |r| r.checks = vec![check("a", " ")]),
        ("checks.command", |r| {
            r.checks = vec![check("a", &text(4097))]
        }),
        ("label", |r| r.label = text(101)),
        ("label", |r| r.label = "two\nlines".to_owned()),
        ("reason", |r| r.reason = text(1001)),
        ("policy.max_tier", |r| policy(r).max_tier = Some(10)),
        ("policy.max_tier", |r| policy(r).max_tier = Some(0)),
        ("policy.ci_red_rounds", |r| {
            policy(r).ci_red_rounds = Some(101)
        }),
        ("policy.review_rounds", |r| {
            policy(r).review_rounds = Some(101)
        }),
        ("policy.conflict_rounds", |r| {
            policy(r).conflict_rounds = Some(4)
        }),
        ("policy.ci_flake_retries", |r| {
            policy(r).ci_flake_retries = Some(11)
        }),
        ("policy.merge_rounds", |r| {
            policy(r).merge_rounds = Some(101)
        }),
        ("policy.head_moves", |r| policy(r).head_moves = Some(101)),
        ("policy.effect_tries", |r| policy(r).effect_tries = Some(0)),
        ("policy.max_pickups", |r| policy(r).max_pickups = Some(0)),
        ("policy.max_live_workflows", |r| {
            policy(r).max_live_workflows = Some(10_001)
        }),
        ("policy.merge_deadline_seconds", |r| {
            policy(r).merge_deadline_seconds = Some(u64::MAX);
        }),
        ("policy.ci_poll_deadline_seconds", |r| {
            policy(r).ci_poll_deadline_seconds = Some(0);
        }),
        ("policy.lease_ttls.role", |r| {
            policy(r).lease_ttls = ttl(0, 0, 60)
        }),
        ("policy.lease_ttls.seconds", |r| {
            policy(r).lease_ttls = ttl(1, 0, 0)
        }),
    ];
    check_table!(scene, client, add_repository, good, table);
    let taken = with(&good, |r| r.name = REPOSITORY.to_owned());
    let answer = client.add_repository(taken).await;
    scene.refusal(answer, Code::AlreadyExists, "the name is taken");
    let nowhere = with(&good, |r| r.git_url = format!("{}.gone", r.git_url));
    let answer = client.add_repository(nowhere).await;
    let status = scene.refusal(answer, Code::InvalidArgument, "there is no such remote");
    let violations = status
        .get_details_bad_request()
        .expect("it names the field");
    assert_eq!(violations.field_violations[0].field, "git_url");
    let edge = with(&good, |r| {
        r.name = text(100);
        r.ci_command = text(4096);
        r.checks = checks(31);
        r.checks[0] = check(&text(100), &text(4096));
        r.label = text(100);
        r.reason = text(1000);
        policy(r).max_tier = Some(9);
        policy(r).max_live_workflows = Some(10_000);
    });
    let added = client
        .add_repository(edge.clone())
        .await
        .expect("at the edge it is taken");
    let added = added.into_inner();
    assert!(added.changed);
    let mut shown = vec![check("ci", &text(4096))];
    shown.extend(edge.checks.clone());
    assert_eq!(added.repository.expect("it is shown").checks, shown);
    let again = client.add_repository(edge).await.expect("it is there");
    assert!(!again.into_inner().changed);
}
#[tokio::test]
async fn calls_about_items_name_each_bad_field() {
    let scene = Scene::new().await;
    let mut client = scene.repositories();
    let issue = v1::SubmitIssueRequest {
        repository: REPOSITORY.to_owned(),
        title: "A title".to_owned(),
        ..v1::SubmitIssueRequest::default()
    };
    let table: Vec<Bad<v1::SubmitIssueRequest>> = vec![
        ("repository", |r| r.repository.clear()),
        ("repository", |r| r.repository = "No Such".to_owned()),
        ("title", |r| r.title = "  ".to_owned()),
        ("title", |r| r.title = text(257)),
        ("title", |r| r.title = "two\nlines".to_owned()),
        ("body", |r| r.body = text(65_537)),
        ("body", |r| r.body = "\0".to_owned()),
        ("request_id", |r| r.request_id = "1".to_owned()),
        ("reason", |r| r.reason = text(1001)),
    ];
    check_table!(scene, client, submit_issue, issue, table);
    let nowhere = with(&issue, |r| r.repository = "nowhere".to_owned());
    let answer = client.submit_issue(nowhere).await;
    scene.refusal(answer, Code::NotFound, "no such repository");
    let edge = with(&issue, |r| {
        r.title = text(256);
        r.body = text(65_536);
        r.reason = text(1000);
    });
    client
        .submit_issue(edge)
        .await
        .expect("at the edge it is taken");

    let label = v1::SetLabelRequest {
        repository: REPOSITORY.to_owned(),
        number: 1,
        label: LABEL.to_owned(),
        present: true,
        reason: String::new(),
    };
    let table: Vec<Bad<v1::SetLabelRequest>> = vec![
        ("repository", |r| r.repository = "-".to_owned()),
        ("label", |r| r.label.clear()),
        ("label", |r| r.label = text(101)),
        ("reason", |r| r.reason = text(1001)),
    ];
    check_table!(scene, client, set_label, label, table);
    for number in [0, 99, u64::MAX] {
        let answer = client.set_label(with(&label, |r| r.number = number)).await;
        scene.refusal(answer, Code::NotFound, "no such item");
    }

    let pages = v1::ListRepositoriesRequest::default();
    let table: Vec<Bad<v1::ListRepositoriesRequest>> = vec![
        ("page_size", |r| r.page_size = 501),
        ("page_token", |r| r.page_token = "A B".to_owned()),
    ];
    check_table!(scene, client, list_repositories, pages, table);
    let edge = v1::ListRepositoriesRequest {
        page_size: 500,
        page_token: String::new(),
    };
    client
        .list_repositories(edge)
        .await
        .expect("at the edge it is taken");
}
#[tokio::test]
async fn calls_about_workflows_name_each_bad_field() {
    let scene = Scene::new().await;
    let mut client = scene.workflows();
    let table: Vec<Bad<v1::ListWorkflowsRequest>> = vec![
        ("page_size", |r| r.page_size = 501),
        ("page_token", |r| r.page_token = "x".to_owned()),
        ("repository", |r| r.repository = "A".to_owned()),
        ("states", |r| r.states = vec![0]),
        ("states", |r| r.states = vec![99]),
        ("states", |r| r.states = vec![1; 1001]),
        ("kind", |r| r.kind = 9),
    ];
    check_table!(
        scene,
        client,
        list_workflows,
        v1::ListWorkflowsRequest::default(),
        table
    );
    let nowhere = v1::ListWorkflowsRequest {
        repository: "nowhere".to_owned(),
        ..v1::ListWorkflowsRequest::default()
    };
    let answer = client.list_workflows(nowhere).await;
    scene.refusal(answer, Code::NotFound, "no such repository");

    let table: Vec<Bad<v1::GetWorkflowRequest>> = vec![
        ("workflow_id", |r| r.workflow_id.clear()),
        ("workflow_id", |r| r.workflow_id = "1 OR 1=1".to_owned()),
    ];
    check_table!(
        scene,
        client,
        get_workflow,
        v1::GetWorkflowRequest::default(),
        table
    );
    let nobody = v1::GetWorkflowRequest {
        workflow_id: NOBODY.to_owned(),
    };
    let answer = client.get_workflow(nobody).await;
    scene.refusal(answer, Code::NotFound, "no such workflow");

    let table: Vec<Bad<v1::ListEventsRequest>> = vec![
        ("workflow_id", |r| r.workflow_id = "x".to_owned()),
        ("page_size", |r| r.page_size = 1001),
    ];
    check_table!(
        scene,
        client,
        list_events,
        v1::ListEventsRequest::default(),
        table
    );
    let last = v1::ListEventsRequest {
        after_sequence: u64::MAX,
        page_size: 1000,
        ..v1::ListEventsRequest::default()
    };
    let events = client
        .list_events(last)
        .await
        .expect("at the edge it is taken");
    assert_eq!(events.into_inner().events, []);
    let nobody = v1::ListEventsRequest {
        workflow_id: NOBODY.to_owned(),
        ..v1::ListEventsRequest::default()
    };
    let answer = client.list_events(nobody).await;
    scene.refusal(answer, Code::NotFound, "no such workflow");

    let table: Vec<Bad<v1::DescribeStateMachineRequest>> =
        vec![("repository", |r| r.repository = "Ä".to_owned())];
    let good = v1::DescribeStateMachineRequest::default();
    check_table!(scene, client, describe_state_machine, good, table);
    let machine = client
        .describe_state_machine(good)
        .await
        .expect("it is described");
    let machine = machine.into_inner();
    assert_eq!((machine.states.len(), machine.transitions.len()), (13, 52));
    assert_eq!(machine.max_attempts, Policy::default().max_attempts());
}

/// A change with a bad field names it, one of an old version is aborted, and one of nothing is not found.
macro_rules! check_change {
    ($scene:expr, $method:ident, $request:ident) => {{
        let mut client = $scene.workflows();
        let good = v1::$request {
            workflow_id: $scene.id.to_string(),
            reason: "a test".to_owned(),
            ..v1::$request::default()
        };
        let table: Vec<Bad<v1::$request>> = vec![
            ("workflow_id", |r| r.workflow_id = "demo#1".to_owned()),
            ("reason", |r| r.reason.clear()),
            ("reason", |r| r.reason = text(1001)),
        ];
        check_table!($scene, client, $method, good, table);
        let stale = with(&good, |r| r.expected_version = LARGEST);
        let answer = client.$method(stale).await;
        $scene.refusal(answer, Code::Aborted, "another version");
        let nobody = with(&good, |r| r.workflow_id = NOBODY.to_owned());
        let answer = client.$method(nobody).await;
        $scene.refusal(answer, Code::NotFound, "no such workflow");
        with(&good, |r| r.reason = text(1000))
    }};
}

/// The call did what it says, once; again it changes nothing and answers the same.
macro_rules! check_twice {
    ($scene:expr, $method:ident, $request:expr, $state:expr) => {{
        let mut client = $scene.workflows();
        let first = client.$method($request.clone()).await;
        let first = first.expect("it is done").into_inner();
        let again = client.$method($request).await;
        let again = again.expect("it is so already").into_inner();
        assert!(first.changed && !again.changed);
        let (first, again) = (first.workflow, again.workflow);
        assert_eq!(first, again);
        let workflow = first.expect("it is answered with the workflow");
        assert_eq!(workflow.state(), $state);
        workflow
    }};
}

#[tokio::test]
async fn workflows_are_paused_resumed_abandoned_and_resubmitted() {
    let scene = Scene::new().await;
    let pause = check_change!(scene, pause_workflow, PauseWorkflowRequest);
    let resume = check_change!(scene, resume_workflow, ResumeWorkflowRequest);
    let abandon = check_change!(scene, abandon_workflow, AbandonWorkflowRequest);
    let resubmit = check_change!(scene, resubmit_workflow, ResubmitWorkflowRequest);
    let paused = v1::WorkflowState::Paused;

    let workflow = check_twice!(scene, pause_workflow, pause.clone(), paused);
    assert_eq!(workflow.pre_pause_state(), v1::WorkflowState::Analyzing);
    assert_eq!(workflow.paused_by, "operator");
    let analyzing = v1::WorkflowState::Analyzing;
    check_twice!(scene, resume_workflow, resume.clone(), analyzing);

    // Something runs now: it is cancelled, also under a pause that left it.
    let grant = scene
        .rig
        .leased(&scene.worker, scene.id, DomainRole::Estimator)
        .await;
    let cancel = with(&pause, |r| r.cancel_running = true);
    check_twice!(scene, pause_workflow, pause.clone(), paused);
    check_twice!(scene, pause_workflow, cancel, paused);
    let late = scene.worker.finish(&scene.rig, &grant).await;
    assert!(late.is_err(), "its lease is over");
    let paused_by = scene.rig.event(scene.id, "operator_paused").await;
    assert_eq!(paused_by.reason, text(1000));

    let mut client = scene.workflows();
    scene.rig.set_labelled(scene.id, LabelState::Absent).await;
    let answer = client.resume_workflow(resume.clone()).await;
    scene.check_reason(answer, Code::FailedPrecondition, "LABEL_ABSENT");
    scene.rig.set_labelled(scene.id, LabelState::Present).await;
    check_twice!(scene, resume_workflow, resume.clone(), analyzing);

    let answer = client.resubmit_workflow(resubmit.clone()).await;
    let metadata = scene.check_reason(answer, Code::FailedPrecondition, "NOT_OVER");
    assert_eq!(metadata["state"], "ANALYZING");
    let abandoned = v1::WorkflowState::Abandoned;
    check_twice!(scene, abandon_workflow, abandon, abandoned);
    for answer in [
        client.pause_workflow(pause).await.map(drop_answer),
        client.resume_workflow(resume).await.map(drop_answer),
    ] {
        let metadata = scene.check_reason(answer, Code::FailedPrecondition, "ILLEGAL_TRANSITION");
        assert_eq!(metadata["state"], "ABANDONED");
    }

    scene.rig.set_open(scene.id, false).await;
    let answer = client.resubmit_workflow(resubmit.clone()).await;
    scene.check_reason(answer, Code::FailedPrecondition, "ITEM_CLOSED");
    scene.rig.set_open(scene.id, true).await;
    let next = check_twice!(scene, resubmit_workflow, resubmit, analyzing);
    assert_eq!(next.predecessor_id, scene.id.to_string());
    let ended = client
        .get_workflow(v1::GetWorkflowRequest {
            workflow_id: scene.id.to_string(),
        })
        .await
        .expect("it is there");
    let ended = ended.into_inner().workflow.expect("it is there");
    assert_eq!(ended.successor_id, next.id);
}

fn drop_answer<T>(answer: Response<T>) -> Response<()> {
    answer.map(drop)
}

#[tokio::test]
async fn what_operators_may_not_do_is_refused_with_the_reason() {
    let scene = Scene::new().await;
    let mut client = scene.workflows();
    let good = v1::UnstickWorkflowRequest {
        workflow_id: scene.id.to_string(),
        reason: "again".to_owned(),
        expected_version: 0,
    };
    let table: Vec<Bad<v1::UnstickWorkflowRequest>> = vec![
        ("workflow_id", |r| r.workflow_id = "x".to_owned()),
        ("reason", |r| r.reason.clear()),
        ("reason", |r| r.reason = text(1001)),
    ];
    check_table!(scene, client, unstick_workflow, good, table);
    let nobody = with(&good, |r| r.workflow_id = NOBODY.to_owned());
    let answer = client.unstick_workflow(nobody).await;
    scene.refusal(answer, Code::NotFound, "no such workflow");
    for version in [77, u64::MAX] {
        let answer = client
            .unstick_workflow(with(&good, |r| r.expected_version = version))
            .await;
        scene.refusal(answer, Code::Aborted, "another version");
    }
    let answer = client.unstick_workflow(good.clone()).await;
    let metadata = scene.check_reason(answer, Code::FailedPrecondition, "ILLEGAL_TRANSITION");
    assert_eq!(metadata["state"], "ANALYZING");
    assert!(
        metadata["legal_events"].contains("analysis_ready"),
        "{metadata:?}"
    );
    scene.rig.label(scene.id, LabelState::Absent).await;
    let answer = client.unstick_workflow(good).await;
    scene.check_reason(answer, Code::FailedPrecondition, "LABEL_ABSENT");

    let good = v1::SetCiFlakeRetriesRequest {
        workflow_id: scene.id.to_string(),
        remaining: 10,
        reason: "flaky".to_owned(),
        expected_version: 0,
    };
    let table: Vec<Bad<v1::SetCiFlakeRetriesRequest>> = vec![
        ("workflow_id", |r| r.workflow_id.clear()),
        ("reason", |r| r.reason = " ".to_owned()),
        ("remaining", |r| r.remaining = 11),
        ("remaining", |r| r.remaining = u32::MAX),
    ];
    check_table!(scene, client, set_ci_flake_retries, good, table);
    let stale = with(&good, |r| r.expected_version = 77);
    let answer = client.set_ci_flake_retries(stale).await;
    scene.refusal(answer, Code::Aborted, "another version");
    let set = client
        .set_ci_flake_retries(good)
        .await
        .expect("at the edge it is taken");
    assert!(set.into_inner().changed);
}
#[tokio::test]
async fn calls_about_the_fleet_name_each_bad_field() {
    let scene = Scene::new().await;
    let mut client = scene.fleet();
    let table: Vec<Bad<v1::ListSessionsRequest>> = vec![
        ("worker_id", |r| r.worker_id = "w".to_owned()),
        ("page_size", |r| r.page_size = 501),
        ("page_token", |r| r.page_token = "next".to_owned()),
    ];
    check_table!(
        scene,
        client,
        list_sessions,
        v1::ListSessionsRequest::default(),
        table
    );
    let table: Vec<Bad<v1::SweepRequest>> = vec![("name", |r| r.name = "broom".to_owned())];
    check_table!(scene, client, sweep, v1::SweepRequest::default(), table);
    let all = client
        .sweep(v1::SweepRequest::default())
        .await
        .expect("it sweeps");
    let names: Vec<String> = all
        .into_inner()
        .reports
        .into_iter()
        .map(|r| r.name)
        .collect();
    let expected = [
        "scheduler",
        "reaper",
        "pickup_guard",
        "reconciler",
        "ci_poller",
        "effector",
        "retention",
    ];
    assert_eq!(names, expected);
}

#[tokio::test]
async fn calls_about_workers_name_each_bad_field() {
    let scene = Scene::new().await;
    let mut client = scene.fleet();
    let table: Vec<Bad<v1::ListWorkersRequest>> = vec![
        ("page_size", |r| r.page_size = 501),
        ("page_token", |r| r.page_token = "next".to_owned()),
    ];
    check_table!(
        scene,
        client,
        list_workers,
        v1::ListWorkersRequest::default(),
        table
    );
    let worker_id = scene.worker.row.id.to_string();
    let good = v1::DrainWorkerRequest {
        worker_id: worker_id.clone(),
        reason: text(1000),
        stop_sessions: true,
    };
    let table: Vec<Bad<v1::DrainWorkerRequest>> = vec![
        ("worker_id", |r| r.worker_id.clear()),
        ("reason", |r| r.reason = " ".to_owned()),
        ("reason", |r| r.reason = text(1001)),
    ];
    check_table!(scene, client, drain_worker, good, table);
    let drained = client
        .drain_worker(good)
        .await
        .expect("at the edge it is taken");
    let drained = drained.into_inner();
    assert!(drained.changed);
    assert!(
        drained
            .worker
            .and_then(|w| w.drain)
            .is_some_and(|d| d.stop_sessions)
    );
    let good = v1::UndrainWorkerRequest {
        worker_id: worker_id.clone(),
        reason: text(1000),
    };
    let table: Vec<Bad<v1::UndrainWorkerRequest>> = vec![
        ("worker_id", |r| r.worker_id = "w".to_owned()),
        ("reason", |r| r.reason.clear()),
    ];
    check_table!(scene, client, undrain_worker, good, table);
    let undrained = client
        .undrain_worker(good)
        .await
        .expect("at the edge it is taken");
    assert_eq!(undrained.into_inner().worker.and_then(|w| w.drain), None);
    let good = v1::DeclareWorkerDeadRequest {
        worker_id,
        reason: text(1000),
        force: false,
    };
    let table: Vec<Bad<v1::DeclareWorkerDeadRequest>> = vec![
        ("worker_id", |r| r.worker_id = "w".to_owned()),
        ("reason", |r| r.reason.clear()),
    ];
    check_table!(scene, client, declare_worker_dead, good, table);
    let answer = client.declare_worker_dead(good.clone()).await;
    scene.check_reason(answer, Code::FailedPrecondition, "WORKER_ALIVE");
    let unknown = with(&good, |r| r.worker_id = NOBODY.to_owned());
    let answer = client.declare_worker_dead(unknown).await;
    scene.refusal(answer, Code::NotFound, "a worker that never was");

    FakeWorker::registered(&scene.rig, "other").await;
    let mut names = Vec::new();
    let mut page_token = String::new();
    loop {
        let request = v1::ListWorkersRequest {
            page_size: 1,
            page_token,
        };
        let page = client
            .list_workers(request)
            .await
            .expect("it is listed")
            .into_inner();
        names.extend(page.workers.into_iter().map(|worker| worker.name));
        page_token = page.next_page_token;
        if page_token.is_empty() {
            break;
        }
    }
    names.sort();
    assert_eq!(names, ["other", "w"]);
}

#[tokio::test]
async fn calls_about_holds_name_each_bad_field() {
    let scene = Scene::new().await;
    let mut client = scene.fleet();
    let table: Vec<Bad<v1::ListHoldsRequest>> = vec![
        ("page_size", |r| r.page_size = 501),
        ("page_token", |r| r.page_token = "next".to_owned()),
    ];
    check_table!(
        scene,
        client,
        list_holds,
        v1::ListHoldsRequest::default(),
        table
    );
    let good = v1::ReleaseHoldRequest {
        hold_id: NOBODY.to_owned(),
        reason: text(1000),
    };
    let table: Vec<Bad<v1::ReleaseHoldRequest>> = vec![
        ("hold_id", |r| r.hold_id = "h".to_owned()),
        ("reason", |r| r.reason.clear()),
        ("reason", |r| r.reason = text(1001)),
    ];
    check_table!(scene, client, release_hold, good, table);
    let released = client
        .release_hold(good)
        .await
        .expect("at the edge it is taken");
    assert!(!released.into_inner().changed);
    let stats = client
        .get_stats(v1::GetStatsRequest {})
        .await
        .expect("it is counted");
    let stats = stats.into_inner();
    assert_eq!((stats.workers_alive, stats.sweeps.len()), (1, 0));
    client
        .sweep(v1::SweepRequest::default())
        .await
        .expect("it sweeps");
    let stats = client
        .get_stats(v1::GetStatsRequest {})
        .await
        .expect("it is counted");
    assert_eq!(stats.into_inner().sweeps.len(), 7);
}

#[tokio::test]
async fn a_message_over_the_limit_is_refused_and_the_connection_goes_on() {
    let scene = Scene::new().await;
    let mut client = scene.repositories();
    let huge = v1::SubmitIssueRequest {
        repository: REPOSITORY.to_owned(),
        title: "A title".to_owned(),
        body: text(5 * 1024 * 1024),
        ..v1::SubmitIssueRequest::default()
    };
    let answer = client.submit_issue(huge).await;
    scene.refusal(answer, Code::OutOfRange, "too large");
    client
        .list_repositories(v1::ListRepositoriesRequest::default())
        .await
        .expect("the connection goes on");
}
#[tokio::test]
async fn a_stored_value_that_can_not_be_is_told_to_nobody() {
    let scene = Scene::new().await;
    scene
        .rig
        .corrupt(
            "UPDATE workflows SET state = 'SOMEWHERE' WHERE id = ?",
            &scene.id.to_string(),
        )
        .await;
    let get = v1::GetWorkflowRequest {
        workflow_id: scene.id.to_string(),
    };
    let answer = scene.workflows().get_workflow(get).await;
    let status = scene.refusal(answer, Code::Internal, "never a default");
    assert!(!status.message().contains("SOMEWHERE"), "{status:?}");
}
