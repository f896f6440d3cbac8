//! Services (upstream `ValidateService` of `pkg/apis/core/validation`).

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::endpoints::{ip, of_a_pod};
use super::errors::{Errors, elements, text};
use super::network::network;
use super::{metadata, names};

const HINTS: &str = "service.kubernetes.io/topology-aware-hints";
const MODE: &str = "service.kubernetes.io/topology-mode";
/// Older than the field.
const SOURCE_RANGES: &str = "service.beta.kubernetes.io/load-balancer-source-ranges";
const LOAD_BALANCER_ONLY: &str = "may only be used when `type` is 'LoadBalancer'";
const DAY: i64 = 86_400;

pub(crate) fn update(new: &Value, old: &Value, errors: &mut Errors) {
    let named = |service: &Value| text(&service["spec"], "type") == "ExternalName";
    let has_no_address = named(new) || named(old) || is_headless(new) && is_headless(old);
    if !has_no_address {
        let (new, old) = (&new["spec"]["clusterIPs"], &old["spec"]["clusterIPs"]);
        let unset = || new.as_array().is_none_or(Vec::is_empty);
        if unset() && !old.is_null() {
            errors.invalid("spec.clusterIPs[0]", json!([]), "primary clusterIP can not be unset");
        } else if new[0] != old[0] && !old.is_null() {
            errors.invalid("spec.clusterIPs[0]", new.clone(), "may not change once set");
        }
    }
    let balanced = |service: &Value| text(&service["spec"], "type") == "LoadBalancer";
    let class = |service: &Value| service["spec"]["loadBalancerClass"].clone();
    if balanced(new) && balanced(old) && class(new) != class(old) {
        errors.invalid("spec.loadBalancerClass", class(new), "may not change once set");
    }
    let port = |service: &Value| service["spec"]["healthCheckNodePort"].clone();
    if needs_health_check(&new["spec"]) && needs_health_check(&old["spec"]) && port(new) != port(old) {
        errors.forbidden("spec.healthCheckNodePort", "field is immutable");
    }
    service(new, errors);
}

/// A write through `/status`: only a load balancer has addresses outside.
pub(crate) fn status(new: &Value, _old: &Value, errors: &mut Errors) {
    let path = "status.loadBalancer.ingress";
    let balancer = &new["status"]["loadBalancer"];
    let mut all = elements(balancer, "ingress", "status.loadBalancer").peekable();
    if all.peek().is_some() && new["spec"]["type"] != "LoadBalancer" {
        return errors.forbidden(path, "may only be used when `spec.type` is 'LoadBalancer'");
    }
    for (path, ingress) in all {
        let (address, mode) = (text(ingress, "ip"), format!("{path}.ipMode"));
        if !address.is_empty() {
            ip(address, &format!("{path}.ip"), errors);
            errors.one_of(&mode, &ingress["ipMode"], &["Proxy", "VIP"]);
        } else if ingress["ipMode"].is_string() {
            errors.forbidden(&mode, "may not be specified when `ip` is not set");
        }
        let (host, field) = (text(ingress, "hostname"), format!("{path}.hostname"));
        if !host.is_empty() {
            errors.each_invalid(&field, host, names::dns1123_subdomain(host));
        }
        if host.parse::<std::net::IpAddr>().is_ok() {
            errors.invalid(&field, host, "must be a DNS name, not an IP address");
        }
    }
}

/// Whether a Service has no address because it wants none.
pub(crate) fn is_headless(service: &Value) -> bool {
    service["spec"]["clusterIPs"][0] == "None"
}

/// Whether load balancers ask each node if it has an endpoint.
pub(crate) fn needs_health_check(spec: &Value) -> bool {
    text(spec, "type") == "LoadBalancer" && text(spec, "externalTrafficPolicy") == "Local"
}

fn is_reached_from_outside(spec: &Value) -> bool {
    match text(spec, "type") {
        "LoadBalancer" | "NodePort" => true,
        "ClusterIP" => spec["externalIPs"].as_array().is_some_and(|all| !all.is_empty()),
        _ => false,
    }
}

