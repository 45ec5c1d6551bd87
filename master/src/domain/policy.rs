//! The bounds of a repository's workflows, and what follows from them.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{
    attempt::{Role, default_ttl_seconds},
    text::text_enum,
    transitions::Bound,
};

text_enum! {
    /// How a pull request comes onto its base branch.
    pub enum MergeMethod: "merge method" {
        /// A commit with both as its parents.
        Merge = "merge",
        /// One commit on the base branch with the tree of the merge; the head's own commits stay off it.
        Squash = "squash",
        /// The base branch moves to the head, which must contain it.
        FastForward = "fast_forward",
    }
}

/// Time-to-live of the leases of one role.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LeaseTtl {
    pub role: Role,
    /// `None`: at every tier.
    pub tier: Option<u32>,
    pub seconds: u32,
}

/// Bounds of each of a repository's workflows. A change counts from the next decision on, for workflows that
/// are under way too; what is fixed when a workflow or an attempt is made (`ci_flake_retries`, `lease_ttls`)
/// stays as it was made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Policy {
    /// Highest tier; escalation ends there.
    pub max_tier: u32,
    /// Red verdicts that go back to the implementer, a tier.
    pub ci_red_rounds: u32,
    /// Requests for changes that go back to the implementer, a tier.
    pub review_rounds: u32,
    /// The conflict that ends in STUCK.
    pub conflict_rounds: u32,
    /// Reruns of flaky checks, a workflow; `None`: the master's setting, itself
    /// [`DEFAULT_FLAKE_RETRIES`].
    pub ci_flake_retries: Option<u32>,
    /// Blocked merges that go back to CI, a workflow.
    pub merge_rounds: u32,
    /// Superseded attempts and restarted waits, a workflow.
    pub head_moves: u32,
    /// Failed or unanswered writes of one effect.
    pub effect_tries: u32,
    /// Leases of one attempt that count.
    pub max_pickups: u32,
    /// With no flake retry left, red goes to ESCALATING instead of the ordinary rows.
    pub ci_flake_hard_ceiling: bool,
    /// No check at all counts as green once `ci_appear_deadline` has passed.
    pub ci_optional: bool,
    /// Checks whose failure counts as flaky: names, with `*` for any run of characters
    /// and `?` for any one.
    pub flaky_checks: Vec<String>,
    /// In seconds: the whole wait for a verdict of one head.
    pub ci_poll_deadline_seconds: u64,
    /// In seconds: the wait with no check changing.
    pub ci_idle_deadline_seconds: u64,
    /// In seconds: the wait for the first check.
    pub ci_appear_deadline_seconds: u64,
    /// In seconds: all of MERGING.
    pub merge_deadline_seconds: u64,
    /// In seconds: one effect's failing writes.
    pub effect_deadline_seconds: u64,
    /// Exceptions from [`default_ttl_seconds`]; the first that fits counts.
    pub lease_ttls: Vec<LeaseTtl>,
    /// Workflows of the repository past DISCOVERED and not terminal.
    pub max_live_workflows: u32,
    /// How its pull requests are merged.
    pub merge_method: MergeMethod,
    /// The branches of our own pull requests go after the merge, while they are at the commit that was merged.
    pub delete_merged_branches: bool,
}

/// Defines [`PolicyField`], and what it takes to copy one.
macro_rules! policy_fields {
    ($( $variant:ident = $field:ident, )+) => {
        /// A field of a policy, by its name.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum PolicyField {
            $( $variant, )+
        }

        impl PolicyField {
            /// Every field.
            pub const ALL: &'static [Self] = &[$( Self::$variant ),+];

            /// As it is called in the policy.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $( Self::$variant => stringify!($field), )+
                }
            }
        }

        impl Policy {
            /// Makes one field what it is in `other`.
            pub fn take(&mut self, field: PolicyField, other: &Self) {
                match field {
                    $( PolicyField::$variant => self.$field.clone_from(&other.$field), )+
                }
            }

            /// The fields in which the two differ.
            pub fn difference(&self, other: &Self) -> Vec<PolicyField> {
                // Taken apart whole, so that no field can be forgotten here.
                let Self { $( $field, )+ } = self;
                let mut fields = Vec::new();
                $(
                    if *$field != other.$field {
                        fields.push(PolicyField::$variant);
                    }
                )+
                fields
            }
        }
    };
}

