//! Issues and labels of the built-in forge, and what their changes mean for workflows.

use serde_json::json;

use super::{
    Change, Error, Observed, Service, apply::Cause, repositories::Said, succession::Sighting,
};
use crate::{
    domain::{
        decision::{Input, LabelState, Note},
        ids::{CommitId, RequestId},
        time::Timestamp,
        transitions::State,
        workflow::Kind,
    },
    store::{
        self, Tx,
        model::{ForgeItem, LockedWorkflow, Repository, WorkflowRow},
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
pub(super) struct Looked {
    /// Of the item's newest workflow, before the look.
    version: Option<u64>,
    start: Option<CommitId>,
}

/// A change of an item, in the transaction that writes it.
pub(super) struct ItemChange<'a> {
    pub(super) repository: &'a Repository,
    pub(super) before: &'a ForgeItem,
    pub(super) after: &'a ForgeItem,
    /// Needed where work may go on or begin by the change: it does so only from where the branch is now.
    pub(super) looked: Option<Looked>,
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
        let said = Said {
            note: Note::ItemSubmitted,
            actor,
            reason,
            at: now,
            detail: json!({ "number": item.number, "labels": item.labels }),
        };
        self.tell(tx.as_mut(), repository.id, said).await?;
        if new.is_labelled {
            let cause = Cause::new(actor, now).because(reason);
            let sighting = Sighting {
                repository: &repository,
                item: &item.clone().into(),
                start: Some(head),
            };
            self.follow(tx.as_mut(), &sighting, &cause).await?;
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
        let looked = match state {
            LabelState::Present => Some(self.look_first(&repository, number).await?),
            LabelState::Absent => None,
        };
        let mut tx = self.store().begin().await?;
        let mut item =
            tx.forge_item(repository.id, number)
                .await?
                .ok_or_else(|| Error::NotFound {
                    what: "item",
                    id: format!("{}#{number}", repository.name),
                })?;
        let before = item.clone();
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
            let said = Said {
                note: match state {
                    LabelState::Present => Note::ItemLabelled,
                    LabelState::Absent => Note::ItemUnlabelled,
                },
                actor,
                reason,
                at: now,
                detail: json!({ "number": number, "label": label }),
            };
            self.tell(tx.as_mut(), repository.id, said).await?;
        }
        if label == repository.label {
            let cause = Cause::new(actor, now).because(reason);
            let change = ItemChange {
                repository: &repository,
                before: &before,
                after: &item,
                looked,
            };
            self.item_changed(tx.as_mut(), change, &cause).await?;
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

    /// Looks at an item that is about to change. The version of its workflow is read before the look: a look
    /// that is older than our own push must not count.
    pub(super) async fn look_first(
        &self,
        repository: &Repository,
        number: u64,
    ) -> Result<Looked, Error> {
        let known = self.store().workflow_of_item(repository.id, number).await?;
        let seen = self.look(repository, number).await?;
        Ok(Looked {
            version: known.map(|row| row.version),
            start: seen.and_then(|seen| seen.start),
        })
    }

    /// What a change of an item means for its workflow: the one that stands for it sees what the item shows
    /// now; one that is over may be followed by another.
    pub(super) async fn item_changed(
        &self,
        tx: &mut dyn Tx,
        change: ItemChange<'_>,
        cause: &Cause,
    ) -> Result<(), Error> {
        let ItemChange {
            repository,
            before,
            after,
            looked,
        } = change;
        let newest = tx
            .newest_workflow_of_item(repository.id, after.number)
            .await?;
        let version = newest.as_ref().map(|row| row.version);
        if looked
            .as_ref()
            .is_some_and(|looked| looked.version != version)
        {
            return Err(store::Error::LostRace("the workflow").into());
        }
        let start = looked.and_then(|looked| looked.start);
        let stands = newest.filter(|row| {
            let state = row.workflow.state();
            !matches!(state, State::Abandoned | State::CreatedPr)
        });
        if let Some(row) = stands {
            let Some(mut locked) = tx.lock_workflow(row.workflow.id).await? else {
                return Ok(());
            };
            let item = after.clone().into();
            let seen = Observed { item, start };
            self.observe(tx, &mut locked, &seen, cause).await?;
            return Ok(());
        }
        // As it was a moment ago, it may have left already without anybody having looked.
        for item in [before, after] {
            let sighting = Sighting {
                repository,
                item: &item.clone().into(),
                start: start.clone(),
            };
            self.follow(tx, &sighting, cause).await?;
        }
        Ok(())
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
