//! The command line: what there is to type, and which file carries it out.

use std::{future::Future, process::ExitCode};

use anyhow::Context as _;
use clap::{Args, CommandFactory as _, Parser, Subcommand};

use crate::{
    attempt, backup, change,
    client::{Client, DEFAULT_ADDRESS},
    demo,
    error::Error,
    event, exit,
    exit::Exit,
    fleet, help, hold, item, items, logs, machine,
    output::Format,
    programs::Program,
    repo, schema, scripted_harness, stats, up, watch, worker, workflow,
};

/// Drives issues to merged pull requests: a master, its workers, and the commands to run them.
#[derive(Debug, Parser)]
#[command(
    name = "pointsman",
    version,
    after_long_help = exit::HELP,
    arg_required_else_help = true,
    subcommand_required = true
)]
pub(crate) struct Cli {
    #[command(flatten)]
    target: Target,
    #[command(subcommand)]
    command: Command,
}

/// Which master is asked, and how its answer is shown.
#[derive(Debug, Args)]
#[command(next_help_heading = "Asking a master")]
pub(crate) struct Target {
    /// The master to ask
    #[arg(
        long,
        global = true,
        env = "POINTSMAN_ADDRESS",
        default_value = DEFAULT_ADDRESS,
        value_name = "URL"
    )]
    address: String,
    /// For whom to print
    #[arg(
        short,
        long,
        global = true,
        value_enum,
        default_value = "table",
        value_name = "FORMAT"
    )]
    pub(crate) output: Format,
}

impl Target {
    /// Connects to the master.
    pub(crate) async fn connect(&self) -> Result<Client, Error> {
        Client::connect(&self.address).await
    }
}

#[derive(Debug, Subcommand)]
enum Command {
    #[command(flatten)]
    Program(Program),
    /// Show it all: a small repository, a master and two workers drive an issue to a merged pull request
    Demo(demo::Demo),
    /// Work on a repository of your own: a master and a worker, until they are told to stop
    Up(Box<up::Up>),
    /// Repositories that the master drives
    #[command(subcommand)]
    Repo(repo::Repo),
    /// Open an issue on the built-in forge
    Submit(item::Submit),
    /// Add or remove a label of an issue or pull request
    Label(item::Label),
    /// List issues and pull requests of the built-in forge
    Items(items::List),
    /// Show one issue or pull request
    Item(items::Show),
    /// Close an issue or pull request: its workflow ends
    Close(items::Close),
    /// Open a closed issue or pull request again
    Reopen(items::Reopen),
    /// Say something about an issue or pull request
    Comment(items::Say),
    /// List what was said about an issue or pull request
    Comments(items::Comments),
    /// List workflows
    Workflows(workflow::List),
    /// Show one workflow: why it waits, its attempts, its events
    Workflow(workflow::Show),
    /// List what happened
    Events(event::List),
    /// Show workflows as they change
    Watch(watch::Watch),
    /// List attempts, newest first
    Attempts(attempt::List),
    /// End an attempt; a new one takes its place
    Cancel(attempt::Cancel),
    /// Set which of the workflows that wait is leased first
    Priority(change::Priority),
    /// Print what a harness printed, live or afterwards
    Logs(logs::Logs),
    /// List who runs what now
    Sessions(fleet::Sessions),
    /// List workers
    Workers(worker::List),
    /// Give a worker no new leases until it is undrained; its sessions run on
    Drain(worker::Drain),
    /// Let a worker have leases again
    Undrain(worker::Undrain),
    /// End all leases of a worker whose processes are known to be gone
    DeclareDead(worker::DeclareDead),
    /// List accounts and profiles that get no work for a while
    Holds(hold::List),
    /// End a hold now
    ReleaseHold(hold::Release),
    /// Show how the whole fleet stands, in figures
    Stats(stats::Show),
    /// Copy the master's database into a file, while the master goes on
    Backup(backup::Backup),
    /// Turn the crank of one of the master's duties, or of all, now
    Sweep(fleet::Sweep),
    /// Let a workflow rest until `resume`
    Pause(change::Pause),
    /// Let a workflow that `pause` put to rest go on where it was
    Resume(change::Resume),
    /// End a workflow; its issue or pull request stays as it is
    Abandon(change::Abandon),
    /// Bring a STUCK or PAUSED workflow back to DISCOVERED
    Unstick(change::Unstick),
    /// Give the issue or pull request of a workflow that has ended another one
    Resubmit(change::Resubmit),
    /// Set how often a workflow may still have flaky checks run again
    FlakeRetries(change::FlakeRetries),
    /// Print the state machine: states, transitions, bounds
    Machine(machine::Machine),
    /// Print the JSON Schema of a role's verdict, for those who write harnesses
    Schema(schema::Schema),
    /// Print a script that completes this command line in a shell
    Completions(help::Completions),
    /// Write manual pages
    Man(help::Man),
    #[command(hide = true)]
    ScriptedHarness(scripted_harness::ScriptedHarness),
}

