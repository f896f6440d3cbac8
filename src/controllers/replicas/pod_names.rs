//! Which names the pods of each ReplicaSet have had, so that none is used again ([`UsedNames`]).
//!
//! The memory is filled from the cache of pods, also while another process leads, and from the answers to
//! our own creations. It survives a relist, and ends with the owner. Where there is none, it starts
//! with the pods that the cache shows for the owner.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::SignedDuration;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::engine::context::Context;
use crate::engine::in_doubt_writes::LATEST;
use crate::engine::owner_memory::Forget;
use crate::model::{Meta, Pod, Record, Uid};
use crate::plan::replicaset::names::Sequence;
use crate::plan::replicaset::used_names::{Between, UsedNames};
use crate::runtime::store::{Change, Store};

/// The most pods that are remembered as deleted early.
const MOST_GONE: usize = 1024;

/// The used names of all owners of one kind, by UID.
#[derive(Debug)]
pub struct PodNames {
    known: Mutex<BTreeMap<Uid, Known>>,
    /// Pods without a cached owner of this kind that were deleted before the cache of owners was complete: they may have
    /// had their names from one that the cache did not show yet. At most [`MOST_GONE`].
    gone_early: Mutex<Vec<Meta>>,
    /// When this process began. Requests of a process before it may arrive for a while, under later names than
    /// those of pods that were deleted by then.
    begun: Instant,
}

impl Default for PodNames {
    fn default() -> Self {
        PodNames { known: Mutex::default(), gone_early: Mutex::default(), begun: Instant::now() }
    }
}

/// The names of one owner.
#[derive(Debug)]
struct Known {
    used: UsedNames,
    /// When no request of another process can arrive any more.
    doubts_end: Instant,
}

impl PodNames {
    /// Whether nothing is kept.
    pub fn is_empty(&self) -> bool {
        self.known.lock().is_empty()
    }

    fn is_known(&self, owner: &Uid) -> bool {
        self.known.lock().contains_key(owner)
    }
}

impl Forget for PodNames {
    fn forget(&self, owner: &Uid) {
        self.known.lock().remove(owner);
    }
}

/// The used names, with the caches that they are read from.
pub struct NamedPods<'a, O: Record> {
    /// The state that all controllers share.
    pub context: &'a Context,
    /// The owners of the pods.
    pub owners: &'a Store<O>,
    /// The pods.
    pub pods: &'a Store<Pod>,
    /// The used names.
    pub pod_names: &'a PodNames,
}

