//! How a lease ends with an outcome.

use serde_json::{Value, json};

use super::{
    Error, Service,
    apply::{Cause, outcome},
    work::check_outcome,
};
use crate::{
    domain::{
        attempt::{Attempt, AttemptStatus, Charge, InfrastructureClass, Retry, Subject},
        ci::Conclusion,
        decision::{Input, Note, Refusal},
        ids::{LeaseKey, WorkerId},
        time::Timestamp,
        transitions::State,
        verdict::Verdict,
        workflow::kept_text,
    },
    store::{Tx, model::LockedWorkflow},
};

/// What a worker says about the end of a lease.
#[derive(Debug, Clone, PartialEq)]
pub enum Completion {
    Verdict(Verdict),
    InfrastructureError {
        class: InfrastructureClass,
        message: String,
        /// When the provider says that it works again, with its quota and its outage.
        reset_at: Option<Timestamp>,
    },
    CheckResult {
        exit_status: u32,
        log_tail: String,
    },
}

/// A lease that ended without a verdict.
struct Failure<'a> {
    class: InfrastructureClass,
    message: &'a str,
    /// How the history calls it.
    note: Note,
    charge: Charge,
}

/// Whether this call made the difference.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Completed {
    Now,
    /// An earlier call with the same lease was accepted; its answer may have been lost.
    Before,
}

impl Service {
    /// Ends a lease with its outcome, once. A lease that is over is refused, whatever it brings.
    pub async fn complete(
        &self,
        worker: WorkerId,
        key: LeaseKey,
        completion: Completion,
    ) -> Result<Completed, Error> {
        let now = self.now();
        if self.is_accepted(key).await? {
            return Ok(Completed::Before);
        }
        let (mut tx, mut locked, mut attempt) = match self.begin_for_lease(worker, key).await {
            // Accepted between the look above and the lock.
            Err(Error::LeaseLost { .. }) if self.is_accepted(key).await? => {
                return Ok(Completed::Before);
            }
            other => other?,
        };
        let cause = Cause::new(format!("worker:{worker}"), now).of(attempt.id);
        // While the lease is there: it tells whether this was a canary.
        let charge = match tx.lease(key.attempt).await? {
            Some(lease) => {
                self.settle_holds(tx.as_mut(), &lease, &completion, &cause)
                    .await?
            }
            None => Charge::Attempt,
        };
        tx.delete_lease(key).await?;
        attempt.accepted = Some((key.fence, key.nonce));
        let tx_ref = tx.as_mut();
        self.settle(
            tx_ref,
            &mut locked,
            &mut attempt,
            completion,
            charge,
            &cause,
        )
        .await?;
        tx.commit().await?;
        self.wake().all();
        Ok(Completed::Now)
    }

    async fn is_accepted(&self, key: LeaseKey) -> Result<bool, Error> {
        let attempt = self.store().attempt(key.attempt).await?;
        Ok(attempt.is_some_and(|row| row.attempt.accepted == Some((key.fence, key.nonce))))
    }

    async fn settle(
        &self,
        tx: &mut dyn Tx,
        locked: &mut LockedWorkflow,
        attempt: &mut Attempt,
        completion: Completion,
        charge: Charge,
        cause: &Cause,
    ) -> Result<(), Error> {
        match (completion, attempt.subject) {
            (Completion::Verdict(verdict), Subject::Workflow) => {
                self.settle_verdict(tx, locked, attempt, verdict, cause)
                    .await
            }
            (
                Completion::CheckResult {
                    exit_status,
                    log_tail,
                },
                Subject::Check(check),
            ) => {
                let conclusion = if exit_status == 0 {
                    Conclusion::Success
                } else {
                    Conclusion::Failure
                };
                attempt.status = AttemptStatus::Succeeded;
                attempt.ended_at = Some(cause.now);
                attempt.outcome = Some(check_outcome(exit_status));
                tx.update_attempt(attempt).await?;
                self.conclude_check(
                    tx,
                    check,
                    conclusion,
                    Some(exit_status),
                    log_tail,
                    cause.now,
                )
                .await
            }
            (Completion::InfrastructureError { class, message, .. }, _) => {
                let failure = Failure {
                    class,
                    message: &message,
                    note: Note::AttemptFailed,
                    charge,
                };
                self.settle_error(tx, locked, attempt, failure, cause).await
            }
            (Completion::Verdict(verdict), Subject::Check(_)) => {
                let message = format!("a {} verdict for a check", verdict.name());
                self.settle_invalid(tx, locked, attempt, &message, cause)
                    .await
            }
            (Completion::CheckResult { .. }, Subject::Workflow) => {
                let message = format!("a check's result from {}", attempt.role);
                self.settle_invalid(tx, locked, attempt, &message, cause)
                    .await
            }
        }
    }

    async fn settle_verdict(
        &self,
        tx: &mut dyn Tx,
        locked: &mut LockedWorkflow,
        attempt: &mut Attempt,
        verdict: Verdict,
        cause: &Cause,
    ) -> Result<(), Error> {
        // Said by the role of another attempt than this one: decide can't tell, since it sees the state.
        if verdict.role() != attempt.role {
            let message = format!("a {} verdict from {}", verdict.name(), attempt.role);
            return self
                .settle_invalid(tx, locked, attempt, &message, cause)
                .await;
        }
        let before = attempt.clone();
        attempt.status = AttemptStatus::Succeeded;
        attempt.ended_at = Some(cause.now);
        attempt.outcome = Some(outcome(verdict.name(), detail_of(&verdict)));
        tx.update_attempt(attempt).await?;
        let input = Input::Verdict {
            verdict,
            commit: attempt.commit.clone(),
        };
        match self.apply(tx, locked, input, cause).await {
            Err(Error::Refused(refusal @ Refusal::VerdictNotAllowed { .. })) => {
                *attempt = before;
                self.settle_invalid(tx, locked, attempt, &refusal.to_string(), cause)
                    .await
            }
            other => other.map(|_| ()),
        }
    }