policy_fields! {
    MaxTier = max_tier,
    CiRedRounds = ci_red_rounds,
    ReviewRounds = review_rounds,
    ConflictRounds = conflict_rounds,
    CiFlakeRetries = ci_flake_retries,
    MergeRounds = merge_rounds,
    HeadMoves = head_moves,
    EffectTries = effect_tries,
    MaxPickups = max_pickups,
    CiFlakeHardCeiling = ci_flake_hard_ceiling,
    CiOptional = ci_optional,
    FlakyChecks = flaky_checks,
    CiPollDeadlineSeconds = ci_poll_deadline_seconds,
    CiIdleDeadlineSeconds = ci_idle_deadline_seconds,
    CiAppearDeadlineSeconds = ci_appear_deadline_seconds,
    MergeDeadlineSeconds = merge_deadline_seconds,
    EffectDeadlineSeconds = effect_deadline_seconds,
    LeaseTtls = lease_ttls,
    MaxLiveWorkflows = max_live_workflows,
    DeleteMergedBranches = delete_merged_branches,
    MergeMethod = merge_method,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            max_tier: 3,
            ci_red_rounds: 2,
            review_rounds: 3,
            conflict_rounds: 3,
            ci_flake_retries: None,
            merge_rounds: 5,
            head_moves: 10,
            effect_tries: 20,
            max_pickups: 3,
            ci_flake_hard_ceiling: false,
            ci_optional: false,
            flaky_checks: Vec::new(),
            ci_poll_deadline_seconds: 6 * 3600,
            ci_idle_deadline_seconds: 2 * 3600,
            ci_appear_deadline_seconds: 600,
            merge_deadline_seconds: 24 * 3600,
            effect_deadline_seconds: 24 * 3600,
            lease_ttls: Vec::new(),
            max_live_workflows: 20,
            delete_merged_branches: true,
            merge_method: MergeMethod::Merge,
        }
    }
}

/// A value that a policy can't have.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field} is {value}; {expected} is expected")]
pub struct InvalidPolicy {
    pub field: &'static str,
    pub value: String,
    pub expected: String,
}

/// Highest tier that a policy may name. Tiers stand for models; nobody has more.
pub const MAX_TIER: u32 = 9;
/// Highest value of a counter of rounds: past a hundred rounds a bound bounds nobody's bill.
pub const MAX_ROUNDS: u32 = 100;
/// The table has rows for three conflicts.
pub const MAX_CONFLICT_ROUNDS: u32 = 3;
/// Reruns of flaky checks where neither the repository nor the master says otherwise.
pub const DEFAULT_FLAKE_RETRIES: u32 = 1;
/// Highest number of flake retries, for a policy as for one workflow.
pub const MAX_FLAKE_RETRIES: u32 = 10;
/// Longest deadline: thirty days.
pub const MAX_DEADLINE_SECONDS: u64 = 30 * 24 * 3600;
/// Longest time-to-live of a lease: one day.
pub const MAX_TTL_SECONDS: u32 = 24 * 3600;
/// Most names of flaky checks, and most exceptions from the default times-to-live.
pub const MAX_LIST: usize = 100;
/// Longest name of a flaky check, in bytes.
pub const MAX_PATTERN_BYTES: usize = 256;
/// Most live workflows of one repository.
pub const MAX_LIVE_WORKFLOWS: u32 = 10_000;

fn within<T: PartialOrd + std::fmt::Display>(
    field: &'static str,
    value: T,
    least: T,
    most: T,
) -> Result<(), InvalidPolicy> {
    if value < least || value > most {
        return Err(InvalidPolicy {
            field,
            value: value.to_string(),
            expected: format!("{least} to {most}"),
        });
    }
    Ok(())
}

