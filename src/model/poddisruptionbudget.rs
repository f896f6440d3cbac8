//! A PodDisruptionBudget: how many of the pods that it selects may be evicted.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use serde::Deserialize;

use super::condition::{self, Condition};
use super::int_or_percent::IntOrPercent;
use super::intern::Interner;
use super::meta::Meta;
use super::record::{self, Record, Resource};
use super::selector::{Selector, SelectorWire};
use super::wire::{MetaWire, Text, Time};

/// The type of the condition that the controller writes.
pub const DISRUPTION_ALLOWED: &str = "DisruptionAllowed";

/// The fields of a PodDisruptionBudget that the controllers use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodDisruptionBudget {
    /// Metadata.
    pub meta: Meta,
    /// `spec.selector`. A missing one selects no pod, an empty one every pod of the namespace.
    pub selector: Option<Selector>,
    /// How many pods must stay.
    pub threshold: Threshold,
    /// `status`.
    pub status: DisruptionStatus,
}

/// `spec.minAvailable` or `spec.maxUnavailable`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Threshold {
    /// So many must be healthy.
    MinAvailable(IntOrPercent),
    /// So many may be missing.
    MaxUnavailable(IntOrPercent),
    /// Neither is set: no disruption is allowed.
    Unset,
}

/// `status`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DisruptionStatus {
    /// The generation that it was computed from.
    pub observed_generation: i64,
    /// Pods that the API server has allowed to be evicted, and when. The controller has not seen their deletion yet.
    pub disrupted_pods: BTreeMap<Arc<str>, Timestamp>,
    /// How many evictions the API server may allow.
    pub disruptions_allowed: i32,
    /// Pods that count.
    pub current_healthy: i32,
    /// The least number of them.
    pub desired_healthy: i32,
    /// Pods that should exist.
    pub expected_pods: i32,
    /// The condition [`DISRUPTION_ALLOWED`], if it is there. Others have other writers.
    pub conditions: Vec<Condition>,
    /// The `observedGeneration` of that condition.
    pub condition_generation: i64,
}

#[derive(Deserialize)]
struct BudgetWire<'a> {
    #[serde(borrow)]
    metadata: MetaWire<'a>,
    #[serde(borrow, default)]
    spec: Option<SpecWire<'a>>,
    #[serde(borrow, default)]
    status: Option<StatusWire<'a>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct SpecWire<'a> {
    #[serde(borrow, default)]
    selector: Option<SelectorWire<'a>>,
    #[serde(default)]
    min_available: Option<IntOrPercent>,
    #[serde(default)]
    max_unavailable: Option<IntOrPercent>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct StatusWire<'a> {
    #[serde(default)]
    observed_generation: Option<i64>,
    #[serde(borrow, default)]
    disrupted_pods: Option<BTreeMap<TextKey<'a>, Option<Time>>>,
    #[serde(default)]
    disruptions_allowed: Option<i32>,
    #[serde(default)]
    current_healthy: Option<i32>,
    #[serde(default)]
    desired_healthy: Option<i32>,
    #[serde(default)]
    expected_pods: Option<i32>,
    #[serde(borrow, default)]
    conditions: Option<Vec<ConditionWire<'a>>>,
}

/// A name as the key of a map.
#[derive(Deserialize, PartialEq, Eq, PartialOrd, Ord)]
#[serde(transparent)]
struct TextKey<'a>(#[serde(borrow)] std::borrow::Cow<'a, str>);

/// A condition of `metav1`, which has a generation and no time of its last update.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ConditionWire<'a> {
    #[serde(borrow, default, rename = "type")]
    kind: Text<'a>,
    #[serde(borrow, default)]
    status: Text<'a>,
    #[serde(borrow, default)]
    reason: Text<'a>,
    #[serde(borrow, default)]
    message: Text<'a>,
    #[serde(default)]
    observed_generation: Option<i64>,
    #[serde(default)]
    last_transition_time: Option<Time>,
}

impl ConditionWire<'_> {
    fn into_condition(self, interner: &mut Interner) -> Condition {
        Condition {
            kind: interner.string(self.kind.as_str()),
            status: interner.string(self.status.as_str()),
            reason: interner.string(self.reason.as_str()),
            message: self.message.as_str().into(),
            last_update: None,
            last_transition: self.last_transition_time.map(|time| time.0),
        }
    }
}

impl StatusWire<'_> {
    fn into_status(self, interner: &mut Interner) -> DisruptionStatus {
        let mut all = self.conditions.into_iter().flatten();
        let ours = all.find(|condition| condition.kind.as_str() == DISRUPTION_ALLOWED);
        // A null is the zero time, which has expired.
        let time = |time: Option<Time>| time.map_or(Timestamp::UNIX_EPOCH, |time| time.0);
        let disrupted = self.disrupted_pods.unwrap_or_default().into_iter();
        DisruptionStatus {
            observed_generation: self.observed_generation.unwrap_or(0),
            disrupted_pods: disrupted.map(|(name, at)| (name.0.into(), time(at))).collect(),
            disruptions_allowed: self.disruptions_allowed.unwrap_or(0),
            current_healthy: self.current_healthy.unwrap_or(0),
            desired_healthy: self.desired_healthy.unwrap_or(0),
            expected_pods: self.expected_pods.unwrap_or(0),
            condition_generation: ours.as_ref().and_then(|ours| ours.observed_generation).unwrap_or(0),
            conditions: ours.map(|ours| ours.into_condition(interner)).into_iter().collect(),
        }
    }
}

