//! A person with a repository of their own, and what they type.

use std::{
    ffi::{OsStr, OsString},
    fs,
    fs::File,
    path::{Path, PathBuf},
    process::{ExitStatus, Output, Stdio},
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use pointsman_git::Git;
use pointsman_tests::world::{eventually_within, processes_in};
use serde_json::Value;
use tempfile::TempDir;
use tokio::process::{Child, Command};

use crate::process_support::programs;

/// Longest that anything here may take: whole workflows on a machine that does much else.
pub(super) const PATIENCE: Duration = Duration::from_secs(180);

/// Between two looks.
const PAUSE: Duration = Duration::from_millis(20);

/// A harness that follows a script. `{work}` stands for what the implementer does; the prompt's title is
/// `$title`. Conflicts are resolved so that the lines of both sides stay.
const HARNESS: &str = r#"
set -eu
title=$(sed -n '/^### Title$/,$p' "$POINTSMAN_PROMPT_FILE" | sed -n 4p)
is_done() { git log --format=%s | grep -qxF -- "$title"; }
case "$POINTSMAN_ROLE" in
estimator) verdict='{"verdict":"ready","tier":1,"plan":"as the title says"}' ;;
implementer)
    # After a conflict it is asked again, and finds its work done.
    if is_done; then
        printf '{"verdict":"no_change","reason":"it is there"}' > "$POINTSMAN_RESULT_FILE"
        exit 0
    fi
    {work}
    git add --all
    git commit --quiet -m "$title"
    verdict='{"verdict":"changed","summary":"as the title says"}' ;;
reviewer) verdict='{"verdict":"approve"}' ;;
conflict_resolver)
    mkdir -p .git/info
    echo '* merge=union' > .git/info/attributes
    git merge --quiet --no-edit origin/main
    verdict='{"verdict":"resolved"}' ;;
escalator)
    # A change that is there was in conflict more than once: one more try will do.
    if is_done; then verdict='{"verdict":"retry","plan":"once more"}'
    else verdict='{"verdict":"give_up","reason":"the script knows no more"}'; fi ;;
esac
printf '%s' "$verdict" > "$POINTSMAN_RESULT_FILE"
"#;

/// A home with one repository in it, whose branch is `main`.
pub(super) struct Person {
    directory: TempDir,
    pub(super) repository: PathBuf,
}

impl Person {
    /// Its repository is at `name` and has no commit yet.
    pub(super) async fn new(name: &str) -> Self {
        let directory = tempfile::Builder::new()
            .prefix("pointsman-up-")
            .tempdir()
            .unwrap();
        let repository = directory.path().join(name);
        fs::create_dir_all(&repository).unwrap();
        let person = Self {
            directory,
            repository,
        };
        person.shell("git init --quiet --initial-branch=main").await;
        person
    }

    pub(super) fn home(&self) -> &Path {
        self.directory.path()
    }

    /// Runs a script in the repository; it must succeed. Returns what it printed.
    pub(super) async fn shell(&self, script: &str) -> String {
        let output = self
            .command(OsStr::new("sh"))
            .args(["-euc", script])
            .current_dir(&self.repository)
            .output()
            .await
            .unwrap();
        assert!(output.status.success(), "{script}: {output:?}");
        String::from_utf8_lossy(&output.stdout)
            .trim_end()
            .to_owned()
    }

    /// Writes the harness whose implementer runs `work`, and returns what `--harness` takes.
    pub(super) fn harness(&self, work: &str) -> String {
        let path = self.home().join("harness.sh");
        fs::write(&path, HARNESS.replace("{work}", work)).unwrap();
        format!("sh '{}'", path.display())
    }

    fn command(&self, program: &OsStr) -> Command {
        let mut command = Command::new(program);
        command
            .env_clear()
            .env("PATH", path())
            .env("HOME", self.home())
            .env("LOGNAME", "a")
            .env("SHELL", "/bin/sh")
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .env("GIT_AUTHOR_NAME", "A")
            .env("GIT_AUTHOR_EMAIL", "a@example.invalid")
            .env("GIT_COMMITTER_NAME", "A")
            .env("GIT_COMMITTER_EMAIL", "a@example.invalid")
            .env("NO_COLOR", "1")
            .stdin(Stdio::null())
            .kill_on_drop(true);
        command
    }

