//! Tests of the pod simulator, the garbage collector, the namespace controller and the manifests against
//! the sandbox's API server, all in one process and in virtual time.

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use kube::{
    Client,
    core::{
        Request,
        params::{DeleteParams, GetParams, ListParams, Patch, PatchParams, PostParams},
    },
};
use serde_json::{Value, json};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{
    Options, Sandbox, garbage, kubelet, manifest, namespaces,
    resources::{CallError, Now, post, send},
};

/// A cluster in virtual time, with some of its controllers running.
struct Rig {
    sandbox: Sandbox,
    client: Client,
    now: Now,
    shutdown: CancellationToken,
}

impl Drop for Rig {
    fn drop(&mut self) {
        self.shutdown.cancel();
    }
}

impl Rig {
    fn new() -> Self {
        let start: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let since = Instant::now();
        let now: Now = Arc::new(move || start + since.elapsed());
        let sandbox = Sandbox::new(Options::new(now.clone()));
        let client = Client::new(sandbox.router(), "default");
        Rig { sandbox, client, now, shutdown: CancellationToken::new() }
    }

    fn with_pods(self) -> Self {
        let options = kubelet::Options::new(self.now.clone());
        self.with_pods_that(options)
    }

    fn with_pods_that(self, options: kubelet::Options) -> Self {
        tokio::spawn(kubelet::run(self.client.clone(), options, self.shutdown.clone()));
        self
    }

    fn with_garbage(self) -> Self {
        tokio::spawn(garbage::run(self.client.clone(), self.shutdown.clone()));
        self
    }

    fn with_namespaces(self) -> Self {
        tokio::spawn(namespaces::run(self.client.clone(), self.now.clone(), self.shutdown.clone()));
        self
    }

    async fn create(&self, path: &str, object: Value) -> Value {
        send(&self.client, post(path.to_owned(), &object)).await.unwrap()
    }

    async fn create_pod(&self, name: &str, spec: Value) -> Value {
        let mut pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "namespace": "default"},
            "spec": {"containers": [{"name": "main", "image": "nginx"}]},
        });
        json_patch::merge(&mut pod["spec"], &spec);
        self.create(PODS, pod).await
    }

    /// A ConfigMap in `default`; `owners` are other ConfigMaps, as (name, UID).
    async fn create_map(&self, name: &str, owners: &[(&str, &str)]) -> String {
        let references: Vec<Value> = owners
            .iter()
            .map(|(name, uid)| {
                json!({"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": uid,
                       "blockOwnerDeletion": true})
            })
            .collect();
        let object = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": name, "namespace": "default", "ownerReferences": references},
        });
        self.create(MAPS, object).await["metadata"]["uid"].as_str().unwrap().to_owned()
    }

    async fn get(&self, path: &str, name: &str) -> Option<Value> {
        match send(&self.client, Request::new(path).get(name, &GetParams::default())).await {
            Ok(found) => Some(found),
            Err(error) if error.is_not_found() => None,
            Err(error) => panic!("{error}"),
        }
    }

    async fn list(&self, path: &str) -> Vec<Value> {
        let list = send(&self.client, Request::new(path).list(&ListParams::default())).await.unwrap();
        list["items"].as_array().unwrap().clone()
    }

    async fn names(&self, path: &str) -> Vec<String> {
        let list = self.list(path).await;
        list.iter().map(|object| object["metadata"]["name"].as_str().unwrap().to_owned()).collect()
    }

    async fn delete(&self, path: &str, name: &str, parameters: &DeleteParams) {
        send(&self.client, Request::new(path).delete(name, parameters)).await.unwrap();
    }

    async fn patch(&self, path: &str, name: &str, patch: Value) -> Value {
        let request = Request::new(path).patch(name, &PatchParams::default(), &Patch::Merge(patch));
        send(&self.client, request).await.unwrap()
    }

    async fn phase(&self, name: &str) -> String {
        let pod = self.get(PODS, name).await.unwrap();
        pod["status"]["phase"].as_str().unwrap_or_default().to_owned()
    }
}

const PODS: &str = "/api/v1/namespaces/default/pods";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const NODES: &str = "/api/v1/nodes";
const SPACES: &str = "/api/v1/namespaces";

async fn pass(milliseconds: u64) {
    tokio::time::sleep(Duration::from_millis(milliseconds)).await;
}

