//! Issues and pull requests of the built-in forge.

use sqlx::{SqliteConnection, sqlite::SqliteRow};

use super::{
    error::{During, one_row},
    rows::{Columns, Values, after as after_number, wanted},
};
use crate::{
    domain::ids::{RepositoryId, RequestId},
    store::{
        Error,
        model::{ForgeItem, ItemFilter},
    },
};

macro_rules! select_item {
    ($rest:literal) => {
        concat!(
            "
SELECT repository_id, number, kind, title, body, labels, is_open, head_ref, base_ref, merged_commit,
    request_id, created_at, updated_at, repository_id || ' #' || number AS item
FROM forge_items",
            $rest
        )
    };
}

const BY_NUMBER: &str = select_item!(
    "
WHERE repository_id = $1
  AND number = $2"
);

const BY_REQUEST: &str = select_item!(
    "
WHERE request_id = $1"
);

const OPEN_WITH_LABEL: &str = select_item!(
    "
WHERE repository_id = $1
  AND number > $3
  AND is_open = 1
  AND EXISTS (SELECT 1 FROM json_each(labels) WHERE value = $2)
ORDER BY number
LIMIT $4"
);

const PAGE: &str = select_item!(
    "
WHERE repository_id = $1
  AND number > $2
  AND ($3 IS NULL OR is_open = $3)
  AND ($4 IS NULL OR EXISTS (SELECT 1 FROM json_each(labels) WHERE value = $4))
ORDER BY number
LIMIT $5"
);

const BY_HEAD_REF: &str = select_item!(
    "
WHERE repository_id = $1
  AND head_ref = $2
ORDER BY is_open DESC, number DESC
LIMIT 1"
);

const OPEN_BY_HEAD_REF: &str = select_item!(
    "
WHERE repository_id = $1
  AND head_ref = $2
  AND is_open = 1"
);

const NEXT_NUMBER: &str = "
SELECT COALESCE(MAX(number), 0) + 1 AS number
FROM forge_items
WHERE repository_id = $1";

const INSERT: &str = "
INSERT INTO forge_items (repository_id, number, kind, title, body, labels, is_open, head_ref, base_ref,
    merged_commit, request_id, created_at, updated_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)";

const UPDATE: &str = "
UPDATE forge_items
SET labels = $3,
    is_open = $4,
    merged_commit = $5,
    updated_at = $6
WHERE repository_id = $1
  AND number = $2";

pub(super) const STATEMENTS: &[&str] = &[
    BY_NUMBER,
    BY_REQUEST,
    OPEN_WITH_LABEL,
    PAGE,
    BY_HEAD_REF,
    OPEN_BY_HEAD_REF,
    NEXT_NUMBER,
    INSERT,
    UPDATE,
];

fn from_row(row: &SqliteRow) -> Result<ForgeItem, Error> {
    let columns = Columns::new(row, "forge_items", "item");
    Ok(ForgeItem {
        repository: columns.parsed("repository_id")?,
        number: columns.number("number")?,
        kind: columns.parsed("kind")?,
        title: columns.text("title")?,
        body: columns.text("body")?,
        labels: columns.json("labels")?,
        is_open: columns.flag("is_open")?,
        head_ref: columns.text_option("head_ref")?,
        base_ref: columns.text("base_ref")?,
        merged_commit: columns.parsed_option("merged_commit")?,
        request: columns.parsed_option("request_id")?,
        created_at: columns.instant("created_at")?,
        updated_at: columns.instant("updated_at")?,
    })
}

pub(super) async fn by_number(
    connection: &mut SqliteConnection,
    repository: RepositoryId,
    number: u64,
) -> Result<Option<ForgeItem>, Error> {
    sqlx::query(BY_NUMBER)
        .bind(repository.to_string())
        .bind(wanted(number))
        .fetch_optional(connection)
        .await
        .during("read an item")?
        .as_ref()
        .map(from_row)
        .transpose()
}

pub(super) async fn by_request(
    connection: &mut SqliteConnection,
    request: RequestId,
) -> Result<Option<ForgeItem>, Error> {
    sqlx::query(BY_REQUEST)
        .bind(request.to_string())
        .fetch_optional(connection)
        .await
        .during("read an item by its request")?
        .as_ref()
        .map(from_row)
        .transpose()
}

