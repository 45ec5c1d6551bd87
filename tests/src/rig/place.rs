//! Where a workflow can be when something happens to it: each state, with what is under way there.

use std::time::Duration;

use pointsman_master::{
    domain::{
        attempt::Role,
        decision::{LabelState, Running},
        ids::WorkflowId,
        policy::Policy,
        transitions::State,
        workflow::{Kind, Progress},
    },
    service::{Error, Grant},
    store::model::ForgeItem,
};

use super::{FakeWorker, LABEL, Rig, ask};

/// What is under way in a state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Doing {
    /// Its attempt, or its check, waits for a worker; in DISCOVERED it waits for room.
    Waiting,
    Leased,
    /// The forge is to be made to match.
    Effect,
}

/// A state of one kind, with what is under way there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    pub kind: Kind,
    pub state: State,
    pub doing: Doing,
}

const fn place(kind: Kind, state: State, doing: Doing) -> Place {
    Place { kind, state, doing }
}

/// Every place, PAUSED and the terminal states apart.
pub const PLACES: [Place; 24] = {
    use Doing::{Effect, Leased, Waiting};
    use Kind::{Issue, PullRequest};
    [
        place(Issue, State::Discovered, Waiting),
        place(Issue, State::Analyzing, Waiting),
        place(Issue, State::Analyzing, Leased),
        place(Issue, State::Implementing, Waiting),
        place(Issue, State::Implementing, Leased),
        place(Issue, State::Implementing, Effect),
        place(Issue, State::ConflictResolving, Waiting),
        place(Issue, State::ConflictResolving, Leased),
        place(Issue, State::Escalating, Waiting),
        place(Issue, State::Escalating, Leased),
        place(PullRequest, State::AwaitingCi, Waiting),
        place(PullRequest, State::AwaitingCi, Leased),
        place(PullRequest, State::AwaitingCi, Effect),
        place(PullRequest, State::Implementing, Waiting),
        place(PullRequest, State::Implementing, Leased),
        place(PullRequest, State::Implementing, Effect),
        place(PullRequest, State::ConflictResolving, Waiting),
        place(PullRequest, State::ConflictResolving, Leased),
        place(PullRequest, State::ConflictResolving, Effect),
        place(PullRequest, State::Escalating, Waiting),
        place(PullRequest, State::Escalating, Leased),
        place(PullRequest, State::Reviewing, Waiting),
        place(PullRequest, State::Reviewing, Leased),
        place(PullRequest, State::Merging, Effect),
    ]
};

/// A workflow at a place, alone with one worker.
pub struct Scene {
    pub rig: Rig,
    pub worker: FakeWorker,
    pub id: WorkflowId,
    pub place: Place,
    /// What is leased there.
    pub grant: Option<Grant>,
}

impl Scene {
    pub async fn at(place: Place) -> Self {
        let policy = Policy {
            // A red check is flaky where it is to be run again, and there alone.
            flaky_checks: match (place.state, place.doing) {
                (State::AwaitingCi, Doing::Effect) => vec!["ci".to_owned()],
                _ => Vec::new(),
            },
            max_live_workflows: match place.state {
                State::Discovered => 1,
                _ => Policy::default().max_live_workflows,
            },
            ..Policy::default()
        };
        let rig = Rig::with(policy).await;
        let worker = FakeWorker::registered(&rig, "w").await;
        let id = match (place.kind, place.state) {
            (_, State::Discovered) => {
                rig.submit("It takes the room there is").await;
                worker.lease_one(&rig).await;
                rig.submit("Make it work").await
            }
            (Kind::Issue, state) => rig.issue_in(&worker, state).await,
            (Kind::PullRequest, state) => rig.pull_request_in(&worker, state).await,
        };
        let mut scene = Self {
            rig,
            worker,
            id,
            place,
            grant: None,
        };
        scene.begin().await;
        assert_eq!(scene.rig.state(id).await, place.state);
        let effect = scene.rig.store.open_effect_of(id).await;
        let is_open = effect.expect("the store answers").is_some();
        assert_eq!(is_open, place.doing == Doing::Effect, "{place:?}");
        scene
    }

    async fn begin(&mut self) {
        let Self { rig, worker, .. } = self;
        let role = self.place.state.role().unwrap_or(Role::Ci);
        match (self.place.state, self.place.doing) {
            (_, Doing::Waiting) | (State::Merging, _) => {}
            (_, Doing::Leased) => self.grant = Some(rig.leased(worker, self.id, role).await),
            (State::AwaitingCi, Doing::Effect) => rig.check(worker, self.id, 1).await,
            (_, Doing::Effect) => {
                let grant = rig.leased(worker, self.id, role).await;
                worker.finish(rig, &grant).await.expect("it is taken");
            }
        }
    }

