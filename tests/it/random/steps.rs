//! What may be done, and how.

use nix::sys::signal::Signal;
use pointsman_proto::v1::{Workflow, WorkflowKind, WorkflowState};
use rand::{rngs::StdRng, seq::IndexedRandom as _};

use super::{
    Driver, WORKERS,
    calls::{Call, may_fail},
    is_over,
};

/// Issues that are open at once, at most.
const MAX_LIVE: usize = 12;

#[derive(Debug, Clone, Copy)]
pub(super) enum Step {
    Submit,
    RemoveLabel,
    GiveLabel,
    PushToHead,
    PushToBase,
    Call(Call),
    KillWorker,
    StopWorker,
    StartWorkers,
    FreezeWorker,
    ThawWorkers,
    KillMaster,
    StopMaster,
    StartMaster,
}

impl Step {
    /// Each with its weight.
    const ALL: [(Self, u32); 28] = [
        (Self::Submit, 20),
        (Self::RemoveLabel, 6),
        (Self::GiveLabel, 10),
        (Self::PushToHead, 4),
        (Self::PushToBase, 2),
        (Self::Call(Call::Pause), 4),
        (Self::Call(Call::Resume), 6),
        (Self::Call(Call::Unstick), 6),
        (Self::Call(Call::Abandon), 1),
        (Self::Call(Call::Resubmit), 3),
        (Self::Call(Call::SetFlakeRetries), 2),
        (Self::Call(Call::SetPriority), 2),
        (Self::Call(Call::CancelAttempt), 4),
        (Self::Call(Call::Close), 2),
        (Self::Call(Call::Reopen), 3),
        (Self::Call(Call::Comment), 1),
        (Self::Call(Call::Drain), 2),
        (Self::Call(Call::Undrain), 4),
        (Self::Call(Call::DeclareDead), 1),
        (Self::Call(Call::Sweep), 3),
        (Self::KillWorker, 2),
        (Self::StopWorker, 1),
        (Self::StartWorkers, 12),
        (Self::FreezeWorker, 2),
        (Self::ThawWorkers, 6),
        (Self::KillMaster, 2),
        (Self::StopMaster, 1),
        (Self::StartMaster, 20),
    ];

    pub(super) fn choose(rng: &mut StdRng) -> Self {
        let chosen = Self::ALL.choose_weighted(rng, |(_, weight)| *weight);
        chosen.expect("there are steps").0
    }
}

impl Driver {
    pub(super) async fn take(&mut self, step: Step) {
        match step {
            Step::Submit => self.submit().await,
            Step::RemoveLabel => self.set_label(false).await,
            Step::GiveLabel => self.set_label(true).await,
            Step::PushToHead => self.push_to_head().await,
            Step::PushToBase => {
                let n = self.done.len();
                let path = if n.is_multiple_of(2) {
                    "shared.txt"
                } else {
                    "other.txt"
                };
                let base = pointsman_tests::world::BASE;
                let _pushed = self
                    .world
                    .remote
                    .push_to_branch(base, path, &format!("person {n}"))
                    .await;
            }
            Step::Call(call) => self.call(call).await,
            Step::KillWorker => {
                if let Some(name) = self.some_worker() {
                    self.world.kill_worker(name).await;
                    self.dead.push(name);
                }
            }
            Step::StopWorker => {
                // A worker without a master has nobody to give its leases back to.
                if self.has_master
                    && let Some(name) = self.some_worker()
                {
                    self.world.stop_worker(name).await;
                    self.dead.push(name);
                }
            }
            Step::StartWorkers => self.start_workers().await,
            Step::FreezeWorker => {
                if let Some(name) = self.some_worker() {
                    self.world.worker(name).signal(Signal::SIGSTOP);
                    self.frozen.push(name);
                }
            }
            Step::ThawWorkers => self.thaw_workers(),
            Step::KillMaster => {
                if std::mem::take(&mut self.has_master) {
                    self.world.kill_master().await;
                }
            }
            Step::StopMaster => {
                if std::mem::take(&mut self.has_master) {
                    self.world.stop_master().await;
                }
            }
            Step::StartMaster => self.start_master().await,
        }
    }

    /// Everything runs again.
    pub(super) async fn repair(&mut self) {
        self.start_master().await;
        self.thaw_workers();
        self.start_workers().await;
    }

    async fn start_master(&mut self) {
        if !std::mem::replace(&mut self.has_master, true) {
            self.world.start_master().await;
        }
    }

    async fn start_workers(&mut self) {
        for name in std::mem::take(&mut self.dead) {
            self.world.start_worker(name).await;
        }
    }

    fn thaw_workers(&mut self) {
        for name in std::mem::take(&mut self.frozen) {
            self.world.worker(name).signal(Signal::SIGCONT);
        }
    }

    /// A worker that runs.
    fn some_worker(&mut self) -> Option<&'static str> {
        let running: Vec<&'static str> = WORKERS
            .into_iter()
            .filter(|name| !self.dead.contains(name) && !self.frozen.contains(name))
            .collect();
        running.choose(&mut self.rng).copied()
    }

    pub(super) async fn workflows(&self) -> Vec<Workflow> {
        self.world.workflows().await.unwrap_or_default()
    }

    /// A workflow that fits.
    pub(super) async fn some(&mut self, fits: impl Fn(&Workflow) -> bool) -> Option<Workflow> {
        let mut all = self.workflows().await;
        all.retain(fits);
        all.choose(&mut self.rng).cloned()
    }

    async fn submit(&mut self) {
        let all = self.workflows().await;
        let n_live = all.iter().filter(|w| !is_over(w.state())).count();
        if self.has_master && n_live < MAX_LIVE {
            self.world.submit().await;
        }
    }

    async fn set_label(&mut self, present: bool) {
        let fits = |workflow: &Workflow| {
            !is_over(workflow.state()) && (workflow.state() == WorkflowState::Paused) == present
        };
        if let Some(workflow) = self.some(fits).await {
            may_fail(self.world.try_set_label(workflow.number, present).await);
        }
    }

    async fn push_to_head(&mut self) {
        let fits = |workflow: &Workflow| {
            workflow.kind() == WorkflowKind::PullRequest && !is_over(workflow.state())
        };
        if let Some(workflow) = self.some(fits).await {
            let text = format!("person {}", self.done.len());
            let _pushed = self
                .world
                .remote
                .push_to_branch(&workflow.head_ref, "person.txt", &text)
                .await;
        }
    }
}
