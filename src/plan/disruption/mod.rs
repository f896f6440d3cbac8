//! How many pods of a PodDisruptionBudget may be evicted (upstream: `pkg/controller/disruption`).
//!
//! The one guarantee: evictions alone never leave fewer healthy pods than the budget asks for. The API server takes each
//! eviction from `disruptionsAllowed` and names the pod in `disruptedPods`; a status that was computed without that fails, since it
//! carries the resourceVersion of the budget. A named pod does not count, and its name stays until the cache of pods is known to be
//! no older than the eviction. The cache may lag by less than two minutes.

mod entries;
mod expected;
pub mod stale_target;
#[cfg(test)]
mod tests;
pub mod wakes;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;

use super::{EventNote, Urgency};
use crate::model::condition::{self, Condition};
use crate::model::poddisruptionbudget::DISRUPTION_ALLOWED;
use crate::model::{DisruptionStatus, Owner, Pod, PodDisruptionBudget, Scale, Selector};
use entries::{Entries, Entry};
use expected::{Expected, Undecided};
pub use expected::{Found, Source, live_owners, source};

/// How soon a controller of pods is read that was not known when the sync began.
const UNREAD: Duration = Duration::from_millis(100);

/// The most characters of an error in the condition.
const LONGEST: usize = 1024;

/// The input of a plan.
#[derive(Debug)]
pub struct Observed<'a> {
    /// The budget.
    pub budget: &'a PodDisruptionBudget,
    /// The pods that it selects, as the cache shows them, in the order of their names.
    pub pods: Vec<Arc<Pod>>,
    /// The resourceVersion that the cache of pods has reached.
    pub pods_version: u64,
    /// The controllers of the pods. One that is missing has not been read.
    pub owners: BTreeMap<Owner, Found>,
    /// The outcome of the last sync.
    pub memory: Memory,
    /// The time.
    pub now: Timestamp,
    /// The time by a clock that nobody sets.
    pub elapsed: Duration,
}

/// The memory of a budget between two syncs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Memory {
    /// The entries of `disruptedPods`.
    entries: BTreeMap<Arc<str>, Entry>,
    /// Since when controllers of pods do not exist.
    absent: BTreeMap<Owner, Duration>,
    /// The last scales of controllers that the API server is asked for.
    scales: BTreeMap<Owner, Scale>,
    told: Told,
    /// How many pods it selects.
    pub pods: usize,
}

/// The state that events have told of.
#[derive(Clone, Debug, Default, PartialEq)]
struct Told {
    no_pods: bool,
    unmanaged: bool,
    failure: Option<String>,
}

/// The report about a budget.
#[derive(Clone, Debug, PartialEq)]
#[must_use = "a plan changes nothing until it is executed"]
pub struct Plan {
    /// The whole status as it should be.
    pub status: DisruptionStatus,
    /// Events about the budget.
    pub events: Vec<EventNote>,
    /// Pods that were allowed to be evicted, and are still there two minutes later.
    pub overdue: Vec<Arc<Pod>>,
    /// Why the status could not be computed.
    pub failure: Option<String>,
    /// When the status may change although no object does.
    pub look_again: Option<Duration>,
    /// The outcome, once the plan is executed.
    pub memory: Memory,
}

/// Decides about a budget.
pub fn plan(observed: &Observed<'_>) -> Plan {
    let Observed { budget, pods, memory, .. } = observed;
    let mut memory = Memory { pods: pods.len(), ..memory.clone() };
    if let Some(defect) = budget.selector.as_ref().and_then(Selector::defect) {
        let event = EventNote::warning("NoPods", format!("Failed to get pods: {defect}"));
        return failed(observed, memory, defect.to_owned(), event);
    }
    let expected = match expected::count(observed, &mut memory) {
        Ok(expected) => expected,
        Err(Undecided::Unread) => {
            // Nothing was learned.
            let memory = observed.memory.clone();
            return Plan { look_again: Some(UNREAD), ..unchanged(budget, memory) };
        }
        Err(Undecided::Failed(why)) => {
            let text = format!("Failed to calculate the number of expected pods: {why}");
            return failed(
                observed,
                memory,
                why,
                EventNote::warning("CalculateExpectedPodCountFailed", text),
            );
        }
    };
    let entries = Entries::of(observed);
    let events = events(budget, pods, &expected, &mut memory.told);
    let healthy = pods.iter().filter(|pod| entries.is_healthy(pod));
    let current = healthy.clone().count();
    // Pods that no scale includes must not stand in for those that are missing from one.
    let counted = healthy.filter(|pod| expected.includes(pod)).count();
    let Expected { pods: expected_pods, desired, look_again, is_outdated, .. } = expected;
    let allowed = if expected_pods > 0 { number(counted).saturating_sub(desired).max(0) } else { 0 };
    // A workload that has grown since needs more healthy pods.
    let most = if is_outdated { budget.status.disruptions_allowed.max(0) } else { i32::MAX };
    let allowed = allowed.min(most);
    let Entries { kept, overdue, look_again: expiry, seen } = entries;
    memory.entries = seen;
    let status = DisruptionStatus {
        observed_generation: budget.meta.generation,
        disrupted_pods: kept,
        disruptions_allowed: allowed,
        current_healthy: number(current),
        desired_healthy: desired,
        expected_pods,
        conditions: budget.status.conditions.clone(),
        condition_generation: budget.status.condition_generation,
    };
    let look_again = [look_again, expiry].into_iter().flatten().min();
    let status = with_condition(status, &budget.status, observed.now);
    Plan { status, events, overdue, failure: None, look_again, memory }
}

