//! Turns the events of a watcher into changes, including the deletions that a relist implies. The watcher of kube-runtime
//! reports a relist only as `Init, InitApply…, InitDone`, so an object that vanished while the connection was down would
//! otherwise never be reported as deleted. Only the identities of the objects are kept for that, not the objects.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::{Stream, StreamExt as _, stream::BoxStream};
use kube::{
    Api, Resource,
    runtime::{WatchStreamExt as _, utils::Backoff, watcher},
};
use serde::de::DeserializeOwned;
use tokio::time::Instant;

use super::api_client::backoff;

/// A watcher's waits grow until it has been sound for so long, as with kube's own default.
const SOUND: Duration = Duration::from_secs(120);

/// The sandbox's waits. kube's default draws them by chance, from a source that cannot be seeded, and reads
/// the machine's clock, so that a history would not repeat.
#[derive(Debug, Default)]
struct ReflectorBackoff {
    failures: u32,
    last: Option<Instant>,
}

impl Iterator for ReflectorBackoff {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        if self.last.is_some_and(|last| last.elapsed() > SOUND) {
            self.failures = 0;
        }
        self.last = Some(Instant::now());
        self.failures = self.failures.saturating_add(1);
        Some(backoff(self.failures))
    }
}

impl Backoff for ReflectorBackoff {
    /// A watch that works for a moment is not sound yet.
    fn reset(&mut self) {}
}

/// A change to the objects of one kind.
#[derive(Clone, Debug, PartialEq)]
pub enum Change<K> {
    /// An object was created, changed, or seen for the first time.
    Put(K),
    /// An object was deleted.
    Deleted(Identity),
    /// Everything that existed has been reported by now. Sent once.
    Synced,
}

/// Which object it was.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Identity {
    /// The UID, or the name where a server sends none.
    pub uid: String,
    /// Empty for cluster-scoped objects.
    pub namespace: String,
    /// The name.
    pub name: String,
}

impl Identity {
    fn of<K: Resource>(object: &K) -> Self {
        let meta = object.meta();
        let name = meta.name.clone().unwrap_or_default();
        let uid = meta.uid.clone().unwrap_or_else(|| name.clone());
        Identity { uid, namespace: meta.namespace.clone().unwrap_or_default(), name }
    }

    /// One text takes half the memory of three. None of the parts holds a slash: each can be a segment of a path.
    fn packed(&self) -> Box<str> {
        let Identity { uid, namespace, name } = self;
        format!("{uid}/{namespace}/{name}").into()
    }

    fn unpacked(packed: &str) -> Self {
        let mut parts = packed.splitn(3, '/').map(str::to_owned);
        let mut next = || parts.next().unwrap_or_default();
        Identity { uid: next(), namespace: next(), name: next() }
    }
}

/// The identities of the objects of one kind, with their resourceVersions.
#[derive(Debug)]
pub struct Reflector<K> {
    /// [`Identity::packed`] to the resourceVersion.
    objects: BTreeMap<Box<str>, Box<str>>,
    /// The objects that a relist has named so far, in the server's order; `None` outside of one.
    listed: Option<Vec<K>>,
    synced: bool,
}

impl<K> Default for Reflector<K> {
    fn default() -> Self {
        Reflector { objects: BTreeMap::new(), listed: None, synced: false }
    }
}

impl<K: Resource + Clone> Reflector<K> {
    /// Takes in one event and says what changed. An object in a relist with the same resourceVersion as
    /// before is no change.
    pub fn observe(&mut self, event: watcher::Event<K>) -> Vec<Change<K>> {
        match event {
            watcher::Event::Init => {
                self.listed = Some(Vec::new());
                Vec::new()
            }
            watcher::Event::InitApply(object) => {
                if let Some(listed) = &mut self.listed {
                    listed.push(object);
                }
                Vec::new()
            }
            watcher::Event::InitDone => self.replace(),
            watcher::Event::Apply(object) => {
                self.objects.insert(Identity::of(&object).packed(), version(&object));
                vec![Change::Put(object)]
            }
            watcher::Event::Delete(object) => {
                let identity = Identity::of(&object);
                self.objects.remove(&identity.packed());
                vec![Change::Deleted(identity)]
            }
        }
    }

