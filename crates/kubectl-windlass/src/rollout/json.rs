//! An assessment as JSON. Fields are only ever added.

use serde_json::{Value, json};
use windlass::plan::deployment::PlanReason;

use super::{Assessment, SetView};

/// The reasons as the daemon publishes them, each with its sentence.
pub fn why(reasons: &[PlanReason]) -> Value {
    let of = |reason: &PlanReason| {
        let mut value = serde_json::to_value(reason).unwrap_or_default();
        value["text"] = json!(reason.to_string());
        value
    };
    reasons.iter().map(of).collect()
}

/// The numbers of an assessment.
pub fn counts(assessment: &Assessment) -> Value {
    let counts = &assessment.counts;
    json!({
        "desired": counts.desired, "replicas": counts.replicas, "updated": counts.updated, "ready": counts.ready,
        "available": counts.available,
    })
}

/// One ReplicaSet.
pub fn replica_set(view: &SetView) -> Value {
    let SetView { name, is_new, desired, replicas, ready, available, states } = view;
    let states: serde_json::Map<String, Value> =
        states.iter().map(|(state, count)| (state.clone(), json!(count))).collect();
    json!({
        "name": name, "isNew": is_new, "desired": desired, "replicas": replicas, "ready": ready,
        "available": available, "pods": states,
    })
}

/// The whole assessment.
pub fn assessment(assessment: &Assessment, next: &[String]) -> Value {
    let text = |at: Option<jiff::Timestamp>| at.map(|at| at.to_string());
    let mut value = json!({
        "kind": "Deployment", "namespace": assessment.namespace, "name": assessment.name, "uid": assessment.uid,
        "revision": assessment.revision, "generation": assessment.generation,
        "verdict": assessment.verdict, "since": text(assessment.since), "counts": counts(assessment),
        "why": why(&assessment.reasons), "writes": assessment.writes, "pods": assessment.pods,
        "replicaSets": assessment.replica_sets.iter().map(replica_set).collect::<Value>(),
        "deadline": text(assessment.deadline),
        "secondsLeft": assessment.estimate.map(|left| left.as_secs()),
        "next": next, "acts": assessment.acts, "unreadable": assessment.unreadable,
        "isPartial": assessment.is_partial, "conditions": assessment.conditions,
        "time": assessment.now.to_string(),
    });
    if assessment.is_partial {
        // An empty list would say that there are none.
        for unknown in ["why", "writes", "pods", "replicaSets"] {
            value[unknown] = Value::Null;
        }
    }
    value
}
