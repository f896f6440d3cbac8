//! Carries out the acts of the scenario with requests, as users, nodes and chaos monkeys do. Starts and kills the
//! daemon.

use std::sync::Arc;
use std::time::Duration;

use http::Method;
use serde_json::{Value, json};
use tokio_util::task::AbortOnDropHandle;

use super::identity::{
    NAME, check_identity, is_parallel, is_selected, ordinal, pod_name, range, stateful_set,
};
use super::judge::{Cluster, Judge};
use super::scenario::{Act, Form, Scenario};
use crate::engine::daemons::{Daemons, controllers, unlimited};
use crate::engine::game;
use crate::engine::objects::{
    self, NAMESPACE, is_deleting, is_live, name, number, owner, references, text, uid,
};
use crate::engine::user::{JSON, MERGE, STRATEGIC, User};
use windlass::config::Enabled;

const STATEFUL_SETS: &str = "/apis/apps/v1/namespaces/shop/statefulsets";
const REVISIONS: &str = "/apis/apps/v1/namespaces/shop/controllerrevisions";
const PODS: &str = "/api/v1/namespaces/shop/pods";
const CLAIMS: &str = "/api/v1/namespaces/shop/persistentvolumeclaims";
const QUOTAS: &str = "/api/v1/namespaces/shop/resourcequotas";

/// The finalizer of a backup.
const HOLD: &str = "example.com/backup";

/// The owner of what others own.
const OTHERS: &str = "others";

/// Users, nodes, chaos monkeys, and the supervisor of the daemon.
pub struct Actors {
    cluster: Arc<Cluster>,
    user: User,
    form: Form,
    /// The supervisor of the daemon.
    pub daemons: Daemons<Judge>,
    /// Has claims stay while pods use them. It belongs to the cluster and has no faults.
    _protection: AbortOnDropHandle<anyhow::Result<()>>,
}

impl game::Actors<Act> for Actors {
    async fn begin(&mut self) {
        let class = json!({"metadata": {"name": "standard"}, "provisioner": "example.com/disks"});
        self.user.send(Method::POST, "/apis/storage.k8s.io/v1/storageclasses", JSON, &class).await;
        let namespace = json!({"metadata": {"name": NAMESPACE}});
        self.user.send(Method::POST, "/api/v1/namespaces", JSON, &namespace).await;
        let others = json!({"metadata": {"name": OTHERS}});
        self.user.send(Method::POST, "/api/v1/namespaces/shop/configmaps", JSON, &others).await;
        self.daemons.start();
        tokio::time::sleep(Duration::from_millis(500)).await;
        self.create(0).await;
    }

