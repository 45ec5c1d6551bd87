//! Leases, beats and the end of leases.

use std::time::Duration;

use super::world::{World, offer};
use crate::{
    domain::{
        attempt::{AttemptStatus, Role},
        ids::{AttemptId, Fence, InstanceId, LeaseKey},
        time::Timestamp,
    },
    store::{
        Error, REAP_MARGIN_SECONDS,
        model::{BeatWrite, Claimed, HeldLease, LeaseRow, ProgressRow, StaleLease},
    },
};

const SECOND: Duration = Duration::from_secs(1);
const MICROSECOND: Duration = Duration::from_micros(1);

fn beat(key: LeaseKey, age: Duration) -> BeatWrite {
    BeatWrite { key, age }
}

async fn lease_of(world: &World, key: LeaseKey) -> LeaseRow {
    let lease = world.tx().await.lease(key.attempt).await.unwrap();
    lease.unwrap()
}

async fn heartbeat_at(world: &World, key: LeaseKey) -> Timestamp {
    lease_of(world, key).await.heartbeat_at
}

async fn flush(world: &World, claimed: &Claimed, age: Duration) -> Vec<LeaseKey> {
    let beats = [beat(claimed.lease.key, age)];
    let store = world.store();
    store
        .flush_beats(claimed.lease.owner, &beats)
        .await
        .unwrap()
}

/// How long after its last beat a lease of `ttl_seconds` is not stale yet.
fn patience(ttl_seconds: u32) -> Duration {
    Duration::from_secs(u64::from(ttl_seconds + REAP_MARGIN_SECONDS))
}

pub(crate) async fn beats_prolong_and_never_shorten(world: &World) {
    let repository = world.repository("lamp").await;
    let claimed = world.leased(&repository).await;
    let key = claimed.lease.key;
    let leased_at = world.now();
    world.advance(SECOND);
    assert_eq!(flush(world, &claimed, Duration::ZERO).await, [key]);
    assert_eq!(heartbeat_at(world, key).await, leased_at.after(SECOND));
    // A late one is answered, and takes nothing away.
    for age in [SECOND * 9, Duration::MAX] {
        assert_eq!(flush(world, &claimed, age).await, [key]);
        assert_eq!(heartbeat_at(world, key).await, leased_at.after(SECOND));
    }
    assert_eq!(lease_of(world, key).await.leased_at, leased_at);
}

pub(crate) async fn a_beat_counts_from_its_age(world: &World) {
    let repository = world.repository("lamp").await;
    let claimed = world.leased(&repository).await;
    let leased_at = world.now();
    world.advance(SECOND * 10);
    flush(world, &claimed, SECOND * 3).await;
    let expected = leased_at.after(SECOND * 7);
    assert_eq!(heartbeat_at(world, claimed.lease.key).await, expected);
}

pub(crate) async fn the_youngest_of_two_beats_counts(world: &World) {
    let repository = world.repository("lamp").await;
    let claimed = world.leased(&repository).await;
    let key = claimed.lease.key;
    world.advance(SECOND * 10);
    let beats = [
        beat(key, SECOND * 3),
        beat(key, SECOND),
        beat(key, SECOND * 5),
    ];
    let owner = claimed.lease.owner;
    let alive = world.store().flush_beats(owner, &beats).await.unwrap();
    assert_eq!(alive, [key]);
    let age = world.now().since(heartbeat_at(world, key).await);
    assert_eq!(age, SECOND);
}

