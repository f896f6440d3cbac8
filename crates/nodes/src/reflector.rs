//! A local copy of one kind that turns a watcher's events into changes, including the deletions that a
//! relist implies. The watcher of kube-runtime reports a relist only as `Init, InitApply…, InitDone`, so
//! an object that vanished while the connection was down would otherwise never be reported as deleted.

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

/// What happened to the objects of one kind.
#[derive(Clone, Debug, PartialEq)]
pub enum Change<K> {
    /// An object was created, changed, or seen for the first time.
    Put(K),
    /// An object was deleted. This is its last known state.
    Deleted(K),
    /// Everything that existed has been reported by now. Sent once.
    Synced,
}

/// The objects of one kind by UID.
#[derive(Debug)]
pub struct Reflector<K> {
    objects: BTreeMap<String, K>,
    /// What a relist has named so far, in the server's order; `None` outside of one.
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
                let uid = identity(&object);
                self.objects.insert(uid, object.clone());
                vec![Change::Put(object)]
            }
            watcher::Event::Delete(object) => {
                self.objects.remove(&identity(&object));
                vec![Change::Deleted(object)]
            }
        }
    }

    fn replace(&mut self) -> Vec<Change<K>> {
        let listed = self.listed.take().unwrap_or_default();
        let objects = listed.iter().map(|object| (identity(object), object.clone())).collect();
        let before = std::mem::replace(&mut self.objects, objects);
        let mut changes = Vec::new();
        for (uid, old) in &before {
            if !self.objects.contains_key(uid) {
                changes.push(Change::Deleted(old.clone()));
            }
        }
        for object in listed {
            let version = &object.meta().resource_version;
            let known = before.get(&identity(&object));
            if known.is_none_or(|old| old.meta().resource_version != *version) {
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

/// The UID, or the name where a server sends none.
fn identity<K: Resource>(object: &K) -> String {
    let meta = object.meta();
    meta.uid.clone().or_else(|| meta.name.clone()).unwrap_or_default()
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
            vec![Change::Deleted(lost), Change::Put(changed)]
        );
    }

    #[test]
    fn a_recreated_object_is_one_deletion_and_one_addition() {
        let mut reflector = Reflector::default();
        let (first, second) = (object("web", "u1", "1"), object("web", "u2", "5"));
        relist(&mut reflector, std::slice::from_ref(&first));
        assert_eq!(
            relist(&mut reflector, std::slice::from_ref(&second)),
            vec![Change::Deleted(first), Change::Put(second)]
        );
    }
}
