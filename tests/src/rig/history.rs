//! What is durable, and whether it can be true.

use std::collections::{HashMap, HashSet};

use pointsman_master::{
    domain::{
        attempt::{AttemptStatus, Subject},
        ids::{AttemptId, WorkflowId},
        transitions::State,
    },
    store::model::{About, AttemptRow, EventRow, OpenEffectRow, SessionRow, WorkflowRow},
};

use super::Rig;

/// All that a store holds about its workflows.
#[derive(Debug, Clone)]
pub struct History {
    pub workflows: Vec<WorkflowRow>,
    pub attempts: Vec<AttemptRow>,
    pub events: Vec<EventRow>,
    pub sessions: Vec<SessionRow>,
    pub effects: Vec<OpenEffectRow>,
}

impl History {
    pub(super) async fn read(rig: &Rig) -> Self {
        let store = &rig.store;
        let workflows = rig.workflows().await;
        let mut attempts = Vec::new();
        let mut effects = Vec::new();
        for row in &workflows {
            let id = row.workflow.id;
            attempts.extend(
                store
                    .attempts_of(id, 100_000)
                    .await
                    .expect("the store answers"),
            );
            effects.extend(store.open_effect_of(id).await.expect("the store answers"));
        }
        Self {
            workflows,
            attempts,
            events: store
                .events(None, 0, 1_000_000)
                .await
                .expect("the store answers"),
            sessions: store
                .sessions(None, None, u32::MAX)
                .await
                .expect("the store answers"),
            effects,
        }
    }

