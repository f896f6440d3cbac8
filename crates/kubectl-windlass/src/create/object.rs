//! Prepares an object for its POST: namespace, resourceVersion, annotations; and matches selectors. Pure.

use serde_json::{Map, Value, json};
use windlass::model::{Selector, StringMap};

use crate::revisions::LAST_APPLIED;

const CHANGE_CAUSE: &str = "kubernetes.io/change-cause";

/// The namespace of the command.
#[derive(Clone, Copy, Debug)]
pub struct Namespace<'a> {
    /// Its name.
    pub name: &'a str,
    /// Whether an object of another one is an error.
    pub is_enforced: bool,
}

/// The changes that [`prepare`] makes to an object.
#[derive(Clone, Copy, Debug)]
pub struct Preparation<'a> {
    /// The namespace for objects without one.
    pub namespace: Namespace<'a>,
    /// Whether to keep the object in the annotation of `kubectl apply`.
    pub keeps_config: bool,
    /// The command line for the annotation `kubernetes.io/change-cause`.
    pub change_cause: Option<&'a str>,
}

/// Prepares an object for its POST: sets or removes the namespace, removes the resourceVersion, and sets annotations.
///
/// # Errors
/// When the metadata cannot be used, or the namespace is another than the enforced one.
pub fn prepare(body: &mut Value, is_namespaced: bool, how: Preparation<'_>) -> Result<(), String> {
    let metadata = check(body)?;
    metadata.remove("resourceVersion");
    let own = metadata.get("namespace").and_then(Value::as_str).unwrap_or_default();
    let Namespace { name, is_enforced } = how.namespace;
    match (is_namespaced, own) {
        (false, _) => {
            metadata.remove("namespace");
        }
        (true, "") => {
            metadata.insert("namespace".to_owned(), name.into());
        }
        (true, own) if is_enforced && own != name => {
            return Err(format!(
                "the object is in namespace {own}, and -n says {name}: leave -n out or use -n {own}"
            ));
        }
        (true, _) => {}
    }
    let place = body["metadata"]["namespace"].as_str().unwrap_or_default();
    if place.contains(['/', '.']) {
        return Err(format!("{place:?} is not the name of a namespace"));
    }
    if how.keeps_config
        || !body["metadata"]["annotations"][LAST_APPLIED].as_str().unwrap_or_default().is_empty()
    {
        keep_config(body);
    }
    if let Some(cause) = how.change_cause {
        annotations(body).insert(CHANGE_CAUSE.to_owned(), cause.into());
    }
    Ok(())
}

/// Validates the types of the metadata and returns it. Inserts empty metadata if there is none.
fn check(body: &mut Value) -> Result<&mut Map<String, Value>, String> {
    if body["metadata"].is_null() {
        body["metadata"] = json!({});
    }
    let Some(metadata) = body["metadata"].as_object_mut() else {
        return Err("metadata must be a mapping".to_owned());
    };
    for field in ["name", "generateName", "namespace", "resourceVersion"] {
        if metadata.get(field).is_some_and(|value| !value.is_string() && !value.is_null()) {
            return Err(format!("metadata.{field} must be a string; quote it"));
        }
    }
    for field in ["labels", "annotations"] {
        match metadata.get(field) {
            None | Some(Value::Null) => {}
            Some(Value::Object(map)) => {
                let wrong = map.iter().find(|(_, value)| !value.is_string() && !value.is_null());
                if let Some((key, _)) = wrong {
                    return Err(format!("metadata.{field}: the value of {key} must be a string; quote it"));
                }
            }
            Some(_) => return Err(format!("metadata.{field} must be a mapping")),
        }
    }
    Ok(metadata)
}

/// Returns the annotations; [`check`] has refused everything but a mapping.
fn annotations(body: &mut Value) -> &mut Map<String, Value> {
    let annotations = &mut body["metadata"]["annotations"];
    if !annotations.is_object() {
        *annotations = json!({});
    }
    annotations.as_object_mut().expect("an object was put there")
}

/// Sets the annotation of `kubectl apply`: the whole object without that annotation, as one line of JSON.
fn keep_config(body: &mut Value) {
    annotations(body).remove(LAST_APPLIED);
    let text = escaped(&body.to_string()) + "\n";
    annotations(body).insert(LAST_APPLIED.to_owned(), text.into());
}

