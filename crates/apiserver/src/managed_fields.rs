//! `metadata.managedFields`: who owns which field, for server-side apply (KEP-555).
//!
//! An object is tracked from its creation on, but for those that a controller owns and for Events: tracking them would
//! have each status write of a simulated node compare two pods. Where one of these is applied, the fields that it has then
//! belong to `before-first-apply`.

mod field_set;
mod typed;

use serde_json::{Map, Value, json};

use self::field_set::FieldSet;
use self::typed::Comparison;
pub(crate) use self::typed::shown;
use super::kinds::Kind;
use super::kinds::lists::Schema;

/// How the fields of a kind are owned.
pub(crate) fn schema_of(kind: &Kind) -> &'static Schema {
    kind.custom.map_or(kind.lists, |custom| custom.ownership)
}

/// The owner of the fields of an object that was not tracked before its first apply.
const BEFORE_FIRST_APPLY: &str = "before-first-apply";

/// The field manager of `kubectl apply --server-side`.
pub(crate) const KUBECTL: &str = "kubectl";

/// The configuration that `kubectl apply` has applied last.
pub(crate) const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Fields outside of ownership: the server's, and those that name the object.
const UNOWNED_METADATA: &[&str] = &[
    "name",
    "namespace",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "managedFields",
    "selfLink",
];

/// A request to write an object, as far as ownership depends on it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Writer<'a> {
    /// `fieldManager`, or the first part of the user agent.
    pub(crate) manager: &'a str,
    /// `apps/v1`.
    pub(crate) api_version: &'a str,
    /// `status`, or "" for the object itself.
    pub(crate) subresource: &'a str,
    /// Whether the kind has a `status` that is written through a path of its own.
    pub(crate) has_status: bool,
    /// `force`: what others own is taken from them.
    pub(crate) force: bool,
    /// The time of the write, as the API writes it.
    pub(crate) now: &'a str,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operation {
    Apply,
    Update,
}

impl Operation {
    fn name(self) -> &'static str {
        match self {
            Operation::Apply => "Apply",
            Operation::Update => "Update",
        }
    }
}

/// The fields of one owner.
#[derive(Clone, Debug, PartialEq)]
struct Entry {
    manager: String,
    operation: Operation,
    api_version: String,
    subresource: String,
    time: Option<String>,
    fields: FieldSet,
}

/// A field that another owner has with another value.
#[derive(Debug, PartialEq)]
pub(crate) struct Conflict {
    /// The owner in words: `"kubectl-edit" using apps/v1`.
    pub(crate) owner: String,
    /// `.spec.replicas`
    pub(crate) path: String,
}

/// Why a configuration was not applied.
#[derive(Debug, PartialEq)]
pub(crate) enum Refused {
    /// The configuration is none of this kind.
    Malformed(String),
    /// Others own fields with other values. Never empty.
    Conflicts(Vec<Conflict>),
}

/// The object that a configuration makes of `live`, its managedFields included.
///
/// A field that the same manager applied before and no longer applies is removed, unless another manager owns it.
///
/// # Errors
/// [`Refused`].
pub(crate) fn applied(
    schema: &'static Schema,
    live: &Value,
    config: &Value,
    writer: Writer<'_>,
) -> Result<Value, Refused> {
    let config = writer.owned_part(config);
    let wanted = typed::fields_of(&config, schema).map_err(Refused::Malformed)?;
    let mut entries = read(live.pointer("/metadata/managedFields")).unwrap_or_default();
    if entries.is_empty() && live.pointer("/metadata/uid").is_some() {
        let earlier = Writer { manager: BEFORE_FIRST_APPLY, subresource: "", ..writer };
        let comparison = typed::compare(&json!({}), &earlier.owned_part(live), schema);
        entries.push(earlier.entry(Operation::Update, without_structs(comparison.changed)));
    }
    let own = entries.iter().position(|entry| writer.is_author(entry, Operation::Apply));
    let last = own.map(|own| entries.swap_remove(own));
    let mut new = typed::merge(live, &config, schema);
    if let Some(last) = &last {
        let owned = entries.iter().fold(wanted.clone(), |owned, entry| owned.union(&entry.fields));
        let dropped = last.fields.with_parents().difference(&owned.with_parents());
        new = typed::without(&new, &dropped, schema);
    }
    let Comparison { changed, removed } =
        typed::compare(&writer.owned_part(live), &writer.owned_part(&new), schema);
    if !writer.force {
        let granted = writer.granted(live, schema);
        let others = changed.difference(&granted);
        let conflicts: Vec<Conflict> =
            entries.iter().flat_map(|entry| conflicts(entry, &entry.fields.intersection(&others))).collect();
        if !conflicts.is_empty() {
            return Err(Refused::Conflicts(conflicts));
        }
    }
    for entry in &mut entries {
        entry.fields = entry.fields.difference(&changed).difference(&removed);
    }
    let time = last.filter(|last| last.fields == wanted).and_then(|last| last.time);
    let entry = writer.entry(Operation::Apply, wanted);
    entries.push(Entry { time: time.or(entry.time.clone()), ..entry });
    set(&mut new, entries);
    Ok(new)
}

