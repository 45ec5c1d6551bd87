//! Every statement there is, so that a test prepares each of them.

use super::{
    attempts, beats, checks, claim, effects, events, forge, leases, repositories, sweeps, workers,
    workflows,
};

/// Takes the write lock at once: a transaction that reads first and then writes would be refused where
/// another one wrote meanwhile.
pub(super) const BEGIN: &str = "BEGIN IMMEDIATE";

// Of a table: a reader must find the file.
pub(super) const PING: &str = "
SELECT COUNT(*)
FROM repositories";

pub(super) const MAY_HAVE_WORK: &str = "
SELECT 1
FROM attempts
WHERE status = 'pending'
  AND (not_before IS NULL OR not_before <= $1)
LIMIT 1";

pub(super) const NEWEST_MIGRATION: &str = "
SELECT MAX(version)
FROM _sqlx_migrations";

const OWN: &[&str] = &[BEGIN, PING, MAY_HAVE_WORK, NEWEST_MIGRATION];

/// All of them, each once.
pub(super) fn statements() -> impl Iterator<Item = &'static str> {
    [
        OWN,
        attempts::STATEMENTS,
        beats::STATEMENTS,
        checks::STATEMENTS,
        claim::STATEMENTS,
        effects::STATEMENTS,
        events::STATEMENTS,
        forge::STATEMENTS,
        leases::STATEMENTS,
        repositories::STATEMENTS,
        sweeps::STATEMENTS,
        workers::STATEMENTS,
        workflows::STATEMENTS,
    ]
    .into_iter()
    .flatten()
    .copied()
}
