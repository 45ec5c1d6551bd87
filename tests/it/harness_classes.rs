//! Harnesses that keep their contract badly: each way has its class, and people see it.

use pointsman_proto::v1::{Policy, Role, WorkflowState};
use pointsman_tests::world::{Setup, Step, WorkerSetup, is_alive};
use serde_json::{Value, json};

use crate::process_support::world;

/// Runs an estimator that does `plan`, once; its attempt ends in `class`, and what is said about it has
/// `words`. Command line and RPC show the same.
async fn ends_in(plan: Vec<Step>, worker: WorkerSetup, class: &str, words: &[&str]) {
    let policy = Policy {
        max_pickups: Some(1),
        ..Policy::default()
    };
    let setup = Setup::default().with_policy(policy).with_workers([worker]);
    let world = world(setup).await;
    world.follow(&world.script().with("estimator", [plan]));
    let issue = world.submit().await;
    let story = world.until_state(issue, WorkflowState::Stuck).await;
    let attempt = story.attempts_of(Role::Estimator)[0];
    assert_eq!(attempt.outcome, class, "{attempt:#?}");
    for word in words {
        assert!(attempt.outcome_json.contains(word), "{attempt:#?}");
    }
    let facts = story.facts("attempt_infrastructure_error");
    assert_eq!(facts["class"], json!(class));
    assert_eq!(facts["is_charged"], json!(true));

    let item = format!("demo#{issue}");
    let table = world.run(["workflow", &item]).await;
    let line = table
        .text()
        .lines()
        .find(|line| line.starts_with("ESTIMATOR"));
    assert!(line.is_some_and(|line| line.contains(class)), "{table:?}");
    let shown: Value = world.run(["workflow", &item, "-o", "json"]).await.json();
    assert_eq!(shown["attempts"][0]["outcome"], json!(class));

    let run = &world.runs("estimator")[0];
    assert!(!is_alive(run.pid, run.starttime), "{run:?}");
    world.finish().await;
}

fn worker() -> WorkerSetup {
    WorkerSetup::named("worker-1")
}

#[tokio::test]
async fn no_verdict_is_no_valid_result() {
    let words = ["no result file was written"];
    ends_in(vec![Step::Exit(0)], worker(), "no_valid_result", &words).await;
}

#[tokio::test]
async fn wrong_json_is_no_valid_result_and_is_quoted() {
    let plan = vec![Step::Write("{ \"verdict\": ready }".to_owned())];
    let words = ["no JSON", "ready }"];
    ends_in(plan, worker(), "no_valid_result", &words).await;
}

#[tokio::test]
async fn the_verdict_of_another_role_is_no_valid_result() {
    let words = ["does not fit the estimator's schema"];
    ends_in(vec![Step::approve()], worker(), "no_valid_result", &words).await;
}

#[tokio::test]
async fn an_exit_that_is_not_zero_is_a_crash_whatever_was_written() {
    let plan = vec![
        Step::ready(),
        Step::Print("out of tokens".to_owned()),
        Step::Exit(3),
    ];
    let words = ["exited with status 3", "out of tokens"];
    ends_in(plan, worker(), "crashed", &words).await;
}

/// tomcounsell/ai#2714: heartbeats outlived what they stood for, so that a dead session looked alive.
#[tokio::test]
async fn an_end_by_a_signal_is_a_crash() {
    ends_in(vec![Step::Die], worker(), "crashed", &["ended by signal 9"]).await;
}

/// opencode#44901, openai/codex#28476: the last event never came.
#[tokio::test]
async fn a_harness_that_never_ends_is_timed_out_and_killed() {
    let mut worker = worker();
    worker.timeout = "2s".to_owned();
    let plan = vec![Step::IgnoreTerm, Step::Chatter];
    ends_in(plan, worker, "timed_out", &["did not end within 2 s"]).await;
}

/// anthropics/claude-code#39700, openai/codex#41984: it fell silent for ever.
#[tokio::test]
async fn a_harness_that_says_nothing_is_silent_and_killed() {
    let mut worker = worker();
    worker.idle_timeout = "1s".to_owned();
    let plan = vec![Step::IgnoreTerm, Step::Hang];
    ends_in(plan, worker, "silent", &["no output for 1 s"]).await;
}

/// code-yeongyu/oh-my-openagent#1921: the agent said that it was done, without any work.
#[tokio::test]
async fn changed_without_a_commit_is_no_valid_result() {
    let world = world(Setup::default()).await;
    let plans = [vec![Step::changed()], Step::change("work.txt")];
    world.follow(&world.script().with("implementer", plans));
    let issue = world.submit().await;
    let tale = world.until_merged(issue).await;
    let facts = tale.issue.facts("attempt_infrastructure_error");
    assert_eq!(facts["class"], json!("no_valid_result"));
    assert!(
        facts["message"]
            .to_string()
            .contains("nothing was committed"),
        "{facts}"
    );
    world.finish().await;
}
