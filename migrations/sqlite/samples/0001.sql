-- Rows as the first version wrote them: every state that a row can be in, every column once with and,
-- where it may, once without a value.

INSERT INTO repositories (id, name, git_url, base_ref, label, ci_command, policy, created_at) VALUES
    ('019b0000-0000-7000-8000-000000000001', 'lamp', 'https://git.example/lamp', 'main', 'pointsman',
     'make check', '{"max_tier":2,"max_pickups":3}', 1767225600000001),
    ('019b0000-0000-7000-8000-000000000002', 'shade', 'https://git.example/shade', 'trunk', 'bot',
     NULL, '{}', 1767225600000002);

INSERT INTO workflows (id, repository_id, kind, number, title, body, head_ref, base_ref, parent_id, priority,
    state, pre_pause_state, paused_by, tier, ci_red_rounds, review_rounds, conflict_rounds,
    ci_flake_retries_remaining, merge_rounds, head_moves, head_sha, awaiting_ci_started_at,
    merging_started_at, facts, merged_commit, pull_request_number, upstream, state_since, ci_polls,
    ci_next_poll_at, version, created_at, updated_at) VALUES
    -- An issue that became a pull request.
    ('019b0000-0000-7000-8000-000000000011', '019b0000-0000-7000-8000-000000000001', 'issue', 1,
     'Add a lamp', 'It is dark.', 'pointsman/1', 'main', NULL, 0, 'CREATED_PR', NULL, NULL, 1, 0, 0, 0, 1, 0, 0,
     '1111111111111111111111111111111111111111', NULL, NULL, '{"plan":"Hang it."}', NULL, 2, NULL, 1767225600000100, 0, NULL, 4,
     1767225600000010, 1767225600000100),
    -- Its pull request, under review.
    ('019b0000-0000-7000-8000-000000000012', '019b0000-0000-7000-8000-000000000001', 'pull_request', 2,
     'Add a lamp', 'Closes #1', 'pointsman/1', 'main', '019b0000-0000-7000-8000-000000000011', 0, 'REVIEWING',
     NULL, NULL, 2, 1, 1, 1, 0, 1, 1, '2222222222222222222222222222222222222222', NULL, NULL,
     '{}', NULL, NULL, NULL, 1767225600000200, 3, 1767225600000300, 7, 1767225600000110, 1767225600000200),
    -- Waits for its checks.
    ('019b0000-0000-7000-8000-000000000013', '019b0000-0000-7000-8000-000000000001', 'pull_request', 3,
     'Add a bulb', '', 'bulb', 'main', NULL, 0, 'AWAITING_CI', NULL, NULL, 1, 0, 0, 0, 1, 0, 0,
     '3333333333333333333333333333333333333333', 1767225600000400, NULL, '{}', NULL, NULL, NULL,
     1767225600000400, 1, 1767225600000500, 3, 1767225600000120, 1767225600000400),
    -- Paused by its label while it was reviewed.
    ('019b0000-0000-7000-8000-000000000014', '019b0000-0000-7000-8000-000000000001', 'pull_request', 4,
     'Add a cord', '', 'cord', 'main', NULL, 0, 'PAUSED', 'REVIEWING', 'label', 1, 0, 0, 0, 1, 0, 0,
     '4444444444444444444444444444444444444444', NULL, NULL, '{}', NULL, NULL, NULL, 1767225600000600, 0, NULL,
     5, 1767225600000130, 1767225600000600),
    -- Merged.
    ('019b0000-0000-7000-8000-000000000015', '019b0000-0000-7000-8000-000000000001', 'pull_request', 5,
     'Add a hook', '', 'hook', 'main', NULL, 0, 'MERGED', NULL, NULL, 1, 0, 0, 0, 1, 0, 0,
     '5555555555555555555555555555555555555555', NULL, NULL, '{}',
     '6666666666666666666666666666666666666666', NULL, 'merged', 1767225600000700, 0, NULL, 9,
     1767225600000140, 1767225600000700),
    -- Merges now; in a repository without a command.
    ('019b0000-0000-7000-8000-000000000016', '019b0000-0000-7000-8000-000000000002', 'pull_request', 1,
     'Add a shade', '', 'shade', 'trunk', NULL, 0, 'MERGING', NULL, NULL, 1, 0, 0, 0, 1, 0, 0,
     '7777777777777777777777777777777777777777', NULL, 1767225600000800, '{}', NULL, NULL, NULL,
     1767225600000800, 0, NULL, 6, 1767225600000150, 1767225600000800),
    -- Found, and nothing more.
    ('019b0000-0000-7000-8000-000000000017', '019b0000-0000-7000-8000-000000000002', 'issue', 2,
     'Dim it', 'Too bright.', '', 'trunk', NULL, 0, 'DISCOVERED', NULL, NULL, 1, 0, 0, 0, 1, 0, 0,
     NULL, NULL, NULL, '{}', NULL, NULL, NULL, 1767225600000900, 0, NULL, 1, 1767225600000160,
     1767225600000900);

INSERT INTO forge_checks (id, repository_id, workflow_id, name, command, commit_sha, run, conclusion, exit_status,
    log_tail, created_at, changed_at) VALUES
    ('019b0000-0000-7000-8000-000000000021', '019b0000-0000-7000-8000-000000000001',
     '019b0000-0000-7000-8000-000000000013', 'ci', 'make check', '3333333333333333333333333333333333333333', 1,
     'failure', 2, 'no bulb', 1767225600000410, 1767225600000420),
    ('019b0000-0000-7000-8000-000000000022', '019b0000-0000-7000-8000-000000000001',
     '019b0000-0000-7000-8000-000000000013', 'ci', 'make check', '3333333333333333333333333333333333333333', 2,
     NULL, NULL, '', 1767225600000430, 1767225600000430);

