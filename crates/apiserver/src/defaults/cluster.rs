//! The defaults of kinds around the workloads: networks, storage, rights, admission and priorities (upstream
//! `pkg/apis/*/v1/defaults.go`).

use serde_json::{Value, json};

use super::fields::{Object, child, ensure, fill, fill_number, objects, remove_empty_list};

const RBAC: &str = "rbac.authorization.k8s.io";

pub(crate) fn endpoints(object: &mut Object) {
    for subset in objects(object, "subsets") {
        objects(subset, "ports").for_each(|port| fill(port, "protocol", "TCP"));
    }
}

pub(crate) fn endpoint_slice(object: &mut Object) {
    for port in objects(object, "ports") {
        fill(port, "name", "");
        fill(port, "protocol", "TCP");
    }
    for endpoint in objects(object, "endpoints") {
        ensure(endpoint, "conditions");
        if let Some(hints) = child(endpoint, "hints") {
            for list in ["forZones", "forNodes"] {
                objects(hints, list).for_each(|hint| fill(hint, "name", ""));
            }
        }
    }
    ["endpoints", "ports"].iter().for_each(|list| remove_empty_list(object, list));
}

pub(crate) fn ingress(object: &mut Object) {
    if let Some(status) = ensure(object, "status") {
        ensure(status, "loadBalancer");
    }
}

pub(crate) fn ingress_class(object: &mut Object) {
    if let Some(parameters) = child(object, "spec").and_then(|spec| child(spec, "parameters")) {
        fill(parameters, "scope", "Cluster");
    }
}

pub(crate) fn network_policy(object: &mut Object) {
    let Some(spec) = ensure(object, "spec") else { return };
    ensure(spec, "podSelector");
    let is_empty = |list: Option<&Value>| list.and_then(Value::as_array).is_none_or(Vec::is_empty);
    if is_empty(spec.get("policyTypes")) {
        let types: &[&str] = if is_empty(spec.get("egress")) { &["Ingress"] } else { &["Ingress", "Egress"] };
        spec.insert("policyTypes".to_owned(), json!(types));
    }
    for direction in ["ingress", "egress"] {
        for rule in objects(spec, direction) {
            objects(rule, "ports").for_each(|port| fill(port, "protocol", "TCP"));
        }
    }
}

pub(crate) fn role_binding(object: &mut Object) {
    if let Some(role) = ensure(object, "roleRef") {
        fill(role, "apiGroup", RBAC);
    }
    for subject in objects(object, "subjects") {
        if subject.get("kind").is_some_and(|kind| kind == "User" || kind == "Group") {
            fill(subject, "apiGroup", RBAC);
        }
    }
}

pub(crate) fn storage_class(object: &mut Object) {
    fill(object, "reclaimPolicy", "Delete");
    fill(object, "volumeBindingMode", "Immediate");
}

pub(crate) fn csi_driver(object: &mut Object) {
    let Some(spec) = ensure(object, "spec") else { return };
    fill(spec, "attachRequired", true);
    for field in ["podInfoOnMount", "storageCapacity", "requiresRepublish", "seLinuxMount"] {
        fill(spec, field, false);
    }
    fill(spec, "fsGroupPolicy", "ReadWriteOnceWithFSType");
    objects(spec, "tokenRequests").for_each(|request| fill(request, "audience", ""));
    if spec.get("volumeLifecycleModes").is_none_or(|modes| modes.as_array().is_none_or(Vec::is_empty)) {
        spec.insert("volumeLifecycleModes".to_owned(), json!(["Persistent"]));
    }
}

pub(crate) fn volume_attachment(object: &mut Object) {
    if let Some(status) = ensure(object, "status") {
        fill(status, "attached", false);
    }
}

pub(crate) fn priority_class(object: &mut Object) {
    fill(object, "preemptionPolicy", "PreemptLowerPriority");
    fill(object, "value", 0);
}

