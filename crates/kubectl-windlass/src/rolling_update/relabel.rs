//! Gives OLD and its pods a label that tells them from NEW's. Each step leaves every pod with one owner, and may be
//! repeated.

use std::time::Duration;

use serde_json::{Value, json};
use windlass::model::{ObjectKey, Pod, Record as _};
use windlass::plan::rolling_update::bookkeeping::NEXT_CONTROLLER;

use super::changes::change;
use super::prepare::{self, name};
use super::reporter::Reporter;
use super::{Cluster, refused};
use crate::cli::RollingUpdateArgs;
use crate::exit::CommandError;
use crate::write;

/// The pause before pods are listed again that the last round has not labelled.
const PAUSE: Duration = Duration::from_millis(200);

/// Relabels OLD unless its selector has the key already, and notes the name of NEW. Returns OLD as it is then.
pub(super) async fn relabel(
    cluster: &Cluster<'_>,
    old: Value,
    new_name: &str,
    args: &RollingUpdateArgs,
    reporter: &mut Reporter<'_>,
) -> Result<Value, CommandError> {
    let key = &args.deployment_label_key;
    let old_name = name(&old).to_owned();
    let mut selector = prepare::selector(&old);
    let value_now =
        |old: &Value| old["spec"]["template"]["metadata"]["labels"][key].as_str().map(str::to_owned);
    let had_key = selector.remove(key).is_some();
    // An earlier run may have got as far as the template.
    let value = match value_now(&old) {
        Some(value) => value,
        None => prepare::value_for_old(&old).map_err(refused)?,
    };
    change(cluster, &old_name, reporter, |old| {
        let is_done = value_now(old).as_deref() == Some(&value)
            && old["metadata"]["annotations"][NEXT_CONTROLLER] == new_name;
        let mut body = json!({"metadata": {"annotations": {NEXT_CONTROLLER: new_name}}});
        if !had_key {
            body["spec"]["template"]["metadata"]["labels"][key] = json!(value);
        }
        Ok((!is_done).then_some(body))
    })
    .await?;
    if !had_key {
        let labels: Vec<String> = selector
            .iter()
            .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()))
            .collect();
        let labels = labels.join(",");
        label_pods(cluster, &old, &labels, key, &value).await?;
        change(cluster, &old_name, reporter, |old| {
            let is_done = old["spec"]["selector"][key] == value.as_str();
            Ok((!is_done).then(|| json!({"spec": {"selector": {key.as_str(): value}}})))
        })
        .await?;
        let deleted = delete_strays(cluster, &old, &labels, key).await?;
        let strays = if deleted > 0 {
            format!("; {deleted} pods created meanwhile were deleted")
        } else {
            String::new()
        };
        let text = format!("Labelled {old_name} and its pods {key}={value}{strays}");
        reporter.event("Labelled", &text, json!({"label": key, "value": value, "strays": deleted}))?;
    }
    let relabelled = cluster.get(&old_name).await?;
    relabelled.ok_or_else(|| refused(format!("replicationcontroller {old_name} was deleted in the meantime")))
}

async fn pods(cluster: &Cluster<'_>, labels: &str) -> Result<Vec<Value>, CommandError> {
    let path = Pod::RESOURCE.path(Some(cluster.namespace));
    Ok(cluster.api.list("pods", &path, &[("labelSelector", labels)]).await?.items)
}

/// The controller of a pod.
fn owner(pod: &Value) -> Option<&Value> {
    let owners = pod["metadata"]["ownerReferences"].as_array().into_iter().flatten();
    owners.into_iter().find(|owner| owner["controller"] == true)
}

/// Labels the pods of OLD, and those without a controller that it selects, also those that appear while it does. Pods
/// that another controller owns are that one's business.
async fn label_pods(
    cluster: &Cluster<'_>,
    old: &Value,
    labels: &str,
    key: &str,
    value: &str,
) -> Result<(), CommandError> {
    let without = format!("{labels},!{key}");
    loop {
        let mut pods = pods(cluster, &without).await?;
        pods.retain(|pod| owner(pod).is_none_or(|owner| owner["uid"] == old["metadata"]["uid"]));
        if pods.is_empty() {
            return Ok(());
        }
        for pod in &pods {
            let path = Pod::RESOURCE.path_of(&ObjectKey::new(cluster.namespace, name(pod)));
            let body = json!({"metadata": {"labels": {key: value}}});
            match write::merge(cluster.api, &format!("pod {}", name(pod)), &path, pod, body).await {
                // It has changed, or is gone: the next list shows it.
                Err(error) if matches!(error.code(), Some(404 | 409)) => {}
                other => {
                    if other?["metadata"]["labels"][key] != value {
                        return Err(refused(format!(
                            "pod {} has no label {key}={value} after it was set: an admission webhook seems to remove \
                             it; pass another --deployment-label-key",
                            name(pod)
                        )));
                    }
                }
            }
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Deletes pods that OLD created under its earlier labels while its pods were labelled: no controller selects them now.
async fn delete_strays(
    cluster: &Cluster<'_>,
    old: &Value,
    labels: &str,
    key: &str,
) -> Result<usize, CommandError> {
    let mut deleted = 0;
    for pod in pods(cluster, &format!("{labels},!{key}")).await? {
        if owner(&pod).is_some_and(|owner| owner["uid"] == old["metadata"]["uid"]) {
            let path = Pod::RESOURCE.path_of(&ObjectKey::new(cluster.namespace, name(&pod)));
            match write::delete(cluster.api, &format!("pod {}", name(&pod)), &path, &pod).await {
                Err(error) if matches!(error.code(), Some(404 | 409)) => {}
                other => {
                    other?;
                    deleted += 1;
                }
            }
        }
    }
    Ok(deleted)
}
