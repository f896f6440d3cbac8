//! Carries out the acts of the scenario: users, their client, and chaos monkeys. [`Daemons`] restarts the daemons.

use std::sync::Arc;
use std::time::Duration;

use http::Method;
use serde_json::{Value, json};

use super::judge::{Cluster, Judge};
use super::scenario::{Act, BREAKABLE, Cleanup, NAMES, Request, Scenario};
use super::truth::{
    self, CLEANUP, DESIRED, HANDING_OVER, MAX_SURGE, MAX_UNAVAILABLE, ORIGINAL, PAUSED, PERIOD, REQUEST,
    ROLLBACK, SOURCE, TIMEOUT, annotation,
};
use crate::engine::daemons::{Daemons, unlimited};
use crate::engine::game::{self, Actors as _};
use crate::engine::objects::{self, NAMESPACE, is_live, name, number, owner, text, uid};
use crate::engine::user::{JSON, MERGE, STRATEGIC, User};
use windlass::config::Enabled;

pub(super) const CONTROLLERS: &str = "/api/v1/namespaces/shop/replicationcontrollers";
pub(super) const REPLICA_SETS: &str = "/apis/apps/v1/namespaces/shop/replicasets";
pub(super) const PODS: &str = "/api/v1/namespaces/shop/pods";
pub(super) const QUOTAS: &str = "/api/v1/namespaces/shop/resourcequotas";

/// See the module documentation.
pub struct Actors {
    pub(super) cluster: Arc<Cluster>,
    pub(super) user: User,
    daemons: Daemons<Judge>,
    /// The update that must succeed at the end.
    pub last: Request,
    /// The first controller, as it was before the first update.
    pub first: Value,
    /// The target of the first update, as it was before.
    pub target: Value,
    /// How many controllers were created: each has its own label value.
    made: u32,
}

impl game::Actors<Act> for Actors {
    async fn begin(&mut self) {
        let namespace = json!({"metadata": {"name": NAMESPACE}});
        self.user.send(Method::POST, "/api/v1/namespaces", JSON, &namespace).await;
        self.daemons.start();
        self.create(NAMES[0], 3, Some(0), json!({"example.com/team": "a"})).await;
    }

    async fn act(&mut self, act: &Act) {
        self.cluster.say(&format!("{act:?}"));
        if !is_harmless(act) {
            self.cluster.with_judge(Judge::disturb);
        }
        match act {
            Act::Update(request) => self.update(request).await,
            Act::Drive(pair, steps) => self.drive(*pair, *steps).await,
            Act::Pause(..) | Act::TakeBack(..) | Act::Abort(_) | Act::Bounds(..) => {
                self.change_request(act).await
            }
            Act::Demand(old, new, is_rollback) => {
                let request = json!({REQUEST: NAMES[*new], ROLLBACK: is_rollback.then_some("true")});
                self.annotate(NAMES[*old], request).await;
            }
            Act::Scale(one, size) => drop(self.edit(NAMES[*one], json!({"spec": {"replicas": size}})).await),
            Act::Image(one, image) => self.set_image(NAMES[*one], *image).await,
            Act::MinReady(one, seconds) => {
                self.edit(NAMES[*one], json!({"spec": {"minReadySeconds": seconds}})).await;
            }
            Act::Delete(one, policy) => {
                let options = json!({"propagationPolicy": policy});
                self.user
                    .send(Method::DELETE, &format!("{CONTROLLERS}/{}", NAMES[*one]), JSON, &options)
                    .await;
            }
            Act::Create(one) => drop(self.create(NAMES[*one], 2, Some(7), json!({})).await),
            Act::Touch(one) => {
                let now = self.cluster.elapsed().as_millis().to_string();
                self.annotate(NAMES[*one], json!({"example.com/touched": now})).await;
            }
            Act::Corrupt(one, nth) => {
                let (key, value) = BREAKABLE[*nth];
                if self.get(NAMES[*one]).is_some_and(|one| annotation(&one, key).is_some()) {
                    self.annotate(NAMES[*one], json!({key: value})).await;
                }
            }
            Act::Rival(one) => self.rival(NAMES[*one]).await,
            Act::NoRival => {
                self.user.send(Method::DELETE, &format!("{REPLICA_SETS}/rival"), JSON, &json!({})).await;
            }
            Act::Quota(pods) => {
                let quota = json!({"metadata": {"name": "q"}, "spec": {"hard": {"pods": pods.to_string()}}});
                self.user.send(Method::POST, QUOTAS, JSON, &quota).await;
            }
            Act::NoQuota => {
                self.user.send(Method::DELETE, &format!("{QUOTAS}/q"), JSON, &json!({})).await;
            }
            Act::Fail(nth) => {
                self.pod_status(*nth, json!({"phase": "Failed", "conditions": self.readiness("False")}))
                    .await;
            }
            Act::DeletePod(nth) => {
                if let Some(path) = self.pod(*nth) {
                    self.user.send(Method::DELETE, &path, JSON, &json!({})).await;
                }
            }
            Act::Unready(nth) => self.pod_status(*nth, json!({"conditions": self.readiness("False")})).await,
            Act::Orphan(nth) => {
                if let Some(path) = self.pod(*nth) {
                    self.user
                        .send(Method::PATCH, &path, MERGE, &json!({"metadata": {"ownerReferences": null}}))
                        .await;
                }
            }
            Act::BreakWatches => self.cluster.break_watches(false),
            Act::Compact => self.cluster.break_watches(true),
            Act::Crash => self.daemons.crash().await,
            Act::CrashAt(nth, is_carried_out) => self.cluster.kill_at(*nth, *is_carried_out),
            Act::Two(seconds) => {
                let time = Duration::from_secs(*seconds);
                // The first ends when it is looked for next.
                let end = self.cluster.elapsed() + time + Duration::from_secs(1);
                self.cluster.with_judge(|judge| judge.has_two_until(end));
                self.daemons.second(time);
            }
        }
    }

