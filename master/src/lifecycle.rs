//! How a master lives and ends.
//!
//! Start: configuration, logging, port, database, services, ready. End, at a signal or when a task dies:
//! not ready, no new leases, sweeps end between two runs, streams hear it, the last beats are written,
//! calls in flight finish within a bounded time. Nothing is released: leases belong to workers. A second
//! signal ends the waiting.

use std::sync::Arc;

use anyhow::Context;
use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    task::JoinSet,
};

use crate::{
    app::{App, Bound, Stops},
    config::{Args, Config},
    grpc::server,
    telemetry,
};

/// How often the database is asked whether it answers.
const READINESS: std::time::Duration = std::time::Duration::from_secs(2);

/// Longest time that it may take to answer.
const LONGEST_PING: std::time::Duration = std::time::Duration::from_secs(5);

/// Runs a master until it is told to stop.
///
/// # Errors
/// Where the configuration is wrong, the port or the database can't be had, or a task died.
pub async fn run(args: Args) -> anyhow::Result<()> {
    let config = Config::load(args)?;
    telemetry::start(config.filter()?, config.log_format);
    let stops = Stops::default();
    let bound = Bound::bind(&config).await?;
    let app = bound.open(&config, &stops).await?;
    live(app, &config, stops).await
}

enum Ended {
    BySignal,
    /// A task that should run for ever has ended.
    ByItself(String),
}

async fn live(app: App, config: &Config, stops: Stops) -> anyhow::Result<()> {
    let mut signals = Signals::new()?;
    let mut tasks: JoinSet<Result<(), String>> = JoinSet::new();
    let (claims, beats) = (Arc::clone(&app.claims), Arc::clone(&app.beats));
    tasks.spawn(async move {
        claims.run().await;
        Ok(())
    });
    let last_beats = stops.serving.clone();
    tasks.spawn(async move {
        beats.run(last_beats).await;
        Ok(())
    });
    let driver = Arc::clone(&app.driver);
    let stop_sweeps = stops.work.clone();
    tasks.spawn(async move { driver.run(stop_sweeps).await.map_err(|e| e.to_string()) });
    let serving = server::serve(app.listener, app.routes, stops.serving.clone());
    tasks.spawn(async move { serving.await.map_err(|error| error.to_string()) });

    let ended = wait(&app.health, &app.store, &mut signals, &mut tasks).await;
    tracing::info!("stopping: no new leases, leases stay with their workers");
    app.health.not_ready().await;
    stops.work.cancel();
    app.tasks.close();
    let calm = async {
        app.tasks.wait().await;
        stops.serving.cancel();
        while tasks.join_next().await.is_some() {}
    };
    tokio::select! {
        () = calm => {}
        () = tokio::time::sleep(config.shutdown_grace) => {
            tracing::warn!("calls in flight did not finish in time");
        }
        () = signals.next() => tracing::warn!("second signal: not waiting any longer"),
    }
    app.store.close().await;
    match ended {
        Ended::BySignal => Ok(()),
        Ended::ByItself(why) => Err(anyhow::anyhow!("a task ended: {why}")),
    }
}

/// Waits for a reason to stop, and tells readiness as the database answers.
async fn wait(
    health: &server::Health,
    store: &Arc<dyn crate::store::Store>,
    signals: &mut Signals,
    tasks: &mut JoinSet<Result<(), String>>,
) -> Ended {
    let mut look = tokio::time::interval(READINESS);
    let mut was_ready = None;
    loop {
        tokio::select! {
            () = signals.next() => return Ended::BySignal,
            Some(ended) = tasks.join_next() => return Ended::ByItself(match ended {
                Ok(Ok(())) => "it had nothing more to do".to_owned(),
                Ok(Err(why)) => why,
                Err(panic) => panic.to_string(),
            }),
            _ = look.tick() => {
                let answer = ping(store.as_ref()).await;
                let is_ready = answer.is_ok();
                if was_ready != Some(is_ready) {
                    match &answer {
                        Ok(()) => {
                            tracing::info!("ready");
                            health.ready().await;
                        }
                        Err(error) => {
                            tracing::error!(error = format!("{error:#}"), "not ready");
                            health.not_ready().await;
                        }
                    }
                    was_ready = Some(is_ready);
                }
            }
        }
    }
}

/// Within the time that signals may wait for it.
async fn ping(store: &dyn crate::store::Store) -> anyhow::Result<()> {
    tokio::time::timeout(LONGEST_PING, store.ping())
        .await
        .context("the database does not answer")?
        .context("ask the database")
}

struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    fn new() -> anyhow::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate()).context("listen for SIGTERM")?,
            interrupt: signal(SignalKind::interrupt()).context("listen for SIGINT")?,
        })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}
