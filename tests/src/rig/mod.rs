//! A whole master in this process, with its time, its chance and its failures in the test's hand.
//!
//! Real parts: the SQLite store, the built-in forge on a real bare git remote, the use cases, the sweeps.
//! Turned by hand: both clocks, the sweeps, and the worker ([`FakeWorker`]), which makes real commits and
//! pushes them to its leases' refs. [`Rig::crash`] drops everything that lives in memory.

pub mod chance;
pub mod drive;
pub mod faulty_forge;
pub mod faulty_store;
pub mod history;
pub mod place;
pub mod remote;
pub mod rows;
pub mod run;
mod turn;
pub mod wire;
pub mod worker;

use std::{sync::Arc, time::Duration};

use pointsman_master::{
    clock::manual::{ManualClock, ManualStopwatch},
    domain::{
        ci::CheckDefinition,
        decision::LabelState,
        ids::{RequestId, WorkflowId},
        policy::Policy,
        transitions::State,
    },
    forge::builtin::BuiltinForge,
    logs::archive::Archive,
    logs::{LogStore, Logs},
    service::{
        self, NewIssue, NewRepository, Ports, Request, Service, Settings, WorkflowView, wake::Wake,
    },
    store::{
        Store,
        model::{Repository, WorkflowFilter, WorkflowRow},
        sqlite::SqliteStore,
    },
    sweeps::{
        CiPoller, Effector, PickupGuard, Reaper, Reconciler, Report, Retention, Scheduler, Sweep,
    },
};
use tempfile::TempDir;

use chance::CountingChance;
use faulty_forge::{FaultyForge, Hold};
use faulty_store::{Faults, FaultyStore};
use history::History;
use remote::Remote;
pub use worker::FakeWorker;

/// The one repository.
pub const REPOSITORY: &str = "demo";
/// Its opt-in label.
pub const LABEL: &str = "agent";
/// Its base branch.
pub const BASE: &str = "main";
/// Bytes that a log keeps.
pub const LOG_LIMIT: u64 = 1024 * 1024;
/// Who acts where a person does.
pub const PERSON: &str = "operator:test";

/// How long history is kept.
pub const HISTORY: Duration = Duration::from_secs(90 * 24 * 3600);
/// How long logs are kept.
pub const LOGS: Duration = Duration::from_secs(30 * 24 * 3600);

/// What lives in a master's memory.
pub struct Master {
    pub service: Service,
    pub scheduler: Scheduler,
    pub reaper: Reaper,
    pub guard: PickupGuard,
    pub reconciler: Reconciler,
    pub ci_poller: CiPoller,
    pub effector: Effector,
    pub retention: Retention,
    /// Between the forge's reading of checks and its answer.
    pub checks: Arc<Hold>,
}

/// A master, its repository, and the hands that turn it.
pub struct Rig {
    pub master: Master,
    /// Without faults: for looking, and for what a test arranges.
    pub store: Arc<dyn Store>,
    /// Of the store's commits.
    pub faults: Arc<Faults>,
    /// Of the forge's writes.
    pub forge_faults: Arc<Faults>,
    pub clock: Arc<ManualClock>,
    pub stopwatch: Arc<ManualStopwatch>,
    pub chance: Arc<CountingChance>,
    pub remote: Remote,
    directory: TempDir,
}

impl Rig {
    /// A master with one repository under the default policy.
    pub async fn new() -> Self {
        Self::with(Policy::default()).await
    }

    /// A master with one repository under `policy`, whose one check is run by a worker.
    pub async fn with(policy: Policy) -> Self {
        let rig = Self::empty().await;
        rig.add_repository(policy, Some("true".to_owned()))
            .await
            .expect("the repository is added");
        rig
    }

    /// A master without a repository; the git remote is there.
    pub async fn empty() -> Self {
        let directory = TempDir::with_prefix("pointsman-rig-").expect("a directory is made");
        let remote = Remote::new(directory.path()).await;
        let clock = Arc::new(ManualClock::default());
        let path = directory.path().join("pointsman.db");
        let store: Arc<dyn Store> = Arc::new(
            SqliteStore::open(&path, clock.clone())
                .await
                .expect("the database opens"),
        );
        let faults = Arc::new(Faults::default());
        let forge_faults = Arc::new(Faults::default());
        let stopwatch = Arc::new(ManualStopwatch::default());
        let chance = Arc::new(CountingChance::default());
        let master = Master::new(
            Parts {
                store: Arc::new(FaultyStore::new(Arc::clone(&store), Arc::clone(&faults))),
                forge_faults: &forge_faults,
                clock: &clock,
                stopwatch: &stopwatch,
                chance: &chance,
            },
            directory.path(),
        );
        Self {
            master,
            store,
            faults,
            forge_faults,
            clock,
            stopwatch,
            chance,
            remote,
            directory,
        }
    }

