//! What leaves after its time, and what stays however old it is.

use std::{
    collections::BTreeMap,
    io::Write as _,
    time::{Duration, UNIX_EPOCH},
};

use pointsman_master::{
    clock::Clock,
    domain::{
        attempt::{InfrastructureClass, Role},
        ids::{AttemptId, CommitId, WorkflowId},
        policy::Policy,
        retention::LEASE_REF_GRACE,
        transitions::State,
        verdict::Verdict,
    },
    service::Grant,
    sweeps::{Report, Sweep},
};
use pointsman_tests::rig::{BASE, FakeWorker, HISTORY, LOGS, Rig, faulty_store::Loss};
use serde_json::Value;

const SECOND: Duration = Duration::from_secs(1);

async fn sweep(rig: &Rig) -> Report {
    rig.master.retention.run_once().await.expect("it runs")
}

/// A pull request of ours that is merged.
async fn merged(rig: &Rig) -> (FakeWorker, WorkflowId) {
    let worker = FakeWorker::registered(rig, "w").await;
    let id = rig.pull_request_in(&worker, State::Merging).await;
    rig.carry_out().await;
    assert_eq!(rig.state(id).await, State::Merged);
    (worker, id)
}

/// An issue whose workflow has ended without a change.
async fn declined(rig: &Rig) -> WorkflowId {
    let worker = FakeWorker::registered(rig, "w").await;
    let id = rig.submit("no").await;
    let grant = rig.leased(&worker, id, Role::Estimator).await;
    let verdict = Verdict::Declined {
        reason: "no".to_owned(),
    };
    worker.say(rig, &grant, verdict).await;
    assert_eq!(rig.state(id).await, State::Abandoned);
    id
}

/// What the history of all workflows has, by workflow: kind and key of each row.
async fn rows(rig: &Rig) -> BTreeMap<WorkflowId, Vec<String>> {
    let mut all = BTreeMap::new();
    for row in rig.workflows().await {
        let id = row.workflow.id;
        let mut rows = Vec::new();
        let mut keep = |kind: &str, key: String| rows.push(format!("{kind} {key}"));
        for event in rig.store.events(Some(id), 0, 100_000).await.unwrap() {
            keep("event", event.sequence.to_string());
        }
        for attempt in rig.store.attempts_of(id, 1000).await.unwrap() {
            keep("attempt", attempt.attempt.id.to_string());
        }
        if let Some(head) = &row.workflow.progress().head {
            for check in rig.store.check_runs(id, head).await.unwrap() {
                keep("check", check.id.to_string());
            }
        }
        rows.sort();
        all.insert(id, rows);
    }
    all
}

fn kind_and_key(line: &str) -> String {
    let row: Value = serde_json::from_str(line).expect("a line is JSON");
    let kind = row["kind"].as_str().expect("it has a kind");
    let key = match kind {
        "event" => row["sequence"].to_string(),
        _ => row["id"].as_str().expect("it has an id").to_owned(),
    };
    format!("{kind} {key}")
}

/// Rows that are not in the lines exactly once.
fn faults(rows: &[String], lines: &[String]) -> Vec<String> {
    let archived: Vec<String> = lines.iter().map(|line| kind_and_key(line)).collect();
    let times = |row: &String| archived.iter().filter(|a| *a == row).count();
    let wrong = rows.iter().filter(|row| times(row) != 1);
    wrong.cloned().collect()
}

async fn check_archived(rig: &Rig, before: &BTreeMap<WorkflowId, Vec<String>>) {
    for (id, rows) in before {
        let lines = rig.archive().lines(*id).await.expect("it is read");
        assert_eq!(faults(rows, &lines), Vec::<String>::new(), "of {id}");
    }
    for (id, left) in self::rows(rig).await {
        assert_eq!(left, Vec::<String>::new(), "left of {id}");
    }
}