fn ready(pod: &Value) -> bool {
    let conditions = pod["status"]["conditions"].as_array();
    conditions.into_iter().flatten().any(|c| c["type"] == "Ready" && c["status"] == "True")
}

#[tokio::test(start_paused = true)]
async fn three_ready_nodes_appear_and_a_pod_becomes_ready_on_one_after_the_delay() {
    let rig = Rig::new().with_pods();
    pass(10).await;
    assert_eq!(rig.names(NODES).await, ["sandbox-node-1", "sandbox-node-2", "sandbox-node-3"]);
    assert!(rig.list(NODES).await.iter().all(ready));
    rig.create_pod("web", json!({})).await;
    pass(100).await;
    let pod = rig.get(PODS, "web").await.unwrap();
    assert_eq!(pod["spec"]["nodeName"], "sandbox-node-1");
    assert_eq!(pod["status"]["phase"], "Pending");
    assert_eq!(pod["status"]["containerStatuses"][0]["state"]["waiting"]["reason"], "ContainerCreating");
    pass(1000).await;
    let pod = rig.get(PODS, "web").await.unwrap();
    assert!(ready(&pod), "{pod:#}");
    assert_eq!(pod["status"]["phase"], "Running");
    assert_eq!(pod["status"]["podIP"], "10.244.0.1");
    assert_eq!(pod["status"]["hostIP"], "10.0.0.1");
}

#[tokio::test(start_paused = true)]
async fn a_settled_cluster_writes_nothing_for_an_hour() {
    let rig = Rig::new().with_pods().with_garbage().with_namespaces();
    rig.create_pod("web", json!({})).await;
    pass(5_000).await;
    assert_eq!(rig.phase("web").await, "Running");
    let before = rig.sandbox.revision();
    pass(3_600_000).await;
    assert_eq!(rig.sandbox.revision(), before);
}

#[tokio::test(start_paused = true)]
async fn the_same_requests_give_the_same_history() {
    async fn history() -> String {
        let rig = Rig::new().with_pods().with_garbage().with_namespaces();
        let owner = rig.create_map("owner", &[]).await;
        rig.create_map("child", &[("owner", &owner)]).await;
        for name in ["a", "b", "c", "d", "e"] {
            rig.create_pod(name, json!({})).await;
        }
        pass(2_000).await;
        rig.delete(MAPS, "owner", &DeleteParams::background()).await;
        rig.delete(PODS, "c", &DeleteParams::default()).await;
        pass(2_000).await;
        ["Node", "Pod", "Event", "ConfigMap", "ServiceAccount"]
            .map(|kind| json!(rig.sandbox.objects(kind)).to_string())
            .join("\n")
    }
    let first = history().await;
    assert!(first.contains("sandbox-node-3") && first.contains("Killing"), "{first}");
    assert_eq!(first, history().await);
}

#[tokio::test(start_paused = true)]
async fn nodes_that_exist_are_used_and_none_are_created() {
    let rig = Rig::new();
    rig.create(NODES, json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "mine"}})).await;
    let rig = rig.with_pods();
    rig.create_pod("web", json!({})).await;
    pass(2_000).await;
    assert_eq!(rig.names(NODES).await, ["mine"]);
    assert_eq!(rig.get(PODS, "web").await.unwrap()["spec"]["nodeName"], "mine");
    assert_eq!(rig.phase("web").await, "Running");
}

#[tokio::test(start_paused = true)]
async fn new_nodes_are_opened_before_the_first_pod_asks_and_later_ones_too() {
    let rig = Rig::new().with_pods();
    rig.create_pod("web", json!({})).await;
    pass(2_000).await;
    assert_eq!(rig.phase("web").await, "Running");
    let events = rig.list("/api/v1/namespaces/default/events").await;
    assert!(!events.iter().any(|event| event["reason"] == "FailedScheduling"), "{events:#?}");

    let gpu = json!({"taints": [{"key": "gpu", "effect": "NoSchedule"}]});
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "late"}, "spec": gpu});
    rig.create(NODES, node).await;
    pass(2_000).await;
    assert_eq!(rig.get(NODES, "late").await.unwrap()["spec"], gpu);
    for node in rig.list(NODES).await.iter().filter(|node| node["metadata"]["name"] != "late") {
        assert!(node["spec"]["taints"].is_null(), "{node}");
    }
}

