use std::fs;

use super::*;
use crate::harness::profile::PromptBy;

const MINIMAL: &str = r#"
masters = ["http://127.0.0.1:7070"]
state_dir = "/state"
[harness.stub]
command = ["stub", "-p"]
roles = ["implementer", "estimator"]
"#;

fn load(file: &str, variables: &[(&str, &str)], args: Args) -> Result<Config, Error> {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("worker.toml");
    fs::write(&path, file).unwrap();
    let args = Args {
        config: Some(path),
        ..args
    };
    let environment: Environment = variables
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect();
    check::check(raw::read(&args, &environment)?, &environment)
}

fn load_file(file: &str) -> Result<Config, Error> {
    load(file, &[], Args::default())
}

/// The whole chain, as people see it.
fn problem(result: Result<Config, Error>) -> String {
    format!("{:#}", anyhow::Error::from(result.unwrap_err()))
}

#[test]
fn what_is_not_said_has_a_default() {
    let config = load_file(MINIMAL).unwrap();
    assert_eq!(config.capacity, 2);
    assert_eq!(config.roles, Role::ALL);
    assert_eq!(config.drain_grace, Duration::from_secs(600));
    assert_eq!(config.ci_limits.timeout, Duration::from_secs(3600));
    let profile = &config.profiles[0];
    assert_eq!(profile.name, "stub");
    assert_eq!(profile.account, "stub");
    assert_eq!(profile.prompt, PromptBy::File);
    assert_eq!(profile.roles, [Role::Estimator, Role::Implementer]);
    assert_eq!(profile.limits.timeout, Duration::from_secs(90 * 60));
    assert_eq!(
        profile.limits.idle_timeout,
        Some(Duration::from_secs(15 * 60))
    );
    assert_eq!(
        profile.limits.exit_grace,
        Some(Duration::from_secs(10 * 60))
    );
    assert_eq!(config.ci_limits.exit_grace, None);
    assert_eq!(profile.limits.kill_budget(), Duration::from_secs(10));
}

#[test]
fn flags_win_over_the_environment_and_that_over_the_file() {
    let file = format!("capacity = 3\nname = \"file\"\nroles = [\"ci\"]\n{MINIMAL}");
    let variables = [
        ("POINTSMAN_WORKER__CAPACITY", "4"),
        ("POINTSMAN_WORKER__NAME", "environment"),
        ("POINTSMAN_WORKER__MASTERS", "http://a:1,http://b:2"),
        ("POINTSMAN_WORKER__HARNESS__STUB__TIMEOUT", "7s"),
    ];
    let args = Args {
        name: Some("flag".to_owned()),
        ..Args::default()
    };
    let config = load(&file, &variables, args).unwrap();
    assert_eq!(config.roles, [Role::Ci]);
    assert_eq!(config.capacity, 4);
    assert_eq!(config.name, "flag");
    assert_eq!(config.profiles[0].limits.timeout, Duration::from_secs(7));
    let masters = format!("{:?}", config.masters);
    assert_eq!(masters, "[http://a:1/, http://b:2/]");
}

#[test]
fn flags_alone_are_enough_for_a_worker_that_runs_checks() {
    let args = Args {
        masters: vec!["http://127.0.0.1:1".to_owned()],
        state_dir: Some("relative".into()),
        ..Args::default()
    };
    let environment = Environment::default();
    let config = check::check(raw::read(&args, &environment).unwrap(), &environment).unwrap();
    assert!(config.state_dir.is_absolute());
    assert!(config.profiles.is_empty());
}

#[test]
fn an_unknown_key_is_an_error_wherever_it_is() {
    let text = problem(load_file(&format!("capacty = 1\n{MINIMAL}")));
    assert!(text.contains("capacty"), "{text}");
    let text = problem(load_file(&format!("{MINIMAL}\nprompts = \"file\"\n")));
    assert!(text.contains("prompts"), "{text}");
    let variables = [("POINTSMAN_WORKER__CAPACTY", "1")];
    let text = problem(load(MINIMAL, &variables, Args::default()));
    assert!(text.contains("capacty"), "{text}");
}

