//! Pod templates: raw JSON that is compared by meaning and copied without decoding.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::value::{RawValue, to_raw_value};

use super::intern::Interner;
use super::meta::StringMap;
use super::template_equality::Fingerprint;
use super::wire::Pairs;

/// The label that distinguishes the pods of one ReplicaSet from those of its siblings.
pub const POD_TEMPLATE_HASH: &str = "pod-template-hash";

/// A pod template: the JSON as the API server sent it, and the labels of its pods.
///
/// The JSON is kept compressed (LZ4): it is most of what a ReplicaSet costs, a history holds many that nobody
/// reads, and only writes need it. The price is some microseconds for each decoded object and for each use.
#[derive(Clone, Debug)]
pub struct Template {
    /// Shared, so that a record can be changed without copying its template.
    packed: Arc<[u8]>,
    /// The labels its pods will carry.
    pub labels: Arc<StringMap>,
    meaning: Fingerprint,
}

#[derive(Deserialize)]
struct TemplateWire<'a> {
    #[serde(borrow, default)]
    metadata: Option<TemplateMetaWire<'a>>,
}

#[derive(Deserialize)]
struct TemplateMetaWire<'a> {
    #[serde(borrow, default)]
    labels: Pairs<'a>,
}

impl Template {
    /// Reads a template.
    ///
    /// # Errors
    /// When it is no object, or its labels are no strings.
    pub fn decode(raw: &RawValue, interner: &mut Interner) -> Result<Self, serde_json::Error> {
        let wire: TemplateWire<'_> = serde_json::from_str(raw.get())?;
        let labels = wire.metadata.unwrap_or(TemplateMetaWire { labels: Pairs::default() }).labels;
        Ok(Template {
            packed: lz4_flex::compress_prepend_size(raw.get().as_bytes()).into(),
            labels: labels.intern(interner),
            meaning: Fingerprint::of(raw)?,
        })
    }

    /// Reads a template that may be absent, which then is `{}`.
    ///
    /// # Errors
    /// As for [`Template::decode`].
    pub fn decode_or_empty(
        raw: Option<&RawValue>,
        interner: &mut Interner,
    ) -> Result<Self, serde_json::Error> {
        match raw {
            Some(raw) => Template::decode(raw, interner),
            None => Template::decode(&serde_json::from_str::<Box<RawValue>>("{}")?, interner),
        }
    }

    /// The fingerprint of the template's meaning.
    pub fn meaning(&self) -> Fingerprint {
        self.meaning
    }

    /// The template's JSON.
    pub fn json(&self) -> String {
        // Text that was packed here can be unpacked. Were it not so, readers would find no object and say so.
        let json = lz4_flex::decompress_size_prepended(&self.packed).unwrap_or_default();
        String::from_utf8(json).unwrap_or_default()
    }

    /// The bytes of heap that the JSON and the labels take.
    pub(crate) fn heap_bytes(&self) -> usize {
        self.packed.len() + self.labels.shared_bytes()
    }

    /// The template's JSON with other labels; every other field is copied byte for byte.
    ///
    /// # Errors
    /// When the template is not the object that it was decoded as; cannot happen to a decoded one.
    pub fn with_labels(&self, labels: &BTreeMap<&str, &str>) -> Result<Box<RawValue>, serde_json::Error> {
        let json = self.json();
        let mut template: BTreeMap<&str, Box<RawValue>> = serde_json::from_str(&json)?;
        let mut metadata: BTreeMap<&str, Box<RawValue>> = match template.get("metadata") {
            Some(metadata) => serde_json::from_str::<Option<_>>(metadata.get())?.unwrap_or_default(),
            None => BTreeMap::new(),
        };
        metadata.insert("labels", to_raw_value(labels)?);
        let metadata = to_raw_value(&metadata)?;
        template.insert("metadata", metadata);
        to_raw_value(&template)
    }

    /// The template's JSON without one of its labels.
    ///
    /// # Errors
    /// As for [`Template::with_labels`].
    pub fn without_label(&self, label: &str) -> Result<Box<RawValue>, serde_json::Error> {
        self.with_labels(&self.labels.iter().filter(|(key, _)| *key != label).collect())
    }

