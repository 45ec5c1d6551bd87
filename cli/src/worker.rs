//! `pointsman workers`, `drain`, `undrain` and `declare-dead`: who works, and what operators do to them.

use clap::Args;
use pointsman_proto::v1::{
    self, DeclareWorkerDeadRequest, DrainWorkerRequest, ListWorkersRequest, UndrainWorkerRequest,
};
use serde::Serialize;

use crate::{
    args::Target,
    client::Client,
    error::Error,
    output::{self, Format, Table},
    view::{Worker, cell, cell_instant},
};

/// Most entries that the master gives at once.
const PAGE_SIZE: u32 = 500;

#[derive(Debug, Args)]
pub(crate) struct List {}

#[derive(Debug, Serialize)]
struct Listed {
    workers: Vec<Worker>,
}

impl List {
    /// Prints all workers.
    pub(crate) async fn run(self, target: &Target) -> Result<(), Error> {
        let mut client = target.connect().await?;
        let workers = all(&mut client).await?;
        match target.output {
            Format::Json => output::json(&Listed { workers }),
            Format::Table => output::text(&table(&workers).render()),
        }
    }
}

async fn all(client: &mut Client) -> Result<Vec<Worker>, Error> {
    let mut workers = Vec::new();
    let mut page_token = String::new();
    loop {
        let request = ListWorkersRequest {
            page_size: PAGE_SIZE,
            page_token,
        };
        let page = client.fleet.list_workers(request).await?.into_inner();
        workers.extend(page.workers.into_iter().map(Worker::from));
        page_token = page.next_page_token;
        if page_token.is_empty() {
            return Ok(workers);
        }
    }
}

fn table(workers: &[Worker]) -> Table {
    let headings = [
        "NAME", "HOST", "STATE", "SESSIONS", "PROFILES", "BEAT AT", "VERSION", "DRAINED", "ID",
    ];
    let mut table = Table::new(headings);
    for worker in workers {
        let profiles: Vec<&str> = worker.profiles.iter().map(|p| p.name.as_str()).collect();
        table.row([
            worker.name.clone(),
            worker.host.clone(),
            cell(worker.liveness.as_ref()),
            format!("{}/{}", worker.live_sessions, worker.capacity),
            cell((!profiles.is_empty()).then(|| profiles.join(","))),
            cell_instant(worker.last_beat_at.as_deref()),
            worker.version.clone(),
            cell(worker.drain.as_ref().map(|drain| &drain.reason)),
            worker.id.clone(),
        ]);
    }
    table
}

#[derive(Debug, Args)]
pub(crate) struct Drain {
    /// The worker's id, or its name where no other has it
    worker: String,
    /// Stop its sessions after its drain_grace, and give their leases back
    #[arg(long)]
    stop_sessions: bool,
    /// Why, for the history and the worker's log
    #[arg(long)]
    reason: String,
}

#[derive(Debug, Args)]
pub(crate) struct Undrain {
    /// The worker's id, or its name where no other has it
    worker: String,
    /// Why, for the history
    #[arg(long)]
    reason: String,
}

#[derive(Debug, Args)]
pub(crate) struct DeclareDead {
    /// The worker's id, or its name where no other has it
    worker: String,
    /// Although it has beaten within the last 30 seconds
    #[arg(long)]
    force: bool,
    /// How it is known, for the history
    #[arg(long)]
    reason: String,
}

#[derive(Debug, Serialize)]
struct Changed {
    changed: bool,
    worker: Worker,
}

impl Drain {
    /// Gives the worker no new leases.
    pub(crate) async fn run(self, target: &Target) -> Result<(), Error> {
        let mut client = target.connect().await?;
        let request = DrainWorkerRequest {
            worker_id: resolve(&mut client, &self.worker).await?,
            reason: self.reason,
            stop_sessions: self.stop_sessions,
        };
        let answer = client.fleet.drain_worker(request).await?.into_inner();
        Changed::new(answer.changed, answer.worker).print(target.output)
    }
}

