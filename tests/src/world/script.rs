//! The harness of the tests: a program that does what a script says, and writes down that it was run.
//!
//! The script is one file for all harnesses of a world. It has a list of plans for each role: the first
//! run in the role follows the first plan, and so on; the last plan is for all further runs. It can be
//! written anew at any time. The journal has one line a run, written before the first step.

use std::{
    collections::BTreeMap,
    fmt, fs,
    fs::File,
    io::{self, Read as _, Write as _},
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

use anyhow::Context as _;
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use pointsman_git::Git;
use pointsman_proto::v1::LeaseKey;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::signal::unix::{SignalKind, signal};

use super::leftovers::starttime;

/// Between two looks at a gate.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);

/// One thing that a harness does.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Step {
    /// Writes this document as the result.
    Verdict(Value),
    /// Writes this text as the result, whatever it is.
    Write(String),
    /// Changes a file, to something that it never was, and commits.
    Commit {
        path: String,
    },
    /// Writes a file that no other attempt writes, and commits.
    CommitOwn,
    /// Merges the base branch, with its side of whatever conflicts.
    MergeBase,
    /// Waits until the gate of this name is open.
    WaitFor(String),
    /// From here on SIGTERM does nothing.
    IgnoreTerm,
    Print(String),
    /// Prints so many bytes, in lines.
    Flood(u64),
    /// Does nothing for ever.
    Hang,
    /// Says something every now and then, for ever.
    Chatter,
    Exit(u8),
    /// Ends itself by SIGKILL.
    Die,
}

/// Plans by role.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Script {
    /// Directory of the gates: a gate is open once its file is there.
    pub(super) gates: PathBuf,
    pub(super) journal: PathBuf,
    plans: BTreeMap<String, Vec<Vec<Step>>>,
}

/// One run of a harness.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Invocation {
    pub role: String,
    pub attempt: String,
    pub fence: u64,
    pub nonce: String,
    pub pid: u32,
    pub starttime: u64,
    /// Commit that was checked out.
    pub head: String,
    /// Tip of the base branch, as the environment says.
    pub base: String,
    pub tier: String,
    pub prompt: Prompt,
}

/// A prompt file as a harness found it. `Debug` leaves it out: it would hide everything else.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Prompt(pub String);

impl fmt::Debug for Prompt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.0.len())
    }
}

impl Invocation {
    /// The lease that it ran under.
    pub fn key(&self) -> LeaseKey {
        LeaseKey {
            attempt_id: self.attempt.clone(),
            lock_fence: self.fence,
            lock_nonce: self.nonce.clone(),
        }
    }
}

impl Script {
    /// All goes well: one commit, approved.
    pub(super) fn new(gates: PathBuf, journal: PathBuf) -> Self {
        let script = Self {
            gates,
            journal,
            plans: BTreeMap::new(),
        };
        script
            .with("estimator", [vec![Step::ready()]])
            .with("implementer", [Step::change("work.txt")])
            .with("reviewer", [vec![Step::approve()]])
            .with(
                "conflict_resolver",
                [vec![Step::MergeBase, Step::resolved()]],
            )
            .with("escalator", [vec![Step::retry()]])
    }

    /// With other plans for a role.
    #[must_use]
    pub fn with(mut self, role: &str, plans: impl IntoIterator<Item = Vec<Step>>) -> Self {
        self.plans
            .insert(role.to_owned(), plans.into_iter().collect());
        self
    }

    /// With a wait at the gate of the role's name before each of its plans.
    #[must_use]
    pub fn gated(mut self, role: &str) -> Self {
        for plan in self.plans.entry(role.to_owned()).or_default() {
            plan.insert(0, Step::WaitFor(role.to_owned()));
        }
        self
    }

