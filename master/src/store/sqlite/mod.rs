//! SQLite: the embedded default, one master a database.
//!
//! One writer connection, owned by one task that makes the transactions which wait for it durable in
//! groups (`writer.rs`), and a few readers that can't write. A file lock beside the database
//! keeps a second master, and a second migration, out. The clock that is injected is the database's
//! clock. Statements are constants beside their use; `sql.rs` lists them all. Not here: what is decided on
//! what is read. Written down in `design/storage.md`.

mod attempts;
mod beats;
mod checks;
mod claim;
mod comments;
mod deadline;
mod effects;
mod error;
mod events;
mod forge;
mod history;
mod holds;
mod leases;
mod lock;
mod migrate;
#[cfg(test)]
mod migration_tests;
mod open;
mod reads;
mod repositories;
mod rows;
mod snapshot;
#[cfg(test)]
mod snapshot_tests;
mod sql;
mod stats;
mod sweeps;
#[cfg(test)]
mod tests;
mod tx;
mod workers;
mod workflows;
mod writer;
#[cfg(test)]
mod writer_tests;

pub use open::SqliteStore;
