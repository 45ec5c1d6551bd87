//! A master that gives out what a test puts in, and keeps what it was told.

use std::{
    collections::{BTreeMap, VecDeque},
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use pointsman_proto::v1::{
    self, CompleteRequest, CompleteResponse, HeartbeatsRequest, HeartbeatsResponse, LeaseRequest,
    LeaseResponse, RegisterRequest, RegisterResponse, ReleaseRequest, ReleaseResponse,
    UploadLogRequest, UploadLogResponse,
    directive::Action,
    upload_log_request::Part,
    worker_service_server::{WorkerService, WorkerServiceServer},
};
use tokio::{net::TcpListener, sync::Notify, task::JoinSet};
use tokio_stream::{Stream, StreamExt as _, wrappers::TcpListenerStream};
use tonic::{Request, Response, Status, Streaming, transport::Server};

/// Most leases that a master gives out at once.
const MAX_LEASES: u32 = 100;

/// What was said, and what is to be answered.
#[derive(Default)]
pub(crate) struct State {
    pub(crate) registers: Vec<RegisterRequest>,
    pub(crate) lease_requests: Vec<LeaseRequest>,
    pub(crate) beats: Vec<HeartbeatsRequest>,
    pub(crate) completes: Vec<CompleteRequest>,
    pub(crate) releases: Vec<ReleaseRequest>,
    /// Leases that wait for somebody.
    pub(crate) leases: VecDeque<v1::Lease>,
    /// Answers by request, so that a repeated one gets the same.
    pub(crate) answered: BTreeMap<String, Vec<v1::Lease>>,
    /// Errors for the next calls.
    pub(crate) register_errors: VecDeque<Status>,
    pub(crate) lease_errors: VecDeque<Status>,
    pub(crate) complete_errors: VecDeque<Status>,
    /// Sent with each acknowledgement for as long as beats list the lease.
    pub(crate) directives: Vec<v1::Directive>,
    /// Sent with each acknowledgement.
    pub(crate) drain: Option<v1::Directive>,
    /// Sent with the next acknowledgement, once.
    pub(crate) once: VecDeque<Action>,
    pub(crate) is_mute: bool,
    /// Leases are granted, but no answer to a first asking leaves while this is set.
    pub(crate) holds_answers: bool,
    /// What came of the logs, by attempt.
    pub(crate) logs: BTreeMap<String, Log>,
    /// Errors for the next batches of logs.
    pub(crate) log_errors: VecDeque<Status>,
    /// No batch of a log is answered while this is set.
    pub(crate) holds_logs: bool,
    /// Once a log is as long, all of it but a byte is lost, once.
    pub(crate) loses_log_at: Option<usize>,
    /// A log that is as long is full.
    pub(crate) log_limit: Option<usize>,
}

/// A log as it came.
#[derive(Debug, Clone, Default)]
pub(crate) struct Log {
    pub(crate) bytes: Vec<u8>,
    pub(crate) total_bytes: Option<u64>,
    /// How often something came that was there already.
    pub(crate) n_repeats: u32,
}

#[derive(Clone, Default)]
pub(crate) struct Shared {
    state: Arc<Mutex<State>>,
    /// Leases or what holds answers.
    changed: Arc<Notify>,
}

impl Shared {
    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }
}

/// A running master; it ends when dropped.
pub(crate) struct FakeMaster {
    pub(crate) url: String,
    shared: Shared,
    _server: JoinSet<()>,
}

impl FakeMaster {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let shared = Shared::default();
        let service = WorkerServiceServer::new(shared.clone());
        let mut server = JoinSet::new();
        server.spawn(async move {
            Server::builder()
                .add_service(service)
                .serve_with_incoming(TcpListenerStream::new(listener))
                .await
                .unwrap();
        });
        Self {
            url,
            shared,
            _server: server,
        }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.shared.lock()
    }

    pub(crate) fn give(&self, lease: v1::Lease) {
        self.lock().leases.push_back(lease);
        self.shared.changed.notify_one();
    }

    /// Lets the answers go that were held.
    pub(crate) fn let_answers_go(&self) {
        self.lock().holds_answers = false;
        self.shared.changed.notify_one();
    }
}

fn error(errors: &mut VecDeque<Status>) -> Result<(), Status> {
    errors.pop_front().map_or(Ok(()), Err)
}

fn seconds(seconds: f64) -> Option<prost_types::Duration> {
    Duration::from_secs_f64(seconds).try_into().ok()
}

impl State {
    /// Leases for this question, once there are any. Without a wait there may be none.
    fn leases_for(&mut self, request: &LeaseRequest) -> Option<Vec<v1::Lease>> {
        if let Some(leases) = self.answered.get(&request.request_id) {
            return Some(leases.clone());
        }
        let n = self.leases.len().min(request.max as usize);
        if n == 0 {
            let waits = Duration::try_from(request.wait?).ok()? > Duration::ZERO;
            return (!waits).then(Vec::new);
        }
        let leases: Vec<_> = self.leases.drain(..n).collect();
        self.answered
            .insert(request.request_id.clone(), leases.clone());
        Some(leases)
    }

