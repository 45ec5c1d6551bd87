//! Claiming: which pending attempts are leased, in which order.
//!
//! Priorities from the highest down; inside one, a queue a role and repository, oldest first. Each slot
//! goes to the head of a queue whose repository has fewest attempts in progress, those that this claim
//! leases included. Queues are read by page, past what does not fit, so that a row at the head that
//! nobody asked for holds up nobody behind it. SQL leaves out what is not due or not in the state of its
//! role; tiers, kill budgets and holds are compared here, with the domain's own rules.

use std::collections::{HashMap, VecDeque};

use sqlx::{SqliteConnection, sqlite::SqliteRow};

use super::{
    attempts::{self, select_attempt},
    error::{During, one_row},
    holds, leases,
    rows::Columns,
};
use crate::{
    domain::{
        attempt::{Attempt, AttemptStatus, Role},
        hold::{Gate, Hold, gate},
        ids::{AttemptId, Fence, LeaseKey, Nonce, RepositoryId, WorkerId},
        time::Timestamp,
        transitions::State,
    },
    store::{
        Error,
        model::{ClaimRequest, Claimed, LeaseRow, Offer},
    },
};

/// Candidates of one queue that are read at once. More than one queue gives to one claim as a rule, and
/// few enough to be read from each of many queues.
const PAGE: u32 = 8;

const REPEATED: &str = "
SELECT attempt_id
FROM attempt_leases
WHERE lock_owner = $1
  AND request_id = $2
ORDER BY attempt_id";

const IN_PROGRESS: &str = "
SELECT repository_id, COUNT(*) AS n
FROM attempts
WHERE status = 'in_progress'
GROUP BY repository_id";

const NEXT_PRIORITY: &str = "
SELECT MAX((
  SELECT MAX(a.priority)
  FROM attempts a
  WHERE a.status = 'pending'
    AND a.role = roles.value
    AND a.priority < $1
)) AS priority
FROM json_each($2) AS roles";

// One look at the index a repository, however many attempts are pending.
const REPOSITORIES: &str = "
WITH RECURSIVE queues (repository_id) AS (
  SELECT MIN(repository_id)
  FROM attempts
  WHERE status = 'pending'
    AND role = $1
    AND priority = $2
  UNION ALL
  SELECT (
    SELECT MIN(a.repository_id)
    FROM attempts a
    WHERE a.status = 'pending'
      AND a.role = $1
      AND a.priority = $2
      AND a.repository_id > queues.repository_id
  )
  FROM queues
  WHERE queues.repository_id IS NOT NULL
)
SELECT repository_id
FROM queues
WHERE repository_id IS NOT NULL";

pub(super) const CANDIDATES: &str = select_attempt!(
    "
JOIN workflows w ON w.id = a.workflow_id
WHERE a.status = 'pending'
  AND a.role = $1
  AND a.priority = $2
  AND a.repository_id = $3
  AND (a.created_at, a.id) > ($4, $5)
  AND (a.not_before IS NULL OR a.not_before <= $6)
  AND w.state = $7
  AND w.head_sha IS NOT NULL
  -- A check of an earlier head tells nothing any more.
  AND (a.check_id IS NULL OR c.commit_sha = w.head_sha)
  AND NOT EXISTS (
    SELECT 1
    FROM workers drained
    WHERE drained.id = $9
      AND (drained.drain_requested_at IS NOT NULL OR drained.declared_dead_at IS NOT NULL)
  )
ORDER BY a.created_at, a.id
LIMIT $8"
);

const LEASE: &str = "
UPDATE attempts
SET status = $2,
    lock_fence = $3,
    pickup_count = $4,
    started_at = $5,
    worker_id = $6
WHERE id = $1
  AND status = 'pending'";

pub(super) const STATEMENTS: &[&str] = &[
    REPEATED,
    IN_PROGRESS,
    NEXT_PRIORITY,
    REPOSITORIES,
    CANDIDATES,
    LEASE,
];

/// Where a workflow must be for each role that is offered to be leased.
fn places(offers: &[Offer]) -> Vec<(Role, State)> {
    State::ALL
        .iter()
        .filter_map(|&state| Some((state.role()?, state)))
        .chain([(Role::Ci, State::AwaitingCi)])
        .filter(|(role, _)| offers.iter().any(|offer| offer.role == *role))
        .collect()
}

/// The holds of whoever could run what is claimed, and so the offers that may be used.
struct Gates {
    worker: WorkerId,
    holds: Vec<Hold>,
    now: Timestamp,
}

