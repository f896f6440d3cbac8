//! Decodes a list while it arrives, so that a list of any length needs the memory of its largest object.
//!
//! Only the list's own structure is read here: `metadata`, and the elements of `items`, in either order. Each element
//! is passed on unchanged and decoded alone.

use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use serde::Deserialize;
use serde::de::Error as _;
use serde_json::value::RawValue;

use super::encoding::{DecodeError, LONGEST_LINE, is_protobuf};
use super::protobuf_decoder::ProtobufListDecoder;
use crate::model::record::Encoded;
use crate::model::wire::{Text, Version};

/// The metadata of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ListMeta {
    /// The version that the list shows; the same on all its pages.
    pub(crate) version: Version,
    /// Where the next page begins, if there is one.
    pub(crate) next: Option<String>,
}

#[derive(Deserialize)]
struct MetaWire<'a> {
    #[serde(borrow, default, rename = "resourceVersion")]
    resource_version: Text<'a>,
    #[serde(borrow, default, rename = "continue")]
    next: Text<'a>,
}

#[derive(Deserialize)]
struct ListWire<'a> {
    #[serde(borrow)]
    metadata: MetaWire<'a>,
}

impl ListMeta {
    /// Reads it from a list that has arrived completely.
    pub(crate) fn read(list: &[u8]) -> Result<Self, DecodeError> {
        let ListWire { metadata } = serde_json::from_slice(list)?;
        ListMeta::of(metadata)
    }

    fn of(MetaWire { resource_version, next }: MetaWire<'_>) -> Result<Self, DecodeError> {
        let next = Some(next.0.into_owned()).filter(|token| !token.is_empty());
        Ok(ListMeta { version: Version::read(resource_version.as_str())?, next })
    }
}

/// The next part of a list.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Meta(ListMeta),
    /// One object: its JSON, which is well formed, or its protobuf message.
    Item(Bytes),
}

impl Part {
    /// An object's JSON as text. It was checked when the part was made.
    pub(crate) fn text(item: &Bytes) -> &str {
        std::str::from_utf8(item).unwrap_or_default()
    }
}

/// Splits a list in the encoding that the server chose.
#[derive(Debug)]
pub(crate) enum AnyListDecoder {
    Json(ListDecoder),
    Protobuf(ProtobufListDecoder),
}

impl AnyListDecoder {
    /// For an answer with these headers.
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        match is_protobuf(headers) {
            true => AnyListDecoder::Protobuf(ProtobufListDecoder::new(LONGEST_LINE)),
            false => AnyListDecoder::Json(ListDecoder::new(LONGEST_LINE)),
        }
    }

    /// Takes the next chunk, once [`AnyListDecoder::next`] returns nothing more.
    pub(crate) fn push(&mut self, chunk: Bytes) {
        match self {
            AnyListDecoder::Json(list) => list.push(chunk),
            AnyListDecoder::Protobuf(list) => list.push(&chunk),
        }
    }

    /// The next part that is complete.
    pub(crate) fn next(&mut self) -> Result<Option<Part>, DecodeError> {
        match self {
            AnyListDecoder::Json(list) => list.next(),
            AnyListDecoder::Protobuf(list) => list.next(),
        }
    }

    /// An item of this list.
    pub(crate) fn encoded<'a>(&self, item: &'a Bytes) -> Encoded<'a> {
        match self {
            AnyListDecoder::Json(_) => Encoded::Json(Part::text(item)),
            AnyListDecoder::Protobuf(_) => Encoded::Protobuf(item),
        }
    }

    /// The metadata of the list, after its end.
    pub(crate) fn finish(self) -> Result<ListMeta, DecodeError> {
        match self {
            AnyListDecoder::Json(list) => list.finish(),
            AnyListDecoder::Protobuf(list) => list.finish(),
        }
    }
}

/// Where in the list the next byte is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ParserState {
    /// In front of the list.
    Front,
    /// Between the members of the list, in front of a name.
    Name,
    /// Behind a name, in front of the colon.
    Colon,
    /// In front of a member's value.
    Value,
    /// In front of an element of `items`, or the end of them.
    Element,
    /// Behind an element of `items`.
    BehindElement,
    /// Behind a member.
    BehindMember,
    /// Within a name, a value or an element.
    Within(What),
    /// Behind the list.
    End,
}

/// The purpose of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    Name,
    Metadata,
    Item,
    /// The value of `items` where that is no list.
    NoItems,
    Nothing,
}

