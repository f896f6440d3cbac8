//! How many objects of a resource are in each namespace, as whoever watches their metadata sees them: the garbage collector, if it
//! runs and watches the resource, so that nothing is watched twice.
//!
//! The one guarantee: whoever follows a resource is told of each object more or less.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use parking_lot::RwLock;
use tokio::sync::watch;

use crate::model::discovered::{Discovered, DiscoveredResource};

/// The objects of a resource in a namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Seen {
    /// All of them.
    Count {
        /// So many.
        objects: usize,
        /// The version that the watch shows.
        position: u64,
    },
    /// The watch does not show all of them.
    Unknown {
        /// Why.
        reason: String,
        /// Whether something has failed.
        has_failed: bool,
    },
}

/// Counts the objects of a resource in a namespace; `None` for one that is not watched by whoever counts.
type Count = Box<dyn Fn(&str, &str) -> Option<Seen> + Send + Sync>;

/// Called with a change: the namespace, or none if any may have changed; the resource; and whether there is one object more.
type Follow = Box<dyn Fn(Option<&str>, &str, bool) + Send + Sync>;

/// Shared by whoever watches the metadata of all objects, and whoever needs to know their number. Resources are named as
/// `plural.group`.
pub(super) struct ObjectCounts {
    count: OnceLock<Count>,
    follow: OnceLock<Follow>,
    /// The followed resources, with how often each is.
    followed: RwLock<BTreeMap<String, usize>>,
    changed: watch::Sender<u64>,
    served: watch::Sender<Option<Arc<Discovered>>>,
}

impl Default for ObjectCounts {
    fn default() -> Self {
        ObjectCounts {
            count: OnceLock::new(),
            follow: OnceLock::new(),
            followed: RwLock::default(),
            changed: watch::Sender::new(0),
            served: watch::Sender::new(None),
        }
    }
}

/// The name of a resource: `plural.group`, or `plural` in the core group.
pub(super) fn name(resource: &DiscoveredResource) -> String {
    full_name(&resource.group, &resource.plural)
}

/// The same of these parts.
pub(super) fn full_name(group: &str, plural: &str) -> String {
    if group.is_empty() { plural.to_owned() } else { format!("{plural}.{group}") }
}

impl ObjectCounts {
    /// Somebody watches all resources, and counts their objects.
    pub(super) fn counted_by(&self, count: impl Fn(&str, &str) -> Option<Seen> + Send + Sync + 'static) {
        let _ = self.count.set(Box::new(count));
    }

    /// Whether somebody does.
    pub(super) fn is_counted(&self) -> bool {
        self.count.get().is_some()
    }

    /// The number of objects of a resource in a namespace that it sees; `None` if it does not watch the resource, or there is nobody.
    pub(super) fn seen(&self, namespace: &str, resource: &str) -> Option<Seen> {
        self.count.get().and_then(|count| count(namespace, resource))
    }

    /// That one has found what the API server serves.
    pub(super) fn found(&self, served: &Arc<Discovered>) {
        self.served.send_replace(Some(served.clone()));
    }

    /// The resources that it has found.
    pub(super) fn served(&self) -> watch::Receiver<Option<Arc<Discovered>>> {
        self.served.subscribe()
    }

    /// Whoever follows resources is told of changes in this way.
    pub(super) fn followed_by(&self, follow: impl Fn(Option<&str>, &str, bool) + Send + Sync + 'static) {
        let _ = self.follow.set(Box::new(follow));
    }

    /// Follows these resources from now on, and no longer those.
    pub(super) fn follow(&self, more: impl Iterator<Item = String>, less: impl Iterator<Item = String>) {
        let mut followed = self.followed.write();
        let before = followed.len();
        let mut has_changed = false;
        for resource in more {
            let count = followed.entry(resource).or_default();
            has_changed |= *count == 0;
            *count += 1;
        }
        for resource in less {
            if let Some(count) = followed.get_mut(&resource) {
                *count -= 1;
                if *count == 0 {
                    followed.remove(&resource);
                    has_changed = true;
                }
            }
        }
        let has_changed = has_changed || followed.len() != before;
        drop(followed);
        if has_changed {
            self.changed.send_modify(|count| *count += 1);
        }
    }

    /// The resources that are followed.
    pub(super) fn followed(&self) -> Vec<String> {
        self.followed.read().keys().cloned().collect()
    }

    /// Changes whenever others are followed.
    pub(super) fn changes(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// Whether a resource is followed.
    pub(super) fn is_followed(&self, resource: &str) -> bool {
        let followed = self.followed.read();
        !followed.is_empty() && followed.contains_key(resource)
    }

    /// There is an object more or less in a namespace, or in any if it is not known in which.
    pub(super) fn tell(&self, namespace: Option<&str>, resource: &str, is_more: bool) {
        if let Some(follow) = self.follow.get() {
            follow(namespace, resource, is_more);
        }
    }
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;

    use super::*;

    fn names(names: &[&str]) -> std::vec::IntoIter<String> {
        names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>().into_iter()
    }

    #[test]
    fn a_resource_is_followed_for_as_long_as_anybody_does() {
        let counts = ObjectCounts::default();
        let mut changes = counts.changes();
        counts.follow(names(&["configmaps", "jobs.batch"]), names(&[]));
        assert!(changes.has_changed().unwrap() && counts.is_followed("jobs.batch"));
        changes.mark_unchanged();
        counts.follow(names(&["configmaps"]), names(&[]));
        counts.follow(names(&[]), names(&["configmaps", "secrets"]));
        assert!(!changes.has_changed().unwrap() && counts.is_followed("configmaps"));
        counts.follow(names(&[]), names(&["configmaps"]));
        assert!(changes.has_changed().unwrap());
        assert_eq!(counts.followed(), ["jobs.batch"]);
    }

    #[test]
    fn without_anybody_who_counts_nothing_is_seen() {
        let counts = ObjectCounts::default();
        assert!(!counts.is_counted() && counts.seen("shop", "configmaps").is_none());
        let three = Seen::Count { objects: 3, position: 9 };
        let seen = three.clone();
        counts.counted_by(move |_, resource| (resource == "configmaps").then(|| seen.clone()));
        assert_eq!(counts.seen("shop", "configmaps"), Some(three));
        assert_eq!(counts.seen("shop", "secrets"), None);
        let told = Arc::new(Mutex::new(Vec::new()));
        let log = told.clone();
        counts.tell(Some("shop"), "configmaps", true);
        counts.followed_by(move |namespace, resource, is_more| {
            log.lock().push(format!("{namespace:?} {resource} {is_more}"));
        });
        counts.tell(None, "configmaps", false);
        assert_eq!(*told.lock(), ["None configmaps false"]);
    }
}
