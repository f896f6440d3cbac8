//! The outcome of the plan for a DaemonSet.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Objects, Synced, change, controller};
use crate::model::{CONTROLLER_REVISION_HASH, ControllerRevision, DaemonSet, Pod, StringMap};
use crate::plan::daemonset::body::pod_body;
use crate::plan::daemonset::refused::{Refusals, RefusedCreations};
use crate::plan::daemonset::revisions::{on_taken, revision_body};
use crate::plan::daemonset::status::{self, Outcome};
use crate::plan::daemonset::{JudgedNodes, NewPod, Observed, PlanReason, Reason, Write, plan};
use crate::plan::revisions::{NewRevision, Taken};

/// The planner's input, from caches that are not behind.
pub fn observe<'a>(daemon_set: &'a DaemonSet, objects: &Objects, nodes: &JudgedNodes) -> Observed<'a> {
    let pods: Vec<Arc<Pod>> = objects.pods.values().cloned().collect();
    let revisions: Vec<Arc<ControllerRevision>> = objects.revisions.values().cloned().collect();
    Observed::of_lists(daemon_set, &pods, &revisions, nodes, objects.now)
}

/// The result of a sync of a DaemonSet.
#[derive(Debug, Default)]
pub struct DaemonSetSynced {
    /// Whether anything was written, and when to sync again.
    pub synced: Synced,
    /// The nodes that got a pod.
    pub created: Vec<Arc<str>>,
    /// The nodes that lose one, and why.
    pub deleted: Vec<(Arc<str>, Reason)>,
    /// The reasons of the plan.
    pub reasons: Vec<PlanReason>,
}

/// One sync. `create` is called for each pod that is to be created, with the hash of its revision, and returns whether it
/// was; else a quota refused it, which `refused` remembers.
///
/// # Errors
/// When a template is not the object that it was decoded as; cannot happen to a decoded one.
pub fn sync(
    daemon_set: &mut DaemonSet,
    objects: &mut Objects,
    nodes: &JudgedNodes,
    refused: &mut RefusedCreations,
    mut create: impl FnMut(&DaemonSet, &NewPod, &str, &mut Objects) -> bool,
) -> Result<DaemonSetSynced, serde_json::Error> {
    let before = daemon_set.clone();
    let observed = Observed { refused: Arc::new(refused.clone()), ..observe(&before, objects, nodes) };
    let plan = plan(&observed);
    let mut done = DaemonSetSynced::default();
    let mut outcome = Outcome::default();
    let (generation, mut refusals) = (before.meta.generation, Refusals::default());
    for write in &plan.writes {
        let Some(write) = refusals.allow(write, generation, refused) else { continue };
        match &*write {
            Write::CreatePods { pods, hash } => {
                for NewPod { node, .. } in pods.iter().filter(|new| !create(&before, new, hash, objects)) {
                    refused.refused(generation, node, true);
                    refusals.without_pods([node.clone()]);
                }
                let is_created = |new: &&NewPod| objects.pods.contains_key(&*new.name);
                for NewPod { node, .. } in pods.iter().filter(is_created) {
                    refused.forget(node);
                    done.created.push(node.clone());
                }
                done.synced.wrote |= !done.created.is_empty();
            }
            Write::CreateRevision(new) => {
                let taken = create_revision(&before, new, objects)?;
                outcome.is_open |= taken == Taken::PlanAgain;
                if taken == Taken::Collision {
                    outcome.collision = Some(before.status.collision_count.unwrap_or(0).saturating_add(1));
                }
                if taken != Taken::Use {
                    break;
                }
                done.synced.wrote = true;
            }
            write => {
                apply(write, &before, objects);
                done.synced.wrote = true;
            }
        }
        if let Write::DeletePods(deletions) = &*write {
            let deleted = deletions.iter().filter_map(|it| Some((it.pod.target()?.clone(), it.reason)));
            done.deleted.extend(deleted);
        }
    }
    let settled = status::settled(&before, &plan, outcome);
    done.synced.wrote |= settled != daemon_set.status;
    done.synced.requeue_after = plan.requeue_after;
    daemon_set.status = settled;
    done.reasons = plan.reasons;
    Ok(done)
}

/// Carries out a write that creates nothing.
fn apply(write: &Write, daemon_set: &DaemonSet, objects: &mut Objects) {
    let now = objects.now;
    let label = |labels: &mut Arc<StringMap>, hash: &str| {
        *labels = Arc::new(labels.iter().chain([(CONTROLLER_REVISION_HASH, hash)]).collect());
    };
    match write {
        Write::AdoptPod(pod) => change(&mut objects.pods, &pod.meta.key.name, |stored| {
            stored.meta.controller = Some(controller(daemon_set));
        }),
        Write::ReleasePod(pod) => {
            change(&mut objects.pods, &pod.meta.key.name, |stored| stored.meta.controller = None);
        }
        Write::AdoptRevision(revision) => change(&mut objects.revisions, &revision.meta.key.name, |stored| {
            stored.meta.controller = Some(controller(daemon_set));
        }),
        Write::ReleaseRevision(revision) => {
            change(&mut objects.revisions, &revision.meta.key.name, |stored| stored.meta.controller = None);
        }
        Write::Relabel { pod, hash } => {
            change(&mut objects.pods, &pod.meta.key.name, |stored| label(&mut stored.meta.labels, hash));
        }
        Write::DeleteRevision(revision) => drop(objects.revisions.remove(&revision.meta.key.name)),
        Write::ChangeRevision(revision, to) => {
            change(&mut objects.revisions, &revision.meta.key.name, |stored| {
                stored.number = to.number.unwrap_or(stored.number);
                if let Some(hash) = &to.hash {
                    label(&mut stored.meta.labels, hash);
                }
                if let Some(state) = &to.state {
                    stored.rollout_state = Some(state.as_str().into());
                }
            });
        }
        Write::DeletePods(deletions) => {
            for deletion in deletions {
                change(&mut objects.pods, &deletion.pod.meta.key.name, |stored| {
                    stored.meta.deletion.get_or_insert(now);
                });
            }
        }
        Write::CreateRevision(_) | Write::CreatePods { .. } => {}
    }
}

fn create_revision(
    daemon_set: &DaemonSet,
    new: &NewRevision,
    objects: &mut Objects,
) -> Result<Taken, serde_json::Error> {
    if let Some(there) = objects.revisions.get(&*new.name) {
        return Ok(on_taken(daemon_set, new, Some(there)));
    }
    let revision: ControllerRevision = objects.create(&revision_body(daemon_set, new, &BTreeMap::new())?)?;
    objects.revisions.insert(new.name.as_str().into(), Arc::new(revision));
    Ok(Taken::Use)
}

/// Creates a pod of the revision with this hash. It is for its node, and not bound yet.
///
/// # Errors
/// When the template is not the object that it was decoded as; cannot happen to a decoded one.
pub fn create_pod<'a>(
    daemon_set: &DaemonSet,
    new: &NewPod,
    hash: &str,
    objects: &'a mut Objects,
) -> Result<&'a mut Pod, serde_json::Error> {
    let pod: Pod = objects.create(&pod_body(daemon_set, new, hash)?)?;
    Ok(Arc::make_mut(objects.pods.entry(new.name.as_str().into()).or_insert(Arc::new(pod))))
}
