//! Values as Go prints them, and the sentences of a real server that contain them.

use serde_json::Value;

/// A value as `%v` prints it: `map[spec:map[replicas:x]]`.
pub(crate) fn plain(value: &Value) -> String {
    match value {
        Value::Null => "<nil>".to_owned(),
        Value::String(text) => text.clone(),
        Value::Array(items) => plain_list(items),
        Value::Object(map) => {
            let entries: Vec<String> =
                map.iter().map(|(key, value)| format!("{key}:{}", plain(value))).collect();
            format!("map[{}]", entries.join(" "))
        }
        scalar => scalar.to_string(),
    }
}

/// A list in the same way: `[1 a]`.
pub(crate) fn plain_list(items: &[Value]) -> String {
    format!("[{}]", items.iter().map(plain).collect::<Vec<_>>().join(" "))
}

/// A value as `%#v` prints it: `map[string]interface {}{"a":1}`.
pub(crate) fn literal(value: &Value) -> String {
    let parts: Vec<String> = match value {
        Value::Array(items) => items.iter().map(literal).collect(),
        Value::Object(map) => map.iter().map(|(key, value)| format!("{key:?}:{}", literal(value))).collect(),
        Value::Null => return "interface {}(nil)".to_owned(),
        scalar => return scalar.to_string(),
    };
    format!("{}{{{}}}", type_of(value), parts.join(", "))
}

/// The type of a decoded value, as `%T` prints it.
pub(crate) fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "<nil>",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}

/// The name of a value's type in the sentences of `encoding/json`.
pub(crate) fn json_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// The sentence of `encoding/json` about a body that cannot be read as this type of Go.
pub(crate) fn unreadable(body: &[u8], wanted: &str) -> String {
    match serde_json::from_slice(body) {
        Ok(value) => unlike(&value, wanted),
        Err(error) if error.is_eof() => "unexpected end of JSON input".to_owned(),
        Err(error) => error.to_string(),
    }
}

/// The same about a value.
pub(crate) fn unlike(value: &Value, wanted: &str) -> String {
    format!("json: cannot unmarshal {} into Go value of type {wanted}", json_name(value))
}

/// The parts of the sentence of `encoding/json` about a field: what was found, the type of Go, and what stands in brackets
/// behind it, our own words with the path.
pub(crate) struct Mismatch<'a> {
    pub(crate) found: &'a str,
    pub(crate) expected: &'a str,
    pub(crate) ours: &'a str,
}

impl<'a> Mismatch<'a> {
    pub(crate) fn of(sentence: &'a str) -> Option<Self> {
        let rest = sentence.strip_prefix("json: cannot unmarshal ")?;
        let (found, rest) = rest.split_once(" into Go struct field ")?;
        let (_, rest) = rest.split_once(" of type ")?;
        let (expected, ours) = rest.split_once(" (")?;
        Some(Mismatch { found, expected, ours: ours.strip_suffix(')')? })
    }

    /// The path of the field: `spec.containers[0].env`.
    pub(crate) fn path(&self) -> &'a str {
        self.ours.split(": ").next().unwrap_or_default()
    }

    /// The sentence of the converter of unstructured objects instead (apimachinery, runtime/converter.go).
    fn of_converter(&self) -> String {
        let (expected, ours) = (self.expected, self.ours);
        // These types read their own JSON.
        if ["expected IntOrString", "timestamp string"].iter().any(|end| ours.ends_with(end)) {
            return format!(
                "json: cannot unmarshal {} into Go value of type {expected} ({ours})",
                self.found
            );
        }
        let is_whole = !ours.contains(": invalid type: floating point");
        let found = match self.found {
            "object" => "map",
            "array" => "slice",
            "string" | "bool" => self.found,
            _ if is_whole => "int64",
            _ => "float64",
        };
        let why = if expected.starts_with("[]") {
            format!("cannot restore slice from {found}")
        } else if expected.starts_with("map[") || expected == "v1.ResourceList" {
            format!("cannot restore map from {found}")
        } else if (found == "int64" && expected == "string")
            || (found == "float64" && expected.starts_with("int"))
        {
            format!("cannot convert {found} to {expected}")
        } else if matches!(expected, "string" | "bool" | "int32" | "int64" | "float64") {
            format!("unrecognized type: {expected}")
        } else {
            format!("cannot restore struct from: {found}")
        };
        format!("{why} ({ours})")
    }
}

/// The sentence about the result of a strategic merge patch, whose objects are not read from text.
pub(crate) fn of_converter(sentence: &str) -> String {
    match Mismatch::of(sentence) {
        Some(mismatch) => mismatch.of_converter(),
        None if sentence.starts_with("illegal base64") => format!("error decoding from json: {sentence}"),
        None => sentence.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_are_printed_as_go_prints_them() {
        let value = json!({"spec": {"z": [1, "a"], "a": null, "b": true}});
        assert_eq!(plain(&value), "map[spec:map[a:<nil> b:true z:[1 a]]]");
    }

    #[test]
    fn a_body_of_another_type_is_named() {
        let text = |body: &str| unreadable(body.as_bytes(), "map[string]interface {}");
        assert_eq!(text("[]"), "json: cannot unmarshal array into Go value of type map[string]interface {}");
        assert_eq!(text("{"), "unexpected end of JSON input");
    }

    /// The sentences of a kube-apiserver 1.36, before ours.
    #[test]
    fn a_converter_has_words_of_its_own() {
        let words = |found: &str, expected: &str, ours: &str| {
            let sentence = format!(
                "json: cannot unmarshal {found} into Go struct field S.spec.f of type {expected} (spec.f: {ours})"
            );
            let converted = of_converter(&sentence);
            converted.strip_suffix(&format!(" (spec.f: {ours})")).unwrap_or(&converted).to_owned()
        };
        assert_eq!(words("string", "int32", "invalid type: string"), "unrecognized type: int32");
        assert_eq!(words("number", "string", "invalid type: integer `1`"), "cannot convert int64 to string");
        assert_eq!(words("object", "[]v1.Container", "invalid type: map"), "cannot restore slice from map");
        assert_eq!(
            of_converter("illegal base64 data at input byte 0"),
            "error decoding from json: illegal base64 data at input byte 0"
        );
    }
}
