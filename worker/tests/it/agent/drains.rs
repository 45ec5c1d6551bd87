//! Drains by operators: the worker stays.

use super::*;

fn drain(stop_sessions: bool) -> v1::Directive {
    v1::Directive {
        action: v1::directive::Action::Drain.into(),
        reason: "a test".to_owned(),
        stop_sessions,
        ..v1::Directive::default()
    }
}

/// Lets pass what the last question for leases may still take, and more.
async fn asks_no_more(world: &World) {
    let asked = || world.master.lock().lease_requests.len();
    world.pass(3).await;
    let n_asked = asked();
    world.pass(5).await;
    assert_eq!(asked(), n_asked);
}

#[tokio::test]
async fn a_drained_worker_asks_no_more_while_its_session_runs_to_its_end_and_asks_again_later() {
    let mut world = World::new(&format!(
        "echo $$ > \"$WORLD/pid\"; while ! [ -e \"$WORLD/go\" ]; do sleep 0.05; done; {}",
        result!(r#"{"verdict": "no_change", "reason": "r"}"#)
    ))
    .await;
    world.start();
    world.master.give(world.lease(v1::Role::Implementer).await);
    world.harness().await;
    world.master.lock().drain = Some(drain(false));
    world.pass(2).await;
    fs::write(world.path("go"), "").unwrap();
    assert!(matches!(world.outcome().await, Outcome::Verdict(_)));
    asks_no_more(&world).await;
    let n_asked = world.master.lock().lease_requests.len();
    world.master.lock().drain = None;
    world
        .when("a question for leases", |state| {
            (state.lease_requests.len() > n_asked).then_some(())
        })
        .await;
    world.finish().await;
}

#[tokio::test]
async fn a_drain_that_stops_sessions_gives_them_back_and_the_worker_stays() {
    let mut world = World::new(RUNS_ON).await;
    world.start();
    world.master.give(world.lease(v1::Role::Implementer).await);
    let pid = world.harness().await;
    world.master.lock().drain = Some(drain(false));
    world.pass(3).await;
    assert!(!is_dead(pid));
    world.master.lock().drain = Some(drain(true));
    let released = world.when("a release", |state| state.releases.pop()).await;
    assert_eq!(released.lease, Some(key()));
    assert!(is_dead(pid));
    assert!(world.master.lock().completes.is_empty());
    asks_no_more(&world).await;
    world.finish().await;
}

#[tokio::test]
async fn a_drain_that_stops_sessions_gives_back_at_once_what_has_not_started() {
    let mut world = World::new("exit 0").await;
    let text = fs::read_to_string(world.path("worker.toml")).unwrap();
    world.configure(&text.replace("drain_grace = \"0s\"", "drain_grace = \"1h\""));
    // A repository whose server says nothing.
    let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
    world.start();
    let mut lease = world.lease(v1::Role::Implementer).await;
    let repository = lease.repository.as_mut().unwrap();
    repository.git_url = format!("git://{}/x", server.local_addr().unwrap());
    world.master.give(lease);
    let _git = tokio::time::timeout(PATIENCE, server.accept())
        .await
        .expect("git connects")
        .unwrap();
    world.master.lock().drain = Some(drain(true));
    let released = world.when("a release", |state| state.releases.pop()).await;
    assert_eq!(released.lease, Some(key()));
    world.finish().await;
}

#[tokio::test]
async fn a_drain_that_ends_within_the_grace_stops_nothing() {
    let mut world = World::new(RUNS_ON).await;
    let text = fs::read_to_string(world.path("worker.toml")).unwrap();
    world.configure(&text.replace("drain_grace = \"0s\"", "drain_grace = \"2s\""));
    world.start();
    world.master.give(world.lease(v1::Role::Implementer).await);
    let pid = world.harness().await;
    world.master.lock().drain = Some(drain(true));
    world.pass(2).await;
    world.master.lock().drain = None;
    // Past the grace, at five beats a second.
    world.pass(15).await;
    assert!(!is_dead(pid));
    assert!(world.master.lock().releases.is_empty());
    world.master.lock().drain = Some(drain(true));
    world.when("a release", |state| state.releases.pop()).await;
    world.finish().await;
}