pub(crate) fn service(object: &Value, errors: &mut Errors) {
    let spec = &object["spec"];
    let kind = text(spec, "type");
    let annotations = &object["metadata"]["annotations"];
    if annotations[MODE].is_string()
        && annotations[HINTS].is_string()
        && annotations[MODE] != annotations[HINTS]
    {
        let why = format!("must match annotations[{HINTS}] when both are specified");
        errors.invalid(&format!("metadata.annotations[{MODE}]"), annotations[MODE].clone(), why);
    }
    let ports = spec["ports"].as_array().map_or(0, Vec::len);
    if ports == 0 && !is_headless(object) && kind != "ExternalName" {
        errors.required("spec.ports", "");
    }
    if is_headless(object) && matches!(kind, "NodePort" | "LoadBalancer") {
        let why = format!("may not be set to 'None' for {kind} services");
        errors.invalid("spec.clusterIPs[0]", "None", why);
    }
    if kind == "ExternalName" {
        external_name(spec, errors);
    }
    each_port(spec, errors);
    metadata::labels(&spec["selector"], "spec.selector", errors);
    affinity(spec, errors);
    addresses(spec, errors);
    for (path, address) in elements(spec, "externalIPs", "spec") {
        let (address, before) = (address.as_str().unwrap_or_default(), errors.len());
        ip(address, &path, errors);
        if errors.len() == before {
            of_a_pod(address, &path, errors);
        }
    }
    errors.one_of("spec.type", &spec["type"], &["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"]);
    distinct_ports(spec, kind, errors);
    source_ranges(object, errors);
    if kind != "LoadBalancer" && !spec["allocateLoadBalancerNodePorts"].is_null() {
        errors.forbidden("spec.allocateLoadBalancerNodePorts", LOAD_BALANCER_ONLY);
    }
    match spec["loadBalancerClass"].as_str() {
        None => {}
        Some(_) if kind != "LoadBalancer" => errors.forbidden("spec.loadBalancerClass", LOAD_BALANCER_ONLY),
        Some(class) => errors.each_invalid("spec.loadBalancerClass", class, names::label_key(class)),
    }
    traffic(spec, errors);
}

fn external_name(spec: &Value, errors: &mut Errors) {
    for field in ["clusterIPs", "ipFamilies", "ipFamilyPolicy"] {
        if !spec[field].is_null() {
            errors.forbidden(&format!("spec.{field}"), "may not be set for ExternalName services");
        }
    }
    let name = text(spec, "externalName");
    match name.strip_suffix('.').unwrap_or(name) {
        "" => errors.required("spec.externalName", ""),
        name => errors.each_invalid("spec.externalName", name, names::dns1123_subdomain(name)),
    }
}

fn each_port(spec: &Value, errors: &mut Errors) {
    let count = spec["ports"].as_array().map_or(0, Vec::len);
    let mut seen = BTreeSet::new();
    for (path, port) in elements(spec, "ports", "spec") {
        let field = format!("{path}.name");
        match text(port, "name") {
            "" if count > 1 => errors.required(&field, ""),
            "" => {}
            name => {
                errors.each_invalid(&field, name, names::dns1123_label(name));
                if !seen.insert(name) {
                    errors.duplicate(&field, name);
                }
            }
        }
        let number = port["port"].as_i64().unwrap_or(0);
        for why in names::port_number(number) {
            errors.invalid(&format!("{path}.port"), number, why);
        }
        errors.one_of(&format!("{path}.protocol"), &port["protocol"], &["SCTP", "TCP", "UDP"]);
        match &port["targetPort"] {
            // It would be that of the port.
            Value::Null if number != 0 => {}
            Value::String(name) => {
                errors.each_invalid(&format!("{path}.targetPort"), name, names::port_name(name));
            }
            target => {
                let number = target.as_i64().unwrap_or(0);
                for why in names::port_number(number) {
                    errors.invalid(&format!("{path}.targetPort"), number, why);
                }
            }
        }
        if let Some(protocol) = port["appProtocol"].as_str() {
            errors.each_invalid(&format!("{path}.appProtocol"), protocol, names::label_key(protocol));
        }
    }
}

