//! The bare git remote that everybody shares, and the hands that push to it.

use std::path::{Path, PathBuf};

use pointsman_git::Git;
use pointsman_master::domain::ids::CommitId;

use super::BASE;

/// The remote, and a clone of it in which commits are made: a worker's, or a person's.
pub struct Remote {
    git: Git,
    clone: Git,
    path: PathBuf,
}

impl Remote {
    /// A remote whose base branch has one commit.
    pub async fn new(directory: &Path) -> Self {
        let path = directory.join("remote.git");
        std::fs::create_dir(&path).expect("a directory is made");
        let git = identified(&path);
        git.run([
            "init",
            "--quiet",
            "--bare",
            "--template=",
            "--initial-branch",
            BASE,
        ])
        .await
        .expect("the remote is made");
        let clone_path = directory.join("clone.git");
        std::fs::create_dir(&clone_path).expect("a directory is made");
        let clone = identified(&clone_path);
        clone
            .run(["init", "--quiet", "--bare", "--template="])
            .await
            .expect("the clone is made");
        let borrowed = path.join("objects");
        std::fs::create_dir_all(clone_path.join("objects/info")).expect("a directory is made");
        std::fs::write(
            clone_path.join("objects/info/alternates"),
            format!("{}\n", borrowed.display()),
        )
        .expect("the clone borrows the remote's objects");
        let remote = Self { git, clone, path };
        let first = remote
            .commit_of(&[], &[("README", "A small thing.\n")])
            .await;
        remote.put(BASE, &first).await;
        remote
    }

    pub fn url(&self) -> String {
        self.path.display().to_string()
    }

    /// Makes a commit that changes nothing but the history; it is on no ref yet.
    pub async fn commit(&self, parent: &CommitId, message: &str) -> CommitId {
        let tree = format!("{parent}^{{tree}}");
        let made = self
            .clone
            .text(["commit-tree", "-m", message, "-p", parent.as_str(), &tree])
            .await;
        parse(&made.expect("a commit is made"))
    }

    /// Makes a commit with `files` beside those of its first parent; it is on no ref yet.
    pub async fn commit_of(&self, parents: &[&CommitId], files: &[(&str, &str)]) -> CommitId {
        let scratch = tempfile::TempDir::new().expect("a directory is made");
        let git = self
            .clone
            .clone()
            .with_env("GIT_INDEX_FILE", scratch.path().join("index"));
        if let Some(first) = parents.first() {
            git.run(["read-tree", first.as_str()])
                .await
                .expect("a tree is read");
        }
        for (path, text) in files {
            let file = scratch.path().join("file");
            std::fs::write(&file, text).expect("a file is written");
            let file = file.display().to_string();
            let blob = git.text(["hash-object", "-w", &file]).await;
            let blob = blob.expect("an object is written");
            let entry = format!("100644,{blob},{path}");
            git.run(["update-index", "--add", "--cacheinfo", &entry])
                .await
                .expect("the index takes it");
        }
        let tree = git.text(["write-tree"]).await.expect("a tree is written");
        let mut arguments = vec![
            "commit-tree".to_owned(),
            "-m".to_owned(),
            // Two of the same files and second are two commits by it.
            scratch.path().display().to_string(),
        ];
        for parent in parents {
            arguments.extend(["-p".to_owned(), parent.to_string()]);
        }
        arguments.push(tree);
        parse(&git.text(&arguments).await.expect("a commit is made"))
    }

    /// Pushes a commit to a full ref name, as a worker does.
    pub async fn push(&self, commit: &CommitId, reference: &str) {
        let refspec = format!("{commit}:{reference}");
        let url = self.url();
        self.clone
            .run(["push", "--quiet", &url, &refspec])
            .await
            .expect("the push is taken");
    }

    /// Puts a branch at a commit, forward, as a person does.
    pub async fn put(&self, branch: &str, commit: &CommitId) {
        self.push(commit, &format!("refs/heads/{branch}")).await;
    }

    /// Deletes a branch, as a person does.
    pub async fn delete(&self, branch: &str) {
        let reference = format!("refs/heads/{branch}");
        let deleted = self.git.run(["update-ref", "-d", &reference]).await;
        deleted.expect("the branch is deleted");
    }

    /// Adds a commit to a branch as a person, and returns it.
    pub async fn add_to(&self, branch: &str, message: &str) -> CommitId {
        let tip = self.tip(branch).await.expect("the branch is there");
        let commit = self.commit(&tip, message).await;
        self.put(branch, &commit).await;
        commit
    }

    pub async fn tip(&self, branch: &str) -> Option<CommitId> {
        let reference = format!("refs/heads/{branch}");
        let found = self
            .git
            .run_expecting(["rev-parse", "--verify", "--quiet", &reference], &[0, 1])
            .await
            .expect("git answers");
        (found.status == 0).then(|| parse(&found.text()))
    }

    /// All refs with what they point to, those that workers pushed apart.
    pub async fn refs(&self) -> String {
        let listed = self
            .git
            .text(["for-each-ref", "--format=%(refname) %(objectname)"])
            .await;
        let listed = listed.expect("git answers");
        let is_lease = |line: &&str| {
            line.starts_with("refs/pointsman/") && !line.starts_with("refs/pointsman/merged/")
        };
        let kept: Vec<&str> = listed.lines().filter(|line| !is_lease(line)).collect();
        kept.join("\n")
    }

    /// Checks a branch out in a working copy of a person's, and says where that is.
    pub async fn check_out(&self, branch: &str) -> PathBuf {
        let place = self.path.with_file_name("desk");
        let path = place.display().to_string();
        self.git
            .run(["worktree", "add", "--quiet", &path, branch])
            .await
            .expect("it is checked out");
        place
    }

    /// Full names of what workers pushed.
    pub async fn lease_refs(&self) -> Vec<String> {
        let listed = self
            .git
            .text(["for-each-ref", "--format=%(refname)", "refs/pointsman/"])
            .await;
        let listed = listed.expect("git answers");
        let names = listed.lines().map(str::to_owned);
        names
            .filter(|name| !name.starts_with("refs/pointsman/merged/"))
            .collect()
    }

    /// Merge commits on a branch.
    pub async fn merges(&self, branch: &str) -> Vec<CommitId> {
        let reference = format!("refs/heads/{branch}");
        let listed = self.git.text(["rev-list", "--merges", &reference]).await;
        listed.expect("git answers").lines().map(parse).collect()
    }

    /// The commits on a branch's own line, newest first.
    pub async fn line(&self, branch: &str) -> Vec<CommitId> {
        let reference = format!("refs/heads/{branch}");
        let arguments = ["rev-list", "--first-parent", &reference];
        let listed = self.git.text(arguments).await;
        listed.expect("git answers").lines().map(parse).collect()
    }

    /// Whether `commit` is on a branch.
    pub async fn contains(&self, branch: &str, commit: &CommitId) -> bool {
        let reference = format!("refs/heads/{branch}");
        let found = self
            .git
            .run_expecting(
                ["merge-base", "--is-ancestor", commit.as_str(), &reference],
                &[0, 1, 128],
            )
            .await
            .expect("git answers");
        found.status == 0
    }
}

fn identified(path: &Path) -> Git {
    Git::new(path)
        .with_identity("A Person", "person@example.invalid")
        .with_env("GIT_AUTHOR_DATE", "@1700000000 +0000")
        .with_env("GIT_COMMITTER_DATE", "@1700000000 +0000")
}

fn parse(text: &str) -> CommitId {
    text.parse().expect("git names commits in full")
}
