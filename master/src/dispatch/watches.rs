//! Those who watch workflows: a bounded number, each at its own pace.
//!
//! Level-triggered: a watcher is told the current state of whatever was written since it was told last, so
//! that a slow one skips what lay between and holds up nobody. Bells only hasten; looking is the truth. A
//! watcher that finds nothing new hears so, that it can tell silence from death.

use std::{sync::Arc, time::Duration};

use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch},
    time::Instant,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    service::{Error, Service},
    store::model::{ChangePoint, WorkflowFilter, WorkflowRow},
};

/// The most watchers at once. Each costs an indexed read a second while nothing happens, and ten while much
/// does: a hundred are a tenth of what one core reads.
pub const MAX_WATCHERS: usize = 100;

/// Most workflows that one message carries: some hundred kilobytes with the longest titles.
const BATCH: u32 = 100;

/// How long a watcher may leave a message unread before it is let go, so that one that forgot its stream does
/// not keep another out.
const PATIENCE: Duration = Duration::from_secs(60);

/// How often a watcher is looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pace {
    /// Between looks while nobody rings.
    pub look: Duration,
    /// At least so long between two looks, however often the bell rings.
    pub rest: Duration,
    /// Longest silence.
    pub keepalive: Duration,
}

impl Default for Pace {
    /// A second is how late another master's writes may be seen; a tenth of one nobody notices; ten seconds
    /// of silence are a third of what people wait before they look for a cause.
    fn default() -> Self {
        Self {
            look: Duration::from_secs(1),
            rest: Duration::from_millis(100),
            keepalive: Duration::from_secs(10),
        }
    }
}

/// What a watcher is told.
#[derive(Debug)]
pub struct Told {
    /// In the order of their newest writes; none where the master only says that it is there.
    pub rows: Vec<WorkflowRow>,
    /// Go on after it.
    pub point: ChangePoint,
    /// The watcher knows all that there was when this was read.
    pub is_current: bool,
}

/// Why a watch ends, or does not begin.
#[derive(Debug, thiserror::Error)]
pub enum WatchError {
    #[error("{MAX_WATCHERS} streams watch already")]
    TooManyWatchers,
    /// Another master, or this one again, goes on from where this one ended.
    #[error("this master is shutting down: watch again from the newest resume_token")]
    Draining,
    #[error("the stream was not read for {} s: watch again from the newest resume_token", PATIENCE.as_secs())]
    NotRead,
    #[error(transparent)]
    Service(#[from] Error),
}

/// Where and what to watch.
#[derive(Debug, Clone)]
pub struct Watch {
    /// Its states narrow what a watch from the start begins with. Later changes are told whatever the state,
    /// so that a watcher sees a workflow leave the states that it asked for.
    pub filter: WorkflowFilter,
    /// `None`: from the start.
    pub after: Option<ChangePoint>,
}

/// The watchers of one master.
pub struct Watches {
    service: Service,
    pace: Pace,
    slots: Arc<Semaphore>,
    tasks: TaskTracker,
    stop: CancellationToken,
}

impl Watches {
    /// `tasks` owns the watching; `stop` ends it.
    pub fn new(service: Service, pace: Pace, tasks: TaskTracker, stop: CancellationToken) -> Self {
        Self {
            service,
            pace,
            slots: Arc::new(Semaphore::new(MAX_WATCHERS)),
            tasks,
            stop,
        }
    }

