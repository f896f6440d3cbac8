//! An update of a Service keeps what the server gave, but for what goes with a change of type.

use serde_json::{Map, Value, json};

use crate::object::{as_map, copy_field, map_mut, text};
use crate::validate::service::needs_health_check;

/// An update that leaves out what was allocated keeps it (`patchAllocatedValues`, `normalizeClusterIPs`).
pub(super) fn keep_allocated(new: &mut Value, old: &Value) {
    let named = |service: &Value| text(service, "/spec/type") == "ExternalName";
    let (before, all) = (text(old, "/spec/clusterIP").to_owned(), &old["spec"]["clusterIPs"]);
    let both_have_ports = has_node_ports(new) && has_node_ports(old);
    let keeps_address = !named(new) && !named(old);
    let keeps_check = needs_health_check(&new["spec"]) && needs_health_check(&old["spec"]);
    let used: Vec<i64> = node_ports(new).into_iter().filter(|port| node_ports(old).contains(port)).collect();
    let spec = map_mut(new, "spec");
    let given = |spec: &Map<String, Value>| {
        spec.get("clusterIP").and_then(Value::as_str).unwrap_or_default().to_owned()
    };
    if keeps_address {
        if given(spec).is_empty() {
            copy_field(spec, old.get("spec"), "clusterIP");
        }
        if is_empty(spec.get("clusterIPs")) {
            copy_field(spec, old.get("spec"), "clusterIPs");
        }
    }
    let is_same = spec.get("clusterIPs").unwrap_or(&Value::Null) == all;
    if given(spec) != before && is_same {
        match given(spec) {
            cleared if cleared.is_empty() => drop(spec.remove("clusterIPs")),
            other => drop(spec.insert("clusterIPs".to_owned(), json!([other]))),
        }
    }
    if both_have_ports {
        let of_name = |name: &Value| {
            let mut ports = old["spec"]["ports"].as_array().into_iter().flatten();
            let same = ports.rfind(|port| port["name"] == *name)?;
            Some(number_in(same, "nodePort")).filter(|port| *port != 0 && !used.contains(port))
        };
        for port in spec.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten() {
            if number_in(port, "nodePort") == 0
                && let Some(kept) = of_name(&port["name"])
            {
                as_map(port).insert("nodePort".to_owned(), json!(kept));
            }
        }
    }
    if keeps_check && spec.get("healthCheckNodePort").is_none_or(|port| *port == 0) {
        copy_field(spec, old.get("spec"), "healthCheckNodePort");
    }
}

/// Fields that a Service of the new type cannot have go, unless the client changed them too (`dropTypeDependentFields`).
pub(super) fn drop_by_type(new: &mut Value, old: &Value) {
    let kind = text(new, "/spec/type").to_owned();
    let was = text(old, "/spec/type");
    let is_reached = |service: &Value| {
        has_node_ports(service)
            || text(service, "/spec/type") == "ClusterIP" && !is_empty(service["spec"].get("externalIPs"))
    };
    let no_longer = |has: fn(&Value) -> bool, new: &Value| has(old) && !has(new);
    let mut fields = Vec::new();
    if kind == "ExternalName" && was != "ExternalName" {
        fields.extend(["ipFamilies", "ipFamilyPolicy"]);
        let same = |field: &str| new["spec"][field] == old["spec"][field];
        if same("clusterIP") && same("clusterIPs") {
            as_map(&mut new["spec"]).retain(|field, _| field != "clusterIP" && field != "clusterIPs");
        }
    }
    if no_longer(|service| needs_health_check(&service["spec"]), new) {
        fields.push("healthCheckNodePort");
    }
    if no_longer(|service| text(service, "/spec/type") == "LoadBalancer", new) {
        fields.extend(["allocateLoadBalancerNodePorts", "loadBalancerClass"]);
    }
    if is_reached(old) && !is_reached(new) {
        fields.push("externalTrafficPolicy");
    }
    let adds_none = node_ports(new).iter().all(|port| node_ports(old).contains(port));
    let drops_ports = no_longer(has_node_ports, new) && adds_none;
    let spec = map_mut(new, "spec");
    for field in fields {
        if spec.get(field) == old["spec"].get(field) {
            spec.remove(field);
        }
    }
    if drops_ports {
        for port in spec.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten() {
            as_map(port).remove("nodePort");
        }
    }
    if kind != "LoadBalancer" {
        map_mut(new, "status").insert("loadBalancer".to_owned(), json!({}));
    }
}

pub(super) fn is_empty(list: Option<&Value>) -> bool {
    list.and_then(Value::as_array).is_none_or(Vec::is_empty)
}

pub(super) fn number_in(object: &Value, field: &str) -> i64 {
    object[field].as_i64().unwrap_or(0)
}

pub(super) fn node_ports(service: &Value) -> Vec<i64> {
    let ports = service["spec"]["ports"].as_array().into_iter().flatten();
    ports.map(|port| number_in(port, "nodePort")).filter(|port| *port != 0).collect()
}

fn has_node_ports(service: &Value) -> bool {
    matches!(text(service, "/spec/type"), "NodePort" | "LoadBalancer")
}
