//! The checkout of one lease, and what comes out of it.

use std::path::{Path, PathBuf};

use pointsman_git::Git;

use super::{ALTERNATES, CollectError, Error, Mirror, make_directory};
use crate::assignment::{Assignment, Commit};

/// The branch that the harness finds itself on.
const BRANCH: &str = "work";

/// Whom commits of the harness name. It can set another.
const NAME: &str = "Pointsman";
const EMAIL: &str = "pointsman@localhost";

/// A repository for one harness.
#[derive(Debug, Clone)]
pub(crate) struct Checkout {
    mirror: Mirror,
    path: PathBuf,
    commit: Commit,
    base: Option<Commit>,
}

impl Checkout {
    /// Makes it at `path`, which must not exist. The mirror has the commit.
    pub(super) async fn make(
        mirror: Mirror,
        path: &Path,
        assignment: &Assignment,
    ) -> Result<Self, Error> {
        make_directory(path)?;
        let commit = &assignment.checkout_commit;
        let check_out_failed = |source| Error::CheckOut {
            commit: commit.clone(),
            source,
        };
        let base = mirror
            .tip(&assignment.base_branch)
            .await
            .map_err(check_out_failed)?;
        let checkout = Self {
            mirror,
            path: path.to_owned(),
            commit: commit.clone(),
            base,
        };
        checkout
            .check_out(&assignment.base_branch)
            .await
            .map_err(check_out_failed)?;
        Ok(checkout)
    }

    async fn check_out(&self, base_branch: &str) -> Result<(), pointsman_git::Error> {
        let git = Git::new(&self.path);
        git.run(["init", "--quiet", "--template="]).await?;
        self.borrow_objects()
            .map_err(|source| pointsman_git::Error::Start {
                command: "init".to_owned(),
                directory: self.path.clone(),
                source,
            })?;
        git.run(["config", "user.name", NAME]).await?;
        git.run(["config", "user.email", EMAIL]).await?;
        if let Some(tip) = &self.base {
            let name = format!("refs/remotes/origin/{base_branch}");
            git.run(["update-ref", &name, tip.as_str()]).await?;
        }
        git.run(["checkout", "--quiet", "-B", BRANCH, self.commit.as_str()])
            .await
            .map(drop)
    }

    fn borrow_objects(&self) -> std::io::Result<()> {
        let alternates = self.path.join(ALTERNATES);
        if let Some(info) = alternates.parent() {
            std::fs::create_dir_all(info)?;
        }
        let line = format!("{}\n", self.mirror.objects().display());
        std::fs::write(alternates, line)
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// What was checked out.
    pub(crate) fn commit(&self) -> &Commit {
        &self.commit
    }

    /// Tip of the base branch, which the checkout has as `origin/` and its name; `None` where there is no
    /// such branch.
    pub(crate) fn base(&self) -> Option<&Commit> {
        self.base.as_ref()
    }

    /// Brings the checkout's HEAD into the mirror and returns it. It may still be the commit that
    /// was checked out, and one that is no descendant of it is refused.
    pub(crate) async fn collect(&self) -> Result<Commit, CollectError> {
        let head = self.head().await?;
        // No ref has to keep it: nothing is ever collected as garbage from a mirror.
        self.mirror
            .git()
            .run([
                "fetch",
                "--quiet",
                "--no-tags",
                "--no-write-fetch-head",
                "--",
                &self.url(),
                head.as_str(),
            ])
            .await
            .map_err(CollectError::Head)?;
        self.must_descend(head).await
    }

    /// Asks the checkout as a remote repository, whose hooks don't run and whose configuration runs
    /// nothing.
    async fn head(&self) -> Result<Commit, CollectError> {
        let listed = self
            .mirror
            .git()
            .text(["ls-remote", "--quiet", "--", &self.url(), "HEAD"])
            .await
            .map_err(CollectError::Head)?;
        head_of(&listed).ok_or(CollectError::NoCommit)
    }

    fn url(&self) -> String {
        self.path.to_string_lossy().into_owned()
    }

    async fn must_descend(&self, head: Commit) -> Result<Commit, CollectError> {
        let comparison = self
            .mirror
            .git()
            .run_expecting(
                [
                    "merge-base",
                    "--is-ancestor",
                    self.commit.as_str(),
                    head.as_str(),
                ],
                &[0, 1],
            )
            .await
            .map_err(CollectError::Compare)?;
        if comparison.status == 0 {
            Ok(head)
        } else {
            Err(CollectError::NoDescendant {
                head,
                checkout: self.commit.clone(),
            })
        }
    }

    /// Pushes a collected commit to `push_ref`. Doing so again changes nothing.
    pub(crate) async fn push(&self, commit: &Commit, push_ref: &str) -> Result<(), Error> {
        let (url, refspec) = (self.mirror.url(), format!("{commit}:{push_ref}"));
        let mut arguments = vec!["push", "--quiet", "--no-verify"];
        arguments.extend(pointsman_git::receive_pack(url, false));
        arguments.extend(["--", url, &refspec]);
        self.mirror
            .remote()
            .run(arguments)
            .await
            .map(drop)
            .map_err(|source| Error::Push {
                push_ref: push_ref.to_owned(),
                source,
            })
    }
}

/// The commit that a list of refs gives for HEAD itself. Asked for HEAD, git lists each ref whose last
/// part has that name.
fn head_of(listed: &str) -> Option<Commit> {
    let mut refs = listed.lines().filter_map(|line| line.split_once('\t'));
    let (commit, _) = refs.find(|(_, name)| *name == "HEAD")?;
    Commit::new(commit)
}
