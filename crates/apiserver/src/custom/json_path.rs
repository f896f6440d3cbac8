//! The simple JSONPath of printer columns and of `/scale`: `.spec.replicas`, `.status.conditions[?(@.type=="Ready")].status`.
//!
//! Of kubectl's dialect (`client-go/util/jsonpath`) there are fields, `*`, an index, also from the end, and filters by `==`,
//! `!=` and existence. Unions, slices, `..` and comparisons by size are not read.

use serde_json::Value;

#[derive(Clone, Debug, PartialEq)]
enum Step {
    Field(String),
    /// An element; from the end if negative.
    Index(isize),
    All,
    /// The elements in which a path leads to something that passes.
    Where(Path, Test),
}

/// Of a value that a path leads to.
#[derive(Clone, Debug, PartialEq)]
enum Test {
    Exists,
    Is(String),
    IsNot(String),
}

/// A path into an object.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Path(Vec<Step>);

impl Path {
    /// `None` if it cannot be read.
    pub(super) fn parse(text: &str) -> Option<Path> {
        let mut rest = text.strip_prefix('$').unwrap_or(text);
        let mut steps = Vec::new();
        while !rest.is_empty() {
            if let Some(after) = rest.strip_prefix('.') {
                let (name, after) = field(after);
                steps.push(match name.as_str() {
                    "" => return None,
                    "*" => Step::All,
                    _ => Step::Field(name),
                });
                rest = after;
            } else {
                let (inside, after) = rest.strip_prefix('[')?.split_once(']')?;
                steps.push(bracket(inside)?);
                rest = after;
            }
        }
        (!steps.is_empty()).then_some(Path(steps))
    }

    /// The first value that the path leads to.
    pub(crate) fn first<'a>(&self, object: &'a Value) -> Option<&'a Value> {
        self.0.iter().fold(vec![object], |found, step| step.take(&found)).first().copied()
    }

    /// Sets the value at a path of fields; false if it is none.
    pub(crate) fn set(&self, object: &mut Value, value: Value) -> bool {
        let mut at = object;
        for step in &self.0 {
            let Step::Field(name) = step else { return false };
            at = crate::object::as_map(at).entry(name).or_insert(Value::Null);
        }
        *at = value;
        true
    }

    /// Whether it consists of fields only and begins with this one.
    pub(super) fn begins_with(&self, field: &str) -> bool {
        self.0.first() == Some(&Step::Field(field.to_owned()))
            && self.0.iter().all(|step| matches!(step, Step::Field(_)))
    }
}

impl Step {
    fn take<'a>(&self, values: &[&'a Value]) -> Vec<&'a Value> {
        let items = || values.iter().filter_map(|value| value.as_array());
        match self {
            Step::Field(name) => values.iter().filter_map(|value| value.get(name)).collect(),
            Step::Index(index) => items().filter_map(|items| element(items, *index)).collect(),
            Step::All => values.iter().flat_map(|value| children(value)).collect(),
            Step::Where(path, test) => items()
                .flatten()
                .filter(|item| path.first(item).is_some_and(|found| test.passes(found)))
                .collect(),
        }
    }
}

impl Test {
    fn passes(&self, found: &Value) -> bool {
        match self {
            Test::Exists => true,
            Test::Is(wanted) => text_of(found) == *wanted,
            Test::IsNot(other) => text_of(found) != *other,
        }
    }
}

fn element(items: &[Value], index: isize) -> Option<&Value> {
    items.get(if index < 0 { items.len().checked_add_signed(index)? } else { index.unsigned_abs() })
}

fn children(value: &Value) -> Vec<&Value> {
    match value {
        Value::Array(items) => items.iter().collect(),
        Value::Object(fields) => fields.values().collect(),
        _ => Vec::new(),
    }
}

pub(super) fn text_of(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// A name, in which a backslash escapes a dot, and what comes after it.
fn field(text: &str) -> (String, &str) {
    let (mut name, mut escaped) = (String::new(), false);
    for (position, character) in text.char_indices() {
        match character {
            '\\' if !escaped => escaped = true,
            '.' | '[' if !escaped => return (name, text.get(position..).unwrap_or_default()),
            _ => {
                name.push(character);
                escaped = false;
            }
        }
    }
    (name, "")
}

fn bracket(inside: &str) -> Option<Step> {
    if inside == "*" {
        return Some(Step::All);
    }
    if let Some(condition) = inside.strip_prefix("?(").and_then(|rest| rest.strip_suffix(')')) {
        const OPERATORS: [char; 4] = ['!', '<', '>', '='];
        let (path, rest) = condition.split_at(condition.find(OPERATORS).unwrap_or(condition.len()));
        let value = rest.trim_start_matches(OPERATORS);
        let operator = rest.strip_suffix(value).unwrap_or_default();
        let value = unquoted(value.trim()).to_owned();
        let test = match operator {
            "" => Test::Exists,
            "==" => Test::Is(value),
            "!=" => Test::IsNot(value),
            _ => return None,
        };
        return Some(Step::Where(Path::parse(path.trim().strip_prefix('@')?)?, test));
    }
    if let Ok(index) = inside.parse() {
        return Some(Step::Index(index));
    }
    let name = unquoted(inside);
    (name != inside).then(|| Step::Field(name.to_owned()))
}

fn unquoted(text: &str) -> &str {
    let within = |quote: char| text.strip_prefix(quote)?.strip_suffix(quote);
    within('"').or_else(|| within('\'')).unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_path_leads_through_fields_lists_and_filters() {
        let object = json!({"spec": {"a.b": 1, "list": [{"n": 1}, {"n": 2}]}, "status": {"conditions": [
            {"type": "Synced", "status": "True"}, {"type": "Ready", "status": "False"}]}});
        let first = |path: &str| Path::parse(path).unwrap().first(&object).cloned();
        assert_eq!(first(".status.conditions[?(@.type==\"Ready\")].status"), Some(json!("False")));
        assert_eq!(first(".spec.list[1].n"), Some(json!(2)));
        assert_eq!(first(".spec.list[*].n"), Some(json!(1)));
        assert_eq!(first(".spec.a\\.b"), Some(json!(1)));
        assert_eq!(first(".spec['a.b']"), Some(json!(1)));
        assert_eq!(first(".spec.list[-1].n"), Some(json!(2)));
        assert_eq!(first(".spec.list[-3].n"), None);
        assert_eq!(first(".status.conditions[?(@.type!='Synced')].status"), Some(json!("False")));
        assert_eq!(first(".spec.list[?(@.n)].n"), Some(json!(1)));
        assert_eq!(first(".status.conditions[?(@.type!=\"a==b\")].type"), Some(json!("Synced")));
        assert_eq!(first(".status.*.status"), None);
        assert_eq!(first(".status.*[0].status"), Some(json!("True")));
        assert_eq!(first(".spec.none"), None);
        for bad in ["", "spec", ".", "...", ".a[", ".a[b]", ".a[?(@.b>1)]"] {
            assert_eq!(Path::parse(bad), None, "{bad}");
        }
    }
}
