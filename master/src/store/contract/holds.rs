//! Holds, and what they let a claim lease.

use std::time::Duration;

use super::world::{World, offer};
use crate::{
    domain::{
        attempt::{InfrastructureClass, Role},
        hold::{Hold, HoldReport, HoldSubject},
        ids::{AttemptId, HoldId, WorkerId},
        time::Timestamp,
    },
    store::model::ClaimRequest,
};

const ROLE: Role = Role::Reviewer;
const MICROSECOND: Duration = Duration::from_micros(1);

/// The account of [`offer`].
fn account() -> HoldSubject {
    HoldSubject::Account("main".to_owned())
}

async fn place(world: &World, subject: HoldSubject) -> Hold {
    let report = HoldReport {
        class: InfrastructureClass::ProviderQuota,
        message: "none left".to_owned(),
        reset_at: None,
        worker: WorkerId(world.id()),
    };
    let hold = Hold::placed(HoldId(world.id()), subject, report, world.now());
    put(world, &hold).await;
    hold
}

async fn put(world: &World, hold: &Hold) {
    let mut tx = world.tx().await;
    tx.put_hold(hold).await.unwrap();
    tx.commit().await.unwrap();
}

async fn claimed(world: &World, request: &ClaimRequest) -> Vec<AttemptId> {
    let claimed = world.claim(request).await;
    claimed.iter().map(|claimed| claimed.attempt.id).collect()
}

async fn work(world: &World, n: usize) -> Vec<AttemptId> {
    let repository = world.repository("lamp").await;
    let mut ids = Vec::new();
    for _ in 0..n {
        ids.push(world.work(&repository, ROLE).await.id);
    }
    ids
}

pub(crate) async fn a_hold_is_read_as_it_was_written(world: &World) {
    let mut first = place(world, account()).await;
    let worker = WorkerId(world.id());
    let profile = HoldSubject::Profile {
        worker,
        profile: "agent".to_owned(),
    };
    let second = place(world, profile).await;
    first.class = InfrastructureClass::ProviderOutage;
    first.message = "down".to_owned();
    first.worker = worker;
    first.until = Timestamp(77);
    first.failures = 3;
    put(world, &first).await;
    let store = world.store();
    assert_eq!(store.holds(None, 1).await.unwrap(), [first.clone()]);
    assert_eq!(
        store.holds(Some(first.id), 9).await.unwrap(),
        std::slice::from_ref(&second)
    );
    let mut tx = world.tx().await;
    let stranger = WorkerId(world.id());
    let main = ["main".to_owned()];
    assert_eq!(
        tx.covering_holds(stranger, &main).await.unwrap(),
        [first.clone()]
    );
    assert_eq!(
        tx.covering_holds(worker, &[]).await.unwrap(),
        std::slice::from_ref(&second)
    );
    assert_eq!(tx.covering_holds(stranger, &[]).await.unwrap(), []);
    assert_eq!(tx.hold(second.id).await.unwrap(), Some(second));
    assert!(tx.delete_hold(first.id).await.unwrap());
    assert!(!tx.delete_hold(first.id).await.unwrap());
    assert_eq!(tx.hold(first.id).await.unwrap(), None);
}

pub(crate) async fn a_held_account_is_leased_one_canary_once_its_time_has_passed(world: &World) {
    let ids = work(world, 3).await;
    let hold = place(world, account()).await;
    let request = || world.request(vec![offer(ROLE)], 9);
    world.advance(hold.until.since(world.now()) - MICROSECOND);
    assert_eq!(claimed(world, &request()).await, []);
    world.advance(MICROSECOND);
    let mut leased = world.claim(&request()).await;
    assert_eq!(leased.len(), 1);
    let canary = leased.remove(0);
    assert_eq!(canary.attempt.id, ids[0]);
    let read = world.store().holds(None, 9).await.unwrap();
    assert!(read[0].is_canary(canary.lease.key));
    // On every worker, for as long as the canary's lease lives.
    assert_eq!(claimed(world, &request()).await, []);
    let mut tx = world.tx().await;
    tx.delete_lease(canary.lease.key).await.unwrap();
    tx.commit().await.unwrap();
    let read = world.store().holds(None, 9).await.unwrap();
    assert_eq!(read[0].canary, None);
    assert_eq!(claimed(world, &request()).await, [ids[1]]);
    let mut tx = world.tx().await;
    tx.delete_hold(hold.id).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(claimed(world, &request()).await, [ids[2]]);
}

pub(crate) async fn other_accounts_and_checks_pass_a_hold_by(world: &World) {
    let ids = work(world, 2).await;
    place(world, account()).await;
    let mut other = offer(ROLE);
    other.account = "other".to_owned();
    other.profile = "other".to_owned();
    // The first offer that fits and is not held is used.
    let request = world.request(vec![offer(ROLE), other], 1);
    let leased = world.claim(&request).await;
    assert_eq!(leased[0].attempt.id, ids[0]);
    assert_eq!(leased[0].lease.profile, "other");
    let mut check = offer(ROLE);
    check.profile.clear();
    assert_eq!(
        claimed(world, &world.request(vec![check], 1)).await,
        [ids[1]]
    );
}

pub(crate) async fn a_profile_is_held_on_its_worker_alone(world: &World) {
    let ids = work(world, 2).await;
    let here = world.request(vec![offer(ROLE)], 1);
    let subject = HoldSubject::Profile {
        worker: here.worker,
        profile: "default".to_owned(),
    };
    let hold = place(world, subject).await;
    assert_eq!(claimed(world, &here).await, []);
    let elsewhere = world.request(vec![offer(ROLE)], 1);
    assert_eq!(claimed(world, &elsewhere).await, [ids[0]]);
    world.advance(hold.until.since(world.now()));
    assert_eq!(claimed(world, &here).await, [ids[1]]);
}
