//! Claims.

use std::time::Duration;

use super::world::{World, commit, offer, progress};
use crate::{
    domain::{
        attempt::{AttemptStatus, Role, Subject, fits_kill_budget},
        ids::{AttemptId, Fence, InstanceId, RequestId},
        transitions::State,
        workflow::Workflow,
    },
    store::model::{Claimed, Offer},
};

const ROLE: Role = Role::Reviewer;
const SECOND: Duration = Duration::from_secs(1);

async fn unfinished(world: &World, claimed: &Claimed, status: AttemptStatus) {
    let mut tx = world.tx().await;
    assert!(tx.delete_lease(claimed.lease.key).await.unwrap());
    let mut attempt = tx.attempt(claimed.attempt.id).await.unwrap().unwrap();
    attempt.status = status;
    tx.update_attempt(&attempt).await.unwrap();
    tx.commit().await.unwrap();
}

pub(crate) async fn higher_priority_goes_first(world: &World) {
    let repository = world.repository("lamp").await;
    let mut by_priority = Vec::new();
    for priority in [0, i32::MIN, 7, i32::MAX, -1] {
        let attempt = world.work_with(&repository, ROLE, priority, |_| {}).await;
        by_priority.push((priority, attempt.id));
    }
    by_priority.sort_by_key(|(priority, _)| std::cmp::Reverse(*priority));
    let expected: Vec<AttemptId> = by_priority.into_iter().map(|(_, id)| id).collect();
    assert_eq!(world.claim_ids(ROLE, 9).await, expected);
}

pub(crate) async fn the_repository_with_fewest_in_progress_goes_first(world: &World) {
    let busy = world.repository("busy").await;
    let idle = world.repository("idle").await;
    world.leased(&busy).await;
    let older = world.work(&busy, ROLE).await.id;
    world.advance(SECOND);
    let younger = world.work(&idle, ROLE).await.id;
    assert_eq!(world.claim_ids(ROLE, 1).await, [younger]);
    assert_eq!(world.claim_ids(ROLE, 1).await, [older]);
}

pub(crate) async fn a_batch_is_fair_inside_itself(world: &World) {
    let (one, two) = (world.repository("one").await, world.repository("two").await);
    let mut ids = Vec::new();
    for repository in [&one, &one, &one, &two, &two] {
        world.advance(SECOND);
        ids.push(world.work(repository, ROLE).await.id);
    }
    // Priority goes before fairness, and what it leases counts as in progress.
    let urgent = world.work_with(&one, ROLE, 1, |_| {}).await.id;
    let expected = [urgent, ids[3], ids[0], ids[4], ids[1], ids[2]];
    assert_eq!(world.claim_ids(ROLE, 9).await, expected);
}

pub(crate) async fn roles_share_one_order(world: &World) {
    let repository = world.repository("lamp").await;
    let mut ids = Vec::new();
    for role in [ROLE, Role::Implementer, ROLE, Role::Escalator] {
        world.advance(SECOND);
        ids.push(world.work(&repository, role).await.id);
    }
    let urgent = world.work_with(&repository, Role::Escalator, 1, |_| {});
    ids.insert(0, urgent.await.id);
    let offers = [Role::Escalator, Role::Implementer, ROLE].map(offer);
    let claimed = world.claim(&world.request(offers.to_vec(), 9)).await;
    let claimed: Vec<AttemptId> = claimed.iter().map(|c| c.attempt.id).collect();
    assert_eq!(claimed, ids);
}

pub(crate) async fn older_ones_go_first(world: &World) {
    let repository = world.repository("lamp").await;
    let second = world.now().after(SECOND);
    let late = world
        .work_with(&repository, ROLE, 0, |a| a.created_at = second)
        .await
        .id;
    let early = world.work(&repository, ROLE).await.id;
    let same = world.work(&repository, ROLE).await.id;
    assert_eq!(world.claim_ids(ROLE, 9).await, [early, same, late]);
}

