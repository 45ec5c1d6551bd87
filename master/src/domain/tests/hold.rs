//! Holds: what they let through, and what ends them.

use std::time::Duration;

use proptest::prelude::*;
use uuid::Uuid;

use super::*;
use crate::domain::{
    attempt::InfrastructureClass,
    hold::{
        Gate, HOLDS, Hold, HoldChange, HoldReport, HoldSubject, LONGEST_HOLD, Runner, gate, held_by,
    },
    ids::{AttemptId, Fence, HoldId, LeaseKey, Nonce, WorkerId},
};

const W1: WorkerId = WorkerId(Uuid::from_u128(1));
const W2: WorkerId = WorkerId(Uuid::from_u128(2));
const START: Timestamp = Timestamp(1_000_000_000);

fn runner(worker: WorkerId, profile: &'static str, account: &'static str) -> Runner<'static> {
    Runner {
        worker,
        profile,
        account,
    }
}

fn key(n: u64) -> LeaseKey {
    LeaseKey {
        attempt: AttemptId(Uuid::from_u128(n.into())),
        fence: Fence(1),
        nonce: Nonce(Uuid::from_u128(0)),
    }
}

fn report(reset_at: Option<Timestamp>) -> HoldReport {
    HoldReport {
        class: InfrastructureClass::ProviderQuota,
        message: "no quota left".to_owned(),
        reset_at,
        worker: W1,
    }
}

fn placed(reset_at: Option<Timestamp>) -> Hold {
    let subject = HoldSubject::Account("main".to_owned());
    Hold::placed(HoldId(Uuid::from_u128(9)), subject, report(reset_at), START)
}

/// The hold with a canary under way, at the instant that this was first possible.
fn tried(mut hold: Hold, n: u64) -> (Hold, Timestamp) {
    let at = hold.until;
    assert_eq!(hold.gate(Timestamp(at.0 - 1)), Gate::Held);
    assert_eq!(hold.gate(at), Gate::Canary);
    hold.canary = Some((key(n).attempt, key(n).fence));
    assert_eq!(hold.gate(at), Gate::Held);
    (hold, at)
}

#[test]
fn quota_and_outage_hold_the_account_everywhere_and_credentials_one_profile_here() {
    let here = runner(W1, "agent", "main");
    let account = HoldSubject::Account("main".to_owned());
    let profile = HoldSubject::Profile {
        worker: W1,
        profile: "agent".to_owned(),
    };
    for &class in InfrastructureClass::ALL {
        let expected = match class.as_str() {
            "provider_quota" | "provider_outage" => Some(account.clone()),
            "bad_credentials" => Some(profile.clone()),
            _ => None,
        };
        assert_eq!(held_by(class, here), expected, "{class}");
        assert!(expected.is_none() || !class.is_charged(), "{class}");
    }
    assert!(account.covers(here) && account.covers(runner(W2, "other", "main")));
    assert!(!account.covers(runner(W1, "agent", "other")));
    assert!(profile.covers(here) && profile.covers(runner(W1, "agent", "other")));
    assert!(!profile.covers(runner(W2, "agent", "main")));
    assert!(!profile.covers(runner(W1, "other", "main")));
    let check = runner(W1, "", "main");
    assert!(!account.covers(check) && !profile.covers(check));
    assert_eq!(held_by(InfrastructureClass::ProviderQuota, check), None);
}

#[test]
fn a_hold_ends_at_the_reset_time_but_not_before_the_backoff_nor_after_the_bound() {
    let minute = START.after(HOLDS.base);
    assert_eq!(placed(None).until, minute);
    assert_eq!(placed(Some(START)).until, minute);
    let hour = START.after(Duration::from_secs(3600));
    assert_eq!(placed(Some(hour)).until, hour);
    let bound = START.after(LONGEST_HOLD);
    assert_eq!(placed(Some(bound)).until, bound);
    assert_eq!(
        placed(Some(bound.after(Duration::from_secs(1)))).until,
        bound
    );
}

