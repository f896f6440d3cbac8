//! The embedded API server beside a real one and kube-controller-manager's quota controller: the same requests, and after
//! each of them the same answer and the same status of every quota.

use std::sync::Arc;
use std::time::Duration;

use http::{Method, Request};
use kube::Client;
use serde_json::{Value, json};
use tokio::time::Instant;
use windlass::clock::Clock;
use windlass_apiserver::{Options, Sandbox};
use windlass_testkit::apiserver::{ApiServer, TOKEN, on_a_real_server};
use windlass_testkit::controllers::Side;

/// A request: the method, the path below the namespace, and the body.
type Step = (Method, &'static str, Value);

fn quota(name: &str, spec: Value) -> Step {
    (Method::POST, "api/v1/resourcequotas", json!({"metadata": {"name": name}, "spec": spec}))
}

fn range(name: &str, items: Value) -> Step {
    (Method::POST, "api/v1/limitranges", json!({"metadata": {"name": name}, "spec": {"limits": items}}))
}

fn container(name: &str, requests: Value, limits: Value) -> Value {
    let mut resources = json!({"requests": requests, "limits": limits});
    resources.as_object_mut().unwrap().retain(|_, amounts| *amounts != json!({}));
    json!({"name": name, "image": "app:1", "resources": resources})
}

fn pod_of(name: &str, spec: Value) -> Step {
    (Method::POST, "api/v1/pods", json!({"metadata": {"name": name}, "spec": spec}))
}

fn pod(name: &str, requests: Value, limits: Value) -> Step {
    pod_of(name, json!({"containers": [container("c", requests, limits)]}))
}

fn plain(name: &str) -> Step {
    pod(name, json!({}), json!({}))
}

fn delete(path: &'static str) -> Step {
    (Method::DELETE, path, json!({"gracePeriodSeconds": 0}))
}

fn workload(kind: &str, path: &'static str, name: &str) -> Step {
    let template = json!({"metadata": {"labels": {"app": name}},
                          "spec": {"containers": [container("c", json!({}), json!({}))]}});
    let spec = json!({"replicas": 0, "selector": {"matchLabels": {"app": name}}, "template": template});
    (
        Method::POST,
        path,
        json!({"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": name}, "spec": spec}),
    )
}

fn of_pods_and_objects() -> Vec<Step> {
    let deployments = "apis/apps/v1/deployments";
    vec![
        plain("early"),
        quota(
            "few",
            json!({"hard": {"pods": "2", "count/pods": 3, "count/replicasets.apps": "1",
                                     "count/deployments.apps": "1", "configmaps": "2", "secrets": "5"}}),
        ),
        plain("second"),
        plain("third"),
        (
            Method::POST,
            "api/v1/pods?dryRun=All",
            json!({"metadata": {"generateName": "made-"},
            "spec": {"containers": [container("c", json!({}), json!({}))]}}),
        ),
        // One that has ended counts as an object alone.
        (Method::PATCH, "api/v1/pods/early/status", json!({"status": {"phase": "Succeeded"}})),
        plain("third"),
        plain("fourth"),
        delete("api/v1/pods/early"),
        delete("api/v1/pods/second"),
        (
            Method::POST,
            "api/v1/pods?dryRun=All",
            json!({"metadata": {"name": "dry"},
            "spec": {"containers": [container("c", json!({}), json!({}))]}}),
        ),
        workload("Deployment", deployments, "web"),
        workload("Deployment", deployments, "api"),
        workload("ReplicaSet", "apis/apps/v1/replicasets", "a"),
        workload("ReplicaSet", "apis/apps/v1/replicasets", "b"),
        (
            Method::PATCH,
            "api/v1/resourcequotas/few",
            json!({"spec": {"hard": {"count/deployments.apps": "2"}}}),
        ),
        workload("Deployment", deployments, "api"),
        (Method::POST, "api/v1/configmaps", json!({"metadata": {"name": "one"}})),
        (Method::POST, "api/v1/configmaps", json!({"metadata": {"name": "two"}})),
        (Method::POST, "api/v1/configmaps", json!({"metadata": {"name": "three"}})),
        delete("api/v1/configmaps/one"),
    ]
}

