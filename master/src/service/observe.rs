//! What the forge shows of an item, and what follows from it.
//!
//! Level-triggered: each look decides from what is true now. Facts that end a workflow come first, then
//! the label, then the head.

use super::{Error, Service, apply::Cause, succession::Sighting, workflows::gate};
use crate::{
    domain::{
        decision::{Gate, Input, LabelState, UpstreamFact},
        effect::Effect,
        ids::{CommitId, RepositoryId, WorkflowId},
        transitions::State,
        workflow::Kind,
    },
    forge::Item,
    store::{
        Tx,
        model::{LockedWorkflow, Repository, WorkflowFilter, WorkflowRow},
    },
};

/// How many rows one read takes.
const PAGE: u32 = 100;

/// An item as it was seen, and where work on it starts: the tip of a pull request's branch; on an
/// issue that of its own branch where there is one already, of the base branch otherwise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Observed {
    pub item: Item,
    pub start: Option<CommitId>,
}

impl Service {
    /// Looks at an item; `None` where the forge has none with that number.
    pub(super) async fn look(
        &self,
        repository: &Repository,
        number: u64,
    ) -> Result<Option<Observed>, Error> {
        let Some(item) = self.ports.forge.item(repository, number).await? else {
            return Ok(None);
        };
        let start = match item.kind {
            Kind::PullRequest => item.head.clone(),
            Kind::Issue => self.issue_start(repository, &item).await?,
        };
        Ok(Some(Observed { item, start }))
    }

    async fn issue_start(
        &self,
        repository: &Repository,
        item: &Item,
    ) -> Result<Option<CommitId>, Error> {
        let workflow = self
            .store()
            .workflow_of_item(repository.id, item.number)
            .await?;
        // A workflow that is over is followed by one with a branch of its own.
        let stands = workflow.filter(|row| {
            let state = row.workflow.state();
            !matches!(state, State::Abandoned | State::CreatedPr)
        });
        if let Some(row) = stands {
            let own = self
                .ports
                .forge
                .branch(repository, &row.workflow.head_ref)
                .await?;
            if own.is_some() {
                return Ok(own);
            }
        }
        Ok(self.ports.forge.branch(repository, &item.base_ref).await?)
    }

    /// Looks at a workflow's item afresh and applies what it shows. False: nothing new, or the workflow
    /// moved while it was looked at: then the look may be older than our own push, and is not used.
    pub async fn refresh(&self, id: WorkflowId) -> Result<bool, Error> {
        let row = self.workflow_row(id).await?;
        let repository = self.repository_of(row.workflow.repository).await?;
        let Some(seen) = self.look(&repository, row.workflow.number).await? else {
            return Ok(false);
        };
        let conflict = self.conflict_in_review(&repository, &row).await;
        let now = self.now();
        let mut tx = self.store().begin().await?;
        let Some(mut locked) = tx.lock_workflow(row.workflow.id).await? else {
            return Ok(false);
        };
        if locked.version != row.version {
            return Ok(false);
        }
        let cause = Cause::new("forge", now);
        let mut is_changed = self
            .observe(tx.as_mut(), &mut locked, &seen, &cause)
            .await?;
        if let Some(conflict) = conflict
            && !is_changed
        {
            is_changed = self
                .apply(tx.as_mut(), &mut locked, conflict, &cause)
                .await?;
        }
        if is_changed {
            tx.commit().await?;
            self.wake().all();
        }
        Ok(is_changed)
    }

    /// A conflict of a head that is being reviewed: the review would be of what can't be merged. Before
    /// and after REVIEWING whoever reads the checks, or merges, looks for it. Where the forge can't say,
    /// there is none yet: the next look may tell.
    async fn conflict_in_review(
        &self,
        repository: &Repository,
        row: &WorkflowRow,
    ) -> Option<Input> {
        let workflow = &row.workflow;
        if workflow.state() != State::Reviewing || workflow.kind != Kind::PullRequest {
            return None;
        }
        let head = workflow.progress().head.as_ref()?;
        let looked = self
            .ports
            .forge
            .conflicts(repository, head, &workflow.base_ref)
            .await;
        match looked {
            Ok(paths) => (!paths.is_empty()).then_some(Input::ConflictFound { paths }),
            Err(error) => {
                tracing::debug!(
                    error = &error as &dyn std::error::Error,
                    workflow.id = %workflow.id,
                    "conflicts could not be looked for"
                );
                None
            }
        }
    }