#[test]
fn failures_of_canaries_renew_the_hold_for_longer_each_time() {
    let (mut hold, mut waits) = (placed(None), Vec::new());
    for n in 1..9 {
        let (canary, at) = tried(hold, n);
        let HoldChange::Renewed {
            hold: renewed,
            is_counted: true,
        } = canary.after_failure(key(n), report(None), at)
        else {
            panic!("the canary's failure renews");
        };
        waits.push(renewed.until.since(at).as_secs());
        hold = renewed;
    }
    assert_eq!(waits, [120, 240, 480, 960, 1920, 3600, 3600, 3600]);
}

#[test]
fn only_the_canarys_verdict_lifts() {
    let (hold, _) = tried(placed(None), 7);
    assert_eq!(hold.after_verdict(key(8)), HoldChange::None);
    let earlier = LeaseKey {
        fence: Fence(0),
        ..key(7)
    };
    assert_eq!(hold.after_verdict(earlier), HoldChange::None);
    assert_eq!(hold.after_verdict(key(7)), HoldChange::Lifted);
    assert_eq!(placed(None).after_verdict(key(7)), HoldChange::None);
}

#[test]
fn a_failure_that_was_under_way_counts_on_its_attempt_and_may_tell_a_later_reset() {
    let hold = placed(None);
    let later = hold.until.after(Duration::from_secs(9));
    assert_eq!(
        hold.after_failure(key(3), report(None), START),
        HoldChange::None
    );
    assert_eq!(
        hold.after_failure(key(3), report(Some(START)), START),
        HoldChange::None
    );
    let (hold, at) = tried(hold, 7);
    let HoldChange::Renewed { hold, is_counted } =
        hold.after_failure(key(3), report(Some(later)), at)
    else {
        panic!("it is held for longer");
    };
    assert!(!is_counted);
    assert_eq!((hold.until, hold.failures), (later, 1));
    assert!(hold.is_canary(key(7)), "the canary goes on");
}

/// What may happen to an account.
#[derive(Debug, Clone)]
enum Step {
    Pass(u64),
    /// Somebody asks for work.
    Ask,
    /// A live lease, counted from the oldest, ends.
    Verdict(usize),
    Fail(usize, Option<i64>),
    Die(usize),
    Release,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (0_u64..4000).prop_map(Step::Pass),
        Just(Step::Ask),
        Just(Step::Ask),
        (0_usize..4).prop_map(Step::Verdict),
        (0_usize..4, proptest::option::of(-10_000_i64..10_000))
            .prop_map(|(n, reset)| Step::Fail(n, reset)),
        (0_usize..4).prop_map(Step::Die),
        Just(Step::Release),
    ]
}

/// An account with its leases, as store and service keep them.
#[derive(Default)]
struct Account {
    now: u64,
    n: u64,
    leases: Vec<LeaseKey>,
    hold: Option<Hold>,
    /// Leased while this hold was there.
    since: Vec<LeaseKey>,
}

impl Account {
    fn at(&self) -> Timestamp {
        START.after(Duration::from_secs(self.now))
    }

    fn end(&mut self, n: usize) -> Option<LeaseKey> {
        let key = (n < self.leases.len()).then(|| self.leases.remove(n))?;
        self.since.retain(|other| *other != key);
        Some(key)
    }

    /// The canary's lease is gone, whatever ended it.
    fn settle(&mut self, key: LeaseKey) {
        if let Some(hold) = self.hold.as_mut().filter(|hold| hold.is_canary(key)) {
            hold.canary = None;
        }
    }

