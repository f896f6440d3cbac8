//! The explanations of the last plans of each workload, for `/debug`.
//!
//! Bounded in bytes: by [`MOST`] for all of them together, and by [`LARGEST`] for one explanation. Five
//! explanations are kept of a workload that is rolled out, one of a workload that is settled, and none of
//! a deleted one. When they take too much memory, the one that was current longest ago is dropped first.
//!
//! A plan with the same reasons as a kept explanation makes that one current again: a pod that crashes every
//! minute does not displace the earlier steps of the rollout.

use std::collections::{BTreeMap, VecDeque};
use std::fmt::{self, Display, Formatter};
use std::time::Duration;

use jiff::Timestamp;
use parking_lot::Mutex;
use serde::{Serialize, Serializer};

use crate::model::{ContainerText, Meta, Resource, Uid};
use crate::plan::{Reason, shorten};

/// The most bytes that all explanations may take.
pub const MOST: usize = 16 << 20;

/// About the most bytes that one explanation may take; reasons beyond that are left out.
pub const LARGEST: usize = 32 << 10;

/// How many explanations are kept of each workload.
const KEPT: usize = 5;

/// How many writes of one plan are listed; trimming a long history may have hundreds.
const WRITES: usize = 20;

/// The longest text from outside that is kept, in bytes. A webhook may answer with a whole page.
const LONGEST_TEXT: usize = 1000;

/// The memory of an explanation beside its contents: two entries in maps, and the identity of its owner.
const OVERHEAD: usize = 160;

/// The explanation of a plan.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Explanation {
    /// When a plan first had this explanation.
    #[serde(serialize_with = "as_text")]
    pub since: Timestamp,
    /// When a plan last had it.
    #[serde(serialize_with = "as_text")]
    pub last: Timestamp,
    /// How many plans had it.
    pub times: u64,
    /// The reasons.
    #[serde(serialize_with = "with_sentences")]
    #[serde(rename = "why")]
    pub reasons: Vec<Reason>,
    /// How many reasons more there were than are kept.
    #[serde(skip_serializing_if = "is_zero")]
    pub reasons_left_out: usize,
    /// The termination messages of the containers of these pods, by the pods' names: only in answers to
    /// authenticated clients that may read them.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub termination_messages: BTreeMap<String, String>,
    /// The plan's writes, by name and size, in order.
    pub writes: Vec<String>,
    /// Which of the writes failed, and how; the rest of them was not sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// When the object is synced again even if nothing changes, in seconds.
    #[serde(rename = "lookAgainAfterSeconds", serialize_with = "as_seconds")]
    pub requeue_after: Option<Duration>,
}

impl Explanation {
    /// The explanation of one plan, at this time.
    pub fn new(
        now: Timestamp,
        reasons: impl IntoIterator<Item = impl Into<Reason>>,
        writes: &[impl Display],
    ) -> Self {
        let mut reasons: Vec<Reason> = reasons.into_iter().map(Into::into).collect();
        let mut listed: Vec<String> = writes.iter().take(WRITES).map(ToString::to_string).collect();
        if let Some(more) = writes.len().checked_sub(WRITES).filter(|&more| more > 0) {
            listed.push(format!("and {more} more"));
        }
        listed.iter_mut().for_each(|write| shorten(write, LONGEST_TEXT));
        reasons.iter_mut().for_each(|reason| reason.shorten(LONGEST_TEXT));
        let mut total = 0;
        let fit = reasons.iter().take_while(|reason| {
            total += reason.bytes();
            total <= LARGEST
        });
        let fit = fit.count().max(1);
        let reasons_left_out = reasons.len().saturating_sub(fit);
        reasons.truncate(fit);
        reasons.shrink_to_fit();
        Explanation {
            since: now,
            last: now,
            times: 1,
            reasons,
            reasons_left_out,
            termination_messages: BTreeMap::new(),
            writes: listed,
            error: None,
            requeue_after: None,
        }
    }