#[tokio::test]
async fn old_history_moves_to_the_archive_and_nothing_younger() {
    let rig = Rig::new().await;
    let (_worker, id) = merged(&rig).await;
    let before = rows(&rig).await;
    assert_eq!(before.len(), 2, "the issue's and the pull request's");
    rig.advance(HISTORY - SECOND);
    sweep(&rig).await;
    assert_eq!(rows(&rig).await, before, "it is not old enough");
    assert_eq!(rig.row(id).await.archived_at, None);

    rig.advance(SECOND + SECOND);
    assert!(sweep(&rig).await.changed > 0);
    check_archived(&rig, &before).await;
    let row = rig.row(id).await;
    assert!(row.archived_at.is_some(), "it says so");
    assert_eq!(row.workflow.state(), State::Merged, "the row stays");
    assert_eq!(rig.view(id).await.events, []);
    let again = sweep(&rig).await;
    assert_eq!((again.changed, again.failed), (0, 0), "{again:?}");
}

#[test]
fn the_check_of_the_archive_can_fail() {
    let line = |n: u32| format!(r#"{{"kind":"event","sequence":{n}}}"#);
    let rows = ["event 1".to_owned(), "event 2".to_owned()];
    assert_eq!(faults(&rows, &[line(1), line(2)]), Vec::<String>::new());
    assert_eq!(faults(&rows, &[line(1)]), ["event 2"], "one is lost");
    assert_eq!(
        faults(&rows, &[line(1), line(2), line(1)]),
        ["event 1"],
        "one is there twice"
    );
}

/// Killed at each of its writes, before it or after it: the next run ends in the same place.
#[tokio::test]
async fn a_run_that_is_killed_anywhere_loses_and_doubles_nothing() {
    for loss in [Loss::Before, Loss::After] {
        for n in 1.. {
            let mut rig = Rig::new().await;
            declined(&rig).await;
            let before = rows(&rig).await;
            rig.advance(HISTORY + SECOND);
            rig.faults.fail(rig.faults.writes() + n, loss);
            // The run that meets the failure; a store that fails ends it, or fails one row.
            let killed = rig.master.retention.run_once().await;
            let was_due = rig.faults.is_due();
            rig.crash();
            sweep(&rig).await;
            check_archived(&rig, &before).await;
            assert_eq!(sweep(&rig).await.changed, 0);
            if was_due {
                assert!(killed.is_ok(), "without a failure it runs to its end");
                assert!(n > 2, "there were writes to fail");
                break;
            }
        }
    }
}

#[tokio::test]
async fn what_is_live_or_waits_for_a_person_stays_however_old() {
    let rig = Rig::with(Policy {
        max_pickups: 1,
        ..Policy::default()
    })
    .await;
    let worker = FakeWorker::registered(&rig, "w").await;
    let stuck = rig.submit("stuck").await;
    let grant = rig.leased(&worker, stuck, Role::Estimator).await;
    worker
        .fail(&rig, &grant, InfrastructureClass::Crashed)
        .await;
    assert_eq!(rig.state(stuck).await, State::Stuck);
    rig.submit("live").await;
    let before = rows(&rig).await;
    rig.advance(HISTORY * 10);
    assert_eq!(sweep(&rig).await.changed, 1, "the repository's own events");
    let others = rig.archive().other_lines().await.expect("it is read");
    assert!(
        others
            .iter()
            .all(|line| line.contains(r#""workflow_id":null"#))
    );
    assert!(!others.is_empty());
    assert_eq!(rows(&rig).await, before);
}

/// Has the holder of a lease print something.
async fn print(rig: &Rig, worker: &FakeWorker, grant: &Grant) {
    let key = grant.lease.key;
    let upload = rig.service().upload_log(worker.row.id, key).await;
    let mut upload = upload.expect("it is admitted");
    let said = upload.chunk(0, "hello".into()).await;
    said.expect("it is kept");
}

/// Attempts that have logs.
async fn logged(rig: &Rig) -> Vec<AttemptId> {
    let attempts = rig.service().logged_attempts(None, 100).await;
    attempts.expect("they are listed")
}

/// Makes the parts of a log, written now by the rig's clock.
fn write_parts(rig: &Rig, attempt: AttemptId, names: &[&str]) {
    let place = rig
        .logs()
        .join(format!("{attempt}/00000000000000000001-{attempt}"));
    std::fs::create_dir_all(&place).expect("a directory is made");
    let now = u64::try_from(rig.clock.now().0).expect("it is after 1970");
    for name in names {
        let mut file = std::fs::File::create(place.join(name)).expect("a part is made");
        file.write_all(b"hello").expect("it is written");
        file.set_modified(UNIX_EPOCH + Duration::from_micros(now))
            .expect("its time is set");
    }
}

/// Of three attempts one ends; one waits for its next lease, and one runs.
#[tokio::test]
async fn logs_go_after_their_time_and_never_those_of_what_is_live() {
    let rig = Rig::new().await;
    let worker = FakeWorker::registered(&rig, "w").await;
    let grants = async |title: &str| {
        let id = rig.submit(title).await;
        rig.leased(&worker, id, Role::Estimator).await
    };
    let (ended, waiting) = (grants("ended").await, grants("waiting").await);
    let running = grants("running").await;
    for grant in [&ended, &waiting, &running] {
        print(&rig, &worker, grant).await;
    }
    let reason = "no".to_owned();
    worker.say(&rig, &ended, Verdict::Declined { reason }).await;
    worker
        .fail(&rig, &waiting, InfrastructureClass::Crashed)
        .await;
    let live = [waiting.lease.key.attempt, running.lease.key.attempt];
    rig.advance(LOGS);
    assert_eq!(sweep(&rig).await.changed, 0);
    assert_eq!(logged(&rig).await.len(), 3, "not old enough yet");

    rig.advance(SECOND);
    assert_eq!(sweep(&rig).await.changed, 1);
    assert_eq!(logged(&rig).await, live);
    rig.advance(LOGS);
    assert_eq!(sweep(&rig).await.changed, 0);
    assert_eq!(logged(&rig).await, live, "however old they are");
}

#[tokio::test]
async fn logs_whose_attempt_nobody_knows_go_after_their_last_write() {
    let rig = Rig::new().await;
    let unknown = AttemptId(rig.chance.next());
    write_parts(&rig, unknown, &["00000000000000000000"]);
    rig.advance(LOGS - SECOND);
    // Its second part.
    write_parts(&rig, unknown, &["00000000000000000005"]);
    rig.advance(LOGS);
    assert_eq!(sweep(&rig).await.changed, 0);
    assert_eq!(logged(&rig).await, [unknown]);
    rig.advance(SECOND);
    assert_eq!(sweep(&rig).await.changed, 1);
    assert_eq!(logged(&rig).await, []);
}

/// A run that is killed within a log leaves any of its parts, or the bare directory.
#[tokio::test]
async fn what_a_killed_run_leaves_of_a_log_is_deleted_by_the_next() {
    let parts = ["00000000000000000000", "00000000000000000005", "end"];
    let rig = Rig::new().await;
    for left in 0..8_usize {
        let attempt = AttemptId(rig.chance.next());
        let kept: Vec<&str> = (0..3)
            .filter(|n| left & (1 << n) != 0)
            .map(|n| parts[n])
            .collect();
        write_parts(&rig, attempt, &kept);
    }
    rig.advance(LOGS + SECOND);
    let report = sweep(&rig).await;
    assert_eq!((report.changed, report.failed), (7, 0), "{report:?}");
    let logs = logged(&rig).await;
    assert!(logs.len() <= 1, "but for the bare directory: {logs:?}");
    let again = sweep(&rig).await;
    assert_eq!((again.changed, again.failed), (0, 0), "{again:?}");
}

/// Full names of refs that workers pushed.
async fn lease_refs(rig: &Rig) -> Vec<String> {
    rig.remote.lease_refs().await
}

#[tokio::test]
async fn a_lease_ref_goes_an_hour_after_its_attempt_and_no_sooner() {
    let rig = Rig::new().await;
    merged(&rig).await;
    let refs = lease_refs(&rig).await;
    assert_eq!(refs.len(), 1, "the implementer's: {refs:?}");
    let attempt: AttemptId = refs[0].split('/').nth(2).unwrap().parse().unwrap();
    let row = rig.store.attempt(attempt).await.unwrap().unwrap();
    let ended = row.attempt.ended_at.expect("it has ended");
    rig.advance(LEASE_REF_GRACE - SECOND - rig.clock.now().since(ended));
    sweep(&rig).await;
    assert_eq!(lease_refs(&rig).await, refs);
    rig.advance(SECOND);
    assert_eq!(sweep(&rig).await.failed, 0);
    assert_eq!(lease_refs(&rig).await, Vec::<String>::new());
    assert_eq!(sweep(&rig).await.changed, 0);
}

#[tokio::test]
async fn refs_that_somebody_needs_stay() {
    let rig = Rig::new().await;
    let worker = FakeWorker::registered(&rig, "w").await;
    // Kept for the next implementer of an issue.
    let kept = rig.issue_in(&worker, State::ConflictResolving).await;
    let grant = rig.leased(&worker, kept, Role::ConflictResolver).await;
    let commit = worker.work(&rig, &grant).await;
    let verdict = Verdict::Resolved {
        commit: Some(commit),
    };
    let kept_ref = grant.lease.key.push_ref();
    worker.say(&rig, &grant, verdict).await;
    assert_eq!(rig.state(kept).await, State::Implementing);
    // Pushed under a lease that is live.
    let grant = rig.leased(&worker, kept, Role::Implementer).await;
    worker.work(&rig, &grant).await;
    let live_ref = grant.lease.key.push_ref();
    // Of another Pointsman on the same remote, of a person, and proofs.
    let base = rig.remote.tip(BASE).await.expect("there is a base");
    let id = rig.chance.next();
    let theirs = [
        format!("refs/pointsman/{id}/1-{}", id.simple()),
        format!("refs/heads/pointsman/{id}"),
        "refs/heads/pointsman/mine".to_owned(),
        format!("refs/pointsman/merged/{kept}"),
        "refs/pointsman/notes".to_owned(),
    ];
    for reference in &theirs {
        rig.remote.push(&base, reference).await;
    }
    let before = (rig.remote.refs().await, lease_refs(&rig).await);
    for reference in [&kept_ref, &live_ref] {
        assert!(before.1.contains(reference), "{before:?}");
    }
    rig.advance(LEASE_REF_GRACE * 100);
    let report = sweep(&rig).await;
    assert_eq!((report.changed, report.failed), (0, 0), "{report:?}");
    assert_eq!((rig.remote.refs().await, lease_refs(&rig).await), before);
}

async fn branch_of(rig: &Rig, id: WorkflowId) -> (String, Option<CommitId>) {
    let branch = rig.row(id).await.workflow.head_ref.clone();
    let tip = rig.remote.tip(&branch).await;
    (branch, tip)
}

#[tokio::test]
async fn the_branch_of_a_merged_pull_request_of_ours_goes() {
    let rig = Rig::new().await;
    let (_worker, id) = merged(&rig).await;
    assert!(branch_of(&rig, id).await.1.is_some());
    assert!(sweep(&rig).await.changed > 0);
    let (branch, tip) = branch_of(&rig, id).await;
    assert_eq!(tip, None, "{branch}");
    assert!(rig.remote.tip(BASE).await.is_some());
}

#[tokio::test]
async fn a_branch_that_a_person_moved_or_policy_keeps_stays() {
    let rig = Rig::new().await;
    let (_worker, id) = merged(&rig).await;
    let (branch, _) = branch_of(&rig, id).await;
    let theirs = rig.remote.add_to(&branch, "one more thing").await;
    sweep(&rig).await;
    assert_eq!(branch_of(&rig, id).await.1, Some(theirs));

    let rig = Rig::with(Policy {
        delete_merged_branches: false,
        ..Policy::default()
    })
    .await;
    let (_worker, id) = merged(&rig).await;
    sweep(&rig).await;
    assert!(branch_of(&rig, id).await.1.is_some());
}
