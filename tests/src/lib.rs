//! Placeholder.

pub mod rig;