/// Makes the author of a new object the owner of its fields, unless it is one that is not tracked.
pub(crate) fn created(schema: &'static Schema, new: &mut Value, writer: Writer<'_>) {
    let owners = new.pointer("/metadata/ownerReferences").and_then(Value::as_array);
    let is_controlled = owners.is_some_and(|all| all.iter().any(|owner| owner["controller"] == true));
    if is_controlled || new["kind"] == "Event" {
        return;
    }
    let comparison = typed::compare(&json!({}), &writer.owned_part(new), schema);
    set(new, vec![writer.entry(Operation::Update, without_structs(comparison.changed))]);
}

/// Brings the managedFields of `new` up to date with a write that is no apply. `supplied` is what the client sent in
/// their place.
pub(crate) fn update(
    schema: &'static Schema,
    old: &Value,
    new: &mut Value,
    supplied: Option<&Value>,
    writer: Writer<'_>,
) {
    // A list of one empty entry ends the tracking. No list leaves it as it is, and one that cannot be read does.
    if supplied.is_some_and(is_reset) {
        return;
    }
    let said = read(supplied).filter(|entries| !entries.is_empty());
    let mut entries = said.or_else(|| read(old.pointer("/metadata/managedFields"))).unwrap_or_default();
    if entries.is_empty() {
        return;
    }
    let comparison = typed::compare(&writer.owned_part(old), &writer.owned_part(new), schema);
    let (changed, removed) = (without_structs(comparison.changed), comparison.removed);
    let own = entries.iter().position(|entry| writer.is_author(entry, Operation::Update));
    let own = own.map(|own| entries.swap_remove(own));
    for entry in &mut entries {
        entry.fields = entry.fields.difference(&changed).difference(&removed);
    }
    let before = own.as_ref().map(|own| own.fields.clone()).unwrap_or_default();
    let fields = before.difference(&removed).union(&changed);
    let entry = writer.entry(Operation::Update, fields);
    // Upstream renews the time of a manager that sets a field, and not of one that only removes some.
    let time = match own {
        Some(own) if changed.is_empty() => own.time,
        _ => entry.time.clone(),
    };
    entries.push(Entry { time, ..entry });
    set(new, entries);
}

impl Writer<'_> {
    fn entry(self, operation: Operation, fields: FieldSet) -> Entry {
        Entry {
            manager: self.manager.to_owned(),
            operation,
            api_version: self.api_version.to_owned(),
            subresource: self.subresource.to_owned(),
            time: Some(self.now.to_owned()),
            fields,
        }
    }

    /// The fields that kubectl may apply whoever owns them: those that it has applied without the server's help, and that
    /// nobody has changed since (apimachinery, managedfields/internal/lastappliedmanager.go).
    fn granted(self, live: &Value, schema: &'static Schema) -> FieldSet {
        let annotations = live.pointer("/metadata/annotations").filter(|_| self.manager == KUBECTL);
        let last = annotations.and_then(|all| serde_json::from_str(all.get(LAST_APPLIED)?.as_str()?).ok());
        let Some(last) = last.map(|last: Value| self.owned_part(&last)) else { return FieldSet::default() };
        let Comparison { changed, .. } = typed::compare(&self.owned_part(live), &last, schema);
        typed::fields_of(&last, schema).unwrap_or_default().difference(&changed)
    }

    fn is_author(self, entry: &Entry, operation: Operation) -> bool {
        entry.operation == operation
            && entry.manager == self.manager
            && entry.subresource == self.subresource
            && entry.api_version == self.api_version
    }

    /// The part of an object that a write through this path can own.
    fn owned_part(self, object: &Value) -> Value {
        let mut part = object.as_object().cloned().unwrap_or_default();
        part.remove("apiVersion");
        part.remove("kind");
        match self.subresource {
            "" if self.has_status => {
                part.remove("status");
            }
            "status" => {
                part.remove("spec");
            }
            _ => {}
        }
        if let Some(Value::Object(metadata)) = part.get_mut("metadata") {
            metadata.retain(|field, _| !UNOWNED_METADATA.contains(&field.as_str()));
            if self.subresource == "status" {
                metadata.remove("labels");
            }
            if metadata.is_empty() {
                part.remove("metadata");
            }
        }
        Value::Object(part)
    }
}

