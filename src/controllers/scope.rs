//! What is ours to act on, where `--selector` leaves others to somebody else.
//!
//! A set goes with its Deployment, whatever its own labels are: a Deployment without its sets would make
//! new ones without end. Everything in the namespaces is watched all the same, since whose a set is shows
//! only in the Deployment that it names; the selector saves work, not memory.

use crate::model::{Meta, Selector};

/// What is ours to act on. Everything, by default.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Scope {
    /// The one namespace; no other is watched.
    pub namespace: Option<String>,
    /// The labels.
    pub selector: Option<Selector>,
}

impl Scope {
    /// Whether an object that goes with no other is ours.
    pub fn selects(&self, object: &Meta) -> bool {
        self.selector.as_ref().is_none_or(|selector| selector.matches(&object.labels))
    }
}