fn of_computing() -> Vec<Step> {
    let sidecar = |cpu: &str| {
        let mut sidecar = container("side", json!({"cpu": cpu, "memory": "64Mi"}), json!({"cpu": "1"}));
        sidecar["restartPolicy"] = json!("Always");
        sidecar
    };
    let small = json!({"cpu": "100m", "memory": "128Mi"});
    vec![
        quota("compute", json!({"hard": {"cpu": "1", "requests.memory": "1Gi", "limits.cpu": "4"}})),
        plain("bare"),
        pod("no-limit", small.clone(), json!({})),
        pod("fits", small.clone(), json!({"cpu": "1"})),
        // Limits are requests where there are none.
        pod("limits", json!({}), json!({"cpu": "0.5", "memory": "0.25Gi"})),
        pod_of(
            "several",
            json!({
                "initContainers": [sidecar("50m"), container("init", json!({"cpu": "300m", "memory": "1Mi"}), json!({"cpu": "2"}))],
                "containers": [container("c", small.clone(), json!({"cpu": "1"}))],
            }),
        ),
        pod_of(
            "lacking",
            json!({
                "initContainers": [container("init", json!({}), json!({}))],
                "containers": [container("b", json!({"cpu": "1m"}), json!({})), container("a", json!({}), json!({}))],
            }),
        ),
        pod("too-much", json!({"cpu": "900m", "memory": "2Gi"}), json!({"cpu": "3"})),
        delete("api/v1/pods/fits"),
        pod("exactly", json!({"cpu": "150m", "memory": "100M"}), json!({"cpu": "150m"})),
        quota(
            "more",
            json!({"hard": {"requests.ephemeral-storage": "1Gi", "hugepages-2Mi": "4Mi",
                                      "requests.example.com/gpu": "1", "memory": "10Gi"}}),
        ),
        pod(
            "gpu",
            json!({"cpu": "1m", "memory": "1Mi", "example.com/gpu": "1", "ephemeral-storage": "1Mi"}),
            json!({"cpu": "1m", "example.com/gpu": "1"}),
        ),
        pod(
            "gpus",
            json!({"cpu": "1m", "memory": "1Mi", "example.com/gpu": "1"}),
            json!({"cpu": "1m", "example.com/gpu": "1"}),
        ),
        pod(
            "pages",
            json!({"cpu": "1m", "memory": "1Mi", "hugepages-2Mi": "8Mi"}),
            json!({"cpu": "1m", "hugepages-2Mi": "8Mi"}),
        ),
        pod_of(
            "whole",
            json!({"resources": {"requests": {"cpu": "2m", "memory": "3Mi"}, "limits": {"cpu": "5m"}},
            "containers": [container("c", json!({}), json!({}))]}),
        ),
    ]
}

fn of_scopes() -> Vec<Step> {
    let scoped = |name: &str, scope: &str| quota(name, json!({"scopes": [scope], "hard": {"pods": "1"}}));
    let small = json!({"cpu": "1m"});
    let deadline = |name: &str| {
        pod_of(
            name,
            json!({"activeDeadlineSeconds": 60, "containers": [container("c", json!({}), json!({}))]}),
        )
    };
    vec![
        scoped("best", "BestEffort"),
        plain("a"),
        plain("b"),
        pod("sized", small.clone(), json!({})),
        scoped("sized", "NotBestEffort"),
        pod("sized-too", small.clone(), json!({})),
        delete("api/v1/resourcequotas/best"),
        delete("api/v1/resourcequotas/sized"),
        scoped("short", "Terminating"),
        scoped("long", "NotTerminating"),
        deadline("d"),
        deadline("e"),
        plain("f"),
        (Method::PATCH, "api/v1/resourcequotas/long", json!({"spec": {"hard": {"pods": "3"}}})),
        plain("f"),
        // Of two quotas that a pod exceeds, a real API server names any.
        delete("api/v1/resourcequotas/short"),
        quota(
            "class",
            json!({"hard": {"pods": "0"}, "scopeSelector": {"matchExpressions": [
            {"scopeName": "PriorityClass", "operator": "In", "values": ["system-node-critical"]}]}}),
        ),
        pod_of(
            "critical",
            json!({"priorityClassName": "system-node-critical", "activeDeadlineSeconds": 5,
            "containers": [container("c", json!({}), json!({}))]}),
        ),
    ]
}

