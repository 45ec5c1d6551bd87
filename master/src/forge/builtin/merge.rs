//! Merges pull requests, each once.
//!
//! What counts as merged, in this order:
//! 1. the proof, `refs/pointsman/merged/<repository id>/<number>`: its commit is the merge, if it is on the base branch. If
//!    it is not any more (somebody moved the base branch back), nothing is merged a second time: a person
//!    must say what is wanted. A squash does not contain the head that it was made of; which one that was is
//!    kept by a third ref of the same push, `refs/pointsman/squashed/<repository id>/<number>`;
//! 2. the row's merged commit, if it is on the base branch and contains the wanted head;
//! 3. the wanted head, if the base branch contains it: a person merged it by hand. The commit is the one
//!    that brought it there, or the head itself where the branch was fast-forwarded to it. No proof is
//!    written for it: the row keeps it, and a look finds the same commit again. A squash or rebase that a
//!    person makes by hand can't be told from other work, and counts for nothing: the pull request stays
//!    open, and its own merge then changes no file.

use super::{
    branch::MAX_LOOKS,
    forge::BuiltinForge,
    mirror::{Merged, Mirror},
    push::{Expected, Pushed, Update, push},
};
use crate::{
    domain::{
        ids::{CommitId, RepositoryId},
        policy::MergeMethod,
        workflow::Kind,
    },
    forge::{Error, MergeOutcome, WantedMerge},
    store::model::{ForgeItem, Repository},
};

/// What one look shows of a pull request.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Seen {
    proof: Option<CommitId>,
    /// The head that the proof is of, where that does not contain it.
    squashed: Option<CommitId>,
    head: Option<CommitId>,
    base: CommitId,
}

/// What one look leads to.
enum Step {
    End(MergeOutcome),
    /// What is to be on the base branch.
    Push {
        merge: CommitId,
    },
    /// What is to be on the head's branch before it can be merged.
    PushHead {
        head: CommitId,
    },
}

/// Name of the proof of a merge, under `refs/pointsman/`. The repository's id keeps the proofs of two
/// repositories apart that share one git remote.
fn proof_name(repository: RepositoryId, number: u64) -> String {
    format!("merged/{repository}/{number}")
}

/// Name of the ref that keeps the head of a squash.
fn squashed_name(repository: RepositoryId, number: u64) -> String {
    format!("squashed/{repository}/{number}")
}

fn refused(reason: String) -> Step {
    Step::End(MergeOutcome::Refused { reason })
}

/// The commit as which an open pull request was merged, by the last look; `None` where it was not. A
/// head on the base branch's own line says nothing: it may be a branch that has no commit yet.
pub(super) async fn merged_as(
    mirror: &Mirror,
    row: &ForgeItem,
    head: Option<&CommitId>,
) -> Result<Option<CommitId>, Error> {
    let Some(base) = mirror.branch(&row.base_ref).await? else {
        return Ok(None);
    };
    if let Some(proof) = mirror
        .own_ref(&proof_name(row.repository, row.number))
        .await?
        && mirror.contains(&base, &proof).await?
    {
        return Ok(Some(proof));
    }
    let Some(head) = head else { return Ok(None) };
    if !mirror.contains(&base, head).await? {
        return Ok(None);
    }
    let commit = mirror.brought_by(&base, head).await?;
    Ok((commit != *head).then_some(commit))
}

impl BuiltinForge {
    pub(super) async fn ensure_merged(
        &self,
        repository: &Repository,
        wanted: &WantedMerge,
    ) -> Result<MergeOutcome, Error> {
        let mirror = self.mirrors.take(repository, "merge").await?;
        mirror.check_branch_name(&wanted.head_ref).await?;
        mirror.check_branch_name(&wanted.base_ref).await?;
        let Some(row) = self.pull_request(&mirror, repository, wanted).await? else {
            let reason = format!(
                "there is no pull request #{} from {} into {}",
                wanted.number, wanted.head_ref, wanted.base_ref
            );
            return Ok(MergeOutcome::Refused { reason });
        };
        let outcome = self.look_and_merge(&mirror, &row, wanted).await?;
        if let MergeOutcome::Done { commit } = &outcome {
            self.mark_merged(row, commit)
                .await
                .map_err(|source| mirror.store(source))?;
        }
        Ok(outcome)
    }

