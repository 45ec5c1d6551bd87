//! Logs over real gRPC: who may write them, and what readers get, whatever happens in between.

use std::time::Duration;

use pointsman_master::{
    domain::{attempt::InfrastructureClass, ids::LeaseKey, transitions::State},
    logs::{MAX_CHUNK, MAX_FOLLOWERS},
    service::Grant,
};
use pointsman_proto::v1::{
    self, TailLogRequest, TailLogResponse, UploadLogRequest, UploadLogResponse,
    tail_log_request::From,
    tail_log_response::{self, Part as TailPart},
    upload_log_request::{Chunk, End, Part, Start},
    worker_service_client::WorkerServiceClient,
    workflow_service_client::WorkflowServiceClient,
};
use pointsman_tests::rig::{FakeWorker, LOG_LIMIT, Rig, wire::Wire};
use tokio::time::timeout;
use tonic::{Code, Status, Streaming, transport::Channel};
use tonic_types::StatusExt as _;

/// A deadline for what comes by itself.
const SOON: Duration = Duration::from_secs(30);

const NOBODY: &str = "01890000-0000-7000-8000-000000000000";

struct Scene {
    rig: Rig,
    worker: FakeWorker,
    grant: Grant,
    wire: Wire,
}

impl Scene {
    /// A served master, and a worker that holds the lease of an estimator.
    async fn new() -> Self {
        let rig = Rig::new().await;
        let worker = FakeWorker::registered(&rig, "w").await;
        rig.issue_in(&worker, State::Analyzing).await;
        let grant = worker.lease_one(&rig).await;
        let wire = Wire::serve(&rig).await;
        Self {
            rig,
            worker,
            grant,
            wire,
        }
    }

    fn key(&self) -> LeaseKey {
        self.grant.lease.key
    }

    fn start(&self) -> Part {
        Part::Start(Start {
            worker_id: self.worker.row.id.to_string(),
            instance_id: self.worker.row.instance.to_string(),
            lease: Some(wire_key(self.key())),
        })
    }

    async fn send(&self, parts: Vec<Part>) -> Result<UploadLogResponse, Status> {
        send(self.wire.channel.clone(), parts).await
    }

    /// Sends a chunk, which must be taken, and returns up to where the log is kept.
    async fn upload(&self, offset: u64, text: &str) -> u64 {
        let parts = vec![self.start(), chunk(offset, text.as_bytes())];
        let answer = self.send(parts).await.expect("the chunk is taken");
        answer.acknowledged_offset
    }

    fn request(&self) -> TailLogRequest {
        TailLogRequest {
            attempt_id: self.key().attempt.to_string(),
            ..TailLogRequest::default()
        }
    }

    async fn tail(&self, request: TailLogRequest) -> Result<Reader, Status> {
        let mut client = WorkflowServiceClient::new(self.wire.connect().await);
        let parts = client.tail_log(request).await?.into_inner();
        Ok(Reader { parts })
    }

    /// Follows the log from its start.
    async fn follow(&self) -> Reader {
        let request = TailLogRequest {
            follow: true,
            ..self.request()
        };
        self.tail(request).await.expect("it is followed")
    }

    /// The whole log as it is now.
    async fn read(&self) -> (String, tail_log_response::End) {
        let mut reader = self.tail(self.request()).await.expect("it is read");
        reader.rest().await
    }

    async fn refusal(&self, request: TailLogRequest) -> Status {
        match self.tail(request).await {
            Ok(mut reader) => reader.next().await.expect_err("it is refused"),
            Err(status) => status,
        }
    }
}

struct Reader {
    parts: Streaming<TailLogResponse>,
}

impl Reader {
    async fn next(&mut self) -> Result<TailPart, Status> {
        let message = timeout(SOON, self.parts.message())
            .await
            .expect("a part comes");
        let message = message?.expect("a log ends with its end");
        Ok(message.part.expect("a message has a part"))
    }

