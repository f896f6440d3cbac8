//! The scenarios of `tests/cluster.rs` against a real kube-apiserver, in real time, if there is one:
//! `KUBEBUILDER_ASSETS` names the folder with `etcd` and `kube-apiserver`. The pod simulator and the
//! collectors of the sandbox are the rest of the cluster.
//!
//! Beside them the program itself, under exactly the rights of `deploy/rbac.yaml` and held by
//! `deploy/admissionpolicy.yaml`.

mod support;

use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use http::Method;
use serde_json::{Value, json};
use support::apiserver::{ASSETS, ApiServer, TOKEN, User, assets};
use support::build::deployment;
use support::https;
use support::manifests;
use support::process::{PATIENCE, Process, WINDLASS};
use support::rights::{self, Rights};
use support::scenarios::{self, every_scenario, every_scenario_with_its_own_daemons};
use support::stage::{Seen, Stage, Writes, name, recorded};
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

/// One API server at a time: two of them and their tests slow each other beyond patience.
static SERVER: std::sync::Mutex<()> = std::sync::Mutex::new(());

/// Runs a test that needs a real API server, if there is one.
fn on_a_real_server(test: impl AsyncFnOnce(&Path)) {
    match assets() {
        Some(folder) => {
            let _alone = SERVER.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
            runtime.unwrap().block_on(test(&folder));
        }
        // Not by `println!`, which cargo shows of failed tests only.
        None => {
            let mut stderr = std::io::stderr();
            let folder = "a folder with etcd and kube-apiserver";
            writeln!(stderr, "skipped: no real API server; to run this there, set {ASSETS} to {folder}")
                .unwrap();
        }
    }
}

