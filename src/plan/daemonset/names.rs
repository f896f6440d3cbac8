//! The names of DaemonSet pods: chosen before the pods are created, and the same in every process.
//!
//! The DaemonSet's UID and a node's name give one circle of names, whose places are called slots. A new pod takes the
//! first slot at or above the node's mark whose name no pod in the cache has. The mark moves past a slot once its
//! creation is known to have happened. So a daemon that was restarted, another leader, or the same one after a lost
//! reply requests the same name: the second creation meets a taken name instead of an empty node. A name is not used
//! again while the process lives.
//!
//! The revision is not part of the name: a late creation of the old template and one of the new cannot both succeed.
//!
//! A suffix has ten letters. With five, 5,000 nodes would clash nearly once.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;

use super::Members;
use crate::model::template::SAFE_ALPHABET;
use crate::model::{DaemonSet, Pod, Record, Uid};

/// The number of letters behind the DaemonSet's name.
const SUFFIX: usize = 10;

/// How much of the DaemonSet's name a pod's name keeps: 63 characters with the hyphen and the suffix.
const LONGEST_BASE: usize = 52;

const LETTERS: u64 = SAFE_ALPHABET.len() as u64;

/// The number of slots: 27 to the power of 10.
pub const SLOTS: u64 = LETTERS.pow(SUFFIX as u32);

/// From one slot to the next. Not divisible by three, so that it shares no factor with [`SLOTS`] and each slot has a
/// name of its own.
const WIDTH: u64 = 127_104_517_733_551;

/// `WIDTH * INVERSE` is 1 modulo [`SLOTS`].
const INVERSE: u64 = inverse_of(WIDTH);

/// By Newton's iteration: the width is right modulo 3, or its own inverse there, and each step doubles the power of 3
/// for which the inverse is right: 3 to the power of 32 after five, which is more than the 30 of SLOTS.
const fn inverse_of(width: u64) -> u64 {
    let mut inverse = width % 3;
    let mut step = 0;
    while step < 5 {
        let error = (SLOTS + 2 - times(width, inverse)) % SLOTS;
        inverse = times(inverse, error);
        step += 1;
    }
    inverse
}

/// The product modulo [`SLOTS`].
const fn times(a: u64, b: u64) -> u64 {
    (a as u128 * b as u128 % SLOTS as u128) as u64
}

/// The names for the pods of one DaemonSet.
#[derive(Clone, Debug)]
pub struct Names {
    base: String,
    uid: String,
}

impl Names {
    /// The names of the DaemonSet with this name and UID.
    pub fn of(daemon_set: &str, uid: &Uid) -> Self {
        let cut = (0..=daemon_set.len().min(LONGEST_BASE)).rev().find(|&at| daemon_set.is_char_boundary(at));
        let mut base = daemon_set.get(..cut.unwrap_or(0)).unwrap_or_default();
        if base.len() < daemon_set.len() {
            // No part of a name begins with the hyphen that follows.
            base = base.trim_end_matches(['.', '-']);
        }
        Names { base: format!("{base}-"), uid: uid.to_string() }
    }

    /// The node comes first: FNV mixes the last bytes least, and nodes often differ in one letter.
    fn start(&self, node: &str) -> u64 {
        fnv1a_64([node.as_bytes(), b"/", self.uid.as_bytes()]) % SLOTS
    }

    /// The name at a slot of a node. Behind the last slot the first one comes again.
    pub fn name(&self, node: &str, slot: u64) -> String {
        let mut number = (self.start(node) + times(slot % SLOTS, WIDTH)) % SLOTS;
        let mut name = String::with_capacity(self.base.len() + SUFFIX);
        name.push_str(&self.base);
        for _ in 0..SUFFIX {
            name.extend(SAFE_ALPHABET.get((number % LETTERS) as usize).map(|letter| char::from(*letter)));
            number /= LETTERS;
        }
        name
    }

