//! Logs as objects.
//!
//! `<attempt>/<fence>-<nonce>/` has the objects of one log: segments, named by the offset of their first
//! byte; where more was printed than is kept, `<offset>.cut` with a line that says so; and `end`, the
//! worker's last word. The last segment is written anew while it is small, so that a log that grows by
//! lines does not become an object a line. Each write puts one object, whole or not at all: a master that
//! dies between the put and its answer leaves a log that is longer than was acknowledged, never a torn one.
//!
//! On a local directory a write survives the end of the master, however it comes, but is not forced to the
//! disk: a power cut can take the newest seconds away. What is left of a log is then read up to the first
//! gap, and a session that still runs sends the rest again.

use std::{
    fs::DirBuilder, ops::Range, os::unix::fs::DirBuilderExt as _, path::Path as FsPath, sync::Arc,
};

use bytes::Bytes;
use object_store::{
    Error as ObjectError, ObjectMeta, ObjectStore, ObjectStoreExt as _, PutPayload,
    local::LocalFileSystem, memory::InMemory, path::Path,
};
use tokio_stream::StreamExt as _;

use super::{End, Error, Extent, MAX_READ, Segment};
use crate::domain::{
    ids::{AttemptId, Fence, LeaseKey, Nonce},
    time::Timestamp,
};

/// A segment that is shorter is written anew with what follows; a longer one is left alone. Large enough
/// for a thousand lines an object, small enough to be written twice a second.
pub(super) const SMALL_SEGMENT: u64 = 64 * 1024;

/// Digits of an offset and of a fence in a name: the names sort as the numbers.
const DIGITS: usize = 20;
const CUT: &str = ".cut";
const END: &str = "end";

/// The logs of all leases.
#[derive(Debug, Clone)]
pub struct LogStore {
    objects: Arc<dyn ObjectStore>,
    /// Bytes of a harness's output that a log keeps.
    limit: u64,
}

/// Where a reader is. It remembers which objects there are, so that a long log is not listed at each step.
#[derive(Debug, Clone)]
pub struct Cursor {
    key: LeaseKey,
    offset: u64,
    known: Vec<Segment>,
}

impl Cursor {
    pub fn new(key: LeaseKey, offset: u64) -> Self {
        Self {
            key,
            offset,
            known: Vec::new(),
        }
    }

    pub fn key(&self) -> LeaseKey {
        self.key
    }

    /// Of the next byte.
    pub fn offset(&self) -> u64 {
        self.offset
    }
}

impl LogStore {
    /// Logs in any store of objects, each of at most `limit` bytes and a line.
    pub fn new(objects: Arc<dyn ObjectStore>, limit: u64) -> Self {
        Self { objects, limit }
    }

    /// Logs that live as long as this value.
    pub fn in_memory(limit: u64) -> Self {
        Self::new(Arc::new(InMemory::new()), limit)
    }

    /// Logs in a directory, which is made where it is missing, for the owner's eyes alone.
    pub fn in_directory(path: &FsPath, limit: u64) -> Result<Self, Error> {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(path)
            .map_err(|source| Error::Open(Box::new(source)))?;
        let objects = LocalFileSystem::new_with_prefix(path)
            .map_err(|source| Error::Open(Box::new(source)))?
            .with_automatic_cleanup(true);
        Ok(Self::new(Arc::new(objects), limit))
    }

    /// The leases of an attempt that have a log, oldest first.
    pub async fn leases(&self, attempt: AttemptId) -> Result<Vec<LeaseKey>, Error> {
        let listed = self
            .objects
            .list_with_delimiter(Some(&of_attempt(attempt)))
            .await
            .map_err(|source| unavailable("list an attempt's logs", source))?;
        let names = listed.common_prefixes.iter().filter_map(Path::filename);
        let mut keys: Vec<LeaseKey> = names.filter_map(|name| parse_key(attempt, name)).collect();
        keys.sort_by_key(|key| key.fence);
        Ok(keys)
    }

    /// What is kept of a log; nothing where there is none.
    pub async fn extent(&self, key: LeaseKey) -> Result<Extent, Error> {
        Ok(self.look(key).await?.extent)
    }

    /// As [`extent`](Self::extent), for who is about to write: what a lost object left beyond a gap is
    /// removed, so that it is not taken for a part of what comes.
    pub async fn open(&self, key: LeaseKey) -> Result<Extent, Error> {
        let found = self.look(key).await?;
        for stray in &found.strays {
            self.remove(stray).await?;
        }
        Ok(found.extent)
    }

