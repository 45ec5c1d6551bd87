//! A session's last words: the push, and Complete or Release.

use std::{sync::Arc, time::Duration};

use tokio::time::{sleep, timeout};

use super::{
    End,
    control::{Orders, Stop},
};
use crate::{
    assignment::{Commit, LeaseKey},
    error::chain,
    harness::result::Verdict,
    master::{Error, FailureClass, Masters, NotUnderstood, Outcome},
    retry::Retry,
    workspace::{self, Checkout, CollectError},
};

/// How often a push is tried. The repository can be away for a moment; for longer, the attempt is
/// better made again.
const PUSH_TRIES: u32 = 5;

/// How long a session that must go may take for its last call.
const FAREWELL: Duration = Duration::from_secs(5);

/// Pushes what HEAD of the checkout is, as far as the verdict asks for it.
pub(super) async fn push(verdict: Verdict, checkout: &Checkout, push_ref: &str) -> Outcome {
    let head = match checkout.collect().await {
        Ok(head) => head,
        Err(error @ CollectError::Compare(_)) => {
            return failure(FailureClass::WorkspaceFailed, &error);
        }
        Err(error) => return failure(FailureClass::NoValidResult, &error),
    };
    let is_untouched = head == *checkout.commit();
    match verdict {
        Verdict::Changed { .. } if is_untouched => Outcome::failure(
            FailureClass::NoValidResult,
            "verdict is \"changed\", but HEAD is still the commit that was checked out: nothing was \
             committed",
        ),
        verdict if is_untouched => Outcome::Verdict {
            verdict,
            commit: None,
        },
        verdict => match push_patiently(checkout, &head, push_ref).await {
            Ok(()) => Outcome::Verdict {
                verdict,
                commit: Some(head),
            },
            Err(error) => failure(FailureClass::WorkspaceFailed, &error),
        },
    }
}

async fn push_patiently(
    checkout: &Checkout,
    head: &Commit,
    push_ref: &str,
) -> Result<(), workspace::Error> {
    let mut retry = Retry::new();
    for _ in 1..PUSH_TRIES {
        match checkout.push(head, push_ref).await {
            Ok(()) => return Ok(()),
            Err(error) => tracing::warn!(error = chain(&error), "push failed, trying again"),
        }
        sleep(retry.after_failure()).await;
    }
    checkout.push(head, push_ref).await
}

fn failure(class: FailureClass, error: &dyn std::error::Error) -> Outcome {
    Outcome::failure(class, chain(error))
}

/// Tells the master how the session ended, until it answers, the lease is over, or the worker goes.
pub(super) async fn report(
    masters: &Masters,
    key: &LeaseKey,
    end: End,
    harness_duration: Option<Duration>,
    orders: &mut Orders,
) {
    match end {
        End::Outcome(outcome) => {
            let stop = tokio::select! {
                biased;
                () = tell(masters, key, &outcome, harness_duration) => return,
                stop = orders.stopped() => stop,
            };
            tracing::info!(?stop, "no time left for the master to take the outcome");
            match stop {
                Stop::Draining => last_try(masters.complete(key, &outcome, harness_duration)).await,
                Stop::Cancelled | Stop::LeaseLost => {}
            }
        }
        End::Returned(reason) => last_try(masters.release(key, reason)).await,
        End::Unwanted => {}
    }
}

/// Returns once the master has answered. An outcome that it refuses ends the lease all the same, as a
/// failure that says why.
async fn tell(
    masters: &Masters,
    key: &LeaseKey,
    outcome: &Outcome,
    harness_duration: Option<Duration>,
) {
    let Err(refusal) = tell_patiently(masters, key, outcome, harness_duration).await else {
        return;
    };
    tracing::error!(refusal, "outcome is refused");
    let instead = Outcome::failure(
        FailureClass::NoValidResult,
        format!("master refused the outcome: {refusal}"),
    );
    if let Err(refusal) = tell_patiently(masters, key, &instead, harness_duration).await {
        tracing::error!(
            refusal,
            "failure is refused too: the lease ends by its time-to-live"
        );
    }
}

/// Returns once the master has answered, with what it refuses about the outcome.
async fn tell_patiently(
    masters: &Masters,
    key: &LeaseKey,
    outcome: &Outcome,
    harness_duration: Option<Duration>,
) -> Result<(), String> {
    let mut retry = Retry::new();
    loop {
        match masters.complete(key, outcome, harness_duration).await {
            Ok(()) => return Ok(()),
            Err(Error::LeaseLost(reason)) => {
                tracing::info!(%reason, "outcome comes too late");
                return Ok(());
            }
            Err(Error::Refused(reason)) => return Err(reason),
            Err(error) => tracing::warn!(%error, "outcome is not taken yet"),
        }
        sleep(retry.after_failure()).await;
    }
}

/// One call, bounded. Where it fails, the lease ends by its time-to-live.
async fn last_try(call: impl Future<Output = Result<(), Error>>) {
    match timeout(FAREWELL, call).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::warn!(%error, "last call about the lease failed"),
        Err(_) => tracing::warn!("last call about the lease had no answer"),
    }
}

/// Ends a lease that is not understood, so that people see why.
pub(crate) async fn refuse(masters: Arc<Masters>, lease: NotUnderstood) {
    tracing::error!(?lease, "lease is not understood");
    if let Some(key) = &lease.key {
        let message = format!(
            "worker does not understand field {} of the lease",
            lease.field
        );
        let outcome = Outcome::failure(FailureClass::WorkspaceFailed, message);
        last_try(masters.complete(key, &outcome, None)).await;
    }
}
