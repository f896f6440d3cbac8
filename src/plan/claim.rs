//! Ownership of objects: adoption and release, the same for the ReplicaSets of a Deployment and the pods of a
//! ReplicaSet (upstream: `controller_ref_manager.go`).

use crate::model::{Meta, Record, Selector};

/// The decision of an owner about an object of its namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim {
    /// The owner already controls it.
    Keep,
    /// It has no controller and is selected: adopt it, after a fresh read of the owner.
    Adopt,
    /// The owner controls it, and its selector no longer matches: release it.
    Release,
    /// It does not concern the owner.
    Ignore,
}

/// Decides about one object. Never takes an object of another controller (S15, S16, S17).
pub fn claim(owner: &impl Record, selector: &Selector, object: &Meta) -> Claim {
    // An invalid selector says nothing about objects that are owned already: releasing every pod because of
    // one unknown operator would be the worst interpretation (S18).
    let ours = owner.controls(object);
    let owner = owner.meta();
    let selected = selector.matches(&object.labels) || (ours && selector.defect().is_some());
    match &object.controller {
        Some(_) if ours => match (selected, owner.is_deleting()) {
            (true, _) => Claim::Keep,
            // The garbage collector decides about the objects of a deleted owner.
            (false, true) => Claim::Ignore,
            (false, false) => Claim::Release,
        },
        Some(_) => Claim::Ignore,
        None => {
            let adoptable = selected
                && !owner.is_deleting()
                && !object.is_deleting()
                && owner.key.namespace == object.key.namespace;
            if adoptable { Claim::Adopt } else { Claim::Ignore }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::model::{ControllerRef, Interner, Pod, ReplicaSet};

    fn replica_set(metadata: &str) -> ReplicaSet {
        let json = format!(
            r#"{{"metadata":{{"name":"web","namespace":"shop","uid":"u-set","resourceVersion":"1"{metadata}}},
                "spec":{{"selector":{{"matchLabels":{{"app":"web"}}}}}}}}"#
        );
        ReplicaSet::decode(&json, &mut Interner::default()).unwrap()
    }

    fn pod(app: &str, owner: &str, more: &str) -> Pod {
        let owners = match owner {
            "" => String::new(),
            uid => format!(
                r#","ownerReferences":[{{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"web","uid":"{uid}",
                    "controller":true}}]"#
            ),
        };
        let json = format!(
            r#"{{"metadata":{{"name":"p","namespace":"shop","uid":"u-pod","resourceVersion":"1",
                "labels":{{"app":"{app}"}}{owners}{more}}}}}"#
        );
        Pod::decode(&json, &mut Interner::default()).unwrap()
    }

    #[track_caller]
    fn check(owner: &ReplicaSet, object: &Pod, expected: Claim) {
        assert_eq!(claim(owner, &owner.selector, &object.meta), expected);
    }

    const DELETING: &str = r#","deletionTimestamp":"2026-01-01T00:00:00Z""#;

    #[test]
    fn an_owned_object_is_kept_while_it_matches_and_released_when_it_does_not() {
        check(&replica_set(""), &pod("web", "u-set", ""), Claim::Keep);
        check(&replica_set(""), &pod("api", "u-set", ""), Claim::Release);
    }

    #[test]
    fn an_orphan_that_matches_is_adopted_unless_it_is_being_deleted() {
        check(&replica_set(""), &pod("web", "", ""), Claim::Adopt);
        check(&replica_set(""), &pod("api", "", ""), Claim::Ignore);
        check(&replica_set(""), &pod("web", "", DELETING), Claim::Ignore);
    }

    #[test]
    fn an_object_of_another_owner_is_never_adopted_even_under_the_same_name() {
        check(&replica_set(""), &pod("web", "u-other", ""), Claim::Ignore);
    }

    #[test]
    fn a_uid_alone_makes_no_owner() {
        let forged = |app: &str, change: fn(&mut ControllerRef)| {
            let mut pod = pod(app, "u-set", "");
            change(Arc::make_mut(pod.meta.controller.as_mut().unwrap()));
            pod
        };
        for app in ["web", "api"] {
            check(&replica_set(""), &forged(app, |owner| owner.kind = "Deployment".into()), Claim::Ignore);
            check(
                &replica_set(""),
                &forged(app, |owner| owner.api_version = "example.com/v1".into()),
                Claim::Ignore,
            );
            let mut elsewhere = pod(app, "u-set", "");
            elsewhere.meta.key.namespace = "other".into();
            check(&replica_set(""), &elsewhere, Claim::Ignore);
        }
        check(
            &replica_set(""),
            &forged("web", |owner| owner.api_version = "apps/v1beta2".into()),
            Claim::Keep,
        );
        check(&replica_set(""), &forged("web", |owner| owner.name = "another".into()), Claim::Keep);
        check(&replica_set(""), &forged("api", |owner| owner.name = "another".into()), Claim::Release);
    }

    #[test]
    fn an_owner_that_is_being_deleted_neither_adopts_nor_releases() {
        check(&replica_set(DELETING), &pod("web", "", ""), Claim::Ignore);
        check(&replica_set(DELETING), &pod("api", "u-set", ""), Claim::Ignore);
        check(&replica_set(DELETING), &pod("web", "u-set", ""), Claim::Keep);
    }

    #[test]
    fn an_invalid_selector_neither_releases_nor_adopts() {
        let mut replica_set = replica_set("");
        replica_set.selector = crate::model::Selector::compile(None);
        check(&replica_set, &pod("web", "u-set", ""), Claim::Keep);
        check(&replica_set, &pod("web", "", ""), Claim::Ignore);
        check(&replica_set, &pod("web", "u-other", ""), Claim::Ignore);
    }

    #[test]
    fn an_orphan_of_another_namespace_is_not_adopted() {
        let mut elsewhere = pod("web", "", "");
        elsewhere.meta.key.namespace = "other".into();
        check(&replica_set(""), &elsewhere, Claim::Ignore);
    }
}
