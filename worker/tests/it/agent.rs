//! The agent as a process, against a fake master, with a shell script as harness.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use nix::sys::signal::Signal;
use pointsman_git::Git;
use pointsman_proto::v1::{
    self, CompleteRequest, complete_request::Outcome, infrastructure_error::Class, verdict::Verdict,
};
use tempfile::TempDir;
use tokio::{
    net::TcpListener,
    process::{Child, Command},
};
use tonic::Status;

use crate::{
    fake_master::{FakeMaster, State},
    support::{PATIENCE, eventually_async, is_dead, is_locked, number_in, signal, stat},
};

/// Writes a result, for use in scripts.
macro_rules! result {
    ($json:literal) => {
        concat!("printf '%s' '", $json, "' > \"$POINTSMAN_RESULT_FILE\"\n")
    };
}

pub(crate) struct World {
    pub(crate) directory: TempDir,
    pub(crate) master: FakeMaster,
    agent: Option<Child>,
}

impl World {
    /// A master, a repository with one commit, and a configuration whose harness is that script.
    pub(crate) async fn new(script: &str) -> Self {
        let world = Self {
            directory: tempfile::tempdir().unwrap(),
            master: FakeMaster::start().await,
            agent: None,
        };
        fs::create_dir(world.path("upstream")).unwrap();
        world.git(&["init", "--quiet"]).await;
        world
            .git(&["commit", "--quiet", "--allow-empty", "-m", "first"])
            .await;
        let script = serde_json::to_string(script).unwrap();
        world.configure(&format!(
            "capacity = 1
             masters = [\"{}\"]
             state_dir = \"{}\"
             drain_grace = \"0s\"
             [harness.stub]
             command = [\"/bin/sh\", \"-c\", {script}]
             roles = [\"implementer\", \"reviewer\", \"conflict_resolver\"]
             env = [\"WORLD\"]
             grace = \"0s\"\n",
            world.master.url,
            world.state().display(),
        ));
        world
    }

    fn configure(&self, text: &str) {
        fs::write(self.path("worker.toml"), text).unwrap();
    }

    /// Adds to the harness's profile.
    fn and_profile(self, line: &str) -> Self {
        let text = fs::read_to_string(self.path("worker.toml")).unwrap();
        self.configure(&format!("{text}{line}\n"));
        self
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub(crate) fn state(&self) -> PathBuf {
        self.path("state")
    }

    pub(crate) async fn git(&self, arguments: &[&str]) -> String {
        Git::new(self.path("upstream"))
            .with_identity("A", "a@example.invalid")
            .text(arguments)
            .await
            .unwrap()
    }

    fn command(&self) -> Command {
        self.command_of(Path::new(env!("CARGO_BIN_EXE_pointsman-worker")))
    }

    fn command_of(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command
            .arg("--config")
            .arg(self.path("worker.toml"))
            .env("WORLD", self.directory.path())
            .stdin(Stdio::null())
            .kill_on_drop(true);
        command
    }

    /// Starts an agent. Its log goes where the test's output goes.
    pub(crate) fn start(&mut self) -> u32 {
        let command = self.command();
        self.start_by(command)
    }

    fn start_by(&mut self, mut command: Command) -> u32 {
        let agent = command.spawn().unwrap();
        let pid = agent.id().unwrap();
        self.agent = Some(agent);
        pid
    }

    pub(crate) async fn end(&mut self) -> std::process::ExitStatus {
        let mut agent = self.agent.take().unwrap();
        tokio::time::timeout(PATIENCE, agent.wait())
            .await
            .expect("the agent ends")
            .unwrap()
    }

    /// Ends the agent in order, which it must do with success, and leaves nothing behind.
    async fn finish(mut self) {
        let pid = self.agent.as_ref().unwrap().id().unwrap();
        signal(pid, Signal::SIGTERM);
        assert!(self.end().await.success());
        for name in ["state/sessions", "state/workspaces", "state/t"] {
            assert_eq!(fs::read_dir(self.path(name)).unwrap().count(), 0, "{name}");
        }
    }

    /// A lease of an issue, at the tip of main.
    pub(crate) async fn lease(&self, role: v1::Role) -> v1::Lease {
        v1::Lease {
            key: Some(key()),
            ttl: seconds(60),
            role: role.into(),
            tier: 1,
            profile: "stub".to_owned(),
            repository: Some(v1::Repository {
                id: "11111111-1111-1111-1111-111111111111".to_owned(),
                name: "example".to_owned(),
                git_url: self.path("upstream").to_str().unwrap().to_owned(),
            }),
            workflow_id: "w".to_owned(),
            kind: v1::WorkflowKind::Issue.into(),
            number: 1,
            title: "a title".to_owned(),
            base_ref: "main".to_owned(),
            checkout_commit: self.git(&["rev-parse", "main"]).await,
            push_ref: "refs/pointsman/x/1-y".to_owned(),
            ..v1::Lease::default()
        }
    }

    async fn when<T>(&self, what: &str, mut look: impl FnMut(&mut State) -> Option<T>) -> T {
        eventually_async(what, || look(&mut self.master.lock())).await
    }

    /// Returns after so many beats more, 0.2 s each.
    async fn pass(&self, n: usize) {
        let n = self.master.lock().beats.len() + n;
        self.when("beats go on", |state| {
            (state.beats.len() >= n).then_some(())
        })
        .await;
    }

    async fn complete(&self) -> CompleteRequest {
        self.when("complete", |state| state.completes.pop()).await
    }

    async fn outcome(&self) -> Outcome {
        self.complete().await.outcome.unwrap()
    }

    async fn failure(&self) -> (Class, String) {
        match self.outcome().await {
            Outcome::InfrastructureError(error) => (error.class(), error.message),
            other => panic!("no failure: {other:?}"),
        }
    }

    /// The pid that the harness wrote, once it runs and the agent knows.
    pub(crate) async fn harness(&self) -> u32 {
        let pid = eventually_async("the harness runs", || number_in(&self.path("pid"))).await;
        self.when("a beat names the harness", |state| {
            let mut sessions = state.beats.iter().flat_map(|beat| &beat.sessions);
            sessions
                .any(|session| session.subprocess_pid == pid)
                .then_some(())
        })
        .await;
        pid
    }
}

/// One a test: processes of a session are known by it, and each test has a thread of its own.
fn nonce() -> String {
    let thread = format!("{:?}", std::thread::current().id());
    let thread: String = thread.chars().filter(char::is_ascii_digit).collect();
    format!("{}{:08x}{thread:0>8}", "ab".repeat(8), std::process::id())
}

pub(crate) fn key() -> v1::LeaseKey {
    v1::LeaseKey {
        attempt_id: "22222222-2222-2222-2222-222222222222".to_owned(),
        lock_fence: 1,
        lock_nonce: nonce(),
    }
}

pub(crate) fn seconds(seconds: u64) -> Option<prost_types::Duration> {
    Duration::from_secs(seconds).try_into().ok()
}

mod departures;
mod drains;
mod endings;
mod logs;

const RUNS_ON: &str = "echo $$ > \"$WORLD/pid\"; while :; do echo; sleep 0.05; done";

#[tokio::test]
async fn a_change_is_committed_pushed_and_completed() {
    let mut world = World::new(concat!(
        "git diff --quiet origin/main...HEAD || exit 9\n",
        "grep -q 'a title' \"$POINTSMAN_PROMPT_FILE\" || exit 8\n",
        "echo new > file && git add file && git commit --quiet -m change || exit 7\n",
        result!(r#"{"verdict": "changed", "summary": "added a file"}"#),
    ))
    .await;
    world.start();
    let lease = world.lease(v1::Role::Implementer).await;
    world.master.give(lease.clone());
    let complete = world.complete().await;
    assert_eq!(complete.lease, lease.key);
    assert!(complete.harness_duration.is_some());
    let Some(Outcome::Verdict(v1::Verdict {
        verdict: Some(Verdict::Changed(changed)),
    })) = complete.outcome
    else {
        panic!("{complete:?}");
    };
    assert_eq!(changed.summary, "added a file");
    let pushed = world.git(&["rev-parse", &lease.push_ref]).await;
    assert_eq!(pushed, changed.commit);
    let parent = world.git(&["rev-parse", &format!("{pushed}^")]).await;
    assert_eq!(parent, lease.checkout_commit);
    let register = world.master.lock().registers[0].clone();
    assert_eq!(register.capacity, 1);
    assert_eq!(register.profiles[0].kill_budget, seconds(5));
    assert!(register.sessions.is_empty());
    world.finish().await;
}

/// tomcounsell/ai#2714: heartbeats outlived what they stood for by hours.
#[tokio::test]
async fn beats_name_the_harness_and_then_forget_it() {
    let mut world = World::new(RUNS_ON).await;
    world.start();
    world.master.give(world.lease(v1::Role::Implementer).await);
    let pid = world.harness().await;
    let beat = world
        .when("a beat with the harness's pid", |state| {
            let mut sessions = state.beats.iter().flat_map(|beat| beat.sessions.clone());
            sessions.rfind(|s| s.subprocess_pid != 0 && s.log_bytes > 0)
        })
        .await;
    assert_eq!(beat.lease, Some(key()));
    assert_eq!(beat.phase(), v1::SessionPhase::Running);
    assert_eq!(beat.subprocess_pid, pid);
    assert_eq!(beat.subprocess_starttime, stat(pid).unwrap().2);
    assert!(beat.last_output_at.is_some());
    signal(pid, Signal::SIGKILL);
    let (class, message) = world.failure().await;
    assert_eq!(class, Class::Crashed);
    assert!(message.contains("ended by signal 9"), "{message}");
    world
        .when("a beat without sessions", |state| {
            state
                .beats
                .last()
                .filter(|beat| beat.sessions.is_empty())
                .cloned()
        })
        .await;
    let sequences: Vec<_> = world
        .master
        .lock()
        .beats
        .iter()
        .map(|b| b.sequence)
        .collect();
    assert!(sequences.is_sorted_by(|a, b| a + 1 == *b), "{sequences:?}");
    world.finish().await;
}

#[tokio::test]
async fn a_check_reports_its_status_and_the_end_of_its_log() {
    let mut world = World::new("exit 0").await;
    world.start();
    let mut lease = world.lease(v1::Role::Ci).await;
    lease.profile.clear();
    lease.check = Some(v1::Check {
        name: "test".to_owned(),
        command: "echo out; echo err >&2; git rev-parse HEAD; exit 7".to_owned(),
    });
    world.master.give(lease.clone());
    let Outcome::CheckResult(result) = world.outcome().await else {
        panic!("no check result");
    };
    assert_eq!(result.exit_status, 7);
    assert_eq!(
        result.log_tail,
        format!("out\nerr\n{}", lease.checkout_commit)
    );
    world.finish().await;
}

#[tokio::test]
async fn what_goes_wrong_has_its_class() {
    let changed = result!(r#"{"verdict": "changed", "summary": "s"}"#);
    let cases = [
        (
            "echo why; exit 3".to_owned(),
            Class::Crashed,
            "exited with status 3",
        ),
        ("exit 0".to_owned(), Class::NoValidResult, "no result file"),
        (
            format!("touch dirty; {changed}"),
            Class::NoValidResult,
            "nothing was committed",
        ),
        (
            format!("git checkout -q --orphan x; git commit -q --allow-empty -m y; {changed}"),
            Class::NoValidResult,
            "does not descend",
        ),
        (
            result!(r#"{"verdict": "approve", "notes": "n"}"#).to_owned(),
            Class::NoValidResult,
            "approve",
        ),
    ];
    for (script, class, text) in cases {
        let mut world = World::new(&script).await;
        world.start();
        world.master.give(world.lease(v1::Role::Implementer).await);
        let failure = world.failure().await;
        assert_eq!(failure.0, class, "{script}: {}", failure.1);
        assert!(failure.1.contains(text), "{script}: {}", failure.1);
        world.finish().await;
    }
}

#[tokio::test]
async fn a_workspace_that_can_not_be_had_and_a_lease_that_makes_no_sense_are_refused() {
    let mut world = World::new("exit 0").await;
    world.start();
    let good = world.lease(v1::Role::Implementer).await;
    let mut nowhere = good.clone();
    nowhere.checkout_commit = "ab".repeat(20);
    let mut strange = good.clone();
    strange.profile = "unknown".to_owned();
    let mut senseless = good;
    senseless.push_ref = "refs/heads/main".to_owned();
    for (lease, text) in [
        (nowhere, "commit"),
        (strange, "profile"),
        (senseless, "push_ref"),
    ] {
        world.master.give(lease);
        let (class, message) = world.failure().await;
        assert_eq!(class, Class::WorkspaceFailed);
        assert!(message.contains(text), "{message}");
    }
    world.finish().await;
}

#[tokio::test]
async fn a_prompt_comes_as_the_profile_says() {
    let keep = |prompt: &str| {
        let no_change = result!(r#"{"verdict": "no_change", "reason": "r"}"#);
        format!("{prompt} > \"$WORLD/prompt\"; {no_change}")
    };
    let cases = [
        ("file", keep("cat \"$POINTSMAN_PROMPT_FILE\"")),
        ("stdin", keep("cat")),
        // The argument after a script is its name.
        ("argument", keep("printf '%s' \"$0\"")),
    ];
    for (by, script) in cases {
        let line = format!("prompt = \"{by}\"");
        let mut world = World::new(&script).await.and_profile(&line);
        world.start();
        world.master.give(world.lease(v1::Role::Implementer).await);
        assert!(matches!(world.outcome().await, Outcome::Verdict(_)), "{by}");
        let prompt = fs::read_to_string(world.path("prompt")).unwrap();
        assert!(
            prompt.starts_with("# Task: implementer\n"),
            "{by}: {prompt}"
        );
        assert!(prompt.trim_end().ends_with("```"), "{by}: {prompt}");
        world.finish().await;
    }
}

#[tokio::test]
async fn limits_stop_a_harness() {
    let cases = [
        ("timeout = \"1s\"", RUNS_ON, Class::TimedOut),
        (
            "idle_timeout = \"1s\"",
            "echo $$ > \"$WORLD/pid\"; exec sleep 100",
            Class::Silent,
        ),
    ];
    for (line, script, expected) in cases {
        let mut world = World::new(script).await.and_profile(line);
        world.start();
        world.master.give(world.lease(v1::Role::Implementer).await);
        let pid = world.harness().await;
        let (class, message) = world.failure().await;
        assert_eq!(class, expected, "{message}");
        assert!(is_dead(pid));
        world.finish().await;
    }
}

#[tokio::test]
async fn without_acknowledgements_the_harness_is_stopped_in_time() {
    let mut world = World::new(RUNS_ON).await;
    world.master.lock().is_mute = true;
    world.start();
    let mut lease = world.lease(v1::Role::Implementer).await;
    // Five seconds beyond the kill budget.
    lease.ttl = seconds(10);
    world.master.give(lease);
    let pid = world.harness().await;
    let (class, message) = world.failure().await;
    assert_eq!(class, Class::LeaseLost, "{message}");
    assert!(is_dead(pid));
    world.finish().await;
}

#[tokio::test]
async fn a_lease_whose_answer_was_late_waits_for_the_acknowledgement_of_a_beat() {
    let mut world = World::new(result!(r#"{"verdict": "no_change", "reason": "r"}"#)).await;
    world.master.lock().holds_answers = true;
    world.start();
    let mut lease = world.lease(v1::Role::Implementer).await;
    // Two seconds beyond the kill budget: over before the answer goes.
    lease.ttl = seconds(7);
    world.master.give(lease);
    world
        .when("the grant", |state| state.answered.first_entry().map(drop))
        .await;
    world.pass(15).await;
    // The first beat that lists it stays without an answer until the workspace is there.
    world.master.lock().is_mute = true;
    world.master.let_answers_go();
    let workspaces = world.path("state/workspaces");
    eventually_async("a workspace", || {
        fs::read_dir(&workspaces).ok()?.next().map(drop)
    })
    .await;
    world.pass(8).await;
    world.master.lock().is_mute = false;
    let outcome = world.outcome().await;
    assert!(matches!(outcome, Outcome::Verdict(_)), "{outcome:?}");
    world.finish().await;
}

#[tokio::test]
async fn a_lease_whose_answer_is_on_its_way_when_the_worker_goes_is_given_back() {
    let mut world = World::new("exit 0").await;
    world.master.lock().holds_answers = true;
    let agent = world.start();
    world.master.give(world.lease(v1::Role::Implementer).await);
    world
        .when("the grant", |state| state.answered.first_entry().map(drop))
        .await;
    signal(agent, Signal::SIGTERM);
    assert!(world.end().await.success());
    let state = world.master.lock();
    assert_eq!(state.releases[0].lease, Some(key()));
    let (first, last) = (&state.lease_requests[0], &state.lease_requests[1]);
    assert_eq!(first.request_id, last.request_id);
    assert_eq!(first.max, last.max);
}

#[tokio::test]
async fn a_worker_of_any_capacity_asks_for_what_a_master_gives() {
    let mut world = World::new(result!(r#"{"verdict": "no_change", "reason": "r"}"#)).await;
    let text = fs::read_to_string(world.path("worker.toml")).unwrap();
    world.configure(&text.replace("capacity = 1\n", "capacity = 1000\n"));
    world.start();
    world.master.give(world.lease(v1::Role::Implementer).await);
    assert!(matches!(world.outcome().await, Outcome::Verdict(_)));
    assert_eq!(world.master.lock().registers[0].capacity, 1000);
    world.finish().await;
}

#[tokio::test]
async fn a_worker_whose_question_for_leases_is_refused_ends_and_says_why() {
    let world = World::new("exit 0").await;
    let refusal = Status::invalid_argument("max: too many");
    world.master.lock().lease_errors.push_back(refusal);
    let output = tokio::time::timeout(PATIENCE, world.command().output());
    let output = output.await.unwrap().unwrap();
    assert!(!output.status.success());
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("max: too many"), "{said}");
}

#[tokio::test]
async fn a_shim_that_is_stopped_does_not_save_a_harness_from_its_deadline() {
    let mut world = World::new(RUNS_ON).await;
    world.master.lock().is_mute = true;
    world.start();
    let mut lease = world.lease(v1::Role::Implementer).await;
    // Five seconds beyond the kill budget.
    lease.ttl = seconds(10);
    world.master.give(lease);
    let pid = world.harness().await;
    signal(stat(pid).unwrap().1, Signal::SIGSTOP);
    let (class, message) = world.failure().await;
    assert_eq!(class, Class::LeaseLost, "{message}");
    assert!(is_dead(pid));
    world.finish().await;
}

#[tokio::test]
async fn what_a_harness_puts_where_control_files_belong_does_not_stop_the_agent() {
    let mut world = World::new(
        "session=${POINTSMAN_RESULT_FILE%/*}; cd \"$session\" || exit 9
         echo '{}' > sidecar.json
         rm log && mkfifo log .deadline.tmp exit.json result.json
         echo $$ > \"$WORLD/pid\"; sleep 2; exit 3",
    )
    .await;
    world.start();
    world.master.give(world.lease(v1::Role::Implementer).await);
    let (class, message) = world.failure().await;
    assert_eq!(class, Class::Crashed, "{message}");
    assert!(message.contains("exited with status 3"), "{message}");
    world.finish().await;
}

#[tokio::test]
async fn an_outcome_that_is_refused_ends_the_lease_as_a_failure_that_says_why() {
    let mut world = World::new(result!(r#"{"verdict": "no_change", "reason": "r"}"#)).await;
    let refusal = Status::invalid_argument("verdict.reason: not this one");
    world.master.lock().complete_errors.push_back(refusal);
    world.start();
    world.master.give(world.lease(v1::Role::Implementer).await);
    let (class, message) = world.failure().await;
    assert_eq!(class, Class::NoValidResult);
    assert!(message.contains("not this one"), "{message}");
    world.finish().await;
}

#[tokio::test]
async fn a_signal_to_shim_and_agent_gives_the_lease_back_within_any_grace() {
    let mut world = World::new(RUNS_ON).await;
    let text = fs::read_to_string(world.path("worker.toml")).unwrap();
    world.configure(&text.replace("drain_grace = \"0s\"", "drain_grace = \"1h\""));
    let agent = world.start();
    world.master.give(world.lease(v1::Role::Implementer).await);
    let harness = world.harness().await;
    for pid in [stat(harness).unwrap().1, agent] {
        signal(pid, Signal::SIGTERM);
    }
    assert!(world.end().await.success());
    let state = world.master.lock();
    assert_eq!(state.releases.len(), 1);
    assert!(state.completes.is_empty(), "{:?}", state.completes);
}

#[tokio::test]
async fn a_socket_fits_in_the_temporary_directory() {
    let mut world = World::new(concat!(
        "[ -d \"$TMPDIR\" ] && [ -w \"$TMPDIR\" ] || exit 9\n",
        "printf '%s' \"${TMPDIR#\"$WORLD/state/\"}\" > \"$WORLD/temporary\"\n",
        result!(r#"{"verdict": "no_change", "reason": "r"}"#)
    ))
    .await;
    world.start();
    world.master.give(world.lease(v1::Role::Implementer).await);
    assert!(matches!(world.outcome().await, Outcome::Verdict(_)));
    let temporary = fs::read_to_string(world.path("temporary")).unwrap();
    assert_eq!(temporary, "t/abababababab");
    world.finish().await;
}

#[tokio::test]
async fn an_agent_whose_program_was_removed_goes_on() {
    let mut world = World::new(result!(r#"{"verdict": "no_change", "reason": "r"}"#)).await;
    let program = world.path("worker");
    // By a process of its own: one that another test has just forked would hold our copy open for
    // writing, and what is open for writing can't be run.
    let copied = Command::new("cp")
        .arg(env!("CARGO_BIN_EXE_pointsman-worker"))
        .arg(&program)
        .status();
    assert!(copied.await.unwrap().success());
    let command = world.command_of(&program);
    world.start_by(command);
    fs::remove_file(&program).unwrap();
    world.master.give(world.lease(v1::Role::Implementer).await);
    let outcome = world.outcome().await;
    assert!(matches!(outcome, Outcome::Verdict(_)), "{outcome:?}");
    world.finish().await;
}

#[tokio::test]
async fn a_mirror_is_locked_for_as_long_as_git_changes_it() {
    let mut world = World::new("exit 0").await;
    // A repository whose server says nothing.
    let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let agent = world.start();
    let mut lease = world.lease(v1::Role::Implementer).await;
    let repository = lease.repository.as_mut().unwrap();
    repository.git_url = format!("git://{}/x", server.local_addr().unwrap());
    let lock = world
        .state()
        .join(format!("mirrors/{}.lock", repository.id));
    world.master.give(lease);
    let (git, _) = tokio::time::timeout(PATIENCE, server.accept())
        .await
        .expect("git connects")
        .unwrap();
    signal(agent, Signal::SIGKILL);
    world.end().await;
    assert!(is_locked(&lock), "git outlives the agent, and has the lock");
    drop(git);
    eventually_async("the lock is free", || (!is_locked(&lock)).then_some(())).await;
}

#[tokio::test]
async fn acknowledged_beats_keep_a_harness_running_beyond_its_first_ttl() {
    let mut world = World::new(&format!(
        "echo $$ > \"$WORLD/pid\"; sleep 4; {}",
        result!(r#"{"verdict": "no_change", "reason": "r"}"#)
    ))
    .await;
    world.start();
    let mut lease = world.lease(v1::Role::Implementer).await;
    lease.ttl = seconds(7);
    world.master.give(lease);
    assert!(matches!(world.outcome().await, Outcome::Verdict(_)));
    world.finish().await;
}

#[tokio::test]
async fn a_cancelled_session_is_stopped_and_says_nothing() {
    for action in [
        v1::directive::Action::Cancel,
        v1::directive::Action::LeaseLost,
    ] {
        let mut world = World::new(RUNS_ON).await;
        world.start();
        world.master.give(world.lease(v1::Role::Implementer).await);
        let pid = world.harness().await;
        world.master.lock().directives.push(v1::Directive {
            action: action.into(),
            lease: Some(key()),
            reason: "a test".to_owned(),
            ..v1::Directive::default()
        });
        eventually_async("end of the harness", || is_dead(pid).then_some(())).await;
        world
            .when("a beat without sessions", |state| {
                state
                    .beats
                    .last()
                    .filter(|beat| beat.sessions.is_empty())
                    .cloned()
            })
            .await;
        {
            let state = world.master.lock();
            assert!(state.completes.is_empty() && state.releases.is_empty());
        }
        world.finish().await;
    }
}

#[tokio::test]
async fn a_shim_that_is_killed_takes_its_harness_with_it() {
    let mut world = World::new(RUNS_ON).await;
    world.start();
    world.master.give(world.lease(v1::Role::Implementer).await);
    let harness = world.harness().await;
    let shim = stat(harness).unwrap().1;
    signal(shim, Signal::SIGKILL);
    let (class, message) = world.failure().await;
    assert_eq!(class, Class::Crashed);
    assert!(message.contains("unknown status"), "{message}");
    assert!(is_dead(harness));
    world.finish().await;
}

#[tokio::test]
async fn a_resolver_need_not_commit_and_may() {
    let resolved = result!(r#"{"verdict": "resolved"}"#);
    let commits =
        format!("git merge -q origin/main && git commit -q --allow-empty -m m; {resolved}");
    for (script, has_commit) in [(resolved, false), (commits.as_str(), true)] {
        let mut world = World::new(script).await;
        world.start();
        let lease = world.lease(v1::Role::ConflictResolver).await;
        world.master.give(lease.clone());
        let Outcome::Verdict(v1::Verdict {
            verdict: Some(Verdict::Resolved(resolved)),
        }) = world.outcome().await
        else {
            panic!("not resolved: {script}");
        };
        assert_eq!(!resolved.commit.is_empty(), has_commit);
        if has_commit {
            let pushed = world.git(&["rev-parse", &lease.push_ref]).await;
            assert_eq!(pushed, resolved.commit);
        }
        world.finish().await;
    }
}
