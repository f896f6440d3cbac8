//! A Deployment, with its template as raw JSON.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::condition::{self, Condition, ConditionWire};
use super::int_or_percent::IntOrPercent;
use super::intern::Interner;
use super::meta::{Meta, StringMap};
use super::record::{self, Record, Resource};
use super::selector::{Selector, SelectorWire};
use super::template::Template;
use super::wire::{MetaWire, Text};

/// The types of the conditions that the controller writes.
const CONDITIONS: [&str; 3] = ["Progressing", "Available", "ReplicaFailure"];

/// The fields of a Deployment that the controllers use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deployment {
    /// Metadata.
    pub meta: Meta,
    /// Annotations, most of which the new ReplicaSet gets too.
    pub annotations: Arc<StringMap>,
    /// `spec.replicas`; 1 when absent.
    pub replicas: i32,
    /// `spec.selector`.
    pub selector: Selector,
    /// `spec.template`.
    pub template: Template,
    /// `spec.strategy`.
    pub strategy: Strategy,
    /// `spec.minReadySeconds`.
    pub min_ready_seconds: i32,
    /// `spec.revisionHistoryLimit`; `None` keeps every old ReplicaSet.
    pub revision_history_limit: Option<i32>,
    /// `spec.paused`.
    pub paused: bool,
    /// `spec.progressDeadlineSeconds`; `None` when unset, or set to the largest int32, which upstream
    /// takes for "no deadline" too (`HasProgressDeadline`).
    pub progress_deadline_seconds: Option<i32>,
    /// `status`.
    pub status: DeploymentStatus,
}

/// `spec.strategy`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strategy {
    /// All old pods end before the first new one is created.
    Recreate,
    /// New pods replace old ones within a budget.
    RollingUpdate {
        /// How many pods may exist above `spec.replicas`.
        max_surge: IntOrPercent,
        /// How many pods may be unavailable below `spec.replicas`.
        max_unavailable: IntOrPercent,
    },
}

/// `status` of a Deployment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeploymentStatus {
    /// `observedGeneration`.
    pub observed_generation: i64,
    /// Active pods of all its ReplicaSets.
    pub replicas: i32,
    /// Active pods of the new ReplicaSet.
    pub updated: i32,
    /// Ready pods.
    pub ready: i32,
    /// Pods that have been ready for `minReadySeconds`.
    pub available: i32,
    /// Pods that are missing or unavailable.
    pub unavailable: i32,
    /// Terminating pods that still run (KEP-3973).
    pub terminating: Option<i32>,
    /// How often the name of a new ReplicaSet was taken already.
    pub collision_count: Option<i32>,
    /// Conditions, ours and other writers'.
    pub conditions: Vec<Condition>,
}

#[derive(Deserialize)]
struct DeploymentWire<'a> {
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
    #[serde(default)]
    replicas: Option<i32>,
    #[serde(borrow, default)]
    selector: Option<SelectorWire<'a>>,
    #[serde(borrow, default)]
    template: Option<&'a RawValue>,
    #[serde(borrow, default)]
    strategy: Option<StrategyWire<'a>>,
    #[serde(default)]
    min_ready_seconds: Option<i32>,
    #[serde(default)]
    revision_history_limit: Option<i32>,
    #[serde(default)]
    paused: Option<bool>,
    #[serde(default)]
    progress_deadline_seconds: Option<i32>,
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
    max_surge: Option<IntOrPercent>,
    #[serde(default)]
    max_unavailable: Option<IntOrPercent>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct StatusWire<'a> {
    #[serde(default)]
    observed_generation: Option<i64>,
    #[serde(default)]
    replicas: Option<i32>,
    #[serde(default)]
    updated_replicas: Option<i32>,
    #[serde(default)]
    ready_replicas: Option<i32>,
    #[serde(default)]
    available_replicas: Option<i32>,
    #[serde(default)]
    unavailable_replicas: Option<i32>,
    #[serde(default)]
    terminating_replicas: Option<i32>,
    #[serde(default)]
    collision_count: Option<i32>,
    #[serde(borrow, default)]
    conditions: Option<Vec<ConditionWire<'a>>>,
}

/// The API's default for both budgets of a rolling update.
const QUARTER: IntOrPercent = IntOrPercent::Percent(25);

impl StrategyWire<'_> {
    fn into_strategy(self) -> Strategy {
        if self.kind.as_str() == "Recreate" {
            return Strategy::Recreate;
        }
        let rolling = self.rolling_update.unwrap_or_default();
        Strategy::RollingUpdate {
            max_surge: rolling.max_surge.unwrap_or(QUARTER),
            max_unavailable: rolling.max_unavailable.unwrap_or(QUARTER),
        }
    }
}

impl Record for Deployment {
    const RESOURCE: Resource =
        Resource { group: "apps", version: "v1", kind: "Deployment", plural: "deployments" };
    const IS_OWNER: bool = true;

