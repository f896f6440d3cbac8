//! The server's own decisions about an object of each kind before it is stored: which parts a
//! client may write through which path, and what is filled in. The rules are those of upstream's
//! registry strategies (pkg/registry/*/*/strategy.go).

use serde_json::{Value, json};

use super::profiles;
use crate::custom::shape;
use crate::defaults;
use crate::kinds::{Generation, Kind, StrategyContext, Subresource};
use crate::object::{as_map, copy_field, map_mut, meta, metadata_mut, set_meta, strings, text};
use crate::store::Key;
use crate::strict::decode::TEMPLATE_GENERATION;
use crate::validate::{FieldError, job};

/// Metadata that a client cannot change by an update.
const SYSTEM_METADATA: &[&str] = &[
    "name",
    "namespace",
    "uid",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "generation",
    "resourceVersion",
];

/// A new object: what the client sent in fields that are the server's is dropped.
pub(super) fn prepare_create(context: &StrategyContext<'_>, kind: &Kind, object: &mut Value) {
    let metadata = metadata_mut(object);
    for field in ["deletionTimestamp", "deletionGracePeriodSeconds", "generation", "resourceVersion"] {
        metadata.remove(field);
    }
    metadata.insert("uid".to_owned(), json!(context.names.uid()));
    metadata.insert("creationTimestamp".to_owned(), json!(seconds(context.now)));
    if kind.generation != Generation::None {
        metadata.insert("generation".to_owned(), json!(1));
    }
    if kind.has(Subresource::Status) && !kind.created_with_status {
        as_map(object).remove("status");
    }
    (kind.status_form)(object);
    (kind.on_create)(context, object);
}

/// Fills in defaults, and the version that the kind is stored in.
pub(super) fn fill(kind: &Kind, object: &mut Value) {
    match kind.custom {
        Some(custom) => {
            as_map(object).insert("apiVersion".to_owned(), json!(custom.storage_version));
            shape::fill(&custom.schema, object);
        }
        None => (kind.defaults)(as_map(object)),
    }
}

/// Volumes and claims are deleted only after a controller has found that nothing uses them (the admission plugin
/// StorageObjectInUseProtection, plugin/pkg/admission/storage/storageobjectinuseprotection).
pub(crate) fn protect(object: &mut Value, finalizer: &str) {
    let finalizers = metadata_mut(object).entry("finalizers").or_insert(Value::Null);
    let mut all = finalizers.as_array().cloned().unwrap_or_default();
    if !all.iter().any(|other| other == finalizer) {
        all.push(json!(finalizer));
        *finalizers = Value::Array(all);
    }
}

/// How often the template of a DaemonSet has changed. It is a field inside of a real server; outside it is an annotation
/// that is always there and that nobody can change.
fn template_generation(object: &Value) -> i64 {
    let annotations = object.pointer("/metadata/annotations");
    annotations.and_then(|all| all.get(TEMPLATE_GENERATION)?.as_str()?.parse().ok()).unwrap_or_default()
}

fn set_template_generation(object: &mut Value, number: i64) {
    let annotations = metadata_mut(object).entry("annotations").or_insert(Value::Null);
    as_map(annotations).insert(TEMPLATE_GENERATION.to_owned(), json!(number.to_string()));
}

/// The first number is 1, unless the object brings a larger one from another cluster.
pub(crate) fn first_template_generation(_context: &StrategyContext<'_>, object: &mut Value) {
    let given = template_generation(object).max(1);
    set_template_generation(object, given);
}

pub(crate) fn keep_template_generation(new: &mut Value, old: &Value) {
    set_template_generation(new, template_generation(old));
}

/// Raises the number if the template has changed.
pub(crate) fn count_template(new: &mut Value, old: &Value) {
    if new.pointer("/spec/template") != old.pointer("/spec/template") {
        set_template_generation(new, template_generation(old).saturating_add(1));
    }
}

/// Without the feature, `maxUnavailable` is dropped from a StatefulSet that did not have it before; with it, it has a
/// default.
pub(crate) fn gate_max_unavailable(context: &StrategyContext<'_>, new: &mut Value, old: &Value) {
    const ROLLING: &str = "/spec/updateStrategy/rollingUpdate";
    if context.options.stateful_set_max_unavailable {
        defaults::workloads::max_unavailable(as_map(new));
    } else if old.pointer(ROLLING).is_none_or(|rolling| rolling["maxUnavailable"].is_null())
        && let Some(rolling) = new.pointer_mut(ROLLING).and_then(Value::as_object_mut)
    {
        rolling.remove("maxUnavailable");
    }
}

