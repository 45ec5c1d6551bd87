//! Names of the wire's enums and how they are typed: AWAITING_CI, PULL_REQUEST, IMPLEMENTER.

use pointsman_proto::v1::{
    MergeMethod, Role, SessionPhase, WorkerLiveness, WorkflowKind, WorkflowState,
    infrastructure_error::Class,
};

const STATE_PREFIX: &str = "WORKFLOW_STATE_";
const KIND_PREFIX: &str = "WORKFLOW_KIND_";
const ROLE_PREFIX: &str = "ROLE_";
const METHOD_PREFIX: &str = "MERGE_METHOD_";
const PHASE_PREFIX: &str = "SESSION_PHASE_";
const CLASS_PREFIX: &str = "CLASS_";
const LIVENESS_PREFIX: &str = "WORKER_LIVENESS_";

/// Every state, in the order of the wire.
const STATES: [WorkflowState; 13] = [
    WorkflowState::Discovered,
    WorkflowState::Analyzing,
    WorkflowState::Implementing,
    WorkflowState::AwaitingCi,
    WorkflowState::ConflictResolving,
    WorkflowState::Escalating,
    WorkflowState::Reviewing,
    WorkflowState::Merging,
    WorkflowState::Paused,
    WorkflowState::Merged,
    WorkflowState::CreatedPr,
    WorkflowState::Abandoned,
    WorkflowState::Stuck,
];

/// Every role, in the order of the wire.
const ROLES: [Role; 6] = [
    Role::Estimator,
    Role::Implementer,
    Role::Reviewer,
    Role::ConflictResolver,
    Role::Escalator,
    Role::Ci,
];

/// A state's short name; `None` where none is said.
pub(crate) fn state(value: i32) -> Option<String> {
    short(
        value,
        WorkflowState::try_from(value).map(|v| v.as_str_name()),
        STATE_PREFIX,
    )
}

/// A kind's short name; `None` where none is said.
pub(crate) fn kind(value: i32) -> Option<String> {
    short(
        value,
        WorkflowKind::try_from(value).map(|v| v.as_str_name()),
        KIND_PREFIX,
    )
}

/// A merge method's short name, in lower case as a policy takes it; `None` where none is said.
pub(crate) fn merge_method(value: i32) -> Option<String> {
    short(
        value,
        MergeMethod::try_from(value).map(|v| v.as_str_name()),
        METHOD_PREFIX,
    )
    .map(|name| name.to_lowercase())
}

/// A role's short name; `None` where none is said.
pub(crate) fn role(value: i32) -> Option<String> {
    short(
        value,
        Role::try_from(value).map(|v| v.as_str_name()),
        ROLE_PREFIX,
    )
}

/// A phase's short name; `None` where none is said.
pub(crate) fn phase(value: i32) -> Option<String> {
    short(
        value,
        SessionPhase::try_from(value).map(|v| v.as_str_name()),
        PHASE_PREFIX,
    )
}

/// A liveness's short name; `None` where none is said.
pub(crate) fn liveness(value: i32) -> Option<String> {
    short(
        value,
        WorkerLiveness::try_from(value).map(|v| v.as_str_name()),
        LIVENESS_PREFIX,
    )
}

/// An infrastructure error's class; `None` where none is said.
pub(crate) fn error_class(value: i32) -> Option<String> {
    short(
        value,
        Class::try_from(value).map(|v| v.as_str_name()),
        CLASS_PREFIX,
    )
}

/// A newer master may know values that this program does not: they are shown by their number.
fn short<E>(value: i32, name: Result<&'static str, E>, prefix: &str) -> Option<String> {
    match name {
        _ if value == 0 => None,
        Ok(name) => Some(name.strip_prefix(prefix).unwrap_or(name).to_owned()),
        Err(_) => Some(format!("UNKNOWN_{value}")),
    }
}

/// Reads a state in any case, with `-` or `_`; what is no state is answered with the list of them.
pub(crate) fn parse_state(typed: &str) -> Result<WorkflowState, String> {
    WorkflowState::from_str_name(&full(STATE_PREFIX, typed))
        .filter(|state| STATES.contains(state))
        .ok_or_else(|| {
            format!(
                "there are {}",
                list(STATES.map(|s| s.as_str_name()), STATE_PREFIX)
            )
        })
}

/// Reads a kind.
pub(crate) fn parse_kind(typed: &str) -> Result<WorkflowKind, String> {
    WorkflowKind::from_str_name(&full(KIND_PREFIX, typed))
        .filter(|kind| *kind != WorkflowKind::Unspecified)
        .ok_or_else(|| "there are issue and pull-request".to_owned())
}

/// Reads a role.
pub(crate) fn parse_role(typed: &str) -> Result<Role, String> {
    Role::from_str_name(&full(ROLE_PREFIX, typed))
        .filter(|role| ROLES.contains(role))
        .ok_or_else(|| {
            let names = list(ROLES.map(|r| r.as_str_name()), ROLE_PREFIX);
            format!("there are {}", names.to_ascii_lowercase())
        })
}

fn full(prefix: &str, typed: &str) -> String {
    format!("{prefix}{}", typed.to_ascii_uppercase().replace('-', "_"))
}

fn list<const N: usize>(names: [&'static str; N], prefix: &str) -> String {
    names
        .map(|name| name.strip_prefix(prefix).unwrap_or(name))
        .join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_state_is_read_back_from_its_short_name() {
        for state in STATES {
            let name = super::state(state.into()).unwrap();
            assert_eq!(parse_state(&name), Ok(state));
            assert_eq!(
                parse_state(&name.to_lowercase().replace('_', "-")),
                Ok(state)
            );
        }
    }

    #[test]
    fn what_is_no_name_is_answered_with_the_names() {
        for bad in ["", "unspecified", "DONE", "WORKFLOW_STATE_MERGED"] {
            assert!(
                parse_state(bad).unwrap_err().contains("AWAITING_CI, "),
                "{bad:?}"
            );
        }
        assert!(
            parse_kind("unspecified")
                .unwrap_err()
                .contains("pull-request")
        );
        assert!(
            parse_role("unspecified")
                .unwrap_err()
                .contains("conflict_resolver")
        );
    }

    #[test]
    fn kinds_and_roles_are_read() {
        assert_eq!(parse_kind("pull-request"), Ok(WorkflowKind::PullRequest));
        assert_eq!(parse_kind("pull_request"), Ok(WorkflowKind::PullRequest));
        assert_eq!(parse_role("conflict-resolver"), Ok(Role::ConflictResolver));
        assert_eq!(parse_role("ci"), Ok(Role::Ci));
    }

    #[test]
    fn nothing_said_is_null_and_the_unknown_is_shown() {
        assert_eq!(state(0), None);
        assert_eq!(state(99), Some("UNKNOWN_99".to_owned()));
        assert_eq!(
            phase(SessionPhase::Running.into()),
            Some("RUNNING".to_owned())
        );
    }
}
