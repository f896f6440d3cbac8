//! The defaults of the younger workloads: StatefulSets, Jobs, CronJobs and HorizontalPodAutoscalers (upstream
//! `pkg/apis/{apps,batch}/v1/defaults.go` and `pkg/apis/autoscaling/v2/defaults.go`).

use serde_json::{Value, json};

use super::fields::{Object, child, ensure, fill, fill_map, objects};
use super::pods::{drop_init_containers, pod_spec};

pub(crate) fn controller_revision(object: &mut Object) {
    fill(object, "revision", 0);
}

pub(crate) fn daemon_set(object: &mut Object) {
    if let Some(spec) = ensure(object, "spec") {
        fill(spec, "revisionHistoryLimit", 10);
        if let Some(strategy) = ensure(spec, "updateStrategy") {
            fill(strategy, "type", "RollingUpdate");
            if strategy.get("type").is_some_and(|kind| kind == "RollingUpdate")
                && let Some(rolling) = ensure(strategy, "rollingUpdate")
            {
                fill(rolling, "maxUnavailable", 1);
                fill(rolling, "maxSurge", 0);
            }
            // Beside OnDelete the numbers mean nothing, but what is given is stored, and they are no pointers in Go.
            if let Some(rolling) = child(strategy, "rollingUpdate") {
                fill(rolling, "maxUnavailable", 0);
                fill(rolling, "maxSurge", 0);
            }
        }
        template(spec);
    }
    // These numbers are written even if they are 0 (staging/src/k8s.io/api/apps/v1/types.go).
    if let Some(status) = ensure(object, "status") {
        for field in ["currentNumberScheduled", "desiredNumberScheduled", "numberMisscheduled", "numberReady"]
        {
            fill(status, field, 0);
        }
    }
}

pub(crate) fn deployment(object: &mut Object) {
    if let Some(spec) = ensure(object, "spec") {
        fill(spec, "replicas", 1);
        fill(spec, "revisionHistoryLimit", 10);
        fill(spec, "progressDeadlineSeconds", 600);
        if let Some(strategy) = ensure(spec, "strategy") {
            fill(strategy, "type", "RollingUpdate");
            if strategy.get("type").is_some_and(|kind| kind == "RollingUpdate")
                && let Some(rolling) = ensure(strategy, "rollingUpdate")
            {
                fill(rolling, "maxUnavailable", "25%");
                fill(rolling, "maxSurge", "25%");
            }
        }
        template(spec);
    }
    ensure(object, "status");
}

pub(crate) fn replica_set(object: &mut Object) {
    if let Some(spec) = ensure(object, "spec") {
        fill(spec, "replicas", 1);
        template(spec);
    }
    if let Some(status) = ensure(object, "status") {
        fill(status, "replicas", 0);
    }
}

/// The labels of the template serve as the selector, and as the controller's own, where there are none.
pub(crate) fn replication_controller(object: &mut Object) {
    let labels = object.get("spec").and_then(|spec| spec.pointer("/template/metadata/labels"));
    let labels = labels.filter(|labels| labels.as_object().is_some_and(|map| !map.is_empty())).cloned();
    if let Some(labels) = labels {
        if let Some(spec) = child(object, "spec") {
            fill_map(spec, "selector", &labels);
        }
        if let Some(metadata) = ensure(object, "metadata") {
            fill_map(metadata, "labels", &labels);
        }
    }
    replica_set(object);
}

fn template(spec: &mut Object) {
    if let Some(template) = child(spec, "template") {
        drop_init_containers(template);
    }
    if let Some(template) = child(spec, "template")
        && let Some(spec) = ensure(template, "spec")
    {
        pod_spec(spec);
    }
}

pub(crate) fn stateful_set(object: &mut Object) {
    let Some(spec) = ensure(object, "spec") else { return };
    fill(spec, "podManagementPolicy", "OrderedReady");
    // It is always there, though it may be empty.
    fill(spec, "serviceName", "");
    if let Some(rolling) = rolling_update(spec) {
        fill(rolling, "partition", 0);
    }
    if let Some(retention) = ensure(spec, "persistentVolumeClaimRetentionPolicy") {
        fill(retention, "whenDeleted", "Retain");
        fill(retention, "whenScaled", "Retain");
    }
    fill(spec, "replicas", 1);
    fill(spec, "revisionHistoryLimit", 10);
    template(spec);
    for claim in objects(spec, "volumeClaimTemplates") {
        // These are whole objects to the server, and it is the one that says of which type.
        claim.insert("apiVersion".to_owned(), json!("v1"));
        claim.insert("kind".to_owned(), json!("PersistentVolumeClaim"));
        super::core::claim_template(claim);
    }
}