/// Escapes the characters that Go's JSON encoder escapes for HTML. In JSON they occur in strings only.
pub fn escaped(json: &str) -> String {
    let mut text = String::with_capacity(json.len());
    for c in json.chars() {
        match c {
            '<' => text.push_str("\\u003c"),
            '>' => text.push_str("\\u003e"),
            '&' => text.push_str("\\u0026"),
            '\u{2028}' => text.push_str("\\u2028"),
            '\u{2029}' => text.push_str("\\u2029"),
            c => text.push(c),
        }
    }
    text
}

/// Whether a selector matches the labels of an object.
pub fn is_selected(selector: &Selector, body: &Value) -> bool {
    let labels = body["metadata"]["labels"].as_object();
    let labels: StringMap = labels
        .into_iter()
        .flatten()
        .map(|(key, value)| (key.as_str(), value.as_str().unwrap_or_default()))
        .collect();
    selector.matches(&labels)
}

/// `deployment.apps/web`, `configmap/a`.
pub fn reference(body: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (kind, name) = (text(&body["kind"]).to_lowercase(), text(&body["metadata"]["name"]));
    let api_version = text(&body["apiVersion"]);
    let name = if name.is_empty() { "<unknown>" } else { &name };
    crate::text::harmless(&match api_version.split_once('/') {
        Some((group, _)) => format!("{kind}.{group}/{name}"),
        None => format!("{kind}/{name}"),
    })
}

/// ` (name a, namespace b)`, as far as the object has them.
pub fn name_and_namespace(body: &Value) -> String {
    let said =
        ["name", "namespace"].map(|field| (field, body["metadata"][field].as_str().unwrap_or_default()));
    let said: Vec<String> = said
        .into_iter()
        .filter(|(_, value)| !value.is_empty())
        .map(|(field, value)| format!("{field} {}", crate::text::harmless(value)))
        .collect();
    if said.is_empty() { String::new() } else { format!(" ({})", said.join(", ")) }
}

