//! The patches of the garbage collector: each names only what it changes, and whose it is.
//!
//! Built-in kinds take a strategic merge patch, in which references are merged by UID: it is the same however often it
//! is sent, and needs no version. A custom resource does not know that format, and gets the whole list with the version
//! that it was read from.

use serde_json::{Value, json};

use crate::model::Uid;

/// Removes the references to these owners.
pub fn without_references(object: &Uid, owners: &[Uid]) -> Value {
    if planted!("the references to all owners are removed") {
        return json!({"metadata": {"uid": object, "ownerReferences": null}});
    }
    let removed: Vec<Value> = owners.iter().map(|owner| json!({"$patch": "delete", "uid": owner})).collect();
    json!({"metadata": {"uid": object, "ownerReferences": removed}})
}

/// Lets the references to these owners no longer block their deletion.
pub fn without_blocking(object: &Uid, owners: &[Uid]) -> Value {
    let references: Vec<Value> =
        owners.iter().map(|owner| json!({"uid": owner, "blockOwnerDeletion": false})).collect();
    json!({"metadata": {"uid": object, "ownerReferences": references}})
}

/// The effect of a patch on references.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// [`without_references`].
    Remove,
    /// [`without_blocking`].
    Unblock,
}

/// The same as a merge patch of `object`, as it was read: with the whole list and the version. `None` if the object has
/// no reference that would change.
pub fn as_merge_patch(object: &Value, owners: &[Uid], change: Change) -> Option<Value> {
    let metadata = &object["metadata"];
    let before = metadata["ownerReferences"].as_array()?;
    let is_meant = |reference: &Value| {
        reference["uid"].as_str().is_some_and(|uid| owners.iter().any(|owner| *owner == Uid::new(uid)))
    };
    let mut after = before.clone();
    match change {
        Change::Remove => after.retain(|reference| !is_meant(reference)),
        Change::Unblock => {
            for reference in after.iter_mut().filter(|reference| is_meant(reference)) {
                if reference["blockOwnerDeletion"] == true {
                    reference["blockOwnerDeletion"] = false.into();
                }
            }
        }
    }
    (after != *before).then(|| versioned(metadata, json!({ "ownerReferences": after })))
}

/// Removes a finalizer from `object`, as it was read. `None` if it does not have it.
pub fn without_finalizer(object: &Value, finalizer: &str) -> Option<Value> {
    let metadata = &object["metadata"];
    let before = metadata["finalizers"].as_array()?;
    let mut after: Vec<&Value> = before.iter().filter(|known| *known != finalizer).collect();
    if planted!("the finalizers of others come off with ours") {
        after.clear();
    }
    (after.len() < before.len()).then(|| versioned(metadata, json!({ "finalizers": after })))
}

/// With the identity that makes the API server refuse the patch for any other state of the object.
fn versioned(metadata: &Value, mut changes: Value) -> Value {
    for field in ["uid", "resourceVersion"] {
        if metadata[field].is_string() {
            changes[field] = metadata[field].clone();
        }
    }
    json!({ "metadata": changes })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object() -> Value {
        json!({"metadata": {"name": "a", "uid": "u", "resourceVersion": "7", "labels": {"x": "y"},
            "finalizers": ["example.com/keep", "orphan"],
            "ownerReferences": [{"uid": "p", "kind": "K", "blockOwnerDeletion": true, "controller": true},
                                {"uid": "q", "kind": "K", "blockOwnerDeletion": true}]}})
    }

    #[test]
    fn references_are_removed_by_uid() {
        let (object_uid, owner) = (Uid::new("u"), [Uid::new("p")]);
        let strategic =
            json!({"metadata": {"uid": "u", "ownerReferences": [{"$patch": "delete", "uid": "p"}]}});
        assert_eq!(without_references(&object_uid, &owner), strategic);
        let merge = json!({"metadata": {"uid": "u", "resourceVersion": "7",
            "ownerReferences": [{"uid": "q", "kind": "K", "blockOwnerDeletion": true}]}});
        assert_eq!(as_merge_patch(&object(), &owner, Change::Remove), Some(merge));
        assert_eq!(as_merge_patch(&object(), &[Uid::new("z")], Change::Remove), None);
    }

    #[test]
    fn a_reference_that_no_longer_blocks_stays_as_it_is_otherwise() {
        let strategic =
            json!({"metadata": {"uid": "u", "ownerReferences": [{"uid": "p", "blockOwnerDeletion": false}]}});
        assert_eq!(without_blocking(&Uid::new("u"), &[Uid::new("p")]), strategic);
        let merge = as_merge_patch(&object(), &[Uid::new("p")], Change::Unblock).unwrap();
        assert_eq!(
            merge["metadata"]["ownerReferences"],
            json!([{"uid": "p", "kind": "K", "blockOwnerDeletion": false, "controller": true},
                   {"uid": "q", "kind": "K", "blockOwnerDeletion": true}])
        );
    }

    #[test]
    fn a_finalizer_is_removed_from_the_version_that_was_read() {
        let patch =
            json!({"metadata": {"uid": "u", "resourceVersion": "7", "finalizers": ["example.com/keep"]}});
        assert_eq!(without_finalizer(&object(), "orphan"), Some(patch));
        assert_eq!(without_finalizer(&object(), "foregroundDeletion"), None);
    }
}
