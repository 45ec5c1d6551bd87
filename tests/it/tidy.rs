//! Rules about the source itself that the compiler can't keep.
//!
//! Each rule is a function over one file's path and text, so that a saboteur can show that it fails.

use std::path::{Path, PathBuf};

/// Longest file, tests included.
const MAX_LINES: usize = 800;

struct Source {
    /// Relative to the workspace.
    path: String,
    text: String,
}

type Rule = fn(&Source) -> Option<String>;

const RULES: [(&str, Rule); 8] = [
    ("domain_is_pure", domain_is_pure),
    (
        "sqlx_is_known_to_the_store_alone",
        sqlx_is_known_to_the_store_alone,
    ),
    (
        "object_store_is_known_to_the_logs_alone",
        object_store_is_known_to_the_logs_alone,
    ),
    (
        "tonic_is_known_to_the_wire_alone",
        tonic_is_known_to_the_wire_alone,
    ),
    ("processes_are_known_to_few", processes_are_known_to_few),
    ("files_are_short", files_are_short),
    ("nothing_is_left_for_later", nothing_is_left_for_later),
    ("no_path_of_a_machine", no_path_of_a_machine),
];

#[test]
fn the_source_is_tidy() {
    let mut broken = Vec::new();
    for source in sources() {
        for (name, rule) in RULES {
            if let Some(why) = rule(&source) {
                broken.push(format!("{}: {name}: {why}", source.path));
            }
        }
    }
    assert!(broken.is_empty(), "\n{}", broken.join("\n"));
}

#[test]
fn only_apply_calls_decide() {
    let callers: Vec<String> = sources()
        .into_iter()
        .filter(|s| s.path.starts_with("master/src/") && !s.path.starts_with("master/src/domain/"))
        .filter(|s| s.text.contains("decide(&"))
        .map(|s| s.path)
        .collect();
    assert_eq!(callers, ["master/src/service/apply.rs"]);
}

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn sources() -> Vec<Source> {
    let mut found = Vec::new();
    for member in ["proto", "git", "master", "worker", "cli", "tests"] {
        collect(&workspace().join(member), member, &mut found);
    }
    assert!(found.len() > 50, "the sources are somewhere else");
    found
}

fn collect(directory: &Path, name: &str, found: &mut Vec<Source>) {
    for entry in std::fs::read_dir(directory).expect("a directory of sources") {
        let entry = entry.expect("an entry of a directory");
        let path = format!("{name}/{}", entry.file_name().to_string_lossy());
        if entry.path().is_dir() {
            collect(&entry.path(), &path, found);
        } else if path.ends_with(".rs") {
            let text = std::fs::read_to_string(entry.path()).expect("a source is text");
            found.push(Source { path, text });
        }
    }
}

/// Lines of code, without comments.
fn code(source: &Source) -> impl Iterator<Item = &str> {
    source
        .text
        .lines()
        .map(str::trim_start)
        .filter(|line| !line.starts_with("//"))
}

/// The first line of code with one of the words, which must not be the end of a longer one.
fn first_with(source: &Source, words: &[&str]) -> Option<String> {
    let holds = |line: &str, word: &str| {
        line.match_indices(word).any(|(at, _)| {
            let before = line[..at].chars().next_back();
            before.is_none_or(|c| !c.is_alphanumeric() && c != '_' && c != ':')
        })
    };
    code(source)
        .find(|line| words.iter().any(|word| holds(line, word)))
        .map(str::to_owned)
}

fn is_test(path: &str) -> bool {
    path.contains("/tests/") || path.ends_with("tests.rs") || path.starts_with("tests/")
}

fn domain_is_pure(source: &Source) -> Option<String> {
    if !source.path.starts_with("master/src/domain/") {
        return None;
    }
    first_with(
        source,
        &[
            "tokio::",
            "sqlx::",
            "tonic::",
            "tracing::",
            "rand::",
            "std::fs",
            "std::env",
            "std::net",
            "std::process",
            "crate::store",
            "crate::grpc",
            "crate::service",
            "crate::sweeps",
            "crate::forge",
            "crate::clock",
            "async fn",
            "SystemTime",
            "Instant::now",
        ],
    )
}

fn sqlx_is_known_to_the_store_alone(source: &Source) -> Option<String> {
    let at_home = source.path.starts_with("master/src/store/");
    if at_home || is_test(&source.path) {
        return None;
    }
    first_with(source, &["sqlx::"])
}

fn object_store_is_known_to_the_logs_alone(source: &Source) -> Option<String> {
    if source.path.starts_with("master/src/logs/") || is_test(&source.path) {
        return None;
    }
    first_with(source, &["object_store::"])
}

