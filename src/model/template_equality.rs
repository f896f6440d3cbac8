//! The meaning of a template, as 128 bits, computed in one pass over its JSON without building it.
//!
//! Two templates with the same meaning have the same fingerprint: the hash label, the order of keys, nulls,
//! empty lists, `{}` where it has no meaning, fields that have their API default, and the spelling of
//! quantities (`1000m` and `1`) do not count. Two that differ share one with a chance of
//! 2^-128; the price of certainty would be to parse both in every sync, and even the one parse at
//! decode time into a tree costs five times as much as this.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::quantity;
use super::template::POD_TEMPLATE_HASH;
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

    /// The fingerprint as bytes, the same on every machine.
    pub fn to_bytes(self) -> [u8; 16] {
        self.0.to_le_bytes()
    }
}

/// The content of a value.
enum Meaning {
    /// A null: the same as absent.
    Null,
    /// `[]`: in a field, the same as absent.
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
    PodSpec,
    /// A map whose keys are the user's: nothing in it has a default.
    Map,
    /// A map of quantities, such as `limits`.
    Quantities,
    Quantity,
    Elsewhere,
}

/// Fields of which `{}` means the same as their absence: maps, and structs that are not optional.
/// Everywhere else an empty object may have a meaning (`emptyDir: {}`, a `namespaceSelector` that
/// selects all) and stays.
const EMPTY_MEANS_ABSENT: [&str; 10] = [
    "annotations",
    "labels",
    "limits",
    "matchLabels",
    "metadata",
    "nodeSelector",
    "overhead",
    "requests",
    "resources",
    "securityContext",
];

/// Fields and the values that the API server gives them when they are absent. It does so for the
/// Deployment and for its ReplicaSets alike; this is for objects that were stored by a server which did not.
const DEFAULTS: [(Place, &str, Default); 16] = [
    (Place::PodSpec, "restartPolicy", Default::Text("Always")),
    (Place::PodSpec, "dnsPolicy", Default::Text("ClusterFirst")),
    (Place::PodSpec, "schedulerName", Default::Text("default-scheduler")),
    (Place::PodSpec, "terminationGracePeriodSeconds", Default::Number(30)),
    (Place::PodSpec, "hostNetwork", Default::False),
    (Place::PodSpec, "hostPID", Default::False),
    (Place::PodSpec, "hostIPC", Default::False),
    (Place::Elsewhere, "terminationMessagePath", Default::Text("/dev/termination-log")),
    (Place::Elsewhere, "terminationMessagePolicy", Default::Text("File")),
    (Place::Elsewhere, "protocol", Default::Text("TCP")),
    (Place::Elsewhere, "scheme", Default::Text("HTTP")),
    (Place::Elsewhere, "timeoutSeconds", Default::Number(1)),
    (Place::Elsewhere, "periodSeconds", Default::Number(10)),
    (Place::Elsewhere, "successThreshold", Default::Number(1)),
    (Place::Elsewhere, "failureThreshold", Default::Number(3)),
    (Place::Elsewhere, "defaultMode", Default::Number(0o644)),
];

enum Default {
    Text(&'static str),
    Number(i128),
    False,
}

impl Default {
    fn hash(&self) -> u128 {
        match self {
            Default::Text(text) => hash(STRING, text.as_bytes()),
            Default::Number(number) => hash(NUMBER, &number.to_le_bytes()),
            Default::False => hash(FALSE, &[]),
        }
    }
}

impl Place {
    fn of_field(self, name: &str) -> Place {
        match (self, name) {
            (Place::Template, "metadata") => Place::Metadata,
            (Place::Metadata, "labels") => Place::Labels,
            (Place::Template, "spec") => Place::PodSpec,
            (Place::Metadata | Place::Labels | Place::Map, _)
            | (
                _,
                "nodeSelector" | "matchLabels" | "volumeAttributes" | "labels" | "annotations" | "options"
                | "userAnnotations",
            ) => Place::Map,
            (Place::Quantities, _) | (_, "sizeLimit" | "divisor") => Place::Quantity,
            (_, "limits" | "requests" | "overhead") => Place::Quantities,
            _ => Place::Elsewhere,
        }
    }
}

impl Place {
    fn is_default(self, name: &str, value: u128) -> bool {
        DEFAULTS
            .iter()
            .any(|(place, field, default)| *place == self && *field == name && default.hash() == value)
    }

