//! Watching workflows: what is told, what is skipped, and what is never missed.

use std::{collections::BTreeMap, time::Duration};

use pointsman_master::{
    dispatch::watches::{MAX_WATCHERS, Pace, Told, Watch, WatchError, Watches},
    domain::{attempt::Role, ids::WorkflowId, transitions::State},
    store::model::{ChangePoint, WorkflowFilter},
};
use pointsman_proto::v1::{
    WatchWorkflowsRequest, WatchWorkflowsResponse, workflow_service_client::WorkflowServiceClient,
};
use pointsman_tests::rig::{FakeWorker, Rig, ask, wire::Wire, worker::ready};
use tokio::sync::mpsc::Receiver;
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tonic::{Code, Streaming};
use tonic_types::StatusExt;

/// A deadline for what comes by itself.
const SOON: Duration = Duration::from_secs(20);

/// Looks often, and says often that it is there.
const QUICK: Pace = Pace {
    look: Duration::from_millis(20),
    rest: Duration::from_millis(1),
    keepalive: Duration::from_millis(100),
};

/// Looks by itself only after the test is over.
const RUNG: Pace = Pace {
    look: Duration::from_secs(3600),
    rest: Duration::from_millis(1),
    keepalive: Duration::from_secs(3600),
};

type Stream = Receiver<Result<Told, WatchError>>;

struct Booth {
    watches: Watches,
    tasks: TaskTracker,
    stop: CancellationToken,
}

impl Booth {
    fn new(rig: &Rig, pace: Pace) -> Self {
        let tasks = TaskTracker::new();
        let stop = CancellationToken::new();
        Self {
            watches: Watches::new(rig.service().clone(), pace, tasks.clone(), stop.clone()),
            tasks,
            stop,
        }
    }

    fn watch(&self, filter: WorkflowFilter, after: Option<ChangePoint>) -> Stream {
        let watch = Watch { filter, after };
        self.watches.watch(watch).expect("there is room")
    }

    fn watch_all(&self) -> Stream {
        self.watch(WorkflowFilter::default(), None)
    }
}

async fn next(stream: &mut Stream) -> Told {
    let told = tokio::time::timeout(SOON, stream.recv()).await;
    told.expect("something is told in time")
        .expect("the stream goes on")
        .expect("it is no error")
}

/// Reads until all is known; the states as they were told last.
async fn catch_up(stream: &mut Stream) -> (BTreeMap<WorkflowId, State>, ChangePoint) {
    let mut states = BTreeMap::new();
    loop {
        let told = next(stream).await;
        for row in &told.rows {
            states.insert(row.workflow.id, row.workflow.state());
        }
        if told.is_current {
            return (states, told.point);
        }
    }
}

/// Reads until a workflow is told in `state`.
async fn until(stream: &mut Stream, id: WorkflowId, state: State) -> ChangePoint {
    loop {
        let told = next(stream).await;
        let is_told = |row: &pointsman_master::store::model::WorkflowRow| {
            row.workflow.id == id && row.workflow.state() == state
        };
        if told.rows.iter().any(is_told) {
            return told.point;
        }
    }
}

#[tokio::test]
async fn a_watch_begins_with_all_and_goes_on_with_each_change() {
    let rig = Rig::new().await;
    let worker = FakeWorker::registered(&rig, "w").await;
    let id = rig.submit("one").await;
    // Nothing but the bell can tell this watcher in time.
    let booth = Booth::new(&rig, RUNG);
    let mut stream = booth.watch_all();
    let (states, _) = catch_up(&mut stream).await;
    assert_eq!(states, BTreeMap::from([(id, State::Analyzing)]));
    let grant = rig.leased(&worker, id, Role::Estimator).await;
    worker.say(&rig, &grant, ready()).await;
    until(&mut stream, id, State::Implementing).await;
    let later = rig.submit("two").await;
    until(&mut stream, later, State::Analyzing).await;
}