    /// Adds a chunk. What is kept already is passed over, and what goes beyond the limit is dropped and
    /// marked. On return it is kept; after an error nobody knows, and `extent` is to be read again.
    pub async fn append(
        &self,
        key: LeaseKey,
        extent: &mut Extent,
        offset: u64,
        data: Bytes,
    ) -> Result<(), Error> {
        let mut news = extent.news(offset, data)?;
        if news.is_empty() {
            return Ok(());
        }
        let room = self.limit.saturating_sub(extent.kept);
        let room = usize::try_from(room).unwrap_or(usize::MAX);
        let is_over = news.len() > room;
        news.truncate(room);
        if !news.is_empty() {
            self.grow(key, extent, news).await?;
        }
        if is_over {
            self.cut(key, extent).await?;
        }
        Ok(())
    }

    async fn grow(&self, key: LeaseKey, extent: &mut Extent, news: Bytes) -> Result<(), Error> {
        let small = extent.last.filter(|last| last.length < SMALL_SEGMENT);
        let start = small.map_or(extent.kept, |small| small.start);
        let kept = extent.kept + news.len() as u64;
        let grown = Segment {
            start,
            length: kept - start,
            is_mark: false,
        };
        let mut parts = Vec::with_capacity(2);
        if let Some(small) = small.filter(|small| small.length > 0) {
            parts.push(self.get(&small.path(key), 0..small.length).await?);
        }
        parts.push(news);
        self.put(&grown.path(key), parts.into_iter().collect())
            .await?;
        extent.kept = kept;
        extent.last = Some(grown);
        Ok(())
    }

    async fn cut(&self, key: LeaseKey, extent: &mut Extent) -> Result<(), Error> {
        let start = extent.kept;
        let line = format!(
            "\n[pointsman: the log is cut here, after {start} bytes; what followed is not kept]\n"
        );
        let mark = Segment {
            start,
            length: line.len() as u64,
            is_mark: true,
        };
        self.put(&mark.path(key), line.into()).await?;
        extent.mark = Some(mark);
        Ok(())
    }

    /// Ends a log. Where more was printed than was sent, it is marked as cut. Ending it again changes
    /// nothing.
    pub async fn end(&self, key: LeaseKey, extent: &mut Extent, end: End) -> Result<(), Error> {
        if extent.end.is_some() {
            return Ok(());
        }
        if end.total_bytes > extent.kept && !extent.is_cut() {
            self.cut(key, extent).await?;
        }
        let text = serde_json::to_vec(&end).map_err(|source| Error::Unavailable {
            operation: "write down a log's end",
            source: source.into(),
        })?;
        self.put(&of_log(key).join(END), text.into()).await?;
        extent.end = Some(end);
        Ok(())
    }

    /// The next bytes, at most [`MAX_READ`]; none where the log has no more yet.
    pub async fn read(&self, cursor: &mut Cursor) -> Result<Bytes, Error> {
        let mut found = Self::known(cursor);
        if found.is_none() {
            cursor.known = self.look(cursor.key).await?.segments;
            found = Self::known(cursor);
        }
        let Some((path, range)) = found else {
            return Ok(Bytes::new());
        };
        match self.get(&path, range).await {
            Ok(data) => {
                cursor.offset += data.len() as u64;
                Ok(data)
            }
            Err(error) => {
                // It may be gone: the next look tells.
                cursor.known.clear();
                Err(error)
            }
        }
    }

    /// Which part of which object has the next bytes, as far as is known.
    fn known(cursor: &Cursor) -> Option<(Path, Range<u64>)> {
        let offset = cursor.offset;
        let after = cursor.known.partition_point(|s| s.start <= offset);
        let found = cursor.known[after.checked_sub(1)?];
        let from = offset - found.start;
        let to = found.length.min(from + MAX_READ as u64);
        (from < to).then(|| (found.path(cursor.key), from..to))
    }

    /// When something of an attempt's logs was written last, by the storage's clock; `None` where there is
    /// nothing.
    pub async fn last_written(&self, attempt: AttemptId) -> Result<Option<Timestamp>, Error> {
        let mut last = None;
        let mut objects = self.objects.list(Some(&of_attempt(attempt)));
        while let Some(object) = objects.next().await {
            let object = object.map_err(|source| unavailable("list an attempt's logs", source))?;
            last = last.max(Some(Timestamp(object.last_modified.timestamp_micros())));
        }
        Ok(last)
    }

    /// Removes all logs of an attempt, and says whether there was anything. Who still writes one begins it
    /// anew. After an error some of it may be left: removing it again removes the rest.
    pub async fn delete(&self, attempt: AttemptId) -> Result<bool, Error> {
        let paths = self
            .objects
            .list(Some(&of_attempt(attempt)))
            .map(|object| object.map(|object| object.location));
        let mut removed = self.objects.delete_stream(Box::pin(paths));
        let mut is_changed = false;
        while let Some(result) = removed.next().await {
            match result {
                Ok(_) => is_changed = true,
                Err(ObjectError::NotFound { .. }) => {}
                Err(source) => return Err(unavailable("delete an attempt's logs", source)),
            }
        }
        Ok(is_changed)
    }

