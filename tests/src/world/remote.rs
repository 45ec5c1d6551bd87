//! A bare repository with one commit, and hooks in the test's hand.
//!
//! A hook acts once it has a rule, on the pushes that change a ref of the rule's pattern. Rules and what
//! became of them are files, so that a hook works on when the process that started the push is dead.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use pointsman_git::Git;

/// The branch that pull requests go to.
pub const BASE: &str = "main";

/// When a hook acts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hook {
    /// Before any ref has changed.
    PreReceive,
    /// After all of them have, before the pusher is told.
    PostReceive,
}

/// What a hook does to a push.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Push {
    /// Kills the master, once; the push goes on.
    KillsMaster,
    /// Kills the master, once; the push is refused.
    KillsMasterAndFails,
    /// Waits until [`Remote::let_go`].
    Blocks,
}

impl Hook {
    const ALL: [Self; 2] = [Self::PreReceive, Self::PostReceive];

    const fn name(self) -> &'static str {
        match self {
            Self::PreReceive => "pre-receive",
            Self::PostReceive => "post-receive",
        }
    }
}

impl Push {
    const fn word(self) -> &'static str {
        match self {
            Self::KillsMaster => "kill",
            Self::KillsMasterAndFails => "kill-and-fail",
            Self::Blocks => "block",
        }
    }
}

/// A remote.
#[derive(Debug)]
pub struct Remote {
    bare: PathBuf,
    seed: PathBuf,
}

impl Remote {
    /// Makes it below `directory`; the hooks find the master's process id in `master_pid`.
    pub(super) async fn make(directory: &Path, master_pid: &Path) -> Self {
        let remote = Self {
            bare: directory.join("remote.git"),
            seed: directory.join("seed"),
        };
        for directory in [&remote.bare, &remote.seed] {
            fs::create_dir(directory).expect("make a directory");
        }
        remote.git(["init", "--quiet", "--bare"]).await;
        for hook in Hook::ALL {
            let path = remote.bare.join("hooks").join(hook.name());
            fs::create_dir_all(remote.bare.join("hooks")).expect("make the hooks' directory");
            fs::write(&path, remote.program(hook, master_pid)).expect("write a hook");
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("allow a hook");
        }
        remote.seed_git(&["init", "--quiet"]).await;
        remote.push_to_base("shared.txt", "first").await;
        remote
    }

    fn rule(&self, hook: Hook) -> PathBuf {
        self.bare.join(format!("{}.rule", hook.name()))
    }

    fn program(&self, hook: Hook, master_pid: &Path) -> String {
        format!(
            r#"#!/bin/sh
rule='{rule}'
[ -f "$rule" ] || exit 0
read -r action pattern < "$rule"
hit=
while read -r old new ref; do
  case "$ref" in $pattern) hit=1 ;; esac
done
[ -n "$hit" ] || exit 0
case "$action" in
  kill*)
    mv "$rule" "$rule.done" 2>/dev/null || exit 0
    kill -9 "$(cat '{master_pid}')"
    [ "$action" = kill ] || exit 1
    ;;
  block)
    : > "$rule.reached"
    while [ -f "$rule" ]; do sleep 0.02; done
    ;;
esac
exit 0
"#,
            rule = self.rule(hook).display(),
            master_pid = master_pid.display(),
        )
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.bare
    }

    /// Runs git in the bare repository.
    pub async fn git<'a>(&self, arguments: impl IntoIterator<Item = &'a str>) -> String {
        Git::new(&self.bare)
            .with_identity("Somebody", "somebody@example.invalid")
            .text(arguments)
            .await
            .expect("git works in the remote")
    }

    async fn seed_git(&self, arguments: &[&str]) -> String {
        Git::new(&self.seed)
            .with_identity("Somebody", "somebody@example.invalid")
            .text(arguments)
            .await
            .expect("git works in the checkout")
    }

    /// Pushes a commit that writes a file to the base branch, as a colleague would.
    pub async fn push_to_base(&self, path: &str, text: &str) -> String {
        let bare = self.bare.to_string_lossy().into_owned();
        let has_base = !self.git(["branch", "--list", BASE]).await.is_empty();
        if has_base {
            self.seed_git(&["fetch", "--quiet", &bare, BASE]).await;
            self.seed_git(&["reset", "--quiet", "--hard", "FETCH_HEAD"])
                .await;
        }
        fs::write(self.seed.join(path), format!("{text}\n")).expect("write a file");
        self.seed_git(&["add", "--all"]).await;
        self.seed_git(&["commit", "--quiet", "-m", text]).await;
        let to = format!("HEAD:refs/heads/{BASE}");
        self.seed_git(&["push", "--quiet", &bare, &to]).await;
        self.seed_git(&["rev-parse", "HEAD"]).await
    }

    /// Pushes a commit that writes a file to a branch, as a colleague would; false where the branch is gone
    /// or somebody else pushed meanwhile.
    pub async fn push_to_branch(&self, branch: &str, path: &str, text: &str) -> bool {
        let bare = self.bare.to_string_lossy().into_owned();
        let to = format!("HEAD:refs/heads/{branch}");
        let seed = Git::new(&self.seed).with_identity("Somebody", "somebody@example.invalid");
        if seed.run(["fetch", "--quiet", &bare, branch]).await.is_err() {
            return false;
        }
        self.seed_git(&["reset", "--quiet", "--hard", "FETCH_HEAD"])
            .await;
        fs::write(self.seed.join(path), format!("{text}\n")).expect("write a file");
        self.seed_git(&["add", "--all"]).await;
        self.seed_git(&["commit", "--quiet", "--allow-empty", "-m", text])
            .await;
        seed.run(["push", "--quiet", &bare, &to]).await.is_ok()
    }

    /// All refs but those that belong to leases, which workers push.
    pub async fn refs(&self) -> BTreeMap<String, String> {
        let listed = self
            .git(["for-each-ref", "--format=%(refname) %(objectname)"])
            .await;
        listed
            .lines()
            .filter_map(|line| line.split_once(' '))
            .filter(|(name, _)| {
                !name.starts_with("refs/pointsman/") || name.starts_with("refs/pointsman/merged/")
            })
            .map(|(name, commit)| (name.to_owned(), commit.to_owned()))
            .collect()
    }

    /// The merge commits of the base branch's own line, newest first.
    pub async fn merges(&self) -> Vec<String> {
        let listed = self
            .git(["log", "--first-parent", "--merges", "--format=%H", BASE])
            .await;
        listed.lines().map(str::to_owned).collect()
    }

    /// A file of a commit.
    pub async fn file(&self, commit: &str, path: &str) -> String {
        self.git(["show", &format!("{commit}:{path}")]).await
    }

    /// From now on the hook does this to pushes that change a ref of the pattern, which is a shell's.
    pub fn on(&self, hook: Hook, pattern: &str, push: Push) {
        let rule = self.rule(hook);
        let unfinished = rule.with_extension("new");
        fs::write(&unfinished, format!("{} {pattern}\n", push.word())).expect("write a rule");
        fs::rename(unfinished, rule).expect("put a rule in place");
    }

    /// Whether a push has come to the hook, and blocks there.
    pub fn is_blocked(&self, hook: Hook) -> bool {
        self.rule(hook).with_extension("rule.reached").exists()
    }

    /// Whether the hook has killed the master.
    pub fn has_killed(&self, hook: Hook) -> bool {
        self.rule(hook).with_extension("rule.done").exists()
    }

    /// Takes the rule away; what blocks goes on.
    pub fn let_go(&self, hook: Hook) {
        fs::remove_file(self.rule(hook)).expect("there is a rule");
    }
}
