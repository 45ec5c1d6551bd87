//! What the checks of a head say.

use std::time::Duration;

use super::{Error, Service, apply::Cause};
use crate::{
    domain::{
        backoff,
        ci::{CiReading, Wait, classify},
        decision::Input,
        ids::{CommitId, RepositoryId, WorkflowId},
        policy::Policy,
        time::Timestamp,
        transitions::State,
    },
    forge,
    store::model::{Repository, WorkflowRow},
};

impl Service {
    /// Workflows whose checks are due to be read, each with its repository.
    pub async fn due_ci_polls(&self, limit: u32) -> Result<Vec<(RepositoryId, WorkflowId)>, Error> {
        let mut due = Vec::new();
        for workflow in self.store().due_ci_polls(self.now(), limit).await? {
            let row = self.workflow_row(workflow).await?;
            due.push((row.workflow.repository, workflow));
        }
        Ok(due)
    }

    /// Reads the checks of a workflow's head and decides about them. False: nothing to decide yet.
    pub async fn poll_ci(&self, workflow: WorkflowId) -> Result<bool, Error> {
        let Some(row) = self.waiting_for_ci(workflow).await? else {
            return Ok(false);
        };
        match self.look_at_ci(&row).await {
            Err(Error::Forge(error)) => self.count_unread_poll(&row, &error).await,
            other => other,
        }
    }

    async fn look_at_ci(&self, row: &WorkflowRow) -> Result<bool, Error> {
        if self.refresh(row.workflow.id).await? {
            return Ok(true);
        }
        let Some(head) = row.workflow.progress().head.clone() else {
            return self.decide_ci(row, None).await;
        };
        let repository = self.repository_of(row.workflow.repository).await?;
        let input = self.read_ci(&repository, row, &head).await?;
        self.decide_ci(row, Some(input)).await
    }

    /// A look that the forge did not allow. The wait goes on with a backoff, and ends at its deadline as
    /// any other, so that a repository that can't be read neither waits for ever nor crowds out others.
    async fn count_unread_poll(
        &self,
        row: &WorkflowRow,
        error: &forge::Error,
    ) -> Result<bool, Error> {
        tracing::warn!(
            error = error as &dyn std::error::Error,
            workflow.id = %row.workflow.id,
            "checks could not be read"
        );
        let repository = self.repository_of(row.workflow.repository).await?;
        let progress = row.workflow.progress();
        let started_at = progress.awaiting_ci_started_at.unwrap_or(row.state_since);
        let is_over = self.now().since(started_at) >= repository.policy.ci_poll_deadline();
        let input = progress
            .head
            .clone()
            .filter(|_| is_over)
            .map(|head| Input::Ci {
                head,
                reading: CiReading::Exhausted {
                    reason: format!("the checks can't be read: {error}"),
                },
            });
        self.decide_ci(row, input).await
    }

    async fn waiting_for_ci(&self, workflow: WorkflowId) -> Result<Option<WorkflowRow>, Error> {
        let row = self.store().workflow(workflow).await?;
        Ok(row.filter(|row| row.workflow.state() == State::AwaitingCi))
    }

    async fn read_ci(
        &self,
        repository: &Repository,
        row: &WorkflowRow,
        head: &CommitId,
    ) -> Result<Input, Error> {
        let forge = &self.ports.forge;
        let base_ref = &row.workflow.base_ref;
        let paths = forge.conflicts(repository, head, base_ref).await?;
        if !paths.is_empty() {
            return Ok(Input::ConflictFound { paths });
        }
        let checks = forge.checks(repository, row.workflow.id, head).await?;
        let started_at = row.workflow.progress().awaiting_ci_started_at;
        let wait = Wait {
            started_at: started_at.unwrap_or(row.state_since),
        };
        let reading = classify(&checks, wait, &self.policy(repository), self.now());
        Ok(Input::Ci {
            head: head.clone(),
            reading,
        })
    }

    /// Applies what a look showed, if the workflow is still as it was when the look began; `None`, and a
    /// verdict that is not there yet, only set the next look.
    async fn decide_ci(&self, row: &WorkflowRow, input: Option<Input>) -> Result<bool, Error> {
        let now = self.now();
        let mut tx = self.store().begin().await?;
        let Some(mut locked) = tx.lock_workflow(row.workflow.id).await? else {
            return Ok(false);
        };
        // An effect that is open (a rerun that was asked for) makes every reading old news.
        let is_as_read = locked.version == row.version;
        if !is_as_read || tx.open_effect_of(row.workflow.id).await?.is_some() {
            return Ok(false);
        }
        let verdict = input.filter(|input| {
            !matches!(
                input,
                Input::Ci {
                    reading: CiReading::Pending,
                    ..
                }
            )
        });
        let Some(verdict) = verdict else {
            // A check that has concluded since it was read asks for another look at once: that must not be
            // put off by what this look has not seen.
            if locked.ci_next_poll_at != row.ci_next_poll_at {
                return Ok(false);
            }
            let polls = locked.ci_polls.saturating_add(1);
            let policy = self.policy(&locked.repository);
            let progress = locked.workflow.progress();
            let started_at = progress.awaiting_ci_started_at.unwrap_or(now);
            let jitter = self.ports.chance.jitter();
            let wait = backoff::CI_POLLS.equal_jitter(polls, jitter);
            let next = next_poll(now, wait, started_at, &policy);
            tx.set_ci_poll(row.workflow.id, polls, next).await?;
            tx.commit().await?;
            return Ok(false);
        };
        let cause = Cause::new("sweep:ci_poller", now);
        let is_changed = self
            .apply(tx.as_mut(), &mut locked, verdict, &cause)
            .await?;
        tx.commit().await?;
        self.wake().all();
        Ok(is_changed)
    }
}

/// The next look: after the wait, or when a deadline of the policy passes, whichever is first.
fn next_poll(now: Timestamp, wait: Duration, started_at: Timestamp, policy: &Policy) -> Timestamp {
    let deadlines = [
        policy.ci_appear_deadline(),
        policy.ci_idle_deadline(),
        policy.ci_poll_deadline(),
    ];
    deadlines
        .into_iter()
        .map(|deadline| started_at.after(deadline))
        .filter(|deadline| *deadline > now)
        .fold(now.after(wait), Ord::min)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_look_is_not_later_than_the_next_deadline() {
        let policy = Policy {
            ci_appear_deadline_seconds: 5,
            ci_idle_deadline_seconds: 20,
            ci_poll_deadline_seconds: 60,
            ..Policy::default()
        };
        let start = Timestamp(0);
        let at = |seconds| start.after(Duration::from_secs(seconds));
        let wait = Duration::from_secs(30);
        assert_eq!(next_poll(at(1), wait, start, &policy), at(5));
        assert_eq!(next_poll(at(5), wait, start, &policy), at(20));
        assert_eq!(next_poll(at(21), wait, start, &policy), at(51));
        assert_eq!(next_poll(at(61), wait, start, &policy), at(91));
    }
}
