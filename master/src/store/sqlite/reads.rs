//! [`Store`] on SQLite: reads by the readers, beats by the writer.

use async_trait::async_trait;

use super::{
    SqliteStore, attempts, beats, checks, comments, effects, error::During, events, forge, history,
    holds, leases, repositories, sql, stats, sweeps, tx::SqliteTx, workers, workflows,
};
use crate::{
    domain::{
        hold::Hold,
        ids::{
            AttemptId, CommitId, HoldId, InstanceId, LeaseKey, RepositoryId, WorkerId, WorkflowId,
        },
        time::Timestamp,
    },
    store::{
        Error, Mark, Store, Tx,
        model::{
            AttemptFilter, AttemptPage, AttemptRow, BeatWrite, ChangePoint, Changes, CheckRun,
            EventRow, Figures, ForgeComment, ForgeItem, HeldLease, HistoryBatch, ItemFilter,
            LeaseRow, OpenEffectRow, ProgressRow, Repository, SessionRow, StaleLease, WorkerRow,
            WorkerSummary, WorkflowFilter, WorkflowRow,
        },
    },
};

#[async_trait]
impl Store for SqliteStore {
    async fn begin(&self) -> Result<Box<dyn Tx>, Error> {
        let turn = self.turn().await?;
        Ok(Box::new(SqliteTx::new(turn, self.clock())))
    }

    fn mark(&self) -> Mark {
        self.writer().mark()
    }

    async fn settle(&self, since: Mark) -> Result<(), Error> {
        self.writer().settle(since).await
    }

    async fn may_have_work(&self) -> Result<bool, Error> {
        let mut reader = self.reader().await?;
        let row = sqlx::query(sql::MAY_HAVE_WORK)
            .bind(self.now().0)
            .fetch_optional(&mut *reader)
            .await
            .during("look for pending attempts")?;
        Ok(row.is_some())
    }

    async fn ping(&self) -> Result<(), Error> {
        let mut reader = self.reader().await?;
        sqlx::query(sql::PING)
            .execute(&mut *reader)
            .await
            .during("ping the database")?;
        // A writer that never gets its turn is no writer.
        let turn = self.turn().await?;
        if !self.writer().condition().is_failing() {
            return Ok(());
        }
        drop(turn);
        self.probe(sql::PROBE).await?;
        self.probe(sql::END_PROBE).await?;
        self.writer().condition().works();
        Ok(())
    }

    async fn snapshot(&self) -> Result<crate::store::model::Snapshot, Error> {
        self.copy().await
    }

    async fn close(&self) {
        self.end().await;
    }

    async fn repository(&self, id: RepositoryId) -> Result<Option<Repository>, Error> {
        repositories::by_id(&mut *self.reader().await?, id).await
    }

    async fn repository_by_name(&self, name: &str) -> Result<Option<Repository>, Error> {
        repositories::by_name(&mut *self.reader().await?, name).await
    }

    async fn repositories(&self, after: &str, limit: u32) -> Result<Vec<Repository>, Error> {
        repositories::page(&mut *self.reader().await?, after, limit).await
    }

    async fn workflow(&self, id: WorkflowId) -> Result<Option<WorkflowRow>, Error> {
        workflows::by_id(&mut *self.reader().await?, id).await
    }

    async fn workflows(
        &self,
        filter: &WorkflowFilter,
        after: Option<WorkflowId>,
        limit: u32,
    ) -> Result<Vec<WorkflowRow>, Error> {
        workflows::page(&mut *self.reader().await?, filter, after, limit).await
    }

    async fn changed_workflows(
        &self,
        filter: &WorkflowFilter,
        after: ChangePoint,
        limit: u32,
    ) -> Result<Changes, Error> {
        workflows::changed(&mut *self.reader().await?, filter, after, limit).await
    }

    async fn count_live_workflows(&self, repository: RepositoryId) -> Result<u32, Error> {
        workflows::count_live(&mut *self.reader().await?, repository).await
    }

    async fn workflow_of_item(
        &self,
        repository: RepositoryId,
        number: u64,
    ) -> Result<Option<WorkflowRow>, Error> {
        workflows::newest_of_item(&mut *self.reader().await?, repository, number).await
    }

