//! Object metadata, trimmed: identity, version, labels and the one owner that controls the object.

use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;
use serde::{Serialize, Serializer};

use super::texts::Texts;

/// The prefix of the annotations of ours, most of which are rollout policies.
pub const POLICY_PREFIX: &str = "windlass.dev/";

/// Names an object of one kind: `namespace/name`. Cheap to clone; the strings are shared.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ObjectKey {
    /// The namespace; empty for a cluster-scoped object.
    pub namespace: Arc<str>,
    /// The name within the namespace.
    pub name: Arc<str>,
}

impl ObjectKey {
    /// Names an object.
    pub fn new(namespace: impl Into<Arc<str>>, name: impl Into<Arc<str>>) -> Self {
        ObjectKey { namespace: namespace.into(), name: name.into() }
    }
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.namespace.is_empty() {
            f.write_str(&self.name)
        } else {
            write!(f, "{}/{}", self.namespace, self.name)
        }
    }
}

impl fmt::Debug for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// An object's identity for its whole life: a name may be used again, a UID never is.
///
/// A UUID in its usual lower-case form takes 16 bytes and no allocation. Anything else is kept as it
/// is: the API server makes UUIDs, but an owner reference may hold any non-empty string.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Uid {
    /// `8-4-4-4-12` lower-case hexadecimal digits.
    Uuid([u8; 16]),
    /// Any other string.
    Other(Arc<str>),
}

/// Where the hyphens of a UUID stand.
const HYPHENS: [usize; 4] = [8, 13, 18, 23];

impl Uid {
    /// Reads a UID. Never fails: what is not a UUID is kept as a string.
    pub fn new(text: &str) -> Self {
        match parse_uuid(text.as_bytes()) {
            Some(bytes) => Uid::Uuid(bytes),
            None => Uid::Other(text.into()),
        }
    }
}

impl Uid {
    pub(super) fn heap_bytes(&self) -> usize {
        match self {
            Uid::Uuid(_) => 0,
            Uid::Other(text) => text.len(),
        }
    }
}

fn parse_uuid(text: &[u8]) -> Option<[u8; 16]> {
    if text.len() != 36 {
        return None;
    }
    let mut bytes = [0u8; 16];
    let mut digits = 0;
    for (at, &c) in text.iter().enumerate() {
        if HYPHENS.contains(&at) {
            if c != b'-' {
                return None;
            }
            continue;
        }
        // Upper-case digits are refused, so that two different strings never become one UID.
        let digit = match c {
            b'0'..=b'9' => c - b'0',
            b'a'..=b'f' => c - b'a' + 10,
            _ => return None,
        };
        bytes[digits / 2] = bytes[digits / 2] << 4 | digit;
        digits += 1;
    }
    Some(bytes)
}

impl fmt::Display for Uid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Uid::Other(text) => f.write_str(text),
            Uid::Uuid(bytes) => {
                for (at, byte) in bytes.iter().enumerate() {
                    if matches!(at, 4 | 6 | 8 | 10) {
                        f.write_str("-")?;
                    }
                    write!(f, "{byte:02x}")?;
                }
                Ok(())
            }
        }
    }
}

impl fmt::Debug for Uid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for Uid {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Labels or annotations: pairs sorted by key, shared between the objects that carry the same ones.
#[derive(Clone, Default, PartialEq, Eq, Hash)]
pub struct StringMap(
    /// Each key, and its value behind it.
    Texts,
);

impl StringMap {
    /// The value of `key`.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.0.find(key, 0, 2, self.len()).map(|at| self.0.get(at + 1))
    }

    /// The pairs, in the order of their keys.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        (0..self.len()).map(|at| (self.0.get(2 * at), self.0.get(2 * at + 1)))
    }

    /// How many pairs there are.
    pub fn len(&self) -> usize {
        self.0.len() / 2
    }

    /// Whether there is no pair.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The bytes of heap that the pairs take.
    pub fn heap_bytes(&self) -> usize {
        self.0.heap_bytes()
    }

    /// The part of a shared map's bytes that falls to one of its users. The interner is none.
    pub(crate) fn shared_bytes(self: &Arc<Self>) -> usize {
        shared(self, self.heap_bytes())
    }
}