    pub async fn progress(&self) -> Progress {
        self.rig.row(self.id).await.workflow.progress().clone()
    }

    /// All that is written on the forge: refs, and items with their labels.
    pub async fn forge(&self) -> (String, Vec<ForgeItem>) {
        let refs = self.rig.remote.refs().await;
        let repository = self.rig.row(self.id).await.workflow.repository;
        let mut items = Vec::new();
        for number in 1_u64.. {
            let item = self.rig.store.forge_item(repository, number).await;
            match item.expect("the store answers") {
                Some(item) => items.push(item),
                None => break,
            }
        }
        (refs, items)
    }

    /// However often the cranks are turned, nothing of it is leased and nothing is written to the forge.
    pub async fn rests(&self) {
        let before = (self.forge().await, self.n_leases().await);
        for _ in 0..2 {
            // Before any sweep has had its turn, too.
            assert!(self.leases().await.is_empty(), "{:?}", self.place);
            self.rig.turn().await;
            self.rig.advance(Duration::from_secs(5));
        }
        assert!(self.leases().await.is_empty(), "{:?}", self.place);
        let after = (self.forge().await, self.n_leases().await);
        assert_eq!(after, before, "{:?}", self.place);
    }

    /// Whatever can be leased of it; what others have to do is done.
    async fn leases(&self) -> Vec<Grant> {
        let mut grants = Vec::new();
        for grant in self.worker.lease(&self.rig, 10).await {
            if grant.workflow.id == self.id {
                grants.push(grant);
            } else {
                let said = self.worker.finish(&self.rig, &grant).await;
                said.expect("it is taken");
            }
        }
        grants
    }

    /// How often something of it was leased.
    pub async fn n_leases(&self) -> usize {
        self.rig.count_events(self.id, "attempt_leased").await
    }

    /// The harness says what it has to say.
    pub async fn finish(&self) -> Option<Result<(), Error>> {
        let grant = self.grant.as_ref()?;
        let said = self.worker.finish(&self.rig, grant).await;
        Some(said.map(drop))
    }

    /// What its state waits for is done, until it is in another state.
    pub async fn goes_on(&self) {
        let from = self.rig.state(self.id).await;
        for _ in 0..6 {
            self.rig.turn().await;
            for grant in self.leases().await {
                let said = self.worker.finish(&self.rig, &grant).await;
                said.expect("it is taken");
            }
            self.rig.turn_often().await;
            self.rig.advance(Duration::from_secs(30));
            if self.rig.state(self.id).await != from {
                return;
            }
        }
        panic!("{:?} does not go on from {from}", self.place);
    }

    pub async fn pause(&self, running: Running) {
        let paused = self.rig.service().pause(ask(self.id, "a pause"), running);
        assert!(paused.await.expect("it is paused").is_changed());
    }

    /// What ends with the workflow is ended.
    pub async fn check_nothing_is_left(&self) {
        let history = self.rig.history().await;
        assert_eq!(history.faults(), Vec::<String>::new(), "{:?}", self.place);
        let is_left = history
            .attempts
            .iter()
            .any(|row| row.attempt.workflow == self.id && row.attempt.status.is_live())
            || history
                .effects
                .iter()
                .any(|effect| effect.workflow == self.id)
            || history.sessions.iter().any(|s| s.lease.workflow == self.id);
        assert!(!is_left, "{:?}", self.place);
    }
}

impl Rig {
    /// Changes a workflow's item behind the master's back, as somebody on its forge does.
    pub async fn change_item(&self, workflow: WorkflowId, change: impl FnOnce(&mut ForgeItem)) {
        let workflow = self.row(workflow).await.workflow;
        let mut tx = self.store.begin().await.expect("the store answers");
        let item = tx.forge_item(workflow.repository, workflow.number).await;
        let mut item = item.expect("the store answers").expect("it is there");
        change(&mut item);
        tx.update_forge_item(&item)
            .await
            .expect("the item is written");
        tx.commit().await.expect("it is kept");
    }

    /// Somebody closes the item, or opens it again.
    pub async fn set_open(&self, workflow: WorkflowId, is_open: bool) {
        self.change_item(workflow, |item| item.is_open = is_open)
            .await;
    }

    /// Somebody takes the opt-in label off the item, or gives it back.
    pub async fn set_labelled(&self, workflow: WorkflowId, state: LabelState) {
        let labels = match state {
            LabelState::Present => vec![LABEL.to_owned()],
            LabelState::Absent => Vec::new(),
        };
        self.change_item(workflow, |item| item.labels = labels)
            .await;
    }
}
