//! The reads of a new leader and of a new process before they write: those that the work needs, and no others (H5).

use std::time::Duration;

use http::Method;
use http_body_util::{BodyExt as _, StreamBody};
use serde_json::json;
use windlass::app::Candidacy;
use windlass_apiserver::{FaultDecision, RequestInfo};
use windlass_planner_testkit::objects::deployment;
use windlass_testkit::cluster::{Cluster, Daemon, USER_AGENT, inject_faults, tag, unlimited};
use windlass_testkit::election::{A, B, MS, Rig, S, acts, options};

/// How many kinds the daemon watches.
const KINDS: usize = 11;

const DAEMON_SETS: &str = "/apis/apps/v1/namespaces/shop/daemonsets";

/// Names of the Deployments that stay as they are.
const QUIET: [&str; 4] = ["quiet-a", "quiet-b", "quiet-c", "quiet-d"];

fn start(rig: &Rig, agent: &'static str, seed: u64) -> Daemon {
    let client = || kube::Client::new(tag(rig.cluster.sandbox.router(), agent), "default");
    let election = Candidacy { client: client().into(), options: options(agent), thread: None };
    Daemon::start_with(rig.cluster.parts(client(), seed, Some(election)), unlimited())
}

/// A rig in which `a` leads and has rolled out quiet Deployments and `web`, and `b` stands by.
async fn quiet() -> (Rig, Daemon, Daemon) {
    let rig = Rig::new().await;
    let a = start(&rig, A, 1);
    rig.until(5, "a leads", |rig| rig.holder() == "a").await;
    let b = start(&rig, B, 2);
    for name in QUIET.into_iter().chain(["web"]) {
        rig.cluster.create(deployment(name).replicas(3)).await;
        rig.cluster.rolled_out(name).await;
    }
    tokio::time::sleep(90 * S).await;
    (rig, a, b)
}

/// The requests of `agent` after the one with this number: `verb Kind`, and the selector or name.
fn requested(cluster: &Cluster, agent: &str, from: usize) -> Vec<String> {
    let log = cluster.log.lock().unwrap();
    let own = log[from..].iter().filter(|request| request.user_agent == agent && request.kind != "Lease");
    let described = |request: &RequestInfo| {
        let selector = request.query.split('&').find(|part| part.starts_with("labelSelector="));
        let limit = request
            .query
            .split('&')
            .find(|part| part.starts_with("limit=") || part.starts_with("sendInitial"));
        format!(
            "{} {} {}{}",
            request.verb,
            request.kind,
            request.name,
            selector.or(limit).unwrap_or_default()
        )
    };
    own.map(described).collect()
}

fn is_whole_list(what: &&String) -> bool {
    what.starts_with("list") && !what.contains("labelSelector=") && !what.ends_with("limit=1")
        || what.contains("sendInitialEvents")
}

#[tokio::test(start_paused = true)]
async fn a_new_leader_lists_no_kind_again_and_reads_only_the_objects_that_it_writes_for() {
    let (rig, a, _b) = quiet().await;
    let from = rig.cluster.log.lock().unwrap().len();
    a.kill();
    rig.cluster.patch("web", json!({"spec": {"replicas": 5}})).await;
    acts(&rig, 30, "b").await;
    rig.cluster.rolled_out("web").await;
    let requested = requested(&rig.cluster, B, from);
    assert_eq!(requested.iter().filter(is_whole_list).collect::<Vec<_>>(), [""; 0], "{requested:#?}");
    assert_eq!(
        requested.iter().filter(|what| what.ends_with("limit=1")).count(),
        KINDS,
        "one for each kind: {requested:#?}"
    );
    let about_quiet = |what: &&String| what.contains("quiet");
    assert_eq!(requested.iter().filter(about_quiet).collect::<Vec<_>>(), [""; 0], "{requested:#?}");
    // The Deployment with its ReplicaSets and pods, and the ReplicaSet with its pods: each once.
    let reads = |what: &&String| what.starts_with("get ") || what.contains("labelSelector=");
    assert_eq!(requested.iter().filter(reads).count(), 5, "{requested:#?}");
    rig.one_at_a_time();
}

#[tokio::test(start_paused = true)]
async fn a_new_leader_acts_at_once_after_long_silence_of_its_watches() {
    let (rig, a, _b) = quiet().await;
    let begun = rig.start.elapsed();
    a.stop().await;
    rig.cluster.patch("web", json!({"spec": {"replicas": 5}})).await;
    let acted = acts(&rig, 30, "b").await;
    assert!(acted - begun <= 2 * S + 100 * MS, "{:?}", acted - begun);
}

