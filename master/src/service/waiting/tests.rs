//! Every state that is not terminal, in every situation that is known.

use std::time::Duration;

use serde_json::json;
use uuid::Uuid;

use super::*;
use crate::{
    domain::{
        attempt::{InfrastructureClass, Outcome},
        ci::Conclusion,
        effect::Effect,
        hold::{Hold, HoldSubject},
        ids::{
            AttemptId, CheckId, EffectId, Fence, HoldId, InstanceId, LeaseKey, Nonce, RepositoryId,
            WorkerId, WorkflowId,
        },
        policy::Policy,
        workflow::{Counters, Facts as Learnt, Identity, Kind, Progress, Workflow},
    },
    store::model::{Drain, LeaseRow, ProfileRow, ProgressRow, StateDirectory, WorkerRow},
};

const START: Timestamp = Timestamp(1_000_000_000_000_000);

fn at(seconds: u64) -> Timestamp {
    START.after(Duration::from_secs(seconds))
}

fn now() -> Timestamp {
    at(600)
}

fn id(n: u128) -> Uuid {
    Uuid::from_u128(n)
}

/// All the facts, owned.
#[derive(Debug)]
struct Scene {
    row: WorkflowRow,
    repository: Repository,
    attempts: Vec<AttemptRow>,
    effect: Option<OpenEffectRow>,
    checks: Vec<CheckRun>,
    sessions: Vec<SessionRow>,
    n_live: u32,
    fleet: Fleet,
}

impl Scene {
    /// A pull request in `state` with one idle worker that takes everything.
    fn new(state: State) -> Self {
        let policy = Policy::default();
        let progress = Progress {
            state,
            pause: (state == State::Paused).then_some(Pause {
                was: State::Reviewing,
                by: PausedBy::Label,
            }),
            tier: 1,
            counters: Counters::fresh(&policy),
            head: Some("3f2a".repeat(10).parse().unwrap()),
            awaiting_ci_started_at: (state == State::AwaitingCi).then_some(START),
            merging_started_at: (state == State::Merging).then_some(START),
            facts: Learnt::default(),
            merged_commit: None,
            pull_request: None,
            upstream: None,
            left_at: None,
        };
        let identity = Identity {
            id: WorkflowId(id(1)),
            repository: RepositoryId(id(2)),
            kind: Kind::PullRequest,
            number: 7,
            title: "Add a lamp".to_owned(),
            body: String::new(),
            head_ref: "lamp".to_owned(),
            base_ref: "main".to_owned(),
            parent: None,
            predecessor: None,
            created_at: START,
        };
        Self {
            row: WorkflowRow {
                workflow: Workflow::restore(identity, progress).unwrap(),
                successor: None,
                repository_name: "demo".to_owned(),
                priority: 0,
                version: 1,
                state_since: START,
                ci_polls: 0,
                ci_next_poll_at: (state == State::AwaitingCi).then_some(at(640)),
                updated_at: START,
                archived_at: None,
            },
            repository: Repository {
                id: RepositoryId(id(2)),
                name: "demo".to_owned(),
                git_url: String::new(),
                base_ref: "main".to_owned(),
                label: "agent".to_owned(),
                checks: Vec::new(),
                policy,
                created_at: START,
            },
            attempts: Vec::new(),
            effect: None,
            checks: Vec::new(),
            sessions: Vec::new(),
            n_live: 20,
            fleet: Fleet {
                workers: vec![worker()],
                holds: Vec::new(),
                now: now(),
            },
        }
    }

    fn waiting(&self) -> Option<Waiting> {
        waiting(&Facts {
            row: &self.row,
            repository: &self.repository,
            attempts: &self.attempts,
            effect: self.effect.as_ref(),
            checks: &self.checks,
            sessions: &self.sessions,
            n_live: self.n_live,
            fleet: &self.fleet,
        })
    }

    fn progress(&mut self, change: impl FnOnce(&mut Progress)) {
        let mut progress = self.row.workflow.progress().clone();
        change(&mut progress);
        let identity = self.row.workflow.identity().clone();
        self.row.workflow = Workflow::restore(identity, progress).unwrap();
    }

