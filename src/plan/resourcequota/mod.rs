//! Quotas: what the objects of a namespace use (upstream: `pkg/controller/resourcequota` and `pkg/quota/v1`).
//!
//! The one guarantee: each number of a status is that of the objects, or, while those cannot be counted, the number before. What one
//! resource hides changes the numbers of no other, and no number is taken below the objects by a cache that lags behind the API
//! server's own count ([`charges`]).

pub mod charges;
pub mod explain;
pub mod names;
pub mod scopes;
#[cfg(test)]
mod tests;
pub mod usage;
pub mod wakes;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::model::quantity::Quantity;
use crate::model::{ResourceQuota, StringMap};
pub use explain::PlanReason;
pub use names::Source;
pub use usage::Amounts;

/// The use of the objects of a source.
#[derive(Clone, Debug, PartialEq)]
pub enum Count {
    /// These amounts, and nothing of what is not named.
    Used(Amounts),
    /// Nobody knows; the reason, and whether something has failed. Else a first list is merely under way.
    Unknown {
        /// The reason.
        reason: String,
        /// Whether something has failed.
        has_failed: bool,
    },
    /// The API server has no such objects.
    NotServed,
}

/// The input of a plan for a quota.
#[derive(Clone, Debug)]
pub struct Observed<'a> {
    /// The quota.
    pub quota: &'a ResourceQuota,
    /// The use of each source that the quota names.
    pub counts: BTreeMap<Source, Count>,
    /// The charges of the API server for objects that the caches do not show yet.
    pub charged: Amounts,
    /// Whether the numbers have changed a moment ago: the objects that they changed for may still be on their way.
    pub has_just_changed: bool,
}

/// The numbers of a quota.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// The status to write; `None` if it is as it should be.
    pub status: Option<Status>,
    /// The sources whose numbers stay as they were.
    pub kept: Vec<Kept>,
    /// The names of the resources whose numbers wait for objects that the API server has charged.
    pub waiting: Vec<String>,
    /// Names that no object uses as far as this program knows, or whose resource is not served.
    pub uncounted: Vec<String>,
}

/// A status.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Status {
    /// `hard`.
    pub hard: BTreeMap<String, String>,
    /// `used`.
    pub used: BTreeMap<String, String>,
}

/// A source that cannot be counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    /// The source.
    pub source: Source,
    /// The names of the resources whose numbers stay as they were.
    pub keys: Vec<String>,
    /// Why.
    pub reason: String,
    /// Whether something has failed.
    pub has_failed: bool,
}

/// How soon a quota is counted again whose numbers wait for something.
const SOON: Duration = Duration::from_secs(1);

/// The same where what it waits for has failed.
const LATER: Duration = Duration::from_secs(5);

impl Plan {
    /// When to count again although nothing has changed: after the period, if there is one; while something is waited for; and when the
    /// next pod is overdue.
    pub fn look_again(
        &self,
        period: Option<Duration>,
        overdue_after: Option<Timestamp>,
        now: Timestamp,
    ) -> Option<Duration> {
        let is_awaited = !self.waiting.is_empty() || self.kept.iter().any(|kept| !kept.has_failed);
        let soon = is_awaited.then_some(SOON);
        let later = (!self.kept.is_empty()).then_some(LATER);
        // A pod is overdue after that time.
        let overdue = overdue_after.map(|due| {
            let left = Duration::try_from(due.duration_since(now)).unwrap_or_default();
            left.saturating_add(Duration::from_millis(1))
        });
        [period, soon, later, overdue].into_iter().flatten().min()
    }
}

/// The sources that a quota names.
pub fn sources(quota: &ResourceQuota) -> BTreeSet<Source> {
    quota.hard.iter().filter_map(|(key, _)| names::source(key)).collect()
}