#[test]
fn the_scenarios_hold_on_a_real_api_server() {
    on_a_real_server(async |folder| play_all(&ApiServer::start(folder).await).await);
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

/// As the API server would see the ServiceAccount of `deploy/rbac.yaml`.
const DAEMON: User = User {
    token: "token-of-the-daemon",
    name: "system:serviceaccount:kube-system:windlass",
    groups: "system:serviceaccounts,system:serviceaccounts:kube-system",
};

const SCRAPER: User = User { token: "token-of-the-scraper", name: "prometheus", groups: "monitoring" };

const STRANGER: User = User { token: "token-of-a-stranger", name: "stranger", groups: "monitoring" };

/// What `deploy/rbac.yaml` grants and this test does not see used.
const UNSEEN: [(&str, &str); 4] = [
    ("get pods", "only after the answer to a creation or deletion was lost; tests/faults.rs loses answers"),
    ("update deployments.apps/finalizers", ADMISSION),
    ("update replicasets.apps/finalizers", ADMISSION),
    ("update replicationcontrollers/finalizers", ADMISSION),
];

const ADMISSION: &str = "asked by an admission plugin, which the audit log does not show; without it the \
                         plugin, which is on here, refuses";

/// What it does by the rights that the API server ships, to which `deploy/rbac.yaml` binds it.
const BOUND: [&str; 3] = [
    "create subjectaccessreviews.authorization.k8s.io",
    "create tokenreviews.authentication.k8s.io",
    "get configmaps",
];

#[test]
fn the_program_needs_exactly_the_rights_that_ship() {
    on_a_real_server(async |folder| {
        let server = ApiServer::start_with(folder, &[DAEMON, SCRAPER, STRANGER]).await;
        let client = server.client().await;
        let objects = rights::manifest();
        rights::create(&client, &objects).await;
        // What it refuses the daemon shows as a 403 below.
        rights::create(&client, &manifests::file("deploy/admissionpolicy.yaml")).await;
        the_policy_is_in_force(&server).await;
        rights::wait_until_allowed(&client, DAEMON.name, &one_of_each_binding()).await;
        let end = CancellationToken::new();
        run_the_rest_of_the_cluster(&server, &end).await;

        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let (config, log) = (server.kubeconfig(DAEMON.token), server.file("windlass.log"));
        let flags = [
            &format!("--kubeconfig={}", config.display()),
            &format!("--secure-port={port}"),
            "--bind-address=127.0.0.1",
        ];
        let daemon = Process::start(WINDLASS, &flags, &log);
        let played = tokio::spawn(play_workloads(client.clone())).await;
        let log = std::fs::read_to_string(log).unwrap();
        played.unwrap_or_else(|error| panic!("{}\n{log}", said(error)));
        metrics_are_for_those_who_may_read_them(&client, port).await;
        let (_, metrics) = https::get(port, "/metrics", Some(SCRAPER.token)).await;
        daemon.terminate();
        end.cancel();

        let refused = |line: &&str| {
            line.starts_with("rest_client_requests_total")
                && ["401", "403"].iter().any(|code| line.contains(&format!("code=\"{code}\"")))
        };
        assert_eq!(metrics.lines().filter(refused).collect::<Vec<_>>(), [""; 0], "{log}");
        assert!(metrics.contains("leader_election_master_status{name=\"windlass\"} 1"), "{metrics}");
        let audit = server.audit();
        // The test has asked in its name whether the policy is in force.
        let is_its_own =
            |event: &Value| event["userAgent"].as_str().is_some_and(|agent| agent.starts_with("windlass"));
        let asked: Vec<&Value> = audit
            .iter()
            .filter(|event| event["user"]["username"] == DAEMON.name && is_its_own(event))
            .collect();
        let of = |codes: [u16; 2]| {
            let is_one = |event: &&&Value| codes.iter().any(|code| event["responseStatus"]["code"] == *code);
            rights::used(asked.iter().filter(is_one).copied())
        };
        assert_eq!(of([401, 403]), Rights::new(), "refused by the API server\n{log}");

        let used = rights::used(asked.iter().copied());
        let unseen = UNSEEN.iter().map(|(right, _)| (*right).to_string());
        let expected: Rights = used.iter().cloned().chain(unseen).collect();
        let bound = BOUND.map(str::to_string);
        let granted: Rights = rights::granted(&objects).into_iter().chain(bound).collect();
        let never_used: Vec<_> = granted.difference(&expected).collect();
        let by_other_roles: Vec<_> = used.difference(&granted).collect();
        assert!(never_used.is_empty() && by_other_roles.is_empty(), "{never_used:?} {by_other_roles:?}");
    });
}

/// Something that each binding of `deploy/rbac.yaml` allows.
fn one_of_each_binding() -> [Value; 4] {
    let kube_system = "kube-system";
    [
        json!({"verb": "create", "resource": "pods"}),
        json!({"verb": "create", "group": "authentication.k8s.io", "resource": "tokenreviews"}),
        json!({"verb": "update", "group": "coordination.k8s.io", "resource": "leases", "name": "windlass",
               "namespace": kube_system}),
        json!({"verb": "get", "resource": "configmaps", "name": "extension-apiserver-authentication",
               "namespace": kube_system}),
    ]
}

/// Everything that the daemon does to workloads, each in a namespace of its own.
async fn play_workloads(client: kube::Client) {
    let mut number = 0;
    let mut stage = || {
        number += 1;
        Stage::on_real(client.clone(), client.clone(), Writes::default(), format!("rights-{number}"))
    };
    let stages = [stage().await, stage().await, stage().await, stage().await, stage().await];
    let [rolls, annotated, orphans, left, taken] = &stages;
    let own = [stage().await, stage().await];
    tokio::join!(
        scenarios::a_deployment_comes_up_rolls_and_goes_back(rolls),
        scenarios::a_rollback_by_annotation_changes_the_template_once_and_keeps_new_fields(annotated),
        scenarios::orphans_that_match_are_adopted_and_what_stops_matching_is_released(orphans),
        scenarios::a_set_that_was_left_behind_is_taken_over_with_its_pods(left),
        scenarios::a_name_that_is_taken_is_counted_as_a_collision_and_another_is_used(taken),
        history_is_cleaned_up_and_a_cascade_ends_it(&own[0]),
        a_replication_controller_adopts_releases_and_scales(&own[1]),
    );
}

async fn history_is_cleaned_up_and_a_cascade_ends_it(stage: &Stage) {
    stage.create(deployment("web").replicas(2).history(0)).await;
    stage.rolled_out("web").await;
    stage.set_image("web", "v2").await;
    stage.rolled_out("web").await;
    stage.eventually(30, "the old set is cleaned up", |seen| seen.sets.len() == 1).await;
    stage.delete("web", "Foreground").await;
    let nothing_left =
        |seen: &Seen| seen.deployments.is_empty() && seen.sets.is_empty() && seen.pods.is_empty();
    stage.eventually(60, "the cascade ends", nothing_left).await;
}

async fn a_replication_controller_adopts_releases_and_scales(stage: &Stage) {
    let collection = format!("/api/v1/namespaces/{}/replicationcontrollers", stage.namespace);
    let controller = format!("{collection}/old");
    let body = json!({"metadata": {"name": "old"}, "spec": {
        "replicas": 2, "selector": {"app": "old"},
        "template": {"metadata": {"labels": {"app": "old"}}, "spec": {"containers": [{"name": "c", "image": "app:v1"}]}},
    }});
    stage.call(Method::POST, &collection, &body).await;
    stage.eventually(30, "two pods", |seen| seen.pods.len() == 2).await;

    let pod = format!("{}/{}", stage.path("Pod"), name(&stage.seen().await.pods[0]));
    let label = |value: &str| json!({"metadata": {"labels": {"app": value}}});
    stage.call(Method::PATCH, &pod, &label("debug")).await;
    stage.eventually(30, "one is released and replaced", |seen| seen.pods.len() == 3).await;
    stage.call(Method::PATCH, &pod, &label("old")).await;
    let owned = |pod: &Value| pod["metadata"]["ownerReferences"][0]["kind"] == "ReplicationController";
    let adopted = |seen: &Seen| seen.pods.len() == 2 && seen.pods.iter().all(owned);
    stage.eventually(30, "it is adopted, and one of three goes", adopted).await;

    stage.call(Method::PATCH, &controller, &json!({"spec": {"replicas": 1}})).await;
    stage.eventually(30, "one goes", |seen| seen.pods.len() == 1).await;
    let end = tokio::time::Instant::now() + PATIENCE;
    loop {
        let status = stage.call(Method::GET, &controller, &Value::Null).await["status"].clone();
        if status["replicas"] == 1 && status["availableReplicas"] == 1 {
            break;
        }
        assert!(tokio::time::Instant::now() < end, "{status}");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    let cascade = json!({"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"});
    stage.call(Method::DELETE, &controller, &cascade).await;
    stage.eventually(30, "its pods go with it", |seen| seen.pods.is_empty()).await;
}

/// Binds the scraper to the role that ships for it; nobody else.
async fn metrics_are_for_those_who_may_read_them(client: &kube::Client, port: u16) {
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": {"name": "scraper"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole",
                    "name": "windlass-metrics-reader"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": SCRAPER.name}],
    });
    rights::create(client, &[binding]).await;
    let code = async |path: &str, token: Option<&str>| https::get(port, path, token).await.0;
    // The API server's own authorizer learns of the binding by a watch, and a no is remembered for 10 s.
    let end = tokio::time::Instant::now() + PATIENCE;
    while code("/metrics", Some(SCRAPER.token)).await != 200 {
        assert!(tokio::time::Instant::now() < end, "the scraper may not scrape");
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    assert_eq!(code("/metrics/slis", Some(SCRAPER.token)).await, 200);
    assert_eq!(code("/configz", Some(SCRAPER.token)).await, 403, "it may read metrics and nothing else");
    assert_eq!(code("/metrics", Some(STRANGER.token)).await, 403);
    assert_eq!(code("/metrics", None).await, 403);
    assert_eq!(code("/metrics", Some("nobody's")).await, 401);
    for path in ["/healthz", "/livez", "/readyz"] {
        for token in [None, Some(STRANGER.token), Some(SCRAPER.token)] {
            assert_eq!(code(path, token).await, 200, "{path} {token:?}");
        }
    }
}

/// A pod below `owner`, or below nobody.
fn pod(name: &str, owner: Value) -> Value {
    let owners: Vec<Value> = Some(owner).filter(|owner| !owner.is_null()).into_iter().collect();
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "labels": {"app": "a"}, "ownerReferences": owners},
        "spec": {"containers": [{"name": "c", "image": "app:v1"}]},
    })
}

