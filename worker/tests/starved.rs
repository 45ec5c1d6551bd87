//! A worker whose own threads are all kept busy. It runs in this process, since it is this process's
//! runtime that is blocked; so this program is its own shim, and has a main function of its own.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[expect(dead_code, reason = "the other tests need more of it")]
#[path = "it/fake_master.rs"]
mod fake_master;
#[expect(dead_code, reason = "the other tests need more of it")]
#[path = "it/support.rs"]
mod support;

use std::{
    env, fs,
    path::Path,
    process::ExitCode,
    sync::mpsc,
    time::{Duration, Instant},
};

use fake_master::FakeMaster;
use pointsman_git::Git;
use pointsman_proto::v1::{self, complete_request::Outcome};
use pointsman_worker::{Args, ShimArgs, shim_main};
use support::{eventually, is_dead, number_in};
use tokio::runtime::{Builder, Runtime};

/// Time-to-live of the lease. Five seconds of it are the kill budget.
const TTL: Duration = Duration::from_secs(9);

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    if let [command, directory] = &arguments[..]
        && command == "shim"
    {
        // Before any thread is started: the shim forks.
        return shim_main(&ShimArgs {
            session_dir: directory.into(),
        });
    }
    let name = "a_worker_whose_threads_are_all_blocked_keeps_its_lease_and_its_harness";
    let mut filters = arguments.iter().filter(|word| !word.starts_with('-'));
    let is_wanted = filters.clone().next().is_none() || filters.any(|word| name.contains(word));
    if is_wanted {
        a_worker_whose_threads_are_all_blocked_keeps_its_lease_and_its_harness();
    }
    ExitCode::SUCCESS
}

/// digitaldrywood/detent#1433: heartbeats came from what ran builds as well, and the lease of a live worker
/// expired under load.
fn a_worker_whose_threads_are_all_blocked_keeps_its_lease_and_its_harness() {
    let directory = tempfile::tempdir().unwrap();
    let outside = Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    let (master, lease) = outside.block_on(prepare(directory.path()));
    let inside = Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    let arguments = Args {
        config: Some(directory.path().join("worker.toml")),
        ..Args::default()
    };
    let agent = inside.spawn(pointsman_worker::run(arguments));
    master.give(lease);
    let pid = eventually("the harness runs", || {
        number_in(&directory.path().join("pid"))
    });
    eventually("a beat names the harness", || {
        let state = master.lock();
        let mut sessions = state.beats.iter().flat_map(|beat| &beat.sessions);
        sessions
            .any(|session| session.subprocess_pid == pid)
            .then_some(())
    });

    let unblock = block(&inside);
    let (blocked_at, n_before) = (Instant::now(), master.lock().beats.len());
    eventually("beats go on for longer than the lease lives", || {
        let state = master.lock();
        let listed = state.beats[n_before..]
            .iter()
            .filter(|beat| beat.sessions.iter().any(|s| s.subprocess_pid == pid))
            .count();
        (listed > 10 && blocked_at.elapsed() > TTL + Duration::from_secs(1)).then_some(())
    });
    assert!(!is_dead(pid), "the shim was told of the renewals");
    assert!(!agent.is_finished());

    unblock.send(()).unwrap();
    fs::write(directory.path().join("go"), "").unwrap();
    let complete = eventually("an outcome", || master.lock().completes.pop());
    assert!(
        matches!(
            complete.outcome,
            Some(Outcome::Verdict(v1::Verdict { verdict: Some(_) }))
        ),
        "{complete:?}"
    );
    eventually("the session is removed", || {
        let mut sessions = fs::read_dir(directory.path().join("state/sessions")).unwrap();
        sessions.next().is_none().then_some(())
    });
    inside.shutdown_background();
}

/// Keeps the one thread of a runtime from everything else until it is told otherwise.
fn block(runtime: &Runtime) -> mpsc::Sender<()> {
    let (unblock, unblocked) = mpsc::channel();
    let (began, begun) = mpsc::channel();
    drop(runtime.spawn(async move {
        began.send(()).unwrap();
        unblocked.recv().unwrap();
    }));
    begun.recv().unwrap();
    unblock
}

/// A master, a repository, a configuration, and a lease whose harness waits for a file.
async fn prepare(directory: &Path) -> (FakeMaster, v1::Lease) {
    let master = FakeMaster::start().await;
    let upstream = directory.join("upstream");
    fs::create_dir(&upstream).unwrap();
    let git = Git::new(&upstream).with_identity("A", "a@example.invalid");
    git.run(["init", "--quiet"]).await.unwrap();
    git.run(["commit", "--quiet", "--allow-empty", "-m", "first"])
        .await
        .unwrap();
    let script = format!(
        "cd '{}'; echo $$ > pid; until [ -e go ]; do sleep 0.05; done
         echo '{{\"verdict\": \"no_change\", \"reason\": \"r\"}}' > \"$POINTSMAN_RESULT_FILE\"",
        directory.display()
    );
    let script = serde_json::to_string(&script).unwrap();
    let config = format!(
        "masters = [\"{}\"]
         state_dir = \"{}\"
         [harness.stub]
         command = [\"/bin/sh\", \"-c\", {script}]
         roles = [\"implementer\"]
         grace = \"0s\"\n",
        master.url,
        directory.join("state").display(),
    );
    fs::write(directory.join("worker.toml"), config).unwrap();
    let lease = v1::Lease {
        key: Some(v1::LeaseKey {
            attempt_id: "22222222-2222-2222-2222-222222222222".to_owned(),
            lock_fence: 1,
            lock_nonce: format!("{:032x}", std::process::id()),
        }),
        ttl: TTL.try_into().ok(),
        role: v1::Role::Implementer.into(),
        tier: 1,
        profile: "stub".to_owned(),
        repository: Some(v1::Repository {
            id: "11111111-1111-1111-1111-111111111111".to_owned(),
            name: "example".to_owned(),
            git_url: upstream.display().to_string(),
        }),
        workflow_id: "w".to_owned(),
        kind: v1::WorkflowKind::Issue.into(),
        number: 1,
        base_ref: "main".to_owned(),
        checkout_commit: git.text(["rev-parse", "HEAD"]).await.unwrap(),
        push_ref: "refs/pointsman/x/1-y".to_owned(),
        ..v1::Lease::default()
    };
    (master, lease)
}
