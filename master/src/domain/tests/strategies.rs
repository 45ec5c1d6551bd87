//! Any workflow, and any input.

use proptest::prelude::*;

use super::*;
use crate::domain::{
    ci::{CheckFailure, CiReading, Conclusion},
    decision::{EffectResult, Gate, Immediate, LabelState, OperatorAction, Running, UpstreamFact},
    policy::MAX_FLAKE_RETRIES,
    verdict::Verdict,
    workflow::Upstream,
};

fn any_commit() -> impl Strategy<Value = CommitId> {
    (1_u128..4).prop_map(commit)
}

fn any_policy() -> impl Strategy<Value = Policy> {
    (
        1_u32..=3,
        0_u32..=2,
        0_u32..=2,
        1_u32..=3,
        0_u32..=2,
        0_u32..=2,
        0_u32..=2,
        any::<bool>(),
    )
        .prop_map(
            |(max_tier, red, review, conflict, flake, merge, moves, ceiling)| Policy {
                max_tier,
                ci_red_rounds: red,
                review_rounds: review,
                conflict_rounds: conflict,
                ci_flake_retries: Some(flake),
                merge_rounds: merge,
                head_moves: moves,
                ci_flake_hard_ceiling: ceiling,
                ..Policy::default()
            },
        )
}

/// Counters within the policy's bounds. The last conflict round is spent on entry to
/// CONFLICT_RESOLVING alone, which nothing but STUCK follows.
fn any_counters(policy: &Policy, underlying: State) -> impl Strategy<Value = Counters> + use<> {
    let least = u32::from(underlying == State::ConflictResolving);
    let most = match underlying {
        State::ConflictResolving | State::Stuck => policy.conflict_rounds,
        _ => policy.conflict_rounds - 1,
    };
    (
        0..=policy.ci_red_rounds,
        0..=policy.review_rounds,
        least..=most,
        0..=policy.flake_retries(),
        0..=policy.merge_rounds,
        0..=policy.head_moves,
    )
        .prop_map(|(red, review, conflict, flake, merge, moves)| Counters {
            ci_red_rounds: red,
            review_rounds: review,
            conflict_rounds: conflict,
            ci_flake_retries_remaining: flake,
            merge_rounds: merge,
            head_moves: moves,
        })
}

fn any_place() -> impl Strategy<Value = (State, Option<Pause>)> {
    let live: Vec<State> = (State::ALL.iter().copied())
        .filter(|state| state.can_be_paused())
        .collect();
    let unpaused: Vec<State> = (State::ALL.iter().copied())
        .filter(|&state| state != State::Paused)
        .collect();
    let by = prop::sample::select(PausedBy::ALL);
    prop_oneof![
        prop::sample::select(unpaused).prop_map(|state| (state, None)),
        (prop::sample::select(live), by)
            .prop_map(|(was, by)| (State::Paused, Some(Pause { was, by }))),
    ]
}

fn any_workflow(policy: Policy) -> impl Strategy<Value = (Policy, Workflow)> {
    any_place().prop_flat_map(move |(state, pause)| {
        let policy = policy.clone();
        let underlying = pause.map_or(state, |pause| pause.was);
        (
            prop::sample::select(Kind::ALL),
            1..=policy.max_tier,
            any_counters(&policy, underlying),
            prop::option::weighted(0.9, any_commit()),
            any::<bool>(),
            prop::sample::select(&[None, Some(Upstream::Closed), Some(Upstream::Merged)][..]),
        )
            .prop_map(move |(kind, tier, counters, head, is_own, upstream)| {
                let mut progress = progress(state);
                progress.pause = pause;
                progress.tier = tier;
                progress.counters = counters;
                progress.head = head;
                progress.upstream = upstream.filter(|_| state == State::Stuck);
                let mut identity = identity(kind);
                identity.parent = is_own.then_some(WorkflowId(Uuid::from_u128(9)));
                (
                    policy.clone(),
                    Workflow::restore(identity, progress).unwrap(),
                )
            })
    })
}

pub(super) fn any_case() -> impl Strategy<Value = (Policy, Workflow)> {
    any_policy().prop_flat_map(any_workflow)
}

