//! How leases end that nobody prolongs, and attempts that nobody can finish.

use std::{collections::HashMap, time::Duration};

use serde_json::json;

use super::{Error, Service, apply::Cause};
use crate::{
    domain::{
        attempt::{AttemptStatus, MAX_UNCHARGED_ERRORS},
        decision::Note,
        ids::{AttemptId, LeaseKey, WorkflowId},
        time::Timestamp,
    },
    store::{REAP_MARGIN_SECONDS, model::StaleLease},
};

/// What this process has seen of live leases: the reaper's second clock.
///
/// A lease is reaped only once this process has seen its row unchanged for its own time-to-live and
/// margin, on the monotonic clock. So neither a step of the wall clock nor a restart of the master,
/// during which no beat could be written, ends a lease early. The count starts again with the process.
#[derive(Debug, Default)]
pub struct Observations(HashMap<LeaseKey, Observation>);

#[derive(Debug, Clone, Copy)]
struct Observation {
    heartbeat_at: Timestamp,
    /// On this process's monotonic clock.
    unchanged_since: Duration,
}

impl Observations {
    /// Takes in all live leases as they are at `elapsed`. Leases that are gone are forgotten.
    pub fn see(&mut self, leases: impl Iterator<Item = (LeaseKey, Timestamp)>, elapsed: Duration) {
        let mut seen = HashMap::new();
        for (key, heartbeat_at) in leases {
            let observation = self
                .0
                .get(&key)
                .copied()
                .filter(|earlier| earlier.heartbeat_at == heartbeat_at)
                .unwrap_or(Observation {
                    heartbeat_at,
                    unchanged_since: elapsed,
                });
            seen.insert(key, observation);
        }
        self.0 = seen;
    }

    /// Whether the lease was seen unchanged for long enough.
    pub fn confirms(&self, lease: &StaleLease, elapsed: Duration) -> bool {
        let needed =
            Duration::from_secs(u64::from(lease.ttl_seconds) + u64::from(REAP_MARGIN_SECONDS));
        self.0.get(&lease.key).is_some_and(|seen| {
            seen.heartbeat_at == lease.heartbeat_at
                && elapsed.saturating_sub(seen.unchanged_since) >= needed
        })
    }
}

impl Service {
    /// Looks at all live leases, for [`Observations`].
    pub async fn observe_leases(&self, observations: &mut Observations) -> Result<(), Error> {
        let leases = self.store().heartbeats().await?;
        observations.see(leases.into_iter(), self.ports.stopwatch.elapsed());
        Ok(())
    }

    /// Leases that may be reaped now; `after` pages.
    pub async fn reapable(
        &self,
        observations: &Observations,
        after: Option<AttemptId>,
        limit: u32,
    ) -> Result<(Vec<StaleLease>, Option<AttemptId>), Error> {
        let page = self.store().stale_leases(after, limit).await?;
        let next = page.last().map(|lease| lease.key.attempt);
        let elapsed = self.ports.stopwatch.elapsed();
        let reapable = page
            .into_iter()
            .filter(|lease| observations.confirms(lease, elapsed))
            .collect();
        Ok((reapable, next))
    }

    /// Ends a lease whose time has passed, unless a beat came meanwhile. False: it did, or it is gone.
    pub async fn reap(&self, lease: StaleLease) -> Result<bool, Error> {
        let now = self.now();
        let mut tx = self.store().begin().await?;
        let Some(mut locked) = tx.lock_workflow(lease.workflow).await? else {
            return Ok(false);
        };
        if !tx.delete_stale_lease(lease.key).await? {
            return Ok(false);
        }
        let cause = Cause::new("sweep:reaper", now)
            .because("no beat within the time-to-live of the lease")
            .of(lease.key.attempt);
        let facts = json!({
            "lock_fence": lease.key.fence.0,
            "lock_ttl_seconds": lease.ttl_seconds,
        });
        self.lose_attempt(
            tx.as_mut(),
            &mut locked,
            lease.key,
            Note::LockTtlExpired,
            facts,
            &cause,
        )
        .await?;
        tx.commit().await?;
        tracing::warn!(attempt.id = %lease.key.attempt, "lease reaped");
        self.wake().all();
        Ok(true)
    }

    /// Pending attempts that were leased as often as they may be.
    pub async fn spent_attempts(
        &self,
        after: Option<AttemptId>,
        limit: u32,
    ) -> Result<Vec<(AttemptId, WorkflowId)>, Error> {
        Ok(self.store().spent_attempts(after, limit).await?)
    }

    /// Ends an attempt that was leased as often as it may be. False: it is not so, or no longer.
    pub async fn guard_pickups(
        &self,
        attempt: AttemptId,
        workflow: WorkflowId,
    ) -> Result<bool, Error> {
        let now = self.now();
        let mut tx = self.store().begin().await?;
        let Some(mut locked) = tx.lock_workflow(workflow).await? else {
            return Ok(false);
        };
        let Some(mut attempt) = tx.attempt(attempt).await? else {
            return Ok(false);
        };
        let is_spent = attempt.pickup_count >= locked.repository.policy.max_pickups
            || attempt.uncharged_errors >= MAX_UNCHARGED_ERRORS;
        let is_pending = attempt.status == AttemptStatus::Pending;
        if !is_spent || !is_pending || locked.workflow.state().is_terminal() {
            return Ok(false);
        }
        let cause = Cause::new("sweep:pickup_guard", now).of(attempt.id);
        self.end_spent_attempt(tx.as_mut(), &mut locked, &mut attempt, &cause)
            .await?;
        tx.commit().await?;
        self.wake().all();
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::ids::{Fence, InstanceId, Nonce};
    use uuid::Uuid;

    const TTL: u32 = 60;
    const NEEDED: Duration = Duration::from_secs(65);

    fn lease(heartbeat_at: i64) -> StaleLease {
        StaleLease {
            key: LeaseKey {
                attempt: AttemptId(Uuid::from_u128(1)),
                fence: Fence(1),
                nonce: Nonce(Uuid::from_u128(2)),
            },
            workflow: WorkflowId(Uuid::from_u128(3)),
            owner: InstanceId(Uuid::from_u128(4)),
            heartbeat_at: Timestamp(heartbeat_at),
            ttl_seconds: TTL,
        }
    }

    fn seen(observations: &mut Observations, lease: StaleLease, elapsed: Duration) {
        observations.see([(lease.key, lease.heartbeat_at)].into_iter(), elapsed);
    }

    #[test]
    fn a_lease_is_confirmed_at_its_own_ttl_and_margin_and_no_sooner() {
        let mut observations = Observations::default();
        let start = Duration::from_secs(100);
        seen(&mut observations, lease(1), start);
        assert!(!observations.confirms(&lease(1), start + NEEDED - Duration::from_micros(1)));
        assert!(observations.confirms(&lease(1), start + NEEDED));
    }

    #[test]
    fn a_beat_starts_the_count_again() {
        let mut observations = Observations::default();
        seen(&mut observations, lease(1), Duration::ZERO);
        seen(&mut observations, lease(2), NEEDED);
        assert!(!observations.confirms(&lease(2), NEEDED));
        assert!(observations.confirms(&lease(2), NEEDED + NEEDED));
    }

    #[test]
    fn a_new_process_confirms_nothing_however_old_the_row() {
        assert!(!Observations::default().confirms(&lease(0), Duration::from_secs(1_000_000)));
    }
}
