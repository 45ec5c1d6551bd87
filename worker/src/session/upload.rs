//! Carries a session's log to the master while the harness writes it, and keeps the file within its bound.
//!
//! It never holds the session up: it reads the file, and has a task and a connection of its own. What the
//! master acknowledged is there for good; after a failure it is asked how much that is. A session whose
//! lease is over can send no more: the part that was sent stays.

use std::{
    fs::File,
    io::{self, Read as _, Seek as _, SeekFrom},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use tokio::{
    sync::watch,
    task::{JoinSet, spawn_blocking},
    time::{sleep, timeout},
};

use super::control::Orders;
use crate::{
    assignment::LeaseKey,
    control_file,
    master::{CHUNK_MAX, Error, Masters},
    process::disk,
    retry::Retry,
};

/// How often the log is looked at for something new.
const LOOK_INTERVAL: Duration = Duration::from_millis(400);

/// How often the file is brought back to its bound.
const TRIM_INTERVAL: Duration = Duration::from_secs(1);

/// Most bytes of one batch: a few chunks, so that a flood is acknowledged often.
const BATCH_MAX: usize = 4 * CHUNK_MAX;

/// How long the outcome waits for the end of the log. A master that is there takes far less; where it is
/// away, the outcome is worth more than the log.
const END_PATIENCE: Duration = Duration::from_secs(5);

/// Bytes at the end of the file that are always kept: outcomes quote them.
const TAIL_KEPT: u64 = 64 * 1024;

/// A log on its way to the master.
pub(super) struct Upload {
    is_final: watch::Sender<bool>,
    uploader: JoinSet<()>,
    /// Goes on where the master takes no more.
    _trimmer: JoinSet<()>,
}

impl Upload {
    /// Begins to carry the log at `path`, of which `max` bytes are kept.
    pub(super) fn start(masters: Arc<Masters>, key: LeaseKey, path: PathBuf, max: u64) -> Self {
        let (is_final, finals) = watch::channel(false);
        let mut trimmer = JoinSet::new();
        trimmer.spawn(keep_within(path.clone(), max));
        let mut uploader = JoinSet::new();
        let task = Uploader {
            masters,
            key,
            path,
            max,
            offset: 0,
            is_full: false,
            asks: false,
        };
        uploader.spawn(task.run(finals));
        Self {
            is_final,
            uploader,
            _trimmer: trimmer,
        }
    }

    /// Sends the rest and says that it is all: the harness has ended. Gives up after a while, or where
    /// the lease is over.
    pub(super) async fn finish(mut self, orders: &mut Orders) {
        self.is_final.send_replace(true);
        tokio::select! {
            ended = timeout(END_PATIENCE, self.uploader.join_next()) => {
                if ended.is_err() {
                    tracing::warn!("the end of the log was not taken in time");
                }
            }
            () = orders.unwanted() => {}
        }
    }
}

/// Frees what the file holds beyond its bound, for as long as it is let. Ends where the file system can't;
/// whatever else fails may pass, and is tried again.
async fn keep_within(path: PathBuf, max: u64) {
    let mut trimmed_to = max;
    let mut has_warned = false;
    loop {
        sleep(TRIM_INTERVAL).await;
        let path = path.clone();
        let trimmed = spawn_blocking(move || trim(&path, trimmed_to)).await;
        match trimmed {
            Ok(Ok(to)) => trimmed_to = to,
            Ok(Err(error)) => {
                let is_for_good = error.kind() == io::ErrorKind::Unsupported;
                if is_for_good || !has_warned {
                    tracing::warn!(%error, is_for_good, "the log is not kept within its bound");
                }
                if is_for_good {
                    return;
                }
                has_warned = true;
            }
            Err(error) => {
                tracing::error!(%error, "trimming the log died");
                return;
            }
        }
    }
}

/// Frees the file from `from` on, its end apart. Its length stays: what is written next keeps its place.
fn trim(path: &Path, from: u64) -> io::Result<u64> {
    let file = match control_file::open_for_writing(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(from),
        Err(error) => return Err(error),
    };
    let to = file.metadata()?.len().saturating_sub(TAIL_KEPT);
    if to > from {
        disk::punch_hole(&file, from..to)?;
    }
    Ok(to.max(from))
}

struct Uploader {
    masters: Arc<Masters>,
    key: LeaseKey,
    path: PathBuf,
    max: u64,
    /// The master has the log up to here.
    offset: u64,
    /// The master takes no more.
    is_full: bool,
    /// The master is to be asked what it has.
    asks: bool,
}

/// What a look at the file found.
struct Batch {
    data: Vec<u8>,
    /// Of the whole file.
    length: u64,
}

/// What one step came to.
#[derive(Debug, PartialEq, Eq)]
enum Step {
    /// There may be more at once.
    Sent,
    Idle,
    Ended,
}

impl Uploader {
    /// Ends when the end of the log was taken, or nothing more will be.
    async fn run(mut self, mut finals: watch::Receiver<bool>) {
        let mut retry = Retry::new();
        loop {
            let is_final = *finals.borrow_and_update();
            match self.step(is_final).await {
                Ok(Step::Sent) => retry.succeeded(),
                Ok(Step::Idle) => drop(timeout(LOOK_INTERVAL, finals.changed()).await),
                Ok(Step::Ended) => return,
                Err(error @ (Error::LeaseLost(_) | Error::Refused(_))) => {
                    tracing::info!(%error, "the master takes no more of the log");
                    return;
                }
                Err(error) => {
                    tracing::debug!(%error, "a part of the log is not taken yet");
                    self.asks = true;
                    drop(timeout(retry.after_failure(), finals.changed()).await);
                }
            }
        }
    }

    async fn step(&mut self, is_final: bool) -> Result<Step, Error> {
        let masters = Arc::clone(&self.masters);
        let _turn = masters.log_turn().await;
        if self.asks {
            self.send(&[], None).await?;
            self.asks = false;
        }
        let Some(batch) = self.batch().await else {
            return Ok(if is_final { Step::Ended } else { Step::Idle });
        };
        // By itself, once all before it is acknowledged: after the end nothing can be sent again.
        let end = (is_final && batch.data.is_empty()).then_some(batch.length);
        if batch.data.is_empty() && end.is_none() {
            return Ok(Step::Idle);
        }
        self.send(&batch.data, end).await?;
        Ok(if end.is_some() {
            Step::Ended
        } else {
            Step::Sent
        })
    }

    async fn send(&mut self, data: &[u8], end: Option<u64>) -> Result<(), Error> {
        let uploaded = self
            .masters
            .upload_log(&self.key, self.offset, data, end)
            .await?;
        self.offset = uploaded.offset;
        self.is_full = uploaded.is_full;
        Ok(())
    }

    /// What is to be sent next. `None` where the file can't be read.
    async fn batch(&self) -> Option<Batch> {
        let path = self.path.clone();
        let (offset, max) = (self.offset, if self.is_full { 0 } else { self.max });
        let read = spawn_blocking(move || Batch::read(&path, offset, max)).await;
        match read {
            Ok(Ok(batch)) => Some(batch),
            Ok(Err(error)) => {
                tracing::debug!(%error, "read the log");
                None
            }
            Err(error) => {
                tracing::error!(%error, "reading the log died");
                None
            }
        }
    }
}

impl Batch {
    /// Reads from `offset` to at most `max`, both counted from the start of the file.
    fn read(path: &Path, offset: u64, max: u64) -> io::Result<Self> {
        let mut file: File = control_file::open(path)?;
        let length = file.metadata()?.len();
        let room = length.min(max).saturating_sub(offset);
        let mut data = Vec::new();
        if room > 0 {
            file.seek(SeekFrom::Start(offset))?;
            file.take(room.min(BATCH_MAX as u64))
                .read_to_end(&mut data)?;
        }
        Ok(Self { data, length })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_ends_at_its_own_bound_and_at_that_of_the_log() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        std::fs::write(&path, vec![b'x'; BATCH_MAX + 10]).unwrap();
        let length = |offset, max| Batch::read(&path, offset, max).unwrap().data.len();
        assert_eq!(length(0, u64::MAX), BATCH_MAX);
        assert_eq!(length(BATCH_MAX as u64, u64::MAX), 10);
        assert_eq!(length(5, 8), 3);
        assert_eq!(length(8, 8), 0);
        assert_eq!(length(u64::MAX, u64::MAX), 0, "a log that was made shorter");
        assert_eq!(
            Batch::read(&path, 5, 8).unwrap().length,
            BATCH_MAX as u64 + 10
        );
    }

    /// A file that can't be opened stands for one that can't be opened or trimmed for now.
    #[tokio::test]
    async fn a_log_that_could_not_be_trimmed_once_is_trimmed_later() {
        use std::os::unix::fs::MetadataExt as _;

        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        std::fs::create_dir(&path).unwrap();
        let mut trimmer = JoinSet::new();
        trimmer.spawn(keep_within(path.clone(), 1));
        sleep(2 * TRIM_INTERVAL).await;
        std::fs::remove_dir(&path).unwrap();
        let length = 64 * TAIL_KEPT;
        std::fs::write(&path, vec![b'x'; usize::try_from(length).unwrap()]).unwrap();
        let is_trimmed = || std::fs::metadata(&path).unwrap().blocks() * 512 < length / 2;
        let trimmed = async {
            while !is_trimmed() {
                sleep(LOOK_INTERVAL).await;
            }
        };
        timeout(Duration::from_secs(30), trimmed).await.unwrap();
    }

    #[test]
    fn a_trimmed_log_keeps_its_start_its_end_and_every_offset() {
        use std::os::unix::fs::MetadataExt as _;

        const MEBI: usize = 1024 * 1024;
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        assert_eq!(trim(&path, 10).unwrap(), 10, "there is none yet");
        let content: Vec<u8> = (0..8 * MEBI)
            .map(|n| u8::try_from(n % 251).unwrap())
            .collect();
        std::fs::write(&path, &content).unwrap();

        let to = trim(&path, MEBI as u64).unwrap();
        let kept = std::fs::read(&path).unwrap();
        let end = kept.len() - usize::try_from(TAIL_KEPT).unwrap();
        assert_eq!(to, end as u64);
        assert_eq!(kept.len(), content.len());
        assert_eq!(kept[..MEBI], content[..MEBI]);
        assert_eq!(kept[end..], content[end..]);
        let on_disk = std::fs::metadata(&path).unwrap().blocks() * 512;
        assert!(on_disk < 2 * MEBI as u64, "{on_disk} bytes are still held");
        assert_eq!(trim(&path, to).unwrap(), to, "nothing more to free");
    }
}