pub(crate) async fn beats_of_other_keys_and_owners_are_not_answered(world: &World) {
    let repository = world.repository("lamp").await;
    let claimed = world.leased(&repository).await;
    let other = world.leased(&repository).await;
    let key = claimed.lease.key;
    let leased_at = world.now();
    world.advance(SECOND);
    let wrong = [
        LeaseKey {
            fence: Fence(0),
            ..key
        },
        LeaseKey {
            fence: Fence(2),
            ..key
        },
        LeaseKey {
            fence: Fence(u64::MAX),
            ..key
        },
        LeaseKey {
            nonce: world.nonce(),
            ..key
        },
        LeaseKey {
            attempt: AttemptId(world.id()),
            ..key
        },
        // Right, but somebody else's.
        other.lease.key,
    ];
    let beats = wrong.map(|key| beat(key, Duration::ZERO));
    let owner = claimed.lease.owner;
    let store = world.store();
    assert_eq!(store.flush_beats(owner, &beats).await.unwrap(), []);
    let stranger = InstanceId(world.id());
    let right = [beat(key, Duration::ZERO)];
    assert_eq!(store.flush_beats(stranger, &right).await.unwrap(), []);
    assert_eq!(store.flush_beats(owner, &[]).await.unwrap(), []);
    assert_eq!(heartbeat_at(world, key).await, leased_at);
    assert_eq!(heartbeat_at(world, other.lease.key).await, leased_at);
    // One wrong key spoils no right one.
    let mixed = [beats[0], right[0]];
    assert_eq!(store.flush_beats(owner, &mixed).await.unwrap(), [key]);
}

async fn leased_with_ttl(world: &World, ttl_seconds: u32) -> Claimed {
    let name = format!("ttl-{ttl_seconds}-{}", world.id());
    let repository = world.repository(&name).await;
    world
        .work_with(&repository, Role::Reviewer, 0, |a| {
            a.lock_ttl_seconds = ttl_seconds;
        })
        .await;
    let mut claimed = world
        .claim(&world.request(vec![offer(Role::Reviewer)], 1))
        .await;
    claimed.pop().unwrap()
}

async fn stale(world: &World) -> Vec<StaleLease> {
    world.store().stale_leases(None, 99).await.unwrap()
}

pub(crate) async fn a_lease_is_stale_past_its_own_time_to_live_and_margin(world: &World) {
    let short = leased_with_ttl(world, 100).await;
    let long = leased_with_ttl(world, 200).await;
    world.advance(patience(100));
    assert_eq!(stale(world).await, []);
    world.advance(MICROSECOND);
    let expected = StaleLease {
        key: short.lease.key,
        workflow: short.attempt.workflow,
        owner: short.lease.owner,
        heartbeat_at: short.lease.heartbeat_at,
        ttl_seconds: 100,
    };
    assert_eq!(stale(world).await, [expected]);
    world.advance(SECOND * 100 - MICROSECOND);
    assert_eq!(stale(world).await.len(), 1);
    world.advance(MICROSECOND);
    let keys: Vec<LeaseKey> = stale(world).await.iter().map(|lease| lease.key).collect();
    assert_eq!(keys, [short.lease.key, long.lease.key]);
}

pub(crate) async fn stale_leases_are_paged(world: &World) {
    let mut keys = Vec::new();
    for _ in 0..3 {
        keys.push(leased_with_ttl(world, 100).await.lease.key);
    }
    world.advance(SECOND * 1000);
    let store = world.store();
    let page = async |after: Option<AttemptId>| -> Vec<LeaseKey> {
        let page = store.stale_leases(after, 2).await.unwrap();
        page.iter().map(|lease| lease.key).collect()
    };
    assert_eq!(page(None).await, keys[..2]);
    assert_eq!(page(Some(keys[1].attempt)).await, keys[2..]);
}

pub(crate) async fn a_late_beat_saves_a_lease_from_the_reaper(world: &World) {
    let claimed = leased_with_ttl(world, 100).await;
    world.advance(patience(100) + MICROSECOND);
    let key = stale(world).await[0].key;
    assert_eq!(flush(world, &claimed, Duration::ZERO).await, [key]);
    let mut tx = world.tx().await;
    assert!(!tx.delete_stale_lease(key).await.unwrap());
    assert!(tx.lease(key.attempt).await.unwrap().is_some());
}

