//! Histories of random schedules: whatever comes in whatever order, what is durable stays possible.

use std::{
    cell::RefCell,
    collections::{BTreeSet, HashMap},
    time::Duration,
};

use pointsman_master::{
    domain::{
        attempt::{AttemptStatus, InfrastructureClass, Role},
        decision::{LabelState, Running},
        ids::{Fence, WorkflowId},
        policy::Policy,
        transitions::State,
        verdict::Verdict,
        workflow::{Kind, PausedBy, Workflow},
    },
    service::{Completion, Error, Grant},
    store::model::About,
    sweeps::Sweep,
};
use pointsman_tests::rig::{
    BASE, FakeWorker, LABEL, PERSON, REPOSITORY, Rig, ask,
    drive::{conflict, failed, request_changes},
    faulty_store::Loss,
    history::History,
    run::Errand,
    worker::{approve, changed, check_result, ready},
};
use proptest::{
    prelude::*,
    test_runner::{Config, RngAlgorithm, TestRng, TestRunner},
};

/// Schedules that are tried, and steps of each.
const SCHEDULES: u32 = 10;
const STEPS: usize = 50;

/// One thing that happens.
#[derive(Debug, Clone)]
enum Step {
    /// All goes well for a while.
    GoOn,
    /// One of the six cranks.
    Turn(u8),
    Lease(u32),
    /// One of the leases that are held ends, in one of its role's ways.
    Finish {
        lease: u8,
        how: u8,
    },
    Release(u8),
    Beat,
    Label {
        item: u8,
        is_present: bool,
    },
    /// A person pushes to the branch of an item, or to the base branch.
    Push(u8),
    MasterCrashes,
    WorkerRestarts,
    /// Every lease that is held dies of silence.
    Expire,
    /// Time passes, in seconds.
    Wait(u32),
    /// The wall clock is set forward by a day.
    ClockJumps,
    LoseCommit(bool),
    Unstick(u8),
    /// An operator pauses, resumes, abandons or resubmits.
    Operate {
        item: u8,
        how: u8,
    },
    /// Somebody closes an item, or opens it again.
    Open {
        item: u8,
        is_open: bool,
    },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => Just(Step::GoOn),
        8 => (0..6_u8).prop_map(Step::Turn),
        6 => (1..4_u32).prop_map(Step::Lease),
        8 => (any::<u8>(), any::<u8>()).prop_map(|(lease, how)| Step::Finish { lease, how }),
        1 => any::<u8>().prop_map(Step::Release),
        2 => Just(Step::Beat),
        2 => (any::<u8>(), any::<bool>())
            .prop_map(|(item, is_present)| Step::Label { item, is_present }),
        3 => any::<u8>().prop_map(Step::Push),
        1 => Just(Step::MasterCrashes),
        1 => Just(Step::WorkerRestarts),
        2 => Just(Step::Expire),
        2 => prop_oneof![Just(1_u32), Just(30), Just(200), Just(4400), Just(9000)]
            .prop_map(Step::Wait),
        1 => Just(Step::ClockJumps),
        2 => any::<bool>().prop_map(Step::LoseCommit),
        1 => any::<u8>().prop_map(Step::Unstick),
        3 => (any::<u8>(), any::<u8>()).prop_map(|(item, how)| Step::Operate { item, how }),
        2 => (any::<u8>(), 0..4_u8)
            .prop_map(|(item, n)| Step::Open { item, is_open: n > 0 }),
    ]
}

/// What goes on around a schedule.
struct World {
    rig: Rig,
    worker: FakeWorker,
    held: Vec<Grant>,
    tiers: HashMap<WorkflowId, u32>,
    fences: HashMap<pointsman_master::domain::ids::AttemptId, Fence>,
}

impl World {
    async fn new() -> Self {
        Self::under(Policy {
            flaky_checks: vec!["ci".to_owned()],
            ..Policy::default()
        })
        .await
    }

