//! The preview of a workload whose pods are of ControllerRevisions: a StatefulSet or a DaemonSet.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::Value;
use windlass::model::{Interner, ObjectKey, Record};
use windlass::plan::preview::{Change as Step, Kubelet, Preview, Room};

use super::dry_run::{self, Change};
use super::limits::{self, Left};
use super::{Played, Report, play};
use crate::api::Api;
use crate::cli::PlanArgs;
use crate::exit::CommandError;
use crate::rollout::Workload;
use crate::rollout::last_writes::LastWrites;
use crate::target::Kind;
use crate::text::harmless;

/// A rollout that has not begun.
pub(super) trait Rollout: Sized {
    /// The rollout to the wanted object, from what is there now.
    ///
    /// # Errors
    /// When the object is not what its kind says.
    fn of(wanted: &Value, workload: &Workload, now: Timestamp) -> Result<Self, serde_json::Error>;

    /// Plays it under these rules, within the quotas.
    fn play(&self, kubelet: Kubelet, rooms: Vec<Room>) -> Preview;

    /// How many pods it ends with.
    fn size(&self) -> i64;

    /// Its size and its bounds, in words.
    fn bounds(&self) -> String;

    /// Why nothing more happens until a user acts.
    fn held(&self, preview: &Preview) -> Option<String>;

    /// The claims that it creates, deletes and keeps, each line with its key.
    fn claims(&self, preview: &Preview) -> Vec<(&'static str, String)>;
}

/// The objects that can be decoded.
pub(super) fn decoded<T: Record>(objects: &[Value], interner: &mut Interner) -> Vec<Arc<T>> {
    objects.iter().filter_map(|object| T::decode(&object.to_string(), interner).ok()).map(Arc::new).collect()
}

/// Previews the change.
pub(super) async fn judge<R: Rollout>(
    api: &Api,
    args: &PlanArgs,
    key: &ObjectKey,
    file: Option<Value>,
    workload: Workload,
) -> Result<Report, CommandError> {
    let kind = workload.kind;
    let Change { wanted, said, pod, checked, mut unjudged, refusal } =
        dry_run::change_of(api, args, key, file, &workload).await?;
    let [quotas, budgets, autoscalers] = super::limits_of(api, &key.namespace, &mut unjudged).await?;
    let rollout = R::of(&wanted, &workload, super::whole_seconds(api.now()))
        .map_err(|error| CommandError::Unreadable { object: format!("{} {key}", kind.singular()), error })?;
    let Workload { object: now, pods, .. } = workload;
    let is_own = |pod: &&Value| {
        let owners = pod["metadata"]["ownerReferences"].as_array().into_iter().flatten();
        let mut owners = owners.filter(|owner| owner["controller"] == true);
        owners.any(|owner| owner["uid"] == now["metadata"]["uid"])
    };
    let own: Vec<Value> = pods.iter().filter(is_own).cloned().collect();
    let old_pod = own.first().unwrap_or(&pod);
    let needs = [old_pod, &pod].map(|pod| limits::needs(&pod["spec"]));
    let Left { rooms: headrooms, replica_sets: _, notes } = limits::left(&quotas, &pod, old_pod);
    unjudged.extend(notes);

    let (ready_after, ready_from) = super::ready_after(args, &own);
    let stop_after = super::stop_after(args, &wanted["spec"]["template"]["spec"]);
    let kubelet = Kubelet { ready_after, stop_after, broken: args.assume.unwrap_or(0) };
    let run = |kubelet, rooms| rollout.play(kubelet, rooms);
    let Played { with, broken, quota } = play(args, refusal.as_ref(), &headrooms, kubelet, run);
    let mut changes = with.steps.iter().flat_map(|step| &step.changes);
    if changes.any(|change| matches!(change, Step::Created(_, claims) if !claims.is_empty())) {
        unjudged.extend(quotas.iter().filter(|quota| is_of_claims(quota)).map(|quota| {
            let name = harmless(quota["metadata"]["name"].as_str().unwrap_or_default());
            format!("quota {name}: what it leaves for claims")
        }));
    }
    let last = LastWrites::of(&now).status;
    if kind == Kind::DaemonSet && (args.restart || last.is_some_and(|actor| actor.manager != "windlass")) {
        // It follows from the hash of the template, of which a restart has the time.
        unjudged.push("the order of the nodes".to_owned());
    }
    let replicas = rollout.size();
    let labels = &wanted["spec"]["template"]["metadata"]["labels"];
    Ok(Report {
        object: format!("{} {key}", kind.title()),
        kind,
        replicas,
        said,
        quota,
        budgets: match kind {
            // `kubectl drain` leaves its pods alone, and a share of them is unknown without a scale.
            Kind::DaemonSet => Vec::new(),
            _ => limits::budget_lines(&budgets, labels, replicas, &with),
        },
        autoscaler: limits::autoscaler_line(
            &autoscalers,
            kind.title(),
            &key.name,
            wanted["spec"]["replicas"] != now["spec"]["replicas"],
        ),
        crossed: super::crossed(args, &with),
        held: rollout.held(&with),
        bounds: Some(rollout.bounds()),
        claims: rollout.claims(&with),
        preview: with,
        broken,
        ready_from,
        ready_after,
        needs,
        refusal,
        checked,
        unjudged,
    })
}

/// Whether a quota bounds claims.
fn is_of_claims(quota: &Value) -> bool {
    let hard = quota["spec"]["hard"].as_object().into_iter().flatten();
    let mut keys = hard.map(|(key, _)| key.as_str());
    keys.any(|key| {
        key.contains("persistentvolumeclaims") || key.contains("storageclass") || key == "requests.storage"
    })
}