/// The pods of a Job are its own: they have labels that no other Job gives, and it selects them (`generateSelector`). Who
/// asks for a selector of its own has it.
pub(crate) fn generate_selector(_context: &StrategyContext<'_>, object: &mut Value) {
    if object.pointer("/spec/manualSelector") == Some(&Value::Bool(true)) {
        return;
    }
    let (uid, name) = (meta(object, "uid").to_owned(), meta(object, "name").to_owned());
    let spec = map_mut(object, "spec");
    let template = as_map(spec.entry("template").or_insert_with(|| json!({})));
    let metadata = as_map(template.entry("metadata").or_insert_with(|| json!({})));
    let labels = as_map(metadata.entry("labels").or_insert_with(|| json!({})));
    for (keys, value) in [(job::JOB_NAME, &name), (job::CONTROLLER_UID, &uid)] {
        for key in keys {
            labels.entry(key).or_insert_with(|| json!(value));
        }
    }
    let selector = as_map(spec.entry("selector").or_insert_with(|| json!({})));
    let labels = as_map(selector.entry("matchLabels").or_insert_with(|| json!({})));
    labels.entry(job::CONTROLLER_UID[0]).or_insert_with(|| json!(uid));
}

/// A request for a certificate says who asks, and nobody approves it by creating it. Every client here is the same user.
pub(crate) fn sign_request(_context: &StrategyContext<'_>, object: &mut Value) {
    let spec = map_mut(object, "spec");
    for field in ["uid", "extra"] {
        spec.remove(field);
    }
    spec.insert("username".to_owned(), json!("system:admin"));
    spec.insert("groups".to_owned(), json!(["system:masters", "system:authenticated"]));
}

/// The labels of the pod that a selector names by key alone become a part of it (KEP-3633, KEP-3243).
fn select_by_own_labels(term: &mut Value, labels: &Value) {
    if !term["labelSelector"].is_object() {
        return;
    }
    for (field, operator) in [("matchLabelKeys", "In"), ("mismatchLabelKeys", "NotIn")] {
        for key in term[field].as_array().cloned().unwrap_or_default() {
            let Some(label) = key.as_str().and_then(|key| labels.get(key)) else { continue };
            let expression = json!({"key": key, "operator": operator, "values": [label]});
            let expressions =
                map_mut(term, "labelSelector").entry("matchExpressions").or_insert_with(|| json!([]));
            if let Some(expressions) = expressions.as_array_mut() {
                expressions.push(expression);
            }
        }
    }
}

/// Gates keep a pod from the scheduler, which its status says. A negative period means the shortest there is.
pub(crate) fn new_pod(context: &StrategyContext<'_>, pod: &mut Value) {
    profiles::from_annotations(pod);
    if pod.pointer("/spec/schedulingGates").and_then(Value::as_array).is_some_and(|gates| !gates.is_empty()) {
        let condition = json!({
            "type": "PodScheduled", "status": "False", "reason": "SchedulingGated",
            "message": "Scheduling is blocked due to non-empty scheduling gates", "lastTransitionTime": seconds(context.now),
        });
        map_mut(pod, "status").insert("conditions".to_owned(), json!([condition]));
    }
    let is_selective =
        ["/spec/affinity", "/spec/topologySpreadConstraints"].iter().any(|at| pod.pointer(at).is_some());
    let labels = if is_selective { pod["metadata"]["labels"].clone() } else { Value::Null };
    for pointer in ["/spec/affinity/podAffinity", "/spec/affinity/podAntiAffinity", "/spec"] {
        let Some(holder) = pod.pointer_mut(pointer).filter(|holder| holder.is_object()) else { continue };
        for list in [
            "requiredDuringSchedulingIgnoredDuringExecution",
            "preferredDuringSchedulingIgnoredDuringExecution",
            "topologySpreadConstraints",
        ] {
            for term in holder.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
                let term = if term["podAffinityTerm"].is_null() {
                    Some(term)
                } else {
                    term.get_mut("podAffinityTerm")
                };
                term.into_iter().for_each(|term| select_by_own_labels(term, &labels));
            }
        }
    }
    if pod
        .pointer("/spec/terminationGracePeriodSeconds")
        .and_then(Value::as_i64)
        .is_some_and(|period| period < 0)
    {
        map_mut(pod, "spec").insert("terminationGracePeriodSeconds".to_owned(), json!(1));
    }
}

