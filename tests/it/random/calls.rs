//! What operators do by RPC.

use pointsman_proto::v1::{
    AbandonWorkflowRequest, CancelAttemptRequest, CloseItemRequest, CommentRequest,
    DeclareWorkerDeadRequest, DrainWorkerRequest, ListWorkersRequest, PauseWorkflowRequest,
    ReopenItemRequest, ResubmitWorkflowRequest, ResumeWorkflowRequest, SetCiFlakeRetriesRequest,
    SetPriorityRequest, SweepRequest, UndrainWorkerRequest, UnstickWorkflowRequest, Worker,
    Workflow, WorkflowState,
};
use pointsman_tests::world::REPOSITORY;
use rand::{RngExt as _, seq::IndexedRandom as _};
use tonic::{Code, Status};

use super::{Driver, is_over};

/// Why; all of it happens by chance.
const REASON: &str = "by chance";

#[derive(Debug, Clone, Copy)]
pub(super) enum Call {
    Pause,
    Resume,
    Unstick,
    Abandon,
    Resubmit,
    SetFlakeRetries,
    SetPriority,
    CancelAttempt,
    Close,
    Reopen,
    Comment,
    Drain,
    Undrain,
    DeclareDead,
    Sweep,
}

impl Driver {
    pub(super) async fn call(&mut self, call: Call) {
        let mut workflows = self.world.api.workflows.clone();
        let mut repositories = self.world.api.repositories.clone();
        let mut fleet = self.world.api.fleet.clone();
        let reason = REASON.to_owned();
        match call {
            Call::Pause => {
                let Some(found) = self.some(|w| !is_over(w.state())).await else {
                    return;
                };
                let request = PauseWorkflowRequest {
                    workflow_id: found.id,
                    cancel_running: self.rng.random_bool(0.5),
                    reason,
                    ..PauseWorkflowRequest::default()
                };
                may_fail(workflows.pause_workflow(request).await);
            }
            Call::Resume => {
                if let Some(found) = self.some(is_paused_by_operator).await {
                    self.resume(&found).await;
                }
            }
            Call::Unstick => {
                let Some(found) = self.some(|w| w.state() == WorkflowState::Stuck).await else {
                    return;
                };
                let request = UnstickWorkflowRequest {
                    workflow_id: found.id,
                    reason,
                    ..UnstickWorkflowRequest::default()
                };
                may_fail(workflows.unstick_workflow(request).await);
            }
            Call::Abandon => {
                let Some(found) = self.some(|w| !is_over(w.state())).await else {
                    return;
                };
                let request = AbandonWorkflowRequest {
                    workflow_id: found.id,
                    reason,
                    expected_version: found.version,
                };
                may_fail(workflows.abandon_workflow(request).await);
            }
            Call::Resubmit => {
                let Some(found) = self.some(|w| is_over(w.state())).await else {
                    return;
                };
                let request = ResubmitWorkflowRequest {
                    workflow_id: found.id,
                    reason,
                    ..ResubmitWorkflowRequest::default()
                };
                may_fail(workflows.resubmit_workflow(request).await);
            }
            Call::SetFlakeRetries => {
                let Some(found) = self.some(|w| !is_over(w.state())).await else {
                    return;
                };
                let request = SetCiFlakeRetriesRequest {
                    workflow_id: found.id,
                    remaining: self.rng.random_range(0..3),
                    reason,
                    expected_version: found.version,
                };
                may_fail(workflows.set_ci_flake_retries(request).await);
            }
            Call::SetPriority => {
                let Some(found) = self.some(|w| !is_over(w.state())).await else {
                    return;
                };
                let request = SetPriorityRequest {
                    workflow_id: found.id,
                    priority: self.rng.random_range(-3..4),
                    reason,
                    ..SetPriorityRequest::default()
                };
                may_fail(workflows.set_priority(request).await);
            }
            Call::CancelAttempt => {
                let sessions = self.world.sessions().await;
                let Some(session) = sessions.choose(&mut self.rng) else {
                    return;
                };
                let request = CancelAttemptRequest {
                    attempt_id: session.attempt_id.clone(),
                    reason,
                };
                may_fail(workflows.cancel_attempt(request).await);
            }
            Call::Close => {
                let Some(found) = self.some(|w| !is_over(w.state())).await else {
                    return;
                };
                let request = CloseItemRequest {
                    repository: REPOSITORY.to_owned(),
                    number: found.number,
                    reason,
                };
                may_fail(repositories.close_item(request).await);
            }
            Call::Reopen => {
                let is_abandoned = |w: &Workflow| w.state() == WorkflowState::Abandoned;
                let Some(found) = self.some(is_abandoned).await else {
                    return;
                };
                let request = ReopenItemRequest {
                    repository: REPOSITORY.to_owned(),
                    number: found.number,
                    reason,
                };
                may_fail(repositories.reopen_item(request).await);
            }
            Call::Comment => {
                let Some(found) = self.some(|_| true).await else {
                    return;
                };
                let request = CommentRequest {
                    repository: REPOSITORY.to_owned(),
                    number: found.number,
                    body: "What is this?".to_owned(),
                    reason,
                    ..CommentRequest::default()
                };
                may_fail(repositories.comment(request).await);
            }
            Call::Drain => {
                let Some(worker) = self.some_registered_worker().await else {
                    return;
                };
                let request = DrainWorkerRequest {
                    worker_id: worker.id,
                    stop_sessions: self.rng.random_bool(0.3),
                    reason,
                };
                may_fail(fleet.drain_worker(request).await);
            }
            Call::Undrain => self.undrain_all().await,
            Call::DeclareDead => {
                let Some(worker) = self.some_registered_worker().await else {
                    return;
                };
                let request = DeclareWorkerDeadRequest {
                    worker_id: worker.id,
                    force: true,
                    reason,
                };
                may_fail(fleet.declare_worker_dead(request).await);
            }
            Call::Sweep => may_fail(fleet.sweep(SweepRequest::default()).await),
        }
    }

