//! `pointsman pause`, `resume`, `abandon`, `unstick`, `resubmit`, `flake-retries` and `priority`: what
//! operators do to one workflow. Each says why, and shows the workflow as it is afterwards.

use clap::{Args, value_parser};
use pointsman_proto::v1::{
    self, AbandonWorkflowRequest, PauseWorkflowRequest, ResubmitWorkflowRequest,
    ResumeWorkflowRequest, SetCiFlakeRetriesRequest, SetPriorityRequest, UnstickWorkflowRequest,
};
use serde::Serialize;

use crate::{
    args::Target,
    client::Client,
    error::Error,
    output::{self, Format},
    view::{Workflow, cell},
    workflow::resolve,
};

/// What every change names.
#[derive(Debug, Args)]
struct Asked {
    /// The workflow's id, or REPOSITORY#NUMBER
    workflow: String,
    /// Why, for the history
    #[arg(long)]
    reason: String,
    /// Only while the workflow is at this version
    #[arg(long, value_name = "N", value_parser = value_parser!(u64).range(1..))]
    expected_version: Option<u64>,
}

impl Asked {
    async fn id(&self, client: &mut Client) -> Result<String, Error> {
        resolve(client, &self.workflow).await
    }

    fn version(&self) -> u64 {
        self.expected_version.unwrap_or(0)
    }
}

#[derive(Debug, Serialize)]
struct Changed {
    changed: bool,
    workflow: Workflow,
}

impl Changed {
    fn new(changed: bool, workflow: Option<v1::Workflow>) -> Self {
        let workflow = workflow.unwrap_or_default().into();
        Self { changed, workflow }
    }

    fn print(&self, format: Format) -> Result<(), Error> {
        match format {
            Format::Json => output::json(self),
            Format::Table => output::line(&self.sentence()),
        }
    }

    fn sentence(&self) -> String {
        let workflow = &self.workflow;
        let before = if self.changed { "now" } else { "unchanged" };
        let state = cell(workflow.state.as_ref());
        let mut text = format!(
            "{}#{} {before}: {state}",
            workflow.repository, workflow.number
        );
        if let Some(was) = &workflow.pre_pause_state {
            let by = cell(workflow.paused_by.as_ref());
            text = format!("{text} by {by}, it goes on in {was}");
        }
        let retries = workflow
            .counters
            .as_ref()
            .map(|c| c.ci_flake_retries_remaining);
        format!(
            "{text}, tier {}, priority {}, flaky checks may be run again {} times",
            workflow.tier,
            workflow.priority,
            cell(retries),
        )
    }
}

#[derive(Debug, Args)]
pub(crate) struct Pause {
    #[command(flatten)]
    asked: Asked,
    /// Cancel what runs instead of letting it finish
    #[arg(long)]
    cancel_running: bool,
}

impl Pause {
    /// Lets the workflow rest.
    pub(crate) async fn run(self, target: &Target) -> Result<(), Error> {
        let mut client = target.connect().await?;
        let request = PauseWorkflowRequest {
            workflow_id: self.asked.id(&mut client).await?,
            expected_version: self.asked.version(),
            reason: self.asked.reason,
            cancel_running: self.cancel_running,
        };
        let answer = client.workflows.pause_workflow(request).await?.into_inner();
        Changed::new(answer.changed, answer.workflow).print(target.output)
    }
}

#[derive(Debug, Args)]
pub(crate) struct Resume {
    #[command(flatten)]
    asked: Asked,
}

impl Resume {
    /// Lets the workflow go on where it was.
    pub(crate) async fn run(self, target: &Target) -> Result<(), Error> {
        let mut client = target.connect().await?;
        let request = ResumeWorkflowRequest {
            workflow_id: self.asked.id(&mut client).await?,
            expected_version: self.asked.version(),
            reason: self.asked.reason,
        };
        let answer = client
            .workflows
            .resume_workflow(request)
            .await?
            .into_inner();
        Changed::new(answer.changed, answer.workflow).print(target.output)
    }
}

#[derive(Debug, Args)]
pub(crate) struct Abandon {
    #[command(flatten)]
    asked: Asked,
}

