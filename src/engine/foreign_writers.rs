//! Detects another controller that acts on the same objects, such as a kube-controller-manager whose own
//! loops were not switched off. Both would then create and delete each other's pods.
//!
//! Proof is `managedFields`: another manager has written, within the last minute, a field of a status that only the
//! controller of that object writes. A condition of an operator's own is none. The name of a manager is free text of the
//! client, and a tenant can write the statuses of its own namespace. So the proof must come from two namespaces, or from
//! `kube-system`, or from the one namespace that this daemon acts in. Three objects are read once a minute, of those whose
//! status has changed: records hold no `managedFields`.
//!
//! The limits: another Windlass has our own field manager and is not distinguished (leader election protects
//! against that one). With `--field-manager=kube-controller-manager` the same holds for a real one. A controller that
//! writes no status is not detected, nor one whose objects are all in one namespace of a larger cluster, but for the
//! warning about the Lease of kube-controller-manager. An API server without `managedFields` proves nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::context::{Context, Control};
use super::entry::ControllerEntry;

use crate::model::{Meta, ObjectKey, Record, Resource};
use crate::runtime::api::{Api, ApiError};
use crate::runtime::events::{EventTarget, EventType, create_once};
use crate::runtime::leader_election::LEASES;
use crate::runtime::request;
use crate::runtime::store::Change;

/// Between two looks. The first of them comes after two: what was written before this process led has changed by then.
const WINDOW: Duration = Duration::from_secs(60);

/// How many objects a look reads.
const OBJECTS: usize = 3;

/// How many namespaces with a changed status are remembered, with one object each.
const NAMESPACES: usize = 64;

/// How recent the entry of another controller must be, before the latest write of the status.
const RECENT: SignedDuration = SignedDuration::from_secs(60);

/// A leader renews its Lease every two seconds.
const RENEWAL: Duration = Duration::from_secs(10);

/// The field manager of kube-controller-manager, and its Lease.
const UPSTREAM: &str = "kube-controller-manager";

/// Nobody but administrators writes here.
const OF_ADMINISTRATORS: &str = "kube-system";

/// The reaction to another controller that acts on the same objects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnConflict {
    /// Report it: an event, a metric, a log line.
    #[default]
    Warn,
    /// Report it, and end with an error.
    Exit,
    /// Do not look for it.
    Ignore,
}

/// Objects whose status has changed since the last look, the latest of each namespace.
#[derive(Debug, Default)]
pub struct ForeignWriters(Mutex<BTreeMap<Arc<str>, EventTarget>>);

impl ForeignWriters {
    /// A change in a store of an object in scope; `differs` compares the status.
    pub fn status_changed<T: Record>(&self, change: &Change<T>, differs: impl Fn(&T, &T) -> bool) {
        let Change::Updated { old, new } = change else { return };
        if differs(old, new) {
            let Meta { key, uid, resource_version, .. } = new.meta();
            let mut changed = self.0.lock();
            if changed.len() < NAMESPACES || changed.contains_key(&key.namespace) {
                let resource_version = Some(*resource_version);
                let target = EventTarget {
                    resource: T::RESOURCE,
                    key: key.clone(),
                    uid: uid.clone(),
                    resource_version,
                };
                changed.insert(key.namespace.clone(), target);
            }
        }
    }

    /// The objects to read: that of `kube-system`, and some of the others, so that each has its turn.
    fn take(&self, turn: usize) -> Vec<EventTarget> {
        let mut changed = std::mem::take(&mut *self.0.lock());
        let first = changed.remove(OF_ADMINISTRATORS);
        let mut others: Vec<EventTarget> = changed.into_values().collect();
        let begin = (turn * OBJECTS).checked_rem(others.len()).unwrap_or(0);
        others.rotate_left(begin);
        first.into_iter().chain(others).take(OBJECTS).collect()
    }
}

/// An entry of `managedFields`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
struct Manager {
    #[serde(default)]
    manager: String,
    #[serde(default)]
    subresource: String,
    #[serde(default)]
    time: Option<Timestamp>,
    #[serde(default, rename = "fieldsV1")]
    fields: Map<String, Value>,
}

