//! etcd, kube-apiserver and Windlass' test bed, and nothing else: what somebody who tests an operator starts. The server has
//! the admission plugin that refuses pods without a ServiceAccount, as by default.

mod times;

use std::time::Duration;

use http::Method;
use kube::Client;
use serde_json::{Value, json};
use tokio::sync::oneshot;
use tokio::time::Instant;
use windlass_testkit::apiserver::{ApiServer, DAEMON, TOKEN, on_a_real_server};
use windlass_testkit::manifests;
use windlass_testkit::process::{Process, WAIT_TIMEOUT, simulate_nodes, windlass};
use windlass_testkit::rights;
use windlass_testkit::user::send;

const DELETE: Value = Value::Null;

pub(crate) fn a_clean_control_plane_with_the_test_bed_feels_like_a_cluster() {
    on_a_real_server(async |folder| {
        let server = ApiServer::start_with_accounts(folder, &[]).await;
        let (client, log) = (server.client().await, server.file("windlass.log"));
        let began = Instant::now();
        let flags = [
            "--test-bed".to_owned(),
            format!("--kubeconfig={}", server.kubeconfig(TOKEN).display()),
            // Of a server that has signed its own certificate.
            format!("--root-ca-file={}", server.file("certificates/apiserver.crt").display()),
        ];
        let daemon = Process::start(&windlass(), &flags.each_ref().map(String::as_str), &log);
        let (stop, stopped) = oneshot::channel();
        let simulated = tokio::spawn(simulate_nodes(client.clone(), stopped));

        let certificate = server.file("certificates/apiserver.crt");
        let played = tokio::spawn(async move {
            play(client.clone(), began, certificate).await;
            let bed = Bed { client };
            rolling_updates(&bed).await;
            times::measure(&bed).await;
        });
        let played = played.await;
        let text = std::fs::read_to_string(&log).unwrap();
        played.unwrap_or_else(|error| panic!("{error}\n{text}"));
        stop.send("the end of the test").unwrap();
        simulated.await.unwrap().unwrap();
        daemon.terminate();
        assert!(!text.contains("ERROR"), "{text}");
    });
}

/// The rights that the chart grants these controllers, compared with those that an audit log shows in use.
pub(crate) fn the_chart_gives_the_controllers_of_the_cluster_exactly_the_rights_that_they_need() {
    on_a_real_server(async |folder| {
        let (_, objects) =
            manifests::rendered().into_iter().find(|(origin, _)| origin == "test-bed-kube-system").unwrap();
        let server = ApiServer::start_with_accounts(folder, &[DAEMON]).await;
        let client = server.client().await;
        let kinds = ["ServiceAccount", "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding"];
        let is_a_right = |object: &&Value| {
            kinds.iter().any(|kind| object["kind"] == *kind)
                && !object["metadata"]["name"].as_str().unwrap().ends_with("-test")
        };
        let given: Vec<Value> = objects.iter().filter(is_a_right).cloned().collect();
        rights::create(&client, &given).await;
        let needed = [
            json!({"verb": "create", "resource": "pods"}),
            json!({"verb": "create", "resource": "serviceaccounts"}),
        ];
        rights::wait_until_allowed(&client, DAEMON.name, &needed).await;
        let deployment = objects.iter().find(|object| object["kind"] == "Deployment").unwrap();
        let arguments = &deployment["spec"]["template"]["spec"]["containers"][0]["args"];
        let list = arguments.as_array().unwrap().iter().filter_map(Value::as_str);
        let list = list.clone().find(|flag| flag.starts_with("--controllers=")).unwrap();
        let config = format!("--kubeconfig={}", server.kubeconfig(DAEMON.token).display());
        let ca = format!("--root-ca-file={}", server.file("certificates/apiserver.crt").display());
        let log = server.file("windlass.log");
        let flags = [list, &*config, &*ca, "--secure-port=0"];
        let daemon = Process::start(&windlass(), &flags, &log);
        let (stop, stopped) = oneshot::channel();
        let simulated = tokio::spawn(simulate_nodes(client.clone(), stopped));
        let played =
            tokio::spawn(play(client, Instant::now(), server.file("certificates/apiserver.crt"))).await;
        let text = std::fs::read_to_string(&log).unwrap();
        played.unwrap_or_else(|error| panic!("{error}\n{text}"));
        stop.send("the end of the test").unwrap();
        simulated.await.unwrap().unwrap();
        daemon.terminate();
        let audit = server.audit();
        let is_refused =
            |event: &&Value| event["responseStatus"]["code"] == 403 && !is_about_an_account(event);
        let refused: Vec<&Value> = audit.iter().filter(is_refused).collect();
        assert!(refused.is_empty(), "{refused:#?}");
        let role = given.iter().filter(|object| object["metadata"]["name"] == "windlass-cluster");
        let granted = rights::granted(&role.cloned().collect::<Vec<_>>());
        // The API server asks for it within a write.
        let unseen = rights::right("escalate", "rbac.authorization.k8s.io", "clusterroles", "");
        let used = rights::used(&audit);
        let unused: Vec<&String> = granted.difference(&used).filter(|right| **right != unseen).collect();
        assert!(unused.is_empty() && granted.contains(&unseen), "granted and not used: {unused:?}");
    });
}

