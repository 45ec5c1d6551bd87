//! `pointsman up`: everything there is, on a person's own repository.
//!
//! A master and a worker of this program as processes of their own, with their state in one directory a
//! repository. Nothing is kept here but the wish to stop: `up` again, after it was stopped, killed, or the
//! machine went down, goes on where it was, since the master has all in its database and the worker its
//! identity on disk.
//!
//! In reading order: `repository` and `harness` check what was typed, `place` is the state directory, and
//! `follow` and `show` tell what happens. The processes are those of `processes`. Nothing is started
//! before all is checked, and each refusal says what to do.

mod follow;
mod harness;
mod place;
mod repository;
mod show;

use std::{
    net::{Ipv4Addr, SocketAddr, TcpListener},
    path::PathBuf,
    time::Duration,
};

use anyhow::{Context as _, anyhow};
use clap::{Args, value_parser};
use pointsman_proto::v1::{AddRepositoryRequest, CheckDefinition, SubmitIssueRequest};
use sha2::{Digest as _, Sha256};
use tokio::time::{Instant, sleep, timeout};

use crate::{
    client::{Client, DEFAULT_ADDRESS},
    error::Error,
    exit::Exit,
    output::{self, Format},
    processes::{
        LOOK_INTERVAL, Lifetime, Processes, STOP_GRACE,
        config::{HARNESS_ROLES, Master, Worker},
        still_running,
    },
    repo,
    wish::Wishes,
};
use follow::{Follower, Standing};
use harness::Harness;
use place::Place;
use repository::Repository;
use show::{Line, Show};

/// Where the master listens unless told otherwise, if nobody else does.
const LISTEN: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 7433);

/// What the one worker is called.
const WORKER: &str = "worker";

/// Longest that a start may take: the processes of an earlier `up` that was killed end within it, and a
/// large database is opened.
const START_DEADLINE: Duration = Duration::from_secs(120);

/// Between two looks at the workflows.
const ROUND: Duration = Duration::from_millis(500);

/// What calls in flight get when the master ends.
const SHUTDOWN_GRACE: &str = "5s";

/// Why things are done, for the history.
const REASON: &str = "pointsman up";

/// Work on a repository of your own: a master and a worker, until they are told to stop.
#[derive(Debug, Args)]
#[command(after_long_help = HELP)]
pub(crate) struct Up {
    /// The repository: its directory, or any in it
    #[arg(long, value_name = "PATH", default_value = ".")]
    repo: PathBuf,
    /// The branch that pull requests go to [default: the one that is checked out]
    #[arg(long, value_name = "BRANCH")]
    base: Option<String>,
    #[command(flatten)]
    checks: Checks,
    /// Sessions that run at once
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = value_parser!(u32).range(1..=1000))]
    capacity: u32,
    /// Where the master listens, on loopback alone; port 0 is any [default: 127.0.0.1:7433, or any port
    /// where that is taken]
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: Option<SocketAddr>,
    /// Where database, sessions and logs are kept, outside of the repository [default:
    /// pointsman/NAME-HASH in the XDG state directory]
    #[arg(long, value_name = "DIR")]
    state_dir: Option<PathBuf>,
    /// How long sessions may run on once it is asked to stop
    #[arg(long, value_name = "DURATION", default_value = "10m")]
    drain_grace: String,
    /// Open an issue with this title, unless this did so already; as often as needed
    #[arg(long, value_name = "TITLE")]
    submit: Vec<String>,
    /// End when nothing is left that moves by itself
    #[arg(long)]
    until_done: bool,
    // The last: its heading is that of all that comes after it.
    #[command(flatten)]
    harness: Harness,
}

/// What each change has to pass.
#[derive(Debug, Args)]
struct Checks {
    /// The check `ci`, run by `/bin/sh -c` in a fresh checkout of each change
    #[arg(long, value_name = "COMMAND", required_unless_present = "checks")]
    ci: Option<String>,
    /// A check by name, as often as needed; all run at once
    #[arg(long = "check", value_name = "NAME=COMMAND", value_parser = repo::parse_check)]
    checks: Vec<CheckDefinition>,
    /// A variable of this environment that checks get, as often as needed. They get no others but PATH and
    /// the session's own, of which HOME is an empty directory
    #[arg(long, value_name = "NAME")]
    ci_env: Vec<String>,
}