/// Which member of the list comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Member {
    Items,
    Metadata,
    Other,
}

/// Finds the parts of a list in chunks of bytes.
#[derive(Debug)]
pub(crate) struct ListDecoder {
    chunk: Bytes,
    /// The beginning of a value whose end has not come yet, unless its content does not matter.
    begun: BytesMut,
    /// How long that beginning is.
    length: usize,
    /// How much of the chunk belongs to the value that is being read.
    read: usize,
    place: ParserState,
    member: Member,
    scan: Scan,
    longest: usize,
    meta: Option<ListMeta>,
}

/// How far into a value we are.
#[derive(Clone, Copy, Debug, Default)]
struct Scan {
    depth: usize,
    in_text: bool,
    escaped: bool,
    /// Neither text nor brackets: a number or a word, which ends with what follows it.
    bare: bool,
}

impl Scan {
    fn begin(first: u8) -> Self {
        let nested = matches!(first, b'{' | b'[');
        let in_text = first == b'"';
        Scan { depth: nested.into(), in_text, escaped: false, bare: !nested && !in_text }
    }

    /// How many of the bytes belong to the value, and whether it ends with them.
    fn take(&mut self, bytes: &[u8]) -> (usize, bool) {
        for (at, &byte) in bytes.iter().enumerate() {
            if self.bare {
                if matches!(byte, b',' | b']' | b'}') || byte.is_ascii_whitespace() {
                    return (at, true);
                }
                continue;
            }
            if self.in_text {
                match byte {
                    _ if self.escaped => self.escaped = false,
                    b'\\' => self.escaped = true,
                    b'"' => self.in_text = false,
                    _ => continue,
                }
            } else {
                match byte {
                    b'"' => self.in_text = true,
                    b'{' | b'[' => self.depth += 1,
                    b'}' | b']' => self.depth -= 1,
                    _ => continue,
                }
            }
            if self.depth == 0 && !self.in_text {
                return (at + 1, true);
            }
        }
        (bytes.len(), false)
    }
}

fn malformed(what: &str) -> DecodeError {
    DecodeError::Malformed(serde_json::Error::custom(what))
}

impl ListDecoder {
    /// Refuses values of more than `longest` bytes.
    pub(crate) fn new(longest: usize) -> Self {
        ListDecoder {
            chunk: Bytes::new(),
            begun: BytesMut::new(),
            length: 0,
            read: 0,
            place: ParserState::Front,
            member: Member::Other,
            scan: Scan::default(),
            longest,
            meta: None,
        }
    }

    /// Takes the next chunk, once [`ListDecoder::next`] returns nothing more.
    pub(crate) fn push(&mut self, chunk: Bytes) {
        debug_assert!(self.chunk.is_empty(), "the parts of the last chunk come first");
        self.chunk = chunk;
        self.read = 0;
    }

    /// The next part that is complete.
    pub(crate) fn next(&mut self) -> Result<Option<Part>, DecodeError> {
        loop {
            if let ParserState::Within(what) = self.place {
                let Some(value) = self.value(what)? else { return Ok(None) };
                if let Some(part) = self.end_of(what, value)? {
                    return Ok(Some(part));
                }
                continue;
            }
            let Some(at) = self.chunk.iter().position(|byte| !byte.is_ascii_whitespace()) else {
                self.chunk = Bytes::new();
                return Ok(None);
            };
            let byte = self.chunk[at];
            let begins_value = self.step(byte)?;
            // The byte that begins a value is part of it.
            let _ = self.chunk.split_to(if begins_value { at } else { at + 1 });
            if begins_value {
                self.scan = Scan::begin(byte);
                self.read = 1;
            }
        }
    }

    /// The metadata of the list, after its end.
    pub(crate) fn finish(self) -> Result<ListMeta, DecodeError> {
        match (self.place, self.meta) {
            (ParserState::End, Some(meta)) => Ok(meta),
            (ParserState::End, None) => Err(malformed("the list has no metadata")),
            _ => Err(malformed("the list is cut off")),
        }
    }

