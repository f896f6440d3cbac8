//! Lists and watches in protobuf, decoded while they arrive: see [`super::watch_decoder`] and
//! [`super::list_decoder`] for the same in JSON.
//!
//! A list is the envelope of `runtime.Unknown` around a `PodList` or another list: its metadata in field 1, its items in
//! field 2. A watch is a sequence of `WatchEvent` messages, each behind its length in four bytes (upstream:
//! `k8s.io/apimachinery/pkg/runtime/serializer/protobuf` and `.../streaming`).

use bytes::{Buf, Bytes, BytesMut};
use kube::core::Status;
use kube::core::response::{StatusCause, StatusDetails, StatusSummary};

use super::encoding::DecodeError;
use super::list_decoder::{ListMeta, Part};
use super::watch_decoder::{INITIAL_EVENTS_END, Identity, WatchEvent};
use crate::model::protobuf::{Fields, MAGIC, Malformed, Value, find, unwrap_object};
use crate::model::record::Encoded;
use crate::model::wire::{Text, Version, parse_resource_version};
use crate::model::{ObjectKey, Uid};

/// Cuts chunks of bytes into the events of a watch.
#[derive(Debug)]
pub(crate) struct ProtobufEventSplitter {
    pending: BytesMut,
    longest: usize,
}

impl ProtobufEventSplitter {
    pub(crate) fn new(longest: usize) -> Self {
        ProtobufEventSplitter { pending: BytesMut::new(), longest }
    }

    pub(crate) fn push(&mut self, chunk: &[u8]) {
        self.pending.extend_from_slice(chunk);
    }

    /// The next complete event.
    pub(crate) fn next(&mut self) -> Result<Option<Bytes>, DecodeError> {
        let Some(prefix) = self.pending.first_chunk::<4>() else { return Ok(None) };
        let length = usize::try_from(u32::from_be_bytes(*prefix)).unwrap_or(usize::MAX);
        if length > self.longest {
            return Err(DecodeError::TooLong(self.longest));
        }
        if self.pending.len() < 4 + length {
            return Ok(None);
        }
        self.pending.advance(4);
        Ok(Some(self.pending.split_to(length).freeze()))
    }

    /// Whether the watch ended in the middle of an event.
    pub(crate) fn is_cut(&self) -> bool {
        !self.pending.is_empty()
    }
}

/// Reads one event of a watch.
pub(crate) fn watch_event(event: &[u8]) -> Result<WatchEvent<'_>, DecodeError> {
    let (mut kind, mut object) = (Text::default(), &[][..]);
    for field in Fields(event) {
        match field? {
            (1, value) => kind = value.text()?,
            // A RawExtension, whose only field is the object.
            (2, value) => object = find(value.bytes()?, 1)?.map_or(Ok(&[][..]), Value::bytes)?,
            _ => {}
        }
    }
    let object = unwrap_object(object)?;
    Ok(match kind.as_str() {
        "ADDED" | "MODIFIED" => WatchEvent::Put(Encoded::Protobuf(object)),
        "DELETED" => WatchEvent::Delete(Encoded::Protobuf(object)),
        "BOOKMARK" => {
            let meta = Partial::of(object)?;
            let version = Version::read(meta.version.as_str())?;
            WatchEvent::Bookmark { version, ends_list: ends_list(object)? }
        }
        "ERROR" => WatchEvent::Error(status(object)?.boxed()),
        other => WatchEvent::Unknown(other.chars().take(64).collect()),
    })
}

/// The fields that any object has.
#[derive(Default)]
struct Partial<'a> {
    namespace: Text<'a>,
    name: Text<'a>,
    uid: Text<'a>,
    version: Text<'a>,
}

