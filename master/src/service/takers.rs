//! Who could take an attempt, and what is in the way where nobody could. The one place that says so: what
//! a workflow waits for and the figures of what nobody takes both ask it.

use super::leasing::offers;
use crate::{
    domain::{
        attempt::{Attempt, Role},
        hold::{Gate, Hold, gate},
        time::Timestamp,
    },
    store::model::{Misfit, Offer, PendingGroup, WorkerRow},
};

/// Who is there to take work now.
#[derive(Debug)]
pub(super) struct Fleet {
    /// Those that are alive, drained ones too.
    pub(super) workers: Vec<WorkerRow>,
    pub(super) holds: Vec<Hold>,
    pub(super) now: Timestamp,
}

/// What an attempt asks of a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Need {
    pub(super) role: Role,
    pub(super) tier: u32,
    pub(super) ttl_seconds: u32,
}

impl From<&Attempt> for Need {
    fn from(attempt: &Attempt) -> Self {
        Self {
            role: attempt.role,
            tier: attempt.tier,
            ttl_seconds: attempt.lock_ttl_seconds,
        }
    }
}

impl From<&PendingGroup> for Need {
    fn from(group: &PendingGroup) -> Self {
        Self {
            role: group.role,
            tier: group.tier,
            ttl_seconds: group.ttl_seconds,
        }
    }
}

/// Who takes an attempt.
#[derive(Debug, PartialEq)]
pub(super) enum Takers {
    /// So many workers, each as soon as it has a free slot.
    Workers(usize),
    Nobody(Obstacle),
}

/// Why none of the workers takes an attempt: what keeps the one that is nearest to it.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Obstacle {
    NoWorker,
    /// None of so many live workers takes the role.
    Role {
        n_workers: usize,
    },
    /// The worker takes the role, but no profile of its does.
    Profile {
        worker: String,
    },
    Tier {
        worker: String,
        offer: Offer,
    },
    KillBudget {
        worker: String,
        offer: Offer,
    },
    /// The worker would take it, but is drained for this reason.
    Drained {
        worker: String,
        reason: String,
    },
    Held(Hold),
}

impl Fleet {
    /// Who takes what needs this.
    pub(super) fn takers(&self, need: Need) -> Takers {
        let mut n_takers = 0;
        let mut nearest = match self.workers.len() {
            0 => Obstacle::NoWorker,
            n_workers => Obstacle::Role { n_workers },
        };
        for worker in &self.workers {
            match self.obstacle(worker, need) {
                None => n_takers += 1,
                Some(obstacle) if obstacle.is_nearer_than(&nearest) => nearest = obstacle,
                Some(_) => {}
            }
        }
        match n_takers {
            0 => Takers::Nobody(nearest),
            n => Takers::Workers(n),
        }
    }

    /// Whether no worker would take it, even if nothing were held.
    pub(super) fn is_unschedulable(&self, need: Need) -> bool {
        match self.takers(need) {
            Takers::Workers(_) | Takers::Nobody(Obstacle::Held(_)) => false,
            Takers::Nobody(_) => true,
        }
    }

    /// What keeps one worker from it.
    fn obstacle(&self, worker: &WorkerRow, need: Need) -> Option<Obstacle> {
        if !worker.roles.contains(&need.role) {
            return Some(Obstacle::Role {
                n_workers: self.workers.len(),
            });
        }
        let name = || worker.name.clone();
        let mut nearest = Obstacle::Profile { worker: name() };
        for offer in offers(worker) {
            let obstacle = match offer.misfit(need.role, need.tier, need.ttl_seconds) {
                Some(Misfit::Role) => continue,
                Some(Misfit::Tier) => Obstacle::Tier {
                    worker: name(),
                    offer,
                },
                Some(Misfit::KillBudget) => Obstacle::KillBudget {
                    worker: name(),
                    offer,
                },
                None => self.obstacle_of_fit(worker, &offer)?,
            };
            if obstacle.is_nearer_than(&nearest) {
                nearest = obstacle;
            }
        }
        Some(nearest)
    }

    /// What keeps a worker from an attempt that an offer of its fits.
    fn obstacle_of_fit(&self, worker: &WorkerRow, offer: &Offer) -> Option<Obstacle> {
        if let Some(drain) = &worker.drain {
            return Some(Obstacle::Drained {
                worker: worker.name.clone(),
                reason: drain.reason.clone(),
            });
        }
        let runner = offer.runner(worker.id);
        if gate(&self.holds, runner, self.now) != Gate::Held {
            return None;
        }
        let covering = self.holds.iter().filter(|h| h.subject.covers(runner));
        let last = covering.max_by_key(|hold| hold.until)?;
        Some(Obstacle::Held(last.clone()))
    }
}

impl Obstacle {
    fn is_nearer_than(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Held(hold), Self::Held(other)) => hold.until < other.until,
            (Self::KillBudget { offer, .. }, Self::KillBudget { offer: other, .. }) => {
                offer.kill_budget < other.kill_budget
            }
            _ => self.nearness() > other.nearness(),
        }
    }

    fn nearness(&self) -> u8 {
        match self {
            Self::NoWorker => 0,
            Self::Role { .. } => 1,
            Self::Profile { .. } => 2,
            Self::Tier { .. } => 3,
            Self::KillBudget { .. } => 4,
            Self::Drained { .. } => 5,
            Self::Held(_) => 6,
        }
    }

    /// What it is, and what ends it, for people.
    pub(super) fn text(&self, need: Need) -> String {
        let Need { role, tier, .. } = need;
        match self {
            Self::NoWorker => "no worker is alive".to_owned(),
            Self::Role { n_workers: 1 } => {
                format!("the one live worker does not take the role {role}")
            }
            Self::Role { n_workers } => {
                format!("none of the {n_workers} live workers takes the role {role}")
            }
            Self::Profile { worker } => {
                format!("worker {worker} takes the role {role}, but has no profile for it")
            }
            Self::Tier { worker, offer } => {
                let tiers: Vec<String> = offer.tiers.iter().map(u32::to_string).collect();
                format!(
                    "no live worker takes the role {role} at tier {tier}: {} of worker {worker} is for tier {}",
                    runner(offer),
                    tiers.join(", ")
                )
            }
            Self::KillBudget { worker, offer } => format!(
                "the kill budget of {} of worker {worker} is {} s, more than a third of the time-to-live of \
                 {} s: shorten the one, or raise the policy's lease_ttls and cancel this attempt",
                runner(offer),
                offer.kill_budget.as_secs_f64(),
                need.ttl_seconds,
            ),
            Self::Drained { worker, reason } => {
                format!("worker {worker} would take it, but is drained ({reason})")
            }
            Self::Held(hold) => match hold.canary {
                None => format!("{} is held ({})", hold.subject, hold.class),
                Some((canary, _)) => format!(
                    "{} is held ({}) until canary {canary} has a verdict",
                    hold.subject, hold.class
                ),
            },
        }
    }

    /// When it may end by itself.
    pub(super) fn until(&self, now: Timestamp) -> Option<Timestamp> {
        match self {
            Self::Held(hold) => Some(hold.until).filter(|until| *until > now),
            Self::NoWorker
            | Self::Role { .. }
            | Self::Profile { .. }
            | Self::Tier { .. }
            | Self::KillBudget { .. }
            | Self::Drained { .. } => None,
        }
    }
}

fn runner(offer: &Offer) -> String {
    if offer.profile.is_empty() {
        "checks".to_owned()
    } else {
        format!("profile {}", offer.profile)
    }
}
