//! An empty database and what the suite fills it with.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use serde_json::json;

use crate::{
    clock::{Chance, manual::SeededChance},
    domain::{
        attempt::{Attempt, AttemptStatus, Role, Subject},
        ci::CheckDefinition,
        decision::{EventKind, Note},
        effect::Effect,
        ids::{
            AttemptId, CheckId, CommitId, EffectId, Fence, InstanceId, Nonce, RepositoryId,
            RequestId, WorkerId, WorkflowId,
        },
        policy::Policy,
        time::Timestamp,
        transitions::State,
        workflow::{Counters, Facts, Identity, Kind, Pause, PausedBy, Progress, Workflow},
    },
    store::{
        Store, Tx,
        model::{
            About, CheckRun, ClaimRequest, Claimed, Drain, ForgeItem, NewEvent, Offer,
            OpenEffectRow, Repository, StateDirectory, WorkerRow,
        },
    },
};

/// What a database brings to the suite.
pub(crate) trait Database: Send + Sync {
    /// Empty at first.
    fn store(&self) -> Arc<dyn Store>;
    /// The database's clock.
    fn now(&self) -> Timestamp;
    /// Moves the database's clock forward.
    fn advance(&self, by: Duration);
}

/// A database under test.
pub(crate) struct World {
    database: Box<dyn Database>,
    chance: SeededChance,
    n_items: AtomicU64,
}

/// Some commit, always the same for the same number.
pub(crate) fn commit(n: u32) -> CommitId {
    format!("{n:040x}").parse().unwrap()
}

/// Where a new workflow stands.
pub(crate) fn progress(state: State) -> Progress {
    Progress {
        state,
        pause: (state == State::Paused).then_some(Pause {
            was: State::Reviewing,
            by: PausedBy::Operator,
        }),
        tier: 1,
        counters: Counters::fresh(&Policy::default()),
        head: Some(commit(1)),
        awaiting_ci_started_at: None,
        merging_started_at: None,
        facts: Facts::default(),
        merged_commit: None,
        pull_request: None,
        upstream: None,
        left_at: None,
    }
}

/// The state in which a role works.
pub(crate) fn state_of(role: Role) -> State {
    State::ALL
        .iter()
        .copied()
        .find(|state| state.role() == Some(role))
        .unwrap_or(State::AwaitingCi)
}

/// An offer of every tier.
pub(crate) fn offer(role: Role) -> Offer {
    Offer {
        role,
        tiers: Vec::new(),
        profile: "default".to_owned(),
        account: "main".to_owned(),
        kill_budget: Duration::from_secs(30),
    }
}

impl World {
    pub(crate) fn new(database: impl Database + 'static) -> Self {
        Self {
            database: Box::new(database),
            chance: SeededChance::new(1),
            n_items: AtomicU64::new(0),
        }
    }

    pub(crate) fn store(&self) -> Arc<dyn Store> {
        self.database.store()
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.database.now()
    }

    pub(crate) fn advance(&self, by: Duration) {
        self.database.advance(by);
    }

    pub(crate) fn id(&self) -> uuid::Uuid {
        self.chance.id()
    }

    pub(crate) fn nonce(&self) -> Nonce {
        Nonce(self.chance.nonce())
    }

    pub(crate) async fn tx(&self) -> Box<dyn Tx> {
        self.store().begin().await.unwrap()
    }

    pub(crate) fn new_repository(&self, name: &str) -> Repository {
        Repository {
            id: RepositoryId(self.id()),
            name: name.to_owned(),
            git_url: format!("https://git.example/{name}"),
            base_ref: "main".to_owned(),
            label: "pointsman".to_owned(),
            checks: vec![CheckDefinition {
                name: "make".to_owned(),
                command: "make".to_owned(),
            }],
            policy: Policy::default(),
            created_at: self.now(),
        }
    }

    pub(crate) async fn insert_repository(&self, repository: &Repository) {
        let mut tx = self.tx().await;
        tx.insert_repository(repository).await.unwrap();
        tx.commit().await.unwrap();
    }

