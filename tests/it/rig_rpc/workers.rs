//! What workers may say.

use super::*;

fn registration() -> v1::RegisterRequest {
    v1::RegisterRequest {
        worker_id: NOBODY.to_owned(),
        instance_id: NOBODY.to_owned(),
        name: "name".to_owned(),
        host: "host".to_owned(),
        boot_id: "boot".to_owned(),
        version: "0".to_owned(),
        state_directory: Some(v1::StateDirectoryIdentity::default()),
        capacity: 1,
        roles: vec![v1::Role::Estimator.into()],
        labels: vec!["label".to_owned()],
        profiles: vec![v1::HarnessProfile {
            name: "profile".to_owned(),
            roles: vec![v1::Role::Estimator.into()],
            tiers: vec![1],
            kill_budget: Some(prost_types::Duration::default()),
            account: "account".to_owned(),
        }],
        sessions: vec![v1::UnconfirmedSession { lease: Some(key()) }],
        ..v1::RegisterRequest::default()
    }
}

#[tokio::test]
async fn register_names_each_bad_field() {
    let scene = Scene::new().await;
    let mut client = scene.workers();
    let table: Vec<Bad<v1::RegisterRequest>> = vec![
        ("worker_id", |r| r.worker_id = "w".to_owned()),
        ("worker_id", |r| r.worker_id.clear()),
        ("instance_id", |r| r.instance_id = "i".to_owned()),
        ("name", |r| r.name.clear()),
        ("name", |r| r.name = text(201)),
        ("name", |r| r.name = "two\nlines".to_owned()),
        ("host", |r| r.host = text(201)),
        ("host", |r| r.host.clear()),
        ("boot_id", |r| r.boot_id = text(201)),
        ("version", |r| r.version = text(201)),
        ("state_directory", |r| r.state_directory = None),
        ("capacity", |r| r.capacity = 0),
        ("capacity", |r| r.capacity = 1001),
        ("roles", |r| r.roles = vec![0]),
        ("roles", |r| r.roles = vec![99]),
        ("roles", |r| r.roles = vec![1; 7]),
        ("labels", |r| r.labels = vec![text(1); 1001]),
        ("labels", |r| r.labels = vec![text(101)]),
        ("labels", |r| r.labels = vec![String::new()]),
        ("profiles", |r| {
            r.profiles = vec![r.profiles[0].clone(); 1001]
        }),
        ("profiles.name", |r| r.profiles[0].name.clear()),
        ("profiles.name", |r| r.profiles[0].name = text(201)),
        ("profiles.roles", |r| r.profiles[0].roles = vec![0]),
        ("profiles.tiers", |r| r.profiles[0].tiers = vec![1; 1001]),
        ("profiles.kill_budget", |r| r.profiles[0].kill_budget = None),
        ("profiles.account", |r| r.profiles[0].account = text(201)),
        ("profiles.account", |r| {
            r.profiles[0].account = "a\nb".to_owned()
        }),
        ("profiles.kill_budget", |r| {
            r.profiles[0].kill_budget = Some(prost_types::Duration {
                seconds: -1,
                nanos: 0,
            });
        }),
        ("sessions", |r| {
            r.sessions = vec![r.sessions[0].clone(); 1001]
        }),
        ("sessions.lease", |r| r.sessions[0].lease = None),
        ("sessions.lease.attempt_id", |r| {
            r.sessions[0].lease = Some(with(&key(), |k| k.attempt_id.clear()));
        }),
        ("sessions.lease.lock_nonce", |r| {
            r.sessions[0].lease = Some(with(&key(), |k| k.lock_nonce = text(32)));
        }),
    ];
    check_table!(scene, client, register, registration(), table);
    let edge = with(&registration(), |r| {
        r.name = text(200);
        r.capacity = 1000;
        r.labels = vec![text(100); 1000];
        r.profiles = vec![r.profiles[0].clone(); 1000];
        r.sessions = vec![r.sessions[0].clone(); 1000];
        r.state_directory = Some(v1::StateDirectoryIdentity {
            device: u64::MAX,
            inode: u64::MAX,
            created_at_nanos: i64::MIN,
        });
    });
    client
        .register(edge.clone())
        .await
        .expect("at the edge it is taken");
    let taken = with(&edge, |r| {
        r.instance_id = NOBODY.replace('0', "1");
        r.state_directory = Some(v1::StateDirectoryIdentity::default());
    });
    let answer = client.register(taken).await;
    scene.check_reason(answer, Code::AlreadyExists, "WORKER_IN_USE");
}

