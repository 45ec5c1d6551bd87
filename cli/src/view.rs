//! What the master answers, as this program shows it.
//!
//! These types are the JSON of `-o json`, which scripts depend on: keys are added, never renamed. The
//! wire's own types stay out of sight, so that a change there is a decision here.

mod fleet;

use jiff::Timestamp;
use pointsman_proto::v1;
use serde::Serialize;
use serde_json::Value;

use crate::name;
pub(crate) use fleet::{Hold, Queue, Stats, Worker};

/// A repository and its bounds.
#[derive(Debug, Serialize)]
pub(crate) struct Repository {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) git_url: String,
    pub(crate) base_ref: String,
    pub(crate) checks: Vec<Check>,
    pub(crate) label: String,
    pub(crate) created_at: Option<String>,
    pub(crate) policy: Option<Policy>,
}

impl From<v1::RepositoryInfo> for Repository {
    fn from(info: v1::RepositoryInfo) -> Self {
        Self {
            id: info.id,
            name: info.name,
            git_url: info.git_url,
            base_ref: info.base_ref,
            checks: info.checks.into_iter().map(Check::from).collect(),
            label: info.label,
            created_at: instant(info.created_at),
            policy: info.policy.map(Policy::from),
        }
    }
}

/// A check that runs on every head.
#[derive(Debug, Serialize)]
pub(crate) struct Check {
    pub(crate) name: String,
    pub(crate) command: String,
}

impl From<v1::CheckDefinition> for Check {
    fn from(check: v1::CheckDefinition) -> Self {
        Self {
            name: check.name,
            command: check.command,
        }
    }
}

/// Bounds of a repository's workflows.
#[derive(Debug, Serialize)]
pub(crate) struct Policy {
    max_tier: Option<u32>,
    ci_red_rounds: Option<u32>,
    review_rounds: Option<u32>,
    conflict_rounds: Option<u32>,
    ci_flake_retries: Option<u32>,
    merge_rounds: Option<u32>,
    head_moves: Option<u32>,
    effect_tries: Option<u32>,
    max_pickups: Option<u32>,
    ci_flake_hard_ceiling: Option<bool>,
    ci_optional: Option<bool>,
    flaky_checks: Vec<String>,
    ci_poll_deadline_seconds: Option<u64>,
    ci_idle_deadline_seconds: Option<u64>,
    ci_appear_deadline_seconds: Option<u64>,
    merge_deadline_seconds: Option<u64>,
    effect_deadline_seconds: Option<u64>,
    lease_ttls: Vec<LeaseTtl>,
    max_live_workflows: Option<u32>,
    delete_merged_branches: Option<bool>,
    merge_method: Option<String>,
}

impl From<v1::Policy> for Policy {
    fn from(policy: v1::Policy) -> Self {
        Self {
            max_tier: policy.max_tier,
            ci_red_rounds: policy.ci_red_rounds,
            review_rounds: policy.review_rounds,
            conflict_rounds: policy.conflict_rounds,
            ci_flake_retries: policy.ci_flake_retries,
            merge_rounds: policy.merge_rounds,
            head_moves: policy.head_moves,
            effect_tries: policy.effect_tries,
            max_pickups: policy.max_pickups,
            ci_flake_hard_ceiling: policy.ci_flake_hard_ceiling,
            ci_optional: policy.ci_optional,
            flaky_checks: policy.flaky_checks,
            ci_poll_deadline_seconds: policy.ci_poll_deadline_seconds,
            ci_idle_deadline_seconds: policy.ci_idle_deadline_seconds,
            ci_appear_deadline_seconds: policy.ci_appear_deadline_seconds,
            merge_deadline_seconds: policy.merge_deadline_seconds,
            effect_deadline_seconds: policy.effect_deadline_seconds,
            lease_ttls: policy.lease_ttls.into_iter().map(LeaseTtl::from).collect(),
            max_live_workflows: policy.max_live_workflows,
            delete_merged_branches: policy.delete_merged_branches,
            merge_method: name::merge_method(policy.merge_method),
        }
    }
}

/// Time-to-live of the leases of a role.
#[derive(Debug, Serialize)]
pub(crate) struct LeaseTtl {
    role: Option<String>,
    /// Null: at every tier.
    tier: Option<u32>,
    seconds: u32,
}

