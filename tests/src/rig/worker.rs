//! A worker without processes: it says what a test wants it to say.

use std::time::Duration;

use pointsman_master::{
    domain::{
        attempt::{InfrastructureClass, Role},
        ids::{CommitId, InstanceId, LeaseKey, RequestId, WorkerId},
        time::Timestamp,
        verdict::Verdict,
    },
    service::{Claim, Completed, Completion, Error, Grant, Heard, Registration, Stop},
    store::model::{ProfileRow, ProgressRow, StateDirectory, WorkerRow},
};

use super::Rig;

/// A worker that takes every role.
#[derive(Debug, Clone)]
pub struct FakeWorker {
    pub row: WorkerRow,
}

impl FakeWorker {
    /// Not registered yet.
    pub fn new(rig: &Rig, name: &str) -> Self {
        let row = WorkerRow {
            id: WorkerId(rig.chance.next()),
            instance: InstanceId(rig.chance.next()),
            name: name.to_owned(),
            host: "host".to_owned(),
            boot_id: "boot".to_owned(),
            version: "0".to_owned(),
            state_directory: StateDirectory {
                device: 1,
                inode: name.bytes().map(u64::from).sum(),
                created_at_nanos: 1,
            },
            capacity: 10,
            roles: Role::ALL.to_vec(),
            labels: Vec::new(),
            profiles: vec![ProfileRow {
                name: "fake".to_owned(),
                roles: Role::ALL.to_vec(),
                tiers: Vec::new(),
                kill_budget: Duration::from_secs(10),
                account: "account".to_owned(),
            }],
            registered_at: Timestamp(0),
            last_beat_at: Timestamp(0),
            drain: None,
            declared_dead_at: None,
        };
        Self { row }
    }

    /// A worker that is registered.
    pub async fn registered(rig: &Rig, name: &str) -> Self {
        let worker = Self::new(rig, name);
        worker.register(rig, &[]).await.expect("it is registered");
        worker
    }

    /// The same state directory, in a new process.
    pub fn restarted(&self, rig: &Rig) -> Self {
        let mut worker = self.clone();
        worker.row.instance = InstanceId(rig.chance.next());
        worker
    }

    /// A copy of the state directory on another disk, in a new process.
    pub fn cloned(&self, rig: &Rig) -> Self {
        let mut worker = self.restarted(rig);
        worker.row.state_directory.inode += 1000;
        worker
    }

    /// The same state directory after the next start of its host, or an image of it that was started
    /// beside it.
    pub fn rebooted(&self, rig: &Rig) -> Self {
        let mut worker = self.restarted(rig);
        worker.row.boot_id.push_str(" again");
        worker
    }

    pub async fn register(&self, rig: &Rig, unconfirmed: &[LeaseKey]) -> Result<(), Error> {
        rig.service()
            .register(Registration {
                worker: self.row.clone(),
                unconfirmed: unconfirmed.to_vec(),
            })
            .await
    }

    pub fn claim(&self, rig: &Rig, max: u32) -> Claim {
        Claim {
            worker: self.row.id,
            instance: self.row.instance,
            request: RequestId(rig.chance.next()),
            max,
        }
    }

    /// Leases whatever there is, up to `max`.
    pub async fn lease(&self, rig: &Rig, max: u32) -> Vec<Grant> {
        let granted = rig.service().claim(self.claim(rig, max)).await;
        granted.expect("the claim is answered")
    }

    /// Leases the one attempt that there must be.
    pub async fn lease_one(&self, rig: &Rig) -> Grant {
        let mut grants = self.lease(rig, 10).await;
        assert_eq!(grants.len(), 1, "one attempt can be leased: {grants:?}");
        grants.remove(0)
    }

    pub async fn complete(
        &self,
        rig: &Rig,
        key: LeaseKey,
        completion: Completion,
    ) -> Result<Completed, Error> {
        rig.service().complete(self.row.id, key, completion).await
    }