    /// Adds the repository; `ci_command` makes its one check.
    pub async fn add_repository(
        &self,
        policy: Policy,
        ci_command: Option<String>,
    ) -> Result<Repository, pointsman_master::service::Error> {
        let checks = ci_command.map(|command| CheckDefinition {
            name: "ci".to_owned(),
            command,
        });
        self.add_repository_with(policy, checks.into_iter().collect())
            .await
    }

    /// Adds the repository with these checks.
    pub async fn add_repository_with(
        &self,
        policy: Policy,
        checks: Vec<CheckDefinition>,
    ) -> Result<Repository, pointsman_master::service::Error> {
        let new = NewRepository {
            name: REPOSITORY.to_owned(),
            git_url: self.remote.url(),
            base_ref: BASE.to_owned(),
            label: LABEL.to_owned(),
            checks,
            policy,
        };
        let change = self.service().add_repository(new, "test", PERSON).await?;
        Ok(change.into_inner())
    }

    pub fn service(&self) -> &Service {
        &self.master.service
    }

    /// What has left the database.
    pub fn archive(&self) -> Archive {
        Archive::in_directory(&self.directory.path().join("archive")).expect("it is there")
    }

    /// Where the logs are.
    pub fn logs(&self) -> std::path::PathBuf {
        self.directory.path().join("logs")
    }

    /// Where the database is.
    pub fn database(&self) -> std::path::PathBuf {
        self.directory.path().join("pointsman.db")
    }

    /// Everything in memory is gone; the same database and the same remote go on.
    pub fn crash(&mut self) {
        self.stopwatch = Arc::new(ManualStopwatch::default());
        self.master = Master::new(
            Parts {
                store: Arc::new(FaultyStore::new(
                    Arc::clone(&self.store),
                    Arc::clone(&self.faults),
                )),
                forge_faults: &self.forge_faults,
                clock: &self.clock,
                stopwatch: &self.stopwatch,
                chance: &self.chance,
            },
            self.directory.path(),
        );
    }

    /// Closes the database as well, and opens it again.
    pub async fn restart(&mut self) {
        self.store.close().await;
        self.store = Arc::new(
            SqliteStore::open(&self.database(), self.clock.clone())
                .await
                .expect("the database opens again"),
        );
        self.crash();
    }

    /// Time passes.
    pub fn advance(&self, by: Duration) {
        self.clock.advance(by);
        self.stopwatch.advance(by);
    }

    /// Turns every crank once, in the master's order.
    pub async fn turn(&self) {
        let m = &self.master;
        for sweep in [
            &m.scheduler as &dyn Sweep,
            &m.reaper,
            &m.guard,
            &m.reconciler,
        ] {
            turn(sweep).await;
        }
        self.turn_often().await;
    }

    /// Turns the cranks that a master turns most often.
    pub async fn turn_often(&self) {
        let m = &self.master;
        for sweep in [&m.ci_poller as &dyn Sweep, &m.effector] {
            turn(sweep).await;
        }
    }

    /// Opens an issue with the opt-in label.
    pub async fn submit(&self, title: &str) -> WorkflowId {
        let submitted = self
            .service()
            .submit_issue(issue(title, None), "", PERSON)
            .await
            .expect("the issue is opened");
        let row = submitted.into_inner().workflow;
        row.expect("it has a workflow").workflow.id
    }

    /// Opens an issue again and again until that is answered.
    pub async fn submit_until_answered(&self, title: &str) -> u64 {
        let request = RequestId(self.chance.next());
        for _ in 0..3 {
            let submitted = self
                .service()
                .submit_issue(issue(title, Some(request)), "", PERSON)
                .await;
            if let Ok(submitted) = submitted {
                return submitted.into_inner().number;
            }
        }
        panic!("the issue was not opened");
    }

    /// Takes the opt-in label off, or gives it back.
    pub async fn label(&self, workflow: WorkflowId, state: LabelState) {
        let number = self.row(workflow).await.workflow.number;
        self.service()
            .set_label(REPOSITORY, number, LABEL, state, "a test", PERSON)
            .await
            .expect("the label is set");
    }

