//! What operators' services show, as wire types.

use pointsman_proto::v1;
use prost_types::Timestamp as WireTimestamp;

use super::fields::{FieldError, MAX_LIST, list, within};
use crate::{
    domain::{
        attempt::Role,
        ci::CheckDefinition,
        ids::LeaseKey,
        policy::{LeaseTtl, MergeMethod, Policy, PolicyField},
        time::Timestamp,
        transitions::State,
        workflow::Kind,
    },
    service::Waiting,
    store::model::{
        About, AttemptRow, EventRow, ForgeComment, ForgeItem, Repository, SessionRow, WorkflowRow,
    },
};

const MICROS: i64 = 1_000_000;

pub(super) fn timestamp(instant: Timestamp) -> WireTimestamp {
    WireTimestamp {
        seconds: instant.0.div_euclid(MICROS),
        nanos: i32::try_from(instant.0.rem_euclid(MICROS) * 1000).unwrap_or(0),
    }
}

pub(super) fn instant(field: &str, wire: WireTimestamp) -> Result<Timestamp, FieldError> {
    wire.seconds
        .checked_mul(MICROS)
        .and_then(|micros| micros.checked_add(i64::from(wire.nanos) / 1000))
        .map(Timestamp)
        .ok_or_else(|| FieldError::new(field, "lies outside of representable time"))
}

pub(super) fn state(state: State) -> v1::WorkflowState {
    match state {
        State::Discovered => v1::WorkflowState::Discovered,
        State::Analyzing => v1::WorkflowState::Analyzing,
        State::Implementing => v1::WorkflowState::Implementing,
        State::AwaitingCi => v1::WorkflowState::AwaitingCi,
        State::ConflictResolving => v1::WorkflowState::ConflictResolving,
        State::Escalating => v1::WorkflowState::Escalating,
        State::Reviewing => v1::WorkflowState::Reviewing,
        State::Merging => v1::WorkflowState::Merging,
        State::Paused => v1::WorkflowState::Paused,
        State::Merged => v1::WorkflowState::Merged,
        State::CreatedPr => v1::WorkflowState::CreatedPr,
        State::Abandoned => v1::WorkflowState::Abandoned,
        State::Stuck => v1::WorkflowState::Stuck,
    }
}

pub(super) fn domain_state(field: &str, wire: i32) -> Result<State, FieldError> {
    let wire = v1::WorkflowState::try_from(wire).unwrap_or_default();
    State::ALL
        .iter()
        .copied()
        .find(|known| state(*known) == wire)
        .ok_or_else(|| FieldError::new(field, "is no known state; leave it out for all"))
}

pub(super) fn kind(kind: Kind) -> v1::WorkflowKind {
    match kind {
        Kind::Issue => v1::WorkflowKind::Issue,
        Kind::PullRequest => v1::WorkflowKind::PullRequest,
    }
}

/// `None` where it is left out.
pub(super) fn optional_kind(field: &str, wire: i32) -> Result<Option<Kind>, FieldError> {
    match v1::WorkflowKind::try_from(wire) {
        Ok(v1::WorkflowKind::Unspecified) => Ok(None),
        Ok(v1::WorkflowKind::Issue) => Ok(Some(Kind::Issue)),
        Ok(v1::WorkflowKind::PullRequest) => Ok(Some(Kind::PullRequest)),
        Err(_) => Err(FieldError::new(field, "is no known kind of workflow")),
    }
}

pub(super) fn role(role: Role) -> v1::Role {
    match role {
        Role::Estimator => v1::Role::Estimator,
        Role::Implementer => v1::Role::Implementer,
        Role::Reviewer => v1::Role::Reviewer,
        Role::ConflictResolver => v1::Role::ConflictResolver,
        Role::Escalator => v1::Role::Escalator,
        Role::Ci => v1::Role::Ci,
    }
}

pub(super) fn domain_role(field: &str, wire: i32) -> Result<Role, FieldError> {
    let wire = v1::Role::try_from(wire).unwrap_or_default();
    Role::ALL
        .iter()
        .copied()
        .find(|known| role(*known) == wire)
        .ok_or_else(|| FieldError::new(field, "is no known role"))
}

pub(super) fn lease_key(key: LeaseKey) -> v1::LeaseKey {
    v1::LeaseKey {
        attempt_id: key.attempt.to_string(),
        lock_fence: key.fence.0,
        lock_nonce: key.nonce.to_string(),
    }
}

