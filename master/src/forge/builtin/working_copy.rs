//! Working copies on this host in which a branch is checked out.
//!
//! git itself brings a clean working copy along with a push (`updateInstead`), and refuses where it has
//! changes. What git does not look at is looked at here first: an operation under way (a rebase detaches HEAD,
//! but still owns its branch), and files that git ignores but the push would overwrite. Everything here only
//! reads, and takes no lock. A remote on another host decides for itself.

use std::{
    collections::HashSet,
    path::{Path, PathBuf},
};

use pointsman_git::Git;

use super::{
    mirror::Mirror,
    push::{Expected, Update},
};
use crate::forge::Error;

/// Most names of files that a reason gives.
const NAMES: usize = 3;

/// What is in a working copy's git directory while something is under way, and what that is.
const UNDER_WAY: &[(&str, &str)] = &[
    ("rebase-merge", "a rebase"),
    ("rebase-apply", "a rebase"),
    ("MERGE_HEAD", "a merge"),
    ("CHERRY_PICK_HEAD", "a cherry-pick"),
    ("REVERT_HEAD", "a revert"),
    ("BISECT_LOG", "a bisection"),
];

/// Whether a branch's working copy lets it move.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Stand {
    /// It is checked out nowhere, or whoever owns the repository has said what a push may do there.
    Free,
    /// It is checked out, and its working copy can come along.
    Clean,
    /// A person has to act first.
    InTheWay(String),
}

/// A working copy that holds the branch.
struct WorkingCopy {
    git: Git,
}

/// Looks at the working copy of the branch that is to be updated.
pub(super) async fn stand(mirror: &Mirror, update: &Update) -> Result<Stand, Error> {
    let Some(path) = pointsman_git::local_path(mirror.url()) else {
        return Ok(Stand::Free);
    };
    let Some(branch) = update.reference.strip_prefix("refs/heads/") else {
        return Ok(Stand::Free);
    };
    let Some(copy) = holder(path, branch).await else {
        return Ok(Stand::Free);
    };
    if copy.owner_decides().await {
        return Ok(Stand::Free);
    }
    let reason = copy.obstacle(mirror, update).await?;
    Ok(match reason {
        None => Stand::Clean,
        Some(what) => Stand::InTheWay(format!(
            "the working copy in which {branch} is checked out has {what}"
        )),
    })
}

/// The working copy that has the branch checked out, or in the midst of an operation on it. A repository
/// that can't be read so is left to git: it refuses a branch that is checked out.
async fn holder(path: &Path, branch: &str) -> Option<WorkingCopy> {
    let listed = reader(path)
        .text(["worktree", "list", "--porcelain", "-z"])
        .await
        .ok()?;
    let wanted = format!("branch refs/heads/{branch}");
    for entry in listed.split("\0\0") {
        let mut fields = entry.split('\0').filter(|field| !field.is_empty());
        let Some(directory) = fields.next().and_then(|f| f.strip_prefix("worktree ")) else {
            continue;
        };
        let fields: Vec<&str> = fields.collect();
        if fields.contains(&"bare") {
            continue;
        }
        let copy = WorkingCopy {
            git: reader(Path::new(directory)),
        };
        let is_holder = fields.contains(&wanted.as_str())
            || (fields.contains(&"detached") && copy.is_rebasing(branch).await);
        if is_holder {
            return Some(copy);
        }
    }
    None
}

/// Runs git there, without writing anything and without a program that the repository names.
fn reader(directory: &Path) -> Git {
    Git::new(directory)
        .with_env("GIT_OPTIONAL_LOCKS", "0")
        .with_env("GIT_CONFIG_COUNT", "1")
        .with_env("GIT_CONFIG_KEY_0", "core.fsmonitor")
        .with_env("GIT_CONFIG_VALUE_0", "false")
}

impl WorkingCopy {
    /// Whether the repository's own configuration says what becomes of a checked-out branch.
    async fn owner_decides(&self) -> bool {
        let arguments = ["config", "--get", "receive.denyCurrentBranch"];
        let said = self.git.run_expecting(arguments, &[0, 1]).await;
        said.is_ok_and(|output| output.status == 0)
    }

    async fn git_directory(&self) -> Option<PathBuf> {
        let text = self.git.text(["rev-parse", "--absolute-git-dir"]).await;
        text.ok().map(PathBuf::from)
    }

