//! The scenarios of `tests/cluster.rs` against a real kube-apiserver, in real time, if there is one:
//! `KUBEBUILDER_ASSETS` names the folder with `etcd` and `kube-apiserver`. The pod simulator and the
//! collectors of the sandbox are the rest of the cluster.

mod support;

use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use support::apiserver::{ASSETS, ApiServer, assets};
use support::scenarios::{self, every_scenario, every_scenario_with_its_own_daemons};
use support::stage::{Stage, Writes, recorded};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use windlass::clock::Clock;
use windlass::sandbox::{garbage, kubelet, namespaces};

/// A scenario by its name.
type Scenario = (&'static str, fn(Arc<Stage>) -> BoxFuture<'static, ()>);

macro_rules! named {
    ($($name:ident)*) => {
        [$((stringify!($name), |stage| async move { scenarios::$name(&stage).await }.boxed())),*]
    };
}

#[test]
fn the_scenarios_hold_on_a_real_api_server() {
    match assets() {
        Some(folder) => {
            let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
            runtime.unwrap().block_on(async { play_all(&ApiServer::start(&folder).await).await });
        }
        // Not by `println!`, which cargo shows of failed tests only.
        None => writeln!(
            std::io::stderr(),
            "skipped: no real API server; to run these scenarios there, set {ASSETS} to a folder with etcd \
             and kube-apiserver"
        )
        .unwrap(),
    }
}

async fn play_all(server: &ApiServer) {
    let end = CancellationToken::new();
    run_the_rest_of_the_cluster(server, &end).await;
    let (client, writes) = (server.client().await, Writes::default());
    let daemon = recorded(server.client_of_the_daemon().await, writes.clone());
    let stage = |number: usize| {
        let namespace = format!("scenario-{number}");
        Stage::on_real(client.clone(), daemon.clone(), writes.clone(), namespace)
    };

    let mut failures = Vec::new();
    let together: &[Scenario] = &every_scenario!(named);
    let controllers = stage(0).await.start_controllers(1);
    let mut running = JoinSet::new();
    for (number, &(name, play)) in (1..).zip(together) {
        let stage = Arc::new(stage(number).await);
        running.spawn(async move {
            let played = tokio::spawn(async move {
                play(stage.clone()).await;
                stage.comes_to_rest().await;
            });
            (name, played.await)
        });
    }
    while let Some(ended) = running.join_next().await {
        let (name, result) = ended.unwrap();
        failures.extend(result.err().map(|error| format!("{name}: {}", said(error))));
    }
    controllers.stop().await;

    let alone: &[Scenario] = &every_scenario_with_its_own_daemons!(named);
    for (number, &(name, play)) in (together.len() + 1..).zip(alone) {
        let result = tokio::spawn(play(Arc::new(stage(number).await))).await;
        failures.extend(result.err().map(|error| format!("{name}: {}", said(error))));
    }
    end.cancel();
    assert!(failures.is_empty(), "{} failed:\n\n{}", failures.len(), failures.join("\n\n"));
}

/// What a scenario panicked with.
fn said(error: tokio::task::JoinError) -> String {
    let panic = match error.try_into_panic() {
        Ok(panic) => panic,
        Err(error) => return error.to_string(),
    };
    let text = panic.downcast_ref::<String>().cloned();
    text.or(panic.downcast_ref::<&str>().map(ToString::to_string)).unwrap_or_default()
}

/// Nodes and pods, and the two controllers that every cluster has.
async fn run_the_rest_of_the_cluster(server: &ApiServer, end: &CancellationToken) {
    let client = server.client().await;
    let now: Arc<dyn Fn() -> jiff::Timestamp + Send + Sync> = Arc::new(|| Clock::System.now());
    let options = kubelet::Options {
        // As on the sandbox: an image of this tag never starts.
        never_ready: Some(regex_lite::Regex::new(":broken$").unwrap()),
        ready_delay: Duration::from_millis(300),
        shutdown_delay: Duration::from_millis(300),
        ..kubelet::Options::new(now.clone())
    };
    tokio::spawn(kubelet::run(client.clone(), options, end.clone()));
    tokio::spawn(garbage::run(client.clone(), end.clone()));
    tokio::spawn(namespaces::run(client, now, end.clone()));
}
