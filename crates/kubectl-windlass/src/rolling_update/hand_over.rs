//! The survivor keeps OLD's name: the writes with which OLD takes the pods of NEW over. No pod is deleted or created.

use serde_json::{Value, json};
use windlass::plan::rolling_update::bookkeeping::{HANDING_OVER, NEXT_CONTROLLER, ORIGINAL_REPLICAS, moved};

use super::prepare::{name, selector};
use super::{Cluster, described};
use crate::api::ApiError;
use crate::write;

/// Refuses a hand-over where another controller would adopt the pods while they belong to none.
///
/// # Errors
/// With the name of that controller.
pub(super) fn refuse_rivals(all: &[Value], old: &Value, new: &Value) -> Result<(), String> {
    let labels = &new["spec"]["template"]["metadata"]["labels"];
    let is_rival = |other: &&Value| {
        let selects = selector(other);
        let is_other = ![name(old), name(new)].contains(&name(other));
        is_other && !selects.is_empty() && selects.iter().all(|(key, value)| labels[key] == *value)
    };
    all.iter().find(is_rival).map_or(Ok(()), |rival| {
        Err(format!(
            "replicationcontroller {} selects the pods of {}, too, and could take them while the name changes; pass \
             another --deployment-label-key, or name the new ReplicationController",
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
            json!({"metadata": {"name": name}, "spec": {"selector": labels,
                   "template": {"metadata": {"labels": labels}}}})
        };
        let old = controller("old", json!({"app": "web", "deployment": "1"}));
        let new = controller("new", json!({"app": "web", "deployment": "2"}));
        let other = controller("other", json!({"app": "api"}));
        let all = vec![old.clone(), new.clone(), other];
        assert_eq!(refuse_rivals(&all, &old, &new), Ok(()));
        let all = [all, vec![controller("greedy", json!({"app": "web"}))]].concat();
        assert!(refuse_rivals(&all, &old, &new).unwrap_err().contains("greedy selects the pods of new"));
    }
}
