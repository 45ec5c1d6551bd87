//! What the tests with processes start from.

use std::path::PathBuf;

use pointsman_tests::world::{Programs, Setup, World};

/// The programs that this build has made.
pub(crate) fn programs() -> Programs {
    Programs {
        pointsman: PathBuf::from(env!("CARGO_BIN_EXE_pointsman-under-test")),
        stub_harness: PathBuf::from(env!("CARGO_BIN_EXE_stub-harness")),
    }
}

/// A world in which a master and its workers run.
pub(crate) async fn world(setup: Setup) -> World {
    World::start(programs(), setup).await
}

/// A number that whoever runs the tests has set.
pub(crate) fn number(name: &str) -> Option<u64> {
    let (_, value) = std::env::vars().find(|(key, _)| key == name)?;
    Some(value.parse().expect("a number"))
}
