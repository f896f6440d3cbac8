//! The state of each DaemonSet that is kept between syncs: its verdicts on all nodes, which node events update, the
//! names that its pods have had, and the nodes on which pods have failed.
//!
//! The verdicts equal those of a full computation. They start with the first sync of a DaemonSet and again with each
//! generation, both of which judge all nodes; every later change of a node is applied to them.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;

use crate::engine::in_doubt_writes::LATEST;
use crate::engine::owner_memory::Forget;
use crate::model::{DaemonSet, Meta, Node, ObjectKey, Uid};
use crate::plan::daemonset::names::{Marks, Names};
use crate::plan::daemonset::refused::RefusedCreations;
use crate::plan::daemonset::{Members, Placement, Verdict, Verdicts};
use crate::plan::fixed_place_backoff::FailedPodBackoff;
use crate::plan::recent_creations::RecentCreations;
use crate::runtime::store::{Change, Store};

/// The state of all DaemonSets, by UID.
#[derive(Debug, Default)]
pub struct DaemonSetMemory(Mutex<BTreeMap<Uid, Known>>);

/// The state of one DaemonSet. A sync shares it, and it is copied only if it changes meanwhile.
#[derive(Debug)]
struct Known {
    key: ObjectKey,
    /// The generation whose template the verdicts are for.
    generation: i64,
    placement: Result<Placement, String>,
    verdicts: Arc<Verdicts>,
    names: Names,
    marks: Arc<Marks>,
    backoff: Arc<FailedPodBackoff>,
    recent: Arc<RecentCreations>,
    refused: Arc<RefusedCreations>,
}

/// The part of the state that a sync reads.
#[derive(Debug)]
pub struct Remembered {
    /// The verdicts on all nodes.
    pub verdicts: Arc<Verdicts>,
    /// Why the placement of the template cannot be read.
    pub unreadable: Option<String>,
    /// Which names have been used.
    pub marks: Arc<Marks>,
    /// The nodes on which pods have failed.
    pub backoff: Arc<FailedPodBackoff>,
    /// The nodes on which pods were created within the last minute.
    pub recent: Arc<RecentCreations>,
    /// The nodes whose pods were refused.
    pub refused: Arc<RefusedCreations>,
    /// How many verdicts were computed.
    pub judged: u64,
}

impl Forget for DaemonSetMemory {
    fn forget(&self, owner: &Uid) {
        self.0.lock().remove(owner);
    }
}

impl Known {
    fn forget_refusals(&mut self, node: &str) {
        if !self.refused.is_empty() {
            Arc::make_mut(&mut self.refused).forget(node);
        }
    }
}

impl DaemonSetMemory {
    /// The state of a DaemonSet. `members` are its pods in the cache, from which the names start.
    pub fn of(
        &self,
        daemon_set: &DaemonSet,
        members: &Members,
        nodes: &Store<Node>,
        now: Timestamp,
    ) -> Remembered {
        let meta = &daemon_set.meta;
        // Held while all nodes are judged: a node that changes meanwhile is in the store already, or will be applied.
        let mut all = self.0.lock();
        let mut judged = 0;
        let mut judge = || {
            let placement = Placement::of(daemon_set).map_err(|error| error.to_string());
            let nodes = nodes.all();
            judged = nodes.len() as u64;
            let verdicts =
                placement.as_ref().map(|placement| Verdicts::of(placement, nodes.iter().map(|node| &**node)));
            (Arc::new(verdicts.unwrap_or_default()), placement)
        };
        let known = all.entry(meta.uid.clone()).or_insert_with(|| {
            let (verdicts, placement) = judge();
            Known {
                key: meta.key.clone(),
                generation: meta.generation,
                placement,
                verdicts,
                names: Names::of(&meta.key.name, &meta.uid),
                marks: Arc::new(Marks::seen(daemon_set, members)),
                backoff: Arc::default(),
                recent: Arc::default(),
                refused: Arc::default(),
            }
        });
        if known.generation != meta.generation {
            (known.verdicts, known.placement) = judge();
            known.generation = meta.generation;
        }
        if known.marks.has_doubts() {
            Arc::make_mut(&mut known.marks).end_doubts(now);
        }
        if !known.backoff.is_empty() {
            Arc::make_mut(&mut known.backoff).collect(now);
        }
        if !known.recent.is_empty() {
            Arc::make_mut(&mut known.recent).collect(now);
        }
        Remembered {
            verdicts: known.verdicts.clone(),
            unreadable: known.placement.as_ref().err().cloned(),
            marks: known.marks.clone(),
            backoff: known.backoff.clone(),
            recent: known.recent.clone(),
            refused: known.refused.clone(),
            judged,
        }
    }