    async fn workflows_that_may_leave(
        &self,
        repository: RepositoryId,
        after: Option<WorkflowId>,
        limit: u32,
    ) -> Result<Vec<WorkflowRow>, Error> {
        workflows::may_leave(&mut *self.reader().await?, repository, after, limit).await
    }

    async fn attempts_of(
        &self,
        workflow: WorkflowId,
        limit: u32,
    ) -> Result<Vec<AttemptRow>, Error> {
        attempts::newest_of(&mut *self.reader().await?, workflow, limit).await
    }

    async fn archivable_workflows(
        &self,
        before: Timestamp,
        after: Option<(Timestamp, WorkflowId)>,
        limit: u32,
    ) -> Result<Vec<(Timestamp, WorkflowId)>, Error> {
        history::archivable(&mut *self.reader().await?, before, after, limit).await
    }

    async fn oldest_history(
        &self,
        workflow: WorkflowId,
        limit: u32,
    ) -> Result<Option<HistoryBatch>, Error> {
        history::oldest(&mut *self.reader().await?, workflow, limit).await
    }

    async fn oldest_other_events(
        &self,
        before: Timestamp,
        limit: u32,
    ) -> Result<Option<HistoryBatch>, Error> {
        history::oldest_other_events(&mut *self.reader().await?, before, limit).await
    }

    async fn attempts(
        &self,
        filter: &AttemptFilter,
        before: Option<AttemptId>,
        limit: u32,
    ) -> Result<AttemptPage, Error> {
        attempts::page(&mut *self.reader().await?, filter, before, limit).await
    }

    async fn events(
        &self,
        workflow: Option<WorkflowId>,
        after: u64,
        limit: u32,
    ) -> Result<Vec<EventRow>, Error> {
        events::page(&mut *self.reader().await?, workflow, after, limit).await
    }

    async fn newest_events(
        &self,
        workflow: WorkflowId,
        limit: u32,
    ) -> Result<Vec<EventRow>, Error> {
        events::newest(&mut *self.reader().await?, workflow, limit).await
    }

    async fn sessions(
        &self,
        worker: Option<WorkerId>,
        after: Option<AttemptId>,
        limit: u32,
    ) -> Result<Vec<SessionRow>, Error> {
        leases::sessions(&mut *self.reader().await?, worker, after, limit).await
    }

    async fn sessions_of(&self, workflow: WorkflowId) -> Result<Vec<SessionRow>, Error> {
        leases::sessions_of(&mut *self.reader().await?, workflow).await
    }

    async fn heartbeats(&self) -> Result<Vec<(LeaseKey, Timestamp)>, Error> {
        leases::heartbeats(&mut *self.reader().await?).await
    }

    async fn held_leases(&self, owner: InstanceId) -> Result<Vec<HeldLease>, Error> {
        leases::held(&mut *self.reader().await?, owner).await
    }

    async fn open_effect_of(&self, workflow: WorkflowId) -> Result<Option<OpenEffectRow>, Error> {
        effects::open_of(&mut *self.reader().await?, workflow).await
    }

    async fn due_effects(&self, now: Timestamp, limit: u32) -> Result<Vec<OpenEffectRow>, Error> {
        effects::due(&mut *self.reader().await?, now, limit).await
    }

    async fn due_ci_polls(&self, now: Timestamp, limit: u32) -> Result<Vec<WorkflowId>, Error> {
        sweeps::due_ci_polls(&mut *self.reader().await?, now, limit).await
    }

    async fn workflows_without_work(
        &self,
        after: Option<WorkflowId>,
        limit: u32,
    ) -> Result<Vec<WorkflowId>, Error> {
        sweeps::workflows_without_work(&mut *self.reader().await?, after, limit).await
    }

    async fn spent_attempts(
        &self,
        after: Option<AttemptId>,
        limit: u32,
    ) -> Result<Vec<(AttemptId, WorkflowId)>, Error> {
        sweeps::spent_attempts(&mut *self.reader().await?, after, limit).await
    }

    async fn stale_leases(
        &self,
        after: Option<AttemptId>,
        limit: u32,
    ) -> Result<Vec<StaleLease>, Error> {
        let now = self.now();
        leases::stale(&mut *self.reader().await?, now, after, limit).await
    }

