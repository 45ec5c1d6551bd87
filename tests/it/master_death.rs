//! The master is killed in every state, and between each effect and its event; a new one goes on.
//!
//! Kills are real: SIGKILL by the test while something is held up at a gate, or by a hook of the remote
//! in the middle of the master's own push. Afterwards there is one pull request and one merge, fences
//! have only grown, and no attempt had two outcomes; [`World::until_merged`] and [`World::finish`] check
//! that.

use pointsman_proto::v1::{Policy, Role, WorkflowState};
use pointsman_tests::world::{Hook, Push, Setup, Step, Tale, World, eventually};

use crate::process_support::world;

/// Branches of workflows.
const OWN_BRANCHES: &str = "refs/heads/pointsman/*";

const BASE_BRANCH: &str = "refs/heads/main";

async fn kill_and_restart(world: &mut World) {
    world.kill_master().await;
    world.start_master().await;
}

/// Goes on after a kill while a harness of `role` runs. The lease is the worker's: the harness runs on,
/// and its verdict is taken by the new master.
async fn goes_on_while(world: &mut World, issue: u64, role: &str, state: WorkflowState) -> Tale {
    let run = world.run_of(role, 1).await;
    eventually(state.as_str_name(), async || {
        let all = world.workflows().await?;
        all.iter().any(|w| w.state() == state).then_some(())
    })
    .await;
    kill_and_restart(world).await;
    world.open(role);
    let tale = world.until_merged(issue).await;
    let runs = world.runs(role).into_iter();
    let of_attempt: Vec<_> = runs.filter(|r| r.attempt == run.attempt).collect();
    assert_eq!(of_attempt, [run]);
    tale
}

#[tokio::test]
async fn killed_in_discovered_it_goes_on() {
    let policy = Policy {
        max_live_workflows: Some(1),
        ..Policy::default()
    };
    let mut world = world(Setup::default().with_policy(policy)).await;
    let plans = [Step::change("one.txt"), Step::change("two.txt")];
    world.follow(&world.script().with("implementer", plans).gated("estimator"));
    let first = world.submit().await;
    world.run_of("estimator", 1).await;
    let second = world.submit().await;
    world.until_state(second, WorkflowState::Discovered).await;

    kill_and_restart(&mut world).await;
    world.until_state(second, WorkflowState::Discovered).await;
    world.open("estimator");
    world.until_merged(first).await;
    world.until_merged(second).await;
    world.finish().await;
}

#[tokio::test]
async fn killed_in_analyzing_it_goes_on() {
    let mut world = world(Setup::default()).await;
    world.follow(&world.script().gated("estimator"));
    let issue = world.submit().await;
    goes_on_while(&mut world, issue, "estimator", WorkflowState::Analyzing).await;
    world.finish().await;
}

#[tokio::test]
async fn killed_in_implementing_it_goes_on() {
    let mut world = world(Setup::default()).await;
    world.follow(&world.script().gated("implementer"));
    let issue = world.submit().await;
    goes_on_while(
        &mut world,
        issue,
        "implementer",
        WorkflowState::Implementing,
    )
    .await;
    world.finish().await;
}

#[tokio::test]
async fn killed_in_awaiting_ci_it_goes_on() {
    let mut world = world(Setup::default().with_gated_ci()).await;
    let issue = world.submit().await;
    let pull_request = world.pull_request().await;
    world
        .until_state(pull_request, WorkflowState::AwaitingCi)
        .await;
    eventually("the check", async || world.is_ci_running().then_some(())).await;

    kill_and_restart(&mut world).await;
    world.open("ci");
    let tale = world.until_merged(issue).await;
    assert_eq!(tale.pull_request.attempts_of(Role::Ci).len(), 1);
    world.finish().await;
}

#[tokio::test]
async fn killed_in_reviewing_it_goes_on() {
    let mut world = world(Setup::default()).await;
    world.follow(&world.script().gated("reviewer"));
    let issue = world.submit().await;
    goes_on_while(&mut world, issue, "reviewer", WorkflowState::Reviewing).await;
    world.finish().await;
}

