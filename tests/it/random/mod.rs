//! A driver that does to a whole Pointsman, at random, what people and machines do to it: labels, pushes,
//! operators' commands, kills. The same seed gives the same choices. In the end everything is put right
//! again, every workflow must end, and the history must be one that can be true.
//!
//! `POINTSMAN_RANDOM_SEED` and `POINTSMAN_RANDOM_SECONDS` set the seed and how long it goes on;
//! `scripts/test --soak` takes ten minutes.

mod calls;
mod plans;
mod steps;

use std::time::{Duration, Instant};

use pointsman_proto::v1::{LeaseTtl, Policy, Role, WorkflowState};
use pointsman_tests::world::{Setup, WorkerSetup, World, eventually_within, lease_ttl};
use rand::{RngExt as _, SeedableRng as _, rngs::StdRng};

use crate::process_support::{number, world};
use steps::Step;

/// Of the ordinary run.
const SEED: u64 = 7;
const DURATION: Duration = Duration::from_secs(60);
/// Longest that everything may take to end once it is left alone.
const CALM: Duration = Duration::from_secs(300);
/// Three times the kill budget of a harness here, the least that the claim takes, so that a frozen worker is
/// found out soon.
const TTL_SECONDS: u32 = 15;
const WORKERS: [&str; 2] = ["worker-1", "worker-2"];

#[tokio::test]
async fn whatever_people_and_machines_do_everything_ends_and_the_history_can_be_true() {
    let seed = number("POINTSMAN_RANDOM_SEED").unwrap_or(SEED);
    let duration = number("POINTSMAN_RANDOM_SECONDS").map_or(DURATION, Duration::from_secs);
    println!(
        "POINTSMAN_RANDOM_SEED={seed} POINTSMAN_RANDOM_SECONDS={}",
        duration.as_secs()
    );
    let mut driver = Driver::new(seed).await;
    let end = Instant::now() + duration;
    while Instant::now() < end {
        driver.turn().await;
    }
    driver.calm_down().await;
    println!("{}", driver.summary().await);
    driver.check().await;
}

/// The world, the chance, and what is broken on purpose at the moment.
struct Driver {
    world: World,
    rng: StdRng,
    /// Workers that are stopped by SIGSTOP, and that are dead.
    frozen: Vec<&'static str>,
    dead: Vec<&'static str>,
    has_master: bool,
    /// What was done, for the report of a failure.
    done: Vec<String>,
}

impl Driver {
    async fn new(seed: u64) -> Self {
        let mut rng = StdRng::seed_from_u64(seed);
        let ttls: Vec<LeaseTtl> = [
            Role::Estimator,
            Role::Implementer,
            Role::Reviewer,
            Role::ConflictResolver,
            Role::Escalator,
            Role::Ci,
        ]
        .map(|role| lease_ttl(role, TTL_SECONDS))
        .to_vec();
        let policy = Policy {
            lease_ttls: ttls,
            flaky_checks: vec!["ci".to_owned()],
            ci_poll_deadline_seconds: Some(120),
            merge_deadline_seconds: Some(120),
            ..Policy::default()
        };
        let workers = WORKERS.map(WorkerSetup::named);
        let mut setup = Setup::default().with_policy(policy).with_workers(workers);
        // Red every now and then, by the commit that is checked.
        setup.ci = "test $(($(git rev-parse HEAD | tr -dc 0-9 | cut -c1-4 | sed 's/^0*//;s/^$/0/') % 5)) != 0".to_owned();
        let mut world = world(setup).await;
        // A master that is killed in the middle of a write says so when it starts again.
        world.forgive_errors();
        let script = plans::random(&world.script(), &mut rng);
        world.follow(&script);
        Self {
            world,
            rng,
            frozen: Vec::new(),
            dead: Vec::new(),
            has_master: true,
            done: Vec::new(),
        }
    }

    /// One step, and a moment for it to have consequences.
    async fn turn(&mut self) {
        let step = Step::choose(&mut self.rng);
        let pause = Duration::from_millis(self.rng.random_range(20..300));
        self.done.push(format!("{step:?}"));
        self.take(step).await;
        tokio::time::sleep(pause).await;
    }

    /// Puts right what was broken on purpose, and waits for the end of every workflow.
    async fn calm_down(&mut self) {
        self.repair().await;
        eventually_within(CALM, "the end of every workflow", async || {
            self.let_all_go_on().await;
            let all = self.world.workflows().await?;
            all.iter().all(|w| is_over(w.state())).then_some(())
        })
        .await;
    }

    /// How it ended, for people.
    async fn summary(&self) -> String {
        let all = self.world.workflows().await.expect("a master");
        let n_in = |state| all.iter().filter(|w| w.state() == state).count();
        format!(
            "{} steps: {} pull requests opened, {} merged, {} abandoned, {} stuck",
            self.done.len(),
            n_in(WorkflowState::CreatedPr),
            n_in(WorkflowState::Merged),
            n_in(WorkflowState::Abandoned),
            n_in(WorkflowState::Stuck)
        )
    }

    async fn check(self) {
        let world = self.world;
        eventually_within(CALM, "the end of all sessions", async || {
            world.sessions().await.is_empty().then_some(())
        })
        .await;
        let all = world.workflows().await.expect("a master");
        let merges = world.remote.merges().await;
        for workflow in all.iter().filter(|w| w.state() == WorkflowState::Merged) {
            let ours = merges.iter().filter(|c| **c == workflow.merged_commit);
            assert_eq!(ours.count(), 1, "{:#?}\n{workflow:#?}", self.done);
        }
        let merged = all.iter().filter(|w| w.state() == WorkflowState::Merged);
        let n_merged = merged.count();
        assert_eq!(merges.len(), n_merged, "{:#?}", self.done);
        world.finish().await;
    }
}

/// Whether nothing more will happen by itself.
fn is_over(state: WorkflowState) -> bool {
    matches!(
        state,
        WorkflowState::Merged
            | WorkflowState::CreatedPr
            | WorkflowState::Abandoned
            | WorkflowState::Stuck
    )
}
