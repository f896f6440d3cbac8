//! A small change of one controller, computed anew as often as someone else writes in between, and tried again while the
//! server cannot be reached.

use serde_json::Value;

use super::outage::Outage;
use super::reporter::Reporter;
use super::{Cluster, deleted, described, refused};
use crate::exit::CommandError;
use crate::write;

/// Merges a change into a controller; `None` leaves it as it is. What `compute` refuses is the error: it sees the version
/// that the write names. Returns the controller as it is then.
pub(super) async fn change(
    cluster: &Cluster<'_>,
    controller: &str,
    reporter: &mut Reporter<'_>,
    compute: impl Fn(&Value) -> Result<Option<Value>, String>,
) -> Result<Value, CommandError> {
    let mut outage = Outage::new(cluster.patience);
    loop {
        let attempt = async {
            let seen = cluster.get(controller).await?.ok_or_else(|| deleted(controller))?;
            let Some(body) = compute(&seen).map_err(refused)? else { return Ok(seen) };
            let path = cluster.path(controller);
            let written = write::merge(cluster.api, &described(controller), &path, &seen, body).await;
            written.map_err(CommandError::Api)
        };
        match attempt.await {
            Ok(changed) => return Ok(changed),
            Err(CommandError::Api(error)) if error.code() == Some(409) => outage.over(),
            Err(error) => outage.wait(error, reporter).await?,
        }
    }
}
