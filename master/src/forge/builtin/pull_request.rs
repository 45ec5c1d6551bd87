//! Opens pull requests: first the branch, then the row.
//!
//! Killed in between, the branch is there without a row; the next call finds the branch as wanted and
//! writes the row. A row without its branch is never written.

use super::{
    branch::{Advanced, Start, advance},
    forge::BuiltinForge,
    mirror::Mirror,
};
use crate::{
    domain::workflow::Kind,
    forge::{Error, OpenOutcome, WantedPullRequest},
    store::{
        self,
        model::{ForgeItem, Repository},
    },
};

/// Most tries to write a row that somebody else writes too. Whoever loses a race finds the winner's row.
const MAX_RACES: u32 = 3;

impl BuiltinForge {
    pub(super) async fn ensure_pull_request(
        &self,
        repository: &Repository,
        wanted: &WantedPullRequest,
    ) -> Result<OpenOutcome, Error> {
        let mirror = self.mirrors.take(repository, "open a pull request").await?;
        match advance(&mirror, &wanted.head_ref, Start::Any, &wanted.commit).await? {
            Advanced::Done { .. } => {}
            Advanced::Superseded { head } => return Ok(OpenOutcome::Superseded { head }),
            Advanced::Waiting { reason } => return Ok(OpenOutcome::Waiting { reason }),
        }
        self.close_merged(&mirror, repository, wanted).await?;
        let row = self
            .ensure_row(repository, wanted)
            .await
            .map_err(|source| mirror.store(source))?;
        let item = self.complete(&mirror, row).await?;
        Ok(OpenOutcome::Done { item })
    }

    /// Closes an earlier pull request from the same branch that was merged without its row saying so.
    async fn close_merged(
        &self,
        mirror: &Mirror,
        repository: &Repository,
        wanted: &WantedPullRequest,
    ) -> Result<(), Error> {
        let earlier = self
            .store
            .forge_pull_request(repository.id, &wanted.head_ref)
            .await
            .map_err(|source| mirror.store(source))?;
        match earlier {
            Some(row) if row.is_open => self.complete(mirror, row).await.map(drop),
            _ => Ok(()),
        }
    }

    async fn ensure_row(
        &self,
        repository: &Repository,
        wanted: &WantedPullRequest,
    ) -> Result<ForgeItem, store::Error> {
        let mut races = 0;
        loop {
            match self.find_or_insert(repository, wanted).await {
                Err(store::Error::Constraint(_) | store::Error::LostRace(_))
                    if races < MAX_RACES =>
                {
                    races += 1;
                }
                result => return result,
            }
        }
    }

    async fn find_or_insert(
        &self,
        repository: &Repository,
        wanted: &WantedPullRequest,
    ) -> Result<ForgeItem, store::Error> {
        let now = self.clock.now();
        let mut tx = self.store.begin().await?;
        let found = tx
            .open_forge_pull_request(repository.id, &wanted.head_ref)
            .await?;
        let row = match found {
            // Committed in any case: what was read is true only then.
            Some(row) if row.labels.contains(&wanted.label) => row,
            Some(mut row) => {
                row.labels.push(wanted.label.clone());
                row.labels.sort_unstable();
                row.updated_at = now;
                tx.update_forge_item(&row).await?;
                row
            }
            None => {
                let row = ForgeItem {
                    repository: repository.id,
                    number: tx.next_item_number(repository.id).await?,
                    kind: Kind::PullRequest,
                    title: wanted.title.clone(),
                    body: wanted.body.clone(),
                    labels: vec![wanted.label.clone()],
                    is_open: true,
                    head_ref: Some(wanted.head_ref.clone()),
                    base_ref: wanted.base_ref.clone(),
                    merged_commit: None,
                    request: None,
                    created_at: now,
                    updated_at: now,
                };
                tx.insert_forge_item(&row).await?;
                row
            }
        };
        tx.commit().await?;
        Ok(row)
    }
}
