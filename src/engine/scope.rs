//! The objects to act on, where `--selector` leaves others to another controller.
//!
//! A ReplicaSet is in scope with its Deployment, whatever its own labels are: a Deployment without its ReplicaSets
//! would create new ones without end. Everything in the namespaces is watched all the same, since the scope of a
//! ReplicaSet depends on the Deployment that owns it; the selector saves work, not memory.

use crate::model::{Meta, Selector};

/// The objects to act on. Everything, by default.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Scope {
    /// The one namespace; no other is watched.
    pub namespace: Option<String>,
    /// The labels.
    pub selector: Option<Selector>,
}

impl Scope {
    /// Whether this namespace is in scope. Labels select workloads, not namespaces.
    pub fn includes_namespace(&self, namespace: &str) -> bool {
        self.namespace.as_ref().is_none_or(|only| only == namespace)
    }

    /// Whether objects in no namespace are in scope.
    pub fn includes_the_cluster(&self) -> bool {
        self.namespace.is_none()
    }

    /// Whether an object without an owner is in scope.
    pub fn selects(&self, object: &Meta) -> bool {
        self.selector.as_ref().is_none_or(|selector| selector.matches(&object.labels))
    }
}
