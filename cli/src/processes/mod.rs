//! This program again, as a master and as workers, for those who want all of it on one machine.
//!
//! Each process has a configuration, a state directory and a log of its own below one directory. They
//! are process groups of their own, so that Ctrl-C reaches this process alone, which then stops them in
//! order: workers first, so that they can give back what they hold. Signals go to our own unreaped
//! children, whose process ids nobody else can have.
//!
//! Two things hold also where this process is killed. The children's standard input is a pipe whose other
//! end is here: it ends with this process, and they stop in order (`programs`). And each log is locked for
//! as long as its process runs, since the process has a copy of the locked file: so who starts the next
//! ones on the same directory can wait for the last of the old ones.

pub(crate) mod config;

use std::{
    env, fs,
    fs::{File, TryLockError},
    io,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use anyhow::{Context as _, bail};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use tokio::{
    process::{Child, ChildStdin, Command},
    time::{Instant, sleep, timeout_at},
};
use tonic_health::pb::{
    HealthCheckRequest, health_check_response::ServingStatus, health_client::HealthClient,
};

use crate::{client, error::Error, programs::WITH_PARENT};
use config::{Master, Worker};

/// How often a condition is looked at: much shorter than anything that a person notices.
pub(crate) const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// Between the first asking, after which a worker lets its sessions run on, and the second one, which ends
/// them: signals that come together count once.
pub(crate) const ASKED_AGAIN: Duration = Duration::from_millis(500);

/// Between SIGTERM and SIGKILL. Longer than what each process takes to end in its own order: a master's
/// grace for calls in flight, a worker's last questions, a harness's grace.
pub(crate) const STOP_GRACE: Duration = Duration::from_secs(20);

/// How much of the end of each log is shown where something failed.
const TAIL_LINES: usize = 15;

/// A log that is longer when its process starts is put aside, in the place of the one before.
const LOG_MAX: u64 = 16 * 1024 * 1024;

/// Variables of ours that would configure the children too.
const OWN_PREFIX: &[u8] = b"POINTSMAN_";

/// The health service's name of a master that can be asked.
const READY: &str = "pointsman.ready";

/// The master's name among the processes.
const MASTER: &str = "master";

/// How long the processes are there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lifetime {
    /// They end with this process, however it ends.
    OfThisProcess,
    /// They stay when this process ends.
    Kept,
}

/// A master and its workers.
#[derive(Debug)]
pub(crate) struct Processes {
    directory: PathBuf,
    program: PathBuf,
    lifetime: Lifetime,
    master: Option<Process>,
    workers: Vec<Process>,
}

#[derive(Debug)]
struct Process {
    name: String,
    child: Child,
    /// The end of the pipe whose closing asks the process to stop.
    _lifeline: Option<ChildStdin>,
}

impl Processes {
    /// No process yet; all they need will be below `directory`, which is there.
    pub(crate) fn new(directory: &Path, lifetime: Lifetime) -> anyhow::Result<Self> {
        Ok(Self {
            directory: directory.to_owned(),
            program: env::current_exe().context("find this program")?,
            lifetime,
            master: None,
            workers: Vec::new(),
        })
    }

    /// This program, as the processes run it.
    pub(crate) fn program(&self) -> &Path {
        &self.program
    }

