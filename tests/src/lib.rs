//! Two ways to build a whole Pointsman for a test: `world` from real processes, `rig` inside of one,
//! with time, chance and failures in the test's hand.

pub mod rig;
pub mod world;
