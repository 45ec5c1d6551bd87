//! What SQLite's errors mean to the callers of the store.

use std::{io, sync::Arc};

use sqlx::sqlite::SqliteQueryResult;

use crate::store::{Constraint, Error, Outage};

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

pub(super) fn from_sqlx(operation: &'static str, error: sqlx::Error) -> Error {
    match &error {
        sqlx::Error::Database(database) => {
            if database.is_unique_violation()
                && let Some(constraint) = constraint_of(database.message())
            {
                return Error::Constraint(constraint);
            }
            let code = database.code().and_then(|code| code.parse::<u32>().ok());
            match code.and_then(outage_of) {
                Some(outage) => out(operation, outage, error),
                None => rejected(operation, error),
            }
        }
        sqlx::Error::Io(io) => out(operation, outage_of_io(io), error),
        sqlx::Error::PoolTimedOut
        | sqlx::Error::PoolClosed
        | sqlx::Error::WorkerCrashed
        | sqlx::Error::BeginFailed
        | sqlx::Error::InvalidSavePointStatement => unavailable(operation, error),
        _ => rejected(operation, error),
    }
}

/// For a reason that has no name of its own.
pub(super) fn unavailable(
    operation: &'static str,
    source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
) -> Error {
    out(operation, Outage::Other, source)
}

fn out(
    operation: &'static str,
    outage: Outage,
    source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
) -> Error {
    Error::Unavailable {
        operation,
        outage,
        source: source.into(),
    }
}

/// For lack of room, as we have seen before the database did.
pub(super) fn no_room(operation: &'static str, why: String) -> Error {
    out(operation, Outage::Full, why)
}

pub(super) fn from_io(operation: &'static str, error: io::Error) -> Error {
    out(operation, outage_of_io(&error), error)
}

fn rejected(operation: &'static str, error: sqlx::Error) -> Error {
    Error::Rejected {
        operation,
        source: error.into(),
    }
}

/// What a result code, extended or not, says that the database can't do now; none where it refuses.
fn outage_of(code: u32) -> Option<Outage> {
    match code & 0xff {
        // Busy, locked, lock protocol.
        5 | 6 | 15 => Some(Outage::Busy),
        // Out of memory.
        7 => Some(Outage::Other),
        8 => Some(Outage::ReadOnly),
        // Interrupted: only deadlines do that.
        9 => Some(Outage::TooLong),
        // I/O error, can't open.
        10 | 14 => Some(Outage::Io),
        13 => Some(Outage::Full),
        _ => None,
    }
}

fn outage_of_io(error: &io::Error) -> Outage {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Outage::Full,
        io::ErrorKind::ReadOnlyFilesystem | io::ErrorKind::PermissionDenied => Outage::ReadOnly,
        _ => Outage::Io,
    }
}

/// An error that several callers hear.
#[derive(Debug, Clone)]
pub(super) struct Failure(Arc<Error>);

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self(Arc::new(error))
    }
}

impl Failure {
    pub(super) fn outage(&self) -> Option<Outage> {
        match self.0.as_ref() {
            Error::Unavailable { outage, .. } => Some(*outage),
            _ => None,
        }
    }

    pub(super) fn to_error(&self) -> Error {
        let (operation, outage) = match self.0.as_ref() {
            Error::Unavailable {
                operation, outage, ..
            } => (*operation, *outage),
            // A group whose end was refused is as little there as one that could not be written.
            _ => ("commit a transaction", Outage::Other),
        };
        out(operation, outage, Shared(Arc::clone(&self.0)))
    }
}

/// The cause of a [`Failure`]; where that has no cause, the failure itself.
#[derive(Debug)]
struct Shared(Arc<Error>);

impl Shared {
    fn cause(&self) -> &(dyn std::error::Error + 'static) {
        let error: &(dyn std::error::Error + 'static) = self.0.as_ref();
        error.source().unwrap_or(error)
    }
}

impl std::fmt::Display for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self.cause(), f)
    }
}

impl std::error::Error for Shared {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.cause().source()
    }
}

/// An error at start, with what to do about it.
#[derive(Debug, thiserror::Error)]
#[error("{path}: {advice}")]
struct Advice {
    path: String,
    advice: &'static str,
    source: Box<dyn std::error::Error + Send + Sync>,
}

/// Says of an error at start which file it is about, and what to do.
pub(super) fn advise(path: &std::path::Path, error: Error) -> Error {
    match error {
        Error::Unavailable {
            operation,
            outage,
            source,
        } if outage.lasts() => {
            let advice = match outage {
                Outage::Full => "make room on its disk, or set another state_dir",
                Outage::ReadOnly => {
                    "it and its directory must be writable for this user; mount or own it so, or set \
                     another state_dir"
                }
                _ => {
                    "its disk, or its directory, can't be used; set another state_dir, or restore a backup"
                }
            };
            let source = Advice {
                path: path.display().to_string(),
                advice,
                source,
            };
            out(operation, outage, source)
        }
        other => other,
    }
}

/// How SQLite names the unique indexes that callers branch on: by the columns, or, where an index has an
/// expression, by its name.
const UNIQUE: &[(&str, Constraint)] = &[
    ("repositories.name", Constraint::RepositoryName),
    (
        "workflows.repository_id, workflows.number",
        Constraint::OneLiveWorkflow,
    ),
    ("workflows.predecessor_id", Constraint::OneSuccessor),
    ("attempts.subject_id", Constraint::OneLiveAttempt),
    ("effects.workflow_id", Constraint::OneOpenEffect),
    (
        "forge_items.repository_id, forge_items.head_ref",
        Constraint::OneOpenPullRequest,
    ),
    ("forge_items.request_id", Constraint::ItemRequest),
    ("forge_comments.request_id", Constraint::CommentRequest),
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
        for (code, outage) in [
            (517, Outage::Busy),
            (778, Outage::Io),
            (1032, Outage::ReadOnly),
            (13, Outage::Full),
            // SQLITE_INTERRUPT.
            (9, Outage::TooLong),
        ] {
            assert_eq!(outage_of(code), Some(outage), "{code}");
        }
        // SQLITE_ERROR, SQLITE_CORRUPT, SQLITE_CONSTRAINT_FOREIGNKEY, SQLITE_NOTADB.
        for code in [1, 11, 787, 26] {
            assert_eq!(outage_of(code), None, "{code}");
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
