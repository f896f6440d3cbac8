//! A ReplicationController: the ReplicaSet's predecessor, which the same controller core serves.
//!
//! Upstream converts every ReplicationController that it reads into a ReplicaSet (`conversion.go` of
//! `pkg/controller/replication`). Here it is decoded directly into one, so that plans are made for a
//! `&ReplicaSet` and nothing is copied.

use super::intern::Interner;
use super::meta::Meta;
use super::record::{Record, Resource};
use super::replicaset::{self, ReplicaSet, ReplicaSetStatus};
use super::selector::Selector;
use super::wire::Pairs;

/// The fields of a ReplicationController that the controllers use, in the form that plans are made for.
///
/// The selector has labels only, and the status counts no terminating pods.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicationController(pub ReplicaSet);

impl ReplicationController {
    /// The part of a status that a ReplicationController can report: everything but the terminating pods, for
    /// which its API has no field. Written nevertheless, the number would be dropped by the API server,
    /// missed at the next sync, and written again, for ever.
    pub fn reportable(status: ReplicaSetStatus) -> ReplicaSetStatus {
        ReplicaSetStatus { terminating: None, ..status }
    }
}

impl Record for ReplicationController {
    const RESOURCE: Resource = Resource {
        group: "",
        version: "v1",
        kind: "ReplicationController",
        plural: "replicationcontrollers",
    };
    const IS_OWNER: bool = true;

    fn decode(json: &str, interner: &mut Interner) -> Result<Self, serde_json::Error> {
        let compile = |labels: Option<Pairs<'_>>| Selector::of_labels(labels);
        let mut replica_set = replicaset::decode(&Self::RESOURCE, json, interner, compile)?;
        replica_set.status = Self::reportable(replica_set.status);
        Ok(ReplicationController(replica_set))
    }

    fn meta(&self) -> &Meta {
        &self.0.meta
    }

    fn resource(&self) -> &'static Resource {
        self.0.resource
    }

    fn heap_bytes(&self) -> usize {
        self.0.heap_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode(spec: &str, status: &str) -> ReplicaSet {
        let json = format!(
            r#"{{"metadata":{{"name":"old","namespace":"shop","uid":"u","resourceVersion":"7","generation":2}},
                "spec":{spec},"status":{status}}}"#
        );
        ReplicationController::decode(&json, &mut Interner::default()).unwrap().0
    }

    /// The decoded form of a ReplicaSet with the same content, except for its resource.
    fn replica_set(spec: &str, status: &str) -> ReplicaSet {
        let json = format!(
            r#"{{"metadata":{{"name":"old","namespace":"shop","uid":"u","resourceVersion":"7","generation":2}},
                "spec":{spec},"status":{status}}}"#
        );
        let replica_set = ReplicaSet::decode(&json, &mut Interner::default()).unwrap();
        ReplicaSet { resource: &ReplicationController::RESOURCE, ..replica_set }
    }

    const TEMPLATE: &str = r#"{"metadata":{"labels":{"app":"web"}},"spec":{"newThing":[1, 2]}}"#;

    #[test]
    fn it_lives_in_the_core_group() {
        let resource = ReplicationController::RESOURCE;
        assert_eq!(resource.api_version(), "v1");
        assert_eq!(resource.path(Some("shop")), "/api/v1/namespaces/shop/replicationcontrollers");
    }

    #[test]
    fn it_is_decoded_as_the_equivalent_replica_set() {
        let condition = r#"{"type":"ReplicaFailure","status":"True","reason":"FailedCreate","message":"no",
                            "lastTransitionTime":"2026-01-02T03:04:05Z"}"#;
        let other = r#"{"type":"ImagePullBackOff","status":"True","reason":"NonExistentImage"}"#;
        let status = format!(
            r#"{{"replicas":4,"fullyLabeledReplicas":3,"readyReplicas":2,"availableReplicas":1,
                "observedGeneration":5,"conditions":[{other},{condition}]}}"#
        );
        let spec = |selector: &str| {
            format!(r#"{{"replicas":0,"minReadySeconds":9,"selector":{selector},"template":{TEMPLATE}}}"#)
        };
        let read = decode(&spec(r#"{"app":"web","tier":""}"#), &status);
        assert_eq!(read, replica_set(&spec(r#"{"matchLabels":{"app":"web","tier":""}}"#), &status));
        assert_eq!((read.replicas, read.min_ready_seconds), (0, 9));
        let ReplicaSetStatus {
            replicas,
            fully_labeled,
            ready,
            available,
            terminating,
            observed_generation,
            conditions,
        } = read.status;
        assert_eq!((replicas, fully_labeled, ready, available), (4, 3, 2, 1));
        assert_eq!((terminating, observed_generation), (None, 5));
        let kinds: Vec<&str> = conditions.iter().map(|condition| &*condition.kind).collect();
        assert_eq!(kinds, ["ReplicaFailure"], "those of others are not kept");
        assert_eq!(read.template.json(), TEMPLATE);
    }

    #[test]
    fn every_label_of_the_selector_must_be_there() {
        let spec = r#"{"selector":{"app":"web","t\u0069er":"x","matchLabels":"y"}}"#;
        let selector = decode(spec, "null").selector;
        let matches = |labels: &[(&str, &str)]| selector.matches(&labels.iter().copied().collect());
        assert!(matches(&[("app", "web"), ("tier", "x"), ("matchLabels", "y"), ("more", "")]));
        assert!(!matches(&[("app", "web"), ("tier", "x")]));
        assert!(!matches(&[]));
        let null = decode(r#"{"selector":{"app":null}}"#, "null").selector;
        assert!(null.matches(&[("app", "")].into_iter().collect()), "a null stands for the empty value");
    }

    #[test]
    fn without_labels_it_selects_nothing_that_a_plan_would_touch() {
        let labels = [("app", "web")].into_iter().collect();
        for absent in ["{}", r#"{"selector":null}"#] {
            let selector = decode(absent, "null").selector;
            assert!(!selector.matches(&labels));
            assert_eq!(selector.defect(), Some("spec.selector is missing"));
        }
        assert!(decode(r#"{"selector":{}}"#, "null").selector.selects_everything());
    }

    #[test]
    fn a_template_may_be_missing() {
        for absent in ["{}", r#"{"template":null}"#] {
            let replica_set = decode(absent, "null");
            assert_eq!(replica_set.template.json(), "{}");
            assert!(replica_set.template.labels.is_empty());
        }
    }

    #[test]
    fn absent_and_impossible_numbers_take_the_apis_defaults() {
        let replica_set = decode("{}", "{}");
        assert_eq!(
            (replica_set.replicas, replica_set.min_ready_seconds, replica_set.status),
            (1, 0, ReplicaSetStatus::default())
        );
        assert_eq!(decode(r#"{"replicas":-3}"#, "null").replicas, 0);
    }

    #[test]
    fn terminating_pods_are_neither_read_nor_reported() {
        assert_eq!(decode("{}", r#"{"terminatingReplicas":3}"#).status.terminating, None);
        let counted = ReplicaSetStatus { replicas: 2, terminating: Some(1), ..ReplicaSetStatus::default() };
        let reported = ReplicationController::reportable(counted);
        assert_eq!((reported.replicas, reported.terminating), (2, None));
    }

    #[test]
    fn a_selector_of_another_form_is_refused_and_does_not_become_a_wrong_one() {
        let json = r#"{"metadata":{"name":"a","uid":"u","resourceVersion":"1"},
                       "spec":{"selector":{"matchLabels":{"app":"web"}}}}"#;
        assert!(ReplicationController::decode(json, &mut Interner::default()).is_err());
    }
}
