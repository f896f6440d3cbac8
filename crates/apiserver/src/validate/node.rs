//! Nodes (upstream `pkg/apis/core/validation/validation.go`): taints, and what a node keeps once it has it.

use std::collections::BTreeSet;

use serde_json::Value;

use super::errors::{Errors, elements, text};
use super::names;
use crate::quantity::Quantity;

const EFFECTS: [&str; 3] = ["NoSchedule", "PreferNoSchedule", "NoExecute"];

pub(crate) fn node(object: &Value, errors: &mut Errors) {
    // Upstream places the taints below the metadata.
    let mut seen = BTreeSet::new();
    for (path, taint) in elements(&object["spec"], "taints", "metadata") {
        let (key, value, effect) = (text(taint, "key"), text(taint, "value"), text(taint, "effect"));
        errors.each_invalid(&format!("{path}.key"), key, names::label_key(key));
        let wrong = names::label_value(value);
        if !wrong.is_empty() {
            errors.invalid(&format!("{path}.value"), value, wrong.join(";"));
        }
        match effect {
            "" => errors.required(&format!("{path}.effect"), ""),
            effect if EFFECTS.contains(&effect) => {}
            effect => errors.not_supported(&format!("{path}.effect"), effect, &EFFECTS),
        }
        if !seen.insert((key, effect)) {
            // The message shows upstream's internal type, whose fields have Go's names.
            let [key, value, effect, time] =
                ["key", "value", "effect", "timeAdded"].map(|field| match &taint[field] {
                    Value::Null if field != "timeAdded" => "\"\"".to_owned(),
                    set => set.to_string(),
                });
            let shown =
                format!("{{\"Key\":{key},\"Value\":{value},\"Effect\":{effect},\"TimeAdded\":{time}}}");
            errors.duplicate_shown(&path, &shown, "taints must be unique by key and effect pair");
        }
    }
    resources(object, errors);
    for (path, range) in elements(&object["spec"], "podCIDRs", "spec") {
        super::network::range(range.as_str().unwrap_or_default(), &path, errors);
    }
}

/// The amounts that a node has and offers.
pub(crate) fn resources(object: &Value, errors: &mut Errors) {
    for list in ["capacity", "allocatable"] {
        for (name, amount) in object["status"][list].as_object().into_iter().flatten() {
            if Quantity::of(amount).is_some_and(|amount| amount.is_negative()) {
                let field = format!("status.{list}.{name}");
                errors.invalid(&field, amount.clone(), "must be greater than or equal to 0");
            }
        }
    }
}

pub(crate) fn update(new: &Value, old: &Value, errors: &mut Errors) {
    node(new, errors);
    let (new, old) = (&new["spec"], &old["spec"]);
    if old["podCIDRs"].as_array().is_some_and(|ranges| !ranges.is_empty())
        && new["podCIDRs"] != old["podCIDRs"]
    {
        let why = "node updates may not change podCIDR except from \"\" to valid";
        errors.forbidden("spec.podCIDRs", why);
    }
    if !text(old, "providerID").is_empty() && text(new, "providerID") != text(old, "providerID") {
        let why = "node updates may not change providerID except from \"\" to valid";
        errors.forbidden("spec.providerID", why);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::validate::tests::{check_create, check_status, check_update};

    fn node(spec: Value) -> Value {
        json!({"metadata": {"name": "n1"}, "spec": spec})
    }

    #[test]
    fn a_taint_has_a_key_and_an_effect_and_is_unique() {
        check_create(
            "Node",
            node(json!({"taints": [{"key": "a", "value": "b", "effect": "NoExecute"}]})),
            &[],
        );
        check_create(
            "Node",
            node(json!({"taints": [{"key": "a"}, {"key": "a", "effect": "Never"}]})),
            &[
                "metadata.taints[0].effect: Required value",
                "metadata.taints[1].effect: Unsupported value: \"Never\": supported values: \"NoSchedule\", \
                 \"PreferNoSchedule\", \"NoExecute\"",
            ],
        );
        let gpu = json!({"key": "gpu", "effect": "NoSchedule"});
        check_create(
            "Node",
            node(json!({"taints": [gpu, gpu]})),
            &["metadata.taints[1]: Duplicate value: {\"Key\":\"gpu\",\"Value\":\"\",\
               \"Effect\":\"NoSchedule\",\"TimeAdded\":null}: taints must be unique by key and effect pair"],
        );
    }

    #[test]
    fn a_node_does_not_have_less_than_nothing() {
        let mut poor = node(json!({}));
        poor["status"] = json!({"capacity": {"cpu": "-1"}, "allocatable": {"pods": "-2"}});
        let expected = [
            "status.capacity.cpu: Invalid value: \"-1\": must be greater than or equal to 0",
            "status.allocatable.pods: Invalid value: \"-2\": must be greater than or equal to 0",
        ];
        check_create("Node", poor.clone(), &expected);
        check_status("Node", poor, node(json!({})), &expected);
    }

    #[test]
    fn a_node_keeps_its_provider_and_its_addresses() {
        let old = node(json!({"providerID": "cloud://1", "podCIDRs": ["10.1.0.0/24"]}));
        check_update("Node", old.clone(), old.clone(), &[]);
        check_update(
            "Node",
            node(json!({"unschedulable": true})),
            old,
            &[
                "spec.podCIDRs: Forbidden: node updates may not change podCIDR except from \"\" to valid",
                "spec.providerID: Forbidden: node updates may not change providerID except from \"\" to valid",
            ],
        );
    }
}
