//! An attempt that nobody can finish.

use pointsman_proto::v1::{Role, WorkflowState};
use pointsman_tests::world::{Setup, Step, is_alive};
use serde_json::json;

use crate::process_support::world;

/// hojinzs/github-symphony#783: retries bypassed the budget of failures.
#[tokio::test]
async fn three_pickups_that_die_make_it_stuck_and_unstick_brings_it_back_with_its_history() {
    let world = world(Setup::default()).await;
    world.follow(&world.script().with("implementer", [vec![Step::Die]]));
    let issue = world.submit().await;
    let stuck = world.until_state(issue, WorkflowState::Stuck).await;
    let fences: Vec<u64> = world.runs("implementer").iter().map(|r| r.fence).collect();
    assert_eq!(fences, [1, 2, 3]);
    let facts = stuck.facts("attempt-pickup-exhausted");
    assert_eq!(facts["pickup_count"], json!(3));
    assert_eq!(facts["max_pickups"], json!(3));
    assert_eq!(stuck.count("attempt-pickup-exhausted"), 1);
    let attempt = stuck.attempts_of(Role::Implementer)[0].clone();
    assert_eq!(
        (attempt.status.as_str(), attempt.pickup_count),
        ("reaped", 3)
    );
    assert_eq!(attempt.outcome, "crashed");

    world.follow(&world.script());
    let item = format!("demo#{issue}");
    let unstick = ["unstick", &item, "--reason", "the harness is repaired"];
    world.run(unstick).await.text();
    let tale = world.until_merged(issue).await;
    let before = stuck.events().len();
    assert_eq!(&tale.issue.events()[..before], stuck.events());
    assert_eq!(
        tale.issue.event("operator_unstick").reason,
        "the harness is repaired"
    );
    let attempts = tale.issue.attempts_of(Role::Implementer);
    assert_eq!(attempts[0], &attempt);
    assert_eq!(attempts.len(), 2);
    assert_eq!(attempts[1].status, "succeeded");
    for run in world.journal() {
        assert!(!is_alive(run.pid, run.starttime), "{run:?}");
    }
    world.finish().await;
}