/// The pods of a new namespace may come before its account, and are then refused for a moment.
fn is_about_an_account(event: &Value) -> bool {
    event["responseStatus"]["message"]
        .as_str()
        .is_some_and(|text| text.contains("error looking up service account"))
}

#[allow(clippy::print_stdout)] // The figures are for whoever runs it.
async fn play(client: Client, began: Instant, certificate: std::path::PathBuf) {
    let bed = Bed { client };
    let first = bed.available("default", began).await;
    let mut figures = vec![("both programs started, and a first Deployment Available", first)];
    let aggregated = |role: &Value| role["rules"].as_array().is_some_and(|rules| rules.len() > 10);
    let view = "/apis/rbac.authorization.k8s.io/v1/clusterroles/view";
    let role = bed.eventually(view, "ClusterRole view has rules", aggregated).await;
    let fields = role["metadata"]["managedFields"].as_array().unwrap();
    let is_ours = |entry: &&Value| entry["manager"] == "clusterrole-aggregation-controller";
    assert_eq!(fields.iter().find(is_ours).unwrap()["operation"], "Apply");

    bed.create_namespace("one").await;
    bed.available("one", Instant::now()).await;
    let map = "/api/v1/namespaces/one/configmaps/kube-root-ca.crt";
    let pem = std::fs::read_to_string(certificate).unwrap();
    bed.eventually(map, "the CA is published", |map| map["data"]["ca.crt"] == pem.as_str()).await;
    bed.call(Method::PATCH, map, &json!({"data": {"ca.crt": "forged"}})).await;
    bed.eventually(map, "the CA is published again", |map| map["data"]["ca.crt"] == pem.as_str()).await;
    let account = "/api/v1/namespaces/one/serviceaccounts/default";
    bed.call(Method::DELETE, account, &DELETE).await;
    bed.eventually(account, "the account is created again", |account| account["metadata"].is_object()).await;
    figures.push(("a claim that is deleted", bed.deleted_claim().await));
    figures.push(("a volume that is deleted", bed.deleted_volume().await));
    for (what, took) in figures {
        #[allow(clippy::print_stdout)] // The figures are what a reader of the run wants.
        {
            println!("    {:>5} ms  {what}", took.as_millis());
        }
    }
}