    async fn act(&mut self, act: &Act) {
        self.cluster.say(&format!("{act:?}"));
        match act {
            Act::Scale(replicas) => self.edit(json!({"replicas": replicas})).await,
            Act::DownAndUp(by, after) => {
                let Some(found) = stateful_set(&self.cluster.sandbox) else { return };
                let replicas = number(&found, "/spec/replicas");
                self.edit(json!({"replicas": (replicas - i64::from(*by)).max(0)})).await;
                self.daemons.wait(Duration::from_millis((*after).into())).await;
                self.edit(json!({"replicas": replicas})).await;
            }
            Act::Start(start) => self.edit(json!({"ordinals": {"start": start}})).await,
            Act::Image(tag) => self.set_image(&tag.to_string()).await,
            Act::BrokenImage => self.set_image("broken").await,
            Act::NowhereToRun(nowhere) => {
                let selector = if *nowhere { json!({"moon": "yes"}) } else { Value::Null };
                self.edit(json!({"template": {"spec": {"nodeSelector": selector}}})).await;
            }
            Act::Rolling(partition, percent) => {
                let most = if *percent == 0 { Value::Null } else { format!("{percent}%").into() };
                self.roll(json!({"partition": partition, "maxUnavailable": most})).await;
            }
            Act::Wave(partition, most) => {
                self.roll(json!({"partition": partition, "maxUnavailable": most})).await;
            }
            Act::Bare => self.roll(Value::Null).await,
            Act::OnDelete => {
                self.edit(json!({"updateStrategy": {"type": "OnDelete", "rollingUpdate": null}})).await;
            }
            Act::MinReady(seconds) => self.edit(json!({"minReadySeconds": seconds})).await,
            Act::HistoryLimit(limit) => self.edit(json!({"revisionHistoryLimit": limit})).await,
            Act::Retention(deleted, scaled) => {
                let word = |deletes: &bool| if *deletes { "Delete" } else { "Retain" };
                let policy = json!({"whenDeleted": word(deleted), "whenScaled": word(scaled)});
                self.edit(json!({"persistentVolumeClaimRetentionPolicy": policy})).await;
            }
            Act::Undo => {
                if let Some(oldest) = self.revisions().first() {
                    let data = oldest["data"].clone();
                    self.user.send(Method::PATCH, &path(STATEFUL_SETS, NAME), STRATEGIC, &data).await;
                }
            }
            Act::Condition => {
                let status = json!({"conditions": [{"type": "example.com/Backup", "status": "True"}]});
                self.set_status(STATEFUL_SETS, NAME, status).await;
            }
            Act::Recreate { policy, tag, form } => {
                self.delete(STATEFUL_SETS, NAME, json!({"propagationPolicy": policy})).await;
                for _ in 0..100 {
                    if stateful_set(&self.cluster.sandbox).is_none() {
                        break;
                    }
                    self.daemons.wait(Duration::from_millis(300)).await;
                }
                self.form = *form;
                self.create(*tag).await;
            }
            Act::Fail(nth) => {
                let Some(pod) = self.pod(*nth) else { return };
                for _ in 0..3 {
                    let status = json!({"phase": "Failed", "conditions": self.ready(false)});
                    self.set_status(PODS, name(&pod), status).await;
                    self.daemons.wait(Duration::from_millis(300)).await;
                }
            }
            Act::Succeed(nth) => {
                self.pod_status(*nth, json!({"phase": "Succeeded", "conditions": self.ready(false)})).await;
            }
            Act::DeletePod(nth) => self.delete_pod(*nth, json!({})).await,
            Act::ForceDelete(nth) => self.delete_pod(*nth, json!({"gracePeriodSeconds": 0})).await,
            Act::Unready(nth) => self.pod_status(*nth, json!({"conditions": self.ready(false)})).await,
            Act::Orphan(nth) => self.edit_pod(*nth, json!({"ownerReferences": null})).await,
            Act::Relabel(nth) => self.edit_pod(*nth, json!({"labels": {"app": "stray"}})).await,
            Act::Blank(nth) => {
                let labels =
                    json!({"statefulset.kubernetes.io/pod-name": null, "apps.kubernetes.io/pod-index": null});
                self.edit_pod(*nth, json!({"labels": labels})).await;
            }
            Act::Squat(ordinal) => {
                let squatter = json!({"metadata": {"name": pod_name((*ordinal).into()), "labels": {"app": NAME},
                    "ownerReferences": [self.others(true)]}, "spec": {"containers": [{"name": "c", "image": "other"}]}});
                self.user.send(Method::POST, PODS, JSON, &squatter).await;
            }
            Act::Stray(name) => {
                let stray = json!({"metadata": {"name": name, "labels": {"app": NAME}},
                    "spec": {"containers": [{"name": "c", "image": "other"}]}});
                self.user.send(Method::POST, PODS, JSON, &stray).await;
            }
            Act::DeleteClaim(nth) => {
                if let Some(claim) = self.nth("PersistentVolumeClaim", *nth) {
                    self.delete(CLAIMS, name(&claim), json!({})).await;
                }
            }
            Act::ForeignController(nth, is_added) => self.edit_owners(*nth, true, *is_added).await,
            Act::ForeignOwner(nth) => self.edit_owners(*nth, false, true).await,
            Act::DeleteRevision(nth) => {
                if let Some(revision) = self.nth("ControllerRevision", *nth) {
                    self.delete(REVISIONS, name(&revision), json!({})).await;
                }
            }
            Act::Duplicate => self.duplicate(false).await,
            Act::Renumber(nth) => {
                let highest = self.revisions().last().map_or(0, |last| number(last, "/revision"));
                if let Some(revision) = self.nth("ControllerRevision", *nth) {
                    let body = json!({"revision": highest + 1});
                    self.user.send(Method::PATCH, &path(REVISIONS, name(&revision)), MERGE, &body).await;
                }
            }
            Act::Restore => self.duplicate(true).await,
            Act::Dead(nth, dead) => {
                if let Some(node) = self.nth("Node", *nth) {
                    self.set_dead(name(&node), *dead).await;
                }
            }
            Act::Quota(resource) => {
                let kind = if resource == "pods" { "Pod" } else { "PersistentVolumeClaim" };
                let most = self.cluster.sandbox.objects(kind).len();
                self.set_quota(Some((&**resource, most))).await;
            }
            Act::NoQuota => self.set_quota(None).await,
            Act::BreakWatches => self.cluster.break_watches(false),
            Act::Compact => self.cluster.break_watches(true),
            Act::Crash => self.daemons.crash().await,
            Act::Second(seconds) => self.daemons.second(Duration::from_secs((*seconds).into())),
        }
    }