impl Policy {
    /// Checks every value. `least_ttl_seconds` follows from the master's beat and flush intervals: a
    /// time-to-live must outlast three beats and a reconnect.
    pub fn check(&self, least_ttl_seconds: u32) -> Result<(), InvalidPolicy> {
        within("max_tier", self.max_tier, 1, MAX_TIER)?;
        within("ci_red_rounds", self.ci_red_rounds, 0, MAX_ROUNDS)?;
        within("review_rounds", self.review_rounds, 0, MAX_ROUNDS)?;
        within(
            "conflict_rounds",
            self.conflict_rounds,
            1,
            MAX_CONFLICT_ROUNDS,
        )?;
        within(
            "ci_flake_retries",
            self.flake_retries(),
            0,
            MAX_FLAKE_RETRIES,
        )?;
        within("merge_rounds", self.merge_rounds, 0, MAX_ROUNDS)?;
        within("head_moves", self.head_moves, 0, MAX_ROUNDS)?;
        within("effect_tries", self.effect_tries, 1, MAX_ROUNDS)?;
        within("max_pickups", self.max_pickups, 1, MAX_ROUNDS)?;
        within(
            "max_live_workflows",
            self.max_live_workflows,
            1,
            MAX_LIVE_WORKFLOWS,
        )?;
        let deadlines = [
            ("ci_poll_deadline_seconds", self.ci_poll_deadline_seconds),
            ("ci_idle_deadline_seconds", self.ci_idle_deadline_seconds),
            (
                "ci_appear_deadline_seconds",
                self.ci_appear_deadline_seconds,
            ),
            ("merge_deadline_seconds", self.merge_deadline_seconds),
            ("effect_deadline_seconds", self.effect_deadline_seconds),
        ];
        for (field, seconds) in deadlines {
            within(field, seconds, 1, MAX_DEADLINE_SECONDS)?;
        }
        within(
            "flaky_checks: number of names",
            self.flaky_checks.len(),
            0,
            MAX_LIST,
        )?;
        within(
            "lease_ttls: number of entries",
            self.lease_ttls.len(),
            0,
            MAX_LIST,
        )?;
        for pattern in &self.flaky_checks {
            within(
                "flaky_checks: bytes of a name",
                pattern.len(),
                1,
                MAX_PATTERN_BYTES,
            )?;
        }
        for ttl in &self.lease_ttls {
            within(
                "lease_ttls: seconds",
                ttl.seconds,
                least_ttl_seconds,
                MAX_TTL_SECONDS,
            )?;
            if let Some(tier) = ttl.tier {
                within("lease_ttls: tier", tier, 1, MAX_TIER)?;
            }
        }
        Ok(())
    }

    /// Time-to-live of the leases of a new attempt, in seconds.
    pub fn ttl_seconds(&self, role: Role, tier: u32) -> u32 {
        self.lease_ttls
            .iter()
            .find(|ttl| ttl.role == role && ttl.tier.is_none_or(|t| t == tier))
            .map_or_else(|| default_ttl_seconds(role, tier), |ttl| ttl.seconds)
    }

    /// Reruns of flaky checks of a new workflow.
    pub const fn flake_retries(&self) -> u32 {
        match self.ci_flake_retries {
            Some(retries) => retries,
            None => DEFAULT_FLAKE_RETRIES,
        }
    }

    /// How often the rows with `bound` may be taken; per tier where the counter is.
    pub const fn limit(&self, bound: Bound) -> u32 {
        match bound {
            Bound::CiRedRounds => self.ci_red_rounds,
            Bound::CiFlakeRetries => self.flake_retries(),
            Bound::ConflictRounds => self.conflict_rounds,
            Bound::Tier => self.max_tier,
            Bound::ReviewRounds => self.review_rounds,
            Bound::HeadMoves => self.head_moves,
            Bound::MergeRounds => self.merge_rounds,
        }
    }

    pub fn ci_poll_deadline(&self) -> Duration {
        Duration::from_secs(self.ci_poll_deadline_seconds)
    }

    pub fn ci_idle_deadline(&self) -> Duration {
        Duration::from_secs(self.ci_idle_deadline_seconds)
    }

    pub fn ci_appear_deadline(&self) -> Duration {
        Duration::from_secs(self.ci_appear_deadline_seconds)
    }

    pub fn merge_deadline(&self) -> Duration {
        Duration::from_secs(self.merge_deadline_seconds)
    }

    pub fn effect_deadline(&self) -> Duration {
        Duration::from_secs(self.effect_deadline_seconds)
    }

    /// The most attempts that a workflow under this policy can have before it ends or waits for a
    /// person, check runs apart: the longest walk over (state, counters). 52 with the defaults.
    ///
    /// The worst luck is a pull request that is analysed; at each tier implemented, red for all its
    /// rounds and reviewed with changes requested for all its rounds, each of those an implementation
    /// and a review; escalated between tiers; whose merge is blocked, and whose head moves, as often as
    /// may be, each time a review; and which conflicts under review (resolved, implemented, reviewed
    /// again) and once more (resolved). `walks.rs` searches all walks of `decide` for a longer one.
    pub const fn max_attempts(&self) -> u32 {
        let analysis = 1_u32;
        let one_tier = 2_u32
            .saturating_add(self.ci_red_rounds)
            .saturating_add(self.review_rounds.saturating_mul(2));
        let escalations = self.max_tier.saturating_sub(1);
        let conflicts = match self.conflict_rounds {
            0 | 1 => 0,
            2 => 3,
            3.. => 4,
        };
        analysis
            .saturating_add(self.max_tier.saturating_mul(one_tier))
            .saturating_add(escalations)
            .saturating_add(self.merge_rounds)
            .saturating_add(self.head_moves)
            .saturating_add(conflicts)
    }
}
