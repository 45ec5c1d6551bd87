//! The composition root: from a configuration to a running master.
//!
//! Bound before the long steps, so that the address is known and liveness answers while the database is
//! opened and migrated; ready only once all of it runs.

use std::{io, net::SocketAddr, path::Path, pin::pin, sync::Arc, time::Duration};

use tokio::net::TcpListener;
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tonic::service::RoutesBuilder;

use crate::{
    clock::{Chance, Clock, Stopwatch, SystemChance, SystemClock, SystemStopwatch},
    config::Config,
    dispatch::{beats::Beats, claims::Claims},
    forge::builtin::BuiltinForge,
    grpc::server::{self, Apis, Health},
    logs::archive::Archive,
    logs::{LogStore, Logs},
    service::{self, Ports, Service, Settings, wake::Wake},
    store::{Store, sqlite::SqliteStore},
    sweeps::{
        CiPoller, Effector, PickupGuard, Reaper, Reconciler, Retention, Scheduler,
        driver::{Driver, Duty},
    },
};

/// Says in the state directory where the master listens.
const ADDRESS_FILE: &str = "master.address";
/// The database in the state directory.
const DATABASE_FILE: &str = "pointsman.db";
/// The clones of repositories in the state directory.
const CLONES: &str = "repositories";
/// What harnesses print, in the state directory.
const LOGS: &str = "logs";

/// The archive in the state directory.
const ARCHIVE: &str = "archive";

/// How long those who connected before the database was open may take to go.
const FAREWELL: Duration = Duration::from_secs(1);