pub(super) fn workflow(row: &WorkflowRow) -> v1::Workflow {
    let workflow = &row.workflow;
    let progress = workflow.progress();
    v1::Workflow {
        id: workflow.id.to_string(),
        repository: row.repository_name.clone(),
        kind: kind(workflow.kind).into(),
        number: workflow.number,
        title: workflow.title.clone(),
        state: state(progress.state).into(),
        pre_pause_state: progress
            .pause
            .map_or(v1::WorkflowState::Unspecified, |pause| state(pause.was))
            .into(),
        paused_by: progress
            .pause
            .map(|pause| pause.by.to_string())
            .unwrap_or_default(),
        tier: progress.tier,
        counters: Some(v1::Counters {
            ci_red_rounds: progress.counters.ci_red_rounds,
            review_rounds: progress.counters.review_rounds,
            conflict_rounds: progress.counters.conflict_rounds,
            ci_flake_retries_remaining: progress.counters.ci_flake_retries_remaining,
            merge_rounds: progress.counters.merge_rounds,
            head_moves: progress.counters.head_moves,
        }),
        head_ref: workflow.head_ref.clone(),
        head_sha: text(progress.head.as_ref()),
        merged_commit: text(progress.merged_commit.as_ref()),
        parent_id: text(workflow.parent.as_ref()),
        version: row.version,
        created_at: Some(timestamp(workflow.created_at)),
        updated_at: Some(timestamp(row.updated_at)),
        pull_request_number: progress.pull_request.unwrap_or(0),
        priority: row.priority,
        predecessor_id: text(workflow.predecessor.as_ref()),
        successor_id: text(row.successor.as_ref()),
        archived_at: row.archived_at.map(timestamp),
    }
}

fn text(value: Option<&impl ToString>) -> String {
    value.map(ToString::to_string).unwrap_or_default()
}

pub(super) fn attempt(row: &AttemptRow) -> v1::Attempt {
    let attempt = &row.attempt;
    v1::Attempt {
        id: attempt.id.to_string(),
        workflow_id: attempt.workflow.to_string(),
        role: role(attempt.role).into(),
        tier: attempt.tier,
        status: attempt.status.to_string(),
        lock_fence: attempt.fence.0,
        pickup_count: attempt.pickup_count,
        lock_ttl_seconds: attempt.lock_ttl_seconds,
        outcome: attempt
            .outcome
            .as_ref()
            .map(|outcome| outcome.name.clone())
            .unwrap_or_default(),
        outcome_json: attempt
            .outcome
            .as_ref()
            .map(|outcome| outcome.detail.to_string())
            .unwrap_or_default(),
        worker_id: text(row.worker.as_ref()),
        check_name: row.check_name.clone().unwrap_or_default(),
        commit: text(attempt.commit.as_ref()),
        created_at: Some(timestamp(attempt.created_at)),
        started_at: attempt.started_at.map(timestamp),
        ended_at: attempt.ended_at.map(timestamp),
        not_before: attempt.not_before.map(timestamp),
    }
}

pub(super) fn event(row: &EventRow) -> v1::Event {
    let mut event = v1::Event {
        sequence: row.sequence,
        occurred_at: Some(timestamp(row.occurred_at)),
        kind: row.kind.clone(),
        actor: row.actor.clone(),
        reason: row.reason.clone(),
        detail_json: row.detail.to_string(),
        attempt_id: text(row.attempt.as_ref()),
        ..v1::Event::default()
    };
    match row.about {
        About::Workflow { id, from, to } => {
            event.workflow_id = id.to_string();
            event.from_state = state(from).into();
            event.to_state = state(to).into();
        }
        About::Repository(id) => event.repository_id = id.to_string(),
        About::Worker(id) => event.worker_id = id.to_string(),
    }
    event
}

pub(super) fn waiting(waiting: Waiting) -> v1::Waiting {
    v1::Waiting {
        text: waiting.text,
        since: Some(timestamp(waiting.since)),
        deadline: waiting.deadline.map(timestamp),
        next_look_at: waiting.next_look_at.map(timestamp),
    }
}