    /// The row of the wanted merge, if it has the wanted branches.
    async fn pull_request(
        &self,
        mirror: &Mirror,
        repository: &Repository,
        wanted: &WantedMerge,
    ) -> Result<Option<ForgeItem>, Error> {
        let row = self
            .store
            .forge_item(repository.id, wanted.number)
            .await
            .map_err(|source| mirror.store(source))?;
        Ok(row.filter(|row| {
            row.kind == Kind::PullRequest
                && row.head_ref.as_ref() == Some(&wanted.head_ref)
                && row.base_ref == wanted.base_ref
        }))
    }

    /// Looks, decides and pushes until it is merged, or can't be.
    async fn look_and_merge(
        &self,
        mirror: &Mirror,
        row: &ForgeItem,
        wanted: &WantedMerge,
    ) -> Result<MergeOutcome, Error> {
        let mut rejected: Option<(Seen, String)> = None;
        for _ in 0..MAX_LOOKS {
            let Some(seen) = look(mirror, row.repository, wanted).await? else {
                let reason = format!("there is no branch {}", wanted.base_ref);
                return Ok(MergeOutcome::Refused { reason });
            };
            let updates = match self.decide(mirror, row, wanted, &seen).await? {
                Step::End(outcome) => return Ok(outcome),
                Step::Push { merge } => updates(row.repository, wanted, &seen.base, &merge),
                // The next look finds that the head moved.
                Step::PushHead { head } => vec![Update {
                    reference: format!("refs/heads/{}", wanted.head_ref),
                    expected: Expected::At(wanted.head.clone()),
                    to: head,
                }],
            };
            match rejected {
                // All was as expected, so the remote does not want it.
                Some((before, reason)) if before == seen => {
                    return Ok(MergeOutcome::Waiting { reason });
                }
                _ => {}
            }
            // Whether it was accepted is seen by the next look.
            rejected = match push(mirror, &updates).await? {
                Pushed::Accepted => None,
                Pushed::Rejected { reason } => Some((seen, reason)),
            };
        }
        Ok(MergeOutcome::Waiting {
            reason: format!("others keep pushing to {}", wanted.base_ref),
        })
    }

    async fn decide(
        &self,
        mirror: &Mirror,
        row: &ForgeItem,
        wanted: &WantedMerge,
        seen: &Seen,
    ) -> Result<Step, Error> {
        if let Some(step) = already(mirror, row, wanted, seen).await? {
            return Ok(step);
        }
        if !row.is_open {
            return Ok(refused(format!("pull request #{} is closed", row.number)));
        }
        if seen.head.is_none() {
            return Ok(Step::End(MergeOutcome::Waiting {
                reason: format!("there is no branch {}", wanted.head_ref),
            }));
        }
        self.try_merge(mirror, wanted, seen).await
    }

    async fn try_merge(
        &self,
        mirror: &Mirror,
        wanted: &WantedMerge,
        seen: &Seen,
    ) -> Result<Step, Error> {
        match mirror.merge(&seen.base, &wanted.head).await? {
            Merged::Tree(tree) => self.make(mirror, wanted, seen, &tree).await,
            Merged::Conflict(paths) => Ok(Step::End(MergeOutcome::Conflict { paths })),
            Merged::Unrelated => Ok(refused(format!(
                "{} and {} have no commit in common",
                wanted.head_ref, wanted.base_ref
            ))),
        }
    }
}

impl BuiltinForge {
    /// Makes the commit that the method wants, with the tree of the merge.
    async fn make(
        &self,
        mirror: &Mirror,
        wanted: &WantedMerge,
        seen: &Seen,
        tree: &str,
    ) -> Result<Step, Error> {
        let (base, head) = (&seen.base, &wanted.head);
        let now = self.clock.now();
        Ok(match wanted.method {
            MergeMethod::Merge => {
                let text = message(wanted);
                let merge = mirror.commit_tree(tree, &[base, head], &text, now).await?;
                Step::Push { merge }
            }
            MergeMethod::Squash => {
                let text = squash_message(wanted);
                let merge = mirror.commit_tree(tree, &[base], &text, now).await?;
                Step::Push { merge }
            }
            MergeMethod::FastForward if mirror.contains(head, base).await? => Step::Push {
                merge: head.clone(),
            },
            MergeMethod::FastForward => {
                let text = format!("Merge {} into {}\n", wanted.base_ref, wanted.head_ref);
                let head = mirror.commit_tree(tree, &[head, base], &text, now).await?;
                Step::PushHead { head }
            }
        })
    }
}

