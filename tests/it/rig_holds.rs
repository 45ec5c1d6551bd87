//! Holds: what a provider's refusal does to attempts, to accounts, and to who asks why nothing moves.

use std::time::Duration;

use pointsman_master::{
    clock::Clock,
    domain::{
        attempt::{Attempt, AttemptStatus, InfrastructureClass, MAX_UNCHARGED_ERRORS, Role},
        hold::{HOLDS, Hold, HoldSubject},
        ids::WorkflowId,
        time::Timestamp,
        transitions::State,
    },
    service::{Change, Completed, Completion, Declaration, Grant},
};
use pointsman_tests::rig::{FakeWorker, PERSON, Rig, faulty_store::Loss, worker::ready};

/// Workflows in ANALYZING whose attempts wait, and a worker of account `account`.
async fn waiting(n: usize) -> (Rig, FakeWorker, Vec<WorkflowId>) {
    let rig = Rig::new().await;
    let worker = FakeWorker::registered(&rig, "w").await;
    let mut ids = Vec::new();
    for _ in 0..n {
        ids.push(rig.submit("Make it work").await);
    }
    (rig, worker, ids)
}

async fn worker_of(rig: &Rig, name: &str, account: &str) -> FakeWorker {
    let mut worker = FakeWorker::new(rig, name);
    worker.row.profiles[0].account = account.to_owned();
    worker.register(rig, &[]).await.expect("it is registered");
    worker
}

fn refusal(class: InfrastructureClass, reset_at: Option<Timestamp>) -> Completion {
    Completion::InfrastructureError {
        class,
        message: "no".to_owned(),
        reset_at,
    }
}

/// Leases the one attempt that there must be, and is refused by the provider.
async fn refused(rig: &Rig, worker: &FakeWorker, class: InfrastructureClass) -> Grant {
    let grants = worker.lease(rig, 1).await;
    let grant = grants.into_iter().next().expect("there is one to lease");
    worker.fail(rig, &grant, class).await;
    grant
}

async fn holds(rig: &Rig) -> Vec<Hold> {
    rig.service()
        .list_holds(None, 100)
        .await
        .expect("they are listed")
}

async fn attempt(rig: &Rig, grant: &Grant) -> Attempt {
    let row = rig
        .store
        .attempt(grant.attempt.id)
        .await
        .expect("it is read");
    row.expect("it is there").attempt
}

async fn kinds(rig: &Rig) -> Vec<String> {
    let events = rig
        .store
        .events(None, 0, 10_000)
        .await
        .expect("they are read");
    let kinds = events.into_iter().map(|event| event.kind);
    kinds.filter(|kind| kind.starts_with("hold_")).collect()
}

#[tokio::test]
async fn a_quota_holds_the_account_everywhere_until_its_reset_and_is_not_charged() {
    let (rig, worker, _) = waiting(2).await;
    let same = worker_of(&rig, "same", "account").await;
    let other = worker_of(&rig, "other", "another").await;
    let grant = worker.lease(&rig, 1).await.remove(0);
    let reset_at = rig.clock.now().after(Duration::from_secs(7200));
    let said = refusal(InfrastructureClass::ProviderQuota, Some(reset_at));
    let said = worker.complete(&rig, grant.lease.key, said).await;
    assert_eq!(said.expect("it is taken"), Completed::Now);

    let pending = attempt(&rig, &grant).await;
    let told = (
        pending.status,
        pending.pickup_count,
        pending.uncharged_errors,
    );
    assert_eq!(told, (AttemptStatus::Pending, 0, 1));
    let held = holds(&rig).await;
    assert_eq!(held.len(), 1);
    assert_eq!(held[0].subject, HoldSubject::Account("account".to_owned()));
    assert_eq!((held[0].until, held[0].failures), (reset_at, 1));
    rig.advance(Duration::from_secs(7199));
    for held in [&worker, &same] {
        assert_eq!(held.lease(&rig, 9).await.len(), 0);
    }
    assert_eq!(other.lease(&rig, 9).await.len(), 2);
    assert_eq!(kinds(&rig).await, ["hold_placed"]);
    assert_eq!(rig.history().await.faults(), Vec::<String>::new());
}

