//! Every statement there is, so that a test prepares each of them.

use super::{
    attempts, beats, checks, claim, comments, effects, events, forge, history, holds, leases,
    repositories, stats, sweeps, workers, workflows,
};

/// Takes the write lock at once: a transaction that reads first and then writes would be refused where
/// another one wrote meanwhile.
pub(super) const BEGIN: &str = "BEGIN IMMEDIATE";
pub(super) const COMMIT: &str = "COMMIT";
pub(super) const ROLLBACK: &str = "ROLLBACK";

// Of the members of a group after the first. One at a time.
pub(super) const SAVEPOINT: &str = "SAVEPOINT member";
pub(super) const RELEASE: &str = "RELEASE member";
pub(super) const ROLLBACK_TO: &str = "ROLLBACK TO member";

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

// Enough to need new pages, so that it finds a full disk as any other write does.
pub(super) const PROBE: &str = "
INSERT OR REPLACE INTO write_probes (id, filler)
VALUES (1, zeroblob(65536))";

// Gives the pages back to the database.
pub(super) const END_PROBE: &str = "
DELETE FROM write_probes";

pub(super) const SNAPSHOT: &str = "VACUUM INTO $1";

pub(super) const FOREIGN_KEY_CHECK: &str = "
SELECT COUNT(*)
FROM pragma_foreign_key_check";

const OWN: &[&str] = &[
    BEGIN,
    COMMIT,
    ROLLBACK,
    SAVEPOINT,
    RELEASE,
    ROLLBACK_TO,
    PING,
    MAY_HAVE_WORK,
    NEWEST_MIGRATION,
    PROBE,
    END_PROBE,
    SNAPSHOT,
    FOREIGN_KEY_CHECK,
];

/// All of them, each once.
pub(super) fn statements() -> impl Iterator<Item = &'static str> {
    [
        OWN,
        attempts::STATEMENTS,
        beats::STATEMENTS,
        checks::STATEMENTS,
        claim::STATEMENTS,
        comments::STATEMENTS,
        effects::STATEMENTS,
        events::STATEMENTS,
        forge::STATEMENTS,
        history::STATEMENTS,
        holds::STATEMENTS,
        leases::STATEMENTS,
        repositories::STATEMENTS,
        stats::STATEMENTS,
        sweeps::STATEMENTS,
        workers::STATEMENTS,
        workflows::STATEMENTS,
    ]
    .into_iter()
    .flatten()
    .copied()
}
