//! What the master gets of a session's log, and what becomes of the session where it takes none.

use super::*;

const VERDICT: &str = result!(r#"{"verdict": "no_change", "reason": "r"}"#);

fn attempt() -> String {
    key().attempt_id
}

#[tokio::test]
async fn the_log_comes_while_the_harness_runs_and_its_end_before_the_outcome() {
    let script = format!(
        "printf 'one\\n'; until [ -e \"$WORLD/go\" ]; do sleep 0.02; done; printf 'two'; {VERDICT}"
    );
    let mut world = World::new(&script).await;
    world.start();
    world.master.give(world.lease(v1::Role::Implementer).await);
    world
        .when("the first line", |state| {
            let log = state.logs.get(&attempt())?;
            (log.bytes == b"one\n" && log.total_bytes.is_none()).then_some(())
        })
        .await;
    fs::write(world.path("go"), "").unwrap();
    world.complete().await;
    let log = world.master.lock().logs[&attempt()].clone();
    assert_eq!(log.bytes, b"one\ntwo");
    assert_eq!(log.total_bytes, Some(7));
    world.finish().await;
}

#[tokio::test]
async fn what_the_master_lost_is_sent_again_and_errors_are_ridden_out() {
    let script = format!("i=0; while [ $i -lt 300 ]; do echo line $i; i=$((i+1)); done; {VERDICT}");
    let mut world = World::new(&script).await;
    {
        let mut state = world.master.lock();
        state.loses_log_at = Some(100);
        state.log_errors.push_back(Status::unavailable("away"));
        state.log_errors.push_back(Status::internal("broken"));
    }
    world.start();
    world.master.give(world.lease(v1::Role::Implementer).await);
    world.complete().await;
    let expected: String = (0..300).map(|n| format!("line {n}\n")).collect();
    let log = world.master.lock().logs[&attempt()].clone();
    assert_eq!(log.n_repeats, 0, "what it has is not sent again");
    assert_eq!(String::from_utf8(log.bytes).unwrap(), expected);
    assert_eq!(log.total_bytes, Some(expected.len() as u64));
    assert!(
        world.master.lock().loses_log_at.is_none(),
        "something was lost"
    );
    world.finish().await;
}

#[tokio::test]
async fn a_master_that_answers_no_batch_holds_up_neither_beats_nor_the_outcome() {
    let mut world = World::new(&format!("echo out; {VERDICT}")).await;
    world.master.lock().holds_logs = true;
    world.start();
    world.master.give(world.lease(v1::Role::Implementer).await);
    world.pass(3).await;
    let outcome = world.outcome().await;
    assert!(matches!(outcome, Outcome::Verdict(_)), "{outcome:?}");
    assert!(world.master.lock().logs.is_empty());
    world.master.lock().holds_logs = false;
    world.finish().await;
}

/// A worker without a free slot makes no call but those of its log and its beats.
#[tokio::test]
async fn the_log_of_a_full_worker_follows_its_beats_to_the_next_master() {
    // A runtime of its own: with that its connections end, too.
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    let first = runtime.spawn(FakeMaster::start()).await.unwrap();
    let script = format!(
        "printf 'one\\n'; until [ -e \"$WORLD/go\" ]; do sleep 0.02; done; printf 'two\\n'
         until [ -e \"$WORLD/end\" ]; do sleep 0.02; done; {VERDICT}"
    );
    let mut world = World::new(&script).await;
    let text = fs::read_to_string(world.path("worker.toml")).unwrap();
    let masters = format!("masters = [\"{}\", ", first.url);
    world.configure(&text.replace("masters = [", &masters));
    world.start();
    first.give(world.lease(v1::Role::Implementer).await);
    eventually_async("the first line", || {
        let state = first.lock();
        let log = state.logs.get(&attempt())?;
        (log.bytes == b"one\n").then_some(())
    })
    .await;
    runtime.shutdown_background();
    world
        .when("a beat at the second master", |state| {
            let beat = state.beats.last()?;
            (beat.sessions.len() == 1).then_some(())
        })
        .await;
    fs::write(world.path("go"), "").unwrap();
    world
        .when("the log at the second master", |state| {
            let log = state.logs.get(&attempt())?;
            (log.bytes == b"one\ntwo\n" && log.total_bytes.is_none()).then_some(())
        })
        .await;
    assert!(world.master.lock().completes.is_empty(), "it still runs");
    fs::write(world.path("end"), "").unwrap();
    assert!(matches!(world.outcome().await, Outcome::Verdict(_)));
    world.finish().await;
}

#[tokio::test]
async fn a_log_over_the_workers_own_bound_is_sent_up_to_it_and_its_length_told() {
    let script = format!("head -c 300000 /dev/zero | tr '\\0' x; {VERDICT}");
    let mut world = World::new(&script).await;
    let text = fs::read_to_string(world.path("worker.toml")).unwrap();
    world.configure(&format!("log_max_bytes = 65536\n{text}"));
    world.start();
    world.master.give(world.lease(v1::Role::Implementer).await);
    let outcome = world.outcome().await;
    assert!(matches!(outcome, Outcome::Verdict(_)), "{outcome:?}");
    let log = world.master.lock().logs[&attempt()].clone();
    assert_eq!(log.bytes.len(), 65_536);
    assert_eq!(log.total_bytes, Some(300_000));
    world.finish().await;
}

#[tokio::test]
async fn to_a_master_whose_log_is_full_only_the_end_is_sent() {
    let script = format!("head -c 3000000 /dev/zero | tr '\\0' x; {VERDICT}");
    let mut world = World::new(&script).await;
    world.master.lock().log_limit = Some(1000);
    world.start();
    world.master.give(world.lease(v1::Role::Implementer).await);
    let outcome = world.outcome().await;
    assert!(matches!(outcome, Outcome::Verdict(_)), "{outcome:?}");
    let log = world.master.lock().logs[&attempt()].clone();
    assert_eq!((log.bytes.len(), log.total_bytes), (1000, Some(3_000_000)));
    world.finish().await;
}
