//! A harness that follows a script instead of asking a model, for the demo.
//!
//! It is run as any harness is: a program with a prompt, a result file and a checkout as its current
//! directory. It keeps nothing between runs and counts nothing. What it does follows from what it
//! reads: the issue, the failed checks and the review notes in the prompt, and the files in the
//! checkout. Like a hasty developer it does what the words say, and runs no tests; so a test that
//! asks for more than the issue says is found by continuous integration, honestly.
//!
//! `prompt` reads the prompt, `skill` is all that it can do to a program, and one function a role
//! here says when it does it. The contract is worker.md, "The harness contract".

mod prompt;
mod skill;
mod verdict;

use std::{
    collections::BTreeSet,
    env, fs, io,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, bail};
use clap::Args;
use pointsman_git::Git;

use self::{
    prompt::Prompt,
    skill::{PROGRAM, Skill},
    verdict::Verdict,
};
use crate::{error::Error, output};

#[derive(Debug, Args)]
pub(crate) struct ScriptedHarness {
    #[arg(long, env = "POINTSMAN_ROLE")]
    role: String,
    #[arg(long, env = "POINTSMAN_PROMPT_FILE")]
    prompt_file: PathBuf,
    #[arg(long, env = "POINTSMAN_RESULT_FILE")]
    result_file: PathBuf,
}

impl ScriptedHarness {
    /// Does the role's work in the current directory and writes the verdict.
    pub(crate) async fn run(self) -> Result<(), Error> {
        let text = fs::read_to_string(&self.prompt_file)
            .with_context(|| format!("read {}", self.prompt_file.display()))?;
        let checkout = env::current_dir().context("find the checkout")?;
        let task = Task::new(Prompt::parse(&text), checkout);
        let verdict = task.work(&self.role).await?;
        output::line(&format!("{}: {verdict:?}", self.role))?;
        verdict.write(&self.result_file)?;
        Ok(())
    }
}

/// What is to be done, and where.
struct Task {
    prompt: Prompt,
    checkout: PathBuf,
    git: Git,
}

impl Task {
    fn new(prompt: Prompt, checkout: PathBuf) -> Self {
        let git = Git::new(&checkout)
            .with_identity("Scripted harness", "scripted-harness@example.invalid");
        Self {
            prompt,
            checkout,
            git,
        }
    }

    async fn work(&self, role: &str) -> anyhow::Result<Verdict> {
        match role {
            "estimator" => self.estimate(),
            "implementer" => self.implement().await,
            "reviewer" => self.review().await,
            "conflict_resolver" => self.resolve().await,
            "escalator" => self.escalate(),
            role => bail!("no script for the role {role}"),
        }
    }

    fn estimate(&self) -> anyhow::Result<Verdict> {
        let wanted = self.wanted();
        if wanted.is_empty() || !self.checkout.join(PROGRAM).exists() {
            return Ok(Verdict::Unsure {
                reason: format!("nothing that is asked for is about {PROGRAM}"),
            });
        }
        let tier = 1;
        let plan = plan(&wanted);
        Ok(Verdict::Ready { tier, plan })
    }

    async fn implement(&self) -> anyhow::Result<Verdict> {
        let program = self.program()?;
        let missing: Vec<Skill> = self
            .wanted()
            .into_iter()
            .filter(|s| !s.is_in(&program))
            .collect();
        if missing.is_empty() {
            return Ok(Verdict::NoChange {
                reason: format!("{PROGRAM} does all that is asked for"),
            });
        }
        let changed = missing
            .iter()
            .fold(program, |program, skill| skill.add_to(&program));
        fs::write(self.checkout.join(PROGRAM), changed).context("write the program")?;
        let summary = plan(&missing);
        self.git
            .run(["commit", "--quiet", "--all", "-m", &summary])
            .await
            .context("commit")?;
        Ok(Verdict::Changed { summary })
    }