    fn plan(&self, role: &str, n_earlier: usize) -> anyhow::Result<&[Step]> {
        let plans = self
            .plans
            .get(role)
            .with_context(|| format!("no script for {role}"))?;
        let plan = plans.get(n_earlier).or_else(|| plans.last());
        plan.map(Vec::as_slice)
            .with_context(|| format!("no plan for {role}"))
    }
}

impl Step {
    pub fn ready() -> Self {
        Self::Verdict(json!({ "verdict": "ready", "tier": 0, "plan": "do as the script says" }))
    }
    pub fn changed() -> Self {
        Self::Verdict(json!({ "verdict": "changed", "summary": "a line more" }))
    }
    pub fn failed() -> Self {
        Self::Verdict(json!({ "verdict": "failed", "reason": "the script says so" }))
    }
    pub fn approve() -> Self {
        Self::Verdict(json!({ "verdict": "approve" }))
    }
    pub fn resolved() -> Self {
        Self::Verdict(json!({ "verdict": "resolved" }))
    }
    pub fn no_change() -> Self {
        Self::Verdict(json!({ "verdict": "no_change", "reason": "it is all there" }))
    }
    pub fn request_changes(notes: &str) -> Self {
        Self::Verdict(json!({ "verdict": "request_changes", "notes": notes }))
    }
    pub fn retry() -> Self {
        Self::Verdict(json!({ "verdict": "retry", "plan": "try harder" }))
    }
    pub fn give_up() -> Self {
        Self::Verdict(json!({ "verdict": "give_up", "reason": "the script says so" }))
    }
    /// A commit that changes a file, and the verdict that says so.
    pub fn change(path: &str) -> Vec<Self> {
        let path = path.to_owned();
        vec![Self::Commit { path }, Self::changed()]
    }
}

/// What the worker tells a harness, as far as the stub needs it.
struct Contract {
    role: String,
    attempt: String,
    fence: u64,
    nonce: String,
    result: PathBuf,
    base: String,
    tier: String,
    prompt: Prompt,
}

impl Contract {
    fn read() -> anyhow::Result<Self> {
        let get = |name: &str| -> anyhow::Result<String> {
            let variable = std::env::vars_os().find(|(key, _)| key == name);
            let (_, value) = variable.with_context(|| format!("{name} is not set"))?;
            value
                .into_string()
                .map_err(|value| anyhow::anyhow!("{name} is {}", value.display()))
        };
        // The session's directory is named after the lease.
        let prompt = PathBuf::from(get("POINTSMAN_PROMPT_FILE")?);
        let session = prompt
            .parent()
            .and_then(Path::file_name)
            .context("the prompt is in no session")?
            .to_string_lossy();
        let (rest, nonce) = session.rsplit_once('-').context("a lease has a nonce")?;
        let (attempt, fence) = rest.rsplit_once('-').context("a lease has a fence")?;
        Ok(Self {
            role: get("POINTSMAN_ROLE")?,
            attempt: attempt.to_owned(),
            fence: fence.parse()?,
            nonce: nonce.to_owned(),
            result: PathBuf::from(get("POINTSMAN_RESULT_FILE")?),
            base: get("POINTSMAN_BASE_COMMIT")?,
            tier: get("POINTSMAN_TIER")?,
            prompt: Prompt(fs::read_to_string(&prompt)?),
        })
    }
}

/// Does what the script at `path` has for this run: the main function of the stub harness.
pub fn follow(path: &Path) -> anyhow::Result<ExitCode> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?
        .block_on(run(path))
}

