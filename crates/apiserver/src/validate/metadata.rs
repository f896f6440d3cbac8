//! Object metadata: apimachinery `api/validation/objectmeta.go` and what core adds to it.

use serde_json::Value;

use super::errors::{Errors, elements, text};
use super::names;
use crate::kinds::Kind;

/// All keys and values of the annotations together.
const ANNOTATIONS_LIMIT: usize = 256 * 1024;

pub(super) fn validate(kind: &Kind, metadata: &Value, errors: &mut Errors) {
    let rule = kind.name;
    let prefix = text(metadata, "generateName");
    if !prefix.is_empty() {
        // A prefix may end with a dash, because something follows it.
        let masked = match prefix.strip_suffix('-') {
            Some(stem) if !stem.is_empty() => format!("{}a", stem.trim_end_matches('-')),
            _ => prefix.to_owned(),
        };
        errors.each_invalid("metadata.generateName", prefix, rule(&masked));
    }
    match text(metadata, "name") {
        "" => errors.required("metadata.name", "name or generateName is required"),
        name => errors.each_invalid("metadata.name", name, rule(name)),
    }
    match (kind.namespaced, text(metadata, "namespace")) {
        (true, "") => errors.required("metadata.namespace", ""),
        (true, namespace) => {
            errors.each_invalid("metadata.namespace", namespace, names::dns1123_label(namespace));
        }
        (false, "") => {}
        (false, _) => errors.forbidden("metadata.namespace", "not allowed on this type"),
    }
    errors.non_negative("metadata.generation", &metadata["generation"]);
    common(metadata, errors);
    finalizers(kind, metadata, errors);
}

pub(super) fn validate_update(kind: &Kind, new: &Value, old: &Value, errors: &mut Errors) {
    if old["deletionTimestamp"].is_string() {
        let listed = |metadata: &Value| -> Vec<String> {
            let finalizers = metadata["finalizers"].as_array().into_iter().flatten();
            finalizers.filter_map(Value::as_str).map(str::to_owned).collect()
        };
        let before = listed(old);
        let mut added: Vec<String> = listed(new).into_iter().filter(|name| !before.contains(name)).collect();
        added.sort();
        added.dedup();
        if !added.is_empty() {
            let names: Vec<String> = added.iter().map(|name| format!("{name:?}")).collect();
            let why = format!(
                "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
                names.join(", ")
            );
            errors.forbidden("metadata.finalizers", &why);
        }
    }
    errors.non_negative("metadata.generation", &new["generation"]);
    if let (Some(new), Some(old)) = (new["generation"].as_i64(), old["generation"].as_i64())
        && new < old
    {
        errors.invalid("metadata.generation", new, "must not be decremented");
    }
    errors.immutable("metadata.name", &new["name"], &old["name"]);
    if kind.namespaced {
        errors.immutable("metadata.namespace", &new["namespace"], &old["namespace"]);
    }
    // The server fills these in when a client leaves them out.
    for field in ["uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds"] {
        if !new[field].is_null() {
            errors.immutable(&format!("metadata.{field}"), &new[field], &old[field]);
        }
    }
    common(new, errors);
    finalizers(kind, new, errors);
}

/// Labels and annotations of objects and of pod templates.
pub(super) fn labels_and_annotations(metadata: &Value, path: &str, errors: &mut Errors) {
    labels(&metadata["labels"], &format!("{path}.labels"), errors);
    let path = format!("{path}.annotations");
    let mut size = 0;
    for (key, value) in metadata["annotations"].as_object().into_iter().flatten() {
        // Keys of annotations may have upper-case prefixes.
        errors.each_invalid(&path, key, names::label_key(&key.to_lowercase()));
        size += key.len() + value.as_str().unwrap_or_default().len();
    }
    if size > ANNOTATIONS_LIMIT {
        errors.too_long(&path, ANNOTATIONS_LIMIT);
    }
}

pub(super) fn labels(labels: &Value, path: &str, errors: &mut Errors) {
    for (key, value) in labels.as_object().into_iter().flatten() {
        errors.each_invalid(path, key, names::label_key(key));
        let value = value.as_str().unwrap_or_default();
        errors.each_invalid(path, value, names::label_value(value));
    }
}

fn common(metadata: &Value, errors: &mut Errors) {
    labels_and_annotations(metadata, "metadata", errors);
    let mut controller: Option<String> = None;
    let owners = || elements(metadata, "ownerReferences", "metadata").map(|(_, owner)| owner);
    for owner in owners() {
        let api_version = text(owner, "apiVersion");
        // One with two slashes has no version either.
        if api_version.is_empty() || api_version.split('/').count() > 2 {
            errors.invalid("metadata.ownerReferences.apiVersion", api_version, "version must not be empty");
        }
        for field in ["kind", "name", "uid"] {
            if text(owner, field).is_empty() {
                errors.invalid(&format!("metadata.ownerReferences.{field}"), "", "must not be empty");
            }
        }
        if (api_version, text(owner, "kind")) == ("v1", "Event") {
            let why = "/v1, Kind=Event is disallowed from being an owner";
            errors.invalid_shown("metadata.ownerReferences", &shown_owner(owner), why);
        }
        if owner["controller"] == true {
            let name = format!("{}/{}", text(owner, "kind"), text(owner, "name"));
            match &controller {
                Some(first) => errors.invalid_shown(
                    "metadata.ownerReferences",
                    &format!("[{}]", owners().map(shown_owner).collect::<Vec<_>>().join(",")),
                    &format!(
                        "Only one reference can have Controller set to true. Found \"true\" in references \
                         for {first} and {name}"
                    ),
                ),
                None => controller = Some(name),
            }
        }
    }
}

