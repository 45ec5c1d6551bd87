//! What a starting agent makes of the sessions that it finds.

use std::{
    fs,
    os::unix::process::CommandExt as _,
    path::PathBuf,
    process::{Child, Command},
};

use nix::sys::signal::Signal;
use pointsman_proto::v1;
use serde_json::{Value, json};

use crate::{
    agent::{World, key},
    support::{eventually_async, is_dead, number_in, signal, stat},
};

const RUNS_ON: &str = "echo $$ > \"$WORLD/pid\"; while :; do echo; sleep 0.05; done";

/// A process that is no harness of ours; killed when dropped.
struct Bystander(Child);

impl Bystander {
    fn start() -> Self {
        Self::with("NOTHING", "special")
    }

    #[expect(clippy::disallowed_methods, reason = "a process to be spared")]
    fn with(name: &str, value: &str) -> Self {
        Self(
            Command::new("sleep")
                .arg("100")
                .env(name, value)
                .process_group(0)
                .spawn()
                .unwrap(),
        )
    }

    fn is_dead(&mut self) -> bool {
        self.0.try_wait().unwrap().is_some()
    }
}

impl Drop for Bystander {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

fn name() -> String {
    let key = key();
    format!("{}-{}-{}", key.attempt_id, key.lock_fence, key.lock_nonce)
}

impl World {
    fn session(&self) -> PathBuf {
        self.state().join("sessions").join(name())
    }

    fn workspace(&self) -> PathBuf {
        self.state().join("workspaces").join(name())
    }

    /// Puts a session on disk whose sidecar names this process.
    fn put(&self, pid: u32, change: impl FnOnce(&mut Value)) {
        let key = key();
        let boot_id = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
        let mut sidecar = json!({
            "schema": 1,
            "attempt_id": key.attempt_id,
            "lock_fence": key.lock_fence,
            "nonce": key.lock_nonce,
            "state": "running",
            "boot_id": boot_id.trim(),
            "subprocess_pid": pid,
            "subprocess_starttime": stat(pid).unwrap().2,
            "grace_ms": 100,
        });
        change(&mut sidecar);
        fs::create_dir_all(self.session()).unwrap();
        fs::create_dir_all(self.workspace()).unwrap();
        fs::write(self.session().join("sidecar.json"), sidecar.to_string()).unwrap();
        fs::write(self.session().join("lock"), "").unwrap();
    }

    /// Starts an agent and returns its registration, which comes after the janitor.
    async fn register(&mut self) -> v1::RegisterRequest {
        self.start();
        eventually_async("registration", || {
            self.master.lock().registers.last().cloned()
        })
        .await
    }

