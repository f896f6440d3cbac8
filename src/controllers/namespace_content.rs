//! The content that the garbage collector sees in the namespaces that the namespace controller empties.
//!
//! The one guarantee: whoever was promised to be woken is woken when the last object of a kind has gone, or is told that
//! nobody watches the kind and must look by itself.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;

use crate::engine::owner_memory::Forget;
use crate::model::Uid;

/// A resource by group and name.
type Name = (String, String);

/// How many objects of a resource are in a namespace; `None` if nobody watches the resource now.
type Count = Box<dyn Fn(&str, &Name) -> Option<usize> + Send + Sync>;

/// Called with the name of a namespace.
type Wake = Box<dyn Fn(&str) + Send + Sync>;

/// Shared by the two controllers.
#[derive(Default)]
pub(super) struct NamespaceContent {
    count: OnceLock<Count>,
    wake: OnceLock<Wake>,
    awaited: Mutex<BTreeMap<Arc<str>, Awaited>>,
}

/// A namespace that waits for the ends of these.
struct Awaited {
    namespace: Uid,
    resources: BTreeSet<Name>,
}

impl NamespaceContent {
    /// Counts objects by what the garbage collector sees.
    pub(super) fn counted_by(&self, count: impl Fn(&str, &Name) -> Option<usize> + Send + Sync + 'static) {
        let _ = self.count.set(Box::new(count));
    }

    /// Wakes the namespace controller.
    pub(super) fn woken_by(&self, wake: impl Fn(&str) + Send + Sync + 'static) {
        let _ = self.wake.set(Box::new(wake));
    }

    /// Asks to be woken when nothing is left of one of these resources in a namespace. Whether that is sure: all of them
    /// are watched, and each has something left.
    pub(super) fn await_end(&self, name: &str, namespace: &Uid, resources: BTreeSet<Name>) -> bool {
        let Some(count) = self.count.get() else { return false };
        let awaited = Awaited { namespace: namespace.clone(), resources: resources.clone() };
        self.awaited.lock().insert(name.into(), awaited);
        // Counted afterwards: what has gone before did not find it there.
        resources.iter().all(|resource| count(name, resource).is_some_and(|count| count > 0))
    }

    /// Nothing is awaited in a namespace any more.
    pub(super) fn stop_waiting(&self, name: &str) {
        self.awaited.lock().remove(name);
    }

    /// Whether somebody waits for the end of something in a namespace.
    pub(super) fn is_awaited(&self, name: &str) -> bool {
        self.awaited.lock().contains_key(name)
    }

    /// The last object of a resource in a namespace has gone.
    pub(super) fn emptied(&self, name: &str, resource: &Name) {
        let is_awaited = self.awaited.lock().get(name).is_some_and(|it| it.resources.contains(resource));
        if let (true, Some(wake)) = (is_awaited, self.wake.get()) {
            wake(name);
        }
    }
}

impl Forget for NamespaceContent {
    fn forget(&self, namespace: &Uid) {
        self.awaited.lock().retain(|_, awaited| awaited.namespace != *namespace);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(plural: &str) -> Name {
        (String::new(), plural.into())
    }

    #[test]
    fn a_namespace_is_woken_by_the_end_of_what_it_waits_for_and_of_nothing_else() {
        let (content, woken) = (NamespaceContent::default(), Arc::new(Mutex::new(Vec::new())));
        let log = woken.clone();
        content.woken_by(move |name| log.lock().push(name.to_owned()));
        content.counted_by(|_, (_, plural)| (plural != "secrets").then_some(usize::from(plural == "pods")));
        let uid = Uid::new("u");
        let await_end = |plural: &str| content.await_end("shop", &uid, BTreeSet::from([name(plural)]));
        assert!(!await_end("secrets"), "nobody watches them");
        assert!(!await_end("services"), "the last may have gone before it was awaited");
        assert!(await_end("pods") && content.is_awaited("shop"));
        for (namespace, plural) in [("shop", "secrets"), ("other", "pods"), ("shop", "pods")] {
            content.emptied(namespace, &name(plural));
        }
        assert_eq!(*woken.lock(), ["shop"]);
        content.forget(&uid);
        content.emptied("shop", &name("pods"));
        assert_eq!(woken.lock().len(), 1);
    }

    #[test]
    fn without_a_collector_nothing_is_promised() {
        let content = NamespaceContent::default();
        assert!(!content.await_end("shop", &Uid::new("u"), BTreeSet::from([name("pods")])));
        assert!(!content.is_awaited("shop"));
    }
}