    async fn is_rebasing(&self, branch: &str) -> bool {
        let Some(directory) = self.git_directory().await else {
            return false;
        };
        for name in ["rebase-merge/head-name", "rebase-apply/head-name"] {
            if let Ok(head) = tokio::fs::read_to_string(directory.join(name)).await
                && head.trim() == format!("refs/heads/{branch}")
            {
                return true;
            }
        }
        match tokio::fs::read_to_string(directory.join("BISECT_START")).await {
            Ok(start) => start.trim() == branch,
            Err(_) => false,
        }
    }

    /// What keeps the working copy from coming along, for people.
    async fn obstacle(&self, mirror: &Mirror, update: &Update) -> Result<Option<String>, Error> {
        let Some(git_directory) = self.git_directory().await else {
            return Ok(Some("a directory that can't be read".to_owned()));
        };
        for (name, what) in UNDER_WAY {
            let is_there = tokio::fs::try_exists(git_directory.join(name)).await;
            if is_there.unwrap_or(true) {
                return Ok(Some(format!("{what} under way")));
            }
        }
        let changed = self.changed(mirror).await?;
        if !changed.is_empty() {
            return Ok(Some(format!("uncommitted changes ({})", names(&changed))));
        }
        let overwritten = self.overwritten(mirror, update).await?;
        if !overwritten.is_empty() {
            return Ok(Some(format!(
                "files in the way that git does not track ({})",
                names(&overwritten)
            )));
        }
        Ok(None)
    }

    /// Tracked files with changes, in the index or beside it. What a submodule holds is its own.
    async fn changed(&self, mirror: &Mirror) -> Result<Vec<String>, Error> {
        let arguments = [
            "status",
            "--porcelain",
            "-z",
            "--untracked-files=no",
            "--ignore-submodules=all",
            "--no-renames",
        ];
        let listed = self.list(mirror, &arguments).await?;
        // Two letters and a space come before the path.
        Ok(listed
            .iter()
            .filter_map(|entry| entry.get(3..).map(str::to_owned))
            .collect())
    }

    /// Files that git does not track, ignored ones too, where the push is to write something.
    async fn overwritten(&self, mirror: &Mirror, update: &Update) -> Result<Vec<String>, Error> {
        let Expected::At(from) = &update.expected else {
            return Ok(Vec::new());
        };
        let added: HashSet<String> = mirror
            .changed_paths(from, &update.to)
            .await?
            .into_iter()
            .filter(|(_, is_tracked)| !is_tracked)
            .map(|(path, _)| path)
            .collect();
        if added.is_empty() {
            return Ok(Vec::new());
        }
        let above: HashSet<&str> = added.iter().flat_map(|path| parents(path)).collect();
        let untracked = self.list(mirror, &["ls-files", "--others", "-z"]).await?;
        Ok(untracked
            .into_iter()
            .map(|path| path.trim_end_matches('/').to_owned())
            .filter(|path| {
                added.contains(path)
                    || above.contains(path.as_str())
                    || parents(path).any(|parent| added.contains(parent))
            })
            .collect())
    }

    async fn list(&self, mirror: &Mirror, arguments: &[&str]) -> Result<Vec<String>, Error> {
        let output = self.git.run(arguments).await;
        let output = output.map_err(|error| mirror.unavailable(error))?;
        let text = String::from_utf8_lossy(&output.stdout);
        Ok(text
            .split('\0')
            .filter(|entry| !entry.is_empty())
            .map(str::to_owned)
            .collect())
    }
}

/// The directories above a path, as git writes them.
fn parents(path: &str) -> impl Iterator<Item = &str> {
    path.match_indices('/').map(|(end, _)| &path[..end])
}

/// A few names, and how many more there are.
fn names(paths: &[String]) -> String {
    let shown = paths.iter().take(NAMES).map(String::as_str);
    let shown = shown.collect::<Vec<_>>().join(", ");
    match paths.len().saturating_sub(NAMES) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_gives_a_few_names() {
        let paths = |n: usize| (1..=n).map(|i| i.to_string()).collect::<Vec<_>>();
        assert_eq!(names(&paths(3)), "1, 2, 3");
        assert_eq!(names(&paths(5)), "1, 2, 3 and 2 more");
    }

    #[test]
    fn parents_are_the_directories_above() {
        assert_eq!(parents("a/b/c").collect::<Vec<_>>(), ["a", "a/b"]);
        assert_eq!(parents("a").count(), 0);
    }
}
