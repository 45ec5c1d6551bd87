//! Which workflow is it: the one place that makes an item a workflow, or gives it another one.
//!
//! Discovery, labels, closing and reopening, and the operators' resubmit all come through here; the rules
//! are `domain/succession.rs`.

use serde_json::json;

use super::{
    Change, Error, Observed, Request, Service,
    apply::Cause,
    workflows::{check_version, gate},
};
use crate::{
    domain::{
        decision::{EventKind, Gate, Input, Note, Refusal},
        ids::{CommitId, RepositoryId, WorkflowId},
        succession::{Standing, Step, check_over, step},
        transitions::State,
        workflow::{Identity, Kind, Workflow},
    },
    forge::Item,
    store::{
        Tx,
        model::{About, NewEvent, Repository, WorkflowRow},
    },
};

/// How many rows one read takes.
const PAGE: u32 = 100;

/// An item that is seen, with where work on it would start.
pub(super) struct Sighting<'a> {
    pub(super) repository: &'a Repository,
    pub(super) item: &'a Item,
    pub(super) start: Option<CommitId>,
}

impl Sighting<'_> {
    fn gate(&self) -> Gate {
        let is_labelled = self.item.labels.contains(&self.repository.label);
        Gate::of(self.item.is_open, is_labelled)
    }
}

impl Service {
    /// Gives an item that no workflow stands for the one that it should have, or notes that it left.
    /// False: there was nothing to do. Workflows that still stand are not touched.
    pub(super) async fn follow(
        &self,
        tx: &mut dyn Tx,
        seen: &Sighting<'_>,
        cause: &Cause,
    ) -> Result<bool, Error> {
        let newest = tx
            .newest_workflow_of_item(seen.repository.id, seen.item.number)
            .await?;
        let gate = seen.gate();
        let Some(row) = newest else {
            return match gate {
                Gate::Open => self.begin(tx, seen, None, cause).await,
                Gate::LabelAbsent | Gate::ItemOver => Ok(false),
            };
        };
        if self.check_over(tx, &row.workflow).await?.is_err() {
            return Ok(false);
        }
        match step(row.workflow.progress().left_at.is_some(), gate) {
            Step::Nothing => Ok(false),
            Step::NoteLeft => self.note_left(tx, row.workflow.id, cause).await,
            Step::Follow => {
                let predecessor = Some(row.workflow.id);
                self.begin(tx, seen, predecessor, cause).await
            }
        }
    }

    /// Whether a workflow is over and its work is not done, read inside the transaction.
    async fn check_over(
        &self,
        tx: &mut dyn Tx,
        workflow: &Workflow,
    ) -> Result<Result<(), Standing>, Error> {
        let pull_request = match workflow.progress().pull_request {
            Some(number) => {
                tx.newest_workflow_of_item(workflow.repository, number)
                    .await?
            }
            None => None,
        };
        let pull_request = pull_request.as_ref().map(|row| &row.workflow);
        Ok(check_over(workflow, pull_request))
    }

    async fn note_left(
        &self,
        tx: &mut dyn Tx,
        id: WorkflowId,
        cause: &Cause,
    ) -> Result<bool, Error> {
        let Some(mut locked) = tx.lock_workflow(id).await? else {
            return Ok(false);
        };
        self.apply(tx, &mut locked, Input::ItemLeft, cause).await
    }

    /// Notes which items left since their workflow ended: they are not among the open labelled ones.
    /// `ended` was read before those were listed.
    pub(super) async fn note_those_that_left(
        &self,
        ended: Vec<WorkflowRow>,
        listed: &[Item],
    ) -> Result<bool, Error> {
        let mut is_changed = false;
        let has_left = |row: &WorkflowRow| {
            let number = row.workflow.number;
            !listed.iter().any(|item| item.number == number)
        };
        for row in ended.into_iter().filter(has_left) {
            let mut tx = self.store().begin().await?;
            let newest = tx
                .newest_workflow_of_item(row.workflow.repository, row.workflow.number)
                .await?;
            // What moved meanwhile was not over yet when the list was made.
            let is_as_read = newest.is_some_and(|newest| {
                (newest.workflow.id, newest.version) == (row.workflow.id, row.version)
            });
            if !is_as_read || self.check_over(tx.as_mut(), &row.workflow).await?.is_err() {
                continue;
            }
            let cause = Cause::new("sweep:reconciler", self.now());
            if self.note_left(tx.as_mut(), row.workflow.id, &cause).await? {
                tx.commit().await?;
                is_changed = true;
            }
        }
        Ok(is_changed)
    }

    /// Workflows that are over and whose item was not seen to leave yet.
    pub(super) async fn workflows_that_may_leave(
        &self,
        repository: RepositoryId,
    ) -> Result<Vec<WorkflowRow>, Error> {
        let mut found: Vec<WorkflowRow> = Vec::new();
        loop {
            let after = found.last().map(|row| row.workflow.id);
            let page = self
                .store()
                .workflows_that_may_leave(repository, after, PAGE)
                .await?;
            if page.is_empty() {
                return Ok(found);
            }
            found.extend(page);
        }
    }

