//! The one place that knows tonic and the wire types.
//!
//! A handler converts, makes one call, and converts back; it decides nothing. `convert.rs` never
//! defaults: what is missing or unspecified is INVALID_ARGUMENT and names the field. `status.rs` is the
//! only map from errors to status codes.

mod backup;
mod convert;
mod fields;
mod fleet;
mod fleet_convert;
mod logs;
mod repository;
pub mod server;
mod settled;
mod status;
mod watching;
mod worker;
mod worker_convert;
mod workflow;

/// Largest message that is taken, in bytes. What is sent stays below it by the bounds of its parts: texts
/// are cut where they are kept, and pages and leases are few.
pub const MAX_MESSAGE_BYTES: usize = 4 * 1024 * 1024;

/// Who is named in the history for what an operator does. There is no authentication yet: a master
/// listens on loopback alone.
const OPERATOR: &str = "operator";
