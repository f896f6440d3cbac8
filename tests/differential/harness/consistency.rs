//! Whether the statuses of a namespace say what its pods are like.

use std::collections::BTreeSet;

use serde_json::Value;

use super::kubelet::target;
use super::objects::has_all_labels;
use super::recording::{Current, History};
use super::stage::{controller_of, has_ended, is_ready};

/// The label that says of which revision a pod of a DaemonSet or StatefulSet is.
const REVISION_HASH: &str = "controller-revision-hash";

/// Whether a pod has the finalizer of Jobs.
fn has_tracking(pod: &Value) -> bool {
    let finalizers = pod["metadata"]["finalizers"].as_array();
    finalizers.is_some_and(|all| all.iter().any(|one| one == "batch.kubernetes.io/job-tracking"))
}

fn number(object: &Value, path: [&str; 2]) -> i64 {
    object[path[0]][path[1]].as_i64().unwrap_or_default()
}

/// Whether the statuses of all objects say what the pods are like. Where they cannot, for example because a write
/// is refused, the script waits longer.
pub fn is_consistent(history: &History) -> bool {
    let of = |kind: &'static str| history.current.values().filter(move |it| it.kind == kind);
    let seen = |object: &Value| {
        object["status"]["observedGeneration"] == object["metadata"]["generation"]
            && object["metadata"]["deletionTimestamp"].is_null()
    };
    let replica_set = |it: &Current| {
        let uid = it.object["metadata"]["uid"].as_str();
        let pods =
            of("Pod").map(|pod| &pod.object).filter(|pod| controller_of(pod) == uid && !has_ended(pod));
        let (mut active, mut ready, mut terminating, mut labeled) = (0, 0, 0, 0);
        for pod in pods {
            let stays = pod["metadata"]["deletionTimestamp"].is_null();
            active += i64::from(stays);
            ready += i64::from(stays && is_ready(pod));
            terminating += i64::from(!stays);
            labeled += i64::from(stays && has_all_labels(pod, &it.object["spec"]["template"]));
        }
        let reported = number(&it.object, ["status", "terminatingReplicas"]);
        seen(&it.object)
            && number(&it.object, ["spec", "replicas"]) == active
            && number(&it.object, ["status", "replicas"]) == active
            && number(&it.object, ["status", "readyReplicas"]) == ready
            && (reported == terminating || it.kind == "ReplicationController")
            && number(&it.object, ["status", "fullyLabeledReplicas"]) == labeled
            && (number(&it.object, ["spec", "minReadySeconds"]) > 0
                || number(&it.object, ["status", "availableReplicas"]) == ready)
    };
    let deployment = |it: &Current| {
        let uid = it.object["metadata"]["uid"].as_str();
        let replica_sets: Vec<&Value> = of("ReplicaSet").map(|it| &it.object).collect();
        let sum = |field| {
            let owned = replica_sets.iter().filter(|replica_set| controller_of(replica_set) == uid);
            owned.map(|replica_set| number(replica_set, ["status", field])).sum::<i64>()
        };
        let reported = |field| number(&it.object, ["status", field]) == sum(field);
        let terminating = number(&it.object, ["status", "terminatingReplicas"]);
        seen(&it.object)
            && ["replicas", "readyReplicas", "availableReplicas"].into_iter().all(reported)
            && terminating == sum("terminatingReplicas")
    };
    let daemon_set = |it: &Current| {
        let uid = it.object["metadata"]["uid"].as_str();
        let is_counted = |pod: &&Value| {
            controller_of(pod) == uid && pod["metadata"]["deletionTimestamp"].is_null() && is_ready(pod)
        };
        let ready = of("Pod").map(|pod| &pod.object).filter(is_counted).count();
        let owned = of("Pod").map(|pod| &pod.object).filter(|pod| controller_of(pod) == uid);
        let nodes: BTreeSet<&str> = owned.filter_map(|pod| target(pod)).collect();
        let revisions = of("ControllerRevision").map(|it| &it.object);
        let newest = revisions
            .filter(|revision| controller_of(revision) == uid)
            .max_by_key(|revision| revision["revision"].as_i64());
        let hash = newest.map(|revision| &revision["metadata"]["labels"][REVISION_HASH]);
        let is_new = |pod: &&Value| {
            controller_of(pod) == uid && hash == Some(&pod["metadata"]["labels"][REVISION_HASH])
        };
        let new = of("Pod").map(|pod| &pod.object).filter(is_new).count();
        let status = |field| usize::try_from(number(&it.object, ["status", field])).unwrap_or(0);
        seen(&it.object)
            && status("numberReady") == ready
            && status("currentNumberScheduled") + status("numberMisscheduled") == nodes.len()
            && status("updatedNumberScheduled") == new
    };
    let stateful_set = |it: &Current| {
        let uid = it.object["metadata"]["uid"].as_str();
        let pods = || of("Pod").map(|pod| &pod.object).filter(|pod| controller_of(pod) == uid);
        let updated = &it.object["status"]["updateRevision"];
        let is_new = |pod: &&Value| {
            pod["metadata"]["labels"][REVISION_HASH] == *updated
                && pod["metadata"]["deletionTimestamp"].is_null()
        };
        let status = |field| usize::try_from(number(&it.object, ["status", field])).unwrap_or(0);
        seen(&it.object)
            && status("replicas") == pods().count()
            && status("readyReplicas") == pods().filter(|pod| is_ready(pod)).count()
            && status("updatedReplicas") == pods().filter(is_new).count()
    };
    let job = |it: &Current| {
        let uid = it.object["metadata"]["uid"].as_str();
        let pods = || of("Pod").map(|pod| &pod.object).filter(|pod| controller_of(pod) == uid);
        let is_deleted = |pod: &Value| !pod["metadata"]["deletionTimestamp"].is_null();
        let is_active = |pod: &&Value| !has_ended(pod) && !is_deleted(pod);
        let status = |field| usize::try_from(number(&it.object, ["status", field])).unwrap_or(0);
        let lists = it.object["status"]["uncountedTerminatedPods"].as_object();
        // The last failed pod of an index waits for its replacement.
        let is_uncounted = |pod: &&Value| {
            has_ended(pod) && has_tracking(pod) && it.object["spec"]["backoffLimitPerIndex"].is_null()
        };
        let has = |kind: &str| {
            let conditions = it.object["status"]["conditions"].as_array().into_iter().flatten();
            conditions.filter(|c| c["type"] == kind && c["status"] == "True").count() > 0
        };
        let is_between = (has("SuccessCriteriaMet") && !has("Complete")
            || has("FailureTarget") && !has("Failed"))
            && !pods().any(|pod| is_deleted(pod) && !has_ended(pod));
        it.object["spec"]["managedBy"].is_string()
            || is_deleted(&it.object)
            || (status("active") == pods().filter(is_active).count()
                && status("ready") == pods().filter(|pod| is_active(pod) && is_ready(pod)).count()
                && status("terminating") == pods().filter(|pod| is_deleted(pod) && !has_ended(pod)).count()
                && lists.is_some_and(serde_json::Map::is_empty)
                && !pods().any(|pod| is_uncounted(&pod))
                && (has("Suspended") == (it.object["spec"]["suspend"] == true) || has("Complete"))
                && !is_between)
    };
    of("Job").all(job)
        && of("DaemonSet").all(daemon_set)
        && of("StatefulSet").all(stateful_set)
        && of("ReplicaSet").all(replica_set)
        && of("ReplicationController").all(replica_set)
        && of("Deployment").all(deployment)
}
