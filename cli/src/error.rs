//! Why a command did not do what was asked: one line for people, one exit code for scripts.

use std::{error::Error as StdError, io};

use tonic::{Code, Status};
use tonic_types::StatusExt as _;

use crate::{exit::Exit, output};

/// Why a command did not do what was asked.
#[derive(Debug)]
pub(crate) enum Error {
    /// What was typed can't be meant.
    Usage(String),
    /// The master answered, and it is not there.
    NotFound(String),
    /// What was waited for has ended, and not well.
    Ended(String),
    /// It can't be done in the present state of this machine.
    Refused(String),
    /// No master answers there.
    Unreachable {
        address: String,
        source: tonic::transport::Error,
    },
    /// The master answered with an error.
    Status(Box<Status>),
    /// Standard output could not be written.
    Output(io::Error),
    /// Anything else.
    Failed(anyhow::Error),
}

impl From<Status> for Error {
    fn from(status: Status) -> Self {
        Self::Status(Box::new(status))
    }
}

impl From<anyhow::Error> for Error {
    fn from(error: anyhow::Error) -> Self {
        Self::Failed(error)
    }
}

impl Error {
    /// Says it on standard error, and how the program is to end. A reader who had enough is no error.
    pub(crate) fn report(&self) -> Exit {
        if let Self::Output(error) = self
            && error.kind() == io::ErrorKind::BrokenPipe
        {
            return Exit::Done;
        }
        output::error_line(&one_line(&self.message()));
        self.exit()
    }

    fn exit(&self) -> Exit {
        match self {
            Self::Usage(_) => Exit::Usage,
            Self::NotFound(_) => Exit::NotFound,
            Self::Ended(_) => Exit::Ended,
            Self::Refused(_) => Exit::Refused,
            Self::Unreachable { .. } => Exit::Unreachable,
            Self::Status(status) => exit_of(status.code()),
            Self::Output(_) | Self::Failed(_) => Exit::Failed,
        }
    }

    /// What went wrong and what can be done about it, for people.
    pub(crate) fn message(&self) -> String {
        match self {
            Self::Usage(text) | Self::NotFound(text) | Self::Refused(text) | Self::Ended(text) => {
                text.clone()
            }
            Self::Unreachable { address, source } => format!(
                "no master answers at {address} ({}): start one with `pointsman master`, \
                 or name another with --address or POINTSMAN_ADDRESS",
                innermost(source)
            ),
            Self::Status(status) => status_message(status),
            Self::Output(error) => format!("write to standard output: {error}"),
            Self::Failed(error) => format!("{error:#}"),
        }
    }
}

const fn exit_of(code: Code) -> Exit {
    match code {
        Code::Ok => Exit::Done,
        Code::InvalidArgument | Code::OutOfRange => Exit::Usage,
        Code::NotFound => Exit::NotFound,
        Code::FailedPrecondition | Code::Aborted | Code::AlreadyExists => Exit::Refused,
        // A call that got no answer in time is ended by the client itself with Cancelled.
        Code::Unavailable | Code::DeadlineExceeded | Code::Cancelled => Exit::Unreachable,
        Code::Unknown
        | Code::PermissionDenied
        | Code::ResourceExhausted
        | Code::Unimplemented
        | Code::Internal
        | Code::DataLoss
        | Code::Unauthenticated => Exit::Failed,
    }
}

/// What can be done about it, where the master's own words don't say.
const fn advice(code: Code) -> Option<&'static str> {
    match code {
        Code::InvalidArgument => Some("`--help` says what the command takes"),
        Code::NotFound => {
            Some("`pointsman repo list` and `pointsman workflows` show what there is")
        }
        Code::FailedPrecondition => Some("`pointsman workflow ID` shows where it stands"),
        Code::Aborted => Some("it changed meanwhile: look again, then repeat"),
        Code::Unavailable | Code::DeadlineExceeded | Code::Cancelled | Code::ResourceExhausted => {
            Some("repeat it in a moment")
        }
        Code::Unimplemented => Some("master and command are of different versions"),
        Code::Unknown | Code::Internal | Code::DataLoss => Some("the master's log has the cause"),
        Code::Ok
        | Code::OutOfRange
        | Code::AlreadyExists
        | Code::PermissionDenied
        | Code::Unauthenticated => None,
    }
}

