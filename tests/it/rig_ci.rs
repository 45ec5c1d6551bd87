//! Waiting for CI: when it never answers, when it lies, and when nobody wants its answer any more.

use std::time::Duration;

use pointsman_master::{
    domain::{
        attempt::{AttemptStatus, InfrastructureClass, Role},
        ci::Conclusion,
        ids::WorkflowId,
        policy::Policy,
        transitions::State,
    },
    service::{Change, Error},
    store::model::CheckRun,
};
use pointsman_tests::rig::{FakeWorker, Rig, ask, worker::check_result};

const HOUR: u64 = 3600;
const MICRO: Duration = Duration::from_micros(1);

/// A pull request of ours in AWAITING_CI.
struct Waiting {
    rig: Rig,
    worker: FakeWorker,
    id: WorkflowId,
}

impl Waiting {
    async fn under(policy: Policy) -> Self {
        Self::with(policy, Some("true".to_owned())).await
    }

    async fn with(policy: Policy, ci_command: Option<String>) -> Self {
        let rig = Rig::empty().await;
        rig.add_repository(policy, ci_command)
            .await
            .expect("the repository is added");
        let worker = FakeWorker::registered(&rig, "w").await;
        let id = rig.pull_request_in(&worker, State::AwaitingCi).await;
        rig.poll().await;
        assert_eq!(rig.state(id).await, State::AwaitingCi);
        Self { rig, worker, id }
    }

    /// The newest run of the one check of the head.
    async fn run(&self) -> CheckRun {
        let head = self.rig.row(self.id).await.workflow.progress().head.clone();
        let head = head.expect("it has a head");
        let runs = self.rig.store.check_runs(self.id, &head).await;
        let mut runs = runs.expect("the store answers");
        assert_eq!(runs.len(), 1, "one check: {runs:?}");
        runs.remove(0)
    }

    /// Nothing is decided just before `seconds`, and the workflow is in `state` at once after it.
    async fn check_deadline(&self, seconds: u64, state: State) {
        self.rig.advance(Duration::from_secs(seconds) - MICRO);
        self.rig.poll().await;
        assert_eq!(
            self.rig.state(self.id).await,
            State::AwaitingCi,
            "too early"
        );
        self.rig.advance(MICRO);
        self.rig.poll().await;
        assert_eq!(self.rig.state(self.id).await, state);
    }

    async fn check_history(&self) {
        assert_eq!(self.rig.history().await.faults(), Vec::<String>::new());
    }
}

/// detent#1660: a wait without a bound never ended.
#[tokio::test]
async fn checks_that_never_change_exhaust_the_wait_at_the_idle_deadline() {
    let waiting = Waiting::under(Policy::default()).await;
    let check = waiting
        .rig
        .leased(&waiting.worker, waiting.id, Role::Ci)
        .await;
    waiting.check_deadline(2 * HOUR, State::Stuck).await;
    let event = waiting.rig.event(waiting.id, "ci_polling_exhausted").await;
    assert_eq!(
        event.about.states(),
        Some((State::AwaitingCi, State::Stuck))
    );
    assert_eq!(event.reason, "no check changed within 7200 s");
    let row = waiting.rig.store.attempt(check.attempt.id).await;
    let row = row.expect("the store answers").expect("it is there");
    assert_eq!(row.attempt.status, AttemptStatus::Cancelled);
    let history = waiting.rig.history().await;
    assert_eq!(history.faults(), Vec::<String>::new());
    assert_eq!(history.loose_ends(), Vec::<String>::new());
}

/// detent#1660: a wait without a bound never ended.
#[tokio::test]
async fn the_whole_wait_is_exhausted_at_the_poll_deadline() {
    let waiting = Waiting::under(Policy {
        ci_idle_deadline_seconds: 7 * HOUR,
        ..Policy::default()
    })
    .await;
    waiting.check_deadline(6 * HOUR, State::Stuck).await;
    let event = waiting.rig.event(waiting.id, "ci_polling_exhausted").await;
    assert_eq!(event.reason, "no verdict of CI within 21600 s");
    waiting.check_history().await;
}

