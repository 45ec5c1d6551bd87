//! The state machine: pure data and pure functions.
//!
//! Owns what a workflow is, the table of its transitions, and [`decide`](decide::decide), which turns
//! an input into a decision. No I/O, no clock, no randomness and no logger in here: the instant is an
//! argument, and what is to be done comes back as data. `service/apply.rs` is the only caller of
//! `decide`; `tests/it/tidy.rs` keeps outside interfaces out.

pub mod attempt;
pub mod backoff;
pub mod ci;
pub mod decide;
pub mod decision;
pub mod effect;
pub mod hold;
pub mod ids;
pub mod policy;
pub mod retention;
pub mod succession;
mod text;
pub mod time;
pub mod transitions;
pub mod verdict;
pub mod worker;
pub mod workflow;

#[cfg(test)]
mod tests;
