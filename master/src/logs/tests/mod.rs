//! The store of logs: what was acknowledged is what is read, whatever happens in between.

#![expect(
    clippy::cast_possible_truncation,
    reason = "lengths of tests are small"
)]

mod faults;
mod properties;

use std::sync::Arc;

use bytes::Bytes;
use object_store::{ObjectStore, ObjectStoreExt as _, memory::InMemory, path::Path};
use tokio_stream::StreamExt as _;
use uuid::Uuid;

use super::{Cursor, End, Error, LogStore, MAX_CHUNK, MAX_READ, objects::SMALL_SEGMENT};
use crate::domain::ids::{AttemptId, Fence, LeaseKey, Nonce};

const LIMIT: u64 = 1024 * 1024;

fn attempt(n: u128) -> AttemptId {
    AttemptId(Uuid::from_u128(n))
}

fn key(n: u128, fence: u64) -> LeaseKey {
    LeaseKey {
        attempt: attempt(n),
        fence: Fence(fence),
        nonce: Nonce(Uuid::from_u128(77)),
    }
}

/// Bytes that differ from place to place.
fn sample(from: u64, length: usize) -> Bytes {
    (from..from + length as u64)
        .map(|n| (n % 251) as u8)
        .collect()
}

async fn write(store: &LogStore, key: LeaseKey, offset: u64, data: Bytes) -> Result<u64, Error> {
    let mut extent = store.open(key).await?;
    store.append(key, &mut extent, offset, data).await?;
    assert_eq!(
        store.extent(key).await?,
        extent,
        "it is as the writer has it"
    );
    Ok(extent.kept())
}

/// All that a reader gets from `offset` on.
async fn read_from(store: &LogStore, key: LeaseKey, offset: u64) -> Vec<u8> {
    let mut cursor = Cursor::new(key, offset);
    let mut all = Vec::new();
    loop {
        let data = store.read(&mut cursor).await.unwrap();
        assert!(data.len() <= MAX_READ);
        if data.is_empty() {
            return all;
        }
        all.extend_from_slice(&data);
    }
}

/// The same on memory and on a directory, which are different stores below.
async fn stores() -> Vec<(LogStore, Option<tempfile::TempDir>)> {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a/logs");
    vec![
        (LogStore::in_memory(LIMIT), None),
        (
            LogStore::in_directory(&path, LIMIT).unwrap(),
            Some(directory),
        ),
    ]
}

#[tokio::test]
async fn what_is_written_is_read_from_any_offset() {
    for (store, _directory) in stores().await {
        let key = key(1, 1);
        assert_eq!(store.extent(key).await.unwrap().readable(), 0);
        assert_eq!(read_from(&store, key, 0).await, b"");
        let all = sample(0, 300_000);
        let mut offset = 0;
        // Small ones, one that fills a segment, and the largest.
        for length in [1, 9, 60_000, 10_000, 100, MAX_CHUNK] {
            let end = all.len().min(offset + length);
            let kept = write(&store, key, offset as u64, all.slice(offset..end)).await;
            assert_eq!(kept.unwrap(), end as u64);
            offset = end;
        }
        for from in [
            0,
            1,
            SMALL_SEGMENT - 1,
            SMALL_SEGMENT,
            70_010,
            299_999,
            300_000,
            400_000,
        ] {
            let expected = all.get(from as usize..).unwrap_or_default();
            assert_eq!(read_from(&store, key, from).await, expected, "{from}");
        }
    }
}

#[tokio::test]
async fn a_reader_that_waits_at_the_end_sees_what_comes() {
    let store = LogStore::in_memory(LIMIT);
    let mut cursor = Cursor::new(key(1, 1), 0);
    for n in 0..5 {
        assert_eq!(store.read(&mut cursor).await.unwrap(), "");
        write(&store, key(1, 1), n, sample(n, 1)).await.unwrap();
        assert_eq!(store.read(&mut cursor).await.unwrap(), sample(n, 1));
    }
}

