//! A deserializer for one type only, [`Field`], which knows the path of what it reads. Every type of the API is
//! compiled for it once: `serde_ignored` around `serde_path_to_error` around `serde_json` has the compiler make each
//! visitor of each kind three times, which was 40 % of the machine code of the whole project.

use std::any::type_name;
use std::fmt;
use std::iter::{self, Enumerate};
use std::slice;
use std::sync::LazyLock;

use k8s_openapi::api::apps::v1::DaemonSet;
use serde::de::value::{BorrowedStrDeserializer, MapDeserializer};
use serde::de::{
    DeserializeOwned, DeserializeSeed, Deserializer, Error as _, Expected, MapAccess, SeqAccess, Unexpected,
    Visitor,
};
use serde::forward_to_deserialize_any;
use serde_json::{Error, Value, json};

use super::go_words::Wrong;
use crate::kinds::release;

/// Times that are never missing in Go, where they are no pointers, by type.
const TIMES: [(&str, &str); 2] = [("Condition", "lastTransitionTime"), ("EventSeries", "lastObservedTime")];
/// Go's zero.
static NO_TIME: LazyLock<Value> = LazyLock::new(|| json!("0001-01-01T00:00:00.000000Z"));

/// Where a DaemonSet shows how often its template has changed.
pub(crate) const TEMPLATE_GENERATION: &str = "deprecated.daemonset.template.generation";

/// The path of a field in an object.
pub(crate) type FieldPath = Vec<Segment>;

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Segment {
    Key(String),
    Index(usize),
}

/// Writes a path as users of kubectl know it: `spec.containers[0].image`.
pub(super) struct Dotted<'a>(pub(super) &'a [Segment]);

impl fmt::Display for Dotted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, segment) in self.0.iter().enumerate() {
            match segment {
                Segment::Key(key) if position == 0 => f.write_str(key)?,
                Segment::Key(key) => write!(f, ".{key}")?,
                Segment::Index(index) => write!(f, "[{index}]")?,
            }
        }
        Ok(())
    }
}

/// The parts of an object that are not stored, in the order of the object.
#[derive(Debug, Default)]
pub(crate) struct Surplus {
    /// No field of the type takes these.
    pub(super) unknown: Vec<FieldPath>,
    /// The same where nothing is said of it.
    pub(super) silent: Vec<FieldPath>,
    /// Fields with an empty value, and the types they are of: some of them are left out.
    pub(super) empty: Vec<(&'static str, FieldPath)>,
    /// Items of lists that are null, and the empty values that Go reads them as.
    pub(super) nulls: Vec<(FieldPath, Value)>,
}

/// Decodes for the sake of the errors and of the surplus only.
///
/// # Errors
/// A sentence with the path of the field, except where the object as a whole is wrong.
pub(crate) fn decode_as<T: DeserializeOwned>(object: &Value) -> Result<Surplus, String> {
    let mut tracker = Tracker::default();
    let result = T::deserialize(Field { value: object, of: None, tracker: &mut tracker }).map(drop);
    tracker.judge(result, object)
}

/// Decodes a DaemonSet with the number in its annotation.
pub(crate) fn daemon_set(object: &Value) -> Result<Surplus, String> {
    template_generation(object)?;
    decode_as::<DaemonSet>(object)
}

/// The annotation stands for a field of older versions, which is a number (`pkg/apis/apps/v1/conversion.go`).
fn template_generation(object: &Value) -> Result<(), String> {
    let text = object["metadata"]["annotations"][TEMPLATE_GENERATION].as_str();
    let Some(Err(error)) = text.map(|text| text.parse::<i64>().map_err(|error| (text, error))) else {
        return Ok(());
    };
    use std::num::IntErrorKind::{NegOverflow, PosOverflow};
    let why = match error.1.kind() {
        PosOverflow | NegOverflow => "value out of range",
        _ => "invalid syntax",
    };
    Err(format!("strconv.ParseInt: parsing {:?}: {why}", error.0))
}

/// One step from a value into a part of it.
#[derive(Clone, Copy)]
enum Step<'de> {
    /// With the type that has the field, or `None` for a map.
    Key(&'de str, Option<&'static str>),
    Index(usize),
}