/// The part of a shared value, which has so many bytes of heap itself, that falls to one of its users.
pub(super) fn shared<T>(value: &Arc<T>, heap_bytes: usize) -> usize {
    let users = Arc::strong_count(value).saturating_sub(1).max(1);
    (size_of::<T>() + 2 * size_of::<usize>() + heap_bytes) / users
}

impl<K: AsRef<str>, V: AsRef<str>> FromIterator<(K, V)> for StringMap {
    /// Of several pairs with one key the last counts, as in JSON.
    fn from_iter<I: IntoIterator<Item = (K, V)>>(pairs: I) -> Self {
        let mut all: Vec<(K, V)> = pairs.into_iter().collect();
        all.sort_by(|a, b| a.0.as_ref().cmp(b.0.as_ref()));
        let is_last = |at: usize| all.get(at + 1).is_none_or(|next| next.0.as_ref() != all[at].0.as_ref());
        let kept = all.iter().enumerate().filter(|(at, _)| is_last(*at));
        StringMap(kept.flat_map(|(_, (key, value))| [key.as_ref(), value.as_ref()]).collect())
    }
}

impl fmt::Debug for StringMap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

impl Serialize for StringMap {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.iter())
    }
}

/// The owner reference with `controller: true`: who manages the object.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ControllerRef {
    /// The owner's `apiVersion`, as written: `apps/v1`.
    pub api_version: Arc<str>,
    /// The owner's kind.
    pub kind: Arc<str>,
    /// The owner's name, in the object's own namespace.
    pub name: Arc<str>,
    /// The owner's UID. It counts with the kind and the namespace alone; see [`Owner`](super::Owner).
    pub uid: Uid,
}

/// Metadata that every record carries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Meta {
    /// Namespace and name.
    pub key: ObjectKey,
    /// Identity.
    pub uid: Uid,
    /// The revision of the last write, comparable within one kind (KEP-5504).
    pub resource_version: u64,
    /// Counts changes of the spec.
    pub generation: i64,
    /// When the API server stored the object first.
    pub created: Timestamp,
    /// When a graceful deletion is due; `Some` means that the object is being deleted.
    pub deletion: Option<Timestamp>,
    /// Labels.
    pub labels: Arc<StringMap>,
    /// The controller of the object; `None` makes it an orphan that may be adopted.
    pub controller: Option<Arc<ControllerRef>>,
}

impl Meta {
    /// Whether the object is being deleted.
    pub fn is_deleting(&self) -> bool {
        self.deletion.is_some()
    }

    /// About how many bytes of heap it takes, with its part of what it shares with others.
    pub(crate) fn heap_bytes(&self) -> usize {
        let controller = self.controller.as_ref().map_or(0, |reference| {
            let ControllerRef { api_version, kind, name, uid } = &**reference;
            shared(reference, api_version.len() + kind.len() + name.len() + uid.heap_bytes())
        });
        self.key.name.len() + self.uid.heap_bytes() + self.labels.shared_bytes() + controller
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uuid_survives_the_way_through_its_bytes() {
        let text = "0f8fad5b-d9cb-469f-a165-70867728950e";
        assert!(matches!(Uid::new(text), Uid::Uuid(_)));
        assert_eq!(Uid::new(text).to_string(), text);
    }

    #[test]
    fn a_non_canonical_uid_is_kept_as_text_and_stays_different() {
        for text in
            ["", "abc", "0F8FAD5B-D9CB-469F-A165-70867728950E", "0f8fad5bd9cb469fa16570867728950e0000"]
        {
            assert_eq!(Uid::new(text).to_string(), text);
            assert!(matches!(Uid::new(text), Uid::Other(_)));
        }
    }

    #[test]
    fn a_string_map_is_sorted_and_the_last_of_equal_keys_counts() {
        let map: StringMap = [("b", "1"), ("a", "2"), ("b", "3")].into_iter().collect();
        assert_eq!(map.iter().collect::<Vec<_>>(), [("a", "2"), ("b", "3")]);
        assert_eq!(map.get("b"), Some("3"));
        assert_eq!(map.get("c"), None);
    }
}