#[tokio::test]
async fn the_verdict_of_the_canary_lifts_the_hold() {
    let (rig, worker, _) = waiting(3).await;
    refused(&rig, &worker, InfrastructureClass::ProviderOutage).await;
    rig.advance(HOLDS.base);
    let canary = worker.lease_one(&rig).await;
    assert_eq!(worker.lease(&rig, 9).await.len(), 0);
    worker.say(&rig, &canary, ready()).await;
    assert_eq!(holds(&rig).await, []);
    assert_eq!(worker.lease(&rig, 9).await.len(), 3);
    assert_eq!(kinds(&rig).await, ["hold_placed", "hold_lifted"]);
}

#[tokio::test]
async fn the_failure_of_the_canary_counts_on_the_hold_and_renews_it_for_longer() {
    let (rig, worker, _) = waiting(1).await;
    let grant = refused(&rig, &worker, InfrastructureClass::ProviderQuota).await;
    for failures in 2..14 {
        let hold = holds(&rig).await.remove(0);
        rig.advance(hold.until.since(rig.clock.now()));
        refused(&rig, &worker, InfrastructureClass::ProviderQuota).await;
        let pending = attempt(&rig, &grant).await;
        let told = (
            pending.status,
            pending.pickup_count,
            pending.uncharged_errors,
        );
        assert_eq!(
            told,
            (AttemptStatus::Pending, 0, 1),
            "it is the first that counts"
        );
        let renewed = holds(&rig).await.remove(0);
        assert_eq!(renewed.failures, failures);
        assert_eq!(
            renewed.until,
            rig.clock.now().after(HOLDS.ceiling(failures))
        );
    }
}

#[tokio::test]
async fn the_death_of_the_canary_lets_another_one_try() {
    let (rig, worker, _) = waiting(2).await;
    refused(&rig, &worker, InfrastructureClass::ProviderQuota).await;
    rig.advance(HOLDS.base);
    worker.lease_one(&rig).await;
    let other = worker_of(&rig, "other", "account").await;
    assert_eq!(other.lease(&rig, 9).await.len(), 0);
    let dead = rig
        .service()
        .declare_worker_dead(worker.row.id, Declaration::Forced, "it burnt", PERSON)
        .await;
    assert!(dead.expect("it is declared").is_changed());
    let canary = other.lease_one(&rig).await;
    assert!(holds(&rig).await[0].is_canary(canary.lease.key));
    // Nor does a crash tell anything of the provider.
    other
        .fail(&rig, &canary, InfrastructureClass::Crashed)
        .await;
    assert_eq!(holds(&rig).await[0].failures, 1);
    rig.advance(Duration::from_secs(700));
    other.lease_one(&rig).await;
}

#[tokio::test]
async fn bad_credentials_hold_the_profile_on_their_worker_alone() {
    let (rig, worker, _) = waiting(1).await;
    let grant = refused(&rig, &worker, InfrastructureClass::BadCredentials).await;
    rig.advance(Duration::from_secs(30));
    assert_eq!(worker.lease(&rig, 9).await.len(), 0);
    let same = worker_of(&rig, "same", "account").await;
    let again = same.lease_one(&rig).await;
    assert_eq!(again.attempt.id, grant.attempt.id);
    let subject = HoldSubject::Profile {
        worker: worker.row.id,
        profile: "fake".to_owned(),
    };
    assert_eq!(holds(&rig).await[0].subject, subject);
}

#[tokio::test]
async fn denied_tools_hold_nobody_and_are_borne_ten_times() {
    let (rig, worker, ids) = waiting(1).await;
    for n in 1..=MAX_UNCHARGED_ERRORS {
        assert_eq!(rig.state(ids[0]).await, State::Analyzing, "{n}");
        refused(&rig, &worker, InfrastructureClass::PermissionDenied).await;
        assert_eq!(holds(&rig).await, []);
        rig.advance(Duration::from_secs(700));
        worker.beat(&rig, &[]).await.expect("it beats");
    }
    assert_eq!(rig.state(ids[0]).await, State::Stuck);
}