    /// What can't be, whatever happened; empty where all is well.
    pub fn faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        self.check_chains(&mut faults);
        self.check_attempts(&mut faults);
        self.check_leases(&mut faults);
        self.check_outcomes(&mut faults);
        self.check_fences(&mut faults);
        self.check_places(&mut faults);
        self.check_tiers(&mut faults);
        self.check_rests(&mut faults);
        self.check_items(&mut faults);
        self.check_successions(&mut faults);
        faults
    }

    /// What is left open although every workflow is over.
    pub fn loose_ends(&self) -> Vec<String> {
        let mut loose = Vec::new();
        for row in self
            .workflows
            .iter()
            .filter(|row| !row.workflow.state().is_terminal())
        {
            loose.push(format!("{} is {}", row.workflow.id, row.workflow.state()));
        }
        for row in self
            .attempts
            .iter()
            .filter(|row| row.attempt.status.is_live())
        {
            loose.push(format!(
                "attempt {} is {}",
                row.attempt.id, row.attempt.status
            ));
        }
        for session in &self.sessions {
            loose.push(format!("{:?} is leased", session.lease.key));
        }
        for effect in &self.effects {
            loose.push(format!(
                "{} of {} is open",
                effect.effect.name(),
                effect.workflow
            ));
        }
        loose
    }

    /// Each event starts where the one before it ended, and the last ends where the workflow is.
    fn check_chains(&self, faults: &mut Vec<String>) {
        let mut at: HashMap<WorkflowId, State> = HashMap::new();
        let mut sequence = 0;
        for event in &self.events {
            if event.sequence <= sequence {
                faults.push(format!("event {} follows {sequence}", event.sequence));
            }
            sequence = event.sequence;
            let About::Workflow {
                id,
                from: starts_in,
                to,
            } = event.about
            else {
                continue;
            };
            let from = at.insert(id, to).unwrap_or(State::Discovered);
            if starts_in != from {
                faults.push(format!(
                    "event {} {} starts in {starts_in}, not in {from}",
                    event.sequence, event.kind
                ));
            }
        }
        for row in &self.workflows {
            let state = row.workflow.state();
            if at.get(&row.workflow.id) != Some(&state) {
                faults.push(format!(
                    "{} is {state}, its events say otherwise",
                    row.workflow.id
                ));
            }
        }
    }

    /// One live attempt a subject, none of a workflow that is over; not more than the policy's bound.
    fn check_attempts(&self, faults: &mut Vec<String>) {
        let states: HashMap<WorkflowId, State> = self
            .workflows
            .iter()
            .map(|row| (row.workflow.id, row.workflow.state()))
            .collect();
        let mut live = HashSet::new();
        for row in &self.attempts {
            let attempt = &row.attempt;
            if attempt.status.is_live() && !live.insert((attempt.workflow, attempt.subject)) {
                faults.push(format!("{:?} has two live attempts", attempt.subject));
            }
            let is_over = states
                .get(&attempt.workflow)
                .is_none_or(|state| state.is_terminal());
            if attempt.status.is_live() && is_over {
                faults.push(format!("attempt {} outlives its workflow", attempt.id));
            }
        }
    }

    /// A lease row for each attempt in progress, and no other.
    fn check_leases(&self, faults: &mut Vec<String>) {
        let leased: HashSet<AttemptId> = self
            .sessions
            .iter()
            .map(|session| session.lease.key.attempt)
            .collect();
        for row in &self.attempts {
            let attempt = &row.attempt;
            let in_progress = attempt.status == AttemptStatus::InProgress;
            if in_progress != leased.contains(&attempt.id) {
                faults.push(format!(
                    "attempt {} is {}, and leased: {}",
                    attempt.id, attempt.status, !in_progress
                ));
            }
        }
        for session in &self.sessions {
            let attempt = self
                .attempts
                .iter()
                .find(|row| row.attempt.id == session.lease.key.attempt);
            if attempt.is_none_or(|row| row.attempt.fence != session.lease.key.fence) {
                faults.push(format!(
                    "{:?} is leased with another fence",
                    session.lease.key
                ));
            }
        }
    }

    /// An attempt moves its workflow, or opens an effect, once at most.
    fn check_outcomes(&self, faults: &mut Vec<String>) {
        let mut accepted: HashMap<AttemptId, Vec<&str>> = HashMap::new();
        for event in &self.events {
            let is_workers = event.actor.starts_with("worker:");
            let is_outcome = event.about.is_move() || event.kind == "effect_opened";
            if let Some(attempt) = event.attempt.filter(|_| is_workers && is_outcome) {
                accepted.entry(attempt).or_default().push(&event.kind);
            }
        }
        for (attempt, kinds) in accepted {
            if kinds.len() > 1 {
                faults.push(format!("attempt {attempt} had the outcomes {kinds:?}"));
            }
        }
    }

    /// Each lease of an attempt has a higher fence than the one before.
    fn check_fences(&self, faults: &mut Vec<String>) {
        let mut fences: HashMap<AttemptId, u64> = HashMap::new();
        for event in self
            .events
            .iter()
            .filter(|event| event.kind == "attempt_leased")
        {
            let (Some(attempt), Some(fence)) = (event.attempt, event.detail["lock_fence"].as_u64())
            else {
                faults.push(format!("event {} names no lease", event.sequence));
                continue;
            };
            let before = fences.insert(attempt, fence).unwrap_or(0);
            if fence <= before {
                faults.push(format!(
                    "attempt {attempt} was leased with {fence} after {before}"
                ));
            }
        }
    }

    /// Work is leased where it is wanted alone: never under PAUSED, never of what is over.
    fn check_places(&self, faults: &mut Vec<String>) {
        for event in self.events.iter().filter(|e| e.kind == "attempt_leased") {
            let state = event.about.states().map(|(from, _)| from);
            let wanted = match state {
                Some(State::AwaitingCi) => Some("ci"),
                _ => state.and_then(State::role).map(|role| role.as_str()),
            };
            if wanted.is_none() || event.detail["role"].as_str() != wanted {
                faults.push(format!(
                    "event {} leases {} in {state:?}",
                    event.sequence, event.detail["role"]
                ));
            }
        }
    }

    /// No later attempt of a workflow has a lower tier.
    fn check_tiers(&self, faults: &mut Vec<String>) {
        let mut tiers: HashMap<WorkflowId, u32> = HashMap::new();
        for row in &self.attempts {
            let attempt = &row.attempt;
            let highest = tiers.entry(attempt.workflow).or_insert(0);
            if attempt.tier < *highest {
                faults.push(format!(
                    "attempt {} has tier {} after {highest}",
                    attempt.id, attempt.tier
                ));
            }
            *highest = attempt.tier.max(*highest);
        }
    }

    /// Between a pause and its end nothing of a workflow is leased, whatever the row of the lease says.
    fn check_rests(&self, faults: &mut Vec<String>) {
        let mut rests = HashSet::new();
        for event in &self.events {
            let About::Workflow { id, from, to } = event.about else {
                continue;
            };
            if event.kind == "attempt_leased" && rests.contains(&id) {
                faults.push(format!("event {} leases under a pause", event.sequence));
            }
            match (from == State::Paused, to == State::Paused) {
                (false, true) => rests.insert(id),
                (true, false) => rests.remove(&id),
                (true, true) | (false, false) => false,
            };
        }
    }

    /// At every point one workflow of an item at most is not over.
    fn check_items(&self, faults: &mut Vec<String>) {
        let items: HashMap<WorkflowId, _> = self
            .workflows
            .iter()
            .map(|row| {
                (
                    row.workflow.id,
                    (row.workflow.repository, row.workflow.number),
                )
            })
            .collect();
        let mut live: HashMap<_, WorkflowId> = HashMap::new();
        for event in &self.events {
            let About::Workflow { id, to, .. } = event.about else {
                continue;
            };
            let Some(item) = items.get(&id) else {
                faults.push(format!("event {} is about no workflow", event.sequence));
                continue;
            };
            let other = live.get(item).copied().filter(|other| *other != id);
            match (to.is_terminal(), other) {
                (false, Some(other)) => faults.push(format!(
                    "event {}: {other} and {id} are under way for one item",
                    event.sequence
                )),
                (false, None) => {
                    live.insert(*item, id);
                }
                (true, None) => {
                    live.remove(item);
                }
                (true, Some(_)) => {}
            }
        }
    }

    /// A workflow follows one of the same item, after that has ended, and no other follows it.
    fn check_successions(&self, faults: &mut Vec<String>) {
        let mut followed = HashSet::new();
        for row in &self.workflows {
            let next = &row.workflow;
            let Some(before) = next.predecessor else {
                continue;
            };
            if !followed.insert(before) {
                faults.push(format!("{before} is followed twice"));
            }
            let earlier = self.workflows.iter().find(|row| row.workflow.id == before);
            let is_same_item = earlier.is_some_and(|earlier| {
                let earlier = &earlier.workflow;
                (earlier.repository, earlier.number) == (next.repository, next.number)
            });
            let began = self
                .events
                .iter()
                .position(|event| event.about.workflow() == Some(next.id))
                .unwrap_or_default();
            let state_then = self.events[..began]
                .iter()
                .rev()
                .find(|event| event.about.workflow() == Some(before))
                .and_then(|event| event.about.states())
                .map(|(_, to)| to);
            let had_ended = matches!(state_then, Some(State::Abandoned | State::CreatedPr));
            if !is_same_item || !had_ended {
                let id = next.id;
                faults.push(format!("{id} follows {before}, which was {state_then:?}"));
            }
        }
    }

    /// Attempts of a workflow that harnesses ran or may run, checks apart.
    pub fn attempts_of(&self, workflow: WorkflowId) -> impl Iterator<Item = &AttemptRow> {
        self.attempts.iter().filter(move |row| {
            row.attempt.workflow == workflow && row.attempt.subject == Subject::Workflow
        })
    }
}
