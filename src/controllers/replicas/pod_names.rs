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

use super::{ReplicaController, ReplicaKind};
use crate::engine::in_doubt_writes::LATEST;
use crate::engine::owner_memory::Forget;
use crate::model::{Meta, ObjectKey, Owner, Pod, Record, Uid};
use crate::plan::replicaset::names::{OwnerNames, Sequence, owner_names};
use crate::plan::replicaset::used_names::{Between, UsedNames};
use crate::runtime::store::Change;

/// How many pods are remembered that were deleted early.
const MOST_GONE: usize = 1024;

/// The used names of all owners of one kind, by UID.
#[derive(Debug)]
pub struct PodNames {
    known: Mutex<BTreeMap<Uid, Known>>,
    /// Pods without an owner of this kind that were deleted before the cache of owners was complete, and their
    /// controllers: a ReplicaSet that the cache did not show may have owned them. At most [`MOST_GONE`].
    gone_early: Mutex<BTreeMap<ObjectKey, Option<Owner>>>,
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

impl<O: ReplicaKind> ReplicaController<O> {
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

    /// The cache of pods has changed: records the name of a pod that is new, or has a new controller.
    pub fn pod_name_seen(&self, change: &Change<Pod>) {
        let changes_hands = match change {
            Change::Added(_) | Change::Deleted(_) => true,
            Change::Updated { old, new } => old.meta.controller != new.meta.controller,
        };
        if !changes_hands {
            return;
        }
        if let Change::Updated { old, .. } = change {
            // For the owner that releases it, it counts as deleted.
            self.name_seen_by_owner(&Change::Deleted(old.clone()));
        }
        self.name_seen_by_owner(change);
    }

    fn name_seen_by_owner(&self, change: &Change<Pod>) {
        let pod = &change.object().meta;
        if let Some(owner) = self.owners.controller_of(pod) {
            self.name_seen(&owner, change);
        } else if let Change::Deleted(_) = change {
            self.name_freed(pod);
        }
    }

    /// A pod of another owner, or of none, was deleted. Another client may have removed it from its ReplicaSet before
    /// this process started. While it existed its name was taken; from now on only this memory shows that the name
    /// was used.
    fn name_freed(&self, pod: &Meta) {
        let OwnerNames { whole, cut } = owner_names(&pod.key.name);
        if whole.or(cut).is_none() {
            return;
        }
        if self.owners.lists().completed == 0 {
            let mut gone = self.pod_names.gone_early.lock();
            if gone.len() < MOST_GONE {
                gone.insert(pod.key.clone(), pod.owner());
            }
            return;
        }
        let namespace = &pod.key.namespace;
        let whole = whole.and_then(|owner| self.owners.get(&ObjectKey::new(namespace.clone(), owner)));
        let cut = cut.map_or_else(Vec::new, |beginning| self.owners.named(namespace, beginning));
        let between = self.between();
        for owner in whole.into_iter().chain(cut) {
            self.with_names(&*owner, |sequence, known| {
                if let Some(position) = position_of(sequence, &*owner, &pod.key.name, pod.owner()) {
                    known.used.had(position, between);
                }
            });
            self.context.forget_if_gone(&self.owners, owner.meta());
        }
    }

    /// Whether names before a cached one are known to be free.
    fn between(&self) -> Between {
        let lists = self.pods.lists();
        let may_be_late = self.pod_names.begun.elapsed() < LATEST;
        if lists.begun != lists.completed || may_be_late { Between::InDoubt } else { Between::Free }
    }

    fn name_seen(&self, owner: &O, change: &Change<Pod>) {
        let (meta, pod) = (owner.meta(), change.object());
        let lists = self.pods.lists();
        let is_listing = lists.begun != lists.completed;
        match self.pod_names.is_known(&meta.uid) {
            // The cache is not complete yet.
            false if is_listing => return,
            // A deleted pod was added before.
            true if matches!(change, Change::Deleted(_)) => return,
            _ => {}
        }
        let is_adopted = matches!(change, Change::Updated { .. });
        let between = self.between();
        self.with_names(owner, |sequence, known| {
            let Some(position) = sequence.position(&pod.meta.key.name) else { return };
            if is_adopted && known.used.is_empty() {
                // Adopted orphans have names from anywhere. The mark must not depend on the order in which
                // they are seen: a process that is restarted sees them all at once.
                *known = self.names_of_known_pods(owner, sequence);
            }
            let before = known.used.in_doubt();
            known.used.had(position, between);
            if known.used.in_doubt() > before {
                known.doubts_end = Instant::now() + LATEST;
            }
        });
        self.context.forget_if_gone(&self.owners, meta);
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
        let position = |name: &str, controller| position_of(sequence, owner, name, controller);
        let pods: Vec<(u64, SignedDuration)> = (self.pods.named(namespace, sequence.base()).iter())
            .filter_map(|pod| Some((position(&pod.meta.key.name, pod.meta.owner())?, age(pod))))
            .collect();
        let youngest = pods.iter().map(|(_, age)| *age).min().unwrap_or(latest).min(latest);
        let positions = pods.into_iter().map(|(position, age)| (position, age < latest));
        let gone = self.pod_names.gone_early.lock();
        let gone = gone.iter().filter(|(gone, _)| gone.namespace == *namespace);
        let gone = gone.filter_map(|(gone, of)| Some((position(&gone.name, of.clone())?, false)));
        let used = UsedNames::of(positions.chain(gone));
        let doubted = (latest - youngest).unsigned_abs();
        Known { used, doubts_end: Instant::now() + doubted }
    }
}

/// The position of a pod's name among those of an owner's pods; `None` where the owner has not given it.
///
/// Whosever the pod is: a released one keeps its name, and those before it have been used. Only where others share the
/// base, every name with that base has a position. There the pods of another controller do not count: those of the
/// other ReplicaSets of a Deployment stand anywhere in the sequence.
fn position_of(
    sequence: &Sequence,
    owner: &impl Record,
    name: &str,
    controller: Option<Owner>,
) -> Option<u64> {
    let is_anothers = || controller.is_some_and(|controller| controller != owner.as_owner());
    sequence.position(name).filter(|_| !sequence.shares_its_base() || !is_anothers())
}