impl<'a> Partial<'a> {
    /// Reads these fields and no others: it also identifies an object that is malformed elsewhere.
    fn of(object: &'a [u8]) -> Result<Self, Malformed> {
        let mut partial = Partial::default();
        let Some(metadata) = find(object, 1)? else { return Ok(partial) };
        for field in Fields(metadata.bytes()?) {
            match field? {
                (1, value) => partial.name = value.text()?,
                (3, value) => partial.namespace = value.text()?,
                (5, value) => partial.uid = value.text()?,
                (6, value) => partial.version = value.text()?,
                _ => {}
            }
        }
        Ok(partial)
    }
}

/// Whether a bookmark has the annotation that ends a streaming list.
fn ends_list(bookmark: &[u8]) -> Result<bool, Malformed> {
    let Some(metadata) = find(bookmark, 1)? else { return Ok(false) };
    let mut ends = false;
    for field in Fields(metadata.bytes()?) {
        if let (12, value) = field? {
            let entry = value.bytes()?;
            let is = |number, text| {
                let part = find(entry, number)?.map(Value::text).transpose()?;
                Ok::<_, Malformed>(part.is_some_and(|part| part.as_str() == text))
            };
            ends |= is(1, INITIAL_EVENTS_END)? && is(2, "true")?;
        }
    }
    Ok(ends)
}

/// The identity of an object that could not be decoded.
pub(crate) fn identity(object: &[u8]) -> Option<Identity> {
    let Partial { namespace, name, uid, version, .. } = Partial::of(object).ok()?;
    if name.as_str().is_empty() {
        return None;
    }
    Some(Identity {
        key: ObjectKey::new(namespace.as_str(), name.as_str()),
        uid: Uid::new(uid.as_str()),
        version: parse_resource_version(version.as_str()).ok()?,
    })
}

/// Reads a `metav1.Status`, without its envelope.
///
/// # Errors
/// When the bytes are no such message.
pub(crate) fn status(message: &[u8]) -> Result<Status, Malformed> {
    let mut status = Status::failure("", "");
    for field in Fields(message) {
        match field? {
            (2, value) if value.text()?.as_str() == "Success" => status.status = Some(StatusSummary::Success),
            (3, value) => status.message = value.text()?.0.into_owned(),
            (4, value) => status.reason = value.text()?.0.into_owned(),
            (5, value) => status.details = Some(details(value.bytes()?)?),
            (6, value) => status.code = u16::try_from(value.int32()?).unwrap_or_default(),
            _ => {}
        }
    }
    Ok(status)
}

fn details(message: &[u8]) -> Result<StatusDetails, Malformed> {
    let mut details = StatusDetails {
        name: String::new(),
        group: String::new(),
        kind: String::new(),
        uid: String::new(),
        causes: Vec::new(),
        retry_after_seconds: 0,
    };
    for field in Fields(message) {
        match field? {
            (1, value) => details.name = value.text()?.0.into_owned(),
            (2, value) => details.group = value.text()?.0.into_owned(),
            (3, value) => details.kind = value.text()?.0.into_owned(),
            (4, value) => details.causes.push(cause(value.bytes()?)?),
            (5, value) => details.retry_after_seconds = value.int32()?.max(0).cast_unsigned(),
            (6, value) => details.uid = value.text()?.0.into_owned(),
            _ => {}
        }
    }
    Ok(details)
}

fn cause(message: &[u8]) -> Result<StatusCause, Malformed> {
    let mut cause = StatusCause { reason: String::new(), message: String::new(), field: String::new() };
    for field in Fields(message) {
        match field? {
            (1, value) => cause.reason = value.text()?.0.into_owned(),
            (2, value) => cause.message = value.text()?.0.into_owned(),
            (3, value) => cause.field = value.text()?.0.into_owned(),
            _ => {}
        }
    }
    Ok(cause)
}

/// Where in the list the next byte is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ParserState {
    /// In front of the magic.
    Front,
    /// Between the fields of the envelope.
    Envelope,
    /// Between the fields of the list, of which so many bytes are left.
    List(usize),
}

/// The head of a field: its number, and how long the head and the whole field are.
struct Head {
    number: u64,
    head: usize,
    /// `None` for a field that is not bytes; such a field is within its head.
    payload: Option<usize>,
}