    /// An attempt of the workflow, in the role of its state.
    fn attempt(&mut self, change: impl FnOnce(&mut Attempt)) {
        let state = self.row.workflow.underlying_state();
        let role = state.role().unwrap_or(Role::Implementer);
        self.add_attempt(Subject::Workflow, role, change);
    }

    fn add_attempt(&mut self, subject: Subject, role: Role, change: impl FnOnce(&mut Attempt)) {
        let mut attempt = Attempt {
            id: AttemptId(id(100 + self.attempts.len() as u128)),
            repository: self.repository.id,
            workflow: self.row.workflow.id,
            subject,
            role,
            tier: 1,
            status: AttemptStatus::Pending,
            commit: None,
            fence: Fence(3),
            pickup_count: 0,
            uncharged_errors: 0,
            lock_ttl_seconds: 180,
            not_before: None,
            accepted: None,
            outcome: None,
            created_at: START,
            started_at: None,
            ended_at: None,
        };
        change(&mut attempt);
        self.attempts.push(AttemptRow {
            attempt,
            worker: None,
            check_name: None,
        });
    }

    /// The newest attempt runs, and its beats say so.
    fn run(&mut self, phase: Option<&str>, last_output_at: Option<Timestamp>) {
        let attempt = &mut self.attempts.last_mut().unwrap().attempt;
        attempt.status = AttemptStatus::InProgress;
        attempt.started_at = Some(at(60));
        let key = LeaseKey {
            attempt: attempt.id,
            fence: attempt.fence,
            nonce: Nonce(id(7)),
        };
        self.sessions.push(SessionRow {
            lease: LeaseRow {
                key,
                workflow: self.row.workflow.id,
                owner: InstanceId(id(4)),
                worker: WorkerId(id(3)),
                profile: "agent".to_owned(),
                is_unconfirmed: false,
                leased_at: at(60),
                heartbeat_at: now(),
                ttl_seconds: 180,
            },
            role: attempt.role,
            tier: 1,
            worker_name: "w1".to_owned(),
            host: "host".to_owned(),
            progress: phase.map(|phase| ProgressRow {
                key,
                phase: phase.to_owned(),
                subprocess_pid: 1,
                subprocess_starttime: 1,
                last_output_at,
                log_bytes: 1,
            }),
        });
    }

    fn open(&mut self, tries: u32, waiting_for: &str) {
        self.effect = Some(OpenEffectRow {
            id: EffectId(id(5)),
            workflow: self.row.workflow.id,
            attempt: None,
            effect: Effect::Merge {
                head: "3f2a".repeat(10).parse().unwrap(),
            },
            tries,
            waits: 0,
            next_try_at: at(630),
            first_failure_at: (tries > 0).then_some(at(300)),
            waiting_for: waiting_for.to_owned(),
            opened_at: at(200),
        });
    }

    fn check(&mut self, name: &str, conclusion: Option<Conclusion>) -> CheckId {
        let check = CheckId(id(200 + self.checks.len() as u128));
        self.checks.push(CheckRun {
            id: check,
            repository: self.repository.id,
            workflow: self.row.workflow.id,
            name: name.to_owned(),
            command: "true".to_owned(),
            commit: "3f2a".repeat(10).parse().unwrap(),
            run: 1,
            conclusion,
            exit_status: None,
            log_tail: String::new(),
            created_at: START,
            changed_at: at(100),
        });
        check
    }

    fn hold(&mut self) {
        self.fleet.holds.push(Hold {
            id: HoldId(id(6)),
            subject: HoldSubject::Account("main".to_owned()),
            class: InfrastructureClass::ProviderQuota,
            message: "no".to_owned(),
            worker: WorkerId(id(3)),
            placed_at: START,
            until: at(900),
            failures: 1,
            canary: None,
        });
    }

    fn worker(&mut self) -> &mut WorkerRow {
        self.fleet.workers.last_mut().unwrap()
    }
}