impl<O: Record> NamedPods<'_, O> {
    /// The names of an owner's pods.
    pub fn used_names(&self, owner: &impl Record) -> UsedNames {
        self.with_names(owner, |_, known| known.used.clone())
    }

    /// When the first of the places that are kept for earlier requests may be filled.
    pub fn reserved_for(&self, owner: &impl Record) -> Duration {
        let now = Instant::now();
        let doubted = self.with_names(owner, |_, known| {
            (known.used.in_doubt() > 0).then(|| known.doubts_end.saturating_duration_since(now))
        });
        let late = self.context.in_doubt_writes.late_for(&owner.meta().uid, now);
        [doubted, late].into_iter().flatten().min().unwrap_or(LATEST)
    }

    /// A pod is about to be created under this name.
    pub fn name_requested(&self, owner: &impl Record, name: &str) {
        self.with_names(owner, |sequence, known| {
            if let Some(position) = sequence.position(name) {
                known.used.requested(position);
            }
        });
    }

    /// A pod is known to have been created under this name: one of the owner's, or one that may have been before its
    /// release.
    pub fn name_had(&self, owner: &impl Record, name: &str) {
        self.with_names(owner, |sequence, known| {
            if let Some(position) = sequence.position(name) {
                known.used.had(position, Between::Free);
            }
        });
    }

    /// The cache of pods has changed: records the name of a pod that is new, or whose owner has let it go. A pod that is
    /// adopted says nothing about its new owner's names.
    pub fn pod_name_seen(&self, change: &Change<Pod>) {
        let pod = match change {
            Change::Added(pod) | Change::Deleted(pod) => pod,
            Change::Updated { old, new } if old.meta.controller != new.meta.controller => old,
            Change::Updated { .. } => return,
        };
        if let Some(owner) = self.owners.controller_of(&pod.meta) {
            self.name_seen(&owner, &pod.meta, matches!(change, Change::Added(_)));
        } else if matches!(change, Change::Deleted(_)) && self.owners.lists().completed == 0 {
            let mut gone = self.pod_names.gone_early.lock();
            if gone.len() < MOST_GONE {
                gone.push(pod.meta.clone());
            }
        }
    }

    /// Whether names before a cached one are known to be free.
    fn between(&self) -> Between {
        let lists = self.pods.lists();
        let may_be_late = self.pod_names.begun.elapsed() < LATEST;
        if lists.begun != lists.completed || may_be_late { Between::InDoubt } else { Between::Free }
    }

    fn name_seen(&self, owner: &O, pod: &Meta, is_new: bool) {
        let meta = owner.meta();
        let lists = self.pods.lists();
        match self.pod_names.is_known(&meta.uid) {
            // The cache is not complete yet.
            false if lists.begun != lists.completed => return,
            // It was added before.
            true if !is_new => return,
            _ => {}
        }
        let between = self.between();
        self.with_names(owner, |sequence, known| {
            let Some(position) = position_of(sequence, owner, pod) else { return };
            let before = known.used.in_doubt();
            known.used.had(position, between);
            if known.used.in_doubt() > before {
                known.doubts_end = Instant::now() + LATEST;
            }
        });
        self.context.forget_if_gone(self.owners, meta);
    }

    fn with_names<R>(&self, owner: &impl Record, look: impl FnOnce(&Sequence, &mut Known) -> R) -> R {
        let meta = owner.meta();
        let sequence = Sequence::of(&meta.key.name, &meta.uid);
        let mut all = self.pod_names.known.lock();
        let known = all.entry(meta.uid.clone()).or_insert_with(|| self.names_of_known_pods(owner, &sequence));
        if Instant::now() >= known.doubts_end {
            known.used.end_doubts();
        }
        look(&sequence, known)
    }

    /// The state without a memory, from the pods in the cache.
    fn names_of_known_pods(&self, owner: &impl Record, sequence: &Sequence) -> Known {
        let (now, latest) =
            (self.context.now(), SignedDuration::try_from(LATEST).unwrap_or(SignedDuration::MAX));
        let age = |pod: &Pod| now.duration_since(pod.meta.created).max(SignedDuration::ZERO);
        let namespace = &owner.meta().key.namespace;
        let pods: Vec<(u64, SignedDuration)> = (self.pods.named(namespace, sequence.base()).iter())
            .filter_map(|pod| Some((position_of(sequence, owner, &pod.meta)?, age(pod))))
            .collect();
        let youngest = pods.iter().map(|(_, age)| *age).min().unwrap_or(latest).min(latest);
        let positions = pods.into_iter().map(|(position, age)| (position, age < latest));
        let gone = self.pod_names.gone_early.lock();
        let gone = gone.iter().filter(|pod| pod.key.namespace == *namespace);
        let gone = gone.filter_map(|pod| Some((position_of(sequence, owner, pod)?, false)));
        let used = UsedNames::of(positions.chain(gone));
        let doubted = (latest - youngest).unsigned_abs();
        Known { used, doubts_end: Instant::now() + doubted }
    }
}

/// The position of a pod's name among those of an owner's pods; `None` where the owner has not given it: a pod that is
/// older than the owner has its name from another, such as an earlier one of the same name.
///
/// Whosever the pod is: a released one keeps its name, and those before it have been used. Only where others share the
/// base, every name with that base has a position. There the pods of another controller do not count: those of the
/// other ReplicaSets of a Deployment stand anywhere in the sequence.
fn position_of(sequence: &Sequence, owner: &impl Record, pod: &Meta) -> Option<u64> {
    let is_anothers = || pod.owner().is_some_and(|controller| controller != owner.as_owner());
    let is_older = pod.created < owner.meta().created;
    let may_be_its = !is_older && (!sequence.shares_its_base() || !is_anothers());
    sequence.position(&pod.key.name).filter(|_| may_be_its)
}