#[tokio::test]
async fn repeats_change_nothing_and_gaps_are_refused() {
    let store = LogStore::in_memory(LIMIT);
    let key = key(1, 1);
    write(&store, key, 0, "abcdef".into()).await.unwrap();
    assert_eq!(write(&store, key, 0, "abcdef".into()).await.unwrap(), 6);
    assert_eq!(
        write(&store, key, 2, "???".into()).await.unwrap(),
        6,
        "a differing repeat"
    );
    assert_eq!(
        write(&store, key, 4, "YYgh".into()).await.unwrap(),
        8,
        "half a repeat"
    );
    let gap = write(&store, key, 9, "j".into()).await;
    assert!(
        matches!(gap, Err(Error::Gap { offset: 9, kept: 8 })),
        "{gap:?}"
    );
    assert_eq!(read_from(&store, key, 0).await, b"abcdefgh");
}

#[tokio::test]
async fn a_log_is_cut_at_its_edge_and_says_so() {
    for (store, _directory) in stores().await {
        let key = key(1, 1);
        for n in 0..4 {
            let offset = n * MAX_CHUNK as u64;
            write(&store, key, offset, sample(offset, MAX_CHUNK))
                .await
                .unwrap();
        }
        let whole = store.extent(key).await.unwrap();
        assert_eq!(
            (whole.kept(), whole.is_cut()),
            (LIMIT, false),
            "the edge itself is no cut"
        );

        write(&store, key, LIMIT, "x".into()).await.unwrap();
        let cut = store.extent(key).await.unwrap();
        assert_eq!((cut.kept(), cut.is_cut()), (LIMIT, true));
        // Whatever comes is taken and dropped, wherever it begins.
        write(&store, key, LIMIT + 1, "y".into()).await.unwrap();
        write(&store, key, LIMIT + 999, "z".into()).await.unwrap();
        assert_eq!(store.extent(key).await.unwrap(), cut);
        let read = read_from(&store, key, 0).await;
        assert_eq!(read.len() as u64, cut.readable());
        assert_eq!(read[..LIMIT as usize], sample(0, LIMIT as usize));
        let mark = String::from_utf8(read[LIMIT as usize..].to_vec()).unwrap();
        assert!(mark.contains("cut here, after 1048576 bytes"), "{mark}");
        // A master with another limit goes by what is there.
        let mut extent = store.open(key).await.unwrap();
        store
            .append(key, &mut extent, LIMIT + 1, "y".into())
            .await
            .unwrap();
        assert_eq!(extent, cut);
    }
}

#[tokio::test]
async fn a_chunk_over_the_edge_is_kept_up_to_it() {
    let store = LogStore::in_memory(10);
    write(&store, key(1, 1), 0, "0123456789abc".into())
        .await
        .unwrap();
    let read = read_from(&store, key(1, 1), 0).await;
    assert!(read.starts_with(b"0123456789\n[pointsman"), "{read:?}");
}

#[tokio::test]
async fn a_log_that_was_ended_takes_no_more() {
    let store = LogStore::in_memory(LIMIT);
    let key = key(1, 1);
    let mut extent = store.open(key).await.unwrap();
    store
        .append(key, &mut extent, 0, "abc".into())
        .await
        .unwrap();
    store
        .end(key, &mut extent, End { total_bytes: 3 })
        .await
        .unwrap();
    store
        .end(key, &mut extent, End { total_bytes: 9 })
        .await
        .unwrap();
    assert_eq!(store.extent(key).await.unwrap(), extent);
    assert_eq!(
        extent.end(),
        Some(End { total_bytes: 3 }),
        "the first word is the last"
    );
    assert_eq!(write(&store, key, 0, "abc".into()).await.unwrap(), 3);
    let more = write(&store, key, 3, "d".into()).await;
    assert!(matches!(more, Err(Error::Ended { kept: 3 })), "{more:?}");
    assert_eq!(read_from(&store, key, 0).await, b"abc");
}

#[tokio::test]
async fn an_end_beyond_what_was_sent_marks_the_log_as_cut() {
    let store = LogStore::in_memory(LIMIT);
    let key = key(1, 1);
    let mut extent = store.open(key).await.unwrap();
    store
        .append(key, &mut extent, 0, "abc".into())
        .await
        .unwrap();
    store
        .end(key, &mut extent, End { total_bytes: 4 })
        .await
        .unwrap();
    assert_eq!(store.extent(key).await.unwrap(), extent);
    assert!(extent.is_cut());
    let read = String::from_utf8(read_from(&store, key, 0).await).unwrap();
    assert!(
        read.starts_with("abc\n[pointsman: the log is cut here, after 3 bytes"),
        "{read}"
    );
}

