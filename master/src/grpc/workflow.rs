//! WorkflowService: convert, one call, convert.

use pointsman_proto::v1::{
    self, AbandonWorkflowRequest, AbandonWorkflowResponse, CancelAttemptRequest,
    CancelAttemptResponse, DescribeStateMachineRequest, DescribeStateMachineResponse,
    GetWorkflowRequest, GetWorkflowResponse, ListAttemptsRequest, ListAttemptsResponse,
    ListEventsRequest, ListEventsResponse, ListWorkflowsRequest, ListWorkflowsResponse,
    PauseWorkflowRequest, PauseWorkflowResponse, ResubmitWorkflowRequest, ResubmitWorkflowResponse,
    ResumeWorkflowRequest, ResumeWorkflowResponse, SetCiFlakeRetriesRequest,
    SetCiFlakeRetriesResponse, SetPriorityRequest, SetPriorityResponse, StateDescription,
    TailLogRequest, TransitionDescription, UnstickWorkflowRequest, UnstickWorkflowResponse,
    WatchWorkflowsRequest, workflow_service_server::WorkflowService,
};
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status};

use super::{
    OPERATOR, convert,
    fields::{
        DEFAULT_PAGE, FieldError, MAX_LIST, MAX_PAGE, MAX_REASON, id, list, optional_id, page_size,
        repository_name, required,
    },
    logs,
    status::{status, watch_status},
    watching,
};
use crate::{
    dispatch::watches::{Watch, Watches},
    domain::{
        decision::{Note, Running},
        ids::RepositoryId,
        policy::Policy,
        transitions::{OutOfBand, State, TABLE, Transition},
    },
    service::{self, Change, Service},
    store::model::{WorkflowFilter, WorkflowRow},
};

/// Largest page of events; [`DEFAULT_EVENTS`] is taken for 0.
const MAX_EVENTS: u32 = 1000;
const DEFAULT_EVENTS: u32 = 200;

/// Serves operators' calls about workflows.
pub(super) struct WorkflowApi {
    pub(super) service: Service,
    /// Ends streams.
    pub(super) stop: CancellationToken,
    pub(super) watches: Watches,
}

impl WorkflowApi {
    /// `None` where no repository is named.
    async fn repository_id(&self, name: &str) -> Result<Option<RepositoryId>, Status> {
        if name.is_empty() {
            return Ok(None);
        }
        let name = repository_name("repository", name)?;
        let found = self.service.repository_named(name).await;
        Ok(Some(found.map_err(|error| status(&error))?.id))
    }
}

fn states(wire: &[i32]) -> Result<Vec<State>, FieldError> {
    list("states", wire, MAX_LIST)?
        .iter()
        .map(|state| convert::domain_state("states", *state))
        .collect()
}

/// What every change of a workflow names.
fn change<'a>(
    workflow_id: &str,
    expected_version: u64,
    reason: &'a str,
) -> Result<service::Request<'a>, Status> {
    Ok(service::Request {
        workflow: id("workflow_id", workflow_id)?,
        expected_version: (expected_version != 0).then_some(expected_version),
        reason: required("reason", reason, MAX_REASON)?,
        actor: OPERATOR,
    })
}

/// [`change`] of a request that has its three fields under their names.
macro_rules! asked {
    ($request:ident) => {
        change(
            &$request.workflow_id,
            $request.expected_version,
            &$request.reason,
        )
    };
}

/// What every change of a workflow answers: whether anything changed, and the workflow afterwards.
fn answered(
    change: Result<Change<WorkflowRow>, service::Error>,
) -> Result<(bool, Option<v1::Workflow>), Status> {
    let change = change.map_err(|error| status(&error))?;
    let is_changed = change.is_changed();
    Ok((is_changed, Some(convert::workflow(&change.into_inner()))))
}

#[tonic::async_trait]
impl WorkflowService for WorkflowApi {
    async fn list_workflows(
        &self,
        request: Request<ListWorkflowsRequest>,
    ) -> Result<Response<ListWorkflowsResponse>, Status> {
        let request = request.into_inner();
        let limit = page_size(request.page_size, DEFAULT_PAGE, MAX_PAGE)?;
        let after = optional_id("page_token", &request.page_token)?;
        let filter = WorkflowFilter {
            repository: self.repository_id(&request.repository).await?,
            states: states(&request.states)?,
            kind: convert::optional_kind("kind", request.kind)?,
        };
        let rows = self
            .service
            .list_workflows(&filter, after, limit)
            .await
            .map_err(|error| status(&error))?;
        let is_full = rows.len() == limit as usize;
        let next_page_token = rows
            .last()
            .filter(|_| is_full)
            .map(|row| row.workflow.id.to_string())
            .unwrap_or_default();
        Ok(Response::new(ListWorkflowsResponse {
            workflows: rows.iter().map(convert::workflow).collect(),
            next_page_token,
        }))
    }

