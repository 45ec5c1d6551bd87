//! The master: owns the state machine, leases attempts to workers, and makes forges match.
//!
//! In reading order: `domain` is pure and decides; `store` keeps; `forge` is where issues, pull
//! requests, checks and merges live; `service` has the use cases, one transaction each; `dispatch` hands
//! out leases and writes beats; `sweeps` feed the state machine; `grpc` is the wire. `app` puts them
//! together, and `lifecycle` runs them.

pub mod app;
pub mod clock;
pub mod config;
pub mod dispatch;
pub mod domain;
pub mod forge;
pub mod grpc;
pub mod lifecycle;
pub mod logs;
mod retry;
pub mod service;
pub mod store;
pub mod sweeps;
mod telemetry;

pub use config::Args;
pub use lifecycle::run;
