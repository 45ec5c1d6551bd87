//! What may be thrown away, and when.

use std::time::Duration;

use super::{
    attempt::Attempt,
    ids::{CommitId, LeaseKey, WorkflowId},
    time::Timestamp,
    transitions::State,
    workflow::{Upstream, Workflow},
};

/// How long the ref of a lease outlives its attempt: whoever still looks at it has ended within it.
pub const LEASE_REF_GRACE: Duration = Duration::from_secs(3600);

/// A ref of ours on a remote. There is no other that can be named here, so that nobody else's is deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OwnName {
    /// What the holder of a lease pushed.
    Lease(LeaseKey),
    /// The branch of an issue's workflow.
    Branch(WorkflowId),
}

impl OwnName {
    /// The full name.
    pub fn reference(&self) -> String {
        match self {
            Self::Lease(key) => key.push_ref(),
            Self::Branch(workflow) => format!("refs/heads/{}", Workflow::own_head_ref(*workflow)),
        }
    }

    /// Reads a full name. `None`: it is not exactly one that we would give.
    pub fn parse(reference: &str) -> Option<Self> {
        let name = if let Some(rest) = reference.strip_prefix("refs/pointsman/") {
            let (attempt, lease) = rest.split_once('/')?;
            let (fence, nonce) = lease.split_once('-')?;
            Self::Lease(LeaseKey {
                attempt: attempt.parse().ok()?,
                fence: super::ids::Fence(fence.parse().ok()?),
                nonce: nonce.parse().ok()?,
            })
        } else {
            let id = reference.rsplit('/').next()?;
            Self::Branch(id.parse().ok()?)
        };
        (name.reference() == reference).then_some(name)
    }
}

/// Whether the workflow has ended so that its history may leave the database: for good, as far as anybody can
/// tell. A STUCK one waits for a person, unless its item has ended.
pub fn is_over(workflow: &Workflow) -> bool {
    let progress = workflow.progress();
    match progress.state {
        State::Merged | State::CreatedPr | State::Abandoned => true,
        State::Stuck => match progress.upstream {
            Some(Upstream::Closed | Upstream::Merged) => true,
            None => false,
        },
        State::Discovered
        | State::Analyzing
        | State::Implementing
        | State::AwaitingCi
        | State::ConflictResolving
        | State::Escalating
        | State::Reviewing
        | State::Merging
        | State::Paused => false,
    }
}

/// Whether a lease's ref may go: its attempt has ended long enough ago, and nothing still takes its commit
/// from it. `has_open_effect`: of the attempt's workflow.
pub fn may_delete_lease_ref(
    attempt: &Attempt,
    workflow: &Workflow,
    has_open_effect: bool,
    commit: &CommitId,
    now: Timestamp,
) -> bool {
    let ended_long_ago = attempt
        .ended_at
        .is_some_and(|ended| now.since(ended) >= LEASE_REF_GRACE);
    let facts = &workflow.progress().facts;
    let is_named = facts.kept_commit.as_ref() == Some(commit)
        || facts.offered_commit.as_ref() == Some(commit)
        || facts.superseded_commits.contains(commit);
    !attempt.status.is_live()
        && ended_long_ago
        && !has_open_effect
        && (is_over(workflow) || !is_named)
}

/// Whether the logs of an attempt may go: it ended before `before`. The end of an attempt that the database
/// doesn't know, since its row is in the archive or came after the copy that the database was restored from,
/// is taken to be when its logs were last written. `None`: nothing was.
pub fn may_delete_logs(
    attempt: Option<&Attempt>,
    last_written: Option<Timestamp>,
    before: Timestamp,
) -> bool {
    let ended_at = match attempt {
        Some(attempt) if attempt.status.is_live() => None,
        Some(attempt) => attempt.ended_at,
        None => last_written,
    };
    ended_at.is_some_and(|ended| ended < before)
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::domain::ids::{AttemptId, Fence, Nonce};

    #[test]
    fn our_refs_are_read_back_and_no_others() {
        let lease = OwnName::Lease(LeaseKey {
            attempt: AttemptId(Uuid::from_u128(1)),
            fence: Fence(3),
            nonce: Nonce(Uuid::from_u128(2)),
        });
        let branch = OwnName::Branch(WorkflowId(Uuid::from_u128(4)));
        for name in [lease, branch] {
            assert_eq!(OwnName::parse(&name.reference()), Some(name));
        }
        let id = Uuid::from_u128(4);
        for other in [
            "refs/heads/main".to_owned(),
            "refs/heads/pointsman/mine".to_owned(),
            format!("refs/heads/{id}"),
            format!("refs/heads/x/pointsman/{id}"),
            format!("refs/pointsman/merged/{id}"),
            format!("refs/pointsman/{id}/03-{}", id.simple()),
            format!("refs/pointsman/{id}/3"),
            format!("refs/tags/pointsman/{id}"),
            String::new(),
        ] {
            assert_eq!(OwnName::parse(&other), None, "{other}");
        }
    }

    #[test]
    fn logs_of_attempts_that_nobody_knows_go_by_their_last_write() {
        let last = Timestamp(7);
        assert!(!may_delete_logs(None, Some(last), last));
        assert!(may_delete_logs(None, Some(last), Timestamp(8)));
        assert!(!may_delete_logs(None, None, Timestamp(8)), "there are none");
    }
}