    async fn under(policy: Policy) -> Self {
        let rig = Rig::with(policy).await;
        let worker = FakeWorker::registered(&rig, "w").await;
        rig.pull_request_in(&worker, State::AwaitingCi).await;
        rig.submit("Make something else work").await;
        Self {
            rig,
            worker,
            held: Vec::new(),
            tiers: HashMap::new(),
            fences: HashMap::new(),
        }
    }

    async fn take(&mut self, step: &Step) {
        match *step {
            Step::Turn(n) => self.turn(n).await,
            Step::GoOn => {
                let work = Step::Finish { lease: 0, how: 28 };
                for step in [Step::Turn(4), Step::Turn(5), Step::Lease(3), work] {
                    Box::pin(self.take(&step)).await;
                }
            }
            Step::Lease(max) => {
                let claim = self.worker.claim(&self.rig, max);
                match self.rig.service().claim(claim).await {
                    Ok(grants) => self.held.extend(grants),
                    Err(error) => allowed(&error),
                }
            }
            Step::Finish { lease, how } => self.finish(lease, how).await,
            Step::Release(lease) => {
                let Some(grant) = self.pick(lease) else {
                    return;
                };
                let released =
                    self.rig
                        .service()
                        .release(self.worker.row.id, grant.lease.key, "drain");
                if let Err(error) = released.await {
                    allowed(&error);
                }
            }
            Step::Beat => {
                let keys: Vec<_> = self.held.iter().map(|grant| grant.lease.key).collect();
                if let Err(error) = self.worker.beat(&self.rig, &keys).await {
                    allowed(&error);
                }
            }
            Step::Label { item, is_present } => self.label(item, is_present).await,
            Step::Push(item) => self.push(item).await,
            Step::MasterCrashes => self.rig.crash(),
            Step::WorkerRestarts => {
                self.worker = self.worker.restarted(&self.rig);
                self.held.clear();
                if let Err(error) = self.worker.register(&self.rig, &[]).await {
                    allowed(&error);
                }
            }
            Step::Expire => {
                for step in [
                    Step::Turn(1),
                    Step::Wait(9000),
                    Step::Turn(1),
                    Step::Turn(2),
                ] {
                    Box::pin(self.take(&step)).await;
                }
            }
            Step::Wait(seconds) => self.rig.advance(Duration::from_secs(seconds.into())),
            Step::ClockJumps => self.rig.clock.advance(Duration::from_secs(24 * 3600)),
            Step::LoseCommit(is_before) => {
                self.rig
                    .faults
                    .fail_next(if is_before { Loss::Before } else { Loss::After })
            }
            Step::Unstick(item) => {
                let id = self
                    .one_of(item, |row| row.state() == State::Stuck)
                    .await
                    .id;
                may_refuse(self.rig.service().unstick(ask(id, "again")).await);
            }
            Step::Operate { item, how } => self.operate(item, how).await,
            Step::Open { item, is_open } => {
                let id = self.one_of(item, |_| true).await.id;
                self.rig
                    .change_item(id, |row| {
                        row.is_open = is_open && row.merged_commit.is_none();
                    })
                    .await;
            }
        }
    }

    async fn operate(&self, item: u8, how: u8) {
        let service = self.rig.service();
        let paused = |row: &Workflow| row.state() == State::Paused;
        let over = |row: &Workflow| matches!(row.state(), State::Abandoned | State::CreatedPr);
        match how {
            0..70 => {
                let id = self.one_of(item, |row| !row.state().is_terminal()).await.id;
                let running = if how < 30 {
                    Running::Cancelled
                } else {
                    Running::Left
                };
                may_refuse(service.pause(ask(id, "by chance"), running).await);
            }
            70..170 => {
                let id = self.one_of(item, paused).await.id;
                may_refuse(service.resume(ask(id, "by chance")).await);
            }
            170..190 => {
                let id = self.one_of(item, |_| true).await.id;
                may_refuse(service.abandon(ask(id, "by chance")).await);
            }
            190.. => {
                let id = self.one_of(item, over).await.id;
                may_refuse(service.resubmit(ask(id, "by chance")).await);
            }
        }
    }

