//! A git remote in a temporary directory, rows, and a person.

use std::{
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
};

use async_trait::async_trait;
use pointsman_git::{Access, Git};
use tempfile::TempDir;
use uuid::Uuid;

use crate::{
    clock::{Clock, SystemChance},
    domain::{
        ids::{CommitId, RepositoryId, RequestId},
        policy::Policy,
        time::Timestamp,
        workflow::Kind,
    },
    forge::{
        Forge,
        builtin::BuiltinForge,
        contract::{Files, World},
    },
    store::{
        Store,
        model::{ForgeItem, Repository},
        sqlite::SqliteStore,
    },
};

/// When everything happens.
pub(super) const NOW: Timestamp = Timestamp(1_700_000_000_000_000);

/// A clock that stands still.
struct Still;

impl Clock for Still {
    fn now(&self) -> Timestamp {
        NOW
    }
}

/// What the remote is.
#[derive(Debug, Clone, Copy)]
pub(super) enum Remote {
    Bare,
    /// A person works in it, with the base branch checked out.
    WorkingCopy,
}

pub(super) struct BuiltinWorld {
    pub(super) forge: BuiltinForge,
    pub(super) store: Arc<dyn Store>,
    pub(super) repository: Repository,
    /// Of the remote; hooks run there as anywhere.
    pub(super) remote: Git,
    /// Where the person and the workers make commits.
    desk: Git,
    /// Made by [`commit`](World::commit): two of the same files and second are two commits by it.
    n_commits: AtomicU32,
    directory: TempDir,
}

impl BuiltinWorld {
    pub(super) async fn new() -> Self {
        Self::with(Remote::Bare).await
    }

    pub(super) async fn with(kind: Remote) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let remote = make(&directory.path().join("remote"), kind).await;
        let desk = make(&directory.path().join("desk"), Remote::WorkingCopy).await;
        let repository = repository(remote.directory());
        let store = store(directory.path(), &repository).await;
        let forge = forge(&store, directory.path().join("mirrors"));
        let world = Self {
            forge,
            store,
            repository,
            remote,
            desk,
            n_commits: AtomicU32::new(0),
            directory,
        };
        let first = world.commit(&[], &[("README", "first")]).await;
        match kind {
            Remote::Bare => world.put("main", Some(&first)).await,
            Remote::WorkingCopy => {
                let reset = ["reset", "--quiet", "--hard", first.as_str()];
                world.remote.run(reset).await.unwrap();
            }
        }
        world
    }

    /// Another process on the same rows, with bare copies of its own.
    pub(super) fn another_forge(&self) -> BuiltinForge {
        forge(&self.store, self.directory.path().join("others"))
    }

    /// A forge that finds the remote at `url`, with these settings of git.
    pub(super) async fn reach(&mut self, url: &str, settings: &str) {
        let path = self.directory.path().join("gitconfig");
        std::fs::write(&path, settings).unwrap();
        std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o600))
            .unwrap();
        let access = Access::read(Some(path)).await.unwrap();
        let copies = self.directory.path().join("reached");
        let (clock, chance) = (Arc::new(Still), Arc::new(SystemChance));
        self.forge = BuiltinForge::new(Arc::clone(&self.store), clock, chance, copies, access);
        self.repository.git_url = url.to_owned();
    }

    /// Our bare copy.
    pub(super) fn mirror(&self) -> PathBuf {
        let name = format!("{}.git", self.repository.id);
        self.directory.path().join("mirrors").join(name)
    }

    /// Commit of a ref of the remote.
    pub(super) async fn reference(&self, name: &str) -> Option<CommitId> {
        let arguments = ["rev-parse", "--verify", "--quiet", name];
        let output = self.remote.run_expecting(arguments, &[0, 1]).await.unwrap();
        (output.status == 0).then(|| output.text().parse().unwrap())
    }

    /// Makes the remote run a hook. git writes the file: a file that this process has open for writing
    /// can't be run.
    pub(super) async fn hook(&self, name: &str, script: &str) {
        let text = self.directory.path().join("script");
        std::fs::write(&text, format!("#!/bin/sh\n{script}\n")).unwrap();
        let add = ["hash-object", "-w", "--", text.to_str().unwrap()];
        let blob = self.desk.text(add).await.unwrap();
        let entry = format!("100755,{blob},{name}");
        let index = self.directory.path().join("hooks.index");
        let desk = self.desk.clone().with_env("GIT_INDEX_FILE", index);
        let into = format!("--prefix={}/", self.hooks().display());
        desk.run(["update-index", "--add", "--cacheinfo", &entry])
            .await
            .unwrap();
        desk.run(["checkout-index", "--force", &into, "--", name])
            .await
            .unwrap();
    }

    /// Takes a hook away again.
    pub(super) fn unhook(&self, name: &str) {
        std::fs::remove_file(self.hooks().join(name)).unwrap();
    }

    /// A script that moves a branch of the remote while a push is under way, once.
    pub(super) async fn move_during_push(&self, branch: &str, commit: &CommitId) {
        let script = format!(
            "rm \"$0\"\nunset GIT_QUARANTINE_PATH\ngit update-ref refs/heads/{branch} {commit}"
        );
        self.hook("pre-receive", &script).await;
    }

    fn hooks(&self) -> PathBuf {
        let directory = self.remote.directory();
        let inner = directory.join(".git");
        let git = if inner.exists() {
            inner
        } else {
            directory.to_owned()
        };
        git.join("hooks")
    }

    async fn change(&self, number: u64, change: impl FnOnce(&mut ForgeItem) + Send) {
        let mut tx = self.store.begin().await.unwrap();
        let mut row = tx
            .forge_item(self.repository.id, number)
            .await
            .unwrap()
            .unwrap();
        change(&mut row);
        tx.update_forge_item(&row).await.unwrap();
        tx.commit().await.unwrap();
    }
}

