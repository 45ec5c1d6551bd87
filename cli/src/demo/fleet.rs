//! The demo's processes: this program again, as a master and as two workers.
//!
//! Each has a configuration, a state directory and a log file of its own. They are process groups of
//! their own, so that Ctrl-C reaches the demo alone, which then stops them in order: workers first,
//! so that they can give back what they hold. Signals go to our own unreaped children, whose process
//! ids nobody else can have.

use std::{
    env, fs,
    fs::File,
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
    process::{Child, Command},
    time::{Instant, sleep, timeout_at},
};

use super::{Lifetime, config};

/// How often a condition is looked at: much shorter than anything that a person notices.
pub(super) const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// Between SIGTERM and SIGKILL. Longer than the graces in the configurations, so that each process can
/// end in its own order.
const STOP_GRACE: Duration = Duration::from_secs(10);

/// How much of the end of each log a failed demo shows.
const TAIL_LINES: usize = 15;

/// Variables of ours that would configure the children too.
const OWN_PREFIX: &[u8] = b"POINTSMAN_";

/// The processes of one demo.
#[derive(Debug)]
pub(super) struct Fleet {
    directory: PathBuf,
    program: PathBuf,
    lifetime: Lifetime,
    processes: Vec<Process>,
}

#[derive(Debug)]
struct Process {
    name: &'static str,
    child: Child,
}

impl Fleet {
    /// No process yet; all they need will be below `directory`.
    pub(super) fn new(directory: &Path, lifetime: Lifetime) -> anyhow::Result<Self> {
        Ok(Self {
            directory: directory.to_owned(),
            program: env::current_exe().context("find this program")?,
            lifetime,
            processes: Vec::new(),
        })
    }

    /// Starts a master and returns its URL.
    pub(super) async fn start_master(&mut self) -> anyhow::Result<String> {
        let state = self.directory.join("master");
        self.start("master", "master", &config::master(&state))?;
        let address = state.join("master.address");
        loop {
            self.must_be_alive()?;
            if let Some(address) = read_address(&address)? {
                return Ok(format!("http://{address}"));
            }
            sleep(LOOK_INTERVAL).await;
        }
    }

    /// Starts both workers.
    pub(super) fn start_workers(&mut self, master: &str) -> anyhow::Result<()> {
        for (name, roles) in config::WORKERS {
            let state = self.directory.join(name);
            let config = config::worker(name, roles, master, &state, &self.program);
            self.start("worker", name, &config)?;
        }
        Ok(())
    }

    fn start(&mut self, command: &str, name: &'static str, config: &str) -> anyhow::Result<()> {
        let config_file = self.directory.join(format!("{name}.toml"));
        fs::write(&config_file, config)
            .with_context(|| format!("write {}", config_file.display()))?;
        let log = File::create(self.log(name)).context("make a log file")?;
        let child = self
            .command(log)
            .context("share a log file")?
            .arg(command)
            .arg("--config")
            .arg(&config_file)
            .spawn()
            .with_context(|| format!("start the {name}"))?;
        self.processes.push(Process { name, child });
        Ok(())
    }

    fn command(&self, log: File) -> std::io::Result<Command> {
        let mut command = Command::new(&self.program);
        for (name, _) in env::vars_os() {
            if name.as_encoded_bytes().starts_with(OWN_PREFIX) {
                command.env_remove(name);
            }
        }
        command
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .process_group(0)
            .kill_on_drop(self.lifetime == Lifetime::OfTheDemo);
        Ok(command)
    }

    /// A process that ended by itself is the end of the demo.
    pub(super) fn must_be_alive(&mut self) -> anyhow::Result<()> {
        for process in &mut self.processes {
            if let Some(status) = process
                .child
                .try_wait()
                .context("look after the processes")?
            {
                bail!("{} ended by itself ({status})", process.name);
            }
        }
        Ok(())
    }

    /// Stops every process and waits for its end.
    pub(super) async fn stop(&mut self) {
        let mut masters = std::mem::take(&mut self.processes);
        let workers = masters.split_off(masters.len().min(1));
        for group in [workers, masters] {
            stop_all(group).await;
        }
    }

    /// Name and process id of each.
    pub(super) fn pids(&self) -> Vec<(&'static str, u32)> {
        let processes = self.processes.iter();
        processes
            .filter_map(|process| Some((process.name, process.child.id()?)))
            .collect()
    }

    /// The end of each log, for people.
    pub(super) fn log_tails(&self) -> String {
        let names = self.processes.iter().map(|process| process.name);
        names.map(|name| tail(&self.log(name))).collect()
    }

    fn log(&self, name: &str) -> PathBuf {
        self.directory.join(format!("{name}.log"))
    }
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

/// What the master wrote once it was bound; `None` until then.
fn read_address(path: &Path) -> anyhow::Result<Option<String>> {
    match fs::read_to_string(path) {
        Ok(text) if text.trim().is_empty() => Ok(None),
        Ok(text) => Ok(Some(text.trim().to_owned())),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| format!("read {}", path.display())),
    }
}

fn tail(log: &Path) -> String {
    let text = fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().collect();
    let shown = &lines[lines.len().saturating_sub(TAIL_LINES)..];
    format!("--- {}\n{}\n", log.display(), shown.join("\n"))
}