/// The conditions of a request for a certificate say when they were set and when they changed.
pub(crate) fn date_conditions(context: &StrategyContext<'_>, new: &mut Value, old: &Value) {
    let now = json!(seconds(context.now));
    let before = old.pointer("/status/conditions").and_then(Value::as_array).cloned().unwrap_or_default();
    let conditions = map_mut(new, "status").get_mut("conditions").and_then(Value::as_array_mut);
    for condition in conditions.into_iter().flatten().filter_map(Value::as_object_mut) {
        condition.entry("lastUpdateTime").or_insert_with(|| now.clone());
        let same = before.iter().find(|other| {
            Some(&other["type"]) == condition.get("type") && Some(&other["status"]) == condition.get("status")
        });
        let since = same.map_or_else(|| now.clone(), |same| same["lastTransitionTime"].clone());
        condition.entry("lastTransitionTime").or_insert(since);
    }
}

/// A new volume is protected, and has been in its phase since now.
pub(crate) fn new_volume(context: &StrategyContext<'_>, object: &mut Value) {
    protect(object, "kubernetes.io/pv-protection");
    let now = seconds(context.now);
    as_map(object).insert("status".to_owned(), json!({"phase": "Pending", "lastPhaseTransitionTime": now}));
}

/// The time of a volume's phase is that of its last change, unless the writer knows better.
pub(crate) fn date_phase(context: &StrategyContext<'_>, new: &mut Value, old: &Value) {
    let (phase, time) = ("/status/phase", "/status/lastPhaseTransitionTime");
    if new.pointer(phase) != old.pointer(phase) && new.pointer(time) == old.pointer(time) {
        let now = seconds(context.now);
        map_mut(new, "status").insert("lastPhaseTransitionTime".to_owned(), json!(now));
    }
}

/// No other server answers for a group here, so one that is announced is not available.
pub(crate) fn announce_group(context: &StrategyContext<'_>, object: &mut Value) {
    let place = |field: &str| text(object, &format!("/spec/service/{field}")).to_owned();
    let (namespace, name) = (place("namespace"), place("name"));
    if name.is_empty() || context.store.get("Service", &Key::new(&namespace, &name)).is_some() {
        return;
    }
    let condition = json!({
        "type": "Available",
        "status": "False",
        "reason": "ServiceNotFound",
        "message": format!("service/{name} in {namespace:?} is not present"),
        "lastTransitionTime": seconds(context.now),
    });
    as_map(object).insert("status".to_owned(), json!({"conditions": [condition]}));
}

/// An update leaves the spec alone.
pub(crate) fn keep_spec(new: &mut Value, old: &Value) {
    copy_field(as_map(new), Some(old), "spec");
}

/// No pod is bound to a new node before it was found to be ready (the admission plugin
/// TaintNodesByCondition, plugin/pkg/admission/nodetaint).
pub(crate) fn taint_by_condition(_context: &StrategyContext<'_>, object: &mut Value) {
    let taint = json!({"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"});
    let taints = map_mut(object, "spec").entry("taints").or_insert(Value::Null);
    let mut all = taints.as_array().cloned().unwrap_or_default();
    let is_there = |other: &Value| other["key"] == taint["key"] && other["effect"] == taint["effect"];
    if !all.iter().any(is_there) {
        all.push(taint);
        *taints = Value::Array(all);
    }
}

/// A write through the object's own path: everything but the status and system metadata.
pub(super) fn prepare_update(context: &StrategyContext<'_>, kind: &Kind, new: &mut Value, old: &Value) {
    keep_system_metadata(new, old);
    if kind.has(Subresource::Status) {
        copy_field(as_map(new), Some(old), "status");
    }
    (kind.on_update)(context, new, old);
}

/// Raises the generation if what it counts has changed. Called after defaulting, so that a default
/// that a client leaves out is no change.
pub(super) fn bump_generation(kind: &Kind, new: &mut Value, old: &Value) {
    let content = |object: &Value| {
        let mut content = object.clone();
        as_map(&mut content).remove("metadata");
        if kind.has(Subresource::Status) {
            as_map(&mut content).remove("status");
        }
        content
    };
    let changed = match kind.generation {
        Generation::None => false,
        Generation::Content => content(new) != content(old),
        Generation::Spec => new.get("spec") != old.get("spec"),
        Generation::SpecAndAnnotations => {
            new.get("spec") != old.get("spec")
                || new.pointer("/metadata/annotations") != old.pointer("/metadata/annotations")
        }
    };
    if changed {
        let generation = old.pointer("/metadata/generation").and_then(Value::as_i64).unwrap_or_default();
        set_meta(new, "generation", generation.saturating_add(1));
    }
    (kind.after_update)(new, old);
}

