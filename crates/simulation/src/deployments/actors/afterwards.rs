//! Acts after the faults have ended: repairs, and changes that the controllers have to handle without faults.

use std::collections::BTreeMap;
use std::time::Duration;

use http::Method;
use serde_json::{Value, json};

use super::hostile::ROLLBACK_TO;
use super::{Actors, GUARD, PODS, at_once_options, is_running, strategy};
use crate::deployments::scenario::{Act, NAMES};
use crate::engine::breach::Breach;
use crate::engine::objects::{NAMESPACE, is_available, is_deleting, is_live, number, text};

/// The metadata without the finalizer of this simulation, if the object has it.
fn unguarded(object: &Value) -> Option<Value> {
    let finalizers = object["metadata"]["finalizers"].as_array()?;
    let others: Vec<&Value> = finalizers.iter().filter(|finalizer| **finalizer != GUARD).collect();
    (others.len() < finalizers.len()).then(|| json!({"finalizers": others}))
}

impl Actors {
    /// Pauses every Deployment, and changes its size, template and strategy: Recreate, or a surge beyond 32 bits.
    /// Skips those where two ReplicaSets want pods: by proportional scaling they would get all of it. One pod of each
    /// fails.
    pub async fn pause_and_change(&self, recreate: bool) {
        for (name, deployment) in self.server.picture().get("deployments").into_iter().flatten() {
            let replicas = number(deployment, "/spec/replicas") % 6 + 1;
            self.change(name, json!({"spec": {"paused": true, "replicas": replicas}})).await;
            match recreate {
                true => self.change(name, json!({"spec": {"strategy": strategy(0, 0, true)}})).await,
                false => self.percent(name, "99999999999", "25").await,
            }
            self.image(name, "paused").await;
        }
        for pod in self.one_of_each() {
            self.pod_status(&pod, json!({"phase": "Failed"})).await;
        }
    }

    /// Gives a pod of each ReplicaSet to another owner, and removes the owner of another one while it terminates.
    pub async fn change_owners(&self) {
        for pod in self.one_of_each() {
            self.change_owner(&pod).await;
        }
        for pod in self.one_of_each() {
            self.orphan_terminating(&pod).await;
        }
    }

    /// Deletes a pod of each ReplicaSet while no watch of pods shows anything, and then breaks the watches; with
    /// `compact` the server has compacted the deletions when the daemons watch again. With `younger` the pods are
    /// ones that no daemon has seen yet: every Deployment has been scaled up by one.
    pub async fn hide_deletions(&self, compact: bool, younger: bool) {
        for daemon in 0..self.stops.len() {
            self.server.lag(daemon, "pods", Duration::from_secs(2));
        }
        let before = self.server.picture().remove("pods").unwrap_or_default();
        if younger {
            for (name, deployment) in self.server.picture().get("deployments").into_iter().flatten() {
                let replicas = number(deployment, "/spec/replicas") + 1;
                self.change(name, json!({"spec": {"replicas": replicas}})).await;
            }
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
        let pods =
            if younger { self.server.picture().remove("pods").unwrap_or_default() } else { BTreeMap::new() };
        let hidden = pods.into_iter().filter(|(name, _)| !before.contains_key(name)).map(|(_, pod)| pod);
        let hidden = if younger { hidden.collect() } else { self.one_of_each() };
        for pod in hidden {
            self.delete_pod(&pod, at_once_options()).await;
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
        if compact {
            self.server.sandbox.compact();
        }
        self.server.sandbox.break_watches();
    }

    /// Pauses every Deployment in the middle of a rollout that cannot end, and then scales it up.
    pub async fn pause_and_scale(&self) {
        let picture = self.server.picture();
        let deployments = || picture.get("deployments").into_iter().flatten();
        self.images("broken").await;
        // Until the rollout has deleted as many old pods as it may.
        tokio::time::sleep(Duration::from_secs(10)).await;
        for (name, deployment) in deployments() {
            let replicas = number(deployment, "/spec/replicas") * 2 + 1;
            self.change(name, json!({"spec": {"paused": true, "replicas": replicas}})).await;
        }
    }

    /// Scales every Deployment up by six pods while a quota refuses them, until the caller lifts the quota.
    pub async fn exceed_quota(&self) {
        self.server.set_quota(true);
        for (name, deployment) in self.server.picture().get("deployments").into_iter().flatten() {
            let replicas = number(deployment, "/spec/replicas") + 6;
            self.change(name, json!({"spec": {"replicas": replicas}})).await;
        }
    }

    /// Changes the specification of every Deployment.
    async fn change_all(&self, spec: Value) {
        for name in self.server.picture().get("deployments").into_iter().flat_map(|all| all.keys()) {
            self.change(name, json!({"spec": spec})).await;
        }
    }

    /// Pauses or resumes every Deployment.
    pub async fn pause(&self, paused: bool) {
        self.change_all(json!({"paused": paused})).await;
    }

    /// Sets `progressDeadlineSeconds` of every Deployment.
    pub async fn deadline(&self, seconds: u64) {
        self.change_all(json!({"progressDeadlineSeconds": seconds})).await;
    }

    /// Sets `minReadySeconds` of every Deployment.
    pub async fn min_ready(&self, seconds: u64) {
        self.change_all(json!({"minReadySeconds": seconds})).await;
    }

    /// Creates a pod without an owner, or deletes it.
    pub async fn unowned_pod(&self, there: bool) {
        let metadata = json!({"name": "spare", "labels": {"app": "spare"}});
        let spec = json!({"containers": [{"name": "app", "image": "app:0"}]});
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec});
        match there {
            true => Self::send(&self.user, Method::POST, PODS, "application/json", &pod).await,
            false => self.delete_pod(&pod, at_once_options()).await,
        }
    }

