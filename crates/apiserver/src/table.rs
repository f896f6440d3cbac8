//! The output of `kubectl get`: the columns and cells of server-side tables
//! (upstream `pkg/printers/internalversion/printers.go`).
//!
//! Columns of priority 1 show up with `-o wide` only. Cells are in the order of the columns.

pub(crate) mod cluster;
mod pod;
pub(crate) mod workloads;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::kinds::{self, Kind};
use super::selector::LabelSelector;
pub(crate) use pod::{COLUMNS as POD, cells as pod};

/// The column definitions for a kind.
pub fn columns(kind: &str) -> Value {
    columns_of(kinds::named(kind))
}

/// [`columns`] for a built-in kind.
pub(crate) fn columns_of(kind: &Kind) -> Value {
    let column = |column: &&str| {
        let (priority, column) = column.strip_prefix('*').map_or((0, *column), |rest| (1, rest));
        let (kind, name) = match column.split_at_checked(1) {
            Some(("#", name)) => ("integer", name),
            Some(("?", name)) => ("boolean", name),
            Some(("@", name)) => ("date", name),
            _ => ("string", column),
        };
        json!({
            "name": name,
            "type": kind,
            "format": if name == "Name" { "name" } else { "" },
            "description": "",
            "priority": priority,
        })
    };
    kind.columns.iter().map(column).collect()
}

/// The cells of one object's row. `now` is what ages are counted to.
pub fn cells(kind: &str, object: &Value, now: Timestamp) -> Vec<Value> {
    cells_of(kinds::named(kind), object, now)
}

/// [`cells`] for a built-in kind.
pub(crate) fn cells_of(kind: &Kind, object: &Value, now: Timestamp) -> Vec<Value> {
    (kind.cells)(&Row { object, now })
}

/// An object whose cells are made.
pub(crate) struct Row<'a> {
    object: &'a Value,
    now: Timestamp,
}

impl Row<'_> {
    /// The value at a JSON pointer, or null.
    pub(crate) fn at(&self, pointer: &str) -> &Value {
        self.object.pointer(pointer).unwrap_or(&Value::Null)
    }

    pub(crate) fn name(&self) -> Value {
        self.text("/metadata/name")
    }

    pub(crate) fn age(&self) -> Value {
        since(self.at("/metadata/creationTimestamp"), self.now).into()
    }

    /// Absent is "".
    pub(crate) fn text(&self, pointer: &str) -> Value {
        self.at(pointer).as_str().unwrap_or_default().into()
    }

    /// The text, or another one where there is none.
    pub(crate) fn text_or(&self, pointer: &str, absent: &str) -> Value {
        match self.at(pointer).as_str() {
            Some(text) if !text.is_empty() => text.into(),
            _ => absent.into(),
        }
    }

    /// Absent is false.
    pub(crate) fn flag(&self, pointer: &str) -> Value {
        self.at(pointer).as_bool().unwrap_or(false).into()
    }

    /// Absent is 0.
    pub(crate) fn number(&self, pointer: &str) -> Value {
        number(self.at(pointer)).into()
    }

    /// The texts of a list.
    pub(crate) fn texts(&self, pointer: &str) -> Value {
        items(self.at(pointer)).filter_map(Value::as_str).collect::<Vec<_>>().join(",").into()
    }

    /// How many entries a list or map has.
    pub(crate) fn size(&self, pointer: &str) -> usize {
        match self.at(pointer) {
            Value::Object(map) => map.len(),
            Value::Array(items) => items.len(),
            _ => 0,
        }
    }

    /// The owner that controls the object, as kubectl names it: `daemonset.apps/web`.
    pub(crate) fn controller(&self) -> Value {
        let owner = items(self.at("/metadata/ownerReferences")).find(|owner| owner["controller"] == true);
        let Some(owner) = owner else { return "<none>".into() };
        let text = |field: &str| owner[field].as_str().unwrap_or_default();
        let group =
            text("apiVersion").split_once('/').map_or(String::new(), |(group, _)| format!(".{group}"));
        format!("{}/{}", format!("{}{group}", text("kind")).to_lowercase(), text("name")).into()
    }

    /// The names and the images of the containers of the template.
    fn containers(&self) -> [Value; 2] {
        self.containers_at("/spec/template/spec/containers")
    }

    /// The same of containers elsewhere.
    pub(crate) fn containers_at(&self, pointer: &str) -> [Value; 2] {
        let containers = self.at(pointer);
        ["name", "image"].map(|field| {
            let texts = items(containers).map(|container| container[field].as_str().unwrap_or_default());
            json!(texts.collect::<Vec<_>>().join(","))
        })
    }
}

