//! Workers: who they are, and what ends when one is known to be dead.

use serde_json::json;

use super::{Error, Service, apply::Cause};
use crate::{
    domain::{
        decision::Note,
        ids::{InstanceId, LeaseKey, WorkerId},
        time::Timestamp,
        worker::ALIVE_FOR,
    },
    store::{
        Tx,
        model::{LeaseRow, WorkerRow},
    },
};

/// A worker that says who it is. Its two instants are set by the master.
#[derive(Debug, Clone)]
pub struct Registration {
    pub worker: WorkerRow,
    /// Sessions of earlier processes that may still run.
    pub unconfirmed: Vec<LeaseKey>,
}

/// What a worker's earlier process is to the one that registers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Relation {
    /// It is the same one.
    Same,
    /// This one holds the lock that it held, so it is gone.
    Dead(InstanceId),
    /// It has beaten lately, on another state directory or in another boot: a copied directory, or an
    /// image that was started twice. Both would end each other's leases for ever.
    Alive,
    /// It has been silent, in another state directory: nothing is known about its sessions.
    Elsewhere,
}

fn relation(earlier: &WorkerRow, worker: &WorkerRow, now: Timestamp) -> Relation {
    let is_same_directory = earlier.state_directory == worker.state_directory;
    let is_same_boot = earlier.boot_id == worker.boot_id;
    // A beat from the future says that the wall clock was set back, and nothing else.
    let has_beaten = earlier.declared_dead_at.is_none()
        && earlier.last_beat_at <= now
        && now.since(earlier.last_beat_at) < ALIVE_FOR;
    match (is_same_directory, is_same_boot, has_beaten) {
        _ if earlier.instance == worker.instance => Relation::Same,
        (true, true, _) | (true, false, false) => Relation::Dead(earlier.instance),
        (_, _, true) => Relation::Alive,
        (false, _, false) => Relation::Elsewhere,
    }
}

impl Service {
    /// Makes a process of a worker known. Where the earlier process is known to be dead, what was leased
    /// to it is pending at once; unconfirmed sessions keep their lease until its time-to-live has passed.
    /// Repeating it changes nothing.
    pub async fn register(&self, registration: Registration) -> Result<(), Error> {
        let now = self.now();
        let Registration {
            mut worker,
            unconfirmed,
        } = registration;
        worker.registered_at = now;
        worker.last_beat_at = now;
        let mut tx = self.store().begin().await?;
        let earlier = tx.worker(worker.id).await?;
        let dead = match earlier
            .as_ref()
            .map(|earlier| relation(earlier, &worker, now))
        {
            None | Some(Relation::Same | Relation::Elsewhere) => None,
            Some(Relation::Dead(instance)) => Some(instance),
            Some(Relation::Alive) => {
                return Err(Error::WorkerInUse {
                    id: worker.id.to_string(),
                    seconds: ALIVE_FOR.as_secs(),
                });
            }
        };
        tx.put_worker(&worker).await?;
        let mut n_ended = 0;
        if let Some(dead) = dead {
            n_ended = self
                .end_leases_of_the_dead(tx.as_mut(), worker.id, dead, &unconfirmed, now)
                .await?;
        }
        tx.commit().await?;
        tracing::info!(worker.id = %worker.id, worker.name = %worker.name, n_ended, "worker registered");
        self.wake().all();
        Ok(())
    }

    /// Only the process just before this one is known to be dead: an older one may have had another
    /// state directory, or left sessions that nobody could confirm.
    async fn end_leases_of_the_dead(
        &self,
        tx: &mut dyn Tx,
        id: WorkerId,
        dead: InstanceId,
        unconfirmed: &[LeaseKey],
        now: Timestamp,
    ) -> Result<u32, Error> {
        let leases = tx.leases_of_worker(id).await?;
        let cause = Cause::new(format!("worker:{id}"), now)
            .because("the process that held the lease is gone");
        let mut n_ended = 0;
        for lease in leases.iter().filter(|l| l.owner == dead) {
            if unconfirmed.contains(&lease.key) {
                tx.set_lease_unconfirmed(lease.key).await?;
            } else {
                self.end_dead_lease(tx, lease, &cause).await?;
                n_ended += 1;
            }
        }
        Ok(n_ended)
    }

    /// Ends a lease whose holder is known to be dead, as `cause` says; charged.
    pub(super) async fn end_dead_lease(
        &self,
        tx: &mut dyn Tx,
        lease: &LeaseRow,
        cause: &Cause,
    ) -> Result<(), Error> {
        let Some(mut locked) = tx.lock_workflow(lease.workflow).await? else {
            return Ok(());
        };
        if !tx.delete_lease(lease.key).await? {
            return Ok(());
        }
        let cause = cause.clone().of(lease.key.attempt);
        let detail = json!({ "lock_fence": lease.key.fence.0 });
        self.lose_attempt(
            tx,
            &mut locked,
            lease.key,
            Note::AttemptLost,
            detail,
            &cause,
        )
        .await
    }
}