/// Where the deserializer is, and the surplus so far.
#[derive(Default)]
struct Tracker<'de> {
    /// After an error nothing is taken off it: it ends at the field that was wrong.
    path: Vec<Step<'de>>,
    /// The type that a wrong value should have had.
    expected: Option<&'static str>,
    surplus: Surplus,
}

impl<'de> Tracker<'de> {
    /// The one part of [`decode_as`] that does not depend on the type.
    fn judge(self, result: Result<(), Error>, object: &Value) -> Result<Surplus, String> {
        match result {
            Ok(()) => Ok(self.surplus),
            Err(error) if self.path.is_empty() => Err(error.to_string()),
            Err(error) if error.to_string().starts_with("Invalid ") => Err(no_base64(self.value(object))),
            Err(error) => {
                let ours = format!("{}: {error}", Dotted(&self.segments()));
                Err(match self.in_go(object) {
                    Some(go) => format!("{go} ({ours})"),
                    None => ours,
                })
            }
        }
    }

    /// The sentence of Go about the value that is wrong, as far as it is known.
    fn in_go(&self, object: &Value) -> Option<String> {
        let field = |step: &Step<'de>| match *step {
            Step::Key(key, of) => of.map(|of| (of, key)),
            Step::Index(_) => None,
        };
        let fields: Vec<(&'static str, &str)> = self.path.iter().filter_map(field).collect();
        Wrong { fields: &fields, expected: self.expected? }.sentence(self.value(object))
    }

    /// The value at the path.
    fn value<'a>(&self, object: &'a Value) -> &'a Value {
        self.path.iter().fold(object, |at, step| match *step {
            Step::Key(key, _) => &at[key],
            Step::Index(index) => &at[index],
        })
    }

    fn segments(&self) -> Vec<Segment> {
        let owned = |step: &Step<'_>| match *step {
            Step::Key(key, _) => Segment::Key(key.to_owned()),
            Step::Index(index) => Segment::Index(index),
        };
        self.path.iter().map(owned).collect()
    }
}

/// The sentence of Go about a text that is not in base 64. It does not name the field.
fn no_base64(value: &Value) -> String {
    let text = value.as_str().unwrap_or_default();
    let is_known = |byte: u8| byte.is_ascii_alphanumeric() || b"+/=".contains(&byte);
    let is_break = |byte: &u8| matches!(byte, b'\r' | b'\n');
    let wrong = text.bytes().position(|byte| !is_known(byte) && !is_break(&byte));
    // Padding ends a text, and only the last two of four bytes may be padding.
    let padding =
        text.bytes().position(|byte| byte == b'=').filter(|at| at % 4 < 2 || text.len() > at / 4 * 4 + 4);
    let padding = padding.map(|at| if at % 4 < 2 { at } else { (at / 4 + 1) * 4 });
    let wrong = wrong.into_iter().chain(padding).min().unwrap_or(text.len() / 4 * 4);
    format!("illegal base64 data at input byte {wrong}")
}

/// Whether Go has this as the zero of a plain type, a list or a map.
fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Bool(it) => !it,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(map) => map.is_empty(),
    }
}

/// A value at the tracker's path.
struct Field<'de, 't> {
    value: &'de Value,
    /// The type whose field it is; `None` for an item of a list or a map.
    of: Option<&'static str>,
    tracker: &'t mut Tracker<'de>,
}