    /// The bytes from here until they end with `last`.
    async fn until(&mut self, last: &str) -> String {
        let mut text = String::new();
        while !text.ends_with(last) {
            match self.next().await.expect("a part comes") {
                TailPart::Chunk(chunk) => text.push_str(&String::from_utf8_lossy(&chunk.data)),
                TailPart::Start(_) => {}
                TailPart::End(end) => panic!("it ends before {last:?}: {text:?}, {end:?}"),
            }
        }
        text
    }

    /// All bytes from here on, and the end.
    async fn rest(&mut self) -> (String, tail_log_response::End) {
        let mut bytes = Vec::new();
        loop {
            match self.next().await.expect("a part comes") {
                TailPart::Chunk(chunk) => bytes.extend_from_slice(&chunk.data),
                TailPart::Start(_) => {}
                TailPart::End(end) => {
                    return (String::from_utf8(bytes).expect("it is text"), end);
                }
            }
        }
    }
}

async fn send(channel: Channel, parts: Vec<Part>) -> Result<UploadLogResponse, Status> {
    let parts = parts
        .into_iter()
        .map(|part| UploadLogRequest { part: Some(part) });
    let parts = tokio_stream::iter(parts.collect::<Vec<_>>());
    let answer = WorkerServiceClient::new(channel).upload_log(parts).await?;
    Ok(answer.into_inner())
}

fn wire_key(key: LeaseKey) -> v1::LeaseKey {
    v1::LeaseKey {
        attempt_id: key.attempt.to_string(),
        lock_fence: key.fence.0,
        lock_nonce: key.nonce.to_string(),
    }
}

fn chunk(offset: u64, data: &[u8]) -> Part {
    let data = data.to_vec();
    Part::Chunk(Chunk { offset, data })
}

fn end(total_bytes: u64) -> Part {
    Part::End(End { total_bytes })
}

fn reason(status: &Status) -> String {
    let info = status.get_details_error_info();
    info.map(|info| info.reason).unwrap_or_default()
}

#[tokio::test]
async fn a_log_is_followed_from_before_its_first_byte_to_its_end() {
    let scene = Scene::new().await;
    let mut early = scene.follow().await;
    assert_eq!(scene.upload(0, "one\n").await, 4);
    let mut late = scene.follow().await;
    for reader in [&mut early, &mut late] {
        assert_eq!(reader.until("one\n").await, "one\n");
    }
    assert_eq!(scene.upload(4, "two\n").await, 8);
    for reader in [&mut early, &mut late] {
        assert_eq!(reader.until("two\n").await, "two\n");
    }
    let answer = scene
        .send(vec![scene.start(), chunk(8, b"three"), end(13)])
        .await;
    assert_eq!(answer.unwrap().acknowledged_offset, 13);
    for reader in [&mut early, &mut late] {
        let (text, end) = reader.rest().await;
        assert_eq!(text, "three");
        assert!(end.is_complete && !end.is_cut, "{end:?}");
        assert_eq!((end.offset, end.total_bytes), (13, 13));
    }
}

#[tokio::test]
async fn a_finished_log_is_read_from_anywhere_by_the_lease_that_is_asked_for() {
    let scene = Scene::new().await;
    scene.upload(0, "first lease").await;
    scene
        .worker
        .fail(&scene.rig, &scene.grant, InfrastructureClass::Crashed)
        .await;
    let (text, last) = scene.read().await;
    assert_eq!(text, "first lease");
    assert!(!last.is_complete, "nobody said that this is all: {last:?}");

    scene.rig.advance(Duration::from_secs(3600));
    let again = scene.worker.lease_one(&scene.rig).await;
    assert_eq!(again.lease.key.attempt, scene.key().attempt);
    let first_fence = scene.key().fence.0;
    let scene = Scene {
        grant: again,
        ..scene
    };
    assert_eq!(
        scene.read().await.0,
        "first lease",
        "the newest that has a log"
    );
    scene
        .send(vec![scene.start(), chunk(0, b"0123456789"), end(10)])
        .await
        .unwrap();
    assert_eq!(scene.read().await.0, "0123456789");
    let cases = [
        (Some(From::Offset(0)), "0123456789"),
        (Some(From::Offset(7)), "789"),
        (Some(From::Offset(10)), ""),
        (Some(From::Offset(1000)), ""),
        (Some(From::LastBytes(0)), ""),
        (Some(From::LastBytes(3)), "789"),
        (Some(From::LastBytes(11)), "0123456789"),
    ];
    for (from, expected) in cases {
        let request = TailLogRequest {
            from,
            ..scene.request()
        };
        let (text, end) = scene.tail(request).await.unwrap().rest().await;
        assert_eq!(text, expected, "{from:?}");
        assert!(end.is_complete, "{end:?}");
    }
    let request = TailLogRequest {
        lock_fence: first_fence,
        follow: true,
        ..scene.request()
    };
    let (text, _) = scene.tail(request).await.unwrap().rest().await;
    assert_eq!(text, "first lease");
}

