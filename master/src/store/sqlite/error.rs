//! What SQLite's errors mean to the callers of the store.

use sqlx::sqlite::SqliteQueryResult;

use crate::store::{Constraint, Error};

/// Names the operation that an error of sqlx stopped.
pub(super) trait During<T> {
    fn during(self, operation: &'static str) -> Result<T, Error>;
}

impl<T> During<T> for Result<T, sqlx::Error> {
    fn during(self, operation: &'static str) -> Result<T, Error> {
        self.map_err(|error| from_sqlx(operation, error))
    }
}

/// Refuses a write that did not touch the one row that it was meant for.
pub(super) fn one_row(result: &SqliteQueryResult, what: &'static str) -> Result<(), Error> {
    if result.rows_affected() == 1 {
        Ok(())
    } else {
        Err(Error::LostRace(what))
    }
}

fn from_sqlx(operation: &'static str, error: sqlx::Error) -> Error {
    match &error {
        sqlx::Error::Database(database) => {
            if database.is_unique_violation()
                && let Some(constraint) = constraint_of(database.message())
            {
                return Error::Constraint(constraint);
            }
            let code = database.code().and_then(|code| code.parse::<u32>().ok());
            if code.is_some_and(is_transient) {
                unavailable(operation, error)
            } else {
                rejected(operation, error)
            }
        }
        sqlx::Error::PoolTimedOut
        | sqlx::Error::PoolClosed
        | sqlx::Error::WorkerCrashed
        | sqlx::Error::BeginFailed
        | sqlx::Error::InvalidSavePointStatement
        | sqlx::Error::Io(_) => unavailable(operation, error),
        _ => rejected(operation, error),
    }
}

pub(super) fn unavailable(
    operation: &'static str,
    error: impl Into<Box<dyn std::error::Error + Send + Sync>>,
) -> Error {
    Error::Unavailable {
        operation,
        source: error.into(),
    }
}

fn rejected(operation: &'static str, error: sqlx::Error) -> Error {
    Error::Rejected {
        operation,
        source: error.into(),
    }
}

/// Whether a result code, extended or not, says that the database can't do it now: busy (5), locked (6),
/// out of memory (7), read-only (8), interrupted (9), I/O error (10), full (13), can't open (14), lock
/// protocol (15).
fn is_transient(code: u32) -> bool {
    matches!(code & 0xff, 5..=10 | 13..=15)
}

/// How SQLite names the unique indexes that callers branch on: by the columns, or, where an index has an
/// expression, by its name.
const UNIQUE: &[(&str, Constraint)] = &[
    ("repositories.name", Constraint::RepositoryName),
    (
        "workflows.repository_id, workflows.number",
        Constraint::OneLiveWorkflow,
    ),
    ("attempts.subject_id", Constraint::OneLiveAttempt),
    ("effects.workflow_id", Constraint::OneOpenEffect),
    (
        "forge_items.repository_id, forge_items.head_ref",
        Constraint::OneOpenPullRequest,
    ),
    ("forge_items.request_id", Constraint::ItemRequest),
];

fn constraint_of(message: &str) -> Option<Constraint> {
    let what = message.strip_prefix("UNIQUE constraint failed: ")?;
    let index = what
        .strip_prefix("index '")
        .and_then(|index| index.strip_suffix('\''));
    UNIQUE
        .iter()
        .map(|&(columns, constraint)| (columns, constraint))
        .find(|(columns, constraint)| match index {
            Some(index) => constraint.to_string() == index,
            None => *columns == what,
        })
        .map(|(_, constraint)| constraint)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_unique_index_is_known_by_its_columns_and_by_its_name() {
        for &(columns, constraint) in UNIQUE {
            let by_columns = format!("UNIQUE constraint failed: {columns}");
            assert_eq!(constraint_of(&by_columns), Some(constraint));
            let by_name = format!("UNIQUE constraint failed: index '{constraint}'");
            assert_eq!(constraint_of(&by_name), Some(constraint));
        }
        assert_eq!(
            constraint_of(
                "UNIQUE constraint failed: forge_items.repository_id, forge_items.number"
            ),
            None
        );
        assert_eq!(constraint_of("FOREIGN KEY constraint failed"), None);
    }

    #[test]
    fn extended_result_codes_are_read_by_their_low_byte() {
        // SQLITE_BUSY_SNAPSHOT, SQLITE_IOERR_WRITE, SQLITE_READONLY_DBMOVED, SQLITE_FULL.
        for code in [517, 778, 1032, 13] {
            assert!(is_transient(code), "{code}");
        }
        // SQLITE_ERROR, SQLITE_CORRUPT, SQLITE_CONSTRAINT_FOREIGNKEY, SQLITE_NOTADB.
        for code in [1, 11, 787, 26] {
            assert!(!is_transient(code), "{code}");
        }
    }

    #[test]
    fn a_pool_without_a_free_connection_is_unavailable() {
        let error = from_sqlx("begin", sqlx::Error::PoolTimedOut);
        assert!(matches!(
            error,
            Error::Unavailable {
                operation: "begin",
                ..
            }
        ));
    }
}
