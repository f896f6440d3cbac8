//! Changes of pods (upstream `ValidatePodUpdate` and `ValidatePodStatusUpdate` of pkg/apis/core/validation): a pod keeps its
//! spec, but for a few fields.

use serde_json::{Value, json};

use super::errors::{Errors, elements, essence, text};
use super::pod::{self, count};
use super::{app_armor, internal_types, scheduling};

/// Images, the deadline, further tolerations and lifted gates, and where a gated pod may run (KEP-3838).
pub(crate) fn update(new: &Value, old: &Value, errors: &mut Errors) {
    pod::pod(new, errors);
    app_armor::kept(&new["metadata"], &old["metadata"], "metadata.annotations", errors);
    let (new_spec, old_spec) = (&new["spec"], &old["spec"]);
    let mut allowed = new_spec.clone();
    for list in ["containers", "initContainers"] {
        let (new_count, old_count) = (count(new_spec, list), count(old_spec, list));
        if new_count != old_count {
            // Upstream stops here: the containers cannot be compared one by one.
            errors.forbidden(&format!("spec.{list}"), "pod updates may not add or remove containers");
            return;
        }
        for (index, (path, container)) in elements(new_spec, list, "spec").enumerate() {
            let (image, path) = (text(container, "image"), format!("{path}.image"));
            if image.is_empty() {
                errors.required(&path, "");
            }
            if image.trim() != image {
                errors.invalid(&path, image, "must not have leading or trailing whitespace");
            }
            if let Some(copy) = allowed.get_mut(list).and_then(|items| items.get_mut(index)) {
                put(copy, "image", &old_spec[list][index]["image"]);
            }
        }
    }
    if !deadline(new_spec, old_spec, errors) {
        return;
    }
    put(&mut allowed, "activeDeadlineSeconds", &old_spec["activeDeadlineSeconds"]);
    tolerations(new_spec, old_spec, errors);
    put(&mut allowed, "tolerations", &old_spec["tolerations"]);
    gates(new_spec, old_spec, errors);
    put(&mut allowed, "schedulingGates", &old_spec["schedulingGates"]);

    let grace = |spec: &Value| spec["terminationGracePeriodSeconds"].as_i64();
    if grace(old_spec).is_some_and(|grace| grace < 0) && grace(new_spec) == Some(1) {
        let before = &old_spec["terminationGracePeriodSeconds"];
        put(&mut allowed, "terminationGracePeriodSeconds", before);
    }
    if count(old_spec, "schedulingGates") > 0 {
        directives(new_spec, old_spec, &mut allowed, errors);
    }
    if essence(&allowed) != essence(old_spec) {
        let why = format!(
            "pod updates may not change fields other than `spec.containers[*].image`,\
             `spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to \
             existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was \
             previously negative)\n{}",
            internal_types::difference("PodSpec", old_spec, &allowed)
        );
        errors.forbidden("spec", &why);
    }
}

/// Whether the rest of the pod is judged as well.
fn deadline(new: &Value, old: &Value, errors: &mut Errors) -> bool {
    let field = "spec.activeDeadlineSeconds";
    match (new["activeDeadlineSeconds"].as_i64(), old["activeDeadlineSeconds"].as_i64()) {
        (Some(new), _) if !(0..=i64::from(i32::MAX)).contains(&new) => {
            errors.invalid(field, new, "must be between 0 and 2147483647, inclusive");
            false
        }
        (Some(new), Some(old)) if new > old => {
            errors.invalid(field, new, "must be less than or equal to previous value");
            false
        }
        (None, Some(_)) => {
            errors.invalid(field, Value::Null, "must not update from a positive integer to nil value");
            true
        }
        _ => true,
    }
}

fn tolerations(new: &Value, old: &Value, errors: &mut Errors) {
    let seconds_aside = |toleration: &Value| {
        let mut toleration = toleration.clone();
        put(&mut toleration, "tolerationSeconds", &Value::Null);
        essence(&toleration)
    };
    let is_kept = |toleration: &Value| {
        let mut all = elements(new, "tolerations", "");
        all.any(|(_, other)| seconds_aside(other) == seconds_aside(toleration))
    };
    if elements(old, "tolerations", "").all(|(_, toleration)| is_kept(toleration)) {
        scheduling::tolerations(new, "spec", errors);
    } else {
        let why = "existing toleration can not be modified except its tolerationSeconds";
        errors.forbidden("spec.tolerations", why);
    }
}

fn gates(new: &Value, old: &Value, errors: &mut Errors) {
    for (path, gate) in elements(new, "schedulingGates", "spec") {
        let name = text(gate, "name");
        if !elements(old, "schedulingGates", "").any(|(_, other)| text(other, "name") == name) {
            let why = format!("only deletion is allowed, but found new scheduling gate '{name}'");
            errors.forbidden(&format!("{path}.name"), &why);
        }
    }
}