fn set(name: &str, owner: Value) -> Value {
    let Value::Object(mut metadata) = pod(name, owner)["metadata"].take() else { unreachable!() };
    metadata.remove("labels");
    json!({
        "apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": metadata,
        "spec": {
            "replicas": 0, "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": {"app": name}},
                         "spec": {"containers": [{"name": "c", "image": "app:v1"}]}},
        },
    })
}

fn owner(api_version: &str, kind: &str) -> Value {
    json!({"apiVersion": api_version, "kind": kind, "name": "o", "uid": format!("uid-of-{kind}"), "controller": true})
}

/// Does this as the daemon's ServiceAccount would: the code of the answer, and its message.
async fn try_as_the_daemon(server: &ApiServer, method: Method, path: &str, body: &Value) -> (u16, String) {
    let config = kube::config::Kubeconfig::read_from(server.kubeconfig(DAEMON.token)).unwrap();
    let config = kube::Config::from_custom_kubeconfig(config, &Default::default()).await.unwrap();
    let client = kube::Client::try_from(config).unwrap();
    let patch = if path.contains("/pods/") { "application/strategic-merge-patch+json" } else { MERGE };
    let content_type = if method == Method::PATCH { patch } else { "application/json" };
    let request = http::Request::builder().method(method).uri(path).header("content-type", content_type);
    let bytes = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
    match client.request::<Value>(request.body(bytes).unwrap()).await {
        Ok(_) => (200, String::new()),
        Err(kube::Error::Api(status)) => (status.code, status.message.clone()),
        Err(error) => panic!("{path}: {error}"),
    }
}