    /// Restarts daemons that were killed.
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
        let enabled = Enabled::none()
            .with("replicationcontroller-controller")
            .with("replicaset-controller")
            .with("rollingupdate-controller");
        let daemons = Daemons::new(cluster.clone(), unlimited(enabled), scenario.seed, |seed, _| seed);
        let (last, first, target) = (scenario.last.clone(), Value::Null, Value::Null);
        Actors { cluster, user, daemons, last, first, target, made: 0 }
    }

    /// Kills the daemons, and starts another.
    pub async fn crash(&mut self) {
        self.daemons.crash().await;
    }

    pub(super) async fn edit(&self, controller: &str, body: Value) -> bool {
        self.user.send(Method::PATCH, &format!("{CONTROLLERS}/{controller}"), MERGE, &body).await.is_some()
    }

    pub(super) async fn annotate(&self, controller: &str, annotations: Value) -> bool {
        self.edit(controller, json!({"metadata": {"annotations": annotations}})).await
    }

    pub(super) async fn create(
        &mut self,
        name: &str,
        size: u32,
        image: Option<u32>,
        annotations: Value,
    ) -> bool {
        self.made += 1;
        let labels = json!({"app": "shop", "deployment": format!("v{}", self.made)});
        let body = json!({
            "apiVersion": "v1", "kind": "ReplicationController",
            "metadata": {"name": name, "annotations": annotations},
            "spec": {"replicas": size, "selector": labels, "template": {"metadata": {"labels": labels},
                "spec": {"terminationGracePeriodSeconds": 5, "containers": [container(image)]}}}
        });
        self.user.send(Method::POST, CONTROLLERS, JSON, &body).await.is_some()
    }

    pub(super) fn get(&self, name: &str) -> Option<Value> {
        truth::controller(&self.cluster.sandbox, name)
    }

    /// The client asks for an update, unless the controller has a request. It may be killed after each of its writes.
    pub async fn update(&mut self, request: &Request) {
        let (old, target) = (NAMES[request.pair.0], NAMES[request.pair.1]);
        let Some(own) = self.get(old).filter(|own| annotation(own, REQUEST).is_none()) else { return };
        let size = annotation(&own, ORIGINAL).and_then(|size| size.parse().ok());
        let size: i64 = size.unwrap_or_else(|| number(&own, "/spec/replicas"));
        let desired = request.desired.map_or(size, i64::from);
        if request.killed_after == 0 {
            return;
        }
        if self.get(target).is_none() {
            let (made, annotations) = match request.foreign {
                Some(size) => (size, json!({})),
                None => {
                    let source = format!("{old}:{}", uid(&own));
                    (0, json!({SOURCE: source, DESIRED: desired.to_string()}))
                }
            };
            self.create(target, made, request.image, annotations).await;
        }
        if request.killed_after == 1 {
            return;
        }
        let options = json!({
            MAX_SURGE: request.surge, MAX_UNAVAILABLE: request.unavailable,
            PERIOD: format!("{}s", request.period), TIMEOUT: format!("{}s", request.timeout),
            CLEANUP: match request.cleanup {
                Cleanup::Delete => "Delete",
                Cleanup::KeepName => "KeepName",
                Cleanup::Preserve => "Preserve",
            },
            PAUSED: Value::Null, ROLLBACK: Value::Null,
        });
        self.annotate(old, options).await;
        if self.first.is_null() {
            self.first = own;
            self.target = self.get(target).unwrap_or_default();
        }
        if request.killed_after > 2 {
            self.annotate(old, json!({REQUEST: target})).await;
        }
    }

    /// The client drives an update itself, for so many steps. It refuses a controller that has a request.
    async fn drive(&mut self, pair: (usize, usize), steps: u8) {
        let (old, target) = (NAMES[pair.0], NAMES[pair.1]);
        for step in 0..steps {
            let Some(own) = self.get(old).filter(|own| annotation(own, REQUEST).is_none()) else { return };
            let size = number(&own, "/spec/replicas");
            let original = annotation(&own, ORIGINAL).map_or(size.to_string(), str::to_owned);
            let source = format!("{old}:{}", uid(&own));
            let Some(new) = self.get(target) else {
                self.create(target, 0, Some(50), json!({SOURCE: source, DESIRED: original})).await;
                continue;
            };
            if annotation(&new, SOURCE) != Some(&source) || annotation(&new, HANDING_OVER).is_some() {
                return;
            }
            let grown = number(&new, "/spec/replicas");
            match step % 3 {
                0 => self.annotate(old, json!({ORIGINAL: original})).await,
                1 => self.edit(target, json!({"spec": {"replicas": grown + 1}})).await,
                _ => self.edit(old, json!({"spec": {"replicas": (size - 1).max(0)}})).await,
            };
            self.wait(Duration::from_millis(800)).await;
        }
    }

    /// A live pod.
    fn pod(&self, nth: u32) -> Option<String> {
        let mut pods = self.cluster.sandbox.objects("Pod");
        pods.retain(is_live);
        objects::nth(pods, nth).map(|pod| format!("{PODS}/{}", name(&pod)))
    }

    async fn pod_status(&self, nth: u32, status: Value) {
        if let Some(path) = self.pod(nth) {
            self.user
                .send(Method::PATCH, &format!("{path}/status"), STRATEGIC, &json!({"status": status}))
                .await;
        }
    }

    pub(super) fn readiness(&self, status: &str) -> Value {
        let now = objects::written(self.cluster.clock.now());
        json!([{"type": "Ready", "status": status, "lastTransitionTime": now}])
    }

    /// A user changes a request that is there.
    async fn change_request(&self, act: &Act) {
        let (one, annotations) = match act {
            Act::Pause(one, is_paused) => (one, json!({PAUSED: is_paused.then_some("true")})),
            Act::TakeBack(one, is_rollback) => (one, json!({ROLLBACK: is_rollback.then_some("true")})),
            Act::Abort(one) => (one, json!({REQUEST: Value::Null})),
            Act::Bounds(one, surge, unavailable) => {
                (one, json!({MAX_SURGE: surge, MAX_UNAVAILABLE: unavailable}))
            }
            _ => return,
        };
        if self.get(NAMES[*one]).is_some_and(|own| annotation(&own, REQUEST).is_some()) {
            self.annotate(NAMES[*one], annotations).await;
        }
    }

    /// Changes the image of a controller, and deletes its pods of the earlier one.
    pub async fn set_image(&self, controller: &str, image: Option<u32>) {
        let Some(own) = self.get(controller) else { return };
        self.edit(controller, json!({"spec": {"template": {"spec": {"containers": [container(image)]}}}}))
            .await;
        for pod in self.cluster.sandbox.objects("Pod") {
            let is_broken = text(&pod, "/spec/containers/0/image").ends_with("broken");
            if owner(&pod) == uid(&own) && is_broken {
                self.user.send(Method::DELETE, &format!("{PODS}/{}", name(&pod)), JSON, &json!({})).await;
            }
        }
    }

    async fn rival(&self, of: &str) {
        let Some(own) = self.get(of) else { return };
        let labels = &own["spec"]["selector"];
        let body = json!({
            "apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": "rival"},
            "spec": {"replicas": 0, "selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels},
                "spec": {"containers": [container(Some(1))]}}}
        });
        self.user.send(Method::POST, REPLICA_SETS, JSON, &body).await;
    }
}

/// Acts that leave pods, sizes and templates of an update alone.
fn is_harmless(act: &Act) -> bool {
    matches!(
        act,
        Act::Update(_)
            | Act::Pause(..)
            | Act::TakeBack(..)
            | Act::Abort(_)
            | Act::Touch(_)
            | Act::BreakWatches
            | Act::Compact
            | Act::Crash
            | Act::CrashAt(..)
            | Act::Two(_)
            | Act::NoQuota
            | Act::NoRival
    )
}

fn container(image: Option<u32>) -> Value {
    let image = image.map_or("app:broken".to_owned(), |tag| format!("app:{tag}"));
    json!({"name": "c", "image": image})
}
