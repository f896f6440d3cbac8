//! The objects that count for an owner: those that name it by UID, kind and API group from within its namespace.
//! The real app against the sandbox, in virtual time, with a tenant who forges owner references. No garbage
//! collector removes what was forged: a tenant can make it again and again, and a test bed may have none.

use std::collections::BTreeMap;
use std::time::Duration;

use http::Method;
use serde_json::{Value, json};
use windlass_planner_testkit::objects::deployment;
use windlass_testkit::cluster::{Cluster, Faults};

const S: Duration = Duration::from_secs(1);
const KINDS: [(&str, &str); 4] = [
    ("Deployment", "apis/apps/v1"),
    ("ReplicaSet", "apis/apps/v1"),
    ("ReplicationController", "api/v1"),
    ("Pod", "api/v1"),
];

/// A cluster with two namespaces, `shop` and `tenant`, without a garbage collector.
async fn cluster() -> Cluster {
    let cluster = Cluster::without_collectors(Faults::default()).await;
    cluster.call(Method::POST, "/api/v1/namespaces", &json!({"metadata": {"name": "tenant"}})).await;
    cluster
}

fn path(kind: &str, namespace: &str) -> String {
    let (_, root) = KINDS.iter().find(|(known, _)| *known == kind).unwrap();
    format!("/{root}/namespaces/{namespace}/{}s", kind.to_lowercase())
}

fn template(app: &str) -> Value {
    json!({"metadata": {"labels": {"app": app}}, "spec": {"containers": [{"name": "app", "image": "app:v1"}]}})
}

async fn create(cluster: &Cluster, kind: &str, namespace: &str, body: Value) -> Value {
    cluster.call(Method::POST, &path(kind, namespace), &body).await
}

fn named(cluster: &Cluster, kind: &str, namespace: &str, name: &str) -> Value {
    let is_it = |o: &Value| o["metadata"]["namespace"] == namespace && o["metadata"]["name"] == name;
    cluster.sandbox.objects(kind).into_iter().find(is_it).unwrap_or(Value::Null)
}

/// An owner reference to this object, as `api_version` and `kind` have it.
fn reference(api_version: &str, kind: &str, owner: &Value) -> Value {
    json!([{"apiVersion": api_version, "kind": kind, "name": owner["metadata"]["name"],
            "uid": owner["metadata"]["uid"], "controller": true, "blockOwnerDeletion": false}])
}

/// A surplus pod of `app` with these owner references.
async fn forge_pod(cluster: &Cluster, namespace: &str, name: &str, app: &str, owners: Value) {
    let mut pod = template(app);
    pod["metadata"]["name"] = name.into();
    pod["metadata"]["ownerReferences"] = owners;
    create(cluster, "Pod", namespace, pod).await;
}

/// All workloads and pods of `shop`, with their resourceVersions, but for those whose name says that they are
/// forged.
fn state_of_the_shop(cluster: &Cluster) -> BTreeMap<String, Value> {
    let all = KINDS.iter().flat_map(|(kind, _)| cluster.objects(kind).into_iter().map(move |o| (kind, o)));
    all.map(|(kind, object)| (format!("{kind}/{}", object["metadata"]["name"].as_str().unwrap()), object))
        .filter(|(name, _)| !name.contains("forged"))
        .collect()
}

/// One object of each kind in `shop`, after it has converged.
struct Shop {
    deployment: Value,
    replica_set_of_deployment: Value,
    replica_set: Value,
    controller: Value,
}

async fn shop(cluster: &Cluster) -> Shop {
    cluster.create(deployment("web").replicas(3)).await;
    let replica_set = json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": "bare"},
        "spec": {"replicas": 2, "selector": {"matchLabels": {"app": "bare"}}, "template": template("bare")}});
    create(cluster, "ReplicaSet", "shop", replica_set).await;
    let controller = json!({"apiVersion": "v1", "kind": "ReplicationController", "metadata": {"name": "old"},
        "spec": {"replicas": 2, "selector": {"app": "old"}, "template": template("old")}});
    create(cluster, "ReplicationController", "shop", controller).await;
    cluster.rolled_out("web").await;
    tokio::time::sleep(30 * S).await;
    let deployment = named(cluster, "Deployment", "shop", "web");
    let is_its = |replica_set: &Value| {
        replica_set["metadata"]["ownerReferences"][0]["uid"] == deployment["metadata"]["uid"]
    };
    Shop {
        replica_set_of_deployment: cluster.objects("ReplicaSet").into_iter().find(is_its).unwrap(),
        replica_set: named(cluster, "ReplicaSet", "shop", "bare"),
        controller: named(cluster, "ReplicationController", "shop", "old"),
        deployment,
    }
}