/// A struct that Go holds without a pointer is always there, and belongs to nobody as a whole.
fn without_structs(mut fields: FieldSet) -> FieldSet {
    const STRUCTS: &[&[&str]] = &[
        &["f:metadata"],
        &["f:spec"],
        &["f:spec", "f:strategy"],
        &["f:spec", "f:updateStrategy"],
        &["f:spec", "f:template"],
        &["f:spec", "f:template", "f:metadata"],
        &["f:spec", "f:template", "f:spec"],
        &["f:status"],
    ];
    STRUCTS.iter().for_each(|path| fields.withdraw(path));
    fields
}

fn conflicts(entry: &Entry, fields: &FieldSet) -> Vec<Conflict> {
    let mut owner = format!("{:?}", entry.manager);
    if !entry.subresource.is_empty() {
        owner = format!("{owner} with subresource {:?}", entry.subresource);
    }
    if entry.operation == Operation::Update {
        owner = format!("{owner} using {}", entry.api_version);
    }
    fields.paths().into_iter().map(|path| Conflict { owner: owner.clone(), path }).collect()
}

/// The entries of `managedFields`; `None` where it is absent, or no list of them.
fn read(list: Option<&Value>) -> Option<Vec<Entry>> {
    let text =
        |entry: &Value, field: &str| entry.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
    let entry = |entry: &Value| {
        Some(Entry {
            manager: text(entry, "manager"),
            operation: match entry.get("operation")?.as_str()? {
                "Apply" => Operation::Apply,
                "Update" => Operation::Update,
                _ => return None,
            },
            api_version: text(entry, "apiVersion"),
            subresource: text(entry, "subresource"),
            time: entry.get("time").and_then(Value::as_str).map(str::to_owned),
            fields: FieldSet::from_value(entry.get("fieldsV1")?)?,
        })
    };
    list?.as_array()?.iter().map(entry).collect()
}

/// A list of one empty entry stands for an empty list, which Go clients cannot send.
fn is_reset(list: &Value) -> bool {
    matches!(list.as_array().map(Vec::as_slice), Some([Value::Object(only)]) if only.is_empty())
}

/// Writes the entries, those of applies first, then by time and name.
fn set(object: &mut Value, mut entries: Vec<Entry>) {
    entries.retain(|entry| !entry.fields.is_empty());
    entries.sort_by(|a, b| {
        let rank =
            |entry: &Entry| (entry.operation == Operation::Update, entry.time.clone(), entry.manager.clone());
        rank(a).cmp(&rank(b)).then_with(|| a.subresource.cmp(&b.subresource))
    });
    let list: Vec<Value> = entries.into_iter().map(written).collect();
    if let Some(Value::Object(metadata)) = object.get_mut("metadata") {
        metadata.remove("managedFields");
        if !list.is_empty() {
            metadata.insert("managedFields".to_owned(), Value::Array(list));
        }
    }
}

fn written(entry: Entry) -> Value {
    let mut map = Map::new();
    map.insert("apiVersion".to_owned(), json!(entry.api_version));
    map.insert("fieldsType".to_owned(), json!("FieldsV1"));
    map.insert("fieldsV1".to_owned(), entry.fields.to_value());
    map.insert("manager".to_owned(), json!(entry.manager));
    map.insert("operation".to_owned(), json!(entry.operation.name()));
    if !entry.subresource.is_empty() {
        map.insert("subresource".to_owned(), json!(entry.subresource));
    }
    if let Some(time) = entry.time {
        map.insert("time".to_owned(), json!(time));
    }
    Value::Object(map)
}
