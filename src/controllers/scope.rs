//! What is ours to act on, where `--selector` leaves others to somebody else.
//!
//! A set goes with its Deployment, whatever its own labels are: a Deployment without its sets would make
//! new ones without end. Everything in the namespaces is watched all the same, since whose a set is shows
//! only in the Deployment that it names; the selector saves work, not memory.

use super::cluster::Cluster;
use crate::model::{Deployment, Meta, ObjectKey, Record, Selector};
use crate::runtime::store::Change;

/// What is ours to act on. Everything, by default.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Scope {
    /// The one namespace; no other is watched.
    pub namespace: Option<String>,
    /// The labels.
    pub selector: Option<Selector>,
}

impl Cluster {
    fn selects(&self, object: &Meta) -> bool {
        self.scope.selector.as_ref().is_none_or(|selector| selector.matches(&object.labels))
    }

    /// Whether the Deployment of this name is ours, or gone.
    pub fn has_deployment_in_scope(&self, key: &ObjectKey) -> bool {
        self.deployments.get(key).is_none_or(|deployment| self.selects(&deployment.meta))
    }

    /// Whether the set of this name is ours, or gone: its Deployment is, or without one it itself is.
    pub fn has_set_in_scope(&self, key: &ObjectKey) -> bool {
        if self.scope.selector.is_none() {
            return true;
        }
        self.sets.get(key).is_none_or(|set| match &set.meta.controller {
            Some(owner) if owner.is_of(&Deployment::RESOURCE) => {
                self.deployment_of(&set).is_some_and(|deployment| self.selects(&deployment.meta))
            }
            _ => self.selects(&set.meta),
        })
    }

    /// Whether the ReplicationController of this name is ours, or gone.
    pub fn has_replication_controller_in_scope(&self, key: &ObjectKey) -> bool {
        self.replication_controllers.get(key).is_none_or(|controller| self.selects(&controller.0.meta))
    }

    /// A Deployment that has come within the scope, or is in the cache at last, brings its sets with it.
    pub fn scope_may_have_changed(&self, change: &Change<Deployment>) {
        let moved = match change {
            Change::Added(_) => true,
            Change::Updated { old, new } => old.meta.labels != new.meta.labels,
            Change::Deleted(_) => false,
        };
        if moved && self.scope.selector.is_some() {
            let sets = self.sets.owned_by(&change.object().as_owner());
            sets.iter().for_each(|set| self.set_queue.add(set.meta.key.clone()));
        }
    }
}