fn of_ranges() -> Vec<Step> {
    vec![
        quota("compute", json!({"hard": {"requests.cpu": "1", "limits.memory": "1Gi"}})),
        plain("refused"),
        range(
            "defaults",
            json!([{"type": "Container", "default": {"memory": "256Mi"}, "defaultRequest": {"cpu": "100m"}}]),
        ),
        plain("filled"),
        pod("own", json!({"cpu": "200m"}), json!({"cpu": "500m"})),
        pod_of(
            "init",
            json!({"initContainers": [container("i", json!({}), json!({}))],
                              "containers": [container("c", json!({}), json!({}))]}),
        ),
        delete("api/v1/limitranges/defaults"),
        delete("api/v1/resourcequotas/compute"),
        range(
            "bounds",
            json!([{"type": "Container", "min": {"cpu": "50m"}, "max": {"cpu": "1", "memory": "512Mi"},
                                "maxLimitRequestRatio": {"cpu": "4"}}]),
        ),
        plain("bounded"),
        pod("low", json!({"cpu": "10m"}), json!({})),
        // One after the other: of several resources, a real API server names any first.
        pod("high", json!({"cpu": "1500m"}), json!({"cpu": "2"})),
        pod("wide", json!({}), json!({"memory": "1Gi"})),
        pod("ratio", json!({"cpu": "100m"}), json!({"cpu": "750m"})),
        delete("api/v1/limitranges/bounds"),
        range(
            "pods",
            json!([{"type": "Pod", "min": {"cpu": "150m"}, "max": {"memory": "1Gi"}, "maxLimitRequestRatio": {"memory": "2"}}]),
        ),
        plain("empty"),
        pod("small", json!({"cpu": "100m", "memory": "1Mi"}), json!({"memory": "1Gi"})),
        pod("large", json!({"cpu": "1", "memory": "1Gi"}), json!({"memory": "2Gi"})),
        pod("good", json!({"cpu": "1", "memory": "512Mi"}), json!({"memory": "1Gi"})),
    ]
}

/// The answer as a client sees it: the code, the message, and of a pod the fields that admission sets.
#[derive(Debug, PartialEq)]
struct Answer {
    code: u16,
    message: String,
    containers: Vec<Value>,
    annotation: Value,
    class: Value,
    limits: Value,
}

async fn play(client: &Client, namespace: &str, (method, path, body): &Step) -> Answer {
    let (version, rest) = path.rsplit_once("v1/").unwrap();
    let media = match *method {
        Method::PATCH => "application/merge-patch+json",
        _ => "application/json",
    };
    let uri = format!("/{version}v1/namespaces/{namespace}/{rest}");
    let request = Request::builder().method(method).uri(&uri).header("content-type", media);
    let request = request.body(body.to_string().into_bytes()).unwrap();
    match client.request::<Value>(request).await {
        Ok(object) => {
            let lists = ["initContainers", "containers"];
            let containers = lists.iter().filter_map(|list| object["spec"][*list].as_array()).flatten();
            Answer {
                code: 200,
                message: String::new(),
                containers: containers.map(|container| container["resources"].clone()).collect(),
                annotation: object["metadata"]["annotations"]["kubernetes.io/limit-ranger"].clone(),
                class: object["status"]["qosClass"].clone(),
                limits: object["spec"]["limits"].clone(),
            }
        }
        Err(kube::Error::Api(status)) => Answer {
            code: status.code,
            message: without_generated(&status.message),
            containers: Vec::new(),
            annotation: Value::Null,
            class: Value::Null,
            limits: Value::Null,
        },
        Err(error) => panic!("{uri}: {error}"),
    }
}

