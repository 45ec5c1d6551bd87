//! What harnesses print, from their processes to whoever reads it, whoever dies on the way.

use std::time::Duration;

use pointsman_proto::v1::{
    Role, TailLogRequest, TailLogResponse,
    tail_log_request::From,
    tail_log_response::{End, Part},
};
use pointsman_tests::world::{Setup, Step, World};
use serde_json::Value;
use tokio::time::timeout;
use tonic::Streaming;

use crate::process_support::world;

/// A deadline for what comes by itself.
const SOON: Duration = Duration::from_secs(60);

/// A well-formed id of nothing.
const NOBODY: &str = "01890000-0000-7000-8000-000000000000";

/// Reads a log, part by part.
struct Reader(Streaming<TailLogResponse>);

impl Reader {
    async fn open(world: &World, attempt: &str, fence: u64, from: u64, follow: bool) -> Self {
        let request = TailLogRequest {
            attempt_id: attempt.to_owned(),
            lock_fence: fence,
            from: Some(From::Offset(from)),
            follow,
        };
        let answer = world.api.workflows.clone().tail_log(request).await;
        Self(answer.expect("a log is read").into_inner())
    }

    async fn next(&mut self) -> Part {
        let message = timeout(SOON, self.0.message()).await.expect("a part comes");
        let message = message.expect("the stream lives").expect("a last part");
        message.part.expect("a part")
    }

    /// The text up to `last`.
    async fn until(&mut self, last: &str) -> String {
        let mut text = String::new();
        while !text.ends_with(last) {
            match self.next().await {
                Part::Chunk(chunk) => text.push_str(&String::from_utf8_lossy(&chunk.data)),
                Part::Start(_) => {}
                Part::End(end) => panic!("it ends before {last:?}: {text:?}, {end:?}"),
            }
        }
        text
    }

    /// All that is left, and the end.
    async fn rest(mut self) -> (String, End) {
        let mut text = String::new();
        loop {
            match self.next().await {
                Part::Chunk(chunk) => text.push_str(&String::from_utf8_lossy(&chunk.data)),
                Part::Start(_) => {}
                Part::End(end) => return (text, end),
            }
        }
    }
}

fn print(line: &str) -> Step {
    Step::Print(line.to_owned())
}

fn wait_for(gate: &str) -> Step {
    Step::WaitFor(gate.to_owned())
}

/// A plan that prints and waits, and then changes something.
fn slow(steps: impl IntoIterator<Item = Step>) -> Vec<Step> {
    steps.into_iter().chain(Step::change("work.txt")).collect()
}

#[tokio::test]
async fn a_follower_sees_each_line_before_the_harness_goes_on_and_the_log_outlives_the_worker() {
    let setup = Setup {
        ci: "echo checked".to_owned(),
        ..Setup::default()
    };
    let mut world = world(setup).await;
    let implementer = slow([
        print("line 1"),
        wait_for("one"),
        print("line 2"),
        wait_for("two"),
    ]);
    let estimator = vec![print("estimated"), Step::ready()];
    let script = world.script().with("implementer", [implementer]);
    world.follow(&script.with("estimator", [estimator]));
    let issue = world.submit().await;
    let item = format!("demo#{issue}");

    let on_the_command_line = world.run(["logs", &item, "-f"]);
    let by_rpc = async {
        let run = world.run_of("implementer", 1).await;
        let mut reader = Reader::open(&world, &run.attempt, 0, 0, true).await;
        assert_eq!(reader.until("line 1\n").await, "line 1\n");
        world.open("one");
        assert_eq!(reader.until("line 2\n").await, "line 2\n");
        world.open("two");
        let (text, end) = reader.rest().await;
        assert_eq!(text, "");
        assert!(end.is_complete && !end.is_cut, "{end:?}");
    };
    let (followed, ()) = tokio::join!(on_the_command_line, by_rpc);
    let text = followed.text();
    assert!(text.ends_with("line 1\nline 2\n"), "{followed:?}");
    assert!(
        followed.stderr.contains("(IMPLEMENTER), lease 1"),
        "{followed:?}"
    );

    let tale = world.until_merged(issue).await;
    world.stop_worker("worker-1").await;
    let printed = world.run(["logs", &item]).await;
    assert_eq!(printed.text(), "line 1\nline 2\n");
    let tail = world.run(["logs", &item, "--tail", "7"]).await;
    assert_eq!(tail.text(), "line 2\n");
    // A check has a log as well.
    let check = tale.pull_request.attempts_of(Role::Ci)[0].id.clone();
    assert_eq!(world.run(["logs", &check]).await.text(), "checked\n");
    let lines = world.run(["logs", "--attempt", &check, "-o", "json"]).await;
    let lines: Vec<Value> = lines
        .text()
        .lines()
        .map(|line| serde_json::from_str(line).expect("a line is JSON"))
        .collect();
    assert_eq!(
        (&lines[0]["offset"], &lines[0]["text"]),
        (&0.into(), &"checked\n".into())
    );
    assert_eq!(lines[1]["end"]["is_complete"], true);
    let nothing = world.run(["logs", "--attempt", NOBODY]).await;
    assert_eq!(nothing.status, Some(3), "{nothing:?}");
    world.finish().await;
}

