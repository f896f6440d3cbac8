//! JSON patches (RFC 6902), as the library of a real server carries them out (evanphx/json-patch, version 4): it takes indices
//! that count from the end, and values that are not there for null.

use serde_json::{Map, Value};

use crate::go_text;
use crate::status::Failure;

/// More operations than this in one JSON patch are refused, as upstream does.
const MAX_OPERATIONS: usize = 10_000;
/// The most that the copies and moves of one JSON patch may carry, counted in values: each copy of a list into
/// itself doubles it, so thirty of them would fill any memory.
const MAX_CARRIED: usize = 1_000_000;
/// The depth at which reading JSON stops as well. A deeper object could not even be dropped safely.
const MAX_DEPTH: usize = 128;

const FIELDS: [&str; 4] = ["op", "path", "from", "value"];

/// The operations of a JSON patch, each of them an object or null.
pub(super) fn parse(patch: Value) -> Result<Vec<Value>, Failure> {
    let unreadable = |why: String| Failure::bad_request(format!("error decoding patch: {why}"));
    let operations = match patch {
        Value::Array(operations) => operations,
        Value::Null => Vec::new(),
        other => return Err(unreadable(go_text::unlike(&other, "[]handlers.jsonPatchOp"))),
    };
    for operation in &operations {
        if !operation.is_object() && !operation.is_null() {
            return Err(unreadable(go_text::unlike(operation, "handlers.jsonPatchOp")));
        }
        for field in ["op", "path", "from"] {
            let value = &operation[field];
            if !value.is_string() && !value.is_null() {
                let found = go_text::json_name(value);
                return Err(unreadable(format!(
                    "json: cannot unmarshal {found} into Go struct field jsonPatchOp.{field} of type string"
                )));
            }
        }
    }
    if operations.len() > MAX_OPERATIONS {
        let message = format!(
            "Request entity too large: The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {}",
            operations.len()
        );
        return Err(Failure::new(413, "RequestEntityTooLarge", message));
    }
    Ok(operations)
}

/// The sentences about fields that no operation has.
pub(super) fn unknown_fields(operations: &[Value]) -> Vec<String> {
    let mut reports = Vec::new();
    for (index, operation) in operations.iter().enumerate() {
        let fields = operation.as_object().into_iter().flat_map(Map::keys);
        let unknown = fields.filter(|field| !FIELDS.contains(&field.as_str()));
        reports.extend(unknown.map(|field| format!("json patch unknown field \"[{index}].{field}\"")));
    }
    reports
}

/// One by one, so that each applies to the result of the ones before it.
pub(super) fn apply(operations: &[Value], object: &mut Value) -> Result<(), Failure> {
    let mut carried = 0_usize;
    for operation in operations {
        let (name, path) = (text(operation, "op"), text(operation, "path").ok_or_else(rejected)?);
        let value = match name {
            Some("add" | "replace") => Some((operation["value"].clone(), false)),
            Some("copy" | "move") => {
                let from = text(operation, "from").ok_or_else(rejected)?;
                let (parent, key) = Parent::of(object, from).ok_or_else(rejected)?;
                Some((parent.get(&key)?.cloned().unwrap_or(Value::Null), true))
            }
            _ => None,
        };
        if let Some((value, carries)) = &value {
            let Extent { values, depth } = Extent::of(value);
            carried = carried.saturating_add(if *carries { values } else { 0 });
            if carried > MAX_CARRIED || path.split('/').count().saturating_add(depth) > MAX_DEPTH {
                let message = "the object is too large or too deeply nested after the JSON patch";
                return Err(Failure::new(413, "RequestEntityTooLarge", message));
            }
        }
        let value = value.map(|(value, _)| value).unwrap_or_default();
        if path.is_empty() && name == Some("replace") && (value.is_object() || value.is_array()) {
            *object = value;
            continue;
        }
        if name == Some("move") {
            let (mut parent, key) =
                text(operation, "from").and_then(|from| Parent::of(object, from)).ok_or_else(rejected)?;
            parent.remove(&key)?;
        }
        let (mut parent, key) = Parent::of(object, path).ok_or_else(rejected)?;
        match name {
            Some("add" | "copy" | "move") => parent.add(&key, value)?,
            Some("replace") => parent.replace(&key, value)?,
            Some("remove") => parent.remove(&key)?,
            Some("test") => {
                let found = parent.get(&key)?.unwrap_or(&Value::Null);
                if *found != operation["value"] {
                    return Err(rejected());
                }
            }
            _ => return Err(rejected()),
        }
    }
    Ok(())
}

