//! The format of a watch: its lines, and the fields that any object has.
//!
//! Everything is borrowed from the response's own bytes. An object's JSON is passed on as it is, so
//! that each is decoded alone and one that cannot be decoded does not take the others with it.

use bytes::{Buf, Bytes, BytesMut};
use http::HeaderMap;
use kube::core::Status;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::encoding::{DecodeError, LONGEST_LINE, is_protobuf};
use super::protobuf_decoder::{self, ProtobufEventSplitter};
use crate::model::record::Encoded;
use crate::model::wire::{Pairs, Text, Version, parse_resource_version};
use crate::model::{ObjectKey, Uid};

/// The annotation of the bookmark that ends a streaming list (KEP-3157).
pub(crate) const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";

/// Cuts chunks of bytes into lines. A line that lies within one chunk is not copied.
#[derive(Debug)]
pub(crate) struct LineSplitter {
    chunk: Bytes,
    /// The beginning of a line whose end has not come yet.
    begun: BytesMut,
    longest: usize,
}

impl LineSplitter {
    pub(crate) fn new(longest: usize) -> Self {
        LineSplitter { chunk: Bytes::new(), begun: BytesMut::new(), longest }
    }

    /// Takes the next chunk, once [`LineSplitter::next`] returns nothing more.
    pub(crate) fn push(&mut self, chunk: Bytes) {
        debug_assert!(self.chunk.is_empty(), "the lines of the last chunk come first");
        self.chunk = chunk;
    }

    /// The next complete line that is not empty.
    pub(crate) fn next(&mut self) -> Result<Option<Bytes>, DecodeError> {
        loop {
            let end = self.chunk.iter().position(|&byte| byte == b'\n');
            if self.begun.len() + end.unwrap_or(self.chunk.len()) > self.longest {
                return Err(DecodeError::TooLong(self.longest));
            }
            let Some(end) = end else {
                self.begun.extend_from_slice(&self.chunk);
                self.chunk = Bytes::new();
                return Ok(None);
            };
            let rest = self.chunk.split_to(end);
            self.chunk.advance(1);
            let line = if self.begun.is_empty() {
                rest
            } else {
                self.begun.extend_from_slice(&rest);
                std::mem::take(&mut self.begun).freeze()
            };
            if !line.trim_ascii().is_empty() {
                return Ok(Some(line));
            }
        }
    }

    /// Whether the watch ended in the middle of a line.
    pub(crate) fn is_cut(&self) -> bool {
        !self.begun.trim_ascii().is_empty()
    }
}

/// Cuts chunks of bytes into the events of a watch, in the encoding that the server chose.
#[derive(Debug)]
pub(crate) enum EventSplitter {
    Json(LineSplitter),
    Protobuf(ProtobufEventSplitter),
}

impl EventSplitter {
    /// For an answer with these headers.
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        match is_protobuf(headers) {
            true => EventSplitter::Protobuf(ProtobufEventSplitter::new(LONGEST_LINE)),
            false => EventSplitter::Json(LineSplitter::new(LONGEST_LINE)),
        }
    }

    /// Takes the next chunk, once [`EventSplitter::next`] returns nothing more.
    pub(crate) fn push(&mut self, chunk: Bytes) {
        match self {
            EventSplitter::Json(lines) => lines.push(chunk),
            EventSplitter::Protobuf(events) => events.push(&chunk),
        }
    }

    /// The next complete event.
    pub(crate) fn next(&mut self) -> Result<Option<Bytes>, DecodeError> {
        match self {
            EventSplitter::Json(lines) => lines.next(),
            EventSplitter::Protobuf(events) => events.next(),
        }
    }

    /// Reads an event of this watch.
    pub(crate) fn read<'a>(&self, event: &'a [u8]) -> Result<WatchEvent<'a>, DecodeError> {
        match self {
            EventSplitter::Json(_) => WatchEvent::read(event),
            EventSplitter::Protobuf(_) => protobuf_decoder::watch_event(event),
        }
    }

    /// Whether the watch ended in the middle of an event.
    pub(crate) fn is_cut(&self) -> bool {
        match self {
            EventSplitter::Json(lines) => lines.is_cut(),
            EventSplitter::Protobuf(events) => events.is_cut(),
        }
    }
}