    /// Advances by a byte between the values; whether a value begins with it.
    fn step(&mut self, byte: u8) -> Result<bool, DecodeError> {
        self.place = match (self.place, byte) {
            (ParserState::Front, b'{') => ParserState::Name,
            (ParserState::Name, b'"') => ParserState::Within(What::Name),
            (ParserState::Name | ParserState::BehindMember, b'}') => ParserState::End,
            (ParserState::Colon, b':') => ParserState::Value,
            (ParserState::Value, b'[') if self.member == Member::Items => ParserState::Element,
            (ParserState::Value, b',' | b':' | b']' | b'}')
            | (ParserState::Element | ParserState::BehindElement, b':' | b'}') => {
                return Err(malformed("not the structure of a list"));
            }
            (ParserState::Value, _) => ParserState::Within(match self.member {
                Member::Metadata => What::Metadata,
                Member::Items => What::NoItems,
                Member::Other => What::Nothing,
            }),
            (ParserState::Element | ParserState::BehindElement, b']') => {
                self.member = Member::Other;
                ParserState::BehindMember
            }
            (ParserState::BehindElement, b',') => ParserState::Element,
            (ParserState::Element, b',') => return Err(malformed("an element is missing")),
            (ParserState::Element, _) => ParserState::Within(What::Item),
            (ParserState::BehindMember, b',') => ParserState::Name,
            _ => return Err(malformed("not the structure of a list")),
        };
        Ok(matches!(self.place, ParserState::Within(_)))
    }

    /// The value that is being read, once it is complete.
    fn value(&mut self, what: What) -> Result<Option<Bytes>, DecodeError> {
        let (more, ends) = self.scan.take(&self.chunk[self.read..]);
        let read = self.read + more;
        self.length += read;
        if self.length > self.longest {
            return Err(DecodeError::TooLong(self.longest));
        }
        let rest = self.chunk.split_to(read);
        self.read = 0;
        if ends {
            self.length = 0;
            if self.begun.is_empty() {
                return Ok(Some(rest));
            }
            self.begun.extend_from_slice(&rest);
            return Ok(Some(std::mem::take(&mut self.begun).freeze()));
        }
        if what != What::Nothing {
            self.begun.extend_from_slice(&rest);
        }
        Ok(None)
    }

