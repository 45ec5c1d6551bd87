//! Pushes with expected old values, and what the remote says to them.

use super::{
    mirror::Mirror,
    working_copy::{Stand, stand},
};
use crate::{domain::ids::CommitId, forge::Error};

/// Most lines that a reason keeps of what the remote printed.
const REMOTE_LINES: usize = 3;
/// Longest reason, in characters: it is shown in one line of a table.
const REASON_CHARS: usize = 300;

/// What a ref must be for a push to change it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Expected {
    Absent,
    At(CommitId),
}

/// One ref that a push is to change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Update {
    /// With `refs/`.
    pub(super) reference: String,
    pub(super) expected: Expected,
    pub(super) to: CommitId,
}

/// The remote's answer to a push. Without one, whether anything changed is not known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Pushed {
    Accepted,
    /// Nothing changed: a ref was not as expected, or the remote does not want it. Only a look tells which.
    Rejected {
        reason: String,
    },
}

/// Changes all refs, or none. A branch that is checked out on this host is changed only where its working
/// copy can come along.
pub(super) async fn push(mirror: &Mirror, updates: &[Update]) -> Result<Pushed, Error> {
    let mut updates_working_copy = false;
    for update in updates {
        match stand(mirror, update).await? {
            Stand::Free => {}
            Stand::Clean => updates_working_copy = true,
            Stand::InTheWay(reason) => return Ok(Pushed::Rejected { reason }),
        }
    }
    let mut arguments = vec!["push".to_owned(), "--porcelain".to_owned()];
    if updates.len() > 1 {
        arguments.push("--atomic".to_owned());
    }
    let receive_pack = pointsman_git::receive_pack(mirror.url(), updates_working_copy);
    arguments.extend(receive_pack.map(str::to_owned));
    arguments.extend(updates.iter().map(lease));
    arguments.extend(["--".to_owned(), mirror.url().to_owned()]);
    arguments.extend(updates.iter().map(|u| format!("{}:{}", u.to, u.reference)));
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let output = mirror.push(&arguments, &[0, 1]).await?;
    if output.status == 0 {
        return Ok(Pushed::Accepted);
    }
    match rejection(&output.text(), &output.stderr) {
        Some(reason) => Ok(Pushed::Rejected { reason }),
        None => Err(mirror.unavailable(pointsman_git::Error::Failed {
            command: "push".to_owned(),
            status: output.status,
            stderr: output.stderr,
        })),
    }
}

fn lease(update: &Update) -> String {
    let expected = match &update.expected {
        Expected::Absent => "",
        Expected::At(commit) => commit.as_str(),
    };
    format!("--force-with-lease={}:{expected}", update.reference)
}

/// Why a push was rejected, for people; `None` where the remote did not say that it was.
fn rejection(porcelain: &str, stderr: &str) -> Option<String> {
    let mut refusals: Vec<&str> = porcelain
        .lines()
        .filter_map(|line| line.strip_prefix("!\t")?.split('\t').nth(1))
        .collect();
    if refusals.is_empty()
        || refusals
            .iter()
            .any(|text| text.starts_with("[remote failure]"))
    {
        return None;
    }
    // Of an atomic push, those that failed only because another did come last.
    refusals.sort_by_key(|text| text.contains("(atomic "));
    let said = stderr
        .lines()
        .filter_map(|line| line.strip_prefix("remote:"))
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .take(REMOTE_LINES);
    let reason: Vec<&str> = refusals.into_iter().take(1).chain(said).collect();
    Some(for_people(&reason.join("; ")))
}

/// What a git command that failed said first, for people; empty where nothing did.
pub(super) fn said(error: &(dyn std::error::Error + 'static)) -> String {
    match error.downcast_ref::<pointsman_git::Error>() {
        Some(pointsman_git::Error::Failed { stderr, .. }) => {
            let lines = stderr.lines().map(str::trim);
            let telling = lines.filter(|line| {
                let is_aside = line.starts_with("warning:") || line.starts_with("hint:");
                !line.is_empty() && !is_aside
            });
            let first: Vec<&str> = telling
                .take(REMOTE_LINES)
                .map(|line| line.trim_start_matches("fatal: "))
                .collect();
            format!(": {}", for_people(&first.join("; ")))
        }
        Some(error @ pointsman_git::Error::Deadline { .. }) => format!(": {error}"),
        Some(pointsman_git::Error::Start { .. }) | None => String::new(),
    }
}

/// Takes out what may be a path or an address, and bounds the length.
fn for_people(text: &str) -> String {
    let words: Vec<&str> = text
        .split_whitespace()
        .map(|word| {
            let bare = word.trim_start_matches(['\'', '"', '(', '[']);
            if bare.starts_with('/') || bare.contains("://") {
                "…"
            } else {
                word
            }
        })
        .collect();
    let text = words.join(" ");
    match text.char_indices().nth(REASON_CHARS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(porcelain: &str, stderr: &str, expected: Option<&str>) {
        assert_eq!(rejection(porcelain, stderr).as_deref(), expected);
    }

    #[test]
    fn a_rejection_is_told_with_what_the_hook_said() {
        check(
            "To x\n!\ta:refs/heads/b\t[remote rejected] (hook declined)\nDone",
            "remote: no merges on Friday        \nremote: \nerror: failed to push some refs to '/x/y'",
            Some("[remote rejected] (hook declined); no merges on Friday"),
        );
    }

    #[test]
    fn of_an_atomic_push_the_ref_at_fault_is_named() {
        check(
            "To x\n!\ta:refs/p\t[remote rejected] (atomic push failure)\n!\ta:refs/b\t[remote rejected] (hook declined)\nDone",
            "",
            Some("[remote rejected] (hook declined)"),
        );
    }

    #[test]
    fn an_answer_that_was_lost_is_no_rejection() {
        check("", "fatal: the remote end hung up unexpectedly", None);
        check(
            "To x\n!\ta:refs/b\t[remote failure] (remote failed to report status)\nDone",
            "",
            None,
        );
    }

    #[test]
    fn reasons_have_no_paths_and_no_addresses() {
        let reason = for_people("see '/srv/git/x.git' or https://u:secret@host/x (/tmp/y) a/b");
        assert_eq!(reason, "see … or … … a/b");
    }

    #[test]
    fn what_git_said_comes_without_paths_and_addresses() {
        let failed = |stderr: &str| {
            said(&pointsman_git::Error::Failed {
                command: "fetch".to_owned(),
                status: 128,
                stderr: stderr.to_owned(),
            })
        };
        assert_eq!(
            failed("warning: x\nfatal: Authentication failed for 'http://host/a.git/'"),
            ": Authentication failed for …"
        );
        assert_eq!(
            failed("fatal: '/srv/a.git' does not appear to be a git repository"),
            ": … does not appear to be a git repository"
        );
    }

    #[test]
    fn reasons_are_bounded() {
        assert_eq!(
            for_people(&"x".repeat(REASON_CHARS)).chars().count(),
            REASON_CHARS
        );
        let cut = for_people(&"é".repeat(REASON_CHARS + 1));
        assert_eq!(cut.chars().count(), REASON_CHARS + 1);
        assert!(cut.ends_with('…'));
    }
}
