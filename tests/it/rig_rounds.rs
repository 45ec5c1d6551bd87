//! Rounds with real git: conflicts with a base that moves, tiers that rise, reviews that want more.

use pointsman_master::{
    domain::{
        attempt::{AttemptStatus, InfrastructureClass, Role},
        ids::{CommitId, WorkflowId},
        policy::Policy,
        transitions::State,
        verdict::Verdict,
        workflow::Facts,
    },
    service::Grant,
    store::model::ProfileRow,
};
use pointsman_tests::rig::{
    BASE, FakeWorker, Rig,
    drive::failed,
    worker::{approve, changed},
};

/// The file that everybody changes.
const SHARED: &str = "shared.txt";

fn no_change() -> Verdict {
    Verdict::NoChange {
        reason: "it is all there".to_owned(),
    }
}

fn unresolved() -> Verdict {
    Verdict::Unresolved {
        reason: "both rename it".to_owned(),
    }
}

fn retry(plan: &str) -> Verdict {
    Verdict::Retry {
        plan: plan.to_owned(),
    }
}

fn request_changes(notes: &str) -> Verdict {
    Verdict::RequestChanges {
        notes: notes.to_owned(),
    }
}

/// One workflow after another, and the one worker that takes everything.
struct Scene {
    rig: Rig,
    worker: FakeWorker,
    id: WorkflowId,
}

impl Scene {
    async fn new(state: State) -> Self {
        Self::under(Policy::default(), state).await
    }

    async fn under(policy: Policy, state: State) -> Self {
        let rig = Rig::with(policy).await;
        let worker = FakeWorker::registered(&rig, "w").await;
        let id = rig.pull_request_in(&worker, state).await;
        Self { rig, worker, id }
    }

    /// A pull request that changes the shared file and waits for its checks.
    async fn with_a_change() -> Self {
        let scene = Self::new(State::Implementing).await;
        let grant = scene.leased(Role::Implementer).await;
        scene.change(&grant, &[], "ours\n").await;
        scene.stands(State::AwaitingCi).await;
        scene
    }

    async fn leased(&self, role: Role) -> Grant {
        self.rig.leased(&self.worker, self.id, role).await
    }

    async fn say(&self, grant: &Grant, verdict: Verdict) {
        self.worker.say(&self.rig, grant, verdict).await;
    }

    /// Leases the attempt of the role, and ends it so.
    async fn answer(&self, role: Role, verdict: Verdict) -> Grant {
        let grant = self.leased(role).await;
        self.say(&grant, verdict).await;
        grant
    }

    /// A commit on what was leased, with other parents too, that sets the shared file.
    async fn commit(&self, grant: &Grant, others: &[&CommitId], text: &str) -> CommitId {
        let mut parents = vec![&grant.checkout_commit];
        parents.extend(others);
        let commit = self.rig.remote.commit_of(&parents, &[(SHARED, text)]).await;
        let push_ref = grant.lease.key.push_ref();
        self.rig.remote.push(&commit, &push_ref).await;
        commit
    }

    /// Makes such a commit, and has the branch moved to it.
    async fn change(&self, grant: &Grant, others: &[&CommitId], text: &str) -> CommitId {
        let commit = self.commit(grant, others, text).await;
        self.say(grant, changed(&commit)).await;
        self.rig.carry_out().await;
        commit
    }

    /// Somebody else changes the shared file on the base branch.
    async fn base_moves(&self, text: &str) -> CommitId {
        let tip = self.rig.remote.tip(BASE).await.expect("it is there");
        let files = [(SHARED, text)];
        let commit = self.rig.remote.commit_of(&[&tip], &files).await;
        self.rig.remote.put(BASE, &commit).await;
        commit
    }

    async fn check(&self, exit_status: u32) {
        self.rig.check(&self.worker, self.id, exit_status).await;
    }

    #[track_caller]
    fn stands(&self, state: State) -> impl Future<Output = ()> {
        let at = std::panic::Location::caller();
        async move {
            let now = self.rig.state(self.id).await;
            assert_eq!(now, state, "at {at}");
        }
    }