/// The numbers of a quota.
pub fn plan(observed: &Observed<'_>) -> Plan {
    let Observed { quota, counts, charged, has_just_changed } = observed;
    let mut plan = Plan::default();
    let mut used = BTreeMap::new();
    let mut kept: BTreeMap<&Source, Kept> = BTreeMap::new();
    for (key, _) in quota.hard.iter() {
        let before = quota.status_used.get(key);
        let source = names::source(key);
        let known = source.as_ref().and_then(|source| counts.get_key_value(source));
        let number = match known {
            Some((_, Count::Used(amounts))) => {
                let count = amounts.get(key).copied().unwrap_or(Quantity::ZERO);
                let number = number(count, before, charged.get(key).copied(), *has_just_changed);
                if number != count {
                    plan.waiting.push(key.to_owned());
                }
                Some(spelled(number, before))
            }
            Some((source, Count::Unknown { reason, has_failed })) => {
                let (reason, has_failed) = (reason.clone(), *has_failed);
                let of = kept.entry(source).or_insert_with(|| Kept {
                    source: source.clone(),
                    keys: Vec::new(),
                    reason,
                    has_failed,
                });
                of.keys.push(key.to_owned());
                before.map(str::to_owned)
            }
            Some((_, Count::NotServed)) => {
                plan.uncounted.push(key.to_owned());
                None
            }
            None => {
                plan.uncounted.push(key.to_owned());
                before.map(str::to_owned)
            }
        };
        used.extend(number.map(|number| (key.to_owned(), number)));
    }
    plan.kept = kept.into_values().collect();
    let is_as_it_should_be = is_same(&quota.status_hard, quota.hard.iter())
        && is_same(&quota.status_used, used.iter().map(|(key, number)| (key.as_str(), number.as_str())));
    if !is_as_it_should_be {
        let hard = quota.hard.iter().map(|(key, most)| (key.to_owned(), most.to_owned())).collect();
        plan.status = Some(Status { hard, used });
    }
    plan
}

/// The number of a resource of which the objects use so much. It falls to no less than the objects together with what the API server
/// has charged for objects that are not seen yet, and does not rise while a deletion may be on its way that an API server which counts by
/// itself knows already.
fn number(
    count: Quantity,
    before: Option<&str>,
    charged: Option<Quantity>,
    has_just_changed: bool,
) -> Quantity {
    let Some(before) = before.and_then(Quantity::parse) else { return count };
    match charged {
        _ if count > before => {
            if has_just_changed {
                before
            } else {
                count
            }
        }
        Some(charged) => before.min(count.plus(charged)),
        None => count,
    }
}

/// As it is written already, if it is of the same value.
fn spelled(number: Quantity, before: Option<&str>) -> String {
    let same = before.filter(|before| Quantity::parse(before) == Some(number));
    same.map_or_else(|| number.to_string(), str::to_owned)
}

/// Whether a map has these names with these values.
fn is_same<'a>(map: &StringMap, mut wanted: impl Iterator<Item = (&'a str, &'a str)>) -> bool {
    let mut count = 0;
    let is_equal = |(key, value): (&str, &str)| {
        count += 1;
        map.get(key).is_some_and(|known| {
            known == value
                || matches!((Quantity::parse(known), Quantity::parse(value)), (Some(a), Some(b)) if a == b)
        })
    };
    wanted.all(is_equal) && map.len() == count
}

/// The merge patch that writes a status: onto the quota as it was read, since the API server charges it as well.
pub fn patch(quota: &ResourceQuota, status: &Status) -> Value {
    let merge = |before: &StringMap, wanted: &BTreeMap<String, String>| {
        let gone = before.iter().filter(|(key, _)| !wanted.contains_key(*key));
        let mut map: serde_json::Map<String, Value> =
            gone.map(|(key, _)| (key.to_owned(), Value::Null)).collect();
        map.extend(wanted.iter().map(|(key, value)| (key.clone(), value.as_str().into())));
        Value::Object(map)
    };
    json!({
        "metadata": {"uid": quota.meta.uid, "resourceVersion": quota.meta.resource_version.to_string()},
        "status": {
            "hard": merge(&quota.status_hard, &status.hard),
            "used": merge(&quota.status_used, &status.used),
        },
    })
}
