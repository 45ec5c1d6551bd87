//! Workers, as this program shows them.

use pointsman_proto::v1;
use serde::Serialize;

use super::instant;
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
}

impl From<v1::HarnessProfile> for Profile {
    fn from(profile: v1::HarnessProfile) -> Self {
        Self {
            name: profile.name,
            roles: profile.roles.into_iter().filter_map(name::role).collect(),
            tiers: profile.tiers,
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