    async fn facts(&self) -> Facts {
        let row = self.rig.row(self.id).await;
        row.workflow.progress().facts.clone()
    }

    async fn n_attempts(&self, role: Role) -> usize {
        let history = self.rig.history().await;
        let attempts = history.attempts_of(self.id);
        attempts.filter(|row| row.attempt.role == role).count()
    }

    async fn came_from(&self, event: &str) -> State {
        self.rig.left(self.id, event).await
    }

    async fn check_history(&self) {
        assert_eq!(self.rig.history().await.faults(), Vec::<String>::new());
    }
}

#[tokio::test]
async fn the_first_conflict_goes_to_the_implementer_the_second_escalates_and_the_third_is_stuck() {
    let scene = Scene::with_a_change().await;
    let Scene { rig, id, .. } = &scene;
    let branch = rig.row(*id).await.workflow.head_ref.clone();

    // The first is found by the look at the checks. The resolver merges the base into the head.
    let base = scene.base_moves("theirs\n").await;
    rig.poll().await;
    scene.stands(State::ConflictResolving).await;
    assert_eq!(
        scene.came_from("conflict_detected").await,
        State::AwaitingCi
    );
    let resolver = scene.leased(Role::ConflictResolver).await;
    assert_eq!(
        Some(&resolver.checkout_commit),
        rig.remote.tip(&branch).await.as_ref()
    );
    assert_eq!(resolver.workflow.base_ref, BASE);
    assert_eq!(
        resolver.workflow.progress().facts.conflict_paths,
        [SHARED.to_owned()]
    );
    let merge = scene.commit(&resolver, &[&base], "both\n").await;
    let resolved = Verdict::Resolved {
        commit: Some(merge.clone()),
    };
    scene.say(&resolver, resolved).await;
    scene.stands(State::ConflictResolving).await;
    rig.carry_out().await;
    scene.stands(State::Implementing).await;
    assert_eq!(rig.remote.tip(&branch).await, Some(merge.clone()));
    assert!(rig.remote.contains(&branch, &base).await);
    assert_eq!(
        scene.facts().await.conflict_paths,
        Vec::<String>::new(),
        "it is resolved"
    );
    let implementer = scene.answer(Role::Implementer, no_change()).await;
    assert_eq!(implementer.checkout_commit, merge);

    // The second is found while the head is reviewed, and nobody resolves it.
    scene.check(0).await;
    let review = scene.leased(Role::Reviewer).await;
    let base = scene.base_moves("theirs again\n").await;
    rig.reconcile().await;
    scene.stands(State::ConflictResolving).await;
    assert_eq!(scene.came_from("conflict_detected").await, State::Reviewing);
    let row = rig.store.attempt(review.attempt.id).await;
    let row = row.expect("the store answers").expect("it is there");
    assert_eq!(row.attempt.status, AttemptStatus::Cancelled);
    scene.answer(Role::ConflictResolver, unresolved()).await;
    scene.stands(State::Escalating).await;
    let escalator = scene.answer(Role::Escalator, retry("merge first")).await;
    let facts = &escalator.workflow.progress().facts;
    assert_eq!(facts.conflict_paths, [SHARED.to_owned()]);
    assert_eq!(facts.earlier_failures, ["both rename it".to_owned()]);
    let implementer = scene.leased(Role::Implementer).await;
    assert_eq!(implementer.attempt.tier, 2);
    let facts = &implementer.workflow.progress().facts;
    assert_eq!(facts.conflict_paths, [SHARED.to_owned()]);
    assert_eq!(facts.plan.as_deref(), Some("merge first"));
    scene.change(&implementer, &[&base], "both again\n").await;
    scene.check(0).await;
    assert_eq!(scene.facts().await.conflict_paths, Vec::<String>::new());

    // The third is found by the merge itself, and costs no attempt.
    scene.answer(Role::Reviewer, approve()).await;
    scene.base_moves("theirs for the third time\n").await;
    rig.carry_out().await;
    scene.stands(State::Stuck).await;
    assert_eq!(scene.came_from("conflict_detected").await, State::Merging);
    assert_eq!(
        scene.came_from("conflict_rounds_exhausted").await,
        State::ConflictResolving
    );
    assert_eq!(scene.n_attempts(Role::ConflictResolver).await, 2);
    assert!(scene.worker.lease(rig, 10).await.is_empty());
    assert_eq!(rig.count_events(*id, "conflict_detected").await, 3);
    scene.check_history().await;
}