fn tonic_is_known_to_the_wire_alone(source: &Source) -> Option<String> {
    let homes = [
        "master/src/grpc/",
        "worker/src/master",
        "cli/src/",
        "proto/",
    ];
    let at_home = homes.iter().any(|home| source.path.starts_with(home));
    // The composition root passes routes on.
    if at_home || is_test(&source.path) || source.path == "master/src/app.rs" {
        return None;
    }
    first_with(source, &["tonic::", "pointsman_proto::"])
}

fn processes_are_known_to_few(source: &Source) -> Option<String> {
    let homes = [
        "worker/src/process/",
        "worker/src/shim/",
        "cli/src/processes/",
    ];
    let at_home = homes.iter().any(|home| source.path.starts_with(home));
    if at_home || is_test(&source.path) || source.path.starts_with("worker/tests/") {
        return None;
    }
    first_with(source, &["procfs::", "libc::", "nix::"])
}

fn files_are_short(source: &Source) -> Option<String> {
    let lines = source.text.lines().count();
    (lines > MAX_LINES).then(|| format!("{lines} lines; at most {MAX_LINES} are allowed"))
}

fn nothing_is_left_for_later(source: &Source) -> Option<String> {
    if source.path == "tests/it/tidy.rs" {
        return None;
    }
    let marks = [
        "todo!(",
        "unimplemented!(",
        "dbg!(",
        "#[ignore",
        "TODO",
        "FIXME",
        "XXX",
    ];
    source
        .text
        .lines()
        .find(|line| marks.iter().any(|mark| line.contains(mark)))
        .map(|line| line.trim().to_owned())
}

fn no_path_of_a_machine(source: &Source) -> Option<String> {
    if source.path == "tests/it/tidy.rs" {
        return None;
    }
    source
        .text
        .lines()
        .find(|line| {
            ["/work/", "/root/", "/home/"]
                .iter()
                .any(|p| line.contains(p))
        })
        .map(|line| line.trim().to_owned())
}

#[test]
fn each_public_failure_has_the_tests_that_are_named() {
    let path = workspace().join("docs/public-failures.md");
    let text = std::fs::read_to_string(path).expect("the list is there");
    let sources = sources();
    let rows: Vec<&str> = text
        .lines()
        .filter(|line| line.starts_with("| ") && line.contains("::"))
        .collect();
    assert!(rows.len() > 15, "the list is written in another way");
    let missing: Vec<&str> = rows
        .iter()
        .flat_map(|row| named_tests(row))
        .filter(|name| !is_test_of(name, &sources))
        .collect();
    assert!(missing.is_empty(), "no such tests: {missing:#?}");
    let real = named_tests(rows[0])[0];
    for wrong in [&real[1..], &real[..real.len() - 1]] {
        assert!(!is_test_of(wrong, &sources), "{wrong} was not noticed");
    }
}

/// What a row of a table names as `path::function`, between backticks.
fn named_tests(row: &str) -> Vec<&str> {
    let quoted = row.split('`').skip(1).step_by(2);
    quoted.filter(|word| word.contains("::")).collect()
}

fn is_test_of(name: &str, sources: &[Source]) -> bool {
    let Some((path, function)) = name.split_once("::") else {
        return false;
    };
    let definition = format!("fn {function}(");
    sources
        .iter()
        .any(|source| source.path == path && code(source).any(|line| line.contains(&definition)))
}

/// Every rule catches what it is there for.
#[test]
fn each_rule_can_fail() {
    let long = "\n".repeat(MAX_LINES + 1);
    let saboteurs: [(&str, &str, &str); 8] = [
        (
            "domain_is_pure",
            "master/src/domain/x.rs",
            "use tokio::time::sleep;",
        ),
        (
            "sqlx_is_known_to_the_store_alone",
            "master/src/service/x.rs",
            "sqlx::query(\"\")",
        ),
        (
            "object_store_is_known_to_the_logs_alone",
            "master/src/service/x.rs",
            "use object_store::ObjectStore;",
        ),
        (
            "tonic_is_known_to_the_wire_alone",
            "master/src/sweeps/x.rs",
            "use tonic::Status;",
        ),
        (
            "processes_are_known_to_few",
            "worker/src/session/x.rs",
            "use nix::sys::signal;",
        ),
        ("files_are_short", "cli/src/x.rs", &long),
        ("nothing_is_left_for_later", "cli/src/x.rs", "    todo!()"),
        (
            "no_path_of_a_machine",
            "cli/src/x.rs",
            "// see /home/somebody",
        ),
    ];
    for ((name, rule), (sabotaged, path, text)) in RULES.into_iter().zip(saboteurs) {
        assert_eq!(name, sabotaged);
        let source = Source {
            path: path.to_owned(),
            text: text.to_owned(),
        };
        assert!(rule(&source).is_some(), "{name} did not notice");
    }
}
