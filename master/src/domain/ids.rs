//! Names of things, one type each, so that one can't be passed for another.
//!
//! Ids are UUIDs of version 7, made outside the domain by an injected generator.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};
use uuid::Uuid;

macro_rules! id {
    ($( $(#[$meta:meta])* $name:ident, )+) => {$(
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub Uuid);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl FromStr for $name {
            type Err = uuid::Error;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                Uuid::parse_str(text).map(Self)
            }
        }
    )+};
}

id! {
    /// A repository that Pointsman may write to.
    RepositoryId,
    /// One issue or pull request on its way.
    WorkflowId,
    /// One piece of work for one harness run.
    AttemptId,
    /// One wish that the forge is to be made to match.
    EffectId,
    /// One run of one check of the built-in forge.
    CheckId,
    /// A worker's state directory; outlives its processes.
    WorkerId,
    /// One process start of a worker.
    InstanceId,
    /// One call that may be repeated.
    RequestId,
    /// One time that an account, or a profile on one worker, is held.
    HoldId,
}

/// Grows by one with each lease of an attempt; 0 before the first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Fence(pub u64);

impl fmt::Display for Fence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Random at each lease: after a failover to an older copy of the database a fence alone can repeat.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Nonce(pub Uuid);

impl fmt::Display for Nonce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.simple().fmt(f)
    }
}

impl FromStr for Nonce {
    type Err = uuid::Error;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Uuid::parse_str(text).map(Self)
    }
}

/// One lease of one attempt. Whoever can't name all three values has no lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeaseKey {
    pub attempt: AttemptId,
    pub fence: Fence,
    pub nonce: Nonce,
}

impl LeaseKey {
    /// The only ref that the holder of this lease may push to.
    pub fn push_ref(&self) -> String {
        format!(
            "refs/pointsman/{}/{}-{}",
            self.attempt, self.fence, self.nonce
        )
    }
}

/// The full name of a git commit: 40 or 64 lower-case hexadecimal digits.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct CommitId(String);

/// Not the full name of a commit.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no commit: 40 or 64 lower-case hexadecimal digits are expected")]
pub struct InvalidCommit(String);

impl CommitId {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for CommitId {
    type Error = InvalidCommit;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        let is_hexadecimal = text
            .bytes()
            .all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
        if is_hexadecimal && matches!(text.len(), 40 | 64) {
            Ok(Self(text))
        } else {
            Err(InvalidCommit(text))
        }
    }
}

impl FromStr for CommitId {
    type Err = InvalidCommit;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::try_from(text.to_owned())
    }
}

impl From<CommitId> for String {
    fn from(commit: CommitId) -> Self {
        commit.0
    }
}

impl fmt::Display for CommitId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}