impl Gates {
    async fn read(
        connection: &mut SqliteConnection,
        request: &ClaimRequest,
        now: Timestamp,
    ) -> Result<Self, Error> {
        let accounts: Vec<String> = request.offers.iter().map(|o| o.account.clone()).collect();
        Ok(Self {
            worker: request.worker,
            holds: holds::covering(connection, request.worker, &accounts).await?,
            now,
        })
    }

    /// The first offer that an attempt fits and no hold bars.
    fn offer_for<'a>(&self, offers: &'a [Offer], attempt: &Attempt) -> Option<&'a Offer> {
        offers.iter().find(|offer| {
            offer.fits(attempt.role, attempt.tier, attempt.lock_ttl_seconds)
                && gate(&self.holds, offer.runner(self.worker), self.now) != Gate::Held
        })
    }

    /// Makes a new lease the canary of each hold that covers it.
    async fn take(
        &mut self,
        connection: &mut SqliteConnection,
        offer: &Offer,
        key: LeaseKey,
    ) -> Result<(), Error> {
        let runner = offer.runner(self.worker);
        for hold in &mut self.holds {
            if hold.subject.covers(runner) {
                hold.canary = Some((key.attempt, key.fence));
                holds::put(connection, hold).await?;
            }
        }
        Ok(())
    }
}

pub(super) async fn claim(
    connection: &mut SqliteConnection,
    request: &ClaimRequest,
    now: Timestamp,
) -> Result<Vec<Claimed>, Error> {
    let mut claimed = repeated(connection, request).await?;
    let nonces: Vec<Nonce> = request.nonces.iter().copied().skip(claimed.len()).collect();
    if nonces.is_empty() || request.offers.is_empty() {
        return Ok(claimed);
    }
    let mut nonces = nonces.into_iter();
    let places = places(&request.offers);
    let mut in_progress = in_progress(connection).await?;
    let mut gates = Gates::read(connection, request, now).await?;
    let mut below = i64::from(i32::MAX) + 1;
    while let Some(priority) = next_priority(connection, &places, below).await? {
        below = priority;
        let mut queues = Vec::new();
        for &place in &places {
            for repository in repositories(connection, place.0, priority).await? {
                let mut queue = Queue::new(place, priority, repository);
                queue.fill(connection, request, &gates).await?;
                queues.push(queue);
            }
        }
        while let Some(queue) = fairest(&mut queues, &in_progress) {
            let Some(attempt) = queue.heads.pop_front() else {
                continue;
            };
            let repository = queue.repository;
            queue.fill(connection, request, &gates).await?;
            // A canary that has just gone may have shut the gate that this one was to go through.
            let Some(offer) = gates.offer_for(&request.offers, &attempt) else {
                continue;
            };
            let Some(nonce) = nonces.next() else {
                return Ok(claimed);
            };
            *in_progress.entry(repository).or_default() += 1;
            let profile = offer.profile.clone();
            let leased = lease(connection, request, attempt, profile, nonce, now).await?;
            gates.take(connection, offer, leased.lease.key).await?;
            claimed.push(leased);
        }
    }
    Ok(claimed)
}

/// What the same request leased before.
async fn repeated(
    connection: &mut SqliteConnection,
    request: &ClaimRequest,
) -> Result<Vec<Claimed>, Error> {
    let rows = sqlx::query(REPEATED)
        .bind(request.instance.to_string())
        .bind(request.request.to_string())
        .fetch_all(&mut *connection)
        .await
        .during("list a request's leases")?;
    let mut repeated = Vec::with_capacity(rows.len());
    for row in rows {
        let id: AttemptId =
            Columns::new(&row, "attempt_leases", "attempt_id").parsed("attempt_id")?;
        let attempt = attempts::by_id(connection, id).await?;
        let lease = leases::by_attempt(connection, id).await?;
        if let (Some(attempt), Some(lease)) = (attempt, lease) {
            repeated.push(Claimed {
                attempt: attempt.attempt,
                lease,
                is_repeated: true,
            });
        }
    }
    Ok(repeated)
}

async fn in_progress(
    connection: &mut SqliteConnection,
) -> Result<HashMap<RepositoryId, u64>, Error> {
    sqlx::query(IN_PROGRESS)
        .fetch_all(connection)
        .await
        .during("count attempts in progress")?
        .iter()
        .map(|row| {
            let columns = Columns::new(row, "attempts", "repository_id");
            Ok((columns.parsed("repository_id")?, columns.number("n")?))
        })
        .collect()
}

async fn next_priority(
    connection: &mut SqliteConnection,
    places: &[(Role, State)],
    below: i64,
) -> Result<Option<i64>, Error> {
    let roles: Vec<&str> = places.iter().map(|(role, _)| role.as_str()).collect();
    let row = sqlx::query(NEXT_PRIORITY)
        .bind(below)
        .bind(serde_json::Value::from(roles).to_string())
        .fetch_one(connection)
        .await
        .during("find the next priority")?;
    Columns::new(&row, "attempts", "priority").number_option("priority")
}

