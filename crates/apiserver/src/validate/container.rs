//! Containers: names, images, ports, policies; their other parts have modules of their own.

use std::collections::BTreeSet;

use serde_json::Value;

use super::errors::{Errors, elements, essence, text};
use super::{environment, mounts, names, probes, resources, security};

/// The parts of the pod that the validation of its containers needs.
pub(super) struct Context<'a> {
    /// The spec of the pod.
    pub(super) spec: &'a Value,
    /// The names that `volumeMounts` may refer to.
    pub(super) volumes: &'a BTreeSet<String>,
}

/// `seen` has the names of the containers before it.
pub(super) fn validate<'a>(
    container: &'a Value,
    path: &str,
    context: &Context<'_>,
    seen: &mut BTreeSet<&'a str>,
    errors: &mut Errors,
) {
    common(container, path, context, errors);
    let name = text(container, "name");
    if !seen.insert(name) {
        errors.duplicate(&format!("{path}.name"), name);
    }
    hooks_and_probes(container, path, context, errors);
    restart_rules(container, path, errors);
}

/// An init container runs to its end, so it can be neither probed nor hooked, unless it always
/// restarts: then it is a sidecar and validated like any container.
pub(super) fn validate_init<'a>(
    container: &'a Value,
    path: &str,
    context: &Context<'_>,
    seen: &mut BTreeSet<&'a str>,
    errors: &mut Errors,
) {
    common(container, path, context, errors);
    restart_rules(container, path, errors);
    let name = text(container, "name");
    if !name.is_empty() && !seen.insert(name) {
        errors.duplicate(&format!("{path}.name"), name);
    }
    if container["restartPolicy"] == "Always" {
        return hooks_and_probes(container, path, context, errors);
    }
    for field in ["lifecycle", "livenessProbe", "readinessProbe", "startupProbe"] {
        if !container[field].is_null() {
            let why = "may not be set for init containers without restartPolicy=Always";
            errors.forbidden(&format!("{path}.{field}"), why);
        }
    }
}

/// A container to debug others with: it serves nobody, and it has a name that no other has.
pub(super) fn validate_ephemeral<'a>(
    container: &'a Value,
    path: &str,
    context: &Context<'_>,
    seen: &mut BTreeSet<&'a str>,
    errors: &mut Errors,
) {
    const REFUSED: [&str; 9] = [
        "ports",
        "resources",
        "resizePolicy",
        "restartPolicy",
        "restartPolicyRules",
        "livenessProbe",
        "readinessProbe",
        "startupProbe",
        "lifecycle",
    ];
    common(container, path, context, errors);
    image(container, path, errors);
    let name = text(container, "name");
    if !seen.insert(name) {
        errors.duplicate(&format!("{path}.name"), name);
    }
    let target = text(container, "targetContainerName");
    let mut others =
        ["containers", "initContainers"].iter().flat_map(|list| elements(context.spec, list, ""));
    if !target.is_empty() && !others.any(|(_, other)| text(other, "name") == target) {
        errors.not_found(&format!("{path}.targetContainerName"), target);
    }
    let why = "cannot be set for an Ephemeral Container";
    let set = essence(container);
    for field in REFUSED.into_iter().filter(|field| !set[*field].is_null()) {
        errors.forbidden(&format!("{path}.{field}"), why);
    }
    for (path, mount) in elements(container, "volumeMounts", path) {
        for field in ["subPath", "subPathExpr"].into_iter().filter(|field| !text(mount, field).is_empty()) {
            errors.forbidden(&format!("{path}.{field}"), why);
        }
    }
}

fn hooks_and_probes(container: &Value, path: &str, context: &Context<'_>, errors: &mut Errors) {
    probes::lifecycle(container, path, context.spec, errors);
    let grace = context.spec["terminationGracePeriodSeconds"].as_i64();
    for (name, repeats) in [("livenessProbe", false), ("readinessProbe", true), ("startupProbe", false)] {
        if !container[name].is_null() {
            probes::probe(&container[name], &format!("{path}.{name}"), repeats, grace, errors);
        }
    }
}

