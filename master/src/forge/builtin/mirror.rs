//! Our bare copy of a repository, and every git command that runs in it.
//!
//! The remote's refs are copied into a namespace of their own at each look; nothing here is worth keeping:
//! a copy that was removed is made again, and one that a killed process left locked is removed. One process
//! at a time uses a directory of copies. A look is one fetch, and so one consistent view of all refs.

use std::{
    collections::HashMap,
    path::PathBuf,
    sync::{Arc, PoisonError},
};

use pointsman_git::{Access, Git, Output};
use tokio::sync::{Mutex, OwnedMutexGuard};

use super::push::said;
use crate::{
    clock::Chance,
    domain::{
        ids::{CommitId, RepositoryId},
        retention::OwnName,
        time::Timestamp,
    },
    forge::{Error, OwnRef},
    retry::{self, Verdict},
    store::model::Repository,
};

/// The remote's branches, here.
const BRANCHES: &str = "+refs/heads/*:refs/remote/heads/*";
/// What workers pushed, and the proofs of merges, here.
const OWN_REFS: &str = "+refs/pointsman/*:refs/remote/pointsman/*";

/// How many loose objects are packed; git's own default.
const LOOSE_OBJECTS: &str = "gc.auto=6700";

/// What git says where another try at once can't help.
const HOPELESS: &[&str] = &[
    "does not appear to be a git repository",
    "not found",
    "No such file or directory",
    "Authentication failed",
    "could not read Username",
    "could not read Password",
    "Permission denied",
    "Host key verification failed",
    LEFT_LOCK,
];

/// What git says of a lock file that is there already. Nobody else works in our copy while we have the
/// turn, so that whoever made it was killed.
const LEFT_LOCK: &str = ".lock': File exists";

/// One turn at a time and a repository.
type Turns = HashMap<RepositoryId, Arc<Mutex<Prepared>>>;

/// Whether this process has made the copy of a repository usable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Prepared {
    No,
    Yes,
}

/// The bare copies of all repositories.
pub(super) struct Mirrors {
    directory: PathBuf,
    access: Access,
    chance: Arc<dyn Chance>,
    turns: std::sync::Mutex<Turns>,
}

impl Mirrors {
    /// Copies are, or will be, under `directory`.
    pub(super) fn new(directory: PathBuf, access: Access, chance: Arc<dyn Chance>) -> Self {
        Self {
            directory,
            access,
            chance,
            turns: std::sync::Mutex::default(),
        }
    }

    /// Waits for the turn at a repository; it lasts as long as the value does. Whoever has it is within
    /// a git command or a store call, and those have deadlines.
    pub(super) async fn take(
        &self,
        repository: &Repository,
        operation: &'static str,
    ) -> Result<Mirror, Error> {
        let turn = self.turn(repository.id).lock_owned().await;
        let directory = self.directory.join(format!("{}.git", repository.id));
        let mut mirror = Mirror {
            remote: Git::new(&directory).reaching(&self.access),
            git: Git::new(directory),
            url: repository.git_url.clone(),
            operation,
            chance: Arc::clone(&self.chance),
            turn,
        };
        mirror.prepare().await?;
        Ok(mirror)
    }

    fn turn(&self, id: RepositoryId) -> Arc<Mutex<Prepared>> {
        let mut turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
        let turn = turns
            .entry(id)
            .or_insert_with(|| Arc::new(Mutex::new(Prepared::No)));
        Arc::clone(turn)
    }
}

/// The bare copy of one repository, and the turn at it.
pub(super) struct Mirror {
    git: Git,
    /// The same directory, for commands that talk to the remote.
    remote: Git,
    url: String,
    operation: &'static str,
    chance: Arc<dyn Chance>,
    turn: OwnedMutexGuard<Prepared>,
}

/// What a merge of two commits makes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Merged {
    /// The tree of the result, by its hash.
    Tree(String),
    Conflict(Vec<String>),
    /// The two have no commit in common.
    Unrelated,
}

impl Mirror {
    /// Where the remote is. May hold a secret: not for people.
    pub(super) fn url(&self) -> &str {
        &self.url
    }