impl From<v1::LeaseTtl> for LeaseTtl {
    fn from(ttl: v1::LeaseTtl) -> Self {
        Self {
            role: name::role(ttl.role),
            tier: (ttl.tier != 0).then_some(ttl.tier),
            seconds: ttl.seconds,
        }
    }
}

/// An issue or a pull request of the built-in forge.
#[derive(Debug, Serialize)]
pub(crate) struct Item {
    pub(crate) repository: String,
    pub(crate) number: u64,
    pub(crate) kind: Option<String>,
    pub(crate) title: String,
    /// Null in lists.
    pub(crate) body: Option<String>,
    pub(crate) labels: Vec<String>,
    pub(crate) open: bool,
    pub(crate) head_ref: Option<String>,
    pub(crate) base_ref: String,
    pub(crate) merged_commit: Option<String>,
    pub(crate) created_at: Option<String>,
    pub(crate) updated_at: Option<String>,
}

impl Item {
    /// `open`, `closed` or `merged`.
    pub(crate) fn state(&self) -> &'static str {
        match (self.open, &self.merged_commit) {
            (true, _) => "open",
            (false, None) => "closed",
            (false, Some(_)) => "merged",
        }
    }
}

impl From<v1::Item> for Item {
    fn from(item: v1::Item) -> Self {
        Self {
            repository: item.repository,
            number: item.number,
            kind: name::kind(item.kind),
            title: item.title,
            body: some(item.body),
            labels: item.labels,
            open: item.open,
            head_ref: some(item.head_ref),
            base_ref: item.base_ref,
            merged_commit: some(item.merged_commit),
            created_at: instant(item.created_at),
            updated_at: instant(item.updated_at),
        }
    }
}

/// What was said about an item.
#[derive(Debug, Serialize)]
pub(crate) struct Comment {
    pub(crate) comment: u64,
    pub(crate) author: String,
    pub(crate) body: String,
    pub(crate) created_at: Option<String>,
}

impl From<v1::ItemComment> for Comment {
    fn from(comment: v1::ItemComment) -> Self {
        Self {
            comment: comment.comment,
            author: comment.author,
            body: comment.body,
            created_at: instant(comment.created_at),
        }
    }
}

/// One issue or pull request on its way.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Workflow {
    pub(crate) id: String,
    pub(crate) repository: String,
    pub(crate) kind: Option<String>,
    pub(crate) number: u64,
    pub(crate) title: String,
    pub(crate) state: Option<String>,
    pub(crate) pre_pause_state: Option<String>,
    pub(crate) paused_by: Option<String>,
    pub(crate) tier: u32,
    pub(crate) counters: Option<Counters>,
    pub(crate) head_ref: Option<String>,
    pub(crate) head_sha: Option<String>,
    pub(crate) merged_commit: Option<String>,
    pub(crate) parent_id: Option<String>,
    pub(crate) pull_request_number: Option<u64>,
    pub(crate) priority: i32,
    pub(crate) predecessor_id: Option<String>,
    pub(crate) successor_id: Option<String>,
    pub(crate) archived_at: Option<String>,
    pub(crate) version: u64,
    pub(crate) created_at: Option<String>,
    pub(crate) updated_at: Option<String>,
}

impl From<v1::Workflow> for Workflow {
    fn from(workflow: v1::Workflow) -> Self {
        let pull_request = workflow.pull_request_number;
        Self {
            id: workflow.id,
            repository: workflow.repository,
            kind: name::kind(workflow.kind),
            number: workflow.number,
            title: workflow.title,
            state: name::state(workflow.state),
            pre_pause_state: name::state(workflow.pre_pause_state),
            paused_by: some(workflow.paused_by),
            tier: workflow.tier,
            counters: workflow.counters.map(Counters::from),
            head_ref: some(workflow.head_ref),
            head_sha: some(workflow.head_sha),
            merged_commit: some(workflow.merged_commit),
            parent_id: some(workflow.parent_id),
            pull_request_number: (pull_request != 0).then_some(pull_request),
            priority: workflow.priority,
            predecessor_id: some(workflow.predecessor_id),
            successor_id: some(workflow.successor_id),
            archived_at: instant(workflow.archived_at),
            version: workflow.version,
            created_at: instant(workflow.created_at),
            updated_at: instant(workflow.updated_at),
        }
    }
}

