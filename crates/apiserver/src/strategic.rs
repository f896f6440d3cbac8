//! Strategic merge patches: merge patches that know which lists are sets keyed by a field
//! (apimachinery `util/strategicpatch`, merge keys from the `patchMergeKey` tags of the API types).
//!
//! Directives (`$patch`, `$retainKeys`, `$setElementOrder/…`, `$deleteFromPrimitiveList/…`) steer the
//! merge and never reach the stored object, wherever in the patch they stand.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::go_text;
use crate::kinds;
use crate::kinds::lists::{PLAIN, Schema, Shape};

const PATCH: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const SET_ORDER: &str = "$setElementOrder/";
const DELETE_FROM: &str = "$deleteFromPrimitiveList/";

const BAD_ORDER: Refused = Refused::Format("invalid patch format of setElementOrder list");

/// Why a patch cannot be carried out. The API machinery blames the client for the form alone (apiserver,
/// handlers/patch.go `interpretStrategicMergePatchError`).
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    /// A directive, or the whole patch, has the wrong form.
    #[error("{0}")]
    Format(&'static str),
    /// A part cannot be merged.
    #[error("{0}")]
    Content(String),
}

/// Applies `patch` to `current`, an object of `kind`.
///
/// # Errors
/// A patch that is not an object, a directive of the wrong form, or a list element without its merge
/// key. `current` may then be half patched: work on a copy.
pub fn merge(kind: &str, current: &mut Value, patch: &Value) -> Result<(), Refused> {
    let (Some(current), Some(patch)) = (current.as_object_mut(), patch.as_object()) else {
        return Err(Refused::Format("invalid JSON document"));
    };
    merge_object(current, patch, kinds::named(kind).lists)
}