impl Abandon {
    /// Ends the workflow.
    pub(crate) async fn run(self, target: &Target) -> Result<(), Error> {
        let mut client = target.connect().await?;
        let request = AbandonWorkflowRequest {
            workflow_id: self.asked.id(&mut client).await?,
            expected_version: self.asked.version(),
            reason: self.asked.reason,
        };
        let answer = client
            .workflows
            .abandon_workflow(request)
            .await?
            .into_inner();
        Changed::new(answer.changed, answer.workflow).print(target.output)
    }
}

#[derive(Debug, Args)]
pub(crate) struct Unstick {
    #[command(flatten)]
    asked: Asked,
}

impl Unstick {
    /// Brings the workflow back to DISCOVERED.
    pub(crate) async fn run(self, target: &Target) -> Result<(), Error> {
        let mut client = target.connect().await?;
        let request = UnstickWorkflowRequest {
            workflow_id: self.asked.id(&mut client).await?,
            expected_version: self.asked.version(),
            reason: self.asked.reason,
        };
        let answer = client
            .workflows
            .unstick_workflow(request)
            .await?
            .into_inner();
        Changed::new(answer.changed, answer.workflow).print(target.output)
    }
}

#[derive(Debug, Args)]
pub(crate) struct Resubmit {
    #[command(flatten)]
    asked: Asked,
}

impl Resubmit {
    /// Gives the item of a workflow that has ended another one.
    pub(crate) async fn run(self, target: &Target) -> Result<(), Error> {
        let mut client = target.connect().await?;
        let request = ResubmitWorkflowRequest {
            workflow_id: self.asked.id(&mut client).await?,
            expected_version: self.asked.version(),
            reason: self.asked.reason,
        };
        let answer = client
            .workflows
            .resubmit_workflow(request)
            .await?
            .into_inner();
        Changed::new(answer.changed, answer.workflow).print(target.output)
    }
}

#[derive(Debug, Args)]
pub(crate) struct FlakeRetries {
    #[command(flatten)]
    asked: Asked,
    /// How often from now on
    #[arg(value_parser = value_parser!(u32).range(0..=10), value_name = "N")]
    remaining: u32,
}

impl FlakeRetries {
    /// Sets the workflow's remaining retries.
    pub(crate) async fn run(self, target: &Target) -> Result<(), Error> {
        let mut client = target.connect().await?;
        let request = SetCiFlakeRetriesRequest {
            workflow_id: self.asked.id(&mut client).await?,
            remaining: self.remaining,
            expected_version: self.asked.version(),
            reason: self.asked.reason,
        };
        let answer = client
            .workflows
            .set_ci_flake_retries(request)
            .await?
            .into_inner();
        Changed::new(answer.changed, answer.workflow).print(target.output)
    }
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  pointsman priority demo#2 10 --reason urgent
  pointsman priority demo#2 -5 --reason idle")]
pub(crate) struct Priority {
    #[command(flatten)]
    asked: Asked,
    /// From -100 to 100; higher ones are leased first, and 0 is where all begin
    #[arg(
        value_parser = value_parser!(i32).range(-100..=100),
        allow_negative_numbers = true,
        value_name = "N"
    )]
    priority: i32,
}

impl Priority {
    /// Sets the workflow's priority.
    pub(crate) async fn run(self, target: &Target) -> Result<(), Error> {
        let mut client = target.connect().await?;
        let request = SetPriorityRequest {
            workflow_id: self.asked.id(&mut client).await?,
            priority: self.priority,
            expected_version: self.asked.version(),
            reason: self.asked.reason,
        };
        let answer = client.workflows.set_priority(request).await?.into_inner();
        Changed::new(answer.changed, answer.workflow).print(target.output)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_state_after_the_change_is_told_with_its_pause() {
        let changed = Changed::new(
            true,
            Some(v1::Workflow {
                repository: "demo".to_owned(),
                number: 2,
                state: v1::WorkflowState::Paused.into(),
                pre_pause_state: v1::WorkflowState::Merging.into(),
                paused_by: "operator".to_owned(),
                tier: 1,
                counters: Some(v1::Counters::default()),
                ..v1::Workflow::default()
            }),
        );
        assert_eq!(
            changed.sentence(),
            "demo#2 now: PAUSED by operator, it goes on in MERGING, tier 1, priority 0, \
             flaky checks may be run again 0 times"
        );
        let unchanged = Changed::new(false, Some(v1::Workflow::default()));
        assert!(unchanged.sentence().contains("unchanged"));
    }
}
