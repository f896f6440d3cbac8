//! Deployments, ReplicaSets (upstream `pkg/apis/apps/validation/validation.go`) and
//! ReplicationControllers (upstream `pkg/apis/core/validation/validation.go`).

use serde_json::Value;

use super::errors::{Errors, essence, text};
use super::{app_armor, metadata, names, pod, selectors};
use crate::selector::LabelSelector;

pub(crate) fn deployment(object: &Value, errors: &mut Errors) {
    let spec = &object["spec"];
    common(spec, errors);
    strategy(&spec["strategy"], errors);
    errors.non_negative("spec.minReadySeconds", &spec["minReadySeconds"]);
    errors.non_negative("spec.revisionHistoryLimit", &spec["revisionHistoryLimit"]);
    if let Some(deadline) = spec["progressDeadlineSeconds"].as_i64() {
        errors.non_negative("spec.progressDeadlineSeconds", &spec["progressDeadlineSeconds"]);
        if deadline <= spec["minReadySeconds"].as_i64().unwrap_or(0) {
            let why = "must be greater than minReadySeconds";
            errors.invalid("spec.progressDeadlineSeconds", deadline, why);
        }
    }
}

pub(crate) fn replica_set(object: &Value, errors: &mut Errors) {
    let spec = &object["spec"];
    errors.non_negative("spec.minReadySeconds", &spec["minReadySeconds"]);
    common(spec, errors);
}

pub(crate) fn deployment_update(new: &Value, old: &Value, errors: &mut Errors) {
    deployment(new, errors);
    immutable_selector(new, old, errors);
}

pub(crate) fn replica_set_update(new: &Value, old: &Value, errors: &mut Errors) {
    replica_set(new, errors);
    immutable_selector(new, old, errors);
}

/// Its selector is a plain map, which must select the template and be more than nothing.
pub(crate) fn replication_controller(object: &Value, errors: &mut Errors) {
    let spec = &object["spec"];
    errors.non_negative("spec.minReadySeconds", &spec["minReadySeconds"]);
    let selector = spec["selector"].as_object().filter(|labels| !labels.is_empty());
    if selector.is_none() {
        errors.required("spec.selector", "");
    }
    errors.non_negative("spec.replicas", &spec["replicas"]);
    let template = &spec["template"];
    if template.is_null() {
        errors.required("spec.template", "");
        return;
    }
    let labels = &template["metadata"]["labels"];
    if selector.into_iter().flatten().any(|(key, value)| labels.get(key) != Some(value)) {
        mismatch(labels, errors);
    }
    pod_template(template, "ReplicationController", errors);
}

pub(super) fn immutable_selector(new: &Value, old: &Value, errors: &mut Errors) {
    errors.immutable("spec.selector", &new["spec"]["selector"], &old["spec"]["selector"]);
}

fn common(spec: &Value, errors: &mut Errors) {
    errors.non_negative("spec.replicas", &spec["replicas"]);
    let selector = &spec["selector"];
    if selector.is_null() {
        errors.required("spec.selector", "");
    } else {
        selectors::label_selector(selector, "spec.selector", errors);
        if essence(selector).as_object().is_some_and(serde_json::Map::is_empty) {
            // Upstream uses the same sentence for both kinds.
            errors.invalid("spec.selector", selector.clone(), "empty selector is invalid for deployment");
        }
    }
    // Go has no absent template: it is one without labels and containers.
    let template = &spec["template"];
    match LabelSelector::from_spec(selector) {
        // An absent selector selects nothing.
        Err(_) if selector.is_null() => mismatch(&template["metadata"]["labels"], errors),
        Err(_) => {
            errors.invalid_shown("spec.selector", &selectors::shown(selector), "invalid label selector")
        }
        Ok(parsed) => {
            let labels = &template["metadata"]["labels"];
            if !parsed.is_empty() && !parsed.matches(labels) {
                mismatch(labels, errors);
            }
        }
    }
    pod_template(template, "ReplicaSet", errors);
}

pub(super) fn mismatch(labels: &Value, errors: &mut Errors) {
    let why = "`selector` does not match template `labels`";
    errors.invalid("spec.template.metadata.labels", labels.clone(), why);
}

