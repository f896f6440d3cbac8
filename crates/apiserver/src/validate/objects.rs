//! The smaller kinds: ConfigMap, Secret, Lease, Event.

use k8s_openapi::ByteString;
use serde_json::{Value, json};

use super::errors::{Errors, elements, essence, text};
use super::{names, workload};

/// All keys and values of a ConfigMap or Secret together.
const DATA_LIMIT: usize = 1024 * 1024;
/// The longest reporting instance, action and reason of an event.
const EVENT_TEXT_LIMIT: usize = 128;
const EVENT_NOTE_LIMIT: usize = 1024;

pub(crate) fn config_map_update(new: &Value, old: &Value, errors: &mut Errors) {
    immutable_data(new, old, &["data", "binaryData"], errors);
    config_map(new, errors);
}

pub(crate) fn secret_update(new: &Value, old: &Value, errors: &mut Errors) {
    errors.immutable("type", &new["type"], &old["type"]);
    immutable_data(new, old, &["data"], errors);
    secret(new, errors);
}

fn immutable_data(new: &Value, old: &Value, fields: &[&str], errors: &mut Errors) {
    if old["immutable"] != true {
        return;
    }
    let why = "field is immutable when `immutable` is set";
    if new["immutable"] != true {
        errors.forbidden("immutable", why);
    }
    for field in fields {
        if essence(&new[*field]) != essence(&old[*field]) {
            errors.forbidden(field, why);
        }
    }
}

pub(crate) fn config_map(object: &Value, errors: &mut Errors) {
    let mut size = 0;
    for field in ["data", "binaryData"] {
        for (key, value) in object[field].as_object().into_iter().flatten() {
            errors.each_invalid(&format!("{field}[{key}]"), key, names::config_key(key));
            if field == "data" && object["binaryData"].get(key).is_some() {
                errors.invalid(
                    &format!("data[{key}]"),
                    key.as_str(),
                    "duplicate of key present in binaryData",
                );
            }
            size += value.as_str().unwrap_or_default().len();
        }
    }
    if size > DATA_LIMIT {
        // Upstream means the object as a whole.
        errors.too_long("[]", DATA_LIMIT);
    }
}

pub(crate) fn secret(object: &Value, errors: &mut Errors) {
    let data = object["data"].as_object();
    let mut size = 0;
    for (key, value) in data.into_iter().flatten() {
        errors.each_invalid(&format!("data[{key}]"), key, names::config_key(key));
        size += value.as_str().unwrap_or_default().len() / 4 * 3;
    }
    if size > DATA_LIMIT {
        errors.too_long("data", DATA_LIMIT);
    }
    let account = "kubernetes.io/service-account.name";
    if text(object, "type") == "kubernetes.io/service-account-token"
        && text(&object["metadata"]["annotations"], account).is_empty()
    {
        errors.required(&format!("metadata.annotations[{account}]"), "");
    }
    let has = |key: &str| data.is_some_and(|data| data.contains_key(key));
    let required: &[&str] = match text(object, "type") {
        "kubernetes.io/basic-auth" if !has("username") && !has("password") => &["username", "password"],
        "kubernetes.io/ssh-auth" => &["ssh-privatekey"],
        "kubernetes.io/dockercfg" => &[".dockercfg"],
        "kubernetes.io/dockerconfigjson" => &[".dockerconfigjson"],
        "kubernetes.io/tls" => &["tls.crt", "tls.key"],
        _ => &[],
    };
    for key in required {
        if !has(key) {
            errors.required(&format!("data[{key}]"), "");
        } else if key.starts_with(".docker")
            && let Some(why) = no_json(object["data"][*key].as_str().unwrap_or_default())
        {
            errors.invalid(&format!("data[{key}]"), "<secret contents redacted>", why);
        }
    }
}