const MERGE: &str = "application/merge-patch+json";
const PODS: &str = "/api/v1/namespaces/default/pods";
const SETS: &str = "/apis/apps/v1/namespaces/default/replicasets";

/// Waits until the server, which learns of policies by a watch, holds the daemon to it.
async fn the_policy_is_in_force(server: &ApiServer) {
    let end = tokio::time::Instant::now() + PATIENCE;
    loop {
        let (code, message) =
            try_as_the_daemon(server, Method::POST, PODS, &pod("nobodys", Value::Null)).await;
        if code == 403 && message.contains("ValidatingAdmissionPolicy") {
            return;
        }
        assert!(tokio::time::Instant::now() < end, "a bare pod is not refused: {code} {message}");
        if code == 200 {
            server
                .client()
                .await
                .request::<Value>(
                    http::Request::delete(format!("{PODS}/nobodys?gracePeriodSeconds=0"))
                        .body(Vec::new())
                        .unwrap(),
                )
                .await
                .unwrap();
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

#[test]
fn whoever_has_the_daemons_token_writes_only_what_a_set_or_deployment_controls() {
    on_a_real_server(async |folder| {
        let server = ApiServer::start_with(folder, &[DAEMON]).await;
        let client = server.client().await;
        rights::create(&client, &rights::manifest()).await;
        rights::create(&client, &manifests::file("deploy/admissionpolicy.yaml")).await;
        rights::wait_until_allowed(&client, DAEMON.name, &one_of_each_binding()).await;
        let default = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default"}});
        let request = http::Request::post("/api/v1/namespaces").header("content-type", "application/json");
        let _ = client.request::<Value>(request.body(default.to_string().into_bytes()).unwrap()).await;
        the_policy_is_in_force(&server).await;

        let (of_set, of_rc) = (owner("apps/v1", "ReplicaSet"), owner("v1", "ReplicationController"));
        let of_deployment = owner("apps/v1", "Deployment");
        let of_stateful_set = owner("apps/v1", "StatefulSet");
        // By the administrator.
        let there = [
            pod("bare", Value::Null),
            pod("of-a-set", of_set.clone()),
            pod("to-relabel", of_set.clone()),
            pod("of-another", of_stateful_set.clone()),
            set("bare", Value::Null),
            set("of-a-deployment", of_deployment.clone()),
        ];
        rights::create(&client, &there).await;
        let pod_at = |name: &str| format!("{PODS}/{name}");
        let set_at = |name: &str| format!("{SETS}/{name}");
        let owners = |owner: &Value| json!({"metadata": {"ownerReferences": [owner]}});
        let release = json!({"metadata": {"ownerReferences": [{"$patch": "delete", "uid": of_set["uid"]}]}});
        let mut both = owners(&of_set);
        both["metadata"]["labels"] = json!({"app": "b"});
        let mut not_controlling = of_set.clone();
        not_controlling["controller"] = json!(false);
        let resize = json!({"spec": {"replicas": 1}});
        let nothing = Value::Null;
        let (post, patch, delete) = (Method::POST, Method::PATCH, Method::DELETE);
        for (what, method, path, body, refusal) in [
            ("a pod of a set", &post, PODS.to_owned(), pod("a", of_set.clone()), None),
            ("a pod of an old controller", &post, PODS.to_owned(), pod("b", of_rc.clone()), None),
            ("a set of a Deployment", &post, SETS.to_owned(), set("c", of_deployment.clone()), None),
            (
                "a bare pod",
                &post,
                PODS.to_owned(),
                pod("d", nothing.clone()),
                Some("only what is controlled"),
            ),
            (
                "owned, not controlled",
                &post,
                PODS.to_owned(),
                pod("d", not_controlling),
                Some("only what is"),
            ),
            (
                "a pod of another",
                &post,
                PODS.to_owned(),
                pod("d", of_stateful_set.clone()),
                Some("only what is"),
            ),
            (
                "a false group",
                &post,
                PODS.to_owned(),
                pod("d", owner("apps/v2", "ReplicaSet")),
                Some("only what"),
            ),
            (
                "a bare set",
                &post,
                SETS.to_owned(),
                set("d", nothing.clone()),
                Some("only what is controlled"),
            ),
            (
                "a set of a set",
                &post,
                SETS.to_owned(),
                set("d", of_set.clone()),
                Some("only what is controlled"),
            ),
            ("another label", &patch, pod_at("to-relabel"), both.clone(), Some("only the owner references")),
            ("theft", &patch, pod_at("of-another"), release.clone(), Some("only what is controlled by")),
            ("adoption and more", &patch, pod_at("bare"), both, Some("only the owner references")),
            (
                "no adoption",
                &patch,
                pod_at("bare"),
                json!({"metadata": {"labels": {"a": "b"}}}),
                Some("only what"),
            ),
            (
                "deletes a bare pod",
                &delete,
                pod_at("bare"),
                nothing.clone(),
                Some("only what is controlled by"),
            ),
            (
                "deletes another's",
                &delete,
                pod_at("of-another"),
                nothing.clone(),
                Some("only what is controlled"),
            ),
            (
                "resizes a bare set",
                &patch,
                set_at("bare"),
                resize.clone(),
                Some("only what is controlled by"),
            ),
            (
                "deletes a bare set",
                &delete,
                set_at("bare"),
                nothing.clone(),
                Some("only what is controlled by"),
            ),
            ("resizes", &patch, set_at("of-a-deployment"), resize, None),
            ("adopts", &patch, pod_at("bare"), owners(&of_set), None),
            ("releases", &patch, pod_at("bare"), release, None),
            ("adopts a set", &patch, set_at("bare"), owners(&of_deployment), None),
            ("deletes its own", &delete, pod_at("of-a-set"), nothing.clone(), None),
            ("deletes its own set", &delete, set_at("of-a-deployment"), nothing, None),
        ] {
            let (code, message) = try_as_the_daemon(&server, method.clone(), &path, &body).await;
            match refusal {
                None => assert_eq!((code, &*message), (200, ""), "{what}"),
                Some(words) => assert!(code == 403 && message.contains(words), "{what}: {code} {message}"),
            }
        }
    });
}

#[test]
fn the_manifests_that_ship_are_taken_as_they_are() {
    on_a_real_server(async |folder| {
        let server = ApiServer::start(folder).await;
        let client = server.client().await;
        for file in ["rbac", "windlass", "networkpolicy", "admissionpolicy"] {
            rights::create(&client, &manifests::file(&format!("deploy/{file}.yaml"))).await;
        }
        let namespaces = ["windlass", "shop", "monitoring", "restricted"].map(|name| {
            let enforce = if name == "restricted" { "restricted" } else { "privileged" };
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {
                "name": name, "labels": {"pod-security.kubernetes.io/enforce": enforce}}})
        });
        rights::create(&client, &namespaces).await;
        let judge = async |object: &Value| {
            let path = format!("{}?dryRun=All&fieldValidation=Strict", manifests::collection(object));
            let request = http::Request::post(path).header("content-type", "application/json");
            let request = request.body(object.to_string().into_bytes()).unwrap();
            client.request::<Value>(request).await.map(drop)
        };
        // The pod security standard, as the admission plugin understands it.
        for object in manifests::file("deploy/windlass.yaml") {
            let template = &object["spec"]["template"];
            if template["spec"].is_object() {
                let metadata = json!({"name": "one", "namespace": "restricted"});
                let mut pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]});
                judge(&pod).await.unwrap();
                pod["spec"]["hostNetwork"] = json!(true);
                let refused = judge(&pod).await.unwrap_err().to_string();
                assert!(refused.contains("violates PodSecurity"), "{refused}");
            }
        }
        // What `.ci/chart check` has rendered is judged, not kept: its sets share names.
        for (origin, objects) in manifests::rendered() {
            for mut object in objects {
                if object["apiVersion"] == "monitoring.coreos.com/v1" {
                    continue;
                }
                let name = object["metadata"]["name"].as_str().unwrap().to_owned();
                object["metadata"]["name"] = json!(format!("another-{name}"));
                let answer = judge(&object).await;
                assert!(answer.is_ok(), "{origin}: {name}: {answer:?}");
            }
        }
    });
}

