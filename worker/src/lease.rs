//! The arithmetic of leases: how long a session may run, and when to beat.
//!
//! Pure. A worker counts from the *sending* of the last beat that the master acknowledged, because
//! the master may have written it that early; and on a clock that goes on while the host sleeps,
//! because the lease does too. No clock of another host takes part. Reading the clock, sending beats
//! and stopping harnesses are others' business.

use std::{collections::BTreeMap, fmt, time::Duration};

/// Acknowledgements may be missing for this many beat intervals before the stream counts as dead.
const SILENT_INTERVALS: u32 = 3;

/// Added to the silence that is tolerated: the time for a write of the master to commit.
const SILENCE_MARGIN: Duration = Duration::from_secs(2);

/// Beats that wait for their acknowledgement at most; the oldest is forgotten beyond it. Silence
/// ends a stream long before at any sensible interval.
const MAX_OUTSTANDING: usize = 256;

/// A tenure is short when less than one part of so many is left: a lease that waited in the answer to
/// a question can be so old, and beats are far more frequent.
const SHORT_PART: u32 = 4;

/// An instant on CLOCK_BOOTTIME: time since the host's boot, suspend included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct BootTime(Duration);

impl BootTime {
    /// The instant `since_boot` after the host's boot.
    pub(crate) const fn new(since_boot: Duration) -> Self {
        Self(since_boot)
    }

    /// Reads what `Display` wrote: nanoseconds, in decimal.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let nanos: u64 = text.trim().parse().ok()?;
        Some(Self(Duration::from_nanos(nanos)))
    }

    /// Nanoseconds since boot; saturates after 584 years.
    pub(crate) fn nanos(self) -> u64 {
        u64::try_from(self.0.as_nanos()).unwrap_or(u64::MAX)
    }

    /// The instant `after` later.
    pub(crate) fn plus(self, after: Duration) -> Self {
        Self(self.0.saturating_add(after))
    }

    /// The instant `before` earlier; the boot where that would be before it.
    pub(crate) fn minus(self, before: Duration) -> Self {
        Self(self.0.saturating_sub(before))
    }

    /// How long ago `earlier` was; zero where it is later.
    pub(crate) fn since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

impl fmt::Display for BootTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.nanos())
    }
}

/// The right to run one harness, and until when.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Tenure {
    ttl: Duration,
    kill_budget: Duration,
    renewed_at: BootTime,
}

impl Tenure {
    /// A lease whose asking was sent at `asked_at`.
    pub(crate) fn new(ttl: Duration, kill_budget: Duration, asked_at: BootTime) -> Self {
        Self {
            ttl,
            kill_budget,
            renewed_at: asked_at,
        }
    }

    /// Prolongs the lease by a beat that was sent at `sent_at` and is acknowledged. Acknowledgements
    /// that arrive late never shorten it.
    pub(crate) fn renew(&mut self, sent_at: BootTime) {
        self.renewed_at = self.renewed_at.max(sent_at);
    }

    /// When stopping must begin, so that the harness is certainly dead as the lease ends.
    pub(crate) fn stop_at(&self) -> BootTime {
        self.renewed_at.plus(self.ttl).minus(self.kill_budget)
    }

    /// Whether a harness may run at `now`.
    pub(crate) fn is_mine(&self, now: BootTime) -> bool {
        now < self.stop_at()
    }

    /// Whether so little is left at `now` that a renewal is better waited for.
    pub(crate) fn is_short(&self, now: BootTime) -> bool {
        let whole = self.ttl.saturating_sub(self.kill_budget);
        self.stop_at().since(now) <= whole / SHORT_PART
    }
}

/// The beats of one instance: their numbers, and which still wait for an acknowledgement.
///
/// `K` names a session.
#[derive(Debug)]
pub(crate) struct Beats<K> {
    interval: Duration,
    last_sequence: u64,
    last_sent_at: Option<BootTime>,
    outstanding: BTreeMap<u64, Sent<K>>,
}

/// A beat as it was sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Sent<K> {
    pub(crate) sent_at: BootTime,
    /// Sessions that it listed, and which its acknowledgement therefore prolongs.
    pub(crate) sessions: Vec<K>,
}

impl<K> Beats<K> {
    /// No beat yet; the first is due at once.
    pub(crate) fn new(interval: Duration) -> Self {
        Self {
            interval,
            last_sequence: 0,
            last_sent_at: None,
            outstanding: BTreeMap::new(),
        }
    }

    /// Takes the interval that the master asks for.
    pub(crate) fn set_interval(&mut self, interval: Duration) {
        self.interval = interval;
    }

    /// Notes a beat that is about to be sent and returns its number. `sent_at` must have been read
    /// before the beat leaves: an acknowledgement prolongs leases from there.
    pub(crate) fn send(&mut self, sent_at: BootTime, sessions: Vec<K>) -> u64 {
        self.last_sequence += 1;
        self.last_sent_at = Some(sent_at);
        self.outstanding
            .insert(self.last_sequence, Sent { sent_at, sessions });
        while self.outstanding.len() > MAX_OUTSTANDING {
            self.outstanding.pop_first();
        }
        self.last_sequence
    }

    /// Takes an acknowledgement. `None` where that beat is not waited for (any more). Earlier beats
    /// need none of their own from here on.
    pub(crate) fn acknowledge(&mut self, sequence: u64) -> Option<Sent<K>> {
        let later = self.outstanding.split_off(&sequence.saturating_add(1));
        let mut settled = std::mem::replace(&mut self.outstanding, later);
        settled.remove(&sequence)
    }