    /// The cache of nodes has changed. Returns how many verdicts were computed, and the DaemonSets that the change
    /// concerns: those whose verdict has changed, and, if the node was added or deleted, those with pods for it.
    pub fn node_changed(
        &self,
        change: &Change<Node>,
        has_pods: impl Fn(&Uid) -> bool,
    ) -> (u64, Vec<ObjectKey>) {
        let node = change.object();
        let name = &node.meta.key.name;
        let mut concerned = Vec::new();
        let mut judged = 0;
        for (uid, known) in self.0.lock().iter_mut() {
            let Ok(placement) = &known.placement else { continue };
            let is_concerned = match change {
                Change::Deleted(_) => {
                    let wanted = known.verdicts.get(name);
                    if wanted.is_some() {
                        Arc::make_mut(&mut known.verdicts).remove(name);
                    }
                    known.forget_refusals(name);
                    let has_pods = has_pods(uid);
                    if !has_pods {
                        Arc::make_mut(&mut known.marks).forget(name);
                    }
                    wanted == Some(Verdict::Run) || has_pods
                }
                Change::Added(_) | Change::Updated { .. } => {
                    judged += 1;
                    let came = known.verdicts.get(name).is_none();
                    let differs = known.verdicts.get(name) != Some(placement.verdict(node));
                    let matters = differs && Arc::make_mut(&mut known.verdicts).update(placement, node);
                    matters || (came && has_pods(uid))
                }
            };
            if is_concerned {
                concerned.push(known.key.clone());
            }
        }
        (judged, concerned)
    }

    /// Whether a DaemonSet should run on a node, as far as is known.
    pub fn runs_on(&self, owner: &Uid, node: &str) -> bool {
        self.0.lock().get(owner).is_some_and(|known| known.verdicts.get(node) == Some(Verdict::Run))
    }

    /// A pod was created on a node under this name: the reply says so, or the cache shows it.
    pub fn pod_created(&self, owner: &Uid, node: &Arc<str>, name: &str) {
        self.with(owner, |known| {
            Arc::make_mut(&mut known.marks).created(&known.names, node, name);
            known.forget_refusals(node);
        });
    }

    /// The creation of a pod for a node was refused.
    pub fn creation_refused(&self, daemon_set: &DaemonSet, node: &Arc<str>, exceeds_quota: bool) {
        let Meta { uid, generation, .. } = &daemon_set.meta;
        self.with(uid, |known| {
            Arc::make_mut(&mut known.refused).refused(*generation, node, exceeds_quota);
        });
    }

    /// The nodes whose pods were refused.
    pub fn refused(&self, owner: &Uid) -> Arc<RefusedCreations> {
        self.0.lock().get(owner).map(|known| known.refused.clone()).unwrap_or_default()
    }

    /// We have created a pod on a node.
    pub fn we_created(&self, owner: &Uid, node: &Arc<str>, now: Timestamp) {
        self.with(owner, |known| Arc::make_mut(&mut known.recent).created(node, now));
    }

    /// The reply to a creation on a node was lost.
    pub fn creation_lost(&self, owner: &Uid, node: &Arc<str>, now: Timestamp) {
        let wait = SignedDuration::try_from(LATEST).unwrap_or(SignedDuration::MAX);
        let until = now.saturating_add(wait).unwrap_or(Timestamp::MAX);
        self.with(owner, |known| Arc::make_mut(&mut known.marks).doubt(node, until));
    }

    /// A creation whose reply was lost has happened.
    pub fn has_arrived(&self, owner: &Uid, node: &str) {
        self.with(owner, |known| Arc::make_mut(&mut known.marks).has_arrived(node));
    }

    /// A failed pod of a node was deleted.
    pub fn failed_pod_deleted(&self, daemon_set: &DaemonSet, node: &Arc<str>, now: Timestamp) {
        let generation = daemon_set.meta.generation;
        self.with(&daemon_set.meta.uid, |known| {
            Arc::make_mut(&mut known.backoff).deleted(generation, node, now);
        });
    }

    /// How many nodes have had failed pods in the last half hour, over all DaemonSets.
    pub fn backing_off(&self, now: Timestamp) -> usize {
        let mut all = self.0.lock();
        all.values_mut()
            .filter(|known| !known.backoff.is_empty())
            .map(|known| {
                Arc::make_mut(&mut known.backoff).collect(now);
                known.backoff.len()
            })
            .sum()
    }

    /// Whether no state is kept.
    pub fn is_empty(&self) -> bool {
        self.0.lock().is_empty()
    }