/// A gated pod may be sent to fewer nodes than before. What is judged here is the old value again in `allowed`.
fn directives(new: &Value, old: &Value, allowed: &mut Value, errors: &mut Errors) {
    let labels = |spec: &Value| spec["nodeSelector"].as_object().cloned().unwrap_or_default();
    let after = labels(new);
    if labels(old).iter().any(|(key, value)| after.get(key) != Some(value)) {
        let why = "only additions to spec.nodeSelector are allowed (no mutations or deletions)";
        errors.invalid_shown("spec.nodeSelector", &new["nodeSelector"].to_string(), why);
    }
    put(allowed, "nodeSelector", &old["nodeSelector"]);

    let (after, before) = (&new["affinity"]["nodeAffinity"], &old["affinity"]["nodeAffinity"]);
    if essence(after) == essence(before) {
        return;
    }
    node_affinity(after, before, errors);
    let mut affinity = new["affinity"].clone();
    if affinity.is_null() {
        affinity = json!({});
    }
    put(&mut affinity, "nodeAffinity", before);
    let is_nothing = old["affinity"].is_null() && affinity.as_object().is_some_and(|all| all.is_empty());
    put(allowed, "affinity", if is_nothing { &Value::Null } else { &affinity });
}

/// Each term that a node had to match stays, and may demand more.
fn node_affinity(new: &Value, old: &Value, errors: &mut Errors) {
    const FIELD: &str = "requiredDuringSchedulingIgnoredDuringExecution";
    const PATH: &str =
        "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms";
    let terms = |affinity: &Value| affinity[FIELD]["nodeSelectorTerms"].clone();
    let (after, before) = (terms(new), terms(old));
    let (new_terms, old_terms) = (after.as_array(), before.as_array());
    let Some(old_terms) = old_terms.filter(|terms| !terms.is_empty()) else { return };
    let new_terms = new_terms.map(Vec::as_slice).unwrap_or_default();
    if new_terms.len() != old_terms.len() {
        let shown = internal_types::shown_list("NodeSelectorTerm", &after);
        let why = "no additions/deletions to non-empty NodeSelectorTerms list are allowed";
        errors.invalid_shown(PATH, &shown, why);
        return;
    }
    for (index, (new, old)) in new_terms.iter().zip(old_terms).enumerate() {
        let list = |term: &Value, field: &str| term[field].as_array().cloned().unwrap_or_default();
        let starts_with = |field: &str| list(new, field).starts_with(&list(old, field));
        let fields = ["matchExpressions", "matchFields"];
        // A term without demands matches no node, so that it would match more with one.
        let was_empty = fields.iter().all(|field| list(old, field).is_empty());
        let is_empty = fields.iter().all(|field| list(new, field).is_empty());
        if (was_empty && !is_empty) || !fields.iter().all(|field| starts_with(field)) {
            let shown = internal_types::shown("NodeSelectorTerm", new);
            let why = "only additions are allowed (no mutations or deletions)";
            errors.invalid_shown(&format!("{PATH}[{index}]"), &shown, why);
        }
    }
}

/// The status comes from the kubelet; only the node it speaks for is fixed.
pub(crate) fn update_status(new: &Value, old: &Value, errors: &mut Errors) {
    if !new["spec"].is_null() && text(&new["spec"], "nodeName") != text(&old["spec"], "nodeName") {
        errors.forbidden("status.nodeName", "may not be changed directly");
    }
    addresses(&new["status"], &old["status"], errors);
    for list in ["containerStatuses", "initContainerStatuses"] {
        for (path, status) in elements(&new["status"], list, "status") {
            errors.non_negative(&format!("{path}.restartCount"), &status["restartCount"]);
            let states = status["state"].as_object().map(serde_json::Map::len).unwrap_or(0);
            if states > 1 {
                errors.invalid(
                    &format!("{path}.state"),
                    status["state"].clone(),
                    "may not have more than one state",
                );
            }
        }
    }
}

/// An address that was there before may be wrong.
fn addresses(new: &Value, old: &Value, errors: &mut Errors) {
    for (path, address) in elements(new, "podIPs", "status") {
        let ip = text(address, "ip");
        let was_there = elements(old, "podIPs", "").any(|(_, other)| text(other, "ip") == ip);
        if ip.parse::<std::net::IpAddr>().is_err() && !was_there {
            let why = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";
            errors.invalid(&path, ip, why);
        }
    }
}

