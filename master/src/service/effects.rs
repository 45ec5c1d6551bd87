//! Effects: the forge is made to match what a row wants, and only then the row moves on.
//!
//! Every wish is carried out by reading first, so a pass that was killed anywhere can be repeated: it
//! ends in the same place. The event is applied only if the effect is still open.

use serde_json::json;

use super::{Error, Service, apply::Cause, succession::Sighting};
use crate::{
    domain::{
        backoff,
        decision::{EffectResult, Input, Note},
        effect::Effect,
        ids::{CommitId, RepositoryId},
        transitions::State,
    },
    forge::{self, Item, MergeOutcome, MoveOutcome, OpenOutcome, WantedMerge, WantedPullRequest},
    store::model::{OpenEffectRow, Repository, WorkflowRow},
};

/// What one try of an effect led to.
enum Try {
    Ended(EffectResult),
    /// The pull request is there, and is to have a workflow.
    Opened(Item, CommitId),
    /// Not a try: something else has to happen first.
    Waits(String),
}

impl Service {
    /// Open effects that are due, each with the repository that it asks.
    pub async fn due_effects(
        &self,
        limit: u32,
    ) -> Result<Vec<(RepositoryId, OpenEffectRow)>, Error> {
        let mut due = Vec::new();
        for effect in self.store().due_effects(self.now(), limit).await? {
            let row = self.workflow_row(effect.workflow).await?;
            due.push((row.workflow.repository, effect));
        }
        Ok(due)
    }

    /// Carries out one effect as far as it goes now. False: it is still open.
    pub async fn carry_out(&self, effect: &OpenEffectRow) -> Result<bool, Error> {
        // A fresh look: what was closed, merged or unlabelled meanwhile wants no side effect.
        match self.refresh(effect.workflow).await {
            Ok(_) => {}
            // A look that the forge did not allow is no try.
            Err(Error::Forge(error)) => return self.put_off(effect, &error).await,
            Err(error) => return Err(error),
        }
        match self.try_if_still_wanted(effect).await {
            Ok(None) => Ok(false),
            Ok(Some(Try::Ended(result))) => self.end_effect(effect, result, None).await,
            Ok(Some(Try::Opened(item, head))) => {
                let result = EffectResult::PullRequestOpened {
                    number: item.number,
                    head,
                };
                self.end_effect(effect, result, Some(item)).await
            }
            Ok(Some(Try::Waits(reason))) => self.postpone_effect(effect, reason).await,
            Err(Error::Forge(error @ forge::Error::Store { .. })) => Err(error.into()),
            Err(Error::Forge(error)) if matches!(effect.effect, Effect::Merge { .. }) => {
                self.put_off(effect, &error).await
            }
            Err(Error::Forge(error)) => self.count_failure(effect, &error).await,
            Err(error) => Err(error),
        }
    }

    async fn try_if_still_wanted(&self, effect: &OpenEffectRow) -> Result<Option<Try>, Error> {
        let open = self.store().open_effect_of(effect.workflow).await?;
        let is_open = open.is_some_and(|open| open.id == effect.id);
        let row = self.store().workflow(effect.workflow).await?;
        let Some(row) = row.filter(|row| is_open && row.workflow.state() != State::Paused) else {
            return Ok(None);
        };
        let repository = self.repository_of(row.workflow.repository).await?;
        self.try_effect(&effect.effect, &row, &repository)
            .await
            .map(Some)
    }

    async fn try_effect(
        &self,
        effect: &Effect,
        row: &WorkflowRow,
        repository: &Repository,
    ) -> Result<Try, Error> {
        let forge = &self.ports.forge;
        let workflow = &row.workflow;
        Ok(match effect {
            Effect::MoveHead { from, to } => {
                let moved = forge
                    .move_branch(repository, &workflow.head_ref, from, to)
                    .await?;
                match moved {
                    MoveOutcome::Done { head } => Try::Ended(EffectResult::HeadMoved { head }),
                    MoveOutcome::Superseded { head } => {
                        Try::Ended(EffectResult::Superseded { head })
                    }
                    MoveOutcome::Waiting { reason } => Try::Waits(reason),
                }
            }
            Effect::OpenPullRequest { head_ref, commit } => {
                let wanted = wanted_pull_request(row, repository, head_ref, commit);
                match forge.open_pull_request(repository, &wanted).await? {
                    OpenOutcome::Done { item } => {
                        let head = item.head.clone().unwrap_or_else(|| commit.clone());
                        Try::Opened(item, head)
                    }
                    OpenOutcome::Superseded { head } => {
                        Try::Ended(EffectResult::Superseded { head })
                    }
                    OpenOutcome::Waiting { reason } => Try::Waits(reason),
                }
            }
            Effect::RerunChecks { commit } => {
                forge
                    .rerun_failed_checks(repository, workflow.id, commit)
                    .await?;
                Try::Ended(EffectResult::ChecksRerun)
            }
            Effect::Merge { head } => self.try_merge(row, repository, head).await?,
        })
    }

