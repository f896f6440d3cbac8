//! Everything that a client can find out about the server: versions, groups, resources, health.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::kinds::{Kind, Subresource};
use super::registry::Registry;
use super::request::{HEALTH, METRICS};

/// `/version`. The version is one that clients parse as semantic and read as 1.36.
pub(crate) fn version() -> Value {
    json!({
        "major": "1",
        "minor": "36",
        "emulationMajor": "1",
        "emulationMinor": "36",
        "minCompatibilityMajor": "1",
        "minCompatibilityMinor": "35",
        "gitVersion": "v1.36.0-windlass-sandbox",
        "gitCommit": "",
        "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "none",
        "compiler": "rustc",
        "platform": format!("{}/{}", std::env::consts::OS, std::env::consts::ARCH),
    })
}

/// `/api`
pub(crate) fn core_versions() -> Value {
    json!({
        "kind": "APIVersions",
        "versions": ["v1"],
        "serverAddressByClientCIDRs": [],
    })
}

/// `/apis`
pub(crate) fn groups(registry: &Registry) -> Value {
    let groups: Vec<Value> =
        registry.groups().iter().filter(|(group, _)| !group.is_empty()).map(group_entry).collect();
    json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
}

/// `/`: the paths of documents.
pub(crate) fn paths(registry: &Registry) -> Value {
    let mut paths =
        BTreeSet::from(["/api", "/apis", "/openapi/v2", "/openapi/v3", "/version"].map(str::to_owned));
    paths.extend(HEALTH.iter().flat_map(|check| [format!("/{check}"), format!("/{check}/ping")]));
    for (group, versions) in registry.groups() {
        let parent = if group.is_empty() { "/api".to_owned() } else { format!("/apis/{group}") };
        paths.extend(versions.iter().map(|version| format!("{parent}/{version}")));
        paths.insert(parent);
    }
    json!({ "paths": paths })
}

/// `/apis` of either form with the group of metrics, unless it is there.
pub(crate) fn with_metrics(mut groups: Value) -> Value {
    for (list, entry) in [
        ("groups", group_entry(&(METRICS, vec!["v1beta1"]))),
        (
            "items",
            json!({"metadata": {"name": METRICS}, "versions": [{"version": "v1beta1", "resources": []}]}),
        ),
    ] {
        let is_one = |group: &Value| group["name"] == METRICS || group["metadata"]["name"] == METRICS;
        if let Some(all) = groups[list].as_array_mut()
            && !all.iter().any(is_one)
        {
            all.push(entry);
        }
    }
    groups
}

/// `/apis/<group>`
pub(crate) fn group(registry: &Registry, name: &str) -> Option<Value> {
    let found = registry.groups().into_iter().find(|(group, _)| *group == name && !group.is_empty())?;
    let mut entry = group_entry(&found);
    entry["kind"] = json!("APIGroup");
    entry["apiVersion"] = json!("v1");
    Some(entry)
}

fn group_entry((group, versions): &(&str, Vec<&str>)) -> Value {
    let entry = |version| json!({"groupVersion": format!("{group}/{version}"), "version": version});
    let versions: Vec<Value> = versions.iter().map(entry).collect();
    json!({"name": group, "versions": versions, "preferredVersion": versions.first()})
}

/// `/api/v1` and `/apis/<group>/<version>`
pub(crate) fn resources(registry: &Registry, group: &str, version: &str) -> Option<Value> {
    let mut entries = Vec::new();
    for kind in registry.of_group(group, version) {
        entries.push(json!({
            "name": kind.plural,
            "singularName": kind.singular(),
            "namespaced": kind.namespaced,
            "kind": kind.kind,
            "verbs": kind.verbs,
            "shortNames": kind.short_names,
            "categories": kind.categories,
        }));
        for sub in kind.subresources {
            let (sub_group, sub_version, sub_kind) = response_kind(kind, *sub);
            let mut entry = json!({
                "name": format!("{}/{}", kind.plural, sub.name()),
                "singularName": "",
                "namespaced": kind.namespaced,
                "kind": sub_kind,
                "verbs": sub.verbs(),
            });
            if (sub_group, sub_version) != (kind.group, kind.version) {
                entry["group"] = json!(sub_group);
                entry["version"] = json!(sub_version);
            }
            entries.push(entry);
        }
    }
    let group_version = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
    let list = json!({
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": group_version,
        "resources": entries,
    });
    if entries_are_empty(&list) { None } else { Some(list) }
}

fn entries_are_empty(list: &Value) -> bool {
    list["resources"].as_array().is_none_or(Vec::is_empty)
}

/// `/api` (`core`) or `/apis` in the aggregated form of `apidiscovery.k8s.io/v2`.
pub(crate) fn aggregated(registry: &Registry, core: bool) -> Value {
    let items: Vec<Value> = registry
        .groups()
        .into_iter()
        .filter(|(group, _)| group.is_empty() == core)
        .map(|(group, versions)| {
            let version = |version: &&str| {
                let resources: Vec<Value> =
                    registry.of_group(group, version).map(aggregated_resource).collect();
                json!({"version": version, "freshness": "Current", "resources": resources})
            };
            json!({
                "metadata": {"name": group, "creationTimestamp": null},
                "versions": versions.iter().map(version).collect::<Vec<_>>(),
            })
        })
        .collect();
    json!({
        "kind": "APIGroupDiscoveryList",
        "apiVersion": "apidiscovery.k8s.io/v2",
        "metadata": {},
        "items": items,
    })
}

fn aggregated_resource(kind: &Kind) -> Value {
    let subresources: Vec<Value> = kind
        .subresources
        .iter()
        .map(|sub| {
            let (group, version, sub_kind) = response_kind(kind, *sub);
            json!({
                "subresource": sub.name(),
                "responseKind": {"group": group, "version": version, "kind": sub_kind},
                "verbs": sub.verbs(),
            })
        })
        .collect();
    let mut entry = json!({
        "resource": kind.plural,
        "responseKind": {"group": kind.group, "version": kind.version, "kind": kind.kind},
        "scope": if kind.namespaced { "Namespaced" } else { "Cluster" },
        "singularResource": kind.singular(),
        "verbs": kind.verbs,
    });
    for (field, values) in [("shortNames", kind.short_names), ("categories", kind.categories)] {
        if !values.is_empty() {
            entry[field] = json!(values);
        }
    }
    if !subresources.is_empty() {
        entry["subresources"] = Value::Array(subresources);
    }
    entry
}

fn response_kind(kind: &Kind, sub: Subresource) -> (&'static str, &'static str, &'static str) {
    match sub {
        Subresource::Approval
        | Subresource::Status
        | Subresource::Finalize
        | Subresource::EphemeralContainers
        | Subresource::Resize => (kind.group, kind.version, kind.kind),
        Subresource::Token => ("authentication.k8s.io", "v1", "TokenRequest"),
        Subresource::Scale => ("autoscaling", "v1", "Scale"),
        Subresource::Binding => ("", "v1", "Binding"),
        Subresource::Eviction => ("policy", "v1", "Eviction"),
        Subresource::Log => ("", "v1", "Pod"),
        Subresource::Exec => ("", "v1", "PodExecOptions"),
        Subresource::Attach => ("", "v1", "PodAttachOptions"),
        Subresource::PortForward => ("", "v1", "PodPortForwardOptions"),
    }
}
