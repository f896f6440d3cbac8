//! The identity of an owner.
//!
//! A UID alone proves nothing. A writer of pods in one namespace may write any UID into their owner
//! references, the UID of a ReplicaSet in another namespace among them. An owner reference counts with the
//! owner's namespace, API group, kind and UID, and an [`Owner`] cannot be made of less. The version of the
//! API group does not count (`apps/v1` and `apps/v1beta2` are one kind), and neither does the name: it
//! is implied by the UID, and a UID is never used again.

use std::cmp::Ordering;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use serde::Deserialize;

use super::meta::{ControllerRef, Meta, Uid};
use super::protobuf::{Fields, find};
use super::record::{Encoded, Resource};
use super::wire::OwnerWire;

/// Identifies an owner of objects: namespace, API group, kind and UID. The key of indexes by owner.
///
/// Made from the owner itself by [`Record::as_owner`](super::Record::as_owner), or from an object that it
/// owns by [`Meta::owner`]. Both compare equal where the object's reference counts. Cheap to clone, and 48
/// bytes, once for each owner and not for each object.
#[derive(Clone, Debug)]
pub struct Owner {
    namespace: Arc<str>,
    source: Source,
}

/// The source of an [`Owner`]. References are shared by all objects of an owner.
#[derive(Clone, Debug)]
enum Source {
    Object(&'static Resource, Uid),
    Reference(Arc<ControllerRef>),
}

/// All that counts of an owner, in the order in which it is compared.
type Identity<'a> = (&'a Uid, &'a str, &'a str, &'a str);

impl Owner {
    /// The identity of the object of this kind with this metadata.
    pub(super) fn of(resource: &'static Resource, meta: &Meta) -> Self {
        Owner { namespace: meta.key.namespace.clone(), source: Source::Object(resource, meta.uid.clone()) }
    }

    /// The identity of the object of this kind in this namespace with this UID.
    pub fn by_uid(resource: &'static Resource, namespace: &Arc<str>, uid: &Uid) -> Self {
        Owner { namespace: namespace.clone(), source: Source::Object(resource, uid.clone()) }
    }

    /// The controller of an object of this namespace that cannot be decoded otherwise. `None` if it has none, or if its owner
    /// references cannot be decoded either.
    pub fn of_unreadable(object: Encoded<'_>, namespace: &Arc<str>) -> Option<Self> {
        let controller = match object {
            Encoded::Json(json) => {
                let OwnedWire { metadata } = serde_json::from_str(json).ok()?;
                metadata.owner_references?.into_iter().find(|owner| owner.controller == Some(true))
            }
            Encoded::Protobuf(message) => {
                let metadata = find(message, 1).ok()??.bytes().ok()?;
                let owners = Fields(metadata).map_while(Result::ok).filter(|(number, _)| *number == 13);
                let owners =
                    owners.filter_map(|(_, value)| OwnerWire::from_protobuf(value.bytes().ok()?).ok());
                owners.into_iter().find(|owner| owner.controller == Some(true))
            }
        }?;
        let reference = ControllerRef {
            api_version: controller.api_version.as_str().into(),
            kind: controller.kind.as_str().into(),
            name: controller.name.as_str().into(),
            uid: Uid::new(controller.uid.as_str()),
        };
        Some(Owner { namespace: namespace.clone(), source: Source::Reference(Arc::new(reference)) })
    }

    fn identity(&self) -> Identity<'_> {
        let (uid, group, kind) = match &self.source {
            Source::Object(resource, uid) => (uid, resource.group, resource.kind),
            Source::Reference(reference) => (&reference.uid, reference.group(), &*reference.kind),
        };
        (uid, &self.namespace, group, kind)
    }
}

#[derive(Deserialize)]
struct OwnedWire<'a> {
    #[serde(borrow)]
    metadata: OwnersWire<'a>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct OwnersWire<'a> {
    #[serde(borrow, default)]
    owner_references: Option<Vec<OwnerWire<'a>>>,
}

impl PartialEq for Owner {
    fn eq(&self, other: &Self) -> bool {
        self.identity() == other.identity()
    }
}

impl Eq for Owner {}

impl PartialOrd for Owner {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Owner {
    fn cmp(&self, other: &Self) -> Ordering {
        self.identity().cmp(&other.identity())
    }
}

impl Hash for Owner {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.identity().hash(state);
    }
}

/// Whether the object of this kind with the metadata `owner` controls the object with the metadata `object`.
pub(super) fn controls(resource: &Resource, owner: &Meta, object: &Meta) -> bool {
    object.controller.as_ref().is_some_and(|reference| {
        reference.is_of(resource)
            && (&reference.uid, &object.key.namespace) == (&owner.uid, &owner.key.namespace)
    })
}