/// How often each bounded row was taken.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Counters {
    pub(crate) ci_red_rounds: u32,
    pub(crate) review_rounds: u32,
    pub(crate) conflict_rounds: u32,
    pub(crate) ci_flake_retries_remaining: u32,
    pub(crate) merge_rounds: u32,
    pub(crate) head_moves: u32,
}

impl From<v1::Counters> for Counters {
    fn from(counters: v1::Counters) -> Self {
        Self {
            ci_red_rounds: counters.ci_red_rounds,
            review_rounds: counters.review_rounds,
            conflict_rounds: counters.conflict_rounds,
            ci_flake_retries_remaining: counters.ci_flake_retries_remaining,
            merge_rounds: counters.merge_rounds,
            head_moves: counters.head_moves,
        }
    }
}

/// Why a workflow does not move.
#[derive(Debug, Serialize)]
pub(crate) struct Waiting {
    pub(crate) text: String,
    pub(crate) since: Option<String>,
    pub(crate) deadline: Option<String>,
    pub(crate) next_look_at: Option<String>,
}

impl From<v1::Waiting> for Waiting {
    fn from(waiting: v1::Waiting) -> Self {
        Self {
            text: waiting.text,
            since: instant(waiting.since),
            deadline: instant(waiting.deadline),
            next_look_at: instant(waiting.next_look_at),
        }
    }
}

/// One attempt at a step.
#[derive(Debug, Serialize)]
pub(crate) struct Attempt {
    pub(crate) id: String,
    pub(crate) workflow_id: String,
    pub(crate) role: Option<String>,
    pub(crate) tier: u32,
    pub(crate) status: String,
    pub(crate) lock_fence: u64,
    pub(crate) pickup_count: u32,
    pub(crate) lock_ttl_seconds: u32,
    pub(crate) outcome: Option<String>,
    pub(crate) outcome_detail: Option<Value>,
    pub(crate) worker_id: Option<String>,
    pub(crate) check_name: Option<String>,
    pub(crate) commit: Option<String>,
    pub(crate) created_at: Option<String>,
    pub(crate) started_at: Option<String>,
    pub(crate) ended_at: Option<String>,
    pub(crate) not_before: Option<String>,
}

impl From<v1::Attempt> for Attempt {
    fn from(attempt: v1::Attempt) -> Self {
        Self {
            id: attempt.id,
            workflow_id: attempt.workflow_id,
            role: name::role(attempt.role),
            tier: attempt.tier,
            status: attempt.status,
            lock_fence: attempt.lock_fence,
            pickup_count: attempt.pickup_count,
            lock_ttl_seconds: attempt.lock_ttl_seconds,
            outcome: some(attempt.outcome),
            outcome_detail: document(attempt.outcome_json),
            worker_id: some(attempt.worker_id),
            check_name: some(attempt.check_name),
            commit: some(attempt.commit),
            created_at: instant(attempt.created_at),
            started_at: instant(attempt.started_at),
            ended_at: instant(attempt.ended_at),
            not_before: instant(attempt.not_before),
        }
    }
}

/// One row of the history.
#[derive(Debug, Serialize)]
pub(crate) struct Event {
    pub(crate) sequence: u64,
    pub(crate) workflow_id: Option<String>,
    pub(crate) occurred_at: Option<String>,
    pub(crate) kind: String,
    pub(crate) from_state: Option<String>,
    pub(crate) to_state: Option<String>,
    pub(crate) actor: String,
    pub(crate) reason: Option<String>,
    pub(crate) detail: Option<Value>,
    pub(crate) attempt_id: Option<String>,
    pub(crate) repository_id: Option<String>,
    pub(crate) worker_id: Option<String>,
}

impl From<v1::Event> for Event {
    fn from(event: v1::Event) -> Self {
        Self {
            sequence: event.sequence,
            workflow_id: some(event.workflow_id),
            occurred_at: instant(event.occurred_at),
            kind: event.kind,
            from_state: name::state(event.from_state),
            to_state: name::state(event.to_state),
            actor: event.actor,
            reason: some(event.reason),
            detail: document(event.detail_json),
            attempt_id: some(event.attempt_id),
            repository_id: some(event.repository_id),
            worker_id: some(event.worker_id),
        }
    }
}