pub(crate) async fn an_attempt_waits_for_its_not_before(world: &World) {
    let repository = world.repository("lamp").await;
    let due = world.now().after(SECOND);
    let attempt = world
        .work_with(&repository, ROLE, 0, |a| a.not_before = Some(due))
        .await;
    world.advance(SECOND - Duration::from_micros(1));
    assert_eq!(world.claim_ids(ROLE, 1).await, []);
    world.advance(Duration::from_micros(1));
    assert_eq!(world.claim_ids(ROLE, 1).await, [attempt.id]);
}

pub(crate) async fn a_workflow_that_is_not_in_the_state_of_the_role_is_left(world: &World) {
    let repository = world.repository("lamp").await;
    for &role in Role::ALL {
        let mut fitting = Vec::new();
        for &state in State::ALL {
            let workflow = world.workflow(&repository, state).await;
            let attempt = world.new_attempt(&workflow, role);
            world.insert_attempt(&attempt, 0).await;
            let is_right = match role {
                Role::Ci => state == State::AwaitingCi,
                _ => state.role() == Some(role),
            };
            if is_right {
                fitting.push(attempt.id);
            }
        }
        assert_eq!(world.claim_ids(role, 99).await, fitting, "{role}");
    }
}

pub(crate) async fn a_workflow_without_a_head_is_left(world: &World) {
    let repository = world.repository("lamp").await;
    let mut headless = progress(State::Reviewing);
    headless.head = None;
    let workflow = world.new_workflow(repository.id, headless);
    world.insert_workflow(&workflow).await;
    world
        .insert_attempt(&world.new_attempt(&workflow, ROLE), 0)
        .await;
    assert_eq!(world.claim_ids(ROLE, 1).await, []);
}

async fn check_attempt(world: &World, workflow: &Workflow, name: &str, head: u32) -> AttemptId {
    let mut check = world.new_check(workflow, name, 1);
    check.commit = commit(head);
    world.insert_check(&check).await;
    let mut attempt = world.new_attempt(workflow, Role::Ci);
    attempt.subject = Subject::Check(check.id);
    world.insert_attempt(&attempt, 0).await;
    attempt.id
}

pub(crate) async fn checks_run_while_ci_is_awaited(world: &World) {
    let repository = world.repository("lamp").await;
    let workflow = world.workflow(&repository, State::AwaitingCi).await;
    let a = check_attempt(world, &workflow, "a", 1).await;
    let b = check_attempt(world, &workflow, "b", 1).await;
    let reviewing = world.workflow(&repository, State::Reviewing).await;
    check_attempt(world, &reviewing, "a", 1).await;
    let claimed = world
        .claim(&world.request(
            vec![Offer {
                profile: String::new(),
                ..offer(Role::Ci)
            }],
            9,
        ))
        .await;
    let ids: Vec<AttemptId> = claimed.iter().map(|c| c.attempt.id).collect();
    assert_eq!(ids, [a, b]);
    assert!(claimed.iter().all(|c| c.lease.profile.is_empty()));
}

pub(crate) async fn checks_of_an_earlier_head_are_left(world: &World) {
    let repository = world.repository("lamp").await;
    let workflow = world.workflow(&repository, State::AwaitingCi).await;
    check_attempt(world, &workflow, "a", 2).await;
    let b = check_attempt(world, &workflow, "b", 1).await;
    assert_eq!(world.claim_ids(Role::Ci, 9).await, [b]);
}

pub(crate) async fn a_kill_budget_takes_a_third_at_most(world: &World) {
    let repository = world.repository("lamp").await;
    let attempt = world
        .work_with(&repository, ROLE, 0, |a| a.lock_ttl_seconds = 90)
        .await;
    let mut request = world.request(vec![offer(ROLE)], 1);
    request.offers[0].kill_budget = Duration::from_secs(30) + Duration::from_nanos(1);
    assert!(!fits_kill_budget(90, request.offers[0].kill_budget));
    assert_eq!(world.claim(&request).await, []);
    request.offers[0].kill_budget = Duration::from_secs(30);
    assert!(fits_kill_budget(90, request.offers[0].kill_budget));
    assert_eq!(world.claim(&request).await[0].attempt.id, attempt.id);
}

