//! The short way to a state.

use pointsman_master::{
    domain::{attempt::Role, ids::WorkflowId, transitions::State, verdict::Verdict},
    service::Grant,
    sweeps::Sweep,
};

use super::{
    FakeWorker, Rig,
    worker::{approve, ready},
};

impl Rig {
    /// An issue whose workflow is in `state`; its attempt, where it has one, is pending.
    ///
    /// # Panics
    /// Where an issue has no short way to it.
    pub async fn issue_in(&self, worker: &FakeWorker, state: State) -> WorkflowId {
        let id = self.submit("Make it work").await;
        if state != State::Analyzing {
            let grant = self.leased(worker, id, Role::Estimator).await;
            worker.say(self, &grant, ready()).await;
        }
        match state {
            State::Analyzing | State::Implementing => {}
            State::Escalating => self.say_implementer(worker, id, failed()).await,
            State::ConflictResolving => self.say_implementer(worker, id, conflict()).await,
            State::CreatedPr => {
                let grant = self.leased(worker, id, Role::Implementer).await;
                worker.change(self, &grant).await;
                self.carry_out().await;
            }
            other => panic!("no short way of an issue to {other}"),
        }
        assert_eq!(self.state(id).await, state);
        id
    }

    /// A pull request of ours whose workflow is in `state`; its attempt, where it has one, is pending.
    ///
    /// # Panics
    /// Where a pull request has no short way to it.
    pub async fn pull_request_in(&self, worker: &FakeWorker, state: State) -> WorkflowId {
        let issue = self.issue_in(worker, State::CreatedPr).await;
        let rows = self.workflows().await;
        let row = rows.iter().find(|row| row.workflow.parent == Some(issue));
        let id = row.expect("the pull request has a workflow").workflow.id;
        match state {
            State::AwaitingCi => {}
            State::Implementing => self.check(worker, id, 1).await,
            State::Reviewing => self.check(worker, id, 0).await,
            State::ConflictResolving => {
                self.check(worker, id, 1).await;
                self.say_implementer(worker, id, conflict()).await;
            }
            State::Escalating => {
                self.check(worker, id, 1).await;
                self.say_implementer(worker, id, failed()).await;
            }
            State::Merging => {
                self.check(worker, id, 0).await;
                let grant = self.leased(worker, id, Role::Reviewer).await;
                worker.say(self, &grant, approve()).await;
            }
            other => panic!("no short way of a pull request to {other}"),
        }
        assert_eq!(self.state(id).await, state);
        id
    }

    /// Leases the workflow's attempt, which must be the only one that there is to lease.
    pub async fn leased(&self, worker: &FakeWorker, id: WorkflowId, role: Role) -> Grant {
        let grant = worker.lease_one(self).await;
        assert_eq!(grant.workflow.id, id);
        assert_eq!(grant.attempt.role, role);
        grant
    }

    async fn say_implementer(&self, worker: &FakeWorker, id: WorkflowId, verdict: Verdict) {
        let grant = self.leased(worker, id, Role::Implementer).await;
        worker.say(self, &grant, verdict).await;
    }

    /// Runs the check of the workflow's head, which ends so, and lets the master read it.
    pub async fn check(&self, worker: &FakeWorker, id: WorkflowId, exit_status: u32) {
        let grant = self.leased(worker, id, Role::Ci).await;
        worker.conclude(self, &grant, exit_status).await;
        self.poll().await;
    }

    /// Turns the CI poller.
    pub async fn poll(&self) {
        let report = self.master.ci_poller.run_once().await;
        assert_eq!(report.expect("it polls").failed, 0);
    }

    /// Turns the effector.
    pub async fn carry_out(&self) {
        let report = self.master.effector.run_once().await;
        assert_eq!(report.expect("it carries out").failed, 0);
    }

    /// Turns the reconciler.
    pub async fn reconcile(&self) {
        let report = self.master.reconciler.run_once().await;
        assert_eq!(report.expect("it reconciles").failed, 0);
    }
}

pub fn failed() -> Verdict {
    Verdict::Failed {
        reason: "too hard".to_owned(),
    }
}

pub fn conflict() -> Verdict {
    Verdict::Conflict {
        paths: vec!["README".to_owned()],
    }
}

pub fn request_changes() -> Verdict {
    Verdict::RequestChanges {
        notes: "not yet".to_owned(),
    }
}
