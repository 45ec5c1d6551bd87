//! The masters, as a worker sees them: one of several endpoints at a time.
//!
//! The only place that knows tonic, and with `convert.rs` the only one that knows the wire. A call that
//! fails for its endpoint's sake moves everybody on to the next one, also those who have connections of
//! their own; a batch of logs alone moves nobody. When to try again is the caller's business. Losing a
//! master says nothing about any lease.

mod convert;
mod logs;

use std::{
    fmt,
    future::Future,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use pointsman_proto::v1::{self, worker_service_client::WorkerServiceClient as WorkerClient};
use tokio::{
    sync::{Semaphore, mpsc},
    time::timeout,
};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{
    Code, Status, Streaming,
    transport::{Channel, Endpoint},
};
use tonic_types::StatusExt as _;
use uuid::Uuid;

use crate::{
    assignment::{Assignment, LeaseKey},
    lease::BootTime,
};

pub(crate) use logs::CHUNK_MAX;

pub(crate) use convert::{
    Beat, Directive, Drain, FailureClass, Introduction, Outcome, Phase, Status as SessionStatus,
};

/// Longest that one call may take beyond what it is asked to wait.
const CALL_DEADLINE: Duration = Duration::from_secs(15);

/// Longest that making a connection may take.
const CONNECT_DEADLINE: Duration = Duration::from_secs(5);

/// HTTP/2 pings find a half-open connection.
const KEEPALIVE: Duration = Duration::from_secs(10);

/// Longest wait that a worker asks for; the master cuts it to its own bound.
const MAX_LEASE_WAIT: Duration = Duration::from_secs(30);

/// Beats that may lie unsent in the stream. They hold everything each time, so a few are enough: a
/// stream that takes no more, though its connection had its turn before each, is broken.
const BEATS_UNSENT: usize = 4;

/// Bounds of what a master may ask for, against a worker that never or always beats.
const BEAT_INTERVAL_MIN: Duration = Duration::from_millis(100);
const BEAT_INTERVAL_MAX: Duration = Duration::from_secs(60);

/// Longest message that is taken. A lease holds the texts of its item, of which a master bounds each
/// but not their sum: the 4 MiB that are the default are too near to a full answer.
const MESSAGE_MAX: usize = 16 * 1024 * 1024;

/// Where a master listens.
#[derive(Clone)]
pub(crate) struct Address(Endpoint);

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.uri())
    }
}

impl Address {
    /// `None` where `url` is not `http://HOST:PORT`.
    pub(crate) fn parse(url: &str) -> Option<Self> {
        let endpoint = Endpoint::from_shared(url.to_owned()).ok()?;
        let uri = endpoint.uri();
        let is_usable = uri.scheme_str() == Some("http") && uri.authority().is_some();
        is_usable.then_some(Self(endpoint))
    }
}

/// Why a call had no answer that helps.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("no answer within {} s", .0.as_secs())]
    Deadline(Duration),
    #[error("master answered {code:?}: {message}")]
    Status { code: Code, message: String },
    /// The lease is over, for good.
    #[error("lease is over: {0}")]
    LeaseLost(String),
    /// Another state directory with the same worker id still beats.
    #[error("another process with this worker's id is alive: {0}")]
    AlreadyAlive(String),
    /// Asking again would be refused again.
    #[error("master refuses the request: {0}")]
    Refused(String),
    #[error("stream of beats ended")]
    StreamEnded,
}

impl From<Status> for Error {
    fn from(status: Status) -> Self {
        let message = status.message().to_owned();
        let is_lease_lost = || {
            status
                .get_details_error_info()
                .is_some_and(|info| info.reason == "LEASE_LOST")
        };
        match status.code() {
            Code::FailedPrecondition if is_lease_lost() => Self::LeaseLost(message),
            Code::AlreadyExists => Self::AlreadyAlive(message),
            Code::InvalidArgument | Code::Unimplemented => Self::Refused(message),
            code => Self::Status { code, message },
        }
    }
}

impl Error {
    /// Whether another endpoint may do better: this one could not be reached, or is in trouble.
    fn is_of_endpoint(&self) -> bool {
        match self {
            Self::Deadline(_) | Self::StreamEnded => true,
            Self::Status { code, .. } => !matches!(
                code,
                Code::FailedPrecondition
                    | Code::NotFound
                    | Code::PermissionDenied
                    | Code::Unauthenticated
                    | Code::Aborted
                    | Code::ResourceExhausted
            ),
            Self::LeaseLost(_) | Self::AlreadyAlive(_) | Self::Refused(_) => false,
        }
    }
}

