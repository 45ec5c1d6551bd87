//! Deleting refs of ours, each from the commit at which it was seen.

use super::mirror::Mirror;
use crate::forge::{Error, OwnRef};

/// Refs that one push deletes: a command line of some twenty kilobytes.
const REFS_A_PUSH: usize = 100;

/// Deletes those refs that are still at their commit; how many of all are gone at the end. What the remote
/// does not let go stays, and holds up no other.
pub(super) async fn delete(mirror: &Mirror, refs: &[OwnRef]) -> Result<u64, Error> {
    if refs.is_empty() {
        return Ok(0);
    }
    for some in refs.chunks(REFS_A_PUSH) {
        push_deletions(mirror, some).await?;
    }
    mirror.look().await?;
    let left = mirror.own_refs().await?;
    let n_gone = refs
        .iter()
        .filter(|gone| left.iter().all(|own| own.name != gone.name))
        .count();
    Ok(u64::try_from(n_gone).unwrap_or(u64::MAX))
}

async fn push_deletions(mirror: &Mirror, refs: &[OwnRef]) -> Result<(), Error> {
    let mut arguments = vec!["push".to_owned(), "--quiet".to_owned()];
    for own in refs {
        let (name, commit) = (own.name.reference(), &own.commit);
        arguments.push(format!("--force-with-lease={name}:{commit}"));
    }
    arguments.extend(["--".to_owned(), mirror.url().to_owned()]);
    arguments.extend(refs.iter().map(|own| format!(":{}", own.name.reference())));
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let output = mirror.run(&arguments, &[0, 1]).await?;
    if output.status != 0 {
        // Which of them stayed, the look after this tells.
        tracing::debug!(stderr = output.stderr, "the remote kept refs");
    }
    Ok(())
}
