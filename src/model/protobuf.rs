//! The fields of a protobuf message, one after the other, borrowed from the message's own bytes.
//!
//! Pods are most of what a daemon reads. In JSON an API server spends three times as long to write them, and every byte
//! of them has to be parsed; here a field that no record keeps is one length to skip. Crates that decode
//! protobuf build whole objects, or copy each string; this needs neither, and a varint is ten lines.
//!
//! The encoding: <https://protobuf.dev/programming-guides/encoding/>. Groups are not used by Kubernetes and are refused.

use std::borrow::Cow;

use jiff::Timestamp;
use serde::de::Error as _;

use super::wire::Text;

/// The magic in front of an object in `application/vnd.kubernetes.protobuf`.
pub const MAGIC: &[u8] = b"k8s\0";

/// The bytes are no message of the kind that was expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("malformed protobuf: {0}")]
pub struct Malformed(pub &'static str);

impl From<Malformed> for serde_json::Error {
    fn from(error: Malformed) -> Self {
        serde_json::Error::custom(error)
    }
}

/// The value of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value<'a> {
    /// A number, a boolean or an enum.
    Number(u64),
    /// A string, bytes or another message.
    Bytes(&'a [u8]),
    /// A number of fixed width. No field that a record keeps is one.
    Fixed,
}

impl<'a> Value<'a> {
    /// The bytes of a message.
    ///
    /// # Errors
    /// When the field holds a number.
    pub fn bytes(self) -> Result<&'a [u8], Malformed> {
        match self {
            Value::Bytes(bytes) => Ok(bytes),
            _ => Err(Malformed("a number in place of a message or a string")),
        }
    }

    /// A string. Each byte that is not UTF-8 becomes U+FFFD, as in the JSON of the same object: an API server checks
    /// neither annotations nor messages, and an object must not be missing in a cache for one byte.
    ///
    /// # Errors
    /// When the field holds a number.
    pub fn text(self) -> Result<Text<'a>, Malformed> {
        let bytes = self.bytes()?;
        Ok(Text(std::str::from_utf8(bytes).map_or_else(|_| Cow::Owned(lossy(bytes)), Cow::Borrowed)))
    }

    fn number(self) -> Result<u64, Malformed> {
        match self {
            Value::Number(number) => Ok(number),
            _ => Err(Malformed("no number where one is expected")),
        }
    }

    /// An `int64`: the two's complement of what is on the wire.
    ///
    /// # Errors
    /// When the field holds no number.
    pub fn int64(self) -> Result<i64, Malformed> {
        self.number().map(u64::cast_signed)
    }

    /// An `int32`. Higher bits are cut off, as Go's decoder does.
    ///
    /// # Errors
    /// When the field holds no number.
    #[allow(clippy::cast_possible_truncation)] // That is the rule.
    pub fn int32(self) -> Result<i32, Malformed> {
        self.number().map(|number| (number as u32).cast_signed())
    }

    /// A `bool`.
    ///
    /// # Errors
    /// When the field holds no number.
    pub fn boolean(self) -> Result<bool, Malformed> {
        self.number().map(|number| number != 0)
    }

    /// A `metav1.Time`: seconds and nanoseconds. The empty message stands for no time.
    ///
    /// # Errors
    /// When it is no such message.
    pub fn time(self) -> Result<Option<Timestamp>, Malformed> {
        let (mut seconds, mut nanoseconds) = (0, 0);
        for field in Fields(self.bytes()?) {
            match field? {
                (1, value) => seconds = value.int64()?,
                (2, value) => nanoseconds = value.int32()?,
                _ => {}
            }
        }
        if (seconds, nanoseconds) == (0, 0) {
            return Ok(None);
        }
        // The API server stores days that no timestamp has: the last ones of the year 9999.
        let nearest = if seconds < 0 { Timestamp::MIN } else { Timestamp::MAX };
        Ok(Some(Timestamp::new(seconds, nanoseconds).unwrap_or(nearest)))
    }
}

/// Replaces each byte that is not UTF-8, where [`String::from_utf8_lossy`] replaces the beginning of a character as one.
fn lossy(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        text.extend(chunk.invalid().iter().map(|_| char::REPLACEMENT_CHARACTER));
    }
    text
}

/// The fields of a message: their numbers and values, in the order of the wire.
#[derive(Clone, Copy, Debug)]
pub struct Fields<'a>(pub &'a [u8]);

