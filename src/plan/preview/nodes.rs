//! The kubelets of a preview, and the quotas that decide whether they get a pod.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use crate::model::{Phase, Pod};
use crate::plan::outcome_of::Objects;

/// The rules of the kubelet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kubelet {
    /// From the creation of a pod to its readiness. With 0 all steps fall into one moment.
    pub ready_after: SignedDuration,
    /// From the deletion of a pod until it is gone.
    pub stop_after: SignedDuration,
    /// How many of the first pods of the new template never become ready.
    pub broken: usize,
}

/// The room that a quota leaves for one resource, in units of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Room {
    /// How much is free now. Pods that are being deleted still count as used.
    pub free: i128,
    /// How much a pod of the new template takes.
    pub new_pod: i128,
    /// How much a pod of any other template takes.
    pub old_pod: i128,
}

impl Room {
    fn of(&self, is_new: bool) -> i128 {
        if is_new { self.new_pod } else { self.old_pod }
    }
}

/// The kubelets, and the quotas that decide whether they get a pod.
pub(super) struct Nodes {
    pods: BTreeMap<Arc<str>, Future>,
    kubelet: Kubelet,
    /// How many more pods of the new template never become ready.
    broken: usize,
    rooms: Vec<Room>,
    /// Creations that a quota refused in this moment.
    pub(super) refused: i64,
    /// Nodes whose kubelet does not report: no pod there becomes ready, and none is gone after its deletion.
    pub(super) unreachable: BTreeSet<Arc<str>>,
}

/// The future of a pod.
struct Future {
    /// When it becomes ready, if it does.
    ready_at: Option<Timestamp>,
    /// When it is gone, if it is being deleted.
    gone_at: Option<Timestamp>,
    /// Whether it has the new template; its requests may differ.
    is_new: bool,
}

impl Nodes {
    /// `is_new` says which pods have the new template.
    pub(super) fn new(
        objects: &Objects,
        is_new: impl Fn(&Pod) -> bool,
        kubelet: Kubelet,
        rooms: Vec<Room>,
    ) -> Self {
        let now = objects.now;
        let future = |(name, pod): (&Arc<str>, &Arc<Pod>)| {
            // A pod that fails, or has taken twice as long as others, is in trouble and stays as it is. Half of all pods
            // take longer than the median.
            let starts = pod.is_active() && pod.ready_since.is_none() && pod.startup_failure().is_none();
            let after =
                |times: i32| pod.meta.created.saturating_add(kubelet.ready_after.saturating_mul(times));
            let ready_at = [after(1), after(2)].into_iter().flatten().find(|at| starts && *at > now);
            let gone_at = pod.meta.deletion.map(|deletion| deletion.max(now));
            (name.clone(), Future { ready_at, gone_at, is_new: is_new(pod) })
        };
        let pods = objects.pods.iter().map(future).collect();
        Nodes { pods, kubelet, broken: kubelet.broken, rooms, refused: 0, unreachable: BTreeSet::new() }
    }

    /// Creates a pod, unless a quota has no room for it.
    pub(super) fn create_pod(
        &mut self,
        is_new: bool,
        objects: &mut Objects,
        create: impl FnOnce(&mut Objects) -> Result<&mut Pod, serde_json::Error>,
    ) -> bool {
        if self.rooms.iter().any(|room| room.free < room.of(is_new)) {
            self.refused += 1;
            return false;
        }
        let now = objects.now;
        let Ok(pod) = create(objects) else { return false };
        // All on one node, but for those of a DaemonSet: where they run makes no difference here.
        let node = pod.target().cloned().unwrap_or_else(|| "preview".into());
        pod.bind(node.clone());
        let name = pod.meta.key.name.clone();
        for room in &mut self.rooms {
            room.free -= room.of(is_new);
        }
        let is_broken = is_new && self.broken > 0;
        self.broken -= usize::from(is_broken);
        let is_ready = !is_broken && !self.unreachable.contains(&node);
        let ready_at = now.saturating_add(self.kubelet.ready_after).ok().filter(|_| is_ready);
        self.pods.insert(name, Future { ready_at, gone_at: None, is_new });
        true
    }

    /// Makes the pods ready that are due, and drops those whose time is over. Whether there were any; `looks` gets the
    /// times of the others.
    pub(super) fn run(&mut self, objects: &mut Objects, looks: &mut Vec<Timestamp>) -> bool {
        let now = objects.now;
        let mut is_busy = false;
        self.pods.retain(|name, future| {
            let Some(pod) = objects.pods.get_mut(name) else { return false };
            if pod.node().is_some_and(|node| self.unreachable.contains(node)) {
                return true;
            }
            if pod.meta.is_deleting() && future.gone_at.is_none() {
                future.gone_at = now.saturating_add(self.kubelet.stop_after).ok();
                future.ready_at = None;
            }
            if future.gone_at.is_some_and(|at| at <= now) {
                objects.pods.remove(name);
                self.rooms.iter_mut().for_each(|room| room.free += room.of(future.is_new));
                is_busy = true;
                return false;
            }
            if future.ready_at.is_some_and(|at| at <= now) {
                let pod = Arc::make_mut(pod);
                (pod.phase, pod.ready_since) = (Phase::Running, Some(now));
                future.ready_at = None;
                is_busy = true;
            }
            looks.extend(future.ready_at.into_iter().chain(future.gone_at));
            true
        });
        is_busy
    }
}
