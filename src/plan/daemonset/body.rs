//! The pod that is sent to the API server: the template with a name, an owner, a node and the automatic tolerations
//! (upstream: `CreatePodTemplate`, `ReplaceDaemonSetPodNodeNameNodeAffinity`).

use std::collections::BTreeMap;

use serde_json::value::{RawValue, to_raw_value};

use super::NewPod;
use super::revisions::POD_TEMPLATE_GENERATION;
use super::tolerations::{Toleration, automatic};
use crate::model::{CONTROLLER_REVISION_HASH, DaemonSet};
use crate::plan::OwnerReference;
use crate::plan::pod_body::{Fields, PodFromTemplate, field};

/// The longest prefix of generated names.
const LONGEST_PREFIX: usize = 253;

/// The JSON of a new pod of the revision with this hash. Fields that the controller does not change are copied byte
/// for byte, so that a field newer than any type of ours is kept.
///
/// # Errors
/// When the template is not the object that it was decoded as; cannot happen to a decoded one.
pub fn pod_body(daemon_set: &DaemonSet, new: &NewPod, hash: &str) -> Result<Vec<u8>, serde_json::Error> {
    let key = &daemon_set.meta.key;
    let generation = daemon_set.template_generation.map(|generation| generation.to_string());
    let generation = generation.as_deref().map(|generation| (POD_TEMPLATE_GENERATION, generation));
    let labels: Vec<(&str, &str)> =
        generation.into_iter().chain([(CONTROLLER_REVISION_HASH, hash)]).collect();
    let dash = if key.name.len() < LONGEST_PREFIX { "-" } else { "" };
    let pod = PodFromTemplate {
        owner: OwnerReference::controller("apps/v1", "DaemonSet", &key.name, &daemon_set.meta.uid),
        namespace: &key.namespace,
        name: &new.name,
        generate_name: format!("{}{dash}", key.name),
        template: &daemon_set.template,
        labels: &labels,
        annotations: &[],
        finalizers: &[],
    };
    pod.json(|spec| placed(spec, &new.node))
}

