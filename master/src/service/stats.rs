//! How the whole fleet stands, in figures.

use std::time::Duration;

use super::{Error, Service, takers::Need};
use crate::{
    domain::{attempt::Role, time::Timestamp, transitions::State, worker::ALIVE_FOR},
    store::model::{Figures, PendingGroup, WorkerFigures},
};

/// How long ago a worker may have beaten to be counted. Hosts come and go, and each leaves a row: those of
/// longer ago are history.
const WORKERS_SEEN_WITHIN: Duration = Duration::from_secs(24 * 3600);

/// Pending attempts of one role and tier.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Queue {
    pub role: Role,
    pub tier: u32,
    pub n: u64,
    pub oldest_at: Timestamp,
}

/// How the whole fleet stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stats {
    /// Of this process.
    pub started_at: Timestamp,
    pub now: Timestamp,
    /// States with workflows that are not over, and STUCK.
    pub workflows: Vec<(State, u64)>,
    pub pending: Vec<Queue>,
    /// Pending attempts that no worker would take that is alive and not drained.
    pub unschedulable: Vec<Queue>,
    pub n_in_progress: u64,
    pub n_leases: u64,
    pub workers: WorkerFigures,
    pub n_effects_waiting: u64,
    pub n_effects_failing: u64,
    pub n_holds: u64,
    pub database_bytes: u64,
}

impl Service {
    /// How the whole fleet stands. A bounded number of narrow reads, none of which grows with the history.
    pub async fn stats(&self) -> Result<Stats, Error> {
        let fleet = self.fleet().await?;
        let now = fleet.now;
        let figures = self
            .store()
            .figures(now.before(ALIVE_FOR), now.before(WORKERS_SEEN_WITHIN))
            .await?;
        let Figures {
            workflows,
            pending,
            n_in_progress,
            n_leases,
            workers,
            n_effects_waiting,
            n_effects_failing,
            n_holds,
            database_bytes,
        } = figures;
        let is_unschedulable = |group: &&PendingGroup| fleet.is_unschedulable(Need::from(*group));
        Ok(Stats {
            started_at: self.started_at,
            now,
            workflows,
            unschedulable: queues(pending.iter().filter(is_unschedulable)),
            pending: queues(pending.iter()),
            n_in_progress,
            n_leases,
            workers,
            n_effects_waiting,
            n_effects_failing,
            n_holds,
            database_bytes,
        })
    }
}

/// Groups of one role and tier as one, whatever their time-to-live. They come sorted.
fn queues<'a>(groups: impl Iterator<Item = &'a PendingGroup>) -> Vec<Queue> {
    let mut queues: Vec<Queue> = Vec::new();
    for group in groups {
        match queues.last_mut() {
            Some(last) if (last.role, last.tier) == (group.role, group.tier) => {
                last.n += group.n;
                last.oldest_at = last.oldest_at.min(group.oldest_at);
            }
            _ => queues.push(Queue {
                role: group.role,
                tier: group.tier,
                n: group.n,
                oldest_at: group.oldest_at,
            }),
        }
    }
    queues
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_of_a_role_and_tier_are_one_queue_as_old_as_the_oldest() {
        let group = |role, tier, ttl_seconds, n, oldest_at| PendingGroup {
            role,
            tier,
            ttl_seconds,
            n,
            oldest_at: Timestamp(oldest_at),
        };
        let groups = [
            group(Role::Escalator, 1, 360, 1, 5),
            group(Role::Implementer, 1, 60, 2, 9),
            group(Role::Implementer, 1, 1080, 3, 7),
            group(Role::Implementer, 2, 1080, 4, 8),
        ];
        let told: Vec<_> = queues(groups.iter())
            .into_iter()
            .map(|queue| (queue.role, queue.tier, queue.n, queue.oldest_at.0))
            .collect();
        let expected = [
            (Role::Escalator, 1, 1, 5),
            (Role::Implementer, 1, 5, 7),
            (Role::Implementer, 2, 4, 8),
        ];
        assert_eq!(told, expected);
    }
}