impl<'de> Field<'de, '_> {
    #[cold]
    fn unlike(self, expected: &dyn Expected, type_name: &'static str) -> Error {
        self.tracker.expected = Some(type_name);
        let unexpected = match self.value {
            Value::Null => Unexpected::Unit,
            Value::Bool(it) => Unexpected::Bool(*it),
            Value::Number(number) => match (number.as_u64(), number.as_i64(), number.as_f64()) {
                (Some(it), ..) => Unexpected::Unsigned(it),
                (None, Some(it), _) => Unexpected::Signed(it),
                (None, None, Some(it)) => Unexpected::Float(it),
                (None, None, None) => Unexpected::Other("number"),
            },
            Value::String(text) => Unexpected::Str(text),
            Value::Array(_) => Unexpected::Seq,
            Value::Object(_) => Unexpected::Map,
        };
        Error::invalid_type(unexpected, expected)
    }

    /// A plain value is read: a number, a text, a list or a map, and no struct.
    fn note_empty(&mut self) {
        if let Some(of) = self.of
            && is_empty(self.value)
        {
            let path = self.tracker.segments();
            self.tracker.surplus.empty.push((of, path));
        }
    }

    /// Whether this is an item of a list or a map that Go reads as `empty`.
    fn is_null_item(&mut self, empty: Value) -> bool {
        let is_item = matches!(self.tracker.path.last(), Some(Step::Index(_) | Step::Key(_, None)));
        let is_one = self.value.is_null() && is_item;
        if is_one {
            let path = self.tracker.segments();
            self.tracker.surplus.nulls.push((path, empty));
        }
        is_one
    }

    fn list<V: Visitor<'de>>(self, items: &'de [Value], visitor: V) -> Result<V::Value, Error> {
        let depth = self.tracker.path.len();
        let mut list = List { items: items.iter().enumerate(), depth, tracker: self.tracker };
        let value = visitor.visit_seq(&mut list)?;
        list.tracker.path.truncate(depth);
        match list.items.len() {
            0 => Ok(value),
            _ => Err(Error::invalid_length(items.len(), &"fewer elements in array")),
        }
    }

    fn object<V: Visitor<'de>>(
        self,
        fields: &'de serde_json::Map<String, Value>,
        of: Option<&'static str>,
        visitor: V,
    ) -> Result<V::Value, Error> {
        let depth = self.tracker.path.len();
        let time = TIMES.iter().find(|(name, time)| of == Some(*name) && !fields.contains_key(*time));
        let missing = time.map(|(_, time)| *time);
        let mut object =
            Object { fields: fields.iter(), missing, value: None, of, depth, tracker: self.tracker };
        let value = visitor.visit_map(&mut object)?;
        object.tracker.path.truncate(depth);
        match object.fields.len() {
            0 => Ok(value),
            _ => Err(Error::invalid_length(fields.len(), &"fewer elements in map")),
        }
    }
}

/// `serde_json` reads what holds no other values, so that its numbers and its sentences stay as they are.
macro_rules! read_by_json {
    ($($method:ident)*) => {
        $(fn $method<V: Visitor<'de>>(mut self, visitor: V) -> Result<V::Value, Error> {
            self.note_empty();
            self.tracker.expected = Some(type_name::<V::Value>());
            self.value.$method(visitor)
        })*
    };
}

impl<'de> Deserializer<'de> for Field<'de, '_> {
    type Error = Error;

    read_by_json! {
        deserialize_bool deserialize_char deserialize_identifier
        deserialize_i8 deserialize_i16 deserialize_i32 deserialize_i64
        deserialize_u8 deserialize_u16 deserialize_u32 deserialize_u64
        deserialize_f32 deserialize_f64 deserialize_unit
    }

