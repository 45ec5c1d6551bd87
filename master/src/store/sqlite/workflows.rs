//! Workflows.

use sqlx::{SqliteConnection, sqlite::SqliteRow};

use super::{
    attempts,
    error::{During, one_row},
    repositories,
    rows::{Columns, Values, after as after_number, after_id, wanted},
};
use crate::{
    domain::{
        ids::{RepositoryId, WorkflowId},
        time::Timestamp,
        transitions::State,
        workflow::{Counters, Identity, Pause, PausedBy, Progress, Upstream, Workflow},
    },
    store::{
        Error,
        model::{ChangePoint, Changes, LockedWorkflow, WorkflowFilter, WorkflowRow},
    },
};

macro_rules! select_workflow {
    ($rest:literal) => {
        concat!(
            "
SELECT w.id, w.repository_id, w.kind, w.number, w.title, w.body, w.head_ref, w.base_ref, w.parent_id,
    w.predecessor_id, w.priority, w.state, w.pre_pause_state, w.paused_by, w.tier, w.ci_red_rounds, w.review_rounds,
    w.conflict_rounds, w.ci_flake_retries_remaining, w.merge_rounds, w.head_moves, w.head_sha,
    w.awaiting_ci_started_at, w.merging_started_at, w.facts, w.merged_commit, w.pull_request_number,
    w.upstream, w.upstream_left_at, w.state_since, w.ci_polls, w.ci_next_poll_at, w.version,
    w.created_at, w.updated_at, w.change_sequence, w.archived_at, r.name AS repository_name,
    (SELECT s.id FROM workflows s WHERE s.predecessor_id = w.id) AS successor_id
FROM workflows w
JOIN repositories r ON r.id = w.repository_id",
            $rest
        )
    };
}

const BY_ID: &str = select_workflow!(
    "
WHERE w.id = $1"
);

// NULL is no condition.
const PAGE: &str = select_workflow!(
    "
WHERE w.id > $1
  AND ($2 IS NULL OR w.repository_id = $2)
  AND ($3 IS NULL OR w.kind = $3)
  AND ($4 IS NULL OR w.state IN (SELECT value FROM json_each($4)))
ORDER BY w.id
LIMIT $5"
);

// With the column that the page goes on from.
const CHANGED: &str = select_workflow!(
    "
WHERE w.change_sequence > $1
  AND ($2 IS NULL OR w.repository_id = $2)
  AND ($3 IS NULL OR w.kind = $3)
  AND ($4 IS NULL OR w.state IN (SELECT value FROM json_each($4)))
ORDER BY w.change_sequence
LIMIT $5"
);

const NEWEST_CHANGE: &str = "
SELECT COALESCE(MAX(change_sequence), 0) AS change_sequence
FROM workflows";

const NEWEST_OF_ITEM: &str = select_workflow!(
    "
WHERE w.repository_id = $1
  AND w.number = $2
ORDER BY w.id DESC
LIMIT 1"
);

const INSERT: &str = "
INSERT INTO workflows (id, repository_id, kind, number, title, body, head_ref, base_ref, parent_id,
    predecessor_id, created_at, updated_at, state_since, version, state, pre_pause_state, paused_by,
    tier, ci_red_rounds, review_rounds, conflict_rounds, ci_flake_retries_remaining, merge_rounds,
    head_moves, head_sha, awaiting_ci_started_at, merging_started_at, facts, merged_commit,
    pull_request_number, upstream, upstream_left_at, priority, change_sequence)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $12, 1, $13, $14, $15, $16, $17, $18, $19,
    $20, $21, $22, $23, $24, $25, $26, $27, $28, $29, $30,
    COALESCE((SELECT priority FROM workflows WHERE id = COALESCE($10, $9)), 0),
    (SELECT COALESCE(MAX(change_sequence), 0) + 1 FROM workflows))";