/// The pod spec with the automatic tolerations, for this node and no other.
fn placed(mut spec: Fields, node: &str) -> Result<Fields, serde_json::Error> {
    let host_network = match spec.get("hostNetwork") {
        Some(host_network) => serde_json::from_str::<Option<bool>>(host_network.get())?.unwrap_or(false),
        None => false,
    };
    let mut tolerations: Vec<Box<RawValue>> = match spec.get("tolerations") {
        Some(tolerations) => serde_json::from_str::<Option<_>>(tolerations.get())?.unwrap_or_default(),
        None => Vec::new(),
    };
    let mut read = tolerations
        .iter()
        .map(|raw| serde_json::from_str(raw.get()))
        .collect::<Result<Vec<Toleration>, _>>()?;
    for toleration in automatic(host_network) {
        let raw = to_raw_value(&toleration)?;
        // A limited toleration of the template is replaced by one without a limit.
        match read.iter().position(|known| known.is_like(&toleration)).and_then(|at| tolerations.get_mut(at))
        {
            Some(known) => *known = raw,
            None => {
                tolerations.push(raw);
                read.push(toleration);
            }
        }
    }
    spec.insert("tolerations".into(), to_raw_value(&tolerations)?);

    if planted!("a DaemonSet pod has no node affinity") {
        return Ok(spec);
    }
    let mut affinity = field(&spec, "affinity")?;
    let mut node_affinity = field(&affinity, "nodeAffinity")?;
    let name_is = [BTreeMap::from([
        ("key", to_raw_value("metadata.name")?),
        ("operator", to_raw_value("In")?),
        ("values", to_raw_value(&[node])?),
    ])];
    let required = BTreeMap::from([("nodeSelectorTerms", [BTreeMap::from([("matchFields", name_is)])])]);
    node_affinity.insert("requiredDuringSchedulingIgnoredDuringExecution".into(), to_raw_value(&required)?);
    affinity.insert("nodeAffinity".into(), to_raw_value(&node_affinity)?);
    spec.insert("affinity".into(), to_raw_value(&affinity)?);
    Ok(spec)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Interner, Record};
    use serde_json::{Value, json};

    fn body(name: &str, template: Value) -> Value {
        let json = json!({
            "metadata": {"name": name, "namespace": "ops", "uid": "u-ds", "resourceVersion": "1",
                         "annotations": {"deprecated.daemonset.template.generation": "3"}},
            "spec": {"template": template}
        });
        let daemon_set = DaemonSet::decode(&json.to_string(), &mut Interner::default()).unwrap();
        let new = NewPod { node: "n1".into(), name: "agent-bcdfghjklm".into() };
        serde_json::from_slice(&pod_body(&daemon_set, &new, "abc").unwrap()).unwrap()
    }

    fn name_is_n1() -> Value {
        json!({"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}]})
    }

    #[test]
    fn a_pod_is_its_template_for_one_node() {
        let body = body(
            "agent",
            json!({
                "metadata": {"labels": {"app": "agent", "controller-revision-hash": "stale"}, "annotations": {"a": "b"},
                             "finalizers": ["x/y"], "name": "ignored", "creationTimestamp": null},
                "spec": {"containers": [{"name": "c", "newThing": 1.50}], "nodeSelector": {"disk": "ssd"}}
            }),
        );
        assert_eq!(
            body["metadata"],
            json!({
                "name": "agent-bcdfghjklm", "generateName": "agent-", "namespace": "ops",
                "labels": {"app": "agent", "controller-revision-hash": "abc", "pod-template-generation": "3"},
                "annotations": {"a": "b"}, "finalizers": ["x/y"],
                "ownerReferences": [{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "agent", "uid": "u-ds",
                    "controller": true, "blockOwnerDeletion": true}],
            })
        );
        assert_eq!(body["spec"]["containers"], json!([{"name": "c", "newThing": 1.50}]));
        assert_eq!(body["spec"]["nodeSelector"], json!({"disk": "ssd"}));
        assert_eq!(
            body["spec"]["affinity"],
            json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": name_is_n1()}})
        );
        assert!(body["spec"]["nodeName"].is_null());
    }

    #[test]
    fn required_node_affinity_is_replaced_and_every_other_affinity_stays() {
        let preferred =
            json!([{"weight": 1, "preference": {"matchExpressions": [{"key": "a", "operator": "Exists"}]}}]);
        let apart = json!({"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "zone"}]});
        let spec = json!({"nodeName": "n1", "affinity": {"podAntiAffinity": apart, "nodeAffinity": {
            "preferredDuringSchedulingIgnoredDuringExecution": preferred,
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
                {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}, {}]}}}});
        let body = body("agent", json!({"spec": spec}));
        assert_eq!(
            body["spec"]["affinity"],
            json!({"podAntiAffinity": apart, "nodeAffinity": {
            "preferredDuringSchedulingIgnoredDuringExecution": preferred,
            "requiredDuringSchedulingIgnoredDuringExecution": name_is_n1()}})
        );
        assert_eq!(body["spec"]["nodeName"], "n1");
    }

    #[test]
    fn automatic_tolerations_replace_limited_ones_in_place_and_are_added_behind_the_others() {
        let limited = json!({"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute",
            "tolerationSeconds": 300});
        let own = json!({"key": "own", "operator": "Exists", "newThing": 1});
        let body = body("agent", json!({"spec": {"hostNetwork": true, "tolerations": [limited, own]}}));
        let keys: Vec<&str> = body["spec"]["tolerations"]
            .as_array()
            .unwrap()
            .iter()
            .map(|t| t["key"].as_str().unwrap().trim_start_matches("node.kubernetes.io/"))
            .collect();
        assert_eq!(
            keys,
            [
                "unreachable",
                "own",
                "not-ready",
                "disk-pressure",
                "memory-pressure",
                "pid-pressure",
                "unschedulable",
                "network-unavailable"
            ]
        );
        assert_eq!(
            body["spec"]["tolerations"][0],
            json!({"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute"})
        );
        assert_eq!(body["spec"]["tolerations"][1], own);
    }

    #[test]
    fn nulls_stand_for_absent_fields() {
        let body = body(
            "agent",
            json!({"metadata": null, "spec": {"affinity": {"nodeAffinity": null},
            "tolerations": null, "hostNetwork": null}}),
        );
        assert_eq!(body["spec"]["tolerations"].as_array().unwrap().len(), 6);
        assert_eq!(
            body["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"],
            name_is_n1()
        );
    }

    #[test]
    fn the_prefix_of_generated_names_has_no_dash_where_it_would_be_too_long() {
        let long = "a".repeat(253);
        assert_eq!(body(&long, json!({}))["metadata"]["generateName"], long);
        assert_eq!(body(&long[1..], json!({}))["metadata"]["generateName"], format!("{}-", &long[1..]));
    }
}
