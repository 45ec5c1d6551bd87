//! Repositories.

use super::{Change, Error, Service};
use crate::{
    domain::{ci::CheckDefinition, policy::Policy},
    store::{self, Constraint, model::Repository},
};

/// A repository to be added; checked by [`Service::add_repository`].
#[derive(Debug, Clone)]
pub struct NewRepository {
    pub name: String,
    pub git_url: String,
    pub base_ref: String,
    pub label: String,
    pub checks: Vec<CheckDefinition>,
    pub policy: Policy,
}

impl Service {
    /// Adds a repository of the built-in forge. The base branch must exist. The same again changes
    /// nothing.
    pub async fn add_repository(&self, new: NewRepository) -> Result<Change<Repository>, Error> {
        new.policy
            .check(self.settings.least_ttl_seconds)
            .map_err(|invalid| Error::Invalid {
                field: format!("policy.{}", invalid.field),
                reason: format!("is {}; {} is expected", invalid.value, invalid.expected),
            })?;
        if let Some(there) = self.store().repository_by_name(&new.name).await? {
            return same_or_refused(there, &new);
        }
        let repository = Repository {
            id: self.new_repository_id(),
            name: new.name.clone(),
            git_url: new.git_url.clone(),
            base_ref: new.base_ref.clone(),
            label: new.label.clone(),
            checks: new.checks.clone(),
            policy: new.policy.clone(),
            created_at: self.now(),
        };
        let base = match self.ports.forge.branch(&repository, &new.base_ref).await {
            Ok(base) => base,
            Err(error) => {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    repository = %new.name,
                    "a new repository could not be read"
                );
                return Err(Error::invalid(
                    "git_url",
                    "git can't read a repository there; the master's log says why",
                ));
            }
        };
        if base.is_none() {
            return Err(Error::invalid(
                "base_ref",
                format!("there is no branch {} in the repository", new.base_ref),
            ));
        }
        let mut tx = self.store().begin().await?;
        match tx.insert_repository(&repository).await {
            Ok(()) => {
                tx.commit().await?;
                Ok(Change::Changed(repository))
            }
            // Added by somebody else since the look above.
            Err(store::Error::Constraint(Constraint::RepositoryName)) => {
                drop(tx);
                let there = self.repository_named(&new.name).await?;
                same_or_refused(there, &new)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// By name, those after `after`.
    pub async fn repositories(&self, after: &str, limit: u32) -> Result<Vec<Repository>, Error> {
        Ok(self.store().repositories(after, limit).await?)
    }

    pub async fn repository_named(&self, name: &str) -> Result<Repository, Error> {
        self.store()
            .repository_by_name(name)
            .await?
            .ok_or_else(|| Error::no_repository(name))
    }
}

fn same_or_refused(there: Repository, new: &NewRepository) -> Result<Change<Repository>, Error> {
    let is_same = there.git_url == new.git_url
        && there.base_ref == new.base_ref
        && there.label == new.label
        && there.checks == new.checks
        && there.policy == new.policy;
    if is_same {
        Ok(Change::Unchanged(there))
    } else {
        Err(Error::AlreadyExists {
            what: "repository",
            id: new.name.clone(),
        })
    }
}