/// renovate#10326: it was merged before any check had appeared.
#[tokio::test]
async fn no_check_at_all_is_not_green() {
    let waiting = Waiting::with(Policy::default(), None).await;
    waiting.check_deadline(2 * HOUR, State::Stuck).await;
    waiting.check_history().await;
}

#[tokio::test]
async fn no_check_at_all_is_green_where_checks_are_optional_once_they_had_their_time() {
    let policy = Policy {
        ci_optional: true,
        ..Policy::default()
    };
    let waiting = Waiting::with(policy, None).await;
    waiting.check_deadline(600, State::Reviewing).await;
    waiting.check_history().await;
}

/// fabrik ADR-1410: a rebase had eaten half of the time that its checks had.
#[tokio::test]
async fn a_push_starts_the_wait_again() {
    let waiting = Waiting::under(Policy::default()).await;
    let Waiting { rig, id, .. } = &waiting;
    rig.advance(Duration::from_secs(2 * HOUR - 1));
    let branch = rig.row(*id).await.workflow.head_ref.clone();
    rig.remote.add_to(&branch, "by a person").await;
    rig.poll().await;
    assert_eq!(rig.state(*id).await, State::AwaitingCi);
    assert_eq!(rig.count_events(*id, "ci_wait_restarted").await, 1);
    waiting.check_deadline(2 * HOUR, State::Stuck).await;
    waiting.check_history().await;
}

/// The look that saw the check running must not put off the look that it asks for when it ends.
#[tokio::test]
async fn a_check_that_ends_while_it_is_read_is_looked_at_again_at_once() {
    let waiting = Waiting::under(Policy::default()).await;
    let Waiting { rig, worker, id } = &waiting;
    let grant = rig.leased(worker, *id, Role::Ci).await;
    rig.advance(Duration::from_secs(600));
    let ends = async {
        let completed = worker.complete(rig, grant.lease.key, check_result(0)).await;
        completed.expect("the check ends");
    };
    tokio::join!(rig.master.checks.between(ends), rig.poll());
    assert_eq!(
        rig.state(*id).await,
        State::AwaitingCi,
        "it was read before"
    );
    rig.poll().await;
    assert_eq!(rig.state(*id).await, State::Reviewing);
    waiting.check_history().await;
}

fn flaky() -> Policy {
    Policy {
        flaky_checks: vec!["c*".to_owned()],
        ..Policy::default()
    }
}

/// A flaky check fails, is run again once, and the second run ends so.
async fn retried(policy: Policy, second: u32) -> Waiting {
    let waiting = Waiting::under(policy).await;
    let Waiting { rig, worker, id } = &waiting;
    rig.check(worker, *id, 1).await;
    assert_eq!(rig.state(*id).await, State::AwaitingCi);
    assert_eq!(rig.count_events(*id, "ci_flake_retry").await, 1);
    let first = waiting.run().await;
    assert_eq!(
        (first.run, first.conclusion),
        (1, Some(Conclusion::Failure))
    );
    rig.poll().await;
    assert_eq!(
        rig.count_events(*id, "ci_flake_retry").await,
        1,
        "asked for once"
    );
    rig.carry_out().await;
    let rerun = waiting.run().await;
    assert_eq!((rerun.run, rerun.conclusion), (2, None));
    rig.turn().await;
    rig.check(worker, *id, second).await;
    waiting
}

#[tokio::test]
async fn a_flaky_check_that_is_green_the_second_time_goes_to_review() {
    let waiting = retried(flaky(), 0).await;
    assert_eq!(waiting.rig.state(waiting.id).await, State::Reviewing);
    waiting.check_history().await;
}

#[tokio::test]
async fn a_flaky_check_that_is_red_again_is_ordinary_red() {
    let waiting = retried(flaky(), 1).await;
    assert_eq!(waiting.rig.state(waiting.id).await, State::Implementing);
    assert_eq!(
        waiting.rig.count_events(waiting.id, "ci_red_fixable").await,
        1
    );
    let grant = waiting
        .rig
        .leased(&waiting.worker, waiting.id, Role::Implementer)
        .await;
    let failures = &grant.workflow.progress().facts.ci_failures;
    assert_eq!(failures.len(), 1, "the implementer learns what failed");
    assert_eq!(failures[0].log_tail, "ended with 1");
    waiting.check_history().await;
}

