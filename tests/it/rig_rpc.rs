//! Bad input to each call over real gRPC: the right status, the field by its name, and no word of what is
//! none of the caller's business.

use std::{fmt::Debug, time::Duration};

use pointsman_master::domain::{
    attempt::Role as DomainRole, decision::LabelState, ids::WorkflowId, policy::Policy,
    transitions::State,
};
use pointsman_proto::v1::{
    self, fleet_service_client::FleetServiceClient,
    repository_service_client::RepositoryServiceClient, worker_service_client::WorkerServiceClient,
    workflow_service_client::WorkflowServiceClient,
};
use pointsman_tests::rig::{
    BASE, FakeWorker, LABEL, REPOSITORY, Rig, faulty_store::Loss, wire::Wire,
};
use tonic::{Code, Response, Status, transport::Channel};
use tonic_types::StatusExt;

/// The largest number that can be stored.
const LARGEST: u64 = i64::MAX.unsigned_abs();
/// A deadline for what comes by itself.
const SOON: Duration = Duration::from_secs(20);
/// A well-formed id of nothing.
const NOBODY: &str = "01890000-0000-7000-8000-000000000000";

/// A served rig with one workflow in ANALYZING.
struct Scene {
    rig: Rig,
    id: WorkflowId,
    worker: FakeWorker,
    wire: Wire,
}

impl Scene {
    async fn new() -> Self {
        let rig = Rig::new().await;
        let worker = FakeWorker::registered(&rig, "w").await;
        let id = rig.issue_in(&worker, State::Analyzing).await;
        let wire = Wire::serve(&rig).await;
        Self {
            rig,
            id,
            worker,
            wire,
        }
    }

    fn workers(&self) -> WorkerServiceClient<Channel> {
        WorkerServiceClient::new(self.wire.channel.clone())
    }

    fn repositories(&self) -> RepositoryServiceClient<Channel> {
        RepositoryServiceClient::new(self.wire.channel.clone())
    }

    fn workflows(&self) -> WorkflowServiceClient<Channel> {
        WorkflowServiceClient::new(self.wire.channel.clone())
    }

    fn fleet(&self) -> FleetServiceClient<Channel> {
        FleetServiceClient::new(self.wire.channel.clone())
    }

    /// One line for people, with no path of the host and nothing that a database said.
    fn check_is_clean(&self, status: &Status) {
        let message = status.message();
        let directory = self.rig.database();
        let directory = directory.parent().expect("it is in a directory");
        let path = directory.display().to_string();
        for secret in [
            path.as_str(),
            "SELECT",
            "UPDATE",
            "INSERT",
            "sqlite",
            "constraint",
        ] {
            assert!(!message.contains(secret), "{message}");
        }
        assert!(
            !message.is_empty() && !message.contains('\n'),
            "{message:?}"
        );
    }

    /// The status of a call that must fail.
    fn refusal<T: Debug>(
        &self,
        answer: Result<Response<T>, Status>,
        code: Code,
        what: &str,
    ) -> Status {
        match answer {
            Ok(response) => panic!("{what}: it is answered with {response:?}"),
            Err(status) => {
                assert_eq!(status.code(), code, "{what}: {status:?}");
                self.check_is_clean(&status);
                status
            }
        }
    }

    /// INVALID_ARGUMENT that names `field`.
    fn check_field<T: Debug>(&self, answer: Result<Response<T>, Status>, field: &str) {
        let status = self.refusal(answer, Code::InvalidArgument, field);
        let violations = status
            .get_details_bad_request()
            .map(|request| request.field_violations)
            .unwrap_or_default();
        let fields: Vec<&str> = violations.iter().map(|v| v.field.as_str()).collect();
        assert_eq!(fields, [field], "{status:?}");
    }

    /// FAILED_PRECONDITION, or ALREADY_EXISTS, for `reason`.
    fn check_reason<T: Debug>(
        &self,
        answer: Result<Response<T>, Status>,
        code: Code,
        reason: &str,
    ) -> std::collections::HashMap<String, String> {
        let status = self.refusal(answer, code, reason);
        let info = status.get_details_error_info().expect("it has a reason");
        assert_eq!(
            (info.reason.as_str(), info.domain.as_str()),
            (reason, "pointsman")
        );
        info.metadata
    }
}

/// One change that makes a good request bad, and the field that is to be named.
type Bad<T> = (&'static str, fn(&mut T));

fn with<T: Clone>(good: &T, change: impl FnOnce(&mut T)) -> T {
    let mut request = good.clone();
    change(&mut request);
    request
}

/// Calls `$client.$method` with each bad variant of `$good`.
macro_rules! check_table {
    ($scene:expr, $client:expr, $method:ident, $good:expr, $table:expr) => {
        for (field, spoil) in $table {
            let answer = $client.$method(with(&$good, spoil)).await;
            $scene.check_field(answer, field);
        }
    };
}

fn text(length: usize) -> String {
    "x".repeat(length)
}

fn key() -> v1::LeaseKey {
    v1::LeaseKey {
        attempt_id: NOBODY.to_owned(),
        lock_fence: 1,
        lock_nonce: NOBODY.to_owned(),
    }
}

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
        v1::InfrastructureError { class, message },
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
    let status = scene.refusal(answer, Code::Unavailable, "there is no such remote");
    assert!(status.get_details_retry_info().is_some());
    let edge = with(&good, |r| {
        r.name = text(100);
        r.ci_command = text(4096);
        r.label = text(100);
        r.reason = text(1000);
        policy(r).max_tier = Some(9);
        policy(r).max_live_workflows = Some(10_000);
    });
    let added = client
        .add_repository(edge.clone())
        .await
        .expect("at the edge it is taken");
    assert!(added.into_inner().changed);
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
    let table: Vec<Bad<v1::ListSessionsRequest>> =
        vec![("worker_id", |r| r.worker_id = "w".to_owned())];
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
    ];
    assert_eq!(names, expected);
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
