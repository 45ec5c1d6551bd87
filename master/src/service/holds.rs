//! Holds as leases end, and as operators see and release them.

use serde_json::{Value, json};

use super::{Change, Completion, Error, Service, apply::Cause, fleet::note_of_worker};
use crate::{
    domain::{
        attempt::Charge,
        decision::Note,
        hold::{Hold, HoldChange, HoldReport, HoldSubject, Runner, held_by},
        ids::{HoldId, LeaseKey},
        workflow::kept_text,
    },
    store::{Tx, model::LeaseRow},
};

impl Service {
    /// By id, those after `after`.
    pub async fn list_holds(&self, after: Option<HoldId>, limit: u32) -> Result<Vec<Hold>, Error> {
        Ok(self.store().holds(after, limit).await?)
    }

    /// Ends a hold. One that is not there, or no more, is released already.
    pub async fn release_hold(
        &self,
        id: HoldId,
        reason: &str,
        actor: &str,
    ) -> Result<Change<Option<Hold>>, Error> {
        let now = self.now();
        let mut tx = self.store().begin().await?;
        let Some(hold) = tx.hold(id).await? else {
            return Ok(Change::Unchanged(None));
        };
        tx.delete_hold(id).await?;
        let cause = Cause::new(actor, now).because(reason);
        note_of_hold(tx.as_mut(), &hold, Note::HoldReleased, &cause).await?;
        tx.commit().await?;
        self.wake().all();
        Ok(Change::Changed(Some(hold)))
    }

    /// Carries out what the end of a lease is to the holds that cover whom it ran for. Says where a failure
    /// counts. Called while the lease is still there.
    pub(super) async fn settle_holds(
        &self,
        tx: &mut dyn Tx,
        lease: &LeaseRow,
        completion: &Completion,
        cause: &Cause,
    ) -> Result<Charge, Error> {
        let worker = tx.worker(lease.worker).await?;
        let profiles = worker.map(|worker| worker.profiles).unwrap_or_default();
        let account = profiles
            .iter()
            .find(|profile| profile.name == lease.profile)
            .map_or(lease.profile.as_str(), |profile| profile.account());
        let runner = Runner {
            worker: lease.worker,
            profile: &lease.profile,
            account,
        };
        let accounts = [account.to_owned()];
        let mut holds = tx.covering_holds(lease.worker, &accounts).await?;
        holds.retain(|hold| hold.subject.covers(runner));
        match completion {
            Completion::Verdict(_) => {
                for hold in holds {
                    let change = hold.after_verdict(lease.key);
                    self.change_hold(tx, &hold, change, cause).await?;
                }
                Ok(Charge::Attempt)
            }
            Completion::InfrastructureError {
                class,
                message,
                reset_at,
            } => {
                let Some(subject) = held_by(*class, runner) else {
                    return Ok(Charge::Attempt);
                };
                let report = HoldReport {
                    class: *class,
                    message: kept_text(message.clone()),
                    reset_at: *reset_at,
                    worker: lease.worker,
                };
                let hold = holds.into_iter().find(|hold| hold.subject == subject);
                self.report(tx, hold, subject, lease.key, report, cause)
                    .await
            }
            Completion::CheckResult { .. } => Ok(Charge::Attempt),
        }
    }

    async fn report(
        &self,
        tx: &mut dyn Tx,
        hold: Option<Hold>,
        subject: HoldSubject,
        key: LeaseKey,
        report: HoldReport,
        cause: &Cause,
    ) -> Result<Charge, Error> {
        let Some(hold) = hold else {
            let hold = Hold::placed(self.new_hold_id(), subject, report, cause.now);
            tx.put_hold(&hold).await?;
            note_of_hold(tx, &hold, Note::HoldPlaced, cause).await?;
            return Ok(Charge::Attempt);
        };
        let change = hold.after_failure(key, report, cause.now);
        self.change_hold(tx, &hold, change, cause).await
    }

    async fn change_hold(
        &self,
        tx: &mut dyn Tx,
        hold: &Hold,
        change: HoldChange,
        cause: &Cause,
    ) -> Result<Charge, Error> {
        match change {
            HoldChange::None => Ok(Charge::Attempt),
            HoldChange::Lifted => {
                tx.delete_hold(hold.id).await?;
                note_of_hold(tx, hold, Note::HoldLifted, cause).await?;
                Ok(Charge::Attempt)
            }
            HoldChange::Renewed { hold, is_counted } => {
                tx.put_hold(&hold).await?;
                note_of_hold(tx, &hold, Note::HoldRenewed, cause).await?;
                Ok(if is_counted {
                    Charge::Hold
                } else {
                    Charge::Attempt
                })
            }
        }
    }
}

/// Writes what happened to a hold, in the history of the worker whose session told of it last.
async fn note_of_hold(
    tx: &mut dyn Tx,
    hold: &Hold,
    note: Note,
    cause: &Cause,
) -> Result<(), Error> {
    note_of_worker(tx, hold.worker, note, facts(hold), cause).await
}

fn facts(hold: &Hold) -> Value {
    let mut facts = json!({
        "hold_id": hold.id,
        "class": hold.class.as_str(),
        "message": hold.message,
        "failures": hold.failures,
        "until": hold.until.0,
    });
    match &hold.subject {
        HoldSubject::Account(account) => facts["account"] = account.as_str().into(),
        HoldSubject::Profile { profile, .. } => facts["profile"] = profile.as_str().into(),
    }
    facts
}
