//! Failures that others have reported in public, played against a whole master. `docs/public-failures.md`
//! lists them all, with those that are tested elsewhere.

use std::{fs, time::Duration};

use pointsman_master::{
    domain::{
        attempt::{AttemptStatus, InfrastructureClass, Role},
        ids::CommitId,
        policy::Policy,
        transitions::State,
        verdict::Verdict,
    },
    service::{Completion, Error, Grant, Stop},
    sweeps::Sweep,
};
use pointsman_tests::rig::{
    BASE, FakeWorker, Rig,
    drive::failed,
    history::History,
    run::Errand,
    worker::{approve, changed, check_result, ready},
};

const SHARED: &str = "shared.txt";

fn crashed() -> Completion {
    infrastructure(InfrastructureClass::Crashed)
}

fn infrastructure(class: InfrastructureClass) -> Completion {
    Completion::InfrastructureError {
        class,
        message: "as reported".to_owned(),
        reset_at: None,
    }
}

/// What a worker does where all goes well.
async fn well(rig: &Rig, worker: &FakeWorker, grant: &Grant) -> Completion {
    Completion::Verdict(match grant.attempt.role {
        Role::Estimator => ready(),
        Role::Implementer => changed(&worker.work(rig, grant).await),
        Role::Reviewer => approve(),
        Role::ConflictResolver => Verdict::Resolved { commit: None },
        Role::Escalator => Verdict::Retry {
            plan: "again".to_owned(),
        },
        Role::Ci => return check_result(0),
    })
}

/// Opens an issue and goes on until all is over, with a worker that does in each role what `does` says, or
/// else well. Returns how many leases that took.
async fn play(rig: &Rig, does: impl AsyncFn(&FakeWorker, &Grant) -> Option<Completion>) -> u32 {
    let worker = FakeWorker::registered(rig, "w").await;
    rig.submit("Make it work").await;
    let policy = Policy::default();
    let bound = 2 * policy.max_attempts() * policy.max_pickups;
    let mut leases = 0;
    loop {
        rig.turn().await;
        for grant in worker.lease(rig, 10).await {
            leases += 1;
            let completion = match does(&worker, &grant).await {
                Some(completion) => completion,
                None => well(rig, &worker, &grant).await,
            };
            let key = grant.lease.key;
            let said = worker.complete(rig, key, completion).await;
            said.expect("the outcome is taken");
        }
        let rows = rig.workflows().await;
        if rows.iter().all(|row| row.workflow.state().is_terminal()) {
            return leases;
        }
        assert!(leases <= bound, "{leases} leases, and no end");
        rig.advance(Duration::from_secs(60));
    }
}

async fn check_is_stuck(rig: &Rig) -> History {
    let history = rig.history().await;
    let last = history.workflows.last().expect("there is a workflow");
    assert_eq!(last.workflow.state(), State::Stuck);
    assert_eq!(history.faults(), Vec::<String>::new());
    assert_eq!(history.loose_ends(), Vec::<String>::new());
    history
}

/// hojinzs/github-symphony#783: retries bypassed the budget of failures, and a fresh claim reset its count.
#[tokio::test]
async fn a_worker_that_always_fails_after_dirtying_the_tree_stops() {
    let rig = Rig::new().await;
    let leases = play(&rig, async |worker, grant| match grant.attempt.role {
        Role::Implementer => {
            worker.work(&rig, grant).await;
            Some(crashed())
        }
        _ => None,
    })
    .await;
    assert_eq!(leases, 1 + Policy::default().max_pickups);
    check_is_stuck(&rig).await;
}

/// hojinzs/github-symphony#783. A commit that is accepted is progress, and yet no counter goes back for it.
#[tokio::test]
async fn commits_that_never_turn_green_come_to_an_end() {
    let rig = Rig::new().await;
    play(&rig, async |_, grant| {
        (grant.attempt.role == Role::Ci).then(|| check_result(1))
    })
    .await;
    let history = check_is_stuck(&rig).await;
    let child = &history.workflows[1].workflow;
    let attempts = history.attempts_of(child.id);
    let n = attempts.filter(|row| row.attempt.role == Role::Implementer);
    // Two rounds a tier, and the first try of each higher tier.
    assert_eq!(n.count(), 2 + 3 + 3);
    assert_eq!(child.progress().tier, 3);
}

/// anthropics/claude-plugins-official#1699: a loop ran for hours, since the word that ends it never came.
#[tokio::test]
async fn a_verdict_that_never_comes_is_awaited_as_often_as_the_bound_says() {
    for class in [
        InfrastructureClass::NoValidResult,
        InfrastructureClass::Silent,
        InfrastructureClass::TimedOut,
    ] {
        let rig = Rig::new().await;
        let leases = play(&rig, async |_, _| Some(infrastructure(class))).await;
        assert_eq!(leases, Policy::default().max_pickups, "{class}");
        check_is_stuck(&rig).await;
    }
}

