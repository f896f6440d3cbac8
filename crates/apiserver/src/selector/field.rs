//! Field selectors: `?fieldSelector=`. Each kind can be selected by a few fields only (upstream
//! `pkg/apis/core/v1/conversion.go` and the `ToSelectableFields` of each registry).

use serde_json::Value;

use crate::kinds::{self, By};

/// A conjunction of requirements on an object's fields, such as `status.phase!=Running`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FieldSelector {
    terms: Vec<Term>,
}

#[derive(Clone, Debug, PartialEq)]
struct Term {
    field: String,
    by: By,
    value: String,
    equal: bool,
}

impl FieldSelector {
    /// Parses `field=value`, `field==value` and `field!=value`, joined by commas. A backslash escapes
    /// a comma, an equals sign or a backslash in a value.
    ///
    /// # Errors
    /// Junk, or a field that the kind cannot be selected by.
    pub fn parse(kind: &str, text: &str) -> Result<FieldSelector, String> {
        let row = kinds::named(kind);
        let selectable = row.selectable;
        let mut terms = Vec::new();
        for part in split_terms(text) {
            if part.is_empty() {
                continue;
            }
            let Some((field, operator, value)) = split_term(part) else {
                return Err(format!("invalid selector: '{text}'; can't understand '{part}'"));
            };
            let value = unescape(value)?;
            // An old name for the same field.
            let field = if (kind, field) == ("Pod", "spec.host") { "spec.nodeName" } else { field };
            // Kinds with fields of their own say whether they have a namespace, too.
            let has_namespace = row.namespaced || selectable.is_empty();
            let known = by(selectable, field).filter(|_| has_namespace || field != "metadata.namespace");
            let Some(by) = known else {
                return Err(match selectable {
                    _ if kind == "Job" => format!("field label {field:?} not supported for Job"),
                    [] => format!(
                        "{field:?} is not a known field selector: only \"metadata.name\", \"metadata.namespace\""
                    ),
                    _ => format!("field label not supported: {field}"),
                });
            };
            terms.push(Term { field: field.to_owned(), by, value, equal: operator != "!=" });
        }
        Ok(FieldSelector { terms })
    }

    /// Whether there is no requirement, so that everything matches.
    pub fn is_empty(&self) -> bool {
        self.terms.is_empty()
    }

    /// Whether the object is selected. An absent field counts as empty.
    pub fn matches(&self, object: &Value) -> bool {
        self.terms.iter().all(|term| (field(object, &term.field, term.by) == term.value) == term.equal)
    }

    /// The name that the selector pins down with `metadata.name=`, if it does: the watch of one object.
    pub fn name(&self) -> Option<&str> {
        let pinned = |term: &&Term| term.equal && term.field == "metadata.name";
        self.terms.iter().find(pinned).map(|term| term.value.as_str())
    }
}

fn by(selectable: &[(&str, By)], field: &str) -> Option<By> {
    if matches!(field, "metadata.name" | "metadata.namespace") {
        return Some(By::Text);
    }
    selectable.iter().find(|(path, _)| *path == field).map(|(_, by)| *by)
}

/// The text that a field selector compares with.
fn field(object: &Value, path: &str, by: By) -> String {
    let value = path.split('.').fold(object, |value, key| &value[key]);
    match by {
        By::Text => text(value),
        By::Flag => value.as_bool().unwrap_or(false).to_string(),
        By::Number => value.as_i64().unwrap_or(0).to_string(),
        By::Succeeded => object["status"]["succeeded"].as_i64().unwrap_or(0).to_string(),
        By::Addresses => {
            let entries = value.as_array().into_iter().flatten();
            entries.map(|entry| text(&entry["ip"])).collect::<Vec<_>>().join(",")
        }
        By::Source => match text(&value["component"]) {
            empty if empty.is_empty() => text(&object["reportingComponent"]),
            component => component,
        },
    }
}

fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other => other.to_string(),
    }
}

