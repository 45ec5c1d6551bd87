//! Who is at work: what the loop changes, and what each beat lists.
//!
//! The lock is held to look sessions up and to copy what beats say, never while somebody acts on one: that
//! may wait for the state disk, and the loop and the beats must not wait for each other.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::Notify;

use crate::{assignment::LeaseKey, master::SessionStatus, session::Control};

/// All sessions of this instance.
#[derive(Default)]
pub(super) struct Roster {
    sessions: Mutex<BTreeMap<LeaseKey, Arc<Control>>>,
    changed: Notify,
}

impl Roster {
    pub(super) fn add(&self, key: LeaseKey, control: Control) {
        self.lock().insert(key, Arc::new(control));
        self.touch();
    }

    pub(super) fn remove(&self, key: &LeaseKey) {
        self.lock().remove(key);
        self.touch();
    }

    pub(super) fn has(&self, key: &LeaseKey) -> bool {
        self.lock().contains_key(key)
    }

    pub(super) fn len(&self) -> usize {
        self.lock().len()
    }

    /// Calls `act` where there is such a session, which may be removed meanwhile.
    pub(super) fn with(&self, key: &LeaseKey, act: impl FnOnce(&Control)) {
        let control = self.lock().get(key).cloned();
        if let Some(control) = control {
            act(&control);
        }
    }

    /// Calls `act` for each session that is there at first.
    pub(super) fn for_each(&self, mut act: impl FnMut(&Control)) {
        let controls: Vec<_> = self.lock().values().cloned().collect();
        controls.iter().for_each(|control| act(control));
    }

    /// What a beat says now.
    pub(super) fn beat(&self) -> Vec<(LeaseKey, SessionStatus)> {
        self.lock()
            .iter()
            .map(|(key, control)| (key.clone(), control.status()))
            .collect()
    }

    /// Has the next beat sent at once.
    pub(super) fn touch(&self) {
        self.changed.notify_one();
    }

    /// Completes after a touch, also after one that nobody waited for.
    pub(super) async fn changed(&self) {
        self.changed.notified().await;
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<LeaseKey, Arc<Control>>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