/// How a field of a patch meets the field of the object.
#[derive(Clone, Copy)]
enum Field {
    /// Objects merge by this schema; lists are replaced.
    Object(&'static Schema),
    /// A list of objects that are the same if they agree in `key`.
    List { key: &'static str, item: &'static Schema },
    /// A list of primitives without repetition.
    Set,
    /// A value that the patch replaces.
    Replaced,
}

fn field(schema: &Schema, name: &str) -> Field {
    match schema.field(name) {
        Shape::Granular(schema) => Field::Object(schema),
        Shape::Map { keys: [key, ..], item, merges: true } => Field::List { key: key.name, item },
        Shape::Merged(key) => Field::List { key, item: &PLAIN },
        Shape::Set { merges: true } => Field::Set,
        Shape::Replaced => Field::Replaced,
        Shape::Atomic | Shape::Map { .. } | Shape::Set { .. } => Field::Object(&PLAIN),
    }
}

fn merge_object(
    current: &mut Map<String, Value>,
    patch: &Map<String, Value>,
    schema: &'static Schema,
) -> Result<(), Refused> {
    match patch.get(PATCH) {
        None => {}
        Some(directive) if directive == "merge" => {}
        Some(directive) if directive == "delete" => {
            current.clear();
            return Ok(());
        }
        Some(directive) if directive == "replace" => {
            current.clear();
        }
        Some(other) => return Err(unknown_directive(other, patch)),
    }
    if let Some(retain) = patch.get(RETAIN_KEYS) {
        retain_keys(current, patch, retain)?;
    }
    for (key, list) in patch {
        let Some(field) = key.strip_prefix(DELETE_FROM) else { continue };
        // Upstream passes over a list that is none.
        let Some(removed) = list.as_array() else { continue };
        if let Some(items) = current.get_mut(field).and_then(Value::as_array_mut) {
            items.retain(|item| !removed.contains(item));
            if items.is_empty() {
                current.remove(field);
            }
        }
    }
    for (key, order) in patch {
        if let Some(name) = key.strip_prefix(SET_ORDER) {
            check_order(order, patch.get(name), current.contains_key(name), field(schema, name))?;
        }
    }
    // How long each list was that the patch has elements for.
    let mut lengths: BTreeMap<&str, usize> = BTreeMap::new();
    for (key, value) in patch {
        if is_directive(key) {
            continue;
        }
        if value.is_null() {
            current.remove(key);
            continue;
        }
        let field = self::field(schema, key);
        let has_order = patch.contains_key(&format!("{SET_ORDER}{key}"));
        match (field, value) {
            (Field::Object(schema), Value::Object(patch)) => {
                // A value that cannot be merged into is replaced; merging into nothing strips the directives.
                let target = slot(current, key, Value::is_object, || Value::Object(Map::new()));
                if let Some(target) = target.as_object_mut() {
                    merge_object(target, patch, schema)?;
                }
            }
            (Field::List { key: merge_key, item }, Value::Array(patch)) => {
                let is_new = !current.contains_key(key);
                let target = slot(current, key, Value::is_array, || Value::Array(Vec::new()));
                if let Some(target) = target.as_array_mut() {
                    let known = identities(target, Some(merge_key));
                    lengths.insert(key, known.len());
                    merge_list(target, patch, merge_key, item, is_new)?;
                    if !has_order {
                        reorder(target, &known, &identities(patch, Some(merge_key)), Some(merge_key));
                    }
                }
            }
            (Field::Set, Value::Array(patch)) => {
                let target = slot(current, key, Value::is_array, || Value::Array(Vec::new()));
                if let Some(target) = target.as_array_mut() {
                    let known = target.clone();
                    lengths.insert(key, known.len());
                    for item in patch {
                        if !target.contains(item) {
                            target.push(item.clone());
                        }
                    }
                    if !has_order {
                        reorder(target, &known, patch, None);
                    }
                }
            }
            _ => {
                current.insert(key.clone(), stripped(value));
            }
        }
        // Go does not write an empty list, so an object that lost its last finalizer has no such field.
        if matches!(field, Field::List { .. } | Field::Set)
            && current.get(key).is_some_and(|list| *list == Value::Array(vec![]))
        {
            current.remove(key);
        }
    }
    for (key, order) in patch {
        let Some(field) = key.strip_prefix(SET_ORDER) else { continue };
        let Some(order) = order.as_array() else { continue };
        let Some(items) = current.get_mut(field).and_then(Value::as_array_mut) else { continue };
        let merge_key = match self::field(schema, field) {
            Field::List { key, .. } => Some(key),
            Field::Set => None,
            _ => return Err(BAD_ORDER),
        };
        // Upstream goes by its list after the merge, as far as the list reached before it: an element that
        // is added where another one was taken away counts as having been there.
        let mut known = identities(items, merge_key);
        known.truncate(lengths.get(field).copied().unwrap_or(known.len()));
        reorder(items, &known, &identities(order, merge_key), merge_key);
    }
    Ok(())
}

/// `$retainKeys` names the only fields that stay: how a union (a volume's source, a rollout strategy)
/// changes its member without the old member lingering.
fn retain_keys(
    current: &mut Map<String, Value>,
    patch: &Map<String, Value>,
    retain: &Value,
) -> Result<(), Refused> {
    const BAD: Refused = Refused::Format("invalid patch format of retainKeys");
    let retain = retain.as_array().ok_or(BAD)?;
    let retained = |key: &str| retain.iter().any(|retain| retain == key);
    let contradicts =
        |(key, value): (&String, &Value)| !is_directive(key) && !value.is_null() && !retained(key);
    if patch.iter().any(contradicts) {
        return Err(BAD);
    }
    current.retain(|key, _| retained(key));
    Ok(())
}

fn merge_list(
    current: &mut Vec<Value>,
    patch: &[Value],
    merge_key: &str,
    schema: &'static Schema,
    is_new: bool,
) -> Result<(), Refused> {
    let mut all = current.iter().chain(patch).map(go_text::type_of);
    let first = all.next();
    if all.any(|other| Some(other) != first) {
        let (ours, theirs) = (go_text::plain_list(current), go_text::plain_list(patch));
        return Err(Refused::Content(format!("list element types are not identical: [{ours} {theirs}]")));
    }
    if patch.iter().any(|item| item.get(PATCH).is_some_and(|directive| directive == "replace")) {
        current.clear();
    }
    for item in patch {
        let Some(item) = item.as_object() else {
            // Neither are the others, and the decoder refuses them.
            current.push(item.clone());
            continue;
        };
        let directive = item.get(PATCH);
        if directive.is_some_and(|directive| directive == "replace") {
            // The marker is an element of its own: it may carry nothing but the directive.
            if item.len() == 1 {
                continue;
            }
        }
        let Some(identity) = item.get(merge_key) else {
            if is_new {
                // There is nothing to tell it apart from; its validation comes later.
                current.push(stripped(&Value::Object(item.clone())));
                continue;
            }
            return Err(without_key(&Value::Object(item.clone()), merge_key));
        };
        if directive.is_some_and(|directive| directive == "delete") {
            current.retain(|existing| existing.get(merge_key) != Some(identity));
            continue;
        }
        let found = current.iter().position(|existing| existing.get(merge_key) == Some(identity));
        match found.and_then(|position| current.get_mut(position)).and_then(Value::as_object_mut) {
            Some(existing) => merge_object(existing, item, schema)?,
            None => {
                let mut added = Map::new();
                merge_object(&mut added, item, schema)?;
                current.push(Value::Object(added));
            }
        }
    }
    Ok(())
}

fn without_key(item: &Value, merge_key: &str) -> Refused {
    let item = go_text::plain(item);
    Refused::Content(format!("map: {item} does not contain declared merge key: {merge_key}"))
}

/// Whether the order that a patch wants fits the elements that it has for the same list.
fn check_order(order: &Value, elements: Option<&Value>, is_there: bool, field: Field) -> Result<(), Refused> {
    let Some(wanted) = order.as_array() else {
        let found = go_text::type_of(order);
        return Err(Refused::Content(format!("expected a []interface {{}}, but received a {found}")));
    };
    let merge_key = match field {
        Field::List { key, .. } => Some(key),
        Field::Set => None,
        Field::Object(_) | Field::Replaced if is_there => return Err(BAD_ORDER),
        Field::Object(_) | Field::Replaced => return Ok(()),
    };
    let elements = elements.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let is_kept = |item: &&Value| item.get(PATCH).is_none_or(|directive| directive != "delete");
    let mut rest = wanted.iter();
    let in_order = |item: &Value| rest.any(|other| identity(other, merge_key) == identity(item, merge_key));
    if !wanted.is_empty() && !elements.iter().filter(is_kept).all(in_order) {
        let (ours, theirs) = (go_text::plain_list(elements), go_text::plain_list(wanted));
        return Err(Refused::Content(format!(
            "The order in patch list:\n{ours}\n doesn't match $setElementOrder list:\n{theirs}\n"
        )));
    }
    let lacks = |item: &&Value| merge_key.is_some_and(|key| item.get(key).is_none());
    match (wanted.iter().find(lacks), merge_key) {
        (Some(item), Some(key)) if is_there || !elements.is_empty() => Err(without_key(item, key)),
        _ => Ok(()),
    }
}

/// The identity of the elements of a list: their merge key, or themselves.
fn identities(items: &[Value], merge_key: Option<&str>) -> Vec<Value> {
    items.iter().map(|item| identity(item, merge_key).clone()).collect()
}

fn identity<'a>(item: &'a Value, merge_key: Option<&str>) -> &'a Value {
    merge_key.map_or(item, |key| &item[key])
}

