//! What operators do to one workflow.

use serde_json::json;

use super::{Change, Error, Observed, Service, apply::Cause};
use crate::{
    domain::{
        attempt::AttemptStatus,
        decision::{Gate, Input, Note, OperatorAction, Refusal, Running},
        ids::{CommitId, WorkflowId},
        workflow::PRIORITIES,
    },
    store::{
        Tx,
        model::{LockedWorkflow, Repository, WorkflowRow},
    },
};

/// Who asks for a change, why, and of what.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    pub workflow: WorkflowId,
    /// The version that the workflow must be at; `None`: whatever it is.
    pub expected_version: Option<u64>,
    pub reason: &'a str,
    pub actor: &'a str,
}

/// What an operator does.
struct Operation {
    action: OperatorAction,
    /// The version that the workflow must be at.
    version: Option<u64>,
    /// Where its branch is now, if it was looked at.
    head: Option<CommitId>,
}

impl Operation {
    /// An action that asks nothing of the forge.
    fn unseen(action: OperatorAction, request: Request<'_>) -> Self {
        Self {
            action,
            version: request.expected_version,
            head: None,
        }
    }
}

impl Service {
    /// Lets a workflow rest until [`resume`](Self::resume). What runs goes on, or is cancelled.
    pub async fn pause(
        &self,
        request: Request<'_>,
        running: Running,
    ) -> Result<Change<WorkflowRow>, Error> {
        let action = OperatorAction::Pause { running };
        self.operate(request, Operation::unseen(action, request))
            .await
    }

    /// Lets a workflow that an operator paused go on where it was, from where its branch is now. What its
    /// item shows is applied first, and stays so where the resume is refused.
    pub async fn resume(&self, request: Request<'_>) -> Result<Change<WorkflowRow>, Error> {
        self.refresh(request.workflow).await?;
        self.operate_at_gate(request, |gate| OperatorAction::Resume { gate })
            .await
    }

    /// Brings a STUCK or PAUSED workflow back to DISCOVERED.
    pub async fn unstick(&self, request: Request<'_>) -> Result<Change<WorkflowRow>, Error> {
        self.operate_at_gate(request, |gate| OperatorAction::Unstick { gate })
            .await
    }

    /// Ends a workflow for good.
    pub async fn abandon(&self, request: Request<'_>) -> Result<Change<WorkflowRow>, Error> {
        let action = OperatorAction::Abandon;
        self.operate(request, Operation::unseen(action, request))
            .await
    }

    /// Looks at the item, and acts on what it shows: whether it may be worked on, and where its branch is.
    async fn operate_at_gate(
        &self,
        request: Request<'_>,
        action: impl FnOnce(Gate) -> OperatorAction,
    ) -> Result<Change<WorkflowRow>, Error> {
        let row = self.workflow_row(request.workflow).await?;
        let repository = self.repository_of(row.workflow.repository).await?;
        let seen = self.look(&repository, row.workflow.number).await?;
        let operation = Operation {
            action: action(gate(&repository, seen.as_ref())),
            // The look counts for the workflow that it was made for.
            version: Some(request.expected_version.unwrap_or(row.version)),
            // Work starts from where the branch is now, not where it was when the workflow came to rest.
            head: seen.and_then(|seen| seen.start),
        };
        self.operate(request, operation).await
    }

    /// Sets how often this workflow may still have flaky checks run again.
    pub async fn set_ci_flake_retries(
        &self,
        request: Request<'_>,
        remaining: u32,
    ) -> Result<Change<WorkflowRow>, Error> {
        let action = OperatorAction::SetCiFlakeRetries { remaining };
        self.operate(request, Operation::unseen(action, request))
            .await
    }

