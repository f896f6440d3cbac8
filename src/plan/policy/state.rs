//! The state of a rollout, in one annotation of the ReplicaSet or ControllerRevision that it leads to.
//!
//! It survives the process, and it cannot be copied by accident: `kubectl rollout undo` and kube-controller-manager copy annotations
//! between a Deployment and its ReplicaSets, so that it counts only where the hash is the object's own.

use jiff::Timestamp;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::ROLLOUT_STATE;
use crate::model::meta::StringMap;
use crate::model::{POD_TEMPLATE_HASH, ReplicaSet};

/// The state of one rollout.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct State {
    /// The `pod-template-hash` of its ReplicaSet, or the name of its ControllerRevision.
    pub hash: String,
    /// The revision that the part about steps belongs to.
    pub revision: i64,
    /// When that revision began.
    #[serde(with = "time", skip_serializing_if = "Option::is_none")]
    pub begun: Option<Timestamp>,
    /// The steps that `passed` counts, as they are written.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub steps: String,
    /// How many steps are passed.
    #[serde(skip_serializing_if = "is_zero")]
    pub passed: usize,
    /// Since when the pods of the next step are available.
    #[serde(with = "time", skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// The last step that a command has passed.
    #[serde(skip_serializing_if = "is_zero")]
    pub approved: usize,
    /// How many verdicts there were on this template.
    #[serde(skip_serializing_if = "is_none")]
    pub attempt: u32,
    /// The verdict that stands.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failed: Option<Verdict>,
    /// When an old pod was last terminated first, because the surge pod fitted no node.
    #[serde(with = "time", skip_serializing_if = "Option::is_none")]
    pub terminated_first: Option<Timestamp>,
    /// Since when that pod is gone.
    #[serde(with = "time", skip_serializing_if = "Option::is_none")]
    pub gone: Option<Timestamp>,
    /// That it did not help.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub unhelpful: bool,
    /// When every pod of the Deployment had this template and was available: it is proven.
    #[serde(with = "time", skip_serializing_if = "Option::is_none")]
    pub completed: Option<Timestamp>,
}

/// A rollout has failed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Verdict {
    /// When it was found.
    #[serde(with = "time", skip_serializing_if = "Option::is_none")]
    pub at: Option<Timestamp>,
    /// Pod, reason and exit code; or `Aborted`.
    pub cause: String,
    /// The hash of the ReplicaSet that serves instead.
    pub to: String,
    /// `metadata.generation` of the Deployment at that time.
    pub generation: i64,
    /// The revision that failed.
    pub revision: i64,
}

/// The cause of a verdict by hand.
pub const ABORTED: &str = "Aborted";

fn is_zero(number: &usize) -> bool {
    *number == 0
}

fn is_none(number: &u32) -> bool {
    *number == 0
}

impl State {
    /// The state that the annotations of an object of this hash hold. One that is missing, cannot be read or belongs to another
    /// object is empty.
    pub fn of(annotations: &StringMap, hash: &str) -> Self {
        State::read(annotations.get(ROLLOUT_STATE), hash)
    }

    /// The same from the text of the annotation.
    pub fn read(text: Option<&str>, hash: &str) -> Self {
        let stored: Option<State> = text.and_then(|text| serde_json::from_str(text).ok());
        stored
            .filter(|state| state.hash == hash && !hash.is_empty())
            .unwrap_or_else(|| State { hash: hash.to_owned(), ..State::default() })
    }

    /// The annotation.
    pub fn text(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }
}

/// The hash of a ReplicaSet's template. One that was adopted may have none: then its name tells it from the others.
pub fn hash_of(replica_set: &ReplicaSet) -> &str {
    let hash = replica_set.meta.labels.get(POD_TEMPLATE_HASH).filter(|hash| !hash.is_empty());
    hash.unwrap_or(&replica_set.meta.key.name)
}

/// The state that a ReplicaSet has.
pub fn state_of(replica_set: &ReplicaSet) -> State {
    State::of(&replica_set.annotations, hash_of(replica_set))
}

/// A time as text. One that cannot be read counts as none.
pub(super) mod time {
    use super::{Deserialize, Deserializer, Serializer, Timestamp};

    pub fn serialize<S: Serializer>(time: &Option<Timestamp>, serializer: S) -> Result<S::Ok, S::Error> {
        match time {
            Some(time) => serializer.collect_str(time),
            None => serializer.serialize_none(),
        }
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Timestamp>, D::Error> {
        let text = Option::<String>::deserialize(deserializer)?;
        Ok(text.and_then(|text| text.parse().ok()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Interner, Record as _};

    #[test]
    fn a_state_is_read_as_it_was_written() {
        let state = State {
            hash: "abc".into(),
            revision: 7,
            steps: "1, 25% for 10m".into(),
            passed: 1,
            since: "2026-01-01T00:00:00Z".parse().ok(),
            failed: Some(Verdict { cause: "web-1: CrashLoopBackOff".into(), ..Verdict::default() }),
            unhelpful: true,
            ..State::default()
        };
        let annotations: StringMap = [(ROLLOUT_STATE, state.text().as_str())].into_iter().collect();
        assert_eq!(State::of(&annotations, "abc"), state);
        assert_eq!(
            State::of(&annotations, "other"),
            State { hash: "other".into(), ..State::default() },
            "a copy"
        );
        assert_eq!(
            State { hash: "abc".into(), revision: 1, ..State::default() }.text(),
            r#"{"hash":"abc","revision":1}"#
        );
    }

    #[test]
    fn a_state_that_cannot_be_read_is_none() {
        let none = State { hash: "abc".into(), ..State::default() };
        for text in ["", "{", "[]", r#"{"hash":"abc","passed":-1}"#, r#"{"hash":7}"#, "null"] {
            let annotations: StringMap = [(ROLLOUT_STATE, text)].into_iter().collect();
            assert_eq!(State::of(&annotations, "abc"), none, "{text}");
        }
        let odd = r#"{"hash":"abc","since":"soon","future":{"a":1}}"#;
        let annotations: StringMap = [(ROLLOUT_STATE, odd)].into_iter().collect();
        assert_eq!(State::of(&annotations, "abc"), none);
        let empty: StringMap = [(ROLLOUT_STATE, r#"{"passed":3}"#)].into_iter().collect();
        assert_eq!(State::of(&empty, "").passed, 0, "an object without a hash has no state");
    }

    #[test]
    fn a_replica_set_without_a_hash_keeps_its_state() {
        let adopted = |state: &str| {
            let json = serde_json::json!({"metadata": {"name": "web-old", "namespace": "shop", "uid": "u",
                "resourceVersion": "1", "annotations": {ROLLOUT_STATE: state}}, "spec": {"template": {}}});
            ReplicaSet::decode(&json.to_string(), &mut Interner::default()).unwrap()
        };
        let state = State { passed: 1, ..state_of(&adopted("")) };
        assert_eq!(state_of(&adopted(&state.text())), state, "it would be written without end");
    }
}