    async fn turn(&self, n: u8) {
        let master = &self.rig.master;
        let sweeps: [&dyn Sweep; 6] = [
            &master.scheduler,
            &master.reaper,
            &master.guard,
            &master.reconciler,
            &master.ci_poller,
            &master.effector,
        ];
        if let Err(error) = sweeps[usize::from(n)].run_once().await {
            allowed(&error);
        }
    }

    fn pick(&mut self, n: u8) -> Option<Grant> {
        if self.held.is_empty() {
            return None;
        }
        let index = usize::from(n) % self.held.len();
        Some(self.held.remove(index))
    }

    async fn finish(&mut self, lease: u8, how: u8) {
        let Some(grant) = self.pick(lease) else {
            return;
        };
        let completion = self.outcome(&grant, how).await;
        let said = self
            .worker
            .complete(&self.rig, grant.lease.key, completion)
            .await;
        match said {
            Ok(_) | Err(Error::LeaseLost { .. }) => {}
            Err(Error::Store(_)) => self.held.push(grant),
            Err(other) => panic!("a Complete is answered with {other}"),
        }
    }

    /// Each way is as likely as the good one, which goes on; errors are rarer.
    async fn outcome(&self, grant: &Grant, how: u8) -> Completion {
        let error = |class| Completion::InfrastructureError {
            class,
            message: "by chance".to_owned(),
            reset_at: None,
        };
        match how {
            0..8 => return error(InfrastructureClass::Crashed),
            8..16 => return error(InfrastructureClass::ProviderOutage),
            16..24 => return Completion::Verdict(approve()),
            24..28 => return check_result(0),
            _ => {}
        }
        let is_good = how < 170;
        Completion::Verdict(match (grant.attempt.role, is_good, how % 3) {
            (Role::Ci, ..) => return check_result(u32::from(!is_good)),
            (Role::Estimator, true, _) => ready(),
            (Role::Estimator, false, 0) => Verdict::Declined {
                reason: "no".to_owned(),
            },
            (Role::Estimator, false, 1) => Verdict::Unsure {
                reason: "who knows".to_owned(),
            },
            (Role::Estimator, false, _) => Verdict::ChangePresent,
            (Role::Implementer, true, _) => changed(&self.worker.work(&self.rig, grant).await),
            (Role::Implementer, false, 0) => failed(),
            (Role::Implementer, false, 1) => conflict(),
            (Role::Implementer, false, _) => Verdict::NoChange {
                reason: "it is there".to_owned(),
            },
            (Role::Reviewer, true, _) => approve(),
            (Role::Reviewer, false, 0) => Verdict::Reject {
                reason: "no".to_owned(),
            },
            (Role::Reviewer, false, _) => request_changes(),
            (Role::ConflictResolver, true, _) => Verdict::Resolved {
                commit: Some(self.worker.work(&self.rig, grant).await),
            },
            (Role::ConflictResolver, false, _) => Verdict::Unresolved {
                reason: "no".to_owned(),
            },
            (Role::Escalator, true, _) => Verdict::Retry {
                plan: "again".to_owned(),
            },
            (Role::Escalator, false, _) => Verdict::GiveUp {
                reason: "no".to_owned(),
            },
        })
    }

    async fn label(&self, item: u8, is_present: bool) {
        let rows = self.rig.workflows().await;
        let number = rows[usize::from(item) % rows.len()].workflow.number;
        let state = if is_present {
            LabelState::Present
        } else {
            LabelState::Absent
        };
        let set =
            self.rig
                .service()
                .set_label(REPOSITORY, number, LABEL, state, "by chance", PERSON);
        if let Err(error) = set.await {
            allowed(&error);
        }
    }