    async fn try_merge(
        &self,
        row: &WorkflowRow,
        repository: &Repository,
        head: &CommitId,
    ) -> Result<Try, Error> {
        let workflow = &row.workflow;
        let wanted = WantedMerge {
            number: workflow.number,
            head_ref: workflow.head_ref.clone(),
            base_ref: workflow.base_ref.clone(),
            head: head.clone(),
            title: workflow.title.clone(),
            method: repository.policy.merge_method,
        };
        let merged = self.ports.forge.merge(repository, &wanted).await;
        Ok(match merged {
            Ok(MergeOutcome::Done { commit }) => Try::Ended(EffectResult::Merged { commit }),
            Ok(MergeOutcome::HeadMoved { head }) => Try::Ended(EffectResult::Superseded { head }),
            Ok(MergeOutcome::Conflict { paths }) => {
                Try::Ended(EffectResult::MergeConflict { paths })
            }
            Ok(MergeOutcome::Waiting { reason }) => Try::Waits(reason),
            Ok(MergeOutcome::Refused { reason }) | Err(forge::Error::Refused { reason, .. }) => {
                Try::Ended(EffectResult::MergeRefused { reason })
            }
            Err(error) => return Err(error.into()),
        })
    }

    /// Closes the effect and applies its event, if it is still open; if not, only records what happened.
    async fn end_effect(
        &self,
        effect: &OpenEffectRow,
        result: EffectResult,
        opened: Option<Item>,
    ) -> Result<bool, Error> {
        let now = self.now();
        let mut tx = self.store().begin().await?;
        let Some(mut locked) = tx.lock_workflow(effect.workflow).await? else {
            return Ok(false);
        };
        let mut cause = Cause::new("sweep:effector", now);
        cause.attempt = effect.attempt;
        let open = tx.open_effect_of(effect.workflow).await?;
        if open.is_none_or(|open| open.id != effect.id) {
            let detail = json!({ "effect": effect.effect.name(), "result": result.name() });
            self.note(tx.as_mut(), &locked, Note::EffectClosed, detail, &cause)
                .await?;
            tx.commit().await?;
            return Ok(false);
        }
        let is_changed = self
            .apply(tx.as_mut(), &mut locked, Input::Effect(result), &cause)
            .await?;
        if let Some(item) = opened {
            let repository = locked.repository.id;
            let predecessor = self.predecessor_of(tx.as_mut(), &item, repository).await?;
            // Where one stands for it, that goes on.
            if let Ok(predecessor) = predecessor {
                let sighting = Sighting {
                    repository: &locked.repository,
                    start: item.head.clone(),
                    item: &item,
                };
                self.discover(tx.as_mut(), &sighting, predecessor, &cause)
                    .await?;
            }
        }
        tx.commit().await?;
        self.wake().all();
        Ok(is_changed)
    }

    /// The forge can't be asked: later, without a try. MERGING is bounded by its deadline alone.
    async fn put_off(&self, effect: &OpenEffectRow, error: &forge::Error) -> Result<bool, Error> {
        log_failure(effect, error);
        let reason = error.to_string();
        if let Some(result) = self.merge_deadline_passed(effect, &reason).await? {
            return self.end_effect(effect, result, None).await;
        }
        self.write_wait(effect.clone(), reason).await
    }

