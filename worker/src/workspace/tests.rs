use std::fs;

use pointsman_git::Git;
use tempfile::TempDir;
use uuid::Uuid;

use super::*;
use crate::{
    assignment::{Job, LeaseKey, Role},
    testing,
};

/// A repository to work for, and the directories of a worker.
struct World {
    directory: TempDir,
    workspaces: Workspaces,
    assignment: Assignment,
}

impl World {
    async fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        for name in ["upstream", "mirrors", "checkouts"] {
            fs::create_dir(directory.path().join(name)).unwrap();
        }
        let workspaces = Workspaces::new(
            directory.path().join("mirrors"),
            directory.path().join("checkouts"),
            pointsman_git::Access::default(),
        );
        let mut assignment = testing::assignment(Job::Harness {
            role: Role::Implementer,
            tier: 1,
            profile: "stub".to_owned(),
        });
        assignment.repository.git_url = path(&directory, "upstream");
        let mut world = Self {
            directory,
            workspaces,
            assignment,
        };
        world.upstream().run(["init", "--quiet"]).await.unwrap();
        world.assignment.checkout_commit = commit(&world.upstream(), "first").await;
        world
    }

    fn upstream(&self) -> Git {
        Git::new(path(&self.directory, "upstream")).with_identity("A", "a@example.invalid")
    }

    async fn prepare(&self) -> Checkout {
        self.workspaces.prepare(&self.assignment).await.unwrap()
    }
}

fn path(directory: &TempDir, name: &str) -> String {
    directory.path().join(name).to_str().unwrap().to_owned()
}

async fn commit(git: &Git, message: &str) -> Commit {
    git.run(["commit", "--quiet", "--allow-empty", "-m", message])
        .await
        .unwrap();
    head(git).await
}

async fn head(git: &Git) -> Commit {
    Commit::new(&git.text(["rev-parse", "HEAD"]).await.unwrap()).unwrap()
}

#[tokio::test]
async fn a_checkout_is_a_repository_of_its_own_with_the_base_branch() {
    let world = World::new().await;
    let checkout = world.prepare().await;
    let git = Git::new(checkout.path());
    assert_eq!(head(&git).await, world.assignment.checkout_commit);
    assert_eq!(
        git.text(["rev-parse", "--git-dir", "--git-common-dir"])
            .await
            .unwrap(),
        ".git\n.git",
        "no worktree of another repository"
    );
    assert_eq!(
        git.text(["rev-parse", "origin/main"]).await.unwrap(),
        world.assignment.checkout_commit.as_str()
    );
    // Its own configuration names an author, so that a harness can commit.
    commit(&git, "by the harness").await;
}

#[tokio::test]
async fn a_commit_is_pushed_to_the_ref_of_the_lease_as_often_as_asked() {
    let world = World::new().await;
    let checkout = world.prepare().await;
    let made = commit(&Git::new(checkout.path()), "by the harness").await;
    let push_ref = world.assignment.push_ref.as_str();
    assert_eq!(checkout.collect().await.unwrap(), made);
    checkout.push(&made, push_ref).await.unwrap();
    checkout.push(&made, push_ref).await.unwrap();
    let pushed = world
        .upstream()
        .text(["rev-parse", push_ref])
        .await
        .unwrap();
    assert_eq!(pushed, made.as_str());
    let main = world.upstream().text(["rev-parse", "main"]).await.unwrap();
    assert_eq!(
        main,
        world.assignment.checkout_commit.as_str(),
        "no branch moves"
    );
}

#[tokio::test]
async fn a_head_that_is_no_descendant_is_refused() {
    let mut world = World::new().await;
    world.assignment.checkout_commit = commit(&world.upstream(), "second").await;
    let checkout = world.prepare().await;
    let git = Git::new(checkout.path());
    git.run(["reset", "--quiet", "--hard", "HEAD^"])
        .await
        .unwrap();
    commit(&git, "beside it").await;
    let error = checkout.collect().await.unwrap_err();
    assert!(
        matches!(error, CollectError::NoDescendant { .. }),
        "{error}"
    );
}