#[tokio::test]
async fn what_a_killed_master_and_a_killed_worker_had_acknowledged_is_there() {
    let mut world = world(Setup::default()).await;
    world.forgive_errors();
    let first = [
        print("before"),
        wait_for("one"),
        print("during"),
        wait_for("never"),
    ];
    let plans = [slow(first), slow([print("again")])];
    world.follow(&world.script().with("implementer", plans));
    let issue = world.submit().await;
    let run = world.run_of("implementer", 1).await;
    let mut reader = Reader::open(&world, &run.attempt, 0, 0, true).await;
    reader.until("before\n").await;

    world.kill_master().await;
    world.open("one");
    world.start_master().await;
    let mut reader = Reader::open(&world, &run.attempt, run.fence, 7, true).await;
    assert_eq!(reader.until("during\n").await, "during\n");

    world.kill_worker("worker-1").await;
    world.start_worker("worker-1").await;
    let (text, end) = reader.rest().await;
    assert_eq!((text.as_str(), end.is_complete), ("", false));
    let again = world.run_of("implementer", 2).await;
    assert_eq!(again.attempt, run.attempt);
    world.until_merged(issue).await;
    let log = |fence| Reader::open(&world, &run.attempt, fence, 0, false);
    let (old, _) = log(run.fence).await.rest().await;
    assert_eq!(old, "before\nduring\n");
    let (new, end) = log(0).await.rest().await;
    assert_eq!((new.as_str(), end.is_complete), ("again\n", true));
    world.finish().await;
}

#[tokio::test]
async fn a_flood_is_cut_and_neither_the_attempt_nor_the_master_suffers() {
    const FLOOD: u64 = 200 * 1024 * 1024;
    const KEPT: u64 = 4 * 1024 * 1024;
    const ROOM_KIB: u64 = 64 * 1024;

    let setup = Setup::default()
        .with_master_variable("POINTSMAN_MASTER__LOGS__MAX_BYTES", &KEPT.to_string());
    let mut world = world(setup).await;
    world.follow(
        &world
            .script()
            .with("implementer", [slow([Step::Flood(FLOOD)])]),
    );
    let master = world.master().pid();
    let before = peak_kib(master);
    let issue = world.submit().await;
    world.until_merged(issue).await;

    let grown = peak_kib(master) - before;
    assert!(grown < ROOM_KIB, "the master grew by {grown} KiB");
    let run = world.run_of("implementer", 1).await;
    let (text, end) = Reader::open(&world, &run.attempt, 0, 0, true)
        .await
        .rest()
        .await;
    assert!(end.is_complete && end.is_cut, "{end:?}");
    assert_eq!(end.total_bytes, FLOOD);
    let (log, mark) = text.split_at(usize::try_from(KEPT).unwrap());
    assert!(log.starts_with("flood flood"));
    assert!(
        mark.contains(&format!("the log is cut here, after {KEPT} bytes")),
        "{mark}"
    );
    world.finish().await;
}

/// The most memory that a process ever had, in KiB.
fn peak_kib(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status
        .lines()
        .find(|line| line.starts_with("VmHWM:"))
        .unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}
