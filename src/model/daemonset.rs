//! A DaemonSet, with its template as raw JSON.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::condition::{self, Condition, ConditionWire};
use super::int_or_percent::IntOrPercent;
use super::intern::Interner;
use super::meta::{Meta, POLICY_PREFIX, StringMap};
use super::record::{self, Record, Resource};
use super::selector::{Selector, SelectorWire};
use super::template::Template;
use super::wire::{MetaWire, Text};

/// The annotation in which the API server counts the templates of a DaemonSet.
const TEMPLATE_GENERATION: &str = "deprecated.daemonset.template.generation";

/// The type of the condition that a rollout policy asks for.
const PROGRESSING: &str = "Progressing";

/// The fields of a DaemonSet that the controllers use. Its other annotations, up to 256 KiB, are read afresh when a revision
/// gets them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DaemonSet {
    /// Metadata.
    pub meta: Meta,
    /// Annotation `deprecated.daemonset.template.generation`; `None` where it is no 64-bit integer.
    pub template_generation: Option<i64>,
    /// The annotations `windlass.dev/…`.
    pub policies: Arc<StringMap>,
    /// `spec.selector`.
    pub selector: Selector,
    /// `spec.template`.
    pub template: Template,
    /// `spec.updateStrategy`.
    pub strategy: UpdateStrategy,
    /// `spec.minReadySeconds`.
    pub min_ready_seconds: i32,
    /// `spec.revisionHistoryLimit`: how many old revisions stay; 10 when absent.
    pub revision_history_limit: i32,
    /// `status`.
    pub status: DaemonSetStatus,
}

/// `spec.updateStrategy`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpdateStrategy {
    /// A pod is replaced by one of the new template when a user deletes it. Also the interpretation of an unknown
    /// strategy.
    OnDelete,
    /// Old pods are replaced within a budget.
    RollingUpdate {
        /// On how many nodes no pod may be available.
        max_unavailable: IntOrPercent,
        /// On how many nodes a new pod may run beside an available old one.
        max_surge: IntOrPercent,
    },
}

/// `status` of a DaemonSet: what the controller writes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DaemonSetStatus {
    /// `observedGeneration`.
    pub observed_generation: i64,
    /// Nodes that should run a pod.
    pub desired: i32,
    /// Of these, nodes that have one.
    pub current: i32,
    /// Nodes that have a pod and should not run one.
    pub misscheduled: i32,
    /// Nodes that should run a pod and have one of the current template.
    pub updated: i32,
    /// Nodes that should run a pod and have one that is ready.
    pub ready: i32,
    /// Nodes that should run a pod and have one that has been ready for `minReadySeconds`.
    pub available: i32,
    /// Nodes that should run a pod and have none that is available.
    pub unavailable: i32,
    /// How often the name of a new revision was taken already.
    pub collision_count: Option<i32>,
    /// The condition `Progressing`, which only a rollout policy asks for. Those of other types have other writers.
    pub conditions: Vec<Condition>,
}