    pub async fn row(&self, workflow: WorkflowId) -> WorkflowRow {
        let row = self.store.workflow(workflow).await;
        row.expect("the store answers").expect("it is there")
    }

    pub async fn state(&self, workflow: WorkflowId) -> State {
        self.row(workflow).await.workflow.state()
    }

    pub async fn view(&self, workflow: WorkflowId) -> WorkflowView {
        let view = self.service().view_workflow(workflow).await;
        view.expect("it is shown")
    }

    /// All workflows, oldest first.
    pub async fn workflows(&self) -> Vec<WorkflowRow> {
        self.store
            .workflows(&WorkflowFilter::default(), None, 1000)
            .await
            .expect("the store answers")
    }

    pub async fn history(&self) -> History {
        History::read(self).await
    }

    /// How many events of a kind the workflow has.
    pub async fn count_events(&self, workflow: WorkflowId, kind: &str) -> usize {
        let events = self.store.events(Some(workflow), 0, 100_000).await;
        let events = events.expect("the store answers");
        events.iter().filter(|event| event.kind == kind).count()
    }

    /// The newest event of a kind.
    pub async fn event(
        &self,
        workflow: WorkflowId,
        kind: &str,
    ) -> pointsman_master::store::model::EventRow {
        let events = self.store.events(Some(workflow), 0, 100_000).await;
        let mut events = events.expect("the store answers");
        events.retain(|event| event.kind == kind);
        events.pop().expect("there is such an event")
    }

    /// The state that the newest event of a kind found.
    pub async fn left(&self, workflow: WorkflowId, kind: &str) -> State {
        let states = self.event(workflow, kind).await.about.states();
        states.expect("it is about a workflow").0
    }
}

/// A driver does nothing about an error either: the next turn is the retry.
async fn turn(sweep: &dyn Sweep) -> Report {
    sweep.run_once().await.unwrap_or_default()
}

struct Parts<'a> {
    store: Arc<dyn Store>,
    forge_faults: &'a Arc<Faults>,
    clock: &'a Arc<ManualClock>,
    stopwatch: &'a Arc<ManualStopwatch>,
    chance: &'a Arc<CountingChance>,
}

impl Master {
    fn new(parts: Parts<'_>, directory: &std::path::Path) -> Self {
        let forge = BuiltinForge::new(
            Arc::clone(&parts.store),
            parts.clock.clone(),
            parts.chance.clone(),
            directory.join("repositories"),
            pointsman_git::Access::default(),
        );
        let checks = Arc::new(Hold::default());
        let ports = Ports {
            store: parts.store,
            forge: Arc::new(FaultyForge::new(
                Arc::new(forge),
                Arc::clone(parts.forge_faults),
                Arc::clone(&checks),
            )),
            logs: Arc::new(Logs::new(
                LogStore::in_directory(&directory.join("logs"), LOG_LIMIT)
                    .expect("the logs' directory is made"),
            )),
            clock: parts.clock.clone(),
            stopwatch: parts.stopwatch.clone(),
            chance: parts.chance.clone(),
            wake: Arc::new(Wake::default()),
            archive: Archive::in_directory(&directory.join("archive")).expect("it is made"),
        };
        let settings = Settings {
            ci_flake_retries: 1,
            least_ttl_seconds: 10,
            retention: service::Retention {
                history: HISTORY,
                logs: LOGS,
            },
        };
        let service = Service::new(ports, settings);
        Self {
            scheduler: Scheduler::new(service.clone()),
            reaper: Reaper::new(service.clone()),
            guard: PickupGuard::new(service.clone()),
            reconciler: Reconciler::new(service.clone()),
            ci_poller: CiPoller::new(service.clone()),
            effector: Effector::new(service.clone()),
            retention: Retention::new(service.clone()),
            checks,
            service,
        }
    }
}

/// What a person asks of a workflow, whatever its version is.
pub fn ask(workflow: WorkflowId, reason: &str) -> Request<'_> {
    Request {
        workflow,
        expected_version: None,
        reason,
        actor: PERSON,
    }
}

/// An issue that carries the opt-in label.
fn issue(title: &str, request: Option<RequestId>) -> NewIssue<'_> {
    NewIssue {
        repository: REPOSITORY,
        title,
        body: "",
        is_labelled: true,
        request,
    }
}