    fn take(&mut self, step: &Step, gate: impl Fn(&[Hold], Timestamp) -> Gate) {
        match *step {
            Step::Pass(seconds) => self.now += seconds,
            Step::Ask => {
                let holds: Vec<Hold> = self.hold.iter().cloned().collect();
                let gate = gate(&holds, self.at());
                if gate == Gate::Held {
                    return;
                }
                self.n += 1;
                let key = key(self.n);
                self.leases.push(key);
                if let Some(hold) = &mut self.hold {
                    hold.canary = Some((key.attempt, key.fence));
                    self.since.push(key);
                }
            }
            Step::Verdict(n) => {
                let Some(key) = self.end(n) else { return };
                let change = self.hold.as_ref().map(|hold| hold.after_verdict(key));
                if change == Some(HoldChange::Lifted) {
                    self.lift();
                }
            }
            Step::Fail(n, reset) => {
                let Some(key) = self.end(n) else { return };
                let now = self.at();
                let report = report(reset.map(|seconds| Timestamp(now.0 + seconds * 1_000_000)));
                match &self.hold {
                    None => {
                        self.hold = Some(Hold::placed(HoldId(Uuid::nil()), subject(), report, now))
                    }
                    Some(hold) => {
                        if let HoldChange::Renewed { hold, .. } =
                            hold.after_failure(key, report, now)
                        {
                            self.hold = Some(hold);
                        }
                    }
                }
            }
            Step::Die(n) => {
                let Some(key) = self.end(n) else { return };
                self.settle(key);
            }
            Step::Release => self.lift(),
        }
    }

    fn lift(&mut self) {
        self.hold = None;
        self.since.clear();
    }

    /// What is wrong.
    fn fault(&self) -> Option<String> {
        let hold = self.hold.as_ref()?;
        if self.since.len() > 1 {
            return Some(format!("{} canaries at once", self.since.len()));
        }
        let known = hold.canary.map(|canary| canary.0);
        let live = self.since.first().map(|key| key.attempt);
        if known != live {
            return Some(format!(
                "the canary is {live:?}, and the hold knows {known:?}"
            ));
        }
        let longest = self.at().after(LONGEST_HOLD);
        (hold.until > longest).then(|| format!("held until {:?}", hold.until))
    }
}

fn subject() -> HoldSubject {
    HoldSubject::Account("main".to_owned())
}

fn gate_of_account(holds: &[Hold], now: Timestamp) -> Gate {
    gate(holds, runner(W2, "agent", "main"), now)
}

proptest! {
    #[test]
    fn a_held_account_leases_to_one_canary_alone(steps in proptest::collection::vec(step(), 0..60)) {
        let mut account = Account::default();
        for step in &steps {
            account.take(step, gate_of_account);
            prop_assert_eq!(account.fault(), None);
        }
        // Whatever happened, work goes on once the time has passed and nobody is under way.
        while account.end(0).is_some_and(|key| { account.settle(key); true }) {}
        account.take(&Step::Pass(LONGEST_HOLD.as_secs()), gate_of_account);
        account.take(&Step::Ask, gate_of_account);
        prop_assert_eq!(account.leases.len(), 1);
    }
}

#[test]
fn a_gate_that_forgets_the_canary_is_found_out() {
    let careless = |holds: &[Hold], now: Timestamp| match holds.first() {
        Some(hold) if now < hold.until => Gate::Held,
        Some(_) => Gate::Canary,
        None => Gate::Open,
    };
    let mut account = Account::default();
    for step in [
        Step::Ask,
        Step::Fail(0, None),
        Step::Pass(60),
        Step::Ask,
        Step::Ask,
    ] {
        account.take(&step, careless);
    }
    assert_eq!(account.fault(), Some("2 canaries at once".to_owned()));
}

#[test]
fn the_strictest_of_several_holds_counts() {
    let account = placed(None);
    let mut profile = placed(None);
    profile.subject = HoldSubject::Profile {
        worker: W1,
        profile: "agent".to_owned(),
    };
    let due = account.until;
    profile.until = due.after(Duration::from_secs(1));
    let holds = [account, profile];
    assert_eq!(gate(&holds, runner(W1, "agent", "main"), due), Gate::Held);
    assert_eq!(gate(&holds, runner(W2, "agent", "main"), due), Gate::Canary);
    assert_eq!(gate(&holds, runner(W2, "agent", "other"), due), Gate::Open);
}
