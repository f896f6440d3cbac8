//! The Deployments, StatefulSets and DaemonSets of a file, and what they make of those that exist.

use serde_json::{Map, Value};
use windlass_manifest::{ManifestObject, Origin};

use crate::exit::CommandError;
use crate::interruption::on_a_thread;
use crate::output::Output;
use crate::text::harmless;

/// Where `kubectl apply` keeps what it applied last.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// The fields that a preview reads and writes by name; each must be a map where it is present.
const MAPS: [&str; 9] = [
    "spec",
    "spec.strategy",
    "spec.strategy.rollingUpdate",
    "spec.updateStrategy",
    "spec.updateStrategy.rollingUpdate",
    "spec.template",
    "spec.template.metadata",
    "spec.template.metadata.annotations",
    "spec.template.spec",
];

/// The Deployments, StatefulSets and DaemonSets of a file, or of stdin, and what else is in it.
///
/// # Errors
/// When the file cannot be read, or holds none of these or one that is none.
pub async fn read(file: &str, output: &mut Output) -> Result<(Vec<Value>, Vec<String>), CommandError> {
    let wrong = |problem: String| CommandError::Argument(format!("-f {file}: {}", harmless(&problem)));
    let path = file.to_owned();
    // Ctrl-C ends the program while a pipe blocks.
    let text = on_a_thread(move || match &*path {
        "-" => windlass_manifest::text(&mut std::io::stdin()),
        _ => windlass_manifest::text(&mut std::fs::File::open(path)?),
    });
    let text = text.await.ok_or_else(|| wrong("the thread that reads it has ended".to_owned()))?;
    let text = text.map_err(|error| wrong(error.to_string()))?;
    let (mut deployments, mut others) = (Vec::new(), Vec::new());
    for (index, document) in windlass_manifest::documents(file, &text).into_iter().enumerate() {
        let (document, origin) = (document.map_err(wrong)?, Origin::new(file, index));
        output.warn_of(&origin, &document.notes);
        for found in windlass_manifest::expand(&origin, document.value) {
            let ManifestObject { body, kind, origin, .. } =
                found.map_err(|defect| wrong(defect.to_string()))?;
            let name = body["metadata"]["name"].as_str().map(harmless);
            let is_known = ["Deployment", "StatefulSet", "DaemonSet"].contains(&&*kind)
                && body["apiVersion"] == "apps/v1";
            match name {
                Some(name) if !is_known => others.push(format!("{} {name}", harmless(&kind))),
                Some(name) => {
                    check_shape(&body)
                        .map_err(|why| wrong(format!("{} {name} ({origin}): {why}", harmless(&kind))))?;
                    deployments.push(body);
                }
                None => others.push(format!("{} without a name ({origin})", harmless(&kind))),
            }
        }
    }
    if deployments.is_empty() {
        return Err(wrong(
            "it has no Deployment, StatefulSet or DaemonSet of apps/v1, and nothing else is previewed"
                .to_owned(),
        ));
    }
    Ok((deployments, others))
}

/// Refuses what is not built as a workload.
fn check_shape(deployment: &Value) -> Result<(), String> {
    for path in MAPS {
        let value = path.split('.').fold(deployment, |value, field| &value[field]);
        if !(value.is_object() || (value.is_null() && path != "spec" && path != "spec.template")) {
            return Err(format!("{path} must be a map"));
        }
    }
    for list in ["containers", "initContainers"] {
        let containers = &deployment["spec"]["template"]["spec"][list];
        let is_list = containers.as_array().is_some_and(|all| all.iter().all(Value::is_object));
        if !(is_list || (containers.is_null() && list != "containers")) {
            return Err(format!("spec.template.spec.{list} must be a list of maps"));
        }
    }
    Ok(())
}

/// The spec that a Deployment gets from a file, before the server's defaults. What `kubectl apply` applied last and the
/// file no longer has is removed; what others have set, stays. Without a last application the spec is the file's, but for
/// the number of replicas where the file names none.
pub fn spec_from(file: &Value, now: &Value) -> Value {
    let last = now["metadata"]["annotations"][LAST_APPLIED].as_str();
    let last: Option<Value> = last.and_then(|last| serde_json::from_str(last).ok());
    let mut spec = match &last {
        Some(last) => applied(&now["spec"], &file["spec"], &last["spec"]),
        None => file["spec"].clone(),
    };
    let was_applied = last.is_some_and(|last| !last["spec"]["replicas"].is_null());
    if spec["replicas"].is_null() && !was_applied && !now["spec"]["replicas"].is_null() {
        spec["replicas"] = now["spec"]["replicas"].clone();
    }
    spec
}