#[tokio::test]
async fn a_follower_hears_that_the_lease_ended_without_a_last_word() {
    let scene = Scene::new().await;
    scene.upload(0, "half a l").await;
    let mut reader = scene.follow().await;
    reader.until("half a l").await;
    scene
        .worker
        .fail(&scene.rig, &scene.grant, InfrastructureClass::Crashed)
        .await;
    let (text, end) = reader.rest().await;
    assert_eq!(text, "");
    assert!(!end.is_complete, "{end:?}");
}

#[tokio::test]
async fn only_the_holder_of_a_live_lease_writes() {
    let scene = Scene::new().await;
    scene.upload(0, "mine").await;
    let spoil = |change: fn(&mut Start)| {
        let Part::Start(mut start) = scene.start() else {
            panic!("it is a start");
        };
        change(&mut start);
        vec![Part::Start(start), chunk(4, b"not mine")]
    };
    let strangers = [
        spoil(|start| start.worker_id = NOBODY.to_owned()),
        spoil(|start| start.lease.as_mut().unwrap().lock_fence += 1),
        spoil(|start| start.lease.as_mut().unwrap().lock_fence -= 1),
        spoil(|start| start.lease.as_mut().unwrap().lock_nonce = NOBODY.to_owned()),
        spoil(|start| start.lease.as_mut().unwrap().attempt_id = NOBODY.to_owned()),
    ];
    for parts in strangers {
        let refusal = scene.send(parts.clone()).await.expect_err("it is refused");
        assert_eq!(refusal.code(), Code::FailedPrecondition, "{parts:?}");
        assert_eq!(reason(&refusal), "LEASE_LOST", "{parts:?}");
    }
    // The lease ends between two chunks of one stream.
    let (parts, stream) = tokio::sync::mpsc::channel(4);
    let stream = tokio_stream::wrappers::ReceiverStream::new(stream);
    let mut client = WorkerServiceClient::new(scene.wire.channel.clone());
    let message = |part| UploadLogRequest { part: Some(part) };
    parts.send(message(scene.start())).await.unwrap();
    parts.send(message(chunk(4, b" too"))).await.unwrap();
    let calls = async {
        let mut reader = scene.follow().await;
        reader.until("mine too").await;
        scene
            .worker
            .fail(&scene.rig, &scene.grant, InfrastructureClass::Crashed)
            .await;
        // The stream may have been refused already.
        drop(parts.send(message(chunk(8, b" late"))).await);
        drop(parts);
    };
    let (answer, ()) = tokio::join!(client.upload_log(stream), calls);
    let refusal = answer.expect_err("the lease is over");
    assert_eq!(reason(&refusal), "LEASE_LOST", "{refusal:?}");
    let refusal = scene
        .send(vec![scene.start()])
        .await
        .expect_err("so is the log");
    assert_eq!(reason(&refusal), "LEASE_LOST");
    assert_eq!(scene.read().await.0, "mine too");
}

