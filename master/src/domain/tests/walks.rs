//! The termination theorem: no walk of the real `decide` has more attempts than
//! [`Policy::max_attempts`] says, and the one with the worst luck has exactly as many.
//!
//! The search is exhaustive: from each (state, tier, counters) it tries every input that chance, a
//! harness or a forge can bring, and remembers the longest rest of the walk. What `decide` looks at
//! beside those three is held fixed: the recorded head, and facts, which no row depends on. What a
//! person does (pause, unstick, abandon) is luck of nobody and is left out.

use std::collections::HashMap;

use proptest::prelude::*;

use super::{luck::luck, *};
use crate::domain::{decide::immediate, decision::EventKind};

/// Everything that a row can depend on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Place {
    state: State,
    tier: u32,
    counters: Counters,
}

fn place_of(workflow: &Workflow) -> Place {
    let progress = workflow.progress();
    Place {
        state: progress.state,
        tier: progress.tier,
        counters: progress.counters,
    }
}

/// The three ways in which a workflow can begin.
#[derive(Debug, Clone, Copy)]
enum Origin {
    Issue,
    PullRequest,
    OwnPullRequest,
}

const ORIGINS: [Origin; 3] = [Origin::Issue, Origin::PullRequest, Origin::OwnPullRequest];

impl Origin {
    fn identity(self) -> Identity {
        match self {
            Self::Issue => identity(Kind::Issue),
            Self::PullRequest => identity(Kind::PullRequest),
            Self::OwnPullRequest => Identity {
                parent: Some(WorkflowId(Uuid::from_u128(9))),
                ..identity(Kind::PullRequest)
            },
        }
    }

    fn start(self, policy: &Policy) -> Workflow {
        Workflow::new(self.identity(), policy, 1, Some(commit(1)))
    }

    fn at(self, place: Place) -> Workflow {
        let mut progress = progress(place.state);
        progress.tier = place.tier;
        progress.counters = place.counters;
        Workflow::restore(self.identity(), progress).unwrap()
    }
}

type Step = fn(&Workflow, Input, &Policy) -> Option<Decision>;

fn step(workflow: &Workflow, input: Input, policy: &Policy) -> Option<Decision> {
    match decide(workflow, input, policy, NOW) {
        Ok(Outcome::Changed(decision)) => Some(*decision),
        Ok(Outcome::Unchanged) | Err(_) => None,
    }
}

/// How many attempts the decision that led to `after` starts.
fn attempts_started(decision: &Decision, after: &Workflow, policy: &Policy) -> u32 {
    let has_attempt = after.state().role().is_some() && immediate(after, policy).is_none();
    let starts = match decision.event {
        EventKind::Transition(_) => true,
        EventKind::Note(_) => decision.supersedes_attempt,
        EventKind::OutOfBand(_) => false,
    };
    u32::from(has_attempt && starts)
}

/// A walk came back to where it was: it has no end.
#[derive(Debug, PartialEq, Eq)]
struct Endless;

/// Longest walks from the places of one kind of workflow under one policy.
struct Search<'a> {
    origin: Origin,
    policy: &'a Policy,
    step: Step,
    /// `None` while the walk that is being looked at goes through the place.
    longest: HashMap<Place, Option<u32>>,
}

impl<'a> Search<'a> {
    fn new(origin: Origin, policy: &'a Policy, step: Step) -> Self {
        Self {
            origin,
            policy,
            step,
            longest: HashMap::new(),
        }
    }

    fn longest_from_start(&mut self) -> Result<u32, Endless> {
        self.from(place_of(&self.origin.start(self.policy)))
    }

    /// The most attempts that a walk from `place` can still start.
    fn from(&mut self, place: Place) -> Result<u32, Endless> {
        match self.longest.insert(place, None) {
            Some(Some(known)) => {
                self.longest.insert(place, Some(known));
                return Ok(known);
            }
            Some(None) => return Err(Endless),
            None => {}
        }
        let workflow = self.origin.at(place);
        let mut longest = 0;
        for input in luck(&workflow, self.policy) {
            let Some(decision) = (self.step)(&workflow, input, self.policy) else {
                continue;
            };
            let mut after = workflow.clone();
            after.apply(&decision);
            let started = attempts_started(&decision, &after, self.policy);
            let next = place_of(&after);
            if next == place && started == 0 {
                continue;
            }
            longest = longest.max(started + self.from(next)?);
        }
        self.longest.insert(place, Some(longest));
        Ok(longest)
    }
}

fn longest_walk(policy: &Policy) -> u32 {
    ORIGINS
        .into_iter()
        .map(|origin| {
            Search::new(origin, policy, step)
                .longest_from_start()
                .unwrap()
        })
        .max()
        .unwrap()
}

fn smallest() -> Policy {
    Policy {
        max_tier: 1,
        ci_red_rounds: 0,
        review_rounds: 0,
        conflict_rounds: 1,
        ci_flake_retries: Some(0),
        merge_rounds: 0,
        head_moves: 0,
        ..Policy::default()
    }
}

#[track_caller]
fn check_longest(policy: &Policy) {
    assert_eq!(longest_walk(policy), policy.max_attempts(), "{policy:?}");
}