/// A message without the five letters that the server appends to a `generateName`.
fn without_generated(message: &str) -> String {
    match message.split_once("made-") {
        Some((head, tail)) => format!("{head}made-…{}", tail.get(5..).unwrap_or_default()),
        None => message.to_owned(),
    }
}

async fn statuses(client: &Client, namespace: &str) -> Vec<Value> {
    let path = format!("/api/v1/namespaces/{namespace}/resourcequotas");
    let list: Value = client.request(Request::get(path).body(Vec::new()).unwrap()).await.unwrap();
    let items = list["items"].as_array().unwrap().iter();
    items.map(|quota| json!([quota["metadata"]["name"], quota["status"]])).collect()
}

async fn create_namespace(client: &Client, name: &str) {
    let body = json!({"metadata": {"name": name}}).to_string().into_bytes();
    let request = Request::post("/api/v1/namespaces").header("content-type", "application/json").body(body);
    client.request::<Value>(request.unwrap()).await.unwrap();
}

pub(crate) fn quotas_and_limit_ranges_admit_refuse_and_count_as_a_real_api_server_does() {
    on_a_real_server(async |assets| {
        let server = ApiServer::start(assets).await;
        let (config, log) = (server.kubeconfig(TOKEN), server.file("upstream.log"));
        let controllers = "resourcequota-controller";
        let _upstream = Side::Upstream.start(assets, &config, controllers, &["--leader-elect=false"], &log);
        let real = server.client().await;
        let sandbox = Sandbox::new(Options::new(Arc::new(|| Clock::System.now())));
        let embedded = Client::new(sandbox.router(), "default");
        let mut differences = Vec::new();
        for (namespace, steps) in [
            ("objects", of_pods_and_objects()),
            ("computing", of_computing()),
            ("scopes", of_scopes()),
            ("ranges", of_ranges()),
        ] {
            create_namespace(&real, namespace).await;
            create_namespace(&embedded, namespace).await;
            for (number, step) in steps.iter().enumerate() {
                let ours = play(&embedded, namespace, step).await;
                // The real server learns of quotas and ranges by watches, and may answer from before them.
                let end = Instant::now() + Duration::from_secs(5);
                let theirs = loop {
                    let theirs = play(&real, namespace, step).await;
                    let is_unsettled = theirs.message.contains("status unknown for quota")
                        || (ours.code < 300 && theirs.message.contains("exceeded quota"));
                    if !is_unsettled || Instant::now() > end {
                        break theirs;
                    }
                    tokio::time::sleep(Duration::from_millis(100)).await;
                };
                if ours != theirs {
                    differences.push(format!(
                        "{namespace} {number} {step:?}\n  ours   {ours:?}\n  theirs {theirs:?}"
                    ));
                }
                if step.1.contains("limitranges") {
                    // Until the real server's admission has seen it.
                    tokio::time::sleep(Duration::from_millis(500)).await;
                }
                let counted = statuses(&embedded, namespace).await;
                let end = Instant::now() + Duration::from_secs(15);
                loop {
                    let real = statuses(&real, namespace).await;
                    if real == counted {
                        break;
                    }
                    if Instant::now() > end {
                        differences.push(format!(
                            "{namespace} {number} {step:?}\n  ours   {counted:?}\n  theirs {real:?}"
                        ));
                        break;
                    }
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        }
        assert!(differences.is_empty(), "{} differences:\n{}", differences.len(), differences.join("\n"));
    });
}