/// A template of pods that are kept at a number of replicas. `keeper` is the kind in the message;
/// upstream says "ReplicaSet" for Deployments as well.
pub(super) fn pod_template(template: &Value, keeper: &str, errors: &mut Errors) {
    self::template(template, "spec.template", errors);
    kept_pod(&template["spec"], keeper, errors);
}

/// Pods that end by themselves cannot be kept at a number of replicas.
pub(super) fn kept_pod(pod_spec: &Value, keeper: &str, errors: &mut Errors) {
    let policy = &pod_spec["restartPolicy"];
    if policy.as_str().is_some_and(|policy| policy != "Always") {
        errors.not_supported("spec.template.spec.restartPolicy", policy.clone(), &["Always"]);
    }
    if !pod_spec["activeDeadlineSeconds"].is_null() {
        let why = format!("activeDeadlineSeconds in {keeper} is not Supported");
        errors.forbidden("spec.template.spec.activeDeadlineSeconds", &why);
    }
}

/// A template of pods at a path.
pub(super) fn template(template: &Value, path: &str, errors: &mut Errors) {
    // Without `metadata` in the path, as upstream has it.
    metadata::labels_and_annotations(&template["metadata"], path, errors);
    let pod_spec = &template["spec"];
    app_armor::annotations(&template["metadata"], pod_spec, &format!("{path}.annotations"), errors);
    pod::spec(pod_spec, &format!("{path}.spec"), errors);
    if pod_spec["ephemeralContainers"].as_array().is_some_and(|containers| !containers.is_empty()) {
        let why = "ephemeral containers not allowed in pod template";
        errors.forbidden(&format!("{path}.spec.ephemeralContainers"), why);
    }
    app_armor::conflicts(&template["metadata"], pod_spec, &format!("{path}.spec"), errors);
}

/// The Go type of `rollingUpdate` in JSON.
pub(super) fn shown_rolling_update(rolling: &Value) -> String {
    if rolling.is_null() {
        return "null".to_owned();
    }
    let number = |field: &str| rolling[field].to_string();
    format!("{{\"MaxUnavailable\":{},\"MaxSurge\":{}}}", number("maxUnavailable"), number("maxSurge"))
}

fn strategy(strategy: &Value, errors: &mut Errors) {
    let rolling = &strategy["rollingUpdate"];
    match text(strategy, "type") {
        "Recreate" => {
            if !rolling.is_null() {
                errors.forbidden(
                    "spec.strategy.rollingUpdate",
                    "may not be specified when strategy `type` is 'Recreate'",
                );
            }
        }
        "RollingUpdate" if rolling.is_null() => {
            errors.required("spec.strategy.rollingUpdate", "this should be defaulted and never be nil");
        }
        "RollingUpdate" => rolling_update(rolling, "spec.strategy.rollingUpdate", errors),
        kind => {
            let rolling = shown_rolling_update(rolling);
            let shown = format!("{{\"Type\":{kind:?},\"RollingUpdate\":{rolling}}}");
            errors.not_supported_shown("spec.strategy", &shown, &["Recreate", "RollingUpdate"]);
        }
    }
}

fn rolling_update(rolling: &Value, path: &str, errors: &mut Errors) {
    let unavailable_path = format!("{path}.maxUnavailable");
    let (unavailable, surge) = (&rolling["maxUnavailable"], &rolling["maxSurge"]);
    int_or_percent(unavailable, &unavailable_path, errors);
    int_or_percent(surge, &format!("{path}.maxSurge"), errors);
    if amount(unavailable) == Some(0) && amount(surge) == Some(0) {
        errors.invalid(&unavailable_path, unavailable.clone(), "may not be 0 when `maxSurge` is 0");
    }
    if unavailable.is_string() && amount(unavailable).is_none_or(|percent| percent > 100) {
        let is_percent = unavailable.as_str().is_some_and(|text| names::percent(text).is_empty());
        if is_percent {
            errors.invalid(&unavailable_path, unavailable.clone(), "must not be greater than 100%");
        }
    }
}

pub(super) fn int_or_percent(value: &Value, path: &str, errors: &mut Errors) {
    match value {
        Value::String(text) => errors.each_invalid(path, text, names::percent(text)),
        _ => errors.non_negative(path, value),
    }
}

