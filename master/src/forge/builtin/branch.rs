//! Makes a branch have a commit, forward only.

use super::{
    mirror::Mirror,
    push::{Expected, Pushed, Update, push},
};
use crate::{domain::ids::CommitId, forge::Error};

/// Most looks at the remote before somebody else's pushes are left to calm down. A look that finds all
/// done is the second one of an undisturbed push.
pub(super) const MAX_LOOKS: u32 = 6;

/// Where a branch may be moved from.
#[derive(Debug, Clone, Copy)]
pub(super) enum Start<'a> {
    /// From this commit alone.
    From(&'a CommitId),
    /// From any commit that the wanted one contains; and where there is no branch, it is made.
    Any,
}

/// How it ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Advanced {
    /// The branch was seen at `head`, which is or contains the wanted commit.
    Done {
        head: CommitId,
    },
    Superseded {
        head: CommitId,
    },
    Waiting {
        reason: String,
    },
}

/// What one look leads to.
enum Step {
    End(Advanced),
    Push(Expected),
}

/// Looks, decides and pushes until the branch has `to`, or can't have it.
///
/// # Errors
///
/// `Refused` where `to` is nowhere to be found, or would not move the branch forward from its start.
pub(super) async fn advance(
    mirror: &Mirror,
    name: &str,
    start: Start<'_>,
    to: &CommitId,
) -> Result<Advanced, Error> {
    mirror.check_branch_name(name).await?;
    let mut rejected: Option<(Option<CommitId>, String)> = None;
    for _ in 0..MAX_LOOKS {
        mirror.look().await?;
        let tip = mirror.branch(name).await?;
        let expected = match decide(mirror, name, tip.as_ref(), start, to).await? {
            Step::End(end) => return Ok(end),
            Step::Push(expected) => expected,
        };
        match rejected {
            // It was as expected, so the remote does not want it.
            Some((before, reason)) if before == tip => return Ok(Advanced::Waiting { reason }),
            _ => {}
        }
        let update = Update {
            reference: format!("refs/heads/{name}"),
            expected,
            to: to.clone(),
        };
        rejected = match push(mirror, &[update]).await? {
            Pushed::Accepted => None,
            Pushed::Rejected { reason } => Some((tip, reason)),
        };
    }
    Ok(Advanced::Waiting {
        reason: format!("others keep pushing to {name}"),
    })
}

async fn decide(
    mirror: &Mirror,
    name: &str,
    tip: Option<&CommitId>,
    start: Start<'_>,
    to: &CommitId,
) -> Result<Step, Error> {
    let Some(tip) = tip else {
        return absent(mirror, name, start, to).await;
    };
    if mirror.contains(tip, to).await? {
        return Ok(Step::End(Advanced::Done { head: tip.clone() }));
    }
    let is_start = match start {
        Start::From(from) => tip == from,
        Start::Any => mirror.has(to).await? && mirror.contains(to, tip).await?,
    };
    if !is_start {
        return Ok(Step::End(Advanced::Superseded { head: tip.clone() }));
    }
    require(mirror, to).await?;
    if !mirror.contains(to, tip).await? {
        return Err(mirror.refused(format!("{to} does not contain {tip}, where {name} is")));
    }
    Ok(Step::Push(Expected::At(tip.clone())))
}

async fn absent(
    mirror: &Mirror,
    name: &str,
    start: Start<'_>,
    to: &CommitId,
) -> Result<Step, Error> {
    match start {
        Start::From(_) => Ok(Step::End(Advanced::Waiting {
            reason: format!("there is no branch {name}"),
        })),
        Start::Any => {
            require(mirror, to).await?;
            Ok(Step::Push(Expected::Absent))
        }
    }
}

async fn require(mirror: &Mirror, commit: &CommitId) -> Result<(), Error> {
    if mirror.has(commit).await? {
        return Ok(());
    }
    Err(mirror.refused(format!("the repository does not have {commit}")))
}