pub(super) fn session(row: &SessionRow) -> v1::Session {
    let progress = row.progress.as_ref();
    v1::Session {
        attempt_id: row.lease.key.attempt.to_string(),
        workflow_id: row.lease.workflow.to_string(),
        role: role(row.role).into(),
        tier: row.tier,
        worker_id: row.lease.worker.to_string(),
        worker_name: row.worker_name.clone(),
        host: row.host.clone(),
        phase: progress
            .map_or(v1::SessionPhase::Unspecified, |p| phase(&p.phase))
            .into(),
        subprocess_pid: progress.map_or(0, |p| p.subprocess_pid),
        subprocess_starttime: progress.map_or(0, |p| p.subprocess_starttime),
        lock_heartbeat_at: Some(timestamp(row.lease.heartbeat_at)),
        lock_ttl_seconds: row.lease.ttl_seconds,
        last_output_at: progress.and_then(|p| p.last_output_at).map(timestamp),
        log_bytes: progress.map_or(0, |p| p.log_bytes),
        lock_fence: row.lease.key.fence.0,
    }
}

fn phase(stored: &str) -> v1::SessionPhase {
    match stored {
        "preparing" => v1::SessionPhase::Preparing,
        "running" => v1::SessionPhase::Running,
        "finishing" => v1::SessionPhase::Finishing,
        _ => v1::SessionPhase::Unspecified,
    }
}

pub(super) fn repository(repository: &Repository, policy: &Policy) -> v1::RepositoryInfo {
    v1::RepositoryInfo {
        id: repository.id.to_string(),
        name: repository.name.clone(),
        git_url: repository.git_url.clone(),
        base_ref: repository.base_ref.clone(),
        checks: repository.checks.iter().map(check_definition).collect(),
        label: repository.label.clone(),
        policy: Some(wire_policy(policy)),
        created_at: Some(timestamp(repository.created_at)),
    }
}

fn wire_policy(policy: &Policy) -> v1::Policy {
    v1::Policy {
        max_tier: Some(policy.max_tier),
        ci_red_rounds: Some(policy.ci_red_rounds),
        review_rounds: Some(policy.review_rounds),
        conflict_rounds: Some(policy.conflict_rounds),
        ci_flake_retries: Some(policy.flake_retries()),
        merge_rounds: Some(policy.merge_rounds),
        head_moves: Some(policy.head_moves),
        effect_tries: Some(policy.effect_tries),
        max_pickups: Some(policy.max_pickups),
        ci_flake_hard_ceiling: Some(policy.ci_flake_hard_ceiling),
        ci_optional: Some(policy.ci_optional),
        flaky_checks: policy.flaky_checks.clone(),
        ci_poll_deadline_seconds: Some(policy.ci_poll_deadline_seconds),
        ci_idle_deadline_seconds: Some(policy.ci_idle_deadline_seconds),
        ci_appear_deadline_seconds: Some(policy.ci_appear_deadline_seconds),
        merge_deadline_seconds: Some(policy.merge_deadline_seconds),
        effect_deadline_seconds: Some(policy.effect_deadline_seconds),
        lease_ttls: policy.lease_ttls.iter().map(wire_ttl).collect(),
        max_live_workflows: Some(policy.max_live_workflows),
        delete_merged_branches: Some(policy.delete_merged_branches),
        merge_method: merge_method(policy.merge_method).into(),
    }
}

fn merge_method(method: MergeMethod) -> v1::MergeMethod {
    match method {
        MergeMethod::Merge => v1::MergeMethod::Merge,
        MergeMethod::Squash => v1::MergeMethod::Squash,
        MergeMethod::FastForward => v1::MergeMethod::FastForward,
    }
}

/// Unspecified is `default`; a number that this master does not know is refused.
fn domain_merge_method(wire: i32, default: MergeMethod) -> Result<MergeMethod, FieldError> {
    match v1::MergeMethod::try_from(wire) {
        Ok(v1::MergeMethod::Unspecified) => Ok(default),
        Ok(v1::MergeMethod::Merge) => Ok(MergeMethod::Merge),
        Ok(v1::MergeMethod::Squash) => Ok(MergeMethod::Squash),
        Ok(v1::MergeMethod::FastForward) => Ok(MergeMethod::FastForward),
        Err(_) => Err(FieldError::new(
            "policy.merge_method",
            format!("is {wire}; MERGE, SQUASH or FAST_FORWARD is expected"),
        )),
    }
}

fn check_definition(check: &CheckDefinition) -> v1::CheckDefinition {
    v1::CheckDefinition {
        name: check.name.clone(),
        command: check.command.clone(),
    }
}

fn wire_ttl(ttl: &LeaseTtl) -> v1::LeaseTtl {
    v1::LeaseTtl {
        role: role(ttl.role).into(),
        tier: ttl.tier.unwrap_or(0),
        seconds: ttl.seconds,
    }
}

