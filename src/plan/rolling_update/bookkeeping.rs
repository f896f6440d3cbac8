//! The bookkeeping of a rolling update on the two ReplicationControllers: the annotations of kubectl up to 1.17, so
//! that either tool finishes the other's work.

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

/// Whether NEW is the target of an update from OLD, which its bookkeeping alone tells: a wrong name in a request resizes no
/// stranger, and whoever may write OLD has no power over the other controllers of its namespace.
fn check_target(old: &ReplicaSet, new: &ReplicaSet) -> Result<(), String> {
    let wanted = source_of(&old.meta);
    let (name, of) = (&new.meta.key.name, &old.meta.key.name);
    match new.annotations.get(SOURCE) {
        Some(source) if source == wanted => Ok(()),
        Some(source) => {
            Err(format!("{name} is the target of another update, that of {source}: name another one"))
        }
        None => Err(format!(
            "{name} is not the target of an update from {of}: it lacks the annotation {SOURCE}={wanted}, which \
             `kubectl windlass rolling-update` writes when it creates {name}"
        )),
    }
}

/// The size that an update from OLD to NEW has to reach.
///
/// # Errors
/// When NEW is no target of an update from OLD, or does not say its size.
pub fn size_to_reach(old: &ReplicaSet, new: &ReplicaSet) -> Result<i32, String> {
    check_target(old, new)?;
    size(new, DESIRED_REPLICAS)?.ok_or_else(|| {
        let (name, replicas) = (&new.meta.key.name, old.replicas.max(new.replicas));
        format!(
            "{name} does not say how many pods it is to have: annotate it with them, such as \
             {DESIRED_REPLICAS}={replicas}"
        )
    })
}

/// The size to which an update from OLD to NEW is taken back: the one that OLD had before. OLD still has that while NEW has
/// no replicas. `new` is `None` once NEW is deleted.
///
/// # Errors
/// When NEW is no target of an update from OLD, or nobody knows that size: after a complete update OLD has 0 replicas,
/// and they are no size to go back to.
pub fn size_to_return_to(old: &ReplicaSet, new: Option<&ReplicaSet>) -> Result<i32, String> {
    new.map_or(Ok(()), |new| check_target(old, new))?;
    if let Some(original) = size(old, ORIGINAL_REPLICAS)? {
        return Ok(original);
    }
    let has_not_begun = old.replicas > 0 && new.is_some_and(|new| new.replicas == 0);
    if has_not_begun {
        return Ok(old.replicas);
    }
    let name = &old.meta.key.name;
    // The last writes of an update remove OLD's original size first.
    let is_complete = old.replicas == 0 && new.is_some_and(|new| new.replicas > 0);
    let on = match is_complete {
        true => "it seems complete but for its last writes: finish it as it was begun, and then",
        false => "else",
    };
    Err(format!(
        "the size that {name} had before the update is unknown, so that there is no way back: if the update is not \
         complete, annotate {name} with it, {ORIGINAL_REPLICAS}=N; {on} update again to the earlier image or file"
    ))
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