pub(crate) async fn a_stale_lease_is_deleted_once(world: &World) {
    let claimed = leased_with_ttl(world, 100).await;
    let key = claimed.lease.key;
    world.advance(patience(100));
    let mut tx = world.tx().await;
    assert!(!tx.delete_stale_lease(key).await.unwrap());
    world.advance(MICROSECOND);
    let wrong = LeaseKey {
        nonce: world.nonce(),
        ..key
    };
    assert!(!tx.delete_stale_lease(wrong).await.unwrap());
    assert!(tx.delete_stale_lease(key).await.unwrap());
    assert!(!tx.delete_stale_lease(key).await.unwrap());
    tx.commit().await.unwrap();
    assert_eq!(stale(world).await, []);
    // The beat comes too late.
    assert_eq!(flush(world, &claimed, Duration::ZERO).await, []);
}

pub(crate) async fn a_lease_is_deleted_by_its_key_alone(world: &World) {
    let repository = world.repository("lamp").await;
    let key = world.leased(&repository).await.lease.key;
    let mut tx = world.tx().await;
    let wrong = [
        LeaseKey {
            fence: Fence(2),
            ..key
        },
        LeaseKey {
            nonce: world.nonce(),
            ..key
        },
        LeaseKey {
            attempt: AttemptId(world.id()),
            ..key
        },
    ];
    for wrong in wrong {
        assert!(!tx.delete_lease(wrong).await.unwrap());
    }
    assert!(tx.delete_lease(key).await.unwrap());
    assert!(!tx.delete_lease(key).await.unwrap());
    assert_eq!(tx.lease(key.attempt).await.unwrap(), None);
}

pub(crate) async fn a_lease_is_marked_unconfirmed(world: &World) {
    let repository = world.repository("lamp").await;
    let key = world.leased(&repository).await.lease.key;
    let mut tx = world.tx().await;
    tx.set_lease_unconfirmed(key).await.unwrap();
    let lease = tx.lease(key.attempt).await.unwrap().unwrap();
    assert!(lease.is_unconfirmed);
    let wrong = LeaseKey {
        fence: Fence(9),
        ..key
    };
    let error = tx.set_lease_unconfirmed(wrong).await.unwrap_err();
    assert!(matches!(error, Error::LostRace("lease")));
}

fn progress(key: LeaseKey, phase: &str) -> ProgressRow {
    ProgressRow {
        key,
        phase: phase.to_owned(),
        subprocess_pid: 42,
        subprocess_starttime: 43,
        last_output_at: Some(Timestamp(44)),
        log_bytes: 45,
    }
}

pub(crate) async fn progress_is_kept_of_the_present_lease_alone(world: &World) {
    let repository = world.repository("lamp").await;
    let worker = world.new_worker("w1");
    world.put_worker(&worker).await;
    world.work(&repository, Role::Reviewer).await;
    let mut request = world.request(vec![offer(Role::Reviewer)], 1);
    request.worker = worker.id;
    let first = world.claim(&request).await.pop().unwrap();
    let key = first.lease.key;
    let store = world.store();
    let told = async || {
        let mut sessions = store.sessions(None, None, 100).await.unwrap();
        assert_eq!(sessions.len(), 1);
        sessions.pop().unwrap().progress
    };
    assert_eq!(told().await, None);
    let later = world.now().after(SECOND);
    for phase in ["preparing", "running"] {
        let rows = [progress(key, phase)];
        store
            .record_progress(worker.id, &rows, later)
            .await
            .unwrap();
        assert_eq!(told().await, Some(progress(key, phase)));
    }
    let row = store.worker(worker.id).await.unwrap().unwrap();
    assert_eq!(row.last_beat_at, later);
    // A beat that was overtaken turns nothing back.
    let rows = [progress(key, "finishing")];
    let earlier = worker.last_beat_at;
    store
        .record_progress(worker.id, &rows, earlier)
        .await
        .unwrap();
    let row = store.worker(worker.id).await.unwrap().unwrap();
    assert_eq!(row.last_beat_at, later);
    // The next lease starts without, and the earlier one's beats are not heard.
    let mut tx = world.tx().await;
    tx.delete_lease(key).await.unwrap();
    let mut attempt = tx.attempt(key.attempt).await.unwrap().unwrap();
    attempt.status = AttemptStatus::Pending;
    tx.update_attempt(&attempt).await.unwrap();
    tx.commit().await.unwrap();
    let second = world.claim(&request).await.pop().unwrap();
    assert_ne!(second.lease.key, key);
    assert_eq!(told().await, None);
    store
        .record_progress(worker.id, &rows, later)
        .await
        .unwrap();
    assert_eq!(told().await, None);
    let stranger = crate::domain::ids::WorkerId(world.id());
    let error = store.record_progress(stranger, &[], later).await;
    assert!(matches!(error, Err(Error::LostRace("worker"))));
}

