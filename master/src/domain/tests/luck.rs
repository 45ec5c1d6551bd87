//! What can happen to a workflow next, people apart: the steps of the walks.

use super::*;
use crate::domain::{
    attempt::Role,
    ci::CiReading,
    decide::immediate,
    decision::{EffectResult, UpstreamFact},
    verdict::Verdict,
};

/// Every input that chance, a harness or a forge can bring. A step that the machine takes by itself
/// leaves no choice. Verdicts of other roles than the state's, and all inputs in a terminal state, are
/// left out to save time: `properties.rs` shows that they lead nowhere.
pub(super) fn luck(workflow: &Workflow, policy: &Policy) -> Vec<Input> {
    if workflow.state().is_terminal() {
        return Vec::new();
    }
    if let Some(step) = immediate(workflow, policy) {
        return vec![Input::Immediate(step)];
    }
    let mut inputs = seen_on_forge(workflow);
    if let Some(role) = workflow.state().role() {
        inputs.extend(verdicts(workflow, policy, role));
    }
    inputs.push(Input::Admit);
    inputs.push(Input::PickupsSpent {
        pickup_count: 3,
        max_pickups: 3,
    });
    inputs.push(Input::BudgetSpent {
        reason: String::new(),
    });
    inputs
}

/// The recorded head, and one that it can move to.
fn heads(workflow: &Workflow) -> (CommitId, CommitId) {
    let head = workflow.progress().head.clone().unwrap();
    let number = u128::from_str_radix(head.as_str(), 16).unwrap();
    (head, commit(number + 1))
}

fn verdicts(workflow: &Workflow, policy: &Policy, role: Role) -> Vec<Input> {
    let (head, new) = heads(workflow);
    let why = String::new;
    let verdicts = match role {
        Role::Estimator => vec![
            Verdict::Ready {
                tier: None,
                plan: why(),
            },
            Verdict::Ready {
                tier: Some(policy.max_tier),
                plan: why(),
            },
            Verdict::ChangePresent,
            Verdict::Declined { reason: why() },
            Verdict::Unsure { reason: why() },
        ],
        Role::Implementer => vec![
            Verdict::Changed {
                commit: new,
                summary: why(),
            },
            Verdict::NoChange { reason: why() },
            Verdict::Failed { reason: why() },
            Verdict::Conflict { paths: Vec::new() },
        ],
        Role::ConflictResolver => vec![
            Verdict::Resolved { commit: None },
            Verdict::Resolved { commit: Some(new) },
            Verdict::Unresolved { reason: why() },
        ],
        Role::Escalator => vec![
            Verdict::Retry { plan: why() },
            Verdict::GiveUp { reason: why() },
        ],
        Role::Reviewer => vec![
            Verdict::Approve { notes: why() },
            Verdict::RequestChanges { notes: why() },
            Verdict::Reject { reason: why() },
        ],
        Role::Ci => Vec::new(),
    };
    let for_other_head = (role == Role::Reviewer).then(|| Input::Verdict {
        verdict: Verdict::Approve { notes: why() },
        commit: None,
    });
    verdicts
        .into_iter()
        .map(|verdict| Input::Verdict {
            verdict,
            commit: Some(head.clone()),
        })
        .chain(for_other_head)
        .collect()
}

fn seen_on_forge(workflow: &Workflow) -> Vec<Input> {
    let (head, new) = heads(workflow);
    let why = String::new;
    let red = |is_flaky| CiReading::Red {
        is_flaky,
        failures: Vec::new(),
    };
    let readings = [
        CiReading::Pending,
        CiReading::Green,
        red(false),
        red(true),
        CiReading::Exhausted { reason: why() },
    ];
    let results = [
        EffectResult::HeadMoved { head: new.clone() },
        EffectResult::PullRequestOpened {
            number: 8,
            head: new.clone(),
        },
        EffectResult::ChecksRerun,
        EffectResult::Merged {
            commit: new.clone(),
        },
        EffectResult::Superseded { head: new.clone() },
        EffectResult::MergeBlocked { reason: why() },
        EffectResult::MergeConflict { paths: Vec::new() },
        EffectResult::MergeRefused { reason: why() },
        EffectResult::Spent { reason: why() },
    ];
    let readings = readings.into_iter().map(|reading| Input::Ci {
        head: head.clone(),
        reading,
    });
    readings
        .chain(results.into_iter().map(Input::Effect))
        .chain([
            Input::ConflictFound { paths: Vec::new() },
            Input::HeadSeen { head: new },
            Input::Upstream(UpstreamFact::Closed),
            Input::Upstream(UpstreamFact::Merged { commit: None }),
        ])
        .collect()
}
