//! How a harness ends, and what counts of it.

use super::*;

/// anthropics/claude-code#25629, #1920, openai/codex#41984: the last event came, and the process never
/// ended. The result counts, and what is left is killed.
#[tokio::test]
async fn a_harness_that_does_not_end_after_its_result_is_ended_and_its_verdict_counts() {
    let script = concat!(
        "echo $$ > \"$WORLD/pid\"\n",
        result!(r#"{"verdict": "no_change", "reason": "r"}"#),
        "while :; do echo still here; sleep 0.1; done",
    );
    let mut world = World::new(script).await.and_profile("exit_grace = \"1s\"");
    world.start();
    world.master.give(world.lease(v1::Role::Implementer).await);
    let pid = world.harness().await;
    let outcome = world.outcome().await;
    assert!(
        matches!(
            outcome,
            Outcome::Verdict(v1::Verdict {
                verdict: Some(Verdict::NoChange(_))
            })
        ),
        "{outcome:?}"
    );
    assert!(is_dead(pid));
    world.finish().await;
}

/// Some make the file when they start, as `agent > "$POINTSMAN_RESULT_FILE"` does.
#[tokio::test]
async fn an_empty_result_file_is_no_result_and_ends_nobody() {
    let script = concat!(
        ": > \"$POINTSMAN_RESULT_FILE\"; echo $$ > \"$WORLD/pid\"\n",
        "until [ -e \"$WORLD/go\" ]; do sleep 0.05; done\n",
        result!(r#"{"verdict": "no_change", "reason": "r"}"#),
    );
    let mut world = World::new(script).await.and_profile("exit_grace = \"1s\"");
    world.start();
    world.master.give(world.lease(v1::Role::Implementer).await);
    let pid = world.harness().await;
    // Five seconds: far past the grace, at a look a second.
    world.pass(25).await;
    assert!(!is_dead(pid));
    fs::write(world.path("go"), "").unwrap();
    let outcome = world.outcome().await;
    assert!(matches!(outcome, Outcome::Verdict(_)), "{outcome:?}");
    world.finish().await;
}

/// The harness puts the shim where somebody kills it between the exit record and the end of what is left,
/// which is too short a time to hit from outside.
#[tokio::test]
async fn what_is_left_is_ended_where_the_shim_is_killed_after_the_exit_record() {
    let script = concat!(
        "(setsid sh -c 'trap \"\" TERM; echo $$ > \"$WORLD/left\"; exec sleep 100' &)\n",
        "until [ -s \"$WORLD/left\" ]; do sleep 0.01; done\n",
        result!(r#"{"verdict": "no_change", "reason": "r"}"#),
        "record='{\"cause\": \"harness\", \"exit\": {\"exited\": 0}}'\n",
        "echo \"$record\" > \"${POINTSMAN_RESULT_FILE%/*}/exit.json\"\n",
        "kill -KILL $PPID\n",
    );
    let mut world = World::new(script).await;
    world.start();
    world.master.give(world.lease(v1::Role::Implementer).await);
    let outcome = world.outcome().await;
    assert!(matches!(outcome, Outcome::Verdict(_)), "{outcome:?}");
    let left = number_in(&world.path("left")).expect("it was started");
    assert!(is_dead(left));
    world.finish().await;
}

/// fabrik#1345, ADR-1365: the agent ended its turn with work in the background, for which nothing woke it.
#[tokio::test]
async fn work_that_is_left_in_the_background_is_ended_and_counts_for_nothing() {
    let leaves_work = "(echo $$ > \"$WORLD/pid\"; sleep 100; git commit --allow-empty -m late) &
         until [ -s \"$WORLD/pid\" ]; do sleep 0.01; done\n";
    let left = |world: &World| number_in(&world.path("pid")).expect("it was started");

    let said = result!(r#"{"verdict": "no_change", "reason": "r"}"#);
    let mut world = World::new(&format!("{leaves_work}{said}")).await;
    world.start();
    world.master.give(world.lease(v1::Role::Implementer).await);
    let outcome = world.outcome().await;
    assert!(matches!(outcome, Outcome::Verdict(_)), "{outcome:?}");
    assert!(is_dead(left(&world)));
    world.finish().await;

    let mut world = World::new(leaves_work).await;
    world.start();
    world.master.give(world.lease(v1::Role::Implementer).await);
    let (class, message) = world.failure().await;
    assert_eq!(class, Class::NoValidResult, "{message}");
    assert!(is_dead(left(&world)));
    world.finish().await;
}