/// Why a text in base 64 is no JSON, as Go says it of the first byte.
fn no_json(encoded: &str) -> Option<String> {
    let bytes =
        serde_json::from_value::<ByteString>(encoded.into()).map_or_else(|_| Vec::new(), |bytes| bytes.0);
    let error = serde_json::from_slice::<serde::de::IgnoredAny>(&bytes).err()?;
    let first = bytes.iter().find(|byte| !byte.is_ascii_whitespace());
    Some(match first {
        None => "unexpected end of JSON input".to_owned(),
        Some(first) if !b"{[\"-0123456789tfn".contains(first) => {
            // Go takes the byte for a character.
            let shown =
                if *first > 0xa0 { char::from(*first).to_string() } else { first.escape_ascii().to_string() };
            format!("invalid character '{shown}' looking for beginning of value")
        }
        Some(_) => error.to_string(),
    })
}

/// The template of a PodTemplate.
pub(crate) fn pod_template(object: &Value, errors: &mut Errors) {
    workload::template(&object["template"], "template", errors);
    let policy = &object["template"]["spec"]["restartPolicy"];
    errors.one_of("template.spec.restartPolicy", policy, &["Always", "OnFailure", "Never"]);
}

/// The finalizers of a Namespace itself, which stand in its spec.
pub(crate) fn namespace(object: &Value, errors: &mut Errors) {
    for (_, finalizer) in elements(&object["spec"], "finalizers", "spec") {
        let (name, field) = (finalizer.as_str().unwrap_or_default(), "spec.finalizers");
        errors.each_invalid(field, name, names::label_key(name));
        if !name.contains('/') && !matches!(name, "kubernetes" | "orphan" | "foregroundDeletion") {
            let why = "name is neither a standard finalizer name nor is it fully qualified";
            errors.invalid(field, name, why);
        }
    }
}

pub(crate) fn lease(object: &Value, errors: &mut Errors) {
    let spec = &object["spec"];
    if let Some(seconds) = spec["leaseDurationSeconds"].as_i64().filter(|seconds| *seconds <= 0) {
        errors.invalid("spec.leaseDurationSeconds", seconds, "must be greater than 0");
    }
    errors.non_negative("spec.leaseTransitions", &spec["leaseTransitions"]);
    // An empty holder is fine: it is how a leader gives its lease back.
    let strategy = text(spec, "strategy");
    if !text(spec, "preferredHolder").is_empty() && strategy.is_empty() {
        errors.forbidden("spec.preferredHolder", "may only be specified if `strategy` is defined");
    }
    if strategy.contains('/') {
        errors.each_invalid("spec.strategy", strategy, names::label_key(strategy));
    } else if !strategy.is_empty() && strategy != "OldestEmulationVersion" {
        errors.not_supported("spec.strategy", strategy, &["OldestEmulationVersion"]);
    }
}

pub(crate) fn event(object: &Value, errors: &mut Errors) {
    any_event(object, "reportingComponent", errors);
}

/// A new event of `events.k8s.io/v1` has a time and a known type, and none of the fields of older events.
pub(crate) fn new_event(object: &Value, errors: &mut Errors) {
    any_event(object, "reportingController", errors);
    let (name, series) = (text(&object["metadata"], "name"), &object["series"]);
    errors.each_invalid("metadata.name", name, names::dns1123_subdomain(name));
    if series.is_object() && series["count"].as_i64().unwrap_or(0) < 2 {
        errors.invalid("series.count", "", "should be at least 2");
    }
    if series.is_object() && series["lastObservedTime"].is_null() {
        errors.required("series.lastObservedTime", "");
    }
    if object["eventTime"].is_null() {
        errors.required("eventTime", "");
    }
    let kind = text(object, "type");
    if !["Normal", "Warning"].contains(&kind) {
        errors.invalid("type", "", format!("has invalid value: {kind}"));
    }
    for field in ["firstTimestamp", "lastTimestamp", "count", "source"] {
        let value = essence(&object[field]);
        if !value.is_null() && value != json!({}) {
            errors.invalid(field, "", "needs to be unset");
        }
    }
}

