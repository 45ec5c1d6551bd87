//! Reaching a master.

use std::time::Duration;

use pointsman_proto::v1::{
    fleet_service_client::FleetServiceClient, repository_service_client::RepositoryServiceClient,
    workflow_service_client::WorkflowServiceClient,
};
use tokio::time::Instant;
use tonic::{
    Code, Status,
    transport::{Channel, Endpoint},
};

use crate::error::Error;

/// Where a master listens unless told otherwise.
pub(crate) const DEFAULT_ADDRESS: &str = "http://127.0.0.1:7433";

/// A master that is there accepts a connection at once, even over oceans.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Longest wait for an answer. `sweep` answers when all its duties are done, which may talk to forges.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(120);

/// The operators' services of one master.
#[derive(Debug, Clone)]
pub(crate) struct Client {
    pub(crate) repositories: RepositoryServiceClient<Channel>,
    pub(crate) workflows: WorkflowServiceClient<Channel>,
    pub(crate) fleet: FleetServiceClient<Channel>,
}

impl Client {
    /// Connects to the master at `address`.
    pub(crate) async fn connect(address: &str) -> Result<Self, Error> {
        let channel = connect(address).await?;
        Ok(Self {
            repositories: RepositoryServiceClient::new(channel.clone()),
            workflows: WorkflowServiceClient::new(channel.clone()),
            fleet: FleetServiceClient::new(channel),
        })
    }
}

/// Opens a channel to the master at `address`.
pub(crate) async fn connect(address: &str) -> Result<Channel, Error> {
    endpoint(address)?
        .connect_timeout(CONNECT_TIMEOUT)
        .timeout(ANSWER_TIMEOUT)
        .connect()
        .await
        .map_err(|source| Error::Unreachable {
            address: address.to_owned(),
            source,
        })
}

/// How long a command that follows what changes goes on without an answer: a master that is restarted is
/// back within it.
const PATIENCE: Duration = Duration::from_secs(60);

/// Between two tries.
const RETRY: Duration = Duration::from_secs(1);

/// Goes on where a master is away for a moment, and not for longer.
#[derive(Debug, Default)]
pub(crate) struct Patience {
    failing_since: Option<Instant>,
}

impl Patience {
    /// There was an answer.
    pub(crate) fn succeeded(&mut self) {
        self.failing_since = None;
    }

    /// Waits for the next try, or gives up with the failure.
    pub(crate) async fn wait_after(&mut self, failure: Status) -> Result<(), Error> {
        let since = *self.failing_since.get_or_insert_with(Instant::now);
        if !is_passing(failure.code()) || since.elapsed() >= PATIENCE {
            return Err(failure.into());
        }
        tokio::time::sleep(RETRY).await;
        Ok(())
    }
}

/// A broken connection shows as one of these, as a master that shuts down or has its hands full does.
fn is_passing(code: Code) -> bool {
    matches!(
        code,
        Code::Unavailable
            | Code::ResourceExhausted
            | Code::DeadlineExceeded
            | Code::Cancelled
            | Code::Unknown
    )
}

fn endpoint(address: &str) -> Result<Endpoint, Error> {
    Endpoint::from_shared(address.to_owned())
        .ok()
        .filter(|endpoint| {
            let uri = endpoint.uri();
            uri.scheme_str() == Some("http") && uri.authority().is_some()
        })
        .ok_or_else(|| {
            Error::Usage(format!(
                "--address (or POINTSMAN_ADDRESS) takes http://HOST:PORT, not {address:?}"
            ))
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_a_url() {
        assert!(endpoint(DEFAULT_ADDRESS).is_ok());
        assert!(endpoint("http://[::1]:7433").is_ok());
        for bad in [
            "",
            "localhost",
            "127.0.0.1:7433",
            "https://host",
            "http://",
            "a b",
        ] {
            assert!(matches!(endpoint(bad), Err(Error::Usage(_))), "{bad:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_master_that_stays_away_is_given_up() {
        let mut patience = Patience::default();
        let started = Instant::now();
        while patience
            .wait_after(Status::unavailable("away"))
            .await
            .is_ok()
        {}
        assert_eq!(started.elapsed(), PATIENCE);
        patience.succeeded();
        assert!(patience.wait_after(Status::unknown("away")).await.is_ok());
        let refused = Status::invalid_argument("never");
        assert!(patience.wait_after(refused).await.is_err());
    }

    #[tokio::test]
    async fn a_master_that_is_not_there_is_named_with_its_cure() {
        // Nobody listens on port 1, and no connection starts from there.
        let address = "http://127.0.0.1:1";
        let error = Client::connect(address).await.unwrap_err();
        assert!(matches!(&error, Error::Unreachable { address: a, .. } if *a == address));
        assert_eq!(error.report(), crate::exit::Exit::Unreachable);
    }
}
