-- What one team on one machine needs beyond the first path.

-- The history tells of repositories and workers too.
CREATE TABLE controller_events_0002 (
    sequence      INTEGER PRIMARY KEY AUTOINCREMENT,
    -- What it is about: exactly one of these three.
    workflow_id   TEXT,
    repository_id TEXT,
    worker_id     TEXT,
    attempt_id    TEXT,
    occurred_at   INTEGER NOT NULL,
    kind          TEXT    NOT NULL,
    -- Set where it is about a workflow.
    from_state    TEXT,
    to_state      TEXT,
    actor         TEXT    NOT NULL,
    reason        TEXT    NOT NULL,
    detail        TEXT    NOT NULL,
    CONSTRAINT ck_event_about CHECK (
        (workflow_id IS NOT NULL) + (repository_id IS NOT NULL) + (worker_id IS NOT NULL) = 1
        AND (workflow_id IS NULL) = (from_state IS NULL)
        AND (workflow_id IS NULL) = (to_state IS NULL)
    )
) STRICT;

INSERT INTO controller_events_0002
    (sequence, workflow_id, attempt_id, occurred_at, kind, from_state, to_state, actor, reason, detail)
SELECT sequence, workflow_id, attempt_id, occurred_at, kind, from_state, to_state, actor, reason, detail
FROM controller_events;

DROP TABLE controller_events;
ALTER TABLE controller_events_0002 RENAME TO controller_events;
CREATE INDEX ix_events_workflow ON controller_events (workflow_id, sequence);

-- Named checks: one JSON array of name and command a repository, see CheckDefinition in domain/ci.rs. The
-- column ci_command is read no more.
ALTER TABLE repositories ADD COLUMN checks TEXT NOT NULL DEFAULT '[]';

UPDATE repositories
SET checks = json_array(json_object('name', 'ci', 'command', ci_command))
WHERE ci_command IS NOT NULL;

-- Workers that are drained, and workers that somebody declared dead.
ALTER TABLE workers ADD COLUMN drain_requested_at INTEGER;
-- Set together with drain_requested_at.
ALTER TABLE workers ADD COLUMN drain_reason TEXT;
ALTER TABLE workers ADD COLUMN drain_stops_sessions INTEGER NOT NULL DEFAULT 0;
-- Cleared by the next registration.
ALTER TABLE workers ADD COLUMN declared_dead_at INTEGER;
CREATE INDEX ix_workers_beat ON workers (last_beat_at);

-- The order in which workflows were written last, for those who watch. Each write takes the next number.
ALTER TABLE workflows ADD COLUMN change_sequence INTEGER NOT NULL DEFAULT 0;
UPDATE workflows SET change_sequence = rowid;
CREATE UNIQUE INDEX uq_workflow_change ON workflows (change_sequence);

-- Whether writes work again: one row, written and deleted by the master after a write has failed.

CREATE TABLE write_probes (
    id     INTEGER PRIMARY KEY,
    filler BLOB    NOT NULL
) STRICT;

-- Which workflow is it: an item whose workflow has ended may get another one.
-- The workflow of the same item that ended before this one began.
ALTER TABLE workflows ADD COLUMN predecessor_id TEXT REFERENCES workflows (id);
-- When the item of a workflow that has ended was seen closed or without the label.
ALTER TABLE workflows ADD COLUMN upstream_left_at INTEGER;
CREATE UNIQUE INDEX uq_one_successor ON workflows (predecessor_id) WHERE predecessor_id IS NOT NULL;
CREATE INDEX ix_workflows_may_leave ON workflows (repository_id, id)
    WHERE upstream_left_at IS NULL AND state IN ('ABANDONED', 'CREATED_PR');
-- What was closed while it was under way has left: another workflow may follow where it comes back.
UPDATE workflows
SET upstream_left_at = updated_at
WHERE state = 'ABANDONED'
  AND EXISTS (
    SELECT 1
    FROM controller_events e
    WHERE e.workflow_id = workflows.id
      AND e.kind = 'upstream_closed'
  );

-- Accounts of providers, and profiles on one worker, that get no work for a while. Deleted when they are
-- lifted or released.
CREATE TABLE holds (
    id                TEXT    PRIMARY KEY,
    -- Who is held: an account on every worker, or one profile on one worker.
    account           TEXT,
    held_worker_id    TEXT,
    profile           TEXT,
    -- Of the newest report, as the two below.
    class             TEXT    NOT NULL,
    message           TEXT    NOT NULL,
    worker_id         TEXT    NOT NULL,
    placed_at         INTEGER NOT NULL,
    until             INTEGER NOT NULL,
    failures          INTEGER NOT NULL,
    -- The newest canary's lease; it counts for as long as that lives.
    canary_attempt_id TEXT,
    canary_fence      INTEGER,
    CONSTRAINT ck_hold_subject CHECK (
        (account IS NULL) = (held_worker_id IS NOT NULL)
        AND (account IS NULL) = (profile IS NOT NULL)
    )
) STRICT;

CREATE UNIQUE INDEX uq_hold_account ON holds (account) WHERE account IS NOT NULL;
CREATE UNIQUE INDEX uq_hold_profile ON holds (held_worker_id, profile) WHERE held_worker_id IS NOT NULL;
-- What is said about an item of the built-in forge.
CREATE TABLE forge_comments (
    repository_id TEXT    NOT NULL,
    number        INTEGER NOT NULL,
    -- 1 for the first of its item.
    comment       INTEGER NOT NULL,
    author        TEXT    NOT NULL,
    body          TEXT    NOT NULL,
    -- The call that made it, so that a repeated one makes nothing.
    request_id    TEXT,
    created_at    INTEGER NOT NULL,
    PRIMARY KEY (repository_id, number, comment),
    CONSTRAINT uq_comment_request UNIQUE (request_id),
    FOREIGN KEY (repository_id, number) REFERENCES forge_items (repository_id, number)
) STRICT;

-- Ended workflows leave their history to the archive; their rows stay, since identity needs them.
-- When rows left last; NULL: never.
ALTER TABLE workflows ADD COLUMN archived_at INTEGER;
-- 1: no row of its history was here when it was looked at last. Each transition sets it to 0.
ALTER TABLE workflows ADD COLUMN is_history_moved INTEGER NOT NULL DEFAULT 0;
CREATE INDEX ix_workflows_archivable ON workflows (state_since, id)
    WHERE is_history_moved = 0 AND state IN ('MERGED', 'CREATED_PR', 'ABANDONED', 'STUCK');
CREATE INDEX ix_events_other ON controller_events (sequence) WHERE workflow_id IS NULL;
-- Without these each row that is deleted costs a scan of those that may refer to it.
CREATE INDEX ix_effects_workflow ON effects (workflow_id);
CREATE INDEX ix_effects_attempt ON effects (attempt_id);
CREATE INDEX ix_attempts_check ON attempts (check_id) WHERE check_id IS NOT NULL;
