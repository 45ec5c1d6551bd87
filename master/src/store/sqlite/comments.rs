//! What is said about items of the built-in forge.

use sqlx::{SqliteConnection, sqlite::SqliteRow};

use super::{
    error::During,
    rows::{Columns, Values, after as after_number, wanted},
};
use crate::{
    domain::ids::{RepositoryId, RequestId},
    store::{Error, model::ForgeComment},
};

macro_rules! select_comment {
    ($rest:literal) => {
        concat!(
            "
SELECT repository_id, number, comment, author, body, request_id, created_at,
    repository_id || ' #' || number || '.' || comment AS id
FROM forge_comments",
            $rest
        )
    };
}

const PAGE: &str = select_comment!(
    "
WHERE repository_id = $1
  AND number = $2
  AND comment > $3
ORDER BY comment
LIMIT $4"
);

const BY_REQUEST: &str = select_comment!(
    "
WHERE request_id = $1"
);

const NEXT: &str = "
SELECT COALESCE(MAX(comment), 0) + 1 AS comment
FROM forge_comments
WHERE repository_id = $1
  AND number = $2";

const INSERT: &str = "
INSERT INTO forge_comments (repository_id, number, comment, author, body, request_id, created_at)
VALUES ($1, $2, $3, $4, $5, $6, $7)";

pub(super) const STATEMENTS: &[&str] = &[PAGE, BY_REQUEST, NEXT, INSERT];

fn from_row(row: &SqliteRow) -> Result<ForgeComment, Error> {
    let columns = Columns::new(row, "forge_comments", "id");
    Ok(ForgeComment {
        repository: columns.parsed("repository_id")?,
        number: columns.number("number")?,
        comment: columns.number("comment")?,
        author: columns.text("author")?,
        body: columns.text("body")?,
        request: columns.parsed_option("request_id")?,
        created_at: columns.instant("created_at")?,
    })
}

pub(super) async fn page(
    connection: &mut SqliteConnection,
    repository: RepositoryId,
    number: u64,
    after: u64,
    limit: u32,
) -> Result<Vec<ForgeComment>, Error> {
    sqlx::query(PAGE)
        .bind(repository.to_string())
        .bind(wanted(number))
        .bind(after_number(after))
        .bind(limit)
        .fetch_all(connection)
        .await
        .during("list comments")?
        .iter()
        .map(from_row)
        .collect()
}

pub(super) async fn by_request(
    connection: &mut SqliteConnection,
    request: RequestId,
) -> Result<Option<ForgeComment>, Error> {
    sqlx::query(BY_REQUEST)
        .bind(request.to_string())
        .fetch_optional(connection)
        .await
        .during("read a comment by its request")?
        .as_ref()
        .map(from_row)
        .transpose()
}

pub(super) async fn next(
    connection: &mut SqliteConnection,
    repository: RepositoryId,
    number: u64,
) -> Result<u64, Error> {
    let row = sqlx::query(NEXT)
        .bind(repository.to_string())
        .bind(wanted(number))
        .fetch_one(connection)
        .await
        .during("read the next comment's number")?;
    Columns::new(&row, "forge_comments", "comment").number("comment")
}

pub(super) async fn insert(
    connection: &mut SqliteConnection,
    comment: &ForgeComment,
) -> Result<(), Error> {
    let values = Values {
        table: "forge_comments",
        id: &comment.comment,
    };
    sqlx::query(INSERT)
        .bind(comment.repository.to_string())
        .bind(values.number("number", comment.number)?)
        .bind(values.number("comment", comment.comment)?)
        .bind(comment.author.clone())
        .bind(comment.body.clone())
        .bind(comment.request.map(|request| request.to_string()))
        .bind(comment.created_at.0)
        .execute(connection)
        .await
        .during("insert a comment")?;
    Ok(())
}
