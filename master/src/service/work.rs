//! What a state needs to have in hand: its next attempt, or the checks of its head.
//!
//! Called in the transaction of every transition, and by the healing sweep: one code path, driven by
//! what is there, never by what has just happened.

use super::{Error, Service, apply::outcome};
use crate::{
    domain::{
        attempt::{Attempt, AttemptStatus, Role, Subject},
        ci::CheckDefinition,
        ids::{CheckId, CommitId, Fence},
        time::Timestamp,
        transitions::State,
    },
    store::{
        Tx,
        model::{CheckRun, LockedWorkflow},
    },
};

impl Service {
    /// Adds what the workflow's state lacks. False: it lacks nothing.
    pub(super) async fn ensure_work(
        &self,
        tx: &mut dyn Tx,
        locked: &LockedWorkflow,
        now: Timestamp,
    ) -> Result<bool, Error> {
        let state = locked.workflow.state();
        if let Some(role) = state.role() {
            return self.ensure_attempt(tx, locked, role, now).await;
        }
        if state == State::AwaitingCi {
            return self.ensure_checks(tx, locked, now).await;
        }
        Ok(false)
    }

    async fn ensure_attempt(
        &self,
        tx: &mut dyn Tx,
        locked: &LockedWorkflow,
        role: Role,
        now: Timestamp,
    ) -> Result<bool, Error> {
        let workflow = locked.workflow.id;
        let is_busy = tx
            .live_attempts(workflow)
            .await?
            .iter()
            .any(|attempt| attempt.subject == Subject::Workflow)
            || tx.open_effect_of(workflow).await?.is_some();
        if is_busy {
            return Ok(false);
        }
        let attempt = self.new_attempt(locked, role, Subject::Workflow, None, now);
        tx.insert_attempt(&attempt, locked.priority).await?;
        Ok(true)
    }

    /// Gives each check of the head that has neither a conclusion nor a live attempt an attempt. The
    /// first run of a check is made where there is none.
    async fn ensure_checks(
        &self,
        tx: &mut dyn Tx,
        locked: &LockedWorkflow,
        now: Timestamp,
    ) -> Result<bool, Error> {
        let Some(head) = locked.workflow.progress().head.clone() else {
            return Ok(false);
        };
        // A rerun that is being asked for adds its runs first.
        if tx.open_effect_of(locked.workflow.id).await?.is_some() {
            return Ok(false);
        }
        let mut runs = tx.check_runs(locked.workflow.id, &head).await?;
        for check in &locked.repository.checks {
            if runs.iter().any(|run| run.name == check.name) {
                continue;
            }
            let run = self.new_run(locked, check.clone(), head.clone(), 1, now);
            tx.insert_check_run(&run).await?;
            runs.push(run);
        }
        let live = tx.live_attempts(locked.workflow.id).await?;
        let mut is_changed = false;
        for run in runs.iter().filter(|run| run.conclusion.is_none()) {
            let subject = Subject::Check(run.id);
            if live.iter().any(|attempt| attempt.subject == subject) {
                continue;
            }
            let commit = Some(run.commit.clone());
            let attempt = self.new_attempt(locked, Role::Ci, subject, commit, now);
            tx.insert_attempt(&attempt, locked.priority).await?;
            is_changed = true;
        }
        Ok(is_changed)
    }

    /// Makes the checks of the head run again from the start: a new run for each that has concluded.
    /// [`ensure_work`](Self::ensure_work), which follows, gives the runs their attempts.
    pub(super) async fn start_checks(
        &self,
        tx: &mut dyn Tx,
        locked: &LockedWorkflow,
        now: Timestamp,
    ) -> Result<(), Error> {
        tx.set_ci_poll(locked.workflow.id, 0, now).await?;
        let Some(head) = locked.workflow.progress().head.clone() else {
            return Ok(());
        };
        for run in tx.check_runs(locked.workflow.id, &head).await? {
            if run.conclusion.is_some() {
                let check = CheckDefinition {
                    name: run.name,
                    command: run.command,
                };
                let next = self.new_run(locked, check, run.commit, run.run + 1, now);
                tx.insert_check_run(&next).await?;
            }
        }
        Ok(())
    }

    fn new_run(
        &self,
        locked: &LockedWorkflow,
        check: CheckDefinition,
        commit: CommitId,
        run: u32,
        now: Timestamp,
    ) -> CheckRun {
        CheckRun {
            id: self.new_check_id(),
            repository: locked.repository.id,
            workflow: locked.workflow.id,
            name: check.name,
            command: check.command,
            commit,
            run,
            conclusion: None,
            exit_status: None,
            log_tail: String::new(),
            created_at: now,
            changed_at: now,
        }
    }

    fn new_attempt(
        &self,
        locked: &LockedWorkflow,
        role: Role,
        subject: Subject,
        commit: Option<CommitId>,
        now: Timestamp,
    ) -> Attempt {
        let tier = locked.workflow.progress().tier;
        Attempt {
            id: self.new_attempt_id(),
            repository: locked.repository.id,
            workflow: locked.workflow.id,
            subject,
            role,
            tier,
            status: AttemptStatus::Pending,
            commit,
            fence: Fence(0),
            pickup_count: 0,
            uncharged_errors: 0,
            lock_ttl_seconds: locked.repository.policy.ttl_seconds(role, tier),
            not_before: None,
            accepted: None,
            outcome: None,
            created_at: now,
            started_at: None,
            ended_at: None,
        }
    }

    /// Concludes a check whose attempt can't be run.
    pub(super) async fn conclude_check(
        &self,
        tx: &mut dyn Tx,
        check: CheckId,
        conclusion: crate::domain::ci::Conclusion,
        exit_status: Option<u32>,
        log_tail: String,
        now: Timestamp,
    ) -> Result<(), Error> {
        if let Some(mut run) = tx.check_run(check).await? {
            run.conclusion = Some(conclusion);
            run.exit_status = exit_status;
            run.log_tail = log_tail;
            run.changed_at = now;
            tx.update_check_run(&run).await?;
            tx.set_ci_poll(run.workflow, 0, now).await?;
        }
        Ok(())
    }
}

/// The outcome of an attempt that ran a check.
pub(super) fn check_outcome(exit_status: u32) -> crate::domain::attempt::Outcome {
    outcome(
        if exit_status == 0 {
            "success"
        } else {
            "failure"
        },
        serde_json::json!({ "exit_status": exit_status }),
    )
}
