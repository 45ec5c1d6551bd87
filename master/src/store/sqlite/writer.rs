//! The one task that owns the connection that writes.
//!
//! Transactions take turns, in the order in which they were asked for. Whoever has the turn has the
//! connection to itself. When it commits, its savepoint is released and the next one that waits has its
//! turn in the same transaction of SQLite; when nobody waits, or the group is large or old enough, all of
//! them are made durable by one COMMIT, and only then each hears that it is. A lone one waits for nobody.
//! When the COMMIT fails, or SQLite rolls back by itself (the disk is full), every member of the group
//! fails, and nothing of any of them is there.
//!
//! So a transaction may read what is not durable yet. One that commits fails where that fails. One that is
//! dropped can't fail any more: the [`Ledger`] notes it, reads wait until the group has ended, and whoever
//! tells others what it has read asks [`settle`](crate::store::Store::settle) first.

use std::{
    sync::{
        Arc, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use sqlx::{ConnectOptions, Connection, SqliteConnection, sqlite::SqliteConnectOptions};
use tokio::{
    sync::{MappedMutexGuard, Mutex, MutexGuard, mpsc, oneshot, watch},
    time::timeout,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{
    deadline::Deadline,
    error::{During, Failure, unavailable},
    sql,
};
use crate::store::{Error, Mark, Outage};

/// Most transactions that one COMMIT makes durable. More gain little: the fsync is shared well enough.
pub(super) const GROUP_MEMBERS: usize = 64;
/// Most calls that wait for their turn in the queue; the rest waits to get into it, in order too.
const QUEUE: usize = 1024;

/// How long things may take.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    /// One operation's statements. Reads and writes are by index and take milliseconds.
    pub(super) statement: Duration,
    /// One transaction, from its turn to its end. None waits for anything but the database. Longer than a
    /// statement, and shorter than any time-to-live, so that one that hangs costs nobody a lease.
    pub(super) turn: Duration,
    /// The wait for a turn or for a COMMIT. Longer than a turn: one that hangs fails nobody else.
    pub(super) wait: Duration,
    /// A group takes in members for so long. About what its fsync takes: nobody waits much longer for
    /// company than for the disk.
    pub(super) group: Duration,
}

impl Limits {
    pub(super) const DEFAULT: Self = Self {
        statement: Duration::from_secs(5),
        turn: Duration::from_secs(10),
        wait: Duration::from_secs(15),
        group: Duration::from_millis(5),
    };
}

/// How to get a turn.
pub(super) struct Writer {
    queue: mpsc::Sender<Request>,
    ledger: Arc<Ledger>,
    condition: Arc<Condition>,
    limits: Limits,
    stop: CancellationToken,
    task: TaskTracker,
}

type Request = oneshot::Sender<Result<Turn, Error>>;
/// Tells a member how its group ended.
type Member = oneshot::Sender<Result<(), Error>>;

impl Writer {
    /// Starts the task. The connection is opened when it is needed, and again when it can't be trusted.
    pub(super) fn start(options: SqliteConnectOptions, limits: Limits) -> Self {
        let (queue, requests) = mpsc::channel(QUEUE);
        let ledger = Arc::new(Ledger::default());
        let condition = Arc::new(Condition::default());
        let stop = CancellationToken::new();
        let owner = Owner {
            options,
            limits,
            requests,
            ledger: Arc::clone(&ledger),
            stop: stop.clone(),
            live: None,
            condition: Arc::clone(&condition),
        };
        let task = TaskTracker::new();
        task.spawn(owner.run());
        task.close();
        Self {
            queue,
            ledger,
            condition,
            limits,
            stop,
            task,
        }
    }

    /// Waits for the turn of a new transaction.
    pub(super) async fn begin(&self) -> Result<Turn, Error> {
        const OPERATION: &str = "begin a transaction";
        let turn = async {
            let (request, turn) = oneshot::channel();
            let queued = self.queue.send(request).await.is_ok();
            if queued { turn.await.ok() } else { None }
        };
        match timeout(self.limits.wait, turn).await {
            Ok(Some(turn)) => turn,
            Ok(None) => Err(unavailable(OPERATION, "the database was closed")),
            Err(_) => Err(unavailable(
                OPERATION,
                format!("no turn came within {:?}", self.limits.wait),
            )),
        }
    }

    /// See [`Store::mark`](crate::store::Store::mark).
    pub(super) fn mark(&self) -> Mark {
        self.ledger.mark()
    }

    /// See [`Store::settle`](crate::store::Store::settle).
    pub(super) async fn settle(&self, since: Mark) -> Result<(), Error> {
        if self.ledger.settle(since, self.limits).await {
            Ok(())
        } else {
            Err(Error::Unavailable {
                operation: "wait until what was read is durable",
                outage: self.condition.present().unwrap_or(Outage::Other),
                source: "a transaction that had written it failed".into(),
            })
        }
    }

    /// Waits until readers see what dropped transactions have read, or see that it never came to be.
    pub(super) async fn settle_reads(&self) {
        self.ledger.settle(Mark::default(), self.limits).await;
    }

    /// Whether writes work, as far as is known.
    pub(super) fn condition(&self) -> &Condition {
        &self.condition
    }

    /// Lets the present group end, and refuses everything after it.
    pub(super) async fn close(&self) {
        self.stop.cancel();
        self.task.wait().await;
    }
}

/// A transaction that has the connection. Dropped without [`commit`](Turn::commit), what it did is undone.
pub(super) struct Turn {
    slot: Arc<Slot>,
    limits: Limits,
    condition: Arc<Condition>,
    /// Dropped unsent: roll back.
    end: Option<oneshot::Sender<Member>>,
    /// The group, where earlier members of it have written what this one may read.
    reads_of: Option<(u64, Arc<Ledger>)>,
}

impl Turn {
    /// The connection, for one operation.
    ///
    /// # Errors
    /// Where the turn was ended because it took too long, or the database has rolled it back by itself:
    /// a statement would then be a transaction of its own.
    pub(super) async fn connection(
        &mut self,
    ) -> Result<MappedMutexGuard<'_, SqliteConnection>, Error> {
        let live = self.slot.0.lock().await;
        if live.as_ref().is_some_and(Live::is_rolled_back) {
            return Err(unavailable(IN_TURN, ROLLED_BACK));
        }
        let live = MutexGuard::try_map(live, Option::as_mut)
            .map_err(|_| unavailable(IN_TURN, overdue(self.limits)))?;
        live.deadline.start(self.limits.statement);
        Ok(MappedMutexGuard::map(live, |live| &mut live.connection))
    }

    /// Passes a result of an operation on; remembers that writes fail where it says so.
    pub(super) fn noted<T>(&self, result: Result<T, Error>) -> Result<T, Error> {
        result.inspect_err(|error| self.condition.note(error))
    }

    /// Ends the turn, and waits until what it did is durable.
    pub(super) async fn commit(mut self, operation: &'static str) -> Result<(), Error> {
        let (member, ended) = oneshot::channel();
        let is_in_time = self.end.take().is_some_and(|end| end.send(member).is_ok());
        if !is_in_time {
            return Err(unavailable(operation, overdue(self.limits)));
        }
        match timeout(self.limits.wait, ended).await {
            Ok(Ok(result)) => result,
            Ok(Err(_)) => Err(unavailable(operation, "the database was closed")),
            Err(_) => Err(unavailable(
                operation,
                format!("no answer came within {:?}", self.limits.wait),
            )),
        }
    }
}

impl Drop for Turn {
    /// Before the task hears of it: who asks the ledger next must find it there.
    fn drop(&mut self) {
        if self.end.is_some()
            && let Some((group, ledger)) = &self.reads_of
        {
            ledger.note(*group);
        }
    }
}

const IN_TURN: &str = "go on with a transaction";
const ROLLED_BACK: &str = "the database has rolled it back after an earlier error";

fn overdue(limits: Limits) -> String {
    format!(
        "it was rolled back: it had not ended after {:?}",
        limits.turn
    )
}

/// Where the connection lies while somebody has the turn. Empty once the turn is over.
struct Slot(Mutex<Option<Live>>);

/// An open connection.
struct Live {
    connection: SqliteConnection,
    deadline: Deadline,
    /// Set when a transaction was rolled back, by whomever.
    rolled_back: Arc<AtomicBool>,
}

impl Live {
    async fn open(options: &SqliteConnectOptions) -> Result<Self, sqlx::Error> {
        let mut connection = options.connect().await?;
        let deadline = Deadline::install(&mut connection).await?;
        let rolled_back = Arc::new(AtomicBool::new(false));
        let noted = Arc::clone(&rolled_back);
        connection
            .lock_handle()
            .await?
            .set_rollback_hook(move || noted.store(true, Ordering::SeqCst));
        Ok(Self {
            connection,
            deadline,
            rolled_back,
        })
    }

    async fn execute(&mut self, statement: &'static str, limits: Limits) -> sqlx::Result<()> {
        self.deadline.start(limits.statement);
        sqlx::query(statement)
            .execute(&mut self.connection)
            .await
            .map(drop)
    }

    fn is_rolled_back(&self) -> bool {
        self.rolled_back.load(Ordering::SeqCst)
    }
}

/// The task's own.
struct Owner {
    options: SqliteConnectOptions,
    limits: Limits,
    requests: mpsc::Receiver<Request>,
    ledger: Arc<Ledger>,
    stop: CancellationToken,
    live: Option<Live>,
    condition: Arc<Condition>,
}

impl Owner {
    async fn run(mut self) {
        loop {
            let first = tokio::select! {
                biased;
                () = self.stop.cancelled() => break,
                first = self.requests.recv() => first,
            };
            match first {
                Some(first) => self.group(first).await,
                None => break,
            }
        }
        // Those who still wait hear that their request is gone.
        self.requests.close();
        if let Some(live) = self.live.take()
            && let Err(error) = live.connection.close().await
        {
            tracing::warn!(%error, "the database could not be closed");
        }
    }

    /// One transaction of SQLite, for all who want it while it is open.
    async fn group(&mut self, first: Request) {
        let group = self.ledger.next_group();
        let since = Instant::now();
        let mut members: Vec<Member> = Vec::new();
        let mut next = Some(first);
        let mut result = Ok(());
        while let Some(request) = next.take() {
            result = self.turn(request, group, &mut members).await;
            if result.is_ok()
                && members.len() < GROUP_MEMBERS
                && since.elapsed() < self.limits.group
            {
                next = self.requests.try_recv().ok();
            }
        }
        if result.is_ok() && !members.is_empty() {
            result = self.execute("commit a transaction", sql::COMMIT).await;
        }
        if let Err(failure) = &result {
            // A file that was opened for reading alone, or lies on a disk that failed, is opened again.
            if matches!(failure.outage(), Some(Outage::ReadOnly | Outage::Io)) {
                self.live = None;
            }
            self.recover().await;
        }
        self.ledger
            .end(group, result.is_err() && !members.is_empty());
        if let Err(failure) = &result {
            self.condition.note(&failure.to_error());
        }
        for member in members {
            let result = result.as_ref().map_err(Failure::to_error).copied();
            // Who went away does not hear it.
            drop(member.send(result));
        }
    }

    /// One member's turn. An error is the group's end.
    async fn turn(
        &mut self,
        request: Request,
        group: u64,
        members: &mut Vec<Member>,
    ) -> Result<(), Failure> {
        if request.is_closed() {
            return Ok(());
        }
        let joins = !members.is_empty();
        if let Err(failure) = self.start(joins).await {
            drop(request.send(Err(failure.to_error())));
            return Err(failure);
        }
        let slot = Arc::new(Slot(Mutex::new(self.live.take())));
        let (end, ended) = oneshot::channel();
        let turn = Turn {
            slot: Arc::clone(&slot),
            limits: self.limits,
            condition: Arc::clone(&self.condition),
            end: Some(end),
            reads_of: joins.then(|| (group, Arc::clone(&self.ledger))),
        };
        // Undelivered, it is dropped, and so ended.
        drop(request.send(Ok(turn)));
        let ended = timeout(self.limits.turn, ended).await;
        // A statement that still runs ends by its own deadline.
        self.live = slot.0.lock().await.take();
        if ended.is_err() {
            tracing::error!(limit = ?self.limits.turn, "a transaction did not end and was rolled back");
        }
        match ended {
            Ok(Ok(member)) => {
                members.push(member);
                self.check()?;
                if joins {
                    self.execute("end a transaction", sql::RELEASE).await?;
                }
                Ok(())
            }
            Ok(Err(_)) | Err(_) if joins => {
                self.check()?;
                self.execute("roll a transaction back", sql::ROLLBACK_TO)
                    .await?;
                self.execute("roll a transaction back", sql::RELEASE).await
            }
            // Nobody else is in it.
            Ok(Err(_)) | Err(_) => {
                self.recover().await;
                Ok(())
            }
        }
    }

    async fn start(&mut self, joins: bool) -> Result<(), Failure> {
        const OPERATION: &str = "begin a transaction";
        if joins {
            return self.execute(OPERATION, sql::SAVEPOINT).await;
        }
        if self.live.is_none() {
            let live = Live::open(&self.options).await.during(OPERATION)?;
            self.live = Some(live);
        }
        self.execute(OPERATION, sql::BEGIN).await
    }

    /// Whether the group's transaction is still open.
    fn check(&self) -> Result<(), Failure> {
        match &self.live {
            Some(live) if !live.is_rolled_back() => Ok(()),
            _ => Err(unavailable("commit a transaction", ROLLED_BACK).into()),
        }
    }

    async fn execute(
        &mut self,
        operation: &'static str,
        statement: &'static str,
    ) -> Result<(), Failure> {
        let Some(live) = &mut self.live else {
            return Err(unavailable(operation, "there is no connection").into());
        };
        let result = live.execute(statement, self.limits).await;
        Ok(result.during(operation)?)
    }

    /// Makes sure that no transaction is open, or does without the connection.
    async fn recover(&mut self) {
        let Some(live) = &mut self.live else { return };
        let result = live.execute(sql::ROLLBACK, self.limits).await;
        let is_closed = match &result {
            Ok(()) => true,
            Err(sqlx::Error::Database(error)) => {
                error.message().contains("no transaction is active")
            }
            Err(_) => false,
        };
        if is_closed {
            live.rolled_back.store(false, Ordering::SeqCst);
        } else {
            self.live = None;
        }
    }
}

/// Whether writes work. Known to fail until a write has shown that they work again.
#[derive(Debug, Default)]
pub(super) struct Condition(std::sync::Mutex<Option<Outage>>);

impl Condition {
    /// Logged once an outage, however many fail of it.
    fn note(&self, error: &Error) {
        let Error::Unavailable { outage, .. } = error else {
            return;
        };
        if outage.lasts() && self.outage().replace(*outage) != Some(*outage) {
            let error = error as &dyn std::error::Error;
            tracing::error!(error, "writes to the database fail");
        }
    }

    fn present(&self) -> Option<Outage> {
        *self.outage()
    }

    pub(super) fn is_failing(&self) -> bool {
        self.present().is_some()
    }

    /// A write that takes room has worked.
    pub(super) fn works(&self) {
        if self.outage().take().is_some() {
            tracing::info!("writes to the database work again");
        }
    }

    fn outage(&self) -> std::sync::MutexGuard<'_, Option<Outage>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Which groups have ended, and whether somebody has read in one and was dropped.
#[derive(Debug, Default)]
pub(super) struct Ledger(watch::Sender<Groups>);

/// Groups are numbered from 1.
#[derive(Debug, Default, Clone, Copy)]
struct Groups {
    ended: u64,
    /// The newest that failed.
    failed: u64,
    /// The newest in which a transaction has read after others have written, and was then dropped.
    read: u64,
}

impl Ledger {
    fn next_group(&self) -> u64 {
        self.0.borrow().ended + 1
    }

    fn note(&self, group: u64) {
        self.0
            .send_modify(|groups| groups.read = groups.read.max(group));
    }

    fn end(&self, group: u64, has_failed: bool) {
        self.0.send_modify(|groups| {
            groups.ended = group;
            if has_failed {
                groups.failed = group;
            }
        });
    }

    pub(super) fn mark(&self) -> Mark {
        Mark(self.0.borrow().ended)
    }

    /// Waits until the groups have ended in which transactions have read that were dropped before. False
    /// where one since the mark has failed.
    pub(super) async fn settle(&self, since: Mark, limits: Limits) -> bool {
        let mut groups = self.0.subscribe();
        // Those that are dropped from here on are others' to wait for: they may never cease.
        let read = groups.borrow().read;
        let settled = groups.wait_for(|groups| groups.ended >= read);
        match timeout(limits.wait, settled).await {
            Ok(Ok(groups)) => groups.failed <= since.0,
            Ok(Err(_)) | Err(_) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn who_settles_does_not_wait_for_what_is_read_after_it_asked() {
        let ledger = Ledger::default();
        ledger.note(1);
        let mut settled = Box::pin(ledger.settle(ledger.mark(), Limits::DEFAULT));
        tokio::select! {
            biased;
            _ = &mut settled => panic!("it did not wait"),
            () = std::future::ready(()) => {}
        }
        ledger.end(1, false);
        ledger.note(2);
        tokio::select! {
            biased;
            durable = &mut settled => assert!(durable),
            () = std::future::ready(()) => panic!("it waits for the next group"),
        }
    }
}