    fn replace(&mut self) -> Vec<Change<K>> {
        let listed = self.listed.take().unwrap_or_default();
        let objects = listed.iter().map(|object| (Identity::of(object).packed(), version(object))).collect();
        let before = std::mem::replace(&mut self.objects, objects);
        let gone = before.keys().filter(|identity| !self.objects.contains_key(&**identity));
        let mut changes: Vec<_> = gone.map(|packed| Change::Deleted(Identity::unpacked(packed))).collect();
        for object in listed {
            if before.get(&Identity::of(&object).packed()) != Some(&version(&object)) {
                changes.push(Change::Put(object));
            }
        }
        if !self.synced {
            self.synced = true;
            changes.push(Change::Synced);
        }
        changes
    }
}

/// The watch options of the simulators. It is part of the same process or on the same machine, so that no connection to
/// it dies unheard, and a watch may last for a day without signs of life. Those, and watches that were begun anew every
/// five minutes, were most of what a quiet cluster did.
pub fn for_a_day() -> watcher::Config {
    watcher::Config::default().timeout(24 * 3600).disable_bookmarks()
}

/// Follows the objects of `api` that `config` selects, for ever. Failures of the connection are logged and
/// retried with a growing delay; managed fields are dropped at once, as they outweigh everything else.
pub fn follow<K>(api: Api<K>, config: watcher::Config) -> BoxStream<'static, Change<K>>
where
    K: Resource + Clone + DeserializeOwned + std::fmt::Debug + Send + 'static,
{
    let events = watcher(api, config).backoff(ReflectorBackoff::default());
    changes(events, Reflector::default()).boxed()
}

/// Follows objects that matter only while they are new, such as Events, and keeps nothing of them: deletions are not
/// reported, and of a relist only what was written since. The resourceVersions of one kind are compared as numbers, as
/// clients may (KEP-5504).
pub fn follow_new<K>(api: Api<K>, config: watcher::Config) -> BoxStream<'static, K>
where
    K: Resource + Clone + DeserializeOwned + std::fmt::Debug + Send + 'static,
{
    let events = watcher(api, config).backoff(ReflectorBackoff::default());
    events
        .scan(Newest::default(), |newest, event| {
            let object = match event {
                Ok(event) => newest.observe(event),
                Err(error) => {
                    tracing::warn!(%error, "a watch failed; retrying with backoff");
                    None
                }
            };
            std::future::ready(Some(object))
        })
        .filter_map(std::future::ready)
        .boxed()
}

/// The newest resourceVersions.
#[derive(Debug, Default)]
struct Newest {
    /// Of all objects so far.
    seen: u64,
    /// When the present relist began.
    before: u64,
}

impl Newest {
    fn observe<K: Resource>(&mut self, event: watcher::Event<K>) -> Option<K> {
        let (object, before) = match event {
            watcher::Event::Init => {
                self.before = self.seen;
                return None;
            }
            watcher::Event::InitDone | watcher::Event::Delete(_) => return None,
            // A list is sorted by name.
            watcher::Event::InitApply(object) => (object, self.before),
            watcher::Event::Apply(object) => (object, 0),
        };
        let version = version(&object).parse().unwrap_or(u64::MAX);
        if version != u64::MAX {
            self.seen = self.seen.max(version);
        }
        (version > before).then_some(object)
    }
}