const UPDATE: &str = "
UPDATE workflows
SET version = version + 1,
    change_sequence = (SELECT MAX(change_sequence) + 1 FROM workflows),
    is_history_moved = 0,
    updated_at = $3,
    -- Still the old state on the right.
    state_since = CASE WHEN state = $4 THEN state_since ELSE $3 END,
    state = $4,
    pre_pause_state = $5,
    paused_by = $6,
    tier = $7,
    ci_red_rounds = $8,
    review_rounds = $9,
    conflict_rounds = $10,
    ci_flake_retries_remaining = $11,
    merge_rounds = $12,
    head_moves = $13,
    head_sha = $14,
    awaiting_ci_started_at = $15,
    merging_started_at = $16,
    facts = $17,
    merged_commit = $18,
    pull_request_number = $19,
    upstream = $20,
    upstream_left_at = $21
WHERE id = $1
  AND version = $2
RETURNING id, version, state_since";

const SET_PRIORITY: &str = "
UPDATE workflows
SET version = version + 1,
    change_sequence = (SELECT MAX(change_sequence) + 1 FROM workflows),
    updated_at = $3,
    priority = $4
WHERE id = $1
  AND version = $2
RETURNING id, version";

const COUNT_IN_STATES: &str = "
SELECT COUNT(*) AS n
FROM workflows
WHERE repository_id = $1
  AND state IN (SELECT value FROM json_each($2))
  -- Paused before it was admitted.
  AND NOT (state = $3 AND COALESCE(pre_pause_state, $4) = $4)";

// Of a pull request the newest workflow counts, and of an item the newest workflow alone is looked at.
const MAY_LEAVE: &str = select_workflow!(
    "
WHERE w.repository_id = $1
  AND w.id > $2
  AND w.upstream_left_at IS NULL
  AND w.state IN ('ABANDONED', 'CREATED_PR')
  AND NOT EXISTS (
    SELECT 1
    FROM workflows n
    WHERE n.repository_id = w.repository_id
      AND n.number = w.number
      AND n.id > w.id
  )
  AND (w.state = 'ABANDONED' OR (
    SELECT p.state
    FROM workflows p
    WHERE p.repository_id = w.repository_id
      AND p.number = w.pull_request_number
    ORDER BY p.id DESC
    LIMIT 1
  ) IN ('ABANDONED', 'STUCK'))
ORDER BY w.id
LIMIT $3"
);

const SET_CI_POLL: &str = "
UPDATE workflows
SET ci_polls = $2,
    ci_next_poll_at = $3
WHERE id = $1";

pub(super) const STATEMENTS: &[&str] = &[
    BY_ID,
    PAGE,
    CHANGED,
    NEWEST_CHANGE,
    SET_PRIORITY,
    NEWEST_OF_ITEM,
    MAY_LEAVE,
    INSERT,
    UPDATE,
    COUNT_IN_STATES,
    SET_CI_POLL,
];

/// The names of the states for which `is_wanted` holds, as a JSON array.
pub(super) fn states(is_wanted: impl Fn(State) -> bool) -> String {
    let names: Vec<&str> = State::ALL
        .iter()
        .filter(|&&state| is_wanted(state))
        .map(|state| state.as_str())
        .collect();
    serde_json::Value::from(names).to_string()
}

fn upstream_name(upstream: &Upstream) -> &'static str {
    match upstream {
        Upstream::Closed => "closed",
        Upstream::Merged => "merged",
    }
}

fn upstream(columns: &Columns<'_>) -> Result<Option<Upstream>, Error> {
    match columns.text_option("upstream")?.as_deref() {
        None => Ok(None),
        Some("closed") => Ok(Some(Upstream::Closed)),
        Some("merged") => Ok(Some(Upstream::Merged)),
        Some(other) => Err(columns.corrupt("upstream", format_args!("unknown end {other:?}"))),
    }
}

/// Without the state that it was paused in there is no pause to tell: `Workflow::restore` knows what
/// becomes of such a row.
fn pause(columns: &Columns<'_>) -> Result<Option<Pause>, Error> {
    let by: Option<PausedBy> = columns.parsed_option("paused_by")?;
    match (columns.parsed_option::<State>("pre_pause_state")?, by) {
        (None, _) => Ok(None),
        (Some(was), Some(by)) => Ok(Some(Pause { was, by })),
        (Some(_), None) => Err(columns.corrupt("paused_by", "it is empty while the other is set")),
    }
}