#[tokio::test]
async fn leases_have_logs_of_their_own_and_attempts_are_listed_by_age() {
    for (store, _directory) in stores().await {
        let again = LeaseKey {
            nonce: Nonce(Uuid::from_u128(78)),
            ..key(2, 1)
        };
        for (n, key) in [key(2, 10), key(2, 9), key(2, 1), again, key(1, 1)]
            .into_iter()
            .enumerate()
        {
            write(&store, key, 0, format!("log {n}").into())
                .await
                .unwrap();
        }
        let fences = |keys: Vec<LeaseKey>| keys.iter().map(|key| key.fence.0).collect::<Vec<_>>();
        assert_eq!(
            fences(store.leases(attempt(2)).await.unwrap()),
            [1, 1, 9, 10]
        );
        assert_eq!(fences(store.leases(attempt(3)).await.unwrap()), [0; 0]);
        assert_eq!(read_from(&store, key(2, 1), 0).await, b"log 2");
        assert_eq!(read_from(&store, again, 0).await, b"log 3");

        let all = store.attempts(None, 10).await.unwrap();
        assert_eq!(all, [attempt(1), attempt(2)]);
        assert_eq!(store.attempts(None, 1).await.unwrap(), [attempt(1)]);
        assert_eq!(
            store.attempts(Some(attempt(1)), 10).await.unwrap(),
            [attempt(2)]
        );

        assert!(store.last_written(attempt(2)).await.unwrap().is_some());
        assert!(store.delete(attempt(2)).await.unwrap());
        assert!(!store.delete(attempt(2)).await.unwrap(), "it was gone");
        assert_eq!(store.last_written(attempt(2)).await.unwrap(), None);
        assert_eq!(store.attempts(None, 10).await.unwrap(), [attempt(1)]);
        assert_eq!(store.leases(attempt(2)).await.unwrap(), []);
        assert_eq!(read_from(&store, key(1, 1), 0).await, b"log 4");
    }
}

/// A lost object, as a power cut can leave it, and what is beside it.
#[tokio::test]
async fn a_log_is_read_up_to_a_gap_and_goes_on_from_there() {
    let objects = Arc::new(InMemory::new());
    let store = LogStore::new(objects.clone(), LIMIT);
    let key = key(1, 1);
    for n in 0..3 {
        let offset = n * SMALL_SEGMENT;
        let data = sample(offset, SMALL_SEGMENT as usize);
        write(&store, key, offset, data).await.unwrap();
    }
    let paths: Vec<Path> = objects
        .list(None)
        .map(|object| object.unwrap().location)
        .collect()
        .await;
    let second = paths
        .iter()
        .find(|path| path.as_ref().ends_with("65536"))
        .unwrap();
    objects
        .put(second, Bytes::from_static(b"\x02").into())
        .await
        .unwrap();
    let strange = second.as_ref().replace("00000000000000065536", "core");
    objects.put(&Path::from(strange), "x".into()).await.unwrap();

    let found = store.extent(key).await.unwrap();
    assert_eq!(found.kept(), SMALL_SEGMENT + 1);
    let gap = write(&store, key, 3 * SMALL_SEGMENT, "x".into()).await;
    assert!(matches!(gap, Err(Error::Gap { .. })), "{gap:?}");
    // What lay beyond the gap is not taken for what comes now.
    write(
        &store,
        key,
        SMALL_SEGMENT + 1,
        vec![b'n'; SMALL_SEGMENT as usize - 1].into(),
    )
    .await
    .unwrap();
    assert_eq!(store.extent(key).await.unwrap().kept(), 2 * SMALL_SEGMENT);
}

#[cfg(unix)]
#[tokio::test]
async fn a_directory_of_logs_is_for_its_owner_alone() {
    use std::os::unix::fs::PermissionsExt as _;

    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("logs");
    LogStore::in_directory(&path, LIMIT).unwrap();
    let mode = std::fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
    std::fs::write(directory.path().join("file"), "").unwrap();
    let error = LogStore::in_directory(&directory.path().join("file"), LIMIT).unwrap_err();
    assert!(matches!(error, Error::Open(_)), "{error:?}");
}
