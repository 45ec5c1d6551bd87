//! Several checks of one head: they run at once, and stand or fall together.

use pointsman_master::{
    domain::{
        attempt::{InfrastructureClass, Role},
        ci::{CheckDefinition, Conclusion},
        ids::WorkflowId,
        policy::Policy,
        transitions::State,
    },
    service::Grant,
};
use pointsman_tests::rig::{FakeWorker, Rig};

/// A pull request of ours whose head waits for three checks.
struct Scene {
    rig: Rig,
    worker: FakeWorker,
    id: WorkflowId,
}

impl Scene {
    async fn new() -> Self {
        let rig = Rig::empty().await;
        let checks = ["lint", "net-1", "net-2"].map(|name| CheckDefinition {
            name: name.to_owned(),
            command: format!("make {name}"),
        });
        let policy = Policy {
            flaky_checks: vec!["net-*".to_owned()],
            ..Policy::default()
        };
        let added = rig.add_repository_with(policy, checks.to_vec()).await;
        added.expect("the repository is added");
        let worker = FakeWorker::registered(&rig, "w").await;
        let id = rig.pull_request_in(&worker, State::AwaitingCi).await;
        Self { rig, worker, id }
    }

    /// All that there is to lease: checks, by name.
    async fn leased(&self) -> Vec<Grant> {
        let mut grants = self.worker.lease(&self.rig, 10).await;
        assert!(grants.iter().all(|grant| grant.attempt.role == Role::Ci));
        grants.sort_by_key(name);
        grants
    }

    async fn conclude(&self, grants: &[Grant], exit_statuses: &[u32]) {
        for (grant, exit_status) in grants.iter().zip(exit_statuses) {
            self.worker.conclude(&self.rig, grant, *exit_status).await;
        }
        self.rig.poll().await;
    }

    async fn check_state(&self, state: State) {
        assert_eq!(self.rig.state(self.id).await, state);
        assert_eq!(self.rig.history().await.faults(), Vec::<String>::new());
    }
}

fn name(grant: &Grant) -> String {
    let check = grant.check.as_ref().expect("it is a check");
    assert_eq!(check.command, format!("make {}", check.name));
    check.name.clone()
}

fn names(grants: &[Grant]) -> Vec<String> {
    grants.iter().map(name).collect()
}

#[tokio::test]
async fn all_checks_of_a_head_are_leased_at_once_and_green_together() {
    let scene = Scene::new().await;
    let grants = scene.leased().await;
    assert_eq!(names(&grants), ["lint", "net-1", "net-2"]);
    scene.conclude(&grants[..2], &[0, 0]).await;
    scene.check_state(State::AwaitingCi).await;
    scene.conclude(&grants[2..], &[0]).await;
    scene.check_state(State::Reviewing).await;
}

#[tokio::test]
async fn one_red_check_is_red_once_all_have_ended_and_the_implementer_learns_which() {
    let scene = Scene::new().await;
    let grants = scene.leased().await;
    scene.conclude(&grants[..2], &[1, 0]).await;
    scene.check_state(State::AwaitingCi).await;
    scene.conclude(&grants[2..], &[0]).await;
    scene.check_state(State::Implementing).await;
    let next = scene.worker.lease_one(&scene.rig).await;
    let failures = &next.workflow.progress().facts.ci_failures;
    let failed: Vec<&str> = failures.iter().map(|f| f.name.as_str()).collect();
    assert_eq!(failed, ["lint"]);
}

#[tokio::test]
async fn only_the_flaky_checks_that_failed_run_again() {
    let scene = Scene::new().await;
    let grants = scene.leased().await;
    scene.conclude(&grants, &[0, 1, 0]).await;
    scene.rig.carry_out().await;
    scene.rig.turn().await;
    let again = scene.leased().await;
    assert_eq!(names(&again), ["net-1"]);
    scene.conclude(&again, &[0]).await;
    scene.check_state(State::Reviewing).await;
}

#[tokio::test]
async fn a_flaky_check_beside_one_that_is_truly_red_is_not_retried() {
    let scene = Scene::new().await;
    let grants = scene.leased().await;
    scene.conclude(&grants, &[1, 1, 0]).await;
    scene.check_state(State::Implementing).await;
    assert_eq!(scene.rig.count_events(scene.id, "ci_flake_retry").await, 0);
}

#[tokio::test]
async fn a_check_that_can_not_be_run_fails_alone() {
    let scene = Scene::new().await;
    let mut grants = scene.leased().await;
    let lint = grants.remove(0);
    scene.conclude(&grants, &[0, 0]).await;
    let crashed = InfrastructureClass::Crashed;
    scene.worker.fail(&scene.rig, &lint, crashed).await;
    for _ in 1..Policy::default().max_pickups {
        let grants = scene.leased().await;
        assert_eq!(names(&grants), ["lint"]);
        scene.worker.fail(&scene.rig, &grants[0], crashed).await;
    }
    let head = lint.checkout_commit;
    let runs = scene.rig.store.check_runs(scene.id, &head).await;
    let conclusions: Vec<_> = runs
        .expect("the store answers")
        .into_iter()
        .map(|run| (run.name, run.conclusion))
        .collect();
    let expected = [
        ("lint", Conclusion::StartupFailure),
        ("net-1", Conclusion::Success),
        ("net-2", Conclusion::Success),
    ];
    assert_eq!(
        conclusions,
        expected.map(|(name, conclusion)| (name.to_owned(), Some(conclusion)))
    );
    scene.rig.poll().await;
    assert_eq!(scene.rig.count_events(scene.id, "ci_flake_retry").await, 1);
    scene.check_state(State::AwaitingCi).await;
}