/// The number, or the number before the percent sign. Absent is zero; `None` is junk or too large.
pub(super) fn amount(value: &Value) -> Option<i64> {
    match value {
        Value::String(text) => text.strip_suffix('%')?.parse().ok(),
        Value::Null => Some(0),
        other => other.as_i64(),
    }
}

pub(crate) fn deployment_status(new: &Value, old: &Value, errors: &mut Errors) {
    let status = &new["status"];
    for field in [
        "observedGeneration",
        "replicas",
        "updatedReplicas",
        "readyReplicas",
        "availableReplicas",
        "unavailableReplicas",
        "terminatingReplicas",
        "collisionCount",
    ] {
        errors.non_negative(&format!("status.{field}"), &status[field]);
    }
    bounded(status, &["updatedReplicas", "readyReplicas", "availableReplicas"], errors);
    growing_collision_count(new, old, errors);
}

/// A collision count that went down would give the same names out again.
pub(super) fn growing_collision_count(new: &Value, old: &Value, errors: &mut Errors) {
    if let Some(before) = old["status"]["collisionCount"].as_i64() {
        let count = new["status"]["collisionCount"].as_i64();
        if count.is_none_or(|count| count < before) {
            let why = "cannot be decremented";
            errors.invalid("status.collisionCount", count.unwrap_or(0), why);
        }
    }
}

pub(crate) fn replica_set_status(new: &Value, errors: &mut Errors) {
    let status = &new["status"];
    for field in [
        "replicas",
        "fullyLabeledReplicas",
        "readyReplicas",
        "availableReplicas",
        "terminatingReplicas",
        "observedGeneration",
    ] {
        errors.non_negative(&format!("status.{field}"), &status[field]);
    }
    bounded(status, &["fullyLabeledReplicas", "readyReplicas", "availableReplicas"], errors);
}

