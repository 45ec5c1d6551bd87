//! Who is at work: what the loop changes, and what each beat lists.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use tokio::sync::Notify;

use crate::{assignment::LeaseKey, master::SessionStatus, session::Control};

/// All sessions of this instance.
#[derive(Default)]
pub(super) struct Roster {
    sessions: Mutex<BTreeMap<LeaseKey, Control>>,
    changed: Notify,
}

impl Roster {
    pub(super) fn add(&self, key: LeaseKey, control: Control) {
        self.lock().insert(key, control);
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

    /// Calls `act` where there is such a session.
    pub(super) fn with(&self, key: &LeaseKey, act: impl FnOnce(&Control)) {
        if let Some(control) = self.lock().get(key) {
            act(control);
        }
    }

    pub(super) fn for_each(&self, act: impl FnMut(&Control)) {
        self.lock().values().for_each(act);
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

    fn lock(&self) -> MutexGuard<'_, BTreeMap<LeaseKey, Control>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
