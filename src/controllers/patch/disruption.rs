//! The patch of a PodDisruptionBudget.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Map, Value};

use super::Fields;
use crate::model::{DisruptionStatus, Meta};

/// The status of a PodDisruptionBudget. `None` when it would change nothing.
pub fn disruption_status(
    budget: &Meta,
    before: &DisruptionStatus,
    after: &DisruptionStatus,
) -> Option<Value> {
    let DisruptionStatus {
        observed_generation,
        disrupted_pods,
        disruptions_allowed,
        current_healthy,
        desired_healthy,
        expected_pods,
        conditions,
        condition_generation,
    } = after;
    let mut fields = Fields::default();
    fields.number("observedGeneration", before.observed_generation, *observed_generation);
    fields.number("disruptionsAllowed", before.disruptions_allowed, *disruptions_allowed);
    fields.number("currentHealthy", before.current_healthy, *current_healthy);
    fields.number("desiredHealthy", before.desired_healthy, *desired_healthy);
    fields.number("expectedPods", before.expected_pods, *expected_pods);
    let gone = before.disrupted_pods.keys().filter(|name| !disrupted_pods.contains_key(*name));
    let kept = |name: &Arc<str>| before.disrupted_pods.get(name);
    let new = disrupted_pods.iter().filter(|(name, at)| kept(name) != Some(at));
    let mut pods: Map<String, Value> = gone.map(|name| (name.to_string(), Value::Null)).collect();
    pods.extend(new.map(|(name, at)| (name.to_string(), at.to_string().into())));
    if !pods.is_empty() {
        fields.0.insert("disruptedPods".into(), pods.into());
    }
    let none = Vec::new();
    let is_same = before.condition_generation == *condition_generation;
    fields.conditions(if is_same { &before.conditions } else { &none }, conditions);
    for condition in fields.0.get_mut("conditions").and_then(Value::as_array_mut).into_iter().flatten() {
        condition["observedGeneration"] = (*condition_generation).into();
    }
    fields.into_patch(budget, &BTreeMap::new())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::model::{Interner, PodDisruptionBudget, Record as _};

    fn budget(status: &Value) -> PodDisruptionBudget {
        let object = json!({"metadata": {"name": "web", "namespace": "shop", "uid": "u", "resourceVersion": "7"},
                            "status": status});
        PodDisruptionBudget::decode(&object.to_string(), &mut Interner::default()).unwrap()
    }

    fn patch(before: Value, after: Value) -> Option<Value> {
        let before = budget(&before);
        let patch = disruption_status(&before.meta, &before.status, &budget(&after).status)?;
        assert_eq!(patch["metadata"], json!({"uid": "u", "resourceVersion": "7"}));
        Some(patch["status"].clone())
    }

    #[test]
    fn entries_are_removed_by_name() {
        let pods = |pods: Value| json!({"disruptedPods": pods});
        let time = "2026-01-01T00:00:00Z";
        assert_eq!(
            patch(pods(json!({"a": time, "b": time})), pods(json!({"b": time}))),
            Some(pods(json!({"a": null})))
        );
        assert_eq!(patch(pods(json!({"a": time})), pods(json!({"a": time}))), None);
    }

    #[test]
    fn a_condition_carries_its_generation() {
        let with = |generation: i64| {
            json!({"conditions": [{"type": "DisruptionAllowed", "status": "True", "reason": "SufficientPods", "message": "",
                                   "observedGeneration": generation, "lastTransitionTime": "2026-01-01T00:00:00Z"}]})
        };
        assert_eq!(patch(with(1), with(1)), None);
        assert_eq!(patch(with(1), with(2)), Some(with(2)));
        assert_eq!(patch(json!({}), with(1)), Some(with(1)));
    }
}
