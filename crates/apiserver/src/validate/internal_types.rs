//! Objects in the form in which upstream's messages show them: as JSON of the internal Go types (`pkg/apis/core/types.go`),
//! whose fields have no JSON names. So a message has Go's names in the order of the declaration, and all zero values.

use std::collections::HashMap;
use std::sync::LazyLock;

use serde_json::{Map, Value};

use super::line_diff;

/// One type a line, and its fields: `[json=]Name` and a mark of the kind. No mark is a text, `#` a number, `?` a flag, `%` a
/// quantity, `*` a value that may be null, `~` one that is left out if it is empty, `*T` a pointer to a `T`, `:T` a `T`,
/// `[]T` and `~[]T` lists of them, `^T` a `T` whose fields stand among the others. The JSON name follows from Go's name,
/// unless it is given.
const TABLE: &str = include_str!("internal_types.txt");

static TYPES: LazyLock<HashMap<&'static str, Vec<Field>>> = LazyLock::new(|| {
    let mut types: HashMap<&str, Vec<Field>> = HashMap::new();
    let mut current = "";
    for line in TABLE.lines() {
        let mut words = line.split_whitespace();
        if !line.starts_with(' ') {
            current = words.next().unwrap_or_default();
        }
        types.entry(current).or_default().extend(words.map(Field::parse));
    }
    types
});

struct Field {
    json: String,
    shown: &'static str,
    form: Form,
}