/// Sets a field of an object, or removes it if the value is null.
fn put(object: &mut Value, field: &str, value: &Value) {
    if let Some(map) = object.as_object_mut() {
        if value.is_null() {
            map.remove(field);
        } else {
            map.insert(field.to_owned(), json!(value));
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::validate::tests::{check_status, check_update, pod, said, with};
    use crate::validate::update;

    #[test]
    fn images_deadlines_and_additional_tolerations_may_change() {
        let new = with(pod(), "/spec/containers/0/image", json!("nginx:2"));
        let new = with(new, "/spec/activeDeadlineSeconds", json!(60));
        let new = with(new, "/spec/tolerations", json!([{"operator": "Exists"}]));
        check_update("Pod", new, pod(), &[]);
        check_update("Pod", with(pod(), "/metadata/labels", json!({"a": "b"})), pod(), &[]);
    }

    #[test]
    fn the_rest_of_a_pod_is_immutable() {
        let errors = said(update("Pod", &with(pod(), "/spec/nodeSelector", json!({"a": "b"})), &pod()));
        assert_eq!(errors.len(), 1);
        assert!(
            errors[0].starts_with("spec: Forbidden: pod updates may not change fields other than `spec.")
        );
        let lines = "\n  \"DNSPolicy\": \"ClusterFirst\",\n- \"NodeSelector\": null,\n+ \"NodeSelector\": {\n+  \"a\": \"b\"\n+ },\n";
        assert!(errors[0].contains(lines), "{}", errors[0]);
        let mut two = with(
            pod(),
            "/spec/containers",
            json!([{"name": "app", "image": "a"}, {"name": "b", "image": "a"}]),
        );
        crate::defaults::apply("Pod", &mut two);
        check_update(
            "Pod",
            two,
            pod(),
            &["spec.containers: Forbidden: pod updates may not add or remove containers"],
        );
        let short = with(pod(), "/spec/activeDeadlineSeconds", json!(60));
        let long = with(pod(), "/spec/activeDeadlineSeconds", json!(61));
        check_update(
            "Pod",
            long,
            short,
            &["spec.activeDeadlineSeconds: Invalid value: 61: must be less than or equal to previous value"],
        );
    }

    #[test]
    fn a_toleration_stays_but_for_its_seconds() {
        let toleration = |seconds: i64| json!([{"key": "a", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds}]);
        let old = with(pod(), "/spec/tolerations", toleration(300));
        check_update("Pod", with(pod(), "/spec/tolerations", toleration(5)), old.clone(), &[]);
        check_update(
            "Pod",
            pod(),
            old,
            &[
                "spec.tolerations: Forbidden: existing toleration can not be modified except its tolerationSeconds",
            ],
        );
    }

    #[test]
    fn a_gate_can_be_removed_and_not_added() {
        let gates = |names: &[&str]| {
            let gates: Vec<Value> = names.iter().map(|name| json!({"name": name})).collect();
            with(pod(), "/spec/schedulingGates", json!(gates))
        };
        check_update("Pod", gates(&["a"]), gates(&["a", "b"]), &[]);
        check_update(
            "Pod",
            gates(&["a", "foo"]),
            gates(&["a"]),
            &[
                "spec.schedulingGates[1].name: Forbidden: only deletion is allowed, but found new scheduling gate 'foo'",
            ],
        );
    }

    #[test]
    fn a_gated_pod_may_be_sent_to_fewer_nodes() {
        let gated = with(pod(), "/spec/schedulingGates", json!([{"name": "a"}]));
        let labelled = with(gated.clone(), "/spec/nodeSelector", json!({"a": "b"}));
        check_update("Pod", labelled.clone(), gated.clone(), &[]);
        check_update(
            "Pod",
            gated.clone(),
            labelled,
            &[
                "spec.nodeSelector: Invalid value: null: only additions to spec.nodeSelector are allowed (no mutations \
               or deletions)",
            ],
        );
        let to = |terms: Value| {
            let required = "/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution";
            with(gated.clone(), required, json!({"nodeSelectorTerms": terms}))
        };
        let [a, b] = ["a", "b"].map(|key| json!({"key": key, "operator": "Exists"}));
        check_update("Pod", to(json!([{"matchExpressions": [a]}])), gated.clone(), &[]);
        check_update(
            "Pod",
            to(json!([{"matchExpressions": [a, b]}])),
            to(json!([{"matchExpressions": [a]}])),
            &[],
        );
        let path =
            "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms";
        let shown = "{\"MatchExpressions\":[{\"Key\":\"b\",\"Operator\":\"Exists\",\"Values\":null}],\"MatchFields\":null}";
        check_update(
            "Pod",
            to(json!([{"matchExpressions": [b]}])),
            to(json!([{"matchExpressions": [a]}])),
            &[&format!(
                "{path}[0]: Invalid value: {shown}: only additions are allowed (no mutations or deletions)"
            )],
        );
        check_update(
            "Pod",
            to(json!([{"matchExpressions": [b]}, {"matchExpressions": [b]}])),
            to(json!([{"matchExpressions": [a]}])),
            &[&format!(
                "{path}: Invalid value: [{shown},{shown}]: no additions/deletions to non-empty NodeSelectorTerms \
                 list are allowed"
            )],
        );
    }

    #[test]
    fn a_status_has_addresses_that_can_be_read() {
        check_status(
            "Pod",
            with(pod(), "/status/podIPs", json!([{"ip": "1.2.3"}])),
            pod(),
            &[
                "status.podIPs[0]: Invalid value: \"1.2.3\": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)",
            ],
        );
    }

    #[test]
    fn a_status_does_not_move_a_pod() {
        let old = with(pod(), "/spec/nodeName", json!("node-1"));
        let running = with(old.clone(), "/status/phase", json!("Running"));
        check_status("Pod", running, old.clone(), &[]);
        check_status(
            "Pod",
            with(old.clone(), "/spec/nodeName", json!("node-2")),
            old,
            &["status.nodeName: Forbidden: may not be changed directly"],
        );
    }
}
