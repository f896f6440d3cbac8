//! What is done once the faults have ended: repairs, and what has to come right by itself.

use std::collections::BTreeMap;
use std::time::Duration;

use http::Method;
use serde_json::{Value, json};

use super::hostile::ROLLBACK_TO;
use super::{Actors, GUARD, PODS, at_once_options, is_running, strategy};
use crate::invariants::{Breach, is_available, is_deleting, is_live, number, text};
use crate::scenario::{Act, NAMES};
use crate::server::NAMESPACE;

/// The metadata without the finalizer that keeps an object, if it has that.
fn unguarded(object: &Value) -> Option<Value> {
    let finalizers = object["metadata"]["finalizers"].as_array()?;
    let others: Vec<&Value> = finalizers.iter().filter(|finalizer| **finalizer != GUARD).collect();
    (others.len() < finalizers.len()).then(|| json!({"finalizers": others}))
}

impl Actors {
    /// Pauses every Deployment, and gives it another size and template, and another strategy: Recreate, or a
    /// surge that no 32 bits can hold. Not while two sets want pods: in proportion, they would be given all
    /// of it. One pod of each fails.
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

    /// Gives a pod of each set to somebody else, and takes another away from it while that ends.
    pub async fn seize_pods(&self) {
        for pod in self.one_of_each() {
            self.seize(&pod).await;
        }
        for pod in self.one_of_each() {
            self.abandon(&pod).await;
        }
    }

    /// Deletes a pod of each set while no watch of pods shows anything, and then breaks the watches; with
    /// `compact` the server has forgotten the deletions when the daemons ask again. With `younger` the pods
    /// are ones that no daemon has seen yet: every Deployment has been made larger by one.
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

    /// Pauses every Deployment in the middle of a rollout that cannot end, and then makes it larger.
    pub async fn stop_and_scale(&self) {
        let picture = self.server.picture();
        let deployments = || picture.get("deployments").into_iter().flatten();
        self.images("broken").await;
        // As far as the old pods may make room.
        tokio::time::sleep(Duration::from_secs(10)).await;
        for (name, deployment) in deployments() {
            let replicas = number(deployment, "/spec/replicas") * 2 + 1;
            self.change(name, json!({"spec": {"paused": true, "replicas": replicas}})).await;
        }
    }

    /// Has every Deployment want six pods more while a quota refuses them, until the caller lifts that.
    pub async fn want_too_much(&self) {
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

    /// Has every Deployment stop where it is, or go on.
    pub async fn pause(&self, paused: bool) {
        self.change_all(json!({"paused": paused})).await;
    }

    /// Gives every Deployment so many seconds between one step and the next.
    pub async fn deadline(&self, seconds: u64) {
        self.change_all(json!({"progressDeadlineSeconds": seconds})).await;
    }

    /// Gives the pods of every Deployment so many seconds before they are available.
    pub async fn min_ready(&self, seconds: u64) {
        self.change_all(json!({"minReadySeconds": seconds})).await;
    }

    /// Creates a pod that belongs to nobody, or ends it.
    pub async fn lone_pod(&self, there: bool) {
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

    /// Makes the world a good one: what users and monkeys have broken, they repair. What is not broken is not
    /// touched: it has to come to rest by itself.
    pub async fn repair(&self) {
        self.server.set_quota(false);
        for (name, deployment) in self.server.picture().get("deployments").into_iter().flatten() {
            // Nobody looks at that before the pause ends, and it may lead back to what is broken.
            if !text(deployment, &format!("/metadata/annotations/{ROLLBACK_TO}")).is_empty() {
                self.change(name, json!({"metadata": {"annotations": {ROLLBACK_TO: null}}})).await;
            }
        }
        // A daemon may have been faster, and have rolled back to a template that is broken.
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

    /// Makes the namespace again, and a Deployment in it, when what was in it has gone.
    async fn restore_namespace(&self) {
        for second in 0.. {
            match self.server.sandbox.object("Namespace", "", NAMESPACE) {
                Some(namespace) if is_deleting(&namespace) && second < 240 => {
                    tokio::time::sleep(Duration::from_secs(1)).await;
                }
                Some(namespace) if is_deleting(&namespace) => {
                    self.server.fail(Breach::new("L1", "the namespace does not come to its end"));
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

    /// Makes running pods ready that are not: what the monkey broke after their start stays so otherwise.
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
