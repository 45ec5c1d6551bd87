//! Errors to status codes: the only place. The message is the error's own text; the chain of causes goes
//! to the log alone, since it may hold paths and what a database said.

use std::{collections::HashMap, time::Duration};

use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt};

use crate::{
    dispatch::{claims::WaitError, watches::WatchError},
    domain::decision::Refusal,
    forge, logs,
    service::Error,
    store,
};

/// Names the owner of the reasons in `google.rpc.ErrorInfo`.
const DOMAIN: &str = "pointsman";

/// When to ask again where nothing better is known.
const RETRY_AFTER: Duration = Duration::from_secs(1);

pub(super) fn status(error: &Error) -> Status {
    let message = error.to_string();
    match error {
        Error::Invalid { field, reason } => Status::with_error_details(
            Code::InvalidArgument,
            message,
            ErrorDetails::with_bad_request_violation(field, reason),
        ),
        Error::NotFound { .. } => Status::not_found(message),
        Error::AlreadyExists { .. } => Status::already_exists(message),
        Error::ItemMerged { .. } => {
            with_reason(Code::FailedPrecondition, message, "ITEM_MERGED", [])
        }
        Error::WorkerInUse { .. } => with_reason(Code::AlreadyExists, message, "WORKER_IN_USE", []),
        Error::UnknownInstance { .. } => {
            with_reason(Code::FailedPrecondition, message, "UNKNOWN_INSTANCE", [])
        }
        Error::WorkerAlive { .. } => {
            with_reason(Code::FailedPrecondition, message, "WORKER_ALIVE", [])
        }
        Error::LeaseLost { .. } => with_reason(Code::FailedPrecondition, message, "LEASE_LOST", []),
        Error::VersionMismatch { .. } => Status::aborted(message),
        Error::Refused(refusal) => refused(refusal, message),
        Error::Store(error) => store_status(error),
        Error::Forge(error) => forge_status(error),
        Error::Logs(error) => logs_status(error),
        Error::TooMany { .. } => Status::with_error_details(
            Code::ResourceExhausted,
            message,
            ErrorDetails::with_retry_info(Some(RETRY_AFTER)),
        ),
        Error::Archive(error) => {
            logged(error);
            unavailable("the archive can't be written; the master's log says why")
        }
    }
}

fn refused(refusal: &Refusal, message: String) -> Status {
    match refusal {
        Refusal::IllegalTransition(illegal) => {
            let legal: Vec<&str> = illegal.legal.iter().map(|event| event.as_str()).collect();
            with_reason(
                Code::FailedPrecondition,
                message,
                "ILLEGAL_TRANSITION",
                [
                    ("state", illegal.state.as_str().to_owned()),
                    ("legal_events", legal.join(",")),
                ],
            )
        }
        Refusal::NotPossible { state, .. } => with_reason(
            Code::FailedPrecondition,
            message,
            "ILLEGAL_TRANSITION",
            [("state", state.as_str().to_owned())],
        ),
        Refusal::AttemptEnded { status } => with_reason(
            Code::FailedPrecondition,
            message,
            "ATTEMPT_ENDED",
            [("status", status.as_str().to_owned())],
        ),
        Refusal::NotOver { state, .. } => with_reason(
            Code::FailedPrecondition,
            message,
            "NOT_OVER",
            [("state", state.as_str().to_owned())],
        ),
        Refusal::LabelAbsent { .. } | Refusal::PausedByLabel => {
            with_reason(Code::FailedPrecondition, message, "LABEL_ABSENT", [])
        }
        Refusal::ItemOver { .. } => {
            with_reason(Code::FailedPrecondition, message, "ITEM_CLOSED", [])
        }
        Refusal::VerdictNotAllowed { .. } => Status::invalid_argument(message),
        Refusal::FlakeRetriesOutOfRange { .. } => Status::with_error_details(
            Code::InvalidArgument,
            message.clone(),
            ErrorDetails::with_bad_request_violation("remaining", message),
        ),
    }
}