    /// The plan failed.
    pub fn fail(&mut self, error: &impl Display) {
        let mut text = error.to_string();
        shorten(&mut text, LONGEST_TEXT);
        self.error = Some(text);
    }

    fn equals(&self, other: &Explanation) -> bool {
        self.reasons == other.reasons && self.writes == other.writes && self.error == other.error
    }

    /// Whether no work was left.
    fn is_settled(&self) -> bool {
        self.error.is_none() && self.writes.is_empty() && self.reasons.iter().all(Reason::is_at_rest)
    }

    fn bytes(&self) -> usize {
        let reasons: usize = self.reasons.iter().map(Reason::bytes).sum();
        let writes: usize = self.writes.iter().map(|write| size_of::<String>() + write.capacity()).sum();
        let error = self.error.as_ref().map_or(0, String::capacity);
        OVERHEAD + size_of::<Explanation>() + reasons + writes + error
    }
}

/// In one line, for logs.
impl Display for Explanation {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for (at, reason) in self.reasons.iter().enumerate() {
            write!(f, "{}{reason}", if at == 0 { "" } else { "; " })?;
        }
        if self.reasons_left_out > 0 { write!(f, "; and {} more", self.reasons_left_out) } else { Ok(()) }
    }
}

/// The explanations of one workload, as they are served.
#[derive(Debug, Serialize)]
pub struct Explained {
    /// Its namespace and name, by its kind.
    #[serde(flatten)]
    pub object: BTreeMap<String, String>,
    /// Of the last plan.
    pub current: Explanation,
    /// Of the plans before it, the latest first.
    pub earlier: Vec<Explanation>,
}

impl Explained {
    /// With the termination messages of containers, for an authenticated client that may read them.
    #[must_use]
    pub fn with_termination_messages(mut self) -> Self {
        for explanation in std::iter::once(&mut self.current).chain(&mut self.earlier) {
            let pods = explanation.reasons.iter().flat_map(Reason::named_pods);
            let reveal = |text: &ContainerText| text.reveal().to_owned();
            let messages = pods.filter_map(|pod| {
                Some((pod.name.to_string(), pod.termination_message.as_ref().map(reveal)?))
            });
            explanation.termination_messages = messages.collect();
        }
        self
    }
}

/// The current explanation of a workload, in short.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Summary {
    /// No work was left.
    Settled,
    /// Some was.
    Unfinished {
        /// Since when.
        since: Timestamp,
        /// The error, or else the first reason.
        why: String,
    },
}

/// The last explanations of all workloads.
#[derive(Debug, Default)]
pub struct Explanations(Mutex<Kept>);

#[derive(Debug, Default)]
struct Kept {
    /// The explanations of each workload, the current one first, each with the number of the push that made it current.
    by_owner: BTreeMap<Uid, VecDeque<(u64, Explanation)>>,
    /// The owner of each by that number, the oldest first.
    by_turn: BTreeMap<u64, Uid>,
    turns: u64,
    bytes: usize,
}

impl Kept {
    /// Adds an explanation as the current one of its owner.
    fn push(&mut self, owner: &Uid, explanation: Explanation) {
        self.turns += 1;
        self.bytes += explanation.bytes();
        self.by_turn.insert(self.turns, owner.clone());
        self.by_owner.entry(owner.clone()).or_default().push_front((self.turns, explanation));
    }

    /// Removes the n-th explanation of an owner.
    fn remove(&mut self, owner: &Uid, nth: usize) -> Option<Explanation> {
        let of_owner = self.by_owner.get_mut(owner)?;
        let (turn, explanation) = of_owner.remove(nth)?;
        if of_owner.is_empty() {
            self.by_owner.remove(owner);
        }
        self.by_turn.remove(&turn);
        self.bytes -= explanation.bytes();
        Some(explanation)
    }

    fn number_of(&self, owner: &Uid) -> usize {
        self.by_owner.get(owner).map_or(0, VecDeque::len)
    }