pub(super) async fn open_with_label(
    connection: &mut SqliteConnection,
    repository: RepositoryId,
    label: &str,
    after: u64,
    limit: u32,
) -> Result<Vec<ForgeItem>, Error> {
    sqlx::query(OPEN_WITH_LABEL)
        .bind(repository.to_string())
        .bind(label.to_owned())
        .bind(after_number(after))
        .bind(limit)
        .fetch_all(connection)
        .await
        .during("list items with a label")?
        .iter()
        .map(from_row)
        .collect()
}

pub(super) async fn page(
    connection: &mut SqliteConnection,
    repository: RepositoryId,
    filter: &ItemFilter,
    after: u64,
    limit: u32,
) -> Result<Vec<ForgeItem>, Error> {
    sqlx::query(PAGE)
        .bind(repository.to_string())
        .bind(after_number(after))
        .bind(filter.is_open)
        .bind(filter.label.clone())
        .bind(limit)
        .fetch_all(connection)
        .await
        .during("list items")?
        .iter()
        .map(from_row)
        .collect()
}

pub(super) async fn by_head_ref(
    connection: &mut SqliteConnection,
    repository: RepositoryId,
    head_ref: &str,
) -> Result<Option<ForgeItem>, Error> {
    of_head_ref(connection, BY_HEAD_REF, repository, head_ref).await
}

pub(super) async fn open_by_head_ref(
    connection: &mut SqliteConnection,
    repository: RepositoryId,
    head_ref: &str,
) -> Result<Option<ForgeItem>, Error> {
    of_head_ref(connection, OPEN_BY_HEAD_REF, repository, head_ref).await
}

async fn of_head_ref(
    connection: &mut SqliteConnection,
    statement: &'static str,
    repository: RepositoryId,
    head_ref: &str,
) -> Result<Option<ForgeItem>, Error> {
    sqlx::query(statement)
        .bind(repository.to_string())
        .bind(head_ref.to_owned())
        .fetch_optional(connection)
        .await
        .during("read a branch's pull request")?
        .as_ref()
        .map(from_row)
        .transpose()
}

pub(super) async fn next_number(
    connection: &mut SqliteConnection,
    repository: RepositoryId,
) -> Result<u64, Error> {
    let row = sqlx::query(NEXT_NUMBER)
        .bind(repository.to_string())
        .fetch_one(connection)
        .await
        .during("read the next item's number")?;
    Columns::new(&row, "forge_items", "number").number("number")
}

pub(super) async fn insert(
    connection: &mut SqliteConnection,
    item: &ForgeItem,
) -> Result<(), Error> {
    let values = Values {
        table: "forge_items",
        id: &item.number,
    };
    sqlx::query(INSERT)
        .bind(item.repository.to_string())
        .bind(values.number("number", item.number)?)
        .bind(item.kind.as_str())
        .bind(item.title.clone())
        .bind(item.body.clone())
        .bind(values.json("labels", &item.labels)?)
        .bind(item.is_open)
        .bind(item.head_ref.clone())
        .bind(item.base_ref.clone())
        .bind(item.merged_commit.as_ref().map(ToString::to_string))
        .bind(item.request.map(|request| request.to_string()))
        .bind(item.created_at.0)
        .bind(item.updated_at.0)
        .execute(connection)
        .await
        .during("insert an item")?;
    Ok(())
}

pub(super) async fn update(
    connection: &mut SqliteConnection,
    item: &ForgeItem,
) -> Result<(), Error> {
    let values = Values {
        table: "forge_items",
        id: &item.number,
    };
    let result = sqlx::query(UPDATE)
        .bind(item.repository.to_string())
        .bind(wanted(item.number))
        .bind(values.json("labels", &item.labels)?)
        .bind(item.is_open)
        .bind(item.merged_commit.as_ref().map(ToString::to_string))
        .bind(item.updated_at.0)
        .execute(connection)
        .await
        .during("update an item")?;
    one_row(&result, "item")
}
