//! Rows that ask forges: each repository has turns of its own.
//!
//! A remote that hangs holds up its own rows and nobody else's: a run starts what is free, waits a moment
//! for it, and leaves what hangs to a later run, which passes that repository over until it is done.

use std::{collections::BTreeMap, time::Duration};

use tokio::{
    sync::Mutex,
    task::{JoinError, JoinSet},
    time::Instant,
};

use super::Report;
use crate::{domain::ids::RepositoryId, service::Error};

/// How long a run waits for the turns that it started. Healthy remotes answer well within it, so that a
/// run by hand reports what it did; what takes longer is reported by a later run.
const PATIENCE: Duration = Duration::from_secs(5);

/// Longest that one row may take: git's own deadline for a command, and some for the rest.
const ROW_BUDGET: Duration = Duration::from_secs(900);

/// The turns of one sweep that are under way.
#[derive(Default)]
pub(super) struct Turns(Mutex<UnderWay>);

#[derive(Default)]
struct UnderWay {
    busy: Vec<RepositoryId>,
    tasks: JoinSet<(RepositoryId, Report)>,
}

impl Turns {
    /// Works on the rows of each repository that is free, one after another, all repositories at once;
    /// reports those turns that ended by the time this returns.
    pub(super) async fn run<T, F>(
        &self,
        sweep: &'static str,
        rows: Vec<(RepositoryId, T)>,
        work: impl Fn(T) -> F + Clone + Send + 'static,
    ) -> Report
    where
        T: Send + 'static,
        F: Future<Output = Result<bool, Error>> + Send + 'static,
    {
        let mut under_way = self.0.lock().await;
        for (repository, rows) in by_repository(rows) {
            if under_way.busy.contains(&repository) {
                continue;
            }
            under_way.busy.push(repository);
            let work = work.clone();
            under_way.tasks.spawn(async move {
                let mut report = Report::default();
                for row in rows {
                    match tokio::time::timeout(ROW_BUDGET, work(row)).await {
                        Ok(result) => report.count(sweep, result),
                        Err(_) => {
                            report.examined += 1;
                            report.failed += 1;
                            tracing::warn!(sweep, repository.id = %repository, "a row took too long");
                        }
                    }
                }
                (repository, report)
            });
        }
        under_way.collect(Instant::now() + PATIENCE).await
    }
}

impl UnderWay {
    async fn collect(&mut self, deadline: Instant) -> Report {
        let mut total = Report::default();
        while let Ok(Some(ended)) = tokio::time::timeout_at(deadline, self.tasks.join_next()).await
        {
            let (repository, report) = unpanicked(ended);
            self.busy.retain(|busy| *busy != repository);
            total.add(report);
        }
        total
    }
}

fn by_repository<T>(rows: Vec<(RepositoryId, T)>) -> BTreeMap<RepositoryId, Vec<T>> {
    let mut groups: BTreeMap<RepositoryId, Vec<T>> = BTreeMap::new();
    for (repository, row) in rows {
        groups.entry(repository).or_default().push(row);
    }
    groups
}

/// A row whose turn panicked takes the sweep with it, and so the process: that is a defect.
fn unpanicked<T>(ended: Result<T, JoinError>) -> T {
    ended.unwrap_or_else(|error| match error.try_into_panic() {
        Ok(panic) => std::panic::resume_unwind(panic),
        Err(error) => unreachable!("nobody cancels a turn: {error}"),
    })
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    };

    use tokio::sync::Semaphore;
    use uuid::Uuid;

    use super::*;

    fn repository(n: u128) -> RepositoryId {
        RepositoryId(Uuid::from_u128(n))
    }

    #[tokio::test(start_paused = true)]
    async fn a_repository_that_hangs_holds_up_itself_alone() {
        let gate = Arc::new(Semaphore::new(0));
        let done = Arc::new(AtomicU32::new(0));
        let work = {
            let (gate, done) = (Arc::clone(&gate), Arc::clone(&done));
            move |hangs: bool| {
                let (gate, done) = (Arc::clone(&gate), Arc::clone(&done));
                async move {
                    if hangs {
                        drop(gate.acquire().await);
                    }
                    done.fetch_add(1, Ordering::SeqCst);
                    Ok(true)
                }
            }
        };
        let turns = Turns::default();
        let rows = || vec![(repository(1), true), (repository(2), false)];

        let first = turns.run("test", rows(), work.clone()).await;
        assert_eq!((first.examined, first.changed), (1, 1));
        let second = turns.run("test", rows(), work.clone()).await;
        assert_eq!(second.examined, 1, "the one that hangs has its turn still");
        assert_eq!(done.load(Ordering::SeqCst), 2);

        gate.add_permits(2);
        let third = turns.run("test", rows(), work).await;
        assert_eq!(third.examined, 2, "its turn of before, and the other's");
    }

    #[tokio::test(start_paused = true)]
    async fn a_row_that_never_ends_is_given_up_and_the_next_has_its_turn() {
        let turns = Turns::default();
        let rows = vec![(repository(1), true), (repository(1), false)];
        let work = |hangs: bool| async move {
            if hangs {
                std::future::pending::<()>().await;
            }
            Ok(true)
        };
        let mut total = turns.run("test", rows, work).await;
        while total.examined < 2 {
            total.add(turns.run("test", vec![(repository(1), false)], work).await);
        }
        assert_eq!((total.failed, total.changed), (1, 1));
    }
}
