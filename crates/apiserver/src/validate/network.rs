//! Ingresses and NetworkPolicies (upstream `pkg/apis/networking/validation`).

use std::net::IpAddr;

use serde_json::Value;

use super::errors::{Errors, elements, text};
use super::{names, selectors};

/// Names the class of an Ingress; older than the field.
const CLASS: &str = "kubernetes.io/ingress.class";

pub(crate) fn new_ingress(object: &Value, errors: &mut Errors) {
    ingress(object, errors);
    let annotation = &object["metadata"]["annotations"][CLASS];
    let class = &object["spec"]["ingressClassName"];
    if annotation.is_string() && class.is_string() && annotation != class {
        let why = "must match `ingressClassName` when both are specified";
        errors.invalid(&format!("annotations.{CLASS}"), annotation.clone(), why);
    }
}

pub(crate) fn ingress(object: &Value, errors: &mut Errors) {
    let spec = &object["spec"];
    let backend = &spec["defaultBackend"];
    if spec["rules"].as_array().is_none_or(Vec::is_empty) && backend.is_null() {
        let why = "either `defaultBackend` or `rules` must be specified";
        errors.invalid("spec", spec["rules"].clone(), why);
    }
    if !backend.is_null() {
        self::backend(backend, "spec.defaultBackend", errors);
    }
    for (path, rule) in elements(spec, "rules", "spec") {
        let host = text(rule, "host");
        let field = format!("{path}.host");
        if host.parse::<IpAddr>().is_ok() {
            errors.invalid(&field, host, "must be a DNS name, not an IP address");
        }
        if !host.is_empty() {
            errors.each_invalid(&field, host, host_name(host));
        }
        if rule["http"].is_object() {
            let path = format!("{path}.http");
            if rule["http"]["paths"].as_array().is_none_or(Vec::is_empty) {
                errors.required(&format!("{path}.paths"), "");
            }
            for (path, item) in elements(&rule["http"], "paths", &path) {
                http_path(item, &path, errors);
            }
        }
    }
    for (path, tls) in elements(spec, "tls", "spec") {
        for (path, host) in elements(tls, "hosts", &path) {
            let host = host.as_str().unwrap_or_default();
            errors.each_invalid(&path, host, host_name(host));
        }
        match text(tls, "secretName") {
            "" => {}
            name => errors.each_invalid(&format!("{path}.secretName"), name, names::dns1123_subdomain(name)),
        }
    }
    if let Some(class) = spec["ingressClassName"].as_str() {
        errors.each_invalid("spec.ingressClassName", class, names::dns1123_subdomain(class));
    }
}

/// A DNS name, whose first label may be a star.
fn host_name(host: &str) -> Vec<String> {
    if !host.contains('*') {
        return names::dns1123_subdomain(host);
    }
    match host.strip_prefix("*.") {
        Some(rest) if names::dns1123_subdomain(rest).is_empty() => Vec::new(),
        _ => vec![
            "a wildcard DNS-1123 subdomain must start with '*.', followed by a valid DNS subdomain, which must consist of \
             lower case alphanumeric characters, '-' or '.' and end with an alphanumeric character (e.g. '*.example.com', \
             regex used for validation is \
             '\\*\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
                .to_owned(),
        ],
    }
}

fn http_path(item: &Value, path: &str, errors: &mut Errors) {
    let (field, given) = (format!("{path}.path"), text(item, "path"));
    match text(item, "pathType") {
        "" => return errors.required(&format!("{path}.pathType"), "pathType must be specified"),
        "Exact" | "Prefix" => {
            if !given.starts_with('/') {
                errors.invalid(&field, given, "must be an absolute path");
            }
            for part in ["//", "/./", "/../", "%2f", "%2F"].into_iter().filter(|part| given.contains(part)) {
                errors.invalid(&field, given, format!("must not contain '{part}'"));
            }
            for end in ["/..", "/."].into_iter().filter(|end| given.ends_with(end)) {
                errors.invalid(&field, given, format!("cannot end with '{end}'"));
            }
        }
        "ImplementationSpecific" => {
            if !given.is_empty() && !given.starts_with('/') {
                errors.invalid(&field, given, "must be an absolute path");
            }
        }
        other => {
            let types = ["Exact", "ImplementationSpecific", "Prefix"];
            errors.not_supported(&format!("{path}.pathType"), other, &types);
        }
    }
    backend(&item["backend"], &format!("{path}.backend"), errors);
}

