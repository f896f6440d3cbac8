//! Walks over objects by their schema: which fields there are, which changed, and how two objects merge.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::field_set::{FieldSet, show};
use crate::kinds::lists::{Key, Schema, Shape};

/// The changes from one object to another.
#[derive(Debug, Default)]
pub(super) struct Comparison {
    /// Fields that are new or have another value.
    pub(super) changed: FieldSet,
    /// Fields that are gone.
    pub(super) removed: FieldSet,
}

/// A value by the parts that are owned apart.
enum Parts<'a> {
    /// One value.
    Whole,
    /// By field.
    Fields(&'a Map<String, Value>, &'static Schema),
    /// By element, each with its step.
    Elements(Vec<(String, &'a Value)>, Shape),
}

impl<'a> Parts<'a> {
    /// The first of several elements with the same keys counts.
    fn of(value: &'a Value, shape: Shape) -> Self {
        match (shape, value) {
            (Shape::Granular(schema), Value::Object(map)) => Parts::Fields(map, schema),
            (Shape::Map { .. } | Shape::Set { .. }, Value::Array(items)) => {
                let mut seen = BTreeSet::new();
                let steps = items.iter().map(|item| (step_of(item, shape), item));
                let distinct = steps.filter(|(step, _)| seen.insert(step.clone())).collect();
                let within = match shape {
                    Shape::Map { item, .. } => Shape::Granular(item),
                    _ => Shape::Atomic,
                };
                Parts::Elements(distinct, within)
            }
            _ => Parts::Whole,
        }
    }

    /// Each part with its step and shape.
    fn each(&self) -> Vec<(String, &'a Value, Shape)> {
        match self {
            Parts::Whole => Vec::new(),
            Parts::Fields(map, schema) => {
                map.iter().map(|(name, value)| (format!("f:{name}"), value, schema.field(name))).collect()
            }
            Parts::Elements(items, within) => {
                items.iter().map(|(step, value)| (step.clone(), *value, *within)).collect()
            }
        }
    }
}

/// The step to an element of a list.
fn step_of(item: &Value, shape: Shape) -> String {
    match shape {
        Shape::Map { keys, .. } => {
            let found = keys.iter().filter_map(|key| Some((key.name.to_owned(), key.of(item)?)));
            format!("k:{}", Value::Object(found.collect()))
        }
        _ => format!("v:{item}"),
    }
}

/// The fields that a configuration sets.
///
/// # Errors
/// An element of a list without one of its keys, or two with the same.
pub(super) fn fields_of(value: &Value, schema: &'static Schema) -> Result<FieldSet, String> {
    let mut fields = FieldSet::default();
    collect(value, Shape::Granular(schema), &mut Vec::new(), &mut fields)?;
    Ok(fields)
}

fn collect(value: &Value, shape: Shape, path: &mut Vec<String>, fields: &mut FieldSet) -> Result<(), String> {
    if let (Shape::Map { .. } | Shape::Set { .. }, Value::Array(items)) = (shape, value) {
        check_items(items, shape).map_err(|why| format!("{}: {why}", text_of(path)))?;
    }
    let parts = Parts::of(value, shape);
    let each = parts.each();
    let is_element = path.last().is_some_and(|step| step.starts_with("k:"));
    if (each.is_empty() || is_element) && !path.is_empty() {
        fields.insert(path);
    }
    for (step, value, shape) in each {
        path.push(step);
        collect(value, shape, path, fields)?;
        path.pop();
    }
    Ok(())
}

/// The steps of a path as clients are told them.
fn text_of(path: &[String]) -> String {
    path.iter().fold(String::new(), |mut text, step| {
        show(step, &mut text);
        text
    })
}

fn check_items(items: &[Value], shape: Shape) -> Result<(), String> {
    if let Shape::Map { keys, .. } = shape {
        let lacks = |item: &Value| keys.iter().copied().find(|key: &Key| key.of(item).is_none());
        for (index, item) in items.iter().enumerate() {
            if let Some(key) = lacks(item) {
                return Err(format!(
                    "element {index}: associative list with keys has an element that omits key field {:?} \
                     (and doesn't have default value)",
                    key.name
                ));
            }
        }
    }
    let mut seen = BTreeSet::new();
    match items.iter().map(|item| step_of(item, shape)).find(|step| !seen.insert(step.clone())) {
        Some(step) => Err(format!("duplicate entries for key {}", text_of(&[step]))),
        None => Ok(()),
    }
}

/// A path as clients are told it, and the value there: `spec.containers[0].image` is `.spec.containers[name="app"].image`.
pub(crate) fn shown<'a>(object: &'a Value, schema: &'static Schema, path: &str) -> (String, &'a Value) {
    let (mut steps, mut at, mut shape) = (Vec::new(), object, Shape::Granular(schema));
    let mut rest = path;
    while !rest.is_empty() {
        if let Some((index, after)) = rest.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            let Some(item) = index.parse().ok().and_then(|index: usize| at.get(index)) else { break };
            match shape {
                Shape::Map { item: within, .. } => {
                    steps.push(step_of(item, shape));
                    shape = Shape::Granular(within);
                }
                _ => steps.push(format!("i:{index}")),
            }
            (at, rest) = (item, after);
            continue;
        }
        rest = rest.strip_prefix('.').unwrap_or(rest);
        // The key of a map may have dots and brackets itself.
        let ends = rest.match_indices(['.', '[']).map(|(end, _)| end).chain([rest.len()]);
        let known = ends.filter_map(|end| rest.split_at_checked(end)).find(|(key, _)| at.get(*key).is_some());
        let Some((key, after)) = known else { break };
        steps.push(format!("f:{key}"));
        shape = match shape {
            Shape::Granular(schema) => schema.field(key),
            other => other,
        };
        (at, rest) = (&at[key], after);
    }
    (text_of(&steps), at)
}