    /// The slot of a name on a node; `None` for a name of another form, such as that of a pod of another controller.
    /// For a pod that was created for another node, the slot means nothing.
    pub fn slot(&self, node: &str, name: &str) -> Option<u64> {
        let suffix = name.strip_prefix(&*self.base).filter(|suffix| suffix.len() == SUFFIX)?;
        let number = suffix.bytes().rev().try_fold(0, |number, byte| {
            let digit = SAFE_ALPHABET.iter().position(|letter| *letter == byte)?;
            Some(number * LETTERS + u64::try_from(digit).ok()?)
        })?;
        Some(times((number + SLOTS - self.start(node)) % SLOTS, INVERSE))
    }

    /// The name for a new pod on a node: that of the first slot from the mark on which `is_taken` leaves free. Each pod
    /// in the way takes one name, so that the node always gets one.
    pub fn free(&self, node: &str, marks: &Marks, is_taken: impl Fn(&str) -> bool) -> String {
        let mark = marks.of(node);
        let mut names = (mark..).map(|slot| self.name(node, slot));
        names.find(|name| !is_taken(name)).unwrap_or_else(|| self.name(node, mark))
    }

    /// The name to request where this one was taken.
    pub fn after(&self, node: &str, name: &str) -> String {
        self.name(node, self.slot(node, name).map_or(0, |slot| slot + 1))
    }
}

/// Below which slot of each node names have been used, in this process.
///
/// While a creation whose reply was lost may still arrive, the mark of its node stays where it is: a pod that is
/// created there meanwhile gets the same name, so that the late request meets a taken name. That is the one case in
/// which a name may be used again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Marks {
    by_node: BTreeMap<Arc<str>, u64>,
    /// Of nodes with such a creation: until when it may arrive, and the mark that the node gets afterwards.
    doubted: BTreeMap<Arc<str>, (Timestamp, u64)>,
}

impl Marks {
    /// The state of a process without a memory: the marks stand above the slots of the pods in the cache.
    pub fn seen(daemon_set: &DaemonSet, members: &Members) -> Self {
        let names = Names::of(&daemon_set.meta.key.name, &daemon_set.meta.uid);
        let mut marks = Marks::default();
        for pod in members.all() {
            if let Some(node) = pod.target() {
                marks.created(&names, node, &pod.meta.key.name);
            }
        }
        marks
    }

    /// A pod was created on this node under this name: the reply says so, or the cache shows the pod.
    ///
    /// Others may create pods with our owner reference and chosen names. The slots are a circle, and what is up to half
    /// of it ahead counts as later: such a name can move the mark to another stretch of free names, and no more.
    pub fn created(&mut self, names: &Names, node: &Arc<str>, name: &str) {
        let Some(slot) = names.slot(node, name) else { return };
        let mark = self.doubted.get(node).map_or_else(|| self.of(node), |(_, mark)| *mark);
        if (slot + SLOTS - mark) % SLOTS >= SLOTS / 2 {
            return;
        }
        let mark = (slot + 1) % SLOTS;
        match self.doubted.get_mut(node) {
            Some((_, later)) => *later = mark,
            None => drop(self.by_node.insert(node.clone(), mark)),
        }
    }

    /// The reply to a creation on this node was lost: it may arrive until then.
    pub fn doubt(&mut self, node: &Arc<str>, until: Timestamp) {
        let mark = self.of(node);
        let (end, _) = self.doubted.entry(node.clone()).or_insert((until, mark));
        *end = until.max(*end);
    }

    /// A creation without a reply is known to have happened.
    pub fn has_arrived(&mut self, node: &str) {
        if let Some((node, (_, mark))) = self.doubted.remove_entry(node) {
            self.by_node.insert(node, mark);
        }
    }

    /// Creations that may have arrived until now either have, or never will.
    pub fn end_doubts(&mut self, now: Timestamp) {
        let over = self.doubted.extract_if(.., |_, (until, _)| *until <= now);
        self.by_node.extend(over.map(|(node, (_, mark))| (node, mark)));
    }

    /// Whether a creation may still arrive anywhere.
    pub fn has_doubts(&self) -> bool {
        !self.doubted.is_empty()
    }

    /// Drops the mark of a deleted node.
    pub fn forget(&mut self, node: &str) {
        self.by_node.remove(node);
        self.doubted.remove(node);
    }