    fn deserialize_str<V: Visitor<'de>>(mut self, visitor: V) -> Result<V::Value, Error> {
        if self.is_null_item(json!("")) {
            return visitor.visit_borrowed_str("");
        }
        self.note_empty();
        self.tracker.expected = Some(type_name::<V::Value>());
        self.value.deserialize_str(visitor)
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_str(visitor)
    }

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        let name = type_name::<V::Value>();
        self.tracker.expected = Some(name);
        // Go has a decoder for these schemas that says nothing of unknown fields, and takes anything for items.
        match self.value {
            Value::Object(fields) if name.contains("::JSONSchemaPropsOr") => {
                let before = self.tracker.surplus.unknown.len();
                let field = Field { tracker: &mut *self.tracker, ..self };
                let value = field.object(fields, Some("JSONSchemaProps"), visitor)?;
                let surplus = &mut self.tracker.surplus;
                surplus.silent.extend(surplus.unknown.drain(before..));
                Ok(value)
            }
            Value::Bool(_) | Value::Number(_) | Value::String(_) if name.ends_with("OrArray") => {
                visitor.visit_map(MapDeserializer::new(iter::empty::<((), ())>()))
            }
            Value::Null => visitor.visit_unit(),
            Value::Bool(it) => visitor.visit_bool(*it),
            Value::Number(number) => number.deserialize_any(visitor),
            Value::String(text) => visitor.visit_borrowed_str(text),
            Value::Array(items) => self.list(items, visitor),
            Value::Object(fields) => self.object(fields, None, visitor),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.value {
            Value::Null => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        // Go has this as a struct without fields.
        if name == "CustomResourceSubresourceStatus" {
            let Value::Object(fields) = self.value else {
                return Err(self.unlike(&visitor, type_name::<V::Value>()));
            };
            for field in fields.keys() {
                let mut path = self.tracker.segments();
                path.push(Segment::Key(field.clone()));
                self.tracker.surplus.unknown.push(path);
            }
        }
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_seq<V: Visitor<'de>>(mut self, visitor: V) -> Result<V::Value, Error> {
        self.note_empty();
        match self.value {
            Value::Array(items) => self.list(items, visitor),
            _ => Err(self.unlike(&visitor, type_name::<V::Value>())),
        }
    }

    fn deserialize_map<V: Visitor<'de>>(mut self, visitor: V) -> Result<V::Value, Error> {
        self.note_empty();
        match self.value {
            Value::Object(fields) => self.object(fields, None, visitor),
            _ => Err(self.unlike(&visitor, type_name::<V::Value>())),
        }
    }

    /// A list in its place is refused by the types of the API, in the same words as anything else.
    fn deserialize_struct<V: Visitor<'de>>(
        mut self,
        name: &'static str,
        _fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        if let Value::Object(fields) = self.value {
            return self.object(fields, Some(name), visitor);
        }
        if self.is_null_item(json!({})) {
            return visitor.visit_map(MapDeserializer::new(iter::empty::<((), ())>()));
        }
        Err(self.unlike(&visitor, type_name::<V::Value>()))
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        let path = self.tracker.segments();
        self.tracker.surplus.unknown.push(path);
        visitor.visit_unit()
    }

    // No type of the API asks for these: all of them describe themselves.
    forward_to_deserialize_any! { bytes byte_buf unit_struct tuple tuple_struct enum }
}

/// The items of a list.
struct List<'de, 't> {
    items: Enumerate<slice::Iter<'de, Value>>,
    /// How long the path to the list itself is.
    depth: usize,
    tracker: &'t mut Tracker<'de>,
}

impl<'de> SeqAccess<'de> for List<'de, '_> {
    type Error = Error;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Error> {
        self.tracker.path.truncate(self.depth);
        let Some((index, value)) = self.items.next() else { return Ok(None) };
        self.tracker.path.push(Step::Index(index));
        seed.deserialize(Field { value, of: None, tracker: self.tracker }).map(Some)
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.items.len())
    }
}

/// The fields of an object.
struct Object<'de, 't> {
    fields: serde_json::map::Iter<'de>,
    /// A time that the type needs and the object does not have.
    missing: Option<&'static str>,
    /// That of the key that was asked for last.
    value: Option<&'de Value>,
    /// The type; `None` for a map.
    of: Option<&'static str>,
    /// How long the path to the object itself is.
    depth: usize,
    tracker: &'t mut Tracker<'de>,
}

impl<'de> MapAccess<'de> for Object<'de, '_> {
    type Error = Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Error> {
        let newer = self.of.map_or(&[][..], release::newer);
        loop {
            self.tracker.path.truncate(self.depth);
            let Some((key, value)) = self.fields.next() else {
                let Some(time) = self.missing.take() else { return Ok(None) };
                self.value = Some(&NO_TIME);
                return seed.deserialize(BorrowedStrDeserializer::new(time)).map(Some);
            };
            self.tracker.path.push(Step::Key(key, self.of));
            if newer.contains(&key.as_str()) {
                let path = self.tracker.segments();
                self.tracker.surplus.unknown.push(path);
                continue;
            }
            if self.of.is_some_and(|of| release::GATED.contains(&(of, key.as_str()))) {
                let path = self.tracker.segments();
                self.tracker.surplus.silent.push(path);
                continue;
            }
            self.value = Some(value);
            return seed.deserialize(BorrowedStrDeserializer::new(key)).map(Some);
        }
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Error> {
        let Some(value) = self.value.take() else { return Err(Error::custom("value is missing")) };
        let value = seed.deserialize(Field { value, of: self.of, tracker: self.tracker })?;
        // Reports about the value, such as that it has another kind, go under the path of the object that holds it.
        self.tracker.path.truncate(self.depth);
        Ok(value)
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.fields.len())
    }
}