#[tokio::test]
async fn killed_in_conflict_resolving_it_goes_on() {
    let mut world = world(Setup::default()).await;
    let script = world
        .script()
        .with("implementer", [Step::change("shared.txt")])
        .gated("implementer")
        .gated("conflict_resolver");
    world.follow(&script);
    let issue = world.submit().await;
    world.run_of("implementer", 1).await;
    world
        .remote
        .push_to_base("shared.txt", "a colleague's")
        .await;
    world.open("implementer");

    let tale = goes_on_while(
        &mut world,
        issue,
        "conflict_resolver",
        WorkflowState::ConflictResolving,
    )
    .await;
    assert_eq!(tale.pull_request.count("conflict_detected"), 1);
    world.finish().await;
}

#[tokio::test]
async fn killed_in_escalating_it_goes_on() {
    let mut world = world(Setup::default()).await;
    let plans = [vec![Step::failed()], Step::change("work.txt")];
    let script = world.script().with("implementer", plans);
    world.follow(&script.gated("escalator"));
    let issue = world.submit().await;
    let tale = goes_on_while(&mut world, issue, "escalator", WorkflowState::Escalating).await;
    assert_eq!(tale.issue.workflow().tier, 2);
    world.finish().await;
}

/// The push of the dead master and that of the new one are both under way then; one of them wins.
#[tokio::test]
async fn killed_in_merging_it_goes_on() {
    let mut world = world(Setup::default()).await;
    world.remote.on(Hook::PreReceive, BASE_BRANCH, Push::Blocks);
    let issue = world.submit().await;
    let pull_request = world.pull_request().await;
    eventually("the merge", async || {
        world.remote.is_blocked(Hook::PreReceive).then_some(())
    })
    .await;
    world
        .until_state(pull_request, WorkflowState::Merging)
        .await;

    kill_and_restart(&mut world).await;
    world
        .until_state(pull_request, WorkflowState::Merging)
        .await;
    world.remote.let_go(Hook::PreReceive);
    world.until_merged(issue).await;
    world.finish().await;
}

/// Starts again after a hook has killed the master in the middle of a push.
async fn survives_the_push(world: &mut World, hook: Hook, issue: u64) -> Tale {
    world.master_was_killed().await;
    assert!(world.remote.has_killed(hook));
    world.start_master().await;
    world.until_merged(issue).await
}

#[tokio::test]
async fn killed_between_the_push_of_the_branch_and_pr_created_it_opens_one_pull_request() {
    let mut world = world(Setup::default()).await;
    world
        .remote
        .on(Hook::PostReceive, OWN_BRANCHES, Push::KillsMaster);
    let issue = world.submit().await;
    let tale = survives_the_push(&mut world, Hook::PostReceive, issue).await;
    assert_eq!(tale.issue.count("pr_created"), 1);
    world.finish().await;
}

#[tokio::test]
async fn killed_before_the_push_of_the_branch_it_opens_one_pull_request() {
    for push in [Push::KillsMasterAndFails, Push::KillsMaster] {
        let mut world = world(Setup::default()).await;
        world.remote.on(Hook::PreReceive, OWN_BRANCHES, push);
        let issue = world.submit().await;
        survives_the_push(&mut world, Hook::PreReceive, issue).await;
        world.finish().await;
    }
}

/// A pull request whose first check is red, so that its head moves once.
async fn about_to_move_the_head(world: &World) -> u64 {
    let mut second = Step::change("work.txt");
    second.insert(0, Step::WaitFor("second".to_owned()));
    let plans = [Step::change("work.txt"), second];
    world.follow(&world.script().with("implementer", plans));
    let issue = world.submit().await;
    world.run_of("implementer", 2).await;
    issue
}

#[tokio::test]
async fn killed_between_the_move_of_the_head_and_change_pushed_it_goes_on() {
    let mut world = world(Setup::default().with_red_ci()).await;
    let issue = about_to_move_the_head(&world).await;
    world
        .remote
        .on(Hook::PostReceive, OWN_BRANCHES, Push::KillsMaster);
    world.open("green");
    world.open("second");
    let tale = survives_the_push(&mut world, Hook::PostReceive, issue).await;
    assert_eq!(tale.pull_request.count("change_pushed"), 1);
    assert_eq!(tale.pull_request.workflow().counters.unwrap().head_moves, 0);
    assert_eq!(world.runs("implementer").len(), 2);
    world.finish().await;
}

#[tokio::test]
async fn killed_before_the_move_of_the_head_it_goes_on() {
    let mut world = world(Setup::default().with_red_ci()).await;
    let issue = about_to_move_the_head(&world).await;
    world
        .remote
        .on(Hook::PreReceive, OWN_BRANCHES, Push::KillsMasterAndFails);
    world.open("green");
    world.open("second");
    let tale = survives_the_push(&mut world, Hook::PreReceive, issue).await;
    assert_eq!(tale.pull_request.count("change_pushed"), 1);
    world.finish().await;
}

