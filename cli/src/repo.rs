//! `pointsman repo`: repositories.

use clap::{Args, Subcommand};
use pointsman_proto::v1::{self, AddRepositoryRequest, ListRepositoriesRequest};
use serde::Serialize;

use crate::{
    args::Target,
    client::Client,
    error::Error,
    output::{self, Format, Table},
    policy,
    view::{Check, Repository, cell},
};

/// What the check of `--ci` is called.
const CI: &str = "ci";

/// Most entries that the master gives at once.
const PAGE_SIZE: u32 = 500;

#[derive(Debug, Subcommand)]
pub(crate) enum Repo {
    /// Add a repository on the built-in forge; the same again changes nothing
    Add(Add),
    /// Show a repository's policy, or change it: what is under way goes by it from its next decision on
    Policy(Change),
    /// List repositories
    List,
}

#[derive(Debug, Args)]
pub(crate) struct Add {
    /// What it is called here: a-z, 0-9, `-`, `_`, `.` and `/`
    name: String,
    /// Where git finds it, for the master and for the workers
    #[arg(long, value_name = "URL")]
    git: String,
    /// The branch that pull requests go to
    #[arg(long, default_value = "main", value_name = "BRANCH")]
    base: String,
    /// The command of a check with the name `ci`, run by `/bin/sh -c` in a fresh checkout
    #[arg(long, value_name = "COMMAND")]
    ci: Option<String>,
    /// A check by name, as often as needed; all run at once on every head
    #[arg(long = "check", value_name = "NAME=COMMAND", value_parser = parse_check)]
    checks: Vec<v1::CheckDefinition>,
    /// The label that opts an issue or pull request in
    #[arg(long, default_value = "agent")]
    label: String,
    /// A bound of its workflows, as often as needed
    #[arg(
        long = "policy",
        value_name = "KEY=VALUE",
        value_parser = policy::parse_setting,
        long_help = format!("A bound of its workflows, as often as needed. Keys: {}", policy::KEYS)
    )]
    policy: Vec<policy::Setting>,
    /// Why, for the history
    #[arg(long, default_value = "", hide_default_value = true)]
    reason: String,
}

#[derive(Debug, Args)]
pub(crate) struct Change {
    /// The repository's name
    name: String,
    /// A bound to set, as often as needed
    #[arg(
        long = "policy",
        value_name = "KEY=VALUE",
        value_parser = policy::parse_setting,
        requires = "reason",
        long_help = format!("A bound to set, as often as needed. Keys: {}", policy::KEYS)
    )]
    set: Vec<policy::Setting>,
    /// A bound to bring back to its default, as often as needed
    #[arg(long, value_name = "KEY", value_parser = policy::parse_key, requires = "reason")]
    reset: Vec<String>,
    /// Why, for the history
    #[arg(long)]
    reason: Option<String>,
}

#[derive(Debug, Serialize)]
struct Updated {
    changed: bool,
    repository: Repository,
}

#[derive(Debug, Serialize)]
struct Added {
    changed: bool,
    repository: Repository,
}

#[derive(Debug, Serialize)]
struct Listed {
    repositories: Vec<Repository>,
}

impl Repo {
    /// Carries the command out.
    pub(crate) async fn run(self, target: &Target) -> Result<(), Error> {
        match self {
            Self::Add(add) => add.run(target).await,
            Self::Policy(change) => change.run(target).await,
            Self::List => list(target).await,
        }
    }
}

impl Add {
    async fn run(self, target: &Target) -> Result<(), Error> {
        let request = AddRepositoryRequest {
            name: self.name,
            git_url: location(&self.git)?,
            base_ref: self.base,
            ci_command: self.ci.unwrap_or_default(),
            label: self.label,
            policy: policy::policy(&self.policy).map_err(Error::Usage)?,
            reason: self.reason,
            checks: self.checks,
        };
        let mut client = target.connect().await?;
        let answer = client
            .repositories
            .add_repository(request)
            .await?
            .into_inner();
        let added = Added {
            changed: answer.changed,
            repository: answer.repository.unwrap_or_default().into(),
        };
        match target.output {
            Format::Json => output::json(&added),
            Format::Table => output::line(&added.sentence()),
        }
    }
}

/// Adds the repository, unless it is there with these settings. Its policy and label are not looked at:
/// they may have been changed since.
///
/// # Errors
/// [`Error::Refused`] where it is there with other settings.
pub(crate) async fn register(
    client: &mut Client,
    wanted: AddRepositoryRequest,
) -> Result<(), Error> {
    let name = &wanted.name;
    let there = all(client).await?.into_iter().find(|r| r.name == *name);
    let Some(there) = there else {
        client.repositories.add_repository(wanted).await?;
        return Ok(());
    };
    let ci = (!wanted.ci_command.is_empty()).then(|| v1::CheckDefinition {
        name: CI.to_owned(),
        command: wanted.ci_command,
    });
    let checks: Vec<Check> = ci
        .into_iter()
        .chain(wanted.checks)
        .map(Check::from)
        .collect();
    let settings = [
        ("git", there.git_url, wanted.git_url),
        ("base", there.base_ref, wanted.base_ref),
        ("checks", in_words(&there.checks), in_words(&checks)),
    ];
    let others = settings.into_iter().filter(|(_, is, wanted)| is != wanted);
    let others: Vec<String> = others
        .map(|(name, is, wanted)| format!("{name} is `{is}` and not `{wanted}`"))
        .collect();
    match others.as_slice() {
        [] => Ok(()),
        others => Err(Error::Refused(format!(
            "{name} is registered with other settings: {}; name those again, or begin anew with another \
             --state-dir",
            others.join("; ")
        ))),
    }
}