    /// Looks again later. A look that found that it must wait is no try, and the forge has answered: what
    /// failed before counts no more.
    async fn postpone_effect(&self, effect: &OpenEffectRow, reason: String) -> Result<bool, Error> {
        if let Some(result) = self.merge_deadline_passed(effect, &reason).await? {
            return self.end_effect(effect, result, None).await;
        }
        let answered = OpenEffectRow {
            tries: 0,
            first_failure_at: None,
            ..effect.clone()
        };
        self.write_wait(answered, reason).await
    }

    async fn merge_deadline_passed(
        &self,
        effect: &OpenEffectRow,
        reason: &str,
    ) -> Result<Option<EffectResult>, Error> {
        let Some(row) = self.store().workflow(effect.workflow).await? else {
            return Ok(None);
        };
        if row.workflow.state() != State::Merging {
            return Ok(None);
        }
        let repository = self.repository_of(row.workflow.repository).await?;
        let started_at = row.workflow.progress().merging_started_at;
        let waited = self.now().since(started_at.unwrap_or(row.state_since));
        let is_over = waited >= repository.policy.merge_deadline();
        Ok(is_over.then(|| EffectResult::MergeRefused {
            reason: format!(
                "not merged within {} s: {reason}",
                repository.policy.merge_deadline_seconds
            ),
        }))
    }

    async fn write_wait(&self, effect: OpenEffectRow, reason: String) -> Result<bool, Error> {
        let now = self.now();
        let waits = effect.waits.saturating_add(1);
        let wait = backoff::LOOKS.equal_jitter(waits, self.ports.chance.jitter());
        let later = OpenEffectRow {
            waits,
            next_try_at: now.after(wait),
            waiting_for: reason,
            ..effect
        };
        self.write_effect(&later).await?;
        Ok(false)
    }

    /// Counts a write that failed or was not answered, and ends the effect once its tries or its time are
    /// spent.
    async fn count_failure(
        &self,
        effect: &OpenEffectRow,
        error: &forge::Error,
    ) -> Result<bool, Error> {
        let now = self.now();
        log_failure(effect, error);
        let Some(row) = self.store().workflow(effect.workflow).await? else {
            return Ok(false);
        };
        let first_failure_at = effect.failing_since(row.state_since).unwrap_or(now);
        let tries = if first_failure_at == now {
            1
        } else {
            effect.tries.saturating_add(1)
        };
        let repository = self.repository_of(row.workflow.repository).await?;
        let policy = &repository.policy;
        let is_refused = matches!(error, forge::Error::Refused { .. });
        let is_late = now.since(first_failure_at) >= policy.effect_deadline();
        if is_refused || tries >= policy.effect_tries || is_late {
            let reason = format!("{} after {tries} tries: {error}", effect.effect.name());
            return self
                .end_effect(effect, EffectResult::Spent { reason }, None)
                .await;
        }
        let wait = backoff::EFFECTS.equal_jitter(tries, self.ports.chance.jitter());
        let later = OpenEffectRow {
            tries,
            first_failure_at: Some(first_failure_at),
            next_try_at: now.after(wait),
            waiting_for: error.to_string(),
            ..effect.clone()
        };
        self.write_effect(&later).await?;
        Ok(false)
    }

    async fn write_effect(&self, effect: &OpenEffectRow) -> Result<(), Error> {
        let mut tx = self.store().begin().await?;
        if tx.lock_workflow(effect.workflow).await?.is_none() {
            return Ok(());
        }
        let open = tx.open_effect_of(effect.workflow).await?;
        if open.is_some_and(|open| open.id == effect.id) {
            tx.update_effect(effect).await?;
            tx.commit().await?;
        }
        Ok(())
    }
}

fn log_failure(effect: &OpenEffectRow, error: &forge::Error) {
    tracing::warn!(
        error = error as &dyn std::error::Error,
        workflow.id = %effect.workflow,
        effect = effect.effect.name(),
        "effect could not be carried out"
    );
}

fn wanted_pull_request(
    row: &WorkflowRow,
    repository: &Repository,
    head_ref: &str,
    commit: &CommitId,
) -> WantedPullRequest {
    let workflow = &row.workflow;
    WantedPullRequest {
        head_ref: head_ref.to_owned(),
        base_ref: workflow.base_ref.clone(),
        commit: commit.clone(),
        title: workflow.title.clone(),
        body: format!("{}\n\nFor #{}.", workflow.body, workflow.number),
        label: repository.label.clone(),
    }
}
