//! Nodes, events, services, and kinds of which only the time is shown.

use serde_json::{Value, json};

use super::row::{Row, items, joined_or_none, label_map, number, since};

pub(crate) const CREATED: &[&str] = &["Name", "@Created At"];

/// Name and time of creation, for kinds whose age says nothing.
pub(crate) fn created(row: &Row<'_>) -> Vec<Value> {
    vec![row.name(), row.at("/metadata/creationTimestamp").clone()]
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