/// The work of `rollingupdate-controller`: back and forth under one name, and on to another.
#[allow(clippy::print_stdout)] // The figures are for whoever runs it.
async fn rolling_updates(bed: &Bed) {
    let collection = "/api/v1/namespaces/one/replicationcontrollers";
    let controller = |name: &str, version: &str, replicas: i32| {
        let labels = json!({"app": "rc", "version": version});
        json!({"metadata": {"name": name}, "spec": {"replicas": replicas, "selector": labels, "template": {
            "metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": version}]}}}})
    };
    bed.call(Method::POST, collection, &controller("old", "v1", 3)).await;
    let old = format!("{collection}/old");
    let all = |one: &Value| one["status"]["availableReplicas"] == 3;
    let uid = bed.eventually(&old, "the pods are available", all).await["metadata"]["uid"].clone();
    for (version, cleanup, survivor) in [("v2", "KeepName", "old"), ("v3", "Delete", "new")] {
        let mut new = controller("new", version, 0);
        let source = format!("old:{}", uid.as_str().unwrap());
        new["metadata"]["annotations"] = json!({"kubectl.kubernetes.io/update-source-id": source,
                                                "kubectl.kubernetes.io/desired-replicas": "3"});
        bed.call(Method::POST, collection, &new).await;
        let began = Instant::now();
        let annotations = json!({"windlass.dev/rolling-update-to": "new",
                                 "windlass.dev/rolling-update-cleanup": cleanup});
        bed.call(Method::PATCH, &old, &json!({"metadata": {"annotations": annotations}})).await;
        let is_over = |one: &Value| {
            let conditions = one["status"]["conditions"].as_array().into_iter().flatten();
            let mut reasons =
                conditions.filter(|one| one["type"] == "RollingUpdate").map(|one| &one["reason"]);
            reasons.any(|reason| reason == "Complete")
                && one["metadata"]["annotations"].is_null()
                && one["status"]["availableReplicas"] == 3
                && one["spec"]["selector"]["version"] == version
        };
        let path = format!("{collection}/{survivor}");
        let end = bed.eventually(&path, "the rolling update is over", is_over).await;
        println!("    {:>5} ms  a rolling update of 3, {cleanup}", began.elapsed().as_millis());
        assert_eq!(end["metadata"]["uid"] == uid, survivor == "old", "{end}");
        assert_eq!(end["spec"]["template"]["spec"]["containers"][0]["image"], version);
        let left = bed.call(Method::GET, collection, &Value::Null).await;
        assert_eq!(left["items"].as_array().map(Vec::len), Some(1), "{left}");
    }
}

struct Bed {
    client: Client,
}

impl Bed {
    async fn create_namespace(&self, name: &str) {
        self.call(Method::POST, "/api/v1/namespaces", &json!({"metadata": {"name": name}})).await;
    }

    async fn call(&self, method: Method, path: &str, body: &Value) -> Value {
        send(&self.client, method, path, body).await.unwrap_or_else(|error| panic!("{path}: {error}"))
    }

    /// Waits until an object is as it should be. It may not exist yet.
    async fn eventually(&self, path: &str, what: &str, holds: impl Fn(&Value) -> bool) -> Value {
        let end = Instant::now() + WAIT_TIMEOUT;
        loop {
            let object = send(&self.client, Method::GET, path, &Value::Null).await.unwrap_or_default();
            if holds(&object) {
                return object;
            }
            assert!(Instant::now() < end, "{what}: {object}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Creates a Deployment, and waits until it is Available.
    async fn available(&self, namespace: &str, began: Instant) -> Duration {
        let collection = format!("/apis/apps/v1/namespaces/{namespace}/deployments");
        let body = json!({"metadata": {"name": "web"}, "spec": {
            "replicas": 3, "selector": {"matchLabels": {"app": "web"}},
            "template": {"metadata": {"labels": {"app": "web"}},
                         "spec": {"containers": [{"name": "c", "image": "app:v1"}]}}}});
        self.call(Method::POST, &collection, &body).await;
        let is_available = |deployment: &Value| deployment["status"]["availableReplicas"] == 3;
        self.eventually(&format!("{collection}/web"), "the Deployment is Available", is_available).await;
        began.elapsed()
    }

    async fn deleted_claim(&self) -> Duration {
        let collection = "/api/v1/namespaces/one/persistentvolumeclaims";
        let claim = json!({"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"],
                           "resources": {"requests": {"storage": "1Gi"}}}});
        self.created_and_deleted(collection, &claim).await
    }

    async fn deleted_volume(&self) -> Duration {
        let volume = json!({"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"],
                            "capacity": {"storage": "1Gi"}, "hostPath": {"path": "/data"}}});
        self.created_and_deleted("/api/v1/persistentvolumes", &volume).await
    }

    async fn created_and_deleted(&self, collection: &str, object: &Value) -> Duration {
        let created = self.call(Method::POST, collection, object).await;
        assert!(created["metadata"]["finalizers"][0].is_string(), "it is protected: {created}");
        let path = format!("{collection}/data");
        let began = Instant::now();
        self.call(Method::DELETE, &path, &DELETE).await;
        self.eventually(&path, "it is gone", Value::is_null).await;
        began.elapsed()
    }
}
