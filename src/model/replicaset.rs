//! A ReplicaSet, with its template as raw JSON.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::condition::{self, Condition, ConditionWire};
use super::intern::Interner;
use super::meta::{Meta, StringMap};
use super::record::{self, Record, Resource};
use super::selector::{Selector, SelectorWire};
use super::template::Template;
use super::wire::MetaWire;

/// The fields of a ReplicaSet that the controllers use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicaSet {
    /// The resource on the server: plans are made for a ReplicationController in this form, too.
    pub resource: &'static Resource,
    /// Metadata.
    pub meta: Meta,
    /// Annotations: the Deployment controller keeps revision and sizes there.
    pub annotations: Arc<StringMap>,
    /// `spec.replicas`; 1 when absent.
    pub replicas: i32,
    /// `spec.minReadySeconds`.
    pub min_ready_seconds: i32,
    /// `spec.selector`.
    pub selector: Selector,
    /// `spec.template`.
    pub template: Template,
    /// `status`.
    pub status: ReplicaSetStatus,
}

/// `status` of a ReplicaSet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReplicaSetStatus {
    /// Active pods.
    pub replicas: i32,
    /// Active pods that carry all of the template's labels.
    pub fully_labeled: i32,
    /// Ready pods.
    pub ready: i32,
    /// Pods that have been ready for `minReadySeconds`.
    pub available: i32,
    /// Terminating pods that still run (KEP-3973); `None` where no controller has counted them.
    pub terminating: Option<i32>,
    /// `observedGeneration`.
    pub observed_generation: i64,
    /// The conditions that controllers write. Those of other types have other writers.
    pub conditions: Vec<Condition>,
}

/// The types of the conditions that controllers write: ReplicaSets and ReplicationControllers have the first, and one of these in a
/// rolling update the second.
const CONDITIONS: [&str; 2] = ["ReplicaFailure", "RollingUpdate"];

/// A ReplicaSet or a ReplicationController on the wire. They differ in the form of their selector, `S`.
#[derive(Deserialize)]
#[serde(bound(deserialize = "S: Deserialize<'de>"))]
struct SetWire<'a, S> {
    #[serde(borrow)]
    metadata: MetaWire<'a>,
    #[serde(borrow)]
    spec: SpecWire<'a, S>,
    #[serde(borrow, default)]
    status: Option<StatusWire<'a>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", bound(deserialize = "S: Deserialize<'de>"))]
struct SpecWire<'a, S> {
    #[serde(default)]
    replicas: Option<i32>,
    #[serde(default)]
    min_ready_seconds: Option<i32>,
    #[serde(default = "Option::default")]
    selector: Option<S>,
    #[serde(borrow, default)]
    template: Option<&'a RawValue>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct StatusWire<'a> {
    #[serde(default)]
    replicas: Option<i32>,
    #[serde(default)]
    fully_labeled_replicas: Option<i32>,
    #[serde(default)]
    ready_replicas: Option<i32>,
    #[serde(default)]
    available_replicas: Option<i32>,
    #[serde(default)]
    terminating_replicas: Option<i32>,
    #[serde(default)]
    observed_generation: Option<i64>,
    #[serde(borrow, default)]
    conditions: Option<Vec<ConditionWire<'a>>>,
}

impl Record for ReplicaSet {
    const RESOURCE: Resource =
        Resource { group: "apps", version: "v1", kind: "ReplicaSet", plural: "replicasets" };
    const IS_OWNER: bool = true;

    fn decode(json: &str, interner: &mut Interner) -> Result<Self, serde_json::Error> {
        let compile = |selector: Option<SelectorWire<'_>>| Selector::compile(selector);
        decode(&Self::RESOURCE, json, interner, compile)
    }

    fn meta(&self) -> &Meta {
        &self.meta
    }

    fn resource(&self) -> &'static Resource {
        self.resource
    }

    fn heap_bytes(&self) -> usize {
        record::own_bytes(self)
            + self.annotations.shared_bytes()
            + self.selector.heap_bytes()
            + self.template.heap_bytes()
            + condition::heap_bytes(&self.status.conditions)
    }
}

/// Reads an object of this resource whose selector has the form `S`.
///
/// # Errors
/// As [`Record::decode`].
pub(super) fn decode<'a, S: Deserialize<'a>>(
    resource: &'static Resource,
    json: &'a str,
    interner: &mut Interner,
    compile: impl FnOnce(Option<S>) -> Selector,
) -> Result<ReplicaSet, serde_json::Error> {
    let SetWire { metadata, spec, status } = serde_json::from_str::<SetWire<'a, S>>(json)?;
    let status = status.unwrap_or_default();
    Ok(ReplicaSet {
        resource,
        annotations: metadata.annotations.intern(interner),
        // Validation refuses negative numbers; arithmetic on them would panic (R1).
        replicas: spec.replicas.unwrap_or(1).max(0),
        min_ready_seconds: spec.min_ready_seconds.unwrap_or(0),
        selector: compile(spec.selector),
        template: Template::decode_or_empty(spec.template, interner)?,
        status: ReplicaSetStatus {
            replicas: status.replicas.unwrap_or(0),
            fully_labeled: status.fully_labeled_replicas.unwrap_or(0),
            ready: status.ready_replicas.unwrap_or(0),
            available: status.available_replicas.unwrap_or(0),
            terminating: status.terminating_replicas,
            observed_generation: status.observed_generation.unwrap_or(0),
            conditions: ConditionWire::of_types(status.conditions, &CONDITIONS, interner),
        },
        meta: metadata.into_meta(interner)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replica_set_is_decoded_and_its_template_kept_byte_for_byte() {
        let template = r#"{"metadata":{"labels":{"app":"web"}},"spec":{"newThing":[1, 2]}}"#;
        let json = format!(
            r#"{{"metadata":{{"name":"web-1","namespace":"shop","uid":"u","resourceVersion":"7","generation":2,
                "annotations":{{"deployment.kubernetes.io/revision":"3"}}}},
                "spec":{{"replicas":4,"selector":{{"matchLabels":{{"app":"web"}}}},"template":{template}}},
                "status":{{"replicas":3,"readyReplicas":2,"observedGeneration":1}}}}"#
        );
        let replica_set = ReplicaSet::decode(&json, &mut Interner::default()).unwrap();
        assert_eq!(
            (
                replica_set.replicas,
                replica_set.status.replicas,
                replica_set.status.ready,
                replica_set.status.available
            ),
            (4, 3, 2, 0)
        );
        assert_eq!(replica_set.annotations.get("deployment.kubernetes.io/revision"), Some("3"));
        assert_eq!(replica_set.template.json(), template);
        assert!(replica_set.selector.matches(&replica_set.template.labels));
    }

    #[test]
    fn absent_numbers_take_the_apis_defaults() {
        let json = r#"{"metadata":{"name":"a","uid":"u","resourceVersion":"1"},"spec":{}}"#;
        let replica_set = ReplicaSet::decode(json, &mut Interner::default()).unwrap();
        assert_eq!(
            (replica_set.replicas, replica_set.min_ready_seconds, replica_set.status.terminating),
            (1, 0, None)
        );
    }
}
