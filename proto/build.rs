//! Compiles the contract without a system protobuf compiler, and keeps the descriptor set for
//! reflection.

use std::{env, error::Error, fs, path::PathBuf};

use prost::Message;

const FILES: [&str; 5] = [
    "pointsman/v1/common.proto",
    "pointsman/v1/worker.proto",
    "pointsman/v1/repository.proto",
    "pointsman/v1/workflow.proto",
    "pointsman/v1/fleet.proto",
];

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=pointsman");
    let descriptors = protox::compile(FILES, ["."])?;
    let out = env::var_os("OUT_DIR")
        .map(PathBuf::from)
        .ok_or("OUT_DIR is not set")?;
    fs::write(out.join("descriptors.bin"), descriptors.encode_to_vec())?;
    tonic_prost_build::configure().compile_fds(descriptors)?;
    Ok(())
}
