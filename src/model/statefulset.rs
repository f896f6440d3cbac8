//! A StatefulSet, with its templates as raw JSON.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::condition::{Condition, ConditionWire};
use super::int_or_percent::IntOrPercent;
use super::intern::Interner;
use super::meta::{Meta, POLICY_PREFIX, StringMap};
use super::record::{self, Record, Resource};
use super::selector::{Selector, SelectorWire};
use super::template::Template;
use super::texts::Texts;
use super::wire::{MetaWire, Text};

/// The annotation by which a pod that has started and does not get ready is replaced, too, when the template is
/// corrected: after how many seconds.
pub const REPLACE_BROKEN_AFTER: &str = "windlass.dev/replace-broken-pods-after-seconds";

/// The fields of a StatefulSet that the controllers use. Its annotations, up to 256 KiB, are read afresh when a revision
/// gets them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatefulSet {
    /// Metadata.
    pub meta: Meta,
    /// The annotations `windlass.dev/…`.
    pub policies: Arc<StringMap>,
    /// `spec.replicas`, at least 0; 1 when absent.
    pub replicas: i32,
    /// `spec.ordinals.start`, at least 0.
    pub start: i32,
    /// `spec.selector`.
    pub selector: Selector,
    /// `spec.serviceName`.
    pub service_name: Arc<str>,
    /// `spec.podManagementPolicy`: whether pods are created and deleted all at once. Anything but `Parallel` is one by
    /// one.
    pub is_parallel: bool,
    /// `spec.minReadySeconds`.
    pub min_ready_seconds: i32,
    /// `spec.revisionHistoryLimit`: how many old revisions stay; 10 when absent. All stay where it is negative.
    pub revision_history_limit: i32,
    /// `spec.updateStrategy`.
    pub strategy: StatefulSetStrategy,
    /// `spec.persistentVolumeClaimRetentionPolicy.whenDeleted`: whether claims go with the StatefulSet.
    pub deletes_claims_when_deleted: bool,
    /// `whenScaled` of the same: whether claims go with a pod that is scaled away.
    pub deletes_claims_when_scaled: bool,
    /// `spec.template`.
    pub template: Template,
    /// `spec.volumeClaimTemplates`.
    pub claim_templates: ClaimTemplates,
    /// The annotation [`REPLACE_BROKEN_AFTER`], in seconds.
    pub replace_broken_after: Option<i32>,
    /// `status`.
    pub status: StatefulSetStatus,
}

/// `spec.updateStrategy`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatefulSetStrategy {
    /// A pod is replaced by one of the new template when a user deletes it. Also the interpretation of an unknown
    /// strategy.
    OnDelete,
    /// Old pods are replaced from the highest ordinal down.
    RollingUpdate {
        /// `rollingUpdate.partition`: pods below this index keep the current revision. `None` without `rollingUpdate`:
        /// a missing pod then gets the current revision if its index is below `status.currentReplicas`.
        partition: Option<i32>,
        /// `rollingUpdate.maxUnavailable`, where the API server keeps it.
        max_unavailable: Option<IntOrPercent>,
    },
}

/// `spec.volumeClaimTemplates`, undecoded but for their names.
///
/// Kept compressed, as a template is: only the creation of a claim needs them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClaimTemplates {
    packed: Arc<[u8]>,
    /// The names, in the order of the templates.
    pub names: Texts,
}

/// A claim template as a claim gets it.
#[derive(Debug, Default, Deserialize)]
pub struct ClaimTemplate {
    /// `metadata`.
    #[serde(default)]
    pub metadata: Option<ClaimTemplateMeta>,
    /// `spec`, undecoded.
    #[serde(default)]
    pub spec: Option<Box<RawValue>>,
}

/// The metadata of a claim template as a claim gets it.
#[derive(Debug, Default, Deserialize)]
pub struct ClaimTemplateMeta {
    /// `name`.
    #[serde(default)]
    pub name: Option<String>,
    /// `labels`.
    #[serde(default)]
    pub labels: Option<BTreeMap<String, String>>,
    /// `annotations`.
    #[serde(default)]
    pub annotations: Option<BTreeMap<String, String>>,
}

/// `status` of a StatefulSet, as far as the controller writes it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StatefulSetStatus {
    /// `observedGeneration`.
    pub observed_generation: i64,
    /// Pods that exist.
    pub replicas: i32,
    /// Pods that are ready, those that are being deleted included.
    pub ready: i32,
    /// Of these, pods that have been ready for `minReadySeconds`.
    pub available: i32,
    /// Pods of the current revision that are not being deleted.
    pub current: i32,
    /// Pods of the update revision that are not being deleted.
    pub updated: i32,
    /// The revision that an update comes from.
    pub current_revision: Arc<str>,
    /// The revision that an update goes to.
    pub update_revision: Arc<str>,
    /// How often the name of a new revision was taken already.
    pub collision_count: Option<i32>,
    /// `ReplicaFailure`, if there is one. All others belong to other writers, and are never written.
    pub conditions: Vec<Condition>,
}