/// One harness that runs, or is about to.
#[derive(Debug, Serialize)]
pub(crate) struct Session {
    pub(crate) attempt_id: String,
    pub(crate) lock_fence: u64,
    pub(crate) workflow_id: String,
    pub(crate) role: Option<String>,
    pub(crate) tier: u32,
    pub(crate) worker_id: String,
    pub(crate) worker_name: String,
    pub(crate) host: String,
    pub(crate) phase: Option<String>,
    pub(crate) subprocess_pid: Option<u32>,
    pub(crate) subprocess_starttime: Option<u64>,
    pub(crate) lock_heartbeat_at: Option<String>,
    pub(crate) lock_ttl_seconds: u32,
    pub(crate) last_output_at: Option<String>,
    pub(crate) log_bytes: u64,
}

impl From<v1::Session> for Session {
    fn from(session: v1::Session) -> Self {
        let has_process = session.subprocess_pid != 0;
        Self {
            attempt_id: session.attempt_id,
            lock_fence: session.lock_fence,
            workflow_id: session.workflow_id,
            role: name::role(session.role),
            tier: session.tier,
            worker_id: session.worker_id,
            worker_name: session.worker_name,
            host: session.host,
            phase: name::phase(session.phase),
            subprocess_pid: has_process.then_some(session.subprocess_pid),
            subprocess_starttime: has_process.then_some(session.subprocess_starttime),
            lock_heartbeat_at: instant(session.lock_heartbeat_at),
            lock_ttl_seconds: session.lock_ttl_seconds,
            last_output_at: instant(session.last_output_at),
            log_bytes: session.log_bytes,
        }
    }
}

/// What one run of a sweep did.
#[derive(Debug, Serialize)]
pub(crate) struct SweepReport {
    pub(crate) name: String,
    pub(crate) examined: u64,
    pub(crate) changed: u64,
    pub(crate) failed: u64,
    pub(crate) error: Option<String>,
}

impl From<v1::SweepReport> for SweepReport {
    fn from(report: v1::SweepReport) -> Self {
        Self {
            name: report.name,
            examined: report.examined,
            changed: report.changed,
            failed: report.failed,
            error: some(report.error),
        }
    }
}

/// The state machine as data.
#[derive(Debug, Serialize)]
pub(crate) struct Machine {
    pub(crate) states: Vec<State>,
    pub(crate) transitions: Vec<Transition>,
    pub(crate) out_of_band_events: Vec<String>,
    pub(crate) max_attempts: u32,
}

impl From<v1::DescribeStateMachineResponse> for Machine {
    fn from(machine: v1::DescribeStateMachineResponse) -> Self {
        Self {
            states: machine.states.into_iter().map(State::from).collect(),
            transitions: machine
                .transitions
                .into_iter()
                .map(Transition::from)
                .collect(),
            out_of_band_events: machine.out_of_band_events,
            max_attempts: machine.max_attempts,
        }
    }
}

/// A state of the machine.
#[derive(Debug, Serialize)]
pub(crate) struct State {
    pub(crate) state: Option<String>,
    pub(crate) terminal: bool,
    pub(crate) role: Option<String>,
}

impl From<v1::StateDescription> for State {
    fn from(state: v1::StateDescription) -> Self {
        Self {
            state: name::state(state.state),
            terminal: state.terminal,
            role: name::role(state.role),
        }
    }
}

/// A row of the machine's table.
#[derive(Debug, Serialize)]
pub(crate) struct Transition {
    pub(crate) from_state: Option<String>,
    pub(crate) event: String,
    pub(crate) to_state: Option<String>,
    pub(crate) bound: Option<String>,
    pub(crate) limit: Option<u32>,
    pub(crate) only_kind: Option<String>,
}

impl From<v1::TransitionDescription> for Transition {
    fn from(row: v1::TransitionDescription) -> Self {
        let is_bounded = !row.bound.is_empty();
        Self {
            from_state: name::state(row.from_state),
            event: row.event,
            to_state: name::state(row.to_state),
            bound: some(row.bound),
            limit: is_bounded.then_some(row.limit),
            only_kind: name::kind(row.only_kind),
        }
    }
}

/// A cell of a table: `-` where there is nothing.
pub(crate) fn cell<T: ToString>(value: Option<T>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}

/// An instant to the second, for tables.
pub(crate) fn cell_instant(instant: Option<&str>) -> String {
    let parsed = instant.and_then(|text| text.parse::<Timestamp>().ok());
    cell(parsed.map(|timestamp| format!("{timestamp:.0}")))
}