/// The objects and lists that the operations pass through, as nested objects. What they set is null.
pub(super) fn passed(operations: &[Value]) -> Value {
    let mut root = Map::new();
    for operation in operations {
        let sets = matches!(text(operation, "op"), Some("add" | "replace"));
        for (field, sets) in [("path", sets), ("from", false)] {
            let Some(path) = text(operation, field) else { continue };
            let mut at = &mut root;
            let mut keys = path.split('/').skip(1).map(unescaped).peekable();
            while let Some(key) = keys.next() {
                let is_last = keys.peek().is_none();
                if is_last && sets {
                    at.insert(key, Value::Null);
                    break;
                }
                if is_last {
                    break;
                }
                let next = at.entry(key).or_insert_with(|| Value::Object(Map::new()));
                match next.as_object_mut() {
                    Some(map) => at = map,
                    None => break,
                }
            }
        }
    }
    Value::Object(root)
}

fn text<'a>(operation: &'a Value, field: &str) -> Option<&'a str> {
    operation.get(field)?.as_str()
}

/// Upstream does not say which operation failed, nor why.
fn rejected() -> Failure {
    Failure::new(422, "Invalid", "the server rejected our request due to an error in our request")
}

fn unescaped(segment: &str) -> String {
    segment.replace("~1", "/").replace("~0", "~")
}

