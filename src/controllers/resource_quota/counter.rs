//! Counts the objects of one resource by their metadata.

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use prometheus::IntCounter;

use crate::model::metadata::Metadata;
use crate::model::record::Encoded;
use crate::model::wire::Version;
use crate::runtime::reflector::{Accept, Destination};
use crate::runtime::request;

/// The number of objects of a resource in each namespace, as its watch shows it.
#[derive(Debug, Default)]
pub(super) struct Counter {
    /// By namespace; none before the first list is complete.
    counts: Mutex<Option<BTreeMap<Arc<str>, usize>>>,
    /// The version that they show.
    position: AtomicU64,
}

impl Counter {
    /// The objects of a namespace; `None` before the first list is complete.
    pub(super) fn of(&self, namespace: &str) -> Option<usize> {
        Some(self.counts.lock().as_ref()?.get(namespace).copied().unwrap_or(0))
    }

    /// The version that the counts show.
    pub(super) fn position(&self) -> u64 {
        self.position.load(Ordering::Acquire)
    }

    fn change(&self, namespace: &Arc<str>, change: impl FnOnce(&mut usize)) {
        let mut counts = self.counts.lock();
        let Some(counts) = counts.as_mut() else { return };
        let count = counts.entry(namespace.clone()).or_default();
        change(count);
        if *count == 0 {
            counts.remove(namespace);
        }
    }
}

/// Called with a change: the namespace, or none after a list; and whether there is one object more.
type Tell = Box<dyn Fn(Option<&str>, bool) + Send>;

/// The destination of the lists and watches of a resource.
///
/// A watch does not say whether an object is new, and a list that follows a break shows what is left. So the objects are known by a
/// hash of their UID, which takes some 30 bytes of each.
pub(super) struct CountWriter {
    counter: Arc<Counter>,
    tell: Tell,
    hasher: RandomState,
    /// The namespace of each object.
    objects: HashMap<u64, Arc<str>>,
    /// Those that the list under way has shown.
    listed: Option<HashMap<u64, Arc<str>>>,
    namespaces: BTreeMap<Arc<str>, ()>,
    /// The last version, if it was no number: the watch goes on from there.
    opaque: Option<Version>,
    undecodable: IntCounter,
}

impl CountWriter {
    pub(super) fn new(counter: Arc<Counter>, undecodable: IntCounter, tell: Tell) -> Self {
        CountWriter {
            counter,
            tell,
            hasher: RandomState::new(),
            objects: HashMap::new(),
            listed: None,
            namespaces: BTreeMap::new(),
            opaque: None,
            undecodable,
        }
    }

    fn decode<'a>(&self, object: Encoded<'a>) -> Option<(u64, Metadata<'a>)> {
        match Metadata::read(object) {
            // One without a UID is known by its name, of which there is one at a time.
            Ok(metadata) if !metadata.has_uid() => {
                let name = (metadata.namespace.as_str(), metadata.name.as_str());
                Some((self.hasher.hash_one(name), metadata))
            }
            Ok(metadata) => Some((self.hasher.hash_one(&metadata.uid), metadata)),
            Err(error) => {
                self.undecodable.inc();
                tracing::debug!(%error, "an object without readable metadata is not counted");
                None
            }
        }
    }

    fn namespace(&mut self, name: &str) -> Arc<str> {
        if let Some((known, ())) = self.namespaces.get_key_value(name) {
            return known.clone();
        }
        let namespace: Arc<str> = name.into();
        self.namespaces.insert(namespace.clone(), ());
        namespace
    }

    fn advance(&mut self, metadata: &Metadata<'_>) {
        if let Ok(version) = Version::read(metadata.resource_version.as_str()) {
            self.advance_to(&version);
        }
    }

    fn advance_to(&mut self, version: &Version) {
        match version {
            _ if self.is_listing() => {}
            Version::Number(number) => {
                self.opaque = None;
                self.counter.position.fetch_max(*number, Ordering::AcqRel);
            }
            Version::Other(_) => self.opaque = Some(version.clone()),
        }
    }
}

impl Destination for CountWriter {
    fn accept(&self) -> Accept {
        let (list, watch) = (request::METADATA_LIST_PROTOBUF, request::METADATA_PROTOBUF);
        Accept { list, watch, list_in_json: request::METADATA_LIST, watch_in_json: request::METADATA }
    }

    fn may_be_removed(&self) -> bool {
        true
    }

    fn position(&self) -> u64 {
        self.counter.position()
    }

    fn resumes_at(&self) -> Version {
        self.opaque.clone().unwrap_or(Version::Number(self.position()))
    }

    fn takes_any_version(&self) -> bool {
        true
    }

