//! What the harnesses of a random world do.

use pointsman_tests::world::{Script, Step};
use rand::{RngExt as _, rngs::StdRng};
use serde_json::json;

/// Runs in each role that go as chance wants; all later ones go well.
const RUNS: usize = 150;

/// Plans by chance for every role.
pub(super) fn random(script: &Script, rng: &mut StdRng) -> Script {
    script
        .clone()
        .with("estimator", plans(rng, estimator, || vec![Step::ready()]))
        .with("implementer", plans(rng, implementer, own))
        .with("reviewer", plans(rng, reviewer, || vec![Step::approve()]))
        .with("conflict_resolver", plans(rng, resolver, resolved))
        .with("escalator", plans(rng, escalator, || vec![Step::retry()]))
}

fn plans(
    rng: &mut StdRng,
    plan: impl Fn(&mut StdRng) -> Vec<Step>,
    good: impl Fn() -> Vec<Step>,
) -> Vec<Vec<Step>> {
    let mut plans: Vec<Vec<Step>> = (0..RUNS)
        .map(|_| {
            if rng.random_bool(0.08) {
                broken(rng)
            } else {
                plan(rng)
            }
        })
        .collect();
    plans.push(good());
    plans
}

/// A harness that gives no verdict.
fn broken(rng: &mut StdRng) -> Vec<Step> {
    match rng.random_range(0..5) {
        0 => vec![Step::Exit(1)],
        1 => vec![Step::Die],
        2 => vec![Step::Write("no JSON".to_owned())],
        3 => vec![
            Step::Commit {
                path: "lost.txt".to_owned(),
            },
            Step::Exit(3),
        ],
        _ => vec![Step::IgnoreTerm, Step::Print("bye".to_owned())],
    }
}

fn estimator(rng: &mut StdRng) -> Vec<Step> {
    match rng.random_range(0..20) {
        0 => vec![Step::Verdict(
            json!({ "verdict": "declined", "reason": "no" }),
        )],
        1 => vec![Step::Verdict(
            json!({ "verdict": "unsure", "reason": "hm" }),
        )],
        _ => vec![Step::ready()],
    }
}

fn own() -> Vec<Step> {
    vec![Step::CommitOwn, Step::changed()]
}

fn implementer(rng: &mut StdRng) -> Vec<Step> {
    match rng.random_range(0..10) {
        // All want the same line, so that they conflict.
        0..4 => Step::change("shared.txt"),
        4 => vec![Step::failed()],
        _ => own(),
    }
}

fn reviewer(rng: &mut StdRng) -> Vec<Step> {
    match rng.random_range(0..10) {
        0..2 => vec![Step::Verdict(
            json!({ "verdict": "request_changes", "notes": "more" }),
        )],
        2 => vec![Step::Verdict(
            json!({ "verdict": "reject", "reason": "no" }),
        )],
        _ => vec![Step::approve()],
    }
}

fn resolved() -> Vec<Step> {
    vec![Step::MergeBase, Step::resolved()]
}

fn resolver(rng: &mut StdRng) -> Vec<Step> {
    if rng.random_bool(0.2) {
        return vec![Step::Verdict(
            json!({ "verdict": "unresolved", "reason": "too hard" }),
        )];
    }
    resolved()
}

fn escalator(rng: &mut StdRng) -> Vec<Step> {
    if rng.random_bool(0.1) {
        return vec![Step::give_up()];
    }
    vec![Step::retry()]
}
