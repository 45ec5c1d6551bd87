//! A master whose disk is full, and has room again: a small file system in a namespace of its own.
//!
//! Where the host allows no such namespace, the store's own tests with a bounded number of pages carry it.

use std::{
    fs::{self, File},
    io::Write as _,
    os::unix::fs::PermissionsExt as _,
    path::Path,
};

use pointsman_tests::world::{Programs, Setup, World, eventually};
use tonic_health::pb::health_check_response::ServingStatus;

use crate::process_support::programs;

/// Runs a master with a file system of 24 MB as its state directory; every other command as it is.
const ON_A_SMALL_DISK: &str = r#"#!/bin/sh
[ "$1" = master ] || exec PROGRAM "$@"
exec unshare --user --map-root-user --mount sh -c '
    state=$(dirname "$3")/master
    mkdir -p "$state" && mount -t tmpfs -o size=24m small "$state" && exec PROGRAM "$@"
' sh "$@"
"#;

fn on_a_small_disk(directory: &Path) -> Programs {
    let programs = programs();
    let script = directory.join("pointsman");
    let program = programs.pointsman.to_string_lossy();
    fs::write(&script, ON_A_SMALL_DISK.replace("PROGRAM", &program)).unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    Programs {
        pointsman: script,
        ..programs
    }
}

async fn may_have_a_small_disk() -> bool {
    let command = "mount -t tmpfs -o size=1m small /mnt";
    let mut unshare = tokio::process::Command::new("unshare");
    unshare.args(["--user", "--map-root-user", "--mount", "sh", "-c", command]);
    unshare.status().await.is_ok_and(|status| status.success())
}

/// Opens an issue with a large text; whether it was taken.
async fn submit(world: &World, n: usize) -> Result<(), String> {
    let (title, body) = (format!("Issue {n}"), "x".repeat(60_000));
    let arguments = [
        "submit",
        "demo",
        "--title",
        title.as_str(),
        "--body",
        body.as_str(),
    ];
    let output = world.run(arguments).await;
    match output.status {
        Some(0) => Ok(()),
        Some(5) => Err(output.stderr),
        _ => panic!("{output:?}"),
    }
}

#[tokio::test]
async fn a_full_disk_is_told_and_passes() {
    if !may_have_a_small_disk().await {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let setup = Setup::default().with_workers([]);
    let mut world = World::start(on_a_small_disk(directory.path()), setup).await;
    world.forgive_errors();
    submit(&world, 0).await.unwrap();
    let pid = world.master().pid();
    let state = world.path("master");
    let seen_by_it = format!("/proc/{pid}/root{}", state.display());
    let filler = Path::new(&seen_by_it).join("filler");
    let mut fills = File::create(&filler).unwrap();
    while fills.write_all(&[1; 4096]).is_ok() {}
    drop(fills);

    let mut taken = 1;
    let refused = loop {
        match submit(&world, taken).await {
            Ok(()) => taken += 1,
            Err(refused) => break refused,
        }
        assert!(taken < 400, "the disk does not fill up");
    };
    assert!(refused.contains("the database's disk is full"), "{refused}");
    eventually("not ready", async || {
        let health = world.api.health("pointsman.ready").await;
        (health == Some(ServingStatus::NotServing)).then_some(())
    })
    .await;
    // It lives, and reads.
    assert_eq!(world.api.health("").await, Some(ServingStatus::Serving));
    assert_eq!(world.workflows().await.unwrap().len(), taken);
    for _ in 0..3 {
        submit(&world, taken).await.unwrap_err();
    }

    fs::remove_file(&filler).unwrap();
    eventually("ready again", async || {
        let health = world.api.health("pointsman.ready").await;
        (health == Some(ServingStatus::Serving)).then_some(())
    })
    .await;
    submit(&world, taken).await.unwrap();
    // What was taken is there, and nothing of what was refused.
    assert_eq!(world.workflows().await.unwrap().len(), taken + 1);
    let log = world.log("master");
    assert_eq!(
        log.matches("writes to the database fail").count(),
        1,
        "{log}"
    );
    assert_eq!(log.matches("writes to the database work again").count(), 1);
    world.finish().await;
}

#[tokio::test]
async fn a_read_only_directory_is_told_at_start() {
    if !may_have_a_small_disk().await {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let program = programs().pointsman;
    let state = directory.path().join("state");
    let run = "mount -t tmpfs -o ro small \"$2\" && exec \"$1\" master --state-dir \"$2\" --listen 127.0.0.1:0";
    fs::create_dir(&state).unwrap();
    let mut unshare = tokio::process::Command::new("unshare");
    unshare
        .args([
            "--user",
            "--map-root-user",
            "--mount",
            "sh",
            "-c",
            run,
            "sh",
        ])
        .args([program.as_os_str(), state.as_os_str()]);
    let output = unshare.output().await.unwrap();
    assert!(!output.status.success(), "{output:?}");
    let said = String::from_utf8_lossy(&output.stderr).into_owned()
        + &String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("the database is read-only"), "{said}");
    assert!(said.contains("set another state_dir"), "{said}");
}