pub(super) fn any_verdict() -> impl Strategy<Value = Verdict> {
    let text = String::new;
    prop_oneof![
        prop::option::of(0_u32..6).prop_map(move |tier| Verdict::Ready { tier, plan: text() }),
        any_commit().prop_map(move |commit| Verdict::Changed {
            commit,
            summary: text()
        }),
        prop::option::of(any_commit()).prop_map(|commit| Verdict::Resolved { commit }),
        prop::collection::vec("[a-z]{1,3}", 0..30).prop_map(|paths| Verdict::Conflict { paths }),
        prop::sample::select(vec![
            Verdict::ChangePresent,
            Verdict::Declined { reason: text() },
            Verdict::Unsure { reason: text() },
            Verdict::NoChange { reason: text() },
            Verdict::Failed { reason: text() },
            Verdict::Unresolved { reason: text() },
            Verdict::Retry { plan: text() },
            Verdict::GiveUp { reason: text() },
            Verdict::Approve { notes: text() },
            Verdict::RequestChanges { notes: text() },
            Verdict::Reject { reason: text() },
        ]),
    ]
}

fn any_effect_result() -> impl Strategy<Value = EffectResult> {
    let text = String::new;
    prop_oneof![
        any_commit().prop_map(|head| EffectResult::HeadMoved { head }),
        any_commit().prop_map(|head| EffectResult::PullRequestOpened { number: 8, head }),
        any_commit().prop_map(|commit| EffectResult::Merged { commit }),
        any_commit().prop_map(|head| EffectResult::Superseded { head }),
        prop::sample::select(vec![
            EffectResult::ChecksRerun,
            EffectResult::MergeBlocked { reason: text() },
            EffectResult::MergeConflict { paths: Vec::new() },
            EffectResult::MergeRefused { reason: text() },
            EffectResult::Spent { reason: text() },
        ]),
    ]
}

fn any_reading() -> impl Strategy<Value = CiReading> {
    let failure = CheckFailure {
        name: "build".to_owned(),
        conclusion: Conclusion::Failure,
        log_tail: String::new(),
    };
    prop_oneof![
        (any::<bool>(), 0_usize..30).prop_map(move |(is_flaky, n)| CiReading::Red {
            is_flaky,
            failures: vec![failure.clone(); n],
        }),
        prop::sample::select(vec![
            CiReading::Pending,
            CiReading::Green,
            CiReading::Exhausted {
                reason: String::new()
            },
        ]),
    ]
}

/// Inputs that may come twice, and mean the same the second time.
pub(super) fn any_repeatable() -> impl Strategy<Value = Input> {
    let label = prop::sample::select(&[LabelState::Present, LabelState::Absent][..]);
    prop_oneof![
        label.prop_map(Input::Label),
        Just(Input::Upstream(UpstreamFact::Closed)),
        Just(Input::ItemLeft),
        prop::option::of(any_commit())
            .prop_map(|commit| Input::Upstream(UpstreamFact::Merged { commit })),
        Just(Input::Operator(OperatorAction::Pause {
            running: Running::Left
        })),
        Just(Input::Operator(OperatorAction::Resume { gate: Gate::Open })),
        Just(Input::Operator(OperatorAction::Abandon)),
        Just(Input::Operator(OperatorAction::Unstick {
            gate: Gate::Open
        })),
        (0..=MAX_FLAKE_RETRIES + 1).prop_map(|remaining| {
            Input::Operator(OperatorAction::SetCiFlakeRetries { remaining })
        }),
        any_commit().prop_map(|head| Input::HeadSeen { head }),
        Just(Input::ConflictFound { paths: Vec::new() }),
    ]
}

pub(super) fn any_input() -> impl Strategy<Value = Input> {
    prop_oneof![
        3 => any_repeatable(),
        3 => (any_verdict(), prop::option::of(any_commit()))
            .prop_map(|(verdict, commit)| Input::Verdict { verdict, commit }),
        2 => any_effect_result().prop_map(Input::Effect),
        2 => (any_commit(), any_reading()).prop_map(|(head, reading)| Input::Ci { head, reading }),
        1 => prop::sample::select(vec![
            Input::Admit,
            Input::Operator(OperatorAction::Unstick { gate: Gate::LabelAbsent }),
            Input::Operator(OperatorAction::Resume { gate: Gate::ItemOver }),
            Input::Operator(OperatorAction::Pause { running: Running::Cancelled }),
            Input::PickupsSpent { pickup_count: 3, max_pickups: 3 },
            Input::BudgetSpent { reason: String::new() },
            Input::Immediate(Immediate::SkipEstimator),
            Input::Immediate(Immediate::NoTierLeft),
            Input::Immediate(Immediate::NoConflictRoundLeft),
        ]),
    ]
}