#[tokio::test]
async fn killed_between_the_push_of_the_merge_and_merge_succeeded_it_merges_once() {
    let mut world = world(Setup::default()).await;
    world
        .remote
        .on(Hook::PostReceive, BASE_BRANCH, Push::KillsMaster);
    let issue = world.submit().await;
    let tale = survives_the_push(&mut world, Hook::PostReceive, issue).await;
    assert_eq!(tale.pull_request.count("merge_succeeded"), 1);
    world.finish().await;
}

#[tokio::test]
async fn killed_before_the_push_of_the_merge_it_merges_once() {
    for push in [Push::KillsMasterAndFails, Push::KillsMaster] {
        let mut world = world(Setup::default()).await;
        world.remote.on(Hook::PreReceive, BASE_BRANCH, push);
        let issue = world.submit().await;
        let tale = survives_the_push(&mut world, Hook::PreReceive, issue).await;
        assert_eq!(tale.pull_request.count("merge_succeeded"), 1);
        world.finish().await;
    }
}

/// A rerun is written to the master's own database, where no hook can kill it. A trigger refuses the
/// event in place of the kill; then comes the kill.
#[tokio::test]
async fn killed_between_the_rerun_of_checks_and_its_event_it_goes_on() {
    let policy = Policy {
        flaky_checks: vec!["ci".to_owned()],
        ..Policy::default()
    };
    let once_red = "[ -e {gates}/seen ] || { : > {gates}/seen; exit 1; }";
    let mut setup = Setup::default().with_policy(policy);
    setup.ci = once_red.to_owned();
    let mut world = world(setup).await;
    world.forgive_errors();
    world
        .in_the_database(
            "CREATE TRIGGER no_event BEFORE INSERT ON controller_events
             WHEN NEW.kind = 'checks_rerun'
             BEGIN SELECT RAISE(ABORT, 'the event is refused'); END",
        )
        .await;
    let issue = world.submit().await;
    eventually("a refused event", async || {
        world
            .log("master")
            .contains("the event is refused")
            .then_some(())
    })
    .await;
    world.kill_master().await;
    world.in_the_database("DROP TRIGGER no_event").await;
    world.start_master().await;
    let tale = world.until_merged(issue).await;
    let story = &tale.pull_request;
    assert_eq!(story.count("ci_flake_retry"), 1);
    assert_eq!(story.count("checks_rerun"), 1);
    assert_eq!(story.attempts_of(Role::Ci).len(), 2, "{story:#?}");
    world.finish().await;
}

/// A journey through most of the table, with a kill after every event that is seen.
///
/// Untrivial-ai/agent-orchestrator#413, #700: the reaction to an event was lost with the process that saw it.
#[tokio::test]
async fn killed_after_every_event_it_goes_on() {
    let mut world = world(Setup::default().with_red_ci()).await;
    let plans = [
        vec![Step::failed()],
        Step::change("work.txt"),
        Step::change("work.txt"),
    ];
    world.follow(&world.script().with("implementer", plans));
    let issue = world.submit().await;
    let mut last = 0;
    let mut n_kills = 0;
    loop {
        let newest = eventually("an event", async || {
            let events = world.events_after(last).await?;
            events.last().cloned()
        })
        .await;
        last = newest.sequence;
        if newest.kind == "merge_succeeded" {
            break;
        }
        if newest.kind == "ci_red_fixable" {
            world.open("green");
        }
        kill_and_restart(&mut world).await;
        n_kills += 1;
    }
    world.until_merged(issue).await;
    assert!(n_kills > 8, "{n_kills} kills");
    world.finish().await;
}

#[tokio::test]
async fn a_master_that_is_stopped_exits_with_success_and_the_next_one_goes_on() {
    let mut world = world(Setup::default()).await;
    world.follow(&world.script().gated("implementer"));
    let issue = world.submit().await;
    let run = world.run_of("implementer", 1).await;

    world.stop_master().await;
    world.start_master().await;
    world.open("implementer");
    let tale = world.until_merged(issue).await;
    assert_eq!(world.runs("implementer"), [run]);
    assert_eq!(tale.issue.attempts_of(Role::Implementer)[0].lock_fence, 1);
    world.finish().await;
}
