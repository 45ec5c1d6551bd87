//! Waiting for a condition, with a deadline.

use std::{
    future::Future,
    time::{Duration, Instant},
};

/// Longest that any condition may take: far more than it should, since test machines are busy.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Between two looks.
const PAUSE: Duration = Duration::from_millis(20);

/// Returns what `look` finds, once it finds something.
///
/// # Panics
/// Where it finds nothing within [`PATIENCE`].
pub async fn eventually<T, F>(what: &str, look: impl FnMut() -> F) -> T
where
    F: Future<Output = Option<T>>,
{
    eventually_within(PATIENCE, what, look).await
}

/// As [`eventually`], with another deadline.
///
/// # Panics
/// Where `look` finds nothing within `patience`.
pub async fn eventually_within<T, F>(
    patience: Duration,
    what: &str,
    mut look: impl FnMut() -> F,
) -> T
where
    F: Future<Output = Option<T>>,
{
    let deadline = Instant::now() + patience;
    loop {
        if let Some(found) = look().await {
            return found;
        }
        assert!(
            Instant::now() < deadline,
            "within {} s never came: {what}",
            patience.as_secs()
        );
        tokio::time::sleep(PAUSE).await;
    }
}

/// A pause of a thread between two looks, for code that can't be asynchronous.
#[expect(
    clippy::disallowed_methods,
    reason = "between two looks at a condition"
)]
pub(super) fn pause() {
    std::thread::sleep(PAUSE);
}
