//! Reaching a master.

use std::time::Duration;

use pointsman_proto::v1::{
    fleet_service_client::FleetServiceClient, repository_service_client::RepositoryServiceClient,
    workflow_service_client::WorkflowServiceClient,
};
use tonic::transport::{Channel, Endpoint};

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

    #[tokio::test]
    async fn a_master_that_is_not_there_is_named_with_its_cure() {
        // Nobody listens on port 1, and no connection starts from there.
        let address = "http://127.0.0.1:1";
        let error = Client::connect(address).await.unwrap_err();
        assert!(matches!(&error, Error::Unreachable { address: a, .. } if *a == address));
        assert_eq!(error.report(), crate::exit::Exit::Unreachable);
    }
}
