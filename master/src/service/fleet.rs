//! What operators do to workers, and how workers are shown.

use serde_json::{Value, json};

use super::{Change, Error, Service, apply::Cause};
use crate::{
    domain::{
        decision::{EventKind, Note},
        ids::{AttemptId, WorkerId},
        worker::{ALIVE_FOR, Liveness, liveness},
    },
    store::{
        Tx,
        model::{About, Drain, NewEvent, SessionRow, WorkerRow, WorkerSummary},
    },
};

/// A worker as it is shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkerView {
    pub worker: WorkerRow,
    pub n_leases: u32,
    pub liveness: Liveness,
}

/// What becomes of the sessions of a worker that is drained.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnDrain {
    RunOn,
    /// They are stopped after the worker's grace, and given back.
    Stop,
}

/// Whether a worker that has beaten lately may be declared dead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Declaration {
    OfTheSilent,
    /// Whatever its beats say.
    Forced,
}

impl Service {
    /// By id, those after `after`.
    pub async fn list_workers(
        &self,
        after: Option<WorkerId>,
        limit: u32,
    ) -> Result<Vec<WorkerView>, Error> {
        let workers = self.store().workers(after, limit).await?;
        Ok(workers.into_iter().map(|w| self.view_worker(w)).collect())
    }

    /// Live leases with what their last beats said; by attempt id, those after `after`.
    pub async fn list_sessions(
        &self,
        worker: Option<WorkerId>,
        after: Option<AttemptId>,
        limit: u32,
    ) -> Result<Vec<SessionRow>, Error> {
        Ok(self.store().sessions(worker, after, limit).await?)
    }

    /// Gives a worker no new leases until it is undrained. Drained already, it stays as it is, unless its
    /// sessions are to be stopped and were not.
    pub async fn drain_worker(
        &self,
        id: WorkerId,
        sessions: OnDrain,
        reason: &str,
        actor: &str,
    ) -> Result<Change<WorkerView>, Error> {
        let now = self.now();
        let mut tx = self.store().begin().await?;
        let worker = worker(tx.as_mut(), id).await?;
        let stops_sessions = sessions == OnDrain::Stop;
        let is_so = worker
            .drain
            .is_some_and(|drain| drain.stops_sessions || !stops_sessions);
        if is_so {
            return self.unchanged_worker(tx, id).await;
        }
        let drain = Drain {
            requested_at: now,
            reason: reason.to_owned(),
            stops_sessions,
        };
        tx.set_worker_drain(id, Some(&drain)).await?;
        let cause = Cause::new(actor, now).because(reason);
        let detail = json!({ "stop_sessions": stops_sessions });
        note_of_worker(tx.as_mut(), id, Note::WorkerDrained, detail, &cause).await?;
        self.changed_worker(tx, id).await
    }

    /// Lets a worker have leases again.
    pub async fn undrain_worker(
        &self,
        id: WorkerId,
        reason: &str,
        actor: &str,
    ) -> Result<Change<WorkerView>, Error> {
        let now = self.now();
        let mut tx = self.store().begin().await?;
        if worker(tx.as_mut(), id).await?.drain.is_none() {
            return self.unchanged_worker(tx, id).await;
        }
        tx.set_worker_drain(id, None).await?;
        let cause = Cause::new(actor, now).because(reason);
        note_of_worker(tx.as_mut(), id, Note::WorkerUndrained, json!({}), &cause).await?;
        self.changed_worker(tx, id).await
    }

    /// Ends all leases of a worker, charged, on the word of somebody who knows that it is gone. Until it
    /// registers again it is unknown: its beats prolong nothing, and it is leased nothing.
    pub async fn declare_worker_dead(
        &self,
        id: WorkerId,
        declaration: Declaration,
        reason: &str,
        actor: &str,
    ) -> Result<Change<WorkerView>, Error> {
        let now = self.now();
        let mut tx = self.store().begin().await?;
        let worker = worker(tx.as_mut(), id).await?;
        match liveness(worker.last_beat_at, worker.declared_dead_at, now) {
            Liveness::DeclaredDead => return self.unchanged_worker(tx, id).await,
            Liveness::Alive if declaration == Declaration::OfTheSilent => {
                return Err(Error::WorkerAlive {
                    id: id.to_string(),
                    seconds: ALIVE_FOR.as_secs(),
                });
            }
            Liveness::Alive | Liveness::Silent => {}
        }
        let cause = Cause::new(actor, now).because(reason);
        let leases = tx.leases_of_worker(id).await?;
        for lease in &leases {
            self.end_dead_lease(tx.as_mut(), lease, &cause).await?;
        }
        tx.set_worker_declared_dead(id, now).await?;
        let detail = json!({ "n_leases": leases.len() });
        note_of_worker(tx.as_mut(), id, Note::WorkerDeclaredDead, detail, &cause).await?;
        self.changed_worker(tx, id).await
    }

    async fn changed_worker(
        &self,
        mut tx: Box<dyn Tx>,
        id: WorkerId,
    ) -> Result<Change<WorkerView>, Error> {
        let view = self.worker_in(tx.as_mut(), id).await?;
        tx.commit().await?;
        self.wake().all();
        Ok(Change::Changed(view))
    }

    async fn unchanged_worker(
        &self,
        mut tx: Box<dyn Tx>,
        id: WorkerId,
    ) -> Result<Change<WorkerView>, Error> {
        let view = self.worker_in(tx.as_mut(), id).await?;
        Ok(Change::Unchanged(view))
    }

    async fn worker_in(&self, tx: &mut dyn Tx, id: WorkerId) -> Result<WorkerView, Error> {
        let worker = worker(tx, id).await?;
        let n_leases = tx.leases_of_worker(id).await?.len();
        Ok(self.view_worker(WorkerSummary {
            worker,
            n_leases: u32::try_from(n_leases).unwrap_or(u32::MAX),
        }))
    }

    fn view_worker(&self, summary: WorkerSummary) -> WorkerView {
        let WorkerSummary { worker, n_leases } = summary;
        WorkerView {
            liveness: liveness(worker.last_beat_at, worker.declared_dead_at, self.now()),
            worker,
            n_leases,
        }
    }
}

async fn worker(tx: &mut dyn Tx, id: WorkerId) -> Result<WorkerRow, Error> {
    tx.worker(id).await?.ok_or_else(|| Error::NotFound {
        what: "worker",
        id: id.to_string(),
    })
}

/// Writes what happened to a worker.
pub(super) async fn note_of_worker(
    tx: &mut dyn Tx,
    id: WorkerId,
    note: Note,
    detail: Value,
    cause: &Cause,
) -> Result<(), Error> {
    tx.append_event(&NewEvent {
        about: About::Worker(id),
        attempt: cause.attempt,
        occurred_at: cause.now,
        kind: EventKind::Note(note),
        actor: cause.actor.clone(),
        reason: cause.reason.clone(),
        detail,
    })
    .await?;
    Ok(())
}
