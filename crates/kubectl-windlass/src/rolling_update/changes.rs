//! Small changes of one controller, computed anew as often as someone else writes in between, and tried again while the
//! server cannot be reached.

use serde_json::{Value, json};
use windlass::plan::rolling_update::bookkeeping::ORIGINAL_REPLICAS;

use super::outage::Outage;
use super::reporter::Reporter;
use super::{Cluster, described, refused};
use crate::exit::CommandError;
use crate::write;

/// Merges a change into a controller; `None` leaves it as it is. What `compute` refuses is the error: it sees the version
/// that the write names.
pub(super) async fn change(
    cluster: &Cluster<'_>,
    controller: &str,
    reporter: &mut Reporter<'_>,
    compute: impl Fn(&Value) -> Result<Option<Value>, String>,
) -> Result<(), CommandError> {
    let mut outage = Outage::new(cluster.patience);
    loop {
        let attempt = async {
            let Some(seen) = cluster.get(controller).await? else {
                return Err(refused(format!(
                    "replicationcontroller {controller} was deleted in the meantime"
                )));
            };
            let Some(body) = compute(&seen).map_err(refused)? else { return Ok(()) };
            let path = cluster.path(controller);
            let written = write::merge(cluster.api, &described(controller), &path, &seen, body).await;
            written.map(drop).map_err(CommandError::Api)
        };
        match attempt.await {
            Ok(()) => return Ok(()),
            Err(CommandError::Api(error)) if error.code() == Some(409) => outage.over(),
            Err(error) => outage.wait(error, reporter).await?,
        }
    }
}

/// Notes OLD's size for a rollback, once: an update that is resumed keeps the first.
pub(super) async fn remember_size(
    cluster: &Cluster<'_>,
    old_name: &str,
    reporter: &mut Reporter<'_>,
) -> Result<(), CommandError> {
    change(cluster, old_name, reporter, |old| {
        let annotations = &old["metadata"]["annotations"];
        let size = old["spec"]["replicas"].as_i64().unwrap_or(1).to_string();
        let is_known = annotations[ORIGINAL_REPLICAS].is_string();
        Ok((!is_known).then(|| json!({"metadata": {"annotations": {ORIGINAL_REPLICAS: size}}})))
    })
    .await
}

/// Removes annotations that only an update under way needs: a later rollback would go to a stale size.
pub(super) async fn tidy(
    cluster: &Cluster<'_>,
    controller: &str,
    annotations: &[&str],
    reporter: &mut Reporter<'_>,
) -> Result<(), CommandError> {
    change(cluster, controller, reporter, |object| {
        let present = |key: &&&str| object["metadata"]["annotations"][**key].is_string();
        let removed: serde_json::Map<String, Value> =
            annotations.iter().filter(present).map(|key| ((*key).to_owned(), Value::Null)).collect();
        Ok((!removed.is_empty()).then(|| json!({"metadata": {"annotations": removed}})))
    })
    .await
}