fn affinity(spec: &Value, errors: &mut Errors) {
    errors.one_of("spec.sessionAffinity", &spec["sessionAffinity"], &["ClientIP", "None"]);
    let config = &spec["sessionAffinityConfig"];
    if spec["sessionAffinity"] == "ClientIP" {
        let seconds = config["clientIP"]["timeoutSeconds"].as_i64().unwrap_or(0);
        if !(1..=DAY).contains(&seconds) {
            let why = format!("must be greater than 0 and less than {DAY}");
            errors.invalid("spec.sessionAffinityConfig.clientIP.timeoutSeconds", seconds, why);
        }
    } else if spec["sessionAffinity"] == "None" && !config.is_null() {
        let why = "must not be set when session affinity is None";
        errors.forbidden("spec.sessionAffinityConfig", why);
    }
}

/// The fields about addresses inside the cluster, which have to agree (`ValidateServiceClusterIPsRelatedFields`).
pub(crate) fn addresses(spec: &Value, errors: &mut Errors) {
    if text(spec, "type") == "ExternalName" {
        return;
    }
    let all = spec["clusterIPs"].as_array().map(Vec::as_slice).unwrap_or_default();
    let listed = |why: &str, errors: &mut Errors| errors.invalid("spec.clusterIPs", json!(all), why);
    match (text(spec, "clusterIP"), all) {
        ("", []) => {}
        ("", _) => listed("must be empty when `clusterIP` is not specified", errors),
        (_, []) => errors.required("spec.clusterIPs", ""),
        (one, [first, ..]) if first != one => listed("first value must match `clusterIP`", errors),
        _ => {}
    }
    let mut seen = BTreeSet::new();
    for (path, family) in elements(spec, "ipFamilies", "spec") {
        errors.one_of(&path, family, &["IPv4", "IPv6"]);
        if !seen.insert(family.as_str()) {
            errors.duplicate(&path, family.clone());
        }
    }
    let policies = ["PreferDualStack", "RequireDualStack", "SingleStack"];
    errors.one_of("spec.ipFamilyPolicy", &spec["ipFamilyPolicy"], &policies);
    if all.first().is_some_and(|first| first == "None") {
        if all.len() > 1 {
            listed("'None' must be the first and only value", errors);
        }
        return;
    }
    let before = errors.len();
    for (path, address) in elements(spec, "clusterIPs", "spec") {
        ip(address.as_str().unwrap_or_default(), &path, errors);
    }
    if all.len() > 2 {
        listed("may only hold up to 2 values", errors);
    }
    if errors.len() > before {
        return;
    }
    let families: Vec<&str> =
        all.iter().map(|address| family(address.as_str().unwrap_or_default())).collect();
    if families.len() > 1 && families.iter().collect::<BTreeSet<_>>().len() < families.len() {
        listed("may specify no more than one IP for each IP family", errors);
    }
    for (index, (found, address)) in families.iter().zip(all).enumerate() {
        let wanted = spec["ipFamilies"][index].as_str().unwrap_or(found);
        if wanted != *found {
            let why = format!("expected an {wanted} value as indicated by `ipFamilies[{index}]`");
            errors.invalid(&format!("spec.clusterIPs[{index}]"), address.clone(), why);
        }
    }
}

/// The family of a valid address.
pub(crate) fn family(address: &str) -> &'static str {
    if address.contains(':') { "IPv6" } else { "IPv4" }
}

