//! Status conditions, and the rule for when their times move.

use std::sync::Arc;

use jiff::Timestamp;
use serde::Deserialize;

use super::intern::Interner;
use super::wire::{Text, Time};

/// A condition of a Deployment or ReplicaSet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    /// The condition's type: `Progressing`.
    pub kind: Arc<str>,
    /// `True`, `False` or `Unknown`.
    pub status: Arc<str>,
    /// The reason, in one word for programs.
    pub reason: Arc<str>,
    /// The message for people.
    pub message: Arc<str>,
    /// When the condition last progressed. ReplicaSet conditions have none.
    pub last_update: Option<Timestamp>,
    /// When the status last changed.
    pub last_transition: Option<Timestamp>,
}

/// A condition on the wire.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ConditionWire<'a> {
    #[serde(borrow, default, rename = "type")]
    kind: Text<'a>,
    #[serde(borrow, default)]
    status: Text<'a>,
    #[serde(borrow, default)]
    reason: Text<'a>,
    #[serde(borrow, default)]
    message: Text<'a>,
    #[serde(default)]
    last_update_time: Option<Time>,
    #[serde(default)]
    last_transition_time: Option<Time>,
}

impl ConditionWire<'_> {
    /// Of a list of conditions those of these types, as a record keeps them. Those of other types have other writers, and
    /// are as many as these like: a condition takes three times its bytes here. Of several with one type the first counts.
    pub fn of_types(
        conditions: Option<Vec<Self>>,
        types: &[&str],
        interner: &mut Interner,
    ) -> Vec<Condition> {
        let all = conditions.unwrap_or_default();
        let mut kept = Vec::with_capacity(types.len().min(all.len()));
        for condition in all {
            let kind = condition.kind.as_str();
            if types.contains(&kind) && find(&kept, kind).is_none() {
                kept.push(condition.into_condition(interner));
            }
        }
        kept
    }

    /// The condition as a record keeps it.
    pub fn into_condition(self, interner: &mut Interner) -> Condition {
        Condition {
            kind: interner.string(self.kind.as_str()),
            status: interner.string(self.status.as_str()),
            reason: interner.string(self.reason.as_str()),
            message: match self.message.as_str() {
                "" => interner.string(""),
                message => message.into(),
            },
            last_update: self.last_update_time.map(|t| t.0),
            last_transition: self.last_transition_time.map(|t| t.0),
        }
    }
}

impl Condition {
    /// A condition that begins now, to the second: that is what the API stores, and a finer time would
    /// differ from itself when it is read back.
    pub fn new(kind: &str, status: &str, reason: &str, message: impl Into<Arc<str>>, now: Timestamp) -> Self {
        let now = Timestamp::from_second(now.as_second()).unwrap_or(now);
        Condition {
            kind: kind.into(),
            status: status.into(),
            reason: reason.into(),
            message: message.into(),
            last_update: Some(now),
            last_transition: Some(now),
        }
    }

    /// Whether the status is `True`.
    pub fn is_true(&self) -> bool {
        &*self.status == "True"
    }
}

/// About how many bytes of heap the conditions take.
pub(super) fn heap_bytes(conditions: &[Condition]) -> usize {
    let texts = |c: &Condition| c.kind.len() + c.status.len() + c.reason.len() + c.message.len();
    size_of_val(conditions) + conditions.iter().map(texts).sum::<usize>()
}

/// The condition of this type.
pub fn find<'a>(conditions: &'a [Condition], kind: &str) -> Option<&'a Condition> {
    conditions.iter().find(|c| &*c.kind == kind)
}

/// Replaces the condition of its type.
///
/// The transition time is kept while the status stays (S21), and both times while status and reason
/// stay. A new message under the same reason is stored without a new time: upstream keeps the
/// old text for ever, so that a user reads of a quota that was raised long ago.
pub fn set(conditions: &mut Vec<Condition>, mut condition: Condition) {
    let Some(current) = conditions.iter_mut().find(|c| c.kind == condition.kind) else {
        conditions.push(condition);
        return;
    };
    if current.status == condition.status {
        condition.last_transition = current.last_transition;
        if current.reason == condition.reason {
            condition.last_update = current.last_update;
        }
    }
    *current = condition;
}

/// Replaces the condition of its type and updates its update time in any case: there was
/// progress. The transition time is still kept while the status stays.
pub fn renew(conditions: &mut Vec<Condition>, condition: Condition) {
    let kind = condition.kind.clone();
    let update = condition.last_update;
    set(conditions, condition);
    if let Some(renewed) = conditions.iter_mut().find(|c| c.kind == kind) {
        renewed.last_update = update;
    }
}

/// Removes the condition of this type.
pub fn remove(conditions: &mut Vec<Condition>, kind: &str) {
    conditions.retain(|c| &*c.kind != kind);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[track_caller]
    fn times_after(status: &str, reason: &str, message: &str) -> (i64, i64, String) {
        let mut conditions = vec![Condition::new("Progressing", "True", "A", "one", at(10))];
        set(&mut conditions, Condition::new("Progressing", status, reason, message, at(20)));
        assert_eq!(conditions.len(), 1);
        let c = &conditions[0];
        (c.last_transition.unwrap().as_second(), c.last_update.unwrap().as_second(), c.message.to_string())
    }

    #[test]
    fn the_transition_time_moves_only_with_the_status() {
        assert_eq!(times_after("False", "A", "one"), (20, 20, "one".into()));
        assert_eq!(times_after("True", "B", "one"), (10, 20, "one".into()));
    }

    #[test]
    fn a_new_message_under_the_same_reason_is_taken_over_and_moves_no_time() {
        assert_eq!(times_after("True", "A", "two"), (10, 10, "two".into()));
    }
}