    fn len(&self) -> usize {
        self.listed.as_ref().unwrap_or(&self.objects).len()
    }

    fn is_listing(&self) -> bool {
        self.listed.is_some()
    }

    fn begin_list(&mut self, _: bool) {
        self.listed = Some(HashMap::new());
    }

    fn end_list(&mut self, version: &Version) {
        self.objects = self.listed.take().unwrap_or_default();
        let mut counts: BTreeMap<Arc<str>, usize> = BTreeMap::new();
        for namespace in self.objects.values() {
            *counts.entry(namespace.clone()).or_default() += 1;
        }
        self.namespaces = counts.keys().map(|namespace| (namespace.clone(), ())).collect();
        *self.counter.counts.lock() = Some(counts);
        // Beside versions that cannot be compared, 1 says that there has been a list, and that nothing else is known.
        let position = version.number().unwrap_or_else(|_| self.position().max(1));
        self.counter.position.store(position, Ordering::Release);
        self.opaque = Some(version.clone()).filter(|version| version.number().is_err());
        (self.tell)(None, false);
    }

    fn put(&mut self, object: Encoded<'_>) {
        let Some((id, metadata)) = self.decode(object) else { return };
        let namespace = self.namespace(metadata.namespace.as_str());
        match &mut self.listed {
            Some(listed) => drop(listed.insert(id, namespace)),
            None => {
                if self.objects.insert(id, namespace.clone()).is_none() {
                    self.counter.change(&namespace, |count| *count += 1);
                    (self.tell)(Some(&namespace), true);
                }
            }
        }
        self.advance(&metadata);
    }

    fn delete(&mut self, object: Encoded<'_>) {
        let Some((id, metadata)) = self.decode(object) else { return };
        match &mut self.listed {
            Some(listed) => drop(listed.remove(&id)),
            None => {
                if let Some(namespace) = self.objects.remove(&id) {
                    self.counter.change(&namespace, |count| *count = count.saturating_sub(1));
                    (self.tell)(Some(&namespace), false);
                }
            }
        }
        self.advance(&metadata);
    }

    fn bookmark(&mut self, version: &Version) {
        self.advance_to(version);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::Metrics;

    fn object(namespace: &str, uid: &str, version: u64) -> String {
        format!(
            r#"{{"metadata":{{"name":"{uid}","namespace":"{namespace}","uid":"{uid}","resourceVersion":"{version}"}}}}"#
        )
    }

    #[test]
    fn objects_are_counted_once_whatever_a_watch_repeats_and_a_list_leaves_out() {
        let counter = Arc::<Counter>::default();
        let told = Arc::new(Mutex::new(Vec::new()));
        let log = told.clone();
        let tell = move |namespace: Option<&str>, is_more| {
            log.lock().push((namespace.unwrap_or_default().to_owned(), is_more));
        };
        let undecodable = Metrics::new().informer_undecodable.with_label_values(&["", "things"]);
        let mut writer = CountWriter::new(counter.clone(), undecodable.clone(), Box::new(tell));
        let put = |writer: &mut CountWriter, namespace: &str, uid: &str, version| {
            writer.put(Encoded::from(&object(namespace, uid, version)));
        };
        writer.begin_list(false);
        put(&mut writer, "shop", "a", 1);
        put(&mut writer, "shop", "b", 2);
        assert_eq!(counter.of("shop"), None, "a list is under way");
        writer.end_list(&Version::Number(5));
        assert_eq!((counter.of("shop"), counter.of("other"), writer.position()), (Some(2), Some(0), 5));
        put(&mut writer, "shop", "a", 6);
        put(&mut writer, "shop", "c", 7);
        put(&mut writer, "other", "d", 8);
        assert_eq!((counter.of("shop"), counter.of("other"), writer.position()), (Some(3), Some(1), 8));
        writer.delete(Encoded::from(&object("shop", "b", 9)));
        writer.delete(Encoded::from(&object("shop", "b", 9)));
        writer.put(Encoded::from("{}"));
        assert_eq!((counter.of("shop"), undecodable.get()), (Some(2), 1));
        // The watch has missed the deletions of all but one.
        writer.begin_list(false);
        put(&mut writer, "shop", "c", 7);
        assert_eq!(counter.of("shop"), Some(2));
        writer.end_list(&Version::Number(20));
        assert_eq!((counter.of("shop"), counter.of("other")), (Some(1), Some(0)));
        let expected = [("", false), ("shop", true), ("other", true), ("shop", false), ("", false)];
        assert_eq!(*told.lock(), expected.map(|(namespace, is_more)| (namespace.to_owned(), is_more)));
    }
}