    /// Sees the remote's refs as they are now. Whatever is asked below is answered from this look.
    pub(super) async fn look(&self) -> Result<(), Error> {
        match self.fetch().await {
            Err(pointsman_git::Error::Failed { stderr, .. }) if stderr.contains(LEFT_LOCK) => {
                tracing::info!(git.directory = %self.git.directory().display(), "make the bare copy anew: a killed process left a lock in it");
                self.remove().await?;
                self.make().await?;
                self.fetch().await
            }
            result => result,
        }
        .map(drop)
        .map_err(|error| self.unavailable(error))
    }

    async fn fetch(&self) -> Result<Output, pointsman_git::Error> {
        let mut arguments = vec!["fetch", "--quiet", "--no-tags", "--prune"];
        arguments.push("--no-write-fetch-head");
        arguments.extend(pointsman_git::upload_pack(&self.url));
        arguments.extend(["--", &self.url, BRANCHES, OWN_REFS]);
        self.ask(&arguments).await
    }

    /// Tip of a branch at the last look.
    pub(super) async fn branch(&self, name: &str) -> Result<Option<CommitId>, Error> {
        self.resolve(&format!("refs/remote/heads/{name}")).await
    }

    /// Commit of a ref under `refs/pointsman/` at the last look.
    pub(super) async fn own_ref(&self, name: &str) -> Result<Option<CommitId>, Error> {
        self.resolve(&format!("refs/remote/pointsman/{name}")).await
    }

    /// Refs of ours at the last look.
    pub(super) async fn own_refs(&self) -> Result<Vec<OwnRef>, Error> {
        let arguments = [
            "for-each-ref",
            "--format=%(objectname) %(refname)",
            "refs/remote/pointsman/",
            "refs/remote/heads/pointsman/",
        ];
        let mut found = Vec::new();
        for line in self.run(&arguments, &[0]).await?.text().lines() {
            let Some((commit, copy)) = line.split_once(' ') else {
                continue;
            };
            let reference = copy.replacen("refs/remote/", "refs/", 1);
            if let Some(name) = OwnName::parse(&reference) {
                let commit = self.commit(commit.to_owned())?;
                found.push(OwnRef { name, commit });
            }
        }
        Ok(found)
    }

    /// Packs the copy where it has become loose. Nobody borrows from it, so that nothing else needs what goes.
    pub(super) async fn pack(&self) -> Result<(), Error> {
        let arguments = [
            "-c",
            LOOSE_OBJECTS,
            "-c",
            "gc.autoDetach=false",
            "gc",
            "--auto",
            "--quiet",
        ];
        self.run(&arguments, &[0]).await.map(drop)
    }

    /// Tip of a branch of the remote, asked now and without copying anything.
    pub(super) async fn ask_branch(&self, name: &str) -> Result<Option<CommitId>, Error> {
        let wanted = format!("refs/heads/{name}");
        let mut arguments = vec!["ls-remote", "--quiet"];
        arguments.extend(pointsman_git::upload_pack(&self.url));
        arguments.extend(["--", &self.url, &wanted]);
        let output = self
            .ask(&arguments)
            .await
            .map_err(|error| self.unavailable(error))?;
        // The pattern also matches refs that merely end like it.
        let tip = output.text().lines().find_map(|line| {
            let (commit, reference) = line.split_once('\t')?;
            (reference == wanted).then(|| commit.to_owned())
        });
        tip.map(|tip| self.commit(tip)).transpose()
    }

    /// Refuses a name that no branch can have, before it gets into a refspec.
    pub(super) async fn check_branch_name(&self, name: &str) -> Result<(), Error> {
        let reference = format!("refs/heads/{name}");
        let output = self.run(&["check-ref-format", &reference], &[0, 1]).await?;
        if output.status == 0 {
            Ok(())
        } else {
            Err(self.refused(format!("{name:?} is no name of a branch")))
        }
    }

    /// Whether the commit is here.
    pub(super) async fn has(&self, commit: &CommitId) -> Result<bool, Error> {
        let object = format!("{commit}^{{commit}}");
        let output = self.run(&["cat-file", "-e", &object], &[0, 1, 128]).await?;
        Ok(output.status == 0)
    }