#[derive(Deserialize)]
struct StatefulSetWire<'a> {
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
    #[serde(default)]
    ordinals: Option<OrdinalsWire>,
    #[serde(borrow, default)]
    selector: Option<SelectorWire<'a>>,
    #[serde(borrow, default)]
    service_name: Text<'a>,
    #[serde(borrow, default)]
    pod_management_policy: Text<'a>,
    #[serde(default)]
    min_ready_seconds: Option<i32>,
    #[serde(default)]
    revision_history_limit: Option<i32>,
    #[serde(borrow, default)]
    update_strategy: Option<StrategyWire<'a>>,
    #[serde(borrow, default)]
    persistent_volume_claim_retention_policy: Option<RetentionWire<'a>>,
    #[serde(borrow, default)]
    template: Option<&'a RawValue>,
    #[serde(borrow, default)]
    volume_claim_templates: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct OrdinalsWire {
    #[serde(default)]
    start: Option<i32>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct StrategyWire<'a> {
    #[serde(borrow, default, rename = "type")]
    kind: Text<'a>,
    #[serde(default)]
    rolling_update: Option<RollingUpdateWire>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RollingUpdateWire {
    #[serde(default)]
    partition: Option<i32>,
    #[serde(default)]
    max_unavailable: Option<IntOrPercent>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct RetentionWire<'a> {
    #[serde(borrow, default)]
    when_deleted: Text<'a>,
    #[serde(borrow, default)]
    when_scaled: Text<'a>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct StatusWire<'a> {
    #[serde(default)]
    observed_generation: Option<i64>,
    #[serde(default)]
    replicas: Option<i32>,
    #[serde(default)]
    ready_replicas: Option<i32>,
    #[serde(default)]
    available_replicas: Option<i32>,
    #[serde(default)]
    current_replicas: Option<i32>,
    #[serde(default)]
    updated_replicas: Option<i32>,
    #[serde(borrow, default)]
    current_revision: Text<'a>,
    #[serde(borrow, default)]
    update_revision: Text<'a>,
    #[serde(default)]
    collision_count: Option<i32>,
    #[serde(borrow, default)]
    conditions: Option<Vec<ConditionWire<'a>>>,
}

impl StrategyWire<'_> {
    fn into_strategy(self) -> StatefulSetStrategy {
        match self.kind.as_str() {
            "" | "RollingUpdate" => StatefulSetStrategy::RollingUpdate {
                partition: self.rolling_update.as_ref().map(|rolling| rolling.partition.unwrap_or(0).max(0)),
                max_unavailable: self.rolling_update.and_then(|rolling| rolling.max_unavailable),
            },
            _ => StatefulSetStrategy::OnDelete,
        }
    }
}

impl StatusWire<'_> {
    fn into_status(self, interner: &mut Interner) -> StatefulSetStatus {
        StatefulSetStatus {
            observed_generation: self.observed_generation.unwrap_or(0),
            replicas: self.replicas.unwrap_or(0),
            ready: self.ready_replicas.unwrap_or(0),
            available: self.available_replicas.unwrap_or(0),
            current: self.current_replicas.unwrap_or(0),
            updated: self.updated_replicas.unwrap_or(0),
            current_revision: interner.string(self.current_revision.as_str()),
            update_revision: interner.string(self.update_revision.as_str()),
            collision_count: self.collision_count,
            conditions: ConditionWire::of_types(self.conditions, &["ReplicaFailure"], interner),
        }
    }
}

impl Record for StatefulSet {
    const RESOURCE: Resource =
        Resource { group: "apps", version: "v1", kind: "StatefulSet", plural: "statefulsets" };
    const IS_OWNER: bool = true;

    fn decode(json: &str, interner: &mut Interner) -> Result<Self, serde_json::Error> {
        let StatefulSetWire { metadata, spec, status } = serde_json::from_str(json)?;
        let retention = spec.persistent_volume_claim_retention_policy.unwrap_or_default();
        Ok(StatefulSet {
            replicas: spec.replicas.unwrap_or(1).max(0),
            start: spec.ordinals.and_then(|ordinals| ordinals.start).unwrap_or(0).max(0),
            selector: Selector::compile(spec.selector),
            service_name: interner.string(spec.service_name.as_str()),
            is_parallel: spec.pod_management_policy.as_str() == "Parallel",
            min_ready_seconds: spec.min_ready_seconds.unwrap_or(0).max(0),
            revision_history_limit: spec.revision_history_limit.unwrap_or(10),
            strategy: spec.update_strategy.unwrap_or_default().into_strategy(),
            deletes_claims_when_deleted: retention.when_deleted.as_str() == "Delete",
            deletes_claims_when_scaled: retention.when_scaled.as_str() == "Delete",
            template: Template::decode_or_empty(spec.template, interner)?,
            claim_templates: ClaimTemplates::decode(spec.volume_claim_templates)?,
            replace_broken_after: metadata.annotations.get(REPLACE_BROKEN_AFTER).and_then(seconds),
            policies: metadata.annotations.intern_with_prefix(POLICY_PREFIX, interner),
            status: status.unwrap_or_default().into_status(interner),
            meta: metadata.into_meta(interner)?,
        })
    }