#[derive(Deserialize)]
struct DaemonSetWire<'a> {
    #[serde(borrow)]
    metadata: MetaWire<'a>,
    #[serde(borrow)]
    spec: SpecWire<'a>,
    #[serde(borrow, default)]
    status: Option<StatusWire<'a>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SpecWire<'a> {
    #[serde(borrow, default)]
    selector: Option<SelectorWire<'a>>,
    #[serde(borrow, default)]
    template: Option<&'a RawValue>,
    #[serde(borrow, default)]
    update_strategy: Option<StrategyWire<'a>>,
    #[serde(default)]
    min_ready_seconds: Option<i32>,
    #[serde(default)]
    revision_history_limit: Option<i32>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct StrategyWire<'a> {
    #[serde(borrow, default, rename = "type")]
    kind: Text<'a>,
    #[serde(default)]
    rolling_update: Option<RollingUpdateWire>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct RollingUpdateWire {
    #[serde(default)]
    max_unavailable: Option<IntOrPercent>,
    #[serde(default)]
    max_surge: Option<IntOrPercent>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct StatusWire<'a> {
    #[serde(default)]
    observed_generation: Option<i64>,
    #[serde(default)]
    desired_number_scheduled: Option<i32>,
    #[serde(default)]
    current_number_scheduled: Option<i32>,
    #[serde(default)]
    number_misscheduled: Option<i32>,
    #[serde(default)]
    updated_number_scheduled: Option<i32>,
    #[serde(default)]
    number_ready: Option<i32>,
    #[serde(default)]
    number_available: Option<i32>,
    #[serde(default)]
    number_unavailable: Option<i32>,
    #[serde(default)]
    collision_count: Option<i32>,
    #[serde(borrow, default)]
    conditions: Option<Vec<ConditionWire<'a>>>,
}

impl StrategyWire<'_> {
    fn into_strategy(self) -> UpdateStrategy {
        let rolling = self.rolling_update.unwrap_or_default();
        match self.kind.as_str() {
            "" | "RollingUpdate" => UpdateStrategy::RollingUpdate {
                max_unavailable: rolling.max_unavailable.unwrap_or(IntOrPercent::Int(1)),
                max_surge: rolling.max_surge.unwrap_or(IntOrPercent::Int(0)),
            },
            _ => UpdateStrategy::OnDelete,
        }
    }
}

impl Record for DaemonSet {
    const RESOURCE: Resource =
        Resource { group: "apps", version: "v1", kind: "DaemonSet", plural: "daemonsets" };
    const IS_OWNER: bool = true;

    fn decode(json: &str, interner: &mut Interner) -> Result<Self, serde_json::Error> {
        let DaemonSetWire { metadata, spec, status } = serde_json::from_str(json)?;
        let status = status.unwrap_or_default();
        Ok(DaemonSet {
            template_generation: metadata.annotations.get(TEMPLATE_GENERATION).and_then(|n| n.parse().ok()),
            policies: metadata.annotations.intern_with_prefix(POLICY_PREFIX, interner),
            selector: Selector::compile(spec.selector),
            template: Template::decode_or_empty(spec.template, interner)?,
            strategy: spec.update_strategy.unwrap_or_default().into_strategy(),
            min_ready_seconds: spec.min_ready_seconds.unwrap_or(0).max(0),
            revision_history_limit: spec.revision_history_limit.unwrap_or(10).max(0),
            status: DaemonSetStatus {
                observed_generation: status.observed_generation.unwrap_or(0),
                desired: status.desired_number_scheduled.unwrap_or(0),
                current: status.current_number_scheduled.unwrap_or(0),
                misscheduled: status.number_misscheduled.unwrap_or(0),
                updated: status.updated_number_scheduled.unwrap_or(0),
                ready: status.number_ready.unwrap_or(0),
                available: status.number_available.unwrap_or(0),
                unavailable: status.number_unavailable.unwrap_or(0),
                collision_count: status.collision_count,
                conditions: ConditionWire::of_types(status.conditions, &[PROGRESSING], interner),
            },
            meta: metadata.into_meta(interner)?,
        })
    }

    fn meta(&self) -> &Meta {
        &self.meta
    }

    fn heap_bytes(&self) -> usize {
        record::own_bytes(self)
            + self.policies.shared_bytes()
            + self.selector.heap_bytes()
            + self.template.heap_bytes()
            + condition::heap_bytes(&self.status.conditions)
    }
}

impl DaemonSet {
    /// `(surge, unavailable)`: on how many of `desired` nodes a rolling update may run two pods, and on how many none.
    ///
    /// Both round up. When both are 0 the update could never proceed, so one node may be without a pod (upstream:
    /// `updatedDesiredNodeCounts`). OnDelete has no budget.
    pub fn budget(&self, desired: i32) -> (i32, i32) {
        let UpdateStrategy::RollingUpdate { max_unavailable, max_surge } = self.strategy else {
            return (0, 0);
        };
        match (max_surge.round_up(desired), max_unavailable.round_up(desired)) {
            (0, 0) if desired > 0 => (0, 1),
            budget => budget,
        }
    }