/// Why a master did not start, or ended.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("bind {address}")]
    Bind {
        address: SocketAddr,
        #[source]
        source: io::Error,
    },
    #[error("write the state directory")]
    StateDirectory(#[source] io::Error),
    #[error("git_config can't be used")]
    GitConfig(#[from] pointsman_git::AccessError),
    #[error("open the database")]
    Store(#[from] crate::store::Error),
    #[error("open the archive")]
    Archive(#[from] crate::logs::archive::Error),
    #[error(transparent)]
    Config(#[from] crate::config::Error),
    #[error(transparent)]
    Logs(#[from] crate::logs::Error),
    #[error(transparent)]
    Server(#[from] server::Error),
    #[error("the server ended while the database was being opened")]
    EndedEarly,
}

/// A master that has everything but life.
pub struct App {
    pub(crate) listener: TcpListener,
    pub(crate) routes: RoutesBuilder,
    pub(crate) health: Health,
    pub(crate) claims: Arc<Claims>,
    pub(crate) beats: Arc<Beats>,
    pub(crate) driver: Arc<Driver>,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) tasks: TaskTracker,
}

/// A port that is bound and says that the master lives, while the rest is being opened.
pub(crate) struct Bound {
    address: SocketAddr,
    listener: std::net::TcpListener,
    routes: RoutesBuilder,
    health: Health,
}

impl Bound {
    /// Binds the port.
    pub(crate) async fn bind(config: &Config) -> Result<Self, Error> {
        let failed = |source| Error::Bind {
            address: config.listen,
            source,
        };
        let listener = TcpListener::bind(config.listen).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        tracing::info!(%address, "listening");
        let (health, routes) = server::health().await;
        Ok(Self {
            address,
            listener: listener.into_std().map_err(failed)?,
            routes,
            health,
        })
    }

    /// Opens the rest, answering liveness meanwhile.
    pub(crate) async fn open(self, config: &Config, stop: &Stops) -> Result<App, Error> {
        let opened = CancellationToken::new();
        let routes = server::not_yet(self.routes.clone());
        let mut alive = pin!(server::serve(self.listener()?, routes, opened.clone()));
        let access = pointsman_git::Access::read(config.git_config.clone()).await?;
        let store = tokio::select! {
            store = open_store(config) => store?,
            ended = &mut alive => {
                ended?;
                return Err(Error::EndedEarly);
            }
        };
        opened.cancel();
        // Only now: a second master on this state directory has got no further than the database's lock.
        publish(&config.state_dir, &self.address.to_string()).map_err(Error::StateDirectory)?;
        // Who is connected is told to connect again; who does not listen is cut off.
        if tokio::time::timeout(FAREWELL, alive).await.is_err() {
            tracing::debug!("somebody stayed connected while the database was opened");
        }
        let listener = self.listener()?;
        assemble(config, store, access, listener, self, stop)
    }

    fn listener(&self) -> Result<TcpListener, Error> {
        self.listener
            .try_clone()
            .and_then(TcpListener::from_std)
            .map_err(Error::StateDirectory)
    }
}

/// In which order things end.
#[derive(Debug, Clone, Default)]
pub(crate) struct Stops {
    /// No new leases, no new sweep runs, streams say farewell.
    pub(crate) work: CancellationToken,
    /// The last beats are written; the server takes no more calls.
    pub(crate) serving: CancellationToken,
}

async fn open_store(config: &Config) -> Result<Arc<dyn Store>, Error> {
    let path = config.state_dir.join(DATABASE_FILE);
    let store = SqliteStore::open(&path, Arc::new(SystemClock)).await?;
    Ok(Arc::new(store))
}

fn open_logs(config: &Config) -> Result<LogStore, Error> {
    let directory = config.logs.directory()?;
    let directory = directory.unwrap_or_else(|| config.state_dir.join(LOGS));
    Ok(LogStore::in_directory(&directory, config.logs.max_bytes)?)
}

fn assemble(
    config: &Config,
    store: Arc<dyn Store>,
    access: pointsman_git::Access,
    listener: TcpListener,
    bound: Bound,
    stops: &Stops,
) -> Result<App, Error> {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let chance: Arc<dyn Chance> = Arc::new(SystemChance);
    let stopwatch: Arc<dyn Stopwatch> = Arc::new(SystemStopwatch::default());
    let wake = Arc::new(Wake::default());
    let forge = Arc::new(BuiltinForge::new(
        Arc::clone(&store),
        Arc::clone(&clock),
        Arc::clone(&chance),
        config.state_dir.join(CLONES),
        access,
    ));
    let ports = Ports {
        store: Arc::clone(&store),
        forge,
        logs: Arc::new(Logs::new(open_logs(config)?)),
        clock: Arc::clone(&clock),
        stopwatch: Arc::clone(&stopwatch),
        chance: Arc::clone(&chance),
        wake: Arc::clone(&wake),
        archive: Archive::in_directory(&config.state_dir.join(ARCHIVE))?,
    };
    let settings = Settings {
        ci_flake_retries: config.ci_flake_retries,
        least_ttl_seconds: config.least_ttl_seconds(),
        retention: service::Retention {
            history: config.history(),
            logs: config.log_retention(),
        },
    };
    let service = Service::new(ports, settings);
    let claims = Arc::new(Claims::new(service.clone(), stops.work.clone()));
    let beats = Arc::new(Beats::new(
        service.clone(),
        stopwatch,
        config.flush_interval,
    ));
    let driver = Arc::new(Driver::new(duties(config, &service), wake, chance, clock));
    let tasks = TaskTracker::new();
    let apis = Apis::new(
        service,
        Arc::clone(&claims),
        Arc::clone(&beats),
        Arc::clone(&driver),
        config.beat_interval,
        tasks.clone(),
        stops.work.clone(),
    );
    let mut routes = bound.routes;
    server::add(&mut routes, apis)?;
    Ok(App {
        listener,
        routes,
        health: bound.health,
        claims,
        beats,
        driver,
        store,
        tasks,
    })
}

/// The sweeps in their order, each with its pace and its bell.
pub fn duties(config: &Config, service: &Service) -> Vec<Duty> {
    vec![
        Duty {
            sweep: Box::new(Scheduler::new(service.clone())),
            interval: config.scheduler_interval,
            bell: Some(|wake| &wake.scheduler),
        },
        Duty {
            sweep: Box::new(Reaper::new(service.clone())),
            interval: config.reaper_interval,
            bell: None,
        },
        Duty {
            sweep: Box::new(PickupGuard::new(service.clone())),
            interval: config.reaper_interval,
            bell: None,
        },
        Duty {
            sweep: Box::new(Reconciler::new(service.clone())),
            interval: config.reconciler_interval,
            bell: None,
        },
        Duty {
            sweep: Box::new(CiPoller::new(service.clone())),
            interval: config.due_interval,
            bell: Some(|wake| &wake.ci_poller),
        },
        Duty {
            sweep: Box::new(Effector::new(service.clone())),
            interval: config.due_interval,
            bell: Some(|wake| &wake.effector),
        },
        Duty {
            sweep: Box::new(Retention::new(service.clone())),
            interval: config.retention_interval,
            bell: None,
        },
    ]
}

/// Writes the address so that a reader sees all of it or nothing.
fn publish(directory: &Path, address: &str) -> io::Result<()> {
    std::fs::create_dir_all(directory)?;
    let unfinished = directory.join(format!("{ADDRESS_FILE}.new"));
    std::fs::write(&unfinished, format!("{address}\n"))?;
    std::fs::rename(unfinished, directory.join(ADDRESS_FILE))
}
