//! The world itself: what there is, and how to start, kill and ask it.

use std::{
    collections::BTreeMap,
    ffi::OsString,
    fs,
    net::{Ipv4Addr, SocketAddr},
    path::PathBuf,
    process::Output,
    sync::atomic::{AtomicU16, Ordering},
    time::Duration,
};

use nix::sys::signal::Signal;
use pointsman_proto::v1::{
    AddRepositoryRequest, Event, GetWorkflowRequest, ListEventsRequest, ListSessionsRequest,
    ListWorkflowsRequest, Session, SetLabelRequest, SubmitIssueRequest, Workflow, WorkflowKind,
    WorkflowState,
};
use serde::de::DeserializeOwned;
use tempfile::TempDir;
use tokio::time::timeout;
use tonic::Status;
use tonic_health::pb::health_check_response::ServingStatus;

use super::{
    api::Api,
    condition::{PATIENCE, eventually},
    config, history,
    leftovers::{self, Found},
    process::{self, Process},
    remote::{BASE, Remote},
    script::{self, Invocation, Script},
    setup::{Programs, Setup, WorkerSetup},
    story::{Story, Tale},
};

/// The repository's name at the master.
pub const REPOSITORY: &str = "demo";

/// Its opt-in label.
const LABEL: &str = "agent";

/// How much of the end of each log a failed test shows.
const TAIL_LINES: usize = 60;

/// A master, its workers, a remote, and the clients to ask them.
pub struct World {
    directory: TempDir,
    programs: Programs,
    setup: Setup,
    url: String,
    pub api: Api,
    pub remote: Remote,
    master: Option<Process>,
    workers: Vec<Process>,
    /// Problems in logs are part of the test.
    forgives_errors: bool,
}