fn distinct_ports(spec: &Value, kind: &str, errors: &mut Errors) {
    let (mut node_ports, mut ports) = (BTreeSet::new(), BTreeSet::new());
    let number = |value: &Value| value.as_i64().unwrap_or(0);
    for (path, port) in elements(spec, "ports", "spec") {
        if kind == "ClusterIP" && number(&port["nodePort"]) != 0 {
            errors.forbidden(&format!("{path}.nodePort"), "may not be used when `type` is 'ClusterIP'");
        }
    }
    for (path, port) in elements(spec, "ports", "spec") {
        let node_port = number(&port["nodePort"]);
        if node_port != 0 && !node_ports.insert((text(port, "protocol"), node_port)) {
            errors.duplicate(&format!("{path}.nodePort"), node_port);
        }
    }
    for (path, port) in elements(spec, "ports", "spec") {
        let (protocol, number) = (text(port, "protocol"), number(&port["port"]));
        if !ports.insert((protocol, number)) {
            // The fields of the Go type, in its order.
            let shown = format!(
                "{{\"Name\":\"\",\"Protocol\":{protocol:?},\"AppProtocol\":null,\"Port\":{number},\"TargetPort\":0,\"NodePort\":0}}"
            );
            errors.push(&path, "FieldValueDuplicate", format!("Duplicate value: {shown}"));
        }
    }
}

fn source_ranges(object: &Value, errors: &mut Errors) {
    let spec = &object["spec"];
    let balanced = spec["type"] == "LoadBalancer";
    let range = |path: &str, written: &str, errors: &mut Errors| {
        let written = written.trim();
        if network(written).is_none() {
            let why = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)";
            errors.invalid(path, written, why);
        }
    };
    // Upstream names the field like this.
    let field = "spec.LoadBalancerSourceRanges";
    let ranges = spec["loadBalancerSourceRanges"].as_array().map(Vec::as_slice).unwrap_or_default();
    if !ranges.is_empty() {
        if !balanced {
            errors.forbidden(field, LOAD_BALANCER_ONLY);
        }
        for (index, written) in ranges.iter().enumerate() {
            range(&format!("{field}[{index}]"), written.as_str().unwrap_or_default(), errors);
        }
    } else if let Some(written) = object["metadata"]["annotations"][SOURCE_RANGES].as_str() {
        let field = format!("metadata.annotations[{SOURCE_RANGES}]");
        if !balanced {
            errors.forbidden(&field, LOAD_BALANCER_ONLY);
        }
        let ranges = written.split(',').filter(|_| !written.trim().is_empty());
        ranges.for_each(|written| range(&field, written, errors));
    }
}

fn traffic(spec: &Value, errors: &mut Errors) {
    let (policy, field) = (&spec["externalTrafficPolicy"], "spec.externalTrafficPolicy");
    if is_reached_from_outside(spec) {
        errors.one_of(field, policy, &["Cluster", "Local"]);
    } else if policy.as_str().is_some_and(|policy| !policy.is_empty()) {
        errors.invalid(field, policy.clone(), "may only be set for externally-accessible services");
    }
    let port = spec["healthCheckNodePort"].as_i64().unwrap_or(0);
    if port != 0 && !needs_health_check(spec) {
        let why = "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'";
        errors.invalid("spec.healthCheckNodePort", port, why);
    }
    errors.one_of("spec.internalTrafficPolicy", &spec["internalTrafficPolicy"], &["Cluster", "Local"]);
    let supported = ["PreferClose", "PreferSameZone", "PreferSameNode"];
    errors.one_of("spec.trafficDistribution", &spec["trafficDistribution"], &supported);
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::validate::tests::check_create;

    #[test]
    fn a_service_has_distinct_ports() {
        let service = |ports: Value| json!({"metadata": {"name": "x", "namespace": "shop"}, "spec": {"type": "ClusterIP", "ports": ports}});
        check_create("Service", service(json!([])), &["spec.ports: Required value"]);
        check_create(
            "Service",
            service(json!([
                {"port": 80, "name": "a", "protocol": "TCP"},
                {"port": 80, "name": "a", "protocol": "TCP"},
                {"port": 0},
            ])),
            &[
                "spec.ports[1].name: Duplicate value: \"a\"",
                "spec.ports[2].name: Required value",
                "spec.ports[2].port: Invalid value: 0: must be between 1 and 65535, inclusive",
                "spec.ports[2].targetPort: Invalid value: 0: must be between 1 and 65535, inclusive",
                "spec.ports[1]: Duplicate value: {\"Name\":\"\",\"Protocol\":\"TCP\",\"AppProtocol\":null,\"Port\":80,\"TargetPort\":0,\"NodePort\":0}",
            ],
        );
    }
}
