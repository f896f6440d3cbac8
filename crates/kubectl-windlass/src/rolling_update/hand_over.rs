//! The survivor keeps OLD's name: the writes with which OLD takes the pods of NEW over. No pod is deleted or created.

use serde_json::{Value, json};
use windlass::model::selector::{Selector, SelectorWire};
use windlass::model::{DaemonSet, Record as _, ReplicaSet, Resource};
use windlass::plan::rolling_update::bookkeeping::{HANDING_OVER, NEXT_CONTROLLER, ORIGINAL_REPLICAS, moved};

use super::prepare::{decode, name, selector};
use super::reporter::Reporter;
use super::{Cluster, described};
use crate::api::ApiError;
use crate::exit::CommandError;
use crate::write;

/// The other kinds whose controllers adopt pods by labels alone. StatefulSets adopt by name, too.
const OTHER_KINDS: [Resource; 3] = [
    ReplicaSet::RESOURCE,
    DaemonSet::RESOURCE,
    Resource { group: "batch", version: "v1", kind: "Job", plural: "jobs" },
];

/// The ReplicaSets, DaemonSets and Jobs of the namespace. Notes which the user may not list.
pub(super) async fn other_kinds(
    cluster: &Cluster<'_>,
    reporter: &mut Reporter<'_>,
) -> Result<Vec<(&'static str, Value)>, CommandError> {
    let mut all = Vec::new();
    for resource in OTHER_KINDS {
        let path = resource.path(Some(cluster.namespace));
        match cluster.api.list(resource.plural, &path, &[]).await {
            Ok(listed) => all.extend(listed.items.into_iter().map(|object| (resource.kind, object))),
            // The server does not serve the kind.
            Err(error) if error.code() == Some(404) => {}
            Err(error) if error.is_forbidden() => {
                reporter.note(&format!(
                    "note: {error}: none of them may select the new pods, or it could adopt them while the name changes"
                ));
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(all)
}

/// Refuses a hand-over where another controller would adopt the pods while they belong to none.
///
/// # Errors
/// With the name of that controller.
pub(super) fn refuse_rivals(
    all: &[Value],
    others: &[(&str, Value)],
    old: &Value,
    new: &Value,
) -> Result<(), String> {
    let labels = &new["spec"]["template"]["metadata"]["labels"];
    let is_rival = |other: &&Value| {
        let selects = selector(other);
        let is_other = ![name(old), name(new)].contains(&name(other));
        is_other && !selects.is_empty() && selects.iter().all(|(key, value)| labels[key] == *value)
    };
    let same_kind = all.iter().find(is_rival).map(|rival| ("ReplicationController", rival));
    let template_labels = decode(new)?.template.labels;
    let selects = |other: &&(&str, Value)| {
        let text = other.1["spec"]["selector"].to_string();
        let read = serde_json::from_str::<SelectorWire<'_>>(&text).ok().map(Some).map(Selector::compile);
        read.is_some_and(|selector| selector.matches(&template_labels))
    };
    let other_kind = || others.iter().find(selects).map(|(kind, rival)| (*kind, rival));
    same_kind.or_else(other_kind).map_or(Ok(()), |(kind, rival)| {
        Err(format!(
            "{kind} {} selects the pods of {}, too, and could adopt them while the name changes; pass another \
             --deployment-label-key, or name the new ReplicationController",
            name(rival),
            name(new)
        ))
    })
}

/// NEW wants no pods and selects none: its controller releases them all.
pub(super) async fn step_aside(
    cluster: &Cluster<'_>,
    new: &Value,
    key: &str,
    value: &str,
) -> Result<Value, ApiError> {
    let moved = moved(value);
    let body = json!({
        "metadata": {"annotations": {HANDING_OVER: value}},
        "spec": {"replicas": 0, "selector": {key: moved}, "template": {"metadata": {"labels": {key: moved}}}},
    });
    write::merge(cluster.api, &described(name(new)), &cluster.path(name(new)), new, body).await
}

/// OLD gets NEW's selector and template and its size in one write, and adopts the pods.
pub(super) async fn take_over(
    cluster: &Cluster<'_>,
    old: &Value,
    new: &Value,
    key: &str,
    value: &str,
    desired: i32,
) -> Result<Value, ApiError> {
    let mut template = new["spec"]["template"].clone();
    template["metadata"]["labels"][key] = json!(value);
    let mut selector = selector(new);
    selector.insert(key.to_owned(), json!(value));
    let mut annotations = old["metadata"]["annotations"].as_object().cloned().unwrap_or_default();
    annotations.retain(|key, _| key != ORIGINAL_REPLICAS && key != NEXT_CONTROLLER);
    // `add` replaces what is there.
    let operations = vec![
        json!({"op": "add", "path": "/metadata/annotations", "value": annotations}),
        json!({"op": "add", "path": "/spec/selector", "value": selector}),
        json!({"op": "add", "path": "/spec/template", "value": template}),
        json!({"op": "add", "path": "/spec/replicas", "value": desired}),
    ];
    write::replace(cluster.api, &described(name(old)), &cluster.path(name(old)), old, operations).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_controller_that_would_adopt_the_pods_is_a_rival() {
        let controller = |name: &str, labels: Value| {
            json!({"metadata": {"name": name, "namespace": "n", "uid": name, "resourceVersion": "1"},
                   "spec": {"selector": labels,
                            "template": {"metadata": {"labels": labels}, "spec": {"containers": []}}}})
        };
        let old = controller("old", json!({"app": "web", "deployment": "1"}));
        let new = controller("new", json!({"app": "web", "deployment": "2"}));
        let other = controller("other", json!({"app": "api"}));
        let all = vec![old.clone(), new.clone(), other];
        assert_eq!(refuse_rivals(&all, &[], &old, &new), Ok(()));
        let greedy = [all.clone(), vec![controller("greedy", json!({"app": "web"}))]].concat();
        let error = refuse_rivals(&greedy, &[], &old, &new).unwrap_err();
        assert!(error.contains("ReplicationController greedy selects the pods of new"), "{error}");

        let kind = |name: &str, selector: Value| {
            let object = json!({"metadata": {"name": name}, "spec": {"selector": selector}});
            ("ReplicaSet", object)
        };
        let harmless = [
            kind("hashed", json!({"matchLabels": {"app": "web", "pod-template-hash": "x"}})),
            kind("none", Value::Null),
        ];
        assert_eq!(refuse_rivals(&all, &harmless, &old, &new), Ok(()));
        let expression = json!({"matchExpressions": [{"key": "app", "operator": "Exists"}]});
        for rival in [kind("adopts", json!({"matchLabels": {"app": "web"}})), kind("adopts", expression)] {
            let error = refuse_rivals(&all, &[rival], &old, &new).unwrap_err();
            assert!(error.contains("ReplicaSet adopts selects the pods of new"), "{error}");
        }
    }
}
