//! Runs git, and nothing else.
//!
//! The one place where Pointsman starts a git process, for the master's forge and for the worker's
//! workspaces alike: the environment is made from nothing, no system or user configuration is read,
//! no hook runs, no prompt waits, no repository is looked for above the directory, every call has a
//! deadline, and git's error text comes back bounded; its standard output comes back whole.
//! Which commands are run, and what their failure means, is the caller's business.

mod access;

pub use access::{Access, AccessError};

use std::{
    ffi::{OsStr, OsString},
    fs::File,
    io,
    path::{Path, PathBuf},
    process::Stdio,
    sync::Arc,
    time::Duration,
};

use tokio::process::Command;

/// Longest that one git command may take. A clone of a large repository over a slow network fits; a
/// server that accepts a connection and says nothing does not.
pub const DEADLINE: Duration = Duration::from_secs(600);

/// How much of git's own error text an [`Error`] keeps, in bytes.
pub const STDERR_KEPT: usize = 4096;

/// Why a git command did not do its work.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// git could not be started: it is not installed, or the directory is not there.
    #[error("start git {command} in {}", directory.display())]
    Start {
        command: String,
        directory: PathBuf,
        #[source]
        source: io::Error,
    },
    /// git ended with a status that the caller does not expect.
    #[error("git {command} ended with {status}: {stderr}")]
    Failed {
        command: String,
        /// Exit code, or `-1` where a signal ended it.
        status: i32,
        stderr: String,
    },
    /// git did not end within its deadline and was killed.
    #[error("git {command} did not end within {} s", deadline.as_secs())]
    Deadline { command: String, deadline: Duration },
}

/// What runs at the other end of a local path to serve a fetch. A repository of another user is taken:
/// nothing of its configuration or hooks matters to a fetch.
const LOCAL_UPLOAD_PACK: &str = "--upload-pack=git -c 'safe.directory=*' upload-pack";

/// The directory that `url` names, where it is on this host; `None` for any other address, and for an
/// encoded one, which only git reads.
pub fn local_path(url: &str) -> Option<&Path> {
    let path = match url.strip_prefix("file://") {
        Some(path) if path.contains('%') => return None,
        Some(path) => path,
        None => url,
    };
    path.starts_with('/').then(|| Path::new(path))
}

/// What `fetch` and `ls-remote` from `url` need beside it: without it, git refuses a local path that
/// belongs to another user, since settings of this end do not reach the other.
pub fn upload_pack(url: &str) -> Option<&'static str> {
    local_path(url).map(|_| LOCAL_UPLOAD_PACK)
}

/// As [`upload_pack`], for `push`. Where `updates_working_copy`, a branch that is checked out there is
/// taken if its working copy has no changes, which is then brought along. The hooks of the repository run
/// as they do for anybody's push.
pub fn receive_pack(url: &str, updates_working_copy: bool) -> Option<&'static str> {
    local_path(url)?;
    Some(if updates_working_copy {
        "--receive-pack=git -c 'safe.directory=*' -c receive.denyCurrentBranch=updateInstead receive-pack"
    } else {
        "--receive-pack=git -c 'safe.directory=*' receive-pack"
    })
}

/// What git printed, and how it ended.
#[derive(Debug, Clone)]
pub struct Output {
    /// Exit code, or `-1` where a signal ended it.
    pub status: i32,
    pub stdout: Vec<u8>,
    pub stderr: String,
}

impl Output {
    /// Standard output as text without the newline at its end.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).trim_end().to_owned()
    }
}

/// Runs git commands in one directory.
#[derive(Debug, Clone)]
pub struct Git {
    directory: PathBuf,
    environment: Vec<(OsString, OsString)>,
    held: Option<Arc<File>>,
    deadline: Duration,
}

impl Git {
    /// Commands will run in `directory`.
    pub fn new(directory: impl Into<PathBuf>) -> Self {
        Self {
            directory: directory.into(),
            environment: Vec::new(),
            held: None,
            deadline: DEADLINE,
        }
    }

    /// Gives `file` to each command as its standard input, which no command here reads. A lock on it
    /// (`flock`) is then held for as long as a command runs, also after this process was killed.
    #[must_use]
    pub fn holding(mut self, file: File) -> Self {
        self.held = Some(Arc::new(file));
        self
    }

    /// Gives each command this long instead of [`DEADLINE`].
    #[must_use]
    pub fn with_deadline(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }

    /// Adds a variable to the environment of the commands.
    #[must_use]
    pub fn with_env(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.environment.push((name.into(), value.into()));
        self
    }

    /// Makes commits carry `name` and `email` as author and committer.
    #[must_use]
    pub fn with_identity(self, name: &str, email: &str) -> Self {
        self.with_env("GIT_AUTHOR_NAME", name)
            .with_env("GIT_AUTHOR_EMAIL", email)
            .with_env("GIT_COMMITTER_NAME", name)
            .with_env("GIT_COMMITTER_EMAIL", email)
    }

