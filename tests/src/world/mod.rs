//! A whole Pointsman of its own for one test: processes, real git, real gRPC.
//!
//! Master and workers are started as anybody starts them, from a configuration file in a temporary
//! directory, on an address that nobody else has. The harness is a program that follows a script
//! ([`Script`]); the remote is a bare repository whose hooks can hold a push up, refuse it, or kill the
//! master in the middle of it ([`Remote`]). Nothing is looked at but what a person could look at too:
//! the RPCs, the files on disk, `/proc`, and git.
//!
//! A world leaves nothing behind: whatever runs is killed when it is dropped, and a process that is
//! still there afterwards fails the test. In-process tests, with time in their hand, are in `rig`.

mod api;
mod condition;
mod config;
mod history;
mod leftovers;
mod process;
mod remote;
mod script;
mod setup;
mod story;
#[expect(
    clippy::module_inception,
    reason = "the type of that name is what the module is about"
)]
mod world;

pub use api::Api;
pub use condition::{PATIENCE, eventually, eventually_within};
pub use leftovers::{Found, is_alive, processes_in, starttime};
pub use process::{Ended, Process};
pub use remote::{BASE, Hook, Push, Remote};
pub use script::{Invocation, Script, Step, follow};
pub use setup::{Programs, Setup, WorkerSetup, lease_ttl};
pub use story::{Story, Tale};
pub use world::{CommandLine, REPOSITORY, World};