    /// Whether `ancestor` is `commit` or an ancestor of it. A commit that is not here after a look is
    /// on no branch, and so in nothing.
    pub(super) async fn contains(
        &self,
        commit: &CommitId,
        ancestor: &CommitId,
    ) -> Result<bool, Error> {
        if commit == ancestor {
            return Ok(true);
        }
        if !self.has(ancestor).await? {
            return Ok(false);
        }
        let arguments = [
            "merge-base",
            "--is-ancestor",
            ancestor.as_str(),
            commit.as_str(),
        ];
        Ok(self.run(&arguments, &[0, 1]).await?.status == 0)
    }

    /// The commit that brought `head` onto a branch with the tip `base`, which contains it: the oldest
    /// one on the branch's own (first-parent) line that has it. Equal to `head` where the line itself
    /// passes through it: it was fast-forwarded to, or there was never anything to merge.
    pub(super) async fn brought_by(
        &self,
        base: &CommitId,
        head: &CommitId,
    ) -> Result<CommitId, Error> {
        let range = format!("{head}..{base}");
        let arguments = ["rev-list", "--first-parent", "--parents", &range];
        let line = self.run(&arguments, &[0]).await?.text();
        let line: Vec<&str> = line.lines().collect();
        if line.last().and_then(|oldest| oldest.split(' ').nth(1)) == Some(head.as_str())
            || line.is_empty()
        {
            return Ok(head.clone());
        }
        self.oldest_with(&line, head).await
    }

    /// Finds, in a first-parent line given newest first, the oldest commit that contains `head`. All
    /// that are newer contain it too, so that halving finds it.
    async fn oldest_with(&self, line: &[&str], head: &CommitId) -> Result<CommitId, Error> {
        let at = |index: usize| {
            let commit = line.get(index).and_then(|entry| entry.split(' ').next());
            self.commit(commit.unwrap_or_default().to_owned())
        };
        // The newest contains it; what follows the last may not.
        let (mut with, mut without) = (0, line.len());
        while with + 1 < without {
            let middle = with + (without - with) / 2;
            if self.contains(&at(middle)?, head).await? {
                with = middle;
            } else {
                without = middle;
            }
        }
        at(with)
    }

    /// Tries a merge, in the object database alone.
    pub(super) async fn merge(&self, base: &CommitId, head: &CommitId) -> Result<Merged, Error> {
        let (base, head) = (base.as_str(), head.as_str());
        let related = self.run(&["merge-base", base, head], &[0, 1]).await?;
        if related.status == 1 {
            return Ok(Merged::Unrelated);
        }
        let arguments = [
            "merge-tree",
            "--write-tree",
            "--name-only",
            "--no-messages",
            "-z",
            base,
            head,
        ];
        let output = self.run(&arguments, &[0, 1]).await?;
        let text = String::from_utf8_lossy(&output.stdout);
        let mut fields = text.split('\0').filter(|field| !field.is_empty());
        let tree = fields.next().unwrap_or_default().trim().to_owned();
        Ok(match output.status {
            0 => Merged::Tree(tree),
            _ => Merged::Conflict(fields.map(str::to_owned).collect()),
        })
    }

    /// Paths that `to` changes of `from`, each with whether `from` has it.
    pub(super) async fn changed_paths(
        &self,
        from: &CommitId,
        to: &CommitId,
    ) -> Result<Vec<(String, bool)>, Error> {
        let arguments = [
            "diff-tree",
            "-r",
            "-z",
            "--no-renames",
            "--name-status",
            from.as_str(),
            to.as_str(),
        ];
        let output = self.run(&arguments, &[0]).await?;
        let text = String::from_utf8_lossy(&output.stdout);
        let mut fields = text.split('\0');
        let mut paths = Vec::new();
        while let (Some(status), Some(path)) = (fields.next(), fields.next()) {
            paths.push((path.to_owned(), status != "A"));
        }
        Ok(paths)
    }

