//! What is watched and which attempts are listed, from the wire and back to it.

use std::pin::Pin;

use pointsman_proto::v1::{ListAttemptsRequest, WatchWorkflowsResponse};
use tokio::sync::mpsc;
use tokio_stream::{Stream, StreamExt, wrappers::ReceiverStream};
use tonic::Status;

use super::{
    convert,
    fields::{FieldError, MAX_LIST, list, optional_id},
    status::watch_status,
};
use crate::{
    dispatch::watches::{Told, WatchError},
    domain::attempt::AttemptStatus,
    store::model::{AttemptFilter, ChangePoint},
};

pub(super) type WorkflowsStream =
    Pin<Box<dyn Stream<Item = Result<WatchWorkflowsResponse, Status>> + Send>>;

pub(super) fn stream(told: mpsc::Receiver<Result<Told, WatchError>>) -> WorkflowsStream {
    Box::pin(ReceiverStream::new(told).map(|told| match told {
        Ok(told) => Ok(WatchWorkflowsResponse {
            workflows: told.rows.iter().map(convert::workflow).collect(),
            resume_token: told.point.0.to_string(),
            is_current: told.is_current,
        }),
        Err(error) => Err(watch_status(&error)),
    }))
}

/// `None` where it is left out.
pub(super) fn point(field: &str, token: &str) -> Result<Option<ChangePoint>, FieldError> {
    if token.is_empty() {
        return Ok(None);
    }
    let is_number = token.bytes().all(|byte| byte.is_ascii_digit());
    token
        .parse()
        .ok()
        .filter(|_| is_number)
        .map(|point| Some(ChangePoint(point)))
        .ok_or_else(|| FieldError::new(field, "is no token of a watch; leave it out to begin anew"))
}

pub(super) fn attempt_filter(request: &ListAttemptsRequest) -> Result<AttemptFilter, FieldError> {
    let statuses = list("statuses", &request.statuses, MAX_LIST)?
        .iter()
        .map(|name| status(name))
        .collect::<Result<_, _>>()?;
    let roles = list("roles", &request.roles, MAX_LIST)?
        .iter()
        .map(|role| convert::domain_role("roles", *role))
        .collect::<Result<_, _>>()?;
    Ok(AttemptFilter {
        workflow: optional_id("workflow_id", &request.workflow_id)?,
        statuses,
        roles,
        worker: optional_id("worker_id", &request.worker_id)?,
    })
}

fn status(name: &str) -> Result<AttemptStatus, FieldError> {
    name.parse().map_err(|_| {
        let names: Vec<&str> = AttemptStatus::ALL.iter().map(|s| s.as_str()).collect();
        FieldError::new("statuses", format!("is none of {}", names.join(", ")))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_those_that_a_watch_gave() {
        assert_eq!(point("t", ""), Ok(None));
        assert_eq!(point("t", "17"), Ok(Some(ChangePoint(17))));
        for bad in ["+1", "-1", "x", " 1", "99999999999999999999999"] {
            assert!(point("t", bad).is_err(), "{bad:?}");
        }
    }
}