/// Puts the items that the patch names into the patch's order, and the others between them: one that stood
/// before a named item in `known`, the list as the server has it, still does. So what is new comes first:
/// `[b]` added to `[a]` gives `[b, a]` (`normalizeElementOrder` of apimachinery `util/strategicpatch`).
fn reorder(items: &mut Vec<Value>, known: &[Value], named: &[Value], merge_key: Option<&str>) {
    let position = |list: &[Value], item: &Value| {
        let identity = identity(item, merge_key);
        list.iter().position(|other| other == identity)
    };
    let (mut by_patch, others): (Vec<Value>, Vec<Value>) =
        std::mem::take(items).into_iter().partition(|item| position(named, item).is_some());
    by_patch.sort_by_key(|item| position(named, item));
    let mut others = others.into_iter().peekable();
    for item in by_patch {
        let at = position(known, &item);
        while let Some(other) =
            others.next_if(|other| at.zip(position(known, other)).is_some_and(|(item, other)| other < item))
        {
            items.push(other);
        }
        items.push(item);
    }
    items.extend(others);
}

/// The value in a field, made anew if it is absent or of another type.
fn slot<'a>(
    current: &'a mut Map<String, Value>,
    key: &str,
    fits: impl Fn(&Value) -> bool,
    empty: impl Fn() -> Value,
) -> &'a mut Value {
    let slot = current.entry(key).or_insert(Value::Null);
    if !fits(slot) {
        *slot = empty();
    }
    slot
}

/// A copy without directives, for what is replaced as a whole.
fn stripped(value: &Value) -> Value {
    match value {
        Value::Object(map) => map
            .iter()
            .filter(|(key, value)| !is_directive(key) && !value.is_null())
            .map(|(key, value)| (key.clone(), stripped(value)))
            .collect::<Map<_, _>>()
            .into(),
        Value::Array(items) => {
            let only_directives = |item: &Value| {
                item.as_object().is_some_and(|m| !m.is_empty() && m.keys().all(|k| is_directive(k)))
            };
            items.iter().filter(|item| !only_directives(item)).map(stripped).collect()
        }
        other => other.clone(),
    }
}

