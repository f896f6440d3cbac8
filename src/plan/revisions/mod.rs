//! The ControllerRevision of a template, for the owners that have a history of them: DaemonSets and StatefulSets
//! (upstream: `controller_history.go`).

pub mod go_json;

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::{EventNote, OwnerReference};
use crate::model::{Meta, Template};

/// The revision to create.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewRevision {
    /// `<owner>-<hash>`.
    pub name: String,
    /// The value of the hash label.
    pub hash: String,
    /// Its number.
    pub number: i64,
}

/// The changes to a revision.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RevisionChange {
    /// The value of the hash label.
    pub hash: Option<String>,
    /// The number.
    pub number: Option<i64>,
    /// The state of its rollout.
    pub state: Option<String>,
    /// The events once the write has succeeded.
    pub notes: Vec<EventNote>,
}

/// The reaction to a revision whose name is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// It has this template and this hash: use it.
    Use,
    /// It is owned, or was deleted meanwhile: plan again when the cache shows it.
    PlanAgain,
    /// It has other contents: count the collision ([`next_collision`]) and plan again.
    Collision,
}

/// The `collisionCount` to write after a collision, from the owner in the cache and by a fresh read. `None` where the
/// cache was behind: then planning again suffices.
pub fn next_collision(ours: (&Meta, Option<i32>), fresh: (&Meta, Option<i32>)) -> Option<i32> {
    let is_same = ours.1 == fresh.1 && ours.0.uid == fresh.0.uid;
    is_same.then(|| fresh.1.unwrap_or(0).max(0).saturating_add(1))
}

/// `data` of the revision of a template: a strategic merge patch, byte for byte as upstream and kubectl write it, since
/// both compare bytes.
///
/// # Errors
/// When the template is not the object that it was decoded as; cannot happen to a decoded one.
pub fn data(template: &Template) -> Result<String, serde_json::Error> {
    let template: BTreeMap<String, Value> = serde_json::from_str(&template.json())?;
    let mut fields: BTreeMap<&str, String> = BTreeMap::new();
    for (key, value) in &template {
        fields.insert(key, go_json::canonical(value));
    }
    fields.insert("$patch", "\"replace\"".to_owned());
    let fields: Vec<String> =
        fields.iter().map(|(key, value)| format!("{}:{value}", go_json::string(key))).collect();
    Ok(format!("{{\"spec\":{{\"template\":{{{}}}}}}}", fields.join(",")))
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct RevisionBody<'a> {
    api_version: &'static str,
    kind: &'static str,
    metadata: RevisionMeta<'a>,
    data: &'a RawValue,
    revision: i64,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct RevisionMeta<'a> {
    name: &'a str,
    namespace: &'a str,
    labels: BTreeMap<&'a str, &'a str>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    annotations: &'a BTreeMap<String, String>,
    owner_references: [OwnerReference<'a>; 1],
}

/// The JSON of a new revision of this template. Its hash is the value of `hash_label`; `annotations` are all that the
/// owner has now, by a fresh read: the change cause is among them.
///
/// # Errors
/// As for [`data`].
pub fn body(
    owner: OwnerReference<'_>,
    namespace: &str,
    template: &Template,
    new: &NewRevision,
    hash_label: &str,
    annotations: &BTreeMap<String, String>,
) -> Result<Vec<u8>, serde_json::Error> {
    let labels = template.labels.iter().chain([(hash_label, new.hash.as_str())]);
    serde_json::to_vec(&RevisionBody {
        api_version: "apps/v1",
        kind: "ControllerRevision",
        metadata: RevisionMeta {
            name: &new.name,
            namespace,
            labels: labels.collect(),
            annotations,
            owner_references: [owner],
        },
        data: &RawValue::from_string(data(template)?)?,
        revision: new.number,
    })
}