/// Events live beside what they are about; those about cluster-scoped objects in `default`.
fn any_event(object: &Value, controller_field: &str, errors: &mut Errors) {
    let namespace = text(&object["metadata"], "namespace");
    let involved = text(&object["involvedObject"], "namespace");
    let timed = object["eventTime"].is_string();
    let misplaced = match (involved, namespace) {
        ("", "default" | "") => false,
        ("", "kube-system") => !timed,
        ("", _) => true,
        (involved, namespace) => !timed && involved != namespace,
    };
    if misplaced {
        errors.invalid("involvedObject.namespace", involved, "does not match event.namespace");
    }
    // An event time marks the newer kind of event, which has to say more.
    if !timed {
        return;
    }
    let controller = text(object, "reportingComponent");
    if controller.is_empty() {
        errors.required(controller_field, "");
    } else {
        errors.each_invalid(controller_field, controller, names::label_key(controller));
    }
    for field in ["reportingInstance", "action", "reason"] {
        let value = text(object, field);
        if value.is_empty() {
            errors.required(field, "");
        } else if value.len() > EVENT_TEXT_LIMIT {
            errors.invalid(field, "", format!("can have at most {EVENT_TEXT_LIMIT} characters"));
        }
    }
    if text(object, "message").len() > EVENT_NOTE_LIMIT {
        errors.invalid("message", "", format!("can have at most {EVENT_NOTE_LIMIT} characters"));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::validate::tests::{check_create, check_update, with};

    fn named(rest: Value) -> Value {
        with(rest, "/metadata", json!({"name": "x", "namespace": "shop"}))
    }

    #[test]
    fn a_lease_duration_is_positive() {
        check_create(
            "Lease",
            named(json!({"spec": {"leaseDurationSeconds": 0, "leaseTransitions": -1}})),
            &[
                "spec.leaseDurationSeconds: Invalid value: 0: must be greater than 0",
                "spec.leaseTransitions: Invalid value: -1: must be greater than or equal to 0",
            ],
        );
    }

    #[test]
    fn a_lease_can_be_released() {
        check_create("Lease", named(json!({"spec": {"holderIdentity": "", "leaseDurationSeconds": 1}})), &[]);
    }

    #[test]
    fn an_event_lives_beside_its_object() {
        let about = |namespace: &str| named(json!({"involvedObject": {"namespace": namespace}}));
        check_create("Event", about("shop"), &[]);
        let misplaced = "does not match event.namespace";
        let elsewhere = format!("involvedObject.namespace: Invalid value: \"depot\": {misplaced}");
        check_create("Event", about("depot"), &[&elsewhere]);
        let nowhere = format!("involvedObject.namespace: Invalid value: \"\": {misplaced}");
        check_create("Event", about(""), &[&nowhere]);
        let timed = with(about("depot"), "/eventTime", json!("2026-01-01T00:00:00.000000Z"));
        check_create(
            "Event",
            timed,
            &[
                "reportingComponent: Required value",
                "reportingInstance: Required value",
                "action: Required value",
                "reason: Required value",
            ],
        );
    }

    #[test]
    fn configuration_keys_are_file_names_and_may_be_frozen() {
        check_create("ConfigMap", named(json!({"data": {"a.txt": "x"}})), &[]);
        check_create(
            "ConfigMap",
            named(json!({"data": {"..": "x"}})),
            &["data[..]: Invalid value: \"..\": must not be '..'"],
        );
        check_create(
            "ConfigMap",
            named(json!({"data": {"a": "x".repeat(1024 * 1024 + 1)}})),
            &["[]: Too long: may not be more than 1048576 bytes"],
        );
        let frozen = named(json!({"immutable": true, "data": {"a": "1"}}));
        check_update(
            "ConfigMap",
            with(frozen.clone(), "/data/a", json!("2")),
            frozen,
            &["data: Forbidden: field is immutable when `immutable` is set"],
        );
    }

    #[test]
    fn a_secret_keeps_its_type() {
        let secret = named(json!({"type": "Opaque"}));
        check_update(
            "Secret",
            with(secret.clone(), "/type", json!("x")),
            secret,
            &["type: Invalid value: \"x\": field is immutable"],
        );
        check_create(
            "Secret",
            named(json!({"type": "kubernetes.io/tls", "data": {"tls.crt": ""}})),
            &["data[tls.key]: Required value"],
        );
    }

    #[test]
    fn a_scale_is_not_negative() {
        check_create(
            "Scale",
            named(json!({"spec": {"replicas": -1}})),
            &["spec.replicas: Invalid value: -1: must be greater than or equal to 0"],
        );
    }
}