impl Record for PodDisruptionBudget {
    const RESOURCE: Resource = Resource {
        group: "policy",
        version: "v1",
        kind: "PodDisruptionBudget",
        plural: "poddisruptionbudgets",
    };

    fn decode(json: &str, interner: &mut Interner) -> Result<Self, serde_json::Error> {
        let BudgetWire { metadata, spec, status } = serde_json::from_str(json)?;
        let SpecWire { selector, min_available, max_unavailable } = spec.unwrap_or_default();
        Ok(PodDisruptionBudget {
            selector: selector.map(|selector| Selector::compile(Some(selector))),
            threshold: match (max_unavailable, min_available) {
                (Some(most), _) => Threshold::MaxUnavailable(most),
                (None, Some(least)) => Threshold::MinAvailable(least),
                (None, None) => Threshold::Unset,
            },
            status: status.unwrap_or_default().into_status(interner),
            meta: metadata.into_meta(interner)?,
        })
    }

    fn meta(&self) -> &Meta {
        &self.meta
    }

    fn heap_bytes(&self) -> usize {
        // A name has two counters of references, and shares its node in the tree with others.
        let entry = size_of::<(Arc<str>, Timestamp)>() + 2 * size_of::<usize>();
        let names = self.status.disrupted_pods.keys().map(|name| entry + name.len());
        record::own_bytes(self)
            + self.selector.as_ref().map_or(0, Selector::heap_bytes)
            + names.sum::<usize>()
            + condition::heap_bytes(&self.status.conditions)
    }
}

impl PodDisruptionBudget {
    /// Whether it selects an object with this metadata.
    pub fn selects(&self, object: &Meta) -> bool {
        self.meta.key.namespace == object.key.namespace
            && self.selector.as_ref().is_some_and(|selector| selector.matches(&object.labels))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn budget(spec: &str, status: &str) -> PodDisruptionBudget {
        let json = format!(
            r#"{{"metadata":{{"name":"web","namespace":"shop","uid":"u","resourceVersion":"7","generation":2}},
                "spec":{spec},"status":{status}}}"#
        );
        PodDisruptionBudget::decode(&json, &mut Interner::default()).unwrap()
    }

    #[test]
    fn a_budget_is_read_with_its_status() {
        let web = budget(
            r#"{"selector":{"matchLabels":{"app":"web"}},"minAvailable":"50%"}"#,
            r#"{"observedGeneration":2,"disruptionsAllowed":1,"currentHealthy":3,"desiredHealthy":2,"expectedPods":4,
                "disruptedPods":{"web-1":"2026-01-01T00:00:00Z","web-2":null},
                "conditions":[{"type":"Other","status":"True"},{"type":"DisruptionAllowed","status":"True",
                    "reason":"SufficientPods","message":"","observedGeneration":2,
                    "lastTransitionTime":"2026-01-01T00:00:01Z"}]}"#,
        );
        assert_eq!(web.threshold, Threshold::MinAvailable(IntOrPercent::Percent(50)));
        let DisruptionStatus { disrupted_pods, conditions, condition_generation, .. } = &web.status;
        let times: Vec<_> = disrupted_pods.iter().map(|(name, at)| (&**name, at.as_second())).collect();
        assert_eq!(times, [("web-1", 1_767_225_600), ("web-2", 0)]);
        assert_eq!((conditions.len(), &*conditions[0].reason), (1, "SufficientPods"));
        let numbers =
            (web.status.disruptions_allowed, web.status.current_healthy, web.status.desired_healthy);
        assert_eq!((*condition_generation, numbers, web.status.expected_pods), (2, (1, 3, 2), 4));
    }

    #[test]
    fn an_empty_selector_selects_every_pod_of_the_namespace_and_a_missing_one_none() {
        let pod = |namespace: &str| {
            let json = format!(
                r#"{{"metadata":{{"name":"a","namespace":"{namespace}","uid":"p","resourceVersion":"1"}}}}"#
            );
            super::super::Pod::decode(&json, &mut Interner::default()).unwrap().meta
        };
        let selects = |spec: &str, namespace: &str| budget(spec, "{}").selects(&pod(namespace));
        assert!(selects(r#"{"selector":{}}"#, "shop"));
        assert!(!selects(r#"{"selector":{}}"#, "other"));
        assert!(!selects("{}", "shop") && !selects(r#"{"selector":null}"#, "shop"));
        assert_eq!(budget("{}", "null").threshold, Threshold::Unset);
    }

    #[test]
    fn a_maximum_is_read_before_a_minimum() {
        let both = budget(r#"{"minAvailable":1,"maxUnavailable":2}"#, "{}");
        assert_eq!(both.threshold, Threshold::MaxUnavailable(IntOrPercent::Int(2)));
    }
}
