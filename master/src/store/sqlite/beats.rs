//! Beats of live leases, and what they say.

use std::{collections::BTreeMap, time::Duration};

use serde::Serialize;
use sqlx::SqliteConnection;

use super::{
    error::{During, one_row},
    leases::{columns, key, stored_fence},
    rows::Values,
};
use crate::{
    domain::{
        ids::{InstanceId, LeaseKey, WorkerId},
        time::Timestamp,
    },
    store::{
        Error,
        model::{BeatWrite, ProgressRow},
    },
};

const FLUSH: &str = "
UPDATE attempt_leases
SET lock_heartbeat_at = MAX(lock_heartbeat_at, b.value ->> 'at')
FROM json_each($2) AS b
WHERE attempt_id = b.value ->> 'attempt'
  AND lock_fence = b.value ->> 'fence'
  AND lock_nonce = b.value ->> 'nonce'
  AND lock_owner = $1
RETURNING attempt_id, lock_fence, lock_nonce";

const RECORD_PROGRESS: &str = "
INSERT INTO attempt_progress (attempt_id, lock_fence, phase, subprocess_pid, subprocess_starttime,
    last_output_at, log_bytes, updated_at)
SELECT l.attempt_id, l.lock_fence, p.value ->> 'phase', p.value ->> 'pid', p.value ->> 'starttime',
    p.value ->> 'last_output_at', p.value ->> 'log_bytes', $2
FROM json_each($1) AS p
JOIN attempt_leases l
    ON l.attempt_id = p.value ->> 'attempt'
    AND l.lock_fence = p.value ->> 'fence'
    AND l.lock_nonce = p.value ->> 'nonce'
WHERE TRUE
ON CONFLICT (attempt_id) DO UPDATE
SET lock_fence = excluded.lock_fence,
    phase = excluded.phase,
    subprocess_pid = excluded.subprocess_pid,
    subprocess_starttime = excluded.subprocess_starttime,
    last_output_at = excluded.last_output_at,
    log_bytes = excluded.log_bytes,
    updated_at = excluded.updated_at";

const NOTE_BEAT: &str = "
UPDATE workers
SET last_beat_at = MAX(last_beat_at, $2)
WHERE id = $1";

pub(super) const STATEMENTS: &[&str] = &[FLUSH, RECORD_PROGRESS, NOTE_BEAT];

#[derive(Serialize)]
struct Beat {
    attempt: String,
    fence: i64,
    nonce: String,
    at: i64,
}

/// `now` is the database's, read when the beats came in and not when the writer was free: the wait for
/// the writer prolongs no lease.
pub(super) async fn flush(
    connection: &mut SqliteConnection,
    owner: InstanceId,
    beats: &[BeatWrite],
    now: Timestamp,
) -> Result<Vec<LeaseKey>, Error> {
    // One row a lease: which of two rows an UPDATE takes is not defined.
    let mut youngest: BTreeMap<LeaseKey, Duration> = BTreeMap::new();
    for beat in beats {
        let age = youngest.entry(beat.key).or_insert(beat.age);
        *age = beat.age.min(*age);
    }
    let beats: Vec<Beat> = youngest
        .into_iter()
        // A fence that can't be stored is nobody's.
        .filter_map(|(key, age)| {
            let age = i64::try_from(age.as_micros()).unwrap_or(i64::MAX);
            Some(Beat {
                attempt: key.attempt.to_string(),
                fence: stored_fence(key).ok()?,
                nonce: key.nonce.to_string(),
                at: now.0.saturating_sub(age),
            })
        })
        .collect();
    let values = Values {
        table: "attempt_leases",
        id: &owner,
    };
    sqlx::query(FLUSH)
        .bind(owner.to_string())
        .bind(values.json("lock_heartbeat_at", &beats)?)
        .fetch_all(connection)
        .await
        .during("flush beats")?
        .iter()
        .map(|row| key(&columns(row)))
        .collect()
}

#[derive(Serialize)]
struct Progress<'a> {
    attempt: String,
    fence: i64,
    nonce: String,
    phase: &'a str,
    pid: u32,
    starttime: i64,
    last_output_at: Option<i64>,
    log_bytes: i64,
}

pub(super) async fn record_progress(
    connection: &mut SqliteConnection,
    worker: WorkerId,
    progress: &[ProgressRow],
    now: Timestamp,
) -> Result<(), Error> {
    let values = Values {
        table: "attempt_progress",
        id: &worker,
    };
    let rows: Vec<Progress<'_>> = progress
        .iter()
        .map(|row| {
            Ok(Progress {
                attempt: row.key.attempt.to_string(),
                fence: values.number("lock_fence", row.key.fence.0)?,
                nonce: row.key.nonce.to_string(),
                phase: &row.phase,
                pid: row.subprocess_pid,
                starttime: values.number("subprocess_starttime", row.subprocess_starttime)?,
                last_output_at: row.last_output_at.map(|instant| instant.0),
                log_bytes: values.number("log_bytes", row.log_bytes)?,
            })
        })
        .collect::<Result<_, Error>>()?;
    sqlx::query(RECORD_PROGRESS)
        .bind(values.json("phase", &rows)?)
        .bind(now.0)
        .execute(&mut *connection)
        .await
        .during("record progress")?;
    let result = sqlx::query(NOTE_BEAT)
        .bind(worker.to_string())
        .bind(now.0)
        .execute(connection)
        .await
        .during("note a worker's beat")?;
    one_row(&result, "worker")
}