    async fn wait(&mut self, time: Duration) {
        self.daemons.wait(time).await;
    }

    fn end(&mut self) {
        self.daemons.end();
    }
}

impl Actors {
    /// Actors that have not acted yet.
    pub fn new(cluster: Arc<Cluster>, scenario: &Scenario) -> Self {
        let user = User(cluster.client("user"));
        let only = |name| unlimited(Enabled::none().with(name));
        let protection =
            controllers(&cluster, "protection", only("persistentvolumeclaim-protection-controller"), 0);
        let daemons =
            Daemons::new(cluster.clone(), only("statefulset-controller"), scenario.seed, |seed, life| {
                seed.wrapping_add(life.into())
            });
        Actors {
            cluster,
            user,
            form: scenario.form,
            daemons,
            _protection: AbortOnDropHandle::new(protection),
        }
    }

    async fn edit(&self, spec: Value) {
        self.user.send(Method::PATCH, &path(STATEFUL_SETS, NAME), MERGE, &json!({"spec": spec})).await;
    }

    async fn roll(&self, rolling: Value) {
        self.edit(json!({"updateStrategy": {"type": "RollingUpdate", "rollingUpdate": rolling}})).await;
    }

    async fn set_image(&self, tag: &str) {
        self.edit(json!({"template": {"spec": {"containers": [container(tag)]}}})).await;
    }