    async fn review(&self) -> anyhow::Result<Verdict> {
        let range = format!("{}...HEAD", self.base()?);
        let names = self.git.text(["diff", "--name-only", &range]).await?;
        let diff = self.git.text(["diff", &range]).await?;
        let objections = self.objections(&names, &diff)?;
        if objections.is_empty() {
            return Ok(Verdict::Approve {
                notes: format!("{range} changes {} as asked", names.replace('\n', ", ")),
            });
        }
        let notes = objections.join("\n");
        Ok(Verdict::RequestChanges { notes })
    }

    fn objections(&self, names: &str, diff: &str) -> anyhow::Result<Vec<String>> {
        let mut objections = Vec::new();
        if names.is_empty() {
            objections.push("nothing is changed".to_owned());
        }
        for other in names.lines().filter(|name| *name != PROGRAM) {
            objections.push(format!("{other} is changed, and nobody asked for that"));
        }
        if diff.lines().any(|line| line.starts_with("+<<<<<<<")) {
            objections.push("a conflict is left in the text".to_owned());
        }
        let program = self.program()?;
        let missing = self.wanted().into_iter().filter(|s| !s.is_in(&program));
        objections.extend(missing.map(|skill| format!("missing: {}", skill.purpose())));
        Ok(objections)
    }

    /// Both sides add steps to the same program: what either does, the merge does.
    async fn resolve(&self) -> anyhow::Result<Verdict> {
        let base = self.base()?;
        let merge = ["merge", "--quiet", "--no-edit", &base];
        if self.git.run_expecting(merge, &[0, 1]).await?.status == 0 {
            return Ok(Verdict::Resolved {});
        }
        let paths = self
            .git
            .text(["diff", "--name-only", "--diff-filter=U"])
            .await?;
        if paths != PROGRAM {
            return Ok(Verdict::Unresolved {
                reason: format!("no script for a conflict in {}", paths.replace('\n', ", ")),
            });
        }
        let ours = self.git.text(["show", &format!(":2:{PROGRAM}")]).await?;
        let theirs = self.git.text(["show", &format!(":3:{PROGRAM}")]).await?;
        fs::write(self.checkout.join(PROGRAM), skill::merged(&ours, &theirs))
            .context("write the program")?;
        self.git
            .run(["commit", "--quiet", "--all", "--no-edit"])
            .await?;
        Ok(Verdict::Resolved {})
    }

    fn escalate(&self) -> anyhow::Result<Verdict> {
        let program = self.program()?;
        let missing: Vec<Skill> = self
            .wanted()
            .into_iter()
            .filter(|s| !s.is_in(&program))
            .collect();
        if missing.is_empty() {
            return Ok(Verdict::GiveUp {
                reason: "nothing is left that a script could try".to_owned(),
            });
        }
        let plan = plan(&missing);
        Ok(Verdict::Retry { plan })
    }

    /// What the prompt asks for, by its words.
    fn wanted(&self) -> BTreeSet<Skill> {
        Skill::named_in(&self.prompt.demands())
    }

    fn program(&self) -> anyhow::Result<String> {
        read(&self.checkout.join(PROGRAM)).context("read the program")
    }

    /// The base branch as the checkout has it.
    fn base(&self) -> anyhow::Result<String> {
        let fact = self
            .prompt
            .fact("base branch")
            .context("the prompt names no base branch")?;
        let name = fact.split_whitespace().next().unwrap_or(fact);
        Ok(format!("origin/{name}"))
    }
}

fn plan<'a>(skills: impl IntoIterator<Item = &'a Skill>) -> String {
    let purposes: Vec<&str> = skills.into_iter().map(|skill| skill.purpose()).collect();
    format!("Make {PROGRAM} {}", purposes.join(" and "))
}

fn read(path: &Path) -> io::Result<String> {
    fs::read_to_string(path)
}

#[cfg(test)]
mod tests;