    fn is_swept(&self) -> bool {
        !self.session().exists() && !self.workspace().exists()
    }
}

/// zxkane/autonomous-dev-team#109: what a dead worker had started lived on.
#[tokio::test]
async fn a_session_of_a_killed_agent_is_ended_before_the_next_registers() {
    let mut world = World::new(RUNS_ON).await;
    let agent = world.start();
    world.master.give(world.lease(v1::Role::Implementer).await);
    let harness = world.harness().await;
    signal(agent, Signal::SIGKILL);
    world.end().await;
    assert!(!is_dead(harness), "the shim outlives the agent");
    world.master.lock().registers.clear();

    let register = world.register().await;
    assert!(is_dead(harness));
    assert!(register.sessions.is_empty());
    assert!(world.is_swept());
}

#[tokio::test]
async fn a_harness_without_a_shim_is_ended() {
    let mut world = World::new(RUNS_ON).await;
    let agent = world.start();
    world.master.give(world.lease(v1::Role::Implementer).await);
    let harness = world.harness().await;
    let shim = stat(harness).unwrap().1;
    signal(agent, Signal::SIGKILL);
    signal(shim, Signal::SIGKILL);
    world.end().await;
    world.master.lock().registers.clear();

    let register = world.register().await;
    assert!(is_dead(harness));
    assert!(register.sessions.is_empty());
    assert!(world.is_swept());
}

/// Untrivial-ai/agent-orchestrator#4850, NousResearch/hermes-agent#88562: servers that an agent had started
/// lived on in sessions of their own.
#[tokio::test]
async fn what_left_the_harnesss_session_is_ended_without_a_shim_too() {
    let escapes = "(setsid sh -c 'trap \"\" TERM; echo $$ > \"$WORLD/escaped\"; exec sleep 100' &)
         while ! [ -s \"$WORLD/escaped\" ]; do sleep 0.01; done\n";
    let mut world = World::new(&format!("{escapes}{RUNS_ON}")).await;
    let agent = world.start();
    world.master.give(world.lease(v1::Role::Implementer).await);
    let harness = world.harness().await;
    let escaped = number_in(&world.path("escaped")).unwrap();
    let attempt = key().attempt_id.replace('-', "");
    // The next lease of the same attempt has another nonce.
    let mut other = Bystander::with(&format!("POINTSMAN_ATTEMPT_{attempt}"), "other");
    let shim = stat(harness).unwrap().1;
    signal(agent, Signal::SIGKILL);
    signal(shim, Signal::SIGKILL);
    signal(harness, Signal::SIGKILL);
    world.end().await;
    assert!(!is_dead(escaped), "nothing has ended it yet");
    // As where the shim was killed a moment later: it proves nothing.
    let record = json!({"cause": "harness", "exit": {"exited": 0}});
    fs::write(world.session().join("exit.json"), record.to_string()).unwrap();
    world.master.lock().registers.clear();

    let register = world.register().await;
    assert!(is_dead(escaped));
    assert!(!other.is_dead());
    assert!(register.sessions.is_empty());
    assert!(world.is_swept());
}

#[tokio::test]
async fn an_impostor_is_spared() {
    let mut world = World::new("exit 0").await;
    let mut bystander = Bystander::start();
    world.put(bystander.0.id(), |sidecar| {
        let starttime = sidecar["subprocess_starttime"].as_u64().unwrap();
        sidecar["subprocess_starttime"] = json!(starttime - 1);
    });
    let register = world.register().await;
    assert!(!bystander.is_dead());
    assert!(register.sessions.is_empty());
    assert!(world.is_swept());
}

#[tokio::test]
async fn a_process_of_another_boot_is_spared() {
    let mut world = World::new("exit 0").await;
    let mut bystander = Bystander::start();
    world.put(bystander.0.id(), |sidecar| {
        sidecar["boot_id"] = json!("another");
    });
    let register = world.register().await;
    assert!(!bystander.is_dead());
    assert!(register.sessions.is_empty());
    assert!(world.is_swept());
}

/// coalesce-labs/catalyst#2756: what could not be looked at was taken for dead.
#[tokio::test]
async fn what_can_not_be_verified_is_spared_kept_and_reported() {
    for missing in ["subprocess_starttime", "boot_id"] {
        let mut world = World::new("exit 0").await;
        let mut bystander = Bystander::start();
        world.put(bystander.0.id(), |sidecar| {
            sidecar[missing] = Value::Null;
        });
        let register = world.register().await;
        assert!(!bystander.is_dead(), "{missing}");
        let sessions: Vec<_> = register.sessions.into_iter().map(|s| s.lease).collect();
        assert_eq!(sessions, [Some(key())], "{missing}");
        assert!(world.session().exists() && world.workspace().exists());
    }
}

#[tokio::test]
async fn a_torn_or_foreign_sidecar_is_moved_aside_and_no_reason_to_kill() {
    let foreign: [fn(&str) -> String; 2] = [
        |text| text[..text.len() / 2].to_owned(),
        |text| text.replace("\"lock_fence\":1", "\"lock_fence\":2"),
    ];
    for breaks in foreign {
        let mut world = World::new("exit 0").await;
        let mut bystander = Bystander::start();
        world.put(bystander.0.id(), |_| {});
        let path = world.session().join("sidecar.json");
        let whole = fs::read_to_string(&path).unwrap();
        let broken = breaks(&whole);
        assert_ne!(whole, broken);
        fs::write(&path, &broken).unwrap();
        world.register().await;
        assert!(!bystander.is_dead());
        assert!(!world.session().exists());
        let aside = world
            .state()
            .join("quarantine")
            .join(name())
            .join("sidecar.json");
        assert_eq!(fs::read_to_string(aside).unwrap(), broken);
    }
}

#[tokio::test]
async fn a_foreign_session_that_can_not_be_moved_is_reported_and_stops_nobody() {
    let mut world = World::new("exit 0").await;
    world.put(std::process::id(), |_| {});
    let sidecar = world.session().join("sidecar.json");
    fs::write(&sidecar, "torn").unwrap();
    // Nothing can be moved to another file system.
    std::os::unix::fs::symlink("/proc", world.state().join("quarantine")).unwrap();
    let register = world.register().await;
    let sessions: Vec<_> = register.sessions.into_iter().map(|s| s.lease).collect();
    assert_eq!(sessions, [Some(key())]);
    assert!(sidecar.exists() && world.workspace().exists());
}

#[tokio::test]
async fn what_never_started_and_what_belongs_to_nobody_is_removed() {
    let mut world = World::new("exit 0").await;
    let bystander = Bystander::start();
    world.put(bystander.0.id(), |sidecar| {
        sidecar["state"] = json!("starting");
    });
    let strays = ["workspaces/stray", "t/stray"].map(|name| world.state().join(name));
    for stray in &strays {
        fs::create_dir_all(stray).unwrap();
    }
    let register = world.register().await;
    assert!(register.sessions.is_empty());
    assert!(world.is_swept());
    assert!(strays.iter().all(|stray| !stray.exists()));
}