/// The part of the long help that tells how to stop it.
const HELP: &str = "\
Ctrl-C (or SIGTERM) stops in order: no more work is taken, and sessions may run on for the drain grace.
A second one stops them now, in order still; a third one kills. `up` again goes on where it was.

Exit codes beside those of every command:
  0  it was asked to stop and did; with --until-done: everything was merged
  6  with --until-done: not everything was merged (STUCK, ABANDONED or PAUSED), or it was stopped before";

impl Up {
    /// Runs until it is told to stop, or until nothing is left to be done.
    pub(crate) async fn run(self, format: Format) -> Result<Exit, Error> {
        let repository = repository::find(&self.repo, self.base.as_deref()).await?;
        let profiles = self.harness.profiles()?;
        let listen = listen(self.listen)?;
        let directory = match &self.state_dir {
            Some(directory) => directory.clone(),
            None => place::default_directory(&repository)?,
        };
        let place = place::take(&directory, &repository)?;
        let mut processes = Processes::new(&place.directory, Lifetime::OfThisProcess)?;
        let worker = Worker {
            masters: [url(listen)],
            capacity: self.capacity,
            roles: HARNESS_ROLES.into_iter().chain(["ci"]).collect(),
            drain_grace: self.drain_grace.clone(),
            ci_env: self.checks.ci_env.clone(),
            harness: profiles,
        };
        check(&worker, &processes)?;
        let up = Running {
            options: &self,
            repository: &repository,
            place: &place,
            show: Show::new(format),
        };
        let mut wishes = Wishes::listen()?;
        let ended = up.live(&mut processes, listen, worker, &mut wishes).await;
        if let Err(Error::Failed(_)) = &ended {
            output::error_text(&processes.log_tails());
        }
        processes.stop().await;
        ended
    }
}

impl Checks {
    /// What a person calls them.
    fn names(&self) -> String {
        let named = self
            .checks
            .iter()
            .map(|c| format!("{}: {}", c.name, c.command));
        self.ci
            .iter()
            .cloned()
            .chain(named)
            .collect::<Vec<_>>()
            .join("; ")
    }
}

/// One run, checked.
struct Running<'a> {
    options: &'a Up,
    repository: &'a Repository,
    place: &'a Place,
    show: Show,
}

/// What goes on.
enum Phase {
    Working,
    /// The worker has been asked to stop.
    Draining,
    /// It has been asked to stop its sessions too, and has until then.
    Stopping(Instant),
}