#[tokio::test]
async fn bad_batches_are_refused_by_the_field_and_leave_the_log_as_it_was() {
    let scene = Scene::new().await;
    scene.upload(0, "abc").await;
    let whole = vec![b'x'; MAX_CHUNK + 1];
    let start = || scene.start();
    let cases = [
        ("start", vec![]),
        ("start", vec![chunk(3, b"x")]),
        ("start", vec![end(3)]),
        ("start", vec![start(), start()]),
        ("chunk.data", vec![start(), chunk(3, b"")]),
        ("chunk.data", vec![start(), chunk(3, &whole)]),
        ("chunk.offset", vec![start(), chunk(u64::MAX, b"x")]),
        ("end.total_bytes", vec![start(), end(u64::MAX)]),
    ];
    for (field, parts) in cases {
        let refusal = scene.send(parts).await.expect_err("it is refused");
        assert_eq!(
            refusal.code(),
            Code::InvalidArgument,
            "{field}: {refusal:?}"
        );
        assert!(refusal.message().starts_with(field), "{field}: {refusal:?}");
    }
    let gap = scene
        .send(vec![start(), chunk(4, b"x")])
        .await
        .expect_err("a gap");
    assert_eq!(
        (gap.code(), reason(&gap).as_str()),
        (Code::FailedPrecondition, "LOG_GAP")
    );
    let info = gap.get_details_error_info().unwrap();
    assert_eq!(info.metadata["acknowledged_offset"], "3");
    assert_eq!(scene.read().await.0, "abc");

    let edge = vec![start(), chunk(3, &whole[..MAX_CHUNK])];
    let kept = scene
        .send(edge)
        .await
        .expect("the edge is taken")
        .acknowledged_offset;
    assert_eq!(kept, 3 + MAX_CHUNK as u64);
    let late = vec![start(), end(kept), end(kept)];
    let refusal = scene.send(late).await.expect_err("two ends");
    assert!(refusal.message().starts_with("end"), "{refusal:?}");
    let refusal = scene.send(vec![start(), chunk(kept, b"x")]).await;
    assert_eq!(reason(&refusal.expect_err("it was ended")), "LOG_ENDED");
}

#[tokio::test]
async fn bad_questions_are_refused_and_what_is_not_there_is_not_found() {
    let scene = Scene::new().await;
    let ask = |change: fn(&mut TailLogRequest)| {
        let mut request = scene.request();
        change(&mut request);
        request
    };
    let bad = [
        ("attempt_id", ask(|r| r.attempt_id = "x".to_owned())),
        ("lock_fence", ask(|r| r.lock_fence = u64::MAX)),
        ("offset", ask(|r| r.from = Some(From::Offset(u64::MAX)))),
        (
            "last_bytes",
            ask(|r| r.from = Some(From::LastBytes(u64::MAX))),
        ),
    ];
    for (field, request) in bad {
        let refusal = scene.refusal(request).await;
        assert_eq!(refusal.code(), Code::InvalidArgument, "{field}");
        assert!(refusal.message().starts_with(field), "{refusal:?}");
    }
    let missing = [
        ask(|_| {}),
        ask(|r| r.lock_fence = 7),
        ask(|r| r.attempt_id = NOBODY.to_owned()),
        ask(|r| (r.attempt_id, r.follow) = (NOBODY.to_owned(), true)),
    ];
    for request in missing {
        let refusal = scene.refusal(request.clone()).await;
        assert_eq!(refusal.code(), Code::NotFound, "{request:?}: {refusal:?}");
    }
    // A follower gives up once there will be none.
    let mut waits = scene.follow().await;
    scene
        .worker
        .say(
            &scene.rig,
            &scene.grant,
            pointsman_tests::rig::worker::ready(),
        )
        .await;
    let refusal = waits.next().await.expect_err("there is no log");
    assert_eq!(refusal.code(), Code::NotFound, "{refusal:?}");
}

