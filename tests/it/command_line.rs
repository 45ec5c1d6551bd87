//! Bad input to each command: one clear line on standard error, nothing on standard output, and the exit
//! code that `--help` documents.

use pointsman_tests::world::{Setup, World};

use crate::process_support::world;

/// Exit codes of `pointsman`, as its help says them.
const USAGE: i32 = 2;
const NOT_FOUND: i32 = 3;
const REFUSED: i32 = 4;
const UNREACHABLE: i32 = 5;

/// A workflow that nobody has.
const NOBODY: &str = "00000000-0000-7000-8000-000000000000";

/// What is typed, how it ends, and what its one line must say.
type Case<'a> = (&'a [&'a str], i32, &'a [&'a str]);

async fn refused(world: &World, (arguments, code, parts): Case<'_>) {
    let output = world.run(arguments.iter().copied()).await;
    assert_eq!(output.status, Some(code), "{arguments:?}: {output:?}");
    assert_eq!(output.stdout, "", "{arguments:?}");
    let lines: Vec<&str> = output.stderr.lines().collect();
    assert_eq!(lines.len(), 1, "{arguments:?}: {}", output.stderr);
    assert!(lines[0].starts_with("error: "), "{arguments:?}: {lines:?}");
    for part in parts {
        assert!(lines[0].contains(part), "{arguments:?}: {lines:?}");
    }
}

#[tokio::test]
async fn each_command_says_what_is_wrong_on_one_line() {
    let world = world(Setup::default().with_workers([])).await;
    let issue = world.submit().await;
    let row = world
        .story(issue)
        .await
        .expect("a story")
        .workflow()
        .id
        .clone();
    let long = "x".repeat(257);
    let cases: &[Case<'_>] = &[
        (&["workflowz"], USAGE, &["workflowz"]),
        (
            &["repo", "add", "Demo", "--git", "/nowhere"],
            USAGE,
            &["name", "a-z"],
        ),
        (
            &["repo", "add", "other", "--git", "./here"],
            USAGE,
            &["git_url", "absolute path"],
        ),
        (
            &["repo", "add", "other", "--git", "/nonexistent.git"],
            USAGE,
            &["git_url"],
        ),
        (
            &[
                "repo",
                "add",
                "other",
                "--git",
                "/x",
                "--policy",
                "max_tier=many",
            ],
            USAGE,
            &["max_tier", "many"],
        ),
        (
            &[
                "repo",
                "add",
                "other",
                "--git",
                "/x",
                "--policy",
                "max_tier=99",
            ],
            USAGE,
            &["max_tier", "1 to 9"],
        ),
        (
            &["repo", "add", "other", "--git", "/x", "--policy", "tiers=1"],
            USAGE,
            &["tiers"],
        ),
        (
            &["submit", "nobody", "--title", "x"],
            NOT_FOUND,
            &["repository", "nobody"],
        ),
        (
            &["submit", "demo", "--title", &long],
            USAGE,
            &["title", "256"],
        ),
        (&["submit", "demo"], USAGE, &["--title"]),
        (
            &[
                "submit",
                "demo",
                "--title",
                "x",
                "--body-file",
                "/nonexistent",
            ],
            USAGE,
            &["/nonexistent"],
        ),
        (
            &["label", "demo", "99", "--add", "agent"],
            NOT_FOUND,
            &["item", "demo#99"],
        ),
        (&["label", "demo", "one", "--add", "agent"], USAGE, &["one"]),
        (&["label", "demo", "1"], USAGE, &["--add", "--remove"]),
        (
            &["workflows", "--state", "LOST"],
            USAGE,
            &["LOST", "MERGED"],
        ),
        (
            &["workflows", "--repo", "nobody"],
            NOT_FOUND,
            &["repository", "nobody"],
        ),
        (&["workflow", "demo"], USAGE, &["demo"]),
        (&["workflow", "demo#99"], NOT_FOUND, &["demo#99"]),
        (&["workflow", NOBODY], NOT_FOUND, &["workflow", NOBODY]),
        (&["events", NOBODY], NOT_FOUND, &["workflow", NOBODY]),
        (&["events", "--limit", "0x10"], USAGE, &["0x10"]),
        (
            &["sweep", "attic"],
            USAGE,
            &["attic", "scheduler", "effector"],
        ),
        (
            &["unstick", NOBODY, "--reason", "x"],
            NOT_FOUND,
            &["workflow"],
        ),
        (&["unstick", &row], USAGE, &["--reason"]),
        (
            &["pause", "demo#99", "--reason", "x"],
            NOT_FOUND,
            &["demo#99"],
        ),
        (
            &["abandon", &row, "--reason", "x", "--expected-version", "99"],
            REFUSED,
            &["version", "not at 99"],
        ),
        (
            &["resume", NOBODY, "--reason", "x"],
            NOT_FOUND,
            &["workflow"],
        ),
        (
            &["resubmit", &row, "--reason", "x"],
            REFUSED,
            &["ANALYZING, and not over"],
        ),
        (
            &["unstick", &row, "--reason", "x"],
            REFUSED,
            &["operator_unstick is not legal", "ANALYZING"],
        ),
        (
            &["flake-retries", &row, "11", "--reason", "x"],
            USAGE,
            &["11", "0..=10"],
        ),
        (&["watch", "nobody"], NOT_FOUND, &["repository", "nobody"]),
        (&["watch", "demo#99"], NOT_FOUND, &["demo#99"]),
        (
            &["watch", "demo", "--until", "terminal"],
            USAGE,
            &["--until", "REPOSITORY#NUMBER"],
        ),
        (&["watch", "--state", "LOST"], USAGE, &["LOST", "MERGED"]),
        (
            &["attempts", "--status", "lost"],
            USAGE,
            &["statuses", "in_progress"],
        ),
        (&["attempts", NOBODY], NOT_FOUND, &["workflow", NOBODY]),
        (
            &["cancel", NOBODY, "--reason", "x"],
            NOT_FOUND,
            &["attempt", NOBODY],
        ),
        (&["cancel", NOBODY], USAGE, &["--reason"]),
        (
            &["priority", &row, "101", "--reason", "x"],
            USAGE,
            &["101", "-100..=100"],
        ),
        (&["completions", "cmd"], USAGE, &["cmd", "bash"]),
        (&["schema", "ci"], USAGE, &["ci"]),
        (&["schema", "poet"], USAGE, &["poet", "reviewer"]),
        (
            &["machine", "--repo", "nobody"],
            NOT_FOUND,
            &["repository", "nobody"],
        ),
        (&["sessions", "--output", "xml"], USAGE, &["xml", "json"]),
        (
            &["--address", "http://127.0.0.1:1", "workflows"],
            UNREACHABLE,
            &["127.0.0.1:1", "pointsman master"],
        ),
        (
            &["--address", "nonsense:", "workflows"],
            USAGE,
            &["nonsense:"],
        ),
    ];
    for case in cases {
        refused(&world, *case).await;
    }
    world.finish().await;
}

#[tokio::test]
async fn each_answer_is_json_where_that_is_asked_for() {
    let world = world(Setup::default().with_workers([])).await;
    world.submit().await;
    let before: &[&[&str]] = &[
        &["repo", "list"],
        &["workflows"],
        &["workflow", "demo#1"],
        &["events"],
        &["attempts"],
        &["sessions"],
        &["sweep", "scheduler"],
        &["machine"],
        &["priority", "demo#1", "7", "--reason", "x"],
        &["cancel", "demo#1", "--reason", "x"],
    ];
    for arguments in before {
        let asked = arguments.iter().copied().chain(["-o", "json"]);
        let output = world.run(asked).await;
        assert_eq!(output.status, Some(0), "{arguments:?}: {output:?}");
        let parsed = serde_json::from_str::<serde_json::Value>(&output.stdout);
        assert!(
            parsed.is_ok_and(|v| v.is_object()),
            "{arguments:?}: {output:?}"
        );
    }
    // Ended while nobody looks: the watch says so by its code, and told one object a line.
    let shown = world.run(["workflow", "demo#1", "-o", "json"]).await;
    let shown: serde_json::Value = serde_json::from_str(&shown.stdout).unwrap();
    assert_eq!(shown["workflow"]["priority"], 7);
    let attempts = shown["attempts"].as_array().unwrap();
    let statuses: Vec<_> = attempts.iter().map(|a| a["status"].as_str()).collect();
    assert_eq!(statuses, [Some("cancelled"), Some("pending")]);
    world.finish().await;
}

#[tokio::test]
async fn a_program_that_can_not_start_says_why_on_one_line() {
    let world = world(Setup::default().with_workers([])).await;
    let directory = world.path("elsewhere");
    let directory = directory.to_string_lossy();
    let taken = world.path("master");
    let taken = taken.to_string_lossy();
    let wrong = world.path("wrong.toml");
    std::fs::write(&wrong, "beat_intervall = \"1s\"\n").unwrap();
    let wrong = wrong.to_string_lossy();
    let cases: &[(&[&str], &[&str])] = &[
        (
            &["master", "--listen", "0.0.0.0:0", "--state-dir", &directory],
            &["listen", "loopback"],
        ),
        (&["master", "--config", &wrong], &["beat_intervall"]),
        (
            &["master", "--config", "/nonexistent.toml"],
            &["/nonexistent.toml"],
        ),
        (
            &["master", "--listen", "127.0.0.1:0", "--state-dir", &taken],
            &["in use by process"],
        ),
        (
            &["worker", "--config", "/nonexistent.toml"],
            &["/nonexistent.toml"],
        ),
        (&["worker", "--state-dir", &directory], &["masters"]),
    ];
    for (arguments, parts) in cases {
        let output = world.run(arguments.iter().copied()).await;
        assert_eq!(output.status, Some(1), "{arguments:?}: {output:?}");
        let last = output.stderr.lines().last().unwrap_or_default();
        assert!(last.starts_with("error: "), "{arguments:?}: {output:?}");
        for part in *parts {
            assert!(last.contains(part), "{arguments:?}: {last}");
        }
    }
    // The master that was there is still found.
    let address = std::fs::read_to_string(world.path("master/master.address")).unwrap();
    assert_eq!(format!("http://{}", address.trim()), world.url());
    world.finish().await;
}