fn backend(backend: &Value, path: &str, errors: &mut Errors) {
    let (service, resource) = (&backend["service"], &backend["resource"]);
    match (service.is_null(), resource.is_null()) {
        (true, true) => errors.invalid(path, "", "resource or service backend is required"),
        (false, false) => errors.invalid(path, "", "cannot set both resource and service backends"),
        (true, false) => {
            let path = format!("{path}.resource");
            reference(resource, &path, errors);
        }
        (false, true) => {
            let field = format!("{path}.service.name");
            match text(service, "name") {
                "" => errors.required(&field, ""),
                name => errors.each_invalid(&field, name, names::dns1123_label(name)),
            }
            let (name, number) =
                (text(&service["port"], "name"), service["port"]["number"].as_i64().unwrap_or(0));
            match (name, number) {
                ("", 0) => errors.required(path, "port name or number is required"),
                ("", number) => {
                    for why in names::port_number(number) {
                        errors.invalid(&format!("{path}.service.port.number"), number, why);
                    }
                }
                (name, 0) => {
                    let field = format!("{path}.service.port.name");
                    errors.each_invalid(&field, name, names::port_name(name));
                }
                _ => errors.invalid(path, "", "cannot set both port name & port number"),
            }
        }
    }
}

/// The group, kind and name of another object.
fn reference(reference: &Value, path: &str, errors: &mut Errors) {
    if let Some(group) = reference["apiGroup"].as_str() {
        errors.each_invalid(&format!("{path}.apiGroup"), group, names::dns1123_subdomain(group));
    }
    for field in ["kind", "name"] {
        let path = format!("{path}.{field}");
        match text(reference, field) {
            "" => errors.required(&path, ""),
            name => errors.each_invalid(&path, name, names::path_segment(name)),
        }
    }
}

pub(crate) fn ingress_class(object: &Value, errors: &mut Errors) {
    let spec = &object["spec"];
    if text(spec, "controller").len() > 250 {
        errors.too_long("spec.controller", 250);
    }
    domain_prefixed_path("spec.controller", text(spec, "controller"), errors);
    let parameters = &spec["parameters"];
    if parameters.is_null() {
        return;
    }
    let path = "spec.parameters";
    reference(parameters, path, errors);
    let namespace = format!("{path}.namespace");
    match (text(parameters, "scope"), parameters["namespace"].as_str()) {
        ("Namespace", None) => errors.required(&namespace, "`parameters.scope` is set to 'Namespace'"),
        ("Namespace", Some(name)) => errors.each_invalid(&namespace, name, names::dns1123_label(name)),
        ("Cluster", Some(_)) => errors.forbidden(&namespace, "`parameters.scope` is set to 'Cluster'"),
        ("Cluster", None) => {}
        (other, _) => errors.not_supported(&format!("{path}.scope"), other, &["Cluster", "Namespace"]),
    }
}

pub(crate) fn ingress_class_update(new: &Value, old: &Value, errors: &mut Errors) {
    errors.immutable("spec.controller", &new["spec"]["controller"], &old["spec"]["controller"]);
    ingress_class(new, errors);
}

/// Such as `example.com/controller`.
fn domain_prefixed_path(field: &str, path: &str, errors: &mut Errors) {
    if path.is_empty() {
        return errors.required(field, "");
    }
    match path.split_once('/') {
        Some((host, rest)) if !host.is_empty() && !rest.is_empty() => {
            errors.each_invalid(field, host, names::dns1123_subdomain(host));
        }
        _ => errors.invalid(field, path, "must be a domain-prefixed path (such as \"acme.io/foo\")"),
    }
}

pub(crate) fn network_policy(object: &Value, errors: &mut Errors) {
    let spec = &object["spec"];
    selectors::label_selector(&spec["podSelector"], "spec.podSelector", errors);
    for (direction, peers) in [("ingress", "from"), ("egress", "to")] {
        for (path, rule) in elements(spec, direction, "spec") {
            for (path, port) in elements(rule, "ports", &path) {
                policy_port(port, &path, errors);
            }
            for (path, peer) in elements(rule, peers, &path) {
                policy_peer(peer, &path, errors);
            }
        }
    }
    let types = spec["policyTypes"].as_array().map(Vec::as_slice).unwrap_or_default();
    if types.len() > 2 {
        let why = "may not specify more than two policyTypes";
        return errors.invalid("spec.policyTypes", spec["policyTypes"].clone(), why);
    }
    for (path, policy) in elements(spec, "policyTypes", "spec") {
        errors.one_of(&path, policy, &["Ingress", "Egress"]);
    }
}

