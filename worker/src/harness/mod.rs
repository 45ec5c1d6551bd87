//! The contract with a harness, which can be any program: how it is run, what it is told, and what it
//! must answer.
//!
//! Told by environment and prompt, answered by a JSON document in a file. Starting and stopping the
//! process is the session's and the shim's business.

pub(crate) mod environment;
pub(crate) mod profile;
pub(crate) mod prompt;
pub(crate) mod result;