    fn meta(&self) -> &Meta {
        &self.meta
    }

    fn heap_bytes(&self) -> usize {
        let claims = self.claim_templates.packed.len() + self.claim_templates.names.heap_bytes();
        record::own_bytes(self)
            + self.policies.shared_bytes()
            + self.selector.heap_bytes()
            + self.template.heap_bytes()
            + claims
    }
}

/// A number of seconds of 0 and more; anything else counts as none.
pub fn seconds(text: &str) -> Option<i32> {
    text.parse().ok().filter(|seconds| *seconds >= 0)
}

impl ClaimTemplates {
    fn decode(raw: Option<&RawValue>) -> Result<Self, serde_json::Error> {
        let Some(raw) = raw else { return Ok(ClaimTemplates::default()) };
        let templates: Option<Vec<ClaimTemplate>> = serde_json::from_str(raw.get())?;
        let templates = templates.unwrap_or_default();
        if templates.is_empty() {
            return Ok(ClaimTemplates::default());
        }
        let names = templates.iter().map(ClaimTemplate::name).collect();
        Ok(ClaimTemplates { packed: lz4_flex::compress_prepend_size(raw.get().as_bytes()).into(), names })
    }

    /// The templates.
    ///
    /// # Errors
    /// Cannot happen to decoded ones.
    pub fn all(&self) -> Result<Vec<ClaimTemplate>, serde_json::Error> {
        if self.packed.is_empty() {
            return Ok(Vec::new());
        }
        // Text that was packed here can be unpacked. Were it not so, readers would find no list and say so.
        serde_json::from_slice(&lz4_flex::decompress_size_prepended(&self.packed).unwrap_or_default())
    }
}

impl ClaimTemplate {
    /// The name of the volume that it is for.
    pub fn name(&self) -> &str {
        self.metadata.as_ref().and_then(|meta| meta.name.as_deref()).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stateful_set(spec: &str) -> StatefulSet {
        let json = format!(
            r#"{{"metadata":{{"name":"db","namespace":"shop","uid":"u","resourceVersion":"7"}},"spec":{spec}}}"#
        );
        StatefulSet::decode(&json, &mut Interner::default()).unwrap()
    }

    #[test]
    fn absent_fields_take_the_apis_defaults_and_odd_ones_are_harmless() {
        let plain = stateful_set("{}");
        assert_eq!((plain.replicas, plain.start, plain.revision_history_limit), (1, 0, 10));
        assert!(
            !plain.is_parallel && !plain.deletes_claims_when_deleted && !plain.deletes_claims_when_scaled
        );
        let rolling = StatefulSetStrategy::RollingUpdate { partition: None, max_unavailable: None };
        assert_eq!(plain.strategy, rolling);
        let odd = stateful_set(
            r#"{"replicas":-3,"ordinals":{"start":-1},"minReadySeconds":-5,"revisionHistoryLimit":-1,
                "podManagementPolicy":"Later","updateStrategy":{"type":"Later"},"volumeClaimTemplates":null}"#,
        );
        assert_eq!((odd.replicas, odd.start, odd.min_ready_seconds), (0, 0, 0));
        assert_eq!((odd.revision_history_limit, odd.is_parallel), (-1, false));
        assert_eq!(odd.strategy, StatefulSetStrategy::OnDelete);
        assert_eq!(odd.claim_templates, ClaimTemplates::default());
        assert_eq!(stateful_set(r#"{"ordinals":null}"#).start, 0);
    }

    #[test]
    fn a_rolling_update_with_nothing_in_it_has_a_partition_of_0() {
        let strategy = |rolling: &str| {
            stateful_set(&format!(r#"{{"updateStrategy":{{"rollingUpdate":{rolling}}}}}"#)).strategy
        };
        let with =
            |partition, max_unavailable| StatefulSetStrategy::RollingUpdate { partition, max_unavailable };
        assert_eq!(strategy("{}"), with(Some(0), None));
        assert_eq!(strategy(r#"{"partition":-2}"#), with(Some(0), None));
        assert_eq!(strategy("null"), with(None, None));
        let half = Some(IntOrPercent::Percent(50));
        assert_eq!(strategy(r#"{"partition":3,"maxUnavailable":"50%"}"#), with(Some(3), half));
    }

    #[test]
    fn claim_templates_keep_fields_that_no_type_of_ours_knows() {
        let set = stateful_set(
            r#"{"volumeClaimTemplates":[{"metadata":{"name":"data","labels":{"a":"b"}},"spec":{"novel":[1]}},{}]}"#,
        );
        assert_eq!(set.claim_templates.names.iter().collect::<Vec<_>>(), ["data", ""]);
        let all = set.claim_templates.all().unwrap();
        assert_eq!(all[0].spec.as_ref().unwrap().get(), r#"{"novel":[1]}"#);
        assert!(all[1].spec.is_none());
    }

    #[test]
    fn seconds_are_a_number_of_0_and_more() {
        let texts = ["30", "0", "-1", "1m", "", "99999999999"];
        assert_eq!(texts.map(seconds), [Some(30), Some(0), None, None, None, None]);
    }
}