/// An owner reference in the order of the fields of its Go type.
fn shown_owner(owner: &Value) -> String {
    let fields = ["apiVersion", "kind", "name", "uid", "controller", "blockOwnerDeletion"];
    let set = fields.iter().filter(|field| !owner[**field].is_null());
    let shown: Vec<String> = set.map(|field| format!("{field:?}:{}", owner[*field])).collect();
    format!("{{{}}}", shown.join(","))
}

fn finalizers(kind: &Kind, metadata: &Value, errors: &mut Errors) {
    let plain = kind.plain_finalizers || kind.custom.is_some();
    let (mut orphan, mut foreground) = (false, false);
    for (_, finalizer) in elements(metadata, "finalizers", "metadata") {
        let name = finalizer.as_str().unwrap_or_default();
        orphan |= name == "orphan";
        foreground |= name == "foregroundDeletion";
        errors.each_invalid("metadata.finalizers", name, names::label_key(name));
    }
    for (path, finalizer) in elements(metadata, "finalizers", "metadata").filter(|_| !plain) {
        standard(finalizer.as_str().unwrap_or_default(), &path, errors);
    }
    if orphan && foreground {
        let why = "finalizer orphan and foregroundDeletion cannot be both set";
        errors.invalid("metadata.finalizers", metadata["finalizers"].clone(), why);
    }
}

/// A name without a domain is one of those that every server knows.
fn standard(finalizer: &str, path: &str, errors: &mut Errors) {
    if !finalizer.contains('/') && !matches!(finalizer, "orphan" | "foregroundDeletion" | "kubernetes") {
        let why = "name is neither a standard finalizer name nor is it fully qualified";
        errors.invalid(path, finalizer, why);
    }
}

