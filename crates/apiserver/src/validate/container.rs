//! Containers: images, ports, environment, mounts, resources, probes.

use std::collections::BTreeSet;

use serde_json::Value;

use super::errors::{Errors, elements, text};
use super::{names, security};
use crate::quantity::{self, Quantity};

/// The fields of the pod that the validation of its containers needs.
pub(super) struct Context<'a> {
    /// The names that `volumeMounts` may refer to.
    pub(super) volumes: &'a BTreeSet<String>,
}

pub(super) fn validate(container: &Value, path: &str, context: &Context<'_>, errors: &mut Errors) {
    common(container, path, context, errors);
    for (name, repeats) in [("livenessProbe", false), ("readinessProbe", true), ("startupProbe", false)] {
        if !container[name].is_null() {
            probe(&container[name], &format!("{path}.{name}"), repeats, errors);
        }
    }
    lifecycle(container, path, errors);
}

/// An init container runs to its end, so it can be neither probed nor hooked, unless it always
/// restarts: then it is a sidecar and validated like any container.
pub(super) fn validate_init(container: &Value, path: &str, context: &Context<'_>, errors: &mut Errors) {
    if container["restartPolicy"] == "Always" {
        return validate(container, path, context, errors);
    }
    common(container, path, context, errors);
    for field in ["lifecycle", "livenessProbe", "readinessProbe", "startupProbe"] {
        if !container[field].is_null() {
            let why = "may not be set for init containers without restartPolicy=Always";
            errors.forbidden(&format!("{path}.{field}"), why);
        }
    }
}

fn common(container: &Value, path: &str, context: &Context<'_>, errors: &mut Errors) {
    let image = text(container, "image");
    let field = format!("{path}.image");
    if image.is_empty() {
        errors.required(&field, "");
    } else if image.trim() != image {
        errors.invalid(&field, image, "must not have leading or trailing whitespace");
    }
    errors.one_of(
        &format!("{path}.terminationMessagePolicy"),
        &container["terminationMessagePolicy"],
        &["File", "FallbackToLogsOnError"],
    );
    ports(container, path, errors);
    environment(container, path, errors);
    mounts(container, path, context.volumes, errors);
    errors.one_of(
        &format!("{path}.imagePullPolicy"),
        &container["imagePullPolicy"],
        &["Always", "IfNotPresent", "Never"],
    );
    resources(&container["resources"], &format!("{path}.resources"), errors);
    security::of_container(container, path, errors);
}

/// No two ports of the containers are the same port of a node.
pub(super) fn host_ports_are_unique(spec: &Value, path: &str, errors: &mut Errors) {
    let mut seen = BTreeSet::new();
    for (path, container) in elements(spec, "containers", path) {
        for (path, port) in elements(container, "ports", &path) {
            let Some(host) = port["hostPort"].as_i64().filter(|port| *port != 0) else { continue };
            let (protocol, ip) = (text(port, "protocol"), text(port, "hostIP"));
            let key = format!("{protocol}/{ip}/{host}");
            if !seen.insert(key.clone()) {
                errors.duplicate(&format!("{path}.hostPort"), key);
            }
        }
    }
}

fn ports(container: &Value, path: &str, errors: &mut Errors) {
    let mut seen = BTreeSet::new();
    for (path, port) in elements(container, "ports", path) {
        let name = text(port, "name");
        if !name.is_empty() {
            let field = format!("{path}.name");
            errors.each_invalid(&field, name, names::port_name(name));
            if !seen.insert(name) {
                errors.duplicate(&field, name);
            }
        }
        let number = port["containerPort"].as_i64().unwrap_or(0);
        let field = format!("{path}.containerPort");
        if number == 0 {
            errors.required(&field, "");
        } else {
            for why in names::port_number(number) {
                errors.invalid(&field, number, why);
            }
        }
        let host = port["hostPort"].as_i64().unwrap_or(0);
        let field = format!("{path}.hostPort");
        if host != 0 {
            for why in names::port_number(host) {
                errors.invalid(&field, host, why);
            }
        }
        errors.one_of(&format!("{path}.protocol"), &port["protocol"], &["SCTP", "TCP", "UDP"]);
    }
}