pub(crate) async fn tiers_and_roles_must_be_offered(world: &World) {
    let repository = world.repository("lamp").await;
    world.work(&repository, Role::Implementer).await;
    let attempt = world.work_with(&repository, ROLE, 0, |a| a.tier = 2).await;
    let mut request = world.request(vec![offer(ROLE)], 9);
    request.offers[0].tiers = vec![1, 3];
    assert_eq!(world.claim(&request).await, []);
    request.offers[0].tiers = vec![3, 2];
    let claimed = world.claim(&request).await;
    assert_eq!(claimed.len(), 1);
    assert_eq!(claimed[0].attempt.id, attempt.id);
    assert_eq!(world.claim(&world.request(Vec::new(), 9)).await, []);
}

pub(crate) async fn the_first_offer_that_fits_is_used(world: &World) {
    let repository = world.repository("lamp").await;
    world.work(&repository, ROLE).await;
    let named = |profile: &str, role: Role, tiers: Vec<u32>| Offer {
        profile: profile.to_owned(),
        tiers,
        ..offer(role)
    };
    let offers = vec![
        named("other role", Role::Implementer, vec![]),
        named("other tier", ROLE, vec![3]),
        Offer {
            kill_budget: Duration::from_secs(3600),
            ..named("slow", ROLE, vec![1])
        },
        named("right", ROLE, vec![1]),
        named("also right", ROLE, vec![]),
    ];
    let claimed = world.claim(&world.request(offers, 1)).await;
    assert_eq!(claimed[0].lease.profile, "right");
}

pub(crate) async fn a_repeated_request_answers_the_same_and_counts(world: &World) {
    let repository = world.repository("lamp").await;
    for _ in 0..2 {
        world.work(&repository, ROLE).await;
    }
    let mut request = world.request(vec![offer(ROLE)], 2);
    let first = world.claim(&request).await;
    assert!(first.iter().all(|claimed| !claimed.is_repeated));
    let third = world.work(&repository, ROLE).await.id;
    request.nonces = vec![world.nonce(), world.nonce()];
    world.advance(SECOND);
    let mut again = world.claim(&request).await;
    assert!(again.iter().all(|claimed| claimed.is_repeated));
    for claimed in &mut again {
        claimed.is_repeated = false;
    }
    assert_eq!(again, first);
    // A third slot under the same request gets new work behind the repeated.
    request.nonces.push(world.nonce());
    let more = world.claim(&request).await;
    assert_eq!(more.len(), 3);
    assert!(more[1].is_repeated && !more[2].is_repeated);
    assert_eq!(more[2].attempt.id, third);
    // What has ended is not answered again.
    unfinished(world, &first[0], AttemptStatus::Succeeded).await;
    assert_eq!(world.claim(&request).await.len(), 2);
}

pub(crate) async fn another_request_or_owner_gets_other_work(world: &World) {
    let repository = world.repository("lamp").await;
    for _ in 0..3 {
        world.work(&repository, ROLE).await;
    }
    let request = world.request(vec![offer(ROLE)], 1);
    let mut ids = vec![world.claim(&request).await[0].attempt.id];
    let mut other_request = request.clone();
    other_request.request = RequestId(world.id());
    let mut other_owner = request.clone();
    other_owner.instance = InstanceId(world.id());
    for request in [other_request, other_owner] {
        let claimed = world.claim(&request).await;
        assert!(!claimed[0].is_repeated);
        assert!(!ids.contains(&claimed[0].attempt.id));
        ids.push(claimed[0].attempt.id);
    }
}

pub(crate) async fn fences_grow_and_never_restart(world: &World) {
    let repository = world.repository("lamp").await;
    let attempt = world.work(&repository, ROLE).await;
    for n in 1..=3 {
        let claimed = world.claim(&world.request(vec![offer(ROLE)], 1)).await;
        assert_eq!(claimed[0].attempt.id, attempt.id);
        assert_eq!(claimed[0].lease.key.fence, Fence(n));
        assert_eq!(claimed[0].attempt.fence, Fence(n));
        assert_eq!(u64::from(claimed[0].attempt.pickup_count), n);
        unfinished(world, &claimed[0], AttemptStatus::Pending).await;
    }
}

