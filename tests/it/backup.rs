//! A backup of a busy master, and a master on what was restored from it.

use std::{
    fs,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use pointsman_tests::world::{Setup, eventually};
use sqlx::Connection as _;

use crate::process_support::{programs, world};

#[tokio::test]
async fn a_backup_of_a_busy_master_is_whole_and_goes_on() {
    let mut world = world(Setup::default()).await;
    world.follow(&world.script().gated("implementer"));
    let issue = world.submit().await;
    world.run_of("implementer", 1).await;
    let file = world.path("backup.db");
    let name = file.to_string_lossy().into_owned();
    // Writers go on meanwhile.
    let backup = world.run(["backup", name.as_str()]);
    let writers = async {
        for _ in 0..3 {
            let submit = ["submit", "demo", "--title", "Another", "--unlabelled"];
            let output = world.run(submit).await;
            output.text();
        }
    };
    let (output, ()) = tokio::join!(backup, writers);
    assert!(output.text().contains("SHA-256"), "{output:?}");
    let metadata = fs::metadata(&file).expect("the backup");
    assert_eq!(metadata.permissions().mode() & 0o777, 0o600);
    assert!(metadata.size() > 0);

    let again = world.run(["backup", name.as_str()]).await;
    assert_eq!(again.status, Some(2), "{again:?}");
    assert!(again.stderr.contains("--force"), "{again:?}");
    let forced = world
        .run(["backup", "--force", "-o", "json", name.as_str()])
        .await;
    let forced: serde_json::Value = forced.json();
    assert_eq!(forced["size_bytes"], fs::metadata(&file).unwrap().size());
    // Neither here nor at the master is anything left of it.
    for directory in [world.path(""), world.path("master")] {
        let entries = fs::read_dir(directory).expect("a directory");
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let left: Vec<String> = names
            .filter(|name| name.ends_with(".unfinished") || name.ends_with(".snapshot"))
            .collect();
        assert_eq!(left, [""; 0]);
    }

    let options = sqlx::sqlite::SqliteConnectOptions::new().filename(&file);
    let mut copy = sqlx::SqliteConnection::connect_with(&options)
        .await
        .unwrap();
    let checked: String = sqlx::query_scalar("PRAGMA integrity_check")
        .fetch_one(&mut copy)
        .await
        .unwrap();
    assert_eq!(checked, "ok");
    copy.close().await.unwrap();

    // As docs/operations.md says. The lease is of before the backup, so its worker goes on with it.
    world.kill_master().await;
    let database = world.path("master").join("pointsman.db");
    for suffix in ["-wal", "-shm"] {
        let mut path = database.clone().into_os_string();
        path.push(suffix);
        drop(fs::remove_file(path));
    }
    fs::rename(&file, &database).unwrap();
    world.start_master().await;
    world.open("implementer");
    world.until_merged(issue).await;
    world.finish().await;
}

#[tokio::test]
async fn an_interrupted_backup_leaves_nothing() {
    let mut world = world(Setup::default().with_workers([])).await;
    let directory = world.path("backups");
    fs::create_dir(&directory).unwrap();
    let file = directory.join("backup.db");
    let name = file.to_string_lossy().into_owned();
    // The master hangs, so that the command waits for its bytes.
    world.master().signal(Signal::SIGSTOP);
    let mut backup = tokio::process::Command::new(programs().pointsman)
        .args(["backup", name.as_str()])
        .env("POINTSMAN_ADDRESS", world.url())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    eventually("an unfinished file", async || {
        fs::read_dir(&directory).unwrap().next().map(|_| ())
    })
    .await;
    assert!(!file.exists());
    let pid = i32::try_from(backup.id().unwrap()).unwrap();
    kill(Pid::from_raw(pid), Signal::SIGINT).unwrap();
    let ended = backup.wait().await.unwrap();
    assert_eq!(ended.code(), Some(1));
    assert_eq!(fs::read_dir(&directory).unwrap().count(), 0);
    world.master().signal(Signal::SIGCONT);
    // The next one works.
    let output = world.run(["backup", name.as_str()]).await;
    output.text();
    assert!(file.exists());
    world.finish().await;
}
