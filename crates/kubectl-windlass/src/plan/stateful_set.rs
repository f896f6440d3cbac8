//! `plan sts/NAME`: the rollout of a StatefulSet before it begins, by the names of its pods and claims.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::Value;
use windlass::model::{Interner, ObjectKey, Record, StatefulSet, StatefulSetStrategy};
use windlass::plan::preview::stateful_set::{StatefulStart, may_be_unavailable, preview_stateful_set};
use windlass::plan::preview::{Change as Step, DeletionReason, Kubelet, Preview};
use windlass::plan::statefulset::{PlanReason, ordinals};

use super::dry_run::{self, Change};
use super::limits::{self, Left};
use super::{Report, if_broken, refuses_each};
use crate::api::Api;
use crate::cli::PlanArgs;
use crate::exit::CommandError;
use crate::rollout::Workload;
use crate::target::Kind;
use crate::text::harmless;

/// The most pods or claims that a line names.
const NAMED: usize = 5;

fn decoded<T: Record>(objects: &[Value], interner: &mut Interner) -> Vec<Arc<T>> {
    objects.iter().filter_map(|object| T::decode(&object.to_string(), interner).ok()).map(Arc::new).collect()
}

/// Previews the change.
pub(super) async fn judge(
    api: &Api,
    args: &PlanArgs,
    key: &ObjectKey,
    file: Option<Value>,
    workload: Workload,
) -> Result<Report, CommandError> {
    let Change { wanted, said, pod, checked, mut unjudged, refusal } =
        dry_run::change_of(api, args, key, file, &workload).await?;
    let Workload { object: now, revisions, pods, claims, .. } = workload;
    let [quotas, budgets, autoscalers] = super::limits_of(api, &key.namespace, &mut unjudged).await?;
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
    let interner = &mut Interner::default();
    let set = StatefulSet::decode(&wanted.to_string(), interner)
        .map_err(|error| CommandError::Unreadable { object: format!("statefulset {key}"), error })?;
    let start = StatefulStart {
        set: set.clone(),
        revisions: decoded(&revisions, interner),
        pods: decoded(&pods, interner),
        claims: decoded(&claims, interner),
        now: super::whole_seconds(api.now()),
        kubelet,
        rooms: refuses_each(refusal.as_ref()),
    };
    let without = preview_stateful_set(start.clone());
    let rooms = headrooms.iter().map(|headroom| headroom.room.clone()).chain(start.rooms).collect();
    let start = StatefulStart { rooms, ..start };
    let with = preview_stateful_set(start.clone());
    let broken = if_broken(args, refusal.as_ref(), &with, kubelet, |kubelet| {
        preview_stateful_set(StatefulStart { kubelet, ..start })
    });
    let moves = Claims::of(&set, &with);
    if !moves.created.is_empty() {
        unjudged.extend(quotas.iter().filter(|quota| is_of_claims(quota)).map(|quota| {
            let name = harmless(quota["metadata"]["name"].as_str().unwrap_or_default());
            format!("quota {name}: what it leaves for claims")
        }));
    }
    let replicas = i64::from(set.replicas);
    let labels = &wanted["spec"]["template"]["metadata"]["labels"];
    let quota = match &refusal {
        // Each pod is refused in any case.
        Some(_) => Vec::new(),
        None => limits::quota_lines(&headrooms, &with, &without),
    };
    Ok(Report {
        object: format!("StatefulSet {key}"),
        kind: Kind::StatefulSet,
        replicas,
        said,
        quota,
        budgets: limits::budget_lines(&budgets, labels, replicas, &with),
        autoscaler: limits::autoscaler_line(
            &autoscalers,
            "StatefulSet",
            &key.name,
            wanted["spec"]["replicas"] != now["spec"]["replicas"],
        ),
        crossed: super::crossed(args, &with),
        held: held(&with),
        bounds: Some(bounds(&set)),
        claims: moves.lines(&set),
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

/// The bounds of a rollout in words.
fn bounds(set: &StatefulSet) -> String {
    let order = if set.is_parallel {
        "Parallel: pods are created and deleted all at once"
    } else {
        "OrderedReady: pods are created and deleted one by one"
    };
    let replaced = match set.strategy {
        StatefulSetStrategy::OnDelete => "OnDelete: a pod is replaced only when a user deletes it".to_owned(),
        StatefulSetStrategy::RollingUpdate { partition, .. } => {
            let most = match may_be_unavailable(set) {
                1 => "at most 1 is replaced at a time".to_owned(),
                most => format!("at most {most} are replaced at a time"),
            };
            match partition.unwrap_or(0) {
                0 => most,
                partition => format!("{most}, none below partition {partition}"),
            }
        }
    };
    format!("{order}; {replaced}")
}

/// Why nothing more happens until a user acts.
fn held(preview: &Preview) -> Option<String> {
    let waits_for_user = |reason: &PlanReason| {
        matches!(reason, PlanReason::OnDelete { .. } | PlanReason::LeftOver { .. } | PlanReason::Odd { .. })
    };
    let outdated = preview.waits_for.iter().find(|reason| matches!(reason, PlanReason::OnDelete { .. }))?;
    let is_all = preview.waits_for.iter().all(waits_for_user);
    is_all.then(|| format!("nothing more happens. {outdated}"))
}

/// Whether a quota bounds claims.
fn is_of_claims(quota: &Value) -> bool {
    let hard = quota["spec"]["hard"].as_object().into_iter().flatten();
    let mut keys = hard.map(|(key, _)| key.as_str());
    keys.any(|key| {
        key.contains("persistentvolumeclaims") || key.contains("storageclass") || key == "requests.storage"
    })
}

/// The claims that a rollout creates, deletes, and leaves behind.
struct Claims {
    created: Vec<String>,
    deleted: Vec<String>,
    kept: Vec<String>,
}

impl Claims {
    fn of(set: &StatefulSet, preview: &Preview) -> Self {
        let mut claims = Claims { created: Vec::new(), deleted: Vec::new(), kept: Vec::new() };
        for change in preview.steps.iter().flat_map(|step| &step.changes) {
            match change {
                Step::Created(_, created) => claims.created.extend(created.iter().map(ToString::to_string)),
                Step::ClaimDeleted(claim) => claims.deleted.push(claim.to_string()),
                Step::Deleted(pod, DeletionReason::Condemned) => {
                    let ordinal = ordinals::split(pod).and_then(|(_, digits)| ordinals::ordinal(digits));
                    let names = ordinal.into_iter().flat_map(|ordinal| {
                        let names = set.claim_templates.names.iter();
                        names.map(move |template| ordinals::claim_name(template, set, ordinal))
                    });
                    claims.kept.extend(names);
                }
                Step::Deleted(..) => {}
            }
        }
        let deleted: BTreeSet<&String> = claims.deleted.iter().collect();
        claims.kept.retain(|claim| !deleted.contains(claim));
        claims
    }

    /// A line for each.
    fn lines(&self, set: &StatefulSet) -> Vec<(&'static str, String)> {
        let mut lines = Vec::new();
        if !self.created.is_empty() {
            lines.push(("claims", format!("created: {}", named(&self.created))));
        }
        if !self.deleted.is_empty() {
            let policy = match set.deletes_claims_when_scaled {
                true => "persistentVolumeClaimRetentionPolicy.whenScaled is Delete",
                false => "a user has deleted them, or their owner is gone",
            };
            lines.push(("data", format!("DELETED with the claims {}: {policy}", named(&self.deleted))));
        }
        if !self.kept.is_empty() {
            lines.push(("data", format!("kept in the claims {}, which nobody deletes", named(&self.kept))));
        }
        lines
    }
}

fn named(names: &[String]) -> String {
    let shown = names.iter().take(NAMED).cloned().collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(NAMED) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

/// The changes of a step in words: `delete db-2`, `create db-3 with claim data-db-3`.
pub(super) fn changes(changes: &[Step]) -> String {
    let of = |wanted: &dyn Fn(&Step) -> Option<String>| changes.iter().filter_map(wanted).collect::<Vec<_>>();
    let mut parts = Vec::new();
    let mut add = |verb: &str, names: Vec<String>, suffix: &str| {
        if !names.is_empty() {
            parts.push(format!("{verb} {}{suffix}", named(&names)));
        }
    };
    for (reason, suffix) in [
        (DeletionReason::Condemned, " (out of range)"),
        (DeletionReason::Ended, " (it has ended)"),
        (DeletionReason::NeverStarted, " (it never started)"),
        (DeletionReason::Broken, " (it is broken)"),
        (DeletionReason::Outdated, ""),
    ] {
        let deleted = of(&|change| match change {
            Step::Deleted(pod, why) if *why == reason => Some(pod.to_string()),
            _ => None,
        });
        add("delete", deleted, suffix);
    }
    let created = of(&|change| match change {
        Step::Created(pod, claims) if claims.is_empty() => Some(pod.to_string()),
        _ => None,
    });
    add("create", created, "");
    let with_claims = of(&|change| match change {
        Step::Created(pod, claims) if !claims.is_empty() => Some(format!("{pod} with {}", claims.join(", "))),
        _ => None,
    });
    add("create", with_claims, "");
    let gone = of(&|change| match change {
        Step::ClaimDeleted(claim) => Some(claim.to_string()),
        _ => None,
    });
    add("delete claim", gone, "");
    parts.join("; ")
}

/// The same as data.
pub(super) fn changes_data(changes: &[Step]) -> Value {
    let of = |change: &Step| match change {
        Step::Deleted(pod, reason) => serde_json::json!({"deletePod": &**pod, "why": reason}),
        Step::Created(pod, claims) => {
            let claims: Vec<&str> = claims.iter().map(|claim| &**claim).collect();
            serde_json::json!({"createPod": &**pod, "createClaims": claims})
        }
        Step::ClaimDeleted(claim) => serde_json::json!({"deleteClaim": &**claim}),
    };
    changes.iter().map(of).collect()
}
