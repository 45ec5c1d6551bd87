//! Workers that go, and masters that go, refuse, or are in trouble.

use super::*;

#[tokio::test]
async fn a_signal_stops_the_sessions_and_gives_their_leases_back() {
    let mut world = World::new(RUNS_ON).await;
    let agent = world.start();
    world.master.give(world.lease(v1::Role::Implementer).await);
    let pid = world.harness().await;
    signal(agent, Signal::SIGTERM);
    assert!(world.end().await.success());
    assert!(is_dead(pid));
    let state = world.master.lock();
    assert_eq!(state.releases[0].lease, Some(key()));
    assert!(state.completes.is_empty());
}

#[tokio::test]
async fn within_the_grace_of_a_drain_sessions_end_by_themselves() {
    let mut world = World::new(&format!(
        "echo $$ > \"$WORLD/pid\"; while ! [ -e \"$WORLD/go\" ]; do sleep 0.05; done; {}",
        result!(r#"{"verdict": "no_change", "reason": "r"}"#)
    ))
    .await;
    let text = fs::read_to_string(world.path("worker.toml")).unwrap();
    world.configure(&text.replace("drain_grace = \"0s\"", "drain_grace = \"60s\""));
    let agent = world.start();
    world.master.give(world.lease(v1::Role::Implementer).await);
    world.harness().await;
    signal(agent, Signal::SIGTERM);
    // What comes now is not taken any more.
    let n_asked = world.master.lock().lease_requests.len();
    let n_beats = world.master.lock().beats.len();
    world
        .when("beats go on", |state| {
            (state.beats.len() > n_beats + 3).then_some(())
        })
        .await;
    fs::write(world.path("go"), "").unwrap();
    assert!(world.end().await.success());
    let state = world.master.lock();
    assert_eq!(state.completes.len(), 1);
    assert!(state.releases.is_empty());
    assert_eq!(state.lease_requests.len(), n_asked);
}

#[tokio::test]
async fn a_second_signal_ends_the_grace() {
    let mut world = World::new(RUNS_ON).await;
    let text = fs::read_to_string(world.path("worker.toml")).unwrap();
    world.configure(&text.replace("drain_grace = \"0s\"", "drain_grace = \"1h\""));
    let agent = world.start();
    world.master.give(world.lease(v1::Role::Implementer).await);
    let pid = world.harness().await;
    signal(agent, Signal::SIGINT);
    let n_beats = world.master.lock().beats.len();
    world
        .when("beats go on", |state| {
            (state.beats.len() > n_beats + 3).then_some(())
        })
        .await;
    assert!(!is_dead(pid));
    signal(agent, Signal::SIGTERM);
    assert!(world.end().await.success());
    assert!(is_dead(pid));
    assert_eq!(world.master.lock().releases.len(), 1);
}

#[tokio::test]
async fn a_master_that_is_in_trouble_is_asked_again() {
    let mut world = World::new(result!(r#"{"verdict": "no_change", "reason": "r"}"#)).await;
    let away = || Status::unavailable("away");
    {
        let mut state = world.master.lock();
        state
            .register_errors
            .extend([Status::already_exists("another"), away()]);
        state.lease_errors.push_back(away());
        state
            .complete_errors
            .extend([away(), Status::unknown("transport")]);
    }
    world.start();
    world.master.give(world.lease(v1::Role::Implementer).await);
    assert!(matches!(world.outcome().await, Outcome::Verdict(_)));
    {
        let state = world.master.lock();
        let (first, again) = (&state.lease_requests[0], &state.lease_requests[1]);
        assert_eq!(first.request_id, again.request_id);
    }
    world
        .when("a new question", |state| {
            let (first, last) = (state.lease_requests.first()?, state.lease_requests.last()?);
            (first.request_id != last.request_id).then_some(())
        })
        .await;
    world.finish().await;
}

#[tokio::test]
async fn a_worker_goes_on_to_the_next_master() {
    let mut world = World::new(result!(r#"{"verdict": "no_change", "reason": "r"}"#)).await;
    let text = fs::read_to_string(world.path("worker.toml")).unwrap();
    // Nobody listens at the first.
    world.configure(&text.replace("masters = [", "masters = [\"http://127.0.0.1:1\", "));
    world.start();
    world.master.give(world.lease(v1::Role::Implementer).await);
    assert!(matches!(world.outcome().await, Outcome::Verdict(_)));
    world.finish().await;
}

#[tokio::test]
async fn a_master_can_have_a_worker_register_and_connect_again() {
    let mut world = World::new(RUNS_ON).await;
    world.start();
    world.master.give(world.lease(v1::Role::Implementer).await);
    let pid = world.harness().await;
    world
        .master
        .lock()
        .once
        .push_back(v1::directive::Action::Register);
    let (first, second) = world
        .when("a second registration", |state| {
            Some((
                state.registers.first()?.clone(),
                state.registers.get(1)?.clone(),
            ))
        })
        .await;
    assert_eq!(first.instance_id, second.instance_id);
    world
        .master
        .lock()
        .once
        .push_back(v1::directive::Action::Draining);
    let n_beats = world.master.lock().beats.len();
    world
        .when("beats go on", |state| {
            (state.beats.len() > n_beats + 3).then_some(())
        })
        .await;
    assert!(!is_dead(pid), "losing a master ends no session");
    world.finish().await;
}

#[tokio::test]
async fn a_second_agent_is_refused() {
    let mut world = World::new("exit 0").await;
    let first = world.start();
    world
        .when("registration", |state| state.registers.first().cloned())
        .await;
    let second = world.command().output().await;
    let second = second.unwrap();
    assert!(!second.status.success());
    let said = String::from_utf8(second.stderr).unwrap();
    assert!(said.contains("in use by another agent"), "{said}");
    assert!(said.contains(&first.to_string()), "{said}");
    world.finish().await;
}

#[tokio::test]
async fn a_worker_that_a_master_refuses_ends_and_says_why() {
    let mut world = World::new("exit 0").await;
    let refusal = Status::invalid_argument("labels: too many");
    world.master.lock().register_errors.push_back(refusal);
    let output = tokio::time::timeout(PATIENCE, world.command().output());
    let output = output.await.unwrap().unwrap();
    assert!(!output.status.success());
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("labels: too many"), "{said}");
    // The state directory is free again.
    world.start();
    world
        .when("registration", |state| state.registers.first().cloned())
        .await;
    world.finish().await;
}
