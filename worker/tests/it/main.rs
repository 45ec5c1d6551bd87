//! The worker as a process: its shim, its janitor, and the agent against a master that is a fake.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod agent;
mod fake_master;
mod janitor;
mod shim;
mod support;
