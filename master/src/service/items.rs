//! Issues and labels of the built-in forge, and how an item becomes a workflow.

use super::{Change, Error, Service, apply::Cause};
use crate::{
    domain::{
        decision::{EventKind, Input, LabelState, Note},
        ids::{CommitId, RequestId, WorkflowId},
        time::Timestamp,
        transitions::State,
        workflow::{Identity, Kind, Workflow},
    },
    store::{
        self, Tx,
        model::{About, ForgeItem, LockedWorkflow, NewEvent, Repository, WorkflowRow},
    },
};

/// Most labels of one item.
const MAX_LABELS: usize = 100;

/// An issue to be opened on the built-in forge.
#[derive(Debug, Clone, Copy)]
pub struct NewIssue<'a> {
    pub repository: &'a str,
    pub title: &'a str,
    pub body: &'a str,
    /// With the opt-in label.
    pub is_labelled: bool,
    /// A call that may be repeated.
    pub request: Option<RequestId>,
}

/// An issue that was opened, with its workflow where it carries the label.
#[derive(Debug, Clone, PartialEq)]
pub struct SubmittedIssue {
    pub number: u64,
    pub workflow: Option<WorkflowRow>,
}

/// An item's labels after a change, with its workflow where it has one.
#[derive(Debug, Clone, PartialEq)]
pub struct LabelChange {
    pub labels: Vec<String>,
    pub workflow: Option<WorkflowRow>,
}

/// What a look before the transaction showed.
struct Looked {
    /// Of the item's workflow, before the look.
    version: Option<u64>,
    start: Option<CommitId>,
}

/// An item that becomes a workflow.
pub(super) struct Discovery<'a> {
    pub(super) repository: &'a Repository,
    pub(super) kind: Kind,
    pub(super) number: u64,
    pub(super) title: &'a str,
    pub(super) body: &'a str,
    /// Set on pull requests alone.
    pub(super) head_ref: Option<&'a str>,
    pub(super) base_ref: &'a str,
    pub(super) head: Option<CommitId>,
    /// The workflow that opened this pull request.
    pub(super) parent: Option<&'a Workflow>,
}

impl Service {
    /// Opens an issue. The same request again answers with the same issue.
    pub async fn submit_issue(
        &self,
        new: NewIssue<'_>,
        reason: &str,
        actor: &str,
    ) -> Result<Change<SubmittedIssue>, Error> {
        let now = self.now();
        let repository = self.repository_named(new.repository).await?;
        let head = self.base_tip(&repository).await?;
        let mut tx = self.store().begin().await?;
        if let Some(request) = new.request
            && let Some(item) = tx.forge_item_by_request(request).await?
        {
            drop(tx);
            return self.submitted(item).await.map(Change::Unchanged);
        }
        let labels = if new.is_labelled {
            vec![repository.label.clone()]
        } else {
            Vec::new()
        };
        let item = ForgeItem {
            repository: repository.id,
            number: tx.next_item_number(repository.id).await?,
            kind: Kind::Issue,
            title: new.title.to_owned(),
            body: new.body.to_owned(),
            labels,
            is_open: true,
            head_ref: None,
            base_ref: repository.base_ref.clone(),
            merged_commit: None,
            request: new.request,
            created_at: now,
            updated_at: now,
        };
        tx.insert_forge_item(&item).await?;
        if new.is_labelled {
            let cause = Cause::new(actor, now).because(reason);
            self.discover(
                tx.as_mut(),
                &discovery(&repository, &item, Some(head)),
                &cause,
            )
            .await?;
        }
        tx.commit().await?;
        self.wake().all();
        self.submitted(item).await.map(Change::Changed)
    }

    async fn submitted(&self, item: ForgeItem) -> Result<SubmittedIssue, Error> {
        let workflow = self
            .store()
            .workflow_of_item(item.repository, item.number)
            .await?;
        Ok(SubmittedIssue {
            number: item.number,
            workflow,
        })
    }

    async fn base_tip(&self, repository: &Repository) -> Result<CommitId, Error> {
        let tip = self
            .ports
            .forge
            .branch(repository, &repository.base_ref)
            .await?;
        tip.ok_or_else(|| Error::NotFound {
            what: "base branch",
            id: repository.base_ref.clone(),
        })
    }

    /// Adds a label to an item, or takes it away. The opt-in label opens the gate or shuts it in the same
    /// transaction.
    pub async fn set_label(
        &self,
        repository: &str,
        number: u64,
        label: &str,
        state: LabelState,
        reason: &str,
        actor: &str,
    ) -> Result<Change<LabelChange>, Error> {
        let now = self.now();
        let repository = self.repository_named(repository).await?;
        // Giving the label back goes on only from where the branch is now. The version is read before
        // the look: a look that is older than our own push must not count.
        let known = self.store().workflow_of_item(repository.id, number).await?;
        let seen = match state {
            LabelState::Present => self.look(&repository, number).await?,
            LabelState::Absent => None,
        };
        let looked = Looked {
            version: known.map(|row| row.version),
            start: seen.and_then(|seen| seen.start),
        };
        let mut tx = self.store().begin().await?;
        let mut item =
            tx.forge_item(repository.id, number)
                .await?
                .ok_or_else(|| Error::NotFound {
                    what: "item",
                    id: format!("{}#{number}", repository.name),
                })?;
        let is_changed = change_label(&mut item.labels, label, state);
        if item.labels.len() > MAX_LABELS {
            return Err(Error::invalid(
                "label",
                format!("is one too many: an item carries at most {MAX_LABELS}"),
            ));
        }
        if is_changed {
            item.updated_at = now;
            tx.update_forge_item(&item).await?;
        }
        if label == repository.label {
            let cause = Cause::new(actor, now).because(reason);
            self.gate(tx.as_mut(), &repository, &item, looked, state, &cause)
                .await?;
        }
        tx.commit().await?;
        self.wake().all();
        let change = LabelChange {
            labels: item.labels,
            workflow: self.store().workflow_of_item(repository.id, number).await?,
        };
        Ok(if is_changed {
            Change::Changed(change)
        } else {
            Change::Unchanged(change)
        })
    }

