//! Leases: how attempts get into workers' hands, and how unstarted ones come back.

use std::collections::HashSet;

use serde_json::json;

use super::{Error, Service, apply::Cause};
use crate::{
    domain::{
        attempt::{Attempt, AttemptStatus, Subject},
        decision::Note,
        ids::{CommitId, InstanceId, LeaseKey, Nonce, RequestId, WorkerId, WorkflowId},
        time::Timestamp,
        transitions::State,
        workflow::{Kind, Workflow},
    },
    store::{
        Tx,
        model::{
            CheckRun, ClaimRequest, Claimed, LeaseRow, LockedWorkflow, Offer, Repository, WorkerRow,
        },
    },
};

/// Most leases that one answer carries, however many are asked for: each may hold several hundred
/// kilobytes of facts, and the answer must fit into one message.
const LEASES_AT_ONCE: u32 = 5;

/// Most rounds of glances before a claim comes back empty. Each round sees all that would be leased, so a
/// third one needs work that changed twice meanwhile; the caller asks again anyway.
const MAX_GLANCES: u32 = 5;

/// How far a claim came.
enum Claiming {
    Done(Vec<Grant>),
    /// These were not glanced at yet.
    Unseen(Vec<WorkflowId>),
}

/// A worker that can take attempts.
#[derive(Debug, Clone, Copy)]
pub struct Claim {
    pub worker: WorkerId,
    pub instance: InstanceId,
    pub request: RequestId,
    pub max: u32,
}

/// A lease with everything that its harness needs.
#[derive(Debug, Clone)]
pub struct Grant {
    pub attempt: Attempt,
    pub lease: LeaseRow,
    pub workflow: Workflow,
    pub repository: Repository,
    pub checkout_commit: CommitId,
    pub check: Option<CheckRun>,
}

impl Service {
    /// Leases up to `max` attempts that fit the worker, five at most. The same request again gets the same
    /// leases, and new ones up to that number. The item of each is glanced at first: nothing of what is
    /// closed or not labelled any more is leased.
    pub async fn claim(&self, claim: Claim) -> Result<Vec<Grant>, Error> {
        let mut glanced_at = HashSet::new();
        for _ in 0..MAX_GLANCES {
            match self.claim_of(claim, &glanced_at).await? {
                Claiming::Done(grants) => return Ok(grants),
                Claiming::Unseen(workflows) => {
                    for id in workflows {
                        self.glance(id).await?;
                        glanced_at.insert(id);
                    }
                }
            }
        }
        Ok(Vec::new())
    }

    /// Leases where all that would be leased was glanced at; otherwise names what was not, and leaves
    /// nothing behind.
    async fn claim_of(
        &self,
        claim: Claim,
        glanced_at: &HashSet<WorkflowId>,
    ) -> Result<Claiming, Error> {
        let now = self.now();
        let mut tx = self.store().begin().await?;
        let worker = newest_process(tx.worker(claim.worker).await?, claim.worker, claim.instance)?;
        let request = ClaimRequest {
            worker: claim.worker,
            instance: claim.instance,
            request: claim.request,
            offers: offers(&worker),
            nonces: (0..claim.max.min(LEASES_AT_ONCE))
                .map(|_| Nonce(self.ports.chance.nonce()))
                .collect(),
        };
        let claimed = tx.claim(&request).await?;
        if claimed.is_empty() {
            return Ok(Claiming::Done(Vec::new()));
        }
        let unseen: Vec<WorkflowId> = claimed
            .iter()
            .filter(|claimed| !claimed.is_repeated)
            .map(|claimed| claimed.attempt.workflow)
            .filter(|workflow| !glanced_at.contains(workflow))
            .collect();
        if !unseen.is_empty() {
            return Ok(Claiming::Unseen(unseen));
        }
        let mut grants = Vec::with_capacity(claimed.len());
        for claimed in claimed {
            grants.extend(self.grant(tx.as_mut(), claimed, now).await?);
        }
        tx.commit().await?;
        Ok(Claiming::Done(grants))
    }

    /// Whether a claim may find something; a cheap read.
    pub async fn may_have_work(&self) -> Result<bool, Error> {
        Ok(self.store().may_have_work().await?)
    }

    /// The worker, if this is its newest process and nobody has declared it dead.
    pub async fn known_worker(
        &self,
        id: WorkerId,
        instance: InstanceId,
    ) -> Result<WorkerRow, Error> {
        newest_process(self.store().worker(id).await?, id, instance)
    }