impl Shop {
    /// The owners of pods, with their apiVersion, their kind, and the label that they select.
    fn pod_owners(&self) -> [(&'static str, &'static str, &Value, &'static str); 3] {
        [
            ("apps/v1", "ReplicaSet", &self.replica_set_of_deployment, "web"),
            ("apps/v1", "ReplicaSet", &self.replica_set, "bare"),
            ("v1", "ReplicationController", &self.controller, "old"),
        ]
    }
}

#[tokio::test(start_paused = true)]
async fn an_owner_reference_to_another_namespace_has_no_effect() {
    let cluster = cluster().await;
    let daemon = cluster.start_controllers(1);
    let shop = shop(&cluster).await;
    let before = state_of_the_shop(&cluster);
    assert_eq!(before.len(), 4 + 3 + 2 + 2);

    for (api_version, kind, owner, app) in shop.pod_owners() {
        for n in 0..5 {
            let owners = reference(api_version, kind, owner);
            let hash = owner["spec"]["template"]["metadata"]["labels"].clone();
            let name = format!("forged-{app}-{n}");
            forge_pod(&cluster, "tenant", &name, app, owners).await;
            let labels = json!({"metadata": {"labels": hash}});
            cluster.call(Method::PATCH, &format!("{}/{name}", path("Pod", "tenant")), &labels).await;
        }
    }
    let mut replica_set = shop.replica_set_of_deployment.clone();
    replica_set["metadata"] = json!({"name": "forged", "labels": replica_set["metadata"]["labels"],
        "annotations": replica_set["metadata"]["annotations"],
        "ownerReferences": reference("apps/v1", "Deployment", &shop.deployment)});
    replica_set["status"] = Value::Null;
    create(&cluster, "ReplicaSet", "tenant", replica_set).await;
    tokio::time::sleep(120 * S).await;
    assert_eq!(state_of_the_shop(&cluster), before);

    // Nor after a restart, whose lists show everything at once.
    daemon.kill();
    let _second = cluster.start_controllers(2);
    tokio::time::sleep(120 * S).await;
    assert_eq!(state_of_the_shop(&cluster), before);
    let forged = cluster.sandbox.objects("Pod");
    let forged = forged.iter().filter(|pod| pod["metadata"]["name"].as_str().unwrap().starts_with("forged-"));
    assert!(forged.clone().all(|pod| pod["metadata"]["deletionTimestamp"].is_null()));
    let by_tenant = |pod: &&Value| {
        let name = pod["metadata"]["name"].as_str().unwrap();
        ["forged-web-", "forged-bare-", "forged-old-"].iter().any(|beginning| name.starts_with(beginning))
    };
    assert_eq!(forged.filter(by_tenant).count(), 15);
}

#[tokio::test(start_paused = true)]
async fn an_owner_reference_with_the_wrong_kind_or_group_has_no_effect() {
    let cluster = cluster().await;
    let _daemon = cluster.start_controllers(1);
    let shop = shop(&cluster).await;
    let before = state_of_the_shop(&cluster);
    for (api_version, kind, owner, app) in shop.pod_owners() {
        let others = [
            ("apps/v1", "Deployment"),
            ("apps/v1", "StatefulSet"),
            ("apps/v1", "ReplicaSet"),
            ("example.com/v1", "ReplicaSet"),
            ("v1", "ReplicaSet"),
            ("v1", "ReplicationController"),
            ("apps/v1", "ReplicationController"),
        ];
        for (n, (other_version, other_kind)) in others.into_iter().enumerate() {
            if (other_version, other_kind) == (api_version, kind) {
                continue;
            }
            let owners = reference(other_version, other_kind, owner);
            forge_pod(&cluster, "shop", &format!("forged-{app}-{n}"), app, owners).await;
        }
    }
    let forged_replica_set = |name: &str, api_version: &str, kind: &str| {
        let mut replica_set = shop.replica_set_of_deployment.clone();
        replica_set["metadata"] = json!({"name": name, "labels": replica_set["metadata"]["labels"],
            "ownerReferences": reference(api_version, kind, &shop.deployment)});
        // Its pods would be named forged, too, and are irrelevant here.
        replica_set["spec"]["replicas"] = 0.into();
        replica_set["status"] = Value::Null;
        replica_set
    };
    create(&cluster, "ReplicaSet", "shop", forged_replica_set("forged-1", "apps/v1", "ReplicaSet")).await;
    create(&cluster, "ReplicaSet", "shop", forged_replica_set("forged-2", "example.com/v1", "Deployment"))
        .await;
    tokio::time::sleep(120 * S).await;
    assert_eq!(state_of_the_shop(&cluster), before);
    assert!(cluster.objects("Pod").iter().all(|pod| pod["metadata"]["deletionTimestamp"].is_null()));
}

#[tokio::test(start_paused = true)]
async fn the_running_pods_of_another_namespace_do_not_block_recreate() {
    let cluster = cluster().await;
    let _daemon = cluster.start_controllers(1);
    cluster.create(deployment("web").replicas(2).recreate()).await;
    cluster.rolled_out("web").await;
    let web = cluster.deployment("web");
    let replica_set = cluster.objects("ReplicaSet").remove(0);
    forge_pod(&cluster, "tenant", "forged", "web", reference("apps/v1", "ReplicaSet", &replica_set)).await;
    let forged = json!({"apiVersion": "apps/v1", "kind": "ReplicaSet",
        "metadata": {"name": "forged", "labels": {"app": "web"},
                     "ownerReferences": reference("apps/v1", "Deployment", &web)},
        "spec": {"replicas": 1, "selector": {"matchLabels": {"app": "web"}}, "template": template("web")}});
    create(&cluster, "ReplicaSet", "tenant", forged).await;
    // Of another kind, in the same namespace, and running as well.
    forge_pod(&cluster, "shop", "forged", "other", reference("example.com/v1", "ReplicaSet", &replica_set))
        .await;
    tokio::time::sleep(30 * S).await;
    cluster.set_image("web", "v2").await;
    cluster.rolled_out("web").await;
    assert_eq!(cluster.deployment("web")["status"]["replicas"], 2);
}

#[tokio::test(start_paused = true)]
async fn a_pod_whose_owner_reference_has_a_wrong_name_counts_and_its_deletion_is_handled_at_once() {
    let cluster = cluster().await;
    let _daemon = cluster.start_controllers(1);
    let shop = shop(&cluster).await;
    let pods_of = |owner: &Value| {
        let mut pods = cluster.objects("Pod");
        pods.retain(|pod| {
            pod["metadata"]["ownerReferences"][0]["uid"] == owner["metadata"]["uid"]
                && pod["metadata"]["deletionTimestamp"].is_null()
        });
        pods
    };
    for (_, kind, owner, app) in shop.pod_owners() {
        let size = owner["spec"]["replicas"].as_u64().unwrap() as usize;
        let renamed = pods_of(owner).remove(0);
        let name = renamed["metadata"]["name"].as_str().unwrap();
        let mut owners = renamed["metadata"]["ownerReferences"].clone();
        owners[0]["name"] = "misnamed".into();
        let target = format!("{}/{name}", path("Pod", "shop"));
        let mut whole = renamed.clone();
        whole["metadata"]["ownerReferences"] = owners;
        cluster.call(Method::PUT, &target, &whole).await;
        tokio::time::sleep(10 * S).await;
        assert_eq!(pods_of(owner).len(), size, "{kind} {app}: it counts");
        cluster.call(Method::DELETE, &target, &json!({"gracePeriodSeconds": 0})).await;
        tokio::time::sleep(S).await;
        assert_eq!(pods_of(owner).len(), size, "{kind} {app}: it is replaced at once");

        let other = pods_of(owner).remove(0);
        let name = other["metadata"]["name"].as_str().unwrap();
        let mut whole = other.clone();
        whole["metadata"]["ownerReferences"][0]["name"] = "misnamed".into();
        whole["metadata"]["labels"]["app"] = "foreign".into();
        cluster.call(Method::PUT, &format!("{}/{name}", path("Pod", "shop")), &whole).await;
        tokio::time::sleep(S).await;
        let released = named(&cluster, "Pod", "shop", name);
        assert!(released["metadata"]["ownerReferences"].is_null(), "{kind} {app}: it is released");
        assert_eq!(pods_of(owner).len(), size, "{kind} {app}");
    }
}
