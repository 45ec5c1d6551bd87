//! The label is taken away while something is under way, and given back.

use pointsman_proto::v1::{Role, SweepRequest, WorkflowState};
use pointsman_tests::world::{Hook, Push, Setup, Story, World};

use crate::process_support::world;

/// Turns every crank of the master, twice: what can be done of the work is done then.
async fn sweep(world: &World) {
    let mut fleet = world.api.fleet.clone();
    for _ in 0..2 {
        let answer = fleet.sweep(SweepRequest::default()).await.unwrap();
        for report in answer.into_inner().reports {
            assert_eq!(
                (report.failed, report.error.as_str()),
                (0, ""),
                "{report:?}"
            );
        }
    }
}

/// Nothing is leased and nothing is written while the workflow is paused.
async fn rests(world: &World, number: u64) -> Story {
    let refs = world.remote.refs().await;
    let runs = world.journal();
    sweep(world).await;
    let story = world.story(number).await.unwrap();
    assert_eq!(story.state(), WorkflowState::Paused);
    assert_eq!(world.remote.refs().await, refs);
    assert_eq!(world.journal(), runs);
    assert_eq!(world.sessions().await, []);
    story
}

#[tokio::test]
async fn a_verdict_that_asks_for_an_effect_is_kept_with_its_effect_until_the_label_is_back() {
    let world = world(Setup::default()).await;
    world.follow(&world.script().gated("implementer"));
    let issue = world.submit().await;
    world.run_of("implementer", 1).await;
    let refs = world.remote.refs().await;

    world.set_label(issue, false).await;
    let story = world.story(issue).await.unwrap();
    assert_eq!(story.state(), WorkflowState::Paused);
    assert_eq!(
        story.workflow().pre_pause_state(),
        WorkflowState::Implementing
    );
    assert_eq!(story.workflow().paused_by, "label");
    world.open("implementer");
    let is_done = |story: &Story| story.attempts_of(Role::Implementer)[0].status == "succeeded";
    world.until(issue, "the outcome is kept", is_done).await;
    let story = rests(&world, issue).await;
    assert_eq!(story.attempts_of(Role::Implementer)[0].outcome, "changed");
    assert_eq!(world.remote.refs().await, refs);
    assert_eq!(world.workflows().await.unwrap().len(), 1);

    world.set_label(issue, true).await;
    let tale = world.until_merged(issue).await;
    assert_eq!(tale.issue.attempts_of(Role::Implementer).len(), 1);
    assert_eq!(world.runs("implementer").len(), 1);
    world.finish().await;
}

#[tokio::test]
async fn a_verdict_without_an_effect_is_decided_under_the_pause() {
    let world = world(Setup::default()).await;
    world.follow(&world.script().gated("estimator"));
    let issue = world.submit().await;
    world.run_of("estimator", 1).await;

    world.set_label(issue, false).await;
    world.open("estimator");
    let is_decided =
        |story: &Story| story.workflow().pre_pause_state() == WorkflowState::Implementing;
    world.until(issue, "the plan is kept", is_decided).await;
    let story = rests(&world, issue).await;
    assert_eq!(story.attempts_of(Role::Implementer).len(), 0);
    let shown = world.run(["workflow", &format!("demo#{issue}")]).await;
    assert!(
        shown
            .text()
            .contains("by label; it goes on in IMPLEMENTING"),
        "{shown:?}"
    );

    world.set_label(issue, true).await;
    world.until_merged(issue).await;
    assert_eq!(world.runs("estimator").len(), 1);
    world.finish().await;
}

#[tokio::test]
async fn an_approval_under_a_pause_merges_nothing_until_the_label_is_back() {
    let world = world(Setup::default()).await;
    world.follow(&world.script().gated("reviewer"));
    let issue = world.submit().await;
    let pull_request = world.pull_request().await;
    world.run_of("reviewer", 1).await;

    world.set_label(pull_request, false).await;
    world.open("reviewer");
    let is_done = |story: &Story| story.attempts_of(Role::Reviewer)[0].status == "succeeded";
    world
        .until(pull_request, "the review is kept", is_done)
        .await;
    rests(&world, pull_request).await;
    assert_eq!(world.remote.merges().await, Vec::<String>::new());

    world.set_label(pull_request, true).await;
    world.until_merged(issue).await;
    assert_eq!(world.runs("reviewer").len(), 1);
    world.finish().await;
}

/// The effect is open when its master dies; the label goes while no master looks. The first look of the
/// new one comes before its first push.
#[tokio::test]
async fn an_effect_waits_whose_label_was_taken_away_while_no_master_ran() {
    let mut world = world(Setup::default()).await;
    let branches = "refs/heads/pointsman/*";
    world
        .remote
        .on(Hook::PreReceive, branches, Push::KillsMasterAndFails);
    let issue = world.submit().await;
    world.master_was_killed().await;
    let refs = world.remote.refs().await;
    world
        .in_the_database("UPDATE forge_items SET labels = '[]'")
        .await;
    world.start_master().await;
    world.until_state(issue, WorkflowState::Paused).await;
    let story = rests(&world, issue).await;
    assert_eq!(
        story.workflow().pre_pause_state(),
        WorkflowState::Implementing
    );
    assert!(
        story.waiting().contains("label agent"),
        "{}",
        story.waiting()
    );
    assert_eq!(world.remote.refs().await, refs);

    world.set_label(issue, true).await;
    world.until_merged(issue).await;
    assert_eq!(world.runs("implementer").len(), 1);
    world.finish().await;
}
