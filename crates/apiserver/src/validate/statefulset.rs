//! StatefulSets (upstream `pkg/apis/apps/validation/validation.go`).

use serde_json::{Map, Value, json};

use super::errors::{Errors, elements, essence, text};
use super::{metadata, names, scaling, selectors, storage, workload};
use crate::selector::LabelSelector;

/// The fields of a StatefulSet that may change.
const MUTABLE: [&str; 7] = [
    "replicas",
    "template",
    "updateStrategy",
    "minReadySeconds",
    "ordinals",
    "revisionHistoryLimit",
    "persistentVolumeClaimRetentionPolicy",
];

/// The part of a spec that is judged besides the fields that always are.
#[derive(Clone, Copy)]
struct Judged {
    /// `serviceName` and the claim templates, which never change: older servers have accepted worse ones.
    fixed: bool,
    /// The pod template.
    template: bool,
}

pub(crate) fn stateful_set(object: &Value, errors: &mut Errors) {
    spec(&object["spec"], Judged { fixed: true, template: true }, errors);
}

pub(crate) fn update(new: &Value, old: &Value, errors: &mut Errors) {
    let mut of_the_old = Errors::default();
    spec(&old["spec"], Judged { fixed: false, template: true }, &mut of_the_old);
    spec(&new["spec"], Judged { fixed: false, template: of_the_old.len() == 0 }, errors);
    let fixed = |object: &Value| {
        let mut spec = object["spec"].clone();
        if let Some(fields) = spec.as_object_mut() {
            fields.retain(|field, _| !MUTABLE.contains(&field.as_str()));
        }
        essence(&spec)
    };
    if fixed(new) != fixed(old) {
        errors.forbidden(
            "spec",
            "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', 'updateStrategy', \
             'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden",
        );
    }
}

fn spec(spec: &Value, judged: Judged, errors: &mut Errors) {
    let policy = text(spec, "podManagementPolicy");
    if !["OrderedReady", "Parallel"].contains(&policy) {
        errors.invalid("spec.podManagementPolicy", policy, "must be 'OrderedReady' or 'Parallel'");
    }
    strategy(&spec["updateStrategy"], errors);
    let retention = "spec.persistentVolumeClaimRetentionPolicy";
    for field in ["whenDeleted", "whenScaled"] {
        let policy = &spec["persistentVolumeClaimRetentionPolicy"][field];
        errors.one_of(&format!("{retention}.{field}"), policy, &["Retain", "Delete"]);
    }
    for (path, claim) in elements(spec, "volumeClaimTemplates", "spec").filter(|_| judged.fixed) {
        storage::claim_spec(&claim["spec"], &format!("{path}.spec"), errors);
    }
    errors.non_negative("spec.replicas", &spec["replicas"]);
    errors.non_negative("spec.minReadySeconds", &spec["minReadySeconds"]);
    errors.non_negative("spec.ordinals.start", &spec["ordinals"]["start"]);
    let service = text(spec, "serviceName");
    if judged.fixed && !service.is_empty() {
        errors.each_invalid("spec.serviceName", service, names::dns1123_label(service));
    }
    let selector = &spec["selector"];
    if selector.is_null() {
        errors.required("spec.selector", "");
    } else {
        selectors::label_selector(selector, "spec.selector", errors);
        if essence(selector).as_object().is_some_and(Map::is_empty) {
            errors.invalid("spec.selector", selector.clone(), "empty selector is invalid for statefulset");
        }
    }
    template(spec, judged.template, errors);
}

fn strategy(strategy: &Value, errors: &mut Errors) {
    let rolling = &strategy["rollingUpdate"];
    let path = "spec.updateStrategy.rollingUpdate";
    match text(strategy, "type") {
        "OnDelete" if !rolling.is_null() => {
            errors.invalid_shown(path, &shown(rolling), "only allowed for updateStrategy 'RollingUpdate'");
        }
        "OnDelete" => {}
        "RollingUpdate" => {
            errors.non_negative(&format!("{path}.partition"), &rolling["partition"]);
            let (field, unavailable) = (format!("{path}.maxUnavailable"), &rolling["maxUnavailable"]);
            if !unavailable.is_null() {
                scaling::at_most_all(unavailable, &field, errors);
                if workload::amount(unavailable) == Some(0) {
                    errors.invalid(&field, unavailable.clone(), "cannot be 0");
                }
            }
        }
        _ => {
            let shown = format!("{{\"Type\":{},\"RollingUpdate\":{}}}", strategy["type"], shown(rolling));
            errors.invalid_shown("spec.updateStrategy", &shown, "must be 'RollingUpdate' or 'OnDelete'");
        }
    }
}

/// Messages show upstream's internal types, whose fields have Go's names.
fn shown(rolling: &Value) -> String {
    if rolling.is_null() {
        return "null".to_owned();
    }
    let partition = rolling["partition"].as_i64().unwrap_or(0);
    format!("{{\"Partition\":{partition},\"MaxUnavailable\":{}}}", rolling["maxUnavailable"])
}