async fn run(path: &Path) -> anyhow::Result<ExitCode> {
    let contract = Contract::read()?;
    let script: Script = serde_json::from_slice(&fs::read(path)?)?;
    let git = Git::new(std::env::current_dir()?).with_identity("Stub", "stub@example.invalid");
    let pid = std::process::id();
    let invocation = Invocation {
        role: contract.role.clone(),
        attempt: contract.attempt.clone(),
        fence: contract.fence,
        nonce: contract.nonce.clone(),
        pid,
        starttime: starttime(pid).context("find this process")?,
        head: git.text(["rev-parse", "HEAD"]).await?,
        base: contract.base.clone(),
        tier: contract.tier.clone(),
        prompt: contract.prompt.clone(),
    };
    let n_earlier = write_down(&script.journal, &invocation)?;
    for step in script.plan(&contract.role, n_earlier)? {
        if let Some(code) = take(step, &script, &contract, &git).await? {
            return Ok(code);
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Adds a line to the journal and returns how many runs the role had before.
fn write_down(journal: &Path, invocation: &Invocation) -> anyhow::Result<usize> {
    let mut file = File::options()
        .create(true)
        .read(true)
        .append(true)
        .open(journal)?;
    file.lock()?;
    let mut text = String::new();
    file.read_to_string(&mut text)?;
    let line = format!("{}\n", serde_json::to_string(invocation)?);
    file.write_all(line.as_bytes())?;
    let earlier = parse(&text)?;
    let same = earlier.iter().filter(|run| run.role == invocation.role);
    Ok(same.count())
}

/// The runs in a journal; a line that is being written is not there yet.
pub(super) fn read_journal(path: &Path) -> Vec<Invocation> {
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Vec::new(),
        Err(error) => panic!("read the journal: {error}"),
    };
    let whole = text.rfind('\n').map_or("", |end| &text[..=end]);
    parse(whole).expect("a journal has invocations")
}

fn parse(text: &str) -> serde_json::Result<Vec<Invocation>> {
    text.lines().map(serde_json::from_str).collect()
}

async fn take(
    step: &Step,
    script: &Script,
    contract: &Contract,
    git: &Git,
) -> anyhow::Result<Option<ExitCode>> {
    match step {
        Step::Verdict(verdict) => fs::write(&contract.result, verdict.to_string())?,
        Step::Write(text) => fs::write(&contract.result, text)?,
        Step::Commit { path } => commit(path, contract, git).await?,
        Step::CommitOwn => commit(&format!("{}.txt", contract.attempt), contract, git).await?,
        Step::MergeBase => {
            let merge = ["merge", "--quiet", "--no-edit", "-X", "theirs"];
            git.run(merge.into_iter().chain(["origin/main"])).await?;
        }
        Step::WaitFor(gate) => {
            let gate = script.gates.join(gate);
            while !gate.exists() {
                tokio::time::sleep(LOOK_INTERVAL).await;
            }
        }
        Step::IgnoreTerm => {
            // A handler that nobody listens to stays in place for the life of the process.
            drop(signal(SignalKind::terminate())?);
        }
        Step::Print(text) => say(text)?,
        Step::Flood(bytes) => flood(*bytes)?,
        Step::Hang => std::future::pending().await,
        Step::Chatter => loop {
            say("still here")?;
            tokio::time::sleep(LOOK_INTERVAL).await;
        },
        Step::Exit(code) => return Ok(Some(ExitCode::from(*code))),
        Step::Die => kill(Pid::this(), Signal::SIGKILL)?,
    }
    Ok(None)
}

async fn commit(path: &str, contract: &Contract, git: &Git) -> anyhow::Result<()> {
    let text = format!("{}-{}\n", contract.attempt, contract.fence);
    fs::write(git.directory().join(path), text)?;
    git.run(["add", "--", path]).await?;
    git.run(["commit", "--quiet", "-m", "Do as the script says"])
        .await?;
    Ok(())
}

fn say(text: &str) -> io::Result<()> {
    writeln!(io::stdout(), "{text}")
}

fn flood(bytes: u64) -> io::Result<()> {
    let line = format!("{}\n", "flood ".repeat(20));
    let mut left = bytes;
    let mut stdout = io::BufWriter::new(io::stdout().lock());
    while left > 0 {
        let n = left.min(line.len() as u64);
        stdout.write_all(&line.as_bytes()[..usize::try_from(n).unwrap_or(line.len())])?;
        left -= n;
    }
    stdout.flush()
}