#[tokio::test]
async fn an_untouched_checkout_collects_what_was_checked_out() {
    let world = World::new().await;
    let checkout = world.prepare().await;
    fs::write(checkout.path().join("dirty"), "not committed").unwrap();
    let head = checkout.collect().await.unwrap();
    assert_eq!(head, world.assignment.checkout_commit);
}

#[tokio::test]
async fn a_checkout_without_its_repository_is_the_harnesss_doing() {
    let world = World::new().await;
    let checkout = world.prepare().await;
    fs::remove_dir_all(checkout.path().join(".git")).unwrap();
    let error = checkout.collect().await.unwrap_err();
    assert!(matches!(error, CollectError::Head(_)), "{error}");
}

#[tokio::test]
async fn a_branch_that_is_called_head_is_not_head() {
    let world = World::new().await;
    let checkout = world.prepare().await;
    let git = Git::new(checkout.path());
    commit(&git, "on a branch").await;
    git.run(["branch", "x/HEAD"]).await.unwrap();
    // HEAD itself names a branch without commits, so that it is not listed.
    git.run(["symbolic-ref", "HEAD", "refs/heads/none"])
        .await
        .unwrap();
    let error = checkout.collect().await.unwrap_err();
    assert!(matches!(error, CollectError::NoCommit), "{error}");
}

#[tokio::test]
async fn hooks_and_configuration_of_a_checkout_are_not_the_agents() {
    let world = World::new().await;
    let checkout = world.prepare().await;
    let git = Git::new(checkout.path());
    let made = commit(&git, "by the harness").await;
    let marker = world.directory.path().join("marker");
    let script = format!("touch {}; false", marker.display());
    for key in [
        "uploadpack.packObjectsHook",
        "core.fsmonitor",
        "core.sshCommand",
    ] {
        git.run(["config", key, &script]).await.unwrap();
    }
    assert_eq!(checkout.collect().await.unwrap(), made);
    assert!(!marker.exists());
}

#[tokio::test]
async fn a_commit_on_no_branch_is_found() {
    let mut world = World::new().await;
    let upstream = world.upstream();
    let first = world.assignment.checkout_commit.clone();
    let hidden = commit(&upstream, "on a lease's ref alone").await;
    upstream
        .run(["update-ref", "refs/pointsman/x/1-y", hidden.as_str()])
        .await
        .unwrap();
    upstream
        .run(["reset", "--quiet", "--hard", first.as_str()])
        .await
        .unwrap();
    world.assignment.checkout_commit = hidden.clone();
    let checkout = world.prepare().await;
    assert_eq!(head(&Git::new(checkout.path())).await, hidden);
}

#[tokio::test]
async fn superseded_commits_can_be_read_where_they_are_still_to_be_had() {
    let mut world = World::new().await;
    let upstream = world.upstream();
    let first = world.assignment.checkout_commit.clone();
    let mut superseded = Vec::new();
    for name in ["refs/pointsman/1/1-ab", "refs/pointsman/1/2-ab"] {
        let commit = commit(&upstream, name).await;
        upstream
            .run(["update-ref", name, commit.as_str()])
            .await
            .unwrap();
        upstream
            .run(["reset", "--quiet", "--hard", first.as_str()])
            .await
            .unwrap();
        superseded.push(commit.to_string());
    }
    let gone = ["9".repeat(40)];
    // All of them at once, then each by itself, since one is gone.
    for lost in [&gone[..0], &gone[..]] {
        fs::remove_dir_all(world.mirror()).unwrap_or_default();
        world.assignment.item.superseded_commits = [lost, &superseded[..]].concat();
        let checkout = world.prepare().await;
        assert_eq!(checkout.base(), Some(&first));
        // One a fetch, the first of which is that of the branches.
        let packs = fs::read_dir(world.mirror().join("objects/pack")).unwrap();
        let packs = packs.filter(|entry| {
            let path = entry.as_ref().unwrap().path();
            path.extension()
                .is_some_and(|extension| extension == "pack")
        });
        assert_eq!(packs.count(), if lost.is_empty() { 2 } else { 3 });
        for commit in &superseded {
            let kind = ["cat-file", "-t", commit];
            let kind = Git::new(checkout.path()).text(kind).await.unwrap();
            assert_eq!(kind, "commit");
        }
        fs::remove_dir_all(checkout.path()).unwrap();
    }
}