    /// Whether a node may run two pods in an update (upstream: `AllowsSurge`).
    pub fn allows_surge(&self) -> bool {
        self.budget(1).0 > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn daemon_set(annotations: &str, spec: &str) -> DaemonSet {
        let json = format!(
            r#"{{"metadata":{{"name":"agent","namespace":"ops","uid":"u","resourceVersion":"7","annotations":{annotations}}},
                "spec":{spec}}}"#
        );
        DaemonSet::decode(&json, &mut Interner::default()).unwrap()
    }

    #[track_caller]
    fn check_budget(desired: i32, surge: &str, unavailable: &str, expected: (i32, i32)) {
        let spec = format!(
            r#"{{"updateStrategy":{{"rollingUpdate":{{"maxSurge":{surge},"maxUnavailable":{unavailable}}}}}}}"#
        );
        assert_eq!(daemon_set("{}", &spec).budget(desired), expected);
    }

    #[test]
    fn both_percentages_round_up() {
        check_budget(10, "0", "\"30%\"", (0, 3));
        check_budget(3, "0", "\"10%\"", (0, 1));
        check_budget(6, "\"20%\"", "0", (2, 0));
        check_budget(100, "0", "\"99999999999%\"", (0, i32::MAX));
        check_budget(5, "-3", "-2", (0, 1));
    }

    #[test]
    fn two_zeroes_are_one_unavailable_node_while_any_is_desired() {
        check_budget(4, "0", "0", (0, 1));
        check_budget(0, "0", "0", (0, 0));
        check_budget(0, "0", "1", (0, 1));
    }

    #[test]
    fn absent_fields_take_the_apis_defaults_and_negative_ones_are_zero() {
        let plain = daemon_set("{}", "{}");
        assert_eq!(plain.budget(10), (0, 1));
        assert_eq!((plain.min_ready_seconds, plain.revision_history_limit), (0, 10));
        assert_eq!((plain.template_generation, plain.status.collision_count), (None, None));
        let odd =
            daemon_set("{}", r#"{"minReadySeconds":-5,"revisionHistoryLimit":-1,"updateStrategy":null}"#);
        assert_eq!((odd.min_ready_seconds, odd.revision_history_limit), (0, 0));
    }

    #[test]
    fn surge_is_allowed_if_one_node_may_run_two_pods() {
        let with = |strategy: &str| daemon_set("{}", &format!(r#"{{"updateStrategy":{strategy}}}"#));
        assert!(with(r#"{"type":"RollingUpdate","rollingUpdate":{"maxSurge":"1%"}}"#).allows_surge());
        assert!(!with(r#"{"type":"RollingUpdate","rollingUpdate":{"maxSurge":0}}"#).allows_surge());
        assert!(!with(r#"{"type":"OnDelete","rollingUpdate":{"maxSurge":1}}"#).allows_surge());
        assert_eq!(with(r#"{"type":"Later"}"#).strategy, UpdateStrategy::OnDelete);
    }

    #[test]
    fn only_our_annotations_and_the_condition_about_progress_are_kept() {
        let json = r#"{"metadata":{"name":"agent","namespace":"ops","uid":"u","resourceVersion":"7",
            "annotations":{"a":"b","windlass.dev/steps":"1"}},"spec":{},"status":{"conditions":[
            {"type":"Other","status":"True"},{"type":"Progressing","status":"Unknown","reason":"RolloutStep"}]}}"#;
        let daemon_set = DaemonSet::decode(json, &mut Interner::default()).unwrap();
        assert_eq!(daemon_set.policies.iter().collect::<Vec<_>>(), [("windlass.dev/steps", "1")]);
        let kinds: Vec<&str> = daemon_set.status.conditions.iter().map(|c| &*c.kind).collect();
        assert_eq!(kinds, ["Progressing"]);
    }

    #[test]
    fn the_template_generation_is_an_annotation_that_may_be_anything() {
        let of = |text: &str| {
            daemon_set(&format!(r#"{{"deprecated.daemonset.template.generation":"{text}"}}"#), "{}")
                .template_generation
        };
        assert_eq!((of("3"), of("x"), of("99999999999999999999")), (Some(3), None, None));
    }
}
