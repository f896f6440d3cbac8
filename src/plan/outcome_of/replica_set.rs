//! The outcome of the plan for a ReplicaSet or a ReplicationController.

use std::sync::Arc;

use super::{Objects, Synced, change, controller};
use crate::model::{ControllerRef, Pod, Record, ReplicaSet};
use crate::plan::replicaset::kept_failed_pods::policy_of;
use crate::plan::replicaset::new_pod::{OwnerReference, pod_body};
use crate::plan::replicaset::status::{self, Failure, Settled};
use crate::plan::replicaset::{Observed, PodSets, Write, plan};

/// The planner's input, from caches that are not behind. The names of the pods are the caller's.
pub fn observe<'a>(replica_set: &'a ReplicaSet, objects: &Objects) -> Observed<'a> {
    let Objects { replica_sets, pods, now, .. } = objects;
    let orphans = pods.values().filter(|pod| pod.meta.controller.is_none()).cloned().collect();
    let controller = replica_set.meta.controller.as_ref();
    let is_sibling = |other: &&Arc<ReplicaSet>| {
        let has_owner = |owner: &Arc<ControllerRef>| controller.is_some_and(|own| own.uid == owner.uid);
        other.meta.uid != replica_set.meta.uid && other.meta.controller.as_ref().is_some_and(has_owner)
    };
    let siblings = replica_sets.values().filter(is_sibling).flat_map(|other| objects.pods_of(&**other));
    Observed {
        replica_set,
        pod_sets: PodSets::of(replica_set, objects.pods_of(replica_set), orphans),
        may_adopt: true,
        siblings: siblings.filter(|pod| pod.is_active()).collect(),
        free_names: Vec::new(),
        reserved: 0,
        failed_pod_backoff: true,
        policy: policy_of(replica_set),
        now: *now,
    }
}

/// One sync. `create` is called for each pod that is to be created, and returns whether it was; else a quota refused it.
pub fn sync(
    name: &str,
    objects: &mut Objects,
    mut create: impl FnMut(&ReplicaSet, &mut Objects) -> bool,
) -> Synced {
    let Some(replica_set) = objects.replica_sets.get(name).cloned() else { return Synced::default() };
    let observed = observe(&replica_set, objects);
    let plan = plan(&observed);
    let (mut wrote, mut failure) = (false, None);
    for write in &plan.writes {
        match write {
            Write::Create { count, .. } => {
                for _ in 0..*count {
                    if create(&replica_set, objects) {
                        wrote = true;
                    } else {
                        failure =
                            Some(Failure { reason: "FailedCreate", message: "exceeded quota".to_owned() });
                    }
                }
                continue;
            }
            Write::Delete(pods) | Write::DeleteFailed(pods) => {
                pods.iter().for_each(|pod| delete_pod(pod, objects));
            }
            Write::Adopt(pod) => adopt_pod(pod, &replica_set, objects),
            Write::Release(pod) => release_pod(pod, objects),
        }
        wrote = true;
    }
    let settled = status::settle(&observed, failure.as_ref());
    wrote |= settle(&settled, name, objects);
    Synced { wrote, requeue_after: settled.requeue_after.into_iter().chain(plan.requeue_after).min() }
}

/// Creates a pod that has no node yet. Its name is the prefix and a number.
///
/// # Errors
/// When the template is not the object that it was decoded as; cannot happen to a decoded one.
pub fn create_pod<'a>(
    replica_set: &ReplicaSet,
    prefix: &str,
    objects: &'a mut Objects,
) -> Result<&'a mut Pod, serde_json::Error> {
    let (resource, meta) = (replica_set.resource(), &replica_set.meta);
    let api_version = resource.api_version();
    let owner = OwnerReference::controller(&api_version, resource.kind, &meta.key.name, &meta.uid);
    let name = format!("{prefix}{}", objects.created + 1);
    let pod: Pod = objects.create(&pod_body(replica_set, owner, &name)?)?;
    Ok(Arc::make_mut(objects.pods.entry(name.into()).or_insert(Arc::new(pod))))
}

/// Asks for the end of a pod. Its kubelet removes it.
pub fn delete_pod(pod: &Pod, objects: &mut Objects) {
    let now = objects.now;
    change(&mut objects.pods, &pod.meta.key.name, |stored| stored.meta.deletion = Some(now));
}

/// Makes a ReplicaSet the controller of a pod.
pub fn adopt_pod(pod: &Pod, replica_set: &ReplicaSet, objects: &mut Objects) {
    let owner = controller(replica_set);
    change(&mut objects.pods, &pod.meta.key.name, |stored| stored.meta.controller = Some(owner));
}

/// Leaves a pod without a controller.
pub fn release_pod(pod: &Pod, objects: &mut Objects) {
    change(&mut objects.pods, &pod.meta.key.name, |stored| stored.meta.controller = None);
}

/// Stores the status. Whether it is another than before.
pub fn settle(settled: &Settled, name: &str, objects: &mut Objects) -> bool {
    let Some(stored) = objects.replica_sets.get_mut(name) else { return false };
    let is_changed = settled.status != stored.status;
    Arc::make_mut(stored).status = settled.status.clone();
    is_changed
}