/// Yeachan-Heo/oh-my-claudecode#2090: a limit was raised each time that it was reached.
#[tokio::test]
async fn no_limit_grows_by_being_reached() {
    let rig = Rig::new().await;
    play(&rig, async |_, grant| {
        (grant.attempt.role == Role::Implementer).then(|| Completion::Verdict(failed()))
    })
    .await;
    let history = check_is_stuck(&rig).await;
    let policy = Policy::default();
    let implementers = history
        .attempts
        .iter()
        .filter(|row| row.attempt.role == Role::Implementer);
    assert_eq!(implementers.count(), policy.max_tier as usize);
}

/// code-yeongyu/oh-my-openagent#1921: the agent said at once that it was done, without any work.
#[tokio::test]
async fn saying_that_it_is_done_convinces_nobody_but_ci_and_review() {
    let rig = Rig::new().await;
    play(&rig, async |_, grant| match grant.attempt.role {
        Role::Implementer => Some(Completion::Verdict(changed(&grant.checkout_commit))),
        Role::Ci => Some(check_result(1)),
        _ => None,
    })
    .await;
    let history = check_is_stuck(&rig).await;
    assert!(history.workflows.iter().all(|row| {
        let state = row.workflow.state();
        state == State::Stuck || state == State::CreatedPr
    }));
    assert_eq!(rig.remote.merges(BASE).await, []);
}

/// kubernetes-sigs/prow#337: it was merged while a check that was asked for again had not started.
#[tokio::test]
async fn a_rerun_that_is_asked_for_is_pending_until_it_has_run() {
    let policy = Policy {
        flaky_checks: vec!["*".to_owned()],
        ..Policy::default()
    };
    let rig = Rig::with(policy).await;
    let worker = FakeWorker::registered(&rig, "w").await;
    let id = rig.pull_request_in(&worker, State::AwaitingCi).await;
    rig.check(&worker, id, 1).await;
    assert_eq!(rig.count_events(id, "ci_flake_retry").await, 1);
    // Asked for; carried out, and nobody has started it; started.
    rig.poll().await;
    assert_eq!(rig.state(id).await, State::AwaitingCi);
    rig.carry_out().await;
    rig.poll().await;
    assert_eq!(rig.state(id).await, State::AwaitingCi);
    let grant = rig.leased(&worker, id, Role::Ci).await;
    rig.advance(Duration::from_secs(120));
    rig.poll().await;
    assert_eq!(rig.state(id).await, State::AwaitingCi);
    worker.conclude(&rig, &grant, 0).await;
    rig.poll().await;
    assert_eq!(rig.state(id).await, State::Reviewing);
}

/// fabrik ADR-1364, renovate#6690: a branch was brought up to date with each commit of a base that moves
/// faster than its checks, for ever.
#[tokio::test]
async fn a_base_that_moves_at_every_step_costs_no_push() {
    let rig = Rig::new().await;
    rig.submit("Make it work").await;
    let mut errand = Errand::new(&rig);
    let mut heads = Vec::new();
    for n in 0..200 {
        errand.step(&rig).await;
        rig.remote.add_to(BASE, &format!("by others, {n}")).await;
        let rows = rig.workflows().await;
        let Some(row) = rows.get(1) else { continue };
        let branch = &row.workflow.head_ref;
        let head = rig.remote.tip(branch).await;
        if heads.last() != head.as_ref() {
            heads.extend(head);
        }
        if row.workflow.state().is_terminal() {
            break;
        }
    }
    let history = rig.history().await;
    assert_eq!(history.workflows[1].workflow.state(), State::Merged);
    // The first is red, and the second is green.
    assert_eq!(heads.len(), 2, "{heads:?}");
    assert_eq!(history.faults(), Vec::<String>::new());
}

