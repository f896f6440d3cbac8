//! The outcome of the plan for a StatefulSet.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Objects, Synced, change, controller};
use crate::model::{ControllerRevision, PersistentVolumeClaim, Pod, StatefulSet, StringMap};
use crate::plan::revisions::{NewRevision, Taken};
use crate::plan::statefulset::body::{claim_body, pod_body};
use crate::plan::statefulset::revisions::{on_taken, revision_body};
use crate::plan::statefulset::status::{self, Outcome};
use crate::plan::statefulset::{NewPod, Observed, PlanReason, Write, plan};

/// The planner's input, from caches that are not behind.
pub fn observe<'a>(set: &'a StatefulSet, objects: &Objects) -> Observed<'a> {
    fn all<T>(objects: &super::ByName<T>) -> Vec<Arc<T>> {
        objects.values().cloned().collect()
    }
    let (pods, claims, revisions) = (all(&objects.pods), all(&objects.claims), all(&objects.revisions));
    Observed::of_lists(set, &pods, &claims, &revisions, objects.now)
}

/// The result of a sync of a StatefulSet.
#[derive(Debug, Default)]
pub struct SetSynced {
    /// Whether anything was written, and when to sync again.
    pub synced: Synced,
    /// The writes that were carried out, but for pods that were refused.
    pub writes: Vec<Write>,
    /// The reasons of the plan.
    pub reasons: Vec<PlanReason>,
}

/// One sync. `create` is called for each pod that is to be created, after its claims, and returns whether it was.
///
/// # Errors
/// When a template is not the object that it was decoded as; cannot happen to a decoded one.
pub fn sync(
    set: &mut StatefulSet,
    objects: &mut Objects,
    mut create: impl FnMut(&StatefulSet, &NewPod, &mut Objects) -> bool,
) -> Result<SetSynced, serde_json::Error> {
    let before = set.clone();
    let plan = plan(&observe(&before, objects));
    let mut outcome = Outcome::default();
    let mut writes = Vec::new();
    for write in &plan.writes {
        let done = match write {
            Write::CreateRevision(new) => {
                create_revision(&before, new, objects, &mut outcome)?.then(|| write.clone())
            }
            Write::CreatePods(pods) => {
                let mut created = Vec::new();
                for new in pods {
                    create_claims(&before, new, objects)?;
                    if create(&before, new, objects) {
                        created.push(new.clone());
                    } else if !before.is_parallel {
                        break;
                    }
                }
                (!created.is_empty()).then_some(Write::CreatePods(created))
            }
            write => {
                apply(write, &before, objects)?;
                Some(write.clone())
            }
        };
        writes.extend(done);
        if outcome.without_revision {
            break;
        }
    }
    let settled = status::settled(&before, &plan, outcome);
    let wrote = !writes.is_empty() || settled != set.status;
    set.status = settled;
    Ok(SetSynced {
        synced: Synced { wrote, requeue_after: plan.requeue_after },
        writes,
        reasons: plan.reasons,
    })
}

/// Carries out a write that creates neither a pod nor a revision.
fn apply(write: &Write, set: &StatefulSet, objects: &mut Objects) -> Result<(), serde_json::Error> {
    let now = objects.now;
    match write {
        Write::AdoptPod(pod) => change(&mut objects.pods, &pod.meta.key.name, |stored| {
            stored.meta.controller = Some(controller(set));
        }),
        Write::ReleasePod(pod) => {
            change(&mut objects.pods, &pod.meta.key.name, |stored| stored.meta.controller = None);
        }
        Write::AdoptRevision(revision) => change(&mut objects.revisions, &revision.meta.key.name, |stored| {
            stored.meta.controller = Some(controller(set));
        }),
        Write::ChangeRevision(revision, to) => {
            change(&mut objects.revisions, &revision.meta.key.name, |stored| {
                stored.number = to.number.unwrap_or(stored.number);
            });
        }
        Write::DeleteRevision(revision) => drop(objects.revisions.remove(&revision.meta.key.name)),
        Write::SetOwners(to) => change(&mut objects.claims, &to.claim.meta.key.name, |stored| {
            stored.owners = to.owners.clone().into();
        }),
        Write::Label(pod, labels) => change(&mut objects.pods, &pod.meta.key.name, |stored| {
            let new = labels.iter().map(|(key, value)| (*key, value.as_str()));
            stored.meta.labels = Arc::new(stored.meta.labels.iter().chain(new).collect::<StringMap>());
        }),
        Write::CreateClaims(new) => create_claims(set, new, objects)?,
        Write::DeletePods(deletions) => {
            for deletion in deletions {
                change(&mut objects.pods, &deletion.pod.meta.key.name, |stored| {
                    stored.meta.deletion.get_or_insert(now);
                });
            }
        }
        Write::CreateRevision(_) | Write::CreatePods(_) => {}
    }
    Ok(())
}

/// Creates the revision of the template. `false`: its name is taken by another.
fn create_revision(
    set: &StatefulSet,
    new: &NewRevision,
    objects: &mut Objects,
    outcome: &mut Outcome,
) -> Result<bool, serde_json::Error> {
    if let Some(there) = objects.revisions.get(&*new.name) {
        let taken = on_taken(set, Some(&**there));
        outcome.without_revision = taken != Taken::Use;
        if taken == Taken::Collision {
            outcome.collision = Some(set.status.collision_count.unwrap_or(0).saturating_add(1));
        }
        return Ok(taken == Taken::Use);
    }
    let revision: ControllerRevision = objects.create(&revision_body(set, new, &BTreeMap::new())?)?;
    objects.revisions.insert(new.name.as_str().into(), Arc::new(revision));
    Ok(true)
}

/// Creates the missing claims of a pod.
fn create_claims(set: &StatefulSet, new: &NewPod, objects: &mut Objects) -> Result<(), serde_json::Error> {
    if new.missing_claims.is_empty() {
        return Ok(());
    }
    let templates = set.claim_templates.all()?;
    for template in new.missing_claims.iter().filter_map(|at| templates.get(*at)) {
        let (name, body) = claim_body(set, template, new)?;
        // Its pod may have been refused after an earlier creation.
        if !objects.claims.contains_key(&*name) {
            let claim: PersistentVolumeClaim = objects.create(&body)?;
            objects.claims.insert(name.into(), Arc::new(claim));
        }
    }
    Ok(())
}

/// Creates a pod that has no node yet. One of an older revision gets the current template, too: a planner reads nothing
/// of it but the label of the revision.
///
/// # Errors
/// When the template is not the object that it was decoded as; cannot happen to a decoded one.
pub fn create_pod<'a>(
    set: &StatefulSet,
    new: &NewPod,
    objects: &'a mut Objects,
) -> Result<&'a mut Pod, serde_json::Error> {
    let pod: Pod = objects.create(&pod_body(set, &set.template, new)?)?;
    Ok(Arc::make_mut(objects.pods.entry(new.name.clone()).or_insert(Arc::new(pod))))
}