pub(crate) async fn a_lease_is_written_with_the_attempt(world: &World) {
    let repository = world.repository("lamp").await;
    let mut attempt = world.work(&repository, ROLE).await;
    world.advance(SECOND);
    let request = world.request(vec![offer(ROLE)], 1);
    let claimed = world.claim(&request).await.pop().unwrap();
    attempt.status = AttemptStatus::InProgress;
    attempt.fence = Fence(1);
    attempt.pickup_count = 1;
    attempt.started_at = Some(world.now());
    assert_eq!(claimed.attempt, attempt);
    let lease = &claimed.lease;
    assert_eq!(lease.key.nonce, request.nonces[0]);
    assert_eq!(
        (lease.workflow, lease.owner),
        (attempt.workflow, request.instance)
    );
    assert_eq!((lease.worker, lease.ttl_seconds), (request.worker, 180));
    assert_eq!(lease.profile, "default");
    assert_eq!(
        (lease.leased_at, lease.heartbeat_at),
        (world.now(), world.now())
    );
    assert!(!lease.is_unconfirmed);
    let row = world.store().attempt(attempt.id).await.unwrap().unwrap();
    assert_eq!(row.attempt, attempt);
    assert_eq!(row.worker, Some(request.worker));
    let read = world.tx().await.lease(attempt.id).await.unwrap();
    assert_eq!(read.as_ref(), Some(lease));
}

pub(crate) async fn those_that_do_not_fit_hold_up_nobody(world: &World) {
    let (one, two) = (world.repository("one").await, world.repository("two").await);
    for repository in [&one, &two] {
        for _ in 0..100 {
            world.work_with(repository, ROLE, 9, |a| a.tier = 3).await;
            world.work_with(repository, ROLE, 0, |a| a.tier = 3).await;
        }
    }
    let a = world.work(&one, ROLE).await.id;
    let b = world.work(&one, ROLE).await.id;
    let c = world.work(&two, ROLE).await.id;
    let mut request = world.request(vec![offer(ROLE)], 9);
    request.offers[0].tiers = vec![1];
    let claimed = world.claim(&request).await;
    let ids: Vec<AttemptId> = claimed.iter().map(|c| c.attempt.id).collect();
    assert_eq!(ids, [a, c, b]);
}

pub(crate) async fn no_more_is_leased_than_nonces_are_given(world: &World) {
    let repository = world.repository("lamp").await;
    for _ in 0..40 {
        world.work(&repository, ROLE).await;
    }
    assert_eq!(world.claim_ids(ROLE, 0).await, []);
    assert_eq!(world.claim_ids(ROLE, 35).await.len(), 35);
    assert_eq!(world.claim_ids(ROLE, 35).await.len(), 5);
    assert_eq!(world.claim_ids(ROLE, 35).await, []);
}

pub(crate) async fn a_drained_or_dead_worker_gets_what_it_has_and_no_more(world: &World) {
    let repository = world.repository("lamp").await;
    for _ in 0..3 {
        world.work(&repository, ROLE).await;
    }
    let worker = world.new_worker("w1");
    world.put_worker(&worker).await;
    let mut first = world.request(vec![offer(ROLE)], 1);
    first.worker = worker.id;
    let held = world.claim(&first).await;
    let mut second = world.request(vec![offer(ROLE)], 1);
    second.worker = worker.id;

    let mut tx = world.tx().await;
    tx.set_worker_drain(worker.id, Some(&world.drain()))
        .await
        .unwrap();
    tx.commit().await.unwrap();
    first.nonces = vec![world.nonce(), world.nonce()];
    assert_eq!(world.claim(&first).await[0].lease, held[0].lease);
    assert_eq!(world.claim(&first).await.len(), 1);
    assert_eq!(world.claim(&second).await, []);

    let mut tx = world.tx().await;
    tx.set_worker_drain(worker.id, None).await.unwrap();
    tx.set_worker_declared_dead(worker.id, world.now())
        .await
        .unwrap();
    tx.commit().await.unwrap();
    assert_eq!(world.claim(&second).await, []);
    world.put_worker(&worker).await;
    assert_eq!(world.claim(&second).await.len(), 1);
}
