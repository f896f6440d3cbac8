//! Which names a definition gets, and what its status says of it (upstream
//! `apiextensions-apiserver/pkg/controller/{status,establish}`).

use serde_json::{Value, json};

use super::definition::{is_true, set_condition};
use super::schema::texts;
use super::{storage_version, text};

/// The status that `definition` should have, if `taken` are the names that others in its group have.
pub(crate) fn status(definition: &Value, others: &[&Value], now: &str) -> Value {
    let names = &definition["spec"]["names"];
    let mut status = definition["status"].clone();
    let conflict = conflict(names, others);
    if conflict.is_none() {
        status["acceptedNames"] = names.clone();
    }
    let accepted = match &conflict {
        None => ("True", "NoConflicts", "no conflicts found"),
        Some((reason, message)) => ("False", *reason, message.as_str()),
    };
    set_condition(&mut status, "NamesAccepted", accepted, now);
    if conflict.is_none() {
        let reason = ("True", "InitialNamesAccepted", "the initial names have been accepted");
        set_condition(&mut status, "Established", reason, now);
    } else if !is_true(&status, "Established") {
        set_condition(
            &mut status,
            "Established",
            ("False", "NotAccepted", "not all names are accepted"),
            now,
        );
    }
    let storage = storage_version(&definition["spec"]).to_owned();
    let mut stored = texts(&status["storedVersions"]);
    if !stored.contains(&storage) {
        stored.push(storage);
    }
    status["storedVersions"] = json!(stored);
    status
}

fn conflict(names: &Value, others: &[&Value]) -> Option<(&'static str, String)> {
    let resources: Vec<String> = others.iter().flat_map(|other| resource_names(other)).collect();
    let kinds: Vec<&str> =
        others.iter().flat_map(|other| [text(other, "kind"), text(other, "listKind")]).collect();
    let in_use = |name: &str| format!("{name:?} is already in use");
    for (field, reason) in [("plural", "PluralConflict"), ("singular", "SingularConflict")] {
        if resources.iter().any(|taken| taken == text(names, field)) {
            return Some((reason, in_use(text(names, field))));
        }
    }
    if let Some(name) = texts(&names["shortNames"]).iter().find(|name| resources.contains(name)) {
        return Some(("ShortNamesConflict", in_use(name)));
    }
    for (field, reason) in [("kind", "KindConflict"), ("listKind", "ListKindConflict")] {
        if kinds.contains(&text(names, field)) {
            return Some((reason, in_use(text(names, field))));
        }
    }
    None
}

fn resource_names(names: &Value) -> Vec<String> {
    let mut all = texts(&names["shortNames"]);
    all.extend([text(names, "plural").to_owned(), text(names, "singular").to_owned()]);
    all.retain(|name| !name.is_empty());
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_in_use_is_not_accepted_until_it_is_free() {
        let names =
            json!({"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"});
        let spec = json!({"names": names, "versions": [{"name": "v1", "storage": true}]});
        let definition = json!({"spec": spec, "status": {}});
        let other =
            json!({"plural": "others", "singular": "other", "shortNames": ["widget"], "kind": "Other"});
        let refused = status(&definition, &[&other], "now");
        assert_eq!(refused["conditions"][0]["reason"], "SingularConflict");
        assert_eq!(refused["conditions"][0]["message"], "\"widget\" is already in use");
        assert!(!is_true(&refused, "Established") && refused["acceptedNames"].is_null());
        let accepted = status(&json!({"spec": spec, "status": refused}), &[], "later");
        assert!(is_true(&accepted, "Established") && is_true(&accepted, "NamesAccepted"));
        assert_eq!((&accepted["acceptedNames"], &accepted["storedVersions"]), (&names, &json!(["v1"])));
    }
}