    /// Whether two templates ask for the same pods: equal but for the hash label, with null, absent
    /// and empty taken as one (kubernetes#26797: never compare by the hash in the label).
    pub fn asks_for_the_same_as(&self, other: &Template) -> bool {
        self.meaning == other.meaning
    }

    /// The value of the hash label for this template: 32 bits of its meaning and of the number of
    /// collisions so far, in letters that make no words.
    ///
    /// Only new names come from it. It is stable: a golden test pins some values, because a hash that
    /// changes between releases made duplicate ReplicaSets upstream (kubernetes#40415).
    pub fn hash(&self, collision_count: Option<i32>) -> String {
        let mut hash = fnv1a_32(FNV_32_BASIS, &self.meaning.to_bytes());
        if let Some(count) = collision_count {
            hash = fnv1a_32(hash, &count.to_le_bytes());
        }
        safe_encode(&hash.to_string())
    }
}

impl PartialEq for Template {
    fn eq(&self, other: &Self) -> bool {
        self.packed == other.packed
    }
}

impl Eq for Template {}

const FNV_32_BASIS: u32 = 0x811c_9dc5;

fn fnv1a_32(basis: u32, bytes: &[u8]) -> u32 {
    bytes.iter().fold(basis, |hash, &byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

/// The characters of generated names: no vowels and none that are mistaken for another, so that
/// chance spells no words. Upstream's alphabet (apimachinery `util/rand`).
pub const SAFE_ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";

/// A number as letters that make no words.
pub(crate) fn safe_encode(text: &str) -> String {
    text.bytes().map(|byte| char::from(SAFE_ALPHABET[usize::from(byte) % SAFE_ALPHABET.len()])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn template(json: &str) -> Template {
        let raw: Box<RawValue> = serde_json::from_str(json).unwrap();
        Template::decode(&raw, &mut Interner::default()).unwrap()
    }

    #[track_caller]
    fn check(a: &str, b: &str, same: bool) {
        assert_eq!(template(a).asks_for_the_same_as(&template(b)), same, "{a}\n{b}");
    }

    #[test]
    fn the_hash_label_the_order_and_what_is_empty_do_not_count() {
        check(
            r#"{"metadata":{"creationTimestamp":null,"labels":{"app":"web"}},"spec":{"nodeSelector":{},"containers":[{"name":"a","image":"b","env":[]}]}}"#,
            r#"{"spec":{"containers":[{"image":"b","name":"a"}]},"metadata":{"labels":{"pod-template-hash":"x","app":"web"}}}"#,
            true,
        );
    }

    #[test]
    fn every_other_difference_counts() {
        let base = r#"{"spec":{"containers":[{"name":"a","image":"b"}]}}"#;
        check(base, r#"{"spec":{"containers":[{"name":"a","image":"c"}]}}"#, false);
        check(base, r#"{"spec":{"containers":[{"name":"a","image":"b","newThing":1}]}}"#, false);
        check(
            base,
            r#"{"metadata":{"annotations":{"x":""}},"spec":{"containers":[{"name":"a","image":"b"}]}}"#,
            false,
        );
        // The order of a list is meaning.
        check(r#"{"spec":{"args":["a","b"]}}"#, r#"{"spec":{"args":["b","a"]}}"#, false);
    }

    #[test]
    fn an_empty_object_with_a_meaning_counts() {
        check(r#"{"spec":{"x":{"namespaceSelector":{}}}}"#, r#"{"spec":{"x":{}}}"#, false);
        check(r#"{"spec":{"tolerations":[{}]}}"#, r#"{"spec":{"tolerations":[]}}"#, false);
    }

    #[test]
    fn hashes_are_the_same_in_every_release() {
        let template = template(
            r#"{"metadata":{"labels":{"app":"web"}},"spec":{"containers":[{"name":"a","image":"b"}]}}"#,
        );
        assert_eq!(template.hash(None), "5845dc84b4");
        assert_eq!(template.hash(Some(1)), "5c79cdc545");
    }

    #[test]
    fn fnv_gives_its_published_value() {
        assert_eq!(fnv1a_32(FNV_32_BASIS, b"foobar"), 0xbf9c_f968);
    }
}
