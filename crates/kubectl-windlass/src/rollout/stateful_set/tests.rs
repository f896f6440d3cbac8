use serde_json::json;
use windlass::plan::revisions::data;

use super::super::{Workload, assess};
use super::*;

fn at(time: &str) -> Timestamp {
    format!("2026-01-01T{time}Z").parse().unwrap()
}

fn metadata(name: &str, labels: Value, kind: &str) -> Value {
    json!({"namespace": "shop", "name": name, "uid": format!("uid-{name}"), "resourceVersion": "5", "generation": 1,
           "creationTimestamp": "2026-01-01T00:00:00Z", "labels": labels,
           "ownerReferences": [{"apiVersion": "apps/v1", "kind": kind, "name": "db", "uid": "uid-db", "controller": true}]})
}

fn template(image: &str) -> Value {
    json!({"metadata": {"labels": {"app": "db"}}, "spec": {"containers": [{"name": "app", "image": image}]}})
}

fn revision(number: i64, image: &str) -> Value {
    let set = json!({"metadata": metadata("db", json!({}), ""), "spec": {"template": template(image)}});
    let set: StatefulSet = decode(&set, &mut Interner::default()).unwrap();
    let data: Value = serde_json::from_str(&data(&set.template).unwrap()).unwrap();
    let labels = json!({"app": "db", "controller.kubernetes.io/hash": "1"});
    json!({"metadata": metadata(&format!("db-r{number}"), labels, "StatefulSet"), "revision": number, "data": data})
}

fn pod(nth: i64, revision: i64, status: Value) -> Value {
    let labels = json!({"app": "db", "controller-revision-hash": format!("db-r{revision}"),
                        "statefulset.kubernetes.io/pod-name": format!("db-{nth}"),
                        "apps.kubernetes.io/pod-index": nth.to_string()});
    json!({"metadata": metadata(&format!("db-{nth}"), labels, "StatefulSet"), "spec": {"nodeName": "n1", "volumes": [
               {"name": "data", "persistentVolumeClaim": {"claimName": format!("data-db-{nth}")}}]},
           "status": status})
}

fn ready(nth: i64, revision: i64) -> Value {
    let ready = json!({"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:10Z"});
    pod(nth, revision, json!({"phase": "Running", "conditions": [ready]}))
}

fn broken(nth: i64, revision: i64) -> Value {
    let waiting = json!({"reason": "ImagePullBackOff", "message": "Back-off pulling image \"db:2\""});
    pod(
        nth,
        revision,
        json!({"phase": "Pending",
        "conditions": [{"type": "Ready", "status": "False", "lastTransitionTime": "2026-01-01T00:00:30Z"}],
        "containerStatuses": [{"name": "app", "restartCount": 0, "state": {"waiting": waiting}}]}),
    )
}

fn claim(nth: i64, phase: &str) -> Value {
    json!({"metadata": {"namespace": "shop", "name": format!("data-db-{nth}"), "uid": format!("uid-claim-{nth}"),
                        "resourceVersion": "5", "creationTimestamp": "2026-01-01T00:00:00Z",
                        "finalizers": ["kubernetes.io/pvc-protection"]},
           "spec": {"storageClassName": "fast"}, "status": {"phase": phase}})
}

/// Three pods, of which the last has the broken second template.
fn waiting() -> Workload {
    let set = json!({
        "metadata": {"namespace": "shop", "name": "db", "uid": "uid-db", "resourceVersion": "9", "generation": 4,
                     "creationTimestamp": "2026-01-01T00:00:00Z",
                     "managedFields": [{"manager": "kubectl", "time": "2026-01-01T00:00:20Z",
                                        "fieldsV1": {"f:spec": {"f:template": {}}}}]},
        "spec": {"replicas": 3, "serviceName": "db", "selector": {"matchLabels": {"app": "db"}},
                 "template": template("db:2"),
                 "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}},
                 "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": {}}]},
        "status": {"observedGeneration": 4, "replicas": 3, "updatedReplicas": 1, "readyReplicas": 2,
                   "availableReplicas": 2, "currentReplicas": 2, "currentRevision": "db-r1", "updateRevision": "db-r2"}});
    Workload {
        kind: Kind::StatefulSet,
        object: set,
        revisions: vec![revision(1, "db:1"), revision(2, "db:2")],
        pods: vec![ready(0, 1), ready(1, 1), broken(2, 2)],
        claims: (0..3).map(|nth| claim(nth, "Bound")).collect(),
        ..Workload::default()
    }
}

fn assessed(workload: &Workload) -> Assessment {
    assess(workload, at("00:02:00")).unwrap()
}

