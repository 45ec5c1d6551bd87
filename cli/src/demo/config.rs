//! The configurations of the demo's master and workers.

use std::path::Path;

/// The workers and their roles. Two, so that work passes from one process to another, as it does on
/// several hosts; both can review.
pub(super) const WORKERS: [(&str, &[&str]); 2] = [
    (
        "worker-1",
        &[
            "estimator",
            "implementer",
            "reviewer",
            "conflict_resolver",
            "escalator",
        ],
    ),
    ("worker-2", &["ci", "reviewer"]),
];

/// A master on SQLite and on a port that is free.
pub(super) fn master(state: &Path) -> String {
    format!(
        "\
listen = \"127.0.0.1:0\"
state_dir = {state}
shutdown_grace = \"3s\"
",
        state = quoted(&state.to_string_lossy()),
    )
}

/// A worker that runs the scripted harness.
pub(super) fn worker(
    name: &str,
    roles: &[&str],
    master: &str,
    state: &Path,
    program: &Path,
) -> String {
    let list = |roles: &[&str]| {
        let quoted: Vec<String> = roles.iter().map(|role| quoted(role)).collect();
        quoted.join(", ")
    };
    let with_harness: Vec<&str> = roles.iter().copied().filter(|role| *role != "ci").collect();
    format!(
        "\
masters = [{master}]
state_dir = {state}
name = {name}
capacity = 1
roles = [{roles}]
drain_grace = \"2s\"

[harness.scripted]
command = [{program}, \"scripted-harness\"]
prompt = \"file\"
roles = [{with_harness}]
",
        master = quoted(master),
        state = quoted(&state.to_string_lossy()),
        name = quoted(name),
        roles = list(roles),
        program = quoted(&program.to_string_lossy()),
        with_harness = list(&with_harness),
    )
}

/// A basic string of TOML: JSON's escapes are all among TOML's.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_quoted() {
        let master = master(Path::new("/a \"b\"\\c"));
        assert!(master.contains(r#"state_dir = "/a \"b\"\\c""#), "{master}");
    }

    #[test]
    fn a_check_needs_no_harness() {
        let (name, roles) = WORKERS[1];
        let text = worker(name, roles, "http://h:1", Path::new("/s"), Path::new("/p"));
        assert!(
            text.contains("\nroles = [\"ci\", \"reviewer\"]\n"),
            "{text}"
        );
        assert!(text.ends_with("roles = [\"reviewer\"]\n"), "{text}");
    }
}
