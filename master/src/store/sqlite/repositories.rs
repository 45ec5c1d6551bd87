//! Repositories.

use sqlx::{SqliteConnection, sqlite::SqliteRow};

use super::{
    error::{During, one_row},
    rows::{Columns, Values},
};
use crate::{
    domain::ids::RepositoryId,
    store::{Error, model::Repository},
};

macro_rules! select_repository {
    ($rest:literal) => {
        concat!(
            "
SELECT id, name, git_url, base_ref, label, checks, policy, created_at
FROM repositories",
            $rest
        )
    };
}

const BY_ID: &str = select_repository!(
    "
WHERE id = $1"
);

const BY_NAME: &str = select_repository!(
    "
WHERE name = $1"
);

const PAGE: &str = select_repository!(
    "
WHERE name > $1
ORDER BY name
LIMIT $2"
);

const INSERT: &str = "
INSERT INTO repositories (id, name, git_url, base_ref, label, checks, policy, created_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8)";

const UPDATE: &str = "
UPDATE repositories
SET policy = $2
WHERE id = $1";

pub(super) const STATEMENTS: &[&str] = &[BY_ID, BY_NAME, PAGE, INSERT, UPDATE];

fn from_row(row: &SqliteRow) -> Result<Repository, Error> {
    let columns = Columns::new(row, "repositories", "id");
    Ok(Repository {
        id: columns.parsed("id")?,
        name: columns.text("name")?,
        git_url: columns.text("git_url")?,
        base_ref: columns.text("base_ref")?,
        label: columns.text("label")?,
        checks: columns.json("checks")?,
        policy: columns.json("policy")?,
        created_at: columns.instant("created_at")?,
    })
}

pub(super) async fn by_id(
    connection: &mut SqliteConnection,
    id: RepositoryId,
) -> Result<Option<Repository>, Error> {
    sqlx::query(BY_ID)
        .bind(id.to_string())
        .fetch_optional(connection)
        .await
        .during("read a repository")?
        .as_ref()
        .map(from_row)
        .transpose()
}

pub(super) async fn by_name(
    connection: &mut SqliteConnection,
    name: &str,
) -> Result<Option<Repository>, Error> {
    sqlx::query(BY_NAME)
        .bind(name.to_owned())
        .fetch_optional(connection)
        .await
        .during("read a repository by its name")?
        .as_ref()
        .map(from_row)
        .transpose()
}

pub(super) async fn page(
    connection: &mut SqliteConnection,
    after: &str,
    limit: u32,
) -> Result<Vec<Repository>, Error> {
    sqlx::query(PAGE)
        .bind(after.to_owned())
        .bind(limit)
        .fetch_all(connection)
        .await
        .during("list repositories")?
        .iter()
        .map(from_row)
        .collect()
}

pub(super) async fn insert(
    connection: &mut SqliteConnection,
    repository: &Repository,
) -> Result<(), Error> {
    let values = Values {
        table: "repositories",
        id: &repository.id,
    };
    sqlx::query(INSERT)
        .bind(repository.id.to_string())
        .bind(repository.name.clone())
        .bind(repository.git_url.clone())
        .bind(repository.base_ref.clone())
        .bind(repository.label.clone())
        .bind(values.json("checks", &repository.checks)?)
        .bind(values.json("policy", &repository.policy)?)
        .bind(repository.created_at.0)
        .execute(connection)
        .await
        .during("insert a repository")?;
    Ok(())
}

pub(super) async fn update(
    connection: &mut SqliteConnection,
    repository: &Repository,
) -> Result<(), Error> {
    let values = Values {
        table: "repositories",
        id: &repository.id,
    };
    let result = sqlx::query(UPDATE)
        .bind(repository.id.to_string())
        .bind(values.json("policy", &repository.policy)?)
        .execute(connection)
        .await
        .during("update a repository")?;
    one_row(&result, "repository")
}