    /// Begins to watch. The stream's last item, where it is an error, says why it ended.
    ///
    /// # Errors
    /// [`WatchError::TooManyWatchers`], and [`WatchError::Draining`].
    pub fn watch(
        &self,
        watch: Watch,
    ) -> Result<mpsc::Receiver<Result<Told, WatchError>>, WatchError> {
        if self.stop.is_cancelled() {
            return Err(WatchError::Draining);
        }
        let slot = Arc::clone(&self.slots)
            .try_acquire_owned()
            .map_err(|_| WatchError::TooManyWatchers)?;
        // One message ahead of the reader: what is told is read when there is room to tell it. The other
        // place is kept for the farewell, which an unread stream needs most.
        let (told, stream) = mpsc::channel(2);
        let farewell = told.clone().try_reserve_owned();
        let farewell = farewell.expect("a new channel has room");
        let watcher = Watcher {
            bell: self.service.wake().watchers.subscribe(),
            service: self.service.clone(),
            pace: self.pace,
            stop: self.stop.clone(),
            told,
            farewell: Some(farewell),
            _slot: slot,
        };
        self.tasks.spawn(watcher.run(watch));
        Ok(stream)
    }
}

type Seat = mpsc::OwnedPermit<Result<Told, WatchError>>;

struct Watcher {
    service: Service,
    pace: Pace,
    stop: CancellationToken,
    bell: watch::Receiver<()>,
    told: mpsc::Sender<Result<Told, WatchError>>,
    /// Taken at the end.
    farewell: Option<Seat>,
    _slot: OwnedSemaphorePermit,
}

impl Watcher {
    async fn run(mut self, watch: Watch) {
        let stop = self.stop.clone();
        let ended = tokio::select! {
            ended = self.follow(watch) => ended,
            () = stop.cancelled() => Err(WatchError::Draining),
        };
        if let Err(error) = ended
            && let Some(farewell) = self.farewell.take()
        {
            farewell.send(Err(error));
        }
    }

    /// Ends where the watcher went away.
    async fn follow(&mut self, watch: Watch) -> Result<(), WatchError> {
        let mut point = match watch.after {
            Some(after) => after,
            None => match self.begin(&watch.filter).await? {
                Some(point) => point,
                None => return Ok(()),
            },
        };
        let filter = WorkflowFilter {
            states: Vec::new(),
            ..watch.filter
        };
        let mut heard_at: Option<Instant> = None;
        loop {
            // Before the look: what is written during it rings again.
            self.bell.mark_unchanged();
            let Some(seat) = self.seat().await? else {
                return Ok(());
            };
            let changes = self
                .service
                .changed_workflows(&filter, point, BATCH)
                .await?;
            point = changes.point;
            let is_silent = heard_at.is_some_and(|at| at.elapsed() < self.pace.keepalive);
            if !changes.rows.is_empty() || !is_silent {
                seat.send(Ok(Told {
                    rows: changes.rows,
                    point,
                    is_current: changes.is_all,
                }));
                heard_at = Some(Instant::now());
            } else {
                drop(seat);
            }
            if changes.is_all && !self.rest().await {
                return Ok(());
            }
        }
    }

    /// Tells what there is in the states that were asked for. `None`: the watcher went away.
    async fn begin(&self, filter: &WorkflowFilter) -> Result<Option<ChangePoint>, WatchError> {
        if filter.states.is_empty() {
            return Ok(Some(ChangePoint::default()));
        }
        let mut point = ChangePoint::default();
        loop {
            let Some(seat) = self.seat().await? else {
                return Ok(None);
            };
            let changes = self.service.changed_workflows(filter, point, BATCH).await?;
            point = changes.point;
            if !changes.rows.is_empty() {
                seat.send(Ok(Told {
                    rows: changes.rows,
                    point,
                    is_current: false,
                }));
            }
            if changes.is_all {
                return Ok(Some(point));
            }
        }
    }

    /// Room for one message. `None`: the watcher went away.
    async fn seat(&self) -> Result<Option<Seat>, WatchError> {
        match tokio::time::timeout(PATIENCE, self.told.clone().reserve_owned()).await {
            Ok(Ok(seat)) => Ok(Some(seat)),
            Ok(Err(_)) => Ok(None),
            Err(_) => Err(WatchError::NotRead),
        }
    }

    /// Waits for the bell or for the next look. False: the watcher went away.
    async fn rest(&mut self) -> bool {
        let Self {
            bell, told, pace, ..
        } = self;
        let woken = async {
            tokio::time::sleep(pace.rest).await;
            tokio::select! {
                rung = bell.changed() => {
                    if rung.is_err() {
                        // Nobody will ring: the look alone counts.
                        tokio::time::sleep(pace.look).await;
                    }
                }
                () = tokio::time::sleep(pace.look) => {}
            }
        };
        tokio::select! {
            () = woken => true,
            () = told.closed() => false,
        }
    }
}
