//! How a namespace that is being deleted is emptied, and when it may go.
//!
//! The one guarantee: a namespace loses the token that keeps its name only when every kind that may hold objects was
//! looked at and held none, after the time that other API servers need to see the deletion. What could not be read
//! counts as not empty.
//!
//! A round has at most three waves: pods; the kinds that had something left in the last round; all others. A wave that
//! leaves something ends the round, so that NetworkPolicies and Secrets outlive the pods that need them (KEP-5080), and
//! so that a namespace that waits costs a request or two.

pub mod conditions;
pub mod content;

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::Timestamp;

use crate::model::discovered::{Discovered, DiscoveredResource, FailedGroup, Verb};
use crate::model::{Namespace, NamespaceStatus};
pub use content::{Content, Item, Left, Listed};

/// The first and the longest pause between two rounds, while what is left moves.
const PAUSES: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(1));

/// Which part of the time since something moved the pause is: whatever moves next is noticed later by that part of the
/// time that it took. So it is a second for the first half minute.
const PART_OF_QUIET: u32 = 30;

/// The longest pause where nothing moves, where whatever ends starts a round, or where so much is left that counting it takes long.
const LONGEST_PAUSE: Duration = Duration::from_secs(15);

/// How many objects lengthen the pause by a second: a round lists them in pages of 500.
const OBJECTS_PER_SECOND: usize = 1000;

/// The longest wait after requests that failed; backoff may try earlier.
const AFTER_ERRORS: Duration = Duration::from_secs(5);

/// A namespace before a round.
#[derive(Clone, Debug)]
pub struct Observed<'a> {
    /// The namespace as the cache shows it.
    pub namespace: &'a Namespace,
    /// How long ago its deletion was first seen by this process.
    pub waited: Duration,
    /// How long after that it may lose its token.
    pub delay: Duration,
    /// The findings of the last round.
    pub last: Last,
    /// The time.
    pub now: Timestamp,
}

/// The next step for a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plan {
    /// Nothing: it is not being deleted, or what keeps it is not ours.
    Nothing,
    /// Set its phase, without which objects can still be created in it.
    MarkTerminating,
    /// Empty it, and let it go if it is empty.
    Round,
}

/// Decides whether a round is due.
pub fn plan(observed: &Observed<'_>) -> Plan {
    let Observed { namespace, .. } = observed;
    if !namespace.meta.is_deleting() || namespace.finalizers.is_empty() {
        Plan::Nothing
    } else if !namespace.is_terminating {
        Plan::MarkTerminating
    } else {
        Plan::Round
    }
}

/// Whether the API server still shows the namespace that the cache shows, being deleted. While a token is in
/// `spec.finalizers`, its name cannot get a successor, so that nothing of a successor is deleted.
pub fn may_be_emptied(cached: &Namespace, live: &Namespace) -> bool {
    live.meta.uid == cached.meta.uid
        && live.meta.is_deleting()
        && live.is_terminating
        && !live.finalizers.is_empty()
}

/// A resource by group and name.
pub type Name = (String, String);

/// The memory of the last round.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Last {
    /// The resources that had objects left, or could not be read.
    pub open: BTreeSet<Name>,
    /// Whether everything that is known was looked at and found empty.
    pub was_empty: bool,
    /// Whether requests failed: then no list of everything is repeated with them.
    pub had_errors: bool,
    /// How many rounds in a row have found the same.
    pub unchanged: u32,
    /// When that was found first, from when the deletion was seen.
    pub changed: Duration,
    content: Option<Content>,
}

/// Resources that are looked at together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wave<'a> {
    /// The resources.
    pub resources: Vec<&'a DiscoveredResource>,
    /// Whether there are probably objects: then all are listed at once, instead of the first one alone.
    pub is_full: bool,
}

/// The waves of a round, in order. Each begins when the one before has left nothing.
pub fn waves<'a>(found: &'a Discovered, last: &Last) -> Vec<Wave<'a>> {
    let name = |resource: &DiscoveredResource| (resource.group.clone(), resource.plural.clone());
    let may_hold_objects = found.resources.iter().filter(|resource| may_hold_objects(resource));
    let (pods, others): (Vec<_>, Vec<_>) = may_hold_objects.partition(|resource| is_for_pods(resource));
    let (open, rest) = others.into_iter().partition(|resource| last.open.contains(&name(resource)));
    let are_open = pods.iter().any(|pods| last.open.contains(&name(pods)));
    let waves = [(pods, are_open), (open, true), (rest, false)];
    let waves = waves
        .into_iter()
        .map(|(resources, is_open)| Wave { resources, is_full: is_open && !last.had_errors });
    waves.filter(|wave| !wave.resources.is_empty()).collect()
}