#[derive(Deserialize)]
struct Managed {
    metadata: ManagedMeta,
}

#[derive(Deserialize)]
struct ManagedMeta {
    #[serde(default, rename = "managedFields")]
    managed_fields: Vec<Manager>,
}

/// The other controller of an object with these entries: it owns what only the controller writes, and its entry is as
/// recent as the latest of them. An old entry is that of a controller which was switched off; one of kubectl is a
/// person's.
fn rival<'a>(managers: &'a [Manager], ours: &str) -> Option<&'a str> {
    let of_status = || managers.iter().filter(|entry| entry.subresource == "status");
    let latest = of_status().filter_map(|entry| entry.time).max()?;
    let is_recent = |at: Timestamp| latest.duration_since(at) <= RECENT;
    let controls = |entry: &Manager| {
        let status = entry.fields.get("f:status");
        ["f:observedGeneration", "f:replicas"]
            .iter()
            .any(|field| status.is_some_and(|it| it.get(field).is_some()))
    };
    let of_rivals =
        of_status().filter(|entry| entry.manager != ours && !entry.manager.starts_with("kubectl"));
    of_rivals
        .filter(|entry| controls(entry))
        .find(|it| it.time.is_some_and(is_recent))
        .map(|it| it.manager.as_str())
}

/// Whether a rival in these namespaces is more than a tenant who pretends to be one.
fn is_proof(namespaces: &BTreeSet<&str>, scope: Option<&str>) -> bool {
    namespaces.len() > 1
        || namespaces.contains(OF_ADMINISTRATORS)
        || namespaces.iter().any(|it| Some(*it) == scope)
}

/// The values of `--controllers` that switch our controllers off in a kube-controller-manager: those that run by default,
/// and that of this kind.
fn without_ours(controls: &[Control], kind: &str) -> String {
    let concerns = |entry: &&ControllerEntry| entry.is_on_by_default || entry.kind.kind == kind;
    let ours =
        controls.iter().map(|control| control.entry).filter(|entry| entry.is_upstream).filter(concerns);
    ours.map(|controller| format!("-{}", controller.name)).collect::<Vec<_>>().join(",")
}

/// Another controller acts on the same objects.
#[derive(Debug, thiserror::Error)]
#[error(
    "{manager:?} also writes the status of {kind} {key}: switch its controllers off, for \
     kube-controller-manager by adding {without} to its list of --controllers, or run Windlass with --on-conflict=warn"
)]
pub struct Conflict {
    /// Its field manager.
    pub manager: String,
    /// The kind of an object.
    pub kind: &'static str,
    /// Its name.
    pub key: String,
    /// The values of `--controllers` that end it.
    pub without: String,
}

/// Watches for other controllers for as long as ours act. Returns only where a conflict must end the program.
pub async fn guard(context: Arc<Context>, on_conflict: OnConflict) -> Conflict {
    if context.settings.field_manager == UPSTREAM {
        tracing::warn!(
            "--field-manager={UPSTREAM}: Windlass cannot detect a kube-controller-manager that writes the same \
             objects, and --on-conflict has no effect; make sure that its controllers are switched off"
        );
    }
    if on_conflict == OnConflict::Ignore {
        return std::future::pending().await;
    }
    // In one namespace this process has no right to read the Lease, which is in another.
    if context.settings.scope.namespace.as_deref().is_none()
        && let Some(holder) = context.renewed_lease().await
    {
        tracing::warn!(
            "{holder} renews the Lease of {UPSTREAM}: if it runs the same controllers, both act on the same objects; \
             add {} to its list of --controllers unless that is done",
            without_ours(&context.controls, "")
        );
    }
    tokio::time::sleep(WINDOW).await;
    context.foreign_writers.take(0);
    for turn in 0.. {
        tokio::time::sleep(WINDOW).await;
        let Some(conflict) = context.look_for_rivals(turn).await else { continue };
        tracing::error!("another controller acts on the same objects: {conflict}");
        if on_conflict == OnConflict::Exit && context.may_end_for(&conflict).await {
            return conflict;
        }
    }
    std::future::pending().await
}