fn workflow(columns: &Columns<'_>) -> Result<Workflow, Error> {
    let identity = Identity {
        id: columns.parsed("id")?,
        repository: columns.parsed("repository_id")?,
        kind: columns.parsed("kind")?,
        number: columns.number("number")?,
        title: columns.text("title")?,
        body: columns.text("body")?,
        head_ref: columns.text("head_ref")?,
        base_ref: columns.text("base_ref")?,
        parent: columns.parsed_option("parent_id")?,
        predecessor: columns.parsed_option("predecessor_id")?,
        created_at: columns.instant("created_at")?,
    };
    let progress = Progress {
        state: columns.parsed("state")?,
        pause: pause(columns)?,
        tier: columns.number("tier")?,
        counters: Counters {
            ci_red_rounds: columns.number("ci_red_rounds")?,
            review_rounds: columns.number("review_rounds")?,
            conflict_rounds: columns.number("conflict_rounds")?,
            ci_flake_retries_remaining: columns.number("ci_flake_retries_remaining")?,
            merge_rounds: columns.number("merge_rounds")?,
            head_moves: columns.number("head_moves")?,
        },
        head: columns.parsed_option("head_sha")?,
        awaiting_ci_started_at: columns.instant_option("awaiting_ci_started_at")?,
        merging_started_at: columns.instant_option("merging_started_at")?,
        facts: columns.json("facts")?,
        merged_commit: columns.parsed_option("merged_commit")?,
        pull_request: columns.number_option("pull_request_number")?,
        upstream: upstream(columns)?,
        left_at: columns.instant_option("upstream_left_at")?,
    };
    Workflow::restore(identity, progress).map_err(|error| columns.corrupt("pre_pause_state", error))
}

fn from_row(row: &SqliteRow) -> Result<WorkflowRow, Error> {
    let columns = Columns::new(row, "workflows", "id");
    Ok(WorkflowRow {
        workflow: workflow(&columns)?,
        successor: columns.parsed_option("successor_id")?,
        repository_name: columns.text("repository_name")?,
        priority: columns.number("priority")?,
        version: columns.number("version")?,
        state_since: columns.instant("state_since")?,
        ci_polls: columns.number("ci_polls")?,
        ci_next_poll_at: columns.instant_option("ci_next_poll_at")?,
        updated_at: columns.instant("updated_at")?,
        archived_at: columns.instant_option("archived_at")?,
    })
}

pub(super) async fn by_id(
    connection: &mut SqliteConnection,
    id: WorkflowId,
) -> Result<Option<WorkflowRow>, Error> {
    sqlx::query(BY_ID)
        .bind(id.to_string())
        .fetch_optional(connection)
        .await
        .during("read a workflow")?
        .as_ref()
        .map(from_row)
        .transpose()
}

/// As a JSON array; NULL is no condition.
fn wanted_states(filter: &WorkflowFilter) -> Option<String> {
    (!filter.states.is_empty()).then(|| states(|state| filter.states.contains(&state)))
}

pub(super) async fn page(
    connection: &mut SqliteConnection,
    filter: &WorkflowFilter,
    after: Option<WorkflowId>,
    limit: u32,
) -> Result<Vec<WorkflowRow>, Error> {
    sqlx::query(PAGE)
        .bind(after_id(after))
        .bind(filter.repository.map(|id| id.to_string()))
        .bind(filter.kind.map(|kind| kind.as_str()))
        .bind(wanted_states(filter))
        .bind(limit)
        .fetch_all(connection)
        .await
        .during("list workflows")?
        .iter()
        .map(from_row)
        .collect()
}

fn change_point(row: &SqliteRow) -> Result<ChangePoint, Error> {
    Columns::new(row, "workflows", "id")
        .number("change_sequence")
        .map(ChangePoint)
}