    fn pointsman(&self, arguments: &[&str]) -> Command {
        let mut command = self.command(programs().pointsman.as_os_str());
        command.args(arguments).current_dir(&self.repository);
        command
    }

    /// Runs a command of the command line to its end.
    pub(super) async fn runs(&self, arguments: &[&str]) -> Output {
        let output = self.pointsman(arguments).output();
        let output = tokio::time::timeout(PATIENCE, output).await;
        output.expect("the command ends in time").unwrap()
    }

    /// Starts `pointsman up`, with JSON, in the repository.
    pub(super) fn up(&self, arguments: &[&str]) -> Up {
        let log = self.home().join("up.log");
        let out = File::options()
            .create(true)
            .append(true)
            .open(&log)
            .unwrap();
        let from = usize::try_from(out.metadata().unwrap().len()).unwrap();
        let child = self
            .pointsman(&["up", "-o", "json", "--listen", "127.0.0.1:0"])
            .args(arguments)
            .stdout(out.try_clone().unwrap())
            .stderr(out)
            .process_group(0)
            .spawn()
            .unwrap();
        Up { child, log, from }
    }

    /// Waits until no process of theirs is left.
    pub(super) async fn is_left_alone(&self) {
        eventually_within(PATIENCE, "the end of all processes", async || {
            processes_in(self.home()).is_empty().then_some(())
        })
        .await;
    }

    /// All that `up` left behind, for a failed test.
    pub(super) fn logs(&self) -> String {
        let state = self.home().join(".local/state/pointsman");
        let mut text = fs::read_to_string(self.home().join("up.log")).unwrap_or_default();
        for place in fs::read_dir(state).into_iter().flatten().flatten() {
            for name in ["master.log", "worker.log"] {
                let log = fs::read_to_string(place.path().join(name)).unwrap_or_default();
                text = format!("{text}\n--- {name}\n{log}");
            }
        }
        text
    }
}

/// The search path, with cargo and rustc themselves in front of what chooses among several.
fn path() -> OsString {
    let cargo = Path::new(env!("CARGO"))
        .parent()
        .unwrap_or_else(|| Path::new("/"));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let all = [cargo.to_owned()]
        .into_iter()
        .chain(std::env::split_paths(&path));
    std::env::join_paths(all).unwrap()
}

/// A `pointsman up` that runs or ran.
pub(super) struct Up {
    child: Child,
    log: PathBuf,
    /// Where in the log it begins.
    from: usize,
}

impl Up {
    pub(super) fn signal(&self, signal: Signal) {
        let pid = self.child.id().expect("it runs still");
        kill(Pid::from_raw(i32::try_from(pid).unwrap()), signal).unwrap();
    }

    /// All that it has said.
    pub(super) fn text(&self) -> String {
        let text = fs::read(&self.log).unwrap_or_default();
        String::from_utf8_lossy(&text[self.from..]).into_owned()
    }

    /// The lines of JSON that it has said.
    pub(super) fn lines(&self) -> Vec<Value> {
        let text = self.text();
        text.lines()
            .filter_map(|line| serde_json::from_str(line).ok())
            .collect()
    }

    /// Waits for a line of this type that `look` takes.
    pub(super) async fn says(&mut self, kind: &str, look: impl Fn(&Value) -> bool) -> Value {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let is_over = self.child.try_wait().unwrap().is_some() || Instant::now() > deadline;
            let mut lines = self.lines().into_iter();
            if let Some(line) = lines.find(|line| line["type"] == kind && look(line)) {
                return line;
            }
            assert!(!is_over, "no such {kind} in {}", self.text());
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Waits for its end.
    pub(super) async fn end(&mut self) -> ExitStatus {
        let ended = tokio::time::timeout(PATIENCE, self.child.wait()).await;
        ended
            .unwrap_or_else(|_| panic!("it does not end: {}", self.text()))
            .unwrap()
    }
}

/// Names of all refs and what they point at.
pub(super) async fn refs(repository: &Path) -> String {
    let git = Git::new(repository);
    git.text(["for-each-ref", "--format=%(refname)"])
        .await
        .unwrap()
}