fn split_terms(text: &str) -> Vec<&str> {
    let (mut parts, mut start, mut escaped) = (Vec::new(), 0, false);
    for (position, character) in text.char_indices() {
        match character {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            ',' => {
                parts.push(&text[start..position]);
                start = position + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    parts
}

fn split_term(term: &str) -> Option<(&str, &'static str, &str)> {
    for (position, _) in term.char_indices() {
        for operator in ["!=", "==", "="] {
            if let Some(value) = term[position..].strip_prefix(operator) {
                return Some((&term[..position], operator, value));
            }
        }
    }
    None
}

fn unescape(value: &str) -> Result<String, String> {
    let mut unescaped = String::with_capacity(value.len());
    let mut characters = value.chars();
    while let Some(character) = characters.next() {
        match character {
            '\\' => match characters.next() {
                Some(escaped @ ('\\' | ',' | '=')) => unescaped.push(escaped),
                Some(other) => {
                    return Err(format!("invalid field selector: invalid escape sequence: \\{other}"));
                }
                None => return Err("invalid field selector: invalid escape sequence: \\".to_owned()),
            },
            ',' | '=' => {
                return Err(format!("invalid field selector: unescaped character in value: {character}"));
            }
            _ => unescaped.push(character),
        }
    }
    Ok(unescaped)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check_field(kind: &str, selector: &str, object: &Value, expected: bool) {
        assert_eq!(FieldSelector::parse(kind, selector).unwrap().matches(object), expected, "{selector}");
    }

    #[test]
    fn fields_are_compared_as_text_and_absent_is_empty() {
        let pod = json!({"metadata": {"name": "a", "namespace": "x"}, "status": {"phase": "Running"}});
        check_field("Pod", "metadata.name=a,status.phase==Running", &pod, true);
        check_field("Pod", "status.phase!=Running", &pod, false);
        check_field("Pod", "spec.nodeName=", &pod, true);
        check_field("Pod", "spec.hostNetwork=false", &pod, true);
        check_field("Pod", ",", &pod, true);
        let event =
            json!({"involvedObject": {"kind": "Pod"}, "reportingComponent": "kubelet", "reason": "a,b"});
        check_field("Event", "involvedObject.kind=Pod,source=kubelet", &event, true);
        check_field("Event", r"reason=a\,b", &event, true);
    }

    #[test]
    fn a_replication_controller_is_found_by_its_name_and_by_the_number_of_its_pods() {
        let controller = json!({"metadata": {"name": "foo", "namespace": "x"}, "status": {"replicas": 0}});
        for (selector, expected) in [
            ("status.replicas=0", true),
            ("metadata.name=foo", true),
            ("status.replicas=0,metadata.name=foo", true),
            ("status.replicas=10", false),
            ("metadata.name=bar", false),
            ("status.replicas=10,metadata.name=foo", false),
            ("status.replicas=0,metadata.name=bar", false),
        ] {
            check_field("ReplicationController", selector, &controller, expected);
        }
        let error = FieldSelector::parse("ReplicationController", "name=foo").unwrap_err();
        assert_eq!(error, "field label not supported: name");
    }

    #[test]
    fn an_unsupported_field_selector_is_refused() {
        let error = |kind, selector| FieldSelector::parse(kind, selector).unwrap_err();
        assert_eq!(error("Pod", "spec.foo=x"), "field label not supported: spec.foo");
        assert_eq!(
            error("Deployment", "spec.foo=x"),
            "\"spec.foo\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\""
        );
        assert_eq!(error("Pod", "abc"), "invalid selector: 'abc'; can't understand 'abc'");
        assert!(FieldSelector::parse("Pod", r"metadata.name=a\").is_err());
        assert!(FieldSelector::parse("Pod", "metadata.name=a=b").is_err());
    }

    #[test]
    fn a_field_selector_exposes_its_single_name() {
        let name = |text| FieldSelector::parse("Pod", text).unwrap().name().map(str::to_owned);
        assert_eq!(name("metadata.name=web").as_deref(), Some("web"));
        assert_eq!(name("metadata.name!=web"), None);
    }
}