/// As the chart names it for the release `windlass` in the namespace `windlass`.
const SCOPED: User = User {
    token: "token-of-a-scoped-daemon",
    name: "system:serviceaccount:windlass:windlass",
    groups: "system:serviceaccounts,system:serviceaccounts:windlass",
};

#[test]
fn the_chart_gives_a_daemon_of_one_namespace_what_it_needs_there() {
    for set in ["namespace-windlass", "own-namespace-kube-system"] {
        let rendered = manifests::rendered().into_iter().find(|(origin, _)| origin == set);
        // Without `WINDLASS_RENDERED` there is nothing to look at.
        let Some((_, objects)) = rendered else { return };
        on_a_real_server(async |folder| {
            let user = if set.starts_with("own") { DAEMON } else { SCOPED };
            let server = ApiServer::start_with(folder, &[user]).await;
            let client = server.client().await;
            let namespace =
                |name: &str| json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
            rights::create(&client, &["windlass", "shop", "elsewhere"].map(namespace)).await;
            let kinds = ["ServiceAccount", "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding"];
            let is_a_right = |object: &&Value| {
                kinds.iter().any(|kind| object["kind"] == *kind)
                    && !object["metadata"]["name"].as_str().unwrap().ends_with("-test")
            };
            rights::create(&client, &objects.iter().filter(is_a_right).cloned().collect::<Vec<_>>()).await;
            let scope = if set.starts_with("own") { "kube-system" } else { "shop" };
            let needed = json!({"verb": "create", "resource": "pods", "namespace": scope});
            rights::wait_until_allowed(&client, user.name, &[needed]).await;
            let end = CancellationToken::new();
            run_the_rest_of_the_cluster(&server, &end).await;

            let deployment = objects.iter().find(|object| object["kind"] == "Deployment").unwrap();
            let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
            let (config, log) = (server.kubeconfig(user.token), server.file("windlass.log"));
            let own = [
                format!("--kubeconfig={}", config.display()),
                format!("--secure-port={port}"),
                "--bind-address=127.0.0.1".to_owned(),
            ];
            let arguments =
                deployment["spec"]["template"]["spec"]["containers"][0]["args"].as_array().unwrap();
            let given = arguments.iter().map(|it| it.as_str().unwrap());
            let flags: Vec<&str> = given
                .filter(|flag| !flag.starts_with("--secure-port"))
                .chain(own.iter().map(String::as_str))
                .collect();
            let daemon = Process::start(WINDLASS, &flags, &log);
            let stage = Stage::in_namespace(client.clone(), client.clone(), Writes::default(), scope.into());
            let played = tokio::spawn(async move {
                scenarios::a_deployment_comes_up_rolls_and_goes_back(&stage).await;
            });
            let played = played.await;
            let said = std::fs::read_to_string(&log).unwrap();
            played.unwrap_or_else(|error| panic!("{set}: {}\n{said}", self::said(error)));
            for path in ["/livez", "/readyz"] {
                assert_eq!(https::get(port, path, None).await.0, 200, "{set}: {path}\n{said}");
            }
            let is_of_the_test = |object: &&Value| object["metadata"]["name"] == "windlass-test";
            let of_the_test: Vec<Value> = objects.iter().filter(is_of_the_test).cloned().collect();
            tokio::task::block_in_place(|| run_the_charts_test(folder, &server, &of_the_test, scope));
            daemon.terminate();
            end.cancel();
            let audit = server.audit();
            let refused = |event: &&Value| {
                event["userAgent"].as_str().is_some_and(|agent| agent.starts_with("windlass"))
                    && event["responseStatus"]["code"] == 403
            };
            let refused: Vec<&Value> = audit.iter().filter(refused).collect();
            assert!(refused.is_empty(), "{set}: {refused:#?}");
        });
    }
}