    /// Where the state of a process is kept.
    pub(crate) fn state_of(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// Where the configuration of a process is written.
    pub(crate) fn config_of(&self, name: &str) -> PathBuf {
        self.directory.join(format!("{name}.toml"))
    }

    /// Starts a master, waits until it can be asked, and returns its URL.
    pub(crate) async fn start_master(&mut self, settings: &Master<'_>) -> Result<String, Error> {
        let state = self.state_of(MASTER);
        let address = state.join("master.address");
        // That of an earlier master on this directory, who is gone.
        remove_if_there(&address).context("remove the address of an earlier master")?;
        let config = settings.text(&state)?;
        self.master = Some(self.start("master", MASTER, &config)?);
        let url = loop {
            self.must_be_alive()?;
            if let Some(address) = read_address(&address)? {
                break format!("http://{address}");
            }
            sleep(LOOK_INTERVAL).await;
        };
        self.wait_until_ready(&url).await?;
        Ok(url)
    }

    async fn wait_until_ready(&mut self, url: &str) -> Result<(), Error> {
        let mut health = HealthClient::new(client::connect(url).await?);
        loop {
            self.must_be_alive()?;
            let service = READY.to_owned();
            let request = HealthCheckRequest { service };
            // The listener that answers before the database is open hangs up once it is.
            let answer = health.check(request).await;
            if answer.is_ok_and(|answer| answer.get_ref().status() == ServingStatus::Serving) {
                return Ok(());
            }
            sleep(LOOK_INTERVAL).await;
        }
    }

    /// Starts a worker.
    pub(crate) fn start_worker(&mut self, name: &str, settings: &Worker) -> anyhow::Result<()> {
        let config = settings.text(name, &self.state_of(name))?;
        let worker = self.start("worker", name, &config)?;
        self.workers.push(worker);
        Ok(())
    }

    fn start(&self, command: &str, name: &str, config: &str) -> anyhow::Result<Process> {
        let config_file = self.config_of(name);
        fs::write(&config_file, config)
            .with_context(|| format!("write {}", config_file.display()))?;
        let log = self.log(name);
        let log = locked(&log).with_context(|| format!("open {}", log.display()))?;
        let mut child = self
            .command(log)
            .context("share a log file")?
            .arg(command)
            .arg("--config")
            .arg(&config_file)
            .args((self.lifetime == Lifetime::OfThisProcess).then_some(WITH_PARENT))
            .spawn()
            .with_context(|| format!("start the {name}"))?;
        // Taken out: waiting for a child closes the pipe that it still has.
        let lifeline = child.stdin.take();
        Ok(Process {
            name: name.to_owned(),
            child,
            _lifeline: lifeline,
        })
    }

    fn command(&self, log: File) -> io::Result<Command> {
        let mut command = Command::new(&self.program);
        for (name, _) in env::vars_os() {
            if name.as_encoded_bytes().starts_with(OWN_PREFIX) {
                command.env_remove(name);
            }
        }
        command
            .stdin(match self.lifetime {
                Lifetime::OfThisProcess => Stdio::piped(),
                Lifetime::Kept => Stdio::null(),
            })
            .stdout(log.try_clone()?)
            .stderr(log)
            .env("NO_COLOR", "1")
            .process_group(0)
            .kill_on_drop(self.lifetime == Lifetime::OfThisProcess);
        Ok(command)
    }

    /// A process that ended by itself is the end of the whole.
    pub(crate) fn must_be_alive(&mut self) -> anyhow::Result<()> {
        let mut all = self.master.iter_mut().chain(&mut self.workers);
        all.try_for_each(Process::must_be_alive)
    }

    /// The master alone must be alive: the workers have been asked to stop.
    pub(crate) fn master_must_be_alive(&mut self) -> anyhow::Result<()> {
        self.master.iter_mut().try_for_each(Process::must_be_alive)
    }

    /// Asks all workers to stop. The first time they drain: sessions may run on for a grace. The second
    /// time they stop their sessions now.
    pub(crate) fn ask_workers_to_stop(&self) {
        for worker in &self.workers {
            signal(&worker.child, Signal::SIGTERM);
        }
    }

    /// Kills what runs, without any order.
    pub(crate) fn kill(&self) {
        for process in self.all() {
            signal(&process.child, Signal::SIGKILL);
        }
    }

    /// Whether no worker runs any more.
    pub(crate) fn workers_have_ended(&mut self) -> anyhow::Result<bool> {
        for worker in &mut self.workers {
            if worker.ended()?.is_none() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Stops every process in order, sessions too, and waits for its end; who does not end within
    /// [`STOP_GRACE`] is killed.
    pub(crate) async fn stop(&mut self) {
        self.ask_workers_to_stop();
        let asked_again = Instant::now() + ASKED_AGAIN;
        for worker in &mut self.workers {
            // One that has no session ends here.
            drop(timeout_at(asked_again, worker.child.wait()).await);
        }
        stop_all(std::mem::take(&mut self.workers)).await;
        stop_all(self.master.take().into_iter().collect()).await;
    }

    /// Name and process id of each.
    pub(crate) fn pids(&self) -> Vec<(&str, u32)> {
        self.all()
            .filter_map(|process| Some((process.name.as_str(), process.child.id()?)))
            .collect()
    }

    /// The end of each log, for people.
    pub(crate) fn log_tails(&self) -> String {
        self.all()
            .map(|process| tail(&self.log(&process.name)))
            .collect()
    }

    fn all(&self) -> impl Iterator<Item = &Process> {
        self.master.iter().chain(&self.workers)
    }

    fn log(&self, name: &str) -> PathBuf {
        self.directory.join(format!("{name}.log"))
    }
}

impl Process {
    fn must_be_alive(&mut self) -> anyhow::Result<()> {
        match self.ended()? {
            Some(status) => bail!("the {} ended by itself ({status})", self.name),
            None => Ok(()),
        }
    }

    /// How it ended; `None` while it runs.
    fn ended(&mut self) -> anyhow::Result<Option<std::process::ExitStatus>> {
        self.child.try_wait().context("look after the processes")
    }
}

/// The names of those whose process still runs, of processes that were started in `directory`.
pub(crate) fn still_running(directory: &Path) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if path.extension().is_none_or(|extension| extension != "log") {
            continue;
        }
        let file = File::options().append(true).open(&path)?;
        match file.try_lock() {
            Ok(()) => file.unlock()?,
            Err(TryLockError::WouldBlock) => {
                names.extend(path.file_stem().map(|name| name.display().to_string()));
            }
            Err(TryLockError::Error(error)) => return Err(error),
        }
    }
    Ok(names)
}

/// Opens a log for a process, which shares the lock on it.
fn locked(path: &Path) -> io::Result<File> {
    if fs::metadata(path).is_ok_and(|log| log.len() > LOG_MAX) {
        fs::rename(path, path.with_extension("log.old"))?;
    }
    let log = File::options().create(true).append(true).open(path)?;
    log.try_lock().map_err(io::Error::from)?;
    Ok(log)
}

/// Asks all of them at once, then waits for each; who does not end is killed.
async fn stop_all(mut processes: Vec<Process>) {
    for process in &processes {
        signal(&process.child, Signal::SIGTERM);
    }
    let deadline = Instant::now() + STOP_GRACE;
    for process in &mut processes {
        if timeout_at(deadline, process.child.wait()).await.is_err() {
            signal(&process.child, Signal::SIGKILL);
            drop(process.child.wait().await);
        }
    }
}

/// Signals a child. One that has ended is a zombie of ours until it was waited for, so that the number
/// is nobody else's; then it has none.
fn signal(child: &Child, signal: Signal) {
    if let Some(pid) = child.id().and_then(|pid| i32::try_from(pid).ok()) {
        let _delivered = kill(Pid::from_raw(pid), signal);
    }
}

/// As if somebody had asked from outside.
pub(crate) fn ask_this_process_to_stop() -> anyhow::Result<()> {
    kill(Pid::this(), Signal::SIGTERM).context("ask this process to stop")
}

/// What the master wrote once it was bound; `None` until then.
fn read_address(path: &Path) -> anyhow::Result<Option<String>> {
    match fs::read_to_string(path) {
        Ok(text) if text.trim().is_empty() => Ok(None),
        Ok(text) => Ok(Some(text.trim().to_owned())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| format!("read {}", path.display())),
    }
}

fn remove_if_there(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

fn tail(log: &Path) -> String {
    let text = fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().collect();
    let shown = &lines[lines.len().saturating_sub(TAIL_LINES)..];
    format!("--- {}\n{}\n", log.display(), shown.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_is_locked_for_as_long_as_a_copy_of_it_is_open() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("worker.log");
        let log = locked(&path).unwrap();
        let copy_of_the_child = log.try_clone().unwrap();
        drop(log);
        assert_eq!(still_running(directory.path()).unwrap(), ["worker"]);
        assert!(locked(&path).is_err());
        // By name, since another test may have forked a copy of its own meanwhile.
        copy_of_the_child.unlock().unwrap();
        assert!(still_running(directory.path()).unwrap().is_empty());
        locked(&path).unwrap();
    }

    #[test]
    fn a_long_log_is_put_aside() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("master.log");
        let length = |name: &str| fs::metadata(directory.path().join(name)).unwrap().len();
        let log = File::create(&path).unwrap();
        log.set_len(LOG_MAX).unwrap();
        drop(locked(&path).unwrap());
        assert_eq!(length("master.log"), LOG_MAX);
        log.set_len(LOG_MAX + 1).unwrap();
        drop(locked(&path).unwrap());
        assert_eq!(length("master.log"), 0);
        assert_eq!(length("master.log.old"), LOG_MAX + 1);
    }
}
