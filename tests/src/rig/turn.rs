//! Who has the writer's turn. The one thing that a holder of it must not do is ask the store beside it: a
//! read may wait for the end of a group that this very turn keeps open.

use std::{
    sync::{Arc, Mutex, PoisonError},
    thread::{self, ThreadId},
};

use tokio::task;

/// A task; the one that a test itself runs in has no id but its thread's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Holder {
    Task(task::Id),
    Thread(ThreadId),
}

impl Holder {
    fn present() -> Self {
        task::try_id().map_or_else(|| Self::Thread(thread::current().id()), Self::Task)
    }
}

/// The turns that are held now.
#[derive(Debug, Default, Clone)]
pub(super) struct Turns(Arc<Mutex<Vec<Holder>>>);

/// Given back when it is dropped.
#[derive(Debug)]
pub(super) struct Held {
    turns: Turns,
    holder: Holder,
}

impl Turns {
    pub(super) fn hold(&self) -> Held {
        let holder = Holder::present();
        self.locked().push(holder);
        Held {
            turns: self.clone(),
            holder,
        }
    }

    /// # Panics
    /// Where the task that asks has the turn.
    pub(super) fn check(&self) {
        assert!(
            !self.locked().contains(&Holder::present()),
            "the store is asked beside a transaction of the same task"
        );
    }

    fn locked(&self) -> std::sync::MutexGuard<'_, Vec<Holder>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut held = self.turns.locked();
        if let Some(place) = held.iter().position(|holder| *holder == self.holder) {
            held.swap_remove(place);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_beside_a_turn_of_the_same_task_is_found_out() {
        let turns = Turns::default();
        turns.check();
        let held = turns.hold();
        let asked = turns.clone();
        assert!(thread::spawn(move || asked.check()).join().is_ok());
        let asked = turns.clone();
        let beside = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| asked.check()));
        assert!(beside.is_err());
        drop(held);
        turns.check();
    }
}
