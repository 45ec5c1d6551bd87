//! `pointsman demo`, as a person runs it.

use std::{path::Path, process::Output, time::Duration};

use nix::{sys::signal::Signal, unistd::Pid};
use pointsman_tests::world::{eventually_within, processes_in, starttime};
use serde_json::Value;
use tokio::process::Command;

use crate::process_support::programs;

/// Longest that a demo may take on a test machine that does other things too; a quiet one needs two
/// seconds.
const DEADLINE: Duration = Duration::from_secs(60);

async fn pointsman(arguments: &[&str]) -> Output {
    let command = Command::new(programs().pointsman)
        .args(arguments)
        .env_remove("POINTSMAN_ADDRESS")
        .env("NO_COLOR", "1")
        .kill_on_drop(true)
        .output();
    let output = tokio::time::timeout(DEADLINE, command).await;
    output.expect("the command ends in time").unwrap()
}

/// Standard output of a command that succeeds.
async fn says(arguments: &[&str]) -> String {
    let output = pointsman(arguments).await;
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// All that a command has printed.
fn all(output: &Output) -> String {
    let (out, err) = (&output.stdout, &output.stderr);
    format!(
        "{}{}",
        String::from_utf8_lossy(out),
        String::from_utf8_lossy(err)
    )
}

/// What follows `mark` on its line.
fn after<'a>(text: &'a str, mark: &str) -> &'a str {
    let (_, rest) = text
        .split_once(mark)
        .unwrap_or_else(|| panic!("no {mark:?} in:\n{text}"));
    rest.lines().next().unwrap_or_default().trim()
}

#[tokio::test]
async fn the_demo_merges_and_names_the_commit() {
    let directory = tempfile::tempdir().unwrap();
    let place = directory.path().join("demo");
    let output = pointsman(&["demo", "--directory", &place.to_string_lossy()]).await;
    let text = all(&output);
    assert!(output.status.success(), "{text}");
    let commit = after(&text, "merged as ");
    assert_eq!(commit.len(), 40, "{text}");
    assert!(commit.bytes().all(|b| b.is_ascii_hexdigit()), "{text}");
    assert!(!place.exists(), "the demo leaves its files behind");
    assert_eq!(processes_in(&place), []);
}

/// The processes of a kept demo, to be ended whatever becomes of the test.
struct Kept(Vec<i32>);

impl Kept {
    fn signal(&self, signal: Signal) {
        for pid in &self.0 {
            let _delivered = nix::sys::signal::kill(Pid::from_raw(*pid), signal);
        }
    }

    fn is_over(&self) -> bool {
        let mut pids = self.0.iter().filter_map(|pid| u32::try_from(*pid).ok());
        pids.all(|pid| starttime(pid).is_none())
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        if !self.is_over() {
            self.signal(Signal::SIGKILL);
        }
    }
}

#[tokio::test]
async fn a_kept_demo_answers_every_command_until_it_is_stopped() {
    let directory = tempfile::tempdir().unwrap();
    let place = directory.path().join("demo");
    let output = pointsman(&["demo", "--keep", "--directory", &place.to_string_lossy()]).await;
    let text = all(&output);
    assert!(output.status.success(), "{text}");
    let pids = after(&text, "kill ").split_whitespace();
    let kept = Kept(pids.map(|pid| pid.parse().unwrap()).collect());
    assert_eq!(kept.0.len(), 3, "{text}");
    let address = after(&text, "--address ")
        .split_whitespace()
        .next()
        .unwrap();
    let commit = after(&text, "merged as ").to_owned();
    commands_answer(address, &commit).await;

    kept.signal(Signal::SIGTERM);
    eventually_within(DEADLINE, "the end of the demo's processes", async || {
        (kept.is_over() && processes_in(&place).is_empty()).then_some(())
    })
    .await;
    for log in ["master.log", "worker-1.log", "worker-2.log"] {
        clean(&place.join(log));
    }
}

async fn commands_answer(address: &str, commit: &str) {
    let ask = async |arguments: &[&str]| {
        let target = ["--address", address];
        says(&[&target, arguments].concat()).await
    };
    let json = async |arguments: &[&str]| -> Value {
        let text = ask(&[arguments, &["-o", "json"]].concat()).await;
        serde_json::from_str(&text).unwrap()
    };
    let workflows = ask(&["workflows"]).await;
    assert!(
        workflows.contains("MERGED") && workflows.contains("CREATED_PR"),
        "{workflows}"
    );
    let shown = ask(&["workflow", "demo#2"]).await;
    assert!(shown.contains(commit), "{shown}");
    let shown = json(&["workflow", "demo#2"]).await;
    assert_eq!(shown["workflow"]["merged_commit"], commit);
    let events = ask(&["events", "demo#2"]).await;
    assert!(events.contains("merge_succeeded"), "{events}");
    let repositories = ask(&["repo", "list"]).await;
    assert!(repositories.contains("demo"), "{repositories}");
    let machine = json(&["machine"]).await;
    assert_eq!(machine["max_attempts"], 52);
    let sessions = json(&["sessions"]).await;
    assert_eq!(sessions["sessions"], Value::Array(Vec::new()));
    let swept = json(&["sweep"]).await;
    assert_eq!(swept["reports"].as_array().unwrap().len(), 7, "{swept}");
    let schema: Value = serde_json::from_str(&ask(&["schema", "implementer"]).await).unwrap();
    assert!(schema["title"].as_str().unwrap().contains("implementer"));

    ask(&["submit", "demo", "--title", "Later", "--unlabelled"]).await;
    let before = workflows_of(&json(&["workflows"]).await);
    ask(&["label", "demo", "3", "--add", "other"]).await;
    assert_eq!(workflows_of(&json(&["workflows"]).await), before);
    ask(&["label", "demo", "3", "--add", "agent"]).await;
    let after = workflows_of(&json(&["workflows"]).await);
    assert_eq!(after, before + 1);
    ask(&["label", "demo", "3", "--remove", "agent"]).await;
}

fn workflows_of(listed: &Value) -> usize {
    listed["workflows"].as_array().unwrap().len()
}

fn clean(log: &Path) {
    let text = std::fs::read_to_string(log).unwrap();
    let bad: Vec<&str> = text.lines().filter(|line| line.contains("ERROR")).collect();
    assert!(bad.is_empty(), "{}: {bad:#?}", log.display());
}
