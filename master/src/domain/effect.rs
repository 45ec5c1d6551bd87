//! What a workflow wants of its forge.

use serde::{Deserialize, Serialize};

use super::ids::CommitId;

/// A wish that the forge is to be made to match. At most one is open a workflow; while it is, no
/// attempt is added. The effector carries it out, each time by reading first, so that a pass that was
/// killed anywhere can be repeated.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Effect {
    /// The pull request's branch goes from `from` forward to `to`.
    MoveHead { from: CommitId, to: CommitId },
    /// A pull request with this head ref exists, and its head is or contains `commit`.
    OpenPullRequest { head_ref: String, commit: CommitId },
    /// The failed checks of `commit` run again.
    RerunChecks { commit: CommitId },
    /// The pull request is merged with `head`, and with nothing else.
    Merge { head: CommitId },
}

impl Effect {
    /// The name under which it is stored and shown.
    pub fn name(&self) -> &'static str {
        match self {
            Self::MoveHead { .. } => "move_head",
            Self::OpenPullRequest { .. } => "open_pull_request",
            Self::RerunChecks { .. } => "rerun_checks",
            Self::Merge { .. } => "merge",
        }
    }
}
