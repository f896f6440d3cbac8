//! An assessment as JSON. Fields are only ever added.

use serde_json::{Value, json};
use windlass::plan::Reason;

use super::{Assessment, PartView};
use crate::target::Kind;

/// The reasons as the daemon publishes them, each with its sentence.
pub fn why(reasons: &[Reason]) -> Value {
    let of = |reason: &Reason| {
        let mut value = serde_json::to_value(reason).unwrap_or_default();
        value["text"] = json!(reason.to_string());
        value
    };
    reasons.iter().map(of).collect()
}

/// The numbers of an assessment.
pub fn counts(assessment: &Assessment) -> Value {
    if let Some(work) = &assessment.work {
        return work.data();
    }
    let counts = &assessment.counts;
    json!({
        "desired": counts.desired, "replicas": counts.replicas, "updated": counts.updated, "ready": counts.ready,
        "available": counts.available,
    })
}

/// The pods of a ReplicaSet or revision.
pub fn part(view: &PartView) -> Value {
    let PartView { name, is_new, desired, replicas, ready, available, states } = view;
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
        "kind": assessment.kind.title(), "namespace": assessment.namespace, "name": assessment.name,
        "uid": assessment.uid,
        "revision": assessment.revision, "generation": assessment.generation,
        "verdict": assessment.verdict, "since": text(assessment.since), "counts": counts(assessment),
        "why": why(&assessment.reasons), "writes": assessment.writes, "pods": assessment.pods,
        "deadline": text(assessment.deadline),
        "secondsLeft": assessment.estimate.map(|left| left.as_secs()),
        "next": next, "acts": assessment.acts, "unreadable": assessment.unreadable,
        "isPartial": assessment.is_partial, "conditions": assessment.conditions,
        "time": assessment.now.to_string(),
    });
    let parts: Value = assessment.parts.iter().map(part).collect();
    let mut of_pods = vec!["pods"];
    match assessment.kind {
        Kind::StatefulSet | Kind::DaemonSet => {
            value["revisions"] = parts;
            value["desiredNew"] = json!(assessment.desired_new);
            value["refusal"] = json!(assessment.refusal);
            of_pods.push("revisions");
        }
        Kind::Deployment | Kind::Pod => {
            value["replicaSets"] = parts;
            of_pods.push("replicaSets");
        }
        Kind::Job => value["refusal"] = json!(assessment.refusal),
        Kind::ReplicationController | Kind::ReplicaSet | Kind::CronJob => {}
    }
    if assessment.kind == Kind::StatefulSet {
        value["claims"] = json!(assessment.claims);
        of_pods.push("claims");
    }
    if matches!(assessment.kind, Kind::Deployment | Kind::DaemonSet) {
        value["policy"] = json!(assessment.policy);
    }
    if let Some(summary) = &assessment.summary {
        value["summary"] = json!(summary);
    }
    // An empty list would say that there are none.
    for unknown in ["why", "writes"].into_iter().filter(|_| assessment.is_partial) {
        value[unknown] = Value::Null;
    }
    for unknown in of_pods.into_iter().filter(|_| !assessment.knows_pods) {
        value[unknown] = Value::Null;
    }
    value
}