/// Another master's writes ring no bell here: looking finds them.
#[tokio::test]
async fn what_no_bell_tells_is_found_by_looking() {
    let rig = Rig::new().await;
    let booth = Booth::new(&rig, QUICK);
    let mut stream = booth.watch_all();
    catch_up(&mut stream).await;
    let id = rig.submit("one").await;
    let mut tx = rig.store.begin().await.unwrap();
    let mut locked = tx.lock_workflow(id).await.unwrap().unwrap();
    tx.set_priority(&mut locked, 3, rig.row(id).await.updated_at)
        .await
        .unwrap();
    tx.commit().await.unwrap();
    loop {
        let told = next(&mut stream).await;
        if told.rows.iter().any(|row| row.priority == 3) {
            return;
        }
    }
}

#[tokio::test]
async fn a_watch_that_resumes_misses_nothing() {
    let rig = Rig::new().await;
    let booth = Booth::new(&rig, QUICK);
    let first = rig.submit("one").await;
    let mut stream = booth.watch_all();
    let (_, point) = catch_up(&mut stream).await;
    drop(stream);
    let second = rig.submit("two").await;
    let mut stream = booth.watch(WorkflowFilter::default(), Some(point));
    let (states, point) = catch_up(&mut stream).await;
    assert!(
        states.contains_key(&second) && !states.contains_key(&first),
        "{states:?}"
    );
    // From a database that was put back to an older copy: all again rather than nothing.
    let ahead = ChangePoint(point.0 + 1000);
    let mut stream = booth.watch(WorkflowFilter::default(), Some(ahead));
    let (states, _) = catch_up(&mut stream).await;
    assert_eq!(states.len(), 2);
}

#[tokio::test]
async fn states_narrow_the_beginning_and_leaving_them_is_told() {
    let rig = Rig::new().await;
    let worker = FakeWorker::registered(&rig, "w").await;
    let id = rig.issue_in(&worker, State::Implementing).await;
    let other = rig.submit("two").await;
    let booth = Booth::new(&rig, QUICK);
    let filter = WorkflowFilter {
        states: vec![State::Analyzing],
        ..WorkflowFilter::default()
    };
    let mut stream = booth.watch(filter, None);
    let (states, _) = catch_up(&mut stream).await;
    assert_eq!(states.keys().collect::<Vec<_>>(), [&other], "not {id}");
    let grant = worker
        .lease(&rig, 10)
        .await
        .into_iter()
        .find(|grant| grant.workflow.id == other)
        .expect("its attempt is leased");
    worker.say(&rig, &grant, ready()).await;
    until(&mut stream, other, State::Implementing).await;
}

#[tokio::test]
async fn silence_is_broken_from_time_to_time() {
    let rig = Rig::new().await;
    let booth = Booth::new(&rig, QUICK);
    let mut stream = booth.watch_all();
    for _ in 0..3 {
        let told = next(&mut stream).await;
        assert!(told.rows.is_empty() && told.is_current);
    }
}

/// One that does not read holds up neither the master nor another watcher, and skips to what is so now.
#[tokio::test]
async fn a_slow_watcher_skips_and_holds_up_nobody() {
    let rig = Rig::new().await;
    let booth = Booth::new(&rig, QUICK);
    let mut slow = booth.watch_all();
    let mut quick = booth.watch_all();
    catch_up(&mut quick).await;
    let id = rig.submit("one").await;
    for priority in 1..=50 {
        let set = rig.service().set_priority(ask(id, "busy"), priority);
        assert!(set.await.unwrap().is_changed());
    }
    let mut seen = Vec::new();
    for stream in [&mut quick, &mut slow] {
        let mut n_told = 0;
        loop {
            let told = next(stream).await;
            n_told += told.rows.len();
            if told.rows.iter().any(|row| row.priority == 50) {
                break;
            }
        }
        seen.push(n_told);
    }
    assert!(
        seen[1] <= 3,
        "what waited unread is one message, then the present: {seen:?}"
    );
}