fn is_for_pods(resource: &DiscoveredResource) -> bool {
    resource.group.is_empty() && resource.plural == "pods"
}

/// Whether a resource may have objects in a namespace that can be found and deleted.
fn may_hold_objects(resource: &DiscoveredResource) -> bool {
    let can_be_found = resource.verbs.has(Verb::List) || resource.verbs.has(Verb::DeleteCollection);
    resource.namespaced && resource.verbs.has(Verb::Delete) && can_be_found
}

/// Whether a group of unknown resources may hold objects of a namespace.
pub fn is_in_the_way(failed: &FailedGroup) -> bool {
    if failed.stores_nothing() {
        return false;
    }
    let last_good = failed.last_good.as_ref();
    last_good.is_none_or(|resources| resources.iter().any(may_hold_objects))
}

/// The result of discovery for a namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DiscoveryState {
    /// The failure, in the words of the condition.
    pub failure: Option<String>,
    /// Whether objects may be hidden by that.
    pub is_blocked: bool,
}

/// Reads what discovery has found, or why it found nothing.
pub fn discovery_state(found: Result<&Discovered, String>) -> DiscoveryState {
    match found {
        Ok(found) => DiscoveryState {
            failure: conditions::failed_groups(&found.failed),
            is_blocked: found.failed.iter().any(is_in_the_way),
        },
        Err(message) => DiscoveryState { failure: Some(message), is_blocked: true },
    }
}

/// Whether a look at the content can wait, until discovery is complete or the delay is over: it was empty, and there will
/// be another look before the end.
pub fn may_skip_content(observed: &Observed<'_>, discovery: &DiscoveryState) -> bool {
    let Observed { waited, delay, last, .. } = observed;
    last.was_empty && (discovery.is_blocked || waited < delay)
}

/// The findings of a round.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Findings {
    /// The result of discovery.
    pub discovery: DiscoveryState,
    /// The content of the namespace; `None` if it is unknown.
    pub content: Option<Content>,
    /// Whether that was found in this round; otherwise in an earlier one.
    pub is_fresh: bool,
    /// Whether the end of each kind that it holds starts another round.
    pub is_awaited: bool,
}

impl Findings {
    /// The namespace was looked at.
    pub fn fresh(discovery: DiscoveryState, content: Content) -> Self {
        Findings { discovery, content: Some(content), is_fresh: true, is_awaited: false }
    }

    /// It was not, in this round.
    pub fn without_a_look(discovery: DiscoveryState, last: &Last) -> Self {
        Findings { discovery, content: last.content.clone(), is_fresh: false, is_awaited: false }
    }
}

/// The conclusion of a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The namespace loses its token.
    Finalize,
    /// It is empty and stays, because somebody else's finalizers are there: its conditions are written first.
    Report,
    /// It waits; look again after this time.
    Wait(Duration, Cause),
    /// Nothing is left to do.
    Done,
}

/// The reason why a namespace waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cause {
    /// Requests that failed.
    Errors,
    /// Objects that are left.
    Content,
    /// A group whose resources are unknown.
    Discovery,
    /// The delay after the deletion.
    Delay,
}

impl Cause {
    /// All causes.
    pub const ALL: [Cause; 4] = [Cause::Errors, Cause::Content, Cause::Discovery, Cause::Delay];

    /// Its label in metrics.
    pub fn label(self) -> &'static str {
        match self {
            Cause::Errors => "errors",
            Cause::Content => "content",
            Cause::Discovery => "discovery",
            Cause::Delay => "delay",
        }
    }
}

/// Concludes a round. `live` is the namespace after the round, past the cache.
pub fn verdict(observed: &Observed<'_>, findings: &Findings, live: &Namespace) -> Verdict {
    let Observed { waited, delay, now, .. } = observed;
    let Findings { discovery, content, is_fresh, .. } = findings;
    if let Some(content) = content {
        if !content.errors.is_empty() {
            return Verdict::Wait(AFTER_ERRORS, Cause::Errors);
        }
        if !content.is_empty() {
            return Verdict::Wait(pause(observed, findings), Cause::Content);
        }
    }
    let blocked = Verdict::Wait(pause(observed, findings), Cause::Discovery);
    if discovery.is_blocked {
        return blocked;
    }
    if waited < delay {
        return Verdict::Wait(*delay - *waited, Cause::Delay);
    }
    if content.is_none() || !is_fresh {
        return blocked;
    }
    if !live.has_token() {
        return Verdict::Done;
    }
    let stays = live.finalizers.len() > 1 || !live.meta_finalizers.is_empty();
    if stays && conditions::after(live, findings, *now) != live.status {
        return Verdict::Report;
    }
    Verdict::Finalize
}

