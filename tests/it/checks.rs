//! Checks that are red by chance, and checks that never answer.

use pointsman_proto::v1::{Policy, Role, WorkflowState};
use pointsman_tests::world::{Setup, Step, Story, World, eventually};
use serde_json::Value;

use crate::process_support::world;

fn flaky(policy: Policy) -> Policy {
    Policy {
        flaky_checks: vec!["c*".to_owned()],
        ..policy
    }
}

/// A flaky check that is red until the harness of `role` has run on the pull request. Its run waits at
/// the gate of its role, so that the check can turn green with it.
async fn red_until(world: &World, role: &str) -> u64 {
    world.follow(&world.script().gated(role));
    let issue = world.submit().await;
    if role == "implementer" {
        world.open(role);
        world.run_of(role, 2).await;
    } else {
        world.run_of(role, 1).await;
    }
    world.open("green");
    world.open(role);
    issue
}

fn ci_events(story: &Story) -> Vec<&str> {
    let kinds = story.kinds().into_iter();
    kinds.filter(|kind| kind.starts_with("ci_")).collect()
}

#[tokio::test]
async fn a_flaky_check_that_is_green_the_second_time_costs_no_implementer() {
    let mut setup = Setup::default().with_policy(flaky(Policy::default()));
    setup.ci = "[ -e {gates}/seen ] || { : > {gates}/seen; exit 1; }".to_owned();
    let world = world(setup).await;
    let issue = world.submit().await;
    let tale = world.until_merged(issue).await;
    assert_eq!(
        ci_events(&tale.pull_request),
        ["ci_flake_retry", "ci_green"]
    );
    let counters = tale.pull_request.workflow().counters.unwrap();
    assert_eq!(counters.ci_flake_retries_remaining, 0);
    assert_eq!(counters.ci_red_rounds, 0);
    world.finish().await;
}

#[tokio::test]
async fn a_flaky_check_is_retried_once_and_then_goes_to_the_implementer() {
    let setup = Setup::default()
        .with_red_ci()
        .with_policy(flaky(Policy::default()));
    let world = world(setup).await;
    let issue = red_until(&world, "implementer").await;
    let tale = world.until_merged(issue).await;
    assert_eq!(
        ci_events(&tale.pull_request)[..2],
        ["ci_flake_retry", "ci_red_fixable"]
    );
    assert_eq!(tale.pull_request.workflow().tier, 1);
    let heads: Vec<_> = tale
        .pull_request
        .attempts_of(Role::Ci)
        .iter()
        .map(|attempt| attempt.commit.clone())
        .collect();
    assert_eq!(heads[0], heads[1], "the same head twice");
    assert_ne!(heads[1], heads[2], "then a new one");
    world.finish().await;
}

#[tokio::test]
async fn a_flaky_check_under_the_hard_ceiling_is_escalated() {
    let policy = Policy {
        ci_flake_hard_ceiling: Some(true),
        ..Policy::default()
    };
    let setup = Setup::default().with_red_ci().with_policy(flaky(policy));
    let world = world(setup).await;
    let issue = red_until(&world, "escalator").await;
    let tale = world.until_merged(issue).await;
    assert_eq!(
        ci_events(&tale.pull_request)[..2],
        ["ci_flake_retry", "ci_flake_retries_exhausted"]
    );
    let states = tale.pull_request.states();
    assert!(states.contains(&WorkflowState::Escalating), "{states:?}");
    assert_eq!(tale.pull_request.workflow().tier, 2);
    world.finish().await;
}

#[tokio::test]
async fn the_masters_environment_sets_the_retries_of_new_workflows_and_an_operator_those_of_one() {
    let setup = Setup::default()
        .with_policy(flaky(Policy::default()))
        .with_red_ci()
        .with_master_variable("POINTSMAN_CI_FLAKE_RETRIES", "2");
    let world = world(setup).await;
    world.follow(&world.script().gated("estimator").with(
        "reviewer",
        [vec![Step::WaitFor("reviewer".to_owned()), Step::approve()]],
    ));
    let retries = |story: &Story| {
        let counters = story.workflow().counters.unwrap();
        counters.ci_flake_retries_remaining
    };
    let [one, other] = [world.submit().await, world.submit().await];
    for issue in [one, other] {
        assert_eq!(retries(&world.story(issue).await.unwrap()), 2);
    }
    let item = format!("demo#{one}");
    let set = [
        "flake-retries",
        &item,
        "5",
        "--reason",
        "CI is ill",
        "-o",
        "json",
    ];
    let shown: Value = world.run(set).await.json();
    assert!(
        shown
            .to_string()
            .contains("\"ci_flake_retries_remaining\":5"),
        "{shown}"
    );
    let story = world.story(one).await.unwrap();
    assert_eq!(retries(&story), 5);
    assert_eq!(story.event("ci_flake_retries_set").reason, "CI is ill");
    assert_eq!(retries(&world.story(other).await.unwrap()), 2);

    // The bound holds: two reruns, and then the ordinary way.
    world.open("estimator");
    let pull_request = world.pull_request().await;
    let is_red = |story: &Story| story.has("ci_red_fixable");
    let story = world.until(pull_request, "an ordinary red", is_red).await;
    assert_eq!(
        ci_events(&story)[..3],
        ["ci_flake_retry", "ci_flake_retry", "ci_red_fixable"]
    );
    world.open("green");
    world.open("reviewer");
    world.until_merged(one).await;
    world.finish().await;
}

#[tokio::test]
async fn a_check_that_never_answers_makes_it_stuck_and_is_killed() {
    let policy = Policy {
        ci_poll_deadline_seconds: Some(2),
        ..Policy::default()
    };
    let setup = Setup::default().with_gated_ci().with_policy(policy);
    let world = world(setup).await;
    world.submit().await;
    let pull_request = world.pull_request().await;
    let story = world.until_state(pull_request, WorkflowState::Stuck).await;
    assert!(story.has("ci_polling_exhausted"), "{:?}", story.kinds());
    eventually("the end of the check's command", async || {
        let running = world.processes();
        let is_over = !running
            .iter()
            .any(|found| found.command.contains("ci.reached"));
        is_over.then_some(())
    })
    .await;
    assert_eq!(story.attempts_of(Role::Ci)[0].status, "cancelled");
    world.finish().await;
}
