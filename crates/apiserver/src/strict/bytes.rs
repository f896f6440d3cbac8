//! Values that are bytes: texts in base 64, and lists of numbers, which Go reads as bytes as well.

use k8s_openapi::ByteString;
use serde_json::Value;

use crate::go_text::json_name;

/// Rewrites the bytes of an object in base 64 without line breaks.
///
/// # Errors
/// The sentence of Go about a list that holds something else than bytes.
pub(super) fn rewrite(kind: &str, object: &mut Value) -> Result<(), String> {
    for field in ["binaryData", "data"].into_iter().filter(|field| *field == "binaryData" || kind == "Secret")
    {
        let values = object.get_mut(field).and_then(Value::as_object_mut);
        for value in values.into_iter().flat_map(|map| map.values_mut()) {
            let written = match &*value {
                // Go reads base 64 that is broken into lines, as `base64` prints it.
                Value::String(text) if text.contains(['\r', '\n']) => text.replace(['\r', '\n'], "").into(),
                Value::Array(items) => of_numbers(items, kind, field)?,
                _ => continue,
            };
            *value = written;
        }
    }
    Ok(())
}

fn of_numbers(items: &[Value], kind: &str, field: &str) -> Result<Value, String> {
    let byte = |item: &Value| {
        let found = match item {
            Value::Null => return Ok(0),
            Value::Number(number) => match number.as_u64().and_then(|number| u8::try_from(number).ok()) {
                Some(byte) => return Ok(byte),
                None => format!("number {number}"),
            },
            other => json_name(other).to_owned(),
        };
        Err(format!("json: cannot unmarshal {found} into Go struct field {kind}.{field} of type uint8"))
    };
    let bytes = items.iter().map(byte).collect::<Result<Vec<u8>, String>>()?;
    serde_json::to_value(ByteString(bytes)).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::strict::check_value;

    #[test]
    fn a_list_of_small_numbers_is_bytes() {
        let secret = json!({"data": {"k": [1, 2], "none": [], "text": "AQ\n=="}});
        let object = check_value("v1", "Secret", secret).unwrap().object;
        assert_eq!(object["data"], json!({"k": "AQI=", "none": "", "text": "AQ=="}));
        let binary = json!({"binaryData": {"k": [255]}});
        assert_eq!(check_value("v1", "ConfigMap", binary).unwrap().object["binaryData"]["k"], "/w==");
    }

    #[test]
    fn a_list_of_anything_else_is_refused_in_the_words_of_go() {
        let text = check_value("v1", "Secret", json!({"data": {"k": ["a"]}})).unwrap_err();
        assert_eq!(text, "json: cannot unmarshal string into Go struct field Secret.data of type uint8");
        let large = check_value("v1", "ConfigMap", json!({"binaryData": {"k": [300]}})).unwrap_err();
        let expected =
            "json: cannot unmarshal number 300 into Go struct field ConfigMap.binaryData of type uint8";
        assert_eq!(large, expected);
    }
}
