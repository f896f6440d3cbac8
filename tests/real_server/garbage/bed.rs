//! A namespace in which a situation is played, and the objects that it needs.

use std::collections::BTreeMap;
use std::time::Duration;

use http::Method;
use kube::Client;
use serde_json::{Value, json};
use tokio::time::Instant;
use windlass_testkit::controllers::Side;
use windlass_testkit::user::send;

pub(super) const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// How long anything may take: kube-controller-manager looks for new kinds each 30 s.
const WAIT_TIMEOUT: Duration = Duration::from_secs(90);

/// How long what is to stay is watched.
pub(super) const A_WHILE: Duration = Duration::from_secs(5);

/// The test bed of one situation.
#[derive(Clone)]
pub(super) struct Bed {
    pub(super) side: Side,
    pub(super) client: Client,
    /// Whether the collector sees owners later than their dependents.
    pub(super) has_late_owners: bool,
    /// Its namespace. Another one that it needs has this name and something after a `-`.
    pub(super) namespace: String,
}

/// The path of a collection in the core group.
pub(super) fn core(namespace: &str, plural: &str) -> String {
    format!("/api/v1/namespaces/{namespace}/{plural}")
}

/// A reference to an object that an answer has shown.
pub(super) fn to(owner: &Value) -> Value {
    json!({"apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": owner["metadata"]["name"],
           "uid": owner["metadata"]["uid"]})
}

/// The same, and the owner waits for the dependent.
pub(super) fn blocking(owner: &Value) -> Value {
    let mut reference = to(owner);
    reference["blockOwnerDeletion"] = true.into();
    reference
}

/// A reference to an object that does not exist.
pub(super) fn to_nobody(api_version: &str, kind: &str, number: usize) -> Value {
    json!({"apiVersion": api_version, "kind": kind, "name": format!("nobody-{number}"),
           "uid": format!("22222222-2222-4222-8222-{number:012}")})
}

pub(super) fn pod(name: &str, owners: &[Value], finalizers: &[&str]) -> Value {
    json!({"metadata": {"name": name, "ownerReferences": owners, "finalizers": finalizers},
           "spec": {"containers": [{"name": "c", "image": "app"}]}})
}

/// An object without a specification, such as a ConfigMap.
pub(super) fn map(name: &str, owners: &[Value]) -> Value {
    json!({"metadata": {"name": name, "ownerReferences": owners}})
}

/// A ReplicationController.
pub(super) fn controller(name: &str, replicas: i32, finalizers: &[&str]) -> Value {
    json!({"metadata": {"name": name, "finalizers": finalizers},
           "spec": {"replicas": replicas, "selector": {"a": name}, "template": {"metadata": {"labels": {"a": name}},
                    "spec": {"containers": [{"name": "c", "image": "app"}]}}}})
}

/// The options of a deletion with this policy.
pub(super) fn policy(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": name})
}

impl Bed {
    /// The path of a collection of the core group in its namespace.
    pub(super) fn core(&self, plural: &str) -> String {
        core(&self.namespace, plural)
    }

    pub(super) async fn create(&self, path: &str, object: Value) -> Value {
        let end = Instant::now() + WAIT_TIMEOUT;
        loop {
            match send(&self.client, Method::POST, path, &object).await {
                Ok(created) => return created,
                // A kind is served a moment after its definition.
                Err(kube::Error::Api(status)) if status.code == 404 && Instant::now() < end => {}
                Err(error) => panic!("{path}: {error}"),
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    pub(super) async fn create_namespace(&self, name: &str) {
        self.create("/api/v1/namespaces", json!({"metadata": {"name": name}})).await;
    }

    pub(super) async fn delete(&self, path: &str, options: Value) {
        let deleted = send(&self.client, Method::DELETE, path, &options).await;
        deleted.unwrap_or_else(|error| panic!("{path}: {error}"));
    }

    pub(super) async fn patch(&self, path: &str, body: Value) {
        let patched = send(&self.client, Method::PATCH, path, &body).await;
        patched.unwrap_or_else(|error| panic!("{path}: {error}"));
    }

    pub(super) async fn get(&self, path: &str) -> Option<Value> {
        match send(&self.client, Method::GET, path, &Value::Null).await {
            Ok(found) => Some(found),
            Err(kube::Error::Api(status)) if status.code == 404 => None,
            Err(error) => panic!("{path}: {error}"),
        }
    }

    pub(super) async fn list(&self, collection: &str) -> Vec<Value> {
        self.get(collection).await.unwrap()["items"].as_array().unwrap().clone()
    }

    pub(super) async fn gone(&self, path: &str) {
        self.gone_within(WAIT_TIMEOUT, path).await;
    }

    pub(super) async fn gone_within(&self, patience: Duration, path: &str) {
        self.eventually_within(patience, path, "it is gone", Option::is_none).await;
    }

    /// Waits until this holds of the object at a path.
    pub(super) async fn eventually(&self, path: &str, what: &str, holds: impl Fn(&Option<Value>) -> bool) {
        self.eventually_within(WAIT_TIMEOUT, path, what, holds).await;
    }

    async fn eventually_within(
        &self,
        patience: Duration,
        path: &str,
        what: &str,
        holds: impl Fn(&Option<Value>) -> bool,
    ) {
        let end = Instant::now() + patience;
        loop {
            let found = self.get(path).await;
            if holds(&found) {
                return;
            }
            assert!(Instant::now() < end, "not within {patience:?}: {what}: {path}: {found:#?}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    pub(super) async fn stays(&self, paths: &[String]) {
        tokio::time::sleep(A_WHILE).await;
        for path in paths {
            assert!(self.get(path).await.is_some(), "{path} is gone");
        }
    }

    /// The names of the objects, each with those of its owners.
    pub(super) async fn owners(&self, collection: &str) -> BTreeMap<String, Vec<String>> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let of = |object: &Value| {
            let owners = object["metadata"]["ownerReferences"].as_array().cloned().unwrap_or_default();
            (text(&object["metadata"]["name"]), owners.iter().map(|owner| text(&owner["name"])).collect())
        };
        self.list(collection).await.iter().map(of).collect()
    }

    /// Upstream's own tests wait until their collector knows the dependents; without that it deletes some of them. Ours
    /// asks every resource before it lets an owner go.
    pub(super) async fn until_upstream_knows(&self) {
        if self.side == Side::Upstream {
            tokio::time::sleep(A_WHILE).await;
        }
    }

    /// The same for the instances of a new kind, which upstream looks for every 30 s. Windlass knows it at once, but an API
    /// server ends the first watches of a kind whose definition has just been established: what comes and goes until they are
    /// resumed has no witness, and its dependents stay.
    pub(super) async fn until_the_kind_is_known(&self) {
        let wait = if self.side == Side::Upstream { 35 } else { 2 };
        tokio::time::sleep(Duration::from_secs(wait)).await;
    }
}
