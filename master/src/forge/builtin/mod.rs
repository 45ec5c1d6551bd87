//! The built-in forge: any git remote, and rows of our own.
//!
//! git is the authority for refs: each decision is made from what the remote says now, so that a ref that
//! a person moved is seen and respected. Issues, labels, pull requests and checks are rows of the store.
//! A write is a loop of *look, decide, act*: look at the remote, decide from what was seen alone, act
//! with the seen values expected, and look again. So an answer that was lost, a rejected push and a process
//! that was killed anywhere are all the same case: the next look finds what is true.
//!
//! What is merged: the base branch and `refs/pointsman/merged/<repository id>/<number>`, the proof, are pushed in one
//! atomic push; both are there, or neither. The proof makes a repeated merge find the first one's commit
//! however far the base branch has gone on.
//!
//! Everything is made in a bare copy of our own (`mirror`). Where a branch is checked out in a working copy on
//! this host, it moves only together with that, and only if that has no changes (`working_copy`).

mod branch;
mod checks;
mod forge;
mod items;
mod merge;
mod mirror;
mod pull_request;
mod push;
mod refs;
#[cfg(test)]
mod tests;
mod working_copy;

pub use forge::BuiltinForge;
