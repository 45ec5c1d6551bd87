//! `pointsman demo`: everything there is, on a small repository, in a minute.
//!
//! Makes a git repository with a failing test, starts a master and two workers as processes of their
//! own, opens an issue, and follows it to a merged pull request. Nothing in here is a short cut: the
//! processes are this program as anybody starts it, they are asked by the same RPCs as the operators'
//! commands, and the outcome is checked with git and by running the test. It ends with 0 only if all
//! of that holds, and leaves nothing behind, unless told to.
//!
//! In reading order: `repository` is what there is to do, `follow` and `progress` what is shown, `verify`
//! what must hold in the end. The processes are those of `processes`.

mod follow;
mod progress;
mod repository;
mod verify;

use std::{
    fs, io,
    net::{Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context as _, anyhow};
use clap::Args;
use pointsman_proto::v1::{AddRepositoryRequest, SubmitIssueRequest};
use tokio::time::timeout;

use crate::{
    client::Client,
    error::Error,
    event, output,
    processes::{
        Lifetime, Processes,
        config::{HARNESS_ROLES, Master, Worker, profile},
    },
    view::Event,
    wish::Wishes,
};
use follow::Story;
use progress::Progress;

/// Longest that a demo may take: it needs a few seconds, and a busy machine gets its time.
const DEADLINE: Duration = Duration::from_secs(120);

/// The repository's name at the master.
const REPOSITORY: &str = "demo";

/// The workers and their roles. Two, so that work passes from one process to another, as it does on
/// several hosts; both can review.
const WORKERS: [(&str, &[&str]); 2] = [
    ("worker-1", &HARNESS_ROLES),
    ("worker-2", &["ci", "reviewer"]),
];

#[derive(Debug, Args)]
pub(crate) struct Demo {
    /// Leave master and workers running, and say how to ask and how to stop them
    #[arg(long)]
    keep: bool,
    /// Work in this directory, new or empty, instead of a temporary one
    #[arg(long, value_name = "DIR")]
    directory: Option<PathBuf>,
}

impl Demo {
    /// Runs the demo to its end.
    pub(crate) async fn run(self) -> Result<(), Error> {
        let lifetime = match self.keep {
            true => Lifetime::Kept,
            false => Lifetime::OfThisProcess,
        };
        let directory = work_directory(self.directory)?;
        let mut processes = Processes::new(&directory, lifetime)?;
        let mut wishes = Wishes::listen()?;
        let progress = Progress::start();
        let ended = tokio::select! {
            ended = timeout(DEADLINE, play(&directory, &mut processes, &progress)) => {
                ended.unwrap_or_else(|_| Err(out_of_time())).map_err(Failure::Demo)
            }
            how = wishes.next() => Err(Failure::Interrupted(how)),
        };
        match ended {
            Ok(address) if lifetime == Lifetime::Kept => {
                progress.show(&how_to_go_on(&address, &processes, &directory)?);
                Ok(())
            }
            Ok(_) => {
                processes.stop().await;
                remove(&directory)
            }
            Err(Failure::Demo(error)) => {
                let error = explain(&error, &processes, &progress, &directory);
                processes.stop().await;
                Err(error)
            }
            Err(Failure::Interrupted(how)) => {
                processes.stop().await;
                remove(&directory)?;
                Err(anyhow!("{how}; awaited: {}", progress.awaited()).into())
            }
        }
    }
}

/// Why a demo did not come to its end.
enum Failure {
    /// Something in it went wrong: what there is of it is kept, to be looked at.
    Demo(Error),
    /// Somebody does not want it any more, and none of its files either.
    Interrupted(&'static str),
}

/// The demo from its first commit to its last check. Returns the master's address.
async fn play(
    directory: &Path,
    processes: &mut Processes,
    progress: &Progress,
) -> Result<String, Error> {
    let bare = directory.join("demo.git");
    progress.wait_for("the repository");
    repository::make(&bare, &directory.join("seed")).await?;
    progress.say(&format!("made {}, whose test fails", bare.display()));

    progress.wait_for("the master to be ready");
    let master = Master {
        listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
        shutdown_grace: "3s",
    };
    let address = processes.start_master(&master).await?;
    progress.say(&format!("started a master at {address}"));
    for (name, roles) in WORKERS {
        let worker = worker(roles, &address, processes.program())?;
        processes.start_worker(name, &worker)?;
    }
    progress.say("started two workers");

    let mut client = Client::connect(&address).await?;
    progress.wait_for("the issue to be opened");
    open_issue(&mut client, &bare).await?;
    progress.say(&format!("opened an issue: {}", repository::ISSUE_TITLE));
    let story = follow::to_the_merge(&mut client, processes, progress).await?;
    progress.show(&timeline(&story));
    verify::verify(&story, &bare, &directory.join("clone"), progress).await?;
    progress.say(&format!("merged as {}", story.merged_commit));
    Ok(address)
}

/// A worker whose harness is the scripted one.
fn worker(roles: &[&'static str], master: &str, program: &Path) -> anyhow::Result<Worker> {
    let program = program
        .to_str()
        .context("this program's path is no Unicode")?;
    let command = [program.to_owned(), "scripted-harness".to_owned()];
    let is_for_a_harness = |role: &&str| HARNESS_ROLES.contains(role);
    let done: Vec<&str> = roles.iter().copied().filter(is_for_a_harness).collect();
    let scripted = profile(&command, "file", &done);
    Ok(Worker {
        masters: [master.to_owned()],
        capacity: 1,
        roles: roles.to_vec(),
        drain_grace: "2s".to_owned(),
        ci_env: Vec::new(),
        harness: toml::Table::from_iter([("scripted".to_owned(), scripted.into())]),
    })
}

async fn open_issue(client: &mut Client, bare: &Path) -> Result<(), Error> {
    let repository = AddRepositoryRequest {
        name: REPOSITORY.to_owned(),
        git_url: bare.to_string_lossy().into_owned(),
        base_ref: repository::BASE.to_owned(),
        ci_command: repository::CI.to_owned(),
        reason: "demo".to_owned(),
        ..AddRepositoryRequest::default()
    };
    client.repositories.add_repository(repository).await?;
    let issue = SubmitIssueRequest {
        repository: REPOSITORY.to_owned(),
        title: repository::ISSUE_TITLE.to_owned(),
        body: repository::ISSUE_BODY.to_owned(),
        reason: "demo".to_owned(),
        ..SubmitIssueRequest::default()
    };
    client.repositories.submit_issue(issue).await?;
    Ok(())
}

fn timeline(story: &Story) -> String {
    let name = |event: &Event| story.name_of(event);
    format!("\n{}\n", event::table_of_many(&story.events, name).render())
}

/// A new or empty directory, by its absolute path: the processes run elsewhere.
fn work_directory(wanted: Option<PathBuf>) -> Result<PathBuf, Error> {
    let Some(wanted) = wanted else {
        let directory = tempfile::Builder::new().prefix("pointsman-demo-").tempdir();
        return Ok(directory.context("make a temporary directory")?.keep());
    };
    let open = || -> io::Result<(PathBuf, bool)> {
        let path = std::path::absolute(&wanted)?;
        fs::create_dir_all(&path)?;
        let is_empty = fs::read_dir(&path)?.next().is_none();
        Ok((path, is_empty))
    };
    match open() {
        Ok((path, true)) => Ok(path),
        Ok((path, false)) => Err(Error::Usage(format!(
            "--directory {} is not empty; name one that is, or is not there",
            path.display()
        ))),
        Err(error) => Err(Error::Usage(format!(
            "--directory {}: {error}",
            wanted.display()
        ))),
    }
}

fn remove(directory: &Path) -> Result<(), Error> {
    fs::remove_dir_all(directory)
        .with_context(|| format!("remove {}", directory.display()))
        .map_err(Error::from)
}

fn out_of_time() -> Error {
    anyhow!("not done within {} s", DEADLINE.as_secs()).into()
}

/// Shows the logs, and says in one line what failed, what was awaited, and where to look further.
fn explain(error: &Error, processes: &Processes, progress: &Progress, directory: &Path) -> Error {
    output::error_text(&processes.log_tails());
    anyhow!(
        "{}; awaited: {}; logs and state are kept in {}",
        error.message(),
        progress.awaited(),
        directory.display()
    )
    .into()
}

fn how_to_go_on(address: &str, processes: &Processes, directory: &Path) -> anyhow::Result<String> {
    let program = std::env::current_exe().context("find this program")?;
    let program = program.display();
    let pids = processes.pids();
    let running: Vec<String> = pids
        .iter()
        .map(|(name, pid)| format!("{name} ({pid})"))
        .collect();
    let kill: Vec<String> = pids.iter().map(|(_, pid)| pid.to_string()).collect();
    Ok(format!(
        "\n\
         still running: {running}\n\
         ask it:        {program} --address {address} workflows\n\
         \x20              {program} --address {address} workflow {REPOSITORY}#1\n\
         stop it:       kill {kill}\n\
         clean up:      rm -r {directory}\n",
        running = running.join(", "),
        kill = kill.join(" "),
        directory = directory.display(),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_check_needs_no_harness() {
        let worker = worker(&["ci", "reviewer"], "http://h:1", Path::new("/p")).unwrap();
        assert_eq!(worker.roles, ["ci", "reviewer"]);
        let done = worker.harness["scripted"]["roles"].as_array().unwrap();
        assert_eq!(done, &[toml::Value::from("reviewer")]);
    }

    #[test]
    fn a_directory_with_something_in_it_is_left_alone() {
        let directory = tempfile::tempdir().unwrap();
        let new = directory.path().join("new");
        assert_eq!(work_directory(Some(new.clone())).unwrap(), new);
        let refusal = work_directory(Some(directory.path().to_owned())).unwrap_err();
        assert!(refusal.message().contains("is not empty"), "{refusal:?}");
    }
}