pub(super) fn item(repository: &str, item: &ForgeItem) -> v1::Item {
    v1::Item {
        repository: repository.to_owned(),
        number: item.number,
        kind: kind(item.kind).into(),
        title: item.title.clone(),
        body: item.body.clone(),
        labels: item.labels.clone(),
        open: item.is_open,
        head_ref: item.head_ref.clone().unwrap_or_default(),
        base_ref: item.base_ref.clone(),
        merged_commit: item
            .merged_commit
            .as_ref()
            .map(ToString::to_string)
            .unwrap_or_default(),
        created_at: Some(timestamp(item.created_at)),
        updated_at: Some(timestamp(item.updated_at)),
    }
}

pub(super) fn comment(comment: &ForgeComment) -> v1::ItemComment {
    v1::ItemComment {
        comment: comment.comment,
        author: comment.author.clone(),
        body: comment.body.clone(),
        created_at: Some(timestamp(comment.created_at)),
    }
}

/// Which fields of a policy a request is about: those of its mask; without one, those that are set.
pub(super) fn policy_fields(
    wire: &v1::Policy,
    mask: Option<&prost_types::FieldMask>,
) -> Result<Vec<PolicyField>, FieldError> {
    let known = || PolicyField::ALL.iter().copied();
    let Some(mask) = mask else {
        return Ok(known().filter(|field| is_set(wire, *field)).collect());
    };
    list("update_mask", &mask.paths, MAX_LIST)?
        .iter()
        .map(|path| {
            let field = known().find(|field| field.as_str() == path);
            field.ok_or_else(|| {
                FieldError::new(
                    "update_mask",
                    format!("names {path:?}, which is no field of a policy"),
                )
            })
        })
        .collect()
}

fn is_set(wire: &v1::Policy, field: PolicyField) -> bool {
    match field {
        PolicyField::MaxTier => wire.max_tier.is_some(),
        PolicyField::CiRedRounds => wire.ci_red_rounds.is_some(),
        PolicyField::ReviewRounds => wire.review_rounds.is_some(),
        PolicyField::ConflictRounds => wire.conflict_rounds.is_some(),
        PolicyField::CiFlakeRetries => wire.ci_flake_retries.is_some(),
        PolicyField::MergeRounds => wire.merge_rounds.is_some(),
        PolicyField::HeadMoves => wire.head_moves.is_some(),
        PolicyField::EffectTries => wire.effect_tries.is_some(),
        PolicyField::MaxPickups => wire.max_pickups.is_some(),
        PolicyField::CiFlakeHardCeiling => wire.ci_flake_hard_ceiling.is_some(),
        PolicyField::CiOptional => wire.ci_optional.is_some(),
        PolicyField::FlakyChecks => !wire.flaky_checks.is_empty(),
        PolicyField::CiPollDeadlineSeconds => wire.ci_poll_deadline_seconds.is_some(),
        PolicyField::CiIdleDeadlineSeconds => wire.ci_idle_deadline_seconds.is_some(),
        PolicyField::CiAppearDeadlineSeconds => wire.ci_appear_deadline_seconds.is_some(),
        PolicyField::MergeDeadlineSeconds => wire.merge_deadline_seconds.is_some(),
        PolicyField::EffectDeadlineSeconds => wire.effect_deadline_seconds.is_some(),
        PolicyField::LeaseTtls => !wire.lease_ttls.is_empty(),
        PolicyField::MaxLiveWorkflows => wire.max_live_workflows.is_some(),
        PolicyField::DeleteMergedBranches => wire.delete_merged_branches.is_some(),
        PolicyField::MergeMethod => wire.merge_method != 0,
    }
}

