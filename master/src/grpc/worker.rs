//! WorkerService: convert, one call, convert.

use std::{sync::Arc, time::Duration};

use pointsman_proto::v1::{
    CompleteRequest, CompleteResponse, Directive, HeartbeatsRequest, HeartbeatsResponse,
    LeaseRequest, LeaseResponse, RegisterRequest, RegisterResponse, ReleaseRequest,
    ReleaseResponse, UploadLogRequest, UploadLogResponse, directive::Action,
    worker_service_server::WorkerService,
};
use tokio::{sync::mpsc, task::JoinError};
use tokio_stream::{StreamExt, wrappers::ReceiverStream};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tonic::{Request, Response, Status, Streaming};

use super::{
    fields::{FieldError, MAX_REASON, id, optional, within},
    logs,
    status::{status, wait_status},
    worker_convert::{beats, completion, directives, domain_key, lease, registration},
};
use crate::{
    dispatch::{
        beats::{Answer, Beat, Beats},
        claims::Claims,
    },
    service::{Claim, Completed, Service},
};

/// Longest that a Lease call waits.
const MAX_LEASE_WAIT: Duration = Duration::from_secs(30);
/// Most leases that one call asks for.
const MAX_LEASES: u32 = 100;
/// Answers that wait for a stream to read them. A stream that lets them pile up misses acknowledgements,
/// never other streams'.
const ANSWERS: usize = 16;

/// Serves workers.
pub(super) struct WorkerApi {
    pub(super) service: Service,
    pub(super) claims: Arc<Claims>,
    pub(super) beats: Arc<Beats>,
    pub(super) beat_interval: Duration,
    /// Owns what must go on when a client hangs up.
    pub(super) tasks: TaskTracker,
    pub(super) stop: CancellationToken,
}

type Answers = ReceiverStream<Result<HeartbeatsResponse, Status>>;

#[tonic::async_trait]
impl WorkerService for WorkerApi {
    async fn register(
        &self,
        request: Request<RegisterRequest>,
    ) -> Result<Response<RegisterResponse>, Status> {
        let registration = registration(request.into_inner())?;
        self.service
            .register(registration)
            .await
            .map_err(|error| status(&error))?;
        Ok(Response::new(RegisterResponse {
            beat_interval: prost_types::Duration::try_from(self.beat_interval).ok(),
            max_lease_wait: prost_types::Duration::try_from(MAX_LEASE_WAIT).ok(),
        }))
    }

    async fn lease(
        &self,
        request: Request<LeaseRequest>,
    ) -> Result<Response<LeaseResponse>, Status> {
        let request = request.into_inner();
        let claim = Claim {
            worker: id("worker_id", &request.worker_id)?,
            instance: id("instance_id", &request.instance_id)?,
            request: id("request_id", &request.request_id)?,
            max: within("max", request.max, 1, MAX_LEASES)?,
        };
        let wait = match request.wait {
            None => Duration::ZERO,
            Some(wait) => Duration::try_from(wait)
                .map_err(|_| FieldError::new("wait", "is negative"))?
                .min(MAX_LEASE_WAIT),
        };
        let grants = self
            .claims
            .lease(claim, wait)
            .await
            .map_err(|error| wait_status(&error))?;
        Ok(Response::new(LeaseResponse {
            leases: grants.into_iter().map(lease).collect(),
        }))
    }

    type HeartbeatsStream = Answers;

    async fn heartbeats(
        &self,
        request: Request<Streaming<HeartbeatsRequest>>,
    ) -> Result<Response<Answers>, Status> {
        let (answers, heard) = mpsc::channel(ANSWERS);
        let (responses, stream) = mpsc::channel(ANSWERS);
        let conversation = Conversation {
            beats: Arc::clone(&self.beats),
            answers,
            responses,
            stop: self.stop.clone(),
        };
        self.tasks
            .spawn(conversation.hold(request.into_inner(), heard));
        Ok(Response::new(ReceiverStream::new(stream)))
    }