/// A new object has no generation, but a changed one has.
pub(crate) fn count_changes(new: &mut Value, old: &Value) {
    if new.get("spec") != old.get("spec") {
        let before = old.pointer("/metadata/generation").and_then(Value::as_i64).unwrap_or_default();
        set_meta(new, "generation", before.saturating_add(1));
    }
}

/// A write through `/status`. What else than the status gets through differs by kind, and clients rely
/// on it: the Deployment controller writes its revision annotation this way.
pub(super) fn prepare_status(context: &StrategyContext<'_>, kind: &Kind, new: &mut Value, old: &Value) {
    if kind.custom.is_some() {
        // Nothing but the status, and who owns it.
        let mut kept = old.clone();
        copy_field(as_map(&mut kept), Some(new), "status");
        copy_field(metadata_mut(&mut kept), new.get("metadata"), "managedFields");
        *new = kept;
        return;
    }
    keep_system_metadata(new, old);
    copy_field(as_map(new), Some(old), "spec");
    (kind.on_status)(context, new, old);
    (kind.status_form)(new);
}

/// The status of a Deployment comes with annotations, but not with labels.
pub(crate) fn keep_labels(_context: &StrategyContext<'_>, new: &mut Value, old: &Value) {
    copy_field(metadata_mut(new), old.get("metadata"), "labels");
}

/// The status of a pod changes neither its owners nor its quality of service.
pub(crate) fn keep_owners_and_class(_context: &StrategyContext<'_>, new: &mut Value, old: &Value) {
    copy_field(metadata_mut(new), old.get("metadata"), "ownerReferences");
    copy_field(map_mut(new, "status"), old.get("status"), "qosClass");
}

/// A write through `/finalize`: the namespace's `spec.finalizers`, and its metadata.
pub(super) fn prepare_finalize(new: &mut Value, old: &Value) {
    keep_system_metadata(new, old);
    copy_field(as_map(new), Some(old), "status");
}

/// Only a DELETE sets when an object is to go. Of an object that is going, a write may leave both fields out, and change
/// neither.
pub(super) fn deletion_errors(new: &Value, old: &Value) -> Vec<FieldError> {
    let is_deleting = old.pointer("/metadata/deletionTimestamp").is_some();
    let fields = [("deletionTimestamp", is_deleting), ("deletionGracePeriodSeconds", false)];
    let moved = |(field, is_kept): (&str, bool)| {
        let value = new["metadata"]
            .get(field)
            .filter(|value| !is_kept && old["metadata"].get(field) != Some(value))?;
        Some(FieldError {
            field: format!("metadata.{field}"),
            reason: "FieldValueInvalid",
            detail: format!("Invalid value: {value}: field is immutable"),
        })
    };
    fields.into_iter().filter_map(moved).collect()
}

fn keep_system_metadata(new: &mut Value, old: &Value) {
    let metadata = metadata_mut(new);
    for field in SYSTEM_METADATA {
        copy_field(metadata, old.get("metadata"), field);
    }
}

/// A timestamp as the API writes it: whole seconds.
pub(super) fn seconds(now: jiff::Timestamp) -> String {
    jiff::Timestamp::from_second(now.as_second()).unwrap_or(now).to_string()
}

/// A new namespace is active, has the finalizer of the namespace controller, and can be selected by its name.
pub(crate) fn new_namespace(_context: &StrategyContext<'_>, object: &mut Value) {
    as_map(object).insert("status".to_owned(), json!({"phase": "Active"}));
    own_namespace_finalizer(object);
    label_with_name(object);
}

/// The finalizers of a namespace change through `/finalize` only.
pub(crate) fn keep_namespace_spec(new: &mut Value, old: &Value) {
    copy_field(as_map(new), Some(old), "spec");
    label_with_name(new);
}

fn own_namespace_finalizer(object: &mut Value) {
    let spec = map_mut(object, "spec");
    let present = strings(spec.get("finalizers")).contains(&"kubernetes");
    if !present {
        let mut finalizers: Vec<Value> =
            strings(spec.get("finalizers")).into_iter().map(Value::from).collect();
        finalizers.push(json!("kubernetes"));
        spec.insert("finalizers".to_owned(), Value::Array(finalizers));
    }
}

/// Every namespace can be selected by its name (KEP-2161).
fn label_with_name(object: &mut Value) {
    let name = text(object, "/metadata/name").to_owned();
    let metadata = metadata_mut(object);
    let labels = as_map(metadata.entry("labels").or_insert_with(|| json!({})));
    labels.insert("kubernetes.io/metadata.name".to_owned(), json!(name));
}
