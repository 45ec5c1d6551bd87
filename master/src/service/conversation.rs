//! Items of the built-in forge: closed and opened again, commented on, read and listed.

use serde_json::json;

use super::{Change, Error, Service, apply::Cause, items::ItemChange, repositories::Said};
use crate::{
    domain::{decision::Note, ids::RequestId},
    store::{
        self, Constraint,
        model::{ForgeComment, ForgeItem, ItemFilter, Repository, WorkflowRow},
    },
};

/// An item, with its newest workflow where it has one.
#[derive(Debug, Clone, PartialEq)]
pub struct ItemView {
    pub repository: Repository,
    pub item: ForgeItem,
    pub workflow: Option<WorkflowRow>,
}

/// Something to be said about an item.
#[derive(Debug, Clone, Copy)]
pub struct NewComment<'a> {
    pub repository: &'a str,
    pub number: u64,
    pub body: &'a str,
    /// A call that may be repeated.
    pub request: Option<RequestId>,
}

/// What becomes of an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wish {
    Closed,
    Open,
}

impl Service {
    /// Closes an item. Its workflow ends by it at once.
    pub async fn close_item(
        &self,
        repository: &str,
        number: u64,
        reason: &str,
        actor: &str,
    ) -> Result<Change<ItemView>, Error> {
        self.set_open(repository, number, Wish::Closed, reason, actor)
            .await
    }

    /// Opens a closed item again. What was merged stays so.
    pub async fn reopen_item(
        &self,
        repository: &str,
        number: u64,
        reason: &str,
        actor: &str,
    ) -> Result<Change<ItemView>, Error> {
        self.set_open(repository, number, Wish::Open, reason, actor)
            .await
    }

    async fn set_open(
        &self,
        repository: &str,
        number: u64,
        wish: Wish,
        reason: &str,
        actor: &str,
    ) -> Result<Change<ItemView>, Error> {
        let now = self.now();
        let repository = self.repository_named(repository).await?;
        // Work begins again only from where the branch is now; to end it nothing needs to be known.
        let looked = match wish {
            Wish::Open => Some(self.look_first(&repository, number).await?),
            Wish::Closed => None,
        };
        let mut tx = self.store().begin().await?;
        let before = tx
            .forge_item(repository.id, number)
            .await?
            .ok_or_else(|| no_item(&repository, number))?;
        let is_open = wish == Wish::Open;
        if before.is_open == is_open {
            drop(tx);
            return self.view(repository, before).await.map(Change::Unchanged);
        }
        if is_open && before.merged_commit.is_some() {
            return Err(Error::ItemMerged {
                id: format!("{}#{number}", repository.name),
            });
        }
        let after = ForgeItem {
            is_open,
            updated_at: now,
            ..before.clone()
        };
        tx.update_forge_item(&after)
            .await
            .map_err(|error| in_the_way(error, &after))?;
        let said = Said {
            note: match wish {
                Wish::Closed => Note::ItemClosed,
                Wish::Open => Note::ItemReopened,
            },
            actor,
            reason,
            at: now,
            detail: json!({ "number": number }),
        };
        self.tell(tx.as_mut(), repository.id, said).await?;
        let change = ItemChange {
            repository: &repository,
            before: &before,
            after: &after,
            looked,
        };
        let cause = Cause::new(actor, now).because(reason);
        self.item_changed(tx.as_mut(), change, &cause).await?;
        tx.commit().await?;
        self.wake().all();
        self.view(repository, after).await.map(Change::Changed)
    }

    /// Says something about an item. The same request again answers with the same comment.
    pub async fn comment(
        &self,
        new: NewComment<'_>,
        reason: &str,
        actor: &str,
    ) -> Result<Change<ForgeComment>, Error> {
        let now = self.now();
        let repository = self.repository_named(new.repository).await?;
        let mut tx = self.store().begin().await?;
        if let Some(request) = new.request
            && let Some(there) = tx.forge_comment_by_request(request).await?
        {
            let is_same = (there.repository, there.number, there.body.as_str())
                == (repository.id, new.number, new.body);
            return if is_same {
                Ok(Change::Unchanged(there))
            } else {
                Err(Error::AlreadyExists {
                    what: "a comment of request",
                    id: request.to_string(),
                })
            };
        }
        if tx.forge_item(repository.id, new.number).await?.is_none() {
            return Err(no_item(&repository, new.number));
        }
        let comment = ForgeComment {
            repository: repository.id,
            number: new.number,
            comment: tx.next_comment(repository.id, new.number).await?,
            author: actor.to_owned(),
            body: new.body.to_owned(),
            request: new.request,
            created_at: now,
        };
        tx.insert_forge_comment(&comment).await?;
        let said = Said {
            note: Note::ItemCommented,
            actor,
            reason,
            at: now,
            detail: json!({ "number": new.number, "comment": comment.comment }),
        };
        self.tell(tx.as_mut(), repository.id, said).await?;
        tx.commit().await?;
        Ok(Change::Changed(comment))
    }

    /// Of one item, oldest first, those after `after`.
    pub async fn comments(
        &self,
        repository: &str,
        number: u64,
        after: u64,
        limit: u32,
    ) -> Result<Vec<ForgeComment>, Error> {
        let ItemView { repository, .. } = self.item(repository, number).await?;
        let store = self.store();
        Ok(store
            .forge_comments(repository.id, number, after, limit)
            .await?)
    }

    /// An item as its row has it.
    pub async fn item(&self, repository: &str, number: u64) -> Result<ItemView, Error> {
        let repository = self.repository_named(repository).await?;
        let item = self.store().forge_item(repository.id, number).await?;
        let item = item.ok_or_else(|| no_item(&repository, number))?;
        self.view(repository, item).await
    }

    /// By number, those after `after`.
    pub async fn items(
        &self,
        repository: &str,
        filter: &ItemFilter,
        after: u64,
        limit: u32,
    ) -> Result<Vec<ForgeItem>, Error> {
        let repository = self.repository_named(repository).await?;
        let store = self.store();
        Ok(store
            .forge_items(repository.id, filter, after, limit)
            .await?)
    }

    async fn view(&self, repository: Repository, item: ForgeItem) -> Result<ItemView, Error> {
        let workflow = self
            .store()
            .workflow_of_item(repository.id, item.number)
            .await?;
        Ok(ItemView {
            repository,
            item,
            workflow,
        })
    }
}

fn no_item(repository: &Repository, number: u64) -> Error {
    Error::NotFound {
        what: "item",
        id: format!("{}#{number}", repository.name),
    }
}

/// A branch has one open pull request.
fn in_the_way(error: store::Error, item: &ForgeItem) -> Error {
    match error {
        store::Error::Constraint(Constraint::OneOpenPullRequest) => Error::AlreadyExists {
            what: "an open pull request from",
            id: item.head_ref.clone().unwrap_or_default(),
        },
        other => other.into(),
    }
}