pub(crate) const CREATED: &[&str] = &["Name", "@Created At"];

/// Name and time of creation, for kinds whose age says nothing.
pub(crate) fn created(row: &Row<'_>) -> Vec<Value> {
    vec![row.name(), row.at("/metadata/creationTimestamp").clone()]
}

pub(crate) const DEPLOYMENT: &[&str] =
    &["Name", "Ready", "Up-to-date", "Available", "Age", "*Containers", "*Images", "*Selector"];

pub(crate) fn deployment(row: &Row<'_>) -> Vec<Value> {
    let ready = format!("{}/{}", row.number("/status/readyReplicas"), row.number("/spec/replicas"));
    let [containers, images] = row.containers();
    vec![
        row.name(),
        ready.into(),
        row.number("/status/updatedReplicas"),
        row.number("/status/availableReplicas"),
        row.age(),
        containers,
        images,
        label_selector(row.at("/spec/selector")),
    ]
}

pub(crate) const DAEMON_SET: &[&str] = &[
    "Name",
    "#Desired",
    "#Current",
    "#Ready",
    "#Up-to-date",
    "#Available",
    "Node Selector",
    "Age",
    "*Containers",
    "*Images",
    "*Selector",
];

pub(crate) fn daemon_set(row: &Row<'_>) -> Vec<Value> {
    let [containers, images] = row.containers();
    vec![
        row.name(),
        row.number("/status/desiredNumberScheduled"),
        row.number("/status/currentNumberScheduled"),
        row.number("/status/numberReady"),
        row.number("/status/updatedNumberScheduled"),
        row.number("/status/numberAvailable"),
        label_map(row.at("/spec/template/spec/nodeSelector")),
        row.age(),
        containers,
        images,
        label_selector(row.at("/spec/selector")),
    ]
}

pub(crate) const REPLICA_SET: &[&str] =
    &["Name", "#Desired", "#Current", "#Ready", "Age", "*Containers", "*Images", "*Selector"];

pub(crate) fn replica_set(row: &Row<'_>, selector: Value) -> Vec<Value> {
    let [containers, images] = row.containers();
    vec![
        row.name(),
        row.number("/spec/replicas"),
        row.number("/status/replicas"),
        row.number("/status/readyReplicas"),
        row.age(),
        containers,
        images,
        selector,
    ]
}

pub(crate) const NODE: &[&str] = &[
    "Name",
    "Status",
    "Roles",
    "Age",
    "Version",
    "*Internal-IP",
    "*External-IP",
    "*OS-Image",
    "*Kernel-Version",
    "*Container-Runtime",
];

pub(crate) fn node(row: &Row<'_>) -> Vec<Value> {
    let object = row.object;
    let condition = items(&object["status"]["conditions"]).find(|condition| condition["type"] == "Ready");
    let mut status = match condition {
        Some(ready) if ready["status"] == "True" => "Ready",
        Some(_) => "NotReady",
        None => "Unknown",
    }
    .to_owned();
    if object["spec"]["unschedulable"] == true {
        status.push_str(",SchedulingDisabled");
    }
    let mut roles: Vec<&str> = Vec::new();
    for (key, value) in object["metadata"]["labels"].as_object().into_iter().flatten() {
        match (key.strip_prefix("node-role.kubernetes.io/"), value.as_str()) {
            (Some(role), _) if !role.is_empty() => roles.push(role),
            (None, Some(role)) if key == "kubernetes.io/role" && !role.is_empty() => roles.push(role),
            _ => {}
        }
    }
    roles.sort_unstable();
    roles.dedup();
    let address = |kind: &str| {
        let found = items(&object["status"]["addresses"]).find(|address| address["type"] == kind);
        json!(found.and_then(|address| address["address"].as_str()).unwrap_or("<none>"))
    };
    let info = &object["status"]["nodeInfo"];
    let known = |field: &str| match info[field].as_str() {
        Some(text) if !text.is_empty() => json!(text),
        _ => json!("<unknown>"),
    };
    vec![
        row.name(),
        status.into(),
        joined_or_none(&roles),
        row.age(),
        info["kubeletVersion"].as_str().unwrap_or_default().into(),
        address("InternalIP"),
        address("ExternalIP"),
        known("osImage"),
        known("kernelVersion"),
        known("containerRuntimeVersion"),
    ]
}