fn changes<K>(
    events: impl Stream<Item = watcher::Result<watcher::Event<K>>> + Send + 'static,
    reflector: Reflector<K>,
) -> impl Stream<Item = Change<K>> + Send
where
    K: Resource + Clone + Send + 'static,
{
    events
        .scan(reflector, |reflector, event| {
            let changes = match event {
                Ok(event) => {
                    reflector.observe(event.modify(|object| object.meta_mut().managed_fields = None))
                }
                Err(error) => {
                    tracing::warn!(%error, "a watch failed; retrying with backoff");
                    Vec::new()
                }
            };
            std::future::ready(Some(futures::stream::iter(changes)))
        })
        .flatten()
}

fn version<K: Resource>(object: &K) -> Box<str> {
    object.meta().resource_version.as_deref().unwrap_or_default().into()
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;

    use super::*;

    fn object(name: &str, uid: &str, version: &str) -> ConfigMap {
        let mut object = ConfigMap::default();
        object.metadata.name = Some(name.to_owned());
        object.metadata.uid = Some(uid.to_owned());
        object.metadata.resource_version = Some(version.to_owned());
        object
    }

    fn relist(reflector: &mut Reflector<ConfigMap>, objects: &[ConfigMap]) -> Vec<Change<ConfigMap>> {
        reflector.observe(watcher::Event::Init);
        for object in objects {
            reflector.observe(watcher::Event::InitApply(object.clone()));
        }
        reflector.observe(watcher::Event::InitDone)
    }

    #[test]
    fn a_relist_reports_only_deleted_and_changed_objects() {
        let mut reflector = Reflector::default();
        let (kept, lost) = (object("kept", "u1", "1"), object("lost", "u2", "2"));
        assert_eq!(
            relist(&mut reflector, &[kept.clone(), lost.clone()]),
            vec![Change::Put(kept.clone()), Change::Put(lost.clone()), Change::Synced]
        );
        let changed = object("new", "u3", "3");
        assert_eq!(
            relist(&mut reflector, &[kept, changed.clone()]),
            vec![Change::Deleted(Identity::of(&lost)), Change::Put(changed)]
        );
    }

    #[test]
    fn of_objects_that_matter_while_they_are_new_a_relist_reports_the_newer_ones() {
        let mut newest = Newest::default();
        let mut observe = |event| newest.observe(event).and_then(|object: ConfigMap| object.metadata.name);
        observe(watcher::Event::Init);
        assert_eq!(observe(watcher::Event::InitApply(object("b", "u1", "7"))).unwrap(), "b");
        assert_eq!(observe(watcher::Event::InitApply(object("c", "u2", "5"))).unwrap(), "c");
        observe(watcher::Event::InitDone);
        assert_eq!(observe(watcher::Event::Apply(object("d", "u3", "9"))).unwrap(), "d");
        assert_eq!(observe(watcher::Event::Delete(object("b", "u1", "10"))), None);
        observe(watcher::Event::Init);
        assert_eq!(observe(watcher::Event::InitApply(object("a", "u4", "11"))).unwrap(), "a");
        assert_eq!(observe(watcher::Event::InitApply(object("c", "u2", "5"))), None);
        assert_eq!(observe(watcher::Event::InitApply(object("d", "u3", "10"))).unwrap(), "d");
    }

    #[test]
    fn an_identity_is_packed_into_one_text() {
        let cluster_scoped = Identity::of(&object("web", "u1", "1"));
        let namespaced = Identity { namespace: "shop".to_owned(), ..cluster_scoped.clone() };
        for identity in [namespaced, cluster_scoped] {
            assert_eq!(Identity::unpacked(&identity.packed()), identity);
        }
    }

    #[test]
    fn a_recreated_object_is_one_deletion_and_one_addition() {
        let mut reflector = Reflector::default();
        let (first, second) = (object("web", "u1", "1"), object("web", "u2", "5"));
        relist(&mut reflector, std::slice::from_ref(&first));
        assert_eq!(
            relist(&mut reflector, std::slice::from_ref(&second)),
            vec![Change::Deleted(Identity::of(&first)), Change::Put(second)]
        );
    }
}