#[tokio::test(start_paused = true)]
async fn a_settled_cluster_costs_a_new_leader_one_small_list_for_each_kind() {
    let (rig, a, _b) = quiet().await;
    let from = rig.cluster.log.lock().unwrap().len();
    a.kill();
    tokio::time::sleep(40 * S).await;
    let requested = requested(&rig.cluster, B, from);
    let reads: Vec<&String> =
        requested.iter().filter(|what| what.starts_with("list") || what.starts_with("get")).collect();
    assert_eq!(reads.len(), KINDS, "{requested:#?}");
    assert!(
        rig.acts().iter().all(|sent| sent.agent == "a" || sent.what.contains("Event")),
        "{:?}",
        rig.acts()
    );
}

/// Shows what a watch of these objects has sent three seconds later.
pub fn with_slow_watches(router: axum::Router, of: &'static str) -> axum::Router {
    let slow = move |request: axum::extract::Request, next: axum::middleware::Next| async move {
        let uri = request.uri().to_string();
        let is_slow = uri.contains("watch=true") && uri.contains(of);
        let response = next.run(request).await;
        if !is_slow {
            return response;
        }
        response.map(|body| {
            // Each frame with the time at which it is due: those behind it do not wait once more.
            let (queue, queued) = tokio::sync::mpsc::unbounded_channel();
            tokio::spawn(async move {
                let mut body = body;
                while let Some(frame) = body.frame().await {
                    if queue.send((tokio::time::Instant::now() + 3 * S, frame)).is_err() {
                        break;
                    }
                }
            });
            let delayed = futures::stream::unfold(queued, |mut queued| async move {
                let (due, frame) = queued.recv().await?;
                tokio::time::sleep_until(due).await;
                Some((frame, queued))
            });
            axum::body::Body::new(StreamBody::new(delayed))
        })
    };
    router.layer(axum::middleware::from_fn(slow))
}

#[tokio::test(start_paused = true)]
async fn a_new_leader_whose_watches_are_seconds_behind_waits_for_them_and_lists_nothing() {
    let rig = Rig::new().await;
    let a = start(&rig, A, 1);
    rig.until(5, "a leads", |rig| rig.holder() == "a").await;
    let client = |router| kube::Client::new(router, "default");
    let own = client(tag(rig.cluster.sandbox.router(), B)).into();
    let election = Candidacy { client: own, options: options(B), thread: None };
    let slow = client(with_slow_watches(tag(rig.cluster.sandbox.router(), B), ""));
    let _b = Daemon::start_with(rig.cluster.parts(slow, 2, Some(election)), unlimited());
    let _unrest = rig.unrest().await;
    tokio::time::sleep(60 * S).await;
    let from = rig.cluster.log.lock().unwrap().len();
    a.kill();
    rig.until(30, "b leads", |rig| rig.holder() == "b").await;
    let scales = |rig: &Rig| rig.acts().iter().any(|act| act.agent == "b" && act.what.contains("ReplicaSet"));
    rig.until(10, "b scales what its watches have shown late", scales).await;
    tokio::time::sleep(30 * S).await;
    let requested = requested(&rig.cluster, B, from);
    assert_eq!(requested.iter().filter(is_whole_list).collect::<Vec<_>>(), [""; 0], "{requested:#?}");
    rig.one_at_a_time();
}

