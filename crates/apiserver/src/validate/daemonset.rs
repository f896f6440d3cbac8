//! DaemonSets and ControllerRevisions (upstream `pkg/apis/apps/validation/validation.go`).

use serde_json::Value;

use super::errors::{Errors, essence, text};
use super::{names, selectors, workload};
use crate::selector::LabelSelector;

pub(crate) fn daemon_set(object: &Value, errors: &mut Errors) {
    let spec = &object["spec"];
    let (selector, template) = (&spec["selector"], &spec["template"]);
    if !selector.is_null() {
        selectors::label_selector(selector, "spec.selector", errors);
    }
    // Unlike those of the other workloads, a selector that is missing is only said not to match.
    let labels = &template["metadata"]["labels"];
    let matches = match LabelSelector::from_spec(selector) {
        Err(_) => selector.is_null().then_some(false),
        Ok(parsed) => Some(parsed.matches(labels)),
    };
    if matches == Some(false) {
        workload::mismatch(labels, errors);
    }
    if essence(selector).as_object().is_some_and(serde_json::Map::is_empty) {
        errors.invalid("spec.selector", selector.clone(), "empty selector is invalid for daemonset");
    }
    workload::pod_template(template, "DaemonSet", errors);
    errors.non_negative("spec.minReadySeconds", &spec["minReadySeconds"]);
    strategy(&spec["updateStrategy"], errors);
    errors.non_negative("spec.revisionHistoryLimit", &spec["revisionHistoryLimit"]);
}

fn strategy(strategy: &Value, errors: &mut Errors) {
    let rolling = &strategy["rollingUpdate"];
    match text(strategy, "type") {
        "OnDelete" => {}
        "RollingUpdate" if rolling.is_null() => errors.required("spec.updateStrategy.rollingUpdate", ""),
        "RollingUpdate" => rolling_update(rolling, errors),
        other => {
            // The message shows upstream's internal type, whose fields have Go's names.
            let rolling = super::workload::shown_rolling_update(rolling);
            let shown = format!("{{\"Type\":{other:?},\"RollingUpdate\":{rolling}}}");
            errors.not_supported_shown("spec.updateStrategy", &shown, &["RollingUpdate", "OnDelete"]);
        }
    }
}

fn rolling_update(rolling: &Value, errors: &mut Errors) {
    let unavailable_path = "spec.updateStrategy.rollingUpdate.maxUnavailable";
    let surge_path = "spec.updateStrategy.rollingUpdate.maxSurge";
    let (unavailable, surge) = (&rolling["maxUnavailable"], &rolling["maxSurge"]);
    let both = [(unavailable, unavailable_path), (surge, surge_path)];
    for (value, path) in both {
        workload::int_or_percent(value, path, errors);
    }
    for (value, path) in both {
        if percentage(value).is_some_and(|percent| percent > 100) {
            errors.invalid(path, value.clone(), "must not be greater than 100%");
        }
    }
    match (amount(unavailable) != 0, amount(surge) != 0) {
        (true, true) => {
            errors.invalid(surge_path, surge.clone(), "may not be set when maxUnavailable is non-zero");
        }
        (false, false) => errors.required(unavailable_path, "cannot be 0 when maxSurge is 0"),
        _ => {}
    }
}

/// The number before the percent sign; more digits than a number takes are more than anything.
fn percentage(value: &Value) -> Option<i64> {
    let text = value.as_str().filter(|text| names::percent(text).is_empty())?;
    Some(text.strip_suffix('%')?.parse().unwrap_or(i64::MAX))
}

/// How much a value amounts to. What is neither a number nor a percentage counts as nothing.
fn amount(value: &Value) -> i64 {
    let number = || value.as_i64().or_else(|| value.as_str()?.parse().ok());
    percentage(value).or_else(number).unwrap_or(0)
}

pub(crate) fn update(new: &Value, old: &Value, errors: &mut Errors) {
    workload::immutable_selector(new, old, errors);
    daemon_set(new, errors);
}