    async fn grant(
        &self,
        tx: &mut dyn Tx,
        claimed: Claimed,
        now: Timestamp,
    ) -> Result<Option<Grant>, Error> {
        let Claimed {
            mut attempt,
            lease,
            is_repeated,
        } = claimed;
        let Some(locked) = tx.lock_workflow(attempt.workflow).await? else {
            return Ok(None);
        };
        let mut check = match attempt.subject {
            Subject::Workflow => None,
            Subject::Check(id) => tx.check_run(id).await?,
        };
        if !is_repeated {
            if let Some(run) = check.as_mut() {
                // It has started: the wait for something to change begins anew.
                run.changed_at = now;
                tx.update_check_run(run).await?;
            }
            self.fix_commit(tx, &locked, &mut attempt, check.as_ref())
                .await?;
            let cause = Cause::new(format!("worker:{}", lease.worker), now).of(attempt.id);
            // Without the nonce: whoever reads the history could speak for the lease.
            let detail = json!({
                "lock_fence": lease.key.fence.0,
                "role": attempt.role.as_str(),
                "pickup_count": attempt.pickup_count,
            });
            self.note(tx, &locked, Note::AttemptLeased, detail, &cause)
                .await?;
        }
        let Some(checkout_commit) = attempt.commit.clone() else {
            return Ok(None);
        };
        Ok(Some(Grant {
            attempt,
            lease,
            workflow: locked.workflow,
            repository: locked.repository,
            checkout_commit,
            check,
        }))
    }

    /// Fixes the commit that the lease is against: a verdict counts for it, and for nothing else.
    async fn fix_commit(
        &self,
        tx: &mut dyn Tx,
        locked: &LockedWorkflow,
        attempt: &mut Attempt,
        check: Option<&CheckRun>,
    ) -> Result<(), Error> {
        let commit = match check {
            Some(run) => Some(run.commit.clone()),
            None => start_commit(&locked.workflow).cloned(),
        };
        if let Some(commit) = &commit {
            tx.set_attempt_commit(attempt.id, commit).await?;
        }
        attempt.commit = commit;
        Ok(())
    }

    /// Gives a lease back. The pickup is refunded; a paused workflow's attempt is cancelled instead.
    pub async fn release(
        &self,
        worker: WorkerId,
        key: LeaseKey,
        reason: &str,
    ) -> Result<(), Error> {
        let now = self.now();
        let (mut tx, locked, mut attempt) = self.begin_for_lease(worker, key).await?;
        tx.delete_lease(key).await?;
        let cause = Cause::new(format!("worker:{worker}"), now)
            .because(reason)
            .of(attempt.id);
        if locked.workflow.state() == State::Paused && attempt.subject == Subject::Workflow {
            self.cancel_attempt(tx.as_mut(), &mut attempt, "released while paused", now)
                .await?;
        } else {
            attempt.status = AttemptStatus::Pending;
            attempt.pickup_count = attempt.pickup_count.saturating_sub(1);
            tx.update_attempt(&attempt).await?;
        }
        let detail = json!({ "lock_fence": key.fence.0, "pickup_count": attempt.pickup_count });
        self.note(tx.as_mut(), &locked, Note::AttemptReleased, detail, &cause)
            .await?;
        self.ensure_work(tx.as_mut(), &locked, now).await?;
        tx.commit().await?;
        self.wake().all();
        Ok(())
    }

    /// Starts a transaction about a lease that `worker` holds: the workflow locked, the attempt read.
    pub(super) async fn begin_for_lease(
        &self,
        worker: WorkerId,
        key: LeaseKey,
    ) -> Result<(Box<dyn Tx>, LockedWorkflow, Attempt), Error> {
        let lost = || Error::LeaseLost {
            attempt: key.attempt,
        };
        let known = self
            .store()
            .attempt(key.attempt)
            .await?
            .ok_or_else(|| Error::NotFound {
                what: "attempt",
                id: key.attempt.to_string(),
            })?;
        let mut tx = self.store().begin().await?;
        let locked = tx
            .lock_workflow(known.attempt.workflow)
            .await?
            .ok_or_else(|| Error::no_workflow(known.attempt.workflow))?;
        let lease = tx.lease(key.attempt).await?.ok_or_else(lost)?;
        if lease.key != key || lease.worker != worker {
            return Err(lost());
        }
        let attempt = tx.attempt(key.attempt).await?.ok_or_else(lost)?;
        Ok((tx, locked, attempt))
    }
}

/// The worker, if `instance` is its newest process and nobody has declared it dead.
fn newest_process(
    worker: Option<WorkerRow>,
    id: WorkerId,
    instance: InstanceId,
) -> Result<WorkerRow, Error> {
    worker
        .filter(|worker| worker.instance == instance && worker.declared_dead_at.is_none())
        .ok_or_else(|| Error::UnknownInstance { id: id.to_string() })
}

/// The commit that the next attempt of a workflow starts from.
fn start_commit(workflow: &Workflow) -> Option<&CommitId> {
    let progress = workflow.progress();
    match workflow.kind {
        Kind::Issue => progress
            .facts
            .kept_commit
            .as_ref()
            .or(progress.head.as_ref()),
        Kind::PullRequest => progress.head.as_ref(),
    }
}

/// What a worker takes: each role that it wants and has a profile for. Checks come with one without a name.
pub(super) fn offers(worker: &WorkerRow) -> Vec<Offer> {
    worker
        .profiles
        .iter()
        .flat_map(|profile| {
            profile.roles.iter().map(|role| Offer {
                role: *role,
                tiers: profile.tiers.clone(),
                profile: profile.name.clone(),
                account: profile.account().to_owned(),
                kill_budget: profile.kill_budget,
            })
        })
        .filter(|offer| worker.roles.contains(&offer.role))
        .collect()
}