    fn with(&self, owner: &Uid, change: impl FnOnce(&mut Known)) {
        if let Some(known) = self.0.lock().get_mut(owner) {
            change(known);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Interner, Record};

    fn daemon_set(generation: i64, zone: &str) -> DaemonSet {
        let json = format!(
            r#"{{"metadata":{{"name":"agent","namespace":"ops","uid":"u","resourceVersion":"1","generation":{generation}}},
                "spec":{{"template":{{"spec":{{"nodeSelector":{{"zone":"{zone}"}}}}}}}}}}"#
        );
        DaemonSet::decode(&json, &mut Interner::default()).unwrap()
    }

    fn node(name: u32, uid: u32, version: u64, zone: &str, effect: &str) -> Node {
        let json = format!(
            r#"{{"metadata":{{"name":"n{name}","uid":"u-{name}-{uid}","resourceVersion":"{version}","labels":
                {{"zone":"{zone}"}}}},"spec":{{"taints":[{{"key":"k","effect":"{effect}"}}]}}}}"#
        );
        Node::decode(&json, &mut Interner::default()).unwrap()
    }

    fn now() -> Timestamp {
        "2026-01-01T00:00:00Z".parse().unwrap()
    }

    #[test]
    fn verdicts_equal_those_computed_from_nothing_after_any_change_of_nodes_and_templates() {
        for seed in 0..40 {
            let mut rng = fastrand::Rng::with_seed(seed);
            let (memory, nodes) = (DaemonSetMemory::default(), Store::<Node>::default());
            nodes.begin_list(false);
            nodes.end_list(1);
            let (mut generation, mut version, mut zone) = (1, 1, "a");
            let mut before =
                memory.of(&daemon_set(generation, zone), &Members::default(), &nodes, now()).verdicts;
            for _ in 0..200 {
                version += 1;
                let name = rng.u32(..6);
                let applied = match rng.u8(..8) {
                    0 => {
                        (generation, zone) = (generation + 1, if rng.bool() { "a" } else { "b" });
                        None
                    }
                    1 | 2 => {
                        let key = ObjectKey::new("", format!("n{name}"));
                        nodes.get(&key).map(|node| nodes.remove(&key, &node.meta.uid, version, None))
                    }
                    _ => {
                        let effect = rng.choice(["NoSchedule", "NoExecute", "PreferNoSchedule"]).unwrap();
                        let in_zone = if rng.bool() { "a" } else { "b" };
                        // Sometimes another node of the same name.
                        Some(nodes.put(node(name, rng.u32(..2), version, in_zone, effect)))
                    }
                };
                let is_edit = applied.is_none();
                let mut concerned = Vec::new();
                for change in applied.into_iter().flat_map(|applied| applied.changes) {
                    concerned.extend(memory.node_changed(&change, |_| false).1);
                }
                let agent = daemon_set(generation, zone);
                let verdicts = memory.of(&agent, &Members::default(), &nodes, now()).verdicts;
                let all = nodes.all();
                let anew = Verdicts::of(&Placement::of(&agent).unwrap(), all.iter().map(|node| &**node));
                assert_eq!(*verdicts, anew, "seed {seed}");
                let runs = |verdicts: &Verdicts| {
                    verdicts
                        .iter()
                        .filter(|(_, v)| *v == Verdict::Run)
                        .map(|(node, _)| node.clone())
                        .collect()
                };
                let (then, since): (Vec<Arc<str>>, Vec<Arc<str>>) = (runs(&before), runs(&verdicts));
                assert!(
                    is_edit || then == since || !concerned.is_empty(),
                    "seed {seed}: no DaemonSet was enqueued"
                );
                before = verdicts;
            }
        }
    }

    #[test]
    fn a_node_concerns_those_that_run_there_or_have_pods_there_and_only_when_it_changes() {
        let (memory, nodes) = (DaemonSetMemory::default(), Store::<Node>::default());
        let agent = daemon_set(1, "a");
        memory.of(&agent, &Members::default(), &nodes, now());
        let concerned =
            |change: Change<Node>, has_pods: bool| memory.node_changed(&change, |_| has_pods).1.len();
        let there = |zone: &str, effect: &str| Arc::new(node(1, 1, 1, zone, effect));
        assert_eq!(concerned(Change::Added(there("b", "")), false), 0);
        assert_eq!(concerned(Change::Added(there("b", "")), true), 0, "it is known already");
        let moved =
            |zone: &str, effect: &str| Change::Updated { old: there("b", ""), new: there(zone, effect) };
        assert_eq!(concerned(moved("a", ""), false), 1);
        assert_eq!(concerned(moved("a", "PreferNoSchedule"), false), 0);
        assert_eq!(concerned(moved("a", "NoSchedule"), false), 1, "the status changes");
        assert_eq!(concerned(Change::Deleted(there("a", "")), false), 0, "nothing ran there");
        assert_eq!(concerned(Change::Added(there("b", "")), true), 1, "its pod has waited for it");
        assert_eq!(concerned(Change::Deleted(there("b", "")), true), 1);
        assert_eq!(concerned(Change::Deleted(there("b", "")), true), 1, "a pod may be left");
    }

    #[test]
    fn marks_and_the_backoff_last_and_are_forgotten_with_their_owner() {
        let (memory, nodes) = (DaemonSetMemory::default(), Store::<Node>::default());
        let (agent, node) = (daemon_set(1, "a"), Arc::<str>::from("n1"));
        let names = Names::of("agent", &agent.meta.uid);
        let free = |memory: &DaemonSetMemory| {
            let known = memory.of(&agent, &Members::default(), &nodes, now());
            names.free("n1", &known.marks, |_| false)
        };
        let first = free(&memory);
        memory.pod_created(&agent.meta.uid, &node, &first);
        assert_ne!(free(&memory), first);
        memory.failed_pod_deleted(&agent, &node, now());
        assert_eq!(memory.backing_off(now()), 1);
        memory.forget(&agent.meta.uid);
        assert!(memory.is_empty());
        assert_eq!(free(&memory), first);
    }
}
