//! Warnings of pods and of the templates of workloads.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::{Warnings, deprecated_label, each, join, text, virtual_paths};
use crate::validate::{app_armor, names};

const ANNOTATIONS: [(&str, &str); 3] = [
    (
        "scheduler.alpha.kubernetes.io/critical-pod",
        "non-functional in v1.16+; use the \"priorityClassName\" field instead",
    ),
    ("security.alpha.kubernetes.io/sysctls", "non-functional in v1.11+; use the \"sysctls\" field instead"),
    (
        "security.alpha.kubernetes.io/unsafe-sysctls",
        "non-functional in v1.11+; use the \"sysctls\" field instead",
    ),
];
const SECCOMP: &str = "non-functional in v1.27+; use the \"seccompProfile\" field instead";
const SECCOMP_POD: &str = "seccomp.security.alpha.kubernetes.io/pod";
const SECCOMP_CONTAINER: &str = "container.seccomp.security.alpha.kubernetes.io/";

/// Volumes that were removed: the field, its name in the warning, and since when.
pub(super) const REMOVED_VOLUMES: [(&str, &str, &str); 9] = [
    ("photonPersistentDisk", "photonPersistentDisk", "deprecated in v1.11, non-functional in v1.16+"),
    ("gitRepo", "gitRepo", "deprecated in v1.11, and disabled by default in v1.33+"),
    ("scaleIO", "scaleIO", "deprecated in v1.16, non-functional in v1.22+"),
    ("flocker", "flocker", "deprecated in v1.22, non-functional in v1.25+"),
    ("storageos", "storageOS", "deprecated in v1.22, non-functional in v1.25+"),
    ("quobyte", "quobyte", "deprecated in v1.22, non-functional in v1.25+"),
    ("glusterfs", "glusterfs", "deprecated in v1.25, non-functional in v1.26+"),
    ("cephfs", "cephfs", "deprecated in v1.28, non-functional in v1.31+"),
    ("rbd", "rbd", "deprecated in v1.28, non-functional in v1.31+"),
];

/// Of a new pod. Updates of pods come from machines.
pub(crate) fn pod(new: &Value, old: Option<&Value>, warnings: &mut Warnings) {
    if old.is_none() {
        warnings.pod_name(new, "the Pod's hostname");
        template(new, "", warnings);
    }
}

/// Of annotations that name the AppArmor profiles of the containers of a template at this path, or of a pod at "" before
/// it gets the fields for them.
pub(crate) fn outdated_profiles(template: &Value, path: &str, warnings: &mut Warnings) {
    let (spec, annotations) = (&template["spec"], &template["metadata"]["annotations"]);
    let of_pod = &spec["securityContext"]["appArmorProfile"];
    for (_, container) in containers(spec, "") {
        let key = format!("{}{}", app_armor::ANNOTATION, text(container, "name"));
        let Some(annotation) = annotations[&key].as_str() else { continue };
        let is_field = container["securityContext"]["appArmorProfile"].is_object();
        if !is_field && app_armor::profile(annotation).as_ref() != Some(of_pod) {
            let field = format!("{}[{key}]", join(path, "metadata.annotations"));
            warnings.of(&field, "deprecated since v1.30; use the \"appArmorProfile\" field instead");
        }
    }
}

