//! Endpoints and EndpointSlices (upstream `pkg/apis/{core,discovery}/validation`).

use std::collections::BTreeSet;
use std::net::IpAddr;

use serde_json::Value;

use super::errors::{Errors, elements, essence, text};
use super::names;

const PROTOCOLS: [&str; 3] = ["SCTP", "TCP", "UDP"];
const MAX_ENDPOINTS: usize = 1000;
const MAX_ADDRESSES: usize = 100;
const MAX_PORTS: usize = 20_000;
const MAX_HINTS: usize = 8;

pub(crate) fn endpoints(object: &Value, errors: &mut Errors) {
    for (path, subset) in elements(object, "subsets", "") {
        let is_empty = |list: &str| subset[list].as_array().is_none_or(Vec::is_empty);
        if is_empty("addresses") && is_empty("notReadyAddresses") {
            errors.required(&path, "must specify `addresses` or `notReadyAddresses`");
        }
        for list in ["addresses", "notReadyAddresses"] {
            for (path, address_of) in elements(subset, list, &path) {
                let (field, address) = (format!("{path}.ip"), text(address_of, "ip"));
                ip(address, &field, errors);
                host(address_of, &path, errors);
                of_a_pod(address, &field, errors);
            }
        }
        let ports = subset["ports"].as_array().map_or(0, Vec::len);
        for (path, port) in elements(subset, "ports", &path) {
            let field = format!("{path}.name");
            match text(port, "name") {
                "" if ports > 1 => errors.required(&field, ""),
                "" => {}
                name => errors.each_invalid(&field, name, names::dns1123_label(name)),
            }
            let number = port["port"].as_i64().unwrap_or(0);
            for why in names::port_number(number) {
                errors.invalid(&format!("{path}.port"), number, why);
            }
            errors.one_of(&format!("{path}.protocol"), &port["protocol"], &PROTOCOLS);
            if let Some(protocol) = port["appProtocol"].as_str() {
                errors.each_invalid(&format!("{path}.appProtocol"), protocol, names::label_key(protocol));
            }
        }
    }
}

/// Adds why a text is no address.
pub(super) fn ip(address: &str, field: &str, errors: &mut Errors) {
    match address.parse::<IpAddr>() {
        Ok(IpAddr::V6(ip)) if ip.to_ipv4_mapped().is_some() => {
            errors.invalid(field, address, "must not be an IPv4-mapped IPv6 address");
        }
        Ok(_) => {}
        Err(_) if has_leading_zeros(address) => {
            errors.invalid(field, address, "must not have leading 0s");
        }
        Err(_) => {
            errors.invalid(field, address, "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)");
        }
    }
}

fn has_leading_zeros(address: &str) -> bool {
    let digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    let mut parts = address.split('.');
    address.split('.').count() == 4 && parts.all(|part| digits(part) && part.parse::<u8>().is_ok())
}

/// Adds why an address is none that a pod can have.
pub(super) fn of_a_pod(address: &str, field: &str, errors: &mut Errors) {
    let Ok(parsed) = address.parse::<IpAddr>() else {
        return errors.invalid(field, address, "must be a valid IP address");
    };
    let (local, multicast) = match parsed {
        IpAddr::V4(ip) => (ip.is_link_local(), ip.octets()[..3] == [224, 0, 0]),
        IpAddr::V6(ip) => (ip.is_unicast_link_local(), ip.segments()[0] == 0xff02),
    };
    let why = match () {
        () if parsed.is_unspecified() => {
            return errors.invalid(field, address, format!("may not be unspecified ({address})"));
        }
        () if parsed.is_loopback() => "may not be in the loopback range (127.0.0.0/8, ::1/128)",
        () if local => "may not be in the link-local range (169.254.0.0/16, fe80::/10)",
        () if multicast => "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)",
        () => return,
    };
    errors.invalid(field, address, why);
}

pub(crate) fn endpoint_slice(object: &Value, errors: &mut Errors) {
    type_and_ports(object, errors);
    endpoints_of(object, errors);
}

fn type_and_ports(object: &Value, errors: &mut Errors) {
    let family = text(object, "addressType");
    match family {
        "" => errors.required("addressType", ""),
        "FQDN" | "IPv4" | "IPv6" => {}
        other => errors.not_supported("addressType", other, &["FQDN", "IPv4", "IPv6"]),
    }
    let count = |list: &Value| list.as_array().map_or(0, Vec::len);
    if count(&object["ports"]) > MAX_PORTS {
        errors.too_many("ports", count(&object["ports"]), MAX_PORTS);
    }
    let mut seen = BTreeSet::new();
    for (path, port) in elements(object, "ports", "") {
        let (field, name) = (format!("{path}.name"), text(port, "name"));
        if !name.is_empty() {
            errors.each_invalid(&field, name, names::dns1123_label(name));
        }
        if !seen.insert(name) {
            errors.duplicate(&field, name);
        }
        errors.one_of(&format!("{path}.protocol"), &port["protocol"], &PROTOCOLS);
        if let Some(protocol) = port["appProtocol"].as_str() {
            errors.each_invalid(&format!("{path}.appProtocol"), protocol, names::label_key(protocol));
        }
    }
}

