//! Repositories.

use serde_json::{Value, json};

use super::{Change, Error, Service};
use crate::{
    domain::{
        ci::CheckDefinition,
        decision::{EventKind, Note},
        ids::RepositoryId,
        policy::{Policy, PolicyField},
        time::Timestamp,
    },
    store::{
        self, Constraint, Tx,
        model::{About, NewEvent, Repository},
    },
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

/// What a row of the history tells about a repository.
pub(super) struct Said<'a> {
    pub(super) note: Note,
    pub(super) actor: &'a str,
    pub(super) reason: &'a str,
    pub(super) at: Timestamp,
    pub(super) detail: Value,
}

impl Service {
    /// Adds a repository of the built-in forge. The base branch must exist. The same again changes
    /// nothing.
    pub async fn add_repository(
        &self,
        new: NewRepository,
        reason: &str,
        actor: &str,
    ) -> Result<Change<Repository>, Error> {
        self.check_policy(&new.policy)?;
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
                let said = match &error {
                    crate::forge::Error::Unavailable { said, .. } => said.as_str(),
                    crate::forge::Error::Refused { .. } | crate::forge::Error::Store { .. } => "",
                };
                return Err(Error::invalid(
                    "git_url",
                    format!("git can't read a repository there{said}"),
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
                let said = Said {
                    note: Note::RepositoryAdded,
                    actor,
                    reason,
                    at: repository.created_at,
                    detail: json!({ "name": repository.name, "git_url": repository.git_url }),
                };
                self.tell(tx.as_mut(), repository.id, said).await?;
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

    fn check_policy(&self, policy: &Policy) -> Result<(), Error> {
        policy
            .check(self.settings.least_ttl_seconds)
            .map_err(|invalid| Error::Invalid {
                field: format!("policy.{}", invalid.field),
                reason: format!("is {}; {} is expected", invalid.value, invalid.expected),
            })
    }

    /// Makes `fields` of a repository's policy what they are in `new`; the others stay. Its workflows go by
    /// it from their next decision on.
    pub async fn update_policy(
        &self,
        repository: &str,
        new: &Policy,
        fields: &[PolicyField],
        reason: &str,
        actor: &str,
    ) -> Result<Change<Repository>, Error> {
        let at = self.now();
        let id = self.repository_named(repository).await?.id;
        let mut tx = self.store().begin().await?;
        let before = tx.repository(id).await?;
        let before = before.ok_or_else(|| Error::no_repository(repository))?;
        let mut after = before.clone();
        for field in fields {
            after.policy.take(*field, new);
        }
        self.check_policy(&after.policy)?;
        let changed = before.policy.difference(&after.policy);
        if changed.is_empty() {
            return Ok(Change::Unchanged(after));
        }
        tx.update_repository(&after).await?;
        let said = Said {
            note: Note::PolicyUpdated,
            actor,
            reason,
            at,
            detail: json!({
                "before": excerpt(&before.policy, &changed),
                "after": excerpt(&after.policy, &changed),
            }),
        };
        self.tell(tx.as_mut(), id, said).await?;
        tx.commit().await?;
        self.wake().all();
        Ok(Change::Changed(after))
    }

    /// Writes a row of the history about a repository.
    pub(super) async fn tell(
        &self,
        tx: &mut dyn Tx,
        repository: RepositoryId,
        said: Said<'_>,
    ) -> Result<(), store::Error> {
        tx.append_event(&NewEvent {
            about: About::Repository(repository),
            attempt: None,
            occurred_at: said.at,
            kind: EventKind::Note(said.note),
            actor: said.actor.to_owned(),
            reason: said.reason.to_owned(),
            detail: said.detail,
        })
        .await
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

/// Some fields of a policy, as one JSON object.
fn excerpt(policy: &Policy, fields: &[PolicyField]) -> Value {
    let whole = json!(policy);
    let fields = fields.iter().map(|field| field.as_str());
    fields
        .map(|name| (name.to_owned(), whole[name].clone()))
        .collect::<serde_json::Map<_, _>>()
        .into()
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
