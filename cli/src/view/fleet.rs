//! Workers, holds and figures, as this program shows them.

use pointsman_proto::v1;
use serde::Serialize;

use super::{instant, some};
use crate::name;

/// A worker as it registered last.
#[derive(Debug, Serialize)]
pub(crate) struct Worker {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) host: String,
    pub(crate) version: String,
    pub(crate) capacity: u32,
    pub(crate) roles: Vec<String>,
    pub(crate) profiles: Vec<Profile>,
    pub(crate) labels: Vec<String>,
    pub(crate) registered_at: Option<String>,
    pub(crate) last_beat_at: Option<String>,
    pub(crate) live_sessions: u32,
    pub(crate) liveness: Option<String>,
    pub(crate) drain: Option<Drain>,
    pub(crate) declared_dead_at: Option<String>,
}

impl From<v1::Worker> for Worker {
    fn from(worker: v1::Worker) -> Self {
        Self {
            id: worker.id,
            name: worker.name,
            host: worker.host,
            version: worker.version,
            capacity: worker.capacity,
            roles: worker.roles.into_iter().filter_map(name::role).collect(),
            profiles: worker.profiles.into_iter().map(Profile::from).collect(),
            labels: worker.labels,
            registered_at: instant(worker.registered_at),
            last_beat_at: instant(worker.last_beat_at),
            live_sessions: worker.live_sessions,
            liveness: name::liveness(worker.liveness),
            drain: worker.drain.map(Drain::from),
            declared_dead_at: instant(worker.declared_dead_at),
        }
    }
}

/// One way in which a worker runs harnesses.
#[derive(Debug, Serialize)]
pub(crate) struct Profile {
    pub(crate) name: String,
    pub(crate) roles: Vec<String>,
    /// Empty: every tier.
    pub(crate) tiers: Vec<u32>,
    /// What a hold on its provider names.
    pub(crate) account: String,
}

impl From<v1::HarnessProfile> for Profile {
    fn from(profile: v1::HarnessProfile) -> Self {
        Self {
            name: profile.name,
            roles: profile.roles.into_iter().filter_map(name::role).collect(),
            tiers: profile.tiers,
            account: profile.account,
        }
    }
}

/// Why a worker is given no new leases.
#[derive(Debug, Serialize)]
pub(crate) struct Drain {
    pub(crate) requested_at: Option<String>,
    pub(crate) reason: String,
    pub(crate) stop_sessions: bool,
}

impl From<v1::WorkerDrain> for Drain {
    fn from(drain: v1::WorkerDrain) -> Self {
        Self {
            requested_at: instant(drain.requested_at),
            reason: drain.reason,
            stop_sessions: drain.stop_sessions,
        }
    }
}

/// An account, or a profile on one worker, that gets no work for a while.
#[derive(Debug, Serialize)]
pub(crate) struct Hold {
    pub(crate) id: String,
    pub(crate) account: Option<String>,
    pub(crate) worker_id: Option<String>,
    pub(crate) profile: Option<String>,
    pub(crate) class: Option<String>,
    pub(crate) message: String,
    pub(crate) reported_by_worker_id: String,
    pub(crate) placed_at: Option<String>,
    pub(crate) until: Option<String>,
    pub(crate) failures: u32,
    pub(crate) canary_attempt_id: Option<String>,
}

impl From<v1::Hold> for Hold {
    fn from(hold: v1::Hold) -> Self {
        Self {
            id: hold.id,
            account: some(hold.account),
            worker_id: some(hold.worker_id),
            profile: some(hold.profile),
            class: name::error_class(hold.class),
            message: hold.message,
            reported_by_worker_id: hold.reported_by_worker_id,
            placed_at: instant(hold.placed_at),
            until: instant(hold.until),
            failures: hold.failures,
            canary_attempt_id: some(hold.canary_attempt_id),
        }
    }
}

/// How the whole fleet stands.
#[derive(Debug, Serialize)]
pub(crate) struct Stats {
    pub(crate) version: String,
    pub(crate) started_at: Option<String>,
    pub(crate) observed_at: Option<String>,
    pub(crate) workflows: Vec<WorkflowCount>,
    pub(crate) pending: Vec<Queue>,
    pub(crate) unschedulable: Vec<Queue>,
    pub(crate) attempts_in_progress: u64,
    pub(crate) live_leases: u64,
    pub(crate) workers_alive: u64,
    pub(crate) workers_silent: u64,
    pub(crate) workers_drained: u64,
    pub(crate) effects_waiting: u64,
    pub(crate) effects_failing: u64,
    pub(crate) holds: u64,
    pub(crate) database_bytes: u64,
    pub(crate) sweeps: Vec<SweepRun>,
}

impl From<v1::GetStatsResponse> for Stats {
    fn from(stats: v1::GetStatsResponse) -> Self {
        Self {
            version: stats.version,
            started_at: instant(stats.started_at),
            observed_at: instant(stats.observed_at),
            workflows: stats
                .workflows
                .into_iter()
                .map(WorkflowCount::from)
                .collect(),
            pending: stats.pending.into_iter().map(Queue::from).collect(),
            unschedulable: stats.unschedulable.into_iter().map(Queue::from).collect(),
            attempts_in_progress: stats.attempts_in_progress,
            live_leases: stats.live_leases,
            workers_alive: stats.workers_alive,
            workers_silent: stats.workers_silent,
            workers_drained: stats.workers_drained,
            effects_waiting: stats.effects_waiting,
            effects_failing: stats.effects_failing,
            holds: stats.holds,
            database_bytes: stats.database_bytes,
            sweeps: stats.sweeps.into_iter().map(SweepRun::from).collect(),
        }
    }
}

/// How many workflows are in a state.
#[derive(Debug, Serialize)]
pub(crate) struct WorkflowCount {
    pub(crate) state: Option<String>,
    pub(crate) count: u64,
}

impl From<v1::WorkflowCount> for WorkflowCount {
    fn from(counted: v1::WorkflowCount) -> Self {
        Self {
            state: name::state(counted.state),
            count: counted.count,
        }
    }
}

/// Pending attempts of one role and tier.
#[derive(Debug, Serialize)]
pub(crate) struct Queue {
    pub(crate) role: Option<String>,
    pub(crate) tier: u32,
    pub(crate) count: u64,
    pub(crate) oldest_at: Option<String>,
}

impl From<v1::QueueStats> for Queue {
    fn from(queue: v1::QueueStats) -> Self {
        Self {
            role: name::role(queue.role),
            tier: queue.tier,
            count: queue.count,
            oldest_at: instant(queue.oldest_at),
        }
    }
}

/// The last run of a sweep.
#[derive(Debug, Serialize)]
pub(crate) struct SweepRun {
    pub(crate) name: String,
    pub(crate) started_at: Option<String>,
    pub(crate) duration_ms: Option<u64>,
    pub(crate) examined: u64,
    pub(crate) changed: u64,
    pub(crate) failed: u64,
    pub(crate) ended_early: bool,
}

impl From<v1::SweepStats> for SweepRun {
    fn from(run: v1::SweepStats) -> Self {
        let took = run
            .duration
            .and_then(|d| std::time::Duration::try_from(d).ok());
        Self {
            name: run.name,
            started_at: instant(run.started_at),
            duration_ms: took.and_then(|took| u64::try_from(took.as_millis()).ok()),
            examined: run.examined,
            changed: run.changed,
            failed: run.failed,
            ended_early: run.ended_early,
        }
    }
}