    async fn settle_invalid(
        &self,
        tx: &mut dyn Tx,
        locked: &mut LockedWorkflow,
        attempt: &mut Attempt,
        message: &str,
        cause: &Cause,
    ) -> Result<(), Error> {
        let failure = Failure {
            class: InfrastructureClass::NoValidResult,
            message,
            note: Note::AttemptFailed,
            charge: Charge::Attempt,
        };
        self.settle_error(tx, locked, attempt, failure, cause).await
    }

    /// An attempt whose lease ended without a verdict: pending again with a backoff, or at its end.
    async fn settle_error(
        &self,
        tx: &mut dyn Tx,
        locked: &mut LockedWorkflow,
        attempt: &mut Attempt,
        failure: Failure<'_>,
        cause: &Cause,
    ) -> Result<(), Error> {
        let Failure {
            class,
            message,
            note,
            charge,
        } = failure;
        let mut detail = json!({
            "class": class.as_str(),
            "message": message,
            "is_charged": class.is_charged(),
        });
        attempt.outcome = Some(outcome(class.as_str(), json!({ "message": message })));
        if locked.workflow.state() == State::Paused && attempt.subject == Subject::Workflow {
            attempt.status = AttemptStatus::Cancelled;
            attempt.ended_at = Some(cause.now);
            tx.update_attempt(attempt).await?;
            return self.note(tx, locked, note, detail, cause).await;
        }
        let retry = match charge {
            Charge::Attempt => attempt.after_error(
                class,
                locked.repository.policy.max_pickups,
                cause.now,
                self.ports.chance.jitter(),
            ),
            Charge::Hold => attempt.after_held_error(cause.now),
        };
        match retry {
            Retry::Pending {
                not_before,
                pickup_count,
                uncharged_errors,
            } => {
                attempt.status = AttemptStatus::Pending;
                attempt.not_before = Some(not_before);
                attempt.pickup_count = pickup_count;
                attempt.uncharged_errors = uncharged_errors;
                tx.update_attempt(attempt).await?;
                detail["pickup_count"] = pickup_count.into();
                self.note(tx, locked, note, detail, cause).await
            }
            Retry::Spent {
                pickup_count,
                uncharged_errors,
            } => {
                attempt.pickup_count = pickup_count;
                attempt.uncharged_errors = uncharged_errors;
                detail["pickup_count"] = pickup_count.into();
                self.note(tx, locked, note, detail, cause).await?;
                self.end_spent_attempt(tx, locked, attempt, cause).await
            }
        }
    }

    /// The end of an attempt that was leased as often as it may be: a workflow's makes it STUCK, a
    /// check's concludes the check.
    pub(super) async fn end_spent_attempt(
        &self,
        tx: &mut dyn Tx,
        locked: &mut LockedWorkflow,
        attempt: &mut Attempt,
        cause: &Cause,
    ) -> Result<(), Error> {
        let max_pickups = locked.repository.policy.max_pickups;
        attempt.status = AttemptStatus::Reaped;
        attempt.ended_at = Some(cause.now);
        tx.update_attempt(attempt).await?;
        let detail = json!({
            "pickup_count": attempt.pickup_count,
            "max_pickups": max_pickups,
            "uncharged_errors": attempt.uncharged_errors,
        });
        self.note(tx, locked, Note::AttemptPickupExhausted, detail, cause)
            .await?;
        match attempt.subject {
            Subject::Check(check) => {
                let log = attempt
                    .outcome
                    .as_ref()
                    .map_or_else(String::new, |outcome| {
                        format!(
                            "the check could not be run: {} {}",
                            outcome.name, outcome.detail
                        )
                    });
                self.conclude_check(tx, check, Conclusion::StartupFailure, None, log, cause.now)
                    .await
            }
            Subject::Workflow => {
                let input = Input::PickupsSpent {
                    pickup_count: attempt.pickup_count,
                    max_pickups,
                };
                self.apply(tx, locked, input, cause).await.map(|_| ())
            }
        }
    }

    /// An attempt whose lease is over without a word from its worker; charged. The lease row is already
    /// deleted.
    pub(super) async fn lose_attempt(
        &self,
        tx: &mut dyn Tx,
        locked: &mut LockedWorkflow,
        key: LeaseKey,
        note: Note,
        facts: Value,
        cause: &Cause,
    ) -> Result<(), Error> {
        let Some(mut attempt) = tx.attempt(key.attempt).await? else {
            return Ok(());
        };
        let message = format!("{}: {facts}", cause.reason);
        let failure = Failure {
            class: InfrastructureClass::LeaseLost,
            message: &message,
            note,
            charge: Charge::Attempt,
        };
        self.settle_error(tx, locked, &mut attempt, failure, cause)
            .await?;
        self.ensure_work(tx, locked, cause.now).await?;
        Ok(())
    }
}

/// What the verdict said, for people; long texts are cut.
fn detail_of(verdict: &Verdict) -> Value {
    let mut detail = serde_json::to_value(verdict).unwrap_or(Value::Null);
    if let Value::Object(facts) = &mut detail {
        for fact in facts.values_mut() {
            if let Value::String(text) = fact {
                *text = kept_text(std::mem::take(text));
            }
        }
    }
    detail
}