/// One event of a watch.
#[derive(Debug)]
pub(crate) enum WatchEvent<'a> {
    /// `ADDED` or `MODIFIED`: the object.
    Put(Encoded<'a>),
    /// `DELETED`: the object's last state.
    Delete(Encoded<'a>),
    /// Everything up to this version has been sent.
    Bookmark { version: Version, ends_list: bool },
    /// The watch ends with this error.
    Error(Box<Status>),
    /// An unknown type.
    Unknown(String),
}

#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(borrow, rename = "type")]
    kind: Text<'a>,
    #[serde(borrow)]
    object: &'a RawValue,
}

impl WatchEvent<'_> {
    pub(crate) fn read(line: &[u8]) -> Result<WatchEvent<'_>, DecodeError> {
        let Envelope { kind, object } = serde_json::from_slice(line)?;
        Ok(match kind.as_str() {
            "ADDED" | "MODIFIED" => WatchEvent::Put(Encoded::Json(object.get())),
            "DELETED" => WatchEvent::Delete(Encoded::Json(object.get())),
            "BOOKMARK" => {
                let Bookmark { metadata } = serde_json::from_str(object.get())?;
                let version = Version::read(metadata.resource_version.as_str())?;
                let ends_list = metadata.annotations.get(INITIAL_EVENTS_END) == Some("true");
                WatchEvent::Bookmark { version, ends_list }
            }
            "ERROR" => WatchEvent::Error(serde_json::from_str(object.get())?),
            other => WatchEvent::Unknown(other.chars().take(64).collect()),
        })
    }
}

/// The fields of an object that could not be decoded as its kind.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) key: ObjectKey,
    pub(crate) uid: Uid,
    pub(crate) version: u64,
}

#[derive(Deserialize)]
struct Partial<'a> {
    #[serde(borrow)]
    metadata: PartialMeta<'a>,
}