/// fabrik ADR-1554, renovate#20449, the other half: each move of the base conflicts with the head.
#[tokio::test]
async fn a_base_that_conflicts_at_every_step_ends_after_a_few_pushes() {
    let rig = Rig::new().await;
    let n_pushes = std::cell::Cell::new(0);
    play(&rig, async |worker, grant| {
        let role = grant.attempt.role;
        let tip = rig.remote.tip(BASE).await.expect("it is there");
        let write = async |parents: &[&CommitId]| {
            n_pushes.set(n_pushes.get() + 1);
            let text = format!("line {}\n", n_pushes.get());
            rig.remote.commit_of(parents, &[(SHARED, &text)]).await
        };
        let verdict = match role {
            Role::Implementer | Role::ConflictResolver => {
                let commit = write(&[&grant.checkout_commit, &tip]).await;
                let push_ref = grant.lease.key.push_ref();
                rig.remote.push(&commit, &push_ref).await;
                match role {
                    Role::Implementer => changed(&commit),
                    _ => Verdict::Resolved {
                        commit: Some(commit),
                    },
                }
            }
            _ => return Some(well(&rig, worker, grant).await),
        };
        let theirs = rig
            .remote
            .commit_of(&[&tip], &[(SHARED, &format!("base {tip}\n"))])
            .await;
        rig.remote.put(BASE, &theirs).await;
        Some(Completion::Verdict(verdict))
    })
    .await;
    check_is_stuck(&rig).await;
    assert!(n_pushes.get() <= 6, "{} pushes", n_pushes.get());
    assert_eq!(rig.remote.merges(BASE).await, []);
}

/// Untrivial-ai/agent-orchestrator#413, #700: the reaction to a red check was lost with the process that it
/// was told to.
#[tokio::test]
async fn a_red_check_is_answered_by_the_master_after_the_one_that_saw_it() {
    let mut rig = Rig::new().await;
    let worker = FakeWorker::registered(&rig, "w").await;
    let id = rig.pull_request_in(&worker, State::AwaitingCi).await;
    let grant = rig.leased(&worker, id, Role::Ci).await;
    worker.conclude(&rig, &grant, 1).await;
    rig.restart().await;
    assert_eq!(rig.state(id).await, State::AwaitingCi);
    rig.turn().await;
    assert_eq!(rig.state(id).await, State::Implementing);
    rig.restart().await;
    rig.turn().await;
    let next = rig.leased(&worker, id, Role::Implementer).await;
    assert_eq!(next.workflow.progress().facts.ci_failures.len(), 1);
}

/// rust-lang/homu#178, bors#502, #503: whether it could be merged was not known yet, and that stalled the
/// queue, or was taken for a conflict.
#[tokio::test]
async fn what_the_forge_does_not_know_is_asked_again_and_is_no_conflict() {
    let rig = Rig::new().await;
    let worker = FakeWorker::registered(&rig, "w").await;
    let id = rig.pull_request_in(&worker, State::AwaitingCi).await;
    let grant = rig.leased(&worker, id, Role::Ci).await;
    worker.conclude(&rig, &grant, 0).await;
    let (there, away) = (rig.remote.url(), format!("{}.away", rig.remote.url()));
    fs::rename(&there, &away).expect("the remote goes away");
    for _ in 0..5 {
        rig.poll().await;
        assert_eq!(rig.state(id).await, State::AwaitingCi);
        rig.advance(Duration::from_secs(240));
    }
    fs::rename(&away, &there).expect("the remote is back");
    rig.poll().await;
    assert_eq!(rig.state(id).await, State::Reviewing);
    assert_eq!(rig.count_events(id, "conflict_detected").await, 0);

    // In review likewise: what can't be seen changes nothing.
    fs::rename(&there, &away).expect("the remote goes away");
    let _unseen = rig.master.reconciler.run_once().await;
    assert_eq!(rig.state(id).await, State::Reviewing);
    fs::rename(&away, &there).expect("the remote is back");
    rig.reconcile().await;
    assert_eq!(rig.state(id).await, State::Reviewing);
    assert_eq!(rig.history().await.faults(), Vec::<String>::new());
}

/// bors#608, fabrik #1614 / ADR-1615: a pull request was found by a marker in its text, and another one was
/// closed by its own prose.
#[tokio::test]
async fn no_text_of_an_item_or_of_a_commit_says_what_it_belongs_to() {
    let rig = Rig::new().await;
    let worker = FakeWorker::registered(&rig, "w").await;
    let id = rig.pull_request_in(&worker, State::Reviewing).await;
    let row = rig.row(id).await;
    let head = row.workflow.progress().head.clone().expect("it has one");
    // A commit that claims to be the merge, and an issue that claims to be the pull request.
    let number = row.workflow.number;
    let claim = format!("Merge pull request #{number}: it\n\nPointsman-Head: {head}\n");
    rig.remote.add_to(BASE, &claim).await;
    let title = format!(
        "Merge pull request #{number} from {}",
        row.workflow.head_ref
    );
    let other = rig.submit(&title).await;
    rig.turn().await;
    assert_eq!(rig.state(id).await, State::Reviewing);
    let other = rig.row(other).await.workflow;
    assert_eq!(other.parent, None);
    assert_eq!(other.state(), State::Analyzing);
    assert_eq!(rig.workflows().await.len(), 3);
    assert_eq!(rig.row(id).await.workflow.progress().merged_commit, None);
}

