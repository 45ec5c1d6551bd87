//! Whole-system tests: one binary, real git, real processes, real gRPC.

mod tidy;

mod rig_label;
mod rig_steps;
