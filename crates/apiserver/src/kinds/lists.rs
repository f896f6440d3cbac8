//! Which lists of the served kinds are maps by keys or have no repetition, and which objects and lists are one value
//! (`listType`, `listMapKey`, `mapType`, `patchStrategy` and `patchMergeKey` of the API types). Server-side apply goes by
//! them, and strategic merge patches do.
//!
//! Only the exceptions are listed: an object that is not listed is owned and merged field by field, a list that is not
//! listed is one value.

use serde_json::Value;

/// How the parts of a field are owned, and how a patch meets them.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Shape {
    /// An object field by field; anything else as one value.
    Granular(&'static Schema),
    /// One value, whatever is in it. A strategic merge patch looks into it all the same.
    Atomic,
    /// One value, which a strategic merge patch replaces.
    Replaced,
    /// A list of objects that are the same if they agree in all keys. In a strategic merge patch the first key tells them
    /// apart, if the list `merges` there; else the patch replaces the list.
    Map { keys: &'static [Key], item: &'static Schema, merges: bool },
    /// A list of primitives without repetition.
    Set { merges: bool },
    /// A list that is one value, but whose elements a strategic merge patch tells apart by this field.
    Merged(&'static str),
}

/// A field that tells the elements of a list apart.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Key {
    pub(crate) name: &'static str,
    /// Its value where it is absent. Each one of a built-in kind has one: it is the zero value of Go.
    default: Option<&'static str>,
}

impl Key {
    /// Its value in an element, if it has one.
    pub(crate) fn of(self, item: &Value) -> Option<Value> {
        match item.get(self.name) {
            Some(value) if !value.is_null() => Some(value.clone()),
            _ => self.default.map(Value::from),
        }
    }
}

/// The fields of an object that need more than the rule for unlisted ones.
#[derive(Debug)]
pub(crate) struct Schema(&'static [(&'static str, Shape)]);

impl Schema {
    pub(crate) fn field(&self, name: &str) -> Shape {
        self.0.iter().find(|(field, _)| *field == name).map_or(Shape::Granular(&PLAIN), |(_, shape)| *shape)
    }
}

/// The schema of a custom kind. It lives as long as the row of the kind: for ever.
pub(crate) fn of_document(document: &Value) -> &'static Schema {
    let mut fields = fields_of(document);
    fields.retain(|(name, _)| *name != "metadata");
    fields.push(METADATA_FIELD);
    leaked(fields)
}

