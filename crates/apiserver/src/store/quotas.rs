//! Each write charges the quotas of its namespace, in the same critical section.

use std::fmt;
use std::ops::Bound;
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::Value;

use super::State;
use super::change::{Key, at_revision};
use super::log::Limits;
use crate::object::recent::Recent;
use crate::object::{Object, as_map};

/// Under which name the store keeps quotas.
pub(super) const QUOTA: &str = "ResourceQuota";

/// The objects of a resource in the namespace of a quota.
pub(crate) type ObjectsOf<'a> = &'a dyn Fn(&str) -> Vec<Arc<Value>>;

/// Whether a resource is served.
pub(crate) type IsServed<'a> = &'a dyn Fn(&str) -> bool;

/// The meaning of a write for the status of a quota.
pub(crate) enum Charged {
    /// Nothing.
    Nothing,
    /// This is the status now.
    To(Value),
    /// It has to be counted anew.
    Anew,
}

/// A status after an object of a resource has become another; with whether it is exact, and the time.
type AfterWrite = fn(&Value, &str, Option<&Value>, Option<&Value>, (bool, Timestamp)) -> Charged;

/// The rules by which quotas are charged.
#[derive(Clone)]
pub(crate) struct Charge {
    /// The resource of the objects that the store keeps under a name, such as `deployments.apps`.
    pub(crate) resource_of: fn(&str) -> String,
    /// The status of a quota, from what its namespace holds at this time.
    pub(crate) status: fn(&Value, ObjectsOf<'_>, IsServed<'_>, Timestamp) -> Value,
    /// The status of a quota after a write.
    pub(crate) charged: AfterWrite,
    /// Whether a status is what its namespace holds. Else it is what clients write, and what is admitted is charged to it.
    pub(crate) is_exact: bool,
    /// The time.
    pub(crate) now: Arc<dyn Fn() -> Timestamp + Send + Sync>,
}

impl fmt::Debug for Charge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Charge").field("is_exact", &self.is_exact).finish_non_exhaustive()
    }
}

/// A write that has happened.
pub(super) struct Written<'a> {
    pub(super) kind: &'a str,
    pub(super) namespace: &'a str,
    pub(super) before: Option<&'a Arc<Object>>,
    pub(super) after: Option<&'a Arc<Object>>,
}

impl State {
    /// A quota with its status.
    pub(super) fn counted(&self, charge: &Charge, namespace: &str, mut quota: Value) -> Value {
        if !charge.is_exact {
            return quota;
        }
        let objects = |resource: &str| -> Vec<Arc<Value>> {
            let shelf = self.shelves.iter().find(|(kind, _)| (charge.resource_of)(kind) == resource);
            let start = Key::new(namespace, "");
            let objects = shelf
                .map(|(_, shelf)| shelf.objects.range::<Key, _>((Bound::Included(&start), Bound::Unbounded)));
            let objects = objects.into_iter().flatten();
            objects
                .take_while(|(key, _)| key.namespace == namespace)
                .map(|(_, object)| object.peek())
                .collect()
        };
        let is_served =
            |resource: &str| self.shelves.keys().any(|kind| (charge.resource_of)(kind) == resource);
        let status = (charge.status)(&quota, &objects, &is_served, (charge.now)());
        as_map(&mut quota).insert("status".to_owned(), status);
        quota
    }

    /// Charges the quotas of the namespace with what a write has changed.
    pub(super) fn charge(
        &mut self,
        charge: &Charge,
        limits: Limits,
        recent: &Arc<Recent>,
        written: &Written<'_>,
    ) {
        if written.namespace.is_empty() {
            return;
        }
        let start = Key::new(written.namespace, "");
        let Some(shelf) = self.shelves.get(QUOTA) else { return };
        let quotas: Vec<(Arc<Key>, Arc<Object>)> = shelf
            .objects
            .range::<Key, _>((Bound::Included(&start), Bound::Unbounded))
            .take_while(|(key, _)| key.namespace == written.namespace)
            .map(|(key, quota)| (key.clone(), quota.clone()))
            .collect();
        if quotas.is_empty() {
            return;
        }
        let resource = (charge.resource_of)(written.kind);
        let (before, after) =
            (written.before.map(|object| object.peek()), written.after.map(|object| object.peek()));
        for (key, quota) in quotas {
            let mut value = Value::clone(&quota.value());
            let at = (charge.is_exact, (charge.now)());
            match (charge.charged)(&value, &resource, before.as_deref(), after.as_deref(), at) {
                Charged::Nothing => continue,
                Charged::To(status) => drop(as_map(&mut value).insert("status".to_owned(), status)),
                Charged::Anew => {
                    let anew = self.counted(charge, written.namespace, value.clone());
                    if anew == value {
                        continue;
                    }
                    value = anew;
                }
            }
            let revision = self.revision + 1;
            let Some(shelf) = self.shelves.get_mut(QUOTA) else { return };
            let after = Arc::new(at_revision(value, revision, recent));
            let before = shelf.objects.insert(key.clone(), after.clone());
            shelf.record(limits, revision, key, before, Some(after));
            self.revision = revision;
        }
    }
}
