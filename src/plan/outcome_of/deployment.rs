//! The outcome of the plan for a Deployment.

use std::sync::Arc;

use super::{Objects, annotate, bump_generation, change, controller, remove_annotations};
use crate::model::{Deployment, Interner, Record as _, ReplicaSet, Template};
use crate::plan::deployment::new_replica_set::replica_set_body;
use crate::plan::deployment::progress::Settled;
use crate::plan::deployment::revision::{REVISION, ROLLBACK_TO};
use crate::plan::deployment::rollback::Back;
use crate::plan::deployment::{NewReplicaSet, Observed, Write};

/// The planner's input, from caches that are not behind.
pub fn observe<'a>(deployment: &'a Deployment, objects: &Objects) -> Observed<'a> {
    let owned = objects.replica_sets_of(deployment).cloned().collect();
    let without_controller = |replica_set: &&Arc<ReplicaSet>| replica_set.meta.controller.is_none();
    let orphans = objects.replica_sets.values().filter(without_controller).cloned().collect();
    let pods_of = |replica_set: &ReplicaSet| objects.pods_of(replica_set);
    Observed::gather(deployment, owned, orphans, true, pods_of, objects.now)
}

/// Carries out a write. `false`: the name of the new ReplicaSet is taken.
///
/// # Errors
/// When a template is not the object that it was decoded as; cannot happen to a decoded one.
pub fn apply(
    write: &Write,
    deployment: &mut Deployment,
    objects: &mut Objects,
) -> Result<bool, serde_json::Error> {
    let replica_sets = &mut objects.replica_sets;
    match write {
        Write::Create(new) => return create(new, deployment, objects),
        Write::Change(replica_set, to) => change(replica_sets, &replica_set.meta.key.name, |stored| {
            let new = to.annotations.iter().map(|(key, value)| (key.as_str(), value.as_str()));
            stored.annotations = Arc::new(stored.annotations.iter().chain(new).collect());
            remove_annotations(&mut stored.annotations, &to.removed);
            if to.replicas.is_some() || to.min_ready_seconds.is_some() {
                bump_generation(&mut stored.meta);
            }
            stored.replicas = to.replicas.unwrap_or(stored.replicas);
            stored.min_ready_seconds = to.min_ready_seconds.unwrap_or(stored.min_ready_seconds);
        }),
        Write::Delete(replica_set) => drop(replica_sets.remove(&replica_set.meta.key.name)),
        Write::Adopt(replica_set) => change(replica_sets, &replica_set.meta.key.name, |stored| {
            stored.meta.controller = Some(controller(deployment));
        }),
        Write::Release(replica_set) => change(replica_sets, &replica_set.meta.key.name, |stored| {
            stored.meta.controller = None;
        }),
        Write::RollBack(to) => roll_back(to.back.as_ref(), deployment)?,
    }
    Ok(true)
}

/// A ReplicaSet of ours with the template, which an earlier request has created, is as good as a new one.
fn create(
    new: &NewReplicaSet,
    deployment: &Deployment,
    objects: &mut Objects,
) -> Result<bool, serde_json::Error> {
    if let Some(there) = objects.replica_sets.get(&*new.name) {
        let has_template = there.template.asks_for_the_same_as(&deployment.template);
        return Ok(deployment.controls(&there.meta) && has_template);
    }
    let created = objects.create(&replica_set_body(deployment, new)?)?;
    objects.replica_sets.insert(new.name.as_str().into(), Arc::new(created));
    Ok(true)
}

fn roll_back(back: Option<&Back>, deployment: &mut Deployment) -> Result<(), serde_json::Error> {
    let Some((template, annotations)) = back else {
        remove_annotations(&mut deployment.annotations, &[ROLLBACK_TO]);
        return Ok(());
    };
    deployment.template = Template::decode(template, &mut Interner::default())?;
    if let Some(annotations) = annotations {
        deployment.annotations = Arc::new(annotations.iter().collect());
    }
    bump_generation(&mut deployment.meta);
    Ok(())
}

/// Stores the revision and the status. Whether either is another than before.
pub fn settle(settled: &Settled, deployment: &mut Deployment) -> bool {
    let Settled { status, revision, requeue_after: _ } = settled;
    let new_revision = revision.as_deref().filter(|new| deployment.annotations.get(REVISION) != Some(*new));
    let is_changed = new_revision.is_some() || *status != deployment.status;
    if let Some(new) = new_revision {
        annotate(&mut deployment.annotations, REVISION, new);
    }
    deployment.status = status.clone();
    is_changed
}