#[test]
fn a_refusal_names_the_key_and_what_it_takes() {
    let top = |line: &str| format!("{line}\n{MINIMAL}");
    let profile = |line: &str| format!("{MINIMAL}\n{line}\n");
    let cases = [
        (top("capacity = 0"), ["capacity", "1 to 1000"]),
        (top("capacity = 1001"), ["capacity", "1 to 1000"]),
        (
            top("log_max_bytes = 65535"),
            ["log_max_bytes", "65536 to 17179869184"],
        ),
        (
            top("log_max_bytes = 17179869185"),
            ["log_max_bytes", "65536 to 17179869184"],
        ),
        (top("name = \"\""), ["name", "1 to 200"]),
        (top("roles = []"), ["roles", "at least one"]),
        (top("roles = [\"cook\"]"), ["roles", "implementer"]),
        (top("drain_grace = \"soon\""), ["drain_grace", "90m"]),
        (top("drain_grace = \"-1s\""), ["drain_grace", "90m"]),
        (top("term_grace = \"301s\""), ["term_grace", "0s to 300s"]),
        (top("ci_timeout = \"0s\""), ["ci_timeout", "1s to 86400s"]),
        (
            top("ci_env = [\"HOME\"]"),
            ["ci_env", "HOME is set by the worker itself"],
        ),
        (
            top("ci_env = [\"NO_SUCH\"]"),
            ["ci_env", "NO_SUCH is not in the environment"],
        ),
        (top("log = \"a=b=c\""), ["log", "level"]),
        (top("log_format = \"xml\""), ["log_format", "json"]),
        (
            profile("timeout = \"25h\""),
            ["harness.stub.timeout", "86400s"],
        ),
        (
            profile("idle_timeout = \"1\""),
            ["harness.stub.idle_timeout", "15s"],
        ),
        (
            profile("exit_grace = \"0s\""),
            ["harness.stub.exit_grace", "1s to 86400s"],
        ),
        (profile("grace = \"6m\""), ["harness.stub.grace", "300s"]),
        (
            profile("account = \"\""),
            ["harness.stub.account", "1 to 200"],
        ),
        (
            profile("account = \"a\\nb\""),
            ["harness.stub.account", "one line"],
        ),
        (
            profile("prompt = \"fax\""),
            ["harness.stub.prompt", "stdin"],
        ),
        (
            profile("env = [\"NOT_SET\"]"),
            ["harness.stub.env", "NOT_SET"],
        ),
        (profile("env = [\"HOME\"]"), ["harness.stub.env", "HOME"]),
        (
            profile("env = [\"POINTSMAN_ROLE\"]"),
            ["harness.stub.env", "POINTSMAN_ROLE"],
        ),
        (
            MINIMAL.replace("\"stub\", \"-p\"", ""),
            ["harness.stub.command", "program"],
        ),
        (
            MINIMAL.replace("\"implementer\", \"estimator\"", ""),
            ["harness.stub.roles", "at least"],
        ),
        (
            MINIMAL.replace("\"estimator\"", "\"ci\""),
            ["harness.stub.roles", "ci"],
        ),
        (profile("tiers = [0]"), ["harness.stub.tiers", "1 to 1000"]),
        (top("roles = [\"reviewer\"]"), ["harness", "no profile"]),
        (
            MINIMAL.replace("http://127.0.0.1:7070", "127.0.0.1"),
            ["masters", "http://"],
        ),
        (MINIMAL.replace("http://", "ftp://"), ["masters", "http://"]),
        (
            MINIMAL.replace("[\"http://127.0.0.1:7070\"]", "[]"),
            ["masters", "at least one"],
        ),
        (
            MINIMAL.replace("state_dir = \"/state\"", ""),
            ["state_dir", "directory"],
        ),
    ];
    for (file, expected) in cases {
        let text = problem(load_file(&file));
        for part in expected {
            assert!(text.contains(part), "{part:?} in {text:?} for\n{file}");
        }
    }
}

#[test]
fn bounds_themselves_are_taken() {
    for line in [
        "capacity = 1",
        "capacity = 1000",
        "log_max_bytes = 65536",
        "log_max_bytes = 17179869184",
        "term_grace = \"300s\"",
        "ci_timeout = \"24h\"",
    ] {
        load_file(&format!("{line}\n{MINIMAL}")).unwrap();
    }
    let config = load_file(&format!("{MINIMAL}\nidle_timeout = \"0s\"\n")).unwrap();
    assert_eq!(config.profiles[0].limits.idle_timeout, None);
    let account = "x".repeat(200);
    let config = load_file(&format!("{MINIMAL}\naccount = \"{account}\"\n")).unwrap();
    assert_eq!(config.profiles[0].account, account);
}

#[test]
fn named_variables_are_read_at_start() {
    let file = format!("{MINIMAL}\nenv = [\"KEY\"]\n");
    let config = load(&file, &[("KEY", "secret"), ("OTHER", "x")], Args::default()).unwrap();
    let variables = &config.profiles[0].variables;
    assert_eq!(variables.len(), 1);
    assert_eq!(variables[0].value, "secret");
    assert!(!format!("{config:?}").contains("secret"));
}

#[test]
fn the_example_says_the_defaults() {
    let example = load_file(include_str!("../../worker.example.toml")).unwrap();
    let minimal = load_file(MINIMAL).unwrap();
    assert_eq!(example.capacity, minimal.capacity);
    assert_eq!(example.roles, minimal.roles);
    assert_eq!(example.drain_grace, minimal.drain_grace);
    assert_eq!(example.ci_limits, minimal.ci_limits);
    assert_eq!(example.telemetry.filter, minimal.telemetry.filter);
    assert_eq!(example.telemetry.format, minimal.telemetry.format);
    let (example, minimal) = (&example.profiles[0], &minimal.profiles[0]);
    assert_eq!(example.limits, minimal.limits);
    assert_eq!(example.prompt, minimal.prompt);
}
