//! What must hold in the history of every workflow, whatever was killed meanwhile.

use std::collections::{BTreeMap, BTreeSet};

use pointsman_proto::v1::{Event, GetWorkflowResponse, WorkflowState};

use super::script::Invocation;

/// The most attempts that a workflow can have under the default policy, check runs apart.
const MAX_ATTEMPTS: usize = 52;

/// What people do that gives a workflow more attempts than the policy would.
const MORE: [&str; 4] = [
    "operator_unstick",
    "opt_in_label_restored",
    "operator_resumed",
    "attempt_cancelled",
];

/// Checks all that holds of one workflow at any time.
pub(super) fn check(workflow: &GetWorkflowResponse) {
    let context = format!("{workflow:#?}");
    transitions_join(&workflow.events, &context);
    fences_only_grow(&workflow.events, &context);
    outcomes_are_accepted_once(&workflow.events, &context);
    let n_attempts = workflow
        .attempts
        .iter()
        .filter(|attempt| attempt.check_name.is_empty())
        .count();
    let n_again = workflow
        .events
        .iter()
        .filter(|event| MORE.contains(&event.kind.as_str()))
        .count();
    assert!(n_attempts <= MAX_ATTEMPTS * (1 + n_again), "{context}");
    let n_live = workflow
        .attempts
        .iter()
        .filter(|attempt| attempt.check_name.is_empty())
        .filter(|attempt| matches!(attempt.status.as_str(), "pending" | "in_progress"))
        .count();
    assert!(n_live <= 1, "{context}");
}

/// Each event starts where the last one ended.
fn transitions_join(events: &[Event], context: &str) {
    let mut state = WorkflowState::Discovered;
    for event in events {
        assert_eq!(event.from_state(), state, "{}: {context}", event.kind);
        state = event.to_state();
    }
}

fn detail(event: &Event) -> serde_json::Value {
    serde_json::from_str(&event.detail_json).unwrap_or_default()
}

fn fences_only_grow(events: &[Event], context: &str) {
    let mut fences: BTreeMap<&str, u64> = BTreeMap::new();
    for event in events.iter().filter(|event| event.kind == "attempt_leased") {
        let fence = detail(event)["lock_fence"].as_u64().unwrap_or_default();
        let last = fences.insert(&event.attempt_id, fence);
        assert!(fence > last.unwrap_or_default(), "{context}");
    }
}

/// What a worker's verdict became is said by events of its attempt; an effect's result comes from the
/// effector, and is not the attempt's.
fn outcomes_are_accepted_once(events: &[Event], context: &str) {
    const NO_OUTCOME: [&str; 5] = [
        "attempt_leased",
        "attempt_released",
        "attempt_lost",
        "attempt_infrastructure_error",
        "attempt-pickup-exhausted",
    ];
    let mut seen = BTreeSet::new();
    for event in events {
        let is_outcome = event.actor.starts_with("worker:")
            && !event.attempt_id.is_empty()
            && !NO_OUTCOME.contains(&event.kind.as_str())
            && event.kind != "pickup_exhausted";
        if is_outcome {
            assert!(seen.insert(&event.attempt_id), "{}: {context}", event.kind);
        }
    }
}

/// No lease is ever run twice, and each run of an attempt has a higher fence than the one before.
pub(super) fn check_journal(journal: &[Invocation]) {
    let mut fences: BTreeMap<&str, u64> = BTreeMap::new();
    for run in journal {
        let last = fences.insert(&run.attempt, run.fence);
        assert!(
            run.fence > last.unwrap_or_default(),
            "{run:?} in {journal:#?}"
        );
    }
}