pub(super) async fn changed(
    connection: &mut SqliteConnection,
    filter: &WorkflowFilter,
    after: ChangePoint,
    limit: u32,
) -> Result<Changes, Error> {
    const OPERATION: &str = "list changed workflows";
    // First: what is committed between the two reads is found by the second, or is after this point.
    let newest = sqlx::query(NEWEST_CHANGE)
        .fetch_one(&mut *connection)
        .await
        .during(OPERATION)?;
    let newest = change_point(&newest)?;
    // A point that this database never gave: its own start, so that nothing is missed.
    let after = if after > newest {
        ChangePoint::default()
    } else {
        after
    };
    let found = sqlx::query(CHANGED)
        .bind(after_number(after.0))
        .bind(filter.repository.map(|id| id.to_string()))
        .bind(filter.kind.map(|kind| kind.as_str()))
        .bind(wanted_states(filter))
        .bind(limit)
        .fetch_all(connection)
        .await
        .during(OPERATION)?;
    let is_all = u64::try_from(found.len()).is_ok_and(|n| n < u64::from(limit));
    let last = found.last().map(change_point).transpose()?;
    let point = match last {
        Some(last) if !is_all => last,
        Some(last) => last.max(newest),
        None => newest,
    };
    Ok(Changes {
        rows: found.iter().map(from_row).collect::<Result<_, _>>()?,
        point,
        is_all,
    })
}

pub(super) async fn set_priority(
    connection: &mut SqliteConnection,
    locked: &mut LockedWorkflow,
    priority: i32,
    now: Timestamp,
) -> Result<(), Error> {
    let values = Values {
        table: "workflows",
        id: &locked.workflow.id,
    };
    let row = sqlx::query(SET_PRIORITY)
        .bind(locked.workflow.id.to_string())
        .bind(values.number("version", locked.version)?)
        .bind(now.0)
        .bind(priority)
        .fetch_optional(&mut *connection)
        .await
        .during("set a workflow's priority")?
        .ok_or(Error::LostRace("workflow"))?;
    locked.version = Columns::new(&row, "workflows", "id").number("version")?;
    locked.priority = priority;
    attempts::set_priority(connection, locked.workflow.id, priority).await
}

pub(super) async fn newest_of_item(
    connection: &mut SqliteConnection,
    repository: RepositoryId,
    number: u64,
) -> Result<Option<WorkflowRow>, Error> {
    sqlx::query(NEWEST_OF_ITEM)
        .bind(repository.to_string())
        .bind(wanted(number))
        .fetch_optional(connection)
        .await
        .during("read an item's workflow")?
        .as_ref()
        .map(from_row)
        .transpose()
}

pub(super) async fn may_leave(
    connection: &mut SqliteConnection,
    repository: RepositoryId,
    after: Option<WorkflowId>,
    limit: u32,
) -> Result<Vec<WorkflowRow>, Error> {
    sqlx::query(MAY_LEAVE)
        .bind(repository.to_string())
        .bind(after_id(after))
        .bind(limit)
        .fetch_all(connection)
        .await
        .during("list workflows that are over")?
        .iter()
        .map(from_row)
        .collect()
}

/// The transaction that calls has the write lock, and so the row's.
pub(super) async fn lock(
    connection: &mut SqliteConnection,
    id: WorkflowId,
) -> Result<Option<LockedWorkflow>, Error> {
    let Some(row) = by_id(connection, id).await? else {
        return Ok(None);
    };
    let Some(repository) = repositories::by_id(connection, row.workflow.repository).await? else {
        return Ok(None);
    };
    Ok(Some(LockedWorkflow {
        workflow: row.workflow,
        repository,
        priority: row.priority,
        version: row.version,
        state_since: row.state_since,
        ci_polls: row.ci_polls,
        ci_next_poll_at: row.ci_next_poll_at,
    }))
}

type Query = sqlx::query::Query<'static, sqlx::Sqlite, sqlx::sqlite::SqliteArguments>;