pub(crate) fn status(new: &Value, old: &Value, errors: &mut Errors) {
    for field in [
        "currentNumberScheduled",
        "numberMisscheduled",
        "desiredNumberScheduled",
        "numberReady",
        "observedGeneration",
        "updatedNumberScheduled",
        "numberAvailable",
        "numberUnavailable",
        "collisionCount",
    ] {
        errors.non_negative(&format!("status.{field}"), &new["status"][field]);
    }
    workload::growing_collision_count(new, old, errors);
}

pub(crate) fn new_revision(object: &Value, errors: &mut Errors) {
    controller_revision(object, errors);
    revision_data(object, errors);
}

pub(crate) fn revision_update(new: &Value, old: &Value, errors: &mut Errors) {
    controller_revision(new, errors);
    immutable_data(new, old, errors);
}

fn controller_revision(object: &Value, errors: &mut Errors) {
    errors.non_negative("revision", &object["revision"]);
}

/// Looked at in new revisions only: older ones may hold anything.
fn revision_data(object: &Value, errors: &mut Errors) {
    match &object["data"] {
        Value::Null => errors.required("data", "data is mandatory"),
        Value::Object(_) => {}
        _ => errors.required("data", "data must be a valid JSON object"),
    }
}

fn immutable_data(new: &Value, old: &Value, errors: &mut Errors) {
    // Compared as it stands: in a patch, an empty map is not the same as none.
    if new["data"] != old["data"] {
        errors.invalid("data", new["data"].clone(), "field is immutable");
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::validate::tests::{check_create, check_status, check_update, with, workload};

    fn daemon_set() -> Value {
        workload("DaemonSet")
    }

    /// A DaemonSet with one value replaced, both created and updated.
    #[track_caller]
    fn check(pointer: &str, value: Value, expected: &[&str]) {
        check_create("DaemonSet", with(daemon_set(), pointer, value.clone()), expected);
        check_update("DaemonSet", with(daemon_set(), pointer, value), daemon_set(), expected);
    }

    #[track_caller]
    fn check_amounts(unavailable: Value, surge: Value, expected: &[&str]) {
        let rolling = json!({"maxUnavailable": unavailable, "maxSurge": surge});
        check("/spec/updateStrategy/rollingUpdate", rolling, expected);
    }

    #[test]
    fn a_selector_matches_the_template_and_stays() {
        let mismatch = "spec.template.metadata.labels: Invalid value: {\"app\":\"web\"}: `selector` does not match \
                        template `labels`";
        let other = with(daemon_set(), "/spec/selector", json!({"matchLabels": {"app": "other"}}));
        check_create("DaemonSet", other.clone(), &[mismatch]);
        let immutable =
            "spec.selector: Invalid value: {\"matchLabels\":{\"app\":\"other\"}}: field is immutable";
        check_update("DaemonSet", other, daemon_set(), &[immutable, mismatch]);
        check_create("DaemonSet", with(daemon_set(), "/spec/selector", Value::Null), &[mismatch]);
        let empty = "spec.selector: Invalid value: {}: empty selector is invalid for daemonset";
        check_create("DaemonSet", with(daemon_set(), "/spec/selector", json!({})), &[empty]);
        let labels = json!({"matchLabels": {"app": "web"}, "matchExpressions": []});
        check("/spec/selector", labels, &[]);
    }

    #[test]
    fn a_template_is_of_pods_that_never_end() {
        check(
            "/spec/template/spec/restartPolicy",
            json!("OnFailure"),
            &[
                "spec.template.spec.restartPolicy: Unsupported value: \"OnFailure\": supported values: \"Always\"",
            ],
        );
        check(
            "/spec/template/spec/activeDeadlineSeconds",
            json!(9),
            &[
                "spec.template.spec.activeDeadlineSeconds: Forbidden: activeDeadlineSeconds in DaemonSet is not \
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
    fn numbers_are_not_negative() {
        for field in ["minReadySeconds", "revisionHistoryLimit"] {
            let expected = format!("spec.{field}: Invalid value: -1: must be greater than or equal to 0");
            check(&format!("/spec/{field}"), json!(-1), &[&expected]);
            check(&format!("/spec/{field}"), json!(0), &[]);
        }
    }

    #[test]
    fn exactly_one_of_unavailability_and_surge_is_allowed() {
        check_amounts(json!(1), json!(0), &[]);
        check_amounts(json!("100%"), json!("0%"), &[]);
        check_amounts(json!(0), json!("30%"), &[]);
        let path = "spec.updateStrategy.rollingUpdate";
        let nothing = format!("{path}.maxUnavailable: Required value: cannot be 0 when maxSurge is 0");
        check_amounts(json!(0), json!("0%"), &[&nothing]);
        let both = format!(
            "{path}.maxSurge: Invalid value: \"10%\": may not be set when maxUnavailable is non-zero"
        );
        check_amounts(json!(1), json!("10%"), &[&both]);
        let much = format!("{path}.maxUnavailable: Invalid value: \"101%\": must not be greater than 100%");
        check_amounts(json!("101%"), json!(0), &[&much]);
        let less = format!("{path}.maxSurge: Invalid value: -1: must be greater than or equal to 0");
        check_amounts(json!(0), json!(-1), &[&less]);
    }

    #[test]
    fn the_strategy_is_one_of_two() {
        check("/spec/updateStrategy", json!({"type": "OnDelete"}), &[]);
        check(
            "/spec/updateStrategy",
            json!({"type": "RollingUpdate"}),
            &["spec.updateStrategy.rollingUpdate: Required value"],
        );
        check(
            "/spec/updateStrategy",
            json!({"type": "Recreate"}),
            &[
                "spec.updateStrategy: Unsupported value: {\"Type\":\"Recreate\",\"RollingUpdate\":null}: supported \
               values: \"RollingUpdate\", \"OnDelete\"",
            ],
        );
    }

    #[test]
    fn a_status_counts_and_its_collisions_only_grow() {
        let with_status = |status: Value| with(daemon_set(), "/status", status);
        check_status(
            "DaemonSet",
            with_status(json!({"numberReady": -1, "observedGeneration": -2})),
            with_status(json!({})),
            &[
                "status.numberReady: Invalid value: -1: must be greater than or equal to 0",
                "status.observedGeneration: Invalid value: -2: must be greater than or equal to 0",
            ],
        );
        check_status(
            "DaemonSet",
            with_status(json!({})),
            with_status(json!({"collisionCount": 2})),
            &["status.collisionCount: Invalid value: 0: cannot be decremented"],
        );
        // More ready than wanted is no contradiction for the server.
        check_status("DaemonSet", with_status(json!({"numberReady": 9})), with_status(json!({})), &[]);
    }

    #[test]
    fn the_data_of_a_revision_is_immutable() {
        let revision = |data: Value| json!({"metadata": {"name": "web-1", "namespace": "shop"}, "revision": 1, "data": data});
        let good = revision(json!({"spec": {"template": null}}));
        check_create("ControllerRevision", good.clone(), &[]);
        check_create(
            "ControllerRevision",
            revision(Value::Null),
            &["data: Required value: data is mandatory"],
        );
        let text = &["data: Required value: data must be a valid JSON object"];
        check_create("ControllerRevision", revision(json!("x")), text);
        check_create(
            "ControllerRevision",
            with(good.clone(), "/revision", json!(-1)),
            &["revision: Invalid value: -1: must be greater than or equal to 0"],
        );
        check_update("ControllerRevision", with(good.clone(), "/revision", json!(7)), good.clone(), &[]);
        check_update(
            "ControllerRevision",
            revision(json!({"spec": {}})),
            good,
            &["data: Invalid value: {\"spec\":{}}: field is immutable"],
        );
    }
}