/// The nearest number that the API can hold.
fn number(count: usize) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}

fn unchanged(budget: &PodDisruptionBudget, memory: Memory) -> Plan {
    let status = budget.status.clone();
    Plan { status, events: Vec::new(), overdue: Vec::new(), failure: None, look_again: None, memory }
}

/// No eviction is allowed while the status cannot be computed. The rest of it stays.
fn failed(observed: &Observed<'_>, mut memory: Memory, why: String, event: EventNote) -> Plan {
    let budget = observed.budget;
    let mut plan = unchanged(budget, Memory::default());
    plan.status.disruptions_allowed = 0;
    let text: String = why.chars().take(LONGEST).collect();
    set(&mut plan.status, ("False", "SyncFailed", &text), observed.now);
    // The generation is not one whose status is known.
    plan.status.condition_generation = plan.status.observed_generation;
    if memory.told.failure.as_ref() != Some(&why) {
        plan.events.push(event);
    }
    memory.told.failure = Some(why.clone());
    Plan { failure: Some(why), memory, ..plan }
}

/// With the condition that belongs to the numbers. One that says the same already stays as it is.
fn with_condition(
    mut status: DisruptionStatus,
    before: &DisruptionStatus,
    now: Timestamp,
) -> DisruptionStatus {
    let (value, reason) = match status.disruptions_allowed {
        1.. => ("True", "SufficientPods"),
        _ => ("False", "InsufficientPods"),
    };
    let current = condition::find(&status.conditions, DISRUPTION_ALLOWED);
    let says_so = current.is_some_and(|it| (&*it.status, &*it.reason) == (value, reason));
    if !says_so || before.observed_generation != status.observed_generation {
        set(&mut status, (value, reason, ""), now);
        status.condition_generation = status.observed_generation;
    }
    status
}

fn set(status: &mut DisruptionStatus, (value, reason, text): (&str, &str, &str), now: Timestamp) {
    let new = Condition::new(DISRUPTION_ALLOWED, value, reason, text, now);
    let begins = new.last_transition;
    condition::set(&mut status.conditions, Condition { last_update: None, ..new });
    for condition in &mut status.conditions {
        // The API requires a time.
        condition.last_transition = condition.last_transition.or(begins);
    }
}

/// The events, each once when its state begins. Upstream repeats them at each sync.
fn events(
    budget: &PodDisruptionBudget,
    pods: &[Arc<Pod>],
    expected: &Expected,
    told: &mut Told,
) -> Vec<EventNote> {
    let mut events = Vec::new();
    let now = Told { no_pods: pods.is_empty(), unmanaged: expected.has_unmanaged, failure: None };
    if now.no_pods && !told.no_pods {
        events.push(EventNote::normal("NoPods", "No matching pods found".to_owned()));
    }
    if now.unmanaged && !told.unmanaged {
        let selector = budget.selector.as_ref().map_or_else(|| "nil".to_owned(), in_words);
        let text = format!(
            "Pods selected by this PodDisruptionBudget (selector: {selector}) were found to be unmanaged. As a result, the status \
             of the PDB cannot be calculated correctly, which may result in undefined behavior. To account for these pods please \
             set \".spec.minAvailable\" field of the PDB to an integer value."
        );
        events.push(EventNote::warning("UnmanagedPods", text));
    }
    *told = now;
    events
}

/// A selector as Go prints it.
fn in_words(selector: &Selector) -> String {
    let selector = serde_json::to_value(selector).unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let labels = selector["matchLabels"].as_object().into_iter().flatten();
    let labels: String = labels.map(|(key, value)| format!("{key}: {},", text(value))).collect();
    let requirements = selector["matchExpressions"].as_array().into_iter().flatten();
    let requirements: String = requirements
        .map(|it| {
            let values: Vec<String> = it["values"].as_array().into_iter().flatten().map(text).collect();
            let (key, operator) = (text(&it["key"]), text(&it["operator"]));
            let values = values.join(" ");
            format!("LabelSelectorRequirement{{Key:{key},Operator:{operator},Values:[{values}],}},")
        })
        .collect();
    format!(
        "&LabelSelector{{MatchLabels:map[string]string{{{labels}}},MatchExpressions:[]LabelSelectorRequirement{{{requirements}}},}}"
    )
}

/// The event about an overdue pod. Upstream names the namespace twice.
pub fn not_deleted(budget: &PodDisruptionBudget) -> EventNote {
    let text = format!("Pod was expected by PDB {} to be deleted but it wasn't", budget.meta.key);
    EventNote::warning("NotDeleted", text)
}

/// How soon a status must be written. Evictions must not rest on one that allows more than there is, nor wait for one that allows
/// the first; numbers that rise while pods become ready may wait. The API server deletes pods that are not ready while as many are
/// healthy as are desired, whatever it allows else. An entry that leaves makes room for others.
pub fn urgency(before: &DisruptionStatus, after: &DisruptionStatus) -> Urgency {
    let is_short = |status: &DisruptionStatus| status.current_healthy < status.desired_healthy;
    let is_pressing = after.disruptions_allowed < before.disruptions_allowed
        || after.observed_generation != before.observed_generation
        || after.conditions != before.conditions
        || (is_short(after) && !is_short(before))
        || before.disrupted_pods.keys().any(|name| !after.disrupted_pods.contains_key(name));
    if is_pressing { Urgency::Immediate } else { Urgency::Throttled }
}
