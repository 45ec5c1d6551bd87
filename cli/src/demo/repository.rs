//! The demo's repository: a shell script, and a test of it that fails.

use std::{fs, path::Path, process::Stdio};

use anyhow::{Context as _, ensure};
use pointsman_git::Git;
use tokio::process::Command;

/// The branch that pull requests go to.
pub(super) const BASE: &str = "main";

/// The command of its one check.
pub(super) const CI: &str = "sh test.sh";

/// The issue.
pub(super) const ISSUE_TITLE: &str = "Slugs have spaces in them";
pub(super) const ISSUE_BODY: &str = include_str!("files/issue.md");

const FILES: [(&str, &str); 2] = [
    ("slug.sh", include_str!("files/slug.sh")),
    ("test.sh", include_str!("files/test.sh")),
];

/// Makes the bare repository at `bare`, by way of a checkout at `seed`, and sees its test fail.
pub(super) async fn make(bare: &Path, seed: &Path) -> anyhow::Result<()> {
    for directory in [bare, seed] {
        fs::create_dir(directory).with_context(|| format!("make {}", directory.display()))?;
    }
    Git::new(bare).run(["init", "--quiet", "--bare"]).await?;
    for (name, text) in FILES {
        fs::write(seed.join(name), text).with_context(|| format!("write {name}"))?;
    }
    ensure!(
        !passes(seed).await?,
        "`{CI}` passes before anything is done"
    );
    commit(seed, bare).await.context("make the first commit")
}

async fn commit(seed: &Path, bare: &Path) -> Result<(), pointsman_git::Error> {
    let git = Git::new(seed).with_identity("Demo", "demo@example.invalid");
    git.run(["init", "--quiet"]).await?;
    git.run(["add", "--all"]).await?;
    git.run(["commit", "--quiet", "-m", "Slugs, and what they must be"])
        .await?;
    let bare = bare.to_string_lossy();
    git.run(["push", "--quiet", &bare, &format!("HEAD:refs/heads/{BASE}")])
        .await?;
    Ok(())
}

/// Whether the test passes in a checkout.
pub(super) async fn passes(checkout: &Path) -> anyhow::Result<bool> {
    let status = Command::new("sh")
        .args(["-c", CI])
        .current_dir(checkout)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .status()
        .await
        .with_context(|| format!("run `{CI}` in {}", checkout.display()))?;
    Ok(status.success())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_base_branch_is_there_and_its_test_fails() {
        let directory = tempfile::tempdir().unwrap();
        let (bare, seed) = (
            directory.path().join("demo.git"),
            directory.path().join("seed"),
        );
        make(&bare, &seed).await.unwrap();
        let files = Git::new(&bare)
            .text(["ls-tree", "--name-only", BASE])
            .await
            .unwrap();
        assert_eq!(files, "slug.sh\ntest.sh");
        assert!(!passes(&seed).await.unwrap());
    }
}