    /// Keeps only the latest explanations of an owner.
    fn truncate(&mut self, owner: &Uid, most: usize) {
        while let Some(last) = self.number_of(owner).checked_sub(1).filter(|last| *last >= most) {
            self.remove(owner, last);
        }
    }

    /// Removes the oldest explanations until the rest takes no more than this.
    fn evict(&mut self, most: usize) {
        while self.bytes > most
            && let Some((_, owner)) = self.by_turn.pop_first()
        {
            // Those of one owner are in order as well, so that the oldest of all is its owner's last.
            self.remove(&owner, self.number_of(&owner).saturating_sub(1));
        }
    }
}

impl Explanations {
    /// Keeps an explanation as the current one.
    pub fn keep(&self, owner: &Uid, mut new: Explanation) {
        let mut kept = self.0.lock();
        let of_owner = kept.by_owner.get(owner);
        let before = of_owner.and_then(|all| all.iter().position(|(_, old)| old.equals(&new)));
        if let Some(old) = before.and_then(|at| kept.remove(owner, at)) {
            new.since = old.since;
            new.times = old.times.saturating_add(1);
        }
        let number = if new.is_settled() { 1 } else { KEPT };
        kept.push(owner, new);
        kept.truncate(owner, number);
        kept.evict(MOST);
    }

    /// The explanations of an object of this kind, without termination messages; `None` before its first plan, and when
    /// they were dropped for lack of memory.
    pub fn of(&self, resource: Resource, object: &Meta) -> Option<Explained> {
        let kept = self.0.lock();
        let mut all = kept.by_owner.get(&object.uid)?.iter().map(|(_, explanation)| explanation.clone());
        let current = all.next()?;
        let object = BTreeMap::from([(field_name(resource.kind), object.key.to_string())]);
        Some(Explained { object, current, earlier: all.collect() })
    }

    /// The current explanation of an object in short; `None` as for [`Explanations::of`].
    pub fn summary(&self, owner: &Uid) -> Option<Summary> {
        let kept = self.0.lock();
        let (_, current) = kept.by_owner.get(owner)?.front()?;
        if current.is_settled() {
            return Some(Summary::Settled);
        }
        let first = || current.reasons.first().map(ToString::to_string).unwrap_or_default();
        let why = current.error.clone().unwrap_or_else(first);
        Some(Summary::Unfinished { since: current.since, why })
    }

    /// How many bytes all of them take, approximately.
    pub fn bytes(&self) -> usize {
        self.0.lock().bytes
    }

    /// The owner was deleted.
    pub fn forget(&self, owner: &Uid) {
        self.0.lock().truncate(owner, 0);
    }
}

/// A reason as it is served: as a sentence and as data.
#[derive(Serialize)]
struct Served<'a> {
    text: String,
    #[serde(flatten)]
    reason: &'a Reason,
}

/// A kind as the name of a field.
fn field_name(kind: &str) -> String {
    let first = kind.chars().take(1).map(|c| c.to_ascii_lowercase());
    first.chain(kind.chars().skip(1)).collect()
}

fn with_sentences<S: Serializer>(reasons: &[Reason], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(reasons.iter().map(|reason| Served { text: reason.to_string(), reason }))
}

/// A time as the API writes times.
pub fn as_text<S: Serializer>(at: &Timestamp, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(at)
}

fn as_seconds<S: Serializer>(wait: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
    wait.map(|wait| wait.as_secs()).serialize(serializer)
}