#[tokio::test]
async fn watchers_are_bounded_and_make_room_when_they_go() {
    let rig = Rig::new().await;
    let booth = Booth::new(&rig, QUICK);
    let mut streams: Vec<Stream> = (0..MAX_WATCHERS).map(|_| booth.watch_all()).collect();
    let one_more = || {
        booth.watches.watch(Watch {
            filter: WorkflowFilter::default(),
            after: None,
        })
    };
    assert!(matches!(one_more(), Err(WatchError::TooManyWatchers)));
    streams.pop();
    let deadline = tokio::time::Instant::now() + SOON;
    while one_more().is_err() {
        assert!(
            tokio::time::Instant::now() < deadline,
            "the slot is never free"
        );
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_master_that_stops_says_so_to_each_watcher() {
    let rig = Rig::new().await;
    let booth = Booth::new(&rig, QUICK);
    let mut stream = booth.watch_all();
    catch_up(&mut stream).await;
    let mut unread = booth.watch_all();
    while unread.is_empty() {
        tokio::task::yield_now().await;
    }
    booth.stop.cancel();
    for stream in [&mut stream, &mut unread] {
        let last = loop {
            match tokio::time::timeout(SOON, stream.recv())
                .await
                .expect("in time")
            {
                Some(Ok(_)) => {}
                Some(Err(error)) => break Some(error),
                None => break None,
            }
        };
        assert!(matches!(last, Some(WatchError::Draining)), "{last:?}");
    }
    booth.tasks.close();
    tokio::time::timeout(SOON, booth.tasks.wait())
        .await
        .expect("no watcher outlives it");
    let refused = booth.watches.watch(Watch {
        filter: WorkflowFilter::default(),
        after: None,
    });
    assert!(matches!(refused, Err(WatchError::Draining)));
}

async fn message(stream: &mut Streaming<WatchWorkflowsResponse>) -> WatchWorkflowsResponse {
    let message = tokio::time::timeout(SOON, stream.message()).await;
    message
        .expect("in time")
        .expect("no error")
        .expect("not the end")
}

#[tokio::test]
async fn over_the_wire_a_token_resumes_and_a_shutdown_asks_to() {
    let rig = Rig::new().await;
    let id = rig.submit("one").await;
    let wire = Wire::serve(&rig).await;
    let mut client = WorkflowServiceClient::new(wire.channel.clone());
    let begun = client
        .watch_workflows(WatchWorkflowsRequest::default())
        .await;
    let mut stream = begun.expect("it is watched").into_inner();
    let first = message(&mut stream).await;
    assert_eq!(first.workflows.len(), 1);
    assert_eq!(first.workflows[0].id, id.to_string());
    assert!(first.is_current);
    let second = rig.submit("two").await;
    let resumed = WatchWorkflowsRequest {
        resume_token: first.resume_token,
        ..WatchWorkflowsRequest::default()
    };
    let begun = client.watch_workflows(resumed).await;
    let mut resumed = begun.expect("it is watched").into_inner();
    let told = message(&mut resumed).await;
    assert_eq!(told.workflows[0].id, second.to_string());

    let wrong = WatchWorkflowsRequest {
        resume_token: "yesterday".to_owned(),
        ..WatchWorkflowsRequest::default()
    };
    let refused = client.watch_workflows(wrong).await.expect_err("no token");
    assert_eq!(refused.code(), Code::InvalidArgument);
    let violations = refused
        .get_details_bad_request()
        .expect("it names the field");
    assert_eq!(violations.field_violations[0].field, "resume_token");

    wire.stop.cancel();
    let status = loop {
        match tokio::time::timeout(SOON, resumed.message())
            .await
            .expect("in time")
        {
            Ok(Some(_)) => {}
            Ok(None) => panic!("it ends with a status"),
            Err(status) => break status,
        }
    };
    assert_eq!(status.code(), Code::Unavailable, "{status:?}");
    assert!(status.get_details_retry_info().is_some());
}
