//! What a template means, as 128 bits, computed in one pass over its JSON without building it.
//!
//! Two templates that mean the same have the same fingerprint: the hash label, the order of keys, nulls,
//! empty lists, and `{}` where it says nothing do not count. Two that differ share one with a chance of
//! 2^-128; the price of certainty would be to parse both in every sync, and even the one parse at
//! decode time into a tree costs five times as much as this.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::template::{EMPTY_MEANS_ABSENT, POD_TEMPLATE_HASH};
use super::wire::Text;

/// 128 bits that stand for a template's meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fingerprint(u128);

impl Fingerprint {
    /// The fingerprint of a pod template.
    ///
    /// # Errors
    /// When the template is no JSON object, or is nested more than 128 deep.
    pub fn of(template: &RawValue) -> Result<Self, serde_json::Error> {
        let mut json = serde_json::Deserializer::from_str(template.get());
        match Place::Template.deserialize(&mut json)? {
            Meaning::Something(hash) => Ok(Fingerprint(hash)),
            Meaning::EmptyObject => Ok(Fingerprint(OBJECT)),
            Meaning::Null | Meaning::EmptyList => {
                Err(serde_json::Error::custom("the pod template is not an object"))
            }
        }
    }
}

/// What a value says.
enum Meaning {
    /// A null: as much as if it were not there.
    Null,
    /// `[]`: in a field, as much as if it were not there.
    EmptyList,
    /// `{}`, which means something in some places.
    EmptyObject,
    /// Anything else, hashed.
    Something(u128),
}

/// Where in the template a value stands: the hash label is known by its place.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Template,
    Metadata,
    Labels,
    Elsewhere,
}

impl Place {
    fn of_field(self, name: &str) -> Place {
        match (self, name) {
            (Place::Template, "metadata") => Place::Metadata,
            (Place::Metadata, "labels") => Place::Labels,
            _ => Place::Elsewhere,
        }
    }
}

// What kinds of values begin with, so that `1`, `"1"` and `[1]` differ.
const NULL: u128 = 1;
const FALSE: u128 = 2;
const TRUE: u128 = 3;
const NUMBER: u128 = 4;
const FLOAT: u128 = 5;
const STRING: u128 = 6;
const LIST: u128 = 7;
const OBJECT: u128 = 8;

/// FNV-1a over 128 bits, from any basis.
pub(super) fn fnv1a_128(basis: u128, bytes: &[u8]) -> u128 {
    const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;
    bytes.iter().fold(basis, |hash, &byte| (hash ^ u128::from(byte)).wrapping_mul(PRIME))
}

/// The published starting value of FNV-1a.
pub(super) const BASIS: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;

fn hash(kind: u128, bytes: &[u8]) -> u128 {
    fnv1a_128(BASIS ^ kind, bytes)
}