/// Whether `there` contains all fields of `wanted` with the same values. A server adds fields to an object.
pub fn contains(there: &Value, wanted: &Value) -> bool {
    match (there, wanted) {
        (Value::Object(there), Value::Object(wanted)) => wanted.iter().all(|(key, wanted)| {
            wanted.is_null() || there.get(key).is_some_and(|there| contains(there, wanted))
        }),
        (Value::Array(there), Value::Array(wanted)) => {
            there.len() == wanted.len()
                && there.iter().zip(wanted).all(|(there, wanted)| contains(there, wanted))
        }
        (there, wanted) => there == wanted,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHOP: Preparation<'_> = Preparation {
        namespace: Namespace { name: "shop", is_enforced: false },
        keeps_config: false,
        change_cause: None,
    };
    const ENFORCED: Preparation<'_> =
        Preparation { namespace: Namespace { name: "shop", is_enforced: true }, ..SHOP };

    fn prepared(metadata: Value, is_namespaced: bool, how: Preparation<'_>) -> Result<Value, String> {
        let mut body = json!({"apiVersion": "v1", "kind": "X", "metadata": metadata});
        prepare(&mut body, is_namespaced, how).map(|()| body["metadata"].clone())
    }

    #[test]
    fn an_object_gets_the_namespace_that_it_lacks() {
        let ready = |metadata, is_namespaced, how| prepared(metadata, is_namespaced, how).unwrap();
        assert_eq!(ready(json!({"name": "a"}), true, SHOP), json!({"name": "a", "namespace": "shop"}));
        assert_eq!(ready(Value::Null, true, SHOP), json!({"namespace": "shop"}));
        assert_eq!(ready(json!({"namespace": "x"}), true, SHOP), json!({"namespace": "x"}));
        assert_eq!(ready(json!({"namespace": "x"}), false, ENFORCED), json!({}), "of the cluster");
        assert_eq!(ready(json!({"namespace": "shop"}), true, ENFORCED), json!({"namespace": "shop"}));
        let error = prepared(json!({"namespace": "x"}), true, ENFORCED).unwrap_err();
        assert!(error.contains("namespace x") && error.contains("-n x"), "{error}");
    }

    #[test]
    fn a_namespace_cannot_lead_elsewhere() {
        for wrong in ["a/b", "..", "a/../../nodes"] {
            let error = prepared(json!({"namespace": wrong}), true, SHOP).unwrap_err();
            assert!(error.contains("not the name of a namespace"), "{error}");
        }
    }

    #[test]
    fn a_resource_version_is_taken_off() {
        let metadata = json!({"name": "a", "resourceVersion": "7", "namespace": "shop"});
        assert_eq!(prepared(metadata, true, SHOP).unwrap(), json!({"name": "a", "namespace": "shop"}));
    }

    #[test]
    fn metadata_of_the_wrong_type_is_named() {
        let error = |metadata| prepared(metadata, true, SHOP).unwrap_err();
        assert_eq!(error(json!("x")), "metadata must be a mapping");
        assert_eq!(error(json!({"name": 5})), "metadata.name must be a string; quote it");
        assert_eq!(error(json!({"labels": ["a"]})), "metadata.labels must be a mapping");
        let value = error(json!({"annotations": {"a": "b", "c": 1}}));
        assert_eq!(value, "metadata.annotations: the value of c must be a string; quote it");
    }

    #[test]
    fn the_kept_configuration_is_the_object_itself_and_renewed_where_there_is_one() {
        let kept = |metadata, how| {
            let metadata = prepared(metadata, true, how).unwrap();
            metadata["annotations"][LAST_APPLIED].as_str().map(str::to_owned)
        };
        let keeping = Preparation { keeps_config: true, ..SHOP };
        let wanted = "{\"apiVersion\":\"v1\",\"kind\":\"X\",\"metadata\":{\"annotations\":{},\"name\":\"a\\u003c\",\
                      \"namespace\":\"shop\"}}\n";
        assert_eq!(kept(json!({"name": "a<"}), keeping).unwrap(), wanted);
        assert_eq!(kept(json!({"name": "a<", "annotations": {LAST_APPLIED: "old"}}), SHOP).unwrap(), wanted);
        assert_eq!(kept(json!({"name": "a<", "annotations": null}), SHOP), None);
    }

    #[test]
    fn the_cause_is_noted_and_is_not_part_of_the_kept_configuration() {
        let how = Preparation { keeps_config: true, change_cause: Some("kubectl x"), ..SHOP };
        let metadata = prepared(json!({"name": "a"}), true, how).unwrap();
        assert_eq!(metadata["annotations"][CHANGE_CAUSE], "kubectl x");
        assert!(!metadata["annotations"][LAST_APPLIED].as_str().unwrap().contains("kubectl x"));
    }

    #[test]
    fn a_selector_looks_at_the_labels_of_the_object() {
        let selector = windlass::config::parse_selector("app in (web,api),!old").unwrap();
        let is = |labels: Value| is_selected(&selector, &json!({"metadata": {"labels": labels}}));
        assert!(is(json!({"app": "web"})) && is(json!({"app": "api", "x": "y"})));
        assert!(!is(json!({"app": "web", "old": ""})) && !is(json!({"app": "x"})) && !is(Value::Null));
    }

    #[test]
    fn an_object_is_named_by_kind_group_and_name() {
        let name = |api: &str, metadata: Value| {
            reference(&json!({"apiVersion": api, "kind": "PodTemplate", "metadata": metadata}))
        };
        assert_eq!(name("apps/v1", json!({"name": "a"})), "podtemplate.apps/a");
        assert_eq!(name("v1", json!({"name": "a"})), "podtemplate/a");
        assert_eq!(name("v1", json!({"generateName": "a-"})), "podtemplate/<unknown>");
        let said = |metadata: Value| name_and_namespace(&json!({"metadata": metadata}));
        assert_eq!(said(json!({"name": "a", "namespace": "b"})), " (name a, namespace b)");
        assert_eq!((said(json!({"name": "a"})), said(Value::Null)), (" (name a)".into(), "".into()));
    }

    #[test]
    fn an_object_of_the_server_contains_what_was_sent() {
        let there =
            json!({"spec": {"replicas": 1, "containers": [{"name": "a", "pull": "x"}]}, "status": {}});
        assert!(contains(&there, &json!({"spec": {"containers": [{"name": "a"}], "paused": null}})));
        assert!(!contains(&there, &json!({"spec": {"replicas": 2}})));
        assert!(!contains(&there, &json!({"spec": {"containers": []}})));
        assert!(!contains(&there, &json!({"data": {}})));
    }
}