    /// Attempts that have logs, by id and so oldest first, those after `after`; at most `limit`.
    pub async fn attempts(
        &self,
        after: Option<AttemptId>,
        limit: usize,
    ) -> Result<Vec<AttemptId>, Error> {
        let listed = self
            .objects
            .list_with_delimiter(None)
            .await
            .map_err(|source| unavailable("list the logs", source))?;
        let names = listed.common_prefixes.iter().filter_map(Path::filename);
        let mut attempts: Vec<AttemptId> = names
            .filter_map(|name| name.parse().ok())
            .filter(|id| after.is_none_or(|after| *id > after))
            .collect();
        attempts.sort_unstable();
        attempts.truncate(limit);
        Ok(attempts)
    }

    /// Reads which objects a log has, and which of them follow each other without a gap.
    async fn look(&self, key: LeaseKey) -> Result<Found, Error> {
        let objects: Vec<ObjectMeta> = self
            .objects
            .list(Some(&of_log(key)))
            .collect::<Result<_, _>>()
            .await
            .map_err(|source| unavailable("list a log", source))?;
        let mut segments: Vec<Segment> = objects.iter().filter_map(parse_segment).collect();
        // The mark begins where the segments end.
        segments.sort_by_key(|segment| (segment.start, segment.is_mark));
        let mut found = Found::default();
        for segment in segments {
            let is_next = segment.start == found.extent.kept && !found.extent.is_cut();
            if !is_next {
                found.strays.push(segment.path(key));
            } else if segment.is_mark {
                found.extent.mark = Some(segment);
                found.segments.push(segment);
            } else {
                found.extent.kept = segment.end();
                found.extent.last = Some(segment);
                found.segments.push(segment);
            }
        }
        let end = of_log(key).join(END);
        if let Some(object) = objects.iter().find(|object| object.location == end) {
            let text = self.get(&end, 0..object.size).await?;
            found.extent.end = Some(parse_end(&text, found.extent.kept));
        }
        Ok(found)
    }

    async fn get(&self, path: &Path, range: Range<u64>) -> Result<Bytes, Error> {
        self.objects
            .get_range(path, range)
            .await
            .map_err(|source| unavailable("read a log", source))
    }

    async fn put(&self, path: &Path, payload: PutPayload) -> Result<(), Error> {
        self.objects
            .put(path, payload)
            .await
            .map(drop)
            .map_err(|source| unavailable("write a log", source))
    }

    async fn remove(&self, path: &Path) -> Result<(), Error> {
        match self.objects.delete(path).await {
            Ok(()) | Err(ObjectError::NotFound { .. }) => Ok(()),
            Err(source) => Err(unavailable("remove a part of a log", source)),
        }
    }
}

/// What a look at a log found.
#[derive(Debug, Default)]
struct Found {
    extent: Extent,
    /// In order and without a gap, the mark included.
    segments: Vec<Segment>,
    /// Objects beyond a gap.
    strays: Vec<Path>,
}

impl Segment {
    fn path(self, key: LeaseKey) -> Path {
        let suffix = if self.is_mark { CUT } else { "" };
        of_log(key).join(format!("{:0DIGITS$}{suffix}", self.start))
    }
}

fn of_attempt(attempt: AttemptId) -> Path {
    Path::from(attempt.to_string())
}

fn of_log(key: LeaseKey) -> Path {
    let (fence, nonce) = (key.fence.0, key.nonce);
    of_attempt(key.attempt).join(format!("{fence:0DIGITS$}-{nonce}"))
}

fn parse_key(attempt: AttemptId, name: &str) -> Option<LeaseKey> {
    let (fence, nonce) = name.split_once('-')?;
    Some(LeaseKey {
        attempt,
        fence: Fence(fence.parse().ok()?),
        nonce: nonce.parse::<Nonce>().ok()?,
    })
}

fn parse_segment(object: &ObjectMeta) -> Option<Segment> {
    let name = object.location.filename()?;
    let (digits, is_mark) = match name.strip_suffix(CUT) {
        Some(digits) => (digits, true),
        None => (name, false),
    };
    let is_number = digits.len() == DIGITS && digits.bytes().all(|b| b.is_ascii_digit());
    let start: u64 = is_number.then(|| digits.parse().ok())??;
    start.checked_add(object.size)?;
    Some(Segment {
        start,
        length: object.size,
        is_mark,
    })
}

/// A last word that a power cut has torn is one all the same: nothing more comes.
fn parse_end(text: &[u8], kept: u64) -> End {
    serde_json::from_slice(text).unwrap_or(End { total_bytes: kept })
}

fn unavailable(operation: &'static str, source: ObjectError) -> Error {
    Error::Unavailable {
        operation,
        source: Box::new(source),
    }
}
