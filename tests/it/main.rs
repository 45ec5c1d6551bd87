//! Whole-system tests: one binary, real git, real processes, real gRPC.

mod master_death;
mod process_support;
mod sessions;
mod worker_death;

mod opening;
mod tidy;

mod rig_ci;
mod rig_heads;
mod rig_label;
mod rig_reaper;
mod rig_rpc;
mod rig_steps;
mod rig_workers;