impl Running<'_> {
    async fn live(
        &self,
        processes: &mut Processes,
        listen: SocketAddr,
        worker: Worker,
        wishes: &mut Wishes,
    ) -> Result<Exit, Error> {
        let started = timeout(START_DEADLINE, self.start(processes, listen, worker));
        let mut follower = tokio::select! {
            started = started => started.unwrap_or_else(|_| Err(not_ready()))?,
            _ = wishes.next() => return Ok(self.stopped_early()),
        };
        let ended = self.follow(&mut follower, processes, wishes).await;
        match ended {
            // The reader had enough.
            Err(Error::Output(_)) => Ok(self.stopped_early()),
            Err(error) => Err(error),
            Ok(()) if !self.options.until_done => Ok(Exit::Done),
            Ok(()) => {
                follower.tell_outcome().await?;
                Ok(match follower.standing() {
                    Standing::Merged => Exit::Done,
                    Standing::Open | Standing::Unfinished => Exit::Ended,
                })
            }
        }
    }

    const fn stopped_early(&self) -> Exit {
        if self.options.until_done {
            Exit::Ended
        } else {
            Exit::Done
        }
    }

    async fn start(
        &self,
        processes: &mut Processes,
        listen: SocketAddr,
        mut worker: Worker,
    ) -> Result<Follower, Error> {
        self.wait_for_earlier_processes().await?;
        let master = Master {
            listen,
            shutdown_grace: SHUTDOWN_GRACE,
        };
        let address = processes.start_master(&master).await?;
        let mut client = Client::connect(&address).await?;
        self.register(&mut client).await?;
        worker.masters = [address.clone()];
        processes.start_worker(WORKER, &worker)?;
        let follower = Follower::start(client.clone(), self.show).await?;
        self.tell_start(&address)?;
        for title in &self.options.submit {
            self.submit(&mut client, title).await?;
        }
        Ok(follower)
    }

    /// An `up` that was killed leaves processes that end by themselves soon after it.
    async fn wait_for_earlier_processes(&self) -> Result<(), Error> {
        let running = || still_running(&self.place.directory).context("look for earlier processes");
        let mut is_told = false;
        loop {
            let names = running()?;
            if names.is_empty() {
                return Ok(());
            }
            if !is_told {
                let names = names.join(" and ");
                output::error_text(&format!("waiting for the end of an earlier {names}\n"));
                is_told = true;
            }
            sleep(LOOK_INTERVAL).await;
        }
    }

    async fn register(&self, client: &mut Client) -> Result<(), Error> {
        let wanted = AddRepositoryRequest {
            name: self.repository.name.clone(),
            git_url: self.repository.url.clone(),
            base_ref: self.repository.base.clone(),
            ci_command: self.options.checks.ci.clone().unwrap_or_default(),
            checks: self.options.checks.checks.clone(),
            reason: REASON.to_owned(),
            ..AddRepositoryRequest::default()
        };
        repo::register(client, wanted).await
    }

    async fn submit(&self, client: &mut Client, title: &str) -> Result<(), Error> {
        let repository = &self.repository.name;
        let request = SubmitIssueRequest {
            repository: repository.clone(),
            title: title.to_owned(),
            request_id: request_id(repository, title),
            reason: REASON.to_owned(),
            ..SubmitIssueRequest::default()
        };
        let answer = client
            .repositories
            .submit_issue(request)
            .await?
            .into_inner();
        let item = format!("{repository}#{}", answer.number);
        let text = match answer.changed {
            true => format!("opened {item}: {title}"),
            false => format!("{item} is there already: {title}"),
        };
        let changed = answer.changed;
        self.show.say(
            &text,
            &Line::Submitted {
                item,
                title,
                changed,
            },
        )
    }

    fn tell_start(&self, address: &str) -> Result<(), Error> {
        let Repository {
            path,
            url,
            name,
            base,
        } = self.repository;
        let state = &self.place.directory;
        let asking = match address == DEFAULT_ADDRESS {
            true => "pointsman".to_owned(),
            false => format!("pointsman --address {address}"),
        };
        self.show.text(&format!(
            "\
working on {name}: {path}, branch {base}
checks:     {checks}
harness:    {harness}
master:     {address}
state:      {state}
submit:     {asking} submit {name} --title TITLE --body TEXT
look:       {asking} workflows
stop:       Ctrl-C (sessions may run on for {grace}; twice: they are stopped)

",
            path = path.display(),
            checks = output::printable(&self.options.checks.names()),
            harness = output::printable(&self.options.harness.names()),
            state = state.display(),
            grace = self.options.drain_grace,
        ))?;
        let line = Line::Started {
            address,
            repository: name,
            path: url,
            base,
            state_dir: &state.to_string_lossy(),
            pid: std::process::id(),
        };
        self.show.line(&line)
    }

    /// Tells what happens until it is asked to stop and the worker did, or until nothing is left.
    async fn follow(
        &self,
        follower: &mut Follower,
        processes: &mut Processes,
        wishes: &mut Wishes,
    ) -> Result<(), Error> {
        let mut phase = Phase::Working;
        loop {
            match phase {
                Phase::Working => processes.must_be_alive()?,
                Phase::Draining | Phase::Stopping(_) if processes.workers_have_ended()? => {
                    return follower.round().await;
                }
                Phase::Draining => processes.master_must_be_alive()?,
                Phase::Stopping(deadline) if Instant::now() > deadline => return Ok(()),
                Phase::Stopping(_) => {}
            }
            tokio::select! {
                looked = look(follower) => {
                    if looked.is_err() {
                        // A master that has ended is the reason, not the call that it did not answer. Its
                        // end may be seen a moment after its connections'.
                        sleep(ROUND).await;
                        processes.master_must_be_alive()?;
                    }
                    looked?;
                    let is_over = follower.standing() != Standing::Open;
                    if is_over && self.options.until_done && matches!(phase, Phase::Working) {
                        processes.ask_workers_to_stop();
                        phase = Phase::Draining;
                    }
                }
                _ = wishes.next() => phase = self.stop(phase, processes)?,
            }
        }
    }

    /// The next phase, after one more wish to stop.
    fn stop(&self, phase: Phase, processes: &Processes) -> Result<Phase, Error> {
        let grace = &self.options.drain_grace;
        match phase {
            Phase::Working => {
                processes.ask_workers_to_stop();
                let text = format!(
                    "stopping: no more work is taken, sessions may run on for {grace}; once more stops them"
                );
                self.show.say(&text, &Line::Stopping { now: false })?;
                Ok(Phase::Draining)
            }
            Phase::Draining => {
                processes.ask_workers_to_stop();
                let text = "stopping the sessions; once more kills the processes";
                self.show.say(text, &Line::Stopping { now: true })?;
                Ok(Phase::Stopping(Instant::now() + STOP_GRACE))
            }
            Phase::Stopping(deadline) => {
                processes.kill();
                Ok(Phase::Stopping(deadline))
            }
        }
    }
}