enum Form {
    Text,
    Number,
    Flag,
    Quantity,
    Nullable,
    NonEmpty,
    Pointer(&'static str),
    Struct(&'static str),
    List(&'static str),
    NonEmptyList(&'static str),
    Inline(&'static str),
}

impl Field {
    fn parse(word: &'static str) -> Self {
        let end = word.find(|c: char| !c.is_ascii_alphanumeric() && c != '=').unwrap_or(word.len());
        let (name, mark) = word.split_at(end);
        let form = match mark {
            "" => Form::Text,
            "#" => Form::Number,
            "?" => Form::Flag,
            "%" => Form::Quantity,
            "*" => Form::Nullable,
            "~" => Form::NonEmpty,
            _ => {
                let (mark, of) = mark.split_at(mark.find(char::is_alphanumeric).unwrap_or(mark.len()));
                match mark {
                    "*" => Form::Pointer(of),
                    ":" => Form::Struct(of),
                    "^" => Form::Inline(of),
                    "~[]" => Form::NonEmptyList(of),
                    _ => Form::List(of),
                }
            }
        };
        match name.split_once('=') {
            Some((json, shown)) => Field { json: json.to_owned(), shown, form },
            None => Field { json: json_name(name), shown: name, form },
        }
    }
}

/// `DNSPolicy` is `dnsPolicy` in JSON: of capitals in a row, the last begins the next word.
fn json_name(name: &str) -> String {
    let capitals = name.bytes().take_while(u8::is_ascii_uppercase).count();
    let lower = if capitals > 1 && capitals < name.len() { capitals.saturating_sub(1) } else { capitals };
    let (start, rest) = name.split_at(lower);
    start.to_ascii_lowercase() + rest
}

/// A value as Go would write it.
enum Shown {
    Scalar(String),
    List(Vec<Shown>),
    Fields(Vec<(String, Shown)>),
}

/// `value` as JSON of the internal type.
pub(crate) fn shown(of: &str, value: &Value) -> String {
    let mut text = String::new();
    pointer(of, value).write(&mut text, None);
    text
}

/// The same for a list.
pub(super) fn shown_list(of: &str, values: &Value) -> String {
    let mut text = String::new();
    list(of, values).write(&mut text, None);
    text
}

/// The lines in which the internal types differ, with three lines around each difference.
pub(super) fn difference(of: &str, old: &Value, new: &Value) -> String {
    let [old, new] = [old, new].map(|value| {
        let mut text = String::new();
        structure(of, value).write(&mut text, Some(0));
        text
    });
    line_diff::unified(&old, &new)
}

/// The object of the API that a text in the internal form stands for. Go takes no notice of case in the names of fields.
pub(crate) fn read(of: &str, shown: &Value) -> Value {
    let mut object = Map::new();
    let given = shown.as_object().into_iter().flatten().filter(|(_, value)| !value.is_null());
    for (name, value) in given {
        let fields = TYPES.get(of).into_iter().flatten();
        let Some(field) = fields.into_iter().find(|field| field.shown.eq_ignore_ascii_case(name)) else {
            continue;
        };
        let value = match (&field.form, value) {
            (Form::Pointer(of) | Form::Struct(of), value) => read(of, value),
            (Form::List(of), Value::Array(items)) => items.iter().map(|item| read(of, item)).collect(),
            (_, value) => value.clone(),
        };
        object.insert(field.json.clone(), value);
    }
    Value::Object(object)
}

fn pointer(of: &str, value: &Value) -> Shown {
    if value.is_null() { Shown::Scalar("null".to_owned()) } else { structure(of, value) }
}

fn list(of: &str, values: &Value) -> Shown {
    match values.as_array() {
        Some(items) => Shown::List(items.iter().map(|item| structure(of, item)).collect()),
        None => Shown::Scalar("null".to_owned()),
    }
}

fn structure(of: &str, value: &Value) -> Shown {
    let mut fields = Vec::new();
    if of == "PodSpec" {
        add_fields(of, &with_inner_host_fields(value), &mut fields);
    } else {
        add_fields(of, value, &mut fields);
    }
    Shown::Fields(fields)
}

fn add_fields(of: &str, value: &Value, fields: &mut Vec<(String, Shown)>) {
    for field in TYPES.get(of).into_iter().flatten() {
        let (json, text) = (&value[field.json.as_str()], |text: &str| Shown::Scalar(text.to_owned()));
        let or = |zero: &str| if json.is_null() { text(zero) } else { plain(json) };
        let is_empty = super::errors::essence(json).is_null()
            || json.as_str() == Some("")
            || json.as_array().is_some_and(Vec::is_empty)
            || json.as_object().is_some_and(Map::is_empty);
        let shown = match field.form {
            Form::Text => or("\"\""),
            Form::Number => or("0"),
            Form::Flag => or("false"),
            Form::Quantity => or("\"0\""),
            Form::Nullable => or("null"),
            Form::NonEmpty | Form::NonEmptyList(_) if is_empty => continue,
            Form::NonEmpty => plain(json),
            Form::Pointer(of) => pointer(of, json),
            Form::Struct(of) => structure(of, json),
            Form::List(of) | Form::NonEmptyList(of) => list(of, json),
            Form::Inline(of) => {
                add_fields(of, json, fields);
                continue;
            }
        };
        fields.push((field.shown.to_owned(), shown));
    }
}

/// Inside of a server the namespaces of the host belong to the security context, which is always there.
fn with_inner_host_fields(spec: &Value) -> Value {
    let mut spec = spec.clone();
    let mut context = spec["securityContext"].as_object().cloned().unwrap_or_default();
    for field in ["hostNetwork", "hostPID", "hostIPC", "shareProcessNamespace", "hostUsers"] {
        if !spec[field].is_null() {
            context.insert(field.to_owned(), spec[field].clone());
        }
    }
    if let Some(fields) = spec.as_object_mut() {
        fields.insert("securityContext".to_owned(), Value::Object(context));
    }
    spec
}

/// A value whose JSON is the same inside of a server.
fn plain(value: &Value) -> Shown {
    match value {
        Value::String(text) => Shown::Scalar(quoted(text)),
        Value::Array(items) => Shown::List(items.iter().map(plain).collect()),
        Value::Object(fields) => {
            Shown::Fields(fields.iter().map(|(key, value)| (key.clone(), plain(value))).collect())
        }
        other => Shown::Scalar(other.to_string()),
    }
}

/// As `encoding/json` quotes a text: safe to stand in HTML.
fn quoted(text: &str) -> String {
    let mut quoted = String::new();
    for c in Value::from(text).to_string().chars() {
        match c {
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => {
                quoted.push_str(&format!("\\u{:04x}", u32::from(c)));
            }
            other => quoted.push(other),
        }
    }
    quoted
}

impl Shown {
    /// On one line, or with one blank more for each level.
    fn write(&self, text: &mut String, level: Option<usize>) {
        let (brackets, count) = match self {
            Shown::Scalar(scalar) => return text.push_str(scalar),
            Shown::List(items) => (['[', ']'], items.len()),
            Shown::Fields(fields) => (['{', '}'], fields.len()),
        };
        let inner = level.map(|level| level.saturating_add(1));
        let new_line = |text: &mut String, level: Option<usize>| {
            if let Some(level) = level {
                text.push('\n');
                text.extend(std::iter::repeat_n(' ', level));
            }
        };
        text.push(brackets[0]);
        for index in 0..count {
            if index > 0 {
                text.push(',');
            }
            new_line(text, inner);
            match self {
                Shown::Scalar(_) => {}
                Shown::List(items) => items[index].write(text, inner),
                Shown::Fields(fields) => {
                    let (name, value) = &fields[index];
                    text.push_str(&quoted(name));
                    text.push_str(if level.is_some() { ": " } else { ":" });
                    value.write(text, inner);
                }
            }
        }
        if count > 0 {
            new_line(text, level);
        }
        text.push(brackets[1]);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{Form, TYPES, difference, json_name, shown, shown_list};

    #[test]
    fn the_name_in_json_follows_from_the_name_in_go() {
        for (go, json) in [
            ("Name", "name"),
            ("TTY", "tty"),
            ("DNSPolicy", "dnsPolicy"),
            ("SELinuxOptions", "seLinuxOptions"),
            ("HostPID", "hostPID"),
            ("labels", "labels"),
        ] {
            assert_eq!(json_name(go), json);
        }
    }

    #[test]
    fn each_type_that_a_field_names_is_in_the_table() {
        for (of, fields) in TYPES.iter() {
            for field in fields {
                if let Form::Pointer(other)
                | Form::Struct(other)
                | Form::List(other)
                | Form::NonEmptyList(other)
                | Form::Inline(other) = field.form
                {
                    assert!(TYPES.contains_key(other), "{other} of {of}.{}", field.shown);
                }
            }
        }
    }

    #[test]
    fn a_message_shows_all_zero_values_and_keeps_the_names_of_selectors() {
        assert_eq!(
            shown("TopologySpreadConstraint", &json!({"labelSelector": {"matchLabels": {"a": "<b>"}}})),
            "{\"MaxSkew\":0,\"TopologyKey\":\"\",\"WhenUnsatisfiable\":\"\",\
             \"LabelSelector\":{\"matchLabels\":{\"a\":\"\\u003cb\\u003e\"}},\"MinDomains\":null,\
             \"NodeAffinityPolicy\":null,\"NodeTaintsPolicy\":null,\"MatchLabelKeys\":null}"
        );
        assert_eq!(shown("PodOS", &json!(null)), "null");
        assert_eq!(shown_list("PodOS", &json!([{"name": "linux"}])), "[{\"Name\":\"linux\"}]");
    }

    #[test]
    fn the_namespaces_of_the_host_belong_to_the_security_context() {
        let spec = shown("PodSpec", &json!({"hostNetwork": true, "securityContext": {"runAsUser": 5}}));
        assert!(spec.contains(
            "\"SecurityContext\":{\"HostNetwork\":true,\"HostPID\":false,\"HostIPC\":false,\
             \"ShareProcessNamespace\":null,\"HostUsers\":null,\"SELinuxOptions\":null,\
             \"WindowsOptions\":null,\"RunAsUser\":5,"
        ));
    }

    #[test]
    fn a_difference_shows_the_lines_around_it() {
        let old = json!({"key": "a", "operator": "Exists"});
        let new = json!({"key": "b", "operator": "Exists"});
        assert_eq!(
            difference("Toleration", &old, &new),
            "@@ -1,5 +1,5 @@\n {\n- \"Key\": \"a\",\n+ \"Key\": \"b\",\n  \"Operator\": \"Exists\",\n  \"Value\": \"\",\n  \
             \"Effect\": \"\",\n"
        );
    }
}