    /// One of the workflows that fit, or of all where none does.
    async fn one_of(&self, n: u8, fits: impl Fn(&Workflow) -> bool) -> Workflow {
        let rows = self.rig.workflows().await;
        let mut all: Vec<Workflow> = rows.into_iter().map(|row| row.workflow).collect();
        if all.iter().any(&fits) {
            all.retain(&fits);
        }
        all.swap_remove(usize::from(n) % all.len())
    }

    async fn push(&self, item: u8) {
        let row = self
            .one_of(item, |row| row.kind == Kind::PullRequest || item < 50)
            .await;
        let branch = match row.kind {
            Kind::Issue => BASE,
            Kind::PullRequest => &row.head_ref,
        };
        if self.rig.remote.tip(branch).await.is_some() {
            let message = format!("by a person {item}");
            self.rig.remote.add_to(branch, &message).await;
        }
    }

    async fn check(&mut self) {
        let history = self.rig.history().await;
        assert_eq!(history.faults(), Vec::<String>::new());
        for row in &history.workflows {
            let tier = row.workflow.progress().tier;
            let before = self.tiers.insert(row.workflow.id, tier).unwrap_or(0);
            assert!(tier >= before, "tier {tier} after {before}");
            let is_paused = row.workflow.state() == State::Paused;
            let pending = history
                .attempts_of(row.workflow.id)
                .filter(|row| row.attempt.status == AttemptStatus::Pending);
            assert!(
                !is_paused || pending.count() == 0,
                "work waits under PAUSED"
            );
        }
        for row in &history.attempts {
            let attempt = &row.attempt;
            let before = self.fences.insert(attempt.id, attempt.fence);
            assert!(
                before.is_none_or(|before| attempt.fence >= before),
                "{attempt:?}"
            );
        }
    }

    /// All that rests goes on, or is over because its item is closed.
    async fn wake_all(&self) {
        for row in self.rig.workflows().await {
            let id = row.workflow.id;
            let by = row.workflow.progress().pause.map(|pause| pause.by);
            match by {
                Some(PausedBy::Label) => self.rig.label(id, LabelState::Present).await,
                Some(PausedBy::Operator) => {
                    self.rig.set_labelled(id, LabelState::Present).await;
                    may_refuse(self.rig.service().resume(ask(id, "the end")).await);
                }
                None => {}
            }
        }
    }

    /// The label is back, the worker is new, nothing fails any more: it ends by itself.
    async fn end(&mut self) {
        self.rig.crash();
        self.worker = self.worker.restarted(&self.rig);
        while self.worker.register(&self.rig, &[]).await.is_err() {}
        let mut errand = Errand::new(&self.rig);
        for _ in 0..400 {
            self.wake_all().await;
            errand.step(&self.rig).await;
            let rows = self.rig.workflows().await;
            if rows.iter().all(|row| row.workflow.state().is_terminal()) {
                break;
            }
        }
        let history = self.rig.history().await;
        assert_eq!(history.faults(), Vec::<String>::new());
        assert_eq!(history.loose_ends(), Vec::<String>::new());
        let n_merged = history
            .workflows
            .iter()
            .filter(|row| row.workflow.state() == State::Merged)
            .count();
        assert_eq!(self.rig.remote.merges(BASE).await.len(), n_merged);
    }
}

/// What a caller must expect while commits are lost.
fn allowed(error: &Error) {
    let is_expected = matches!(
        error,
        Error::Store(_) | Error::LeaseLost { .. } | Error::UnknownInstance { .. } | Error::Forge(_)
    );
    assert!(is_expected, "{error}");
}

/// What an operator must expect beside that.
fn may_refuse<T>(answer: Result<T, Error>) {
    match answer {
        Ok(_) | Err(Error::Refused(_) | Error::VersionMismatch { .. }) => {}
        Err(error) => allowed(&error),
    }
}