#[derive(Deserialize)]
struct Bookmark<'a> {
    #[serde(borrow)]
    metadata: BookmarkMeta<'a>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct BookmarkMeta<'a> {
    #[serde(borrow, default)]
    resource_version: Text<'a>,
    #[serde(borrow, default)]
    annotations: Pairs<'a>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PartialMeta<'a> {
    #[serde(borrow, default)]
    namespace: Text<'a>,
    #[serde(borrow, default)]
    name: Text<'a>,
    #[serde(borrow, default)]
    uid: Text<'a>,
    #[serde(borrow, default)]
    resource_version: Text<'a>,
}

impl Identity {
    /// Reads it from an object of any kind.
    pub(crate) fn read(object: Encoded<'_>) -> Option<Identity> {
        match object {
            Encoded::Json(json) => Identity::of_json(json),
            Encoded::Protobuf(message) => protobuf_decoder::identity(message),
        }
    }

    fn of_json(json: &str) -> Option<Identity> {
        let Partial { metadata } = serde_json::from_str(json).ok()?;
        if metadata.name.as_str().is_empty() {
            return None;
        }
        Some(Identity {
            key: ObjectKey::new(metadata.namespace.as_str(), metadata.name.as_str()),
            uid: Uid::new(metadata.uid.as_str()),
            version: parse_resource_version(metadata.resource_version.as_str()).ok()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn lines(chunks: &[&[u8]], longest: usize) -> Result<(Vec<String>, bool), DecodeError> {
        let mut lines = LineSplitter::new(longest);
        let mut all = Vec::new();
        for chunk in chunks {
            lines.push(Bytes::copy_from_slice(chunk));
            while let Some(line) = lines.next()? {
                all.push(String::from_utf8_lossy(&line).into_owned());
            }
        }
        Ok((all, lines.is_cut()))
    }

    #[test]
    fn lines_are_found_wherever_the_chunks_are_cut() {
        let (all, cut) = lines(&[b"a\nb", b"c", b"d\n\r\n\n", b"e\n"], 10).unwrap();
        assert_eq!((all, cut), (vec!["a".into(), "bcd".into(), "e".into()], false));
        assert!(lines(&[b"a\nb"], 10).unwrap().1, "the end is missing");
    }

    #[test]
    fn a_line_without_end_is_an_error_before_it_is_memory() {
        assert!(lines(&[b"1234\n"], 4).is_ok());
        assert!(matches!(lines(&[b"12345\n"], 4), Err(DecodeError::TooLong(4))));
        assert!(matches!(lines(&[b"123", b"45"], 4), Err(DecodeError::TooLong(4))));
    }

    #[test]
    fn a_bookmark_has_the_position_and_may_end_the_list() {
        let read = |annotations: &str| {
            let line = format!(
                r#"{{"type":"BOOKMARK","object":{{"metadata":{{"resourceVersion":"7","annotations":{annotations}}}}}}}"#
            );
            match WatchEvent::read(line.as_bytes()).unwrap() {
                WatchEvent::Bookmark { version: Version::Number(7), ends_list } => ends_list,
                other => panic!("{other:?}"),
            }
        };
        assert!(read(r#"{"k8s.io/initial-events-end":"true"}"#));
        assert!(!read("null"));
        assert!(!read(r#"{"k8s.io/initial-events-end":"false"}"#));
    }

    #[test]
    fn a_frame_may_have_its_type_last_and_unknown_types_are_named() {
        assert!(matches!(
            WatchEvent::read(br#"{"object":{"a":1},"type":"ADDED"}"#),
            Ok(WatchEvent::Put(Encoded::Json(r#"{"a":1}"#)))
        ));
        assert!(
            matches!(WatchEvent::read(br#"{"type":"NEWS","object":{}}"#), Ok(WatchEvent::Unknown(t)) if t == "NEWS")
        );
        assert!(matches!(
            WatchEvent::read(br#"{"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired"}}"#),
            Ok(WatchEvent::Error(status)) if status.code == 410
        ));
    }

    #[test]
    fn invalid_utf_8_is_an_error_and_not_a_guess() {
        assert!(WatchEvent::read(b"{\"type\":\"ADDED\",\"object\":{\"a\":\"\xff\"}}").is_err());
    }

    #[test]
    fn an_object_is_identified_whatever_its_annotations_are() {
        for annotations in [r#"{"a":"\ud800"}"#, r#"{"a":1}"#, "[]"] {
            let json = format!(
                r#"{{"metadata":{{"name":"web","namespace":"shop","uid":"u","resourceVersion":"7","annotations":{annotations}}}}}"#
            );
            let Identity { key, version, .. } = Identity::read(Encoded::Json(&json)).unwrap();
            assert_eq!((key.to_string().as_str(), version), ("shop/web", 7));
        }
    }

    #[test]
    fn depth_does_not_overflow_the_stack() {
        let deep = format!(r#"{{"type":"ADDED","object":{}1{}}}"#, "[".repeat(100_000), "]".repeat(100_000));
        let Ok(WatchEvent::Put(Encoded::Json(json))) = WatchEvent::read(deep.as_bytes()) else { return };
        assert!(Identity::read(Encoded::Json(json)).is_none());
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused_without_a_panic(
            chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..10),
        ) {
            let mut lines = LineSplitter::new(64);
            'all: for chunk in chunks {
                lines.push(chunk.into());
                loop {
                    match lines.next() {
                        Ok(Some(line)) => { let _ = WatchEvent::read(&line).is_ok(); }
                        Ok(None) => break,
                        Err(_) => break 'all,
                    }
                }
            }
        }
    }
}