#[test]
fn of_superseded_commits_the_newest_are_fetched() {
    let mut item = testing::assignment(Job::Check {
        name: "c".to_owned(),
        command: "true".to_owned(),
    })
    .item;
    item.superseded_commits = (0..=SUPERSEDED_MAX).map(|n| format!("{n:040x}")).collect();
    let fetched: Vec<_> = superseded(&item).iter().map(Commit::to_string).collect();
    assert_eq!(fetched, item.superseded_commits[1..]);
    item.superseded_commits.pop();
    let fetched: Vec<_> = superseded(&item).iter().map(Commit::to_string).collect();
    assert_eq!(fetched, item.superseded_commits);
}

#[tokio::test]
async fn a_commit_that_is_nowhere_is_an_error_that_names_it() {
    let mut world = World::new().await;
    let missing = Commit::new(&"ab".repeat(20)).unwrap();
    world.assignment.checkout_commit = missing.clone();
    let error = world
        .workspaces
        .prepare(&world.assignment)
        .await
        .unwrap_err();
    assert!(
        matches!(&error, Error::NoCommit(commit) if *commit == missing),
        "{error}"
    );
}

#[tokio::test]
async fn a_repository_id_can_not_leave_the_directory_of_mirrors() {
    let mut world = World::new().await;
    for id in ["", "..", "a/b", ".hidden", &"a".repeat(ID_MAX + 1)] {
        world.assignment.repository.id = id.to_owned();
        let error = world
            .workspaces
            .prepare(&world.assignment)
            .await
            .unwrap_err();
        assert!(matches!(error, Error::RepositoryId(_)), "{id}: {error}");
    }
}

#[tokio::test]
async fn locks_that_a_killed_git_left_do_not_stop_the_next_fetch() {
    let mut world = World::new().await;
    world.prepare().await;
    let mirror = world.directory.path().join("mirrors/repo-1.git");
    for lock in ["packed-refs.lock", "HEAD.lock", "refs/heads/main.lock"] {
        fs::write(mirror.join(lock), "").unwrap();
    }
    let tip = commit(&world.upstream(), "second").await;
    world.assignment.checkout_commit = tip.clone();
    world.assignment.key = LeaseKey::new(Uuid::from_u128(2), 1, &"cd".repeat(16)).unwrap();
    let checkout = world.prepare().await;
    let base = Git::new(checkout.path())
        .text(["rev-parse", "origin/main"])
        .await;
    assert_eq!(base.unwrap(), tip.as_str());
}

#[tokio::test]
async fn leases_of_one_repository_are_prepared_side_by_side() {
    let world = World::new().await;
    let mut other = world.assignment.clone();
    other.key = LeaseKey::new(Uuid::from_u128(2), 1, &"cd".repeat(16)).unwrap();
    let (one, two) = tokio::join!(
        world.workspaces.prepare(&world.assignment),
        world.workspaces.prepare(&other)
    );
    let (one, two) = (one.unwrap(), two.unwrap());
    let made = commit(&Git::new(one.path()), "in one").await;
    assert_ne!(head(&Git::new(two.path())).await, made);
}

impl World {
    fn mirror(&self) -> PathBuf {
        self.directory.path().join("mirrors/repo-1.git")
    }

