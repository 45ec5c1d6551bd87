//! How `up` lives, is stopped and killed, and goes on.

use std::{
    fs,
    os::unix::{fs::PermissionsExt as _, process::ExitStatusExt as _},
    path::Path,
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use pointsman_tests::world::{eventually_within, processes_in};
use serde_json::Value;

use super::person::{PATIENCE, Person, refs};

/// The check sees of its person's environment what was named, and nothing else.
const CI: &str = "test -s text && test -n \"$LOGNAME\" && test -z \"$SHELL\"";

/// Writes one more line.
const WORK: &str = "echo \"$title\" >> text";

/// A person whose repository has a file in it.
async fn person() -> Person {
    let person = Person::new("My Project").await;
    person
        .shell("echo one > text; git add text; git commit --quiet -m first")
        .await;
    person
}

/// The line that says that a pull request was merged.
fn merged(line: &Value) -> bool {
    line["event"]["to_state"] == "MERGED"
}

/// `work` that goes on only once the file `gate` is there.
fn gated(person: &Person) -> String {
    let home = person.home().display();
    format!(
        "echo \"$title\" >> '{home}/reached'; until [ -e '{home}/gate' ]; do sleep 0.05; done; {WORK}"
    )
}

/// What a person types to have one issue worked on.
fn submitting<'a>(harness: &'a str, title: &'a str) -> [&'a str; 8] {
    [
        "--ci",
        CI,
        "--ci-env",
        "LOGNAME",
        "--harness",
        harness,
        "--submit",
        title,
    ]
}

/// As [`submitting`], and to have `up` end when it is done.
fn submitting_until_done<'a>(harness: &'a str, title: &'a str) -> Vec<&'a str> {
    let mut typed = submitting(harness, title).to_vec();
    typed.push("--until-done");
    typed
}

/// Titles whose implementers were begun, in order.
fn begun(person: &Person) -> Vec<String> {
    let text = fs::read_to_string(person.home().join("reached")).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

async fn has_begun(person: &Person, titles: &[&str]) {
    eventually_within(PATIENCE, "the implementer", async || {
        (begun(person) == titles).then_some(())
    })
    .await;
}

/// What a person has configured, byte for byte.
fn configuration(repository: &Path) -> Vec<(String, Vec<u8>)> {
    let hooks = fs::read_dir(repository.join(".git/hooks"))
        .into_iter()
        .flatten();
    let hooks = hooks.map(|hook| hook.unwrap().path());
    let files = hooks.chain([repository.join(".git/config")]);
    let files = files.map(|path| (path.display().to_string(), fs::read(&path).unwrap()));
    let mut files: Vec<_> = files.collect();
    files.sort();
    files
}

#[tokio::test]
async fn an_issue_is_merged_into_the_working_copy_and_nothing_else_is_touched() {
    let person = person().await;
    let before = configuration(&person.repository);
    fs::write(person.repository.join("untracked"), "mine").unwrap();
    let harness = person.harness(WORK);
    let arguments = submitting_until_done(&harness, "two");
    let mut up = person.up(&arguments);
    assert_eq!(up.end().await.code(), Some(0), "{}", person.logs());

    let started = up.says("started", |_| true).await;
    assert_eq!(started["repository"], "my-project");
    let ended = up.says("ended", |line| line["state"] == "MERGED").await;
    assert_eq!(
        ended["merged_commit"],
        person.shell("git rev-parse HEAD").await
    );
    assert_eq!(person.shell("cat text untracked").await, "one\ntwo\nmine");
    assert_eq!(person.shell("git status --porcelain").await, "?? untracked");
    assert_eq!(configuration(&person.repository), before);
    for name in refs(&person.repository).await.lines() {
        let is_ours = name.starts_with("refs/pointsman/") || name.starts_with("refs/heads/");
        assert!(is_ours, "{name}");
    }
    person.is_left_alone().await;
    let state = started["state_dir"].as_str().unwrap();
    assert!(Path::new(state).starts_with(person.home().join(".local/state/pointsman")));
    let mode = fs::metadata(state).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700);

    // The same again: that issue is there already, and all is done.
    let mut again = person.up(&arguments);
    assert_eq!(again.end().await.code(), Some(0), "{}", person.logs());
    let submitted = again.says("submitted", |_| true).await;
    assert_eq!(submitted["changed"], false);

    // With other settings it says which, and changes nothing.
    let mut other = person.up(&["--ci", "false", "--harness", &harness]);
    assert_eq!(other.end().await.code(), Some(4));
    let said = other.text();
    assert!(
        said.contains(&format!("checks is `ci={CI}` and not `ci=false`")),
        "{said}"
    );
}