fn text(assessment: &Assessment) -> String {
    assessment.reasons.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

#[test]
fn an_update_that_waits_for_a_broken_pod_names_it_and_what_comes_next() {
    let db = assessed(&waiting());
    assert_eq!((db.verdict, db.revision, db.writes.len()), (Verdict::Waiting, Some(2), 0), "{:?}", db.writes);
    assert_eq!((db.desired_new, db.new_available()), (3, Some(0)));
    assert_eq!(db.since, Some(at("00:00:30")));
    assert_eq!(db.previous, Some((1, "db:1".to_owned())));
    let [pod] = &db.pods[..] else { panic!("{:?}", db.pods) };
    assert_eq!((pod.name.as_str(), pod.state.as_str(), pod.is_new), ("db-2", "ImagePullBackOff", true));
    assert!(text(&db).contains("Pod db-2: it is not ready: ImagePullBackOff"), "{}", text(&db));
    assert_eq!(db.then.as_deref(), Some("replaces db-1"));
    let parts: Vec<_> =
        db.parts.iter().map(|part| (part.name.as_str(), part.is_new, part.replicas)).collect();
    assert_eq!(parts, [("db-r2", true, 1), ("db-r1", false, 2)]);
}

#[test]
fn a_pod_of_an_older_template_that_keeps_itself_from_being_replaced_is_told_with_the_remedy() {
    let remedy = |change: fn(&mut Workload)| {
        let mut db = waiting();
        db.object["spec"]["template"] = template("db:1");
        db.object["status"]["updateRevision"] = json!("db-r1");
        db.revisions[0]["revision"] = json!(3);
        let crashed = json!([{"name": "app", "restartCount": 4, "lastState": {"terminated": {"exitCode": 1}},
                              "state": {"waiting": {"reason": "CrashLoopBackOff"}}}]);
        db.pods[2]["status"]["containerStatuses"] = crashed;
        change(&mut db);
        let db = assessed(&db);
        crate::rollout::waiting(&db).find(|it| &*it.pod == "db-2").and_then(|it| it.remedy)
    };
    assert!(remedy(|_| {}).unwrap().contains("delete the pod"));
    assert_eq!(remedy(|db| db.object["spec"]["podManagementPolicy"] = json!("Parallel")), None);
    assert_eq!(
        remedy(|db| db.object["spec"]["updateStrategy"]["rollingUpdate"]["partition"] = json!(3)),
        None
    );
    assert_eq!(remedy(|db| db.object["spec"]["template"] = template("db:2")), None, "it has the current one");
    assert_eq!(
        remedy(|db| {
            db.pods[2]["status"]["containerStatuses"] = json!([{"name": "app", "restartCount": 0, "state": {"waiting": {"reason": "ImagePullBackOff"}}}]);
        }),
        None,
        "one that never started is replaced at once"
    );
}

#[test]
fn a_claim_that_is_not_bound_is_named_with_its_pod() {
    let mut db = waiting();
    db.pods[2] = pod(2, 2, json!({"phase": "Pending"}));
    db.pods[2]["spec"].as_object_mut().unwrap().remove("nodeName");
    db.claims[2] = claim(2, "Pending");
    let event = json!({"type": "Warning", "reason": "ProvisioningFailed", "message": "no room", "count": 4,
                       "lastTimestamp": "2026-01-01T00:01:50Z"});
    db.events.insert("uid-claim-2".to_owned(), vec![event]);
    let db = assessed(&db);
    let [claim] = &db.claims[..] else { panic!("{:?}", db.claims) };
    assert_eq!(
        (claim.name.as_str(), claim.pod.as_str(), claim.state.as_str()),
        ("data-db-2", "db-2", "Pending")
    );
    assert!(claim.reason.contains("no room (4 times, last 10s ago)"), "{}", claim.reason);
    assert_eq!(db.pods[0].reason, "its claim data-db-2 is Pending");
}

#[test]
fn a_pod_waits_until_its_claim_is_gone() {
    let mut db = waiting();
    db.pods.pop();
    db.claims[2]["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:01:00Z");
    let db = assessed(&db);
    assert_eq!(db.verdict, Verdict::Waiting);
    assert!(text(&db).contains("Pod db-2: its claim data-db-2 is about to be deleted"), "{}", text(&db));
    assert_eq!((db.claims[0].state.as_str(), db.then.as_deref()), ("terminating", Some("creates db-2")));
}

#[test]
fn a_partition_is_complete_once_the_pods_above_it_are_new() {
    let mut db = waiting();
    db.object["spec"]["updateStrategy"]["rollingUpdate"]["partition"] = json!(2);
    assert_eq!(assessed(&db).desired_new, 1);
    assert_eq!(assessed(&db).verdict, Verdict::Waiting);
    db.pods[2] = ready(2, 2);
    for field in ["readyReplicas", "availableReplicas"] {
        db.object["status"][field] = json!(3);
    }
    let complete = assessed(&db);
    assert_eq!((complete.verdict, complete.new_available()), (Verdict::Complete, Some(1)));
    assert!(text(&complete).contains("The partition is 2: 2 pods below it keep"), "{}", text(&complete));
}

#[test]
fn with_on_delete_a_user_deletes_the_pods_that_are_named() {
    let mut db = waiting();
    db.object["spec"]["updateStrategy"] = json!({"type": "OnDelete"});
    db.pods[2] = ready(2, 1);
    let db = assessed(&db);
    assert_eq!((db.verdict, db.then.clone()), (Verdict::Waiting, None));
    assert_eq!(db.by_hand, ["db-2", "db-1", "db-0"]);
}

#[test]
fn none_at_all_is_complete_and_the_claims_that_stay_are_named() {
    let mut db = waiting();
    db.object["spec"]["replicas"] = json!(0);
    db.object["status"] = json!({"observedGeneration": 4, "replicas": 0, "currentRevision": "db-r2", "updateRevision": "db-r2"});
    db.pods.clear();
    let db = assessed(&db);
    assert_eq!((db.verdict, db.desired_new), (Verdict::Complete, 0));
    assert!(text(&db).contains("data-db-0, data-db-1, data-db-2"), "{}", text(&db));
    assert_eq!(db.claims, []);
}

#[test]
fn a_refused_pod_is_told_by_an_event_of_the_statefulset_that_is_not_older_than_its_spec() {
    let mut db = waiting();
    db.pods.pop();
    let event = |time: &str| {
        json!({"type": "Warning", "reason": "FailedCreate", "message": "create Pod db-2 failed: exceeded quota: few",
               "lastTimestamp": format!("2026-01-01T{time}Z")})
    };
    assert_eq!(assessed(&db).verdict, Verdict::Rolling);
    db.events.insert("uid-db".to_owned(), vec![event("00:00:19")]);
    assert_eq!(assessed(&db).verdict, Verdict::Rolling, "of an earlier spec");
    db.events.insert("uid-db".to_owned(), vec![event("00:01:50")]);
    let blocked = assessed(&db);
    assert_eq!(blocked.verdict, Verdict::Blocked);
    assert!(blocked.refusal.unwrap().contains("exceeded quota: few (10s ago)"));
}

#[test]
fn a_name_that_is_too_long_blocks_it() {
    let mut db = waiting();
    let name = "d".repeat(60);
    db.object["metadata"]["name"] = json!(name);
    db.revisions.clear();
    db.pods.clear();
    let db = assessed(&db);
    assert_eq!(db.verdict, Verdict::Blocked);
    assert!(text(&db).contains("use a name of at most 52 characters"), "{}", text(&db));
}

#[test]
fn a_pod_of_another_owner_with_a_name_of_its_own_is_in_the_way() {
    let mut db = waiting();
    db.pods[2]["metadata"]["ownerReferences"] = json!([{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web",
                                                        "uid": "uid-web", "controller": true}]);
    let db = assessed(&db);
    assert!(text(&db).contains("another pod has its name and belongs to ReplicaSet web"), "{}", text(&db));
}

#[test]
fn without_the_right_to_list_claims_only_the_status_counts() {
    let mut db = waiting();
    db.is_partial = true;
    let part = assessed(&db);
    assert_eq!((part.verdict, part.reasons.len(), part.claims.len()), (Verdict::Unfinished, 0, 0));
    let data = super::super::json::assessment(&part, &[]);
    for unknown in ["why", "writes", "pods", "revisions", "claims"] {
        assert!(data[unknown].is_null(), "{unknown}: {data:#}");
    }
}

#[test]
fn strange_numbers_cause_no_panic() {
    let mut db = waiting();
    db.object["status"] = json!({"replicas": -5, "updatedReplicas": i32::MAX, "availableReplicas": i32::MIN, "observedGeneration": -1});
    db.object["spec"]["replicas"] = json!(i32::MAX);
    db.object["spec"]["ordinals"] = json!({"start": i32::MAX});
    db.object["spec"]["updateStrategy"]["rollingUpdate"]["partition"] = json!(i32::MAX);
    assert_eq!(assessed(&db).desired_new, 0);
}