fn with_reason<const N: usize>(
    code: Code,
    message: String,
    reason: &str,
    metadata: [(&str, String); N],
) -> Status {
    let metadata: HashMap<String, String> = metadata
        .into_iter()
        .map(|(key, value)| (key.to_owned(), value))
        .collect();
    Status::with_error_details(
        code,
        message,
        ErrorDetails::with_error_info(reason, DOMAIN, metadata),
    )
}

fn store_status(error: &store::Error) -> Status {
    match error {
        store::Error::Unavailable { outage, .. } => {
            if outage.lasts() {
                // Many calls fail of it; the store has logged it once.
                tracing::debug!(error = error as &dyn std::error::Error, "a call failed");
            } else {
                logged(error);
            }
            unavailable(&error.to_string())
        }
        store::Error::Locked { .. } => {
            logged(error);
            unavailable("the database is in use by another process")
        }
        store::Error::SnapshotUnderWay => Status::with_error_details(
            Code::ResourceExhausted,
            error.to_string(),
            ErrorDetails::with_retry_info(Some(RETRY_AFTER)),
        ),
        store::Error::LostRace(_) | store::Error::Constraint(_) => {
            Status::aborted(format!("{error}: read again"))
        }
        store::Error::Rejected { .. }
        | store::Error::Corrupt { .. }
        | store::Error::SchemaAhead { .. }
        | store::Error::Migrate(_) => {
            logged(error);
            Status::internal(
                "the database refused or holds what it should not; the master's log has it",
            )
        }
    }
}

fn forge_status(error: &forge::Error) -> Status {
    match error {
        forge::Error::Unavailable { .. } => {
            logged(error);
            unavailable("the repository can't be reached; the master's log says why")
        }
        forge::Error::Refused { .. } => Status::failed_precondition(error.to_string()),
        forge::Error::Store { source, .. } => store_status(source),
    }
}

fn logs_status(error: &logs::Error) -> Status {
    match error {
        logs::Error::Unavailable { .. } => {
            logged(error);
            unavailable("the log storage is not available; the master's log says why")
        }
        logs::Error::Gap { kept, .. } => with_reason(
            Code::FailedPrecondition,
            error.to_string(),
            "LOG_GAP",
            [("acknowledged_offset", kept.to_string())],
        ),
        logs::Error::Ended { .. } => {
            with_reason(Code::FailedPrecondition, error.to_string(), "LOG_ENDED", [])
        }
        logs::Error::Open(_) => {
            logged(error);
            Status::internal("the log storage can't be used; the master's log says why")
        }
    }
}

fn unavailable(message: &str) -> Status {
    Status::with_error_details(
        Code::Unavailable,
        message,
        ErrorDetails::with_retry_info(Some(RETRY_AFTER)),
    )
}

pub(super) fn watch_status(error: &WatchError) -> Status {
    match error {
        WatchError::TooManyWatchers | WatchError::NotRead => Status::with_error_details(
            Code::ResourceExhausted,
            error.to_string(),
            ErrorDetails::with_retry_info(Some(RETRY_AFTER)),
        ),
        WatchError::Draining => unavailable(&error.to_string()),
        WatchError::Service(error) => status(error),
    }
}

/// For streams that the master ends.
pub(super) fn shutting_down() -> Status {
    unavailable("the master shuts down: ask again")
}

pub(super) fn wait_status(error: &WaitError) -> Status {
    match error {
        WaitError::TooManyWaiters => Status::with_error_details(
            Code::ResourceExhausted,
            error.to_string(),
            ErrorDetails::with_retry_info(Some(RETRY_AFTER)),
        ),
        WaitError::Draining => unavailable(&error.to_string()),
        WaitError::Service(error) => status(error),
    }
}

fn logged(error: &(dyn std::error::Error + 'static)) {
    tracing::error!(error, "a call failed");
}