async fn repositories(
    connection: &mut SqliteConnection,
    role: Role,
    priority: i64,
) -> Result<Vec<RepositoryId>, Error> {
    sqlx::query(REPOSITORIES)
        .bind(role.as_str())
        .bind(priority)
        .fetch_all(connection)
        .await
        .during("list queues")?
        .iter()
        .map(|row| Columns::new(row, "attempts", "repository_id").parsed("repository_id"))
        .collect()
}

/// Pending attempts in one role of one repository at one priority, oldest first.
struct Queue {
    role: Role,
    /// Where their workflows must be.
    state: State,
    priority: i64,
    repository: RepositoryId,
    /// Those that fit and come next.
    heads: VecDeque<Attempt>,
    /// The last one that was read.
    after: (i64, String),
    has_more: bool,
}

impl Queue {
    fn new((role, state): (Role, State), priority: i64, repository: RepositoryId) -> Self {
        Self {
            role,
            state,
            priority,
            repository,
            heads: VecDeque::new(),
            after: (i64::MIN, String::new()),
            has_more: true,
        }
    }

    /// Reads on until there is one that fits, or no more.
    async fn fill(
        &mut self,
        connection: &mut SqliteConnection,
        request: &ClaimRequest,
        gates: &Gates,
    ) -> Result<(), Error> {
        while self.heads.is_empty() && self.has_more {
            let rows = self.page(connection, request.worker, gates.now).await?;
            self.has_more = rows.len() >= PAGE as usize;
            for row in &rows {
                let attempt = attempts::from_row(row)?.attempt;
                self.after = (attempt.created_at.0, attempt.id.to_string());
                if gates.offer_for(&request.offers, &attempt).is_some() {
                    self.heads.push_back(attempt);
                }
            }
        }
        Ok(())
    }

    async fn page(
        &self,
        connection: &mut SqliteConnection,
        worker: WorkerId,
        now: Timestamp,
    ) -> Result<Vec<SqliteRow>, Error> {
        sqlx::query(CANDIDATES)
            .bind(self.role.as_str())
            .bind(self.priority)
            .bind(self.repository.to_string())
            .bind(self.after.0)
            .bind(self.after.1.clone())
            .bind(now.0)
            .bind(self.state.as_str())
            .bind(PAGE)
            .bind(worker.to_string())
            .fetch_all(connection)
            .await
            .during("list candidates")
    }
}

/// The queue that the next slot belongs to.
fn fairest<'a>(
    queues: &'a mut [Queue],
    in_progress: &HashMap<RepositoryId, u64>,
) -> Option<&'a mut Queue> {
    queues
        .iter_mut()
        .filter(|queue| !queue.heads.is_empty())
        .min_by_key(|queue| {
            let n_in_progress = in_progress.get(&queue.repository).copied().unwrap_or(0);
            let age = queue
                .heads
                .front()
                .map(|attempt| (attempt.created_at, attempt.id));
            (n_in_progress, age)
        })
}

async fn lease(
    connection: &mut SqliteConnection,
    request: &ClaimRequest,
    mut attempt: Attempt,
    profile: String,
    nonce: Nonce,
    now: Timestamp,
) -> Result<Claimed, Error> {
    attempt.status = AttemptStatus::InProgress;
    attempt.fence = Fence(attempt.fence.0.saturating_add(1));
    attempt.pickup_count = attempt.pickup_count.saturating_add(1);
    attempt.started_at = Some(now);
    let lease = LeaseRow {
        key: LeaseKey {
            attempt: attempt.id,
            fence: attempt.fence,
            nonce,
        },
        workflow: attempt.workflow,
        owner: request.instance,
        worker: request.worker,
        profile,
        is_unconfirmed: false,
        leased_at: now,
        heartbeat_at: now,
        ttl_seconds: attempt.lock_ttl_seconds,
    };
    let result = sqlx::query(LEASE)
        .bind(attempt.id.to_string())
        .bind(attempt.status.as_str())
        .bind(leases::stored_fence(lease.key)?)
        .bind(attempt.pickup_count)
        .bind(now.0)
        .bind(request.worker.to_string())
        .execute(&mut *connection)
        .await
        .during("lease an attempt")?;
    one_row(&result, "attempt")?;
    leases::insert(connection, &lease, request.request).await?;
    Ok(Claimed {
        attempt,
        lease,
        is_repeated: false,
    })
}
