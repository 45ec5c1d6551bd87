//! Leases that a worker that lives does not list.
//!
//! Each beat lists all sessions of its instance. A lease that is missing never arrived, or its session is
//! gone; either way nobody works on it, and waiting for its time-to-live would help nobody. Silence says
//! nothing of the kind: only beats that were received count.

use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

use serde_json::json;

use super::{Error, Service, apply::Cause};
use crate::{
    domain::{
        decision::Note,
        ids::{InstanceId, LeaseKey, WorkerId},
        time::Timestamp,
    },
    store::model::HeldLease,
};

/// How many beats in a row must lack a lease. One may have been under way when the lease was made.
const MISSES: u32 = 2;

/// How old a lease must be that no beat ever named. Its answer may take as long to arrive.
const ARRIVAL: Duration = Duration::from_secs(15);

/// How many beats in a row lacked each lease of one instance.
#[derive(Debug, Default)]
pub struct Absences(HashMap<LeaseKey, u32>);

/// Why nobody works on a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Absence {
    /// No beat ever named it: its answer was lost.
    NeverArrived,
    /// Beats named it, and do no more.
    Gone,
}

impl Absences {
    /// Takes in one received beat: what the instance holds, and what it listed.
    fn take(
        &mut self,
        held: &[HeldLease],
        listed: &HashSet<LeaseKey>,
        now: Timestamp,
    ) -> Vec<(LeaseKey, Absence)> {
        let mut missing = HashMap::new();
        let mut absent = Vec::new();
        for lease in held.iter().filter(|lease| !listed.contains(&lease.key)) {
            let key = lease.key;
            let misses = self.0.get(&key).copied().unwrap_or(0).saturating_add(1);
            missing.insert(key, misses);
            let absence = if lease.is_named {
                Absence::Gone
            } else if now.since(lease.leased_at) < ARRIVAL {
                continue;
            } else {
                Absence::NeverArrived
            };
            if misses >= MISSES {
                absent.push((key, absence));
            }
        }
        self.0 = missing;
        absent
    }

    /// Nothing is missing.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Service {
    /// Ends leases of the instance that two beats in a row have lacked: those that never arrived without
    /// a pickup, the others charged. Called once for each beat that was written.
    pub async fn notice_absences(
        &self,
        worker: WorkerId,
        instance: InstanceId,
        listed: &HashSet<LeaseKey>,
        absences: &mut Absences,
    ) -> Result<(), Error> {
        let held = self.store().held_leases(instance).await?;
        for (key, absence) in absences.take(&held, listed, self.now()) {
            match absence {
                Absence::NeverArrived => {
                    match self.release(worker, key, "the lease never arrived").await {
                        // Completed meanwhile.
                        Ok(()) | Err(Error::LeaseLost { .. }) => {}
                        Err(error) => return Err(error),
                    }
                }
                Absence::Gone => self.end_absent_lease(worker, key).await?,
            }
        }
        Ok(())
    }

    async fn end_absent_lease(&self, worker: WorkerId, key: LeaseKey) -> Result<(), Error> {
        let now = self.now();
        let (mut tx, mut locked, _) = match self.begin_for_lease(worker, key).await {
            Ok(held) => held,
            // Completed meanwhile.
            Err(Error::LeaseLost { .. }) => return Ok(()),
            Err(error) => return Err(error),
        };
        tx.delete_lease(key).await?;
        let cause = Cause::new(format!("worker:{worker}"), now)
            .because("its worker lists the session no more")
            .of(key.attempt);
        let facts = json!({ "lock_fence": key.fence.0 });
        self.lose_attempt(
            tx.as_mut(),
            &mut locked,
            key,
            Note::AttemptLost,
            facts,
            &cause,
        )
        .await?;
        tx.commit().await?;
        self.wake().all();
        Ok(())
    }
}