    async fn get_workflow(
        &self,
        request: Request<GetWorkflowRequest>,
    ) -> Result<Response<GetWorkflowResponse>, Status> {
        let id = id("workflow_id", &request.into_inner().workflow_id)?;
        let view = self
            .service
            .view_workflow(id)
            .await
            .map_err(|error| status(&error))?;
        Ok(Response::new(GetWorkflowResponse {
            workflow: Some(convert::workflow(&view.row)),
            attempts: view.attempts.iter().map(convert::attempt).collect(),
            events: view.events.iter().map(convert::event).collect(),
            waiting: view.waiting.map(convert::waiting),
        }))
    }

    async fn pause_workflow(
        &self,
        request: Request<PauseWorkflowRequest>,
    ) -> Result<Response<PauseWorkflowResponse>, Status> {
        let request = request.into_inner();
        let asked = asked!(request)?;
        let running = if request.cancel_running {
            Running::Cancelled
        } else {
            Running::Left
        };
        let (changed, workflow) = answered(self.service.pause(asked, running).await)?;
        Ok(Response::new(PauseWorkflowResponse { changed, workflow }))
    }

    async fn resume_workflow(
        &self,
        request: Request<ResumeWorkflowRequest>,
    ) -> Result<Response<ResumeWorkflowResponse>, Status> {
        let request = request.into_inner();
        let asked = asked!(request)?;
        let (changed, workflow) = answered(self.service.resume(asked).await)?;
        Ok(Response::new(ResumeWorkflowResponse { changed, workflow }))
    }

    async fn unstick_workflow(
        &self,
        request: Request<UnstickWorkflowRequest>,
    ) -> Result<Response<UnstickWorkflowResponse>, Status> {
        let request = request.into_inner();
        let asked = asked!(request)?;
        let (changed, workflow) = answered(self.service.unstick(asked).await)?;
        Ok(Response::new(UnstickWorkflowResponse { changed, workflow }))
    }

    async fn abandon_workflow(
        &self,
        request: Request<AbandonWorkflowRequest>,
    ) -> Result<Response<AbandonWorkflowResponse>, Status> {
        let request = request.into_inner();
        let asked = asked!(request)?;
        let (changed, workflow) = answered(self.service.abandon(asked).await)?;
        Ok(Response::new(AbandonWorkflowResponse { changed, workflow }))
    }

    async fn resubmit_workflow(
        &self,
        request: Request<ResubmitWorkflowRequest>,
    ) -> Result<Response<ResubmitWorkflowResponse>, Status> {
        let request = request.into_inner();
        let asked = asked!(request)?;
        let (changed, workflow) = answered(self.service.resubmit(asked).await)?;
        Ok(Response::new(ResubmitWorkflowResponse {
            changed,
            workflow,
        }))
    }

    async fn set_ci_flake_retries(
        &self,
        request: Request<SetCiFlakeRetriesRequest>,
    ) -> Result<Response<SetCiFlakeRetriesResponse>, Status> {
        let request = request.into_inner();
        let asked = asked!(request)?;
        let (changed, workflow) = answered(
            self.service
                .set_ci_flake_retries(asked, request.remaining)
                .await,
        )?;
        Ok(Response::new(SetCiFlakeRetriesResponse {
            changed,
            workflow,
        }))
    }

    async fn set_priority(
        &self,
        request: Request<SetPriorityRequest>,
    ) -> Result<Response<SetPriorityResponse>, Status> {
        let request = request.into_inner();
        let asked = asked!(request)?;
        let (changed, workflow) =
            answered(self.service.set_priority(asked, request.priority).await)?;
        Ok(Response::new(SetPriorityResponse { changed, workflow }))
    }

    type WatchWorkflowsStream = watching::WorkflowsStream;

