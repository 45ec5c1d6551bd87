//! The master: owns the state machine, leases attempts to workers, and makes forges match.
//!
//! In reading order: `domain` is pure and decides; `store` keeps; `forge` is where issues, pull
//! requests, checks and merges live; `service` has the use cases, one transaction each; `dispatch` hands
//! out leases and writes beats; `sweeps` feed the state machine; `grpc` is the wire. `app` puts them
//! together, and `lifecycle` runs them.

pub mod domain;
pub mod store;
pub mod forge;
pub mod service;
pub mod dispatch;
pub mod sweeps;
pub mod grpc;
pub mod app;
pub mod clock;
pub mod config;
pub mod lifecycle;
mod retry;
mod telemetry;

pub use config::Args;
pub use lifecycle::run;