fn endpoints_of(object: &Value, errors: &mut Errors) {
    let (family, count) = (text(object, "addressType"), |list: &Value| list.as_array().map_or(0, Vec::len));
    if count(&object["endpoints"]) > MAX_ENDPOINTS {
        return errors.too_many("endpoints", count(&object["endpoints"]), MAX_ENDPOINTS);
    }
    for (path, endpoint) in elements(object, "endpoints", "") {
        let field = format!("{path}.addresses");
        match count(&endpoint["addresses"]) {
            0 => errors.required(&field, "must contain at least 1 address"),
            number if number > MAX_ADDRESSES => errors.too_many(&field, number, MAX_ADDRESSES),
            _ => {}
        }
        for (item, address) in elements(endpoint, "addresses", &path) {
            let address = address.as_str().unwrap_or_default();
            match (family, address.parse::<IpAddr>()) {
                ("IPv4", Ok(IpAddr::V6(_))) => errors.invalid(&field, address, "must be an IPv4 address"),
                ("IPv6", Ok(IpAddr::V4(_))) => errors.invalid(&field, address, "must be an IPv6 address"),
                ("IPv4" | "IPv6", Err(_)) => ip(address, &item, errors),
                ("IPv4" | "IPv6", Ok(_)) => of_a_pod(address, &item, errors),
                ("FQDN", _) => errors.each_invalid(&item, address, names::dns1123_subdomain(address)),
                _ => {}
            }
        }
        host(endpoint, &path, errors);
        hints(&endpoint["hints"], &format!("{path}.hints"), errors);
    }
}

/// The names of the pod behind an address, and of its node.
fn host(address: &Value, path: &str, errors: &mut Errors) {
    if let Some(host) = address["hostname"].as_str() {
        errors.each_invalid(&format!("{path}.hostname"), host, names::dns1123_label(host));
    }
    if let Some(node) = address["nodeName"].as_str() {
        errors.each_invalid(&format!("{path}.nodeName"), node, names::dns1123_subdomain(node));
    }
}

/// The zones and nodes that an endpoint is for, each once.
fn hints(hints: &Value, path: &str, errors: &mut Errors) {
    let wrong_zone: fn(&str) -> Vec<String> = names::label_value;
    for (list, wrong) in [("forZones", wrong_zone), ("forNodes", names::dns1123_subdomain)] {
        let count = hints[list].as_array().map_or(0, Vec::len);
        if count > MAX_HINTS {
            return errors.too_many(&format!("{path}.{list}"), count, MAX_HINTS);
        }
        let mut seen = BTreeSet::new();
        for (path, hint) in elements(hints, list, path) {
            let (field, name) = (format!("{path}.name"), text(hint, "name"));
            if !seen.insert(name) {
                errors.duplicate(&field, name);
            }
            errors.each_invalid(&field, name, wrong(name));
        }
    }
}

pub(crate) fn endpoint_slice_update(new: &Value, old: &Value, errors: &mut Errors) {
    type_and_ports(new, errors);
    // An older value may predate the rules.
    if essence(&new["endpoints"]) != essence(&old["endpoints"]) {
        endpoints_of(new, errors);
    }
    errors.immutable("addressType", &new["addressType"], &old["addressType"]);
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::validate::create;
    use crate::validate::tests::check_update;

    fn starts(kind: &str, object: &Value) -> Vec<String> {
        let errors = create(kind, object).into_iter().map(|error| error.to_string());
        errors.map(|error| error.split(": a lowercase").next().unwrap_or_default().to_owned()).collect()
    }

    #[test]
    fn an_endpoint_is_for_a_zone_and_a_node_once() {
        let hints =
            json!({"forZones": [{"name": "a"}, {"name": "a"}], "forNodes": [{"name": "nn"}, {"name": "nn"}]});
        let slice = json!({
            "metadata": {"name": "web", "namespace": "shop"}, "addressType": "IPv4",
            "endpoints": [{"addresses": ["10.0.0.1"], "hints": hints}],
        });
        let expected = [
            "endpoints[0].hints.forZones[1].name: Duplicate value: \"a\"",
            "endpoints[0].hints.forNodes[1].name: Duplicate value: \"nn\"",
        ];
        assert_eq!(starts("EndpointSlice", &slice), expected);
    }

    #[test]
    fn an_address_is_of_a_pod_and_a_node_that_can_be() {
        let address = json!({"ip": "10.0.0.1", "hostname": "A_", "nodeName": "B_"});
        let endpoints =
            json!({"metadata": {"name": "web", "namespace": "shop"}, "subsets": [{"addresses": [address]}]});
        let expected = [
            "subsets[0].addresses[0].hostname: Invalid value: \"A_\"",
            "subsets[0].addresses[0].nodeName: Invalid value: \"B_\"",
        ];
        assert_eq!(starts("Endpoints", &endpoints), expected);
    }

    #[test]
    fn endpoints_that_do_not_change_are_not_judged_again() {
        let slice = |family: &str, address: &str| {
            let endpoints = json!([{"addresses": [address]}]);
            json!({"metadata": {"name": "es", "namespace": "shop"}, "addressType": family, "endpoints": endpoints})
        };
        check_update(
            "EndpointSlice",
            slice("IPv6", "1.2.3.4"),
            slice("IPv4", "1.2.3.4"),
            &["addressType: Invalid value: \"IPv6\": field is immutable"],
        );
        let wrong = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";
        check_update(
            "EndpointSlice",
            slice("IPv4", "x"),
            slice("IPv4", "1.2.3.4"),
            &[&format!("endpoints[0].addresses[0]: Invalid value: \"x\": {wrong}")],
        );
    }
}