    async fn flush_beats(
        &self,
        owner: InstanceId,
        beats: &[BeatWrite],
    ) -> Result<Vec<LeaseKey>, Error> {
        let now = self.now();
        let mut turn = self.turn().await?;
        let alive = beats::flush(&mut *turn.connection().await?, owner, beats, now).await;
        let alive = turn.noted(alive)?;
        turn.commit("commit beats").await?;
        Ok(alive)
    }

    async fn record_progress(
        &self,
        worker: WorkerId,
        progress: &[ProgressRow],
        now: Timestamp,
    ) -> Result<(), Error> {
        let mut turn = self.turn().await?;
        let recorded =
            beats::record_progress(&mut *turn.connection().await?, worker, progress, now).await;
        turn.noted(recorded)?;
        turn.commit("commit progress").await
    }

    async fn attempt(&self, id: AttemptId) -> Result<Option<AttemptRow>, Error> {
        attempts::by_id(&mut *self.reader().await?, id).await
    }

    async fn lease(&self, attempt: AttemptId) -> Result<Option<LeaseRow>, Error> {
        leases::by_attempt(&mut *self.reader().await?, attempt).await
    }

    async fn worker(&self, id: WorkerId) -> Result<Option<WorkerRow>, Error> {
        workers::by_id(&mut *self.reader().await?, id).await
    }

    async fn workers(
        &self,
        after: Option<WorkerId>,
        limit: u32,
    ) -> Result<Vec<WorkerSummary>, Error> {
        workers::page(&mut *self.reader().await?, after, limit).await
    }

    async fn live_workers(&self, since: Timestamp, limit: u32) -> Result<Vec<WorkerRow>, Error> {
        workers::live(&mut *self.reader().await?, since, limit).await
    }

    async fn holds(&self, after: Option<HoldId>, limit: u32) -> Result<Vec<Hold>, Error> {
        holds::page(&mut *self.reader().await?, after, limit).await
    }

    async fn figures(
        &self,
        alive_since: Timestamp,
        seen_since: Timestamp,
    ) -> Result<Figures, Error> {
        stats::figures(&mut *self.reader().await?, alive_since, seen_since).await
    }

    async fn forge_item(
        &self,
        repository: RepositoryId,
        number: u64,
    ) -> Result<Option<ForgeItem>, Error> {
        forge::by_number(&mut *self.reader().await?, repository, number).await
    }

    async fn forge_items_with_label(
        &self,
        repository: RepositoryId,
        label: &str,
        after: u64,
        limit: u32,
    ) -> Result<Vec<ForgeItem>, Error> {
        forge::open_with_label(&mut *self.reader().await?, repository, label, after, limit).await
    }

    async fn forge_items(
        &self,
        repository: RepositoryId,
        filter: &ItemFilter,
        after: u64,
        limit: u32,
    ) -> Result<Vec<ForgeItem>, Error> {
        forge::page(&mut *self.reader().await?, repository, filter, after, limit).await
    }

    async fn forge_comments(
        &self,
        repository: RepositoryId,
        number: u64,
        after: u64,
        limit: u32,
    ) -> Result<Vec<ForgeComment>, Error> {
        comments::page(&mut *self.reader().await?, repository, number, after, limit).await
    }

    async fn forge_pull_request(
        &self,
        repository: RepositoryId,
        head_ref: &str,
    ) -> Result<Option<ForgeItem>, Error> {
        forge::by_head_ref(&mut *self.reader().await?, repository, head_ref).await
    }

    async fn check_runs(
        &self,
        workflow: WorkflowId,
        commit: &CommitId,
    ) -> Result<Vec<CheckRun>, Error> {
        checks::newest_of(&mut *self.reader().await?, workflow, commit).await
    }
}

impl SqliteStore {
    /// Writes, durably, to see whether that works.
    async fn probe(&self, statement: &'static str) -> Result<(), Error> {
        let mut turn = self.turn().await?;
        let written = sqlx::query(statement)
            .execute(&mut *turn.connection().await?)
            .await
            .during("try a write");
        turn.noted(written)?;
        turn.commit("commit a try").await
    }
}