/// The finalizers of a namespace, which are not in its metadata.
pub(super) fn namespace_finalizers(namespace: &Value, errors: &mut Errors) {
    for (path, finalizer) in elements(&namespace["spec"], "finalizers", "spec") {
        let name = finalizer.as_str().unwrap_or_default();
        errors.each_invalid(&path, name, names::label_key(name));
        standard(name, &path, errors);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::validate::create;
    use crate::validate::tests::{check_create, check_update, pod, said, with};

    #[test]
    fn a_finalizer_needs_a_prefix_in_the_kinds_of_the_core() {
        let metadata = json!({"name": "a", "namespace": "shop", "finalizers": ["abc"]});
        let why = "metadata.finalizers[0]: Invalid value: \"abc\": name is neither a standard finalizer name nor is it \
                   fully qualified";
        check_create("ConfigMap", json!({"metadata": metadata}), &[why]);
        let metadata = json!({"name": "a", "finalizers": ["abc"]});
        check_create("RuntimeClass", json!({"metadata": metadata, "handler": "r"}), &[]);
    }

    #[test]
    fn the_names_of_budgets_and_events_are_segments_of_a_path() {
        let budget = |name: &str| json!({"metadata": {"name": name, "namespace": "shop"}, "spec": {"minAvailable": 1}});
        check_create("PodDisruptionBudget", budget("Bad_Name!"), &[]);
        check_create(
            "PodDisruptionBudget",
            budget("a/b"),
            &["metadata.name: Invalid value: \"a/b\": may not contain '/'"],
        );
    }

    #[test]
    fn an_owner_has_a_version() {
        for version in ["", "a/b/c"] {
            let owner = json!({"apiVersion": version, "kind": "Pod", "name": "x", "uid": "u"});
            let object = json!({"metadata": {"name": "a", "namespace": "shop", "ownerReferences": [owner]}});
            let why = format!(
                "metadata.ownerReferences.apiVersion: Invalid value: {version:?}: version must not be empty"
            );
            check_create("ConfigMap", object, &[&why]);
        }
    }

    #[test]
    fn an_object_needs_a_name_and_a_namespace() {
        let nameless = with(with(pod(), "/metadata/name", json!("")), "/metadata/namespace", json!(null));
        check_create(
            "Pod",
            nameless,
            &[
                "metadata.name: Required value: name or generateName is required",
                "metadata.namespace: Required value",
            ],
        );
        let namespace = json!({"metadata": {"name": "a", "namespace": "b"}});
        check_create("Namespace", namespace, &["metadata.namespace: Forbidden: not allowed on this type"]);
    }

    #[test]
    fn names_are_checked_by_the_rule_of_their_kind() {
        let errors = said(create("Pod", &with(pod(), "/metadata/name", json!("Web_1"))));
        assert_eq!(errors.len(), 1);
        assert!(errors[0].starts_with(
            "metadata.name: Invalid value: \"Web_1\": a lowercase RFC 1123 subdomain must consist of lower case"
        ));
        check_create("Pod", with(pod(), "/metadata/name", json!("a.b")), &[]);
        let namespace = json!({"metadata": {"name": "a.b"}});
        check_create(
            "Namespace",
            namespace,
            &["metadata.name: Invalid value: \"a.b\": must not contain dots"],
        );
        check_create("ClusterRole", json!({"metadata": {"name": "system:auth-delegator"}}), &[]);
        check_create(
            "ClusterRole",
            json!({"metadata": {"name": "a/b"}}),
            &["metadata.name: Invalid value: \"a/b\": may not contain '/'"],
        );
        check_create("Pod", with(pod(), "/metadata/generateName", json!("web-")), &[]);
        assert_eq!(create("Pod", &with(pod(), "/metadata/generateName", json!("-"))).len(), 1);
    }

    #[test]
    fn labels_and_annotations_are_bounded() {
        let errors = said(create("Pod", &with(pod(), "/metadata/labels", json!({"a b": "ok"}))));
        assert!(errors[0].starts_with("metadata.labels: Invalid value: \"a b\": name part must consist of"));
        let errors = said(create("Pod", &with(pod(), "/metadata/labels", json!({"a": "-"}))));
        assert!(errors[0].starts_with("metadata.labels: Invalid value: \"-\": a valid label must be"));
        let big = json!({"a": "x".repeat(256 * 1024)});
        check_create(
            "Pod",
            with(pod(), "/metadata/annotations", big),
            &["metadata.annotations: Too long: may not be more than 262144 bytes"],
        );
    }

    #[test]
    fn an_object_has_at_most_one_controller() {
        let owner = |name: &str| json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": name, "uid": name, "controller": true});
        check_create("Pod", with(pod(), "/metadata/ownerReferences", json!([owner("a")])), &[]);
        let errors =
            said(create("Pod", &with(pod(), "/metadata/ownerReferences", json!([owner("a"), owner("b")]))));
        assert_eq!(errors.len(), 1);
        assert!(errors[0].ends_with(
            ": Only one reference can have Controller set to true. Found \"true\" in references for \
             ReplicaSet/a and ReplicaSet/b"
        ));
        check_create(
            "Pod",
            with(
                pod(),
                "/metadata/ownerReferences",
                json!([{"apiVersion": "v1", "kind": "Node", "name": "n"}]),
            ),
            &["metadata.ownerReferences.uid: Invalid value: \"\": must not be empty"],
        );
    }

    #[test]
    fn finalizers_are_qualified_and_cannot_be_added_late() {
        check_create(
            "Pod",
            with(pod(), "/metadata/finalizers", json!(["mine"])),
            &[
                "metadata.finalizers[0]: Invalid value: \"mine\": name is neither a standard finalizer name nor \
               is it fully qualified",
            ],
        );
        let old = with(
            with(pod(), "/metadata/deletionTimestamp", json!("2026-01-01T00:00:00Z")),
            "/metadata/finalizers",
            json!(["x.io/a"]),
        );
        check_update("Pod", with(old.clone(), "/metadata/finalizers", json!([])), old.clone(), &[]);
        check_update(
            "Pod",
            with(old.clone(), "/metadata/finalizers", json!(["x.io/a", "x.io/b"])),
            old,
            &[
                "metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted, \
               found new finalizers []string{\"x.io/b\"}",
            ],
        );
    }

    #[test]
    fn the_finalizers_of_a_namespace_have_standard_names_or_a_domain() {
        let namespace =
            |finalizers: &[&str]| json!({"metadata": {"name": "n"}, "spec": {"finalizers": finalizers}});
        let old = namespace(&["kubernetes"]);
        let refused = |finalizers: &[&str]| said(crate::validate::finalize(&namespace(finalizers), &old));
        assert_eq!(refused(&[]), [""; 0]);
        assert_eq!(refused(&["kubernetes", "example.com/a"]), [""; 0]);
        let expected = "spec.finalizers[0]: Invalid value: \"x\": name is neither a standard finalizer name nor is it fully qualified";
        assert_eq!(refused(&["x"]), [expected]);
    }

    #[test]
    fn identity_does_not_change() {
        let old = with(pod(), "/metadata/uid", json!("1"));
        check_update(
            "Pod",
            with(old.clone(), "/metadata/uid", json!("2")),
            old.clone(),
            &["metadata.uid: Invalid value: \"2\": field is immutable"],
        );
        check_update("Pod", with(old.clone(), "/metadata/uid", json!(null)), old.clone(), &[]);
        check_update(
            "Pod",
            with(old.clone(), "/metadata/name", json!("q")),
            old,
            &["metadata.name: Invalid value: \"q\": field is immutable"],
        );
    }
}
