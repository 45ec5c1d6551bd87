//! From how a session ended to what the master is told.

use std::path::Path;

use super::{
    End, log,
    run::{Ended, Why},
};
use crate::{
    assignment::{Assignment, Job},
    error::chain,
    harness::result::{self, InfrastructureError, ProviderClass, Said, Verdict},
    master::{FailureClass, Outcome},
    process::subreaper::Exit,
    shim::record::{Cause, ExitRecord},
    sidecar::SessionDir,
};

/// Most bytes of a harness's log in an error's message.
const MESSAGE_LOG_MAX: u64 = 2048;

/// Most bytes of a check's log in its result.
const CHECK_LOG_MAX: u64 = 16_384;

/// What follows from a session's end.
#[derive(Debug)]
pub(super) enum Judgement {
    /// Everything is known.
    Final(End),
    /// A verdict that comes with what HEAD of the checkout is.
    WithCommit(Verdict),
}

impl Judgement {
    pub(super) fn is_final(&self) -> bool {
        matches!(self, Self::Final(_))
    }

    fn failure(class: FailureClass, message: impl Into<String>) -> Self {
        Self::Final(End::failure(class, message))
    }
}

/// Judges a session by what it left in its directory.
pub(super) fn judge(ended: &Ended, assignment: &Assignment, directory: &SessionDir) -> Judgement {
    let log = directory.log();
    if let Why::Stopped(stop) = ended.why
        && !ended_by_itself(ended.record)
    {
        return Judgement::Final(End::stopped(stop));
    }
    let fails = |class, message: String| Judgement::failure(class, with_log(message, &log));
    match (ended.record, ended.why) {
        (Some(record), _) if record.cause == Cause::Harness => {
            judge_exit(record.exit, assignment, directory)
        }
        // It has said all that it had to say. What may still run could say something else.
        (_, Why::Lingering(_)) if !ended.unconfirmed => judge_result(assignment, directory),
        (_, Why::Lingering(limit)) => fails(
            FailureClass::TimedOut,
            format!("did not end within {} s of its result", limit.as_secs()),
        ),
        (_, Why::TimedOut(limit)) => fails(
            FailureClass::TimedOut,
            format!("did not end within {} s", limit.as_secs()),
        ),
        (_, Why::Silent(limit)) => fails(
            FailureClass::Silent,
            format!("no output for {} s", limit.as_secs()),
        ),
        (Some(record), _) if record.cause == Cause::Deadline => fails(
            FailureClass::LeaseLost,
            "no beat was acknowledged in time, so that the lease's deadline came".to_owned(),
        ),
        // Otherwise the record would name the deadline.
        (_, Why::Deadline) => fails(
            FailureClass::LeaseLost,
            "no beat was acknowledged in time, and the shim did not stop at the deadline"
                .to_owned(),
        ),
        (Some(_), _) => fails(
            FailureClass::Crashed,
            "somebody outside of the worker asked the shim to stop".to_owned(),
        ),
        (None, _) if ended.has_started => fails(
            FailureClass::Crashed,
            "ended with an unknown status: the shim left no exit record".to_owned(),
        ),
        (None, _) => fails(
            FailureClass::WorkspaceFailed,
            "the shim ended before the harness was started".to_owned(),
        ),
    }
}

fn ended_by_itself(record: Option<ExitRecord>) -> bool {
    record.is_some_and(|record| record.cause == Cause::Harness)
}

fn judge_exit(exit: Exit, assignment: &Assignment, directory: &SessionDir) -> Judgement {
    if let Job::Check { .. } = assignment.job {
        return Judgement::Final(End::Outcome(Outcome::Check {
            exit_status: shell_status(exit),
            log_tail: log::tail(&directory.log(), CHECK_LOG_MAX),
        }));
    }
    let crashed = |message: String| {
        let message = with_log(message, &directory.log());
        Judgement::failure(FailureClass::Crashed, message)
    };
    match exit {
        Exit::Exited(0) => judge_result(assignment, directory),
        Exit::Exited(status) => match read_result(assignment, directory) {
            // A harness that has no verdict may say so by its status, too.
            Ok(Said::InfrastructureError(error)) => no_verdict(error),
            Ok(Said::Verdict(_)) | Err(_) => crashed(format!("exited with status {status}")),
        },
        Exit::Signaled(signal) => crashed(format!("ended by signal {signal}")),
    }
}

fn read_result(assignment: &Assignment, directory: &SessionDir) -> Result<Said, result::Error> {
    let role = assignment.job.role();
    result::read(&directory.result(), role, assignment.item.kind)
}

fn judge_result(assignment: &Assignment, directory: &SessionDir) -> Judgement {
    match read_result(assignment, directory) {
        Ok(Said::InfrastructureError(error)) => no_verdict(error),
        Ok(Said::Verdict(verdict @ (Verdict::Changed { .. } | Verdict::Resolved {}))) => {
            Judgement::WithCommit(verdict)
        }
        Ok(Said::Verdict(verdict)) => Judgement::Final(End::Outcome(Outcome::Verdict {
            verdict,
            commit: None,
        })),
        Err(error) => {
            let message = with_log(chain(&error), &directory.log());
            Judgement::failure(FailureClass::NoValidResult, message)
        }
    }
}

/// What a harness said in a verdict's place.
fn no_verdict(error: InfrastructureError) -> Judgement {
    Judgement::Final(End::Outcome(Outcome::Failure {
        class: match error.class {
            ProviderClass::ProviderQuota => FailureClass::ProviderQuota,
            ProviderClass::ProviderOutage => FailureClass::ProviderOutage,
            ProviderClass::BadCredentials => FailureClass::BadCredentials,
            ProviderClass::PermissionDenied => FailureClass::PermissionDenied,
        },
        message: error.message,
        reset_at: error.reset_at.and_then(|at| at.try_into().ok()),
    }))
}

/// As a shell would have it.
fn shell_status(exit: Exit) -> u32 {
    let status = match exit {
        Exit::Exited(status) => status,
        Exit::Signaled(signal) => 128 + signal,
    };
    status.unsigned_abs()
}

fn with_log(message: String, log: &Path) -> String {
    let tail = log::tail(log, MESSAGE_LOG_MAX);
    if tail.is_empty() {
        message
    } else {
        format!("{message}; the log ends with:\n{tail}")
    }
}

#[cfg(test)]
mod tests;