fn is_directive(key: &str) -> bool {
    key == PATCH || key == RETAIN_KEYS || key.starts_with(SET_ORDER) || key.starts_with(DELETE_FROM)
}

fn unknown_directive(directive: &Value, patch: &Map<String, Value>) -> Refused {
    let directive = match directive {
        Value::String(name) => name.clone(),
        // As `%s` prints what is no text.
        other => format!("%!s({}={})", go_text::type_of(other), go_text::plain(other)),
    };
    let patch = go_text::plain(&Value::Object(patch.clone()));
    Refused::Content(format!("unknown patch type: {directive} in map: {patch}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(kind: &str, current: Value, patch: Value, expected: Value) {
        let mut patched = current;
        merge(kind, &mut patched, &patch).unwrap();
        assert_eq!(patched, expected);
        assert!(!patched.to_string().contains('$'), "a directive was stored: {patched}");
    }

    fn pods(spec: Value) -> Value {
        json!({"spec": {"template": {"spec": spec}}})
    }

    #[test]
    fn an_image_is_set_in_the_container_of_that_name() {
        check(
            "Deployment",
            pods(
                json!({"containers": [{"name": "a", "image": "a:1", "tty": true}, {"name": "b", "image": "b:1"}]}),
            ),
            pods(json!({
                "$setElementOrder/containers": [{"name": "a"}, {"name": "b"}],
                "containers": [{"name": "a", "image": "a:2"}],
            })),
            pods(
                json!({"containers": [{"name": "a", "image": "a:2", "tty": true}, {"name": "b", "image": "b:1"}]}),
            ),
        );
    }

    #[test]
    fn the_selector_of_a_budget_is_replaced() {
        let selecting = |selector: Value| json!({"spec": {"selector": selector, "minAvailable": 1}});
        check(
            "PodDisruptionBudget",
            selecting(json!({"matchLabels": {"a": "b"}})),
            json!({"spec": {"selector": {"matchLabels": {"c": "d"}}}}),
            selecting(json!({"matchLabels": {"c": "d"}})),
        );
    }

    /// The sentences of a kube-apiserver 1.36.
    #[test]
    fn elements_and_orders_that_do_not_fit_the_list_are_refused() {
        let refused = |spec: Value| {
            let mut current = pods(json!({"containers": [{"name": "a"}, {"name": "b"}]}));
            merge("Deployment", &mut current, &pods(spec)).unwrap_err().to_string()
        };
        assert_eq!(
            refused(json!({
                "$setElementOrder/containers": [{"name": "n2"}],
                "containers": [{"name": "n3", "image": "x"}],
            })),
            "The order in patch list:\n[map[image:x name:n3]]\n doesn't match $setElementOrder list:\n[map[name:n2]]\n"
        );
        assert_eq!(
            refused(json!({"$setElementOrder/containers": [{"x": "n2"}]})),
            "map: map[x:n2] does not contain declared merge key: name"
        );
        assert_eq!(
            refused(json!({"containers": [{"image": "x"}]})),
            "map: map[image:x] does not contain declared merge key: name"
        );
        assert_eq!(
            refused(json!({"containers": ["x"]})),
            "list element types are not identical: [[map[name:a] map[name:b]] [x]]"
        );
        assert_eq!(
            refused(json!({"$setElementOrder/containers": "x"})),
            "expected a []interface {}, but received a string"
        );
    }

    #[test]
    fn variables_are_added_changed_and_removed_by_name() {
        let env = |env: Value| pods(json!({"containers": [{"name": "a", "env": env}]}));
        check(
            "Deployment",
            env(json!([{"name": "KEEP", "value": "1"}, {"name": "GO", "value": "2"}])),
            env(
                json!([{"name": "NEW", "value": "3"}, {"name": "GO", "$patch": "delete"}, {"name": "KEEP", "value": "4"}]),
            ),
            env(json!([{"name": "NEW", "value": "3"}, {"name": "KEEP", "value": "4"}])),
        );
    }

    #[test]
    fn a_container_is_removed_and_the_rest_reordered() {
        let three = pods(json!({"containers": [{"name": "a"}, {"name": "b"}, {"name": "c"}]}));
        check(
            "Deployment",
            three.clone(),
            pods(json!({
                "$setElementOrder/containers": [{"name": "c"}, {"name": "a"}],
                "containers": [{"$patch": "delete", "name": "b"}],
            })),
            pods(json!({"containers": [{"name": "c"}, {"name": "a"}]})),
        );
        check(
            "Deployment",
            three.clone(),
            pods(json!({"containers": [{"$patch": "replace"}, {"name": "z"}]})),
            pods(json!({"containers": [{"name": "z"}]})),
        );
        check(
            "Deployment",
            three,
            pods(json!({"$setElementOrder/containers": [{"name": "c"}, {"name": "a"}]})),
            pods(json!({"containers": [{"name": "b"}, {"name": "c"}, {"name": "a"}]})),
        );
    }

    /// The expected orders are those that kube-apiserver answered with.
    #[test]
    fn new_elements_come_first_and_others_keep_their_order() {
        // Each letter is a container; one after a minus is deleted.
        let check = |start: &str, order: Option<&str>, patch: &str, expected: &str| {
            let named = |letters: &str| -> Vec<Value> {
                letters.chars().map(|letter| json!({"name": letter.to_string()})).collect()
            };
            let (kept, deleted) = patch.split_once('-').unwrap_or((patch, ""));
            let deletions = deleted.chars().map(|l| json!({"name": l.to_string(), "$patch": "delete"}));
            let elements: Vec<Value> = named(kept).into_iter().chain(deletions).collect();
            let mut spec = json!({"containers": elements});
            if let Some(order) = order {
                spec["$setElementOrder/containers"] = named(order).into();
            }
            let mut patched = pods(json!({"containers": named(start)}));
            merge("Deployment", &mut patched, &pods(spec)).unwrap();
            let expected = pods(json!({"containers": named(expected)}));
            assert_eq!(patched, expected, "{start} {order:?} {patch}");
        };
        check("c", None, "n", "nc");
        check("nc", None, "cm", "ncm");
        check("abc", None, "ca", "bca");
        check("abcde", None, "ezb", "acdezb");
        check("abcd", None, "z-b", "zacd");
        check("abcd", None, "dz-b", "acdz");
        check("abc", Some("za"), "z", "zabc");
        check("abc", Some("azc"), "z", "azbc");
        check("abcd", Some("dbz"), "z", "acdbz");
        check("abcd", Some("da"), "d", "bcda");
        check("abcd", Some("zda"), "z-b", "czda");
        check("abcd", Some("zca"), "z-b", "dzca");
    }

    #[test]
    fn a_strategy_changes_its_kind_without_leftovers() {
        check(
            "Deployment",
            json!({"spec": {"strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1}}}}),
            json!({"spec": {"strategy": {"$retainKeys": ["type"], "type": "Recreate"}}}),
            json!({"spec": {"strategy": {"type": "Recreate"}}}),
        );
        let wrong = json!({"spec": {"strategy": {"$retainKeys": ["type"], "rollingUpdate": {}}}});
        let error = merge("Deployment", &mut json!({}), &wrong).unwrap_err().to_string();
        assert_eq!(error, "invalid patch format of retainKeys");
    }

    #[test]
    fn a_pod_is_adopted_and_released() {
        let owner = |uid: &str, name: &str| json!({"uid": uid, "name": name});
        let owned = |owners: Value| json!({"metadata": {"uid": "pod", "ownerReferences": owners}});
        check(
            "Pod",
            json!({"metadata": {"uid": "pod"}}),
            owned(json!([owner("u1", "rs")])),
            owned(json!([owner("u1", "rs")])),
        );
        check(
            "Pod",
            owned(json!([owner("u0", "other"), owner("u1", "rs")])),
            json!({"metadata": {"uid": "pod", "ownerReferences": [{"$patch": "delete", "uid": "u1"}]}}),
            owned(json!([owner("u0", "other")])),
        );
        check(
            "Pod",
            json!({"metadata": {"uid": "pod"}}),
            json!({"metadata": {"uid": "pod", "ownerReferences": [{"$patch": "delete", "uid": "u1"}]}}),
            json!({"metadata": {"uid": "pod"}}),
        );
    }

    #[test]
    fn finalizers_are_a_set() {
        let finalizers = |list: Value| json!({"metadata": {"finalizers": list}});
        check(
            "ConfigMap",
            finalizers(json!(["x.io/a", "x.io/b"])),
            json!({"metadata": {
                "$deleteFromPrimitiveList/finalizers": ["x.io/a"],
                "finalizers": ["x.io/c", "x.io/b"],
                "$setElementOrder/finalizers": ["x.io/c", "x.io/b"],
            }}),
            finalizers(json!(["x.io/c", "x.io/b"])),
        );
    }

    #[test]
    fn null_deletes_and_maps_merge() {
        check(
            "Deployment",
            json!({"metadata": {"labels": {"a": "1", "b": "2"}}, "spec": {"paused": true}}),
            json!({"metadata": {"labels": {"a": null, "c": "3"}}, "spec": {"paused": null, "x": {"y": null}}}),
            json!({"metadata": {"labels": {"b": "2", "c": "3"}}, "spec": {"x": {}}}),
        );
    }

    #[test]
    fn atomic_lists_are_replaced() {
        check(
            "Pod",
            json!({"spec": {"tolerations": [{"key": "a"}, {"key": "b"}]}}),
            json!({"spec": {"tolerations": [{"key": "c", "$patch": "merge"}, {"$patch": "replace"}]}}),
            json!({"spec": {"tolerations": [{"key": "c"}]}}),
        );
        check(
            "Pod",
            json!({"spec": {"containers": [{"name": "a", "args": ["1", "2"]}]}}),
            json!({"spec": {"containers": [{"name": "a", "args": ["3"]}]}}),
            json!({"spec": {"containers": [{"name": "a", "args": ["3"]}]}}),
        );
    }

    #[test]
    fn whole_maps_can_be_replaced_or_emptied() {
        let labels = json!({"metadata": {"labels": {"a": "1"}}});
        check(
            "Pod",
            labels.clone(),
            json!({"metadata": {"labels": {"$patch": "replace", "b": "2"}}}),
            json!({"metadata": {"labels": {"b": "2"}}}),
        );
        check(
            "Pod",
            labels,
            json!({"metadata": {"labels": {"$patch": "delete"}}}),
            json!({"metadata": {"labels": {}}}),
        );
    }

    #[test]
    fn conditions_merge_by_type_and_ports_by_number() {
        check(
            "ReplicaSet",
            json!({"status": {"conditions": [{"type": "A", "status": "True", "reason": "x"}]}}),
            json!({"status": {"conditions": [{"type": "A", "status": "False"}, {"type": "B"}]}}),
            json!({"status": {"conditions": [{"type": "A", "status": "False", "reason": "x"}, {"type": "B"}]}}),
        );
        check(
            "Service",
            json!({"spec": {"ports": [{"port": 80, "name": "a"}]}}),
            json!({"spec": {"ports": [{"port": 80, "name": "b"}, {"port": 81}]}}),
            json!({"spec": {"ports": [{"port": 80, "name": "b"}, {"port": 81}]}}),
        );
    }

    #[test]
    fn a_replication_controller_merges_labels_by_key_and_containers_by_name() {
        let containers =
            |image: &str| json!({"spec": {"containers": [{"name": "a", "image": image}, {"name": "b"}]}});
        check(
            "ReplicationController",
            json!({"spec": {"selector": {"app": "web", "tier": "x"}, "template": containers("a:1")}}),
            json!({"spec": {"selector": {"tier": null, "new": "y"},
                            "template": {"spec": {"containers": [{"name": "a", "image": "a:2"}]}}}}),
            json!({"spec": {"selector": {"app": "web", "new": "y"}, "template": containers("a:2")}}),
        );
        check(
            "ReplicationController",
            json!({"status": {"conditions": [{"type": "ReplicaFailure", "status": "True", "reason": "x"}]}}),
            json!({"status": {"conditions": [{"type": "ReplicaFailure", "reason": "y"}]}}),
            json!({"status": {"conditions": [{"type": "ReplicaFailure", "status": "True", "reason": "y"}]}}),
        );
    }

    #[test]
    fn malformed_patches_are_refused() {
        let refuse = |patch: Value| merge("Deployment", &mut json!({}), &patch).unwrap_err().to_string();
        assert_eq!(refuse(json!([])), "invalid JSON document");
        assert_eq!(
            refuse(json!({"$patch": "mangle"})),
            "unknown patch type: mangle in map: map[$patch:mangle]"
        );
        assert_eq!(refuse(json!({"spec": {"$retainKeys": "x"}})), "invalid patch format of retainKeys");
    }
}