    /// Applies what a glance at a workflow's item shows where its work is no longer wanted, so that nothing
    /// of it is leased. A forge that can't be asked holds up no work: before each write it is asked again.
    pub(super) async fn glance(&self, id: WorkflowId) -> Result<(), Error> {
        let row = self.workflow_row(id).await?;
        let repository = self.repository_of(row.workflow.repository).await?;
        let item = match self
            .ports
            .forge
            .glance(&repository, row.workflow.number)
            .await
        {
            Ok(Some(item)) => item,
            Ok(None) => return Ok(()),
            Err(error) => {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    workflow.id = %id,
                    "an item could not be glanced at"
                );
                return Ok(());
            }
        };
        let seen = Observed { item, start: None };
        if gate(&repository, Some(&seen)) == Gate::Open {
            return Ok(());
        }
        let mut tx = self.store().begin().await?;
        let Some(mut locked) = tx.lock_workflow(id).await? else {
            return Ok(());
        };
        if locked.version != row.version {
            return Ok(());
        }
        let cause = Cause::new("forge", self.now());
        if self
            .observe(tx.as_mut(), &mut locked, &seen, &cause)
            .await?
        {
            tx.commit().await?;
            self.wake().all();
        }
        Ok(())
    }

    pub(super) async fn repository_of(&self, id: RepositoryId) -> Result<Repository, Error> {
        self.store()
            .repository(id)
            .await?
            .ok_or_else(|| Error::NotFound {
                what: "repository",
                id: id.to_string(),
            })
    }

    /// Applies what an item shows: facts that end it first, then the label, then where its branch is.
    pub(super) async fn observe(
        &self,
        tx: &mut dyn Tx,
        locked: &mut LockedWorkflow,
        seen: &Observed,
        cause: &Cause,
    ) -> Result<bool, Error> {
        let mut inputs = Vec::new();
        if !self.is_our_merge_under_way(tx, locked, &seen.item).await? {
            inputs.extend(upstream_fact(&seen.item).map(Input::Upstream));
        }
        let is_labelled = seen.item.labels.contains(&locked.repository.label);
        inputs.push(Input::Label(if is_labelled {
            LabelState::Present
        } else {
            LabelState::Absent
        }));
        let mut is_changed = false;
        for input in inputs {
            is_changed |= self.apply(tx, locked, input, cause).await?;
        }
        if let Some(head) = seen.start.clone() {
            // Whoever changed the item did not move the branch.
            let by_look = Cause::new("forge", cause.now);
            let input = Input::HeadSeen { head };
            is_changed |= self.apply(tx, locked, input, &by_look).await?;
        }
        Ok(is_changed)
    }

    /// Merged by our own effect, whose event the effector is about to write: not somebody else's merge.
    async fn is_our_merge_under_way(
        &self,
        tx: &mut dyn Tx,
        locked: &LockedWorkflow,
        item: &Item,
    ) -> Result<bool, Error> {
        if item.merged_commit.is_none() || locked.workflow.state() != State::Merging {
            return Ok(false);
        }
        let open = tx.open_effect_of(locked.workflow.id).await?;
        Ok(open.is_some_and(|open| matches!(open.effect, Effect::Merge { .. })))
    }

    /// Makes workflows of labelled items that have none, or none that stands, and notes which items left.
    /// One that fails stops none of the others; its error is told at the end.
    pub async fn discover_items(&self, repository: &Repository) -> Result<bool, Error> {
        // Read before the list is: what ends after it may be on it, and has not left.
        let ended = self.workflows_that_may_leave(repository.id).await?;
        let items = self.ports.forge.labelled_items(repository).await?;
        let mut is_changed = self.note_those_that_left(ended, &items).await?;
        let mut failure = None;
        for item in items {
            match self.discover_item(repository, item).await {
                Ok(is_new) => is_changed |= is_new,
                Err(error) => failure = Some(error),
            }
        }
        match failure {
            Some(error) => Err(error),
            None => Ok(is_changed),
        }
    }

    /// Workflows of a repository that are compared with its forge: all that are not terminal, PAUSED ones
    /// included, and STUCK ones, which keep how their item ended.
    pub async fn comparable_workflows(
        &self,
        repository: RepositoryId,
    ) -> Result<Vec<WorkflowId>, Error> {
        let filter = WorkflowFilter {
            repository: Some(repository),
            states: State::ALL
                .iter()
                .copied()
                .filter(|state| !state.is_terminal() || *state == State::Stuck)
                .collect(),
            kind: None,
        };
        let mut found = Vec::new();
        loop {
            let after = found.last().copied();
            let page = self.store().workflows(&filter, after, PAGE).await?;
            if page.is_empty() {
                return Ok(found);
            }
            found.extend(page.iter().map(|row| row.workflow.id));
        }
    }

    async fn discover_item(&self, repository: &Repository, item: Item) -> Result<bool, Error> {
        let newest = self
            .store()
            .workflow_of_item(repository.id, item.number)
            .await?;
        // Most items have a workflow that stands, or did not leave since it ended: no look is needed.
        if newest.is_some_and(|row| row.workflow.progress().left_at.is_none()) {
            return Ok(false);
        }
        let Some(seen) = self.look(repository, item.number).await? else {
            return Ok(false);
        };
        let cause = Cause::new("sweep:reconciler", self.now());
        let sighting = Sighting {
            repository,
            item: &seen.item,
            start: seen.start,
        };
        let mut tx = self.store().begin().await?;
        let is_changed = self.follow(tx.as_mut(), &sighting, &cause).await?;
        if is_changed {
            tx.commit().await?;
            self.wake().all();
        }
        Ok(is_changed)
    }
}

fn upstream_fact(item: &Item) -> Option<UpstreamFact> {
    match (&item.merged_commit, item.is_open) {
        (Some(commit), _) => Some(UpstreamFact::Merged {
            commit: Some(commit.clone()),
        }),
        (None, false) => Some(UpstreamFact::Closed),
        (None, true) => None,
    }
}