    async fn create(&self, tag: u32) {
        let Form { parallel, claims } = self.form;
        let template = |name: &&str| {
            json!({"metadata": {"name": name, "labels": {"tier": "disk"}}, "spec": {"accessModes": ["ReadWriteOnce"],
                "storageClassName": "standard", "resources": {"requests": {"storage": "1Gi"}}}})
        };
        let templates: Vec<Value> = ["data", "wal"][..claims.min(2).into()].iter().map(template).collect();
        let created = json!({
            "apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": NAME},
            "spec": {"replicas": 3, "serviceName": "net", "selector": {"matchLabels": {"app": NAME}},
                "podManagementPolicy": if parallel { "Parallel" } else { "OrderedReady" },
                "volumeClaimTemplates": templates,
                "template": {"metadata": {"labels": {"app": NAME}},
                    "spec": {"terminationGracePeriodSeconds": 5, "containers": [container(&tag.to_string())]}}}
        });
        self.user.send(Method::POST, STATEFUL_SETS, JSON, &created).await;
    }

    fn nth(&self, kind: &str, nth: u32) -> Option<Value> {
        objects::nth(self.cluster.sandbox.objects(kind), nth)
    }

    /// A live pod of a StatefulSet.
    fn pod(&self, nth: u32) -> Option<Value> {
        let mut pods = self.cluster.sandbox.objects("Pod");
        pods.retain(|pod| is_live(pod) && text(pod, "/metadata/ownerReferences/0/kind") == "StatefulSet");
        objects::nth(pods, nth)
    }

    async fn set_status(&self, of: &str, name: &str, status: Value) {
        let path = format!("{of}/{name}/status");
        self.user.send(Method::PATCH, &path, STRATEGIC, &json!({"status": status})).await;
    }

    async fn pod_status(&self, nth: u32, status: Value) {
        if let Some(pod) = self.pod(nth) {
            self.set_status(PODS, name(&pod), status).await;
        }
    }

    async fn edit_pod(&self, nth: u32, metadata: Value) {
        if let Some(pod) = self.pod(nth) {
            let body = json!({"metadata": metadata});
            self.user.send(Method::PATCH, &path(PODS, name(&pod)), MERGE, &body).await;
        }
    }

    async fn delete_pod(&self, nth: u32, options: Value) {
        if let Some(pod) = self.pod(nth) {
            self.delete(PODS, name(&pod), options).await;
        }
    }

    async fn delete(&self, of: &str, name: &str, options: Value) {
        self.user.send(Method::DELETE, &path(of, name), JSON, &options).await;
    }

    fn ready(&self, ready: bool) -> Value {
        let now = objects::written(self.cluster.clock.now());
        let status = if ready { "True" } else { "False" };
        json!([{"type": "Ready", "status": status, "lastTransitionTime": now}])
    }

    /// A reference to an object that owns what is not ours.
    fn others(&self, controls: bool) -> Value {
        let others = self.cluster.sandbox.object("ConfigMap", NAMESPACE, OTHERS);
        let uid = others.map(|others| uid(&others).to_owned());
        json!({"apiVersion": "v1", "kind": "ConfigMap", "name": OTHERS, "uid": uid, "controller": controls})
    }

    /// Adds or removes the reference to the foreign owner of a claim. Ours does not control it then.
    async fn edit_owners(&self, nth: u32, controls: bool, is_added: bool) {
        let Some(claim) = self.nth("PersistentVolumeClaim", nth) else { return };
        let mut owners: Vec<Value> = references(&claim).to_vec();
        owners.retain(|owner| owner["kind"] != "ConfigMap");
        if is_added {
            owners.iter_mut().filter(|_| controls).for_each(|owner| owner["controller"] = false.into());
            owners.push(self.others(controls));
        }
        let body = json!({"metadata": {"ownerReferences": owners}});
        self.user.send(Method::PATCH, &path(CLAIMS, name(&claim)), MERGE, &body).await;
    }

    /// The revisions of the StatefulSet in ascending order.
    fn revisions(&self) -> Vec<Value> {
        let mut all = self.cluster.sandbox.objects("ControllerRevision");
        all.retain(|revision| !owner(revision).is_empty());
        all.sort_by_key(|revision| number(revision, "/revision"));
        all
    }

    /// Copies the current revision, as a backup that is restored twice does. An old one has a null more.
    async fn duplicate(&self, is_old: bool) {
        let Some(mut twin) = self.revisions().pop() else { return };
        if is_old {
            twin["data"]["spec"]["template"]["metadata"]["creationTimestamp"] = Value::Null;
        }
        let number = number(&twin, "/revision") + 1;
        twin["metadata"] = json!({"name": format!("{NAME}-twin-{number}"), "labels": twin["metadata"]["labels"],
            "ownerReferences": twin["metadata"]["ownerReferences"]});
        twin["revision"] = number.into();
        self.user.send(Method::POST, REVISIONS, JSON, &twin).await;
    }

    /// Lets so many objects be, or as many as will.
    async fn set_quota(&self, hard: Option<(&str, usize)>) {
        self.delete(QUOTAS, "few", json!({})).await;
        if let Some((resource, most)) = hard {
            let quota = json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "few"},
                "spec": {"hard": {resource: most.to_string()}}});
            self.user.send(Method::POST, QUOTAS, JSON, &quota).await;
        }
    }

    async fn set_dead(&self, node: &str, dead: bool) {
        let status = if dead { "Unknown" } else { "True" };
        let status = json!({"conditions": [{"type": "Ready", "status": status}]});
        self.set_status("/api/v1/nodes", node, status).await;
    }

    /// Users and administrators repair what they have broken.
    pub async fn repair(&self) {
        self.set_quota(None).await;
        for node in self.cluster.sandbox.objects("Node") {
            self.set_dead(name(&node), false).await;
        }
        let Some(found) = stateful_set(&self.cluster.sandbox) else { return self.create(1).await };
        if text(&found, "/spec/template/spec/containers/0/image").ends_with("broken") {
            self.set_image("9").await;
        }
        self.edit(json!({"template": {"spec": {"nodeSelector": null}}})).await;
        self.roll(json!({"partition": 0})).await;
    }

    /// Does from time to time what nobody else does: makes pods ready again, frees names of pods, and creates the
    /// StatefulSet if the deletion of the earlier one took its time. A claim that a foreground deletion waits for may wait
    /// itself for the pod that waits for it: a user breaks the circle.
    pub async fn heal(&self) {
        let Some(found) = stateful_set(&self.cluster.sandbox) else { return self.create(1).await };
        self.unblock_scale_down(&found).await;
        for pod in self.cluster.sandbox.objects("Pod") {
            if is_deleting(&pod) && pod["metadata"]["finalizers"][0] == "foregroundDeletion" {
                let body = json!({"metadata": {"finalizers": null}});
                self.user.send(Method::PATCH, &path(PODS, name(&pod)), MERGE, &body).await;
            }
            let is_its = owner(&pod) == uid(&found) || owner(&pod).is_empty() && is_selected(&found, &pod);
            if !is_its && ordinal(name(&pod)).is_some() && !is_deleting(&pod) {
                self.delete(PODS, name(&pod), json!({})).await;
            }
            // Pods that an earlier StatefulSet left behind have no volumes for the claims that this one adds. Their users
            // replace them.
            if is_its
                && is_live(&pod)
                && check_identity(&found, &pod).is_err_and(|why| why.contains("volume"))
            {
                self.delete(PODS, name(&pod), json!({})).await;
            }
            let conditions = pod["status"]["conditions"].as_array().cloned().unwrap_or_default();
            let unready = |c: &Value| c["type"] == "Ready" && c["status"] == "False" && c["reason"].is_null();
            if is_live(&pod) && text(&pod, "/status/phase") == "Running" && conditions.iter().any(unready) {
                self.set_status(PODS, name(&pod), json!({"conditions": self.ready(true)})).await;
            }
        }
    }

    /// Two pods out of range that do not serve halt a scale-down, pod by pod, until somebody deletes one (SS3).
    async fn unblock_scale_down(&self, found: &Value) {
        let mut broken = self.cluster.sandbox.objects("Pod");
        broken.retain(|pod| {
            let is_out = ordinal(name(pod)).is_some_and(|ordinal| !range(found).contains(&ordinal));
            let ready = |c: &Value| c["type"] == "Ready" && c["status"] == "True";
            let is_ready = pod["status"]["conditions"].as_array().is_some_and(|all| all.iter().any(ready));
            owner(pod) == uid(found) && is_out && !(is_live(pod) && is_ready)
        });
        if let [_, .., last] = &broken[..]
            && !is_parallel(found)
            && !is_deleting(last)
        {
            self.delete(PODS, name(last), json!({})).await;
        }
    }

    /// Takes the owners of others from all claims: each process tells once of those that it leaves alone.
    pub async fn free_claims(&self) {
        for nth in 0..self.cluster.sandbox.objects("PersistentVolumeClaim").len() {
            self.edit_owners(nth as u32, false, false).await;
        }
    }

    /// Deletes the claims of the last ordinal, which a backup holds, and then its pod. Returns the UID of the pod.
    pub async fn lose_claims(&self) -> Option<String> {
        let found = stateful_set(&self.cluster.sandbox)?;
        let last = range(&found).last()?;
        for (_, claim) in super::identity::claims(&found, last) {
            self.hold(&claim, true).await;
            self.delete(CLAIMS, &claim, json!({})).await;
        }
        let pod = self.cluster.sandbox.object("Pod", NAMESPACE, &pod_name(last))?;
        self.delete(PODS, name(&pod), json!({})).await;
        Some(uid(&pod).to_owned())
    }

    /// The backup is done with the claims that it held, which are gone then.
    pub async fn release_claims(&self) {
        for claim in self.cluster.sandbox.objects("PersistentVolumeClaim") {
            self.hold(name(&claim), false).await;
        }
    }

    /// Adds or removes the finalizer of a backup.
    async fn hold(&self, claim: &str, holds: bool) {
        let Some(found) = self.cluster.sandbox.object("PersistentVolumeClaim", NAMESPACE, claim) else {
            return;
        };
        let before = found["metadata"]["finalizers"].as_array().cloned().unwrap_or_default();
        let mut finalizers = before.clone();
        finalizers.retain(|finalizer| finalizer != HOLD);
        finalizers.extend(holds.then(|| HOLD.into()));
        if finalizers != before {
            let body = json!({"metadata": {"finalizers": finalizers}});
            self.user.send(Method::PATCH, &path(CLAIMS, claim), MERGE, &body).await;
        }
    }
}

fn path(of: &str, name: &str) -> String {
    format!("{of}/{name}")
}

fn container(tag: &str) -> Value {
    json!({"name": "c", "image": format!("db:{tag}")})
}
