//! Whole-system tests: one binary, real git, real processes, real gRPC.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
#![expect(
    clippy::large_futures,
    reason = "a test holds a whole master in one future, once"
)]

mod backup;
mod checks;
mod command_line;
mod demo;
mod documents;
mod fleet;
mod following;
mod foreign_client;
mod frozen;
mod full_disk;
mod harness_classes;
mod logs;
mod many;
mod master_death;
mod paused;
mod pickups;
mod process_support;
mod random;
mod rounds;
mod sessions;
mod up;
mod worker_death;

mod opening;
mod tidy;

mod rig_absences;
mod rig_attempts;
mod rig_checks;
mod rig_ci;
mod rig_fleet;
mod rig_heads;
mod rig_holds;
mod rig_items;
mod rig_label;
mod rig_logs;
mod rig_merging;
mod rig_places;
mod rig_properties;
mod rig_public;
mod rig_reaper;
mod rig_retention;
mod rig_rounds;
mod rig_rpc;
mod rig_steps;
mod rig_succession;
mod rig_waiting;
mod rig_watch;
mod rig_workers;
