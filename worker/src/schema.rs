//! The JSON Schemas of the verdicts, one a role and, where it matters, one a kind.
//!
//! The files are the contract with harnesses: prompts quote them, results are checked against them,
//! and `pointsman schema ROLE` prints them.

use crate::assignment::{Kind, Role};

/// The schema of what any role may write instead of its verdict, where a provider or its credentials keep it
/// from having one.
pub const INFRASTRUCTURE_ERROR: &str = include_str!("../schemas/infrastructure_error.json");

/// The schema's text. `None` for a check: its verdict is the command's exit status.
pub const fn verdict_schema(role: Role, kind: Kind) -> Option<&'static str> {
    Some(match (role, kind) {
        (Role::Estimator, Kind::Issue) => include_str!("../schemas/estimator.issue.json"),
        (Role::Estimator, Kind::PullRequest) => {
            include_str!("../schemas/estimator.pull_request.json")
        }
        (Role::Implementer, _) => include_str!("../schemas/implementer.json"),
        (Role::Reviewer, _) => include_str!("../schemas/reviewer.json"),
        (Role::ConflictResolver, _) => include_str!("../schemas/conflict_resolver.json"),
        (Role::Escalator, _) => include_str!("../schemas/escalator.json"),
        (Role::Ci, _) => return None,
    })
}