pub(crate) const EVENT: &[&str] = &[
    "Last Seen",
    "Type",
    "Reason",
    "Object",
    "*Subobject",
    "*Source",
    "Message",
    "*First Seen",
    "*Count",
    "*Name",
];

pub(crate) fn event(row: &Row<'_>) -> Vec<Value> {
    let Row { object, now } = *row;
    let seen = |field: &Value| field.is_string().then(|| since(field, now));
    let first = seen(&object["firstTimestamp"]).unwrap_or_else(|| since(&object["eventTime"], now));
    let mut last = seen(&object["lastTimestamp"]).unwrap_or_else(|| first.clone());
    let mut count = object["count"].as_i64().filter(|count| *count != 0).unwrap_or(1);
    let series = &object["series"];
    if series.is_object() {
        last = since(&series["lastObservedTime"], now);
        count = number(&series["count"]);
    }
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let involved = &object["involvedObject"];
    let target = match text(&involved["name"]) {
        name if name.is_empty() => text(&involved["kind"]).to_lowercase(),
        name => format!("{}/{name}", text(&involved["kind"]).to_lowercase()),
    };
    let mut source = vec![text(&object["source"]["component"]), text(&object["source"]["host"])];
    if source.iter().all(String::is_empty) {
        source = vec![text(&object["reportingComponent"]), text(&object["reportingInstance"])];
    }
    source.retain(|part| !part.is_empty());
    vec![
        last.into(),
        text(&object["type"]).into(),
        text(&object["reason"]).into(),
        target.into(),
        text(&involved["fieldPath"]).into(),
        source.join(", ").into(),
        text(&object["message"]).trim().into(),
        first.into(),
        count.into(),
        row.name(),
    ]
}

pub(crate) fn service(row: &Row<'_>) -> Vec<Value> {
    let object = row.object;
    let spec = &object["spec"];
    let kind = spec["type"].as_str().unwrap_or_default();
    let address = match spec["clusterIPs"][0].as_str().or(spec["clusterIP"].as_str()) {
        Some(address) if !address.is_empty() => address,
        _ => "<none>",
    };
    let mut external: Vec<&str> = items(&spec["externalIPs"]).filter_map(Value::as_str).collect();
    if kind == "LoadBalancer" {
        let ingress = items(&object["status"]["loadBalancer"]["ingress"]);
        external.extend(ingress.filter_map(|entry| entry["ip"].as_str().or(entry["hostname"].as_str())));
    }
    let external = match kind {
        "ExternalName" => spec["externalName"].as_str().unwrap_or_default().into(),
        "LoadBalancer" if external.is_empty() => "<pending>".into(),
        _ => joined_or_none(&external),
    };
    let ports: Vec<String> = items(&spec["ports"])
        .map(|port| {
            let protocol = port["protocol"].as_str().unwrap_or("TCP");
            match number(&port["nodePort"]) {
                0 => format!("{}/{protocol}", number(&port["port"])),
                node => format!("{}:{node}/{protocol}", number(&port["port"])),
            }
        })
        .collect();
    let selector = label_map(&spec["selector"]);
    vec![row.name(), kind.into(), address.into(), external, joined_or_none(&ports), row.age(), selector]
}

/// A selector that is a plain map of labels.
pub(crate) fn label_map(labels: &Value) -> Value {
    let labels = labels.as_object().into_iter().flatten();
    let terms: Vec<String> =
        labels.map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default())).collect();
    joined_or_none(&terms)
}

pub(crate) fn label_selector(selector: &Value) -> Value {
    match LabelSelector::from_spec(selector) {
        Ok(selector) if selector.is_empty() => "<none>".into(),
        Ok(selector) => selector.to_string().into(),
        Err(_) if selector.is_null() => "<none>".into(),
        Err(_) => "<error>".into(),
    }
}

fn joined_or_none<T: AsRef<str>>(parts: &[T]) -> Value {
    if parts.is_empty() {
        return "<none>".into();
    }
    parts.iter().map(AsRef::as_ref).collect::<Vec<&str>>().join(",").into()
}

fn items(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}

fn number(value: &Value) -> i64 {
    value.as_i64().unwrap_or(0)
}

/// The age of a timestamp as kubectl writes it; `<unknown>` without one.
pub(crate) fn since(timestamp: &Value, now: Timestamp) -> String {
    match timestamp.as_str().and_then(|text| text.parse::<Timestamp>().ok()) {
        Some(then) => duration(now.duration_since(then)),
        None => "<unknown>".to_owned(),
    }
}