/// A look after a pause.
async fn look(follower: &mut Follower) -> Result<(), Error> {
    sleep(ROUND).await;
    follower.round().await
}

fn not_ready() -> Error {
    anyhow!("not ready within {} s", START_DEADLINE.as_secs()).into()
}

/// An address that nobody listens on. Of the default one another port will do.
fn listen(wanted: Option<SocketAddr>) -> Result<SocketAddr, Error> {
    let bind = |address: SocketAddr| TcpListener::bind(address).map(drop);
    match wanted {
        None if bind(LISTEN).is_ok() => Ok(LISTEN),
        None => Ok(SocketAddr::new(LISTEN.ip(), 0)),
        Some(address) if !address.ip().is_loopback() => Err(Error::Usage(format!(
            "--listen {address}: only addresses of the loopback interface, as 127.0.0.1:0, since there is no \
             authentication yet"
        ))),
        Some(address) => match bind(address) {
            Ok(()) => Ok(address),
            Err(error) => Err(Error::Refused(format!(
                "--listen {address}: {error}; 127.0.0.1:0 takes any port that is free"
            ))),
        },
    }
}

fn url(address: SocketAddr) -> String {
    format!("http://{address}")
}

/// Has the worker look at its configuration before anything is started.
fn check(worker: &Worker, processes: &Processes) -> Result<(), Error> {
    let path = processes.config_of(WORKER);
    let text = worker.text(WORKER, &processes.state_of(WORKER))?;
    std::fs::write(&path, text).with_context(|| format!("write {}", path.display()))?;
    pointsman_worker::check(&path).map_err(|error| Error::Usage(format!("the worker's {error:#}")))
}

/// The same for the same title in the same repository, so that `up` again opens no second issue.
fn request_id(repository: &str, title: &str) -> String {
    let hash = Sha256::new()
        .chain_update(repository)
        .chain_update([0])
        .chain_update(title)
        .finalize();
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&hash[..16]);
    uuid::Builder::from_custom_bytes(bytes)
        .into_uuid()
        .to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_that_is_taken_is_refused_if_it_was_asked_for() {
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = taken.local_addr().unwrap();
        let Err(Error::Refused(why)) = listen(Some(address)) else {
            panic!("taken twice");
        };
        assert!(why.contains("127.0.0.1:0 takes any"), "{why}");
        assert!(matches!(
            listen(Some("0.0.0.0:0".parse().unwrap())),
            Err(Error::Usage(_))
        ));
        assert!(listen(None).unwrap().ip().is_loopback());
    }

    #[test]
    fn the_default_address_is_the_one_that_commands_ask() {
        assert_eq!(url(LISTEN), DEFAULT_ADDRESS);
    }

    #[test]
    fn the_same_title_is_the_same_request() {
        assert_eq!(request_id("a", "b"), request_id("a", "b"));
        assert_ne!(request_id("a", "b"), request_id("a", "c"));
        assert_ne!(request_id("ab", "c"), request_id("a", "bc"));
    }
}
