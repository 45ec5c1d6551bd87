//! The result: the verdict that a harness wrote, or why it has none.

use std::{io, path::Path};

use serde::Deserialize;

use crate::{
    assignment::{Kind, Role},
    control_file,
    schema::{INFRASTRUCTURE_ERROR, verdict_schema},
    text::head,
};

/// Most bytes of a result file. The schemas bound each text to 16,000 characters, which is
/// less than the 65,536 bytes that a master takes, and allow no zero characters, which it refuses.
pub(crate) const RESULT_MAX: u64 = 256 * 1024;

/// Most bytes of a path, for masters.
const PATH_MAX: usize = 4096;

/// Most bytes of what is quoted of a wrong result.
const QUOTE_MAX: usize = 1024;

/// What a harness decided. Which of these a role may say is in its schema.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(tag = "verdict", rename_all = "snake_case")]
pub(crate) enum Verdict {
    Ready {
        tier: u32,
        plan: String,
    },
    ChangePresent {},
    Declined {
        reason: String,
    },
    Unsure {
        reason: String,
    },
    Changed {
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
    Resolved {},
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
        #[serde(default)]
        notes: String,
    },
    RequestChanges {
        notes: String,
    },
    Reject {
        reason: String,
    },
}

/// What a result file says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Said {
    Verdict(Verdict),
    /// The harness has none, and it is nobody's fault at this work.
    InfrastructureError(InfrastructureError),
}

/// Why a harness has no verdict. Only its own word in the result file counts, never what it prints.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(crate) struct InfrastructureError {
    pub(crate) class: ProviderClass,
    /// When the provider says that it works again.
    pub(crate) reset_at: Option<jiff::Timestamp>,
    pub(crate) message: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ProviderClass {
    ProviderQuota,
    ProviderOutage,
    BadCredentials,
    PermissionDenied,
}

/// The key that tells the other document from a verdict.
const ERROR_KEY: &str = "infrastructure_error";

/// Why there is no valid result.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("no result file was written")]
    Missing,
    #[error("result file is no regular file that can be read")]
    Unreadable(#[source] io::Error),
    #[error("result file is longer than {RESULT_MAX} bytes")]
    TooLong,
    #[error("result is no JSON ({problem}): {text}")]
    NoJson { problem: String, text: String },
    #[error("result does not fit the {role}'s schema ({problem}): {text}")]
    NoFit {
        role: Role,
        problem: String,
        text: String,
    },
}

/// Reads the verdict of `role` about a workflow of `kind`, or why there is none, from the file at `path`.
pub(crate) fn read(path: &Path, role: Role, kind: Kind) -> Result<Said, Error> {
    parse(&bytes(path)?, role, kind)
}

fn bytes(path: &Path) -> Result<Vec<u8>, Error> {
    control_file::read(path, RESULT_MAX).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => Error::Missing,
        io::ErrorKind::FileTooLarge => Error::TooLong,
        _ => Error::Unreadable(error),
    })
}

fn parse(bytes: &[u8], role: Role, kind: Kind) -> Result<Said, Error> {
    let text = || head(&String::from_utf8_lossy(bytes), QUOTE_MAX, " …");
    let document: serde_json::Value =
        serde_json::from_slice(bytes).map_err(|error| Error::NoJson {
            problem: error.to_string(),
            text: text(),
        })?;
    let no_fit = |problem: String| Error::NoFit {
        role,
        problem: head(&problem, QUOTE_MAX, " …"),
        text: text(),
    };
    if document.get(ERROR_KEY).is_some() {
        check(INFRASTRUCTURE_ERROR, &document).map_err(no_fit)?;
        let error = serde_json::from_value(document[ERROR_KEY].clone())
            .map_err(|error| no_fit(error.to_string()))?;
        return Ok(Said::InfrastructureError(error));
    }
    let schema = verdict_schema(role, kind)
        .ok_or_else(|| no_fit("this role writes no verdict".to_owned()))?;
    check(schema, &document).map_err(no_fit)?;
    let verdict = serde_json::from_value(document).map_err(|error| no_fit(error.to_string()))?;
    match &verdict {
        // The schema counts characters, and a master bytes.
        Verdict::Conflict { paths } if paths.iter().any(|path| path.len() > PATH_MAX) => {
            Err(no_fit(format!("a path is longer than {PATH_MAX} bytes")))
        }
        _ => Ok(Said::Verdict(verdict)),
    }
}

/// Says what is wrong with `document`, most telling first.
fn check(schema: &str, document: &serde_json::Value) -> Result<(), String> {
    let schema = serde_json::from_str(schema).map_err(|error| error.to_string())?;
    let validator = jsonschema::validator_for(&schema).map_err(|error| error.to_string())?;
    let problems: Vec<String> = validator
        .iter_errors(document)
        .map(|error| error.to_string())
        .collect();
    if problems.is_empty() {
        Ok(())
    } else {
        Err(problems.join("; "))
    }
}

#[cfg(test)]
mod tests;
