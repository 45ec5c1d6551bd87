//! `pointsman holds` and `release-hold`: accounts and profiles that get no work for a while.

use clap::Args;
use pointsman_proto::v1::{ListHoldsRequest, ReleaseHoldRequest};
use serde::Serialize;

use crate::{
    args::Target,
    error::Error,
    output::{self, Format, Table},
    view::{Hold, cell, cell_instant},
};

/// Most entries that the master gives at once.
const PAGE_SIZE: u32 = 500;

#[derive(Debug, Args)]
pub(crate) struct List {}

#[derive(Debug, Serialize)]
struct Listed {
    holds: Vec<Hold>,
}

impl List {
    /// Prints all holds.
    pub(crate) async fn run(self, target: &Target) -> Result<(), Error> {
        let holds = all(target).await?;
        match target.output {
            Format::Json => output::json(&Listed { holds }),
            Format::Table => output::text(&table(&holds).render()),
        }
    }
}

async fn all(target: &Target) -> Result<Vec<Hold>, Error> {
    let mut client = target.connect().await?;
    let mut holds = Vec::new();
    let mut page_token = String::new();
    loop {
        let request = ListHoldsRequest {
            page_size: PAGE_SIZE,
            page_token,
        };
        let page = client.fleet.list_holds(request).await?.into_inner();
        holds.extend(page.holds.into_iter().map(Hold::from));
        page_token = page.next_page_token;
        if page_token.is_empty() {
            return Ok(holds);
        }
    }
}

fn table(holds: &[Hold]) -> Table {
    let headings = [
        "HELD", "CLASS", "UNTIL", "FAILURES", "CANARY", "MESSAGE", "ID",
    ];
    let mut table = Table::new(headings);
    for hold in holds {
        table.row([
            subject(hold),
            cell(hold.class.as_ref()),
            cell_instant(hold.until.as_deref()),
            hold.failures.to_string(),
            cell(hold.canary_attempt_id.as_ref()),
            hold.message.clone(),
            hold.id.clone(),
        ]);
    }
    table
}

fn subject(hold: &Hold) -> String {
    match (&hold.account, &hold.profile, &hold.worker_id) {
        (Some(account), ..) => format!("account {account}"),
        (None, Some(profile), Some(worker)) => format!("profile {profile} of worker {worker}"),
        _ => "-".to_owned(),
    }
}

#[derive(Debug, Args)]
pub(crate) struct Release {
    /// The hold's id
    hold: String,
    /// Why, for the history
    #[arg(long)]
    reason: String,
}

#[derive(Debug, Serialize)]
struct Released {
    changed: bool,
    hold: Option<Hold>,
}

impl Release {
    /// Ends the hold.
    pub(crate) async fn run(self, target: &Target) -> Result<(), Error> {
        let mut client = target.connect().await?;
        let request = ReleaseHoldRequest {
            hold_id: self.hold,
            reason: self.reason,
        };
        let answer = client.fleet.release_hold(request).await?.into_inner();
        let released = Released {
            changed: answer.changed,
            hold: answer.hold.map(Hold::from),
        };
        match target.output {
            Format::Json => output::json(&released),
            Format::Table => output::line(&released.sentence()),
        }
    }
}

impl Released {
    fn sentence(&self) -> String {
        match &self.hold {
            Some(hold) => format!("{} is released", output::printable(&subject(hold))),
            None => "there is no such hold, or no more".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use pointsman_proto::v1;

    use super::*;

    #[test]
    fn a_hold_is_named_by_whom_it_holds() {
        let account = v1::Hold {
            account: "main".to_owned(),
            class: v1::infrastructure_error::Class::ProviderQuota.into(),
            ..v1::Hold::default()
        };
        let account = Hold::from(account);
        assert_eq!(subject(&account), "account main");
        assert_eq!(account.class.as_deref(), Some("PROVIDER_QUOTA"));
        let profile = Hold::from(v1::Hold {
            worker_id: "w".to_owned(),
            profile: "agent".to_owned(),
            ..v1::Hold::default()
        });
        assert_eq!(subject(&profile), "profile agent of worker w");
        let released = Released {
            changed: true,
            hold: Some(profile),
        };
        assert_eq!(released.sentence(), "profile agent of worker w is released");
    }
}