fn environment(container: &Value, path: &str, errors: &mut Errors) {
    for (path, variable) in elements(container, "env", path) {
        let field = format!("{path}.name");
        match text(variable, "name") {
            "" => errors.required(&field, ""),
            name => errors.each_invalid(&field, name, names::env_name(name)),
        }
        let Some(source) = variable["valueFrom"].as_object() else { continue };
        let field = format!("{path}.valueFrom");
        let kinds = ["fieldRef", "resourceFieldRef", "configMapKeyRef", "secretKeyRef", "fileKeyRef"];
        let given = kinds.iter().filter(|kind| source.contains_key(**kind)).count();
        if given == 0 {
            let why =
                "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef` or `secretKeyRef`";
            errors.invalid(&field, "", why);
        } else if !text(variable, "value").is_empty() {
            errors.invalid(&field, "", "may not be specified when `value` is not empty");
        } else if given > 1 {
            errors.invalid(&field, "", "may not have more than one field specified at a time");
        }
        if let Some(reference) = source.get("fieldRef") {
            field_path(text(reference, "fieldPath"), &format!("{field}.fieldRef.fieldPath"), errors);
        }
        for kind in ["configMapKeyRef", "secretKeyRef"] {
            let Some(reference) = source.get(kind) else { continue };
            for part in ["name", "key"] {
                if text(reference, part).is_empty() {
                    errors.required(&format!("{field}.{kind}.{part}"), "");
                }
            }
        }
    }
}

/// A field of the pod that a variable can have.
fn field_path(path: &str, field: &str, errors: &mut Errors) {
    const SUPPORTED: [&str; 9] = [
        "metadata.name",
        "metadata.namespace",
        "metadata.uid",
        "spec.nodeName",
        "spec.serviceAccountName",
        "status.hostIP",
        "status.hostIPs",
        "status.podIP",
        "status.podIPs",
    ];
    /// The field selectors of pods know these as well.
    const CONVERTED: [&str; 7] = [
        "metadata.annotations",
        "metadata.labels",
        "spec.hostNetwork",
        "spec.restartPolicy",
        "spec.schedulerName",
        "status.nominatedNodeName",
        "status.phase",
    ];
    let is_subscript = |map: &str| {
        path.strip_prefix(map)
            .is_some_and(|key| key.starts_with("['") && key.ends_with("']") && key.len() > 4)
    };
    if path.is_empty() {
        errors.required(field, "");
    } else if CONVERTED.contains(&path) {
        errors.not_supported(field, path, &SUPPORTED);
    } else if !SUPPORTED.contains(&path)
        && !["metadata.labels", "metadata.annotations"].into_iter().any(is_subscript)
    {
        let why = format!("error converting fieldPath: field label not supported: {path}");
        errors.invalid(field, path, why);
    }
}

fn mounts(container: &Value, path: &str, volumes: &BTreeSet<String>, errors: &mut Errors) {
    let mut seen = BTreeSet::new();
    for (path, mount) in elements(container, "volumeMounts", path) {
        let field = format!("{path}.name");
        match text(mount, "name") {
            "" => errors.required(&field, ""),
            name if !volumes.contains(name) => errors.not_found(&field, name),
            _ => {}
        }
        let field = format!("{path}.mountPath");
        match text(mount, "mountPath") {
            "" => errors.required(&field, ""),
            target if !seen.insert(target) => errors.invalid(&field, target, "must be unique"),
            _ => {}
        }
        let sub_path = text(mount, "subPath");
        let field = format!("{path}.subPath");
        if sub_path.starts_with('/') {
            errors.invalid(&field, sub_path, "must be a relative path");
        } else if sub_path.split('/').any(|part| part == "..") {
            errors.invalid(&field, sub_path, "must not contain '..'");
        }
    }
}

fn resources(resources: &Value, path: &str, errors: &mut Errors) {
    for (name, amount) in resources["limits"].as_object().into_iter().flatten() {
        resource(name, amount, &format!("{path}.limits[{name}]"), errors);
    }
    for (name, amount) in resources["requests"].as_object().into_iter().flatten() {
        let request = resource(name, amount, &format!("{path}.requests[{name}]"), errors);
        let limit = &resources["limits"][name];
        let field = format!("{path}.requests");
        match (request, parsed(limit)) {
            // Extended resources cannot be overcommitted.
            (Some(request), Some(limit)) if name.contains('/') && request != limit => {
                let why = format!("must be equal to {name} limit of {}", limit.canonical());
                errors.invalid(&field, amount.clone(), why);
            }
            (Some(request), Some(limit)) if request > limit => {
                let why = format!("must be less than or equal to {name} limit of {}", limit.canonical());
                errors.invalid(&field, amount.clone(), why);
            }
            (Some(_), None) if name.contains('/') && limit.is_null() => {
                let why = "Limit must be set for non overcommitable resources";
                errors.required(&format!("{path}.limits"), why);
            }
            _ => {}
        }
    }
}