    /// Makes a commit, ours, of `at`; it is on no branch yet.
    pub(super) async fn commit_tree(
        &self,
        tree: &str,
        parents: &[&CommitId],
        message: &str,
        at: Timestamp,
    ) -> Result<CommitId, Error> {
        let date = format!("@{} +0000", at.0.div_euclid(1_000_000));
        let git = self
            .git
            .clone()
            .with_identity("Pointsman", "pointsman@localhost")
            .with_env("GIT_AUTHOR_DATE", &date)
            .with_env("GIT_COMMITTER_DATE", &date);
        let mut arguments = vec!["commit-tree", tree, "-m", message];
        for parent in parents {
            arguments.extend(["-p", parent.as_str()]);
        }
        let text = git
            .text(arguments)
            .await
            .map_err(|error| self.unavailable(error))?;
        self.commit(text)
    }

    /// Runs a command that must end with one of `expected`.
    pub(super) async fn run(&self, arguments: &[&str], expected: &[i32]) -> Result<Output, Error> {
        self.git
            .run_expecting(arguments, expected)
            .await
            .map_err(|error| self.unavailable(error))
    }

    /// Pushes to the remote; ends with one of `expected`.
    pub(super) async fn push(&self, arguments: &[&str], expected: &[i32]) -> Result<Output, Error> {
        self.remote
            .run_expecting(arguments, expected)
            .await
            .map_err(|error| self.unavailable(error))
    }

    pub(super) fn unavailable(
        &self,
        source: impl std::error::Error + Send + Sync + 'static,
    ) -> Error {
        let source: Box<dyn std::error::Error + Send + Sync> = Box::new(source);
        Error::Unavailable {
            operation: self.operation,
            said: said(source.as_ref()),
            source,
        }
    }

    pub(super) fn refused(&self, reason: String) -> Error {
        Error::Refused {
            operation: self.operation,
            reason,
        }
    }

    pub(super) fn store(&self, source: crate::store::Error) -> Error {
        Error::Store {
            operation: self.operation,
            source,
        }
    }

    /// Reads from the remote, again where the network may have been the cause.
    async fn ask(&self, arguments: &[&str]) -> Result<Output, pointsman_git::Error> {
        retry::read(Arc::clone(&self.chance), judge, || {
            self.remote.run(arguments)
        })
        .await
    }

    async fn resolve(&self, reference: &str) -> Result<Option<CommitId>, Error> {
        let object = format!("{reference}^{{commit}}");
        let arguments = [
            "rev-parse",
            "--verify",
            "--quiet",
            "--end-of-options",
            &object,
        ];
        let output = self.run(&arguments, &[0, 1]).await?;
        if output.status == 0 {
            self.commit(output.text()).map(Some)
        } else {
            Ok(None)
        }
    }

    fn commit(&self, text: String) -> Result<CommitId, Error> {
        CommitId::try_from(text).map_err(|error| self.unavailable(error))
    }

    async fn prepare(&mut self) -> Result<(), Error> {
        let directory = self.git.directory();
        let is_there = tokio::fs::try_exists(directory.join("HEAD")).await;
        if *self.turn == Prepared::Yes && matches!(is_there, Ok(true)) {
            return Ok(());
        }
        if self.make().await.is_err() {
            // What a killed process left in the way, a lock say, goes with the copy.
            self.remove().await?;
            self.make().await?;
        }
        *self.turn = Prepared::Yes;
        Ok(())
    }

    /// Makes the copy, or completes what a killed process left half made.
    async fn make(&self) -> Result<(), Error> {
        tokio::fs::create_dir_all(self.git.directory())
            .await
            .map_err(|error| self.unavailable(error))?;
        self.run(&["init", "--quiet", "--bare", "--template="], &[0])
            .await
            .map(drop)
    }

    async fn remove(&self) -> Result<(), Error> {
        tokio::fs::remove_dir_all(self.git.directory())
            .await
            .map_err(|error| self.unavailable(error))
    }
}

fn judge(error: &pointsman_git::Error) -> Verdict {
    match error {
        pointsman_git::Error::Start { .. } | pointsman_git::Error::Deadline { .. } => {
            Verdict::GiveUp
        }
        pointsman_git::Error::Failed { stderr, .. } => {
            if HOPELESS.iter().any(|text| stderr.contains(text)) {
                Verdict::GiveUp
            } else {
                Verdict::Again
            }
        }
    }
}