/// The object or list that a path ends in.
enum Parent<'a> {
    Object(&'a mut Map<String, Value>),
    List(&'a mut Vec<Value>),
}

impl<'a> Parent<'a> {
    /// The parent and the last part of the path. The library drops what stands before the first slash.
    fn of(object: &'a mut Value, path: &str) -> Option<(Self, String)> {
        let (_, path) = path.split_once('/')?;
        let mut segments: Vec<String> = path.split('/').map(unescaped).collect();
        let last = segments.pop()?;
        let mut parent = Self::new(object)?;
        for segment in segments {
            let next = match parent {
                Parent::Object(map) => map.get_mut(&segment)?,
                Parent::List(items) => {
                    let index = position(&segment, items.len()).ok()?;
                    items.get_mut(index)?
                }
            };
            parent = Self::new(next)?;
        }
        Some((parent, last))
    }

    fn new(value: &'a mut Value) -> Option<Self> {
        match value {
            Value::Object(map) => Some(Parent::Object(map)),
            Value::Array(items) => Some(Parent::List(items)),
            _ => None,
        }
    }

    fn get(&self, key: &str) -> Result<Option<&Value>, Failure> {
        match self {
            Parent::Object(map) => Ok(map.get(key)),
            Parent::List(items) => {
                let index = position(key, items.len())?;
                items.get(index).map(Some).ok_or_else(rejected)
            }
        }
    }

    fn add(&mut self, key: &str, value: Value) -> Result<(), Failure> {
        match self {
            Parent::Object(map) => {
                map.insert(key.to_owned(), value);
            }
            Parent::List(items) if key == "-" => items.push(value),
            Parent::List(items) => {
                // From the end of the longer list: -1 appends.
                let index = position(key, items.len() + 1)?;
                if index > items.len() {
                    return Err(rejected());
                }
                items.insert(index, value);
            }
        }
        Ok(())
    }

    /// A field that is replaced need not be there.
    fn replace(&mut self, key: &str, value: Value) -> Result<(), Failure> {
        match self {
            Parent::Object(map) => {
                map.insert(key.to_owned(), value);
            }
            Parent::List(items) => {
                let index = position(key, items.len())?;
                *items.get_mut(index).ok_or_else(rejected)? = value;
            }
        }
        Ok(())
    }

    fn remove(&mut self, key: &str) -> Result<(), Failure> {
        match self {
            Parent::Object(map) => map.remove(key).map(drop).ok_or_else(rejected),
            Parent::List(items) => {
                let index = position(key, items.len())?;
                if index >= items.len() {
                    return Err(rejected());
                }
                items.remove(index);
                Ok(())
            }
        }
    }
}

/// The index that a part of a path means in a list of this length: `-1` is its last element.
fn position(segment: &str, length: usize) -> Result<usize, Failure> {
    let index: i64 = segment.parse().map_err(|_| rejected())?;
    if index < 0 {
        let back = usize::try_from(index.unsigned_abs()).map_err(|_| rejected())?;
        return length.checked_sub(back).ok_or_else(rejected);
    }
    usize::try_from(index).map_err(|_| rejected())
}

/// How much there is of a value.
struct Extent {
    values: usize,
    depth: usize,
}

impl Extent {
    fn of(value: &Value) -> Self {
        let children: Vec<&Value> = match value {
            Value::Array(array) => array.iter().collect(),
            Value::Object(map) => map.values().collect(),
            _ => Vec::new(),
        };
        let start = Extent { values: 1, depth: 1 };
        children.into_iter().map(Extent::of).fold(start, |whole, child| Extent {
            values: whole.values + child.values,
            depth: whole.depth.max(child.depth + 1),
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// The object after the operations, or nothing if one is rejected.
    fn patched(operations: Value) -> Option<Value> {
        let mut object = json!({"list": ["a", "b", "c"], "map": {"x": 1}, "text": "t"});
        let operations = parse(operations).unwrap();
        apply(&operations, &mut object).ok().map(|()| object)
    }

    /// All as a kube-apiserver 1.36 answers.
    #[test]
    fn indices_count_from_either_end_and_are_numbers_as_go_reads_them() {
        let list = |op: &str, index: &str| {
            let path = format!("/list/{index}");
            patched(json!([{"op": op, "path": path, "value": "z"}])).map(|object| object["list"].clone())
        };
        assert_eq!(list("remove", "-1"), Some(json!(["a", "b"])));
        assert_eq!(list("remove", "01"), Some(json!(["a", "c"])));
        assert_eq!(list("remove", "+1"), Some(json!(["a", "c"])));
        assert_eq!(list("remove", "-3"), Some(json!(["b", "c"])));
        assert_eq!(list("remove", "-4"), None);
        assert_eq!(list("remove", "3"), None);
        assert_eq!(list("remove", "-"), None);
        assert_eq!(list("add", "-1"), Some(json!(["a", "b", "c", "z"])));
        assert_eq!(list("add", "-2"), Some(json!(["a", "b", "z", "c"])));
        assert_eq!(list("add", "-4"), Some(json!(["z", "a", "b", "c"])));
        assert_eq!(list("add", "-5"), None);
        assert_eq!(list("add", "4"), None);
        assert_eq!(list("replace", "-1"), Some(json!(["a", "b", "z"])));
        assert_eq!(list("replace", "-"), None);
        assert_eq!(list("test", "9"), None);
    }

    #[test]
    fn a_value_that_is_not_there_is_null() {
        let map = |operation: Value| patched(json!([operation])).map(|object| object["map"].clone());
        assert_eq!(map(json!({"op": "add", "path": "/map/y"})), Some(json!({"x": 1, "y": null})));
        assert_eq!(
            map(json!({"op": "copy", "from": "/map/no", "path": "/map/y"})),
            Some(json!({"x": 1, "y": null}))
        );
        assert_eq!(map(json!({"op": "move", "from": "/map/no", "path": "/map/y"})), None);
        assert_eq!(map(json!({"op": "test", "path": "/map/no", "value": null})), Some(json!({"x": 1})));
        assert_eq!(map(json!({"op": "test", "path": "/map/no"})), Some(json!({"x": 1})));
        assert_eq!(map(json!({"op": "test", "path": "/map/x"})), None);
        assert_eq!(map(json!({"op": "test", "path": "/no/no"})), None);
        assert_eq!(map(json!({"op": "test", "path": "/text/no"})), None);
    }

    #[test]
    fn a_path_starts_at_its_first_slash() {
        assert_eq!(patched(json!([{"op": "add", "path": "map/y", "value": 2}])).unwrap()["y"], 2);
        assert_eq!(patched(json!([{"op": "add", "path": "/", "value": 2}])).unwrap()[""], 2);
        for operation in ["add", "remove", "test", "bogus"] {
            assert_eq!(patched(json!([{"op": operation, "path": "", "value": {}}])), None, "{operation}");
        }
        assert_eq!(patched(json!([{"op": "replace", "path": "", "value": {"a": 1}}])), Some(json!({"a": 1})));
        assert_eq!(patched(json!([{"op": "replace", "path": "", "value": 1}])), None);
    }

    #[test]
    fn an_operation_whose_fields_are_no_strings_is_unreadable() {
        let failure = parse(json!([{"op": "add", "path": 7}])).unwrap_err();
        assert_eq!(
            failure.message,
            "error decoding patch: json: cannot unmarshal number into Go struct field jsonPatchOp.path of type string"
        );
        assert_eq!(patched(Value::Null).unwrap()["text"], "t");
        assert_eq!(patched(json!([null])), None);
    }
}