fn lease_request(scene: &Scene) -> v1::LeaseRequest {
    v1::LeaseRequest {
        worker_id: scene.worker.row.id.to_string(),
        instance_id: scene.worker.row.instance.to_string(),
        request_id: NOBODY.to_owned(),
        max: 1,
        wait: Some(prost_types::Duration {
            seconds: 30,
            nanos: 0,
        }),
    }
}

#[tokio::test]
async fn lease_names_each_bad_field() {
    let scene = Scene::new().await;
    let mut client = scene.workers();
    let table: Vec<Bad<v1::LeaseRequest>> = vec![
        ("worker_id", |r| r.worker_id.clear()),
        ("instance_id", |r| r.instance_id = "1".to_owned()),
        ("request_id", |r| r.request_id.clear()),
        ("max", |r| r.max = 0),
        ("max", |r| r.max = 101),
        ("wait", |r| {
            r.wait = Some(prost_types::Duration {
                seconds: -1,
                nanos: 0,
            });
        }),
    ];
    let good = lease_request(&scene);
    check_table!(scene, client, lease, good, table);
    let unknown = with(&good, |r| r.instance_id = NOBODY.to_owned());
    let answer = client.lease(unknown).await;
    scene.check_reason(answer, Code::FailedPrecondition, "UNKNOWN_INSTANCE");
    let unknown = with(&good, |r| r.worker_id = NOBODY.to_owned());
    let answer = client.lease(unknown).await;
    scene.check_reason(answer, Code::FailedPrecondition, "UNKNOWN_INSTANCE");
    let edge = with(&good, |r| r.max = 100);
    let leased = client.lease(edge).await.expect("at the edge it is taken");
    assert_eq!(leased.into_inner().leases.len(), 1);
}

/// The answers to one stream that says just this.
async fn beat(
    scene: &Scene,
    beat: v1::HeartbeatsRequest,
) -> Result<Response<v1::HeartbeatsResponse>, Status> {
    let (say, said) = tokio::sync::mpsc::channel(1);
    say.send(beat).await.expect("the stream is open");
    let said = tokio_stream::wrappers::ReceiverStream::new(said);
    let mut answers = scene.workers().heartbeats(said).await?.into_inner();
    let answer = tokio::time::timeout(SOON, answers.message()).await;
    let answer = answer.expect("a beat is answered soon")?;
    drop(say);
    Ok(Response::new(answer.expect("it is answered")))
}

#[tokio::test]
async fn heartbeats_name_each_bad_field() {
    let scene = Scene::new().await;
    let good = v1::HeartbeatsRequest {
        worker_id: scene.worker.row.id.to_string(),
        instance_id: scene.worker.row.instance.to_string(),
        sequence: 7,
        sessions: vec![v1::SessionBeat {
            lease: Some(key()),
            phase: v1::SessionPhase::Running.into(),
            ..v1::SessionBeat::default()
        }],
    };
    let table: Vec<Bad<v1::HeartbeatsRequest>> = vec![
        ("worker_id", |r| r.worker_id = "w".to_owned()),
        ("instance_id", |r| r.instance_id.clear()),
        ("sessions", |r| {
            r.sessions = vec![r.sessions[0].clone(); 1001]
        }),
        ("sessions.phase", |r| r.sessions[0].phase = 0),
        ("sessions.phase", |r| r.sessions[0].phase = 77),
        ("sessions.lease", |r| r.sessions[0].lease = None),
        ("sessions.lease.attempt_id", |r| {
            r.sessions[0].lease = Some(with(&key(), |k| k.attempt_id.clear()));
        }),
        ("sessions.lease.lock_fence", |r| {
            r.sessions[0].lease = Some(with(&key(), |k| k.lock_fence = u64::MAX));
        }),
        ("sessions.subprocess_starttime", |r| {
            r.sessions[0].subprocess_starttime = u64::MAX;
        }),
        ("sessions.log_bytes", |r| {
            r.sessions[0].log_bytes = u64::MAX;
        }),
        ("sessions.last_output_at", |r| {
            r.sessions[0].last_output_at = Some(prost_types::Timestamp {
                seconds: i64::MAX,
                nanos: 0,
            });
        }),
    ];
    for (field, spoil) in table {
        let answer = beat(&scene, with(&good, spoil)).await;
        scene.check_field(answer, field);
    }
    let heard = beat(&scene, good.clone())
        .await
        .expect("it is heard")
        .into_inner();
    assert_eq!(heard.acked_sequence, 7);
    assert_eq!(heard.directives.len(), 1);
    assert_eq!(
        heard.directives[0].action(),
        v1::directive::Action::LeaseLost
    );
    // The largest numbers are numbers, too.
    let largest = with(&good, |r| {
        r.sequence = u64::MAX;
        r.sessions[0].lease = Some(with(&key(), |k| k.lock_fence = LARGEST));
        r.sessions[0].subprocess_pid = u32::MAX;
        r.sessions[0].subprocess_starttime = LARGEST;
        r.sessions[0].log_bytes = LARGEST;
    });
    let heard = beat(&scene, largest)
        .await
        .expect("it is heard")
        .into_inner();
    assert_eq!(heard.acked_sequence, u64::MAX);
    let unknown = with(&good, |r| r.instance_id = NOBODY.to_owned());
    let heard = beat(&scene, unknown)
        .await
        .expect("it is heard")
        .into_inner();
    assert_eq!(heard.directives.len(), 1);
    assert_eq!(
        heard.directives[0].action(),
        v1::directive::Action::Register
    );
}