/// Of a template at this path, or of a pod at "".
pub(super) fn template(template: &Value, path: &str, warnings: &mut Warnings) {
    let (spec, annotations) = (&template["spec"], &template["metadata"]["annotations"]);
    let at = join(path, "spec");
    let note = |key: &str| format!("{}[{key}]", join(path, "metadata.annotations"));
    placement(spec, &at, warnings);
    for (key, why) in ANNOTATIONS.iter().filter(|(key, _)| annotations[*key].is_string()) {
        warnings.of(&note(key), why);
    }
    for (path, volume) in each(spec, "volumes", &at) {
        for (_, name, why) in REMOVED_VOLUMES.iter().filter(|(field, _, _)| volume[*field].is_object()) {
            warnings.of(&format!("{path}.{name}"), why);
        }
        let claim = &volume["ephemeral"]["volumeClaimTemplate"]["spec"];
        claim_size(claim, &format!("{path}.ephemeral.volumeClaimTemplate.spec"), warnings);
    }
    virtual_paths::overlaps(spec, warnings);
    repeated(spec, "hostAliases", "ip", &at, warnings);
    repeated(spec, "imagePullSecrets", "name", &at, warnings);
    for (path, secret) in each(spec, "imagePullSecrets", &at) {
        if text(secret, "name").is_empty() {
            warnings.of(&format!("{path}.name"), "invalid empty name \"\"");
        }
    }
    for resource in ["memory", "ephemeral-storage"] {
        warnings.fraction(&format!("{at}.overhead[{resource}]"), &spec["overhead"][resource]);
    }
    if spec["securityContext"]["seccompProfile"].is_null() && annotations[SECCOMP_POD].is_string() {
        warnings.of(&note(SECCOMP_POD), SECCOMP);
    }
    if !path.is_empty() {
        outdated_profiles(template, path, warnings);
    }
    for (at, container) in containers(spec, &at) {
        let own = &container["securityContext"];
        let name = text(container, "name");
        let key = format!("{SECCOMP_CONTAINER}{name}");
        if own["seccompProfile"].is_null() && annotations[&key].is_string() {
            warnings.of(&note(&key), SECCOMP);
        }
        for resource in ["memory", "ephemeral-storage"] {
            for field in ["limits", "requests"] {
                let amount = &container["resources"][field][resource];
                warnings.fraction(&format!("{at}.resources.{field}[{resource}]"), amount);
            }
        }
        hidden_variables(container, &at, warnings);
    }
    ports(spec, &at, warnings);
    if spec["terminationGracePeriodSeconds"].as_i64().is_some_and(|seconds| seconds < 0) {
        let why = "must be >= 0; negative values are invalid and will be treated as 1";
        warnings.of(&format!("{at}.terminationGracePeriodSeconds"), why);
    }
    for kind in ["podAffinity", "podAntiAffinity"] {
        null_selectors(&spec["affinity"][kind], &format!("{at}.affinity.{kind}"), warnings);
    }
    for (path, address) in each(&spec["dnsConfig"], "nameservers", &format!("{at}.dnsConfig")) {
        warnings.address(&path, address);
    }
    for (path, alias) in each(spec, "hostAliases", &at) {
        warnings.address(&format!("{path}.ip"), &alias["ip"]);
    }
}

/// Of the storage that a claim asks for.
pub(super) fn claim_size(spec: &Value, path: &str, warnings: &mut Warnings) {
    for field in ["requests", "limits"] {
        let amount = &spec["resources"][field]["storage"];
        warnings.fraction(&format!("{path}.resources.{field}[storage]"), amount);
    }
}

fn containers<'a>(spec: &'a Value, path: &str) -> impl Iterator<Item = (String, &'a Value)> {
    let lists = ["initContainers", "containers", "ephemeralContainers"];
    let all: Vec<_> = lists.into_iter().flat_map(|list| each(spec, list, path)).collect();
    all.into_iter()
}

/// Of the labels by which a pod finds its node.
fn placement(spec: &Value, at: &str, warnings: &mut Warnings) {
    for label in spec["nodeSelector"].as_object().into_iter().flatten().map(|(label, _)| label) {
        if let Some(why) = deprecated_label(label) {
            warnings.of(&format!("{at}.nodeSelector[{label}]"), why);
        }
    }
    let affinity = &spec["affinity"]["nodeAffinity"];
    let path = format!("{at}.affinity.nodeAffinity");
    node_terms(
        &affinity["requiredDuringSchedulingIgnoredDuringExecution"],
        &format!("{path}.requiredDuringSchedulingIgnoredDuringExecution"),
        warnings,
    );
    for (path, term) in each(affinity, "preferredDuringSchedulingIgnoredDuringExecution", &path) {
        for (path, expression) in each(&term["preference"], "matchExpressions", &format!("{path}.preference"))
        {
            warnings.node_label(&format!("{path}.key"), text(expression, "key"));
            for (path, value) in each(expression, "values", &path) {
                let value = value.as_str().unwrap_or_default();
                for why in names::label_value(value) {
                    warnings.of(&path, format!("{value} is invalid, {why}"));
                }
            }
        }
    }
    for (path, constraint) in each(spec, "topologySpreadConstraints", at) {
        warnings.node_label(&format!("{path}.topologyKey"), text(constraint, "topologyKey"));
        if constraint["labelSelector"].is_null() {
            null_selector(&path, warnings);
        }
    }
}