    pub(crate) async fn repository(&self, name: &str) -> Repository {
        let repository = self.new_repository(name);
        self.insert_repository(&repository).await;
        repository
    }

    pub(crate) fn new_workflow(&self, repository: RepositoryId, progress: Progress) -> Workflow {
        let id = WorkflowId(self.id());
        let identity = Identity {
            id,
            repository,
            kind: Kind::PullRequest,
            number: self.n_items.fetch_add(1, Ordering::SeqCst) + 1,
            title: "Add a lamp".to_owned(),
            body: "It is dark.".to_owned(),
            head_ref: "lamp".to_owned(),
            base_ref: "main".to_owned(),
            parent: None,
            predecessor: None,
            created_at: self.now(),
        };
        Workflow::restore(identity, progress).unwrap()
    }

    pub(crate) async fn insert_workflow(&self, workflow: &Workflow) {
        let mut tx = self.tx().await;
        tx.insert_workflow(workflow, self.now()).await.unwrap();
        tx.commit().await.unwrap();
    }

    /// A workflow at `state`, with a head.
    pub(crate) async fn workflow(&self, repository: &Repository, state: State) -> Workflow {
        let workflow = self.new_workflow(repository.id, progress(state));
        self.insert_workflow(&workflow).await;
        workflow
    }

    pub(crate) fn new_attempt(&self, workflow: &Workflow, role: Role) -> Attempt {
        Attempt {
            id: AttemptId(self.id()),
            repository: workflow.repository,
            workflow: workflow.id,
            subject: Subject::Workflow,
            role,
            tier: 1,
            status: AttemptStatus::Pending,
            commit: None,
            fence: Fence(0),
            pickup_count: 0,
            uncharged_errors: 0,
            lock_ttl_seconds: 180,
            not_before: None,
            accepted: None,
            outcome: None,
            created_at: self.now(),
            started_at: None,
            ended_at: None,
        }
    }

    pub(crate) async fn insert_attempt(&self, attempt: &Attempt, priority: i32) {
        let mut tx = self.tx().await;
        tx.insert_attempt(attempt, priority).await.unwrap();
        tx.commit().await.unwrap();
    }

    /// A pending attempt of a new workflow in the state of the role.
    pub(crate) async fn work(&self, repository: &Repository, role: Role) -> Attempt {
        self.work_with(repository, role, 0, |_| {}).await
    }

    pub(crate) async fn work_with(
        &self,
        repository: &Repository,
        role: Role,
        priority: i32,
        change: impl FnOnce(&mut Attempt),
    ) -> Attempt {
        let workflow = self.workflow(repository, state_of(role)).await;
        let mut attempt = self.new_attempt(&workflow, role);
        change(&mut attempt);
        self.insert_attempt(&attempt, priority).await;
        attempt
    }

    pub(crate) fn request(&self, offers: Vec<Offer>, n: usize) -> ClaimRequest {
        ClaimRequest {
            worker: WorkerId(self.id()),
            instance: InstanceId(self.id()),
            request: RequestId(self.id()),
            offers,
            nonces: (0..n).map(|_| self.nonce()).collect(),
        }
    }

    pub(crate) async fn claim(&self, request: &ClaimRequest) -> Vec<Claimed> {
        let mut tx = self.tx().await;
        let claimed = tx.claim(request).await.unwrap();
        tx.commit().await.unwrap();
        claimed
    }

    /// Ids of what `n` free slots for `role` get.
    pub(crate) async fn claim_ids(&self, role: Role, n: usize) -> Vec<AttemptId> {
        let claimed = self.claim(&self.request(vec![offer(role)], n)).await;
        claimed.iter().map(|claimed| claimed.attempt.id).collect()
    }

