//! `pointsman schema`: what a harness has to answer. Needs no master.

use clap::{Args, ValueEnum, builder::PossibleValue};
use pointsman_proto::v1::WorkflowKind;
use pointsman_worker::{
    Kind, Role,
    schema::{INFRASTRUCTURE_ERROR, verdict_schema},
};

use crate::{error::Error, name, output};

#[derive(Debug, Args)]
pub(crate) struct Schema {
    /// Whose verdict, or what any role may write instead of one
    #[arg(value_enum, value_name = "ROLE")]
    of: Of,
    /// About an issue or a pull-request; an estimator's answers differ
    #[arg(long, default_value = "issue", value_parser = parse_kind)]
    kind: Kind,
}

/// What a result file may hold.
#[derive(Debug, Clone, Copy)]
enum Of {
    Verdict(Role),
    InfrastructureError,
}

impl ValueEnum for Of {
    fn value_variants<'a>() -> &'a [Self] {
        const ALL: [Of; 7] = [
            Of::Verdict(Role::Estimator),
            Of::Verdict(Role::Implementer),
            Of::Verdict(Role::Reviewer),
            Of::Verdict(Role::ConflictResolver),
            Of::Verdict(Role::Escalator),
            Of::Verdict(Role::Ci),
            Of::InfrastructureError,
        ];
        &ALL
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        match self {
            Self::Verdict(role) => role.to_possible_value(),
            Self::InfrastructureError => Some(PossibleValue::new("infrastructure_error")),
        }
    }
}

impl Schema {
    /// Prints the JSON Schema.
    pub(crate) fn run(self) -> Result<(), Error> {
        let Of::Verdict(role) = self.of else {
            return output::line(INFRASTRUCTURE_ERROR.trim_end());
        };
        match verdict_schema(role, self.kind) {
            Some(schema) => output::line(schema.trim_end()),
            None => Err(Error::Usage(format!(
                "{role} has no schema: its verdict is the exit status of the check's command",
            ))),
        }
    }
}

fn parse_kind(typed: &str) -> Result<Kind, String> {
    Ok(match name::parse_kind(typed)? {
        WorkflowKind::PullRequest => Kind::PullRequest,
        WorkflowKind::Issue | WorkflowKind::Unspecified => Kind::Issue,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_check_has_no_schema_and_that_is_bad_usage() {
        let schema = Schema {
            of: Of::Verdict(Role::Ci),
            kind: Kind::Issue,
        };
        assert!(matches!(schema.run(), Err(Error::Usage(_))));
    }

    #[test]
    fn kinds_are_typed_as_elsewhere() {
        assert_eq!(parse_kind("pull-request"), Ok(Kind::PullRequest));
        assert!(parse_kind("epic").is_err());
    }
}