fn parsed(amount: &Value) -> Option<Quantity> {
    Quantity::parse(amount.as_str().unwrap_or_default())
}

/// Judges the name and the amount of a resource at `field`; the amount.
fn resource(name: &str, amount: &Value, field: &str, errors: &mut Errors) -> Option<Quantity> {
    errors.each_invalid(field, name, names::label_key(name));
    let is_standard =
        matches!(name, "cpu" | "memory" | "ephemeral-storage") || name.starts_with("hugepages-");
    if !name.contains('/') && !is_standard {
        errors.invalid(field, name, "must be a standard resource type or fully qualified");
        errors.invalid(field, name, "must be a standard resource for containers");
    }
    let quantity = parsed(amount);
    match quantity {
        None => errors.invalid(field, amount.clone(), quantity::PATTERN),
        Some(value) if value.is_negative() => {
            errors.invalid(field, amount.clone(), "must be greater than or equal to 0");
        }
        Some(value) if name.contains('/') && !value.is_integer() => {
            errors.invalid(field, amount.clone(), "must be an integer");
        }
        Some(_) => {}
    }
    quantity
}

/// A readiness probe may ask for several successes; the others must be content with one.
fn probe(probe: &Value, path: &str, repeats: bool, errors: &mut Errors) {
    handler(probe, path, &["exec", "httpGet", "tcpSocket", "grpc"], errors);
    for field in
        ["initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold"]
    {
        errors.non_negative(&format!("{path}.{field}"), &probe[field]);
    }
    let threshold = probe["successThreshold"].as_i64().unwrap_or(1);
    if !repeats && threshold != 1 {
        errors.invalid(&format!("{path}.successThreshold"), threshold, "must be 1");
    }
    if let Some(grace) = probe["terminationGracePeriodSeconds"].as_i64() {
        let field = format!("{path}.terminationGracePeriodSeconds");
        if grace < 1 {
            errors.invalid(&field, grace, "must be greater than 0");
        }
        if repeats {
            errors.invalid(&field, grace, "must not be set for readinessProbes");
        }
    }
}

fn lifecycle(container: &Value, path: &str, errors: &mut Errors) {
    for hook in ["postStart", "preStop"] {
        let hooked = &container["lifecycle"][hook];
        if !hooked.is_null() {
            let path = format!("{path}.lifecycle.{hook}");
            handler(hooked, &path, &["exec", "httpGet", "tcpSocket", "sleep"], errors);
        }
    }
}

fn handler(handler: &Value, path: &str, kinds: &[&str], errors: &mut Errors) {
    let mut given = kinds.iter().filter(|kind| !handler[**kind].is_null());
    let Some(kind) = given.next() else {
        return errors.required(path, "must specify a handler type");
    };
    let field = format!("{path}.{kind}");
    let action = &handler[*kind];
    match *kind {
        "exec" if action["command"].as_array().is_none_or(Vec::is_empty) => {
            errors.required(&format!("{field}.command"), "");
        }
        "httpGet" => {
            if text(action, "path").is_empty() {
                errors.required(&format!("{field}.path"), "");
            }
            port_reference(&action["port"], &format!("{field}.port"), errors);
            errors.one_of(&format!("{field}.scheme"), &action["scheme"], &["HTTP", "HTTPS"]);
        }
        "tcpSocket" | "grpc" => port_reference(&action["port"], &format!("{field}.port"), errors),
        _ => {}
    }
    for kind in given {
        errors.forbidden(&format!("{path}.{kind}"), "may not specify more than 1 handler type");
    }
}

