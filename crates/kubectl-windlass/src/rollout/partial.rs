//! The assessment of a Deployment by its status alone. Without its ReplicaSets or its pods nothing is planned, and no
//! reason is given: a list that may not be read is no empty one.

use jiff::Timestamp;
use serde_json::Value;
use windlass::model::{Deployment, condition};
use windlass::plan::deployment::progress::PROGRESSING;
use windlass::plan::deployment::revision;

use super::last_writes::LastWrites;
use super::{Assessment, Counts, Verdict, verdict};
use crate::text::harmless;

/// The assessment by the status.
pub(super) fn assess(
    deployment: &Deployment,
    object: &Value,
    last: &LastWrites,
    unreadable: &[String],
    now: Timestamp,
) -> Assessment {
    let status = &deployment.status;
    let verdict = verdict::by_status(deployment, last, now);
    Assessment {
        namespace: deployment.meta.key.namespace.to_string(),
        name: deployment.meta.key.name.to_string(),
        uid: deployment.meta.uid.to_string(),
        generation: deployment.meta.generation,
        observed_generation: status.observed_generation,
        revision: deployment.annotations.get(revision::REVISION).and_then(|text| text.parse().ok()),
        verdict,
        since: since(verdict, deployment, last),
        reasons: Vec::new(),
        writes: Vec::new(),
        counts: Counts {
            desired: deployment.replicas.into(),
            replicas: status.replicas.into(),
            updated: status.updated.into(),
            ready: status.ready.into(),
            available: status.available.into(),
        },
        conditions: conditions(object),
        replica_sets: Vec::new(),
        pods: Vec::new(),
        deadline: None,
        estimate: None,
        acts: last.status.clone(),
        template_written: last.template,
        previous: None,
        is_partial: true,
        unreadable: unreadable.to_vec(),
        now,
    }
}

/// Since when the Deployment is in a state, as its conditions report it.
pub(super) fn since(verdict: Verdict, deployment: &Deployment, last: &LastWrites) -> Option<Timestamp> {
    match verdict {
        Verdict::Unobserved => last.template,
        Verdict::Deleting => None,
        _ => condition::find(&deployment.status.conditions, PROGRESSING)
            .and_then(|condition| condition.last_update),
    }
}

/// The conditions in words, as the server has them.
fn conditions(object: &Value) -> Vec<String> {
    let text = |condition: &Value, field: &str| harmless(condition[field].as_str().unwrap_or_default());
    let all = object["status"]["conditions"].as_array().into_iter().flatten();
    let line = |condition: &Value| {
        let [kind, status, reason, message] =
            ["type", "status", "reason", "message"].map(|field| text(condition, field));
        format!("{kind}={status} {reason}: {message}")
    };
    all.map(line).collect()
}