    /// Where the commands run.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Runs a command that must end with 0.
    pub async fn run<S: AsRef<OsStr>>(
        &self,
        arguments: impl IntoIterator<Item = S>,
    ) -> Result<Output, Error> {
        self.run_expecting(arguments, &[0]).await
    }

    /// Runs a command and returns what it printed as text.
    pub async fn text<S: AsRef<OsStr>>(
        &self,
        arguments: impl IntoIterator<Item = S>,
    ) -> Result<String, Error> {
        Ok(self.run(arguments).await?.text())
    }

    /// Runs a command that may end with each of `expected`.
    pub async fn run_expecting<S: AsRef<OsStr>>(
        &self,
        arguments: impl IntoIterator<Item = S>,
        expected: &[i32],
    ) -> Result<Output, Error> {
        let arguments: Vec<OsString> = arguments.into_iter().map(|a| a.as_ref().into()).collect();
        let command = describe(&arguments);
        tracing::debug!(git.command = %command, git.directory = %self.directory.display(), "run git");
        let no_start = |source| Error::Start {
            command: command.clone(),
            directory: self.directory.clone(),
            source,
        };
        let child = self
            .command(&arguments)
            .and_then(|mut command| command.spawn())
            .map_err(no_start)?;
        let output = match tokio::time::timeout(self.deadline, child.wait_with_output()).await {
            Ok(output) => output.map_err(no_start)?,
            // The child is killed when it is dropped here.
            Err(_) => {
                return Err(Error::Deadline {
                    command,
                    deadline: self.deadline,
                });
            }
        };
        let status = output.status.code().unwrap_or(-1);
        let stderr = bounded(&output.stderr);
        if !expected.contains(&status) {
            return Err(Error::Failed {
                command,
                status,
                stderr,
            });
        }
        Ok(Output {
            status,
            stdout: output.stdout,
            stderr,
        })
    }

    fn command(&self, arguments: &[OsString]) -> io::Result<Command> {
        let mut command = Command::new("git");
        command
            .env_clear()
            .env("PATH", path())
            .env("LANG", "C.UTF-8")
            .env("LC_ALL", "C.UTF-8")
            .env("HOME", "/nonexistent")
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .env("GIT_TERMINAL_PROMPT", "0")
            // What a repository lacks is an error here, and never fetched from where it says.
            .env("GIT_NO_LAZY_FETCH", "1")
            // A directory that is no repository must not make git act on one around it.
            .env("GIT_CEILING_DIRECTORIES", self.ceiling()?)
            // A path names a repository of another user where containers share one: ownership is no
            // criterion, since nothing of its configuration or hooks is trusted here anyway.
            .args(["-c", "safe.directory=*"])
            .args(["-c", "core.hooksPath=/dev/null"])
            .args(["-c", "protocol.ext.allow=never"])
            .args(["-c", "gc.auto=0"])
            .args(["-c", "maintenance.auto=false"])
            .args(["-c", "init.defaultBranch=main"])
            .args(["-c", "advice.detachedHead=false"])
            .envs(self.environment.iter().map(|(k, v)| (k, v)))
            .args(arguments)
            .current_dir(&self.directory)
            .stdin(self.stdin()?)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        Ok(command)
    }

    /// Where git stops looking for a repository; the directory itself is looked at in any case. Without
    /// links, since git starts from where the directory really is.
    fn ceiling(&self) -> io::Result<PathBuf> {
        let directory = self.directory.canonicalize()?;
        Ok(directory.parent().unwrap_or(&directory).to_owned())
    }

    fn stdin(&self) -> io::Result<Stdio> {
        match &self.held {
            Some(file) => file.try_clone().map(Stdio::from),
            None => Ok(Stdio::null()),
        }
    }
}

/// The search path for git and its helpers: the process's own, since that is where git was installed.
fn path() -> OsString {
    std::env::var_os("PATH").unwrap_or_else(|| "/usr/local/bin:/usr/bin:/bin".into())
}

/// Names the command for errors: its verb, without arguments, which may hold a URL with a secret.
fn describe(arguments: &[OsString]) -> String {
    arguments
        .iter()
        .map(|a| a.to_string_lossy())
        .find(|a| !a.starts_with('-'))
        .map_or_else(|| "(no command)".to_owned(), |verb| verb.into_owned())
}

