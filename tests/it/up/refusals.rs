//! Whatever is wrong is said before anything starts, on one line, with what to do.

use std::net::TcpListener;

use super::person::Person;

/// Runs `up` with these arguments; it must refuse with this exit code and these words.
async fn refuses(person: &Person, arguments: &[&str], code: i32, words: &str) {
    let output = person.runs(&[&["up"], arguments].concat()).await;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {said}");
    assert!(said.contains(words), "{arguments:?}: {words:?} in {said}");
    assert_eq!(said.lines().count(), 1, "{arguments:?}: {said}");
    assert!(output.stdout.is_empty(), "{arguments:?}: {output:?}");
}

#[tokio::test]
async fn what_is_wrong_is_said_before_anything_starts() {
    let person = Person::new("own").await;
    let good = ["--ci", "true", "--harness", "true"];
    let with = |more: &[&'static str]| [&good[..], more].concat();
    refuses(&person, &good, 2, "no commit yet").await;
    person
        .shell("git commit --quiet --allow-empty -m first")
        .await;

    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    refuses(
        &person,
        &[&good[..], &["--listen", &address]].concat(),
        4,
        "takes any port",
    )
    .await;
    refuses(&person, &with(&["--listen", "0.0.0.0:0"]), 2, "loopback").await;
    refuses(&person, &with(&["--repo", "missing"]), 2, "No such file").await;
    refuses(&person, &with(&["--repo", "/"]), 2, "no git repository").await;
    refuses(&person, &with(&["--base", "dev"]), 2, "(there are: main)").await;
    refuses(
        &person,
        &with(&["--state-dir", "state"]),
        2,
        "inside of the repository",
    )
    .await;
    refuses(
        &person,
        &with(&["--state-dir", "/dev/null/x"]),
        2,
        "Not a directory",
    )
    .await;
    refuses(
        &person,
        &with(&["--profiles", "missing.toml"]),
        2,
        "missing.toml",
    )
    .await;
    refuses(&person, &with(&["--drain-grace", "soon"]), 2, "drain_grace").await;
    refuses(
        &person,
        &with(&["--harness-env", "NO_SUCH"]),
        2,
        "NO_SUCH: it is not set",
    )
    .await;
    refuses(
        &person,
        &with(&["--ci-env", "NO_SUCH"]),
        2,
        "NO_SUCH is not in the environment",
    )
    .await;
    let no_program = ["--ci", "true", "--harness", "no-such-agent --fast"];
    refuses(&person, &no_program, 2, "no program no-such-agent in PATH").await;
    refuses(&person, &good[..2], 2, "--harness <COMMAND|PROFILE>").await;
    refuses(&person, &good[2..], 2, "--ci <COMMAND>").await;
}