fn leaked(fields: Vec<(&'static str, Shape)>) -> &'static Schema {
    Box::leak(Box::new(Schema(fields.leak())))
}

fn fields_of(document: &Value) -> Vec<(&'static str, Shape)> {
    let properties = document["properties"].as_object().into_iter().flatten();
    properties.filter_map(|(name, property)| Some((&*name.clone().leak(), shape_of(property)?))).collect()
}

/// None for what the rule for unlisted fields says anyway.
fn shape_of(document: &Value) -> Option<Shape> {
    let item = &document["items"];
    if document["x-kubernetes-map-type"] == "atomic" {
        return Some(Shape::Atomic);
    }
    match document["x-kubernetes-list-type"].as_str() {
        Some("set") => Some(Shape::Set { merges: false }),
        Some("map") => {
            let names = document["x-kubernetes-list-map-keys"].as_array().into_iter().flatten();
            let key = |name: &str| Key {
                name: name.to_owned().leak(),
                default: item["properties"][name]["default"].as_str().map(|text| &*text.to_owned().leak()),
            };
            let keys: Vec<Key> = names.filter_map(Value::as_str).map(key).collect();
            Some(Shape::Map { keys: keys.leak(), item: leaked(fields_of(item)), merges: false })
        }
        _ => {
            let fields = fields_of(document);
            (!fields.is_empty()).then(|| Shape::Granular(leaked(fields)))
        }
    }
}

const fn key(name: &'static str) -> Key {
    Key { name, default: Some("") }
}

const fn by(keys: &'static [Key]) -> Shape {
    items(keys, &PLAIN)
}

const fn items(keys: &'static [Key], item: &'static Schema) -> Shape {
    Shape::Map { keys, item, merges: true }
}

/// A list whose elements only server-side apply tells apart.
const fn owned_by(keys: &'static [Key]) -> Shape {
    Shape::Map { keys, item: &PLAIN, merges: false }
}

const fn object(schema: &'static Schema) -> Shape {
    Shape::Granular(schema)
}

const NAME: &[Key] = &[key("name")];
const TYPE: &[Key] = &[key("type")];
const IP: &[Key] = &[key("ip")];
const PROTOCOL: Key = Key { name: "protocol", default: Some("TCP") };
const METADATA_FIELD: (&str, Shape) = ("metadata", object(&METADATA));
const CONDITIONS_FIELD: (&str, Shape) = ("status", object(&CONDITIONS));
const OWNED_CONDITIONS_FIELD: (&str, Shape) = ("status", object(&OWNED_CONDITIONS));

pub(crate) static PLAIN: Schema = Schema(&[]);
static METADATA: Schema =
    Schema(&[("ownerReferences", by(&[key("uid")])), ("finalizers", Shape::Set { merges: true })]);
pub(super) static METADATA_ONLY: Schema = Schema(&[METADATA_FIELD]);
static CONDITIONS: Schema = Schema(&[("conditions", by(TYPE))]);
static OWNED_CONDITIONS: Schema = Schema(&[("conditions", owned_by(TYPE))]);
pub(super) static WITH_CONDITIONS: Schema = Schema(&[METADATA_FIELD, CONDITIONS_FIELD]);
/// The conditions of kinds that are younger than `patchStrategy`.
pub(super) static WITH_OWNED_CONDITIONS: Schema = Schema(&[METADATA_FIELD, OWNED_CONDITIONS_FIELD]);

pub(super) static WORKLOAD: Schema =
    Schema(&[METADATA_FIELD, ("spec", object(&WORKLOAD_SPEC)), CONDITIONS_FIELD]);
static WORKLOAD_SPEC: Schema = Schema(&[("selector", Shape::Atomic), ("template", object(&TEMPLATE))]);
static TEMPLATE: Schema = Schema(&[METADATA_FIELD, ("spec", object(&POD_SPEC))]);

pub(super) static POD: Schema =
    Schema(&[METADATA_FIELD, ("spec", object(&POD_SPEC)), ("status", object(&POD_STATUS))]);
static POD_SPEC: Schema = Schema(&[
    ("containers", items(NAME, &CONTAINER)),
    ("initContainers", items(NAME, &CONTAINER)),
    ("ephemeralContainers", items(NAME, &CONTAINER)),
    ("volumes", items(NAME, &VOLUME)),
    ("imagePullSecrets", by(NAME)),
    ("hostAliases", by(IP)),
    ("topologySpreadConstraints", items(&[key("topologyKey"), key("whenUnsatisfiable")], &SPREAD)),
    ("schedulingGates", by(NAME)),
    ("resourceClaims", by(NAME)),
    ("nodeSelector", Shape::Atomic),
    ("affinity", object(&AFFINITY)),
    ("resources", object(&RESOURCES)),
]);
static SPREAD: Schema = Schema(&[("labelSelector", Shape::Atomic)]);
static AFFINITY: Schema = Schema(&[("nodeAffinity", object(&NODE_AFFINITY))]);
static NODE_AFFINITY: Schema = Schema(&[("requiredDuringSchedulingIgnoredDuringExecution", Shape::Atomic)]);
static CONTAINER: Schema = Schema(&[
    ("ports", by(&[key("containerPort"), PROTOCOL])),
    ("env", items(NAME, &ENV)),
    ("volumeMounts", by(&[key("mountPath")])),
    ("volumeDevices", by(&[key("devicePath")])),
    ("resources", object(&RESOURCES)),
]);
static ENV: Schema = Schema(&[("valueFrom", object(&ENV_SOURCE))]);
static ENV_SOURCE: Schema = Schema(&[
    ("configMapKeyRef", Shape::Atomic),
    ("fieldRef", Shape::Atomic),
    ("fileKeyRef", Shape::Atomic),
    ("resourceFieldRef", Shape::Atomic),
    ("secretKeyRef", Shape::Atomic),
]);
static RESOURCES: Schema = Schema(&[("claims", owned_by(NAME))]);
static VOLUME: Schema = Schema(&[
    ("cephfs", object(&SECRET_REF)),
    ("cinder", object(&SECRET_REF)),
    ("csi", object(&VOLUME_CSI)),
    ("ephemeral", object(&EPHEMERAL)),
    ("flexVolume", object(&SECRET_REF)),
    ("iscsi", object(&SECRET_REF)),
    ("rbd", object(&SECRET_REF)),
    ("scaleIO", object(&SECRET_REF)),
    ("storageos", object(&SECRET_REF)),
]);
static SECRET_REF: Schema = Schema(&[("secretRef", Shape::Atomic)]);
static VOLUME_CSI: Schema = Schema(&[("nodePublishSecretRef", Shape::Atomic)]);
static EPHEMERAL: Schema = Schema(&[("volumeClaimTemplate", object(&CLAIM))]);
static POD_STATUS: Schema = Schema(&[
    ("conditions", by(TYPE)),
    ("hostIPs", Shape::Merged("ip")),
    ("podIPs", by(IP)),
    ("resourceClaimStatuses", by(NAME)),
    ("resources", object(&RESOURCES)),
]);

pub(super) static SERVICE: Schema =
    Schema(&[METADATA_FIELD, ("spec", object(&SERVICE_SPEC)), CONDITIONS_FIELD]);
static SERVICE_SPEC: Schema = Schema(&[("ports", by(&[key("port"), PROTOCOL])), ("selector", Shape::Atomic)]);
pub(super) static SERVICE_ACCOUNT: Schema = Schema(&[METADATA_FIELD, ("secrets", by(NAME))]);
pub(super) static EVENT: Schema =
    Schema(&[METADATA_FIELD, ("involvedObject", Shape::Atomic), ("related", Shape::Atomic)]);
pub(super) static NODE: Schema =
    Schema(&[METADATA_FIELD, ("spec", object(&NODE_SPEC)), ("status", object(&NODE_STATUS))]);
static NODE_SPEC: Schema = Schema(&[("podCIDRs", Shape::Set { merges: true })]);
static NODE_STATUS: Schema = Schema(&[("conditions", by(TYPE)), ("addresses", by(TYPE))]);
pub(super) static QUOTA: Schema = Schema(&[METADATA_FIELD, ("spec", object(&QUOTA_SPEC))]);
static QUOTA_SPEC: Schema = Schema(&[("scopeSelector", Shape::Atomic)]);
pub(super) static VOLUME_OBJECT: Schema = Schema(&[METADATA_FIELD, ("spec", object(&PERSISTENT_VOLUME))]);
static PERSISTENT_VOLUME: Schema = Schema(&[
    ("cephfs", object(&SECRET_REF)),
    ("cinder", object(&SECRET_REF)),
    ("csi", object(&PERSISTENT_CSI)),
    ("flexVolume", object(&SECRET_REF)),
    ("iscsi", object(&SECRET_REF)),
    ("nodeAffinity", object(&VOLUME_NODE_AFFINITY)),
    ("rbd", object(&SECRET_REF)),
    ("scaleIO", object(&SECRET_REF)),
    ("storageos", object(&SECRET_REF)),
]);
static PERSISTENT_CSI: Schema = Schema(&[
    ("controllerExpandSecretRef", Shape::Atomic),
    ("controllerPublishSecretRef", Shape::Atomic),
    ("nodeExpandSecretRef", Shape::Atomic),
    ("nodePublishSecretRef", Shape::Atomic),
    ("nodeStageSecretRef", Shape::Atomic),
]);
static VOLUME_NODE_AFFINITY: Schema = Schema(&[("required", Shape::Atomic)]);
pub(super) static CLAIM: Schema = Schema(&[METADATA_FIELD, ("spec", object(&CLAIM_SPEC)), CONDITIONS_FIELD]);
static CLAIM_SPEC: Schema = Schema(&[("dataSource", Shape::Atomic), ("selector", Shape::Atomic)]);

pub(super) static POD_TEMPLATE: Schema = Schema(&[METADATA_FIELD, ("template", object(&TEMPLATE))]);
pub(super) static JOB: Schema =
    Schema(&[METADATA_FIELD, ("spec", object(&WORKLOAD_SPEC)), ("status", object(&JOB_STATUS))]);
static JOB_STATUS: Schema =
    Schema(&[("conditions", Shape::Merged("type")), ("uncountedTerminatedPods", object(&UNCOUNTED))]);
static UNCOUNTED: Schema =
    Schema(&[("failed", Shape::Set { merges: false }), ("succeeded", Shape::Set { merges: false })]);
pub(super) static CRON_JOB: Schema = Schema(&[METADATA_FIELD, ("spec", object(&CRON_JOB_SPEC))]);
static CRON_JOB_SPEC: Schema = Schema(&[("jobTemplate", object(&JOB_TEMPLATE))]);
static JOB_TEMPLATE: Schema = Schema(&[METADATA_FIELD, ("spec", object(&WORKLOAD_SPEC))]);

pub(super) static AUTOSCALER_V1: Schema = Schema(&[METADATA_FIELD, ("spec", object(&SCALING))]);
static SCALING: Schema = Schema(&[("scaleTargetRef", Shape::Atomic)]);

pub(super) static INGRESS: Schema = Schema(&[METADATA_FIELD, ("spec", object(&INGRESS_SPEC))]);
static INGRESS_SPEC: Schema = Schema(&[("defaultBackend", object(&BACKEND))]);
static BACKEND: Schema = Schema(&[("resource", Shape::Atomic), ("service", object(&BACKEND_SERVICE))]);
static BACKEND_SERVICE: Schema = Schema(&[("port", Shape::Atomic)]);
pub(super) static NETWORK_POLICY: Schema = Schema(&[METADATA_FIELD, ("spec", object(&NETWORK_POLICY_SPEC))]);
static NETWORK_POLICY_SPEC: Schema = Schema(&[("podSelector", Shape::Atomic)]);
pub(super) static BUDGET: Schema = Schema(&[METADATA_FIELD, ("spec", object(&SELECTING)), CONDITIONS_FIELD]);
static SELECTING: Schema = Schema(&[("selector", Shape::Replaced)]);
pub(super) static ROLE_BINDING: Schema = Schema(&[METADATA_FIELD, ("roleRef", Shape::Atomic)]);

pub(super) static RUNTIME_CLASS: Schema = Schema(&[METADATA_FIELD, ("scheduling", object(&SCHEDULING))]);
static SCHEDULING: Schema = Schema(&[("nodeSelector", Shape::Atomic)]);
pub(super) static CSI_DRIVER: Schema = Schema(&[METADATA_FIELD, ("spec", object(&CSI_DRIVER_SPEC))]);
static CSI_DRIVER_SPEC: Schema = Schema(&[("volumeLifecycleModes", Shape::Set { merges: false })]);
pub(super) static CSI_NODE: Schema = Schema(&[METADATA_FIELD, ("spec", object(&CSI_NODE_SPEC))]);
static CSI_NODE_SPEC: Schema = Schema(&[("drivers", by(NAME))]);
pub(super) static CSI_CAPACITY: Schema = Schema(&[METADATA_FIELD, ("nodeTopology", Shape::Atomic)]);
pub(super) static ATTACHMENT: Schema = Schema(&[METADATA_FIELD, ("spec", object(&ATTACHMENT_SPEC))]);
static ATTACHMENT_SPEC: Schema = Schema(&[("source", object(&ATTACHMENT_SOURCE))]);
static ATTACHMENT_SOURCE: Schema = Schema(&[("inlineVolumeSpec", object(&PERSISTENT_VOLUME))]);
pub(super) static RESOURCE_CLAIM: Schema =
    Schema(&[METADATA_FIELD, ("status", object(&RESOURCE_CLAIM_STATUS))]);
static RESOURCE_CLAIM_STATUS: Schema = Schema(&[
    ("allocation", object(&SCHEDULING)),
    (
        "devices",
        Shape::Map {
            keys: &[key("driver"), key("device"), key("pool"), key("shareID")],
            item: &OWNED_CONDITIONS,
            merges: false,
        },
    ),
    ("reservedFor", by(&[key("uid")])),
]);
pub(super) static RESOURCE_SLICE: Schema = Schema(&[METADATA_FIELD, ("spec", object(&SCHEDULING))]);
pub(super) static WEBHOOKS: Schema = Schema(&[METADATA_FIELD, ("webhooks", items(NAME, &WEBHOOK))]);
static WEBHOOK: Schema = Schema(&[
    ("matchConditions", by(NAME)),
    ("namespaceSelector", Shape::Atomic),
    ("objectSelector", Shape::Atomic),
]);

pub(super) static ADMISSION_POLICY: Schema =
    Schema(&[METADATA_FIELD, ("spec", object(&ADMISSION_POLICY_SPEC)), OWNED_CONDITIONS_FIELD]);
static ADMISSION_POLICY_SPEC: Schema = Schema(&[
    ("matchConditions", by(NAME)),
    ("matchConstraints", Shape::Atomic),
    ("paramKind", Shape::Atomic),
    ("variables", by(NAME)),
]);
pub(super) static ADMISSION_POLICY_BINDING: Schema =
    Schema(&[METADATA_FIELD, ("spec", object(&ADMISSION_BINDING_SPEC))]);
static ADMISSION_BINDING_SPEC: Schema = Schema(&[
    ("matchResources", Shape::Atomic),
    ("paramRef", Shape::Atomic),
    ("validationActions", Shape::Set { merges: false }),
]);
