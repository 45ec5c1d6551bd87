//! Who runs what.

use pointsman_proto::v1::{Role, SessionPhase};
use pointsman_tests::world::{Setup, eventually, starttime};
use serde_json::Value;

use crate::process_support::world;

#[tokio::test]
async fn a_listed_session_has_the_pid_and_the_starttime_of_the_running_harness() {
    let world = world(Setup::default()).await;
    world.follow(&world.script().gated("implementer"));
    let issue = world.submit().await;
    let run = world.run_of("implementer", 1).await;

    let session = eventually("a session with a process", async || {
        let sessions = world.sessions().await;
        sessions.into_iter().find(|s| s.subprocess_pid != 0)
    })
    .await;
    assert_eq!(session.role(), Role::Implementer);
    assert_eq!(session.phase(), SessionPhase::Running);
    assert_eq!(session.worker_name, "worker-1");
    assert_eq!(session.attempt_id, run.attempt);
    assert_eq!(session.lock_fence, run.fence);
    assert_eq!(session.subprocess_pid, run.pid);
    assert_eq!(session.subprocess_starttime, run.starttime);
    assert_eq!(starttime(run.pid), Some(session.subprocess_starttime));

    let shown: Value = world.run(["sessions", "-o", "json"]).await.json();
    let shown = &shown["sessions"][0];
    assert_eq!(shown["subprocess_pid"], run.pid);
    assert_eq!(shown["subprocess_starttime"], run.starttime);
    assert!(!shown.to_string().contains(&run.nonce), "{shown}");

    world.open("implementer");
    world.until_merged(issue).await;
    assert_eq!(world.sessions().await, []);
    world.finish().await;
}