/// What Register answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Limits {
    pub(crate) beat_interval: Duration,
    pub(crate) max_lease_wait: Duration,
}

/// Who asks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Caller {
    pub(crate) worker_id: Uuid,
    pub(crate) instance_id: Uuid,
}

/// Where the masters of an agent listen, and which of them is its own now: one choice for all of its
/// [`Masters`].
pub(crate) struct Endpoints {
    addresses: Vec<Address>,
    /// Generation of the choice. Grows with each move, so that many calls that fail together move once.
    choice: AtomicUsize,
}

/// Calls to whichever master is up. The connections belong to the runtime that calls.
pub(crate) struct Masters {
    caller: Caller,
    endpoints: Arc<Endpoints>,
    current: Mutex<Current>,
    /// Batches of logs that are read and sent at once.
    log_turns: Semaphore,
}

/// The connections of one choice.
struct Current {
    generation: usize,
    client: WorkerClient<Channel>,
    /// Of its own: what stands in a connection's queue must not stand before beats.
    logs: WorkerClient<Channel>,
}

/// An open stream of beats.
pub(crate) struct BeatStream {
    generation: usize,
    beats: mpsc::Sender<v1::HeartbeatsRequest>,
    answers: Streaming<v1::HeartbeatsResponse>,
}

/// One answer on the stream.
#[derive(Debug)]
pub(crate) struct Answer {
    /// Sequence of a beat that was written down.
    pub(crate) acknowledged: u64,
    pub(crate) directives: Vec<Directive>,
}

impl Endpoints {
    /// `addresses` is not empty. The first is chosen.
    pub(crate) fn new(addresses: Vec<Address>) -> Self {
        Self {
            addresses,
            choice: AtomicUsize::new(0),
        }
    }

    fn choice(&self) -> usize {
        self.choice.load(Ordering::Acquire)
    }

    /// Turns to the next endpoint, unless somebody did since `generation`.
    fn move_on(&self, generation: usize) {
        let next = generation.wrapping_add(1);
        let moved =
            self.choice
                .compare_exchange(generation, next, Ordering::AcqRel, Ordering::Acquire);
        if moved.is_ok() {
            tracing::debug!(master = ?self.address(next), "on to the next endpoint");
        }
    }

    fn address(&self, generation: usize) -> &Address {
        &self.addresses[generation % self.addresses.len()]
    }
}

impl Masters {
    /// Nothing is connected before the first call. Made, and used, in one runtime only.
    pub(crate) fn new(caller: Caller, endpoints: Arc<Endpoints>) -> Self {
        let current = Current::new(&endpoints, endpoints.choice());
        Self {
            caller,
            endpoints,
            current: Mutex::new(current),
            log_turns: Semaphore::new(logs::AT_ONCE),
        }
    }

    /// Says who this worker is.
    pub(crate) async fn register(&self, introduction: &Introduction) -> Result<Limits, Error> {
        let request = introduction.to_wire(self.caller);
        let response = self
            .call(CALL_DEADLINE, |mut client| async move {
                client.register(request).await
            })
            .await?;
        let beat_interval = convert::duration(response.beat_interval)
            .ok_or_else(|| Error::Refused("beat_interval is missing".to_owned()))?;
        let max_lease_wait = convert::duration(response.max_lease_wait).unwrap_or(MAX_LEASE_WAIT);
        Ok(Limits {
            beat_interval: beat_interval.clamp(BEAT_INTERVAL_MIN, BEAT_INTERVAL_MAX),
            max_lease_wait: max_lease_wait.min(MAX_LEASE_WAIT),
        })
    }

    /// Waits for up to `max` leases. `request_id` is new for each question, and the same when one is
    /// asked again because its answer did not come. `asked_at` must be before the first asking.
    pub(crate) async fn lease(
        &self,
        request_id: Uuid,
        asked_at: BootTime,
        max: u32,
        wait: Duration,
    ) -> Result<Vec<Result<Assignment, NotUnderstood>>, Error> {
        let request = v1::LeaseRequest {
            worker_id: self.caller.worker_id.to_string(),
            instance_id: self.caller.instance_id.to_string(),
            request_id: request_id.to_string(),
            max,
            wait: convert::to_duration(wait),
        };
        let response = self
            .call(wait + CALL_DEADLINE, |mut client| async move {
                client.lease(request).await
            })
            .await?;
        Ok(response
            .leases
            .into_iter()
            .map(|lease| convert::assignment(lease, asked_at))
            .collect())
    }