/// Whoever says "resolved" is not believed: the next look at the head tells.
#[tokio::test]
async fn conflicts_that_are_only_said_to_be_resolved_are_stuck_after_two_attempts() {
    let scene = Scene::with_a_change().await;
    scene.base_moves("theirs\n").await;
    let said = || Verdict::Resolved { commit: None };
    scene.rig.poll().await;
    scene.answer(Role::ConflictResolver, said()).await;
    scene.answer(Role::Implementer, no_change()).await;
    scene.rig.poll().await;
    scene.answer(Role::ConflictResolver, said()).await;
    scene.stands(State::Escalating).await;
    scene.answer(Role::Escalator, retry("again")).await;
    scene.answer(Role::Implementer, no_change()).await;
    scene.rig.poll().await;
    scene.stands(State::Stuck).await;
    assert_eq!(scene.n_attempts(Role::ConflictResolver).await, 2);
    scene.check_history().await;
}

#[tokio::test]
async fn the_next_implementer_of_an_issue_starts_from_what_the_resolver_committed() {
    let rig = Rig::new().await;
    let worker = FakeWorker::registered(&rig, "w").await;
    let id = rig.issue_in(&worker, State::ConflictResolving).await;
    let resolver = rig.leased(&worker, id, Role::ConflictResolver).await;
    let resolution = worker.work(&rig, &resolver).await;
    let resolved = Verdict::Resolved {
        commit: Some(resolution.clone()),
    };
    worker.say(&rig, &resolver, resolved).await;
    assert_eq!(rig.state(id).await, State::Implementing);
    let row = rig.row(id).await;
    assert_eq!(row.workflow.progress().facts.conflict_paths, [""; 0]);
    assert_eq!(rig.remote.tip(&row.workflow.head_ref).await, None);

    // Kept over a try that comes to nothing.
    let lost = rig.leased(&worker, id, Role::Implementer).await;
    worker.fail(&rig, &lost, InfrastructureClass::Crashed).await;
    rig.advance(std::time::Duration::from_secs(3600));
    let implementer = rig.leased(&worker, id, Role::Implementer).await;
    assert_eq!(implementer.checkout_commit, resolution);
    worker.change(&rig, &implementer).await;
    rig.carry_out().await;
    assert_eq!(rig.state(id).await, State::CreatedPr);
    assert!(
        rig.remote
            .contains(&row.workflow.head_ref, &resolution)
            .await
    );
    assert_eq!(rig.history().await.faults(), Vec::<String>::new());
}

/// A worker whose profiles divide the tiers among them.
async fn worker_of_tiers(rig: &Rig) -> FakeWorker {
    let mut worker = FakeWorker::new(rig, "w");
    let profile = |name: &str, tiers: &[u32]| ProfileRow {
        name: name.to_owned(),
        tiers: tiers.to_vec(),
        ..worker.row.profiles[0].clone()
    };
    worker.row.profiles = vec![
        profile("small", &[1]),
        profile("medium", &[2]),
        profile("large", &[3]),
    ];
    worker.register(rig, &[]).await.expect("it is registered");
    worker
}