/// The changes from `old` to `new`.
pub(super) fn compare(old: &Value, new: &Value, schema: &'static Schema) -> Comparison {
    let mut comparison = Comparison::default();
    differ(Some(old), Some(new), Shape::Granular(schema), &mut Vec::new(), &mut comparison);
    comparison
}

fn differ(
    old: Option<&Value>,
    new: Option<&Value>,
    shape: Shape,
    path: &mut Vec<String>,
    into: &mut Comparison,
) {
    if old == new {
        return;
    }
    let divided =
        |value: Option<&Value>| value.is_some_and(|value| !matches!(Parts::of(value, shape), Parts::Whole));
    let is_compared_by_part = divided(old) && divided(new);
    if !is_compared_by_part && !path.is_empty() {
        match new {
            Some(_) => into.changed.insert(path),
            None => into.removed.insert(path),
        }
    }
    let (before, after) = (by_step(old, shape), by_step(new, shape));
    for (step, (value, shape)) in &after {
        path.push(step.clone());
        differ(before.get(step).map(|(value, _)| *value), Some(value), *shape, path, into);
        path.pop();
    }
    for (step, (value, shape)) in before.iter().filter(|(step, _)| !after.contains_key(*step)) {
        path.push(step.clone());
        differ(Some(value), None, *shape, path, into);
        path.pop();
    }
}

fn by_step(value: Option<&Value>, shape: Shape) -> BTreeMap<String, (&Value, Shape)> {
    let each = value.map_or_else(Vec::new, |value| Parts::of(value, shape).each());
    each.into_iter().map(|(step, value, shape)| (step, (value, shape))).collect()
}

/// `live` with all that `config` sets.
pub(super) fn merge(live: &Value, config: &Value, schema: &'static Schema) -> Value {
    combine(Some(live), config, Shape::Granular(schema))
}

fn combine(live: Option<&Value>, config: &Value, shape: Shape) -> Value {
    match (shape, live, config) {
        (Shape::Granular(schema), _, Value::Object(wanted)) => {
            let mut merged = live.and_then(Value::as_object).cloned().unwrap_or_default();
            for (name, value) in wanted {
                let value = combine(merged.get(name), value, schema.field(name));
                merged.insert(name.clone(), value);
            }
            Value::Object(merged)
        }
        (Shape::Map { .. } | Shape::Set { .. }, Some(live @ Value::Array(_)), Value::Array(_)) => {
            let (Parts::Elements(there, within), Parts::Elements(wanted, _)) =
                (Parts::of(live, shape), Parts::of(config, shape))
            else {
                return config.clone();
            };
            Value::Array(interleave(&there, &wanted, within))
        }
        _ => config.clone(),
    }
}

/// The elements of both lists: those of the configuration in its order, and the others where they stood before them.
fn interleave(there: &[(String, &Value)], wanted: &[(String, &Value)], within: Shape) -> Vec<Value> {
    let steps: BTreeSet<&str> = wanted.iter().map(|(step, _)| step.as_str()).collect();
    let positions: BTreeMap<&str, usize> =
        there.iter().enumerate().map(|(position, (step, _))| (step.as_str(), position)).collect();
    let others = |range: &[(String, &Value)]| -> Vec<Value> {
        let only_there = range.iter().filter(|(step, _)| !steps.contains(step.as_str()));
        only_there.map(|(_, kept)| (*kept).clone()).collect()
    };
    let (mut merged, mut next) = (Vec::new(), 0);
    for (step, value) in wanted {
        let position = positions.get(step.as_str()).copied();
        let until = match position {
            Some(position) => position,
            None => {
                next + there
                    .iter()
                    .skip(next)
                    .take_while(|(other, _)| !steps.contains(other.as_str()))
                    .count()
            }
        };
        if let Some(passed) = there.get(next..until) {
            merged.extend(others(passed));
            next = until + usize::from(position.is_some());
        }
        let live = position.and_then(|position| there.get(position)).map(|(_, live)| *live);
        merged.push(combine(live, value, within));
    }
    merged.extend(others(there.get(next..).unwrap_or_default()));
    merged
}

/// The value without the given fields. What is empty then goes too.
pub(super) fn without(value: &Value, fields: &FieldSet, schema: &'static Schema) -> Value {
    prune(value, fields, Shape::Granular(schema)).unwrap_or_else(|| Value::Object(Map::new()))
}

fn prune(value: &Value, fields: &FieldSet, shape: Shape) -> Option<Value> {
    let kept = |step: &str, value: &Value, shape: Shape| match fields.below(step) {
        Some(below) if below.is_member() => None,
        Some(below) => prune(value, below, shape),
        None => Some(value.clone()),
    };
    match Parts::of(value, shape) {
        Parts::Whole => Some(value.clone()),
        Parts::Fields(map, schema) => {
            let left: Map<String, Value> = map
                .iter()
                .filter_map(|(name, value)| {
                    Some((name.clone(), kept(&format!("f:{name}"), value, schema.field(name))?))
                })
                .collect();
            (!left.is_empty() || map.is_empty()).then_some(Value::Object(left))
        }
        Parts::Elements(items, within) => {
            let left: Vec<Value> =
                items.iter().filter_map(|(step, value)| kept(step, value, within)).collect();
            (!left.is_empty() || items.is_empty()).then_some(Value::Array(left))
        }
    }
}