/// What `helm test` has the kubelet do: the pod's containers in turn, with its account's rights, here by kubectl.
fn run_the_charts_test(assets: &Path, server: &ApiServer, objects: &[Value], namespace: &str) {
    let of = |kind: &str| objects.iter().find(|object| object["kind"] == kind).unwrap();
    let admin = server.kubeconfig(TOKEN);
    let kubectl = |arguments: &[String]| {
        let own = assets.join("kubectl");
        let program = if own.is_file() { own } else { "kubectl".into() };
        let output = std::process::Command::new(program)
            .env("KUBECONFIG", &admin)
            .env("KUBECACHEDIR", server.file("kubectl"))
            .args(arguments)
            .output()
            .unwrap();
        let said = [output.stdout, output.stderr].concat();
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&said));
    };
    for kind in ["ServiceAccount", "Role", "RoleBinding"] {
        let file = server.file("rights.json");
        std::fs::write(&file, of(kind).to_string()).unwrap();
        kubectl(&["create".into(), format!("--filename={}", file.display())]);
    }
    let manifest = server.file("deployment.yaml");
    std::fs::write(&manifest, of("ConfigMap")["data"]["deployment.yaml"].as_str().unwrap()).unwrap();
    let spec = &of("Pod")["spec"];
    let steps = ["initContainers", "containers"].map(|list| spec[list].as_array().unwrap().clone()).concat();
    assert!(steps.len() > 5);
    for step in steps {
        let text = |word: &Value| {
            word.as_str().unwrap().replace("/manifests/deployment.yaml", manifest.to_str().unwrap())
        };
        let account = spec["serviceAccountName"].as_str().unwrap();
        let mut arguments = vec![format!("--as=system:serviceaccount:{namespace}:{account}")];
        arguments.extend(step["args"].as_array().unwrap().iter().map(text));
        kubectl(&arguments);
    }
}