/// Reads the head of a field; `None` while it has not arrived as a whole.
fn head(bytes: &[u8]) -> Result<Option<Head>, Malformed> {
    // No head is longer: two numbers of ten bytes.
    const LONGEST_HEAD: usize = 20;
    match Fields::head(bytes) {
        Ok((number, payload, rest)) => Ok(Some(Head { number, head: bytes.len() - rest.len(), payload })),
        Err(_) if bytes.len() < LONGEST_HEAD => Ok(None),
        Err(error) => Err(error),
    }
}

/// Splits a list while it arrives, so that a list of any length needs the memory of its largest object.
#[derive(Debug)]
pub(crate) struct ProtobufListDecoder {
    pending: BytesMut,
    place: ParserState,
    longest: usize,
    meta: Option<ListMeta>,
    /// Whether the list itself has begun.
    has_list: bool,
}

impl ProtobufListDecoder {
    /// Refuses fields of more than `longest` bytes.
    pub(crate) fn new(longest: usize) -> Self {
        ProtobufListDecoder {
            pending: BytesMut::new(),
            place: ParserState::Front,
            longest,
            meta: None,
            has_list: false,
        }
    }

    pub(crate) fn push(&mut self, chunk: &[u8]) {
        self.pending.extend_from_slice(chunk);
    }

    /// The next part that is complete.
    pub(crate) fn next(&mut self) -> Result<Option<Part>, DecodeError> {
        loop {
            match self.place {
                ParserState::Front => {
                    if self.pending.len() < MAGIC.len() {
                        return Ok(None);
                    }
                    if self.pending.split_to(MAGIC.len()) != MAGIC {
                        return Err(Malformed("the magic is missing").into());
                    }
                    self.place = ParserState::Envelope;
                }
                ParserState::List(0) => self.place = ParserState::Envelope,
                ParserState::Envelope => {
                    let Some(Head { number, head, payload }) = self.head()? else { return Ok(None) };
                    if let (2, Some(length)) = (number, payload) {
                        self.pending.advance(head);
                        (self.place, self.has_list) = (ParserState::List(length), true);
                    } else if self.field(head, payload)?.is_none() {
                        return Ok(None);
                    }
                }
                ParserState::List(left) => {
                    let Some(Head { number, head, payload }) = self.head()? else { return Ok(None) };
                    let length = head + payload.unwrap_or_default();
                    let left =
                        left.checked_sub(length).ok_or(Malformed("an item is longer than its list"))?;
                    let Some(field) = self.field(head, payload)? else { return Ok(None) };
                    self.place = ParserState::List(left);
                    match number {
                        1 => {
                            let meta = list_meta(&field)?;
                            self.meta = Some(meta.clone());
                            return Ok(Some(Part::Meta(meta)));
                        }
                        2 => return Ok(Some(Part::Item(field))),
                        _ => {}
                    }
                }
            }
        }
    }

    fn head(&self) -> Result<Option<Head>, DecodeError> {
        Ok(head(&self.pending)?)
    }

    /// Takes the payload of the current field; `None` while it has not arrived completely.
    fn field(&mut self, head: usize, payload: Option<usize>) -> Result<Option<Bytes>, DecodeError> {
        let payload = payload.unwrap_or_default();
        if payload > self.longest {
            return Err(DecodeError::TooLong(self.longest));
        }
        if self.pending.len() < head + payload {
            return Ok(None);
        }
        self.pending.advance(head);
        Ok(Some(self.pending.split_to(payload).freeze()))
    }

    /// The metadata of the list, after its end.
    pub(crate) fn finish(self) -> Result<ListMeta, DecodeError> {
        let is_whole = self.has_list && matches!(self.place, ParserState::Envelope | ParserState::List(0));
        match self.meta {
            _ if !is_whole || !self.pending.is_empty() => Err(Malformed("the list is cut off").into()),
            Some(meta) => Ok(meta),
            None => Err(Malformed("the list has no metadata").into()),
        }
    }
}