#[derive(Deserialize)]
struct Lease {
    spec: LeaseSpec,
}

/// The fields that a renewal changes, and the holder that renews.
#[derive(PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
struct LeaseSpec {
    holder_identity: Option<String>,
    renew_time: Option<String>,
}

impl Context {
    /// A status write of ours was answered with this version: the cache must reach it.
    pub(crate) fn wrote_status(&self, object: &Meta, resource: Resource, version: u64) {
        self.expectations.expect_write(&object.uid, resource, version);
        self.status_throttle.wrote(&object.uid, tokio::time::Instant::now());
    }

    /// Reads some objects whose status has changed, and reports the rival that they prove.
    async fn look_for_rivals(&self, turn: usize) -> Option<Conflict> {
        let mut found = Vec::new();
        for target in self.foreign_writers.take(turn) {
            let path = format!("{}/{}", target.resource.path(Some(&target.key.namespace)), target.key.name);
            match self.read_past_the_caches::<Managed>(&path).await {
                Ok(object) => {
                    let managers = object.metadata.managed_fields;
                    found.extend(
                        rival(&managers, &self.settings.field_manager).map(|it| (it.to_owned(), target)),
                    );
                }
                Err(error) => {
                    tracing::debug!(object = %target.key, %error, "could not read the field managers of an object");
                }
            }
        }
        let namespaces: BTreeSet<&str> = found.iter().map(|(_, target)| &*target.key.namespace).collect();
        if !is_proof(&namespaces, self.settings.scope.namespace.as_deref()) {
            return None;
        }
        for (manager, target) in &found {
            self.metrics.workloads.foreign_writes.with_label_values(&[target.resource.plural]).inc();
            let message = format!(
                "{manager} also writes the status of this object. Two controllers act on it: switch one of them off."
            );
            self.recorder.record(target, EventType::Warning, "ConflictingController", message, "windlass");
        }
        let (manager, target) = found.swap_remove(0);
        let (kind, key) = (target.resource.kind, target.key.to_string());
        Some(Conflict { manager, kind, key, without: without_ours(&self.controls, kind) })
    }

    /// Whether no process has ended for a conflict within the last hour: whoever can fake one must not end each new leader.
    /// Processes share an event of a fixed name, which the API server keeps for an hour (`--event-ttl`): it can be created
    /// once.
    async fn may_end_for(&self, conflict: &Conflict) -> bool {
        let namespace = self.settings.scope.namespace.as_deref().unwrap_or(OF_ADMINISTRATORS);
        let lease = ObjectKey::new(namespace, "windlass");
        let message =
            format!("A leader of Windlass ends: {conflict}. None ends for that again within an hour.");
        let (api, name) = (self.any_api(), "windlass.ended-for-a-conflict");
        let created = create_once(api, &lease, name, "ConflictingController", message, self.now());
        match created.await {
            Ok(()) => true,
            Err(error) => {
                tracing::warn!(%error, "--on-conflict=exit: this process goes on, since one has ended for a conflict within the \
                    last hour, or that cannot be told");
                false
            }
        }
    }

    /// The holder of kube-controller-manager's Lease, if it renews it while we look.
    async fn renewed_lease(&self) -> Option<String> {
        let path = LEASES.path_of(&ObjectKey::new(OF_ADMINISTRATORS, UPSTREAM));
        let before = self.read_past_the_caches::<Lease>(&path).await.ok()?.spec;
        tokio::time::sleep(RENEWAL).await;
        let after = self.read_past_the_caches::<Lease>(&path).await.ok()?.spec;
        if before == after { None } else { after.holder_identity.filter(|holder| !holder.is_empty()) }
    }