fn runner(cases: u32) -> TestRunner {
    let config = Config {
        cases,
        failure_persistence: None,
        max_shrink_iters: 40,
        ..Config::default()
    };
    TestRunner::new_with_rng(config, TestRng::deterministic_rng(RngAlgorithm::ChaCha))
}

fn block_on<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime starts")
        .block_on(work)
}

#[test]
fn whatever_happens_in_whatever_order_the_history_can_be_true() {
    let schedules = proptest::collection::vec(step(), STEPS);
    let kinds = RefCell::new(BTreeSet::new());
    let checked = runner(SCHEDULES).run(&schedules, |schedule| {
        block_on(async {
            let mut world = World::new().await;
            for step in &schedule {
                world.take(step).await;
                world.check().await;
            }
            world.end().await;
            let history = world.rig.history().await;
            kinds
                .borrow_mut()
                .extend(history.events.into_iter().map(|event| event.kind));
        });
        Ok(())
    });
    if let Err(error) = checked {
        panic!("{error}");
    }
    let n_kinds = kinds.borrow().len();
    assert!(n_kinds > 25, "only {n_kinds} kinds of events: {kinds:?}");
}

/// Goes on by chance alone, without people, until all is over.
async fn check_bound(world: &mut World, policy: &Policy, ways: &[u8]) {
    let mut ways = ways.iter().copied().cycle();
    for _ in 0..2000 {
        world.rig.turn_often().await;
        world.turn(2).await;
        world.take(&Step::Lease(3)).await;
        while !world.held.is_empty() {
            let how = ways.next().unwrap_or_default();
            world.take(&Step::Finish { lease: 0, how }).await;
        }
        world.rig.advance(Duration::from_secs(600));
        let rows = world.rig.workflows().await;
        if rows.iter().all(|row| row.workflow.state().is_terminal()) {
            break;
        }
    }
    let history = world.rig.history().await;
    assert_eq!(history.faults(), Vec::<String>::new());
    assert_eq!(history.loose_ends(), Vec::<String>::new());
    let bound = policy.max_attempts() as usize;
    for row in &history.workflows {
        let n = history.attempts_of(row.workflow.id).count();
        assert!(n <= bound, "{n} attempts, {bound} are the bound");
    }
}

#[test]
fn without_people_no_workflow_has_more_attempts_than_its_policy_allows() {
    // Few rounds, so that chance reaches every bound.
    let policy = Policy {
        max_tier: 2,
        ci_red_rounds: 1,
        review_rounds: 1,
        conflict_rounds: 2,
        merge_rounds: 1,
        head_moves: 1,
        ..Policy::default()
    };
    let ways = proptest::collection::vec(28..=255_u8, 64);
    let checked = runner(6).run(&ways, |ways| {
        block_on(async {
            let mut world = World::under(policy.clone()).await;
            check_bound(&mut world, &policy, &ways).await;
        });
        Ok(())
    });
    if let Err(error) = checked {
        panic!("{error}");
    }
}