/// A policy of its own, and what it does after which exit codes.
fn restart_rules(container: &Value, path: &str, errors: &mut Errors) {
    let field = format!("{path}.restartPolicy");
    let rules = container["restartPolicyRules"].as_array().map_or(0, Vec::len);
    if container["restartPolicy"].is_null() {
        if rules > 0 {
            errors.required(&field, "must specify restartPolicy when restart rules are used");
        }
    } else {
        errors.one_of(&field, &container["restartPolicy"], &["Always", "Never", "OnFailure"]);
    }
    if rules > 20 {
        errors.too_many(&format!("{path}.restartPolicyRules"), rules, 20);
    }
    for (path, rule) in elements(container, "restartPolicyRules", path) {
        let actions = ["Restart", "RestartAllContainers"];
        if !actions.contains(&text(rule, "action")) {
            errors.not_supported(&format!("{path}.action"), text(rule, "action"), &actions);
        }
        let (codes, path) = (&rule["exitCodes"], format!("{path}.exitCodes"));
        if codes.is_null() {
            errors.required(&path, "must be specified");
            continue;
        }
        if !["In", "NotIn"].contains(&text(codes, "operator")) {
            errors.not_supported(&format!("{path}.operator"), text(codes, "operator"), &["In", "NotIn"]);
        }
        let count = codes["values"].as_array().map_or(0, Vec::len);
        if count > 255 {
            errors.too_many(&format!("{path}.values"), count, 255);
        }
    }
}

/// Upstream judges spaces around images in pods, and not in templates.
pub(super) fn images(spec: &Value, path: &str, errors: &mut Errors) {
    for list in ["initContainers", "containers"] {
        for (path, container) in elements(spec, list, path) {
            image(container, &path, errors);
        }
    }
}

fn image(container: &Value, path: &str, errors: &mut Errors) {
    let image = text(container, "image");
    if image.trim() != image {
        let why = "must not have leading or trailing whitespace";
        errors.invalid(&format!("{path}.image"), image, why);
    }
}

fn common(container: &Value, path: &str, context: &Context<'_>, errors: &mut Errors) {
    let (name, field) = (text(container, "name"), format!("{path}.name"));
    match name {
        "" => errors.required(&field, ""),
        name => errors.each_invalid(&field, name, names::dns1123_label(name)),
    }
    if text(container, "image").is_empty() {
        errors.required(&format!("{path}.image"), "");
    }
    errors.one_of(
        &format!("{path}.terminationMessagePolicy"),
        &container["terminationMessagePolicy"],
        &["File", "FallbackToLogsOnError"],
    );
    ports(container, path, errors);
    environment::validate(container, path, errors);
    mounts::mounts(container, path, context.volumes, errors);
    mounts::devices(container, path, context.spec, errors);
    errors.one_of(
        &format!("{path}.imagePullPolicy"),
        &container["imagePullPolicy"],
        &["Always", "IfNotPresent", "Never"],
    );
    resources::validate(&container["resources"], &format!("{path}.resources"), context.spec, errors);
    resources::resize_policy(container, path, context.spec, errors);
    security::of_container(container, path, context.spec, errors);
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
             `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`",
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
    fn a_container_to_debug_others_serves_nobody() {
        let with = |container: Value| with(pod(), "/spec/ephemeralContainers", json!([container]));
        let refused = "spec.ephemeralContainers: Forbidden: cannot be set on create";
        let check = |container: Value, expected: &[&str]| {
            let expected = expected.iter().map(|rest| format!("spec.ephemeralContainers[0]{rest}"));
            let expected: Vec<String> = expected.chain([refused.to_owned()]).collect();
            let expected: Vec<&str> = expected.iter().map(String::as_str).collect();
            check_create("Pod", with(container), &expected);
        };
        let probe = json!({"tcpSocket": {"port": 80}});
        check(json!({"name": "d", "image": "x", "targetContainerName": "app"}), &[]);
        check(json!({"name": "app", "image": "x"}), &[".name: Duplicate value: \"app\""]);
        check(json!({}), &[".name: Required value", ".image: Required value"]);
        check(
            json!({
                "name": "d", "image": "x", "targetContainerName": "zz", "volumeMounts": [{"name": "q", "mountPath": "/q"}],
                "ports": [{"containerPort": 80}], "resources": {"limits": {"cpu": "1"}}, "livenessProbe": probe,
                "readinessProbe": probe, "startupProbe": probe, "lifecycle": {"preStop": {"sleep": {"seconds": 1}}},
            }),
            &[
                ".volumeMounts[0].name: Not found: \"q\"",
                ".targetContainerName: Not found: \"zz\"",
                ".ports: Forbidden: cannot be set for an Ephemeral Container",
                ".resources: Forbidden: cannot be set for an Ephemeral Container",
                ".livenessProbe: Forbidden: cannot be set for an Ephemeral Container",
                ".readinessProbe: Forbidden: cannot be set for an Ephemeral Container",
                ".startupProbe: Forbidden: cannot be set for an Ephemeral Container",
                ".lifecycle: Forbidden: cannot be set for an Ephemeral Container",
            ],
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