impl<'a> Fields<'a> {
    fn varint(&mut self) -> Result<u64, Malformed> {
        // Most tags and lengths are one byte.
        if let [first @ 0..=0x7f, rest @ ..] = self.0 {
            self.0 = rest;
            return Ok((*first).into());
        }
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let (first, rest) = self.0.split_first().ok_or(Malformed("a number is cut off"))?;
            self.0 = rest;
            number |= u64::from(first & 0x7f) << shift;
            if *first < 0x80 {
                return Ok(number);
            }
        }
        Err(Malformed("a number has more than 64 bits"))
    }

    fn take(&mut self, length: u64) -> Result<&'a [u8], Malformed> {
        let end = usize::try_from(length).ok().filter(|end| *end <= self.0.len());
        let (taken, rest) = self.0.split_at(end.ok_or(Malformed("a field is longer than its message"))?);
        self.0 = rest;
        Ok(taken)
    }

    /// The head of the first field: its number; how many bytes follow, if it holds bytes; and what follows. A number
    /// is part of the head.
    ///
    /// # Errors
    /// When the head is malformed, or not there as a whole.
    pub fn head(message: &'a [u8]) -> Result<(u64, Option<usize>, &'a [u8]), Malformed> {
        let mut fields = Fields(message);
        let tag = fields.varint()?;
        if tag & 7 == 2 {
            let length = fields.varint()?;
            let length =
                usize::try_from(length).map_err(|_| Malformed("a field is longer than its message"))?;
            return Ok((tag >> 3, Some(length), fields.0));
        }
        let mut fields = Fields(message);
        let (number, _) = fields.field()?;
        Ok((number, None, fields.0))
    }

    fn field(&mut self) -> Result<(u64, Value<'a>), Malformed> {
        let tag = self.varint()?;
        let value = match tag & 7 {
            0 => Value::Number(self.varint()?),
            1 => self.take(8).map(|_| Value::Fixed)?,
            2 => {
                let length = self.varint()?;
                Value::Bytes(self.take(length)?)
            }
            5 => self.take(4).map(|_| Value::Fixed)?,
            _ => return Err(Malformed("a group or an unknown type")),
        };
        match tag >> 3 {
            0 => Err(Malformed("a field without a number")),
            number => Ok((number, value)),
        }
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = Result<(u64, Value<'a>), Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let field = self.field();
        if field.is_err() {
            self.0 = &[];
        }
        Some(field)
    }
}

/// The last field of this number, if the message has it.
///
/// # Errors
/// When the message is malformed.
pub fn find(message: &[u8], number: u64) -> Result<Option<Value<'_>>, Malformed> {
    let mut found = None;
    for field in Fields(message) {
        let (at, value) = field?;
        found = if at == number { Some(value) } else { found };
    }
    Ok(found)
}

/// The object within the envelope of `application/vnd.kubernetes.protobuf` (upstream: `runtime.Unknown`).
///
/// # Errors
/// When the magic or the object is missing.
pub fn unwrap_object(bytes: &[u8]) -> Result<&[u8], Malformed> {
    let envelope = bytes.strip_prefix(MAGIC).ok_or(Malformed("the magic is missing"))?;
    match find(envelope, 2)? {
        Some(raw) => raw.bytes(),
        // An object without any field.
        None => Ok(&[]),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn fields(bytes: &[u8]) -> Result<Vec<(u64, Value<'_>)>, Malformed> {
        Fields(bytes).collect()
    }

    #[test]
    fn fields_come_in_the_order_of_the_wire() {
        let bytes = [0x0a, 2, b'h', b'i', 0x10, 0xac, 0x02, 0x19, 0, 0, 0, 0, 0, 0, 0, 0, 0x25, 0, 0, 0, 0];
        let expected =
            vec![(1, Value::Bytes(b"hi")), (2, Value::Number(300)), (3, Value::Fixed), (4, Value::Fixed)];
        assert_eq!(fields(&bytes), Ok(expected));
    }

    #[test]
    fn negative_numbers_have_ten_bytes() {
        let bytes = [0x08, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01];
        let value = find(&bytes, 1).unwrap().unwrap();
        assert_eq!((value.int32(), value.int64(), value.boolean()), (Ok(-1), Ok(-1), Ok(true)));
    }

    #[test]
    fn what_is_cut_off_or_too_long_is_refused() {
        for bytes in
            [&[0x0a, 3, b'h', b'i'][..], &[0x08], &[0x08, 0x80], &[0x0a], &[0x19, 0], &[0x25, 0], &[0x02, 0]]
        {
            assert!(fields(bytes).is_err(), "{bytes:?}");
        }
        let endless = [0x08, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff];
        assert_eq!(fields(&endless), Err(Malformed("a number has more than 64 bits")));
        let huge = [0x0a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01];
        assert_eq!(fields(&huge), Err(Malformed("a field is longer than its message")));
    }

    #[test]
    fn groups_are_refused() {
        assert!(fields(&[0x0b]).is_err());
        assert!(fields(&[0x0c]).is_err());
    }

    #[test]
    fn the_empty_time_is_no_time_and_one_out_of_range_the_nearest() {
        assert_eq!(Value::Bytes(&[]).time(), Ok(None));
        assert_eq!(Value::Bytes(&[0x08, 0, 0x10, 0]).time(), Ok(None));
        assert_eq!(Value::Bytes(&[0x08, 60]).time(), Ok(Some(Timestamp::from_second(60).unwrap())));
        let out_of_range = [0x08, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f];
        assert_eq!(Value::Bytes(&out_of_range).time(), Ok(Some(Timestamp::MAX)));
    }

    #[test]
    fn bytes_that_are_not_utf8_become_replacement_characters() {
        let text = |bytes| Value::Bytes(bytes).text().unwrap().0;
        assert!(matches!(text("häß".as_bytes()), Cow::Borrowed("häß")));
        assert_eq!(text(b"a\xffb"), "a\u{fffd}b");
        // Go writes one for each byte of a character that is cut off.
        assert_eq!(text(b"\xe2\x82"), "\u{fffd}\u{fffd}");
        assert!(Value::Number(1).text().is_err());
    }

    #[test]
    fn an_object_is_taken_out_of_its_envelope() {
        assert_eq!(unwrap_object(b"k8s\0\x0a\x00\x12\x02hi\x1a\x00"), Ok(&b"hi"[..]));
        assert_eq!(unwrap_object(b"k8s\0"), Ok(&b""[..]));
        assert!(unwrap_object(b"{}").is_err());
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            for field in Fields(&bytes) {
                let Ok((_, value)) = field else { break };
                let _ = (value.time(), value.text(), value.int32(), value.boolean());
            }
        }
    }
}
