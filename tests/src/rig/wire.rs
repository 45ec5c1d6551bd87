//! The real gRPC server over a rig's service, on a port of the loopback.

use std::{sync::Arc, time::Duration};

use pointsman_master::{
    dispatch::{beats::Beats, claims::Claims},
    grpc::server::{self, Apis, Health},
    sweeps::{
        CiPoller, Effector, PickupGuard, Reaper, Reconciler, Retention, Scheduler,
        driver::{Driver, Duty},
    },
};
use tokio::{net::TcpListener, task::JoinSet};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tonic::transport::{Channel, Endpoint};

use super::Rig;

/// A server that lives as long as this value.
pub struct Wire {
    pub channel: Channel,
    pub claims: Arc<Claims>,
    pub health: Health,
    /// Ends streams and waiting calls.
    pub stop: CancellationToken,
    endpoint: Endpoint,
    _tasks: JoinSet<()>,
}

impl Wire {
    /// Serves `rig`, and connects to it.
    pub async fn serve(rig: &Rig) -> Self {
        let service = rig.service().clone();
        let stop = CancellationToken::new();
        let claims = Arc::new(Claims::new(service.clone(), stop.clone()));
        let beats = Arc::new(Beats::new(
            service.clone(),
            rig.stopwatch.clone(),
            Duration::from_millis(10),
        ));
        let apis = Apis::new(
            service,
            Arc::clone(&claims),
            Arc::clone(&beats),
            driver(rig),
            Duration::from_secs(5),
            TaskTracker::new(),
            stop.clone(),
        );
        let (health, mut routes) = server::health().await;
        server::add(&mut routes, apis).expect("the services are described");
        let listener = TcpListener::bind("127.0.0.1:0")
            .await
            .expect("a port is free");
        let address = listener.local_addr().expect("it has an address");
        let mut tasks = JoinSet::new();
        let until = stop.clone();
        tasks.spawn(async move {
            let served = server::serve(listener, routes, until).await;
            served.expect("the server serves");
        });
        let for_claims = Arc::clone(&claims);
        tasks.spawn(async move { for_claims.run().await });
        let until = stop.clone();
        tasks.spawn(async move { beats.run(until).await });
        let endpoint =
            Endpoint::from_shared(format!("http://{address}")).expect("it is an address");
        let channel = endpoint.connect().await.expect("the server answers");
        Self {
            channel,
            endpoint,
            claims,
            health,
            stop,
            _tasks: tasks,
        }
    }

    /// One more connection, as somebody else has one.
    pub async fn connect(&self) -> Channel {
        let channel = self.endpoint.connect().await;
        channel.expect("the server answers")
    }
}

fn driver(rig: &Rig) -> Arc<Driver> {
    let service = rig.service();
    let duty = |sweep| Duty {
        sweep,
        interval: Duration::from_secs(3600),
        bell: None,
    };
    let duties = vec![
        duty(Box::new(Scheduler::new(service.clone()))),
        duty(Box::new(Reaper::new(service.clone()))),
        duty(Box::new(PickupGuard::new(service.clone()))),
        duty(Box::new(Reconciler::new(service.clone()))),
        duty(Box::new(CiPoller::new(service.clone()))),
        duty(Box::new(Effector::new(service.clone()))),
        duty(Box::new(Retention::new(service.clone()))),
    ];
    Arc::new(Driver::new(
        duties,
        Arc::default(),
        rig.chance.clone(),
        rig.clock.clone(),
    ))
}