impl ControllerRef {
    /// The API group of the owner's kind: what stands before the version in `apiVersion`; empty for the core
    /// group.
    pub fn group(&self) -> &str {
        self.api_version.split_once('/').map_or("", |(group, _)| group)
    }

    /// Whether the owner is of this kind, in whatever version.
    pub fn is_of(&self, resource: &Resource) -> bool {
        (self.group(), &*self.kind) == (resource.group, resource.kind)
    }
}

impl Meta {
    /// The controller of the object, if it has one: the owner must be in the object's own namespace.
    pub fn owner(&self) -> Option<Owner> {
        let reference = self.controller.clone()?;
        Some(Owner { namespace: self.key.namespace.clone(), source: Source::Reference(reference) })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::hash_map::DefaultHasher;

    use super::*;
    use crate::model::{Deployment, Interner, Pod, Record, ReplicaSet, ReplicationController};

    fn record<T: Record>(namespace: &str, reference: &str) -> T {
        let json = format!(
            r#"{{"metadata":{{"name":"web","namespace":"{namespace}","uid":"u-web","resourceVersion":"1",
                "ownerReferences":[{reference}]}},"spec":{{}}}}"#
        );
        T::decode(&json, &mut Interner::default()).unwrap()
    }

    fn reference(api_version: &str, kind: &str, name: &str, uid: &str) -> String {
        format!(
            r#"{{"apiVersion":"{api_version}","kind":"{kind}","name":"{name}","uid":"{uid}","controller":true}}"#
        )
    }

    /// Whether a pod in `namespace` with this reference is the object's, by either way of asking.
    #[track_caller]
    fn check(owner: &impl Record, namespace: &str, reference: &str, expected: bool) {
        let pod: Pod = record(namespace, reference);
        assert_eq!(owner.controls(&pod.meta), expected, "{reference}");
        assert_eq!(pod.meta.owner() == Some(owner.as_owner()), expected, "{reference}");
    }

    #[test]
    fn namespace_group_kind_and_uid_make_an_owner() {
        let replica_set: ReplicaSet = record("shop", "");
        check(&replica_set, "shop", &reference("apps/v1", "ReplicaSet", "web", "u-web"), true);
        check(&replica_set, "other", &reference("apps/v1", "ReplicaSet", "web", "u-web"), false);
        check(&replica_set, "shop", &reference("apps/v1", "ReplicaSet", "web", "u-other"), false);
        check(&replica_set, "shop", &reference("apps/v1", "Deployment", "web", "u-web"), false);
        check(&replica_set, "shop", &reference("v1", "ReplicationController", "web", "u-web"), false);
        check(&replica_set, "shop", &reference("example.com/v1", "ReplicaSet", "web", "u-web"), false);
        check(&replica_set, "shop", &reference("v1", "ReplicaSet", "web", "u-web"), false);
        check(&replica_set, "shop", "", false);
    }

    #[test]
    fn the_version_of_the_group_and_the_name_do_not_count() {
        let replica_set: ReplicaSet = record("shop", "");
        check(&replica_set, "shop", &reference("apps/v1beta2", "ReplicaSet", "web", "u-web"), true);
        check(&replica_set, "shop", &reference("apps/v1", "ReplicaSet", "another", "u-web"), true);
        let deployment: Deployment = record("shop", "");
        check(&deployment, "shop", &reference("apps/v1beta1", "Deployment", "web", "u-web"), true);
    }

    #[test]
    fn a_replication_controller_is_one_in_the_form_that_plans_are_made_for_too() {
        let controller: ReplicationController = record("shop", "");
        let ours = reference("v1", "ReplicationController", "web", "u-web");
        let of_a_replica_set = reference("apps/v1", "ReplicaSet", "web", "u-web");
        for (reference, expected) in [(&ours, true), (&of_a_replica_set, false)] {
            check(&controller, "shop", reference, expected);
            check(&controller.0, "shop", reference, expected);
        }
    }

    #[test]
    fn a_reference_without_controller_true_is_not_an_owner() {
        let replica_set: ReplicaSet = record("shop", "");
        let plain = reference("apps/v1", "ReplicaSet", "web", "u-web").replace("true", "false");
        check(&replica_set, "shop", &plain, false);
    }

    #[test]
    fn equal_owners_have_equal_hashes_and_the_key_is_small() {
        let hash = |owner: &Owner| {
            let mut hasher = DefaultHasher::new();
            owner.hash(&mut hasher);
            hasher.finish()
        };
        let replica_set: ReplicaSet = record("shop", "");
        let pod: Pod = record("shop", &reference("apps/v1", "ReplicaSet", "web", "u-web"));
        assert_eq!(hash(&replica_set.as_owner()), hash(&pod.meta.owner().unwrap()));
        assert!(size_of::<Owner>() <= 48);
    }
}
