//! Which resources are watched, and what the API server says of the others.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::RwLock;
use tokio::sync::watch;
use tokio::time::Instant;

use super::barrier::Unread;
use crate::controllers::object_counts::name;
use crate::engine::context::ResourceFilter;
use crate::model::discovered::{Discovered, DiscoveredResource, FailedGroup, Verb};
use crate::plan::garbage::graph::ResourceId;
use crate::runtime::reachability::Reachability;

/// Nobody owns events, nobody is owned by one, and there are millions.
const IGNORED: [&str; 2] = ["events", "events.events.k8s.io"];

impl ResourceFilter {
    /// Whether a resource is looked after.
    pub fn include(&self, resource: &DiscoveredResource) -> bool {
        let name = name(resource);
        let is_among = |list: &[String]| list.contains(&name);
        !IGNORED.contains(&name.as_str())
            && !is_among(&self.ignored)
            && (self.only.is_empty() || is_among(&self.only))
    }

    /// Whether a resource of this group may be looked after, of which nothing else is known.
    fn may_include(&self, group: &str) -> bool {
        let is_of = |name: &String| name.split_once('.').map_or("", |(_, group)| group) == group;
        self.only.is_empty() || self.only.iter().any(is_of)
    }

    /// The duties that a collector of some resources leaves undone; `None` for one of all resources.
    pub(super) fn limits(&self) -> Option<String> {
        (!self.only.is_empty()).then(|| {
            format!(
                "--gc-resources: the garbage collector looks after {} and nothing else. Objects of other resources are \
                 never deleted when their owners are gone, are not seen as dependents by foreground and orphaning \
                 deletions, and keep the finalizers foregroundDeletion and orphan until another collector removes them. \
                 Owners of other resources need the permission to get them, or their dependents stay.",
                self.only.join(", ")
            )
        })
    }
}

/// A resource that is watched.
pub(super) struct Monitor {
    pub(super) resource: DiscoveredResource,
    /// The version up to which the watch has shown everything; 0 before the first list is complete.
    pub(super) position: Arc<AtomicU64>,
    pub(super) moved: watch::Receiver<u64>,
    pub(super) reachability: Reachability,
    /// Told of each end of its watch.
    pub(super) ends: watch::Receiver<()>,
}

/// The state of a resource whose watch shows everything.
const SYNCED: &str = "synced";

impl Monitor {
    /// Whether it has not answered for a minute.
    fn is_broken(&self) -> bool {
        self.reachability.check().is_err()
    }

    fn state(&self) -> &'static str {
        match () {
            () if self.is_broken() => "broken",
            () if self.position.load(Ordering::Acquire) == 0 => "listing",
            () => SYNCED,
        }
    }
}

/// The served kinds, and those of them that are watched.
pub(super) struct Kinds {
    resources: ResourceFilter,
    /// The only namespace, if there is one.
    pub(super) namespace: Option<String>,
    state: RwLock<State>,
}

#[derive(Default)]
struct State {
    served: Arc<Discovered>,
    /// Since when groups have failed in discovery, by group and version.
    failing: BTreeMap<String, Instant>,
    monitors: BTreeMap<ResourceId, Monitor>,
}

/// The answer of discovery about a kind.
pub(super) enum Served {
    /// It is served as this.
    As(DiscoveredResource),
    /// Its group cannot be read at the moment.
    Unreadable,
    /// There is no such kind.
    No,
}

impl Kinds {
    pub(super) fn new(resources: ResourceFilter, namespace: Option<String>) -> Self {
        Kinds { resources, namespace, state: RwLock::default() }
    }

    /// Takes over what the API server serves; the resources to watch from now on, and those to watch no more.
    pub(super) fn found(
        &self,
        served: Arc<Discovered>,
    ) -> (Vec<DiscoveredResource>, Vec<(ResourceId, Monitor)>) {
        let mut state = self.state.write();
        // A kind that was watched and cannot be read now is not gone.
        let last_good = served.failed.iter().filter_map(|failed| failed.last_good.as_ref()).flatten();
        let still = last_good
            .filter(|resource| state.monitors.values().any(|known| is_same(&known.resource, resource)));
        let wanted: Vec<DiscoveredResource> = served
            .resources
            .iter()
            .chain(still)
            .filter(|resource| self.is_watched(resource))
            .cloned()
            .collect();
        let gone: Vec<ResourceId> = state
            .monitors
            .iter()
            .filter(|(_, known)| !wanted.iter().any(|resource| is_watched_alike(resource, &known.resource)))
            .map(|(id, _)| *id)
            .collect();
        let gone = gone.into_iter().filter_map(|id| Some((id, state.monitors.remove(&id)?))).collect();
        let is_new = |resource: &DiscoveredResource| {
            !state.monitors.values().any(|known| is_watched_alike(resource, &known.resource))
        };
        let new = wanted.into_iter().filter(is_new).collect();
        let mut failing = std::mem::take(&mut state.failing);
        let names = served.failed.iter().map(FailedGroup::group_version);
        let since = |name: String| {
            let since = failing.remove(&name).unwrap_or_else(Instant::now);
            (name, since)
        };
        state.failing = names.map(since).collect();
        state.served = served;
        (new, gone)
    }

