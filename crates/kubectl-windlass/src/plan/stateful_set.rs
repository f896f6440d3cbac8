//! `plan sts/NAME`: the rollout of a StatefulSet before it begins, by the names of its pods and claims.

use std::collections::BTreeSet;

use jiff::Timestamp;
use serde_json::Value;
use windlass::model::{Interner, Record as _, StatefulSet, StatefulSetStrategy};
use windlass::plan::Reason;
use windlass::plan::preview::stateful_set::{StatefulStart, may_be_unavailable, preview_stateful_set};
use windlass::plan::preview::{Change as Step, DeletionReason, Kubelet, Preview, Room};
use windlass::plan::statefulset::{PlanReason, ordinals};

use super::by_revision::{Rollout, decoded};
use super::changes::named;
use crate::rollout::Workload;
use crate::text::counted;

impl Rollout for StatefulStart {
    fn of(wanted: &Value, workload: &Workload, now: Timestamp) -> Result<Self, serde_json::Error> {
        let interner = &mut Interner::default();
        Ok(StatefulStart {
            set: StatefulSet::decode(&wanted.to_string(), interner)?,
            revisions: decoded(&workload.revisions, interner),
            pods: decoded(&workload.pods, interner),
            claims: decoded(&workload.claims, interner),
            now,
            kubelet: Kubelet::default(),
            rooms: Vec::new(),
        })
    }

    fn play(&self, kubelet: Kubelet, rooms: Vec<Room>) -> Preview {
        preview_stateful_set(StatefulStart { kubelet, rooms, ..self.clone() })
    }

    fn size(&self) -> i64 {
        self.set.replicas.into()
    }

    fn bounds(&self) -> String {
        format!("{}; {}", counted(self.set.replicas.into(), "replica"), bounds(&self.set))
    }

    fn held(&self, preview: &Preview) -> Option<String> {
        held(preview)
    }

    fn claims(&self, preview: &Preview) -> Vec<(&'static str, String)> {
        Claims::of(&self.set, preview).lines(&self.set)
    }
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
    let waits_for_user = |reason: &Reason| {
        let Reason::Ordinals(reason) = reason else { return false };
        matches!(reason, PlanReason::OnDelete { .. } | PlanReason::LeftOver { .. } | PlanReason::Odd { .. })
    };
    let is_on_delete = |reason: &&Reason| matches!(reason, Reason::Ordinals(PlanReason::OnDelete { .. }));
    let outdated = preview.waits_for.iter().find(is_on_delete)?;
    let is_all = preview.waits_for.iter().all(waits_for_user);
    is_all.then(|| format!("nothing more happens. {outdated}"))
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
                Step::Deleted(..) | Step::DeletedOn(..) | Step::CreatedOn(_) => {}
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
