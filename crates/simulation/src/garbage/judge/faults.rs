//! The faults of this simulation that are not those of the network: what is answered, and until when.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::{Value, json};

use crate::engine::call::Call;
use crate::engine::network::Rewrite;
use crate::engine::request_fault::RequestFault;
use crate::garbage::scenario::{DiscoveryFault, KindFault};
use crate::garbage::truth::{GROUP, KINDS};

/// How long after a fault of discovery, or after a definition has changed, a kind may be unknown: the period of discovery,
/// some attempts that fail, and a list.
const UNKNOWN: Duration = Duration::from_secs(75);

/// The faults that are there, and those that were.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    /// The time, as far as it is known.
    pub(super) now: Duration,
    /// Until when reads of one object get a 404 that is not about the object.
    pub paths_lost_until: Duration,
    /// How many objects are given another owner while they are read.
    pub moves: u32,
    /// Until when a kind has a fault.
    of_kinds: BTreeMap<(KindFault, &'static str), Duration>,
    of_discovery: Option<(DiscoveryFault, Duration)>,
    /// Until when a kind may be unknown to the collector.
    hidden: BTreeMap<&'static str, Duration>,
    /// Daemons whose caches show nothing any more.
    cut_off: BTreeSet<String>,
}

fn group(kind: &str) -> &'static str {
    match kind {
        "ClusterRole" => "rbac.authorization.k8s.io",
        "Gadget" => GROUP,
        _ => "",
    }
}

impl Faults {
    /// A fault of a kind begins.
    pub fn begin(&mut self, fault: KindFault, plural: &'static str, until: Duration) {
        self.of_kinds.insert((fault, plural), until);
    }

    /// A fault of discovery begins.
    pub fn begin_discovery(&mut self, fault: DiscoveryFault, until: Duration) {
        self.of_discovery = Some((fault, until));
        for (kind, plural, _) in KINDS {
            if fault.hides(group(kind)) {
                self.hide(plural, until + UNKNOWN);
            }
        }
    }

    /// The caches of this daemon show nothing any more.
    pub fn cut_off(&mut self, agent: &str) {
        self.cut_off.insert(agent.to_owned());
    }

    /// All faults end. What has got no answer by now may go on waiting for one.
    pub fn end(&mut self) {
        let (now, hidden) = (self.now, std::mem::take(&mut self.hidden));
        let mut of_kinds = std::mem::take(&mut self.of_kinds);
        of_kinds.values_mut().for_each(|until| *until = now.min(*until));
        *self = Faults { now, hidden, of_kinds, ..Faults::default() };
    }

    pub(super) fn hide(&mut self, plural: &'static str, until: Duration) {
        let hidden = self.hidden.entry(plural).or_default();
        *hidden = until.max(*hidden);
    }

    /// Whether the collector may not know of this kind.
    pub(super) fn is_hidden(&self, kind: &str, at: Duration) -> bool {
        let plural = KINDS.iter().find(|(name, ..)| *name == kind).map_or("", |(_, plural, _)| plural);
        self.hidden.get(plural).is_some_and(|until| at < *until)
    }

    /// Whether a kind cannot be listed, or could not be until less than `patience` ago.
    pub(super) fn is_unreadable(&self, at: Duration, patience: Duration) -> bool {
        self.of_kinds.iter().any(|((fault, _), until)| *fault != KindFault::Lagging && at < *until + patience)
    }

    /// Whether the lists of some kind get no answer, or got none until less than `patience` ago.
    pub(super) fn is_any_silent(&self, at: Duration, patience: Duration) -> bool {
        let is_silent =
            |fault: &KindFault, until: &Duration| *fault == KindFault::Hanging && at < *until + patience;
        self.of_kinds.iter().any(|((fault, _), until)| is_silent(fault, until))
    }

    /// Whether objects of this kind cannot be listed, or could not be until less than `patience` ago.
    pub(super) fn is_down(&self, kind: &str, at: Duration, patience: Duration) -> bool {
        let is_meant = |plural: &str| KINDS.iter().any(|(name, known, _)| *name == kind && *known == plural);
        let is_down =
            |fault: &KindFault, until: &Duration| *fault != KindFault::Lagging && at < *until + patience;
        self.of_kinds.iter().any(|((fault, plural), until)| is_meant(plural) && is_down(fault, until))
    }

    fn has(&self, fault: KindFault, call: &Call) -> bool {
        self.of_kinds
            .iter()
            .any(|((known, plural), until)| *known == fault && call.resource == *plural && self.now < *until)
    }

    pub(super) fn fault(&self, call: &Call) -> Option<RequestFault> {
        let refused = |code, reason, message: &str| RequestFault::Refuse(code, reason, message.to_owned());
        let is_ours = KINDS.iter().any(|(_, plural, _)| *plural == call.resource);
        let is_lost =
            is_ours && !call.is_write() && !call.name.is_empty() && self.now < self.paths_lost_until;
        if is_lost || self.has(KindFault::Lost, call) {
            return Some(refused(404, "NotFound", "404 page not found"));
        }
        if call.lists() && self.has(KindFault::Broken, call) {
            return Some(refused(500, "InternalError", "conversion webhook failed"));
        }
        let is_failing =
            matches!(self.of_discovery, Some((DiscoveryFault::Failing, until)) if self.now < until);
        if is_failing && matches!(&*call.path, "/api" | "/apis") {
            return Some(refused(503, "ServiceUnavailable", "the server is starting"));
        }
        let hangs = call.lists() && (self.has(KindFault::Hanging, call) || self.is_cut_off(call));
        hangs.then_some(RequestFault::Hang)
    }

    fn is_cut_off(&self, call: &Call) -> bool {
        !call.resource.is_empty() && self.cut_off.contains(&*call.agent)
    }

    pub(super) fn lags_until(&self, call: &Call) -> Duration {
        if self.is_cut_off(call) {
            return Duration::MAX;
        }
        let lag = self
            .of_kinds
            .iter()
            .find(|((fault, plural), _)| *fault == KindFault::Lagging && call.resource == *plural);
        lag.map_or(Duration::ZERO, |(_, until)| *until)
    }

    pub(super) fn rewrites(&self, call: &Call) -> Option<Rewrite> {
        let (fault, until) = self.of_discovery?;
        let is_hit = self.now < until && matches!(&*call.path, "/api" | "/apis");
        is_hit.then(|| Box::new(move |document| partial(document, fault)) as Rewrite)
    }
}

/// The answer of discovery with this fault.
fn partial(mut document: Value, fault: DiscoveryFault) -> Value {
    let Some(items) = document["items"].as_array_mut() else { return document };
    let is_core = items.iter().any(|item| item["metadata"]["name"] == "");
    match fault {
        DiscoveryFault::Missing(group) => items.retain(|item| item["metadata"]["name"] != group),
        DiscoveryFault::Empty if !is_core => items.clear(),
        DiscoveryFault::Stale(group) => {
            let stale = items.iter_mut().filter(|item| item["metadata"]["name"] == group);
            for version in stale.filter_map(|item| item["versions"].as_array_mut()).flatten() {
                version["freshness"] = json!("Stale");
            }
        }
        DiscoveryFault::Empty | DiscoveryFault::Failing => {}
    }
    document
}
