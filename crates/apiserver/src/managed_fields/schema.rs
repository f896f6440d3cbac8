//! Which lists of the served kinds are maps by keys or have no repetition, and which objects and lists are one value
//! (`listType`, `listMapKey` and `mapType` of the API types).
//!
//! Only the exceptions are listed: an object that is not listed is owned field by field, a list that is not listed is one
//! value.

use serde_json::Value;

/// How the parts of a field are owned.
#[derive(Clone, Copy, Debug)]
pub(super) enum Shape {
    /// An object field by field; anything else as one value.
    Granular(&'static Schema),
    /// One value, whatever is in it.
    Atomic,
    /// A list of objects that are the same if they agree in all keys.
    Map { keys: &'static [Key], item: &'static Schema },
    /// A list of primitives without repetition.
    Set,
}

/// A field that tells the elements of a list apart.
#[derive(Clone, Copy, Debug)]
pub(super) struct Key {
    pub(super) name: &'static str,
    /// Its value where it is absent; "" for none.
    default: &'static str,
}

impl Key {
    /// Its value in an element, if it has one.
    pub(super) fn of(self, item: &Value) -> Option<Value> {
        match item.get(self.name) {
            Some(value) if !value.is_null() => Some(value.clone()),
            _ if !self.default.is_empty() => Some(self.default.into()),
            _ => None,
        }
    }
}

/// The fields of an object that need more than the rule for unlisted ones.
#[derive(Debug)]
pub(crate) struct Schema(&'static [(&'static str, Shape)]);

impl Schema {
    pub(super) fn field(&self, name: &str) -> Shape {
        self.0.iter().find(|(field, _)| *field == name).map_or(Shape::Granular(&PLAIN), |(_, shape)| *shape)
    }
}

/// The schema of a kind.
pub(super) fn of(kind: &str) -> &'static Schema {
    match kind {
        "DaemonSet" | "Deployment" | "ReplicaSet" | "ReplicationController" | "StatefulSet" => &WORKLOAD,
        "Pod" => &POD,
        "Service" => &SERVICE,
        "ServiceAccount" => &SERVICE_ACCOUNT,
        "Namespace" | "FlowSchema" => &WITH_CONDITIONS,
        "Node" => &NODE,
        "NetworkPolicy" => &NETWORK_POLICY,
        "PodDisruptionBudget" => &BUDGET,
        "RoleBinding" | "ClusterRoleBinding" => &ROLE_BINDING,
        "PersistentVolumeClaim" => &CLAIM,
        "ValidatingAdmissionPolicy" => &ADMISSION_POLICY,
        "ValidatingAdmissionPolicyBinding" => &ADMISSION_POLICY_BINDING,
        _ => &METADATA_ONLY,
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
        Some("set") => Some(Shape::Set),
        Some("map") => {
            let names = document["x-kubernetes-list-map-keys"].as_array().into_iter().flatten();
            let key = |name: &str| Key {
                name: name.to_owned().leak(),
                default: item["properties"][name]["default"].as_str().unwrap_or_default().to_owned().leak(),
            };
            let keys: Vec<Key> = names.filter_map(Value::as_str).map(key).collect();
            Some(Shape::Map { keys: keys.leak(), item: leaked(fields_of(item)) })
        }
        _ => {
            let fields = fields_of(document);
            (!fields.is_empty()).then(|| Shape::Granular(leaked(fields)))
        }
    }
}

const fn key(name: &'static str) -> Key {
    Key { name, default: "" }
}

const fn by(keys: &'static [Key]) -> Shape {
    Shape::Map { keys, item: &PLAIN }
}

const fn items(keys: &'static [Key], item: &'static Schema) -> Shape {
    Shape::Map { keys, item }
}

const fn object(schema: &'static Schema) -> Shape {
    Shape::Granular(schema)
}

const NAME: &[Key] = &[key("name")];
const TYPE: &[Key] = &[key("type")];
const IP: &[Key] = &[key("ip")];
const PROTOCOL: Key = Key { name: "protocol", default: "TCP" };
const METADATA_FIELD: (&str, Shape) = ("metadata", object(&METADATA));
const CONDITIONS_FIELD: (&str, Shape) = ("status", object(&CONDITIONS));

