//! Starts an API server and one of the two controllers, and plays workloads, many at a time.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::facts::{Facts, facts};
use super::objects::deployment;
use super::recording::{History, Recorder};
use super::stage::{Stage, Step};
use super::ties::ties;
use super::workloads::Workload;
use windlass_testkit::apiserver::{ApiServer, TOKEN, said};
use windlass_testkit::controllers::Side;
use windlass_testkit::process::Process;

/// How many workloads are played at the same time.
const TOGETHER: usize = 14;

/// No workload takes a third of this.
const LONGEST: Duration = Duration::from_secs(400);

/// The other controllers that a cluster needs; they are upstream's in all plays, where they are not compared.
const REST: [&str; 2] = ["resourcequota-controller", "persistentvolumeclaim-protection-controller"];

/// The controllers that are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compared {
    /// Those of the workloads, which Windlass runs by default.
    Workloads,
    /// The garbage collector and the namespace controller.
    Cluster,
    /// Those of CronJobs, of Jobs that have ended, and of pods that are left behind. They run for their own scripts alone: others
    /// have pods on nodes that do not exist.
    Batches,
    /// Those of Services, PodDisruptionBudgets and ResourceQuotas. The scripts of others have none, and their objects would be
    /// one more thing to wait for.
    Services,
}

impl Compared {
    /// Those that run in each play.
    const EVERYWHERE: [Compared; 2] = [Compared::Workloads, Compared::Cluster];

    /// Their names.
    fn names(self) -> &'static str {
        match self {
            Compared::Workloads => {
                "deployment-controller,replicaset-controller,replicationcontroller-controller,daemonset-controller,\
                 statefulset-controller,job-controller"
            }
            Compared::Cluster => "garbage-collector-controller,namespace-controller",
            Compared::Batches => {
                "cronjob-controller,ttl-after-finished-controller,pod-garbage-collector-controller"
            }
            Compared::Services => {
                "endpointslice-controller,endpoints-controller,endpointslice-mirroring-controller,\
                 disruption-controller,resourcequota-controller"
            }
        }
    }
}

/// One workload, played.
pub struct Played {
    pub facts: Facts,
    pub steps: Vec<Step>,
    /// The choices that were left to chance.
    pub ties: Vec<String>,
    /// The message with which the script panicked.
    pub panic: Option<String>,
}

/// Plays all workloads on a new API server. Histories are kept in `keep`, to investigate differences.
pub async fn play(
    assets: &Path,
    side: Side,
    compared: Compared,
    workloads: &[&'static Workload],
    keep: Option<&Path>,
) -> BTreeMap<&'static str, Played> {
    let server = ApiServer::start(assets).await;
    let client = server.client_without_retries().await;
    let recorder = Recorder::start(&client, compared == Compared::Services).await;
    let controllers = start_controllers(assets, side, compared, &server, keep);
    wait_for_the_controllers(&client, &recorder).await;

    let turns = Arc::new(Semaphore::new(TOGETHER));
    let mut running = JoinSet::new();
    for &workload in workloads {
        let (client, recorder, turns) = (client.clone(), recorder.clone(), turns.clone());
        running.spawn(async move {
            let _turn = turns.acquire_owned().await.unwrap();
            let namespace = workload.name.replace('_', "-");
            let history = recorder.history(&namespace);
            let stage = Arc::new(Stage::new(client, history.clone(), &namespace).await);
            let (on, play) = (stage.clone(), workload.play);
            let played = async move {
                let ended = tokio::time::timeout(LONGEST, play(&on)).await;
                assert!(ended.is_ok(), "not at its end after {} s", LONGEST.as_secs());
            };
            let panic = tokio::spawn(played).await.err().map(said);
            stage.rest().await;
            let changes = history.lock().unwrap().in_order();
            let script = std::mem::take(&mut *stage.script.lock().unwrap());
            let (facts, ties) = (facts(&changes, &script), ties(&changes, &script));
            (workload.name, Played { facts, steps: script.steps, ties, panic })
        });
    }
    let mut played = BTreeMap::new();
    while let Some(ended) = running.join_next().await {
        let (name, one) = ended.unwrap();
        if let Some(keep) = keep {
            keep_history(keep, side, name, &recorder.history(&name.replace('_', "-")).lock().unwrap());
        }
        played.insert(name, one);
    }
    for controller in &controllers {
        controller.terminate();
    }
    played
}

/// The controllers of this side, and upstream's other ones on both.
fn start_controllers(
    assets: &Path,
    side: Side,
    compared: Compared,
    server: &ApiServer,
    keep: Option<&Path>,
) -> Vec<Process> {
    let log =
        |name: &str| keep.map_or_else(|| server.file(name), |keep| keep.join(format!("{side:?}-{name}")));
    let config = server.kubeconfig(TOKEN);
    let alone = ["--leader-elect=false"];
    let is_upstreams = |it: &Compared| side == Side::Upstream || *it != compared;
    let own = (!Compared::EVERYWHERE.contains(&compared)).then_some(compared);
    let all = Compared::EVERYWHERE.into_iter().chain(own);
    let upstream = all.filter(is_upstreams).map(Compared::names);
    let rest = REST.into_iter().filter(|name| !compared.names().contains(name));
    let upstream = upstream.chain(rest).collect::<Vec<_>>().join(",");
    let log_of = |side: Side| log(&format!("{}.log", side.name()));
    let mut processes =
        vec![Side::Upstream.start(assets, &config, &upstream, &alone, &log_of(Side::Upstream))];
    if side == Side::Windlass {
        processes.push(side.start(assets, &config, compared.names(), &alone, &log_of(side)));
    }
    processes
}

/// All controllers work once a Deployment is rolled out and is deleted with its ReplicaSet and pods.
async fn wait_for_the_controllers(client: &kube::Client, recorder: &Recorder) {
    let history = recorder.history("probe");
    let stage = Stage::new(client.clone(), history, "probe").await;
    stage.create(deployment("probe")).await;
    wait(&stage, "a pod", |stage| !stage.pods().is_empty()).await;
    stage.delete("Deployment", "probe", "Background").await;
    wait(&stage, "no pod", |stage| stage.pods().is_empty() && stage.all("ReplicaSet").is_empty()).await;
}

async fn wait(stage: &Stage, what: &str, holds: impl Fn(&Stage) -> bool) {
    let end = Instant::now() + Duration::from_secs(90);
    while !holds(stage) {
        assert!(Instant::now() < end, "the controllers do not work: no {what} after 90 s");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

fn keep_history(keep: &Path, side: Side, name: &str, history: &History) {
    let lines: Vec<String> = history
        .in_order()
        .iter()
        .map(|change| {
            let mut object: Value = change.object.clone();
            object["metadata"].as_object_mut().unwrap().remove("managedFields");
            json!({"version": change.version, "what": format!("{:?}", change.what), "kind": change.kind, "object": object})
                .to_string()
        })
        .collect();
    std::fs::write(keep.join(format!("{side:?}-{name}.jsonl")), lines.join("\n")).unwrap();
}
