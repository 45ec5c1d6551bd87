//! Whose turn it is to write, who is woken by it, and how many may be at it.

use std::{
    collections::{HashMap, hash_map::Entry},
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
};

use tokio::sync::{Mutex as AsyncMutex, OwnedSemaphorePermit, Semaphore, watch};

use super::{Extent, LogStore};
use crate::domain::ids::{AttemptId, LeaseKey, WorkerId};

/// Streams of uploads that one worker may have open: far more than it needs, since each carries one batch,
/// and few against what a connection carries.
pub const MAX_UPLOADS_A_WORKER: usize = 64;

/// Followers and readers of logs in all: each holds a stream and up to two chunks.
pub const MAX_FOLLOWERS: usize = 256;

/// The logs, and who is at them in this process.
#[derive(Debug)]
pub struct Logs {
    store: LogStore,
    /// Attempts that somebody writes or reads now.
    turns: Mutex<HashMap<AttemptId, Weak<Turns>>>,
    uploads: Arc<Mutex<HashMap<WorkerId, usize>>>,
    followers: Arc<Semaphore>,
}

/// The logs of one attempt: one write at a time, and a signal after each.
#[derive(Debug)]
pub struct Turns {
    /// Held from the look at the lease until the write has returned: once the lease is seen to be over
    /// under it, no write comes any more. Holds what is kept of the log that was written last.
    pub writing: AsyncMutex<Option<(LeaseKey, Extent)>>,
    /// Changes after each write. A signal alone: readers look at the store.
    changed: watch::Sender<()>,
}

impl Turns {
    /// Says that something was written.
    pub fn wake(&self) {
        self.changed.send_replace(());
    }

    /// Signals from now on.
    pub fn signals(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }
}

/// One stream of a worker's uploads.
#[derive(Debug)]
pub struct UploadPermit {
    worker: WorkerId,
    uploads: Arc<Mutex<HashMap<WorkerId, usize>>>,
}

/// One reader.
#[derive(Debug)]
pub struct FollowerPermit(
    #[expect(dead_code, reason = "given back by its end")] OwnedSemaphorePermit,
);

impl Logs {
    pub fn new(store: LogStore) -> Self {
        Self {
            store,
            turns: Mutex::default(),
            uploads: Arc::default(),
            followers: Arc::new(Semaphore::new(MAX_FOLLOWERS)),
        }
    }

    pub fn store(&self) -> &LogStore {
        &self.store
    }

    /// The turns of an attempt: the same for all who ask while one of them has it.
    pub fn turns(&self, attempt: AttemptId) -> Arc<Turns> {
        let mut all = lock(&self.turns);
        if let Some(turns) = all.get(&attempt).and_then(Weak::upgrade) {
            return turns;
        }
        // Those whose last holder is gone.
        all.retain(|_, turns| turns.strong_count() > 0);
        let turns = Arc::new(Turns {
            writing: AsyncMutex::default(),
            changed: watch::Sender::default(),
        });
        all.insert(attempt, Arc::downgrade(&turns));
        turns
    }

    /// Room for one more stream of a worker's uploads; `None` where there is none.
    pub fn admit_upload(&self, worker: WorkerId) -> Option<UploadPermit> {
        let mut uploads = lock(&self.uploads);
        let n = uploads.entry(worker).or_default();
        if *n >= MAX_UPLOADS_A_WORKER {
            return None;
        }
        *n += 1;
        Some(UploadPermit {
            worker,
            uploads: Arc::clone(&self.uploads),
        })
    }

    /// Room for one more reader; `None` where there is none.
    pub fn admit_follower(&self) -> Option<FollowerPermit> {
        let permit = Arc::clone(&self.followers).try_acquire_owned();
        permit.ok().map(FollowerPermit)
    }
}

impl Drop for UploadPermit {
    fn drop(&mut self) {
        if let Entry::Occupied(mut entry) = lock(&self.uploads).entry(self.worker) {
            *entry.get_mut() -= 1;
            if *entry.get() == 0 {
                entry.remove();
            }
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    fn logs() -> Logs {
        Logs::new(LogStore::in_memory(1024))
    }

    #[test]
    fn uploads_of_a_worker_are_bounded_and_others_are_not_affected() {
        let logs = logs();
        let (worker, other) = (WorkerId(Uuid::from_u128(1)), WorkerId(Uuid::from_u128(2)));
        let mut permits: Vec<_> = (0..MAX_UPLOADS_A_WORKER)
            .map(|n| logs.admit_upload(worker).unwrap_or_else(|| panic!("{n}")))
            .collect();
        assert!(logs.admit_upload(worker).is_none());
        assert!(logs.admit_upload(other).is_some());
        permits.pop();
        assert!(logs.admit_upload(worker).is_some());
        drop(permits);
        assert!(lock(&logs.uploads).is_empty(), "nothing is left behind");
    }

    #[test]
    fn followers_are_bounded() {
        let logs = logs();
        let mut permits: Vec<_> = (0..MAX_FOLLOWERS)
            .map(|n| logs.admit_follower().unwrap_or_else(|| panic!("{n}")))
            .collect();
        assert!(logs.admit_follower().is_none());
        permits.pop();
        assert!(logs.admit_follower().is_some());
    }

    #[tokio::test]
    async fn a_write_wakes_who_waits_for_the_same_attempt_alone() {
        let logs = logs();
        let (a, b) = (AttemptId(Uuid::from_u128(1)), AttemptId(Uuid::from_u128(2)));
        let (mine, others) = (logs.turns(a), logs.turns(b));
        let (mut woken, mut asleep) = (mine.signals(), others.signals());
        logs.turns(a).wake();
        assert!(woken.has_changed().unwrap());
        woken.borrow_and_update();
        assert!(!asleep.has_changed().unwrap());
        asleep.borrow_and_update();
        drop((mine, others, woken, asleep));
        drop(logs.turns(a));
        assert!(lock(&logs.turns).len() <= 1, "nothing is left behind");
    }
}