    /// A new attempt under a new lease.
    pub(crate) async fn leased(&self, repository: &Repository) -> Claimed {
        self.work(repository, Role::Reviewer).await;
        let mut claimed = self
            .claim(&self.request(vec![offer(Role::Reviewer)], 1))
            .await;
        claimed.pop().unwrap()
    }

    pub(crate) fn new_event(&self, workflow: &Workflow, reason: &str) -> NewEvent {
        NewEvent {
            about: About::Workflow {
                id: workflow.id,
                from: State::Discovered,
                to: State::Analyzing,
            },
            attempt: None,
            occurred_at: self.now(),
            kind: EventKind::Note(Note::Discovered),
            actor: "scheduler".to_owned(),
            reason: reason.to_owned(),
            detail: json!({"number": 7}),
        }
    }

    pub(crate) fn new_effect(&self, workflow: &Workflow) -> OpenEffectRow {
        OpenEffectRow {
            id: EffectId(self.id()),
            workflow: workflow.id,
            attempt: None,
            effect: Effect::Merge { head: commit(1) },
            tries: 0,
            waits: 0,
            next_try_at: self.now(),
            first_failure_at: None,
            waiting_for: String::new(),
            opened_at: self.now(),
        }
    }

    pub(crate) async fn open_effect(&self, workflow: &Workflow) -> OpenEffectRow {
        let effect = self.new_effect(workflow);
        let mut tx = self.tx().await;
        tx.open_effect(&effect).await.unwrap();
        tx.commit().await.unwrap();
        effect
    }

    pub(crate) fn new_worker(&self, name: &str) -> WorkerRow {
        WorkerRow {
            id: WorkerId(self.id()),
            instance: InstanceId(self.id()),
            name: name.to_owned(),
            host: "host-1".to_owned(),
            boot_id: "boot".to_owned(),
            version: "0.1.0".to_owned(),
            state_directory: StateDirectory {
                device: u64::MAX,
                inode: 2,
                created_at_nanos: 3,
            },
            capacity: 4,
            roles: vec![Role::Reviewer],
            labels: vec!["big".to_owned()],
            profiles: Vec::new(),
            registered_at: self.now(),
            last_beat_at: self.now(),
            drain: None,
            declared_dead_at: None,
        }
    }

    pub(crate) fn drain(&self) -> Drain {
        Drain {
            requested_at: self.now(),
            reason: "a new disk".to_owned(),
            stops_sessions: true,
        }
    }

    pub(crate) async fn put_worker(&self, worker: &WorkerRow) {
        let mut tx = self.tx().await;
        tx.put_worker(worker).await.unwrap();
        tx.commit().await.unwrap();
    }

    pub(crate) fn new_check(&self, workflow: &Workflow, name: &str, run: u32) -> CheckRun {
        CheckRun {
            id: CheckId(self.id()),
            repository: workflow.repository,
            workflow: workflow.id,
            name: name.to_owned(),
            command: "make check".to_owned(),
            commit: commit(1),
            run,
            conclusion: None,
            exit_status: None,
            log_tail: String::new(),
            created_at: self.now(),
            changed_at: self.now(),
        }
    }

    pub(crate) async fn insert_check(&self, check: &CheckRun) {
        let mut tx = self.tx().await;
        tx.insert_check_run(check).await.unwrap();
        tx.commit().await.unwrap();
    }

    pub(crate) fn new_item(&self, repository: &Repository, number: u64) -> ForgeItem {
        ForgeItem {
            repository: repository.id,
            number,
            kind: Kind::Issue,
            title: "A lamp".to_owned(),
            body: "Please.".to_owned(),
            labels: vec!["bug".to_owned(), "pointsman".to_owned()],
            is_open: true,
            head_ref: None,
            base_ref: "main".to_owned(),
            merged_commit: None,
            request: None,
            created_at: self.now(),
            updated_at: self.now(),
        }
    }

    pub(crate) async fn insert_item(&self, item: &ForgeItem) {
        let mut tx = self.tx().await;
        tx.insert_forge_item(item).await.unwrap();
        tx.commit().await.unwrap();
    }
}