#[tokio::test]
async fn each_escalation_raises_the_tier_until_a_person_must_decide() {
    let rig = Rig::new().await;
    let worker = worker_of_tiers(&rig).await;
    let id = rig.issue_in(&worker, State::Implementing).await;
    let expected = [
        (1, "small", 1080, "do it"),
        (2, "medium", 2160, "plan 2"),
        (3, "large", 4320, "plan 3"),
    ];
    for (tier, profile, ttl, plan) in expected {
        let grant = rig.leased(&worker, id, Role::Implementer).await;
        assert_eq!(grant.attempt.tier, tier);
        assert_eq!(grant.lease.profile, profile);
        assert_eq!(grant.lease.ttl_seconds, ttl);
        let facts = &grant.workflow.progress().facts;
        assert_eq!(facts.plan.as_deref(), Some(plan));
        assert_eq!(facts.earlier_failures.len(), tier as usize - 1);
        worker.say(&rig, &grant, failed()).await;
        if tier < 3 {
            let grant = rig.leased(&worker, id, Role::Escalator).await;
            assert_eq!((grant.attempt.tier, grant.lease.ttl_seconds), (tier, 360));
            let plan = format!("plan {}", tier + 1);
            worker.say(&rig, &grant, retry(&plan)).await;
        }
    }
    assert_eq!(rig.state(id).await, State::Stuck);
    let spent = rig.event(id, "escalation_tiers_exhausted").await;
    assert_eq!(
        rig.left(id, "escalation_tiers_exhausted").await,
        State::Escalating
    );
    assert_eq!(spent.actor, "machine", "no attempt was spent on it");
    assert_eq!(spent.reason, "tier 3 is the highest");
    assert!(worker.lease(&rig, 10).await.is_empty());
    let history = rig.history().await;
    let escalators = history
        .attempts_of(id)
        .filter(|row| row.attempt.role == Role::Escalator);
    assert_eq!(escalators.count(), 2);
    assert_eq!(history.faults(), Vec::<String>::new());
    assert_eq!(history.loose_ends(), Vec::<String>::new());
}

#[tokio::test]
async fn a_pull_request_goes_on_at_the_tier_and_with_the_plan_of_its_issue() {
    let rig = Rig::new().await;
    let worker = worker_of_tiers(&rig).await;
    let issue = rig.issue_in(&worker, State::Escalating).await;
    let escalator = rig.leased(&worker, issue, Role::Escalator).await;
    worker.say(&rig, &escalator, retry("the second plan")).await;
    let implementer = rig.leased(&worker, issue, Role::Implementer).await;
    worker.change(&rig, &implementer).await;
    rig.carry_out().await;
    let rows = rig.workflows().await;
    let child = rows.iter().find(|row| row.workflow.parent == Some(issue));
    let child = &child.expect("there is a pull request").workflow;
    assert_eq!(child.progress().tier, 2);
    rig.check(&worker, child.id, 1).await;
    let next = rig.leased(&worker, child.id, Role::Implementer).await;
    assert_eq!(next.attempt.tier, 2);
    assert_eq!(next.lease.profile, "medium");
    let facts = &next.workflow.progress().facts;
    assert_eq!(facts.plan.as_deref(), Some("the second plan"));
}

#[tokio::test]
async fn a_higher_tier_begins_with_rounds_of_its_own() {
    let scene = Scene::new(State::AwaitingCi).await;
    let rounds = async || scene.rig.row(scene.id).await.workflow.progress().counters;
    for n in 1..=2 {
        scene.check(1).await;
        scene.stands(State::Implementing).await;
        assert_eq!(rounds().await.ci_red_rounds, n);
        let grant = scene.leased(Role::Implementer).await;
        scene.change(&grant, &[], &format!("try {n}\n")).await;
    }
    scene.check(0).await;
    scene
        .answer(Role::Reviewer, request_changes("smaller"))
        .await;
    assert_eq!(rounds().await.review_rounds, 1);
    let grant = scene.leased(Role::Implementer).await;
    scene.change(&grant, &[], "smaller\n").await;
    scene.check(1).await;
    scene.stands(State::Escalating).await;
    assert_eq!(scene.came_from("ci_red_repeated").await, State::AwaitingCi);
    let escalator = scene.answer(Role::Escalator, retry("anew")).await;
    let facts = &escalator.workflow.progress().facts;
    assert_eq!(facts.ci_failures.len(), 1, "it learns what is red");
    let counters = rounds().await;
    assert_eq!((counters.ci_red_rounds, counters.review_rounds), (0, 0));

    let grant = scene.leased(Role::Implementer).await;
    scene.change(&grant, &[], "anew\n").await;
    scene.check(1).await;
    scene.stands(State::Implementing).await;
    assert_eq!(rounds().await.ci_red_rounds, 1);
    scene.check_history().await;
}