/// A three-way merge. Lists whose items have names are merged by them, as kubectl merges containers, volumes and
/// variables; any other list is the file's.
fn applied(now: &Value, file: &Value, last: &Value) -> Value {
    match (now, file) {
        (Value::Object(now), Value::Object(file)) => {
            let mut merged = Map::new();
            for (key, value) in now {
                if !file.contains_key(key) && last[key].is_null() {
                    merged.insert(key.clone(), value.clone());
                }
            }
            for (key, value) in file {
                let before = now.get(key).unwrap_or(&Value::Null);
                merged.insert(key.clone(), applied(before, value, &last[key]));
            }
            Value::Object(merged)
        }
        (Value::Array(now), Value::Array(file)) if are_named(now) && are_named(file) => {
            let named =
                |list: &[Value], name: &Value| list.iter().find(|item| item["name"] == *name).cloned();
            let last = last.as_array().cloned().unwrap_or_default();
            let of_file = file.iter().map(|item| {
                let before = named(now, &item["name"]).unwrap_or(Value::Null);
                applied(&before, item, &named(&last, &item["name"]).unwrap_or(Value::Null))
            });
            let of_others = now
                .iter()
                .filter(|item| named(file, &item["name"]).is_none() && named(&last, &item["name"]).is_none());
            Value::Array(of_file.chain(of_others.cloned()).collect())
        }
        (_, file) => file.clone(),
    }
}

fn are_named(list: &[Value]) -> bool {
    list.iter().all(|item| item["name"].is_string())
}

/// Lays a file over what is there, without removing anything: what is left to compare where no server fills in defaults.
pub fn overlay(into: &mut Value, from: &Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (key, value) in from {
                overlay(into.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
        (Value::Array(into), Value::Array(from)) if into.len() == from.len() => {
            into.iter_mut().zip(from).for_each(|(into, from)| overlay(into, from));
        }
        (into, from) => *into = from.clone(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_file_without_replicas_keeps_their_number_and_nothing_else() {
        let now = json!({"spec": {"replicas": 3, "paused": true, "template": {"a": 1}}});
        let spec = spec_from(&json!({"spec": {"template": {"b": 1}}}), &now);
        assert_eq!(spec, json!({"replicas": 3, "template": {"b": 1}}));
    }

    #[test]
    fn what_was_applied_and_is_no_longer_there_is_removed_and_what_others_set_stays() {
        let last = json!({"spec": {"replicas": 2, "paused": true,
            "template": {"labels": {"old": "1"}, "list": [{"name": "a", "x": 1}, {"name": "gone"}]}}});
        let now = json!({
            "metadata": {"annotations": {LAST_APPLIED: last.to_string()}},
            "spec": {"replicas": 2, "paused": true, "deadline": 600, "template": {
                "labels": {"old": "1"}, "restartedAt": "today",
                "list": [{"name": "a", "x": 1, "default": true}, {"name": "gone"}, {"name": "sidecar"}]}},
        });
        let file = json!({"spec": {"replicas": 2, "template": {"labels": {"new": "1"}, "list": [{"name": "a", "y": 1}]}}});
        let expected = json!({"replicas": 2, "deadline": 600, "template": {
            "labels": {"new": "1"}, "restartedAt": "today",
            "list": [{"name": "a", "default": true, "y": 1}, {"name": "sidecar"}]}});
        assert_eq!(spec_from(&file, &now), expected);
    }

    #[test]
    fn an_overlay_keeps_what_the_file_does_not_name() {
        let mut spec = json!({"replicas": 3, "template": {"list": [{"a": 1, "b": 2}], "args": ["x"]}});
        overlay(&mut spec, &json!({"template": {"list": [{"a": 2}], "args": ["y", "z"], "c": 1}}));
        let expected =
            json!({"replicas": 3, "template": {"list": [{"a": 2, "b": 2}], "args": ["y", "z"], "c": 1}});
        assert_eq!(spec, expected);
    }

    #[test]
    fn what_is_not_built_as_a_deployment_is_refused_with_its_field() {
        let good = json!({"spec": {"template": {"spec": {"containers": [{"name": "a"}]}}}});
        assert_eq!(check_shape(&good), Ok(()));
        let broken = |path: &str, value: Value| {
            let mut broken = good.clone();
            *broken.pointer_mut(path).unwrap() = value;
            check_shape(&broken).unwrap_err()
        };
        assert_eq!(broken("/spec", json!("text")), "spec must be a map");
        assert_eq!(broken("/spec/template", Value::Null), "spec.template must be a map");
        assert_eq!(broken("/spec/template/spec", json!([1])), "spec.template.spec must be a map");
        let list = "spec.template.spec.containers must be a list of maps";
        assert_eq!(broken("/spec/template/spec/containers", json!({"a": 1})), list);
        assert_eq!(broken("/spec/template/spec/containers/0", json!("app")), list);
        let strategy = json!({"spec": {"strategy": "Recreate", "template": {}}});
        assert_eq!(check_shape(&strategy), Err("spec.strategy must be a map".to_owned()));
    }
}
