//! The condition `DisruptionTarget` of a pod that was about to be disrupted, and was not: an eviction that failed at its last step,
//! for example. A Job would take the next failure of the pod for that disruption.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::model::{Meta, Pod};

/// How long a live pod has the condition (upstream: `stalePodDisruptionTimeout`).
const TIMEOUT: SignedDuration = SignedDuration::from_secs(120);

/// How long a pod keeps the condition; `None` for one that does not have it, or has it for good.
pub fn clear_in(pod: &Pod, now: Timestamp) -> Option<Duration> {
    let since = pod.disruption_target.as_deref().filter(|_| pod.is_active())?;
    let left = since.saturating_add(TIMEOUT).unwrap_or(Timestamp::MAX).duration_since(now);
    Some(Duration::try_from(left).unwrap_or_default())
}

/// Sets the condition to false (strategic merge patch of the status).
pub fn cleared(pod: &Meta, now: Timestamp) -> Value {
    let mut condition = json!({
        "type": "DisruptionTarget", "status": "False", "reason": null, "message": null,
        "lastTransitionTime": Timestamp::from_second(now.as_second()).unwrap_or(now).to_string(),
    });
    if pod.generation > 0 {
        condition["observedGeneration"] = pod.generation.into();
    }
    json!({
        "metadata": {"uid": pod.uid, "resourceVersion": pod.resource_version.to_string()},
        "status": {"conditions": [condition]},
    })
}
