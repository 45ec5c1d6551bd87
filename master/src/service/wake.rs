//! Wakes who waits in this process, after a commit and never before it.
//!
//! A wake-up only hastens: each of those who wait also looks by itself from time to time.

use tokio::sync::{Notify, watch};

/// One bell for each who waits. A bell rung while nobody listens is heard by the next who does.
#[derive(Debug, Default)]
pub struct Wake {
    /// Something may be leased.
    pub claims: Notify,
    /// A workflow may lack work.
    pub scheduler: Notify,
    /// An effect was opened.
    pub effector: Notify,
    /// A check has ended, or a head waits for its checks.
    pub ci_poller: Notify,
    /// A workflow may have changed. Any number listen.
    pub watchers: watch::Sender<()>,
}

impl Wake {
    /// Rings every bell: what a transition leads to is found out by looking.
    pub fn all(&self) {
        self.claims.notify_one();
        self.scheduler.notify_one();
        self.effector.notify_one();
        self.ci_poller.notify_one();
        self.watchers.send_replace(());
    }
}
