//! Workers, holds and figures as they are shown, as wire types.

use pointsman_proto::v1;

use super::convert::{role, state, timestamp};
use crate::{
    domain::{
        attempt::InfrastructureClass,
        hold::{Hold, HoldSubject},
        worker::Liveness,
    },
    service::{Queue, Stats, WorkerView},
    store::model::{Drain, ProfileRow},
    sweeps::driver::LastRun,
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
        account: profile.account().to_owned(),
    }
}

fn drain(drain: &Drain) -> v1::WorkerDrain {
    v1::WorkerDrain {
        requested_at: Some(timestamp(drain.requested_at)),
        reason: drain.reason.clone(),
        stop_sessions: drain.stops_sessions,
    }
}

pub(super) fn hold(hold: &Hold) -> v1::Hold {
    let (account, worker_id, profile) = match &hold.subject {
        HoldSubject::Account(account) => (account.clone(), String::new(), String::new()),
        HoldSubject::Profile { worker, profile } => {
            (String::new(), worker.to_string(), profile.clone())
        }
    };
    v1::Hold {
        id: hold.id.to_string(),
        account,
        worker_id,
        profile,
        class: wire_class(hold.class).into(),
        message: hold.message.clone(),
        reported_by_worker_id: hold.worker.to_string(),
        placed_at: Some(timestamp(hold.placed_at)),
        until: Some(timestamp(hold.until)),
        failures: hold.failures,
        canary_attempt_id: hold
            .canary
            .map(|(attempt, _)| attempt.to_string())
            .unwrap_or_default(),
    }
}

fn wire_class(class: InfrastructureClass) -> v1::infrastructure_error::Class {
    use v1::infrastructure_error::Class;
    match class {
        InfrastructureClass::Crashed => Class::Crashed,
        InfrastructureClass::NoValidResult => Class::NoValidResult,
        InfrastructureClass::TimedOut => Class::TimedOut,
        InfrastructureClass::Silent => Class::Silent,
        InfrastructureClass::WorkspaceFailed => Class::WorkspaceFailed,
        InfrastructureClass::LeaseLost => Class::LeaseLost,
        InfrastructureClass::ProviderQuota => Class::ProviderQuota,
        InfrastructureClass::ProviderOutage => Class::ProviderOutage,
        InfrastructureClass::BadCredentials => Class::BadCredentials,
        InfrastructureClass::PermissionDenied => Class::PermissionDenied,
        // Holds nobody, and has no name on the wire yet.
        InfrastructureClass::OverBudget => Class::Unspecified,
    }
}

pub(super) fn stats(stats: Stats, runs: Vec<LastRun>) -> v1::GetStatsResponse {
    v1::GetStatsResponse {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        started_at: Some(timestamp(stats.started_at)),
        observed_at: Some(timestamp(stats.now)),
        workflows: stats
            .workflows
            .into_iter()
            .map(|(of, count)| v1::WorkflowCount {
                state: state(of).into(),
                count,
            })
            .collect(),
        pending: stats.pending.into_iter().map(queue).collect(),
        unschedulable: stats.unschedulable.into_iter().map(queue).collect(),
        attempts_in_progress: stats.n_in_progress,
        live_leases: stats.n_leases,
        workers_alive: stats.workers.n_alive,
        workers_silent: stats.workers.n_silent,
        workers_drained: stats.workers.n_drained,
        effects_waiting: stats.n_effects_waiting,
        effects_failing: stats.n_effects_failing,
        holds: stats.n_holds,
        database_bytes: stats.database_bytes,
        sweeps: runs.into_iter().map(sweep).collect(),
    }
}

fn queue(queue: Queue) -> v1::QueueStats {
    v1::QueueStats {
        role: role(queue.role).into(),
        tier: queue.tier,
        count: queue.n,
        oldest_at: Some(timestamp(queue.oldest_at)),
    }
}

fn sweep(run: LastRun) -> v1::SweepStats {
    v1::SweepStats {
        name: run.name.to_owned(),
        started_at: Some(timestamp(run.started_at)),
        duration: prost_types::Duration::try_from(run.took).ok(),
        examined: run.report.examined,
        changed: run.report.changed,
        failed: run.report.failed,
        ended_early: run.is_early,
    }
}

fn liveness(liveness: Liveness) -> v1::WorkerLiveness {
    match liveness {
        Liveness::Alive => v1::WorkerLiveness::Alive,
        Liveness::Silent => v1::WorkerLiveness::Silent,
        Liveness::DeclaredDead => v1::WorkerLiveness::DeclaredDead,
    }
}