/// The template, which is not looked at while its selector makes no sense.
fn template(spec: &Value, is_judged: bool, errors: &mut Errors) {
    let selector = &spec["selector"];
    let metadata = &spec["template"]["metadata"];
    let labels = &metadata["labels"];
    let pod = &spec["template"]["spec"];
    match LabelSelector::from_spec(selector) {
        Err(_) if !selector.is_null() => {
            // Upstream gives no reason.
            errors.push("spec.selector", "FieldValueInvalid", format!("Invalid value: {selector}"));
            return workload::kept_pod(pod, "StatefulSet", errors);
        }
        Err(_) => workload::mismatch(labels, errors),
        Ok(parsed) if !parsed.is_empty() && !parsed.matches(labels) => workload::mismatch(labels, errors),
        Ok(_) => {}
    }
    if is_judged {
        workload::pod_template(&with_claims(spec), "StatefulSet", errors);
    } else {
        metadata::labels_and_annotations(metadata, "spec.template", errors);
        workload::kept_pod(pod, "StatefulSet", errors);
    }
}

/// The template as the controller will use it: each claim template is a volume, and the names are its own.
fn with_claims(spec: &Value) -> Value {
    let mut template = spec["template"].clone();
    let claims: Vec<&str> = spec["volumeClaimTemplates"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|claim| text(&claim["metadata"], "name"))
        .collect();
    if let Some(pod) = template.get_mut("spec").and_then(Value::as_object_mut) {
        pod.remove("hostname");
        pod.remove("subdomain");
        let mut volumes = pod.get("volumes").and_then(Value::as_array).cloned().unwrap_or_default();
        volumes.retain(|volume| !claims.contains(&text(volume, "name")));
        volumes.extend(
            claims.iter().map(|name| json!({"name": name, "persistentVolumeClaim": {"claimName": name}})),
        );
        if !volumes.is_empty() {
            pod.insert("volumes".to_owned(), Value::Array(volumes));
        }
    }
    template
}

pub(crate) fn status(new: &Value, old: &Value, errors: &mut Errors) {
    let status = &new["status"];
    for field in [
        "replicas",
        "readyReplicas",
        "currentReplicas",
        "updatedReplicas",
        "availableReplicas",
        "observedGeneration",
        "collisionCount",
    ] {
        errors.non_negative(&format!("status.{field}"), &status[field]);
    }
    let number = |field: &str| status[field].as_i64().unwrap_or(0);
    for field in ["readyReplicas", "currentReplicas", "updatedReplicas", "availableReplicas"] {
        if number(field) > number("replicas") {
            let why = "cannot be greater than status.replicas";
            errors.invalid(&format!("status.{field}"), number(field), why);
        }
    }
    if number("availableReplicas") > number("readyReplicas") {
        let why = "cannot be greater than status.readyReplicas";
        errors.invalid("status.availableReplicas", number("availableReplicas"), why);
    }
    workload::growing_collision_count(new, old, errors);
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::validate::tests::{check_create, check_update, with, workload};

    fn stateful_set() -> Value {
        workload("StatefulSet")
    }

    #[test]
    fn an_update_accepts_what_older_servers_have_accepted() {
        let template = json!({"metadata": {"name": "data"}, "spec": {}});
        let old = with(stateful_set(), "/spec/serviceName", json!("Not.A.Label"));
        let old = with(old, "/spec/volumeClaimTemplates", json!([template]));
        let new = with(old.clone(), "/spec/replicas", json!(3));
        check_update("StatefulSet", new, old.clone(), &[]);
        let why = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start \
                   and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is \
                   '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
        let path = "spec.volumeClaimTemplates[0].spec";
        check_create(
            "StatefulSet",
            old,
            &[
                &format!("{path}.accessModes: Required value: at least 1 access mode is required"),
                &format!("{path}.resources[storage]: Required value"),
                &format!("spec.serviceName: Invalid value: \"Not.A.Label\": {why}"),
            ],
        );
    }

    #[test]
    fn a_template_that_was_invalid_before_is_not_judged_again() {
        let containers = "/spec/template/spec/containers";
        let required = "spec.template.spec.containers: Required value";
        let old = with(stateful_set(), containers, json!([]));
        check_update("StatefulSet", with(old.clone(), "/spec/replicas", json!(3)), old.clone(), &[]);
        check_update("StatefulSet", old.clone(), stateful_set(), &[required]);
        let never = with(old.clone(), "/spec/template/spec/restartPolicy", json!("Never"));
        let unsupported =
            "spec.template.spec.restartPolicy: Unsupported value: \"Never\": supported values: \"Always\"";
        check_update("StatefulSet", never, old, &[unsupported]);
    }
}