    async fn read_past_the_caches<T: serde::de::DeserializeOwned + Send + 'static>(
        &self,
        path: &str,
    ) -> Result<T, ApiError> {
        self.any_api().call(request::get(path, &[])).await
    }

    fn any_api(&self) -> &Api {
        &self.controls.first().expect("the registry has controllers").api
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::model::{Deployment, Interner};

    fn entry(manager: &str, subresource: &str, seconds: i64, status: Value) -> Manager {
        serde_json::from_value(json!({
            "manager": manager, "operation": "Update", "apiVersion": "apps/v1", "subresource": subresource,
            "time": Timestamp::from_second(1_000_000 + seconds).unwrap(),
            "fieldsType": "FieldsV1", "fieldsV1": {"f:status": status},
        }))
        .unwrap()
    }

    fn controls() -> Value {
        json!({"f:observedGeneration": {}, "f:replicas": {}})
    }

    #[track_caller]
    fn check(entries: &[Manager], expected: Option<&str>) {
        assert_eq!(rival(entries, "windlass"), expected, "{entries:?}");
    }

    #[test]
    fn a_rival_has_recently_written_what_only_a_controller_writes() {
        let ours = |seconds| entry("windlass", "status", seconds, controls());
        check(&[ours(0), entry(UPSTREAM, "status", 1, controls())], Some(UPSTREAM));
        check(&[entry(UPSTREAM, "status", 0, json!({"f:replicas": {}})), ours(30)], Some(UPSTREAM));
        check(&[entry(UPSTREAM, "status", 0, controls()), ours(3600)], None);
        check(&[entry("other", "status", 0, controls())], Some("other"));
        check(&[ours(0), entry("kubectl-edit", "status", 1, controls())], None);
        check(&[ours(0), entry("argocd", "", 1, controls())], None);
        check(&[], None);
    }

    #[test]
    fn a_condition_of_an_operator_makes_it_no_rival() {
        let scanned = json!({"f:conditions": {".": {}, "k:{\"type\":\"acme.io/Scanned\"}": {}}});
        check(&[entry("windlass", "status", 0, controls()), entry("acme", "status", 1, scanned)], None);
    }

    #[test]
    fn under_upstreams_name_its_writes_count_as_ours() {
        let upstream = entry(UPSTREAM, "status", 0, controls());
        assert_eq!(rival(std::slice::from_ref(&upstream), UPSTREAM), None);
        assert_eq!(
            rival(&[upstream, entry("windlass", "status", 0, controls())], UPSTREAM),
            Some("windlass")
        );
    }

    #[test]
    fn one_tenant_proves_nothing() {
        let proves = |namespaces: &[&str], scope| is_proof(&namespaces.iter().copied().collect(), scope);
        assert!(!proves(&[], None) && !proves(&["shop"], None));
        assert!(proves(&["shop", "bar"], None));
        assert!(proves(&["kube-system"], None));
        assert!(proves(&["shop"], Some("shop")), "a daemon of one namespace");
    }

    fn changed(namespaces: &[String]) -> ForeignWriters {
        let all = ForeignWriters::default();
        for namespace in namespaces {
            let json = |version: u32| {
                json!({"metadata": {"name": "web", "namespace": namespace, "uid": "u", "resourceVersion": version.to_string()},
                       "spec": {"selector": {}, "template": {}}})
            };
            let object = |version| {
                let text = json(version).to_string();
                Arc::new(Deployment::decode(&text, &mut Interner::default()).unwrap())
            };
            all.status_changed(&Change::Updated { old: object(1), new: object(2) }, |_, _| true);
        }
        all
    }

    #[test]
    fn each_namespace_has_its_turn_and_kube_system_always() {
        let all = ["a", "b", "c", "d", "kube-system"].map(str::to_owned);
        let read = |turn| -> Vec<String> {
            changed(&all).take(turn).iter().map(|target| target.key.namespace.to_string()).collect()
        };
        assert_eq!(read(0), ["kube-system", "a", "b"]);
        assert_eq!(read(1), ["kube-system", "d", "a"]);
        assert_eq!(changed(&[]).take(7), []);
    }

    #[test]
    fn memory_is_bounded_for_any_input() {
        let all: Vec<String> = (0..1000).map(|n| format!("n{n}")).collect();
        assert_eq!(changed(&all).0.lock().len(), NAMESPACES);
    }

    #[test]
    fn managed_fields_may_be_missing() {
        let managed: Managed = serde_json::from_str(r#"{"metadata":{}}"#).unwrap();
        check(&managed.metadata.managed_fields, None);
    }
}