#[tokio::test]
async fn changes_are_requested_up_to_the_bound_and_then_it_escalates() {
    let scene = Scene::new(State::Reviewing).await;
    for n in 1..=3 {
        let notes = format!("round {n}");
        scene.answer(Role::Reviewer, request_changes(&notes)).await;
        scene.stands(State::Implementing).await;
        let grant = scene.leased(Role::Implementer).await;
        let facts = &grant.workflow.progress().facts;
        assert_eq!(facts.review_notes.as_ref(), Some(&notes));
        scene.change(&grant, &[], &format!("answer {n}\n")).await;
        scene.check(0).await;
        // The next reviewer can see whether its predecessor was heard.
        assert_eq!(scene.facts().await.review_notes, Some(notes));
    }
    scene
        .answer(Role::Reviewer, request_changes("round 4"))
        .await;
    scene.stands(State::Escalating).await;
    assert_eq!(scene.came_from("review_rejected").await, State::Reviewing);
    let escalator = scene.answer(Role::Escalator, retry("listen")).await;
    let notes = &escalator.workflow.progress().facts.review_notes;
    assert_eq!(notes.as_deref(), Some("round 4"));
    let grant = scene.leased(Role::Implementer).await;
    assert_eq!(
        grant.workflow.progress().facts.review_notes.as_deref(),
        Some("round 4")
    );
    scene.change(&grant, &[], "heard\n").await;
    scene.check(0).await;
    scene.answer(Role::Reviewer, approve()).await;
    assert_eq!(scene.facts().await.review_notes, None, "nothing is open");
    scene.rig.carry_out().await;
    scene.stands(State::Merged).await;
    scene.check_history().await;
}

#[tokio::test]
async fn a_rejection_escalates_with_its_reason() {
    let scene = Scene::new(State::Reviewing).await;
    let reject = Verdict::Reject {
        reason: "the wrong way round".to_owned(),
    };
    scene.answer(Role::Reviewer, reject).await;
    scene.stands(State::Escalating).await;
    let escalator = scene.leased(Role::Escalator).await;
    let notes = &escalator.workflow.progress().facts.review_notes;
    assert_eq!(notes.as_deref(), Some("the wrong way round"));
}

#[tokio::test]
async fn the_next_lease_of_an_attempt_says_how_the_last_one_went_wrong() {
    let scene = Scene::new(State::Implementing).await;
    let told = [
        (InfrastructureClass::NoValidResult, true),
        (InfrastructureClass::ProviderOutage, false),
    ];
    for (class, is_told) in told {
        let grant = scene.leased(Role::Implementer).await;
        scene.worker.fail(&scene.rig, &grant, class).await;
        scene.rig.advance(std::time::Duration::from_secs(3600));
        let next = scene.leased(Role::Implementer).await;
        assert_eq!(next.attempt.id, grant.attempt.id);
        let expected = is_told.then(|| format!("{class}: on purpose"));
        assert_eq!(next.attempt.earlier_failure(), expected);
        let released = scene.rig.service().release(
            scene.worker.row.id,
            next.lease.key,
            "the next is to take it",
        );
        released.await.expect("it is taken back");
    }
    let grant = scene.leased(Role::Implementer).await;
    scene.say(&grant, no_change()).await;
    let checked = scene.leased(Role::Ci).await;
    assert_eq!(checked.attempt.earlier_failure(), None);
}