fn bounded(stderr: &[u8]) -> String {
    let text = String::from_utf8_lossy(stderr);
    let text = text.trim_end();
    match text.char_indices().nth_back(STDERR_KEPT - 1) {
        Some((start, _)) if start > 0 => format!("…{}", &text[start..]),
        _ => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_failure_names_the_verb_and_what_git_said() {
        let directory = tempfile::tempdir().unwrap();
        let error = Git::new(directory.path())
            .run(["rev-parse", "HEAD"])
            .await
            .unwrap_err();
        let text = error.to_string();
        assert!(text.starts_with("git rev-parse ended with 128"), "{text}");
        assert!(text.contains("not a git repository"), "{text}");
    }

    #[tokio::test]
    async fn a_directory_that_is_not_there_is_an_error_of_its_own() {
        let error = Git::new("/nonexistent/directory")
            .run(["status"])
            .await
            .unwrap_err();
        assert!(matches!(error, Error::Start { .. }), "{error}");
    }

    #[tokio::test]
    async fn a_repository_around_the_directory_is_left_alone() {
        let outer = tempfile::tempdir().unwrap();
        Git::new(outer.path())
            .run(["init", "--quiet"])
            .await
            .unwrap();
        let inner = outer.path().join("inner");
        std::fs::create_dir(&inner).unwrap();
        let elsewhere = tempfile::tempdir().unwrap();
        let link = elsewhere.path().join("link");
        std::os::unix::fs::symlink(&inner, &link).unwrap();
        for directory in [inner, link] {
            let error = Git::new(&directory).run(["rev-parse", "--git-dir"]).await;
            let text = error.unwrap_err().to_string();
            assert!(text.contains("not a git repository"), "{text}");
        }
    }

    #[tokio::test]
    async fn a_held_lock_is_the_commands_too() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("lock");
        let lock = File::create(&path).unwrap();
        lock.lock().unwrap();
        let git = Git::new(directory.path()).holding(lock);
        // An alias that is a shell command shows what git passes on.
        let said = git
            .text(["-c", "alias.fd=!readlink /proc/$$/fd/0", "fd"])
            .await
            .unwrap();
        assert_eq!(Path::new(&said), path.canonicalize().unwrap());
    }

    #[tokio::test]
    async fn no_configuration_of_the_user_is_read() {
        let home = tempfile::tempdir().unwrap();
        std::fs::write(home.path().join(".gitconfig"), "[user]\n\tname = Leak\n").unwrap();
        let output = Git::new(home.path())
            .with_env("HOME", home.path())
            .run_expecting(["config", "--get", "user.name"], &[0, 1])
            .await
            .unwrap();
        assert_eq!(output.status, 1, "{}", output.text());
    }

    #[tokio::test]
    async fn hooks_of_the_repository_do_not_run() {
        let directory = tempfile::tempdir().unwrap();
        let git = Git::new(directory.path()).with_identity("A", "a@example.invalid");
        git.run(["init", "--quiet"]).await.unwrap();
        let hook = directory.path().join(".git/hooks/pre-commit");
        std::fs::create_dir_all(hook.parent().unwrap()).unwrap();
        std::fs::write(&hook, "#!/bin/sh\nexit 1\n").unwrap();
        std::fs::set_permissions(&hook, std::os::unix::fs::PermissionsExt::from_mode(0o755))
            .unwrap();
        git.run(["commit", "--allow-empty", "-m", "x"])
            .await
            .unwrap();
    }

    #[test]
    fn only_paths_are_local() {
        for url in ["/srv/a.git", "file:///srv/a.git"] {
            assert_eq!(local_path(url), Some(Path::new("/srv/a.git")));
        }
        for url in [
            "https://host/a",
            "git@host:a.git",
            "ssh://host/a",
            "file:///a%20b",
            "file://host/a",
        ] {
            assert_eq!(local_path(url), None, "{url}");
            assert_eq!(upload_pack(url), None, "{url}");
            assert_eq!(receive_pack(url, true), None, "{url}");
        }
    }

    #[tokio::test]
    async fn a_local_repository_of_another_user_is_read_and_pushed_to() {
        let directory = tempfile::tempdir().unwrap();
        let remote = directory.path().join("remote.git");
        let url = remote.to_str().unwrap();
        // git's own way to test this.
        let git = Git::new(directory.path())
            .with_identity("A", "a@example.invalid")
            .with_env("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1");
        git.run(["init", "--quiet", "--bare", url]).await.unwrap();
        git.run(["init", "--quiet", "."]).await.unwrap();
        git.run(["commit", "--quiet", "--allow-empty", "-m", "x"])
            .await
            .unwrap();
        let push = ["push", "--quiet", url, "HEAD:refs/heads/main"];
        let refused = git.run(push).await.unwrap_err().to_string();
        assert!(refused.contains("dubious ownership"), "{refused}");
        let with = receive_pack(url, false).unwrap();
        git.run(["push", "--quiet", with, url, "HEAD:refs/heads/main"])
            .await
            .unwrap();
        let refused = git.run(["ls-remote", url]).await.unwrap_err().to_string();
        assert!(refused.contains("dubious ownership"), "{refused}");
        let with = upload_pack(url).unwrap();
        let refs = git.text(["ls-remote", with, url]).await.unwrap();
        assert!(refs.contains("refs/heads/main"), "{refs}");
    }

    #[test]
    fn kept_error_text_is_bounded_at_its_edge() {
        assert_eq!(bounded(&vec![b'x'; STDERR_KEPT]).len(), STDERR_KEPT);
        let cut = bounded(&vec![b'x'; STDERR_KEPT + 1]);
        assert_eq!(cut.chars().count(), STDERR_KEPT + 1);
        assert!(cut.starts_with('…'));
    }
}