#[tokio::test]
async fn a_master_that_dies_loses_nothing_that_it_acknowledged() {
    let mut scene = Scene::new().await;
    let kept = scene.upload(0, "acknowledged\n").await;
    let mut reader = scene.follow().await;
    reader.until("acknowledged\n").await;
    // A stream that the master's end cuts off.
    scene.wire.stop.cancel();
    let cut = reader.next().await.expect_err("the master is gone");
    assert_eq!(cut.code(), Code::Unavailable, "{cut:?}");
    scene.rig.restart().await;
    scene.wire = Wire::serve(&scene.rig).await;

    let answer = scene.send(vec![scene.start()]).await.expect("it is known");
    assert_eq!((answer.acknowledged_offset, answer.is_full), (kept, false));
    assert_eq!(scene.upload(0, "acknowledged\nand more\n").await, 22);
    let request = TailLogRequest {
        from: Some(From::Offset(kept)),
        ..scene.request()
    };
    let (text, _) = scene.tail(request).await.unwrap().rest().await;
    assert_eq!(text, "and more\n");
}

#[tokio::test]
async fn a_log_over_its_bound_is_cut_and_the_rest_is_acknowledged_and_dropped() {
    let scene = Scene::new().await;
    let mut reader = scene.follow().await;
    let piece = vec![b'x'; MAX_CHUNK];
    let n = LOG_LIMIT / MAX_CHUNK as u64;
    let mut parts = vec![scene.start()];
    parts.extend((0..n).map(|i| chunk(i * MAX_CHUNK as u64, &piece)));
    let whole = scene.send(parts).await.unwrap();
    assert_eq!(
        (whole.acknowledged_offset, whole.is_full),
        (LOG_LIMIT, false)
    );
    let more = scene
        .send(vec![scene.start(), chunk(LOG_LIMIT, &piece)])
        .await
        .unwrap();
    assert_eq!(more.acknowledged_offset, LOG_LIMIT + MAX_CHUNK as u64);
    assert!(more.is_full);
    let total = 10 * LOG_LIMIT;
    let done = scene.send(vec![scene.start(), end(total)]).await.unwrap();
    assert!(done.is_full);

    let (text, end) = reader.rest().await;
    assert!(end.is_complete && end.is_cut, "{end:?}");
    assert_eq!((end.offset, end.total_bytes), (text.len() as u64, total));
    let (log, mark) = text.split_at(usize::try_from(LOG_LIMIT).unwrap());
    assert!(log.bytes().all(|b| b == b'x'));
    assert!(
        mark.contains("the log is cut here, after 1048576 bytes"),
        "{mark}"
    );
}

#[tokio::test]
async fn a_follower_that_reads_nothing_holds_up_nobody() {
    let scene = Scene::new().await;
    let piece = "0123456789abcdef".repeat(MAX_CHUNK / 32);
    scene.upload(0, &piece).await;
    let mut idle = scene.follow().await;
    let mut offset = piece.len() as u64;
    // Far more than its connection holds.
    for _ in 0..6 {
        offset = timeout(SOON, scene.upload(offset, &piece))
            .await
            .expect("it is taken");
        let keys = [scene.key()];
        let beat = scene.worker.beat(&scene.rig, &keys);
        timeout(SOON, beat)
            .await
            .expect("it is written")
            .expect("it is taken");
    }
    let (text, _) = scene.read().await;
    assert_eq!(text.len() as u64, offset, "others read");
    scene.send(vec![scene.start(), end(offset)]).await.unwrap();
    // It missed nothing.
    assert_eq!(idle.rest().await.0, text);
}

#[tokio::test]
async fn followers_are_bounded_and_one_that_leaves_makes_room() {
    let scene = Scene::new().await;
    scene.upload(0, "x").await;
    let request = TailLogRequest {
        follow: true,
        ..scene.request()
    };
    let mut readers = Vec::new();
    for n in 0..MAX_FOLLOWERS {
        let reader = scene.tail(request.clone()).await;
        readers.push(reader.unwrap_or_else(|status| panic!("{n}: {status:?}")));
    }
    let refusal = scene.refusal(request.clone()).await;
    assert_eq!(refusal.code(), Code::ResourceExhausted, "{refusal:?}");
    assert!(refusal.get_details_retry_info().is_some());
    readers.pop();
    let made_room = async {
        while scene.tail(request.clone()).await.is_err() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(SOON, made_room).await.expect("there is room again");
}