#[tokio::test(start_paused = true)]
async fn pods_spread_over_the_nodes() {
    let rig = Rig::new().with_pods();
    for number in 0..9 {
        rig.create_pod(&format!("web-{number}"), json!({})).await;
    }
    pass(2_000).await;
    for node in 1..=3 {
        let name = format!("sandbox-node-{node}");
        let on_it =
            rig.list(PODS).await.iter().filter(|pod| pod["spec"]["nodeName"] == name.as_str()).count();
        assert_eq!(on_it, 3, "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_fits_nowhere_says_so_and_goes_when_a_node_opens() {
    let rig = Rig::new().with_pods();
    pass(10).await;
    for node in ["sandbox-node-1", "sandbox-node-2", "sandbox-node-3"] {
        rig.patch(NODES, node, json!({"spec": {"unschedulable": true}})).await;
    }
    pass(10).await;
    rig.create_pod("web", json!({})).await;
    pass(1_000).await;
    let pod = rig.get(PODS, "web").await.unwrap();
    let condition = &pod["status"]["conditions"][0];
    assert_eq!((&condition["type"], &condition["reason"]), (&json!("PodScheduled"), &json!("Unschedulable")));
    assert_eq!(condition["message"], "0/3 nodes are available: 3 node(s) were unschedulable.");
    let events = rig.list("/api/v1/namespaces/default/events").await;
    assert!(events.iter().any(|event| event["reason"] == "FailedScheduling"), "{events:#?}");
    rig.patch(NODES, "sandbox-node-2", json!({"spec": {"unschedulable": false}})).await;
    pass(2_000).await;
    let pod = rig.get(PODS, "web").await.unwrap();
    assert_eq!(pod["spec"]["nodeName"], "sandbox-node-2");
    assert!(ready(&pod));
}

#[tokio::test(start_paused = true)]
async fn an_image_that_never_comes_keeps_its_pod_pending() {
    let rig = Rig::new();
    let options = kubelet::Options {
        never_ready: Some(regex_lite::Regex::new(":broken$").unwrap()),
        ..kubelet::Options::new(rig.now.clone())
    };
    let rig = rig.with_pods_that(options);
    rig.create_pod("web", json!({"containers": [{"name": "main", "image": "nginx:broken"}]})).await;
    pass(600_000).await;
    let pod = rig.get(PODS, "web").await.unwrap();
    assert_eq!(pod["status"]["phase"], "Pending");
    assert!(!ready(&pod));
    let waiting = &pod["status"]["containerStatuses"][0]["state"]["waiting"];
    assert_eq!(waiting["reason"], "ImagePullBackOff");
    assert_eq!(waiting["message"], "Back-off pulling image \"nginx:broken\"");
}

#[tokio::test(start_paused = true)]
async fn a_deleted_pod_terminates_first_and_is_gone_after_the_delay() {
    let rig = Rig::new().with_pods();
    rig.create_pod("web", json!({})).await;
    pass(2_000).await;
    rig.delete(PODS, "web", &DeleteParams::default()).await;
    pass(100).await;
    let pod = rig.get(PODS, "web").await.expect("it terminates gracefully");
    assert!(pod["metadata"]["deletionTimestamp"].is_string());
    pass(1_000).await;
    assert!(rig.get(PODS, "web").await.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_pod_held_by_a_finalizer_ends_and_waits() {
    let rig = Rig::new().with_pods();
    rig.create_pod("web", json!({})).await;
    rig.patch(PODS, "web", json!({"metadata": {"finalizers": ["example.com/hold"]}})).await;
    pass(2_000).await;
    rig.delete(PODS, "web", &DeleteParams::default()).await;
    pass(5_000).await;
    let pod = rig.get(PODS, "web").await.expect("the finalizer holds it");
    assert_eq!(pod["status"]["phase"], "Succeeded");
    let before = rig.sandbox.revision();
    pass(60_000).await;
    assert_eq!(rig.sandbox.revision(), before, "it is not deleted again and again");
    rig.patch(PODS, "web", json!({"metadata": {"finalizers": null}})).await;
    assert!(rig.get(PODS, "web").await.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_pod_recreated_under_its_name_is_not_finished_in_its_predecessors_place() {
    let rig = Rig::new().with_pods();
    rig.create_pod("web", json!({})).await;
    pass(2_000).await;
    rig.delete(PODS, "web", &DeleteParams::default()).await;
    let now = DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() };
    rig.delete(PODS, "web", &now).await;
    rig.create_pod("web", json!({})).await;
    pass(10_000).await;
    let pod = rig.get(PODS, "web").await.expect("the successor lives");
    assert!(ready(&pod));
}

#[tokio::test(start_paused = true)]
async fn the_simulator_survives_broken_watches_and_forgotten_history() {
    let rig = Rig::new().with_pods();
    rig.create_pod("before", json!({})).await;
    pass(2_000).await;
    rig.sandbox.break_watches();
    rig.create_pod("after", json!({})).await;
    rig.sandbox.compact();
    pass(60_000).await;
    assert!(ready(&rig.get(PODS, "after").await.unwrap()));
    rig.delete(PODS, "before", &DeleteParams::default()).await;
    pass(5_000).await;
    assert_eq!(rig.names(PODS).await, ["after"]);
}

#[tokio::test(start_paused = true)]
async fn background_deletion_cascades_to_dependents_of_dependents() {
    let rig = Rig::new().with_garbage();
    let owner = rig.create_map("owner", &[]).await;
    let child = rig.create_map("child", &[("owner", &owner)]).await;
    rig.create_map("grandchild", &[("child", &child)]).await;
    rig.create_map("bystander", &[]).await;
    pass(1_000).await;
    rig.delete(MAPS, "owner", &DeleteParams::background()).await;
    pass(5_000).await;
    assert_eq!(rig.names(MAPS).await, ["bystander"]);
}

#[tokio::test(start_paused = true)]
async fn an_object_with_one_living_owner_stays_and_forgets_the_dead_one() {
    let rig = Rig::new().with_garbage();
    let (living, dead) = (rig.create_map("living", &[]).await, rig.create_map("dead", &[]).await);
    rig.create_map("child", &[("living", &living), ("dead", &dead)]).await;
    pass(1_000).await;
    rig.delete(MAPS, "dead", &DeleteParams::background()).await;
    pass(5_000).await;
    let child = rig.get(MAPS, "child").await.unwrap();
    let owners = child["metadata"]["ownerReferences"].as_array().unwrap();
    assert_eq!(owners.len(), 1);
    assert_eq!(owners[0]["name"], "living");
}

#[tokio::test(start_paused = true)]
async fn an_owner_with_the_right_name_and_another_uid_is_absent() {
    let rig = Rig::new().with_garbage();
    rig.create_map("owner", &[]).await;
    rig.create_map("child", &[("owner", "00000000-0000-0000-0000-000000000000")]).await;
    pass(5_000).await;
    assert_eq!(rig.names(MAPS).await, ["owner"]);
}

#[tokio::test(start_paused = true)]
async fn an_owner_of_a_kind_that_nobody_knows_keeps_its_dependents_safe() {
    let rig = Rig::new().with_garbage();
    let owner = json!({"apiVersion": "example.com/v1", "kind": "Widget", "name": "w", "uid": "u"});
    let metadata = json!({"name": "child", "namespace": "default", "ownerReferences": [owner]});
    rig.create(MAPS, json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})).await;
    pass(60_000).await;
    assert_eq!(rig.names(MAPS).await, ["child"]);
}

#[tokio::test(start_paused = true)]
async fn in_the_foreground_the_owner_goes_last() {
    let rig = Rig::new().with_garbage();
    let owner = rig.create_map("owner", &[]).await;
    rig.create_map("child", &[("owner", &owner)]).await;
    rig.patch(MAPS, "child", json!({"metadata": {"finalizers": ["example.com/hold"]}})).await;
    pass(1_000).await;
    rig.delete(MAPS, "owner", &DeleteParams::foreground()).await;
    pass(10_000).await;
    assert_eq!(rig.names(MAPS).await, ["child", "owner"], "the child is held, so the owner waits");
    let child = rig.get(MAPS, "child").await.unwrap();
    assert!(child["metadata"]["deletionTimestamp"].is_string());
    rig.patch(MAPS, "child", json!({"metadata": {"finalizers": null}})).await;
    pass(5_000).await;
    assert!(rig.names(MAPS).await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn orphaned_dependents_stay_without_an_owner() {
    let rig = Rig::new().with_garbage();
    let owner = rig.create_map("owner", &[]).await;
    rig.create_map("a", &[("owner", &owner)]).await;
    rig.create_map("b", &[("owner", &owner)]).await;
    pass(1_000).await;
    rig.delete(MAPS, "owner", &DeleteParams::orphan()).await;
    pass(10_000).await;
    assert_eq!(rig.names(MAPS).await, ["a", "b"]);
    for map in rig.list(MAPS).await {
        assert!(map["metadata"].get("ownerReferences").is_none(), "{map}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_deleted_namespace_waits_for_its_content_says_what_is_left_and_goes() {
    let rig = Rig::new().with_pods().with_garbage().with_namespaces();
    rig.create(SPACES, json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "zoo"}})).await;
    pass(1_000).await;
    let accounts = "/api/v1/namespaces/zoo/serviceaccounts";
    assert_eq!(rig.names(accounts).await, ["default"]);
    let maps = "/api/v1/namespaces/zoo/configmaps";
    let held = json!({"name": "held", "finalizers": ["example.com/hold"]});
    rig.create(maps, json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": held})).await;
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "lion"},
                     "spec": {"containers": [{"name": "main", "image": "nginx"}]}});
    rig.create("/api/v1/namespaces/zoo/pods", pod).await;
    pass(2_000).await;
    rig.delete(SPACES, "zoo", &DeleteParams::default()).await;
    pass(30_000).await;
    let zoo = rig.get(SPACES, "zoo").await.expect("a finalizer holds its content");
    let conditions = zoo["status"]["conditions"].as_array().unwrap();
    let message = |type_: &str| {
        let found = conditions.iter().find(|c| c["type"] == type_).unwrap();
        (found["status"].as_str().unwrap(), found["message"].as_str().unwrap())
    };
    assert_eq!(
        message("NamespaceContentRemaining"),
        ("True", "Some resources are remaining: configmaps. has 1 resource instances")
    );
    assert_eq!(
        message("NamespaceFinalizersRemaining"),
        (
            "True",
            "Some content in the namespace has finalizers remaining: example.com/hold in 1 resource instances"
        )
    );
    rig.patch(maps, "held", json!({"metadata": {"finalizers": null}})).await;
    pass(30_000).await;
    assert!(rig.get(SPACES, "zoo").await.is_none());
}

/// A ReplicationController in `namespace` and two pods that it controls, as its controller makes them.
async fn controller_with_pods(rig: &Rig, namespace: &str) -> String {
    let controllers = format!("/api/v1/namespaces/{namespace}/replicationcontrollers");
    let spec =
        json!({"containers": [{"name": "main", "image": "nginx"}], "terminationGracePeriodSeconds": 1});
    let template = json!({"metadata": {"labels": {"app": "old"}}, "spec": spec});
    let created = rig
        .create(
            &controllers,
            json!({"apiVersion": "v1", "kind": "ReplicationController", "metadata": {"name": "old"},
                   "spec": {"replicas": 2, "template": template}}),
        )
        .await;
    for name in ["old-1", "old-2"] {
        let owner = json!({"apiVersion": "v1", "kind": "ReplicationController", "name": "old",
                           "uid": created["metadata"]["uid"], "controller": true, "blockOwnerDeletion": true});
        let metadata = json!({"name": name, "labels": {"app": "old"}, "ownerReferences": [owner]});
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec});
        rig.create(&format!("/api/v1/namespaces/{namespace}/pods"), pod).await;
    }
    controllers
}