    fn decode(json: &str, interner: &mut Interner) -> Result<Self, serde_json::Error> {
        let DeploymentWire { metadata, spec, status } = serde_json::from_str(json)?;
        let status = status.unwrap_or_default();
        Ok(Deployment {
            annotations: metadata.annotations.intern(interner),
            // Validation refuses negative numbers; arithmetic on them would panic (R1).
            replicas: spec.replicas.unwrap_or(1).max(0),
            selector: Selector::compile(spec.selector),
            template: Template::decode_or_empty(spec.template, interner)?,
            strategy: spec.strategy.unwrap_or_default().into_strategy(),
            min_ready_seconds: spec.min_ready_seconds.unwrap_or(0),
            revision_history_limit: spec.revision_history_limit,
            paused: spec.paused.unwrap_or(false),
            progress_deadline_seconds: spec.progress_deadline_seconds.filter(|&seconds| seconds != i32::MAX),
            status: DeploymentStatus {
                observed_generation: status.observed_generation.unwrap_or(0),
                replicas: status.replicas.unwrap_or(0),
                updated: status.updated_replicas.unwrap_or(0),
                ready: status.ready_replicas.unwrap_or(0),
                available: status.available_replicas.unwrap_or(0),
                unavailable: status.unavailable_replicas.unwrap_or(0),
                terminating: status.terminating_replicas,
                collision_count: status.collision_count,
                conditions: ConditionWire::of_types(status.conditions, &CONDITIONS, interner),
            },
            meta: metadata.into_meta(interner)?,
        })
    }

    fn meta(&self) -> &Meta {
        &self.meta
    }

    fn heap_bytes(&self) -> usize {
        record::own_bytes(self)
            + self.annotations.shared_bytes()
            + self.selector.heap_bytes()
            + self.template.heap_bytes()
            + condition::heap_bytes(&self.status.conditions)
    }
}

impl Deployment {
    /// `(surge, unavailable)`: how many pods a rolling update may have above and below
    /// `spec.replicas`.
    ///
    /// Surge rounds up and unavailable down; when both are 0 the update could never proceed, so
    /// one pod may be unavailable (upstream's `ResolveFenceposts`). Recreate has no budget, and
    /// `Available` then requires every pod.
    pub fn budget(&self) -> (i32, i32) {
        let Strategy::RollingUpdate { max_surge, max_unavailable } = self.strategy else {
            return (0, 0);
        };
        let surge = max_surge.round_up(self.replicas);
        let unavailable = max_unavailable.round_down(self.replicas).min(self.replicas.max(0));
        if surge == 0 && unavailable == 0 { (0, 1) } else { (surge, unavailable) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn deployment(spec: &str) -> Deployment {
        let json = format!(
            r#"{{"metadata":{{"name":"web","namespace":"shop","uid":"u","resourceVersion":"7"}},"spec":{spec}}}"#
        );
        Deployment::decode(&json, &mut Interner::default()).unwrap()
    }

    #[track_caller]
    fn check_budget(replicas: i32, surge: &str, unavailable: &str, expected: (i32, i32)) {
        let spec = format!(
            r#"{{"replicas":{replicas},"strategy":{{"rollingUpdate":{{"maxSurge":{surge},"maxUnavailable":{unavailable}}}}}}}"#
        );
        assert_eq!(deployment(&spec).budget(), expected);
    }

    #[test]
    fn surge_rounds_up_and_unavailable_down() {
        check_budget(10, "\"25%\"", "\"25%\"", (3, 2));
        check_budget(1, "\"25%\"", "\"25%\"", (1, 0));
        check_budget(4, "1", "0", (1, 0));
    }

    #[test]
    fn two_zeroes_become_one_unavailable_pod() {
        check_budget(10, "0", "0", (0, 1));
        check_budget(3, "0", "\"10%\"", (0, 1));
        check_budget(0, "\"25%\"", "\"25%\"", (0, 1));
    }

    #[test]
    fn more_unavailable_than_pods_is_all_of_them() {
        check_budget(3, "0", "7", (0, 3));
    }

    #[test]
    fn absent_fields_take_the_apis_defaults() {
        let deployment = deployment("{}");
        assert_eq!(deployment.replicas, 1);
        assert_eq!(
            deployment.strategy,
            Strategy::RollingUpdate { max_surge: QUARTER, max_unavailable: QUARTER }
        );
        assert_eq!(deployment.progress_deadline_seconds, None);
        assert_eq!(deployment.revision_history_limit, None);
    }

    #[test]
    fn the_largest_deadline_is_no_deadline() {
        assert_eq!(deployment(r#"{"progressDeadlineSeconds":2147483647}"#).progress_deadline_seconds, None);
        assert_eq!(deployment(r#"{"progressDeadlineSeconds":600}"#).progress_deadline_seconds, Some(600));
    }
}