    /// Takes back whatever holds a workflow up.
    pub(super) async fn let_all_go_on(&self) {
        self.undrain_all().await;
        for workflow in self.workflows().await {
            if is_paused_by_operator(&workflow) {
                self.resume(&workflow).await;
            }
            if workflow.state() == WorkflowState::Paused {
                may_fail(self.world.try_set_label(workflow.number, true).await);
            }
        }
    }

    async fn resume(&self, workflow: &Workflow) {
        let request = ResumeWorkflowRequest {
            workflow_id: workflow.id.clone(),
            reason: REASON.to_owned(),
            ..ResumeWorkflowRequest::default()
        };
        let mut workflows = self.world.api.workflows.clone();
        may_fail(workflows.resume_workflow(request).await);
    }

    async fn registered_workers(&self) -> Vec<Worker> {
        let mut fleet = self.world.api.fleet.clone();
        let answer = fleet.list_workers(ListWorkersRequest::default()).await;
        answer.map_or_else(|_| Vec::new(), |answer| answer.into_inner().workers)
    }

    async fn some_registered_worker(&mut self) -> Option<Worker> {
        let all = self.registered_workers().await;
        all.choose(&mut self.rng).cloned()
    }

    async fn undrain_all(&self) {
        for worker in self.registered_workers().await {
            if worker.drain.is_none() {
                continue;
            }
            let request = UndrainWorkerRequest {
                worker_id: worker.id,
                reason: REASON.to_owned(),
            };
            let mut fleet = self.world.api.fleet.clone();
            may_fail(fleet.undrain_worker(request).await);
        }
    }
}

fn is_paused_by_operator(workflow: &Workflow) -> bool {
    workflow.state() == WorkflowState::Paused && workflow.paused_by == "operator"
}

/// A call may be refused, or find nobody; it never fails in a way that nobody thought of.
pub(super) fn may_fail<T>(answer: Result<T, Status>) {
    let Err(status) = answer else { return };
    let is_expected = matches!(
        status.code(),
        Code::FailedPrecondition | Code::Aborted | Code::Unavailable | Code::NotFound
    ) || status.message().contains("transport error");
    assert!(is_expected, "{status:?}");
}