/// `None` where there is no base branch.
async fn look(
    mirror: &Mirror,
    repository: RepositoryId,
    wanted: &WantedMerge,
) -> Result<Option<Seen>, Error> {
    mirror.look().await?;
    let Some(base) = mirror.branch(&wanted.base_ref).await? else {
        return Ok(None);
    };
    Ok(Some(Seen {
        proof: mirror
            .own_ref(&proof_name(repository, wanted.number))
            .await?,
        squashed: mirror
            .own_ref(&squashed_name(repository, wanted.number))
            .await?,
        head: mirror.branch(&wanted.head_ref).await?,
        base,
    }))
}

/// The end, where it is merged already or the head is another.
async fn already(
    mirror: &Mirror,
    row: &ForgeItem,
    wanted: &WantedMerge,
    seen: &Seen,
) -> Result<Option<Step>, Error> {
    if let Some(proof) = &seen.proof {
        return proven(mirror, wanted, seen, proof).await.map(Some);
    }
    if let Some(commit) = &row.merged_commit
        && mirror.contains(&seen.base, commit).await?
        && mirror.contains(commit, &wanted.head).await?
    {
        return Ok(Some(Step::End(MergeOutcome::Done {
            commit: commit.clone(),
        })));
    }
    if let Some(head) = &seen.head
        && *head != wanted.head
    {
        return Ok(Some(Step::End(MergeOutcome::HeadMoved {
            head: head.clone(),
        })));
    }
    if mirror.contains(&seen.base, &wanted.head).await? {
        let commit = mirror.brought_by(&seen.base, &wanted.head).await?;
        return Ok(Some(Step::End(MergeOutcome::Done { commit })));
    }
    Ok(None)
}

async fn proven(
    mirror: &Mirror,
    wanted: &WantedMerge,
    seen: &Seen,
    proof: &CommitId,
) -> Result<Step, Error> {
    if !mirror.contains(&seen.base, proof).await? {
        return Ok(refused(format!(
            "it was merged as {proof}, which is not on {} any more",
            wanted.base_ref
        )));
    }
    let is_of_head = seen.squashed.as_ref() == Some(&wanted.head)
        || mirror.contains(proof, &wanted.head).await?;
    if !is_of_head {
        return Ok(refused(format!(
            "it was merged as {proof}, with another head than {}",
            wanted.head
        )));
    }
    Ok(Step::End(MergeOutcome::Done {
        commit: proof.clone(),
    }))
}

fn updates(
    repository: RepositoryId,
    wanted: &WantedMerge,
    base: &CommitId,
    merge: &CommitId,
) -> Vec<Update> {
    let mut updates = vec![
        Update {
            reference: format!("refs/heads/{}", wanted.base_ref),
            expected: Expected::At(base.clone()),
            to: merge.clone(),
        },
        Update {
            reference: format!("refs/pointsman/{}", proof_name(repository, wanted.number)),
            expected: Expected::Absent,
            to: merge.clone(),
        },
    ];
    if wanted.method == MergeMethod::Squash {
        let name = squashed_name(repository, wanted.number);
        updates.push(Update {
            reference: format!("refs/pointsman/{name}"),
            expected: Expected::Absent,
            to: wanted.head.clone(),
        });
    }
    updates
}

/// In one line: it is text of others.
fn title(wanted: &WantedMerge) -> String {
    let words: Vec<&str> = wanted.title.split_whitespace().collect();
    words.join(" ")
}

fn message(wanted: &WantedMerge) -> String {
    format!(
        "Merge pull request #{}: {}\n\nPointsman-Head: {}\n",
        wanted.number,
        title(wanted),
        wanted.head
    )
}

fn squash_message(wanted: &WantedMerge) -> String {
    format!(
        "{} (#{})\n\nPointsman-Head: {}\n",
        title(wanted),
        wanted.number,
        wanted.head
    )
}