fn policy_port(port: &Value, path: &str, errors: &mut Errors) {
    errors.one_of(&format!("{path}.protocol"), &port["protocol"], &["TCP", "UDP", "SCTP"]);
    let (first, last) = (&port["port"], &port["endPort"]);
    let end = format!("{path}.endPort");
    match first {
        Value::Null if last.is_null() => {}
        Value::Null => {
            errors.invalid(&end, last.clone(), "may not be specified when `port` is not specified")
        }
        Value::String(name) => {
            if !last.is_null() {
                errors.invalid(&end, last.clone(), "may not be specified when `port` is non-numeric");
            }
            errors.each_invalid(&format!("{path}.port"), name, names::port_name(name));
        }
        _ => {
            let number = first.as_i64().unwrap_or(0);
            for why in names::port_number(number) {
                errors.invalid(&format!("{path}.port"), number, why);
            }
            if let Some(last) = last.as_i64() {
                if last < number {
                    errors.invalid(&end, number, "must be greater than or equal to `port`");
                }
                for why in names::port_number(last) {
                    errors.invalid(&end, last, why);
                }
            }
        }
    }
}

fn policy_peer(peer: &Value, path: &str, errors: &mut Errors) {
    let block = &peer["ipBlock"];
    let mut selectors = 0;
    for field in ["podSelector", "namespaceSelector"] {
        if !peer[field].is_null() {
            selectors += 1;
            selectors::label_selector(&peer[field], &format!("{path}.{field}"), errors);
        }
    }
    if !block.is_null() {
        ip_block(block, &format!("{path}.ipBlock"), errors);
    }
    match (selectors, block.is_null()) {
        (0, true) => errors.required(path, "must specify a peer"),
        (1.., false) => errors.forbidden(path, "may not specify both ipBlock and another peer"),
        _ => {}
    }
}

fn ip_block(block: &Value, path: &str, errors: &mut Errors) {
    let field = format!("{path}.cidr");
    let written = text(block, "cidr");
    if written.is_empty() {
        return errors.required(&field, "");
    }
    let Some(whole) = range(written, &field, errors) else { return };
    for (path, except) in elements(block, "except", path) {
        let written = except.as_str().unwrap_or_default();
        if range(written, &path, errors).is_some_and(|part| !is_within(part, whole)) {
            errors.invalid(&path, written, "must be a strict subset of `cidr`");
        }
    }
}

/// Judges a range of addresses as upstream's `IsValidCIDRForLegacyField` does for new objects. Old fields, this one among
/// them, once took leading zeros and bits behind the prefix, so that what is meant by them is judged, too.
pub(super) fn range(written: &str, field: &str, errors: &mut Errors) -> Option<(IpAddr, u32)> {
    if let Some(found) = network(written) {
        if !has_no_bits_behind(found) {
            errors.invalid(field, written, "must not have bits set beyond the prefix length");
        }
        return Some(found);
    }
    let plain = |part: &str| {
        let bare = part.trim_start_matches('0');
        if bare.is_empty() && !part.is_empty() { "0".to_owned() } else { bare.to_owned() }
    };
    let bare = written.split_once('/').filter(|_| !written.contains(':')).map(|(address, length)| {
        let address: Vec<String> = address.split('.').map(plain).collect();
        format!("{}/{}", address.join("."), plain(length))
    });
    let found = bare.and_then(|bare| network(&bare));
    let why = match found {
        Some(_) => "must not have leading 0s in IP or prefix length",
        None => "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)",
    };
    errors.invalid(field, written, why);
    found
}

fn has_no_bits_behind((address, length): (IpAddr, u32)) -> bool {
    match address {
        IpAddr::V4(address) => u64::from(address.to_bits()) & ((1_u64 << (32 - length)) - 1) == 0,
        IpAddr::V6(address) => address.to_bits() & !u128::MAX.checked_shl(128 - length).unwrap_or(0) == 0,
    }
}

/// An address and the length of its prefix.
pub(super) fn network(text: &str) -> Option<(IpAddr, u32)> {
    let (address, length) = text.split_once('/')?;
    let address: IpAddr = address.parse().ok()?;
    let length: u32 = length.parse().ok()?;
    (length <= if address.is_ipv4() { 32 } else { 128 }).then_some((address, length))
}

/// Whether a network is a part of another one, and not all of it.
fn is_within(part: (IpAddr, u32), whole: (IpAddr, u32)) -> bool {
    let prefix = |address: IpAddr| match address {
        IpAddr::V4(address) => u64::from(address.to_bits()).checked_shr(32 - whole.1).unwrap_or(0).into(),
        IpAddr::V6(address) => address.to_bits().checked_shr(128 - whole.1).unwrap_or(0),
    };
    part.0.is_ipv4() == whole.0.is_ipv4() && part.1 > whole.1 && prefix(part.0) == prefix(whole.0)
}
