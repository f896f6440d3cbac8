//! The annotations that named the AppArmor profiles of containers before there was a field (KEP-24).

use serde_json::{Value, json};

use super::errors::{Errors, elements, text};

/// Before the name of a container.
pub(crate) const ANNOTATION: &str = "container.apparmor.security.beta.kubernetes.io/";

const LOCAL: &str = "localhost/";
/// The length of a path is limited (`PATH_MAX - 1`).
const MAX_LOCAL: usize = 4095;

/// The lists of containers, in upstream's order.
const LISTS: [&str; 3] = ["initContainers", "containers", "ephemeralContainers"];

/// The field for an annotation; `None` where it does not name a profile.
pub(crate) fn profile(annotation: &str) -> Option<Value> {
    match annotation {
        "runtime/default" => Some(json!({"type": "RuntimeDefault"})),
        "unconfined" => Some(json!({"type": "Unconfined"})),
        other => {
            let local = other.strip_prefix(LOCAL)?;
            let is_path = !local.is_empty() && local.trim() == local && local.len() <= MAX_LOCAL;
            is_path.then(|| json!({"type": "Localhost", "localhostProfile": local}))
        }
    }
}

/// Adds what is wrong with the annotations of a pod or a template, which upstream places at `path`.
pub(super) fn annotations(metadata: &Value, spec: &Value, path: &str, errors: &mut Errors) {
    for (key, value) in metadata["annotations"].as_object().into_iter().flatten() {
        let Some(container) = key.strip_prefix(ANNOTATION) else { continue };
        let (field, value) = (format!("{path}[{key}]"), value.as_str().unwrap_or_default());
        let mut containers = LISTS.iter().flat_map(|list| elements(spec, list, ""));
        if !containers.any(|(_, other)| text(other, "name") == container) {
            errors.invalid(&field, container, "container not found");
        }
        if !matches!(value, "" | "runtime/default" | "unconfined") && !value.starts_with(LOCAL) {
            errors.invalid(&field, value, format!("invalid AppArmor profile name: {value:?}"));
        }
    }
}

/// Adds the annotations of a pod that are not as they were: they cannot change once it runs.
pub(super) fn kept(new: &Value, old: &Value, path: &str, errors: &mut Errors) {
    let [new, old] = [new, old].map(|metadata| metadata["annotations"].as_object());
    let value =
        |of: Option<&serde_json::Map<String, Value>>, key: &str| of.and_then(|all| all.get(key).cloned());
    for (key, before) in old.into_iter().flatten() {
        if key.starts_with(ANNOTATION) && value(new, key).as_ref() != Some(before) {
            errors.forbidden(&format!("{path}[{key}]"), "may not remove or update AppArmor annotations");
        }
    }
    for (key, _) in new.into_iter().flatten() {
        if key.starts_with(ANNOTATION) && value(old, key).is_none() {
            errors.forbidden(&format!("{path}[{key}]"), "may not add AppArmor annotations");
        }
    }
}

/// Adds where an annotation and a field of a pod or a template say different things.
pub(super) fn conflicts(metadata: &Value, spec: &Value, path: &str, errors: &mut Errors) {
    if text(&spec["os"], "name") == "windows" {
        return;
    }
    let of_pod = &spec["securityContext"]["appArmorProfile"];
    for (path, container) in LISTS.iter().flat_map(|list| elements(spec, list, path)) {
        let own = &container["securityContext"]["appArmorProfile"];
        let field = if own.is_null() { of_pod } else { own };
        let key = format!("{ANNOTATION}{}", text(container, "name"));
        let (Some(annotation), false) = (metadata["annotations"][&key].as_str(), field.is_null()) else {
            continue;
        };
        let path = format!("{path}.securityContext.appArmorProfile");
        let (same_type, same_path) = match text(field, "type") {
            "Unconfined" => (annotation == "unconfined", true),
            "RuntimeDefault" => (annotation == "runtime/default", true),
            "Localhost" => {
                let local = annotation.strip_prefix(LOCAL);
                (local.is_some(), local == field["localhostProfile"].as_str())
            }
            _ => (true, true),
        };
        if !same_type {
            errors.forbidden(&format!("{path}.type"), "apparmor type in annotation and field must match");
        } else if !same_path {
            let why = "apparmor profile in annotation and field must match";
            errors.forbidden(&format!("{path}.localhostProfile"), why);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::ANNOTATION;
    use crate::validate::tests::{check_create, pod, with, workload};

    fn annotated(object: Value, pointer: &str, container: &str, profile: &str) -> Value {
        let key = format!("{ANNOTATION}{container}");
        with(object, pointer, json!({ key: profile }))
    }

    #[test]
    fn an_annotation_names_a_profile_and_a_container() {
        let at = "/metadata/annotations";
        check_create("Pod", annotated(pod(), at, "app", "localhost/foo"), &[]);
        check_create(
            "Pod",
            annotated(pod(), at, "app", "bogus"),
            &[
                "metadata.annotations[container.apparmor.security.beta.kubernetes.io/app]: Invalid value: \"bogus\": \
               invalid AppArmor profile name: \"bogus\"",
            ],
        );
        check_create(
            "Pod",
            annotated(pod(), at, "nope", "unconfined"),
            &[
                "metadata.annotations[container.apparmor.security.beta.kubernetes.io/nope]: Invalid value: \"nope\": \
               container not found",
            ],
        );
        check_create(
            "ReplicaSet",
            annotated(workload("ReplicaSet"), "/spec/template/metadata/annotations", "app", "bogus"),
            &[
                "spec.template.annotations[container.apparmor.security.beta.kubernetes.io/app]: Invalid value: \
               \"bogus\": invalid AppArmor profile name: \"bogus\"",
            ],
        );
    }

    #[test]
    fn an_annotation_and_the_field_say_the_same() {
        let with_field = |field: Value, annotation: &str| {
            let pod = with(pod(), "/spec/containers/0/securityContext", json!({ "appArmorProfile": field }));
            annotated(pod, "/metadata/annotations", "app", annotation)
        };
        check_create("Pod", with_field(json!({"type": "Unconfined"}), "unconfined"), &[]);
        check_create(
            "Pod",
            with_field(json!({"type": "Unconfined"}), "runtime/default"),
            &[
                "spec.containers[0].securityContext.appArmorProfile.type: Forbidden: apparmor type in annotation and \
               field must match",
            ],
        );
        check_create(
            "Pod",
            with_field(json!({"type": "Localhost", "localhostProfile": "a"}), "localhost/b"),
            &[
                "spec.containers[0].securityContext.appArmorProfile.localhostProfile: Forbidden: apparmor profile in \
               annotation and field must match",
            ],
        );
    }
}