    async fn watch_workflows(
        &self,
        request: Request<WatchWorkflowsRequest>,
    ) -> Result<Response<Self::WatchWorkflowsStream>, Status> {
        let request = request.into_inner();
        let filter = WorkflowFilter {
            repository: self.repository_id(&request.repository).await?,
            states: states(&request.states)?,
            kind: convert::optional_kind("kind", request.kind)?,
        };
        let after = watching::point("resume_token", &request.resume_token)?;
        let told = self
            .watches
            .watch(Watch { filter, after })
            .map_err(|error| watch_status(&error))?;
        Ok(Response::new(watching::stream(told)))
    }

    async fn list_attempts(
        &self,
        request: Request<ListAttemptsRequest>,
    ) -> Result<Response<ListAttemptsResponse>, Status> {
        let request = request.into_inner();
        let limit = page_size(request.page_size, DEFAULT_PAGE, MAX_PAGE)?;
        let before = optional_id("page_token", &request.page_token)?;
        let filter = watching::attempt_filter(&request)?;
        let page = self
            .service
            .list_attempts(&filter, before, limit)
            .await
            .map_err(|error| status(&error))?;
        Ok(Response::new(ListAttemptsResponse {
            attempts: page.rows.iter().map(convert::attempt).collect(),
            next_page_token: page.next.map(|id| id.to_string()).unwrap_or_default(),
        }))
    }

    async fn cancel_attempt(
        &self,
        request: Request<CancelAttemptRequest>,
    ) -> Result<Response<CancelAttemptResponse>, Status> {
        let request = request.into_inner();
        let change = self
            .service
            .cancel(
                id("attempt_id", &request.attempt_id)?,
                required("reason", &request.reason, MAX_REASON)?,
                OPERATOR,
            )
            .await
            .map_err(|error| status(&error))?;
        Ok(Response::new(CancelAttemptResponse {
            changed: change.is_changed(),
            attempt: Some(convert::attempt(&change.into_inner())),
        }))
    }

    async fn list_events(
        &self,
        request: Request<ListEventsRequest>,
    ) -> Result<Response<ListEventsResponse>, Status> {
        let request = request.into_inner();
        let workflow = optional_id("workflow_id", &request.workflow_id)?;
        let limit = page_size(request.page_size, DEFAULT_EVENTS, MAX_EVENTS)?;
        let events = self
            .service
            .list_events(workflow, request.after_sequence, limit)
            .await
            .map_err(|error| status(&error))?;
        Ok(Response::new(ListEventsResponse {
            events: events.iter().map(convert::event).collect(),
        }))
    }

    type TailLogStream = logs::Parts;

    async fn tail_log(
        &self,
        request: Request<TailLogRequest>,
    ) -> Result<Response<logs::Parts>, Status> {
        let tail = logs::tail(&request.into_inner())?;
        let follower = self
            .service
            .tail_log(tail)
            .map_err(|error| status(&error))?;
        Ok(Response::new(logs::parts(follower, self.stop.clone())))
    }

    async fn describe_state_machine(
        &self,
        request: Request<DescribeStateMachineRequest>,
    ) -> Result<Response<DescribeStateMachineResponse>, Status> {
        let request = request.into_inner();
        let name = match request.repository.as_str() {
            "" => None,
            name => Some(repository_name("repository", name)?),
        };
        let policy = self
            .service
            .policy_of(name)
            .await
            .map_err(|error| status(&error))?;
        Ok(Response::new(DescribeStateMachineResponse {
            states: State::ALL.iter().copied().map(describe_state).collect(),
            transitions: TABLE
                .iter()
                .map(|row| describe_transition(row, &policy))
                .collect(),
            out_of_band_events: OutOfBand::ALL.iter().map(ToString::to_string).collect(),
            notes: Note::ALL.iter().map(ToString::to_string).collect(),
            max_attempts: policy.max_attempts(),
        }))
    }
}

fn describe_state(state: State) -> StateDescription {
    StateDescription {
        state: convert::state(state).into(),
        terminal: state.is_terminal(),
        role: state.role().map_or(0, |role| convert::role(role).into()),
    }
}

fn describe_transition(row: &Transition, policy: &Policy) -> TransitionDescription {
    TransitionDescription {
        from_state: convert::state(row.from).into(),
        event: row.event.to_string(),
        to_state: convert::state(row.to).into(),
        bound: row.bound.map(|bound| bound.to_string()).unwrap_or_default(),
        limit: row.bound.map_or(0, |bound| policy.limit(bound)),
        only_kind: row.only.map_or(0, |kind| convert::kind(kind).into()),
    }
}