#[tokio::test]
async fn a_dirty_working_copy_is_never_touched_and_waited_for() {
    let person = person().await;
    fs::write(person.repository.join("text"), "mine alone").unwrap();
    let harness = person.harness(WORK);
    let mut up = person.up(&submitting_until_done(&harness, "two"));
    let line = up.says("waiting", |line| line["state"] == "MERGING").await;
    let why = line["waiting"]["text"].as_str().unwrap();
    assert!(
        why.contains("working copy") || why.contains("Working directory"),
        "{why}"
    );
    assert_eq!(person.shell("cat text").await, "mine alone");
    person.shell("git checkout --quiet -- text").await;
    assert_eq!(up.end().await.code(), Some(0), "{}", person.logs());
    assert_eq!(
        person.shell("cat text; git status --porcelain").await,
        "one\ntwo"
    );
}

#[tokio::test]
async fn a_killed_up_leaves_no_process_and_the_next_one_goes_on() {
    let person = person().await;
    let harness = person.harness(&gated(&person));
    let arguments = submitting_until_done(&harness, "two");
    let mut up = person.up(&arguments);
    has_begun(&person, &["two"]).await;

    let second = person
        .runs(&[
            "up",
            "--ci",
            CI,
            "--ci-env",
            "LOGNAME",
            "--harness",
            &harness,
        ])
        .await;
    assert_eq!(second.status.code(), Some(4), "{second:?}");
    let said = String::from_utf8_lossy(&second.stderr).into_owned();
    assert!(
        said.contains("runs on") && said.contains("as process"),
        "{said}"
    );

    up.signal(Signal::SIGKILL);
    assert_eq!(up.end().await.signal(), Some(9));
    // At once: it waits for what the killed one left.
    fs::write(person.home().join("gate"), "").unwrap();
    let mut next = person.up(&arguments);
    assert_eq!(next.end().await.code(), Some(0), "{}", person.logs());
    assert_eq!(person.shell("cat text").await, "one\ntwo");
    person.is_left_alone().await;
}

#[tokio::test]
async fn what_a_killed_up_left_ends_by_itself() {
    let person = person().await;
    let harness = person.harness(&gated(&person));
    let mut up = person.up(&submitting(&harness, "two"));
    has_begun(&person, &["two"]).await;
    up.signal(Signal::SIGKILL);
    up.end().await;
    assert!(
        !processes_in(person.home()).is_empty(),
        "master and worker live on for a moment"
    );
    person.is_left_alone().await;
}

#[tokio::test]
async fn one_signal_lets_sessions_run_on_and_two_stop_them() {
    let person = person().await;
    let harness = person.harness(&gated(&person));
    let mut up = person.up(&submitting(&harness, "two"));
    has_begun(&person, &["two"]).await;
    up.signal(Signal::SIGINT);
    up.says("stopping", |line| line["now"] == false).await;
    fs::write(person.home().join("gate"), "").unwrap();
    assert_eq!(up.end().await.code(), Some(0), "{}", person.logs());
    assert!(!up.lines().iter().any(merged), "{}", up.text());

    // What the session made was not lost: nobody does it again.
    person.shell("rm ../gate").await;
    let mut up = person.up(&submitting(&harness, "three"));
    has_begun(&person, &["two", "three"]).await;
    up.says("event", merged).await;
    up.signal(Signal::SIGINT);
    up.says("stopping", |line| line["now"] == false).await;
    up.signal(Signal::SIGINT);
    assert_eq!(up.end().await.code(), Some(0), "{}", person.logs());
    up.says("stopping", |line| line["now"] == true).await;
    assert_eq!(begun(&person), ["two", "three"]);
    person.is_left_alone().await;
}

#[tokio::test]
async fn what_was_given_up_is_told_with_its_reason() {
    let person = person().await;
    let verdict = r#"{"verdict":"failed","reason":"it can not be done"}"#;
    let work = format!("printf '%s' '{verdict}' > \"$POINTSMAN_RESULT_FILE\"; exit 0");
    let harness = person.harness(&work);
    let mut up = person.up(&submitting_until_done(&harness, "two"));
    assert_eq!(up.end().await.code(), Some(6), "{}", person.logs());
    let ended = up.says("ended", |line| line["state"] == "STUCK").await;
    let reason = ended["reason"].as_str().unwrap();
    assert!(reason.contains("the script knows no more"), "{ended}");
}

#[tokio::test]
async fn an_up_whose_master_dies_leaves_no_session_behind() {
    let person = person().await;
    let harness = person.harness(&gated(&person));
    let mut up = person.up(&submitting(&harness, "two"));
    has_begun(&person, &["two"]).await;
    let running = processes_in(person.home());
    let mut masters = running.iter().filter(|p| p.command.contains(" master "));
    let master = masters.next().expect("there is a master");
    let pid = Pid::from_raw(master.pid.try_into().unwrap());
    kill(pid, Signal::SIGKILL).unwrap();
    assert_eq!(up.end().await.code(), Some(1), "{}", person.logs());
    assert_eq!(processes_in(person.home()), []);
}