#[tokio::test]
async fn a_hold_is_released_by_operators_and_again_without_harm() {
    let (rig, worker, _) = waiting(1).await;
    refused(&rig, &worker, InfrastructureClass::ProviderQuota).await;
    rig.advance(Duration::from_secs(10));
    assert_eq!(worker.lease(&rig, 9).await.len(), 0);
    let hold = holds(&rig).await.remove(0);
    let release = async || {
        rig.service()
            .release_hold(hold.id, "it was a mistake", PERSON)
            .await
    };
    let Ok(Change::Changed(Some(released))) = release().await else {
        panic!("it is released");
    };
    assert_eq!(released, hold);
    assert_eq!(release().await.expect("it is so"), Change::Unchanged(None));
    worker.lease_one(&rig).await;
    assert_eq!(kinds(&rig).await, ["hold_placed", "hold_released"]);
    let events = rig
        .store
        .events(None, 0, 10_000)
        .await
        .expect("they are read");
    let event = events.iter().find(|event| event.kind == "hold_released");
    let event = event.expect("it is told");
    assert_eq!(
        (event.actor.as_str(), event.reason.as_str()),
        (PERSON, "it was a mistake")
    );
    assert_eq!(event.detail["account"], "account");
}

#[tokio::test]
async fn a_refusal_whose_answer_was_lost_places_one_hold() {
    let (rig, worker, _) = waiting(1).await;
    let grant = worker.lease_one(&rig).await;
    let key = grant.lease.key;
    let said = async || {
        let said = refusal(InfrastructureClass::ProviderQuota, None);
        worker.complete(&rig, key, said).await
    };
    rig.faults.fail_next(Loss::Before);
    said().await.expect_err("the write was lost");
    assert_eq!(holds(&rig).await, []);
    rig.faults.fail_next(Loss::After);
    said().await.expect_err("the answer was lost");
    assert_eq!(said().await.expect("it is known"), Completed::Before);
    assert_eq!(holds(&rig).await.len(), 1);
    assert_eq!(attempt(&rig, &grant).await.uncharged_errors, 1);
}

#[tokio::test]
async fn who_asks_why_nothing_moves_is_told_of_holds_and_of_workers_that_are_missing() {
    let (rig, worker, ids) = waiting(1).await;
    let asked = async || {
        let waiting = rig.view(ids[0]).await.waiting;
        waiting.expect("it waits")
    };
    assert_eq!(
        asked().await.text,
        "for a worker to take an estimator attempt; 1 live worker takes it, given a free slot"
    );
    refused(&rig, &worker, InfrastructureClass::ProviderQuota).await;
    rig.advance(Duration::from_secs(20));
    let told = asked().await;
    assert!(
        told.text
            .contains("account account is held (provider_quota)"),
        "{told:?}"
    );
    assert_eq!(told.next_look_at, Some(holds(&rig).await[0].until));
    // Somebody else could.
    let other = worker_of(&rig, "other", "another").await;
    assert!(!asked().await.text.contains("held"), "{:?}", asked().await);
    rig.advance(Duration::from_secs(30));
    let told = asked().await;
    assert!(told.text.contains("no worker is alive"), "{told:?}");
    other.beat(&rig, &[]).await.expect("it beats");
    assert!(
        !asked().await.text.contains("no worker"),
        "{:?}",
        asked().await
    );
}

#[tokio::test]
async fn figures_tell_what_waits_and_what_nobody_takes() {
    let (rig, worker, _) = waiting(2).await;
    let stats = rig.service().stats().await.expect("it is counted");
    assert_eq!(stats.workflows, [(State::Analyzing, 2)]);
    assert_eq!((stats.pending.len(), stats.pending[0].n), (1, 2));
    assert_eq!(stats.pending[0].role, Role::Estimator);
    assert_eq!(stats.unschedulable, []);
    assert_eq!((stats.workers.n_alive, stats.workers.n_silent), (1, 0));
    refused(&rig, &worker, InfrastructureClass::ProviderQuota).await;
    rig.advance(Duration::from_secs(31));
    let stats = rig.service().stats().await.expect("it is counted");
    assert_eq!(stats.n_holds, 1);
    assert_eq!((stats.workers.n_alive, stats.workers.n_silent), (0, 1));
    assert_eq!(stats.unschedulable, stats.pending);
    rig.advance(Duration::from_secs(24 * 3600));
    let stats = rig.service().stats().await.expect("it is counted");
    assert_eq!((stats.workers.n_alive, stats.workers.n_silent), (0, 0));
}
