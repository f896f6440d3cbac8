//! Which lists of the served kinds merge, and by which key.
//!
//! Only what merges is listed: an object that is not listed merges field by field, a list that is not
//! listed is replaced as a whole.

/// The fields of an object that need more than the rule for unlisted ones.
pub(super) struct Schema(&'static [(&'static str, Field)]);

/// How a field of a patch meets the field of the object.
#[derive(Clone, Copy)]
pub(super) enum Field {
    /// Objects merge by this schema; lists are replaced.
    Object(&'static Schema),
    /// A list of objects that are the same if they agree in `key`.
    List {
        /// The merge key.
        key: &'static str,
        /// The schema of an element.
        item: &'static Schema,
    },
    /// A list of primitives without repetition.
    Set,
}

impl Schema {
    pub(super) fn field(&self, name: &str) -> Field {
        self.0.iter().find(|(field, _)| *field == name).map_or(Field::Object(&PLAIN), |(_, field)| *field)
    }
}

pub(super) fn of(kind: &str) -> &'static Schema {
    match kind {
        "DaemonSet" | "Deployment" | "ReplicaSet" | "ReplicationController" | "StatefulSet" => &WORKLOAD,
        "Pod" => &POD,
        "Service" => &SERVICE,
        "ServiceAccount" => &SERVICE_ACCOUNT,
        "Namespace" => &NAMESPACE,
        "Node" => &NODE,
        "ValidatingAdmissionPolicy" => &ADMISSION_POLICY,
        _ => &METADATA_ONLY,
    }
}

const fn list(key: &'static str) -> Field {
    Field::List { key, item: &PLAIN }
}

const fn items(key: &'static str, item: &'static Schema) -> Field {
    Field::List { key, item }
}

const METADATA_FIELD: (&str, Field) = ("metadata", Field::Object(&METADATA));

static PLAIN: Schema = Schema(&[]);
static METADATA: Schema = Schema(&[("ownerReferences", list("uid")), ("finalizers", Field::Set)]);
static METADATA_ONLY: Schema = Schema(&[METADATA_FIELD]);
static CONDITIONS: Schema = Schema(&[("conditions", list("type"))]);

static WORKLOAD: Schema = Schema(&[
    METADATA_FIELD,
    ("spec", Field::Object(&WORKLOAD_SPEC)),
    ("status", Field::Object(&CONDITIONS)),
]);
static WORKLOAD_SPEC: Schema = Schema(&[("template", Field::Object(&TEMPLATE))]);
static TEMPLATE: Schema = Schema(&[METADATA_FIELD, ("spec", Field::Object(&POD_SPEC))]);

static POD: Schema =
    Schema(&[METADATA_FIELD, ("spec", Field::Object(&POD_SPEC)), ("status", Field::Object(&POD_STATUS))]);
static POD_SPEC: Schema = Schema(&[
    ("containers", items("name", &CONTAINER)),
    ("initContainers", items("name", &CONTAINER)),
    ("ephemeralContainers", items("name", &CONTAINER)),
    ("volumes", list("name")),
    ("imagePullSecrets", list("name")),
    ("hostAliases", list("ip")),
    ("topologySpreadConstraints", list("topologyKey")),
    ("schedulingGates", list("name")),
    ("resourceClaims", list("name")),
]);
static CONTAINER: Schema = Schema(&[
    ("ports", list("containerPort")),
    ("env", list("name")),
    ("volumeMounts", list("mountPath")),
    ("volumeDevices", list("devicePath")),
]);
static POD_STATUS: Schema = Schema(&[
    ("conditions", list("type")),
    ("podIPs", list("ip")),
    ("hostIPs", list("ip")),
    ("resourceClaimStatuses", list("name")),
]);

static SERVICE: Schema =
    Schema(&[METADATA_FIELD, ("spec", Field::Object(&SERVICE_SPEC)), ("status", Field::Object(&CONDITIONS))]);
static SERVICE_SPEC: Schema = Schema(&[("ports", list("port"))]);
static SERVICE_ACCOUNT: Schema = Schema(&[METADATA_FIELD, ("secrets", list("name"))]);
static NAMESPACE: Schema = Schema(&[METADATA_FIELD, ("status", Field::Object(&CONDITIONS))]);
static NODE: Schema =
    Schema(&[METADATA_FIELD, ("spec", Field::Object(&NODE_SPEC)), ("status", Field::Object(&NODE_STATUS))]);
static NODE_SPEC: Schema = Schema(&[("podCIDRs", Field::Set)]);
static NODE_STATUS: Schema = Schema(&[("conditions", list("type")), ("addresses", list("type"))]);
static ADMISSION_POLICY: Schema = Schema(&[METADATA_FIELD, ("spec", Field::Object(&ADMISSION_POLICY_SPEC))]);
static ADMISSION_POLICY_SPEC: Schema =
    Schema(&[("matchConditions", list("name")), ("variables", list("name"))]);