    fn answer(&mut self, beat: HeartbeatsRequest) -> Option<HeartbeatsResponse> {
        let acked_sequence = beat.sequence;
        let lists = |directive: &v1::Directive| {
            beat.sessions
                .iter()
                .any(|session| session.lease == directive.lease)
        };
        let mut directives: Vec<_> = self
            .directives
            .iter()
            .filter(|d| lists(d))
            .cloned()
            .collect();
        directives.extend(self.drain.clone());
        directives.extend(self.once.drain(..).map(|action| v1::Directive {
            action: action.into(),
            ..v1::Directive::default()
        }));
        self.beats.push(beat);
        (!self.is_mute).then_some(HeartbeatsResponse {
            acked_sequence,
            directives,
        })
    }
}

#[tonic::async_trait]
impl WorkerService for Shared {
    async fn register(
        &self,
        request: Request<RegisterRequest>,
    ) -> Result<Response<RegisterResponse>, Status> {
        let mut state = self.lock();
        error(&mut state.register_errors)?;
        state.registers.push(request.into_inner());
        Ok(Response::new(RegisterResponse {
            beat_interval: seconds(0.2),
            max_lease_wait: seconds(5.0),
        }))
    }

    async fn lease(
        &self,
        request: Request<LeaseRequest>,
    ) -> Result<Response<LeaseResponse>, Status> {
        let request = request.into_inner();
        {
            let mut state = self.lock();
            state.lease_requests.push(request.clone());
            error(&mut state.lease_errors)?;
        }
        if !(1..=MAX_LEASES).contains(&request.max) {
            return Err(Status::invalid_argument("max: takes 1 to 100"));
        }
        let is_repeated = self.lock().answered.contains_key(&request.request_id);
        let leases = loop {
            if let Some(leases) = self.lock().leases_for(&request) {
                break leases;
            }
            self.changed.notified().await;
        };
        while !is_repeated && self.lock().holds_answers {
            self.changed.notified().await;
        }
        Ok(Response::new(LeaseResponse { leases }))
    }

    type HeartbeatsStream = Pin<Box<dyn Stream<Item = Result<HeartbeatsResponse, Status>> + Send>>;

    async fn heartbeats(
        &self,
        request: Request<Streaming<HeartbeatsRequest>>,
    ) -> Result<Response<Self::HeartbeatsStream>, Status> {
        let shared = self.clone();
        let answers = request.into_inner().filter_map(move |beat| match beat {
            Ok(beat) => shared.lock().answer(beat).map(Ok),
            Err(status) => Some(Err(status)),
        });
        Ok(Response::new(Box::pin(answers)))
    }

    async fn complete(
        &self,
        request: Request<CompleteRequest>,
    ) -> Result<Response<CompleteResponse>, Status> {
        let mut state = self.lock();
        error(&mut state.complete_errors)?;
        state.completes.push(request.into_inner());
        Ok(Response::new(CompleteResponse::default()))
    }

    async fn upload_log(
        &self,
        request: Request<Streaming<UploadLogRequest>>,
    ) -> Result<Response<UploadLogResponse>, Status> {
        let mut parts = request.into_inner();
        let mut attempt = String::new();
        while let Some(message) = parts.message().await? {
            while self.lock().holds_logs {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            let mut state = self.lock();
            if let Some(Part::Start(start)) = &message.part {
                attempt = start.lease.as_ref().unwrap().attempt_id.clone();
                error(&mut state.log_errors)?;
            }
            let limit = state.log_limit.unwrap_or(usize::MAX);
            let log = state.logs.entry(attempt.clone()).or_default();
            match message.part {
                Some(Part::Chunk(chunk)) => {
                    let offset = usize::try_from(chunk.offset).unwrap();
                    if offset > log.bytes.len() {
                        return Err(Status::failed_precondition("a gap"));
                    }
                    log.n_repeats += u32::from(offset < log.bytes.len());
                    let known = (log.bytes.len() - offset).min(chunk.data.len());
                    log.bytes.extend_from_slice(&chunk.data[known..]);
                    log.bytes.truncate(limit);
                }
                Some(Part::End(end)) => log.total_bytes = Some(end.total_bytes),
                Some(Part::Start(_)) | None => {}
            }
            let length = log.bytes.len();
            if state.loses_log_at.is_some_and(|at| length >= at) {
                state.loses_log_at = None;
                state
                    .logs
                    .entry(attempt.clone())
                    .or_default()
                    .bytes
                    .truncate(1);
            }
        }
        let mut state = self.lock();
        let limit = state.log_limit.unwrap_or(usize::MAX);
        let length = state.logs.entry(attempt).or_default().bytes.len();
        Ok(Response::new(UploadLogResponse {
            acknowledged_offset: length as u64,
            is_full: length >= limit,
        }))
    }

    async fn release(
        &self,
        request: Request<ReleaseRequest>,
    ) -> Result<Response<ReleaseResponse>, Status> {
        self.lock().releases.push(request.into_inner());
        Ok(Response::new(ReleaseResponse {}))
    }
}