/// A commit as people name it.
pub(crate) fn cell_commit(commit: Option<&str>) -> String {
    const DIGITS: usize = 12;
    cell(commit.map(|commit| commit.get(..DIGITS).unwrap_or(commit)))
}

/// Empty text on the wire means that there is none.
fn some(text: String) -> Option<String> {
    (!text.is_empty()).then_some(text)
}

/// RFC 3339 in UTC.
fn instant(timestamp: Option<prost_types::Timestamp>) -> Option<String> {
    let timestamp = timestamp?;
    Timestamp::new(timestamp.seconds, timestamp.nanos)
        .ok()
        .map(|timestamp| timestamp.to_string())
}

/// JSON in JSON. What is no JSON is kept as text.
fn document(text: String) -> Option<Value> {
    let text = some(text)?;
    Some(serde_json::from_str(&text).unwrap_or(Value::String(text)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_json_of_a_workflow_is_stable() {
        let workflow = v1::Workflow {
            id: "id".to_owned(),
            repository: "demo".to_owned(),
            kind: v1::WorkflowKind::PullRequest.into(),
            number: 2,
            title: "t".to_owned(),
            state: v1::WorkflowState::AwaitingCi.into(),
            tier: 1,
            counters: Some(v1::Counters {
                ci_red_rounds: 1,
                ..v1::Counters::default()
            }),
            head_ref: "h".to_owned(),
            version: 7,
            created_at: Some(prost_types::Timestamp {
                seconds: 1_700_000_000,
                nanos: 500_000_000,
            }),
            ..v1::Workflow::default()
        };
        let expected = json!({
            "id": "id", "repository": "demo", "kind": "PULL_REQUEST", "number": 2, "title": "t",
            "state": "AWAITING_CI", "pre_pause_state": null, "paused_by": null, "tier": 1,
            "counters": {
                "ci_red_rounds": 1, "review_rounds": 0, "conflict_rounds": 0,
                "ci_flake_retries_remaining": 0, "merge_rounds": 0, "head_moves": 0,
            },
            "head_ref": "h", "head_sha": null, "merged_commit": null, "parent_id": null,
            "pull_request_number": null, "priority": 0, "predecessor_id": null, "successor_id": null,
            "archived_at": null, "version": 7,
            "created_at": "2023-11-14T22:13:20.5Z", "updated_at": null,
        });
        assert_eq!(
            serde_json::to_value(Workflow::from(workflow)).unwrap(),
            expected
        );
    }

    #[test]
    fn the_json_of_an_event_holds_its_facts_as_json() {
        let event = v1::Event {
            sequence: 3,
            kind: "ci_green".to_owned(),
            from_state: v1::WorkflowState::AwaitingCi.into(),
            to_state: v1::WorkflowState::Reviewing.into(),
            actor: "sweep:ci_poller".to_owned(),
            detail_json: r#"{"head":"abc"}"#.to_owned(),
            ..v1::Event::default()
        };
        let expected = json!({
            "sequence": 3, "workflow_id": null, "occurred_at": null, "kind": "ci_green",
            "from_state": "AWAITING_CI", "to_state": "REVIEWING", "actor": "sweep:ci_poller",
            "reason": null, "detail": {"head": "abc"}, "attempt_id": null, "repository_id": null,
            "worker_id": null,
        });
        assert_eq!(serde_json::to_value(Event::from(event)).unwrap(), expected);
    }

    #[test]
    fn a_session_names_its_process() {
        let session = v1::Session {
            attempt_id: "a".to_owned(),
            lock_fence: 4,
            subprocess_pid: 12,
            subprocess_starttime: 34,
            ..v1::Session::default()
        };
        let json = serde_json::to_value(Session::from(session)).unwrap();
        assert_eq!(
            (&json["lock_fence"], &json["subprocess_pid"]),
            (&json!(4), &json!(12))
        );
        assert_eq!(json["subprocess_starttime"], json!(34));
    }

    #[test]
    fn cells_are_short() {
        assert_eq!(cell(None::<String>), "-");
        assert_eq!(cell_commit(Some(&"a".repeat(40))), "a".repeat(12));
        assert_eq!(
            cell_instant(Some("2023-11-14T22:13:20.5Z")),
            "2023-11-14T22:13:20Z"
        );
        assert_eq!(cell_instant(None), "-");
    }
}
