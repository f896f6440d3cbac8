//! The assessment of an object by its status alone. Without its ReplicaSets, its pods or its claims nothing is planned,
//! and no reason is given: a list that may not be read is no empty one.

use jiff::Timestamp;
use serde_json::Value;
use windlass::model::{Deployment, Meta, condition};
use windlass::plan::deployment::progress::PROGRESSING;
use windlass::plan::deployment::revision;

use super::last_writes::LastWrites;
use super::{Assessment, Counts, Verdict, verdict};
use crate::target::Kind;
use crate::text::harmless;

/// The assessment of a Deployment by its status.
pub(super) fn assess(
    deployment: &Deployment,
    object: &Value,
    last: &LastWrites,
    unreadable: &[String],
    now: Timestamp,
) -> Assessment {
    let status = &deployment.status;
    let verdict = verdict::by_status(deployment, last, now);
    let base = of_object(Kind::Deployment, &deployment.meta, object, last, unreadable, now);
    Assessment {
        observed_generation: status.observed_generation,
        revision: deployment.annotations.get(revision::REVISION).and_then(|text| text.parse().ok()),
        verdict,
        since: since(verdict, deployment, last),
        counts: Counts {
            desired: deployment.replicas.into(),
            replicas: status.replicas.into(),
            updated: status.updated.into(),
            ready: status.ready.into(),
            available: status.available.into(),
        },
        desired_new: deployment.replicas.into(),
        policy: super::policy::in_force(&deployment.annotations, now),
        ..base
    }
}

/// The fields that do not depend on the kind, without the status.
pub(super) fn of_object(
    kind: Kind,
    meta: &Meta,
    object: &Value,
    last: &LastWrites,
    unreadable: &[String],
    now: Timestamp,
) -> Assessment {
    Assessment {
        kind,
        namespace: meta.key.namespace.to_string(),
        name: meta.key.name.to_string(),
        uid: meta.uid.to_string(),
        generation: meta.generation,
        observed_generation: 0,
        revision: None,
        verdict: Verdict::Unfinished,
        since: None,
        reasons: Vec::new(),
        refusal: None,
        writes: Vec::new(),
        counts: Counts::default(),
        desired_new: 0,
        then: None,
        by_hand: Vec::new(),
        conditions: conditions(object),
        parts: Vec::new(),
        pods: Vec::new(),
        claims: Vec::new(),
        deadline: None,
        estimate: None,
        acts: last.status.clone(),
        template_written: last.template,
        previous: None,
        work: None,
        summary: None,
        policy: None,
        is_partial: true,
        knows_pods: false,
        unreadable: unreadable.to_vec(),
        now,
    }
}

/// Since when the Deployment is in a state, as its conditions report it. A rollout has not waited for longer than there is
/// its template: until its first progress, the condition has the time of the rollout before.
pub(super) fn since(verdict: Verdict, deployment: &Deployment, last: &LastWrites) -> Option<Timestamp> {
    let progress = condition::find(&deployment.status.conditions, PROGRESSING)
        .and_then(|condition| condition.last_update);
    match verdict {
        Verdict::Unobserved => last.template,
        Verdict::Deleting => None,
        Verdict::Complete => progress,
        Verdict::Scaling => progress.max(last.spec),
        _ => progress.max(last.template),
    }
}

/// The conditions in words, as the server has them.
fn conditions(object: &Value) -> Vec<String> {
    let text = |condition: &Value, field: &str| harmless(condition[field].as_str().unwrap_or_default());
    let all = object["status"]["conditions"].as_array().into_iter().flatten();
    let line = |condition: &Value| {
        let [kind, status, reason, message] =
            ["type", "status", "reason", "message"].map(|field| text(condition, field));
        format!("{kind}={status} {reason}: {message}")
    };
    all.map(line).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use windlass::model::Interner;

    use super::*;

    fn since_of(verdict: Verdict) -> Option<String> {
        let object = json!({
            "metadata": {"name": "web", "namespace": "shop", "uid": "u", "resourceVersion": "1",
                         "creationTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {"selector": {"matchLabels": {"app": "web"}}, "template": {}},
            "status": {"conditions": [
                {"type": "Progressing", "status": "True", "lastUpdateTime": "2026-01-01T00:00:00Z"},
            ]},
        });
        let deployment: Deployment = super::super::decode(&object, &mut Interner::default()).unwrap();
        let at = |text: &str| Some(text.parse().unwrap());
        let last = LastWrites {
            spec: at("2026-01-01T00:24:30Z"),
            template: at("2026-01-01T00:24:00Z"),
            status: None,
        };
        since(verdict, &deployment, &last).map(|at| at.to_string())
    }

    #[test]
    fn a_rollout_has_not_waited_since_the_progress_of_the_one_before() {
        let of = |verdict| since_of(verdict).unwrap();
        assert_eq!(of(Verdict::Waiting), "2026-01-01T00:24:00Z");
        assert_eq!(of(Verdict::Unobserved), "2026-01-01T00:24:00Z");
        assert_eq!(of(Verdict::Scaling), "2026-01-01T00:24:30Z");
        assert_eq!(of(Verdict::Complete), "2026-01-01T00:00:00Z");
    }
}