fn worker() -> WorkerRow {
    WorkerRow {
        id: WorkerId(id(3)),
        instance: InstanceId(id(4)),
        name: "w1".to_owned(),
        host: "host".to_owned(),
        boot_id: "boot".to_owned(),
        version: "0".to_owned(),
        state_directory: StateDirectory {
            device: 1,
            inode: 1,
            created_at_nanos: 1,
        },
        capacity: 1,
        roles: Role::ALL.to_vec(),
        labels: Vec::new(),
        profiles: vec![ProfileRow {
            name: "agent".to_owned(),
            roles: Role::ALL.to_vec(),
            tiers: Vec::new(),
            kill_budget: Duration::from_secs(10),
            account: "main".to_owned(),
        }],
        registered_at: START,
        last_beat_at: now(),
        drain: None,
        declared_dead_at: None,
    }
}

type Change = (&'static str, fn(&mut Scene));

/// What the workflow may have in hand.
const WORK: &[Change] = &[
    ("nothing", |_| {}),
    ("pending", |scene| scene.attempt(|_| {})),
    ("backoff", |scene| scene.attempt(fail)),
    ("leased", |scene| {
        scene.attempt(|_| {});
        scene.run(None, None);
    }),
    ("running", |scene| {
        scene.attempt(|_| {});
        scene.run(Some("running"), Some(at(599)));
    }),
    ("silent", |scene| {
        scene.attempt(|_| {});
        scene.run(Some("running"), Some(at(60)));
    }),
    ("effect waits", |scene| scene.open(0, "a dirty\ncheckout")),
    ("effect fails", |scene| scene.open(3, "connection refused")),
    ("a check waits", |scene| {
        let check = scene.check("build", None);
        scene.add_attempt(Subject::Check(check), Role::Ci, |_| {});
    }),
    ("a check runs", |scene| {
        let check = scene.check("build", None);
        scene.add_attempt(Subject::Check(check), Role::Ci, |_| {});
        scene.run(Some("preparing"), None);
    }),
    ("checks ended", |scene| {
        scene.check("build", Some(Conclusion::Success));
    }),
];

/// Who may be there for it.
const FLEETS: &[Change] = &[
    ("all", |_| {}),
    ("no worker", |scene| scene.fleet.workers.clear()),
    ("no role", |scene| scene.worker().roles.clear()),
    ("no profile", |scene| scene.worker().profiles.clear()),
    ("no tier", |scene| {
        scene.worker().profiles[0].tiers = vec![2, 3];
    }),
    ("kill budget", |scene| {
        scene.worker().profiles[0].kill_budget = Duration::from_secs(61);
    }),
    ("drained", |scene| {
        scene.worker().drain = Some(Drain {
            requested_at: START,
            reason: "maintenance".to_owned(),
            stops_sessions: false,
        });
    }),
    ("held", Scene::hold),
];

/// What else may be so.
const OTHERWISE: &[Change] = &[
    ("as ever", |_| {}),
    ("no head", |scene| scene.progress(|p| p.head = None)),
    ("paused by an operator", |scene| {
        scene.progress(|p| {
            if let Some(pause) = &mut p.pause {
                pause.by = PausedBy::Operator;
            }
        });
    }),
];

fn fail(attempt: &mut Attempt) {
    attempt.not_before = Some(at(660));
    attempt.pickup_count = 1;
    attempt.outcome = Some(Outcome {
        name: "crashed".to_owned(),
        detail: json!({ "message": "it fell" }),
    });
}

fn each(mut look: impl FnMut(&str, &Scene)) {
    for &state in State::ALL {
        for (work, bring) in WORK {
            for (fleet, staff) in FLEETS {
                for (otherwise, change) in OTHERWISE {
                    let mut scene = Scene::new(state);
                    bring(&mut scene);
                    staff(&mut scene);
                    change(&mut scene);
                    look(&format!("{state}, {work}, {fleet}, {otherwise}"), &scene);
                }
            }
        }
    }
}

#[test]
fn whoever_is_not_over_waits_for_something_that_is_told() {
    let mut n_told = 0;
    each(|name, scene| {
        let state = scene.row.workflow.state();
        let Some(told) = scene.waiting() else {
            assert!(state.is_terminal(), "{name}");
            return;
        };
        n_told += 1;
        assert!(!state.is_terminal(), "{name}");
        assert!(told.text.starts_with("for "), "{name}: {told:?}");
        assert!(told.text.len() > "for ".len() + 5, "{name}: {told:?}");
        assert!(!told.text.contains('\n'), "{name}: {told:?}");
        for wrong in [" a estimator", " a implementer", " a escalator", "  "] {
            assert!(!told.text.contains(wrong), "{name}: {told:?}");
        }
        assert!(told.since <= now(), "{name}: {told:?}");
        let is_idle = state == State::Paused;
        let is_open = scene.effect.is_some() && !is_idle;
        let is_failing = is_open && scene.effect.as_ref().is_some_and(|e| e.tries > 0);
        let is_ci = state == State::AwaitingCi && !is_open;
        let is_bounded = is_ci || is_failing || is_open && state == State::Merging;
        assert_eq!(told.deadline.is_some(), is_bounded, "{name}: {told:?}");
        if is_open || is_ci {
            assert!(told.next_look_at.is_some(), "{name}: {told:?}");
        }
        // Whoever follows is told when something changes, not each second.
        let later = Scene {
            fleet: Fleet {
                workers: scene.fleet.workers.clone(),
                holds: scene.fleet.holds.clone(),
                now: at(601),
            },
            row: scene.row.clone(),
            repository: scene.repository.clone(),
            attempts: scene.attempts.clone(),
            effect: scene.effect.clone(),
            checks: scene.checks.clone(),
            sessions: scene.sessions.clone(),
            n_live: scene.n_live,
        };
        assert_eq!(later.waiting(), Some(told), "{name}");
    });
    assert_eq!(n_told, 9 * WORK.len() * FLEETS.len() * OTHERWISE.len());
}

/// The part of the table with this name.
fn named(table: &[Change], name: &str) -> fn(&mut Scene) {
    let found = table.iter().find(|(of, _)| *of == name);
    found.expect("there is such a change").1
}

#[track_caller]
fn check(state: State, work: &str, fleet: &str, expected: &str) -> Waiting {
    let mut scene = Scene::new(state);
    named(WORK, work)(&mut scene);
    named(FLEETS, fleet)(&mut scene);
    let told = scene.waiting().unwrap();
    assert_eq!(told.text, expected);
    told
}

#[test]
fn a_pending_attempt_tells_what_keeps_workers_from_it() {
    for (fleet, expected) in [
        ("all", "1 live worker takes it, given a free slot"),
        ("no worker", "no worker is alive"),
        (
            "no role",
            "the one live worker does not take the role estimator",
        ),
        (
            "no profile",
            "worker w1 takes the role estimator, but has no profile for it",
        ),
        (
            "no tier",
            "no live worker takes the role estimator at tier 1: profile agent of worker w1 is for tier 2, 3",
        ),
        (
            "kill budget",
            "the kill budget of profile agent of worker w1 is 61 s, more than a third of the time-to-live of \
             180 s: shorten the one, or raise the policy's lease_ttls and cancel this attempt",
        ),
        (
            "drained",
            "worker w1 would take it, but is drained (maintenance)",
        ),
        ("held", "account main is held (provider_quota)"),
    ] {
        let expected = format!("for a worker to take an estimator attempt; {expected}");
        let told = check(State::Analyzing, "pending", fleet, &expected);
        let until = (fleet == "held").then_some(at(900));
        assert_eq!((told.since, told.next_look_at), (START, until), "{fleet}");
    }
}

#[test]
fn the_worker_that_is_nearest_to_it_is_told_of() {
    let mut scene = Scene::new(State::Reviewing);
    scene.attempt(|_| {});
    named(FLEETS, "kill budget")(&mut scene);
    let mut other = worker();
    other.name = "w2".to_owned();
    other.roles.clear();
    scene.fleet.workers.push(other);
    let text = scene.waiting().unwrap().text;
    assert!(text.contains("of worker w1 is 61 s"), "{text}");
    scene.worker().roles = vec![Role::Reviewer];
    let text = scene.waiting().unwrap().text;
    assert!(text.contains("1 live worker takes it"), "{text}");
}

#[test]
fn an_attempt_tells_of_its_backoff_and_of_its_session() {
    let told = check(
        State::Implementing,
        "backoff",
        "all",
        "for a worker to take an implementer attempt, not before 2001-09-09T01:57:40Z, after crashed: it fell \
         (pickup 1 of 3); 1 live worker takes it, given a free slot",
    );
    assert_eq!(told.next_look_at, Some(at(660)));
    let id = id(100);
    let told = check(
        State::Reviewing,
        "running",
        "no worker",
        &format!("for a reviewer attempt on worker w1, running ({id}, lease 3) to end"),
    );
    assert_eq!(told.since, at(60));
    check(
        State::Escalating,
        "silent",
        "all",
        &format!(
            "for an escalator attempt on worker w1, running, silent since 2001-09-09T01:47:40Z ({id}, lease 3) \
             to end"
        ),
    );
    check(
        State::Paused,
        "running",
        "all",
        &format!(
            "for the label agent on #7; with it, it goes on in REVIEWING; meanwhile a reviewer attempt on worker \
             w1, running ({id}, lease 3) runs on"
        ),
    );
}

#[test]
fn effects_tell_their_tries_and_merging_the_forges_reason() {
    let told = check(
        State::Merging,
        "effect waits",
        "all",
        "for merge on the forge: a dirty checkout",
    );
    let day = Duration::from_secs(24 * 3600);
    assert_eq!(told.deadline, Some(START.after(day)));
    let told = check(
        State::Implementing,
        "effect fails",
        "all",
        "for merge on the forge, of which 3 of 20 tries failed: connection refused",
    );
    assert_eq!(told.deadline, Some(at(300).after(day)));
    assert_eq!(told.next_look_at, Some(at(630)));
    // Those before a pause count no more.
    let mut scene = Scene::new(State::Implementing);
    scene.open(3, "connection refused");
    scene.row.state_since = at(400);
    let told = scene.waiting().unwrap();
    assert_eq!(told.text, "for merge on the forge: connection refused");
    assert_eq!(told.deadline, None);
}

#[test]
fn ci_tells_of_each_check_and_of_the_nearer_deadline() {
    let told = check(
        State::AwaitingCi,
        "a check runs",
        "all",
        "for the check on 3f2a3f2a3f2a: build runs on worker w1, preparing",
    );
    let hours = |n: u64| Duration::from_secs(n * 3600);
    assert_eq!(told.deadline, Some(at(100).after(hours(2))));
    check(
        State::AwaitingCi,
        "a check waits",
        "no role",
        "for the check on 3f2a3f2a3f2a: build waits for a worker to take it; the one live worker does not \
         take the role ci",
    );
    check(
        State::AwaitingCi,
        "checks ended",
        "all",
        "for the verdict of CI on 3f2a3f2a3f2a to be read: every check has ended",
    );
    let mut scene = Scene::new(State::AwaitingCi);
    scene.check("build", None);
    scene.checks[0].changed_at = START.after(hours(5));
    let told = scene.waiting().unwrap();
    assert_eq!(told.deadline, Some(START.after(hours(6))));
    for n in 2..=7 {
        scene.check(&format!("check {n}"), None);
    }
    let text = scene.waiting().unwrap().text;
    assert!(
        text.ends_with("check 5 is to be scheduled; 2 more"),
        "{text}"
    );
}

#[test]
fn room_is_told_with_both_figures() {
    let mut scene = Scene::new(State::Discovered);
    let text = |scene: &Scene| scene.waiting().unwrap().text;
    assert_eq!(
        text(&scene),
        "for room: of demo 20 are live, and max_live_workflows of its policy is 20"
    );
    scene.n_live = 19;
    assert_eq!(
        text(&scene),
        "for the scheduler to admit it; of demo 19 are live, and 20 may be"
    );
}