INSERT INTO attempts (id, repository_id, workflow_id, check_id, subject_id, role, tier, priority, status, commit_sha,
    lock_fence, pickup_count, uncharged_errors, lock_ttl_seconds, not_before, accepted_fence, accepted_nonce,
    outcome, outcome_detail, worker_id, created_at, started_at, ended_at) VALUES
    -- Done.
    ('019b0000-0000-7000-8000-000000000031', '019b0000-0000-7000-8000-000000000001',
     '019b0000-0000-7000-8000-000000000011', NULL, '019b0000-0000-7000-8000-000000000011', 'implementer', 1, 0,
     'succeeded', '1111111111111111111111111111111111111111', 2, 2, 0, 180, NULL, 2,
     '4b9d2c2e-6a0f-4f4f-9a3a-0a6a5c1e2d3f', 'verdict', '{"kind":"implemented"}',
     '019b0000-0000-7000-8000-000000000041', 1767225600000020, 1767225600000030, 1767225600000090),
    -- Leased.
    ('019b0000-0000-7000-8000-000000000032', '019b0000-0000-7000-8000-000000000001',
     '019b0000-0000-7000-8000-000000000012', NULL, '019b0000-0000-7000-8000-000000000012', 'reviewer', 2, 0,
     'in_progress', '2222222222222222222222222222222222222222', 1, 1, 0, 180, NULL, NULL, NULL, NULL, NULL,
     '019b0000-0000-7000-8000-000000000041', 1767225600000210, 1767225600000220, NULL),
    -- Waits, of a check.
    ('019b0000-0000-7000-8000-000000000033', '019b0000-0000-7000-8000-000000000001',
     '019b0000-0000-7000-8000-000000000013', '019b0000-0000-7000-8000-000000000022',
     '019b0000-0000-7000-8000-000000000022', 'ci', 1, 0, 'pending', NULL, 0, 0, 1, 180, 1767225600000440, NULL,
     NULL, NULL, NULL, NULL, 1767225600000430, NULL, NULL);

INSERT INTO attempt_leases (attempt_id, lock_fence, lock_nonce, lock_owner, worker_id, request_id, profile,
    is_unconfirmed, leased_at, lock_heartbeat_at, lock_ttl_seconds) VALUES
    ('019b0000-0000-7000-8000-000000000032', 1, '5b9d2c2e-6a0f-4f4f-9a3a-0a6a5c1e2d3f',
     '019b0000-0000-7000-8000-000000000042', '019b0000-0000-7000-8000-000000000041',
     '019b0000-0000-7000-8000-000000000043', 'default', 0, 1767225600000220, 1767225600000230, 180);

INSERT INTO attempt_progress (attempt_id, lock_fence, phase, subprocess_pid, subprocess_starttime, last_output_at,
    log_bytes, updated_at) VALUES
    ('019b0000-0000-7000-8000-000000000032', 1, 'running', 4242, 99, 1767225600000228, 1024, 1767225600000230);

INSERT INTO controller_events (sequence, workflow_id, attempt_id, occurred_at, kind, from_state, to_state, actor,
    reason, detail) VALUES
    (1, '019b0000-0000-7000-8000-000000000011', NULL, 1767225600000010, 'discovered', 'DISCOVERED', 'DISCOVERED',
     'operator', '', '{}'),
    (5, '019b0000-0000-7000-8000-000000000011', '019b0000-0000-7000-8000-000000000031', 1767225600000090,
     'implemented', 'IMPLEMENTING', 'CREATED_PR', 'worker:019b0000-0000-7000-8000-000000000041', 'because',
     '{"number":2}');

INSERT INTO effects (id, workflow_id, attempt_id, effect, tries, waits, next_try_at, first_failure_at, waiting_for,
    opened_at, closed_at) VALUES
    ('019b0000-0000-7000-8000-000000000051', '019b0000-0000-7000-8000-000000000016', NULL,
     '{"kind":"merge","head":"7777777777777777777777777777777777777777"}', 1, 2, 1767225600000810, 1767225600000805,
     'the branch', 1767225600000801, NULL),
    ('019b0000-0000-7000-8000-000000000052', '019b0000-0000-7000-8000-000000000011',
     '019b0000-0000-7000-8000-000000000031',
     '{"kind":"merge","head":"1111111111111111111111111111111111111111"}', 0, 0, 1767225600000091, NULL, '',
     1767225600000091, 1767225600000095);

INSERT INTO workers (id, instance_id, name, host, boot_id, version, state_directory, capacity, roles, labels,
    profiles, registered_at, last_beat_at) VALUES
    ('019b0000-0000-7000-8000-000000000041', '019b0000-0000-7000-8000-000000000042', 'w1', 'host-1', 'boot', '0.1.0',
     '{"device":1,"inode":2,"created_at_nanos":3}', 4, '["reviewer","ci"]', '["big"]', '[]', 1767225600000015,
     1767225600000230);

INSERT INTO forge_items (repository_id, number, kind, title, body, labels, is_open, head_ref, base_ref,
    merged_commit, request_id, created_at, updated_at) VALUES
    ('019b0000-0000-7000-8000-000000000001', 1, 'issue', 'Add a lamp', 'It is dark.', '["pointsman"]', 1, NULL,
     'main', NULL, '019b0000-0000-7000-8000-000000000061', 1767225600000009, 1767225600000009),
    ('019b0000-0000-7000-8000-000000000001', 5, 'pull_request', 'Add a hook', '', '[]', 0, 'hook', 'main',
     '6666666666666666666666666666666666666666', NULL, 1767225600000135, 1767225600000700);
