//! The master.
pub mod domain;