static PLAIN: Schema = Schema(&[]);
static METADATA: Schema = Schema(&[("ownerReferences", by(&[key("uid")])), ("finalizers", Shape::Set)]);
static METADATA_ONLY: Schema = Schema(&[METADATA_FIELD]);
static CONDITIONS: Schema = Schema(&[("conditions", by(TYPE))]);
static WITH_CONDITIONS: Schema = Schema(&[METADATA_FIELD, CONDITIONS_FIELD]);

static WORKLOAD: Schema = Schema(&[METADATA_FIELD, ("spec", object(&WORKLOAD_SPEC)), CONDITIONS_FIELD]);
static WORKLOAD_SPEC: Schema = Schema(&[("selector", Shape::Atomic), ("template", object(&TEMPLATE))]);
static TEMPLATE: Schema = Schema(&[METADATA_FIELD, ("spec", object(&POD_SPEC))]);

static POD: Schema = Schema(&[METADATA_FIELD, ("spec", object(&POD_SPEC)), ("status", object(&POD_STATUS))]);
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
    ("resourceFieldRef", Shape::Atomic),
    ("secretKeyRef", Shape::Atomic),
]);
static RESOURCES: Schema = Schema(&[("claims", by(NAME))]);
static VOLUME: Schema =
    Schema(&[("csi", object(&VOLUME_CSI)), ("ephemeral", object(&PLAIN)), ("flexVolume", object(&PLAIN))]);
static VOLUME_CSI: Schema = Schema(&[("nodePublishSecretRef", Shape::Atomic)]);
static POD_STATUS: Schema =
    Schema(&[("conditions", by(TYPE)), ("podIPs", by(IP)), ("resourceClaimStatuses", by(NAME))]);

static SERVICE: Schema = Schema(&[METADATA_FIELD, ("spec", object(&SERVICE_SPEC)), CONDITIONS_FIELD]);
static SERVICE_SPEC: Schema = Schema(&[("ports", by(&[key("port"), PROTOCOL])), ("selector", Shape::Atomic)]);
static SERVICE_ACCOUNT: Schema = Schema(&[METADATA_FIELD, ("secrets", by(NAME))]);
static NODE: Schema =
    Schema(&[METADATA_FIELD, ("spec", object(&NODE_SPEC)), ("status", object(&NODE_STATUS))]);
static NODE_SPEC: Schema = Schema(&[("podCIDRs", Shape::Set)]);
static NODE_STATUS: Schema = Schema(&[("conditions", by(TYPE)), ("addresses", by(TYPE))]);
static NETWORK_POLICY: Schema = Schema(&[METADATA_FIELD, ("spec", object(&NETWORK_POLICY_SPEC))]);
static NETWORK_POLICY_SPEC: Schema = Schema(&[("podSelector", Shape::Atomic)]);
static BUDGET: Schema = Schema(&[METADATA_FIELD, ("spec", object(&SELECTING)), CONDITIONS_FIELD]);
static SELECTING: Schema = Schema(&[("selector", Shape::Atomic)]);
static ROLE_BINDING: Schema = Schema(&[METADATA_FIELD, ("roleRef", Shape::Atomic)]);
static CLAIM: Schema = Schema(&[METADATA_FIELD, ("spec", object(&CLAIM_SPEC)), CONDITIONS_FIELD]);
static CLAIM_SPEC: Schema = Schema(&[("dataSource", Shape::Atomic), ("selector", Shape::Atomic)]);
static ADMISSION_POLICY: Schema =
    Schema(&[METADATA_FIELD, ("spec", object(&ADMISSION_POLICY_SPEC)), CONDITIONS_FIELD]);
static ADMISSION_POLICY_SPEC: Schema = Schema(&[
    ("matchConditions", by(NAME)),
    ("matchConstraints", Shape::Atomic),
    ("paramKind", Shape::Atomic),
    ("variables", by(NAME)),
]);
static ADMISSION_POLICY_BINDING: Schema = Schema(&[METADATA_FIELD, ("spec", object(&BINDING_SPEC))]);
static BINDING_SPEC: Schema = Schema(&[
    ("matchResources", Shape::Atomic),
    ("paramRef", Shape::Atomic),
    ("validationActions", Shape::Set),
]);