/// The parts must not exceed the whole, nor the available the ready.
fn bounded(status: &Value, parts: &[&str], errors: &mut Errors) {
    let number = |field: &str| status[field].as_i64().unwrap_or(0);
    for part in parts {
        if number(part) > number("replicas") {
            errors.invalid(&format!("status.{part}"), number(part), "cannot be greater than status.replicas");
        }
    }
    if number("availableReplicas") > number("readyReplicas") {
        let why = "cannot be greater than readyReplicas";
        errors.invalid("status.availableReplicas", number("availableReplicas"), why);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::validate::tests::{check_create, check_status, check_update, said, with, workload};
    use crate::validate::{create, update_status};

    #[track_caller]
    fn check(pointer: &str, value: Value, expected: &[&str]) {
        check_create("Deployment", with(workload("Deployment"), pointer, value), expected);
    }

    #[test]
    fn a_usual_workload_is_accepted() {
        check_create("Deployment", workload("Deployment"), &[]);
        check_create("ReplicaSet", workload("ReplicaSet"), &[]);
        check_create("ReplicationController", workload("ReplicationController"), &[]);
    }

    /// `workload("ReplicationController")` with one value replaced.
    #[track_caller]
    fn check_controller(pointer: &str, value: Value, expected: &[&str]) {
        let controller = workload("ReplicationController");
        check_create("ReplicationController", with(controller.clone(), pointer, value.clone()), expected);
        check_update("ReplicationController", with(controller.clone(), pointer, value), controller, expected);
    }

    #[test]
    fn a_replication_controller_selects_its_template_by_labels() {
        for nothing in [Value::Null, json!({})] {
            check_controller("/spec/selector", nothing, &["spec.selector: Required value"]);
        }
        let mismatch = "spec.template.metadata.labels: Invalid value: {\"app\":\"web\"}: `selector` does not match \
                        template `labels`";
        check_controller("/spec/selector", json!({"foo": "bar"}), &[mismatch]);
        check_controller("/spec/selector", json!({"app": "web", "tier": "x"}), &[mismatch]);
        check_controller("/spec/template", Value::Null, &["spec.template: Required value"]);
        let labels = json!({"app": "web", "tier": "x"});
        check_controller("/spec/template/metadata/labels", labels, &[]);
    }

    #[test]
    fn a_replication_controller_may_change_its_selector() {
        let labels = json!({"app": "web", "tier": "x"});
        let new = with(workload("ReplicationController"), "/spec/selector", labels.clone());
        let new = with(new, "/spec/template/metadata/labels", labels);
        check_update("ReplicationController", new, workload("ReplicationController"), &[]);
    }

    #[test]
    fn a_replication_controller_needs_restart_policy_always_and_non_negative_replicas() {
        for number in [0, 1, 100] {
            check_controller("/spec/replicas", json!(number), &[]);
            check_controller("/spec/minReadySeconds", json!(number), &[]);
        }
        for field in ["replicas", "minReadySeconds"] {
            check_controller(
                &format!("/spec/{field}"),
                json!(-1),
                &[&format!("spec.{field}: Invalid value: -1: must be greater than or equal to 0")],
            );
        }
        for policy in ["OnFailure", "Never"] {
            check_controller(
                "/spec/template/spec/restartPolicy",
                json!(policy),
                &[&format!(
                    "spec.template.spec.restartPolicy: Unsupported value: \"{policy}\": supported values: \"Always\""
                )],
            );
        }
        check_controller(
            "/spec/template/spec/activeDeadlineSeconds",
            json!(5),
            &["spec.template.spec.activeDeadlineSeconds: Forbidden: activeDeadlineSeconds in \
               ReplicationController is not Supported"],
        );
        let no_containers = json!({"restartPolicy": "Always"});
        let expected = ["spec.template.spec.containers: Required value"];
        check_controller("/spec/template/spec", no_containers, &expected);
    }

    #[test]
    fn a_template_holds_no_ephemeral_containers() {
        let guests = json!([{"name": "debug", "image": "busybox"}]);
        let expected = [
            "spec.template.spec.ephemeralContainers: Forbidden: ephemeral containers not allowed in pod template",
        ];
        check("/spec/template/spec/ephemeralContainers", guests.clone(), &expected);
        check_controller("/spec/template/spec/ephemeralContainers", guests, &expected);
        check_controller("/spec/template/spec/ephemeralContainers", json!([]), &[]);
    }

    #[test]
    fn labels_and_annotations_of_a_template_are_named_without_its_metadata() {
        for kind in ["Deployment", "ReplicaSet", "ReplicationController"] {
            let mut object = workload(kind);
            object["spec"]["template"]["metadata"]["labels"]["tier"] = json!("no good");
            object["spec"]["template"]["metadata"]["annotations"] = json!({"no good": ""});
            let said = said(create(kind, &object));
            let starts: Vec<&str> = said.iter().filter_map(|line| line.split(": a ").next()).collect();
            assert!(starts[0].starts_with("spec.template.labels: Invalid value: \"no good\""), "{said:?}");
            assert!(
                starts[1].starts_with("spec.template.annotations: Invalid value: \"no good\""),
                "{said:?}"
            );
        }
    }

    #[test]
    fn the_metadata_of_a_replication_controller_is_validated_like_any_other() {
        let check = |name: &str, good: bool| {
            let object = with(workload("ReplicationController"), "/metadata/name", json!(name));
            assert_eq!(create("ReplicationController", &object).is_empty(), good, "{name}");
        };
        check("", false);
        check("this-is-a-label", true);
        check("this.is.a.subdomain", true);
        check("-this-is-not-a-label", false);
        check(".this.is.not.a.subdomain", false);
        check("this-is-a-label-", false);
        check("this.is.a.subdomain-", false);
        check(&"x".repeat(253), true);
        check(&"x".repeat(254), false);
        check(&format!("{}x", "x.".repeat(126)), true);
        check(&format!("{}xx", "x.".repeat(126)), false);
        check_controller("/metadata/labels", json!({"bar": "baz"}), &[]);
        let homeless = with(workload("ReplicationController"), "/metadata/namespace", json!(""));
        check_create("ReplicationController", homeless, &["metadata.namespace: Required value"]);
    }

    #[test]
    fn the_status_of_a_replication_controller_adds_up() {
        let whole = "cannot be greater than status.replicas";
        let negative = "must be greater than or equal to 0";
        // replicas, fullyLabeled, ready, available, observedGeneration
        for (numbers, expected) in [
            ([3, 3, 2, 1, 2], vec![]),
            (
                [-1, 3, 2, 1, 2],
                vec![
                    ("replicas", -1, negative),
                    ("fullyLabeledReplicas", 3, whole),
                    ("readyReplicas", 2, whole),
                    ("availableReplicas", 1, whole),
                ],
            ),
            ([3, -1, 2, 1, 2], vec![("fullyLabeledReplicas", -1, negative)]),
            (
                [3, 3, -1, 1, 2],
                vec![
                    ("readyReplicas", -1, negative),
                    ("availableReplicas", 1, "cannot be greater than readyReplicas"),
                ],
            ),
            ([3, 3, 2, -1, 2], vec![("availableReplicas", -1, negative)]),
            ([3, 3, 2, 1, -1], vec![("observedGeneration", -1, negative)]),
            ([3, 4, 2, 1, 2], vec![("fullyLabeledReplicas", 4, whole)]),
            ([3, 3, 4, 1, 2], vec![("readyReplicas", 4, whole)]),
            (
                [3, 3, 2, 4, 2],
                vec![
                    ("availableReplicas", 4, whole),
                    ("availableReplicas", 4, "cannot be greater than readyReplicas"),
                ],
            ),
            ([3, 3, 2, 3, 2], vec![("availableReplicas", 3, "cannot be greater than readyReplicas")]),
        ] {
            let [replicas, labelled, ready, available, observed] = numbers;
            let status = json!({
                "replicas": replicas, "fullyLabeledReplicas": labelled, "readyReplicas": ready,
                "availableReplicas": available, "observedGeneration": observed,
            });
            let old = workload("ReplicationController");
            let new = with(old.clone(), "/status", status);
            let expected: Vec<String> = expected
                .iter()
                .map(|(field, value, why)| format!("status.{field}: Invalid value: {value}: {why}"))
                .collect();
            assert_eq!(said(update_status("ReplicationController", &new, &old)), expected, "{numbers:?}");
        }
    }

    #[test]
    fn a_selector_is_required_and_selects_the_template() {
        for kind in ["Deployment", "ReplicaSet"] {
            check_create(
                kind,
                with(workload(kind), "/spec/selector", Value::Null),
                &[
                    "spec.selector: Required value",
                    "spec.template.metadata.labels: Invalid value: {\"app\":\"web\"}: `selector` does not match template \
                     `labels`",
                ],
            );
            check_create(
                kind,
                with(workload(kind), "/spec/selector", json!({})),
                &["spec.selector: Invalid value: {}: empty selector is invalid for deployment"],
            );
            check_create(
                kind,
                with(workload(kind), "/spec/template/metadata/labels", json!({"app": "x"})),
                &[
                    "spec.template.metadata.labels: Invalid value: {\"app\":\"x\"}: `selector` does not match \
                   template `labels`",
                ],
            );
        }
        check(
            "/spec/selector",
            json!({"matchExpressions": [{"key": "app", "operator": "In"}]}),
            &[
                "spec.selector.matchExpressions[0].values: Required value: must be specified when `operator` is \
                 'In' or 'NotIn'",
                "spec.selector: Invalid value: {\"matchExpressions\":[{\"key\":\"app\",\"operator\":\"In\"}]}: \
                 invalid label selector",
            ],
        );
    }

    #[test]
    fn the_selector_cannot_be_changed() {
        for kind in ["Deployment", "ReplicaSet"] {
            let labels = json!({"app": "web", "tier": "x"});
            let new = with(
                with(workload(kind), "/spec/selector/matchLabels", labels.clone()),
                "/spec/template/metadata/labels",
                labels,
            );
            check_update(
                kind,
                new,
                workload(kind),
                &[
                    "spec.selector: Invalid value: {\"matchLabels\":{\"app\":\"web\",\"tier\":\"x\"}}: field is \
                   immutable",
                ],
            );
            let spelled_out = with(workload(kind), "/spec/selector/matchExpressions", json!([]));
            check_update(kind, spelled_out, workload(kind), &[]);
        }
    }

    #[test]
    fn numbers_are_not_negative_and_the_deadline_outlasts_readiness() {
        check(
            "/spec/replicas",
            json!(-1),
            &["spec.replicas: Invalid value: -1: must be greater than or equal to 0"],
        );
        check(
            "/spec/minReadySeconds",
            json!(600),
            &["spec.progressDeadlineSeconds: Invalid value: 600: must be greater than minReadySeconds"],
        );
        check("/spec/minReadySeconds", json!(599), &[]);
        check(
            "/spec/revisionHistoryLimit",
            json!(-2),
            &["spec.revisionHistoryLimit: Invalid value: -2: must be greater than or equal to 0"],
        );
    }

    #[test]
    fn a_rolling_update_must_be_able_to_progress() {
        let rolling = |surge: Value, unavailable: Value| json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable}});
        let path = "spec.strategy.rollingUpdate.maxUnavailable";
        let stuck = format!("{path}: Invalid value: 0: may not be 0 when `maxSurge` is 0");
        check("/spec/strategy", rolling(json!(0), json!(0)), &[&stuck]);
        let stuck = format!("{path}: Invalid value: \"0%\": may not be 0 when `maxSurge` is 0");
        check("/spec/strategy", rolling(json!("0%"), json!("0%")), &[&stuck]);
        let over = format!("{path}: Invalid value: \"101%\": must not be greater than 100%");
        check("/spec/strategy", rolling(json!(1), json!("101%")), &[&over]);
        check("/spec/strategy", rolling(json!("300%"), json!("100%")), &[]);
        let junk = format!(
            "{path}: Invalid value: \"half\": a valid percent string must be a numeric string followed by an \
             ending '%' (e.g. '1%',  or '93%', regex used for validation is '[0-9]+%')"
        );
        check("/spec/strategy", rolling(json!(1), json!("half")), &[&junk]);
        let negative = format!("{path}: Invalid value: -1: must be greater than or equal to 0");
        check("/spec/strategy", rolling(json!(1), json!(-1)), &[&negative]);
    }

    #[test]
    fn the_strategy_is_one_of_two() {
        check(
            "/spec/strategy",
            json!({"type": "Recreate", "rollingUpdate": {}}),
            &[
                "spec.strategy.rollingUpdate: Forbidden: may not be specified when strategy `type` is 'Recreate'",
            ],
        );
        check("/spec/strategy", json!({"type": "Recreate"}), &[]);
        check(
            "/spec/strategy",
            json!({"type": "Canary"}),
            &[
                "spec.strategy: Unsupported value: {\"Type\":\"Canary\",\"RollingUpdate\":null}: supported values: \"Recreate\", \
               \"RollingUpdate\"",
            ],
        );
    }

    #[test]
    fn pods_of_a_workload_always_restart() {
        check(
            "/spec/template/spec/restartPolicy",
            json!("Never"),
            &["spec.template.spec.restartPolicy: Unsupported value: \"Never\": supported values: \"Always\""],
        );
        check(
            "/spec/template/spec/activeDeadlineSeconds",
            json!(5),
            &[
                "spec.template.spec.activeDeadlineSeconds: Forbidden: activeDeadlineSeconds in ReplicaSet is not \
               Supported",
            ],
        );
        check(
            "/spec/template/spec/containers",
            json!([]),
            &["spec.template.spec.containers: Required value"],
        );
    }

    #[test]
    fn a_status_adds_up() {
        let status = |kind: &str, status: Value| with(workload(kind), "/status", status);
        check_status(
            "Deployment",
            status(
                "Deployment",
                json!({"replicas": 1, "updatedReplicas": 2, "readyReplicas": 1, "availableReplicas": 1}),
            ),
            status("Deployment", json!({})),
            &["status.updatedReplicas: Invalid value: 2: cannot be greater than status.replicas"],
        );
        check_status(
            "ReplicaSet",
            status("ReplicaSet", json!({"replicas": 2, "readyReplicas": 1, "availableReplicas": 2})),
            status("ReplicaSet", json!({})),
            &["status.availableReplicas: Invalid value: 2: cannot be greater than readyReplicas"],
        );
        check_status(
            "Deployment",
            status("Deployment", json!({"collisionCount": 1, "unavailableReplicas": -1})),
            status("Deployment", json!({"collisionCount": 2})),
            &[
                "status.unavailableReplicas: Invalid value: -1: must be greater than or equal to 0",
                "status.collisionCount: Invalid value: 1: cannot be decremented",
            ],
        );
    }
}