#[tokio::test(start_paused = true)]
async fn the_pods_of_a_replication_controller_go_with_it_before_it_or_not_at_all() {
    for (parameters, first, last) in [
        (DeleteParams::background(), 0, 0),
        (DeleteParams::foreground(), 1, 0),
        (DeleteParams::orphan(), 0, 2),
        // What a client of before the garbage collector sends.
        (DeleteParams::default(), 0, 2),
    ] {
        let rig = Rig::new().with_pods().with_garbage();
        let controllers = controller_with_pods(&rig, "default").await;
        pass(5_000).await;
        rig.delete(&controllers, "old", &parameters).await;
        pass(100).await;
        assert_eq!(rig.names(&controllers).await.len(), first, "{parameters:?}");
        pass(10_000).await;
        assert_eq!(rig.names(&controllers).await.len(), 0, "{parameters:?}");
        let pods = rig.list(PODS).await;
        assert_eq!(pods.len(), last, "{parameters:?}");
        assert!(pods.iter().all(|pod| pod["metadata"].get("ownerReferences").is_none()));
    }
}

#[tokio::test(start_paused = true)]
async fn a_deleted_namespace_takes_replication_controllers_and_their_pods_along() {
    let rig = Rig::new().with_pods().with_garbage().with_namespaces();
    rig.create(SPACES, json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "zoo"}})).await;
    pass(1_000).await;
    let controllers = controller_with_pods(&rig, "zoo").await;
    pass(5_000).await;
    rig.delete(SPACES, "zoo", &DeleteParams::default()).await;
    pass(60_000).await;
    assert!(rig.get(SPACES, "zoo").await.is_none());
    assert!(rig.names(&controllers).await.is_empty());
    assert!(rig.names("/api/v1/pods").await.is_empty());
}

