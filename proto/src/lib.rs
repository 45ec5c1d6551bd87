//! The wire contract between masters, workers and operators, and nothing else.
//!
//! The `.proto` files under `pointsman/v1` are the source and carry the prose: who sends what first,
//! what silence means, which bounds hold. This crate includes the generated types and the descriptor
//! set that server reflection needs. It has no logic and no conversions: those live in
//! `master/src/grpc/convert.rs` and `worker/src/master.rs`.

/// Package `pointsman.v1`.
pub mod v1 {
    #![allow(
        clippy::all,
        clippy::allow_attributes,
        unreachable_pub,
        reason = "generated code"
    )]
    tonic::include_proto!("pointsman.v1");
}

/// The compiled descriptor set, for server reflection.
pub const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin"));