    /// Gives the item of a workflow that is over another one at once, if it may be worked on. Asked again
    /// it answers with the same one.
    pub async fn resubmit(&self, request: Request<'_>) -> Result<Change<WorkflowRow>, Error> {
        let row = self.workflow_row(request.workflow).await?;
        let repository = self.repository_of(row.workflow.repository).await?;
        check_version(request.expected_version, row.version)?;
        if let Some(successor) = row.successor {
            return self.workflow_row(successor).await.map(Change::Unchanged);
        }
        let seen = self.look(&repository, row.workflow.number).await?;
        let now = self.now();
        let mut tx = self.store().begin().await?;
        let locked = tx
            .lock_workflow(request.workflow)
            .await?
            .ok_or_else(|| Error::no_workflow(request.workflow))?;
        check_version(Some(row.version), locked.version)?;
        let workflow = &locked.workflow;
        if let Err(standing) = self.check_over(tx.as_mut(), workflow).await? {
            return Err(not_over(workflow, standing));
        }
        gate(&repository, seen.as_ref()).pass("resubmitting")?;
        let Some(Observed { item, start }) = seen else {
            return Err(Error::no_workflow(request.workflow));
        };
        let sighting = Sighting {
            repository: &repository,
            item: &item,
            start,
        };
        let cause = Cause::new(request.actor, now).because(request.reason);
        let id = self
            .discover(tx.as_mut(), &sighting, Some(workflow.id), &cause)
            .await?;
        tx.commit().await?;
        self.wake().all();
        self.workflow_row(id).await.map(Change::Changed)
    }

    /// Begins a workflow, unless its item is a pull request that the workflow of an issue is about to
    /// record. False: it is.
    async fn begin(
        &self,
        tx: &mut dyn Tx,
        seen: &Sighting<'_>,
        predecessor: Option<WorkflowId>,
        cause: &Cause,
    ) -> Result<bool, Error> {
        let parent = parent_of(tx, seen.item).await?;
        if parent.is_some_and(|parent| parent.underlying_state() == State::Implementing) {
            // The effector does so by itself.
            self.wake().effector.notify_one();
            return Ok(false);
        }
        self.discover(tx, seen, predecessor, cause).await?;
        Ok(true)
    }

    /// Makes an item a workflow, and admits it where its repository has room.
    pub(super) async fn discover(
        &self,
        tx: &mut dyn Tx,
        seen: &Sighting<'_>,
        predecessor: Option<WorkflowId>,
        cause: &Cause,
    ) -> Result<WorkflowId, Error> {
        let Sighting {
            repository,
            item,
            start,
        } = seen;
        let id = self.new_workflow_id();
        let parent = parent_of(tx, item).await?;
        let identity = Identity {
            id,
            repository: repository.id,
            kind: item.kind,
            number: item.number,
            title: item.title.clone(),
            body: item.body.clone(),
            head_ref: item
                .head_ref
                .clone()
                .unwrap_or_else(|| Workflow::own_head_ref(id)),
            base_ref: item.base_ref.clone(),
            parent: parent.as_ref().map(|parent| parent.id),
            predecessor,
            created_at: cause.now,
        };
        let policy = self.policy(repository);
        let tier = parent.as_ref().map_or(1, |parent| parent.progress().tier);
        let plan = parent.and_then(|parent| parent.progress().facts.plan.clone());
        let workflow = Workflow::new(identity, &policy, tier, start.clone()).with_plan(plan);
        tx.insert_workflow(&workflow, cause.now).await?;
        let mut detail = json!({ "kind": item.kind.as_str(), "number": item.number });
        if let Some(predecessor) = predecessor {
            detail["predecessor"] = predecessor.to_string().into();
        }
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
            detail,
        })
        .await?;
        if let Some(mut locked) = tx.lock_workflow(id).await? {
            self.admit(tx, &mut locked, cause.now).await?;
        }
        Ok(id)
    }

    /// The workflow that a pull request that was just opened follows: the newest one, where that is over.
    /// An error: one stands, and goes on.
    pub(super) async fn predecessor_of(
        &self,
        tx: &mut dyn Tx,
        item: &Item,
        repository: RepositoryId,
    ) -> Result<Result<Option<WorkflowId>, Standing>, Error> {
        let Some(newest) = tx.newest_workflow_of_item(repository, item.number).await? else {
            return Ok(Ok(None));
        };
        let standing = self.check_over(tx, &newest.workflow).await?;
        Ok(standing.map(|()| Some(newest.workflow.id)))
    }
}

/// The workflow that opened a pull request, told by the branch that it named after itself.
async fn parent_of(tx: &mut dyn Tx, item: &Item) -> Result<Option<Workflow>, Error> {
    let is_pull_request = item.kind == Kind::PullRequest;
    let branch = item.head_ref.as_deref().filter(|_| is_pull_request);
    let Some(id) = branch.and_then(workflow_of_branch) else {
        return Ok(None);
    };
    Ok(tx.lock_workflow(id).await?.map(|locked| locked.workflow))
}

fn workflow_of_branch(head_ref: &str) -> Option<WorkflowId> {
    let id: WorkflowId = head_ref.rsplit('/').next()?.parse().ok()?;
    (Workflow::own_head_ref(id) == head_ref).then_some(id)
}

fn not_over(workflow: &Workflow, standing: Standing) -> Error {
    Refusal::NotOver {
        state: workflow.state(),
        standing,
    }
    .into()
}