    fn of(&self, node: &str) -> u64 {
        self.by_node.get(node).copied().unwrap_or(0)
    }
}

/// The reaction to a creation whose name is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// The pod is the one that was to be created.
    Created,
    /// An earlier pod of the node is still terminating: wait until the cache shows its deletion.
    Wait,
    /// Try again under the name of the next slot ([`Names::after`]).
    NextSlot,
}

/// Decides about a creation on `node` whose name is taken by `existing`; `None` where it was deleted since.
pub fn on_taken(daemon_set: &DaemonSet, node: &str, existing: Option<&Pod>) -> Taken {
    let Some(pod) = existing else { return Taken::Wait };
    let is_ours = daemon_set.controls(&pod.meta) && pod.target().is_some_and(|target| **target == *node);
    if !is_ours || pod.is_terminal() {
        return Taken::NextSlot;
    }
    match (pod.meta.is_deleting(), daemon_set.allows_surge()) {
        (false, _) => Taken::Created,
        (true, false) => Taken::Wait,
        (true, true) => Taken::NextSlot,
    }
}

/// FNV-1a over 64 bits of several parts, one behind the other.
pub(super) fn fnv1a_64<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> u64 {
    let bytes = parts.into_iter().flatten();
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::model::Interner;

    fn names(daemon_set: &str, uid: &str) -> Names {
        Names::of(daemon_set, &Uid::new(uid))
    }

    #[test]
    fn names_stay_within_63_characters_and_are_names_wherever_they_are_cut() {
        let name = names("agent", "u").name("n1", 0);
        let suffix = name.strip_prefix("agent-").unwrap();
        assert!(suffix.len() == SUFFIX && suffix.bytes().all(|byte| SAFE_ALPHABET.contains(&byte)), "{name}");
        assert_eq!(names(&"a".repeat(253), "u").name("n1", 0).len(), 63);
        let dotted = names(&format!("{}.{}", "a".repeat(51), "b".repeat(60)), "u").name("n1", 0);
        assert!(dotted.starts_with(&format!("{}-", "a".repeat(51))), "{dotted}");
    }

    #[test]
    fn the_names_are_those_of_earlier_releases() {
        let names = names("agent", "u-1");
        let first = [names.name("n1", 0), names.name("n1", 1), names.name("n2", 0)];
        assert_eq!(first, ["agent-jjsnpnvxbj", "agent-rgsx4mxzx5", "agent-kdsv9hpqmc"]);
    }

    #[test]
    fn five_thousand_nodes_and_their_first_slots_do_not_clash() {
        let names = names("agent", "0f8fad5b-d9cb-469f-a165-70867728950e");
        let all: BTreeSet<String> = (0..5000)
            .flat_map(|node| (0..4).map(move |slot| (node, slot)))
            .map(|(node, slot)| names.name(&format!("node-{node}"), slot))
            .collect();
        assert_eq!(all.len(), 20_000);
        assert_ne!(names.name("n1", 0), super::tests::names("agent", "u-2").name("n1", 0));
    }

    #[test]
    fn the_slot_of_a_name_is_where_it_stands() {
        let names = names("agent", "u-1");
        for slot in [0, 1, 2, 77, 5_000_000, SLOTS - 1] {
            assert_eq!(names.slot("n1", &names.name("n1", slot)), Some(slot));
        }
        assert_eq!(names.name("n1", SLOTS), names.name("n1", 0));
        for name in
            ["", "agent", "agent-", "agent-x7k2p", "agent-bcdfghjklé", "agent-aaaaaaaaaa", "other-bcdfghjklm"]
        {
            assert_eq!(names.slot("n1", name), None, "{name}");
        }
    }

    #[test]
    fn a_name_that_a_pod_has_had_is_not_given_again_and_one_without_an_outcome_is() {
        let (names, node) = (names("agent", "u-1"), Arc::from("n1"));
        let mut marks = Marks::default();
        let first = names.free("n1", &marks, |_| false);
        assert_eq!(names.free("n1", &marks, |_| false), first, "the reply was lost");
        marks.created(&names, &node, &first);
        let second = names.free("n1", &marks, |_| false);
        assert_eq!((second.clone(), names.after("n1", &first)), (names.name("n1", 1), names.name("n1", 1)));
        marks.created(&names, &node, &first);
        assert_eq!(names.free("n1", &marks, |_| false), second, "an old event moves no mark back");
        assert_eq!(names.free("n1", &marks, |name| name == second), names.name("n1", 2));
        assert_eq!(names.free("n2", &marks, |_| false), names.name("n2", 0));
        marks.forget("n1");
        assert_eq!(marks, Marks::default());
    }

    #[test]
    fn a_chosen_name_far_ahead_moves_the_mark_and_one_far_behind_does_not() {
        let (names, node) = (names("agent", "u-1"), Arc::from("n1"));
        let mut marks = Marks::default();
        marks.created(&names, &node, &names.name("n1", SLOTS - 1));
        assert_eq!(marks.of("n1"), 0);
        for slot in [SLOTS / 2 - 1, SLOTS - 2, SLOTS - 1] {
            marks.created(&names, &node, &names.name("n1", slot));
        }
        assert_eq!(marks.of("n1"), 0, "the circle begins again");
        assert_eq!(names.free("n1", &marks, |_| false), names.name("n1", 0));
    }

    #[test]
    fn while_a_lost_creation_may_arrive_its_name_is_requested_again() {
        let (names, node) = (names("agent", "u-1"), Arc::from("n1"));
        let at = |second| Timestamp::from_second(second).unwrap();
        let mut marks = Marks::default();
        marks.doubt(&node, at(120));
        marks.created(&names, &node, &names.name("n1", 0));
        assert_eq!(names.free("n1", &marks, |_| false), names.name("n1", 0), "after the second request");
        marks.created(&names, &node, &names.name("n1", 1));
        marks.end_doubts(at(119));
        assert!(marks.has_doubts());
        marks.end_doubts(at(120));
        assert!(!marks.has_doubts());
        assert_eq!(names.free("n1", &marks, |_| false), names.name("n1", 2), "no name of these comes back");
        marks.doubt(&node, at(300));
        marks.has_arrived("n1");
        marks.created(&names, &node, &names.name("n1", 2));
        assert_eq!(names.free("n1", &marks, |_| false), names.name("n1", 3));
    }

    fn taken(strategy: &str, uid: &str, node: &str, more: &str, phase: &str) -> Taken {
        let daemon_set = format!(
            r#"{{"metadata":{{"name":"agent","namespace":"ops","uid":"u","resourceVersion":"1"}},
                "spec":{{"updateStrategy":{{"rollingUpdate":{strategy}}}}}}}"#
        );
        let pod = format!(
            r#"{{"metadata":{{"name":"p","namespace":"ops","uid":"u-p","resourceVersion":"1"{more},"ownerReferences":
                [{{"apiVersion":"apps/v1","kind":"DaemonSet","name":"agent","uid":"{uid}","controller":true}}]}},
                "spec":{{"nodeName":"{node}"}},"status":{{"phase":"{phase}"}}}}"#
        );
        let daemon_set = DaemonSet::decode(&daemon_set, &mut Interner::default()).unwrap();
        on_taken(&daemon_set, "n1", Some(&Pod::decode(&pod, &mut Interner::default()).unwrap()))
    }

    #[test]
    fn a_taken_name_is_success_if_the_pod_is_ours_and_lives_on_this_node() {
        let (plain, surge) = (r#"{"maxUnavailable":1}"#, r#"{"maxSurge":1}"#);
        let deleting = r#","deletionTimestamp":"2026-01-01T00:00:00Z""#;
        assert_eq!(taken(plain, "u", "n1", "", "Running"), Taken::Created);
        assert_eq!(taken(plain, "u", "n1", deleting, "Running"), Taken::Wait);
        assert_eq!(taken(surge, "u", "n1", deleting, "Running"), Taken::NextSlot);
        assert_eq!(taken(plain, "u", "n1", "", "Failed"), Taken::NextSlot);
        assert_eq!(taken(plain, "u", "n2", "", "Running"), Taken::NextSlot);
        assert_eq!(taken(plain, "another", "n1", "", "Running"), Taken::NextSlot);
    }
}
