//! The master: owns the state machine, leases attempts to workers, and makes forges match.
//!
//! In reading order: `domain` is pure and decides; `store` keeps; `forge` is where issues, pull
//! requests, checks and merges live; `service` has the use cases, one transaction each.

pub mod clock;
pub mod domain;
pub mod forge;
pub mod retry;
pub mod store;