/// `rollingUpdate` of a StatefulSet, which it has unless a strategy is named without.
fn rolling_update(spec: &mut Object) -> Option<&mut Object> {
    let strategy = ensure(spec, "updateStrategy")?;
    if strategy.get("type").is_none_or(|kind| kind == "" || kind.is_null()) {
        fill(strategy, "type", "RollingUpdate");
        ensure(strategy, "rollingUpdate");
    }
    if strategy.get("type").is_some_and(|kind| kind == "RollingUpdate") {
        return child(strategy, "rollingUpdate");
    }
    None
}

/// The default of a field that not every server has.
pub(crate) fn max_unavailable(stateful_set: &mut Object) {
    if let Some(rolling) = ensure(stateful_set, "spec").and_then(rolling_update) {
        fill(rolling, "maxUnavailable", 1);
    }
}

pub(crate) fn pod_template(object: &mut Object) {
    job_spec(object);
}

pub(crate) fn job(object: &mut Object) {
    if let Some(spec) = ensure(object, "spec") {
        if is_unset(spec, "completions") && is_unset(spec, "parallelism") {
            fill(spec, "completions", 1);
        }
        fill(spec, "parallelism", 1);
        let limit = if is_unset(spec, "backoffLimitPerIndex") { 6 } else { i32::MAX };
        fill(spec, "backoffLimit", limit);
        fill(spec, "completionMode", "NonIndexed");
        fill(spec, "suspend", false);
        let policy = if is_unset(spec, "podFailurePolicy") { "TerminatingOrFailed" } else { "Failed" };
        fill(spec, "podReplacementPolicy", policy);
        fill(spec, "manualSelector", false);
        job_spec(spec);
    }
    let labels = object.get("spec").and_then(|spec| spec.pointer("/template/metadata/labels"));
    if let Some(labels) = labels.filter(|labels| labels.is_object()).cloned()
        && let Some(metadata) = ensure(object, "metadata")
    {
        fill_map(metadata, "labels", &labels);
    }
    ensure(object, "status");
}

pub(crate) fn cron_job(object: &mut Object) {
    if let Some(spec) = ensure(object, "spec") {
        fill(spec, "concurrencyPolicy", "Allow");
        fill(spec, "suspend", false);
        fill(spec, "successfulJobsHistoryLimit", 3);
        fill(spec, "failedJobsHistoryLimit", 1);
        if let Some(job) = child(spec, "jobTemplate") {
            ensure(job, "metadata");
            if let Some(job) = child(job, "spec") {
                job_spec(job);
            }
        }
    }
    ensure(object, "status");
}

fn job_spec(spec: &mut Object) {
    if let Some(template) = child(spec, "template") {
        ensure(template, "metadata");
    }
    template(spec);
    if let Some(policy) = child(spec, "podFailurePolicy") {
        for rule in objects(policy, "rules") {
            objects(rule, "onPodConditions").for_each(|condition| fill(condition, "status", "True"));
        }
    }
}

fn is_unset(object: &Object, field: &str) -> bool {
    object.get(field).is_none_or(Value::is_null)
}

pub(crate) fn autoscaler(object: &mut Object) {
    if let Some(spec) = ensure(object, "spec") {
        fill(spec, "minReplicas", 1);
        if spec.get("metrics").is_none_or(|metrics| metrics.as_array().is_none_or(Vec::is_empty)) {
            let target = json!({"type": "Utilization", "averageUtilization": 80});
            let metric = json!({"type": "Resource", "resource": {"name": "cpu", "target": target}});
            spec.insert("metrics".to_owned(), json!([metric]));
        }
        if let Some(behavior) = child(spec, "behavior") {
            let double = json!({"type": "Percent", "value": 100, "periodSeconds": 15});
            if let Some(up) = ensure(behavior, "scaleUp") {
                fill(up, "stabilizationWindowSeconds", 0);
                fill(up, "selectPolicy", "Max");
                let four = json!({"type": "Pods", "value": 4, "periodSeconds": 15});
                fill(up, "policies", json!([four, double]));
            }
            if let Some(down) = ensure(behavior, "scaleDown") {
                fill(down, "selectPolicy", "Max");
                fill(down, "policies", json!([double]));
            }
        }
    }
    if let Some(status) = ensure(object, "status") {
        fill(status, "desiredReplicas", 0);
    }
}

pub(crate) fn disruption_budget(object: &mut Object) {
    ensure(object, "spec");
    if let Some(status) = ensure(object, "status") {
        for field in ["currentHealthy", "desiredHealthy", "disruptionsAllowed", "expectedPods"] {
            fill(status, field, 0);
        }
    }
}