fn is_zero(number: &usize) -> bool {
    *number == 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Interner, Pod, Record};
    use crate::plan::deployment::PlanReason;
    use crate::plan::deployment::explain::{NamedPod, Pods};

    fn at(second: i64, writes: &[&str]) -> Explanation {
        Explanation::new(Timestamp::from_second(second).unwrap(), vec![PlanReason::Paused], writes)
    }

    fn named(uid: &str) -> Meta {
        let json = format!(
            r#"{{"metadata": {{"name": "web", "namespace": "shop", "uid": "{uid}", "resourceVersion": "1"}}}}"#
        );
        Pod::decode(&json, &mut Interner::default()).unwrap().meta
    }

    fn crashing(pod: &str, message: &str) -> PlanReason {
        let pod = NamedPod {
            name: pod.into(),
            reason: "CrashLoopBackOff".into(),
            message: Some(message.into()),
            termination_message: Some(ContainerText::new("password=hunter2".into())),
        };
        PlanReason::OldPodsEnding { running: 1, pods: Pods { named: vec![pod], more: 0 } }
    }

    /// The memory of all kept explanations, counted again.
    fn counted(all: &Explanations) -> usize {
        let kept = all.0.lock();
        let number: usize = kept.by_owner.values().map(VecDeque::len).sum();
        assert_eq!(number, kept.by_turn.len());
        kept.by_owner.values().flatten().map(|(_, explanation)| explanation.bytes()).sum()
    }

    #[test]
    fn five_explanations_are_kept_and_a_repeated_one_becomes_current_again() {
        let web = named("u");
        let (all, owner) = (Explanations::default(), web.uid.clone());
        for second in 0..7 {
            all.keep(&owner, at(second, &[&second.to_string()]));
        }
        all.keep(&owner, at(10, &["4"]));
        all.keep(&owner, at(11, &["4"]));
        let Explained { current, earlier, .. } = all.of(Pod::RESOURCE, &web).unwrap();
        let writes: Vec<&str> =
            [&current].into_iter().chain(&earlier).map(|e| e.writes[0].as_str()).collect();
        assert_eq!(writes, ["4", "6", "5", "3", "2"]);
        let times = (current.since.as_second(), current.last.as_second(), current.times);
        assert_eq!(times, (4, 11, 3));
        assert_eq!(all.bytes(), counted(&all));
        all.forget(&owner);
        assert!(all.of(Pod::RESOURCE, &web).is_none());
        assert_eq!((all.bytes(), counted(&all)), (0, 0));
    }

    #[test]
    fn a_settled_deployment_keeps_one_explanation() {
        let web = named("u");
        let all = Explanations::default();
        for second in 0..4 {
            all.keep(&web.uid, at(second, &[&second.to_string()]));
        }
        let complete =
            || Explanation::new(Timestamp::UNIX_EPOCH, vec![PlanReason::Complete { replicas: 3 }], &[""; 0]);
        let mut refused = complete();
        refused.fail(&"no");
        all.keep(&web.uid, refused);
        assert_eq!(
            all.of(Pod::RESOURCE, &web).unwrap().earlier.len(),
            4,
            "a step that failed is tried again"
        );
        all.keep(&web.uid, complete());
        let Explained { current, earlier, .. } = all.of(Pod::RESOURCE, &web).unwrap();
        assert_eq!((current.reasons, earlier), (vec![PlanReason::Complete { replicas: 3 }.into()], vec![]));
        assert_eq!(all.bytes(), counted(&all));
    }

    #[test]
    fn the_oldest_explanations_are_dropped_with_a_hundred_thousand_deployments() {
        let all = Explanations::default();
        let metas: Vec<Meta> =
            (0..100_000).map(|n| named(&format!("00000000-0000-4000-8000-{n:012}"))).collect();
        for (second, meta) in metas.iter().enumerate() {
            all.keep(&meta.uid, at(second as i64, &["scale web-6d6f5bd8b9 3 -> 2"]));
            if second % 100 == 0 {
                // One that is explained again and again stays.
                all.keep(&metas[0].uid, at(second as i64, &[&second.to_string()]));
            }
            assert!(all.bytes() <= MOST);
        }
        assert_eq!(all.bytes(), counted(&all));
        assert!(all.bytes() > MOST - LARGEST, "no more than needed is thrown away: {}", all.bytes());
        assert!(
            all.of(Pod::RESOURCE, &metas[1]).is_none() && all.of(Pod::RESOURCE, &metas[99_999]).is_some()
        );
        assert_eq!(all.of(Pod::RESOURCE, &metas[0]).unwrap().earlier.len(), KEPT - 1);
        metas.iter().for_each(|meta| all.forget(&meta.uid));
        assert_eq!((all.bytes(), counted(&all)), (0, 0));
    }

    #[test]
    fn hostile_texts_take_no_more_than_one_explanation_may() {
        let long = "ä".repeat(1 << 20);
        let failure = |n: usize| PlanReason::ReplicaFailure {
            replica_set: format!("web-{n}").into(),
            reason: long.as_str().into(),
            message: long.as_str().into(),
        };
        let reasons = (0..200).map(failure).chain([PlanReason::Refused { defect: long.clone() }]);
        let mut explanation = Explanation::new(Timestamp::UNIX_EPOCH, reasons, &[long.as_str(); 300]);
        explanation.fail(&long);
        let most = LARGEST + (WRITES + 2) * (LONGEST_TEXT + 100) + OVERHEAD;
        assert!(explanation.bytes() <= most, "{}", explanation.bytes());
        assert_eq!(explanation.reasons.len() + explanation.reasons_left_out, 201);
        assert!(!explanation.reasons.is_empty() && explanation.reasons_left_out > 100);
        assert!(explanation.to_string().ends_with(&format!("and {} more", explanation.reasons_left_out)));
        let mut one =
            Explanation::new(Timestamp::UNIX_EPOCH, vec![PlanReason::CreateLimit { reason: long }], &[""; 0]);
        one.requeue_after = None;
        assert!(one.bytes() < 2 * LONGEST_TEXT + OVERHEAD, "{}", one.bytes());
    }

    #[test]
    fn another_message_of_a_pod_is_no_new_explanation_and_the_newest_is_shown() {
        let web = named("u");
        let all = Explanations::default();
        for wait in ["back-off 10s", "back-off 20s"] {
            let reasons = crashing("web-1", wait);
            all.keep(&web.uid, Explanation::new(Timestamp::UNIX_EPOCH, vec![reasons], &[""; 0]));
        }
        let Explained { current, earlier, .. } = all.of(Pod::RESOURCE, &web).unwrap();
        assert_eq!((current.times, earlier.len()), (2, 0));
        assert!(current.reasons[0].to_string().contains("back-off 20s"), "{}", current.reasons[0]);
        assert_eq!(all.bytes(), counted(&all));
    }

    #[test]
    fn termination_messages_are_served_only_on_request() {
        let web = named("u");
        let all = Explanations::default();
        let explanation =
            Explanation::new(Timestamp::UNIX_EPOCH, vec![crashing("web-1", "exit code 1")], &[""; 0]);
        let logged = format!("{explanation} {explanation:?}");
        assert!(logged.contains("exit code 1") && !logged.contains("hunter2"), "{logged}");
        all.keep(&web.uid, explanation);
        let explained = all.of(Pod::RESOURCE, &web).unwrap();
        let open = serde_json::to_string(&explained).unwrap();
        assert!(open.contains("exit code 1") && !open.contains("hunter2"), "{open}");
        assert!(open.contains("\"pod\":\"shop/web\""), "{open}");
        let closed = serde_json::to_value(explained.with_termination_messages()).unwrap();
        assert_eq!(closed["current"]["terminationMessages"]["web-1"], "password=hunter2");
    }

    #[test]
    fn long_answers_and_many_writes_are_cut() {
        let mut long = at(0, &["w"; 300]);
        long.fail(&"ä".repeat(100_000));
        assert_eq!((long.writes.len(), long.writes[20].as_str()), (21, "and 280 more"));
        assert!(long.error.unwrap().len() <= LONGEST_TEXT + 3);
    }
}