pub(crate) fn validating_webhooks(object: &mut Object) {
    for webhook in objects(object, "webhooks") {
        fill(webhook, "failurePolicy", "Fail");
        match_resources(webhook);
        fill(webhook, "timeoutSeconds", 10);
        objects(webhook, "rules").for_each(|rule| fill(rule, "scope", "*"));
        if let Some(client) = child(webhook, "clientConfig") {
            service_port(client);
        }
    }
}

pub(crate) fn mutating_webhooks(object: &mut Object) {
    validating_webhooks(object);
    objects(object, "webhooks").for_each(|webhook| fill(webhook, "reinvocationPolicy", "Never"));
}

fn service_port(holder: &mut Object) {
    if let Some(service) = child(holder, "service") {
        fill(service, "port", 443);
    }
}

/// The objects that a webhook or an admission policy applies to.
fn match_resources(object: &mut Object) {
    fill(object, "matchPolicy", "Equivalent");
    ensure(object, "namespaceSelector");
    ensure(object, "objectSelector");
    for rules in ["resourceRules", "excludeResourceRules"] {
        objects(object, rules).for_each(|rule| fill(rule, "scope", "*"));
    }
}

pub(crate) fn admission_policy(object: &mut Object) {
    if let Some(spec) = ensure(object, "spec") {
        fill(spec, "failurePolicy", "Fail");
        if let Some(constraints) = child(spec, "matchConstraints") {
            match_resources(constraints);
        }
    }
}

pub(crate) fn validating_admission_policy(object: &mut Object) {
    admission_policy(object);
    ensure(object, "status");
}

pub(crate) fn admission_policy_binding(object: &mut Object) {
    if let Some(matched) = child(object, "spec").and_then(|spec| child(spec, "matchResources")) {
        match_resources(matched);
    }
}

pub(crate) fn flow_schema(object: &mut Object) {
    if let Some(spec) = ensure(object, "spec") {
        fill_number(spec, "matchingPrecedence", 1000);
    }
    ensure(object, "status");
}

pub(crate) fn priority_level(object: &mut Object) {
    if let Some(spec) = ensure(object, "spec") {
        for (kind, shares) in [("exempt", 0), ("limited", 30)] {
            if let Some(level) = child(spec, kind) {
                fill(level, "nominalConcurrencyShares", shares);
                fill(level, "lendablePercent", 0);
                let queuing = child(level, "limitResponse").and_then(|response| child(response, "queuing"));
                if let Some(queuing) = queuing {
                    fill_number(queuing, "handSize", 8);
                    fill_number(queuing, "queues", 64);
                    fill_number(queuing, "queueLengthLimit", 50);
                }
            }
        }
    }
    ensure(object, "status");
}

pub(crate) fn api_service(object: &mut Object) {
    if let Some(spec) = ensure(object, "spec") {
        service_port(spec);
    }
    ensure(object, "status");
}

pub(crate) fn resource_claim(object: &mut Object) {
    if let Some(spec) = child(object, "spec") {
        device_requests(spec);
    }
    ensure(object, "status");
}

pub(crate) fn resource_claim_template(object: &mut Object) {
    if let Some(template) = child(object, "spec") {
        ensure(template, "metadata");
        if let Some(spec) = child(template, "spec") {
            device_requests(spec);
        }
    }
}

fn device_requests(spec: &mut Object) {
    let Some(devices) = child(spec, "devices") else { return };
    for request in objects(devices, "requests") {
        if let Some(exactly) = child(request, "exactly") {
            exact_count(exactly);
        }
        objects(request, "firstAvailable").for_each(exact_count);
    }
}

fn exact_count(request: &mut Object) {
    fill(request, "allocationMode", "ExactCount");
    if request.get("allocationMode").is_some_and(|mode| mode == "ExactCount") {
        fill_number(request, "count", 1);
    }
}

/// Go writes a spec that is not there as an empty one.
pub(crate) fn empty_spec(object: &mut Object) {
    ensure(object, "spec");
}

/// A kind whose status is there from the beginning, with nothing in it.
pub(crate) fn empty_status(object: &mut Object) {
    ensure(object, "status");
}