/// Flake retries start no attempt (the grid below shows it for small policies), so that the search
/// leaves them out here and halves its work.
#[test]
fn the_longest_walk_with_the_defaults_has_52_attempts() {
    let policy = Policy {
        ci_flake_retries: Some(0),
        ..Policy::default()
    };
    assert_eq!(longest_walk(&policy), 52);
    assert_eq!(Policy::default().max_attempts(), 52);
}

#[test]
fn the_longest_walk_is_as_long_as_each_small_policy_says() {
    for bits in 0..32_u32 {
        let bit = |n: u32| (bits >> n) & 1;
        for conflict_rounds in 1..=3 {
            check_longest(&Policy {
                max_tier: 1 + bit(0),
                ci_red_rounds: bit(1),
                review_rounds: bit(2),
                conflict_rounds,
                merge_rounds: bit(3),
                head_moves: bit(4),
                ..smallest()
            });
        }
    }
}

#[test]
fn the_longest_walk_grows_with_each_bound_as_the_policy_says() {
    for n in [2, 3] {
        check_longest(&Policy {
            max_tier: n,
            conflict_rounds: 3,
            ..smallest()
        });
        check_longest(&Policy {
            ci_red_rounds: n,
            ..smallest()
        });
        check_longest(&Policy {
            review_rounds: n,
            ..smallest()
        });
        check_longest(&Policy {
            merge_rounds: n,
            conflict_rounds: 2,
            ..smallest()
        });
        check_longest(&Policy {
            head_moves: n,
            conflict_rounds: 3,
            ..smallest()
        });
    }
}

#[test]
fn flake_retries_make_no_walk_longer() {
    for ci_flake_retries in [0, 1, 2] {
        for ci_flake_hard_ceiling in [false, true] {
            check_longest(&Policy {
                max_tier: 2,
                ci_red_rounds: 1,
                merge_rounds: 1,
                ci_flake_retries: Some(ci_flake_retries),
                ci_flake_hard_ceiling,
                ..smallest()
            });
        }
    }
}

/// Follows the remembered lengths with one workflow that really moves.
#[test]
fn the_walk_with_the_worst_luck_reaches_the_bound() {
    let policy = Policy {
        ci_flake_retries: Some(0),
        head_moves: 2,
        merge_rounds: 2,
        ..Policy::default()
    };
    let mut search = Search::new(Origin::PullRequest, &policy, step);
    let mut left = search.longest_from_start().unwrap();
    let mut workflow = Origin::PullRequest.start(&policy);
    let mut attempts = 0;
    while left > 0 {
        let place = place_of(&workflow);
        let (next, started) = luck(&workflow, &policy)
            .into_iter()
            .find_map(|input| {
                let decision = step(&workflow, input, &policy)?;
                let mut after = workflow.clone();
                after.apply(&decision);
                let started = attempts_started(&decision, &after, &policy);
                let moves = started > 0 || place_of(&after) != place;
                let rest = search.from(place_of(&after)).unwrap();
                (moves && started + rest == left).then_some((after, started))
            })
            .expect("a place remembers a length that one of its inputs leads on to");
        workflow = next;
        attempts += started;
        left -= started;
    }
    assert_eq!(attempts, policy.max_attempts());
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(200) })]

    /// Luck that rather goes on than ends: a workflow that its harnesses give up at once proves little.
    #[test]
    fn a_random_walk_ends_within_the_bound(
        origin in prop::sample::select(&ORIGINS[..]),
        choices in prop::collection::vec(any::<prop::sample::Index>(), 300),
    ) {
        let policy = Policy::default();
        let mut workflow = origin.start(&policy);
        let mut attempts = 0;
        for choice in choices {
            let all: Vec<_> = luck(&workflow, &policy)
                .into_iter()
                .filter_map(|input| step(&workflow, input, &policy))
                .collect();
            let (ends, goes_on): (Vec<_>, Vec<_>) =
                all.into_iter().partition(|d| d.progress.state.is_terminal());
            let choosable = if goes_on.is_empty() { ends } else { goes_on };
            if choosable.is_empty() || workflow.state().is_terminal() {
                break;
            }
            let decision = choice.get(&choosable);
            workflow.apply(decision);
            attempts += attempts_started(decision, &workflow, &policy);
        }
        prop_assert!(attempts <= policy.max_attempts(), "{attempts} attempts");
    }
}

/// Forgets that a merge was blocked.
fn forgetful(workflow: &Workflow, input: Input, policy: &Policy) -> Option<Decision> {
    let mut decision = step(workflow, input, policy)?;
    decision.progress.counters.merge_rounds = 0;
    Some(decision)
}

#[test]
fn a_counter_that_does_not_count_is_noticed_as_a_walk_without_end() {
    let policy = Policy {
        merge_rounds: 1,
        ..smallest()
    };
    let mut search = Search::new(Origin::PullRequest, &policy, forgetful);
    assert_eq!(search.longest_from_start(), Err(Endless));
}

/// Lets a red verdict through once more than the policy says, at each tier.
fn generous(workflow: &Workflow, input: Input, policy: &Policy) -> Option<Decision> {
    let generous = Policy {
        ci_red_rounds: policy.ci_red_rounds + 1,
        ..policy.clone()
    };
    step(workflow, input, &generous)
}

#[test]
fn a_bound_that_lets_one_more_through_is_noticed_as_a_longer_walk() {
    let policy = smallest();
    let longest = Search::new(Origin::PullRequest, &policy, generous).longest_from_start();
    assert_eq!(longest, Ok(policy.max_attempts() + 1));
}