    async fn gate(
        &self,
        tx: &mut dyn Tx,
        repository: &Repository,
        item: &ForgeItem,
        looked: Looked,
        state: LabelState,
        cause: &Cause,
    ) -> Result<(), Error> {
        let newest = tx
            .newest_workflow_of_item(repository.id, item.number)
            .await?;
        let Some(row) = newest else {
            if state == LabelState::Present && item.is_open {
                self.discover(tx, &discovery(repository, item, looked.start), cause)
                    .await?;
            }
            return Ok(());
        };
        let Some(mut locked) = tx.lock_workflow(row.workflow.id).await? else {
            return Ok(());
        };
        if state == LabelState::Present && looked.version != Some(locked.version) {
            return Err(store::Error::LostRace("the workflow").into());
        }
        self.apply(tx, &mut locked, Input::Label(state), cause)
            .await?;
        if let Some(head) = looked.start {
            let by_look = Cause::new("forge", cause.now);
            self.apply(tx, &mut locked, Input::HeadSeen { head }, &by_look)
                .await?;
        }
        Ok(())
    }

    /// Makes an item a workflow, and admits it where its repository has room.
    pub(super) async fn discover(
        &self,
        tx: &mut dyn Tx,
        found: &Discovery<'_>,
        cause: &Cause,
    ) -> Result<WorkflowId, Error> {
        let id = self.new_workflow_id();
        let identity = Identity {
            id,
            repository: found.repository.id,
            kind: found.kind,
            number: found.number,
            title: found.title.to_owned(),
            body: found.body.to_owned(),
            head_ref: found
                .head_ref
                .map_or_else(|| Workflow::own_head_ref(id), str::to_owned),
            base_ref: found.base_ref.to_owned(),
            parent: found.parent.map(|parent| parent.id),
            created_at: cause.now,
        };
        let policy = self.policy(found.repository);
        let tier = found.parent.map_or(1, |parent| parent.progress().tier);
        let plan = found
            .parent
            .and_then(|parent| parent.progress().facts.plan.clone());
        let workflow = Workflow::new(identity, &policy, tier, found.head.clone()).with_plan(plan);
        tx.insert_workflow(&workflow, cause.now).await?;
        tx.append_event(&NewEvent {
            about: About::Workflow {
                id,
                from: State::Discovered,
                to: State::Discovered,
            },
            attempt: None,
            occurred_at: cause.now,
            kind: EventKind::Note(Note::Discovered),
            actor: cause.actor.clone(),
            reason: cause.reason.clone(),
            detail: serde_json::json!({ "kind": found.kind.as_str(), "number": found.number }),
        })
        .await?;
        if let Some(mut locked) = tx.lock_workflow(id).await? {
            self.admit(tx, &mut locked, cause.now).await?;
        }
        Ok(id)
    }

    /// Starts a discovered workflow where its repository has room for one more. False: it has none, or
    /// the workflow has started already.
    pub(super) async fn admit(
        &self,
        tx: &mut dyn Tx,
        locked: &mut LockedWorkflow,
        now: Timestamp,
    ) -> Result<bool, Error> {
        if locked.workflow.state() != State::Discovered {
            return Ok(false);
        }
        let n_live = tx.count_live_workflows(locked.repository.id).await?;
        if n_live >= locked.repository.policy.max_live_workflows {
            return Ok(false);
        }
        let cause = Cause::new("sweep:scheduler", now);
        self.apply(tx, locked, Input::Admit, &cause).await
    }
}

fn discovery<'a>(
    repository: &'a Repository,
    item: &'a ForgeItem,
    head: Option<CommitId>,
) -> Discovery<'a> {
    Discovery {
        repository,
        kind: item.kind,
        number: item.number,
        title: &item.title,
        body: &item.body,
        head_ref: item.head_ref.as_deref(),
        base_ref: &item.base_ref,
        head,
        parent: None,
    }
}

/// False: it was so already.
fn change_label(labels: &mut Vec<String>, label: &str, state: LabelState) -> bool {
    let place = labels.iter().position(|l| l == label);
    match (state, place) {
        (LabelState::Present, None) => {
            labels.push(label.to_owned());
            labels.sort();
            true
        }
        (LabelState::Absent, Some(place)) => {
            labels.remove(place);
            true
        }
        (LabelState::Present, Some(_)) | (LabelState::Absent, None) => false,
    }
}
