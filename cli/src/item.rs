//! `pointsman submit` and `label`: issues and pull requests of the built-in forge. What else there is to do with
//! them is in `items`.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use clap::Args;
use pointsman_proto::v1::{SetLabelRequest, SubmitIssueRequest};
use serde::Serialize;

use crate::{
    args::Target,
    error::Error,
    output::{self, Format},
    view::{Workflow, cell},
};

#[derive(Debug, Args)]
pub(crate) struct Submit {
    /// The repository's name
    repository: String,
    /// 1 to 256 bytes
    #[arg(long)]
    title: String,
    /// The issue's text
    #[arg(long, conflicts_with = "body_file")]
    body: Option<String>,
    /// A file with the issue's text; `-` is standard input
    #[arg(long, value_name = "FILE")]
    body_file: Option<PathBuf>,
    /// Leave the opt-in label off: nothing happens until it is added
    #[arg(long)]
    unlabelled: bool,
    /// Why, for the history
    #[arg(long, default_value = "", hide_default_value = true)]
    reason: String,
}

#[derive(Debug, Serialize)]
struct Submitted {
    changed: bool,
    number: u64,
    workflow: Option<Workflow>,
}

impl Submit {
    /// Opens the issue.
    pub(crate) async fn run(self, target: &Target) -> Result<(), Error> {
        let body = text(self.body.clone(), self.body_file.as_deref())?;
        let request = SubmitIssueRequest {
            repository: self.repository.clone(),
            title: self.title,
            body,
            unlabelled: self.unlabelled,
            request_id: String::new(),
            reason: self.reason,
        };
        let mut client = target.connect().await?;
        let answer = client
            .repositories
            .submit_issue(request)
            .await?
            .into_inner();
        let submitted = Submitted {
            changed: answer.changed,
            number: answer.number,
            workflow: answer.workflow.map(Workflow::from),
        };
        match target.output {
            Format::Json => output::json(&submitted),
            Format::Table => output::line(&submitted.sentence(&self.repository)),
        }
    }
}

/// What was typed, or what a file holds; `-` is standard input.
pub(crate) fn text(typed: Option<String>, file: Option<&Path>) -> Result<String, Error> {
    let Some(path) = file else {
        return Ok(typed.unwrap_or_default());
    };
    let read = if path.as_os_str() == "-" {
        io::read_to_string(io::stdin())
    } else {
        fs::read_to_string(path)
    };
    read.map_err(|error| Error::Usage(format!("--body-file {}: {error}", path.display())))
}

impl Submitted {
    fn sentence(&self, repository: &str) -> String {
        let number = self.number;
        match &self.workflow {
            Some(workflow) => format!("opened {repository}#{number}: workflow {}", workflow.id),
            None => format!(
                "opened {repository}#{number} without the opt-in label: \
                 `pointsman label {repository} {number} --add LABEL` starts it"
            ),
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct Label {
    /// The repository's name
    repository: String,
    /// The issue's or pull request's number
    number: u64,
    #[command(flatten)]
    change: Change,
    /// Why, for the history
    #[arg(long, default_value = "", hide_default_value = true)]
    reason: String,
}

#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
struct Change {
    /// The label that it is to carry
    #[arg(long, value_name = "LABEL")]
    add: Option<String>,
    /// The label that it is not to carry
    #[arg(long, value_name = "LABEL")]
    remove: Option<String>,
}

#[derive(Debug, Serialize)]
struct Labelled {
    changed: bool,
    labels: Vec<String>,
    workflow: Option<Workflow>,
}

impl Label {
    /// Sets or removes the label.
    pub(crate) async fn run(self, target: &Target) -> Result<(), Error> {
        let item = format!("{}#{}", self.repository, self.number);
        let request = SetLabelRequest {
            repository: self.repository,
            number: self.number,
            present: self.change.add.is_some(),
            label: self.change.add.or(self.change.remove).unwrap_or_default(),
            reason: self.reason,
        };
        let mut client = target.connect().await?;
        let answer = client.repositories.set_label(request).await?.into_inner();
        let labelled = Labelled {
            changed: answer.changed,
            labels: answer.labels,
            workflow: answer.workflow.map(Workflow::from),
        };
        match target.output {
            Format::Json => output::json(&labelled),
            Format::Table => output::line(&labelled.sentence(&item)),
        }
    }
}

impl Labelled {
    fn sentence(&self, item: &str) -> String {
        let labels = match self.labels.as_slice() {
            [] => "no label".to_owned(),
            labels => labels.join(", "),
        };
        let state = self
            .workflow
            .as_ref()
            .map(|workflow| workflow.state.as_ref());
        let state = state.map_or_else(|| "no workflow".to_owned(), cell);
        let before = if self.changed { "now" } else { "unchanged" };
        output::printable(&format!("{item} {before}: {labels}; {state}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_issue_that_waits_for_its_label_says_how_to_start_it() {
        let submitted = Submitted {
            changed: true,
            number: 4,
            workflow: None,
        };
        let sentence = submitted.sentence("demo");
        assert!(
            sentence.contains("pointsman label demo 4 --add"),
            "{sentence}"
        );
    }

    #[test]
    fn labels_and_state_are_told() {
        let labelled = Labelled {
            changed: false,
            labels: vec!["agent".to_owned(), "bug".to_owned()],
            workflow: None,
        };
        assert_eq!(
            labelled.sentence("demo#1"),
            "demo#1 unchanged: agent, bug; no workflow"
        );
    }
}
