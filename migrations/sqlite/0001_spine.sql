-- Repositories, workflows, attempts and their leases, the history, effects, workers, and the items and
-- checks of the built-in forge.

CREATE TABLE repositories (
    id          TEXT    PRIMARY KEY,
    name        TEXT    NOT NULL,
    git_url     TEXT    NOT NULL,
    base_ref    TEXT    NOT NULL,
    -- The opt-in label.
    label       TEXT    NOT NULL,
    -- Command of the one check; NULL: none.
    ci_command  TEXT,
    -- One JSON object, see domain/policy.rs.
    policy      TEXT    NOT NULL,
    created_at  INTEGER NOT NULL,
    CONSTRAINT uq_repository_name UNIQUE (name)
) STRICT;

CREATE TABLE workflows (
    id                         TEXT    PRIMARY KEY,
    repository_id              TEXT    NOT NULL REFERENCES repositories (id),
    kind                       TEXT    NOT NULL,
    number                     INTEGER NOT NULL,
    title                      TEXT    NOT NULL,
    body                       TEXT    NOT NULL,
    head_ref                   TEXT    NOT NULL,
    base_ref                   TEXT    NOT NULL,
    parent_id                  TEXT    REFERENCES workflows (id),
    priority                   INTEGER NOT NULL DEFAULT 0,
    state                      TEXT    NOT NULL,
    -- Both set in PAUSED alone. A PAUSED row without them resumes to DISCOVERED.
    pre_pause_state            TEXT,
    paused_by                  TEXT,
    tier                       INTEGER NOT NULL,
    ci_red_rounds              INTEGER NOT NULL,
    review_rounds              INTEGER NOT NULL,
    conflict_rounds            INTEGER NOT NULL,
    ci_flake_retries_remaining INTEGER NOT NULL,
    merge_rounds               INTEGER NOT NULL,
    head_moves                 INTEGER NOT NULL,
    head_sha                   TEXT,
    awaiting_ci_started_at     INTEGER,
    merging_started_at         INTEGER,
    -- One JSON object, see Facts in domain/workflow.rs.
    facts                      TEXT    NOT NULL,
    merged_commit              TEXT,
    pull_request_number        INTEGER,
    upstream                   TEXT,
    -- When the state was entered.
    state_since                INTEGER NOT NULL,
    -- The CI poller's schedule; not part of what `version` guards.
    ci_polls                   INTEGER NOT NULL DEFAULT 0,
    ci_next_poll_at            INTEGER,
    -- Grows by one with each write that `version` guards.
    version                    INTEGER NOT NULL,
    created_at                 INTEGER NOT NULL,
    updated_at                 INTEGER NOT NULL
) STRICT;

CREATE UNIQUE INDEX uq_one_live_workflow ON workflows (repository_id, number)
    WHERE state NOT IN ('MERGED', 'CREATED_PR', 'ABANDONED', 'STUCK');
CREATE INDEX ix_workflows_state ON workflows (state, id);
CREATE INDEX ix_workflows_item ON workflows (repository_id, number, id);

CREATE TABLE forge_checks (
    id            TEXT    PRIMARY KEY,
    repository_id TEXT    NOT NULL REFERENCES repositories (id),
    workflow_id   TEXT    NOT NULL REFERENCES workflows (id),
    name          TEXT    NOT NULL,
    command       TEXT    NOT NULL,
    commit_sha    TEXT    NOT NULL,
    -- The newest run of a name on a commit counts; 1 is the first.
    run           INTEGER NOT NULL,
    -- NULL while it waits or runs.
    conclusion    TEXT,
    exit_status   INTEGER,
    log_tail      TEXT    NOT NULL,
    created_at    INTEGER NOT NULL,
    changed_at    INTEGER NOT NULL,
    CONSTRAINT uq_check_run UNIQUE (workflow_id, commit_sha, name, run)
) STRICT;

CREATE TABLE attempts (
    id               TEXT    PRIMARY KEY,
    repository_id    TEXT    NOT NULL REFERENCES repositories (id),
    workflow_id      TEXT    NOT NULL REFERENCES workflows (id),
    check_id         TEXT    REFERENCES forge_checks (id),
    -- check_id where there is one, otherwise workflow_id.
    subject_id       TEXT    NOT NULL,
    role             TEXT    NOT NULL,
    tier             INTEGER NOT NULL,
    priority         INTEGER NOT NULL DEFAULT 0,
    status           TEXT    NOT NULL,
    commit_sha       TEXT,
    -- Only grows.
    lock_fence       INTEGER NOT NULL,
    pickup_count     INTEGER NOT NULL,
    uncharged_errors INTEGER NOT NULL,
    lock_ttl_seconds INTEGER NOT NULL,
    not_before       INTEGER,
    -- The lease whose outcome was accepted.
    accepted_fence   INTEGER,
    accepted_nonce   TEXT,
    outcome          TEXT,
    outcome_detail   TEXT,
    -- The worker of the newest lease.
    worker_id        TEXT,
    created_at       INTEGER NOT NULL,
    started_at       INTEGER,
    ended_at         INTEGER
) STRICT;

CREATE UNIQUE INDEX uq_one_live_attempt ON attempts (subject_id)
    WHERE status IN ('pending', 'in_progress');
-- One queue a role, priority and repository, oldest first.
CREATE INDEX ix_attempts_pending ON attempts (role, priority DESC, repository_id, created_at, id)
    WHERE status = 'pending';