    /// Opens the stream, with its first beat.
    pub(crate) async fn beats(&self, first: Beat) -> Result<BeatStream, Error> {
        let (generation, mut client) = self.client();
        let (beats, receiver) = mpsc::channel(BEATS_UNSENT);
        let stream = async {
            beats
                .send(first.into_wire(self.caller))
                .await
                .map_err(|_| Error::StreamEnded)?;
            let call = client.heartbeats(ReceiverStream::new(receiver));
            let answers = timeout(CALL_DEADLINE, call)
                .await
                .map_err(|_| Error::Deadline(CALL_DEADLINE))??
                .into_inner();
            Ok(BeatStream {
                generation,
                beats,
                answers,
            })
        }
        .await;
        if stream.is_err() {
            self.endpoints.move_on(generation);
        }
        stream
    }

    /// Sends one more beat.
    pub(crate) fn beat(&self, stream: &BeatStream, beat: Beat) -> Result<(), Error> {
        stream
            .beats
            .try_send(beat.into_wire(self.caller))
            .map_err(|_| Error::StreamEnded)
    }

    /// Leaves the master that this stream goes to, for all that share the endpoints.
    pub(crate) fn leave(&self, stream: &BeatStream) {
        self.endpoints.move_on(stream.generation);
    }

    /// Ends a lease with its outcome.
    pub(crate) async fn complete(
        &self,
        key: &LeaseKey,
        outcome: &Outcome,
        harness_duration: Option<Duration>,
    ) -> Result<(), Error> {
        let request = v1::CompleteRequest {
            worker_id: self.caller.worker_id.to_string(),
            instance_id: self.caller.instance_id.to_string(),
            lease: Some(convert::to_key(key)),
            outcome: Some(outcome.to_wire()),
            harness_duration: harness_duration.and_then(convert::to_duration),
        };
        self.call(CALL_DEADLINE, |mut client| async move {
            client.complete(request).await
        })
        .await
        .map(drop)
    }

    /// Gives a lease back.
    pub(crate) async fn release(&self, key: &LeaseKey, reason: &str) -> Result<(), Error> {
        let request = v1::ReleaseRequest {
            worker_id: self.caller.worker_id.to_string(),
            instance_id: self.caller.instance_id.to_string(),
            lease: Some(convert::to_key(key)),
            reason: reason.to_owned(),
        };
        self.call(CALL_DEADLINE, |mut client| async move {
            client.release(request).await
        })
        .await
        .map(drop)
    }

    async fn call<F, T>(
        &self,
        deadline: Duration,
        call: impl FnOnce(WorkerClient<Channel>) -> F,
    ) -> Result<T, Error>
    where
        F: Future<Output = Result<tonic::Response<T>, Status>>,
    {
        let (generation, client) = self.client();
        let result = match timeout(deadline, call(client)).await {
            Ok(Ok(response)) => Ok(response.into_inner()),
            Ok(Err(status)) => Err(Error::from(status)),
            Err(_) => Err(Error::Deadline(deadline)),
        };
        if result.as_ref().is_err_and(Error::is_of_endpoint) {
            self.endpoints.move_on(generation);
        }
        result
    }

    fn client(&self) -> (usize, WorkerClient<Channel>) {
        let current = self.lock();
        (current.generation, current.client.clone())
    }

    /// The connections to the endpoint that is chosen now.
    fn lock(&self) -> std::sync::MutexGuard<'_, Current> {
        let mut current = self
            .current
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        let choice = self.endpoints.choice();
        if current.generation != choice {
            *current = Current::new(&self.endpoints, choice);
        }
        current
    }
}

impl Current {
    fn new(endpoints: &Endpoints, generation: usize) -> Self {
        let address = endpoints.address(generation);
        Self {
            generation,
            client: connect(address),
            logs: connect(address),
        }
    }
}

/// A lease that this worker can't make sense of.
#[derive(Debug)]
pub(crate) struct NotUnderstood {
    /// Unset where not even the key is readable.
    pub(crate) key: Option<LeaseKey>,
    pub(crate) field: &'static str,
}

impl BeatStream {
    /// The next answer.
    pub(crate) async fn answer(&mut self) -> Result<Answer, Error> {
        match self.answers.message().await? {
            Some(response) => Ok(convert::answer(response)),
            None => Err(Error::StreamEnded),
        }
    }
}

fn connect(address: &Address) -> WorkerClient<Channel> {
    let endpoint = address
        .0
        .clone()
        .connect_timeout(CONNECT_DEADLINE)
        .http2_keep_alive_interval(KEEPALIVE)
        .keep_alive_timeout(KEEPALIVE)
        .keep_alive_while_idle(true);
    WorkerClient::new(endpoint.connect_lazy()).max_decoding_message_size(MESSAGE_MAX)
}