    fn number(self, value: i128) -> Meaning {
        Meaning::Something(match self {
            Place::Quantity => hash(QUANTITY, &value.saturating_mul(quantity::NANOS).to_le_bytes()),
            _ => hash(NUMBER, &value.to_le_bytes()),
        })
    }
}

// The tags that start the fingerprint of each kind of value, so that `1`, `"1"` and `[1]` differ.
const NULL: u128 = 1;
const FALSE: u128 = 2;
const TRUE: u128 = 3;
const NUMBER: u128 = 4;
const FLOAT: u128 = 5;
const STRING: u128 = 6;
const LIST: u128 = 7;
const OBJECT: u128 = 8;
const QUANTITY: u128 = 9;

/// FNV-1a over 128 bits, from any basis.
fn fnv1a_128(basis: u128, bytes: &[u8]) -> u128 {
    const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;
    bytes.iter().fold(basis, |hash, &byte| (hash ^ u128::from(byte)).wrapping_mul(PRIME))
}

/// The published starting value of FNV-1a.
const BASIS: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;

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
        Ok(self.number(value.into()))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Meaning, E> {
        Ok(self.number(value.into()))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Meaning, E> {
        Ok(Meaning::Something(hash(FLOAT, &value.to_bits().to_le_bytes())))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Meaning, E> {
        if self == Place::Quantity
            && let Some(nanos) = quantity::nanos(value)
        {
            return Ok(Meaning::Something(hash(QUANTITY, &nanos.to_le_bytes())));
        }
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
                Meaning::Something(hash) if self.is_default(name, hash) => continue,
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
    use super::*;
    use serde_json::{Map, Value, json};

    fn raw(value: &Value) -> Box<RawValue> {
        serde_json::value::to_raw_value(value).unwrap()
    }

    /// The plain algorithm for comparison: drop what has no meaning, and sort the keys. Knows neither
    /// defaults nor quantities.
    fn canonical(value: &Value, place: Place) -> Value {
        match value {
            Value::Object(fields) => {
                let mut kept: Vec<(String, Value)> = fields
                    .iter()
                    .filter(|(name, _)| place != Place::Labels || *name != POD_TEMPLATE_HASH)
                    .map(|(name, field)| (name.clone(), canonical(field, place.of_field(name))))
                    .filter(|(name, field)| {
                        let empty = *field == json!({}) && EMPTY_MEANS_ABSENT.contains(&name.as_str());
                        !field.is_null() && *field != json!([]) && !empty
                    })
                    .collect();
                kept.sort_by(|a, b| a.0.cmp(&b.0));
                Value::Object(kept.into_iter().collect())
            }
            Value::Array(items) => items.iter().map(|item| canonical(item, Place::Elsewhere)).collect(),
            scalar => scalar.clone(),
        }
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
    fn it_is_the_same_exactly_when_the_canonical_form_is() {
        let mut rng = fastrand::Rng::with_seed(11);
        let (mut same, mut other) = (0, 0);
        for _ in 0..30_000 {
            let mut one = || Value::Object(object(&mut rng, 3));
            let (a, b) = (one(), one());
            let forms = canonical(&a, Place::Template) == canonical(&b, Place::Template);
            let prints = Fingerprint::of(&raw(&a)).unwrap() == Fingerprint::of(&raw(&b)).unwrap();
            assert_eq!(forms, prints, "{a}\n{b}");
            if forms { same += 1 } else { other += 1 }
        }
        assert!(same > 100 && other > 100, "both must come up: {same} and {other}");
    }

    #[track_caller]
    fn check(a: Value, b: Value, same: bool) {
        let print = |spec: &Value| Fingerprint::of(&raw(&json!({"spec": spec}))).unwrap();
        assert_eq!(print(&a) == print(&b), same, "{a}\n{b}");
    }

    #[test]
    fn quantities_are_compared_by_value() {
        let cpu = |cpu: Value| json!({"containers": [{"resources": {"limits": {"cpu": cpu}}}]});
        check(cpu(json!("1000m")), cpu(json!("1")), true);
        check(cpu(json!(1)), cpu(json!("1")), true);
        check(cpu(json!("1100m")), cpu(json!("1")), false);
        check(cpu(json!("1024Mi")), cpu(json!("1Gi")), true);
        check(
            json!({"volumes": [{"emptyDir": {"sizeLimit": "1Gi"}}]}),
            json!({"volumes": [{"emptyDir": {"sizeLimit": "1073741824"}}]}),
            true,
        );
        // Elsewhere a text is a text.
        check(json!({"args": ["1000m"]}), json!({"args": ["1"]}), false);
    }

    #[test]
    fn an_explicit_default_equals_an_absent_field() {
        check(json!({"restartPolicy": "Always", "dnsPolicy": "ClusterFirst"}), json!({}), true);
        check(json!({"dnsPolicy": "Default"}), json!({}), false);
        check(
            json!({"containers": [{"ports": [{"containerPort": 80, "protocol": "TCP"}]}]}),
            json!({"containers": [{"ports": [{"containerPort": 80}]}]}),
            true,
        );
        // The same words at another place: this makes an init container a sidecar.
        check(
            json!({"initContainers": [{"name": "a", "restartPolicy": "Always"}]}),
            json!({"initContainers": [{"name": "a"}]}),
            false,
        );
    }

    #[test]
    fn labels_and_annotations_have_no_defaults_and_no_quantities() {
        let print = |metadata: Value| Fingerprint::of(&raw(&json!({"metadata": metadata}))).unwrap();
        for key in ["protocol", "sizeLimit"] {
            assert_ne!(print(json!({"annotations": {key: "TCP"}})), print(json!({"annotations": {}})));
            assert_ne!(print(json!({"labels": {key: "1000m"}})), print(json!({"labels": {key: "1"}})));
            check(json!({"nodeSelector": {key: "TCP"}}), json!({}), false);
        }
        // The maps of a user deeper in the template: of a claim, of a driver, of a certificate.
        let claim = |metadata: Value| json!({"ephemeral": {"volumeClaimTemplate": {"metadata": metadata}}});
        let certificate = |map: Value| json!({"projected": {"sources": [{"podCertificate": map}]}});
        for (one, other) in [("TCP", ""), ("1000m", "1")] {
            for key in ["protocol", "sizeLimit"] {
                let volumes = |value: &str| {
                    [
                        claim(json!({"labels": {key: value}})),
                        claim(json!({"annotations": {key: value}})),
                        json!({"flexVolume": {"driver": "d", "options": {key: value}}}),
                        json!({"csi": {"driver": "d", "volumeAttributes": {key: value}}}),
                        certificate(json!({"userAnnotations": {key: value}})),
                    ]
                };
                for (one, other) in volumes(one).iter().zip(&volumes(other)) {
                    check(json!({"volumes": [one]}), json!({"volumes": [other]}), false);
                }
            }
        }
        for map in ["labels", "annotations"] {
            check(
                json!({"volumes": [claim(json!({map: {"protocol": "TCP"}}))]}),
                json!({"volumes": [claim(json!({}))]}),
                false,
            );
        }
    }

    #[test]
    fn a_value_that_is_no_object_or_nested_too_deeply_is_an_error() {
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