/// What is done to a history, and what that stands for.
type Damage = (&'static str, fn(&mut History));

/// A true history, and what each kind of damage does to it.
#[test]
fn the_checker_finds_what_can_not_be() {
    let history = block_on(async {
        let rig = Rig::new().await;
        let worker = FakeWorker::registered(&rig, "w").await;
        let id = rig.pull_request_in(&worker, State::Reviewing).await;
        rig.leased(&worker, id, Role::Reviewer).await;
        // An item with two workflows, one after the other.
        let over = rig.submit("Make more work").await;
        let abandoned = rig.service().abandon(ask(over, "not now")).await;
        abandoned.expect("it is abandoned");
        let next = rig.service().resubmit(ask(over, "now")).await;
        next.expect("it is resubmitted");
        rig.history().await
    });
    assert_eq!(history.faults(), Vec::<String>::new());
    let damages: Vec<Damage> = vec![
        ("an event is lost", |h| {
            let moved = h.events.iter().position(|event| event.about.is_move());
            h.events.remove(moved.expect("something moved"));
        }),
        ("events change places", |h| h.events.swap(1, 2)),
        ("the last event is lost", |h| {
            let moved = h.events.iter().rposition(|event| event.about.is_move());
            h.events.truncate(moved.expect("something moved"));
        }),
        ("two live attempts", |h| {
            let twin = h.attempts.last().expect("there are attempts").clone();
            h.attempts.push(twin);
        }),
        ("a lease without an attempt in progress", |h| {
            for row in &mut h.attempts {
                if row.attempt.status == AttemptStatus::InProgress {
                    row.attempt.status = AttemptStatus::Pending;
                }
            }
        }),
        ("an attempt in progress without a lease", |h| {
            h.sessions.clear()
        }),
        ("a fence that does not grow", |h| {
            let leased = h.events.iter().find(|event| event.kind == "attempt_leased");
            let mut again = leased.expect("something was leased").clone();
            again.sequence = u64::MAX;
            let last = h
                .events
                .iter()
                .rfind(|event| event.about.workflow() == again.about.workflow());
            again.about = last.map_or(again.about, |event| stays(event.about));
            h.events.push(again);
        }),
        ("a lease under PAUSED", |h| {
            for event in &mut h.events {
                if event.kind == "attempt_leased" {
                    leave_from(&mut event.about, State::Paused);
                }
            }
        }),
        ("a pause that a lease does not see", |h| {
            let leased = h
                .events
                .iter()
                .rposition(|event| event.kind == "attempt_leased")
                .expect("something was leased");
            let Some((state, _)) = h.events[leased].about.states() else {
                panic!("a lease is a workflow's");
            };
            let id = h.events[leased].about.workflow().expect("a workflow's");
            let mut pause = h.events[leased].clone();
            pause.kind = "operator_paused".to_owned();
            let rests = (state, State::Paused);
            let goes_on = (State::Paused, state);
            for (place, (from, to)) in [(leased, rests), (leased + 2, goes_on)] {
                pause.about = About::Workflow { id, from, to };
                h.events.insert(place, pause.clone());
            }
            for (sequence, event) in (1..).zip(&mut h.events) {
                event.sequence = sequence;
            }
        }),
        ("two workflows of one item at once", |h| {
            // It did not end before the other began.
            let over = predecessor(h);
            let end = h
                .events
                .iter()
                .position(|event| {
                    event.about.workflow() == Some(over) && event.kind == "operator_abandoned"
                })
                .expect("it was abandoned");
            let end = h.events.remove(end);
            h.events.push(end);
            for (sequence, event) in (1..).zip(&mut h.events) {
                event.sequence = sequence;
            }
        }),
        ("a workflow that is followed twice", |h| {
            let twin = h.workflows.last().expect("there are workflows").clone();
            h.workflows.push(twin);
        }),
        ("a predecessor of another item", |h| {
            let over = predecessor(h);
            h.workflows.retain(|row| row.workflow.id != over);
        }),
        ("a tier that goes down", |h| {
            if let Some(row) = h.attempts.first_mut() {
                row.attempt.tier = 3;
            }
        }),
    ];
    for (name, damage) in damages {
        let mut damaged = history.clone();
        damage(&mut damaged);
        assert_ne!(damaged.faults(), Vec::<String>::new(), "{name}");
    }
}

/// The workflow that another one follows.
fn predecessor(history: &History) -> WorkflowId {
    let last = history.workflows.last().expect("there are workflows");
    last.workflow.predecessor.expect("it follows one")
}

/// The same workflow, where it is afterwards.
fn stays(about: About) -> About {
    match about {
        About::Workflow { id, to, .. } => About::Workflow { id, from: to, to },
        About::Repository(_) | About::Worker(_) => about,
    }
}

fn leave_from(about: &mut About, state: State) {
    if let About::Workflow { from, .. } = about {
        *from = state;
    }
}