/// Binds what moves, in the order in which INSERT and UPDATE name it.
fn bind_progress(query: Query, values: &Values<'_>, progress: &Progress) -> Result<Query, Error> {
    let pull_request = progress
        .pull_request
        .map(|number| values.number("pull_request_number", number))
        .transpose()?;
    Ok(query
        .bind(progress.state.as_str())
        .bind(progress.pause.map(|pause| pause.was.as_str()))
        .bind(progress.pause.map(|pause| pause.by.as_str()))
        .bind(progress.tier)
        .bind(progress.counters.ci_red_rounds)
        .bind(progress.counters.review_rounds)
        .bind(progress.counters.conflict_rounds)
        .bind(progress.counters.ci_flake_retries_remaining)
        .bind(progress.counters.merge_rounds)
        .bind(progress.counters.head_moves)
        .bind(progress.head.as_ref().map(ToString::to_string))
        .bind(progress.awaiting_ci_started_at.map(|instant| instant.0))
        .bind(progress.merging_started_at.map(|instant| instant.0))
        .bind(values.json("facts", &progress.facts)?)
        .bind(progress.merged_commit.as_ref().map(ToString::to_string))
        .bind(pull_request)
        .bind(progress.upstream.as_ref().map(upstream_name))
        .bind(progress.left_at.map(|instant| instant.0)))
}

pub(super) async fn insert(
    connection: &mut SqliteConnection,
    workflow: &Workflow,
    now: Timestamp,
) -> Result<(), Error> {
    let values = Values {
        table: "workflows",
        id: &workflow.id,
    };
    let query = sqlx::query(INSERT)
        .bind(workflow.id.to_string())
        .bind(workflow.repository.to_string())
        .bind(workflow.kind.as_str())
        .bind(values.number("number", workflow.number)?)
        .bind(workflow.title.clone())
        .bind(workflow.body.clone())
        .bind(workflow.head_ref.clone())
        .bind(workflow.base_ref.clone())
        .bind(workflow.parent.map(|parent| parent.to_string()))
        .bind(workflow.predecessor.map(|earlier| earlier.to_string()))
        .bind(workflow.created_at.0)
        .bind(now.0);
    bind_progress(query, &values, workflow.progress())?
        .execute(connection)
        .await
        .during("insert a workflow")?;
    Ok(())
}

pub(super) async fn update(
    connection: &mut SqliteConnection,
    locked: &mut LockedWorkflow,
    now: Timestamp,
) -> Result<(), Error> {
    let values = Values {
        table: "workflows",
        id: &locked.workflow.id,
    };
    let query = sqlx::query(UPDATE)
        .bind(locked.workflow.id.to_string())
        .bind(values.number("version", locked.version)?)
        .bind(now.0);
    let row = bind_progress(query, &values, locked.workflow.progress())?
        .fetch_optional(connection)
        .await
        .during("update a workflow")?
        .ok_or(Error::LostRace("workflow"))?;
    let columns = Columns::new(&row, "workflows", "id");
    locked.version = columns.number("version")?;
    locked.state_since = columns.instant("state_since")?;
    Ok(())
}

pub(super) async fn count_live(
    connection: &mut SqliteConnection,
    repository: RepositoryId,
) -> Result<u32, Error> {
    let row = sqlx::query(COUNT_IN_STATES)
        .bind(repository.to_string())
        .bind(states(|state| {
            state != State::Discovered && !state.is_terminal()
        }))
        .bind(State::Paused.as_str())
        .bind(State::Discovered.as_str())
        .fetch_one(connection)
        .await
        .during("count live workflows")?;
    Columns::new(&row, "workflows", "n").number("n")
}

pub(super) async fn set_ci_poll(
    connection: &mut SqliteConnection,
    workflow: WorkflowId,
    polls: u32,
    next_poll_at: Timestamp,
) -> Result<(), Error> {
    let result = sqlx::query(SET_CI_POLL)
        .bind(workflow.to_string())
        .bind(polls)
        .bind(next_poll_at.0)
        .execute(connection)
        .await
        .during("set a workflow's next poll of CI")?;
    one_row(&result, "workflow")
}
