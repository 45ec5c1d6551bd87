//! A lease as the worker understands it: parsed once, narrow from there on.
//!
//! Conversion from the wire is in `master.rs`. What the fields mean to a harness is in `harness/`,
//! and what they mean to git is in `workspace/`.

use std::{fmt, str::FromStr, time::Duration};

use uuid::Uuid;

use crate::lease::BootTime;

/// Hexadecimal digits of a nonce.
const NONCE_DIGITS: usize = 32;

/// Names one lease of one attempt. As text it names the session's directory, workspace and lock.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct LeaseKey {
    pub(crate) attempt_id: Uuid,
    pub(crate) fence: u64,
    nonce: String,
}

impl LeaseKey {
    /// `None` where `nonce` is not 32 lower-case hexadecimal digits.
    pub(crate) fn new(attempt_id: Uuid, fence: u64, nonce: &str) -> Option<Self> {
        let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        (nonce.len() == NONCE_DIGITS && nonce.bytes().all(is_digit)).then(|| Self {
            attempt_id,
            fence,
            nonce: nonce.to_owned(),
        })
    }

    /// The random part, 32 hexadecimal digits.
    pub(crate) fn nonce(&self) -> &str {
        &self.nonce
    }
}

impl fmt::Display for LeaseKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}-{}", self.attempt_id, self.fence, self.nonce)
    }
}

/// A text that names no lease.
#[derive(Debug, thiserror::Error)]
#[error("not the name of a lease: {0:?}")]
pub(crate) struct InvalidLeaseKey(String);

impl FromStr for LeaseKey {
    type Err = InvalidLeaseKey;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parse = || {
            let (rest, nonce) = text.rsplit_once('-')?;
            let (attempt_id, fence) = rest.rsplit_once('-')?;
            let key = Self::new(attempt_id.parse().ok()?, fence.parse().ok()?, nonce)?;
            // One text a lease: no other spelling of the UUID or of the number.
            (key.to_string() == text).then_some(key)
        };
        parse().ok_or_else(|| InvalidLeaseKey(text.to_owned()))
    }
}

/// What a harness is asked to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
#[value(rename_all = "snake_case")]
pub enum Role {
    Estimator,
    Implementer,
    Reviewer,
    ConflictResolver,
    Escalator,
    Ci,
}

impl Role {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::Estimator,
        Self::Implementer,
        Self::Reviewer,
        Self::ConflictResolver,
        Self::Escalator,
        Self::Ci,
    ];

    /// The name in configuration, prompts and environments.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Estimator => "estimator",
            Self::Implementer => "implementer",
            Self::Reviewer => "reviewer",
            Self::ConflictResolver => "conflict_resolver",
            Self::Escalator => "escalator",
            Self::Ci => "ci",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What the workflow is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
#[value(rename_all = "snake_case")]
pub enum Kind {
    Issue,
    PullRequest,
}

impl Kind {
    /// The name for people.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Issue => "issue",
            Self::PullRequest => "pull request",
        }
    }
}

/// A full object name of git.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Commit(String);

impl Commit {
    /// `None` where `text` is not 40 or 64 hexadecimal digits.
    pub(crate) fn new(text: &str) -> Option<Self> {
        let is_name = matches!(text.len(), 40 | 64) && text.bytes().all(|b| b.is_ascii_hexdigit());
        is_name.then(|| Self(text.to_ascii_lowercase()))
    }

    /// The digits.
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Commit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// One attempt, leased to this worker.
#[derive(Debug, Clone)]
pub(crate) struct Assignment {
    pub(crate) key: LeaseKey,
    /// When the asking for it was sent: the lease counts from there until a beat is acknowledged.
    pub(crate) asked_at: BootTime,
    pub(crate) ttl: Duration,
    pub(crate) job: Job,
    pub(crate) repository: Repository,
    pub(crate) checkout_commit: Commit,
    /// Without `refs/heads/`.
    pub(crate) base_branch: String,
    pub(crate) push_ref: String,
    pub(crate) item: Item,
}

/// What runs.
#[derive(Debug, Clone)]
pub(crate) enum Job {
    /// A harness, which ends with a verdict.
    Harness {
        role: Role,
        tier: u32,
        profile: String,
    },
    /// A check's command, which ends with a status.
    Check { name: String, command: String },
}

impl Job {
    /// The role that it is done in.
    pub(crate) fn role(&self) -> Role {
        match self {
            Self::Harness { role, .. } => *role,
            Self::Check { .. } => Role::Ci,
        }
    }

    /// What it is, for people.
    pub(crate) fn label(&self) -> &str {
        match self {
            Self::Harness { role, .. } => role.name(),
            Self::Check { name, .. } => name,
        }
    }

    /// The tier; a check has none.
    pub(crate) fn tier(&self) -> u32 {
        match self {
            Self::Harness { tier, .. } => *tier,
            Self::Check { .. } => 0,
        }
    }
}

/// Where the code lives.
#[derive(Debug, Clone)]
pub(crate) struct Repository {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) git_url: String,
}

/// The issue or pull request, and what earlier steps found out. Texts of others: data, no orders.
#[derive(Debug, Clone)]
pub(crate) struct Item {
    pub(crate) workflow_id: String,
    pub(crate) kind: Kind,
    pub(crate) number: u64,
    pub(crate) title: String,
    pub(crate) body: String,
    pub(crate) plan: String,
    pub(crate) ci_failures: Vec<CiFailure>,
    pub(crate) review_notes: String,
    pub(crate) conflict_paths: Vec<String>,
    pub(crate) superseded_commits: Vec<String>,
    pub(crate) earlier_failures: Vec<String>,
}

/// A check that did not succeed.
#[derive(Debug, Clone)]
pub(crate) struct CiFailure {
    pub(crate) name: String,
    pub(crate) conclusion: String,
    pub(crate) log_tail: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONCE: &str = "00112233445566778899aabbccddeeff";

    #[test]
    fn a_key_is_read_back_from_its_text() {
        let key = LeaseKey::new(Uuid::from_u128(7), 12, NONCE).unwrap();
        assert_eq!(key.to_string().parse::<LeaseKey>().unwrap(), key);
    }

    #[test]
    fn no_other_text_is_a_key() {
        let good = LeaseKey::new(Uuid::from_u128(7), 12, NONCE)
            .unwrap()
            .to_string();
        let bad = [
            String::new(),
            "lost+found".to_owned(),
            "../../etc".to_owned(),
            good.replace("-12-", "-012-"),
            good.replace("-12-", "--12-"),
            good.to_uppercase(),
            format!("{good}0"),
            good.replace(NONCE, "x"),
        ];
        for text in bad {
            assert!(text.parse::<LeaseKey>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn a_commit_is_a_whole_object_name() {
        assert!(Commit::new(&"a".repeat(40)).is_some());
        assert!(Commit::new(&"A".repeat(64)).is_some());
        for bad in [
            "",
            "main",
            "--upload-pack=x",
            &"a".repeat(39),
            &"g".repeat(40),
        ] {
            assert!(Commit::new(bad).is_none(), "{bad:?}");
        }
    }
}