fn objects(text: &str) -> Vec<manifest::Object> {
    manifest::read(&["-".into()], &mut text.as_bytes()).unwrap()
}

const SHOP: &str = "
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: main, image: nginx}]}
---
apiVersion: v1
kind: Namespace
metadata: {name: shop}
";

#[tokio::test(start_paused = true)]
async fn manifests_are_checked_without_a_trace_and_applied_with_namespaces_first() {
    let rig = Rig::new();
    let shop = objects(SHOP);
    let before = rig.sandbox.revision();
    manifest::apply::check(&rig.client, &shop).await.unwrap();
    assert_eq!(rig.sandbox.revision(), before);
    let mut told = Vec::new();
    let apply = async || {
        let mut told = Vec::new();
        manifest::apply::apply(&rig.client, &shop, |object, how| told.push(format!("{object} {how}")))
            .await
            .unwrap();
        told
    };
    told.extend(apply().await);
    assert_eq!(told, ["Namespace shop created", "Deployment shop/web created"]);
    assert_eq!(apply().await, ["Namespace shop unchanged", "Deployment shop/web unchanged"]);
}

async fn check_refused(manifest: &str, wanted: &str) {
    let rig = Rig::new();
    let error = manifest::apply::check(&rig.client, &objects(manifest)).await.unwrap_err().to_string();
    assert!(error.contains(wanted), "{error}");
    assert!(error.starts_with("standard input: document 1: Deployment shop/web: "), "{error}");
    assert!(rig.get(SPACES, "shop").await.is_none(), "nothing of it was applied");
}