/// hojinzs/github-symphony#517: a slow start was taken for a dead one, and the late worker went on beside
/// its replacement.
#[tokio::test]
async fn a_late_start_under_an_old_fence_is_told_to_stop_and_its_result_is_refused() {
    let rig = Rig::new().await;
    let slow = FakeWorker::registered(&rig, "slow").await;
    let id = rig.issue_in(&slow, State::Implementing).await;
    let late = rig.leased(&slow, id, Role::Implementer).await;
    rig.master.reaper.run_once().await.expect("it looks");
    rig.advance(Duration::from_secs(1080 + 6));
    rig.master.reaper.run_once().await.expect("it reaps");
    rig.advance(Duration::from_secs(3600));
    let other = FakeWorker::registered(&rig, "other").await;
    let replacement = rig.leased(&other, id, Role::Implementer).await;
    assert_eq!(replacement.attempt.id, late.attempt.id);

    let key = late.lease.key;
    let stops = slow.beat(&rig, &[key]).await.expect("the beat is taken");
    assert_eq!(stops, [Stop::LeaseLost { key }]);
    let commit = slow.work(&rig, &late).await;
    let before = rig.history().await;
    let said = slow.complete(&rig, key, Completion::Verdict(changed(&commit)));
    assert!(matches!(said.await, Err(Error::LeaseLost { .. })));
    assert_eq!(rig.history().await.events, before.events);
    let change = other.change(&rig, &replacement).await;
    rig.carry_out().await;
    assert_eq!(rig.state(id).await, State::CreatedPr);
    let branch = rig.row(id).await.workflow.head_ref.clone();
    assert_eq!(rig.remote.tip(&branch).await, Some(change));
    assert_eq!(rig.history().await.faults(), Vec::<String>::new());
}

/// stablyai/orca#18368, Untrivial-ai/agent-orchestrator#2501: a healthy worker was declared stalled, and
/// replaced without a word.
#[tokio::test]
async fn a_replacement_is_announced_and_linked_to_what_it_replaces() {
    let rig = Rig::new().await;
    let worker = FakeWorker::registered(&rig, "w").await;
    let id = rig.issue_in(&worker, State::Implementing).await;
    let silent = rig.leased(&worker, id, Role::Implementer).await;
    rig.master.reaper.run_once().await.expect("it looks");
    // Silence alone, for less than the time-to-live, is nothing.
    rig.advance(Duration::from_secs(1000));
    rig.master.reaper.run_once().await.expect("it reaps");
    assert_eq!(rig.count_events(id, "lock-ttl-expired").await, 0);
    rig.advance(Duration::from_secs(86));
    rig.master.reaper.run_once().await.expect("it reaps");
    let announced = rig.event(id, "lock-ttl-expired").await;
    assert_eq!(announced.attempt, Some(silent.attempt.id));
    rig.advance(Duration::from_secs(3600));
    let next = rig.leased(&worker, id, Role::Implementer).await;
    let leased = rig.event(id, "attempt_leased").await;
    assert_eq!(leased.attempt, Some(silent.attempt.id));
    assert_eq!(next.lease.key.fence.0, silent.lease.key.fence.0 + 1);
    let row = rig.store.attempt(silent.attempt.id).await;
    let row = row.expect("the store answers").expect("it is there");
    assert_eq!(row.attempt.status, AttemptStatus::InProgress);
    assert_eq!(row.attempt.pickup_count, 2);
}

/// rjmurillo/ai-agents#5486, melodic-software/claude-code-plugins#645: a push after the merge made the deleted
/// branch anew.
#[tokio::test]
async fn a_branch_that_was_merged_and_deleted_is_not_made_again_by_a_late_worker() {
    let rig = Rig::new().await;
    let worker = FakeWorker::registered(&rig, "w").await;
    let id = rig.pull_request_in(&worker, State::Implementing).await;
    let grant = rig.leased(&worker, id, Role::Implementer).await;
    let branch = rig.row(id).await.workflow.head_ref.clone();
    let head = rig.remote.tip(&branch).await.unwrap();
    let base = rig.remote.tip(BASE).await.unwrap();
    let merge = rig.remote.commit_of(&[&base, &head], &[]).await;
    rig.remote.put(BASE, &merge).await;
    rig.reconcile().await;
    assert_eq!(rig.state(id).await, State::Merged);
    rig.remote.delete(&branch).await;
    let refs = rig.remote.refs().await;

    let late = worker.finish(&rig, &grant).await;
    assert!(matches!(late, Err(Error::LeaseLost { .. })), "{late:?}");
    rig.carry_out().await;
    rig.reconcile().await;
    assert_eq!(rig.remote.refs().await, refs);
    assert_eq!(rig.state(id).await, State::Merged);
}