/// What a command of the command line has printed.
#[derive(Debug)]
pub struct CommandLine {
    pub status: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl CommandLine {
    fn new(output: &Output) -> Self {
        Self {
            status: output.status.code(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    /// Standard output, of a command that must have succeeded.
    pub fn text(&self) -> &str {
        assert_eq!(self.status, Some(0), "{self:?}");
        &self.stdout
    }

    /// Standard output as JSON, of a command that must have succeeded.
    pub fn json<T: DeserializeOwned>(&self) -> T {
        serde_json::from_str(self.text()).expect("the command prints JSON")
    }
}

impl World {
    /// A world with a master that is ready, its one repository, and registered workers on their way.
    pub async fn start(programs: Programs, setup: Setup) -> Self {
        let mut world = Self::prepare(programs, setup).await;
        world.start_master().await;
        world.add_repository().await;
        for worker in world.setup.workers.clone() {
            world.start_worker(&worker.name).await;
        }
        world
    }

    /// A world in which nothing runs yet.
    pub async fn prepare(programs: Programs, setup: Setup) -> Self {
        let directory = tempfile::Builder::new()
            .prefix("pointsman-world-")
            .tempdir()
            .expect("make a temporary directory");
        let remote = Remote::make(directory.path(), &directory.path().join("master.pid")).await;
        let listen = address();
        let url = format!("http://{listen}");
        let world = Self {
            api: Api::new(&url),
            directory,
            programs,
            setup,
            url,
            remote,
            master: None,
            workers: Vec::new(),
            forgives_errors: false,
        };
        fs::create_dir(world.gates()).expect("make a directory");
        let config = config::master(listen, &world.path("master"));
        fs::write(world.path("master.toml"), config).expect("write a configuration");
        for worker in &world.setup.workers {
            world.configure_worker(worker);
        }
        world.follow(&world.script());
        world
    }

    /// Where a file of the world is.
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Where the master serves.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Errors in logs are expected: something is broken on purpose.
    pub fn forgive_errors(&mut self) {
        self.forgives_errors = true;
    }

    // Processes

    /// Starts the master, on the state and the address of the one before it, and waits until it is
    /// ready.
    pub async fn start_master(&mut self) {
        assert!(self.master.is_none(), "there is a master");
        let arguments = ["master", "--config"].map(OsString::from);
        let config = self.path("master.toml").into_os_string();
        let arguments: Vec<OsString> = arguments.into_iter().chain([config]).collect();
        let mut master = Process::start(
            "master",
            &self.programs.pointsman,
            &arguments,
            &self.setup.master_variables,
            &self.path("master.log"),
        );
        fs::write(self.path("master.pid"), format!("{}\n", master.pid())).expect("write a pid");
        let deadline = std::time::Instant::now() + PATIENCE;
        while self.api.health("pointsman.ready").await != Some(ServingStatus::Serving) {
            if let Some(status) = master.ended() {
                panic!(
                    "the master ended by itself ({status}): {}",
                    self.log("master")
                );
            }
            assert!(std::time::Instant::now() < deadline, "no ready master");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        self.master = Some(master);
    }

    /// The running master.
    pub fn master(&mut self) -> &mut Process {
        self.master.as_mut().expect("there is a master")
    }

    /// Kills the master, without any chance to clean up.
    pub async fn kill_master(&mut self) {
        self.master().kill9().await;
        self.master = None;
    }

    /// Waits for the end of a master that a hook kills.
    pub async fn master_was_killed(&mut self) {
        let status = self.master().end().await;
        assert!(!status.success(), "the master ended with {status}");
        self.master = None;
    }

    /// Stops the master in order.
    pub async fn stop_master(&mut self) {
        let mut master = self.master.take().expect("there is a master");
        master.signal(Signal::SIGTERM);
        let status = master.end().await;
        assert!(status.success(), "the master ended with {status}");
    }

    /// One worker more, to be started.
    pub fn add_worker(&mut self, worker: WorkerSetup) {
        self.configure_worker(&worker);
        self.setup.workers.push(worker);
    }

    fn configure_worker(&self, worker: &WorkerSetup) {
        let config = config::worker(
            worker,
            &self.url,
            &self.path(&worker.name),
            &self.programs.stub_harness,
            &self.path("script.json"),
        );
        fs::write(self.path(&format!("{}.toml", worker.name)), config)
            .expect("write a configuration");
    }

    /// Starts a worker of the setup, on the state of the one before it, and waits until it can take a
    /// signal: it has looked through what the one before it left, and is about to register.
    pub async fn start_worker(&mut self, name: &str) {
        const STARTED: &str = "worker starts";
        let n_earlier = self.log(name).matches(STARTED).count();
        let config = self.path(&format!("{name}.toml")).into_os_string();
        let arguments = ["worker", "--config"].map(OsString::from);
        let arguments: Vec<OsString> = arguments.into_iter().chain([config]).collect();
        let worker = Process::start(
            name,
            &self.programs.pointsman,
            &arguments,
            &[],
            &self.path(&format!("{name}.log")),
        );
        self.workers.push(worker);
        eventually(&format!("{name} starts"), async || {
            (self.log(name).matches(STARTED).count() > n_earlier).then_some(())
        })
        .await;
    }

    /// A running worker.
    pub fn worker(&mut self, name: &str) -> &mut Process {
        let mut workers = self.workers.iter_mut();
        workers
            .find(|worker| worker.name() == name)
            .unwrap_or_else(|| panic!("there is no {name}"))
    }

    fn take_worker(&mut self, name: &str) -> Process {
        let place = self.workers.iter().position(|w| w.name() == name);
        self.workers.remove(place.expect("there is such a worker"))
    }

    /// A worker that has ended, as the test has seen.
    pub fn forget_worker(&mut self, name: &str) {
        let ended = self.take_worker(name).ended();
        assert!(ended.is_some(), "{name} still runs");
    }

    /// Kills a worker, without any chance to clean up. Its shims live on.
    pub async fn kill_worker(&mut self, name: &str) {
        self.take_worker(name).kill9().await;
    }

    /// Stops a worker in order.
    pub async fn stop_worker(&mut self, name: &str) {
        let mut worker = self.take_worker(name);
        worker.signal(Signal::SIGTERM);
        let status = worker.end().await;
        assert!(status.success(), "{name} ended with {status}");
    }

    /// What a process has logged in all its lives.
    pub fn log(&self, name: &str) -> String {
        process::read_log(&self.path(&format!("{name}.log")))
    }

    /// Runs a command of the operators against this master.
    pub async fn run<'a>(&self, arguments: impl IntoIterator<Item = &'a str>) -> CommandLine {
        let address = [("POINTSMAN_ADDRESS".to_owned(), self.url.clone())];
        let child = process::command(&self.programs.pointsman, &address)
            .args(arguments)
            .output();
        let output = timeout(PATIENCE, child).await.expect("a command ends");
        CommandLine::new(&output.expect("run a command"))
    }

    // The harness

    /// Directory of the gates.
    fn gates(&self) -> PathBuf {
        self.path("gates")
    }

    /// A script in which all goes well, to be changed.
    pub fn script(&self) -> Script {
        Script::new(self.gates(), self.path("journal"))
    }

    /// From the next run on, harnesses follow this script.
    pub fn follow(&self, script: &Script) {
        let text = serde_json::to_vec(script).expect("a script is JSON");
        let unfinished = self.path("script.new");
        fs::write(&unfinished, text).expect("write the script");
        fs::rename(unfinished, self.path("script.json")).expect("put the script in place");
    }

    /// Opens a gate for good.
    pub fn open(&self, gate: &str) {
        fs::write(self.gates().join(gate), "").expect("open a gate");
    }

    /// Shuts a gate again.
    pub fn shut(&self, gate: &str) {
        fs::remove_file(self.gates().join(gate)).expect("shut a gate");
    }

    /// Whether the check has come to its gate.
    pub fn is_ci_running(&self) -> bool {
        self.gates().join("ci.reached").exists()
    }

    /// All runs of harnesses so far.
    pub fn journal(&self) -> Vec<Invocation> {
        script::read_journal(&self.path("journal"))
    }

    /// Runs of harnesses of a role so far.
    pub fn runs(&self, role: &str) -> Vec<Invocation> {
        let journal = self.journal().into_iter();
        journal.filter(|run| run.role == role).collect()
    }

    /// Waits for the `n`-th run in a role, counted from 1.
    pub async fn run_of(&self, role: &str, n: usize) -> Invocation {
        eventually(&format!("run {n} of {role}"), async || {
            self.runs(role).into_iter().nth(n - 1)
        })
        .await
    }

    // Items and workflows

    async fn add_repository(&self) {
        let gates = self.gates().to_string_lossy().into_owned();
        let request = AddRepositoryRequest {
            name: REPOSITORY.to_owned(),
            git_url: self.remote.path().to_string_lossy().into_owned(),
            base_ref: BASE.to_owned(),
            ci_command: self.setup.ci.replace("{gates}", &gates),
            label: LABEL.to_owned(),
            policy: Some(self.setup.policy.clone()),
            reason: "test".to_owned(),
            ..AddRepositoryRequest::default()
        };
        let mut repositories = self.api.repositories.clone();
        repositories
            .add_repository(request)
            .await
            .expect("add the repository");
    }

    /// Opens an issue that carries the label, and returns its number.
    pub async fn submit(&self) -> u64 {
        let request = SubmitIssueRequest {
            repository: REPOSITORY.to_owned(),
            title: "Something is missing".to_owned(),
            body: "It should be there.".to_owned(),
            reason: "test".to_owned(),
            ..SubmitIssueRequest::default()
        };
        let mut repositories = self.api.repositories.clone();
        let answer = repositories.submit_issue(request).await;
        answer.expect("open an issue").into_inner().number
    }

    /// Gives an item the label, or takes it away.
    pub async fn set_label(&self, number: u64, present: bool) {
        let answer = self.try_set_label(number, present).await;
        answer.expect("set the label");
    }

    /// As [`set_label`](Self::set_label), where the master may refuse, or not be there.
    pub async fn try_set_label(&self, number: u64, present: bool) -> Result<(), Status> {
        let request = SetLabelRequest {
            repository: REPOSITORY.to_owned(),
            number,
            label: LABEL.to_owned(),
            present,
            reason: "test".to_owned(),
        };
        let mut repositories = self.api.repositories.clone();
        repositories.set_label(request).await.map(drop)
    }

    /// All workflows; `None` where no master answers.
    pub async fn workflows(&self) -> Option<Vec<Workflow>> {
        let mut client = self.api.workflows.clone();
        let mut all = Vec::new();
        let mut request = ListWorkflowsRequest {
            page_size: 500,
            ..ListWorkflowsRequest::default()
        };
        loop {
            let page = client.list_workflows(request.clone()).await.ok()?;
            let page = page.into_inner();
            all.extend(page.workflows);
            if page.next_page_token.is_empty() {
                return Some(all);
            }
            request.page_token = page.next_page_token;
        }
    }

    /// The one pull request of this world.
    pub async fn pull_request(&self) -> u64 {
        eventually("a pull request", async || {
            let all = self.workflows().await?;
            let mut found = all.iter().filter(|w| w.kind() == WorkflowKind::PullRequest);
            found.next().map(|workflow| workflow.number)
        })
        .await
    }

    /// The workflow of an item; `None` where no master answers, or there is none.
    pub async fn story(&self, number: u64) -> Option<Story> {
        let all = self.workflows().await?;
        let found = all.into_iter().find(|w| w.number == number)?;
        self.story_of(&found.id).await
    }

    /// A workflow by its id; `None` where no master answers.
    pub async fn story_of(&self, workflow_id: &str) -> Option<Story> {
        let request = GetWorkflowRequest {
            workflow_id: workflow_id.to_owned(),
        };
        let answer = self.api.workflows.clone().get_workflow(request).await;
        Some(Story::new(answer.ok()?.into_inner()))
    }

    /// Events of all workflows after a sequence; `None` where no master answers, or there are none.
    pub async fn events_after(&self, sequence: u64) -> Option<Vec<Event>> {
        let request = ListEventsRequest {
            after_sequence: sequence,
            page_size: 1000,
            ..ListEventsRequest::default()
        };
        let answer = self.api.workflows.clone().list_events(request).await;
        let events = answer.ok()?.into_inner().events;
        (!events.is_empty()).then_some(events)
    }

    /// Runs a statement in the master's database, as a person's shell could.
    pub async fn in_the_database(&self, statement: &'static str) {
        use sqlx::Connection as _;

        let options = sqlx::sqlite::SqliteConnectOptions::new()
            .filename(self.path("master").join("pointsman.db"))
            .busy_timeout(PATIENCE);
        let mut connection = sqlx::SqliteConnection::connect_with(&options)
            .await
            .expect("open the database");
        sqlx::query(statement)
            .execute(&mut connection)
            .await
            .expect("run a statement");
        connection.close().await.expect("close the database");
    }

    /// Waits until the workflow of an item is as wanted.
    pub async fn until(&self, number: u64, what: &str, is: impl Fn(&Story) -> bool) -> Story {
        eventually(&format!("#{number}: {what}"), async || {
            self.story(number).await.filter(|story| is(story))
        })
        .await
    }

    /// Waits until the workflow of an item is in a state.
    pub async fn until_state(&self, number: u64, state: WorkflowState) -> Story {
        self.until(number, state.as_str_name(), |story| story.state() == state)
            .await
    }

    /// Who runs what now.
    pub async fn sessions(&self) -> Vec<Session> {
        let mut fleet = self.api.fleet.clone();
        let answer = fleet.list_sessions(ListSessionsRequest::default()).await;
        answer.map_or_else(|_| Vec::new(), |answer| answer.into_inner().sessions)
    }

    /// Waits until the issue's pull request is merged, and checks that this happened once.
    pub async fn until_merged(&self, issue: u64) -> Tale {
        let issue = self.until_or_end(issue, WorkflowState::CreatedPr).await;
        let number = issue.workflow().pull_request_number;
        let pull_request = self.until_or_end(number, WorkflowState::Merged).await;
        let tale = Tale {
            issue,
            pull_request,
        };
        self.merged_once(&tale).await;
        tale
    }

    /// As `until_state`, but sees early that it will never come.
    async fn until_or_end(&self, number: u64, wanted: WorkflowState) -> Story {
        self.until(number, wanted.as_str_name(), |story| {
            let state = story.state();
            let is_over = matches!(state, WorkflowState::Stuck | WorkflowState::Abandoned);
            assert!(state == wanted || !is_over, "#{number}: {story:#?}");
            state == wanted
        })
        .await
    }

    async fn merged_once(&self, tale: &Tale) {
        let all = self.workflows().await.expect("a master");
        let children: Vec<_> = all
            .iter()
            .filter(|w| w.parent_id == tale.issue.id())
            .collect();
        assert_eq!(children.len(), 1, "one pull request: {all:#?}");
        let workflow = tale.pull_request.workflow();
        let merges = self.remote.merges().await;
        let ours = merges.iter().filter(|c| **c == workflow.merged_commit);
        assert_eq!(ours.count(), 1, "{merges:?} and {workflow:#?}");
        let n_merged = all
            .iter()
            .filter(|w| w.state() == WorkflowState::Merged)
            .count();
        assert_eq!(merges.len(), n_merged, "one merge each: {all:#?}");
        let proof = format!("/{}", workflow.number);
        let refs = self.remote.refs().await;
        let proofs: Vec<_> = refs
            .iter()
            .filter(|(name, _)| {
                name.starts_with("refs/pointsman/merged/") && name.ends_with(&proof)
            })
            .map(|(_, commit)| commit)
            .collect();
        assert_eq!(proofs, [&workflow.merged_commit]);
        for story in [&tale.issue, &tale.pull_request] {
            history::check(story.answer());
        }
    }

    /// Every event so far.
    async fn all_events(&self) -> Vec<Event> {
        let mut all: Vec<Event> = Vec::new();
        while let Some(page) = self
            .events_after(all.last().map_or(0, |event| event.sequence))
            .await
        {
            all.extend(page);
        }
        all
    }

    /// Checks what holds at any time, of every workflow and of every run.
    pub async fn check_history(&self) {
        let mut events: BTreeMap<String, Vec<Event>> = BTreeMap::new();
        for event in self.all_events().await {
            events
                .entry(event.workflow_id.clone())
                .or_default()
                .push(event);
        }
        for workflow in self.workflows().await.unwrap_or_default() {
            let story = self.story_of(&workflow.id).await.expect("a master");
            let mut answer = story.answer().clone();
            answer.events = events.remove(&workflow.id).unwrap_or_default();
            history::check(&answer);
        }
        history::check_journal(&self.journal());
    }

    // The end

    /// Processes of this world that run now.
    pub fn processes(&self) -> Vec<Found> {
        leftovers::processes_in(self.directory.path())
    }

    /// Checks what holds at any time, ends all in order, and sees that nothing is left.
    pub async fn finish(mut self) {
        self.check_history().await;
        for mut worker in std::mem::take(&mut self.workers) {
            worker.signal(Signal::SIGTERM);
            let status = worker.end().await;
            assert!(status.success(), "{} ended with {status}", worker.name());
        }
        if self.master.is_some() {
            self.stop_master().await;
        }
        eventually("the end of all processes", async || {
            self.processes().is_empty().then_some(())
        })
        .await;
        if !self.forgives_errors {
            self.logs_are_clean();
        }
    }

    fn logs_are_clean(&self) {
        for log in process::logs(self.directory.path()) {
            let text = process::read_log(&log);
            let bad: Vec<&str> = text
                .lines()
                .filter(|line| line.contains(" ERROR ") || line.contains("panicked at"))
                .collect();
            assert!(bad.is_empty(), "{}: {bad:#?}", log.display());
        }
    }

    /// The end of each log, for people.
    fn log_tails(&self) -> String {
        let tail = |path: &PathBuf| {
            let text = process::read_log(path);
            let lines: Vec<&str> = text.lines().collect();
            let shown = &lines[lines.len().saturating_sub(TAIL_LINES)..];
            format!("--- {}\n{}\n", path.display(), shown.join("\n"))
        };
        let logs = process::logs(self.directory.path());
        logs.iter().map(tail).collect()
    }
}

impl Drop for World {
    fn drop(&mut self) {
        for process in self.master.iter_mut().chain(&mut self.workers) {
            process.kill_at_last();
        }
        let left = leftovers::kill_all(self.directory.path());
        if std::thread::panicking() {
            show(&self.log_tails());
            show(&format!("--- journal\n{:#?}", self.journal()));
        } else {
            assert_eq!(left, [], "processes that can't be killed");
        }
    }
}

#[expect(
    clippy::print_stderr,
    reason = "the test runner shows what a failed test has printed so"
)]
fn show(text: &str) {
    eprintln!("{text}");
}

/// An address of the loopback network that no other world has: one a test process, one port a world.
/// Clients' own ports are taken on 127.0.0.1, so that a master which is started again finds it free.
fn address() -> SocketAddr {
    static WORLDS: AtomicU16 = AtomicU16::new(0);
    let [_, high, middle, low] = std::process::id().to_be_bytes();
    let host = Ipv4Addr::new(127, 64 + (high & 0x3f), middle, low);
    let port = 7433 + WORLDS.fetch_add(1, Ordering::Relaxed);
    SocketAddr::from((host, port))
}