    /// Forgets the beats of a stream that broke: they may have been written, but nobody will say so.
    /// The next beat is due at once.
    pub(crate) fn reconnect(&mut self) {
        self.outstanding.clear();
        self.last_sent_at = None;
    }

    /// How long to wait from `now` until the next beat.
    pub(crate) fn next_in(&self, now: BootTime) -> Duration {
        match self.last_sent_at {
            Some(sent_at) => sent_at.plus(self.interval).since(now),
            None => Duration::ZERO,
        }
    }

    /// Whether a beat has waited so long for its acknowledgement that the stream must be dead.
    pub(crate) fn is_silent(&self, now: BootTime) -> bool {
        let tolerated = self.interval * SILENT_INTERVALS + SILENCE_MARGIN;
        self.outstanding
            .first_key_value()
            .is_some_and(|(_, oldest)| now.since(oldest.sent_at) > tolerated)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> BootTime {
        BootTime::new(Duration::from_secs(seconds))
    }

    fn secs(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn stopping_begins_a_kill_budget_before_the_lease_ends() {
        let tenure = Tenure::new(secs(60), secs(10), at(100));
        assert_eq!(tenure.stop_at(), at(150));
        assert!(tenure.is_mine(at(149)));
        assert!(!tenure.is_mine(at(150)), "the bound itself is too late");
    }

    #[test]
    fn renewal_counts_from_the_sending_and_never_goes_back() {
        let mut tenure = Tenure::new(secs(60), secs(10), at(100));
        tenure.renew(at(130));
        assert_eq!(tenure.stop_at(), at(180));
        tenure.renew(at(110));
        assert_eq!(tenure.stop_at(), at(180));
    }

    #[test]
    fn a_budget_over_the_ttl_allows_nothing() {
        let tenure = Tenure::new(secs(5), secs(500), at(100));
        assert!(!tenure.is_mine(at(100)));
    }

    #[test]
    fn the_last_quarter_is_short() {
        let tenure = Tenure::new(secs(50), secs(10), at(100));
        assert!(!tenure.is_short(at(129)));
        assert!(tenure.is_short(at(130)));
        assert!(tenure.is_short(at(200)));
    }

    #[test]
    fn an_acknowledgement_names_what_its_own_beat_listed() {
        let mut beats = Beats::new(secs(5));
        assert_eq!(beats.send(at(1), vec!["a"]), 1);
        assert_eq!(beats.send(at(2), vec!["a", "b"]), 2);
        let sent = beats.acknowledge(1).unwrap();
        assert_eq!((sent.sent_at, sent.sessions), (at(1), vec!["a"]));
        assert!(beats.acknowledge(1).is_none(), "known already");
        assert_eq!(beats.acknowledge(2).unwrap().sessions, vec!["a", "b"]);
    }

    #[test]
    fn an_acknowledgement_settles_the_beats_before_it() {
        let mut beats = Beats::new(secs(5));
        beats.send(at(1), vec!["a"]);
        beats.send(at(2), vec!["a"]);
        assert!(beats.acknowledge(2).is_some());
        assert!(!beats.is_silent(at(1000)));
        assert!(beats.acknowledge(1).is_none());
    }

    #[test]
    fn an_acknowledgement_of_no_beat_changes_nothing() {
        let mut beats = Beats::new(secs(5));
        beats.send(at(1), vec!["a"]);
        assert!(beats.acknowledge(0).is_none());
        assert!(beats.acknowledge(1).is_some());
        assert!(beats.acknowledge(u64::MAX).is_none());
    }

    #[test]
    fn silence_is_counted_from_the_oldest_unanswered_beat() {
        let mut beats = Beats::new(secs(5));
        beats.send(at(10), vec!["a"]);
        beats.send(at(15), vec!["a"]);
        assert!(!beats.is_silent(at(27)));
        assert!(beats.is_silent(at(28)));
    }

    #[test]
    fn beats_of_a_broken_stream_prolong_nothing() {
        let mut beats = Beats::new(secs(5));
        let sequence = beats.send(at(10), vec!["a"]);
        beats.reconnect();
        assert!(beats.acknowledge(sequence).is_none());
        assert_eq!(beats.next_in(at(10)), Duration::ZERO);
        assert_eq!(beats.send(at(11), vec!["a"]), 2, "numbers go on");
    }

    #[test]
    fn the_next_beat_is_an_interval_after_the_last() {
        let mut beats = Beats::new(secs(5));
        assert_eq!(beats.next_in(at(10)), Duration::ZERO);
        beats.send(at(10), vec!["a"]);
        assert_eq!(beats.next_in(at(12)), secs(3));
        assert_eq!(beats.next_in(at(99)), Duration::ZERO);
    }

    #[test]
    fn forgotten_beats_are_bounded() {
        let mut beats = Beats::new(secs(5));
        for _ in 0..=MAX_OUTSTANDING {
            beats.send(at(1), vec!["a"]);
        }
        assert_eq!(beats.outstanding.len(), MAX_OUTSTANDING);
        assert!(beats.acknowledge(1).is_none());
    }

    #[test]
    fn an_instant_is_read_back_as_it_was_written() {
        let instant = BootTime::new(Duration::new(12, 345));
        assert_eq!(BootTime::parse(&format!("{instant}\n")), Some(instant));
        for bad in ["", "-1", "1.5", "x"] {
            assert_eq!(BootTime::parse(bad), None, "{bad:?}");
        }
    }
}
