//! Checks the demo's outcome by itself, without believing the master.

use std::path::Path;

use anyhow::{Context as _, ensure};
use pointsman_git::Git;

use super::{
    follow::Story,
    progress::Progress,
    repository::{self, BASE, CI},
};

/// What CI has to have said of the pull request, and in which order.
const CI_EVENTS: [&str; 2] = ["ci_red_fixable", "ci_green"];

/// Checks everything that the demo promises, and says what was seen.
pub(super) async fn verify(
    story: &Story,
    bare: &Path,
    clone: &Path,
    progress: &Progress,
) -> anyhow::Result<()> {
    progress.wait_for("the checks of the outcome");
    ci_was_red_once_then_green(story.pull_request_events())?;
    progress.say("checked: CI was red once and then green");

    let n_pull_requests = story
        .workflows
        .iter()
        .filter(|w| w.parent_id.is_some())
        .count();
    ensure!(
        n_pull_requests == 1,
        "there are {n_pull_requests} pull requests and not one"
    );
    progress.say("checked: there is one pull request");

    fresh_clone(bare, clone)
        .await
        .context("clone the repository")?;
    let on_base = ["merge-base", "--is-ancestor", &story.merged_commit, "HEAD"];
    let compared = Git::new(clone).run_expecting(on_base, &[0, 1]).await?;
    ensure!(
        compared.status == 0,
        "{} is not on {BASE}",
        story.merged_commit
    );
    progress.say(&format!("checked: {} is on {BASE}", story.merged_commit));

    ensure!(
        repository::passes(clone).await?,
        "`{CI}` still fails on {BASE}"
    );
    progress.say(&format!(
        "checked: `{CI}` passes in a fresh clone of {BASE}"
    ));
    Ok(())
}

fn ci_was_red_once_then_green<'a>(events: impl Iterator<Item = &'a str>) -> anyhow::Result<()> {
    let said: Vec<&str> = events.filter(|kind| kind.starts_with("ci_")).collect();
    ensure!(
        said == CI_EVENTS,
        "CI said {} and not {}",
        said.join(", "),
        CI_EVENTS.join(", ")
    );
    Ok(())
}

async fn fresh_clone(bare: &Path, clone: &Path) -> Result<(), pointsman_git::Error> {
    let (from, to) = (bare.to_string_lossy(), clone.to_string_lossy());
    let parent = clone.parent().unwrap_or(clone);
    Git::new(parent)
        .run([
            "clone",
            "--quiet",
            "--no-local",
            "--branch",
            BASE,
            "--",
            &*from,
            &*to,
        ])
        .await
        .map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ci_has_to_be_red_once_and_then_green() {
        let check = |events: &[&str]| ci_was_red_once_then_green(events.iter().copied()).is_ok();
        assert!(check(&[
            "change_pushed",
            "ci_red_fixable",
            "change_pushed",
            "ci_green"
        ]));
        assert!(!check(&["ci_green"]));
        assert!(!check(&["ci_green", "ci_red_fixable"]));
        assert!(!check(&["ci_red_fixable", "ci_red_fixable", "ci_green"]));
        assert!(!check(&["ci_red_fixable", "ci_flake_retry", "ci_green"]));
    }
}