#[async_trait]
impl World for BuiltinWorld {
    fn forge(&self) -> &dyn Forge {
        &self.forge
    }

    fn repository(&self) -> &Repository {
        &self.repository
    }

    async fn commit(&self, parents: &[&CommitId], files: Files<'_>) -> CommitId {
        let (desk, url) = (&self.desk, &self.remote.directory().display().to_string());
        // What was merged meanwhile may be a parent.
        let all = ["fetch", "--quiet", url, "+refs/heads/*:refs/remote/*"];
        desk.run(all).await.unwrap();
        let read = match parents.first() {
            Some(first) => ["read-tree", first.as_str()],
            None => ["read-tree", "--empty"],
        };
        desk.run(read).await.unwrap();
        for (path, text) in files {
            let scratch = self.directory.path().join("text");
            std::fs::write(&scratch, text).unwrap();
            let add = ["hash-object", "-w", "--", scratch.to_str().unwrap()];
            let entry = format!("100644,{},{path}", desk.text(add).await.unwrap());
            let update = ["update-index", "--add", "--cacheinfo", &entry];
            desk.run(update).await.unwrap();
        }
        let tree = desk.text(["write-tree"]).await.unwrap();
        let n = self.n_commits.fetch_add(1, Ordering::Relaxed);
        let message = format!("Change {n}");
        let mut arguments = vec!["commit-tree", &tree, "-m", &message];
        for parent in parents {
            arguments.extend(["-p", parent.as_str()]);
        }
        let commit = desk.text(arguments).await.unwrap();
        let pushed = format!("{commit}:refs/pointsman/pushed/{commit}");
        desk.run(["push", "--quiet", url, &pushed]).await.unwrap();
        commit.parse().unwrap()
    }

    async fn put(&self, branch: &str, commit: Option<&CommitId>) {
        let reference = format!("refs/heads/{branch}");
        let arguments = match commit {
            Some(commit) => vec!["update-ref", &reference, commit.as_str()],
            None => vec!["update-ref", "-d", &reference],
        };
        self.remote.run(arguments).await.unwrap();
    }

    async fn tip(&self, branch: &str) -> Option<CommitId> {
        self.reference(&format!("refs/heads/{branch}")).await
    }

    async fn parents(&self, commit: &CommitId) -> Vec<CommitId> {
        let arguments = ["show", "--no-patch", "--format=%P", commit.as_str()];
        let text = self.remote.text(arguments).await.unwrap();
        text.split_whitespace()
            .map(|p| p.parse().unwrap())
            .collect()
    }

    async fn file(&self, commit: &CommitId, path: &str) -> String {
        let object = format!("{commit}:{path}");
        self.remote
            .text(["cat-file", "blob", &object])
            .await
            .unwrap()
    }

    async fn issue(&self) -> u64 {
        let mut tx = self.store.begin().await.unwrap();
        let number = tx.next_item_number(self.repository.id).await.unwrap();
        let issue = ForgeItem {
            repository: self.repository.id,
            number,
            kind: Kind::Issue,
            title: "Something is wrong".to_owned(),
            body: String::new(),
            labels: vec![self.repository.label.clone()],
            is_open: true,
            head_ref: None,
            base_ref: "main".to_owned(),
            merged_commit: None,
            request: Some(RequestId(Uuid::from_u128(number.into()))),
            created_at: NOW,
            updated_at: NOW,
        };
        tx.insert_forge_item(&issue).await.unwrap();
        tx.commit().await.unwrap();
        number
    }

    async fn unlabel(&self, number: u64) {
        self.change(number, |row| row.labels.clear()).await;
    }

    async fn close(&self, number: u64) {
        self.change(number, |row| row.is_open = false).await;
    }
}

async fn make(directory: &Path, kind: Remote) -> Git {
    std::fs::create_dir_all(directory).unwrap();
    let git = Git::new(directory).with_identity("A person", "person@example.invalid");
    match kind {
        Remote::Bare => git.run(["init", "--quiet", "--bare"]).await.unwrap(),
        Remote::WorkingCopy => git.run(["init", "--quiet"]).await.unwrap(),
    };
    git
}

fn repository(remote: &Path) -> Repository {
    Repository {
        id: RepositoryId(Uuid::from_u128(1)),
        name: "demo".to_owned(),
        git_url: remote.to_str().unwrap().to_owned(),
        base_ref: "main".to_owned(),
        label: "agent".to_owned(),
        checks: Vec::new(),
        policy: Policy::default(),
        created_at: NOW,
    }
}

fn forge(store: &Arc<dyn Store>, directory: PathBuf) -> BuiltinForge {
    let (clock, chance) = (Arc::new(Still), Arc::new(SystemChance));
    BuiltinForge::new(
        Arc::clone(store),
        clock,
        chance,
        directory,
        Access::default(),
    )
}

async fn store(directory: &Path, repository: &Repository) -> Arc<dyn Store> {
    let path = directory.join("pointsman.db");
    let store = SqliteStore::open(&path, Arc::new(Still)).await.unwrap();
    let mut tx = store.begin().await.unwrap();
    tx.insert_repository(repository).await.unwrap();
    tx.commit().await.unwrap();
    Arc::new(store)
}