CREATE INDEX ix_attempts_in_progress ON attempts (repository_id) WHERE status = 'in_progress';
CREATE INDEX ix_attempts_workflow ON attempts (workflow_id, id);

-- Live leases only: inserted by the claim, deleted by completion, release or reap. Deleting the row is
-- the point at which a lease ends.
CREATE TABLE attempt_leases (
    attempt_id        TEXT    PRIMARY KEY REFERENCES attempts (id),
    lock_fence        INTEGER NOT NULL,
    lock_nonce        TEXT    NOT NULL,
    -- The worker's process start that holds it.
    lock_owner        TEXT    NOT NULL,
    worker_id         TEXT    NOT NULL,
    request_id        TEXT    NOT NULL,
    profile           TEXT    NOT NULL,
    -- The worker could not confirm that the session is dead: its end waits for the time-to-live.
    is_unconfirmed    INTEGER NOT NULL DEFAULT 0,
    leased_at         INTEGER NOT NULL,
    lock_heartbeat_at INTEGER NOT NULL,
    lock_ttl_seconds  INTEGER NOT NULL
) STRICT;

CREATE INDEX ix_leases_owner ON attempt_leases (lock_owner, request_id);
CREATE INDEX ix_leases_worker ON attempt_leases (worker_id);

-- The last values of a lease's beats.
CREATE TABLE attempt_progress (
    attempt_id            TEXT    PRIMARY KEY REFERENCES attempts (id),
    lock_fence            INTEGER NOT NULL,
    phase                 TEXT    NOT NULL,
    subprocess_pid        INTEGER NOT NULL,
    subprocess_starttime  INTEGER NOT NULL,
    last_output_at        INTEGER,
    log_bytes             INTEGER NOT NULL,
    updated_at            INTEGER NOT NULL
) STRICT;

-- Append-only.
CREATE TABLE controller_events (
    sequence    INTEGER PRIMARY KEY AUTOINCREMENT,
    workflow_id TEXT    NOT NULL,
    attempt_id  TEXT,
    occurred_at INTEGER NOT NULL,
    kind        TEXT    NOT NULL,
    from_state  TEXT    NOT NULL,
    to_state    TEXT    NOT NULL,
    actor       TEXT    NOT NULL,
    reason      TEXT    NOT NULL,
    detail      TEXT    NOT NULL
) STRICT;

CREATE INDEX ix_events_workflow ON controller_events (workflow_id, sequence);

CREATE TABLE effects (
    id               TEXT    PRIMARY KEY,
    workflow_id      TEXT    NOT NULL REFERENCES workflows (id),
    -- The attempt whose verdict asked for it; NULL: nobody's.
    attempt_id       TEXT    REFERENCES attempts (id),
    -- One JSON object, see domain/effect.rs.
    effect           TEXT    NOT NULL,
    -- Failed or unanswered writes.
    tries            INTEGER NOT NULL,
    -- Looks that found that it must wait.
    waits            INTEGER NOT NULL,
    next_try_at      INTEGER NOT NULL,
    first_failure_at INTEGER,
    -- Why it is not done yet, for people.
    waiting_for      TEXT    NOT NULL,
    opened_at        INTEGER NOT NULL,
    -- NULL while it is open.
    closed_at        INTEGER
) STRICT;

CREATE UNIQUE INDEX uq_one_open_effect ON effects (workflow_id) WHERE closed_at IS NULL;
CREATE INDEX ix_effects_due ON effects (next_try_at) WHERE closed_at IS NULL;

CREATE TABLE workers (
    id            TEXT    PRIMARY KEY,
    -- The newest process start.
    instance_id   TEXT    NOT NULL,
    name          TEXT    NOT NULL,
    host          TEXT    NOT NULL,
    boot_id       TEXT    NOT NULL,
    version       TEXT    NOT NULL,
    -- Device, inode and creation time of the locked state directory's lock file.
    state_directory TEXT  NOT NULL,
    capacity      INTEGER NOT NULL,
    -- JSON arrays.
    roles         TEXT    NOT NULL,
    labels        TEXT    NOT NULL,
    profiles      TEXT    NOT NULL,
    registered_at INTEGER NOT NULL,
    last_beat_at  INTEGER NOT NULL
) STRICT;

CREATE TABLE forge_items (
    repository_id TEXT    NOT NULL REFERENCES repositories (id),
    number        INTEGER NOT NULL,
    kind          TEXT    NOT NULL,
    title         TEXT    NOT NULL,
    body          TEXT    NOT NULL,
    -- JSON array.
    labels        TEXT    NOT NULL,
    is_open       INTEGER NOT NULL,
    head_ref      TEXT,
    base_ref      TEXT    NOT NULL,
    merged_commit TEXT,
    -- The call that made it, so that a repeated one makes nothing.
    request_id    TEXT,
    created_at    INTEGER NOT NULL,
    updated_at    INTEGER NOT NULL,
    PRIMARY KEY (repository_id, number),
    CONSTRAINT uq_item_request UNIQUE (request_id)
) STRICT;

-- One open pull request a branch.
CREATE UNIQUE INDEX uq_open_pull_request ON forge_items (repository_id, head_ref)
    WHERE head_ref IS NOT NULL AND is_open = 1;
CREATE INDEX ix_items_head_ref ON forge_items (repository_id, head_ref, number)
    WHERE head_ref IS NOT NULL;