    /// Sets which of the workflows that wait is leased first; of attempts that wait already too.
    pub async fn set_priority(
        &self,
        request: Request<'_>,
        priority: i32,
    ) -> Result<Change<WorkflowRow>, Error> {
        if !PRIORITIES.contains(&priority) {
            let (least, most) = (PRIORITIES.start(), PRIORITIES.end());
            let expected = format!("is {priority}; {least} to {most} is expected");
            return Err(Error::invalid("priority", expected));
        }
        let now = self.now();
        let id = request.workflow;
        let mut tx = self.store().begin().await?;
        let mut locked = self
            .lock_expected(tx.as_mut(), id, request.expected_version)
            .await?;
        let was = locked.priority;
        if was == priority {
            // Readers may wait for the end of what this transaction keeps open.
            drop(tx);
            return Ok(Change::Unchanged(self.workflow_row(id).await?));
        }
        let state = locked.workflow.state();
        if state.is_terminal() {
            let action = "setting the priority";
            return Err(Refusal::NotPossible { action, state }.into());
        }
        tx.set_priority(&mut locked, priority, now).await?;
        let cause = Cause::new(request.actor, now).because(request.reason);
        let detail = json!({ "priority": priority, "was": was });
        self.note(tx.as_mut(), &locked, Note::PrioritySet, detail, &cause)
            .await?;
        tx.commit().await?;
        self.wake().all();
        Ok(Change::Changed(self.workflow_row(id).await?))
    }

    /// Locks a workflow that must be at the version, where one is named.
    async fn lock_expected(
        &self,
        tx: &mut dyn Tx,
        id: WorkflowId,
        expected: Option<u64>,
    ) -> Result<LockedWorkflow, Error> {
        let locked = tx
            .lock_workflow(id)
            .await?
            .ok_or_else(|| Error::no_workflow(id))?;
        check_version(expected, locked.version)?;
        Ok(locked)
    }

    async fn operate(
        &self,
        request: Request<'_>,
        operation: Operation,
    ) -> Result<Change<WorkflowRow>, Error> {
        let now = self.now();
        let id = request.workflow;
        let mut tx = self.store().begin().await?;
        let mut locked = self
            .lock_expected(tx.as_mut(), id, operation.version)
            .await?;
        let cause = Cause::new(request.actor, now).because(request.reason);
        let action = as_needed(tx.as_mut(), id, operation.action).await?;
        let is_changed = self
            .apply(tx.as_mut(), &mut locked, Input::Operator(action), &cause)
            .await?;
        if let Some(head) = operation.head {
            let by_look = Cause::new("forge", now);
            self.apply(tx.as_mut(), &mut locked, Input::HeadSeen { head }, &by_look)
                .await?;
        }
        self.admit(tx.as_mut(), &mut locked, now).await?;
        tx.commit().await?;
        self.wake().all();
        let row = self.workflow_row(id).await?;
        Ok(if is_changed {
            Change::Changed(row)
        } else {
            Change::Unchanged(row)
        })
    }

    pub(super) async fn workflow_row(&self, id: WorkflowId) -> Result<WorkflowRow, Error> {
        self.store()
            .workflow(id)
            .await?
            .ok_or_else(|| Error::no_workflow(id))
    }
}

pub(super) fn check_version(expected: Option<u64>, found: u64) -> Result<(), Error> {
    match expected {
        Some(expected) if expected != found => Err(Error::VersionMismatch { expected, found }),
        Some(_) | None => Ok(()),
    }
}

/// Where nothing runs there is nothing to cancel: so a pause that is asked for twice is one.
async fn as_needed(
    tx: &mut dyn Tx,
    workflow: WorkflowId,
    action: OperatorAction,
) -> Result<OperatorAction, Error> {
    let cancels = OperatorAction::Pause {
        running: Running::Cancelled,
    };
    if action != cancels {
        return Ok(action);
    }
    let live = tx.live_attempts(workflow).await?;
    let is_running = live
        .iter()
        .any(|attempt| attempt.status == AttemptStatus::InProgress);
    Ok(if is_running {
        cancels
    } else {
        OperatorAction::Pause {
            running: Running::Left,
        }
    })
}

/// Whether the item that was looked at may be worked on.
pub(super) fn gate(repository: &Repository, seen: Option<&Observed>) -> Gate {
    seen.map_or(Gate::ItemOver, |seen| {
        Gate::of(
            seen.item.is_open,
            seen.item.labels.contains(&repository.label),
        )
    })
}