#[tokio::test]
async fn a_flaky_check_that_is_red_again_escalates_under_the_hard_ceiling() {
    let policy = Policy {
        ci_flake_hard_ceiling: true,
        ..flaky()
    };
    let waiting = retried(policy, 1).await;
    assert_eq!(waiting.rig.state(waiting.id).await, State::Escalating);
    let left = waiting
        .rig
        .left(waiting.id, "ci_flake_retries_exhausted")
        .await;
    assert_eq!(left, State::AwaitingCi);
    waiting.check_history().await;
}

#[tokio::test]
async fn one_workflow_may_be_given_more_retries() {
    let waiting = Waiting::under(flaky()).await;
    let Waiting { rig, worker, id } = &waiting;
    let set = |remaining| {
        rig.service()
            .set_ci_flake_retries(ask(*id, "flaky"), remaining)
    };
    let Ok(Change::Changed(_)) = set(2).await else {
        panic!("it is set");
    };
    let Ok(Change::Unchanged(_)) = set(2).await else {
        panic!("it is so already");
    };
    for n in 1..=2 {
        rig.check(worker, *id, 1).await;
        assert_eq!(rig.count_events(*id, "ci_flake_retry").await, n);
        rig.carry_out().await;
    }
    rig.check(worker, *id, 1).await;
    assert_eq!(rig.state(*id).await, State::Implementing);
    let refused = set(11).await;
    assert!(matches!(refused, Err(Error::Refused(_))), "{refused:?}");
}

#[tokio::test]
async fn the_masters_setting_holds_where_the_policy_does_not_say() {
    let none = Policy {
        ci_flake_retries: Some(0),
        ..flaky()
    };
    let waiting = Waiting::under(none).await;
    waiting.rig.check(&waiting.worker, waiting.id, 1).await;
    assert_eq!(waiting.rig.state(waiting.id).await, State::Implementing);
}

#[tokio::test]
async fn the_result_of_a_check_that_was_cancelled_is_written_nowhere() {
    let waiting = Waiting::under(Policy::default()).await;
    let Waiting { rig, worker, id } = &waiting;
    let check = rig.leased(worker, *id, Role::Ci).await;
    let old = waiting.run().await;
    let branch = rig.row(*id).await.workflow.head_ref.clone();
    rig.remote.add_to(&branch, "by a person").await;
    rig.reconcile().await;
    let late = worker.complete(rig, check.lease.key, check_result(0)).await;
    assert!(matches!(late, Err(Error::LeaseLost { .. })), "{late:?}");
    let runs = rig.store.check_runs(*id, &old.commit).await;
    assert_eq!(runs.expect("the store answers"), [old]);
    rig.poll().await;
    assert_eq!(rig.state(*id).await, State::AwaitingCi);
    waiting.check_history().await;
}

/// Lets the check's attempt crash until its pickups are spent.
async fn spend_pickups(waiting: &Waiting) {
    for _ in 0..Policy::default().max_pickups {
        let check = waiting
            .rig
            .leased(&waiting.worker, waiting.id, Role::Ci)
            .await;
        let class = InfrastructureClass::Crashed;
        waiting.worker.fail(&waiting.rig, &check, class).await;
    }
}

#[tokio::test]
async fn a_check_that_can_not_be_run_concludes_startup_failure() {
    let waiting = Waiting::under(Policy::default()).await;
    let Waiting { rig, worker, id } = &waiting;
    spend_pickups(&waiting).await;
    let run = waiting.run().await;
    assert_eq!(run.conclusion, Some(Conclusion::StartupFailure));
    assert!(worker.lease(rig, 10).await.is_empty());
    assert_eq!(rig.count_events(*id, "attempt-pickup-exhausted").await, 1);
    rig.poll().await;
    assert_eq!(
        rig.state(*id).await,
        State::AwaitingCi,
        "it is no fault of the commit"
    );
    assert_eq!(rig.count_events(*id, "ci_flake_retry").await, 1);
    rig.carry_out().await;
    spend_pickups(&waiting).await;
    rig.poll().await;
    assert_eq!(
        rig.state(*id).await,
        State::Implementing,
        "and then ordinary red"
    );
    waiting.check_history().await;
}
