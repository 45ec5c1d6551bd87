//! A base branch that a person has checked out: nobody's work is touched, whatever it is.

use std::path::{Path, PathBuf};

use pointsman_git::Git;

use super::{
    World, base, merge, merged, opened,
    world::{BuiltinWorld, Remote},
};
use crate::{
    domain::ids::CommitId,
    forge::{MergeOutcome, WantedMerge},
};

/// A pull request that adds the file `work`, on a base branch that is checked out at `place`.
struct Desk {
    world: BuiltinWorld,
    wanted: WantedMerge,
    place: PathBuf,
    git: Git,
}

impl Desk {
    async fn new() -> Self {
        let world = BuiltinWorld::with(Remote::WorkingCopy).await;
        let wanted = opened(&world).await;
        let place = world.remote.directory().to_owned();
        Self {
            git: world.remote.clone(),
            world,
            wanted,
            place,
        }
    }

    /// The main working copy leaves the branch, which a linked one checks out.
    async fn linked() -> Self {
        let mut desk = Self::new().await;
        desk.run(&["checkout", "--quiet", "--detach"]).await;
        let place = desk.place.join("../linked");
        desk.run(&["worktree", "add", "--quiet", "../linked", "main"])
            .await;
        desk.place = place.canonicalize().unwrap();
        desk.git = Git::new(&desk.place).with_identity("A person", "person@example.invalid");
        desk
    }

    async fn run(&self, arguments: &[&str]) {
        self.git.run(arguments).await.unwrap();
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.place.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    fn read(&self, path: &str) -> Option<String> {
        std::fs::read_to_string(self.place.join(path)).ok()
    }

    async fn status(&self) -> String {
        self.git.text(["status", "--porcelain"]).await.unwrap()
    }

    /// It is not merged, for a reason with these words, and not a file is other than before.
    async fn check_waits(&self, words: &[&str]) {
        let before = (
            base(&self.world).await,
            self.status().await,
            tree(&self.place),
        );
        let outcome = merge(&self.world, &self.wanted).await;
        let MergeOutcome::Waiting { reason } = outcome else {
            panic!("{outcome:?}");
        };
        for word in words {
            assert!(reason.contains(word), "{reason}");
        }
        assert!(!reason.contains(&*self.place.to_string_lossy()), "{reason}");
        let after = (
            base(&self.world).await,
            self.status().await,
            tree(&self.place),
        );
        assert_eq!(after, before);
    }

    /// It is merged, and the working copy has come along.
    async fn check_merges(&self) -> CommitId {
        let commit = merged(&self.world, &self.wanted).await;
        assert_eq!(base(&self.world).await, commit);
        assert_eq!(self.read("work").as_deref(), Some("done"));
        commit
    }
}

/// Every file outside of git's own directory, with its text.
fn tree(directory: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut files = Vec::new();
    let mut open = vec![directory.to_owned()];
    while let Some(directory) = open.pop() {
        for entry in std::fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.ends_with(".git") {
                continue;
            }
            if path.is_dir() {
                open.push(path);
            } else {
                files.push((path.clone(), std::fs::read(path).unwrap()));
            }
        }
    }
    files.sort();
    files
}

#[tokio::test]
async fn a_clean_working_copy_comes_along() {
    for desk in [Desk::new().await, Desk::linked().await] {
        desk.write("notes", "untracked, and in nobody's way");
        desk.check_merges().await;
        assert_eq!(desk.status().await, "?? notes");
        let configured = desk
            .git
            .run_expecting(["config", "receive.denyCurrentBranch"], &[0, 1])
            .await;
        assert_eq!(configured.unwrap().status, 1, "a person's configuration");
    }
}

#[tokio::test]
async fn uncommitted_changes_are_waited_for_until_the_person_cleans_up() {
    for desk in [Desk::new().await, Desk::linked().await] {
        desk.write("README", "not committed");
        desk.check_waits(&["main is checked out", "uncommitted changes (README)"])
            .await;
        desk.run(&["checkout", "--quiet", "--", "README"]).await;
        desk.check_merges().await;
    }
}

#[tokio::test]
async fn changes_in_the_index_alone_are_waited_for() {
    let desk = Desk::new().await;
    desk.write("README", "staged");
    desk.run(&["add", "README"]).await;
    desk.write("README", "first");
    desk.check_waits(&["uncommitted changes (README)"]).await;
    let staged = desk.git.text(["show", ":README"]).await.unwrap();
    assert_eq!(staged, "staged");
}