fn in_words(checks: &[Check]) -> String {
    let words = checks
        .iter()
        .map(|check| format!("{}={}", check.name, check.command));
    words.collect::<Vec<_>>().join(", ")
}

impl Change {
    async fn run(self, target: &Target) -> Result<(), Error> {
        let updated = self.updated(target).await?;
        match target.output {
            Format::Json => output::json(&updated),
            Format::Table => output::text(&updated.text()),
        }
    }

    async fn updated(self, target: &Target) -> Result<Updated, Error> {
        let mut paths = policy::fields(&self.set);
        paths.extend(self.reset);
        // A change of nothing shows what is there.
        let request = v1::UpdatePolicyRequest {
            repository: self.name,
            policy: policy::policy(&self.set).map_err(Error::Usage)?,
            update_mask: Some(prost_types::FieldMask { paths }),
            reason: self.reason.unwrap_or_else(|| "a look".to_owned()),
        };
        let mut client = target.connect().await?;
        let answer = client.repositories.update_policy(request).await?;
        let answer = answer.into_inner();
        Ok(Updated {
            changed: answer.changed,
            repository: answer.repository.unwrap_or_default().into(),
        })
    }
}

impl Updated {
    fn text(&self) -> String {
        let mut table = Table::new(["KEY", "VALUE"]);
        let policy = serde_json::to_value(&self.repository.policy).unwrap_or_default();
        for (key, value) in policy.as_object().into_iter().flatten() {
            table.row([key.clone(), value.to_string()]);
        }
        table.render()
    }
}

impl Added {
    fn sentence(&self) -> String {
        let name = &self.repository.name;
        match self.changed {
            true => format!("added {name}: {}", self.repository.git_url),
            false => format!("{name} is there already, with these settings"),
        }
    }
}

/// Reads one `name=command`; the master says which names there can be.
pub(crate) fn parse_check(typed: &str) -> Result<v1::CheckDefinition, String> {
    let parts = typed.split_once('=').map(|(n, c)| (n.trim(), c.trim()));
    match parts {
        Some((name, command)) if !name.is_empty() && !command.is_empty() => {
            Ok(v1::CheckDefinition {
                name: name.to_owned(),
                command: command.to_owned(),
            })
        }
        _ => Err("takes NAME=COMMAND".to_owned()),
    }
}

/// A relative path is meant from here; master and workers run elsewhere.
fn location(git: &str) -> Result<String, Error> {
    let path = std::path::Path::new(git);
    if path.is_absolute() || !path.exists() {
        return Ok(git.to_owned());
    }
    std::path::absolute(path)
        .map(|path| path.to_string_lossy().into_owned())
        .map_err(|error| Error::Usage(format!("--git {git}: {error}")))
}

async fn list(target: &Target) -> Result<(), Error> {
    let repositories = all(&mut target.connect().await?).await?;
    match target.output {
        Format::Json => output::json(&Listed { repositories }),
        Format::Table => output::text(&table(&repositories).render()),
    }
}

async fn all(client: &mut Client) -> Result<Vec<Repository>, Error> {
    let mut repositories = Vec::new();
    let mut page_token = String::new();
    loop {
        let request = ListRepositoriesRequest {
            page_size: PAGE_SIZE,
            page_token,
        };
        let page = client
            .repositories
            .list_repositories(request)
            .await?
            .into_inner();
        repositories.extend(page.repositories.into_iter().map(Repository::from));
        page_token = page.next_page_token;
        if page_token.is_empty() {
            return Ok(repositories);
        }
    }
}

fn table(repositories: &[Repository]) -> Table {
    let mut table = Table::new(["NAME", "GIT", "BASE", "CHECKS", "LABEL"]);
    for repository in repositories {
        let names: Vec<&str> = repository.checks.iter().map(|c| c.name.as_str()).collect();
        let checks = (!names.is_empty()).then(|| names.join(", "));
        table.row([
            repository.name.clone(),
            repository.git_url.clone(),
            repository.base_ref.clone(),
            cell(checks.as_ref()),
            repository.label.clone(),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_relative_path_that_is_there_is_made_absolute() {
        let here = std::env::current_dir().unwrap();
        assert_eq!(location("src").unwrap(), here.join("src").to_string_lossy());
        for other in [
            "/tmp",
            "https://host/x.git",
            "git@host:x.git",
            "not-there.git",
        ] {
            assert_eq!(location(other).unwrap(), other);
        }
    }
}