/// Rolls out DaemonSets of these names.
async fn with_daemon_sets(rig: &Rig, names: &[&str]) {
    for name in names {
        let daemon_set = json!({"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": name}, "spec": {
            "selector": {"matchLabels": {"app": name}}, "template": {
                "metadata": {"labels": {"app": name}}, "spec": {"containers": [{"name": "c", "image": "agent"}]}}}});
        rig.cluster.call(Method::POST, DAEMON_SETS, &daemon_set).await;
    }
    rig.until(30, "they run", |rig| {
        let runs = |daemon_set: &serde_json::Value| daemon_set["status"]["numberAvailable"] == 3;
        rig.cluster.objects("DaemonSet").iter().filter(|daemon_set| runs(daemon_set)).count() == names.len()
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn daemon_sets_that_are_settled_cost_a_new_leader_nothing() {
    let (rig, a, _b) = quiet().await;
    with_daemon_sets(&rig, &["agent", "logs"]).await;
    tokio::time::sleep(90 * S).await;
    let from = rig.cluster.log.lock().unwrap().len();
    a.kill();
    tokio::time::sleep(40 * S).await;
    let requested = requested(&rig.cluster, B, from);
    assert_eq!(rig.holder(), "b");
    let reads = |what: &&String| what.starts_with("list") || what.starts_with("get");
    assert_eq!(requested.iter().filter(reads).count(), KINDS, "{requested:#?}");
}

#[tokio::test(start_paused = true)]
async fn a_new_leader_that_changes_a_daemon_set_reads_its_pods_and_all_nodes_and_no_other_kind() {
    let (rig, a, _b) = quiet().await;
    with_daemon_sets(&rig, &["agent", "logs"]).await;
    tokio::time::sleep(90 * S).await;
    let from = rig.cluster.log.lock().unwrap().len();
    a.kill();
    let containers = json!([{"name": "c", "image": "agent:v2"}]);
    let template = json!({"spec": {"template": {"spec": {"containers": containers}}}});
    rig.cluster.call(Method::PATCH, &format!("{DAEMON_SETS}/agent"), &template).await;
    rig.until(90, "the new template runs", |rig| {
        let daemon_sets = rig.cluster.objects("DaemonSet");
        let agent = daemon_sets.iter().find(|daemon_set| daemon_set["metadata"]["name"] == "agent").unwrap();
        let (generation, status) = (&agent["metadata"]["generation"], &agent["status"]);
        status["observedGeneration"] == *generation
            && status["updatedNumberScheduled"] == 3
            && status["numberAvailable"] == 3
    })
    .await;
    let requested = requested(&rig.cluster, B, from);
    let is_whole_list = |what: &&String| {
        what.starts_with("list") && !what.contains("labelSelector=") && !what.ends_with("limit=1")
            || what.contains("sendInitialEvents")
    };
    let whole: Vec<&String> = requested.iter().filter(is_whole_list).collect();
    assert!(whole.len() <= 1 && whole.iter().all(|what| what.contains(" Node ")), "{requested:#?}");
    assert!(!requested.iter().any(|what| what.contains("logs")), "{requested:#?}");
    let of_agent = requested.iter().filter(|what| what.contains("labelSelector=app%3Dagent"));
    assert_eq!(of_agent.count(), 2, "revisions and pods: {requested:#?}");
    rig.one_at_a_time();
}

/// Whether this is a list of all pods by a daemon.
fn lists_all_pods(request: &RequestInfo) -> bool {
    let whole = matches!(request.verb, "list" | "watch") && !request.query.contains("labelSelector=");
    request.user_agent == USER_AGENT && request.kind == "Pod" && whole
}

/// A cluster whose pods take long to be listed, with a Deployment that has rolled out.
async fn with_slow_pods(delay: Duration) -> Cluster {
    let cluster = Cluster::with(
        inject_faults(move |request| {
            if lists_all_pods(request) { FaultDecision::DelayReply(delay) } else { FaultDecision::Proceed }
        }),
        |options| options,
    )
    .await;
    let daemon = cluster.start_controllers(1);
    cluster.create(deployment("web").replicas(3)).await;
    cluster.create(deployment("settled").replicas(2)).await;
    cluster.rolled_out("web").await;
    cluster.rolled_out("settled").await;
    daemon.stop().await;
    cluster
}

#[tokio::test(start_paused = true)]
async fn after_a_restart_parked_keys_are_synced_before_all_pods_are_listed() {
    let cluster = with_slow_pods(8 * S).await;
    cluster.patch("web", json!({"spec": {"replicas": 5}})).await;
    cluster.create(deployment("new").replicas(2)).await;
    let before = cluster.log.lock().unwrap().len();
    let daemon = cluster.start_with(2, unlimited(), |router| router);
    let pods = |cluster: &Cluster, name: &str| {
        let of = |pod: &serde_json::Value| pod["metadata"]["labels"]["app"] == name;
        cluster.objects("Pod").iter().filter(|pod| of(pod)).count()
    };
    cluster.eventually(3, "both have their pods", |it| pods(it, "web") == 5 && pods(it, "new") == 2).await;
    let requested = requested(&cluster, USER_AGENT, before);
    assert!(!requested.iter().any(|what| what.contains("settled")), "{requested:#?}");
    // Once all pods are known nothing is taken back, and the statuses follow.
    cluster.rolled_out("web").await;
    cluster.rolled_out("new").await;
    assert_eq!((cluster.objects("Pod").len(), cluster.pods_created()), (9, 9));
    daemon.stop().await;
}

#[tokio::test(start_paused = true)]
async fn pods_are_deleted_only_when_all_pods_are_known() {
    let cluster = with_slow_pods(8 * S).await;
    cluster.patch("web", json!({"spec": {"replicas": 1}})).await;
    let daemon = cluster.start_with(2, unlimited(), |router| router);
    tokio::time::sleep(5 * S).await;
    assert_eq!(cluster.count("delete Pod"), 0);
    cluster.rolled_out("web").await;
    assert_eq!(cluster.count("delete Pod"), 2);
    daemon.stop().await;
}
