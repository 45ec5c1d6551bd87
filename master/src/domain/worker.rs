//! Workers, as far as anything is decided about them as a whole.

use std::time::Duration;

use super::time::Timestamp;

/// How long after its last beat a worker counts as alive: long enough for a beat that is late, short
/// enough for a host that was replaced.
pub const ALIVE_FOR: Duration = Duration::from_secs(30);

/// What is known of a worker's life. Derived whenever it is asked for; no lease lives or dies by it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Liveness {
    /// Its last beat came within [`ALIVE_FOR`].
    Alive,
    /// Its last beat is longer ago.
    Silent,
    /// Somebody declared it dead, and it has not registered since.
    DeclaredDead,
}

/// What is known of the life of a worker that beat last at `last_beat_at`. A beat from the future, after
/// the wall clock was set back, counts as one of now.
pub fn liveness(
    last_beat_at: Timestamp,
    declared_dead_at: Option<Timestamp>,
    now: Timestamp,
) -> Liveness {
    if declared_dead_at.is_some() {
        Liveness::DeclaredDead
    } else if now.since(last_beat_at) < ALIVE_FOR {
        Liveness::Alive
    } else {
        Liveness::Silent
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_is_alive_for_30_s_after_its_last_beat_unless_declared_dead() {
        let beat = Timestamp(1_000_000);
        let edge = beat.after(ALIVE_FOR);
        assert_eq!(liveness(beat, None, Timestamp(edge.0 - 1)), Liveness::Alive);
        assert_eq!(liveness(beat, None, edge), Liveness::Silent);
        assert_eq!(liveness(beat, None, Timestamp(0)), Liveness::Alive);
        assert_eq!(liveness(beat, Some(beat), beat), Liveness::DeclaredDead);
    }
}
