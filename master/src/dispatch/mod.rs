//! Between workers' calls and the store: waiting Lease calls with the claim loop that answers them, and
//! beats with the loop that writes them.
//!
//! Liveness is never decided here. A call that goes away, or a stream that breaks, means nothing: only
//! the lease's row does.

pub mod beats;
pub mod claims;
pub mod watches;
