//! Puts that fail, and puts whose answer is lost.

use std::{
    collections::VecDeque,
    fmt,
    sync::{Mutex, PoisonError},
};

use async_trait::async_trait;
use futures_util::stream::BoxStream;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};

use super::*;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    /// Nothing is written.
    Fails,
    /// It is written, and nobody says so: as where the master is killed in between.
    LosesAnswer,
}

/// A store whose next puts go wrong.
#[derive(Debug, Default)]
pub(super) struct Faulty {
    inner: InMemory,
    faults: Mutex<VecDeque<Option<Fault>>>,
}

impl Faulty {
    /// The next put goes this way, after those that were said before.
    pub(super) fn next(&self, fault: Option<Fault>) {
        self.lock().push_back(fault);
    }

    /// What was said is forgotten.
    pub(super) fn heal(&self) {
        self.lock().clear();
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, VecDeque<Option<Fault>>> {
        self.faults.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Display for Faulty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a faulty store")
    }
}

#[async_trait]
impl ObjectStore for Faulty {
    async fn put_opts(
        &self,
        location: &Path,
        payload: PutPayload,
        options: PutOptions,
    ) -> Result<PutResult> {
        let lost = || object_store::Error::Generic {
            store: "faulty",
            source: "on purpose".into(),
        };
        let fault = self.lock().pop_front().flatten();
        if fault == Some(Fault::Fails) {
            return Err(lost());
        }
        let done = self.inner.put_opts(location, payload, options).await?;
        match fault {
            Some(_) => Err(lost()),
            None => Ok(done),
        }
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.inner.put_multipart_opts(location, options).await
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        self.inner.get_opts(location, options).await
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        self.inner.delete_stream(locations)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.inner.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.inner.copy_opts(from, to, options).await
    }
}

#[tokio::test]
async fn a_put_whose_answer_is_lost_is_kept_and_its_repeat_is_not_written_twice() {
    for length in [10, MAX_CHUNK] {
        let objects = Arc::new(Faulty::default());
        let store = LogStore::new(objects.clone(), LIMIT);
        let key = key(1, 1);
        let data = sample(0, length);
        write(&store, key, 0, data.slice(..5)).await.unwrap();

        objects.next(Some(Fault::LosesAnswer));
        let lost = write(&store, key, 5, data.slice(5..)).await;
        assert!(matches!(lost, Err(Error::Unavailable { .. })), "{lost:?}");
        // The next master, or the next stream, learns where the log goes on.
        let kept = store.open(key).await.unwrap().kept();
        assert_eq!(kept, length as u64);
        assert_eq!(write(&store, key, 5, data.slice(5..)).await.unwrap(), kept);
        assert_eq!(read_from(&store, key, 0).await, data);
    }
}

#[tokio::test]
async fn a_put_that_fails_leaves_what_was_there() {
    let objects = Arc::new(Faulty::default());
    let store = LogStore::new(objects.clone(), LIMIT);
    write(&store, key(1, 1), 0, "abc".into()).await.unwrap();
    objects.next(Some(Fault::Fails));
    write(&store, key(1, 1), 3, "def".into()).await.unwrap_err();
    assert_eq!(read_from(&store, key(1, 1), 0).await, b"abc");
    assert_eq!(write(&store, key(1, 1), 3, "def".into()).await.unwrap(), 6);
}