/// Two or three significant digits: `5s`, `2m3s`, `5h`, `3d4h` (apimachinery `util/duration`).
fn duration(duration: jiff::SignedDuration) -> String {
    const MINUTE: i64 = 60;
    const HOUR: i64 = 60 * MINUTE;
    const DAY: i64 = 24 * HOUR;
    const YEAR: i64 = 365 * DAY;
    let seconds = duration.as_secs();
    let two = |large: i64, large_unit: &str, small: i64, small_unit: &str| match small {
        0 => format!("{large}{large_unit}"),
        small => format!("{large}{large_unit}{small}{small_unit}"),
    };
    match seconds {
        // Two machines rarely agree to the second; beyond that the clock is wrong.
        i64::MIN..-1 => "<invalid>".to_owned(),
        -1 => "0s".to_owned(),
        0..120 => format!("{seconds}s"),
        120..600 => two(seconds / MINUTE, "m", seconds % MINUTE, "s"),
        600..10_800 => format!("{}m", seconds / MINUTE),
        10_800..28_800 => two(seconds / HOUR, "h", seconds % HOUR / MINUTE, "m"),
        28_800..172_800 => format!("{}h", seconds / HOUR),
        172_800..691_200 => two(seconds / DAY, "d", seconds % DAY / HOUR, "h"),
        691_200..63_072_000 => format!("{}d", seconds / DAY),
        63_072_000..252_288_000 => two(seconds / YEAR, "y", seconds % YEAR / DAY, "d"),
        _ => format!("{}y", seconds / YEAR),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn now() -> Timestamp {
        "2026-01-01T12:00:00Z".parse().unwrap()
    }

    #[track_caller]
    pub(super) fn check(kind: &str, object: Value, expected: Value) {
        assert_eq!(Value::from(cells(kind, &object, now())), expected);
        assert_eq!(columns(kind).as_array().unwrap().len(), expected.as_array().unwrap().len());
    }

    #[test]
    fn durations_are_short() {
        for (seconds, expected) in [
            (-2, "<invalid>"),
            (-1, "0s"),
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (123, "2m3s"),
            (600, "10m"),
            (10_799, "179m"),
            (10_800, "3h"),
            (11_400, "3h10m"),
            (28_800, "8h"),
            (172_799, "47h"),
            (172_800, "2d"),
            (273_600, "3d4h"),
            (691_200, "8d"),
            (63_071_999, "729d"),
            (63_158_400, "2y1d"),
            (252_288_000, "8y"),
        ] {
            assert_eq!(duration(jiff::SignedDuration::from_secs(seconds)), expected, "{seconds}");
        }
    }

    #[test]
    fn a_deployment_shows_its_progress() {
        check(
            "Deployment",
            json!({
                "metadata": {"name": "web", "creationTimestamp": "2026-01-01T11:59:55Z"},
                "spec": {
                    "replicas": 3,
                    "selector": {"matchLabels": {"app": "web"}},
                    "template": {"spec": {"containers": [
                        {"name": "a", "image": "a:1"}, {"name": "b", "image": "b:1"},
                    ]}},
                },
                "status": {"readyReplicas": 2, "updatedReplicas": 1, "availableReplicas": 2},
            }),
            json!(["web", "2/3", 1, 2, "5s", "a,b", "a:1,b:1", "app=web"]),
        );
    }

    #[test]
    fn a_replica_set_shows_its_numbers() {
        check(
            "ReplicaSet",
            json!({"metadata": {"name": "web-1"}, "spec": {"replicas": 2}, "status": {"replicas": 1}}),
            json!(["web-1", 2, 1, 0, "<unknown>", "", "", "<none>"]),
        );
    }

    #[test]
    fn a_replication_controller_shows_its_numbers_and_its_labels() {
        check(
            "ReplicationController",
            json!({
                "metadata": {"name": "old", "creationTimestamp": "2026-01-01T11:59:00Z"},
                "spec": {
                    "replicas": 3,
                    "selector": {"tier": "x", "app": "web"},
                    "template": {"spec": {"containers": [{"name": "a", "image": "a:1"}]}},
                },
                "status": {"replicas": 2, "readyReplicas": 1},
            }),
            json!(["old", 3, 2, 1, "60s", "a", "a:1", "app=web,tier=x"]),
        );
        check(
            "ReplicationController",
            json!({"metadata": {"name": "bare"}, "spec": {"template": null}}),
            json!(["bare", 0, 0, 0, "<unknown>", "", "", "<none>"]),
        );
    }

    #[test]
    fn only_wide_output_shows_the_rest() {
        let columns = columns("Deployment");
        let shown = |priority: i64| -> Vec<String> {
            let columns = items(&columns).filter(|column| column["priority"] == priority);
            columns.map(|column| column["name"].as_str().unwrap().to_uppercase()).collect()
        };
        assert_eq!(shown(0), ["NAME", "READY", "UP-TO-DATE", "AVAILABLE", "AGE"]);
        assert_eq!(shown(1), ["CONTAINERS", "IMAGES", "SELECTOR"]);
    }

    #[test]
    fn a_node_shows_readiness_and_roles() {
        check(
            "Node",
            json!({
                "metadata": {"name": "n", "labels": {"node-role.kubernetes.io/control-plane": ""}},
                "spec": {"unschedulable": true},
                "status": {
                    "conditions": [{"type": "Ready", "status": "True"}],
                    "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}],
                    "nodeInfo": {"kubeletVersion": "v1.37.0"},
                },
            }),
            json!([
                "n",
                "Ready,SchedulingDisabled",
                "control-plane",
                "<unknown>",
                "v1.37.0",
                "10.0.0.1",
                "<none>",
                "<unknown>",
                "<unknown>",
                "<unknown>"
            ]),
        );
    }

    #[test]
    fn the_row_of_an_event_has_its_time_reason_and_object() {
        check(
            "Event",
            json!({
                "metadata": {"name": "web.1"}, "type": "Normal", "reason": "ScalingReplicaSet",
                "message": "Scaled up\n", "count": 3,
                "firstTimestamp": "2026-01-01T11:00:00Z", "lastTimestamp": "2026-01-01T11:59:00Z",
                "involvedObject": {"kind": "Deployment", "name": "web"},
                "source": {"component": "deployment-controller"},
            }),
            json!([
                "60s",
                "Normal",
                "ScalingReplicaSet",
                "deployment/web",
                "",
                "deployment-controller",
                "Scaled up",
                "60m",
                3,
                "web.1"
            ]),
        );
        let newer = json!({
            "metadata": {"name": "e"}, "eventTime": "2026-01-01T11:59:00.000000Z",
            "reportingComponent": "x", "reportingInstance": "x-1",
            "series": {"count": 7, "lastObservedTime": "2026-01-01T11:59:58.000000Z"},
        });
        check("Event", newer, json!(["2s", "", "", "", "", "x, x-1", "", "60s", 7, "e"]));
    }

    #[test]
    fn a_service_shows_where_it_listens() {
        check(
            "Service",
            json!({"metadata": {"name": "s"}, "spec": {
                "type": "NodePort", "clusterIP": "10.1.1.1", "selector": {"app": "web"},
                "ports": [{"port": 80, "nodePort": 30080, "protocol": "TCP"}, {"port": 53, "protocol": "UDP"}],
            }}),
            json!(["s", "NodePort", "10.1.1.1", "<none>", "80:30080/TCP,53/UDP", "<unknown>", "app=web"]),
        );
        let balanced = json!({"metadata": {"name": "s"}, "spec": {"type": "LoadBalancer"}});
        check(
            "Service",
            balanced,
            json!(["s", "LoadBalancer", "<none>", "<pending>", "<none>", "<unknown>", "<none>"]),
        );
    }

    #[test]
    fn the_small_kinds_count_their_entries() {
        let named = |mut object: Value| {
            object["metadata"] = json!({"name": "x"});
            object
        };
        check("ConfigMap", named(json!({"data": {"a": "", "b": ""}})), json!(["x", 2, "<unknown>"]));
        check("Secret", named(json!({"type": "Opaque"})), json!(["x", "Opaque", 0, "<unknown>"]));
        check("ServiceAccount", named(json!({})), json!(["x", "<unknown>"]));
        check("Lease", named(json!({"spec": {"holderIdentity": "me"}})), json!(["x", "me", "<unknown>"]));
        check(
            "Namespace",
            named(json!({"status": {"phase": "Active"}})),
            json!(["x", "Active", "<unknown>"]),
        );
    }

    #[test]
    fn malformed_objects_have_rows_too() {
        let kinds = "ControllerRevision DaemonSet Deployment ReplicaSet ReplicationController Pod Service Namespace Node Secret ConfigMap \
                     ServiceAccount Lease Event X";
        for kind in kinds.split(' ') {
            for strange in [json!(null), json!({"spec": 1, "status": [], "metadata": {"name": 1}})] {
                let row = cells(kind, &strange, now());
                assert_eq!(row.len(), columns(kind).as_array().unwrap().len(), "{kind}");
            }
        }
    }
}