    /// Ends a lease with a verdict that must be taken.
    pub async fn say(&self, rig: &Rig, grant: &Grant, verdict: Verdict) {
        let said = self
            .complete(rig, grant.lease.key, Completion::Verdict(verdict))
            .await;
        assert_eq!(said.expect("the verdict is taken"), Completed::Now);
    }

    /// Ends a lease with an infrastructure error that must be taken.
    pub async fn fail(&self, rig: &Rig, grant: &Grant, class: InfrastructureClass) {
        let completion = Completion::InfrastructureError {
            class,
            message: "on purpose".to_owned(),
            reset_at: None,
        };
        let said = self.complete(rig, grant.lease.key, completion).await;
        assert_eq!(said.expect("the error is taken"), Completed::Now);
    }

    /// Ends a check's lease with the command's exit status.
    pub async fn conclude(&self, rig: &Rig, grant: &Grant, exit_status: u32) {
        let said = self
            .complete(rig, grant.lease.key, check_result(exit_status))
            .await;
        assert_eq!(said.expect("the result is taken"), Completed::Now);
    }

    /// Makes a commit on top of what was leased, and pushes it to the lease's ref.
    pub async fn work(&self, rig: &Rig, grant: &Grant) -> CommitId {
        let message = format!("work {}", grant.lease.key.push_ref());
        let commit = rig.remote.commit(&grant.checkout_commit, &message).await;
        rig.remote.push(&commit, &grant.lease.key.push_ref()).await;
        commit
    }

    /// Makes a commit as above and says that this is the change.
    pub async fn change(&self, rig: &Rig, grant: &Grant) -> CommitId {
        let commit = self.work(rig, grant).await;
        self.say(rig, grant, changed(&commit)).await;
        commit
    }

    /// What a harness says that does well.
    pub async fn good(&self, rig: &Rig, grant: &Grant) -> Completion {
        Completion::Verdict(match grant.attempt.role {
            Role::Estimator => ready(),
            Role::Implementer => changed(&self.work(rig, grant).await),
            Role::Reviewer => approve(),
            Role::ConflictResolver => Verdict::Resolved {
                commit: Some(self.work(rig, grant).await),
            },
            Role::Escalator => Verdict::Retry {
                plan: "again".to_owned(),
            },
            Role::Ci => return check_result(0),
        })
    }

    /// Ends a lease as a harness does that does well.
    pub async fn finish(&self, rig: &Rig, grant: &Grant) -> Result<Completed, Error> {
        let completion = self.good(rig, grant).await;
        self.complete(rig, grant.lease.key, completion).await
    }

    /// Says that these sessions live, and hears which are to be stopped.
    pub async fn beat(&self, rig: &Rig, keys: &[LeaseKey]) -> Result<Vec<Stop>, Error> {
        Ok(self.hear(rig, keys).await?.stops)
    }

    /// Says that these sessions live, and hears all that is answered.
    pub async fn hear(&self, rig: &Rig, keys: &[LeaseKey]) -> Result<Heard, Error> {
        let sessions: Vec<ProgressRow> = keys.iter().map(|key| progress(*key)).collect();
        rig.service()
            .beat(self.row.id, self.row.instance, &sessions, Duration::ZERO)
            .await
    }
}

/// A beat's word about one session.
pub fn progress(key: LeaseKey) -> ProgressRow {
    ProgressRow {
        key,
        phase: "running".to_owned(),
        subprocess_pid: 1,
        subprocess_starttime: 1,
        last_output_at: None,
        log_bytes: 0,
    }
}

pub fn check_result(exit_status: u32) -> Completion {
    Completion::CheckResult {
        exit_status,
        log_tail: format!("ended with {exit_status}"),
    }
}

pub fn ready() -> Verdict {
    Verdict::Ready {
        tier: None,
        plan: "do it".to_owned(),
    }
}

pub fn changed(commit: &CommitId) -> Verdict {
    Verdict::Changed {
        commit: commit.clone(),
        summary: "did it".to_owned(),
    }
}

pub fn approve() -> Verdict {
    Verdict::Approve {
        notes: "good".to_owned(),
    }
}