pub(crate) async fn sessions_and_leases_are_listed_by_worker(world: &World) {
    let repository = world.repository("lamp").await;
    let worker = world.new_worker("w1");
    world.put_worker(&worker).await;
    for _ in 0..2 {
        world.work(&repository, Role::Reviewer).await;
    }
    let mut request = world.request(vec![offer(Role::Reviewer)], 2);
    request.worker = worker.id;
    let leases: Vec<LeaseRow> = world
        .claim(&request)
        .await
        .into_iter()
        .map(|claimed| claimed.lease)
        .collect();
    let other = world.leased(&repository).await.lease;
    let store = world.store();
    let sessions = store.sessions(Some(worker.id), None, 100).await.unwrap();
    let listed: Vec<LeaseRow> = sessions.iter().map(|s| s.lease.clone()).collect();
    assert_eq!(listed, leases);
    let session = &sessions[0];
    assert_eq!((session.role, session.tier), (Role::Reviewer, 1));
    assert_eq!(
        (session.worker_name.as_str(), session.host.as_str()),
        ("w1", "host-1")
    );
    // A lease whose worker is not known is a lease all the same.
    let all = store.sessions(None, None, 100).await.unwrap();
    assert_eq!(all.len(), 3);
    for session in all {
        let of_workflow = store.sessions_of(session.lease.workflow).await.unwrap();
        assert_eq!(of_workflow, [session]);
    }
    let mut tx = world.tx().await;
    assert_eq!(tx.leases_of_worker(worker.id).await.unwrap(), leases);
    assert_eq!(tx.leases_of_worker(other.worker).await.unwrap(), [other]);
}

pub(crate) async fn heartbeats_and_held_leases_are_read_by_themselves(world: &World) {
    let repository = world.repository("lamp").await;
    let worker = world.new_worker("w1");
    world.put_worker(&worker).await;
    for _ in 0..2 {
        world.work(&repository, Role::Reviewer).await;
    }
    let mut request = world.request(vec![offer(Role::Reviewer)], 2);
    request.worker = worker.id;
    let claimed = world.claim(&request).await;
    let other = world.leased(&repository).await;
    let store = world.store();
    let named = claimed[1].lease.key;
    let rows = [progress(named, "running")];
    store
        .record_progress(worker.id, &rows, world.now())
        .await
        .unwrap();
    let held = store.held_leases(request.instance).await.unwrap();
    let expected: Vec<HeldLease> = claimed
        .iter()
        .map(|claimed| HeldLease {
            key: claimed.lease.key,
            leased_at: claimed.lease.leased_at,
            is_named: claimed.lease.key == named,
        })
        .collect();
    assert_eq!(held, expected);
    let mut heartbeats = store.heartbeats().await.unwrap();
    heartbeats.sort();
    let mut expected: Vec<_> = claimed
        .iter()
        .chain([&other])
        .map(|claimed| (claimed.lease.key, claimed.lease.heartbeat_at))
        .collect();
    expected.sort();
    assert_eq!(heartbeats, expected);
    let keys = async |after, limit| -> Vec<LeaseKey> {
        let sessions = store.sessions(None, after, limit).await.unwrap();
        sessions.iter().map(|session| session.lease.key).collect()
    };
    let all = keys(None, 9).await;
    assert_eq!(all.len(), 3);
    assert_eq!(keys(None, 2).await, all[..2]);
    assert_eq!(keys(Some(all[1].attempt), 2).await, all[2..]);
}
