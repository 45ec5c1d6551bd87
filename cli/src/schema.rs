//! `pointsman schema`: what a harness has to answer. Needs no master.

use clap::Args;
use pointsman_proto::v1::WorkflowKind;
use pointsman_worker::{Kind, Role, schema::verdict_schema};

use crate::{error::Error, name, output};

#[derive(Debug, Args)]
pub(crate) struct Schema {
    /// Whose verdict
    #[arg(value_enum)]
    role: Role,
    /// About an issue or a pull-request; an estimator's answers differ
    #[arg(long, default_value = "issue", value_parser = parse_kind)]
    kind: Kind,
}

impl Schema {
    /// Prints the JSON Schema.
    pub(crate) fn run(self) -> Result<(), Error> {
        match verdict_schema(self.role, self.kind) {
            Some(schema) => output::line(schema.trim_end()),
            None => Err(Error::Usage(format!(
                "{} has no schema: its verdict is the exit status of the check's command",
                self.role
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
            role: Role::Ci,
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
