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

mod attempts;
mod items;
mod operators;
mod workers;