    /// Whether this has resources that are not watched, and that were not served before.
    pub(super) fn serves_more(&self, found: &Discovered) -> bool {
        let before = self.state.read().served.clone();
        let is_new = |resource: &DiscoveredResource| {
            !self.is_watched(resource) && !before.resources.iter().any(|known| is_same(known, resource))
        };
        found.resources.iter().any(is_new)
    }

    fn is_watched(&self, resource: &DiscoveredResource) -> bool {
        resource.verbs.has_all(&[Verb::Delete, Verb::List, Verb::Watch])
            && self.resources.include(resource)
            && (self.namespace.is_none() || resource.namespaced)
    }

    pub(super) fn watched(&self, id: ResourceId, monitor: Monitor) {
        self.state.write().monitors.insert(id, monitor);
    }

    /// The served resource of a kind, in whichever version.
    pub(super) fn of_kind(&self, group: &str, kind: &str) -> Served {
        let state = self.state.read();
        let is_meant = |failed: &FailedGroup| failed.group == group;
        match state.served.of_kind(group, kind) {
            Some(resource) => Served::As(resource.clone()),
            None if state.served.failed.iter().any(is_meant) => Served::Unreadable,
            None => Served::No,
        }
    }

    /// Whether the end of an object of this kind would be seen.
    pub(super) fn is_seen(&self, resource: &DiscoveredResource) -> bool {
        self.state.read().monitors.values().any(|known| is_same(&known.resource, resource))
    }

    /// A resource that is watched.
    pub(super) fn watched_as(&self, id: ResourceId) -> Option<DiscoveredResource> {
        self.state.read().monitors.get(&id).map(|monitor| monitor.resource.clone())
    }

    /// The number of a resource that is watched.
    pub(super) fn id_of(&self, resource: &DiscoveredResource) -> Option<ResourceId> {
        let state = self.state.read();
        state.monitors.iter().find(|(_, known)| is_same(&known.resource, resource)).map(|(id, _)| *id)
    }

    /// The number of a resource whose watch shows everything.
    pub(super) fn synced(&self, (group, plural): &(String, String)) -> Option<ResourceId> {
        let state = self.state.read();
        let is_meant = |known: &Monitor| (&known.resource.group, &known.resource.plural) == (group, plural);
        let found = state.monitors.iter().find(|(_, known)| is_meant(known) && known.state() == SYNCED);
        found.map(|(id, _)| *id)
    }

    /// The number of a resource of this name, as in flags, whose watch shows everything up to this version. `Err` with the reason, and whether something has
    /// failed, for one that is watched and does not; `None` for one that is not watched.
    pub(super) fn shown(&self, resource: &str) -> Option<Result<(ResourceId, u64), (String, bool)>> {
        let state = self.state.read();
        let is_meant = |(_, known): &(&ResourceId, &Monitor)| name(&known.resource) == resource;
        let (id, monitor) = state.monitors.iter().find(is_meant)?;
        Some(match (monitor.reachability.check(), monitor.state(), monitor.reachability.failing_lists()) {
            (Err(error), ..) => Err((error, true)),
            (Ok(()), SYNCED, _) => Ok((*id, monitor.position.load(Ordering::Acquire))),
            (.., Some((_, error))) => Err((format!("the first list is not complete: {error}"), true)),
            (.., None) => Err(("the first list is not complete".to_owned(), false)),
        })
    }

    /// All resources that are watched: with the positions of their watches, and whether they do not answer.
    pub(super) fn all(&self) -> Vec<(ResourceId, DiscoveredResource, watch::Receiver<u64>, bool)> {
        let of = |(id, monitor): (&ResourceId, &Monitor)| {
            (*id, monitor.resource.clone(), monitor.moved.clone(), monitor.is_broken())
        };
        self.state.read().monitors.iter().map(of).collect()
    }

    /// Whether all resources of a group are known, and each has answered its watch since then.
    pub(super) fn has_answered(&self, group: &str, since: Instant) -> bool {
        let has_answered = |monitor: &Monitor| {
            monitor.position.load(Ordering::Acquire) > 0
                && monitor.reachability.last_answer().is_some_and(|at| at > since)
        };
        let state = self.state.read();
        !state.served.failed.iter().any(|failed| failed.group == group)
            && state.monitors.values().filter(|monitor| monitor.resource.group == group).all(has_answered)
    }