fn verdict(verdict: v1::verdict::Verdict) -> Option<v1::complete_request::Outcome> {
    Some(v1::complete_request::Outcome::Verdict(v1::Verdict {
        verdict: Some(verdict),
    }))
}

fn check_result(exit_status: u32, log_tail: String) -> Option<v1::complete_request::Outcome> {
    Some(v1::complete_request::Outcome::CheckResult(
        v1::CheckResult {
            exit_status,
            log_tail,
        },
    ))
}

fn error(class: i32, message: String) -> Option<v1::complete_request::Outcome> {
    Some(v1::complete_request::Outcome::InfrastructureError(
        v1::InfrastructureError {
            class,
            message,
            reset_at: None,
        },
    ))
}

fn declined(reason: String) -> Option<v1::complete_request::Outcome> {
    verdict(v1::verdict::Verdict::Declined(v1::verdict::Declined {
        reason,
    }))
}

#[tokio::test]
async fn complete_and_release_name_each_bad_field() {
    let scene = Scene::new().await;
    let mut client = scene.workers();
    let good = v1::CompleteRequest {
        worker_id: scene.worker.row.id.to_string(),
        instance_id: scene.worker.row.instance.to_string(),
        lease: Some(key()),
        outcome: declined("no".to_owned()),
        harness_duration: None,
    };
    let table: Vec<Bad<v1::CompleteRequest>> = vec![
        ("worker_id", |r| r.worker_id.clear()),
        ("lease", |r| r.lease = None),
        ("lease.attempt_id", |r| {
            r.lease = Some(with(&key(), |k| k.attempt_id = "a".to_owned()));
        }),
        ("lease.lock_fence", |r| {
            r.lease = Some(with(&key(), |k| k.lock_fence = u64::MAX));
        }),
        ("lease.lock_nonce", |r| {
            r.lease = Some(with(&key(), |k| k.lock_nonce.clear()));
        }),
        ("outcome", |r| r.outcome = None),
        ("verdict", |r| {
            r.outcome = Some(v1::complete_request::Outcome::Verdict(
                v1::Verdict::default(),
            ));
        }),
        ("verdict.reason", |r| r.outcome = declined(text(65_537))),
        ("verdict.reason", |r| {
            r.outcome = declined("a\0b".to_owned())
        }),
        ("verdict.commit", |r| {
            r.outcome = verdict(v1::verdict::Verdict::Changed(v1::verdict::Changed {
                commit: "main".to_owned(),
                summary: String::new(),
            }));
        }),
        ("verdict.paths", |r| {
            r.outcome = verdict(v1::verdict::Verdict::Conflict(v1::verdict::Conflict {
                paths: vec![String::new(); 1001],
            }));
        }),
        ("verdict.paths", |r| {
            r.outcome = verdict(v1::verdict::Verdict::Conflict(v1::verdict::Conflict {
                paths: vec![text(4097)],
            }));
        }),
        ("infrastructure_error.class", |r| {
            r.outcome = error(0, String::new())
        }),
        ("infrastructure_error.class", |r| {
            r.outcome = error(99, String::new())
        }),
        ("infrastructure_error.message", |r| {
            r.outcome = error(1, text(4097));
        }),
        ("check_result.exit_status", |r| {
            r.outcome = check_result(256, String::new());
        }),
        ("check_result.log_tail", |r| {
            r.outcome = check_result(1, text(16_385));
        }),
    ];
    check_table!(scene, client, complete, good, table);
    let answer = client.complete(good.clone()).await;
    scene.refusal(answer, Code::NotFound, "an attempt that never was");

    let release = v1::ReleaseRequest {
        worker_id: good.worker_id.clone(),
        instance_id: good.instance_id.clone(),
        lease: Some(key()),
        reason: String::new(),
    };
    let table: Vec<Bad<v1::ReleaseRequest>> = vec![
        ("worker_id", |r| r.worker_id = text(36)),
        ("lease", |r| r.lease = None),
        ("reason", |r| r.reason = text(1001)),
    ];
    check_table!(scene, client, release, release, table);
    let answer = client
        .release(with(&release, |r| r.reason = text(1000)))
        .await;
    scene.refusal(answer, Code::NotFound, "an attempt that never was");

    let leased = client
        .lease(lease_request(&scene))
        .await
        .expect("it is leased");
    let key = leased.into_inner().leases.remove(0).key;
    for fence in [0, 2, LARGEST] {
        let stale = key.clone().map(|key| with(&key, |k| k.lock_fence = fence));
        let answer = client
            .complete(with(&good, |r| r.lease = stale.clone()))
            .await;
        scene.check_reason(answer, Code::FailedPrecondition, "LEASE_LOST");
        let answer = client.release(with(&release, |r| r.lease = stale)).await;
        scene.check_reason(answer, Code::FailedPrecondition, "LEASE_LOST");
    }
    let edge = with(&good, |r| {
        r.lease = key;
        r.outcome = declined(text(65_536));
    });
    let first = client
        .complete(edge.clone())
        .await
        .expect("at the edge it is taken");
    assert!(!first.into_inner().already_accepted);
    let again = client.complete(edge).await.expect("it is known");
    assert!(again.into_inner().already_accepted);
    assert_eq!(scene.rig.state(scene.id).await, State::Abandoned);
}
#[tokio::test]
async fn what_is_away_is_unavailable_and_may_be_asked_again() {
    let scene = Scene::new().await;
    let mut client = scene.workers();
    let leased = client
        .lease(lease_request(&scene))
        .await
        .expect("it is leased");
    let lease = leased.into_inner().leases.remove(0);
    let complete = v1::CompleteRequest {
        worker_id: scene.worker.row.id.to_string(),
        instance_id: scene.worker.row.instance.to_string(),
        lease: lease.key,
        outcome: declined("no".to_owned()),
        harness_duration: None,
    };
    scene.rig.faults.fail_next(Loss::Before);
    let answer = client.complete(complete.clone()).await;
    let status = scene.refusal(answer, Code::Unavailable, "the commit was lost");
    assert!(status.get_details_retry_info().is_some());
    scene.rig.faults.fail_next(Loss::After);
    let answer = client.complete(complete.clone()).await;
    scene.refusal(answer, Code::Unavailable, "the answer was lost");
    let known = client.complete(complete).await.expect("it is known");
    assert!(known.into_inner().already_accepted);

    scene.rig.store.close().await;
    let get = v1::GetWorkflowRequest {
        workflow_id: scene.id.to_string(),
    };
    let answer = scene.workflows().get_workflow(get).await;
    let status = scene.refusal(answer, Code::Unavailable, "the database is closed");
    assert!(status.get_details_retry_info().is_some());
}
#[tokio::test]
async fn a_stream_hears_that_the_master_shuts_down() {
    let scene = Scene::new().await;
    let (say, said) = tokio::sync::mpsc::channel(1);
    let said = tokio_stream::wrappers::ReceiverStream::new(said);
    let answers = scene.workers().heartbeats(said).await;
    let mut answers = answers.expect("the stream is open").into_inner();
    let waiting = scene
        .wire
        .claims
        .lease(scene.worker.claim(&scene.rig, 1), Duration::from_secs(30));
    let leased = waiting.await.expect("there is one to lease");
    assert_eq!(leased.len(), 1);
    assert_eq!(leased[0].attempt.role, DomainRole::Estimator);
    scene.wire.stop.cancel();
    let farewell = tokio::time::timeout(SOON, answers.message()).await;
    let farewell = farewell
        .expect("it is heard soon")
        .expect("it is heard")
        .expect("it says so");
    assert_eq!(
        farewell.directives[0].action(),
        v1::directive::Action::Draining
    );
    assert_eq!(answers.message().await.expect("it ends well"), None);
    drop(say);
    assert!(scene.rig.remote.tip(BASE).await.is_some());
}