    fn end_of(&mut self, what: What, value: Bytes) -> Result<Option<Part>, DecodeError> {
        match what {
            What::Nothing => self.place = ParserState::BehindMember,
            What::Name => {
                let Text(name) = serde_json::from_slice(&value)?;
                self.member = match &*name {
                    "items" => Member::Items,
                    "metadata" => Member::Metadata,
                    _ => Member::Other,
                };
                self.place = ParserState::Colon;
            }
            What::Metadata => {
                let meta = ListMeta::of(serde_json::from_slice(&value)?)?;
                self.meta = Some(meta.clone());
                self.place = ParserState::BehindMember;
                return Ok(Some(Part::Meta(meta)));
            }
            What::NoItems if &*value == b"null" => self.place = ParserState::BehindMember,
            What::NoItems => return Err(malformed("items are no list")),
            What::Item => {
                // As a whole, so that a cut or garbled object ends the list instead of missing in it.
                let _: &RawValue = serde_json::from_slice(&value)?;
                self.place = ParserState::BehindElement;
                return Ok(Some(Part::Item(value)));
            }
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Splits a list whose bytes come in chunks of this size.
    fn parts(list: &[u8], size: usize, longest: usize) -> Result<(Vec<String>, ListMeta), DecodeError> {
        let mut decoder = ListDecoder::new(longest);
        let mut items = Vec::new();
        for chunk in list.chunks(size.max(1)) {
            decoder.push(Bytes::copy_from_slice(chunk));
            while let Some(part) = decoder.next()? {
                if let Part::Item(item) = part {
                    items.push(Part::text(&item).to_owned());
                }
            }
        }
        Ok((items, decoder.finish()?))
    }

    const LIST: &str = r#" {"kind":"ThingList","apiVersion":"v1", "metadata" : {"resourceVersion":"9","continue":"t"},
        "items": [ {"a":"]}\\\"{","b":[1,{"c":null}]} , {} ,7, "x" ,[]
        ],"more":[[{"items":[1]}]], "n" : -1.5e3 , "t":true}
        "#;

    #[test]
    fn objects_are_found_wherever_the_chunks_are_cut() {
        let list = LIST;
        for size in 1..=list.len() {
            let (items, meta) = parts(list.as_bytes(), size, 100).unwrap();
            assert_eq!(items.len(), 5, "{size}: {items:?}");
            assert_eq!(items[1..], ["{}", "7", "\"x\"", "[]"], "{size}");
            assert!(items[0].starts_with("{\"a\"") && items[0].ends_with("null}]}"), "{size}: {}", items[0]);
            assert_eq!(meta, ListMeta { version: Version::Number(9), next: Some("t".into()) });
        }
    }

    #[test]
    fn the_metadata_may_come_last_and_there_may_be_no_items() {
        let read =
            |list: &str| parts(list.as_bytes(), 3, 100).map(|(items, meta)| (items.len(), meta.version));
        assert_eq!(
            read(r#"{"items":[{}],"metadata":{"resourceVersion":"4"}}"#).unwrap(),
            (1, Version::Number(4))
        );
        assert_eq!(
            read(r#"{"items":null,"metadata":{"resourceVersion":"4"}}"#).unwrap(),
            (0, Version::Number(4))
        );
        assert_eq!(
            read(r#"{"metadata":{"resourceVersion":"4"},"items":[]}"#).unwrap(),
            (0, Version::Number(4))
        );
        assert_eq!(read(r#"{"metadata":{"resourceVersion":"4"}}"#).unwrap(), (0, Version::Number(4)));
        assert_eq!(
            read(r#"{"i\u0074ems":[1],"metadata":{"resourceVersion":"4"}}"#).unwrap(),
            (1, Version::Number(4))
        );
    }

    #[test]
    fn a_list_that_is_cut_off_or_none_is_refused() {
        let whole = r#"{"metadata":{"resourceVersion":"4"},"items":[{"a":1},{"b":2}]}"#;
        for end in 0..whole.len() {
            assert!(parts(&whole.as_bytes()[..end], 7, 100).is_err(), "{}", &whole[..end]);
        }
        for wrong in [
            "[]",
            "null",
            r#"{"items":7,"metadata":{"resourceVersion":"4"}}"#,
            r#"{"items":"what?","metadata":{"resourceVersion":"4"}}"#,
            r#"{"items":[tru],"metadata":{"resourceVersion":"4"}}"#,
            r#"{"items":[{"a":}],"metadata":{"resourceVersion":"4"}}"#,
            r#"{"items":[,],"metadata":{"resourceVersion":"4"}}"#,
            r#"{"items":[]}"#,
            r#"{"metadata":{}}"#,
            r#"{"metadata":{"resourceVersion":"4"}}}"#,
            "<html>",
        ] {
            assert!(parts(wrong.as_bytes(), 5, 100).is_err(), "{wrong}");
        }
        assert!(parts(b"{\"items\":[{\"a\":\"\xff\"}]", 100, 100).is_err(), "invalid UTF-8");
    }

    #[test]
    fn an_object_without_end_is_an_error_before_it_is_memory_and_many_objects_are_none() {
        let list = |items: &str| format!(r#"{{"metadata":{{"resourceVersion":"4"}},"items":[{items}]}}"#);
        let long = list(&format!("\"{}\"", "x".repeat(200)));
        for size in [1, 50, 1000] {
            assert!(matches!(parts(long.as_bytes(), size, 100), Err(DecodeError::TooLong(100))));
            let other = format!("{{\"k\":[{}", "1,".repeat(100));
            assert!(matches!(parts(other.as_bytes(), size, 100), Err(DecodeError::TooLong(100))));
        }
        let many = list(&vec![r#"{"a":1}"#; 1000].join(","));
        assert_eq!(parts(many.as_bytes(), 64, 100).unwrap().0.len(), 1000);
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused_without_a_panic(
            list in r#"[\[\]{}:,"\\ \nainemtsd0-9]{0,60}"#, size in 1usize..9,
        ) {
            let list = format!("{{\"items\":[{list}");
            let _ = parts(list.as_bytes(), size, 50).is_ok();
        }

        #[test]
        fn a_list_is_read_as_if_it_came_at_once(
            items in prop::collection::vec(prop_oneof![Just("{\"a\":[{}]}"), Just("{}"), Just("{\"k\":\"\\\"\"}")], 0..9),
            size in 1usize..40,
        ) {
            let list = format!(r#"{{"metadata":{{"resourceVersion":"4"}},"items":[{}]}}"#, items.join(" , "));
            let (streamed, meta) = parts(list.as_bytes(), size, 100).unwrap();
            prop_assert_eq!(streamed, items);
            prop_assert_eq!(meta, ListMeta::read(list.as_bytes()).unwrap());
        }
    }
}