impl Cli {
    /// Carries the command out.
    pub(crate) fn run(self) -> Result<ExitCode, Error> {
        let target = self.target;
        let done = match self.command {
            Command::Program(program) => return program.run(),
            Command::Up(command) => {
                return block_on(command.run(target.output)).map(ExitCode::from);
            }
            Command::Demo(command) => block_on(command.run()),
            Command::Repo(command) => block_on(command.run(&target)),
            Command::Submit(command) => block_on(command.run(&target)),
            Command::Label(command) => block_on(command.run(&target)),
            Command::Items(command) => block_on(command.run(&target)),
            Command::Item(command) => block_on(command.run(&target)),
            Command::Close(command) => block_on(command.run(&target)),
            Command::Reopen(command) => block_on(command.run(&target)),
            Command::Comment(command) => block_on(command.run(&target)),
            Command::Comments(command) => block_on(command.run(&target)),
            Command::Workflows(command) => block_on(command.run(&target)),
            Command::Workflow(command) => block_on(command.run(&target)),
            Command::Events(command) => block_on(command.run(&target)),
            Command::Watch(command) => block_on(command.run(&target)),
            Command::Attempts(command) => block_on(command.run(&target)),
            Command::Cancel(command) => block_on(command.run(&target)),
            Command::Priority(command) => block_on(command.run(&target)),
            Command::Logs(command) => block_on(command.run(&target)),
            Command::Sessions(command) => block_on(command.run(&target)),
            Command::Workers(command) => block_on(command.run(&target)),
            Command::Drain(command) => block_on(command.run(&target)),
            Command::Undrain(command) => block_on(command.run(&target)),
            Command::DeclareDead(command) => block_on(command.run(&target)),
            Command::Holds(command) => block_on(command.run(&target)),
            Command::ReleaseHold(command) => block_on(command.run(&target)),
            Command::Stats(command) => block_on(command.run(&target)),
            Command::Backup(command) => block_on(command.run(&target)),
            Command::Sweep(command) => block_on(command.run(&target)),
            Command::Pause(command) => block_on(command.run(&target)),
            Command::Resume(command) => block_on(command.run(&target)),
            Command::Abandon(command) => block_on(command.run(&target)),
            Command::Unstick(command) => block_on(command.run(&target)),
            Command::Resubmit(command) => block_on(command.run(&target)),
            Command::FlakeRetries(command) => block_on(command.run(&target)),
            Command::Machine(command) => block_on(command.run(&target)),
            Command::Schema(command) => command.run(),
            Command::Completions(command) => command.run(Self::command()),
            Command::Man(command) => command.run(Self::command()),
            Command::ScriptedHarness(command) => block_on(command.run()),
        };
        done.map(|()| Exit::Done.into())
    }
}