impl Undrain {
    /// Lets the worker have leases again.
    pub(crate) async fn run(self, target: &Target) -> Result<(), Error> {
        let mut client = target.connect().await?;
        let request = UndrainWorkerRequest {
            worker_id: resolve(&mut client, &self.worker).await?,
            reason: self.reason,
        };
        let answer = client.fleet.undrain_worker(request).await?.into_inner();
        Changed::new(answer.changed, answer.worker).print(target.output)
    }
}

impl DeclareDead {
    /// Ends all leases of the worker.
    pub(crate) async fn run(self, target: &Target) -> Result<(), Error> {
        let mut client = target.connect().await?;
        let request = DeclareWorkerDeadRequest {
            worker_id: resolve(&mut client, &self.worker).await?,
            reason: self.reason,
            force: self.force,
        };
        let answer = client
            .fleet
            .declare_worker_dead(request)
            .await?
            .into_inner();
        Changed::new(answer.changed, answer.worker).print(target.output)
    }
}

impl Changed {
    fn new(changed: bool, worker: Option<v1::Worker>) -> Self {
        Self {
            changed,
            worker: worker.unwrap_or_default().into(),
        }
    }

    fn print(&self, format: Format) -> Result<(), Error> {
        match format {
            Format::Json => output::json(self),
            Format::Table => output::line(&self.sentence()),
        }
    }

    fn sentence(&self) -> String {
        let worker = &self.worker;
        let before = if self.changed { "now" } else { "unchanged" };
        let drain = match &worker.drain {
            Some(drain) if drain.stop_sessions => "drained, its sessions are stopped",
            Some(_) => "drained, its sessions run on",
            None => "not drained",
        };
        format!(
            "{} {before}: {}, {drain}, {} sessions",
            output::printable(&worker.name),
            cell(worker.liveness.as_ref()),
            worker.live_sessions
        )
    }
}

/// The id of the worker that was typed as an id or a name.
async fn resolve(client: &mut Client, typed: &str) -> Result<String, Error> {
    chosen(&all(client).await?, typed)
}

fn chosen(workers: &[Worker], typed: &str) -> Result<String, Error> {
    if let Some(worker) = workers.iter().find(|worker| worker.id == typed) {
        return Ok(worker.id.clone());
    }
    let ids: Vec<&str> = workers
        .iter()
        .filter(|worker| worker.name == typed)
        .map(|worker| worker.id.as_str())
        .collect();
    match ids[..] {
        [id] => Ok(id.to_owned()),
        [] => Err(Error::NotFound(format!(
            "no worker has the id or the name {typed}; `pointsman workers` lists those there are"
        ))),
        _ => Err(Error::Usage(format!(
            "{typed} is the name of several workers; name one by its id: {}",
            ids.join(", ")
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn worker(id: &str, name: &str) -> Worker {
        Worker::from(v1::Worker {
            id: id.to_owned(),
            name: name.to_owned(),
            capacity: 2,
            liveness: v1::WorkerLiveness::Alive.into(),
            ..v1::Worker::default()
        })
    }

    #[test]
    fn a_name_stands_for_one_worker_alone() {
        let workers = [worker("1", "a"), worker("2", "b"), worker("3", "b")];
        assert_eq!(chosen(&workers, "1").unwrap(), "1");
        assert_eq!(chosen(&workers, "a").unwrap(), "1");
        let Err(Error::Usage(message)) = chosen(&workers, "b") else {
            panic!("two have that name");
        };
        assert!(message.contains("2, 3"), "{message}");
        assert!(matches!(chosen(&workers, "c"), Err(Error::NotFound(_))));
    }

    #[test]
    fn a_change_says_how_the_worker_is_now() {
        let mut drained = v1::Worker {
            name: "a\u{1b}".to_owned(),
            liveness: v1::WorkerLiveness::Silent.into(),
            drain: Some(v1::WorkerDrain::default()),
            ..v1::Worker::default()
        };
        let changed = Changed::new(true, Some(drained.clone()));
        assert_eq!(
            changed.sentence(),
            "a  now: SILENT, drained, its sessions run on, 0 sessions"
        );
        drained.drain = None;
        let changed = Changed::new(false, Some(drained));
        assert!(
            changed
                .sentence()
                .contains("unchanged: SILENT, not drained")
        );
    }
}