/// A policy in which what is left out has its default.
pub(super) fn domain_policy(wire: v1::Policy) -> Result<Policy, FieldError> {
    let d = Policy::default();
    let mut lease_ttls = Vec::with_capacity(wire.lease_ttls.len());
    for ttl in &wire.lease_ttls {
        lease_ttls.push(LeaseTtl {
            role: domain_role("policy.lease_ttls.role", ttl.role)?,
            tier: (ttl.tier != 0).then_some(ttl.tier),
            seconds: within("policy.lease_ttls.seconds", ttl.seconds, 1, u32::MAX)?,
        });
    }
    Ok(Policy {
        max_tier: wire.max_tier.unwrap_or(d.max_tier),
        ci_red_rounds: wire.ci_red_rounds.unwrap_or(d.ci_red_rounds),
        review_rounds: wire.review_rounds.unwrap_or(d.review_rounds),
        conflict_rounds: wire.conflict_rounds.unwrap_or(d.conflict_rounds),
        ci_flake_retries: wire.ci_flake_retries,
        merge_rounds: wire.merge_rounds.unwrap_or(d.merge_rounds),
        head_moves: wire.head_moves.unwrap_or(d.head_moves),
        effect_tries: wire.effect_tries.unwrap_or(d.effect_tries),
        max_pickups: wire.max_pickups.unwrap_or(d.max_pickups),
        ci_flake_hard_ceiling: wire
            .ci_flake_hard_ceiling
            .unwrap_or(d.ci_flake_hard_ceiling),
        ci_optional: wire.ci_optional.unwrap_or(d.ci_optional),
        flaky_checks: wire.flaky_checks,
        ci_poll_deadline_seconds: wire
            .ci_poll_deadline_seconds
            .unwrap_or(d.ci_poll_deadline_seconds),
        ci_idle_deadline_seconds: wire
            .ci_idle_deadline_seconds
            .unwrap_or(d.ci_idle_deadline_seconds),
        ci_appear_deadline_seconds: wire
            .ci_appear_deadline_seconds
            .unwrap_or(d.ci_appear_deadline_seconds),
        merge_deadline_seconds: wire
            .merge_deadline_seconds
            .unwrap_or(d.merge_deadline_seconds),
        effect_deadline_seconds: wire
            .effect_deadline_seconds
            .unwrap_or(d.effect_deadline_seconds),
        lease_ttls,
        max_live_workflows: wire.max_live_workflows.unwrap_or(d.max_live_workflows),
        delete_merged_branches: wire
            .delete_merged_branches
            .unwrap_or(d.delete_merged_branches),
        merge_method: domain_merge_method(wire.merge_method, d.merge_method)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_that_says_nothing_is_the_default_one() {
        assert_eq!(domain_policy(v1::Policy::default()), Ok(Policy::default()));
    }

    #[test]
    fn a_policy_is_changed_where_it_is_set_or_masked() {
        let names = |wire: &v1::Policy, paths: Option<&[&str]>| {
            let mask = paths.map(|paths| prost_types::FieldMask {
                paths: paths.iter().map(|path| (*path).to_owned()).collect(),
            });
            policy_fields(wire, mask.as_ref())
                .map(|fields| fields.iter().map(|f| f.as_str()).collect::<Vec<_>>())
        };
        let nothing = v1::Policy::default();
        assert_eq!(names(&nothing, None), Ok(vec![]));
        let every: Vec<&str> = PolicyField::ALL.iter().map(|f| f.as_str()).collect();
        let full = wire_policy(&Policy {
            flaky_checks: vec!["a".to_owned()],
            lease_ttls: vec![LeaseTtl {
                role: Role::Ci,
                tier: None,
                seconds: 60,
            }],
            ..Policy::default()
        });
        assert_eq!(names(&full, None), Ok(every.clone()));
        assert_eq!(names(&nothing, Some(&every)), Ok(every));
        assert!(names(&nothing, Some(&["tiers"])).is_err());
    }

    #[test]
    fn a_policy_survives_the_wire() {
        let policy = Policy {
            ci_flake_retries: Some(4),
            flaky_checks: vec!["integration-*".to_owned()],
            lease_ttls: vec![LeaseTtl {
                role: Role::Implementer,
                tier: Some(2),
                seconds: 77,
            }],
            merge_method: MergeMethod::Squash,
            ..Policy::default()
        };
        assert_eq!(domain_policy(wire_policy(&policy)), Ok(policy));
    }

    #[test]
    fn every_state_and_role_has_its_own_wire_value() {
        for known in State::ALL {
            assert_eq!(domain_state("states", state(*known).into()), Ok(*known));
        }
        for known in Role::ALL {
            assert_eq!(domain_role("role", role(*known).into()), Ok(*known));
        }
        assert!(domain_state("states", 0).is_err());
        assert!(domain_role("role", 99).is_err());
    }

    #[test]
    fn instants_survive_the_wire_before_1970_too() {
        for micros in [0, 1, -1, 1_700_000_000_123_456, -1_500_000] {
            let wire = timestamp(Timestamp(micros));
            assert_eq!(instant("at", wire), Ok(Timestamp(micros)));
        }
        let far = WireTimestamp {
            seconds: i64::MAX,
            nanos: 0,
        };
        assert!(instant("at", far).is_err());
    }
}