/// Runs a command of this crate: one thread is plenty for a client.
fn block_on<T>(command: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("start the runtime")?
        .block_on(command)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(arguments: &[&str]) -> String {
        let arguments = ["pointsman"].iter().chain(arguments);
        crate::error::first_paragraph(&Cli::try_parse_from(arguments).unwrap_err().to_string())
    }

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    fn walk(command: &clap::Command, path: &str, visit: &mut impl FnMut(&str, &clap::Command)) {
        for command in command.get_subcommands().filter(|c| !c.is_hide_set()) {
            let path = format!("{path} {}", command.get_name());
            visit(&path, command);
            walk(command, &path, visit);
        }
    }

    #[test]
    fn every_command_has_help_and_its_examples_are_taken() {
        let mut n_examples = 0;
        walk(&Cli::command(), "pointsman", &mut |path, command| {
            assert!(
                command.get_about().is_some(),
                "{path} says nothing of itself"
            );
            for argument in command.get_arguments() {
                assert!(
                    argument.get_help().is_some(),
                    "{path}: {}",
                    argument.get_id()
                );
            }
            let after = command.get_after_help().map(ToString::to_string);
            let after = after.unwrap_or_default();
            for line in after
                .lines()
                .filter_map(|line| line.strip_prefix("  pointsman "))
            {
                let example = format!("pointsman {line}");
                assert!(example.starts_with(path), "{path}: {example}");
                let parsed = Cli::try_parse_from(example.split_whitespace());
                assert!(parsed.is_ok(), "{example}: {:?}", parsed.err());
                n_examples += 1;
            }
        });
        assert!(n_examples > 10, "{n_examples} examples were found");
    }

    #[test]
    fn good_lines_are_taken() {
        let lines = [
            "repo add demo --git /x --base main --ci true --label agent --policy max_tier=2",
            "repo add demo --git /x --check test=make --check lint=true",
            "repo list -o json",
            "submit demo --title T --body B --unlabelled --reason R",
            "label demo 1 --add agent",
            "repo policy demo --policy merge_method=squash --reset max_tier --reason R",
            "repo policy demo",
            "items demo --state closed --label agent",
            "item demo 1",
            "close demo 1 --reason R",
            "reopen demo 1 --reason R",
            "comment demo 1 --body B",
            "comments demo 1 -o json",
            "workflows --repo demo --state stuck,paused --kind pull-request",
            "workflow demo#2",
            "events demo#2 --after 5 --limit 1000",
            "--address http://10.0.0.1:1 sessions",
            "priority demo#2 -5 --reason R",
            "logs demo#2 -f --tail 100",
            "logs --attempt 01890000-0000-7000-8000-000000000000 --fence 2 -o json",
            "sweep reaper",
            "workers -o json",
            "holds",
            "release-hold 01890000-0000-7000-8000-000000000000 --reason R",
            "stats -o json",
            "schema infrastructure_error",
            "drain worker-1 --stop-sessions --reason R",
            "undrain worker-1 --reason R",
            "declare-dead worker-1 --force --reason R",
            "pause demo#2 --reason R --cancel-running",
            "resume demo#2 --reason R --expected-version 7",
            "abandon demo#2 --reason R -o json",
            "unstick demo#2 --reason R",
            "resubmit demo#2 --reason R",
            "flake-retries demo#2 3 --reason R",
            "machine --repo demo",
            "schema conflict_resolver --kind pull-request",
            "shim /sessions/1",
            "demo --keep",
            "up --ci true --harness claude",
            "up --repo /x --base dev --ci true --harness a --harness b --harness-env A --harness-prompt file \
             --profiles F --capacity 3 --listen 127.0.0.1:0 --state-dir /s --drain-grace 1m --submit A \
             --submit B --until-done",
        ];
        for line in lines {
            let arguments = ["pointsman"].into_iter().chain(line.split(' '));
            assert!(Cli::try_parse_from(arguments).is_ok(), "{line}");
        }
    }

    #[test]
    fn bad_lines_are_refused_with_what_is_taken() {
        let check = |line: &str, part: &str| {
            let refusal = refusal(&line.split(' ').collect::<Vec<_>>());
            assert!(refusal.contains(part), "{line}: {refusal}");
            assert!(!refusal.contains('\n'), "{line}: {refusal}");
        };
        check("workflows --state DONE", "AWAITING_CI");
        check("workflows --kind epic", "pull-request");
        check("label demo x --add agent", "'x'");
        check("label demo 1", "--add <LABEL>|--remove <LABEL>");
        check("label demo 1 --add a --remove b", "cannot be used with");
        check("close demo 1", "--reason <REASON>");
        check("comment demo 1", "--body <BODY>");
        check("items demo --state merged", "closed");
        check("repo policy demo --reset tiers --reason R", "max_tier");
        check("repo policy demo --reset max_tier", "--reason <REASON>");
        check("events --limit 1001", "1..=1000");
        check("flake-retries demo#1 11 --reason R", "0..=10");
        check("logs", "WORKFLOW");
        check("logs demo#1 --attempt A", "cannot be used with");
        check("logs demo#1 --fence 1", "cannot be used with");
        check("logs --fence 1", "--attempt");
        check("logs demo#1 --tail x", "invalid digit");
        check("unstick demo#1", "--reason <REASON>");
        check("drain worker-1", "--reason <REASON>");
        check("undrain worker-1", "--reason <REASON>");
        check("release-hold x", "--reason <REASON>");
        check("declare-dead --reason R", "<WORKER>");
        for command in ["pause", "resume", "abandon", "resubmit"] {
            check(&format!("{command} demo#1"), "--reason <REASON>");
            check(&format!("{command} --reason R"), "<WORKFLOW>");
            let version = format!("{command} demo#1 --reason R --expected-version 0");
            check(&version, "0 is not in 1..");
        }
        check(
            "submit demo --title T --body B --body-file F",
            "cannot be used with",
        );
        check("repo add demo --git /x --policy tiers=1", "max_tier");
        check("repo add demo --git /x --check test", "NAME=COMMAND");
        check("priority demo#1 101 --reason R", "-100..=100");
        check("watch --until terminal", "REPOSITORY[#NUMBER]");
        check("up --ci true", "--harness <COMMAND|PROFILE>");
        check("up --harness true", "--ci <COMMAND>");
        check("up --ci true --harness a --capacity 0", "1..=1000");
        check("frobnicate", "frobnicate");
    }
}