/// The pause before the next round.
///
/// Nothing moves where the last rounds have found the same and everything that is being deleted should be gone: a pod that
/// has ten minutes to end may do so at any time, and one whose node does not answer is not expected to.
fn pause(observed: &Observed<'_>, findings: &Findings) -> Duration {
    let Observed { waited, last, now, .. } = observed;
    if findings.is_awaited {
        return LONGEST_PAUSE;
    }
    let (first, longest) = PAUSES;
    let last = last.next(findings, *waited);
    let content = findings.content.as_ref();
    let due = content.into_iter().flat_map(|content| &content.left).filter_map(|left| left.due).max();
    let overdue = due.map_or(Duration::MAX, |due| now.duration_since(due).try_into().unwrap_or_default());
    let quiet = waited.saturating_sub(last.changed).min(overdue);
    let moving = first.saturating_mul(1 << last.unchanged.min(8)).min(longest);
    let counting = Duration::from_secs((content.map_or(0, Content::count) / OBJECTS_PER_SECOND) as u64);
    (moving.max(quiet / PART_OF_QUIET) + counting).min(LONGEST_PAUSE)
}

impl Last {
    /// The memory of the next round, which began so long after the deletion was seen.
    #[must_use]
    pub fn next(&self, findings: &Findings, waited: Duration) -> Last {
        let Some(found) = findings.content.as_ref().filter(|_| findings.is_fresh) else {
            let unchanged = self.unchanged.saturating_add(1);
            return Last { unchanged, ..self.clone() };
        };
        let open: BTreeSet<Name> = found.open().collect();
        let is_same = self.content.as_ref() == Some(found);
        Last {
            was_empty: open.is_empty(),
            had_errors: !found.errors.is_empty(),
            open,
            unchanged: if is_same { self.unchanged.saturating_add(1) } else { 0 },
            changed: if is_same { self.changed } else { waited },
            content: Some(found.clone()),
        }
    }
}

/// The result of a round.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Nothing was learned, or nothing needs to be: it is gone, or another one has its name.
    Nothing,
    /// Its token was removed.
    Finalized,
    /// It was looked at.
    Looked(Findings, Verdict),
}

/// Whether the status is written at once. Others wait a second for the next round, which may be the last.
pub fn is_urgent(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Looked(_, Verdict::Report | Verdict::Done))
}

/// The status to report after a round, and when to look again.
pub fn settle(observed: &Observed<'_>, outcome: &Outcome) -> (NamespaceStatus, Option<Duration>) {
    let Observed { namespace, now, .. } = observed;
    let Outcome::Looked(findings, verdict) = outcome else { return (namespace.status.clone(), None) };
    let after = conditions::after(namespace, findings, *now);
    match verdict {
        Verdict::Finalize | Verdict::Done => (after, None),
        Verdict::Report => (after, Some(Duration::ZERO)),
        Verdict::Wait(pause, _) => (after, Some(*pause)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Interner, Record};

    fn namespace(uid: &str, phase: &str, tokens: &[&str], is_deleting: bool) -> Namespace {
        let mut object = serde_json::json!({
            "metadata": {"name": "shop", "uid": uid, "resourceVersion": "7"},
            "spec": {"finalizers": tokens}, "status": {"phase": phase},
        });
        if is_deleting {
            object["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
        }
        Namespace::decode(&object.to_string(), &mut Interner::default()).unwrap()
    }

    #[test]
    fn only_the_namespace_that_was_seen_and_is_being_deleted_may_be_emptied() {
        let cached = namespace("u-1", "Terminating", &["kubernetes"], true);
        assert!(may_be_emptied(&cached, &namespace("u-1", "Terminating", &["kubernetes"], true)));
        let others = [
            namespace("u-2", "Terminating", &["kubernetes"], true),
            namespace("u-1", "Terminating", &["kubernetes"], false),
            namespace("u-1", "Active", &["kubernetes"], true),
            // Without a token a successor could have its name before the first deletion arrives.
            namespace("u-1", "Terminating", &[], true),
        ];
        for live in others {
            assert!(!may_be_emptied(&cached, &live), "{live:?}");
        }
    }

    #[test]
    fn only_the_last_report_about_a_namespace_is_written_at_once() {
        let looked = |verdict| Outcome::Looked(Findings::default(), verdict);
        assert!(is_urgent(&looked(Verdict::Report)) && is_urgent(&looked(Verdict::Done)));
        let waits = Verdict::Wait(Duration::from_secs(1), Cause::Content);
        let others = [Outcome::Nothing, Outcome::Finalized, looked(Verdict::Finalize), looked(waits)];
        assert!(!others.iter().any(is_urgent));
    }
}