#[tokio::test]
async fn an_untracked_file_that_the_merge_would_overwrite_is_waited_for() {
    for in_the_way in ["work", "work/inside"] {
        let desk = Desk::new().await;
        desk.write(in_the_way, "mine");
        desk.check_waits(&["does not track", in_the_way]).await;
    }
}

/// git's own update overwrites what is ignored.
#[tokio::test]
async fn an_ignored_file_that_the_merge_would_overwrite_is_waited_for() {
    let desk = Desk::new().await;
    let exclude = desk.place.join(".git/info");
    std::fs::create_dir_all(&exclude).unwrap();
    std::fs::write(exclude.join("exclude"), "work\n").unwrap();
    desk.write("work", "mine");
    assert_eq!(desk.status().await, "");
    desk.check_waits(&["does not track", "work"]).await;
}

#[tokio::test]
async fn an_ignored_file_where_the_merge_needs_a_directory_is_waited_for() {
    let mut desk = Desk::new().await;
    let head = desk
        .world
        .commit(&[&desk.wanted.head], &[("build/out", "1")])
        .await;
    desk.world.put(&desk.wanted.head_ref, Some(&head)).await;
    desk.wanted.head = head;
    std::fs::create_dir_all(desk.place.join(".git/info")).unwrap();
    std::fs::write(desk.place.join(".git/info/exclude"), "build\n").unwrap();
    desk.write("build", "mine");
    desk.check_waits(&["does not track", "build"]).await;
}

#[tokio::test]
async fn a_rebase_of_the_branch_is_waited_for() {
    let desk = Desk::new().await;
    // A rebase that stops to let the person edit: HEAD is detached, and all is clean.
    let git = desk
        .git
        .clone()
        .with_env("GIT_SEQUENCE_EDITOR", "sed -i s/^pick/edit/");
    git.run(["commit", "--quiet", "--allow-empty", "-m", "x"])
        .await
        .unwrap();
    git.run([
        "rebase",
        "--quiet",
        "--interactive",
        "--keep-empty",
        "HEAD~1",
    ])
    .await
    .unwrap();
    let head = git.text(["rev-parse", "--abbrev-ref", "HEAD"]).await;
    assert_eq!(head.unwrap(), "HEAD");
    desk.check_waits(&["main is checked out", "a rebase under way"])
        .await;
    desk.run(&["rebase", "--abort"]).await;
    desk.check_merges().await;
}

#[tokio::test]
async fn a_merge_that_a_person_has_not_ended_is_waited_for() {
    let desk = Desk::new().await;
    let merge = ["merge", "--no-commit", "--no-ff", "-s", "ours", "--quiet"];
    let mut merge = merge.to_vec();
    merge.push(desk.wanted.head.as_str());
    desk.run(&merge).await;
    assert_eq!(desk.status().await, "");
    desk.check_waits(&["a merge under way"]).await;
}

#[tokio::test]
async fn a_detached_head_at_the_bases_commit_stays_as_it_is() {
    let desk = Desk::new().await;
    desk.run(&["checkout", "--quiet", "--detach"]).await;
    desk.write("README", "not committed");
    let before = (tree(&desk.place), desk.status().await);
    merged(&desk.world, &desk.wanted).await;
    assert_eq!((tree(&desk.place), desk.status().await), before);
}

#[tokio::test]
async fn a_submodule_keeps_what_is_in_it() {
    let desk = Desk::new().await;
    // A repository inside, recorded as a submodule, with work of its own.
    desk.run(&["init", "--quiet", "inner"]).await;
    let inner = Git::new(desk.place.join("inner")).with_identity("A", "a@example.invalid");
    inner
        .run(["commit", "--quiet", "--allow-empty", "-m", "x"])
        .await
        .unwrap();
    desk.run(&["add", "inner"]).await;
    desk.run(&["commit", "--quiet", "-m", "a submodule"]).await;
    desk.write("inner/mine", "not committed");
    desk.check_merges().await;
    assert_eq!(desk.read("inner/mine").as_deref(), Some("not committed"));
}

#[tokio::test]
async fn what_the_owner_configured_is_respected() {
    let desk = Desk::new().await;
    desk.run(&["config", "receive.denyCurrentBranch", "refuse"])
        .await;
    desk.check_waits(&["checked out"]).await;
}