    /// From here on another lease is prepared.
    fn next_lease(&mut self) {
        self.assignment.key = LeaseKey::new(Uuid::from_u128(2), 1, &"cd".repeat(16)).unwrap();
    }
}

#[tokio::test]
async fn a_damaged_mirror_inside_of_somebodys_clone_is_repaired_and_the_clone_left_alone() {
    let mut world = World::new().await;
    let around = Git::new(world.directory.path()).with_identity("A", "a@example.invalid");
    around.run(["init", "--quiet"]).await.unwrap();
    let precious = commit(&around, "of a person").await;
    around.run(["branch", "precious"]).await.unwrap();
    let borrower = world.prepare().await;
    fs::remove_dir_all(borrower.path()).unwrap();
    // All is there, and yet git takes it for no repository.
    spoil(&world);
    world.next_lease();
    world.prepare().await;
    for branch in ["main", "precious"] {
        let tip = around.text(["rev-parse", branch]).await.unwrap();
        assert_eq!(tip, precious.as_str(), "{branch}");
    }
}

#[tokio::test]
async fn what_is_missing_of_a_mirror_is_made_again() {
    for missing in ["HEAD", "config", "objects", "refs"] {
        let mut world = World::new().await;
        let checkout = world.prepare().await;
        fs::remove_dir_all(checkout.path()).unwrap();
        let path = world.mirror().join(missing);
        if path.is_dir() {
            fs::remove_dir_all(&path).unwrap();
        } else {
            fs::remove_file(&path).unwrap();
        }
        world.next_lease();
        let checkout = world.prepare().await;
        let head = head(&Git::new(checkout.path())).await;
        assert_eq!(head, world.assignment.checkout_commit, "{missing}");
    }
}

/// Damages the mirror so that git does not take it for a repository.
fn spoil(world: &World) {
    fs::write(world.mirror().join("HEAD"), "spoilt").unwrap();
}

#[tokio::test]
async fn a_mirror_beyond_repair_is_made_again_unless_a_checkout_borrows_it() {
    let mut world = World::new().await;
    let borrower = world.prepare().await;
    world.next_lease();
    spoil(&world);
    let error = world.workspaces.prepare(&world.assignment).await;
    let error = error.unwrap_err();
    assert!(matches!(error, Error::Borrowed { .. }), "{error}");
    assert!(world.mirror().join("objects").exists());

    fs::remove_dir_all(borrower.path()).unwrap();
    let checkout = world.prepare().await;
    let head = head(&Git::new(checkout.path())).await;
    assert_eq!(head, world.assignment.checkout_commit);
}

#[tokio::test]
async fn a_commit_of_which_only_a_part_is_here_is_fetched() {
    let mut world = World::new().await;
    world.prepare().await;
    let upstream = world.upstream();
    let first = world.assignment.checkout_commit.clone();
    fs::write(upstream.directory().join("file"), "content").unwrap();
    upstream.run(["add", "file"]).await.unwrap();
    let hidden = commit(&upstream, "on a lease's ref alone").await;
    for arguments in [
        ["update-ref", "refs/pointsman/x/1-y", hidden.as_str()],
        ["reset", "--hard", first.as_str()],
    ] {
        upstream.run(arguments).await.unwrap();
    }
    // As if a fetch had been killed when it had the commit's own object.
    let object = world.directory.path().join("object");
    let content = upstream
        .run(["cat-file", "commit", hidden.as_str()])
        .await
        .unwrap();
    fs::write(&object, content.stdout).unwrap();
    let written = Git::new(world.mirror())
        .text([
            "hash-object",
            "-t",
            "commit",
            "-w",
            object.to_str().unwrap(),
        ])
        .await;
    assert_eq!(written.unwrap(), hidden.as_str());

    world.next_lease();
    world.assignment.checkout_commit = hidden;
    let checkout = world.prepare().await;
    assert!(checkout.path().join("file").exists());
}