    /// Groups whose resources are unknown and may hold dependents, by group and version.
    pub(super) fn unknown_groups(&self) -> Vec<(String, Unread)> {
        let state = self.state.read();
        let is_open = |resource: &DiscoveredResource| {
            self.is_watched(resource)
                && !state.monitors.values().any(|known| is_same(&known.resource, resource))
        };
        let hides_dependents = |failed: &&FailedGroup| match &failed.last_good {
            _ if failed.stores_nothing() => false,
            Some(resources) => resources.iter().any(is_open),
            None => self.resources.may_include(&failed.group),
        };
        let failed = state.served.failed.iter().filter(hides_dependents);
        let said = failed.map(|failed| {
            let name = failed.group_version();
            let reason = format!("the resources of {name} are unknown: {}", failed.message);
            let since = state.failing.get(&name).copied().unwrap_or_else(Instant::now);
            (name, Unread { group: failed.group.clone(), reason, since })
        });
        said.collect()
    }

    /// How many are in each state.
    pub(super) fn by_state(&self) -> BTreeMap<&'static str, usize> {
        let mut counts: BTreeMap<_, _> = ["broken", "listing", SYNCED].map(|state| (state, 0)).into();
        for monitor in self.state.read().monitors.values() {
            *counts.entry(monitor.state()).or_default() += 1;
        }
        counts
    }
}

pub(super) fn is_same(one: &DiscoveredResource, other: &DiscoveredResource) -> bool {
    (&one.group, &one.plural) == (&other.group, &other.plural)
}

/// Whether a watch of one would show the other.
fn is_watched_alike(one: &DiscoveredResource, other: &DiscoveredResource) -> bool {
    is_same(one, other)
        && (&one.version, &one.kind, one.namespaced) == (&other.version, &other.kind, other.namespaced)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::discovered::Verbs;

    fn resource(group: &str, plural: &str) -> DiscoveredResource {
        DiscoveredResource {
            group: group.into(),
            version: "v1".into(),
            kind: plural.to_uppercase(),
            plural: plural.into(),
            namespaced: true,
            verbs: Verbs::named(["get", "list", "watch", "delete"]),
            other_versions: Vec::new(),
        }
    }

    #[test]
    fn flags_bound_what_is_looked_after() {
        let all = ResourceFilter::default();
        assert!(all.include(&resource("apps", "deployments")) && !all.include(&resource("", "events")));
        assert!(!all.include(&resource("events.k8s.io", "events")));
        let some =
            ResourceFilter { only: vec!["pods".into(), "jobs.batch".into()], ignored: vec!["pods".into()] };
        assert!(some.include(&resource("batch", "jobs")));
        assert!(!some.include(&resource("", "jobs")) && !some.include(&resource("", "pods")));
    }

    #[test]
    fn a_bounded_collector_says_what_it_leaves_undone() {
        assert_eq!(ResourceFilter::default().limits(), None);
        let some = ResourceFilter { only: vec!["pods".into(), "jobs.batch".into()], ..Default::default() };
        let said = some.limits().unwrap();
        for words in
            ["--gc-resources", "pods, jobs.batch", "never deleted", "not seen as dependents", "orphan"]
        {
            assert!(said.contains(words), "{said}");
        }
    }

    #[test]
    fn only_groups_that_may_hold_dependents_are_missed() {
        let missed = |resources: ResourceFilter, failed: Vec<FailedGroup>| {
            let kinds = Kinds::new(resources, None);
            kinds.found(Arc::new(Discovered { resources: vec![resource("", "pods")], failed }));
            kinds.unknown_groups().into_iter().map(|(name, _)| name).collect::<Vec<_>>()
        };
        let failed = |group: &str, last_good: Option<Vec<DiscoveredResource>>| FailedGroup {
            group: group.into(),
            version: "v1".into(),
            message: "down".into(),
            last_good,
        };
        let all = ResourceFilter::default;
        assert_eq!(missed(all(), vec![failed("x.io", None), failed("metrics.k8s.io", None)]), ["x.io/v1"]);
        let mut unwatched = resource("x.io", "things");
        unwatched.verbs = Verbs::named(["get"]);
        assert!(missed(all(), vec![failed("x.io", Some(vec![unwatched]))]).is_empty());
        let known = vec![failed("x.io", Some(vec![resource("x.io", "things")]))];
        assert_eq!(missed(all(), known), ["x.io/v1"], "it is not watched yet");
        let only = |name: &str| ResourceFilter { only: vec![name.into()], ..all() };
        assert_eq!(missed(only("things.x.io"), vec![failed("x.io", None)]), ["x.io/v1"]);
        assert!(missed(only("pods"), vec![failed("x.io", None)]).is_empty());
    }

    #[test]
    fn what_discovery_cannot_read_is_neither_gone_nor_unknown() {
        let kinds = Kinds::new(ResourceFilter::default(), None);
        let failed = FailedGroup {
            group: "x.io".into(),
            version: "v1".into(),
            message: "down".into(),
            last_good: None,
        };
        let served = Discovered { resources: vec![resource("", "pods")], failed: vec![failed] };
        let (new, gone) = kinds.found(Arc::new(served));
        assert_eq!((new.len(), gone.len()), (1, 0));
        assert!(matches!(kinds.of_kind("x.io", "Thing"), Served::Unreadable));
        assert!(matches!(kinds.of_kind("", "Thing"), Served::No));
        assert!(matches!(kinds.of_kind("", "PODS"), Served::As(_)));
    }
}