fn status_message(status: &Status) -> String {
    let mut text = match status.message() {
        "" => status.code().description().to_owned(),
        message => message.to_owned(),
    };
    // Fields that the message tells of already are not repeated.
    let fields: Vec<String> = status
        .get_details_bad_request()
        .into_iter()
        .flat_map(|request| request.field_violations)
        .map(|violation| format!("{}: {}", violation.field, violation.description))
        .filter(|field| !text.contains(field.as_str()))
        .collect();
    if !fields.is_empty() {
        text = format!("{text} ({})", fields.join("; "));
    }
    if let Some(advice) = advice(status.code()) {
        text = format!("{text}; {advice}");
    }
    text
}

/// The cause that says most: transports wrap it several times.
fn innermost(error: &dyn StdError) -> String {
    let mut error = error;
    while let Some(source) = error.source() {
        error = source;
    }
    error.to_string()
}

/// What clap says, without its "error:", tips and usage.
pub(crate) fn first_paragraph(text: &str) -> String {
    let text = text.strip_prefix("error: ").unwrap_or(text);
    let paragraph = text.split("\n\n").next().unwrap_or(text);
    format!("{}; `--help` says what is taken", one_line(paragraph))
}

/// Line ends and other control characters become spaces.
fn one_line(text: &str) -> String {
    let words: Vec<&str> = text
        .split(|c: char| c.is_control() || c == ' ')
        .filter(|word| !word.is_empty())
        .collect();
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use tonic_types::{ErrorDetails, StatusExt as _};

    use super::*;

    fn check(error: Error, exit: Exit, parts: &[&str]) {
        let line = one_line(&error.message());
        assert_eq!(error.exit(), exit, "{line}");
        assert!(!line.contains('\n'), "{line:?}");
        for part in parts {
            assert!(line.contains(part), "{part:?} in {line:?}");
        }
    }

    #[test]
    fn each_status_has_its_exit_code() {
        let expected = [
            (Code::InvalidArgument, Exit::Usage),
            (Code::NotFound, Exit::NotFound),
            (Code::FailedPrecondition, Exit::Refused),
            (Code::Aborted, Exit::Refused),
            (Code::AlreadyExists, Exit::Refused),
            (Code::Unavailable, Exit::Unreachable),
            (Code::Internal, Exit::Failed),
        ];
        for (code, exit) in expected {
            check(
                Status::new(code, "the message").into(),
                exit,
                &["the message"],
            );
        }
    }

    #[test]
    fn fields_are_named_once() {
        let mut details = ErrorDetails::new();
        details.add_bad_request_violation("title", "1 to 256 bytes");
        details.add_bad_request_violation("body", "at most 65536 bytes");
        let status =
            Status::with_error_details(Code::InvalidArgument, "body: at most 65536 bytes", details);
        let error = Error::from(status);
        check(
            error,
            Exit::Usage,
            &["body: at most 65536 bytes (title: 1 to 256 bytes)"],
        );
    }

    #[test]
    fn an_error_is_one_line_whatever_the_master_says() {
        let error = Error::from(Status::internal("first\nsecond\u{1b}[31m"));
        check(error, Exit::Failed, &["first second [31m"]);
        let error = Error::Failed(anyhow::anyhow!("inner\n").context("outer"));
        check(error, Exit::Failed, &["outer: inner"]);
    }

    #[test]
    fn a_status_without_words_still_says_something() {
        check(
            Status::new(Code::NotFound, "").into(),
            Exit::NotFound,
            &["not found"],
        );
    }

    #[test]
    fn a_reader_who_had_enough_is_no_error() {
        let error = Error::Output(io::ErrorKind::BrokenPipe.into());
        assert_eq!(error.report(), Exit::Done);
    }
}
