//! Workers as they are shown, as wire types.

use pointsman_proto::v1;

use super::convert::{role, timestamp};
use crate::{
    domain::worker::Liveness,
    service::WorkerView,
    store::model::{Drain, ProfileRow},
};

pub(super) fn worker(view: &WorkerView) -> v1::Worker {
    let worker = &view.worker;
    v1::Worker {
        id: worker.id.to_string(),
        name: worker.name.clone(),
        host: worker.host.clone(),
        version: worker.version.clone(),
        capacity: worker.capacity,
        roles: worker.roles.iter().map(|r| role(*r).into()).collect(),
        profiles: worker
            .profiles
            .iter()
            // Checks run without a profile; theirs has no name.
            .filter(|profile| !profile.name.is_empty())
            .map(profile)
            .collect(),
        labels: worker.labels.clone(),
        registered_at: Some(timestamp(worker.registered_at)),
        last_beat_at: Some(timestamp(worker.last_beat_at)),
        live_sessions: view.n_leases,
        liveness: liveness(view.liveness).into(),
        drain: worker.drain.as_ref().map(drain),
        declared_dead_at: worker.declared_dead_at.map(timestamp),
    }
}

fn profile(profile: &ProfileRow) -> v1::HarnessProfile {
    v1::HarnessProfile {
        name: profile.name.clone(),
        roles: profile.roles.iter().map(|r| role(*r).into()).collect(),
        tiers: profile.tiers.clone(),
        kill_budget: prost_types::Duration::try_from(profile.kill_budget).ok(),
    }
}

fn drain(drain: &Drain) -> v1::WorkerDrain {
    v1::WorkerDrain {
        requested_at: Some(timestamp(drain.requested_at)),
        reason: drain.reason.clone(),
        stop_sessions: drain.stops_sessions,
    }
}

fn liveness(liveness: Liveness) -> v1::WorkerLiveness {
    match liveness {
        Liveness::Alive => v1::WorkerLiveness::Alive,
        Liveness::Silent => v1::WorkerLiveness::Silent,
        Liveness::DeclaredDead => v1::WorkerLiveness::DeclaredDead,
    }
}