    async fn complete(
        &self,
        request: Request<CompleteRequest>,
    ) -> Result<Response<CompleteResponse>, Status> {
        let request = request.into_inner();
        let worker = id("worker_id", &request.worker_id)?;
        let key = domain_key("lease", request.lease)?;
        let outcome = completion(request.outcome)?;
        let service = self.service.clone();
        let completed = self
            .finish(async move { service.complete(worker, key, outcome).await })
            .await?;
        Ok(Response::new(CompleteResponse {
            already_accepted: completed == Completed::Before,
        }))
    }

    async fn release(
        &self,
        request: Request<ReleaseRequest>,
    ) -> Result<Response<ReleaseResponse>, Status> {
        let request = request.into_inner();
        let worker = id("worker_id", &request.worker_id)?;
        let key = domain_key("lease", request.lease)?;
        let reason = optional("reason", &request.reason, MAX_REASON)?.to_owned();
        let service = self.service.clone();
        self.finish(async move { service.release(worker, key, &reason).await })
            .await?;
        Ok(Response::new(ReleaseResponse {}))
    }

    async fn upload_log(
        &self,
        request: Request<Streaming<UploadLogRequest>>,
    ) -> Result<Response<UploadLogResponse>, Status> {
        // A put that nobody waits for would go on beside the next one, and could undo it.
        let (service, stop) = (self.service.clone(), self.stop.clone());
        let receiving = logs::receive(service, request.into_inner(), stop);
        let uploaded = ended(self.tasks.spawn(receiving).await)??;
        Ok(Response::new(uploaded))
    }
}

impl WorkerApi {
    /// Runs to its end even where the client hangs up.
    async fn finish<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, crate::service::Error>> + Send + 'static,
    ) -> Result<T, Status> {
        ended(self.tasks.spawn(work).await)?.map_err(|error| status(&error))
    }
}

/// What came of a task.
fn ended<T>(result: Result<T, JoinError>) -> Result<T, Status> {
    result.map_err(|error| {
        tracing::error!(error = &error as &dyn std::error::Error, "a call died");
        Status::internal("the call died; the master's log says why")
    })
}

/// One stream of beats and its answers, for as long as it lives.
struct Conversation {
    beats: Arc<Beats>,
    answers: mpsc::Sender<Answer>,
    responses: mpsc::Sender<Result<HeartbeatsResponse, Status>>,
    stop: CancellationToken,
}

impl Conversation {
    async fn hold(
        self,
        mut stream: Streaming<HeartbeatsRequest>,
        mut heard: mpsc::Receiver<Answer>,
    ) {
        loop {
            tokio::select! {
                () = self.stop.cancelled() => {
                    let farewell = HeartbeatsResponse {
                        acked_sequence: 0,
                        directives: vec![instruction(Action::Draining, "the master shuts down")],
                    };
                    self.say(Ok(farewell));
                    return;
                }
                message = stream.next() => match message {
                    Some(Ok(request)) => {
                        if let Err(invalid) = self.take(request) {
                            self.say(Err(invalid));
                            return;
                        }
                    }
                    // Broken or ended: silence, which means nothing by itself.
                    Some(Err(_)) | None => return,
                },
                Some(answer) = heard.recv() => self.say(Ok(response(answer))),
            }
        }
    }

    /// A client that does not read misses answers, and hears the next one.
    fn say(&self, response: Result<HeartbeatsResponse, Status>) {
        if self.responses.try_send(response).is_err() {
            tracing::debug!("a stream of beats did not take an answer");
        }
    }

    fn take(&self, request: HeartbeatsRequest) -> Result<(), Status> {
        self.beats.offer(Beat {
            worker: id("worker_id", &request.worker_id)?,
            instance: id("instance_id", &request.instance_id)?,
            sequence: request.sequence,
            sessions: beats(request.sessions)?,
            answers: self.answers.clone(),
        });
        Ok(())
    }
}

fn response(answer: Answer) -> HeartbeatsResponse {
    match answer {
        Answer::Acknowledged { sequence, heard } => HeartbeatsResponse {
            acked_sequence: sequence,
            directives: directives(heard),
        },
        Answer::Unknown => HeartbeatsResponse {
            acked_sequence: 0,
            directives: vec![instruction(
                Action::Register,
                "this master does not know this process",
            )],
        },
    }
}

fn instruction(action: Action, reason: &str) -> Directive {
    Directive {
        action: action.into(),
        reason: reason.to_owned(),
        ..Directive::default()
    }
}