impl<'de> DeserializeSeed<'de> for Place {
    type Value = Meaning;

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<Meaning, D::Error> {
        json.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Place {
    type Value = Meaning;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E: Error>(self) -> Result<Meaning, E> {
        Ok(Meaning::Null)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Meaning, E> {
        Ok(Meaning::Something(hash(if value { TRUE } else { FALSE }, &[])))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Meaning, E> {
        Ok(Meaning::Something(hash(NUMBER, &i128::from(value).to_le_bytes())))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Meaning, E> {
        Ok(Meaning::Something(hash(NUMBER, &i128::from(value).to_le_bytes())))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Meaning, E> {
        Ok(Meaning::Something(hash(FLOAT, &value.to_bits().to_le_bytes())))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Meaning, E> {
        Ok(Meaning::Something(hash(STRING, value.as_bytes())))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Meaning, A::Error> {
        let mut whole = None;
        while let Some(item) = items.next_element_seed(Place::Elsewhere)? {
            // In a list every item counts, since the place of the others depends on it.
            let item = match item {
                Meaning::Null => NULL,
                Meaning::EmptyList => LIST,
                Meaning::EmptyObject => OBJECT,
                Meaning::Something(hash) => hash,
            };
            whole = Some(fnv1a_128(whole.unwrap_or(BASIS ^ LIST), &item.to_le_bytes()));
        }
        Ok(whole.map_or(Meaning::EmptyList, Meaning::Something))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Meaning, A::Error> {
        // Fields are added up, so that their order does not count.
        let mut sum: Option<u128> = None;
        while let Some(name) = fields.next_key::<Text<'de>>()? {
            let name = name.as_str();
            let value = match fields.next_value_seed(self.of_field(name))? {
                Meaning::Null | Meaning::EmptyList => continue,
                Meaning::EmptyObject if EMPTY_MEANS_ABSENT.contains(&name) => continue,
                _ if self == Place::Labels && name == POD_TEMPLATE_HASH => continue,
                Meaning::EmptyObject => OBJECT,
                Meaning::Something(hash) => hash,
            };
            let field = fnv1a_128(hash(STRING, name.as_bytes()), &value.to_le_bytes());
            sum = Some(sum.unwrap_or(0).wrapping_add(field));
        }
        Ok(sum.map_or(Meaning::EmptyObject, |sum| Meaning::Something(hash(OBJECT, &sum.to_le_bytes()))))
    }
}

#[cfg(test)]
mod tests {
    use super::super::template::canonical_json;
    use super::*;
    use serde_json::{Map, Value, json};

    fn raw(value: &Value) -> Box<RawValue> {
        serde_json::value::to_raw_value(value).unwrap()
    }

    /// A small random value of few different parts, so that equal meanings come up often.
    fn random(rng: &mut fastrand::Rng, depth: usize) -> Value {
        match rng.u8(..if depth == 0 { 5 } else { 8 }) {
            0 => Value::Null,
            1 => json!(rng.bool()),
            2 => json!(rng.i8(-1..2)),
            3 => json!(rng.choice(["", "a", "1"]).unwrap()),
            4 => json!([]),
            5 => (0..rng.usize(..3)).map(|_| random(rng, depth - 1)).collect(),
            _ => Value::Object(object(rng, depth)),
        }
    }

    fn object(rng: &mut fastrand::Rng, depth: usize) -> Map<String, Value> {
        let names = ["metadata", "labels", POD_TEMPLATE_HASH, "spec", "resources", "emptyDir"];
        (0..rng.usize(..4))
            .map(|_| (rng.choice(names).unwrap().to_string(), random(rng, depth.saturating_sub(1))))
            .collect()
    }

    #[test]
    fn it_is_the_same_exactly_when_the_canonical_text_is() {
        let mut rng = fastrand::Rng::with_seed(11);
        let (mut same, mut other) = (0, 0);
        for _ in 0..30_000 {
            let mut pair = || raw(&Value::Object(object(&mut rng, 3)));
            let (a, b) = (pair(), pair());
            let texts = canonical_json(&a).unwrap() == canonical_json(&b).unwrap();
            let prints = Fingerprint::of(&a).unwrap() == Fingerprint::of(&b).unwrap();
            assert_eq!(texts, prints, "{a}\n{b}");
            if texts { same += 1 } else { other += 1 }
        }
        assert!(same > 100 && other > 100, "both must come up: {same} and {other}");
    }

    #[test]
    fn what_is_no_object_or_nested_without_end_is_an_error() {
        assert!(Fingerprint::of(&raw(&Value::Null)).is_err());
        for depth in [200, 1_000_000] {
            let json = format!(r#"{{"a":{}{}}}"#, "[".repeat(depth), "]".repeat(depth));
            let deep: Box<RawValue> = serde_json::from_str(&json).unwrap();
            assert!(Fingerprint::of(&deep).is_err(), "{depth}");
        }
    }

    #[test]
    fn fnv_gives_its_published_value() {
        assert_eq!(fnv1a_128(BASIS, b"foobar"), 0x343e_1662_793c_64bf_6f0d_3597_ba44_6f18);
    }
}
