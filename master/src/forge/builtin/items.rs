//! Issues and pull requests: our rows, with what the remote says about their branches.

use super::{forge::BuiltinForge, merge, mirror::Mirror};
use crate::{
    domain::{ids::CommitId, workflow::Kind},
    forge::{Error, Item},
    store::{
        self,
        model::{ForgeItem, Repository},
    },
};

/// Rows read at once. A repository with more open labelled items takes several reads.
const PAGE: u32 = 200;

impl BuiltinForge {
    pub(super) async fn read_labelled_items(
        &self,
        repository: &Repository,
    ) -> Result<Vec<Item>, Error> {
        let operation = "list labelled items";
        let rows = self
            .labelled_rows(repository)
            .await
            .map_err(|source| Error::Store { operation, source })?;
        if rows.iter().all(|row| row.kind == Kind::Issue) {
            return Ok(rows.into_iter().map(|row| item(row, None)).collect());
        }
        let mirror = self.mirrors.take(repository, operation).await?;
        mirror.look().await?;
        let mut items = Vec::with_capacity(rows.len());
        for row in rows {
            items.push(self.complete(&mirror, row).await?);
        }
        items.retain(|item| item.is_open);
        Ok(items)
    }

    pub(super) async fn read_item(
        &self,
        repository: &Repository,
        number: u64,
    ) -> Result<Option<Item>, Error> {
        let operation = "read an item";
        let row = self
            .store
            .forge_item(repository.id, number)
            .await
            .map_err(|source| Error::Store { operation, source })?;
        match row {
            None => Ok(None),
            Some(row) if row.kind == Kind::Issue => Ok(Some(item(row, None))),
            Some(row) => {
                let mirror = self.mirrors.take(repository, operation).await?;
                mirror.look().await?;
                self.complete(&mirror, row).await.map(Some)
            }
        }
    }

    pub(super) async fn read_row(
        &self,
        repository: &Repository,
        number: u64,
    ) -> Result<Option<Item>, Error> {
        let row = self.store.forge_item(repository.id, number).await;
        let row = row.map_err(|source| Error::Store {
            operation: "glance at an item",
            source,
        })?;
        Ok(row.map(Item::from))
    }

    /// Adds what the last look says to a row. A pull request that turns out to be merged is closed by
    /// this in its row too: a push whose row was never written, or a merge made by hand.
    pub(super) async fn complete(&self, mirror: &Mirror, row: ForgeItem) -> Result<Item, Error> {
        let head = match &row.head_ref {
            Some(name) => mirror.branch(name).await?,
            None => None,
        };
        if !row.is_open || row.kind == Kind::Issue {
            return Ok(item(row, head));
        }
        let row = match merge::merged_as(mirror, &row, head.as_ref()).await? {
            Some(commit) => self
                .mark_merged(row, &commit)
                .await
                .map_err(|source| mirror.store(source))?,
            None => row,
        };
        Ok(item(row, head))
    }

    /// Closes a pull request's row as merged, unless it is. Returns the row as it is then.
    pub(super) async fn mark_merged(
        &self,
        row: ForgeItem,
        commit: &CommitId,
    ) -> Result<ForgeItem, store::Error> {
        let mut tx = self.store.begin().await?;
        let Some(mut row) = tx.forge_item(row.repository, row.number).await? else {
            return Ok(row);
        };
        if row.merged_commit.is_some() && !row.is_open {
            // What was read is true once it is committed.
            tx.commit().await?;
            return Ok(row);
        }
        row.is_open = false;
        row.merged_commit = Some(commit.clone());
        row.updated_at = self.clock.now();
        tx.update_forge_item(&row).await?;
        tx.commit().await?;
        Ok(row)
    }

    async fn labelled_rows(&self, repository: &Repository) -> Result<Vec<ForgeItem>, store::Error> {
        let mut rows: Vec<ForgeItem> = Vec::new();
        loop {
            let after = rows.last().map_or(0, |row| row.number);
            let page = self
                .store
                .forge_items_with_label(repository.id, &repository.label, after, PAGE)
                .await?;
            if page.is_empty() {
                return Ok(rows);
            }
            rows.extend(page);
        }
    }
}

fn item(row: ForgeItem, head: Option<CommitId>) -> Item {
    Item {
        head,
        ..Item::from(row)
    }
}
