//! What a rolling update keeps on the two ReplicationControllers: the annotations of kubectl up to 1.17, so that either
//! tool finishes the other's work.

use crate::model::{Meta, ReplicaSet};

/// On OLD: the name of NEW, where the name was generated.
pub const NEXT_CONTROLLER: &str = "kubectl.kubernetes.io/next-controller-id";
/// On OLD: its size when the update began, to which a rollback returns.
pub const ORIGINAL_REPLICAS: &str = "kubectl.kubernetes.io/original-replicas";
/// On NEW: the size to reach.
pub const DESIRED_REPLICAS: &str = "kubectl.kubernetes.io/desired-replicas";
/// On NEW: name and UID of OLD.
pub const SOURCE: &str = "kubectl.kubernetes.io/update-source-id";
/// On NEW: it has stepped aside for OLD, which takes the pods with this label value over.
pub const HANDING_OVER: &str = "windlass.dev/handing-over";
/// The label in which the selectors of OLD and NEW differ, unless the user chooses another.
pub const LABEL_KEY: &str = "deployment";

/// The value of [`SOURCE`] for updates from this object.
pub fn source_of(old: &Meta) -> String {
    format!("{}:{}", old.key.name, old.uid)
}

/// The longest value of a label.
const LONGEST_VALUE: usize = 63;

/// The label value under which NEW selects nothing once it has stepped aside.
pub fn moved(value: &str) -> String {
    const MARK: &str = "-moved";
    format!("{}{MARK}", value.get(..LONGEST_VALUE - MARK.len()).unwrap_or(value))
}

/// Reads a size from an annotation; `None` without the annotation.
///
/// # Errors
/// With the annotation and its value, when that is no size.
pub fn size(controller: &ReplicaSet, annotation: &str) -> Result<Option<i32>, String> {
    let Some(text) = controller.annotations.get(annotation) else { return Ok(None) };
    match text.parse::<i32>() {
        Ok(size) if size >= 0 => Ok(Some(size)),
        _ => Err(format!(
            "replicationcontroller {}: the annotation {annotation} is {text:?}, and not a number of pods",
            controller.meta.key.name
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_value_of_a_label_stays_within_its_limit() {
        assert_eq!(moved("abc"), "abc-moved");
        let long = moved(&"a".repeat(63));
        assert_eq!((long.len(), long.ends_with("a-moved")), (63, true));
    }
}