fn port_reference(port: &Value, field: &str, errors: &mut Errors) {
    match port {
        Value::String(name) => errors.each_invalid(field, name, names::port_name(name)),
        _ => {
            let number = port.as_i64().unwrap_or(0);
            for why in names::port_number(number) {
                errors.invalid(field, number, why);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::validate::tests::{check_create, pod, with};

    #[track_caller]
    fn check(field: &str, value: Value, expected: &[&str]) {
        let expected: Vec<String> =
            expected.iter().map(|rest| format!("spec.containers[0].{field}{rest}")).collect();
        let expected: Vec<&str> = expected.iter().map(String::as_str).collect();
        check_create("Pod", with(pod(), &format!("/spec/containers/0/{field}"), value), &expected);
    }

    #[test]
    fn a_container_has_an_image() {
        check("image", json!(""), &[": Required value"]);
        check(
            "image",
            json!(" x"),
            &[": Invalid value: \" x\": must not have leading or trailing whitespace"],
        );
        check(
            "imagePullPolicy",
            json!("Later"),
            &[": Unsupported value: \"Later\": supported values: \"Always\", \"IfNotPresent\", \"Never\""],
        );
    }

    #[test]
    fn ports_are_in_range_and_named_once() {
        check(
            "ports",
            json!([{"containerPort": 80, "name": "http"}, {"containerPort": 81, "name": "http"}]),
            &["[1].name: Duplicate value: \"http\""],
        );
        check(
            "ports",
            json!([{"containerPort": 65536}, {}]),
            &[
                "[0].containerPort: Invalid value: 65536: must be between 1 and 65535, inclusive",
                "[1].containerPort: Required value",
            ],
        );
    }

    #[test]
    fn ports_on_the_hosts_network_are_the_hosts_ports() {
        let ports = json!([{"containerPort": 80, "hostPort": 81}]);
        let pod = with(with(pod(), "/spec/hostNetwork", json!(true)), "/spec/containers/0/ports", ports);
        check_create(
            "Pod",
            pod,
            &["spec.containers[0].ports[0].hostPort: Invalid value: 81: must match `containerPort` when \
             `hostNetwork` is true"],
        );
    }

    #[test]
    fn a_variable_has_one_source() {
        check(
            "env",
            json!([{"name": "", "value": "x"}, {"name": "A", "valueFrom": {}}]),
            &[
                "[0].name: Required value",
                "[1].valueFrom: Invalid value: \"\": must specify one of: `fieldRef`, `resourceFieldRef`, \
             `configMapKeyRef` or `secretKeyRef`",
            ],
        );
    }

    #[test]
    fn a_mount_names_a_volume_of_the_pod() {
        check(
            "volumeMounts",
            json!([{"name": "tmp", "mountPath": "/tmp"}]),
            &["[0].name: Not found: \"tmp\""],
        );
    }

    #[test]
    fn requests_stay_within_limits() {
        check(
            "resources",
            json!({"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}),
            &[".requests: Invalid value: \"2\": must be less than or equal to cpu limit of 1"],
        );
        check("resources", json!({"requests": {"cpu": "1000m"}, "limits": {"cpu": "1"}}), &[]);
        check(
            "resources",
            json!({"limits": {"cpu": "-1"}}),
            &[".limits[cpu]: Invalid value: \"-1\": must be greater than or equal to 0"],
        );
        check(
            "resources",
            json!({"limits": {"gpu": "1"}}),
            &[
                ".limits[gpu]: Invalid value: \"gpu\": must be a standard resource type or fully qualified",
                ".limits[gpu]: Invalid value: \"gpu\": must be a standard resource for containers",
            ],
        );
        check(
            "resources",
            json!({"requests": {"x.io/gpu": "1"}}),
            &[".limits: Required value: Limit must be set for non overcommitable resources"],
        );
    }

    #[test]
    fn a_probe_has_one_handler_and_sane_numbers() {
        let get = json!({"path": "/", "port": 80, "scheme": "HTTP"});
        check("readinessProbe", json!({"httpGet": get, "successThreshold": 3}), &[]);
        check(
            "livenessProbe",
            json!({"httpGet": get, "successThreshold": 3, "periodSeconds": -1}),
            &[
                ".periodSeconds: Invalid value: -1: must be greater than or equal to 0",
                ".successThreshold: Invalid value: 3: must be 1",
            ],
        );
        check("readinessProbe", json!({}), &[": Required value: must specify a handler type"]);
        check(
            "readinessProbe",
            json!({"httpGet": get, "exec": {"command": ["true"]}}),
            &[".httpGet: Forbidden: may not specify more than 1 handler type"],
        );
    }

    #[test]
    fn only_sidecars_among_init_containers_are_probed() {
        let init = |policy: Value| {
            let probe = json!({"tcpSocket": {"port": 80}});
            json!([{"name": "i", "image": "x", "restartPolicy": policy, "readinessProbe": probe}])
        };
        check_create("Pod", with(pod(), "/spec/initContainers", init(json!("Always"))), &[]);
        check_create(
            "Pod",
            with(pod(), "/spec/initContainers", init(Value::Null)),
            &[
                "spec.initContainers[0].readinessProbe: Forbidden: may not be set for init containers without \
             restartPolicy=Always",
            ],
        );
    }
}
