//! The configurations of a master and of workers on this machine.

use std::{net::SocketAddr, path::Path};

use anyhow::Context as _;
use serde::Serialize;

/// Roles that a harness does. A check has none: its command is run as it is.
pub(crate) const HARNESS_ROLES: [&str; 5] = [
    "estimator",
    "implementer",
    "reviewer",
    "conflict_resolver",
    "escalator",
];

/// How a master differs from a plain one.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Master<'a> {
    /// Port 0: any that is free.
    pub(crate) listen: SocketAddr,
    pub(crate) shutdown_grace: &'a str,
}

/// How a worker differs from a plain one.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Worker {
    /// URL of the master.
    pub(crate) masters: [String; 1],
    pub(crate) capacity: u32,
    pub(crate) roles: Vec<&'static str>,
    pub(crate) drain_grace: String,
    /// Variables of this process's environment that checks get.
    pub(crate) ci_env: Vec<String>,
    /// Profiles by name, as the worker's configuration has them.
    pub(crate) harness: toml::Table,
}

/// What a configuration says of the process itself, before the rest.
#[derive(Serialize)]
struct File<'a, T> {
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
    state_dir: &'a Path,
    #[serde(flatten)]
    settings: &'a T,
}

impl Master<'_> {
    /// The configuration file of a master whose state is in `state`.
    pub(crate) fn text(&self, state: &Path) -> anyhow::Result<String> {
        text(None, state, self)
    }
}

impl Worker {
    /// The configuration file of a worker of this name, whose state is in `state`.
    pub(crate) fn text(&self, name: &str, state: &Path) -> anyhow::Result<String> {
        text(Some(name), state, self)
    }
}

fn text<T: Serialize>(
    name: Option<&str>,
    state_dir: &Path,
    settings: &T,
) -> anyhow::Result<String> {
    let file = File {
        name,
        state_dir,
        settings,
    };
    toml::to_string(&file)
        .with_context(|| format!("write a configuration for {}", state_dir.display()))
}

/// A profile that runs a command for these roles, at every tier.
pub(crate) fn profile(command: &[String], prompt: &str, roles: &[&str]) -> toml::Table {
    let list = |words: Vec<&str>| -> toml::Value {
        toml::Value::Array(words.into_iter().map(toml::Value::from).collect())
    };
    let words = command.iter().map(String::as_str).collect();
    let mut profile = toml::Table::new();
    profile.insert("command".to_owned(), list(words));
    profile.insert("prompt".to_owned(), toml::Value::from(prompt));
    profile.insert("roles".to_owned(), list(roles.to_vec()));
    profile
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_and_words_are_quoted() {
        let master = Master {
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            shutdown_grace: "3s",
        };
        let place = Path::new("/a \"b\"\\c\u{e9}");
        let read: toml::Table = master.text(place).unwrap().parse().unwrap();
        assert_eq!(read["state_dir"].as_str(), place.to_str());

        let command = ["a \"b\"".to_owned(), "$c\n".to_owned()];
        let profile = profile(&command, "file", &["reviewer"]);
        let worker = Worker {
            masters: ["http://127.0.0.1:1".to_owned()],
            capacity: 1,
            roles: vec!["ci", "reviewer"],
            drain_grace: "2s".to_owned(),
            ci_env: Vec::new(),
            harness: toml::Table::from_iter([("x.y".to_owned(), profile.into())]),
        };
        let read: toml::Table = worker.text("w", place).unwrap().parse().unwrap();
        let words = read["harness"]["x.y"]["command"].as_array().unwrap();
        let words: Vec<_> = words.iter().filter_map(toml::Value::as_str).collect();
        assert_eq!(words, command);
    }
}