fn list_meta(message: &[u8]) -> Result<ListMeta, DecodeError> {
    let (mut version, mut next) = (Text::default(), Text::default());
    for field in Fields(message) {
        match field? {
            (2, value) => version = value.text()?,
            (3, value) => next = value.text()?,
            _ => {}
        }
    }
    let version = Version::read(version.as_str())?;
    Ok(ListMeta { version, next: Some(next.0.into_owned()).filter(|token| !token.is_empty()) })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn bytes(number: u8, payload: &[u8]) -> Vec<u8> {
        let mut field = vec![number << 3 | 2];
        let mut length = payload.len();
        while length >= 0x80 {
            field.push((length & 0x7f) as u8 | 0x80);
            length >>= 7;
        }
        field.push(length as u8);
        [field, payload.to_vec()].concat()
    }

    fn enveloped(message: &[u8]) -> Vec<u8> {
        let type_meta = [bytes(1, b"v1"), bytes(2, b"PodList")].concat();
        [MAGIC.to_vec(), bytes(1, &type_meta), bytes(2, message), bytes(3, b""), bytes(4, b"")].concat()
    }

    fn a_list(items: &[&[u8]]) -> Vec<u8> {
        let meta = [bytes(2, b"42"), bytes(3, b"next")].concat();
        let items = items.iter().map(|item| bytes(2, item));
        enveloped(&std::iter::once(bytes(1, &meta)).chain(items).collect::<Vec<_>>().concat())
    }

    /// The items of a list that comes in chunks of `size` bytes, and its metadata.
    fn decoded(list: &[u8], size: usize, longest: usize) -> Result<(Vec<Bytes>, ListMeta), DecodeError> {
        let mut decoder = ProtobufListDecoder::new(longest);
        let mut items = Vec::new();
        for chunk in list.chunks(size) {
            decoder.push(chunk);
            while let Some(part) = decoder.next()? {
                if let Part::Item(item) = part {
                    items.push(item);
                }
            }
        }
        decoder.finish().map(|meta| (items, meta))
    }

    #[test]
    fn the_items_of_a_list_are_found_wherever_its_chunks_are_cut() {
        let (short, long) = (b"a".repeat(3), b"b".repeat(300));
        let list = a_list(&[&short, &long, b""]);
        for size in 1..list.len() {
            let (items, meta) = decoded(&list, size, 1000).unwrap();
            assert_eq!(items, [&short[..], &long, b""], "{size}");
            assert_eq!(meta, ListMeta { version: Version::Number(42), next: Some("next".into()) });
        }
    }

    #[test]
    fn a_list_that_is_cut_off_is_no_list() {
        let list = a_list(&[b"abc"]);
        let whole = list.len() - bytes(3, b"").len() - bytes(4, b"").len();
        for length in 0..whole {
            assert!(decoded(&list[..length], 7, 1000).is_err(), "{length}");
        }
        assert!(decoded(&list, 7, 1000).is_ok());
    }

    #[test]
    fn an_item_that_is_too_long_is_an_error_before_it_is_memory() {
        let list = a_list(&[&b"a".repeat(300)]);
        assert!(matches!(decoded(&list[..40], 7, 200), Err(DecodeError::TooLong(200))));
    }

    fn an_event(kind: &[u8], object: &[u8]) -> Vec<u8> {
        let event = [bytes(1, kind), bytes(2, &bytes(1, object))].concat();
        [&(event.len() as u32).to_be_bytes()[..], &event].concat()
    }

    #[test]
    fn events_are_found_wherever_the_chunks_are_cut() {
        let stream = [an_event(b"ADDED", &enveloped(b"")), an_event(b"DELETED", &enveloped(b""))].concat();
        for size in 1..stream.len() {
            let mut events = ProtobufEventSplitter::new(100);
            let mut found = Vec::new();
            for chunk in stream.chunks(size) {
                events.push(chunk);
                while let Some(event) = events.next().unwrap() {
                    found.push(match watch_event(&event).unwrap() {
                        WatchEvent::Put(_) => "put",
                        WatchEvent::Delete(_) => "delete",
                        _ => "other",
                    });
                }
            }
            assert_eq!((found, events.is_cut()), (vec!["put", "delete"], false));
        }
        let mut events = ProtobufEventSplitter::new(100);
        events.push(&stream[..5]);
        assert!(matches!(events.next(), Ok(None)) && events.is_cut());
    }

    #[test]
    fn an_event_without_end_is_an_error_before_it_is_memory() {
        let mut events = ProtobufEventSplitter::new(100);
        events.push(&[0, 0, 0, 101]);
        assert!(matches!(events.next(), Err(DecodeError::TooLong(100))));
    }

    #[test]
    fn a_bookmark_tells_the_position_and_whether_it_ends_the_list() {
        for (value, expected) in [(&b"true"[..], true), (b"false", false)] {
            let annotation = [bytes(1, INITIAL_EVENTS_END.as_bytes()), bytes(2, value)].concat();
            let metadata = [bytes(6, b"7"), bytes(12, &annotation)].concat();
            let event = an_event(b"BOOKMARK", &enveloped(&bytes(1, &metadata)));
            let Ok(WatchEvent::Bookmark { version: Version::Number(7), ends_list }) =
                watch_event(&event[4..])
            else {
                panic!()
            };
            assert_eq!(ends_list, expected);
        }
    }

    #[test]
    fn an_object_is_identified_whatever_its_annotations_are() {
        let identity_fields = [bytes(1, b"web"), bytes(3, b"shop"), bytes(5, b"u"), bytes(6, b"7")].concat();
        let not_utf8 = bytes(12, &[bytes(1, b"a"), bytes(2, &[0xff])].concat());
        let cut_off = bytes(12, &[0x0a, 9]);
        let number = vec![12 << 3, 1];
        for annotation in [not_utf8, cut_off, number] {
            let object = bytes(1, &[identity_fields.clone(), annotation].concat());
            let Identity { key, uid, version } = identity(&object).unwrap();
            assert_eq!((key.to_string().as_str(), uid, version), ("shop/web", Uid::new("u"), 7));
        }
    }

    #[test]
    fn an_error_is_read_with_what_the_server_asks_for() {
        let details = [bytes(4, &bytes(1, b"ResourceVersionTooLarge")), vec![5 << 3, 9]].concat();
        let message = [
            bytes(2, b"Failure"),
            bytes(3, b"too old"),
            bytes(4, b"Expired"),
            bytes(5, &details),
            vec![6 << 3, 0x9a, 3],
        ];
        let event = an_event(b"ERROR", &enveloped(&message.concat()));
        let Ok(WatchEvent::Error(status)) = watch_event(&event[4..]) else { panic!() };
        assert_eq!((status.code, &*status.reason, &*status.message), (410, "Expired", "too old"));
        let details = status.details.unwrap();
        assert_eq!((details.retry_after_seconds, &*details.causes[0].reason), (9, "ResourceVersionTooLarge"));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused_without_a_panic(
            chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..10),
            has_magic in any::<bool>(),
        ) {
            let (mut events, mut list) = (ProtobufEventSplitter::new(64), ProtobufListDecoder::new(64));
            if has_magic {
                list.push(MAGIC);
            }
            let (mut watching, mut listing) = (true, true);
            for chunk in chunks {
                events.push(&chunk);
                list.push(&chunk);
                while watching {
                    match events.next() {
                        Ok(Some(event)) => { let _ = watch_event(&event).is_ok(); }
                        Ok(None) => break,
                        Err(_) => watching = false,
                    }
                }
                while listing {
                    match list.next() {
                        Ok(Some(_)) => {}
                        Ok(None) => break,
                        Err(_) => listing = false,
                    }
                }
                let _ = (status(&chunk).is_ok(), identity(&chunk).is_some());
            }
        }
    }
}