#[tokio::test(start_paused = true)]
async fn what_the_server_would_refuse_is_said_before_anything_is_applied() {
    check_refused(&SHOP.replace("replicas: 2", "replicas: -1"), "spec.replicas").await;
    check_refused(&SHOP.replace("replicas: 2", "replicas: two"), "replicas").await;
    check_refused(&SHOP.replace("replicas: 2", "replcas: 2"), "unknown field \"spec.replcas\"").await;
    check_refused(&SHOP.replace("  selector: {matchLabels: {app: web}}\n", ""), "selector").await;
    check_refused(&SHOP.replace("{labels: {app: web}}", "{labels: {app: other}}"), "selector").await;
}

#[tokio::test(start_paused = true)]
async fn if_applying_fails_midway_it_says_what_is_there_and_what_is_not() {
    let rig = Rig::new();
    let text = "
{apiVersion: v1, kind: ConfigMap, metadata: {name: first}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: second, namespace: nowhere}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: third}}
";
    let error = manifest::apply::apply(&rig.client, &objects(text), |_, _| {}).await.unwrap_err().to_string();
    assert!(error.contains("standard input: document 2: ConfigMap nowhere/second: "), "{error}");
    assert!(error.contains("applied: ConfigMap default/first\n"), "{error}");
    assert!(error.ends_with("not applied: ConfigMap nowhere/second, ConfigMap default/third"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn the_examples_are_accepted() {
    let rig = Rig::new();
    for text in [include_str!("../../examples/nginx.yaml"), include_str!("../../examples/shop.yaml")] {
        let objects = objects(text);
        manifest::apply::check(&rig.client, &objects).await.unwrap();
        manifest::apply::apply(&rig.client, &objects, |_, _| {}).await.unwrap();
    }
    assert_eq!(rig.names("/apis/apps/v1/namespaces/shop/deployments").await.len(), 12);
}

#[tokio::test(start_paused = true)]
async fn a_name_that_no_url_can_hold_is_an_error_and_no_panic() {
    let rig = Rig::new();
    let text = "{apiVersion: v1, kind: ConfigMap, metadata: {name: \"../a b\\n\", namespace: \"x/y z\"}}";
    assert!(manifest::apply::check(&rig.client, &objects(text)).await.is_err());
    let request = Request::new("/api/v1/nodes").create(&PostParams::default(), b"{".to_vec());
    assert!(matches!(send(&rig.client, request).await, Err(CallError::Refused(_))));
}
