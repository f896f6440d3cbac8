//! The rights of a daemon, by `deploy/rbac.yaml`, and their use, by the API server's audit log.

use std::collections::BTreeSet;
use std::time::Duration;

use http::{Method, Request};
use kube::Client;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::apiserver::{ApiServer, DAEMON};
use super::manifests;
use super::process::WAIT_TIMEOUT;

/// A right in one line: `patch deployments.apps/status`.
pub type Rights = BTreeSet<String>;

/// One such line.
pub fn right(verb: &str, group: &str, resource: &str, subresource: &str) -> String {
    let dot = if group.is_empty() { "" } else { "." };
    let slash = if subresource.is_empty() { "" } else { "/" };
    format!("{verb} {resource}{dot}{group}{slash}{subresource}")
}

/// The objects of the file that ships.
pub fn manifest() -> Vec<Value> {
    manifests::file("deploy/rbac.yaml")
}

fn texts(value: &Value) -> impl Iterator<Item = &str> {
    value.as_array().unwrap().iter().map(|text| text.as_str().unwrap())
}

/// All that the roles of these objects grant on resources.
pub fn granted(objects: &[Value]) -> Rights {
    let (mut rights, mut seen) = (Rights::new(), BTreeSet::new());
    let rules = objects.iter().filter_map(|object| object["rules"].as_array()).flatten();
    for rule in rules.filter(|rule| rule["nonResourceURLs"].is_null()) {
        for group in texts(&rule["apiGroups"]) {
            for resource in texts(&rule["resources"]) {
                let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
                for verb in texts(&rule["verbs"]) {
                    let right = right(verb, group, resource, subresource);
                    // Two Leases are read, each by its name.
                    let is_new = seen.insert((right.clone(), rule["resourceNames"].to_string()));
                    assert!(is_new, "granted twice: {verb} {resource}");
                    rights.insert(right);
                }
            }
        }
    }
    rights
}

/// The permissions that these audit events needed.
pub fn used<'a>(events: impl IntoIterator<Item = &'a Value>) -> Rights {
    let text = |value: &'a Value| value.as_str().unwrap_or_default();
    let right = |event: &'a Value| {
        let (verb, object) = (text(&event["verb"]), &event["objectRef"]);
        if object.is_null() {
            return format!("{verb} {}", text(&event["requestURI"]));
        }
        right(verb, text(&object["apiGroup"]), text(&object["resource"]), text(&object["subresource"]))
    };
    events.into_iter().map(right).collect()
}

/// Creates the objects; waits for the namespace that the server makes for itself.
pub async fn create(client: &Client, objects: &[Value]) {
    for object in objects {
        let path = manifests::collection(object);
        let end = Instant::now() + Duration::from_secs(30);
        loop {
            let request = Request::post(format!("{path}?fieldValidation=Strict"))
                .header("content-type", "application/json")
                .body(object.to_string().into_bytes());
            match client.request::<Value>(request.unwrap()).await {
                Ok(_) => break,
                Err(kube::Error::Api(status)) if status.code == 404 && Instant::now() < end => {
                    tokio::time::sleep(Duration::from_millis(200)).await;
                }
                Err(error) => panic!("{path}: {error}"),
            }
        }
    }
}

/// Waits until the server's authorizer, which learns of roles and bindings by watches, lets a user do these
/// things; each is the `resourceAttributes` of a SubjectAccessReview.
pub async fn wait_until_allowed(client: &Client, user: &str, attributes: &[Value]) {
    let end = Instant::now() + Duration::from_secs(30);
    for wanted in attributes {
        let review = json!({
            "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
            "spec": {"user": user, "resourceAttributes": wanted},
        });
        loop {
            let request = Request::post("/apis/authorization.k8s.io/v1/subjectaccessreviews")
                .header("content-type", "application/json")
                .body(review.to_string().into_bytes());
            let answer: Value = client.request(request.unwrap()).await.unwrap();
            if answer["status"]["allowed"] == true {
                break;
            }
            assert!(Instant::now() < end, "{user} may not {wanted}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}

/// Something that each binding of `deploy/rbac.yaml` allows.
pub fn one_of_each_binding() -> [Value; 4] {
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

/// A pod with this owner, or without one.
pub fn pod(name: &str, owner: Value) -> Value {
    let owners: Vec<Value> = Some(owner).filter(|owner| !owner.is_null()).into_iter().collect();
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "labels": {"app": "a"}, "ownerReferences": owners},
        "spec": {"containers": [{"name": "c", "image": "app:v1"}]},
    })
}

/// Does this as the daemon's ServiceAccount would: the code of the answer, and its message.
pub async fn try_as_the_daemon(
    server: &ApiServer,
    method: Method,
    path: &str,
    body: &Value,
) -> (u16, String) {
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

/// The content type of a merge patch.
pub const MERGE: &str = "application/merge-patch+json";
/// The path of the pods in the namespace `default`.
pub const PODS: &str = "/api/v1/namespaces/default/pods";
/// The path of the ReplicaSets in the namespace `default`.
pub const REPLICA_SETS: &str = "/apis/apps/v1/namespaces/default/replicasets";

/// Waits until the server, which learns of policies by a watch, holds the daemon to it.
pub async fn wait_for_the_admission_policy(server: &ApiServer) {
    let end = tokio::time::Instant::now() + WAIT_TIMEOUT;
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
