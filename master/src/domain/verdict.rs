//! What a harness may decide, by role and by kind of workflow.

use serde::{Deserialize, Serialize};

use super::{attempt::Role, ids::CommitId, workflow::Kind};

/// What the harness decided. An infrastructure error is not one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "verdict", rename_all = "snake_case")]
pub enum Verdict {
    /// `tier` is the least at which the work should be tried; never lowers the workflow's.
    Ready {
        tier: Option<u32>,
        plan: String,
    },
    ChangePresent,
    Declined {
        reason: String,
    },
    Unsure {
        reason: String,
    },
    Changed {
        commit: CommitId,
        summary: String,
    },
    NoChange {
        reason: String,
    },
    Failed {
        reason: String,
    },
    Conflict {
        paths: Vec<String>,
    },
    Resolved {
        commit: Option<CommitId>,
    },
    Unresolved {
        reason: String,
    },
    Retry {
        plan: String,
    },
    GiveUp {
        reason: String,
    },
    Approve {
        notes: String,
    },
    RequestChanges {
        notes: String,
    },
    Reject {
        reason: String,
    },
}

impl Verdict {
    /// The name under which it is stored and shown.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Ready { .. } => "ready",
            Self::ChangePresent => "change_present",
            Self::Declined { .. } => "declined",
            Self::Unsure { .. } => "unsure",
            Self::Changed { .. } => "changed",
            Self::NoChange { .. } => "no_change",
            Self::Failed { .. } => "failed",
            Self::Conflict { .. } => "conflict",
            Self::Resolved { .. } => "resolved",
            Self::Unresolved { .. } => "unresolved",
            Self::Retry { .. } => "retry",
            Self::GiveUp { .. } => "give_up",
            Self::Approve { .. } => "approve",
            Self::RequestChanges { .. } => "request_changes",
            Self::Reject { .. } => "reject",
        }
    }

    /// The role that may say this.
    pub const fn role(&self) -> Role {
        match self {
            Self::Ready { .. }
            | Self::ChangePresent
            | Self::Declined { .. }
            | Self::Unsure { .. } => Role::Estimator,
            Self::Changed { .. }
            | Self::NoChange { .. }
            | Self::Failed { .. }
            | Self::Conflict { .. } => Role::Implementer,
            Self::Resolved { .. } | Self::Unresolved { .. } => Role::ConflictResolver,
            Self::Retry { .. } | Self::GiveUp { .. } => Role::Escalator,
            Self::Approve { .. } | Self::RequestChanges { .. } | Self::Reject { .. } => {
                Role::Reviewer
            }
        }
    }

    /// Whether a harness in `role` on a workflow of `kind` may say this. The schema that it was handed
    /// leaves out what is not allowed.
    pub fn is_allowed(&self, role: Role, kind: Kind) -> bool {
        self.role() == role
            && match self {
                Self::ChangePresent => kind == Kind::PullRequest,
                Self::Ready { .. }
                | Self::Declined { .. }
                | Self::Unsure { .. }
                | Self::Changed { .. }
                | Self::NoChange { .. }
                | Self::Failed { .. }
                | Self::Conflict { .. }
                | Self::Resolved { .. }
                | Self::Unresolved { .. }
                | Self::Retry { .. }
                | Self::GiveUp { .. }
                | Self::Approve { .. }
                | Self::RequestChanges { .. }
                | Self::Reject { .. } => true,
            }
    }
}
