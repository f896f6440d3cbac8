//! Decides whether to keep an object, delete it, or drop references, once it is known of each owner whether it exists.

use crate::model::Uid;
use crate::model::metadata::{FOREGROUND, Metadata, ORPHAN};

/// The state of an owner that is known for certain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OwnerState {
    /// It exists. One that is being deleted and waits for others than its dependents exists, too.
    Solid,
    /// It exists, and is kept by `foregroundDeletion` until its dependents are gone.
    Waiting,
    /// It is proved not to exist.
    Absent,
    /// It was deleted with `--cascade=orphan`: its dependents are to live without it.
    Released,
}

/// The `propagationPolicy` of a deletion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// The object goes at once, and then its dependents.
    Background,
    /// The dependents go first.
    Foreground,
    /// The dependents stay.
    Orphan,
}

impl Policy {
    /// The policy that an object's own finalizers name: another would take them off.
    pub fn kept_by(object: &Metadata<'_>) -> Self {
        match () {
            () if object.has_finalizer(ORPHAN) => Policy::Orphan,
            () if object.has_finalizer(FOREGROUND) => Policy::Foreground,
            () => Policy::Background,
        }
    }

    /// Its name in `DeleteOptions`.
    pub fn name(self) -> &'static str {
        match self {
            Policy::Background => "Background",
            Policy::Foreground => "Foreground",
            Policy::Orphan => "Orphan",
        }
    }
}

/// The decision about an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// It stays as it is.
    Keep,
    /// It loses the references to these owners, and lives.
    DropReferences(Vec<Uid>),
    /// It is deleted.
    Delete(Policy),
}

/// Decides about an object that is not being deleted. `owners` has the state of the owner behind each reference, in
/// their order; `kept` is [`Policy::kept_by`].
///
/// An owner that waits for its dependents keeps none of them alive, so that an object with such an owner alone is
/// deleted; its own dependents first, since the owner waits for the dependents of its dependents, too. A released
/// owner's reference goes before anything else is decided: the object must not be deleted for its sake.
pub fn decide(owners: &[(Uid, OwnerState)], has_dependents: bool, kept: Policy) -> Decision {
    let any = |state| owners.iter().any(|(_, known)| *known == state);
    let of = |wanted: &dyn Fn(OwnerState) -> bool| -> Vec<Uid> {
        owners.iter().filter(|(_, state)| wanted(*state)).map(|(uid, _)| uid.clone()).collect()
    };
    if any(OwnerState::Released) {
        return Decision::DropReferences(of(&|state| state == OwnerState::Released));
    }
    if owners.is_empty() {
        return Decision::Keep;
    }
    if any(OwnerState::Solid) {
        let rest = of(&|state| state != OwnerState::Solid);
        return if rest.is_empty() { Decision::Keep } else { Decision::DropReferences(rest) };
    }
    if any(OwnerState::Waiting) && has_dependents {
        return Decision::Delete(Policy::Foreground);
    }
    Decision::Delete(kept)
}

#[cfg(test)]
mod tests {
    use super::OwnerState::{Absent, Released, Solid, Waiting};
    use super::*;

    fn decided(owners: &[OwnerState], has_dependents: bool) -> Decision {
        let owners: Vec<_> =
            owners.iter().enumerate().map(|(at, state)| (Uid::new(&at.to_string()), *state)).collect();
        decide(&owners, has_dependents, Policy::Background)
    }

    fn without(owners: &[&str]) -> Decision {
        Decision::DropReferences(owners.iter().map(|uid| Uid::new(uid)).collect())
    }

    #[test]
    fn an_object_lives_as_long_as_an_owner_that_waits_for_nobody() {
        assert_eq!(decided(&[], true), Decision::Keep);
        assert_eq!(decided(&[Solid], false), Decision::Keep);
        assert_eq!(decided(&[Absent, Solid, Waiting], false), without(&["0", "2"]));
        assert_eq!(decided(&[Absent, Absent], true), Decision::Delete(Policy::Background));
    }

    #[test]
    fn dependents_go_before_an_object_whose_owner_waits_for_it() {
        assert_eq!(decided(&[Waiting], true), Decision::Delete(Policy::Foreground));
        assert_eq!(decided(&[Absent, Waiting], true), Decision::Delete(Policy::Foreground));
        assert_eq!(decided(&[Waiting], false), Decision::Delete(Policy::Background));
    }

    #[test]
    fn a_dependent_that_turns_up_after_an_orphaning_deletion_loses_the_reference_and_not_its_life() {
        assert_eq!(decided(&[Released], true), without(&["0"]));
        assert_eq!(
            decided(&[Absent, Released], false),
            without(&["1"]),
            "the absent owner is judged after that"
        );
    }

    #[test]
    fn a_finalizer_that_an_object_already_has_is_kept() {
        let of = |finalizers: &str| {
            let json = format!(
                r#"{{"metadata":{{"name":"a","uid":"u","resourceVersion":"1","finalizers":[{finalizers}]}}}}"#
            );
            Policy::kept_by(&Metadata::decode(&json).unwrap()).name()
        };
        assert_eq!(
            [of(r#""orphan""#), of(r#""foregroundDeletion""#), of("")],
            ["Orphan", "Foreground", "Background"]
        );
    }
}