/// Of a required selector of nodes.
pub(super) fn node_terms(selector: &Value, path: &str, warnings: &mut Warnings) {
    for (path, term) in each(selector, "nodeSelectorTerms", path) {
        for (path, expression) in each(term, "matchExpressions", &path) {
            warnings.node_label(&format!("{path}.key"), text(expression, "key"));
        }
    }
}

fn null_selectors(affinity: &Value, path: &str, warnings: &mut Warnings) {
    for (path, term) in each(affinity, "requiredDuringSchedulingIgnoredDuringExecution", path) {
        if term["labelSelector"].is_null() {
            null_selector(&path, warnings);
        }
    }
    for (path, term) in each(affinity, "preferredDuringSchedulingIgnoredDuringExecution", path) {
        if term["podAffinityTerm"]["labelSelector"].is_null() {
            null_selector(&format!("{path}.podAffinityTerm"), warnings);
        }
    }
}

fn null_selector(path: &str, warnings: &mut Warnings) {
    warnings.of(&format!("{path}.labelSelector"), "a null labelSelector results in matching no pod");
}

fn repeated(spec: &Value, list: &str, field: &str, at: &str, warnings: &mut Warnings) {
    let mut seen = BTreeSet::new();
    for (path, item) in each(spec, list, at) {
        let value = text(item, field);
        if !seen.insert(value) {
            warnings.of(&format!("{path}.{field}"), format!("duplicate {field} {value:?}"));
        }
    }
}

/// Of variables that come again, unless the later one builds on the earlier.
fn hidden_variables(container: &Value, at: &str, warnings: &mut Warnings) {
    let mut seen = BTreeSet::new();
    for (path, variable) in each(container, "env", at) {
        let (name, value) = (text(variable, "name"), text(variable, "value"));
        if seen.insert(name) {
            continue;
        }
        let reference = format!("$({name})");
        let builds_on_it =
            variable["valueFrom"].is_null() && value != reference && value.contains(&reference);
        if !builds_on_it {
            let why = format!("hides previous definition of {name:?}, which may be dropped when using apply");
            warnings.of(&path, why);
        }
    }
}

fn ports(spec: &Value, at: &str, warnings: &mut Warnings) {
    let number = |port: &Value, field: &str| port[field].as_i64().unwrap_or(0);
    let mut all: BTreeMap<(i64, &str), Vec<(String, &Value)>> = BTreeMap::new();
    let each_port =
        || containers(spec, at).flat_map(|(at, container)| each(container, "ports", &at).collect::<Vec<_>>());
    for (path, port) in each_port() {
        let (ip, host) = (text(port, "hostIP"), number(port, "hostPort"));
        let (own, protocol) = (number(port, "containerPort"), text(port, "protocol"));
        if !ip.is_empty() && host == 0 {
            let name = text(port, "name");
            // The fields of the Go type, in its order.
            let shown = format!(
                "{{Name:{name} HostPort:{host} ContainerPort:{own} Protocol:{protocol} HostIP:{ip}}}"
            );
            warnings.of(&path, format!("hostIP set without hostPort: {shown}"));
        }
        let others = all.entry((own, protocol)).or_default();
        for (other_path, other) in &*others {
            let (other_ip, other_host) = (text(other, "hostIP"), number(other, "hostPort"));
            let what = if ip == other_ip && host == other_host {
                "duplicate"
            } else if host == 0 || other_host == 0 {
                "overlapping"
            } else if host == other_host && ip.is_empty() != other_ip.is_empty() {
                "dangerously ambiguous"
            } else {
                continue;
            };
            warnings.of(&path, format!("{what} port definition with {other_path}"));
        }
        others.push((path, port));
    }
    let mut names: BTreeMap<&str, String> = BTreeMap::new();
    for (path, port) in each_port() {
        let name = text(port, "name");
        match names.get(name) {
            _ if name.is_empty() => {}
            Some(other) => warnings.of(
                &path,
                format!(
                    "duplicate port name {name:?} with {other}, services and probes that select ports by name will use {other}"
                ),
            ),
            None => {
                names.insert(name, path);
            }
        }
    }
}
