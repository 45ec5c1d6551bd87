//! The one source of new ids.

use uuid::Uuid;

/// A random id.
#[expect(clippy::disallowed_methods, reason = "the worker's generator")]
pub(crate) fn random() -> Uuid {
    Uuid::new_v4()
}