    /// Gives every Deployment another image.
    pub async fn images(&self, tag: &str) {
        for name in self.server.picture().get("deployments").into_iter().flat_map(|all| all.keys()) {
            self.image(name, tag).await;
        }
    }

    /// Repairs what users and chaos monkeys have broken. What is not broken stays untouched: it has to converge by
    /// itself.
    pub async fn repair(&self) {
        self.server.set_quota(false);
        for (name, deployment) in self.server.picture().get("deployments").into_iter().flatten() {
            // The controller ignores the request until the pause ends, and it may lead back to a broken template.
            if !text(deployment, &format!("/metadata/annotations/{ROLLBACK_TO}")).is_empty() {
                self.change(name, json!({"metadata": {"annotations": {ROLLBACK_TO: null}}})).await;
            }
        }
        // A daemon may have been faster, and have rolled back to a broken template.
        let picture = self.server.picture();
        for (name, deployment) in picture.get("deployments").into_iter().flatten() {
            if deployment["spec"]["paused"] == true {
                self.change(name, json!({"spec": {"paused": false}})).await;
            }
            if text(deployment, "/spec/template/spec/containers/0/image") == "app:broken" {
                self.image(name, "last").await;
            }
        }
        for replica_set in picture.get("replicasets").into_iter().flat_map(|all| all.values()) {
            if let Some(others) = unguarded(replica_set) {
                self.edit_replica_set(replica_set, others).await;
            }
        }
        for pod in picture.get("pods").into_iter().flat_map(|all| all.values()) {
            if let Some(others) = unguarded(pod) {
                self.edit_pod(pod, others).await;
            }
        }
        self.restore_namespace().await;
        self.heal().await;
    }

    /// Creates the namespace again, and a Deployment in it, once its earlier objects are deleted.
    async fn restore_namespace(&self) {
        for second in 0.. {
            match self.server.sandbox.object("Namespace", "", NAMESPACE) {
                Some(namespace) if is_deleting(&namespace) && second < 240 => {
                    tokio::time::sleep(Duration::from_secs(1)).await;
                }
                Some(namespace) if is_deleting(&namespace) => {
                    self.server.fail(Breach::new("L1", "the namespace is never deleted completely"));
                    return;
                }
                Some(_) => return,
                None => break,
            }
        }
        self.make_namespace().await;
        let create = Act::Create { name: NAMES[0], replicas: 3, surge: 1, unavailable: 1, recreate: false };
        self.act(&create).await;
    }

    /// Makes running pods ready that are not: pods that the chaos monkey made unready stay so otherwise.
    pub async fn heal(&self) {
        let picture = self.server.picture();
        for pod in picture.get("pods").into_iter().flat_map(|all| all.values()) {
            let ready = is_available(pod, 0, self.server.clock.now());
            if is_live(pod) && is_running(pod) && !ready {
                self.set_ready(pod, true).await;
            }
        }
    }
}
